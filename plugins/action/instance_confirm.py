# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_confirm."""

from __future__ import annotations

import contextlib
import typing as t

from ..module_utils.core.instances import states
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import CONFIRMATION
from ..module_utils.flows.instances.operation import Selection
from ..module_utils.flows.moves import confirm
from ..module_utils.ledger.compute.instances import Instance
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff


class ActionModule(LedgerAction):
    ARGUMENTS = {"ask": {"type": "bool", "default": False}, **CONFIRMATION.options(), **RUN.options("print_table")}

    def act(self) -> dict[str, t.Any]:
        selection = Selection.from_options(self.options)
        known = set(self.compute_hosts())
        ask = self._hosts_to_ask(selection, known) if self.options["ask"] else []
        if ask:
            return {"changed": False, "ask": ask, "instances": [], "unchanged": [], "hosts": [], "diff": []}
        done = self.write(lambda tx: confirm.confirm(tx, selection, self.options["window"]))
        shown = [
            {
                "name": row.display_name,
                "uuid": row.uuid,
                "host": row.host,
                "left": done.sources[row.uuid],
                "vm_state": done.vm_states[row.uuid],
            }
            for row in done.rows
        ]
        if self.options["print_table"]:
            tables.show(self._display, self._lines(shown, done.unchanged))
        for row in done.waiting:
            text = "%s is not confirmed: %s, where it is now, did not answer. The copy on the former host may be the only one."
            self._display.warning(text % (row.display_name, row.host))
        for row in done.unsure:
            text = "%s is confirmed on %s, which is down: the copy on %s, which may be the only one, is removed."
            self._display.warning(text % (row.display_name, row.host, done.sources[row.uuid]))
        return {
            "changed": bool(shown),
            "ask": [],
            "instances": shown,
            "unchanged": [{"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in done.unchanged],
            "hosts": [] if self.check_mode else self.within_limit(sorted(set(done.sources.values()) & known)),
            "diff": diff(
                "instances",
                "".join("%s %s: %s\n" % (i["name"], i["uuid"], states.RESIZED) for i in shown),
                "".join("%s %s: %s\n" % (i["name"], i["uuid"], i["vm_state"]) for i in shown),
            ),
        }

    def _hosts_to_ask(self, selection: Selection, known: t.Collection[str]) -> list[str]:
        """The hosts that are to report before what has waited long enough is confirmed."""
        with contextlib.closing(self.rehearsal_ledger() if self.check_mode else self.open_ledger()) as ledger:
            hosts = ledger.inspect(confirm.hosts_to_ask, selection, self.options["window"])
        return self.within_limit([h for h in hosts if h in known])

    def _lines(self, shown: t.Sequence[t.Mapping[str, t.Any]], unchanged: t.Sequence[Instance]) -> list[str]:
        if not shown and not unchanged:
            return ["confirm_resize: no instance waits to be confirmed."]
        title = "Would confirm_resize (nothing is touched):" if self.check_mode else "confirm_resize:"
        was = states.RESIZED if self.check_mode else ""
        rows = [
            (i["name"], i["uuid"], i["host"], tables.change(was or i["vm_state"], i["vm_state"]), i["left"], "")
            for i in shown
        ]
        rows += [(r.display_name, r.uuid, r.host, r.vm_state, "", "nothing to do") for r in unchanged]
        return [title, *tables.table(("INSTANCE", "UUID", "HOST", "VM_STATE", "LEFT", "NOTE"), rows)]
