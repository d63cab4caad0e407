# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.compute_host_state."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import HOSTS
from ..module_utils.flows.recovery import host_state
from ..module_utils.ledger.compute import service_state
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff

WORDS = {
    service_state.ENABLED: "enabled",
    service_state.DISABLED: "disabled",
    service_state.FORCED_DOWN: "forced down",
    service_state.UP: "no longer forced down",
    service_state.DELETED: "deleted from the ledger",
}


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **HOSTS.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        options = self.options
        if self.check_mode:
            ledger = self.rehearsal_ledger()
            changes = ledger.rehearsal(
                host_state.set_state, options["hosts"], options["state"], options["reason"] or ""
            )
        else:
            ledger = self.open_ledger()
            changes = ledger.transact(host_state.set_state, options["hosts"], options["state"], options["reason"] or "")
        shown = ledger.inspect(service_state.states_of, options["hosts"])
        ledger.close()
        if options["state"] == service_state.ENABLED:
            for host in sorted(h for h, s in shown.items() if s["by_inventory"]):
                self._display.warning("%s stays disabled: bootflow_disabled is true in the inventory." % host)
            for host in sorted(h for h, s in shown.items() if s["forced_down"]):
                self._display.warning(
                    "%s stays down, because it is forced down. Run the playbook with bootflow_host_state: up to end that."
                    % host
                )
        if options["print_table"]:
            tables.show(self._display, self._lines({c["host"] for c in changes}))
        return {
            "changed": bool(changes),
            "changes": changes,
            "hosts": shown,
            "diff": diff(
                "hosts",
                "".join("%(host)s %(what)s: %(from)s\n" % c for c in changes),
                "".join("%(host)s %(what)s: %(to)s\n" % c for c in changes),
            ),
        }

    def _lines(self, changed: t.Collection[str]) -> list[str]:
        options = self.options
        words = WORDS[options["state"]] + (" (%s)" % options["reason"] if options["reason"] else "")
        verb = "would be " if self.check_mode else "is "
        return [
            "%s %s%s" % (host, verb, words) if host in changed else "%s is %s, as before" % (host, words)
            for host in sorted(set(options["hosts"]))
        ]
