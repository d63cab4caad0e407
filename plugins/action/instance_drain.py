# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_drain: the steps of the playbook drain around those of migrate and confirm_resize."""

from __future__ import annotations

import contextlib
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.amounts import counted
from ..module_utils.core.reading.nearest import suggestion
from ..module_utils.core.request import catalogue
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import DRAIN
from ..module_utils.flows.instances.operation import Selection
from ..module_utils.flows.moves import drain
from ..plugin_utils.moves import live_settings
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff, outcome
from ..plugin_utils.settings import resize_settings

# As playbooks/drain.yml registers its own tasks, and live_migrate.yml and move.yml those of the migrations.
BEGUN, MOVING, MOVED = "bootflow_drain_begun", "bootflow_move_begun", "bootflow_move_finished"
LIVE_MOVING, LIVE_MOVED = "bootflow_live_begun", "bootflow_live_finished"
#: What the playbook passes to migrate and confirm_resize itself.
OF_STEPS = ("names", "uuids", "reservation_ids", "host", "all", "project")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": ["begin", "ask", "moved", "finish"], "default": "begin"},
        **DRAIN.options(),
        **REQUEST.options("pci_alias", "quotas", "instance_overhead", "default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        self.host = self.options["host"]
        phases = {"begin": self._begin, "ask": self._ask, "moved": self._moved, "finish": self._finish}
        return phases[self.options["phase"]]()

    def _registered(self, name: str) -> t.Mapping[str, t.Any]:
        return t.cast("t.Mapping[str, t.Any]", self.task_vars["hostvars"]["localhost"].get(name) or {})

    def _begin(self) -> dict[str, t.Any]:
        """:raises InvalidInput: variables that would change what the steps of the playbook work on."""
        given = ["bootflow_" + n for n in OF_STEPS if n != "project" and self.variable("bootflow_" + n)]
        if given:
            raise errors.InvalidInput(
                reason="%s: drain takes all instances of bootflow_drain_host" % ", ".join(given), remedy="Leave it out."
            )
        if self.host not in self.compute_hosts():
            near = suggestion(self.host, self.compute_hosts(), "The list of compute hosts")
            raise errors.ComputeHostNotFound(host=self.host, remedy=near)
        found = catalogue.parse_catalogue(None, None, None, None, None, self.options["pci_alias"], default_project="")
        chosen = Selection(hosts=[self.host])
        wanted = resize_settings.wanted(self, chosen, found.pci_aliases)
        running = live_settings.wanted(self, chosen) if self.options["live"] else None
        begun = self.write(lambda tx: drain.begin(tx, self.host, wanted, running))
        stays = [
            {"name": begun.rows[u].display_name, "uuid": u, "vm_state": begun.rows[u].vm_state, "error": e.as_dict()}
            for u, e in begun.stays.items()
        ]
        live, leaves = (
            [{"name": r.display_name, "uuid": r.uuid, "vm_state": r.vm_state} for r in rows]
            for rows in (begun.live, begun.leaves)
        )
        if self.options["print_table"]:
            tables.show(self._display, self._plan(begun.disabled, live, leaves, stays))
        states = ["%s %s\n" % (self.host, word) for word in ("enabled", "disabled")]
        return {
            "changed": begun.disabled,
            "live": live,
            "live_uuids": [i["uuid"] for i in live],
            "leaves": leaves,
            "uuids": [i["uuid"] for i in leaves],
            "stays": stays,
            "diff": diff("hosts", *states) if begun.disabled else [],
        }

    def _plan(
        self,
        disabled: bool,
        live: t.Sequence[t.Mapping[str, t.Any]],
        leaves: t.Sequence[t.Mapping[str, t.Any]],
        stays: t.Sequence[t.Mapping[str, t.Any]],
    ) -> list[str]:
        title = "Plan of draining %s (nothing is touched):" if self.check_mode else "Plan of draining %s:"
        lines = ["~ %s gets no new instances" % self.host] if disabled else []
        lines += ["~ %s live_migrate" % i["name"] for i in live]
        lines += [
            "~ %s migrate%s" % (i["name"], ", restarts the guest" if i["vm_state"] == "active" else "") for i in leaves
        ]
        lines += ["! %s stays: %s" % (i["name"], i["error"]["message"]) for i in stays]
        numbers = ("%d to live_migrate, " % len(live) if live else "", len(leaves), len(stays))
        totals = "%s%d to migrate, %d to stay." % numbers if live or leaves or stays else "No instance is on it."
        return [title % self.host, *lines, totals]

    def _ask(self) -> dict[str, t.Any]:
        """The hosts that are to report before what earlier runs migrated is confirmed."""
        with contextlib.closing(self.rehearsal_ledger() if self.check_mode else self.open_ledger()) as ledger:
            hosts = ledger.inspect(drain.hosts_to_ask, self.host)
        known = set(self.compute_hosts())
        return {"changed": False, "hosts": self.within_limit([h for h in hosts if h in known])}

    def _moved(self) -> dict[str, t.Any]:
        with contextlib.closing(self.rehearsal_ledger() if self.check_mode else self.open_ledger()) as ledger:
            uuids = ledger.inspect(drain.to_confirm, self.host)
        return {"changed": False, "uuids": uuids}

    def _finish(self) -> dict[str, t.Any]:
        begun = self._registered(BEGUN)
        why = {i["uuid"]: i["error"] for i in begun.get("stays", [])}
        for before, after in ((LIVE_MOVING, LIVE_MOVED), (MOVING, MOVED)):
            why.update({i["uuid"]: i["error"] for i in self._registered(before).get("not_placed", [])})
            why.update({i["uuid"]: i["error"] for i in self._registered(after).get("instances", []) if i["error"]})
        with contextlib.closing(self.rehearsal_ledger() if self.check_mode else self.open_ledger()) as ledger:
            left = ledger.inspect(drain.remaining_instances, self.host)
        if self.check_mode:  # they would have left
            left = {u: its for u, its in left.items() if u in why}
        unknown = errors.RemoteError(reason="it was not migrated").as_dict()
        items = [
            errors.failed_item(
                row.display_name, uuid, error.as_dict() if error else why.get(uuid) or unknown, host=row.host
            )
            for uuid, (row, error) in left.items()
        ]
        moved = [i for i in [*begun.get("live", []), *begun.get("leaves", [])] if i["uuid"] not in left]
        if self.options["print_table"]:
            would = " would be" if self.check_mode else " is"
            lines = ["%s%s empty." % (self.host, would)] if not left else []
            text = "drain: %s %s %s." % (
                counted(len(moved), "instances"),
                "would leave" if self.check_mode else "left",
                self.host,
            )
            tables.show(self._display, [text, *lines])
        error = errors.DrainIncomplete(items, len(items) + len(moved), host=self.host)
        return outcome(error, changed=False, moved=moved, left=sorted(left))
