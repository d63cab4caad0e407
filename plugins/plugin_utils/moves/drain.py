# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a drain, around the steps of migrate, live_migrate and confirm_resize."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import counted
from ...module_utils.core.reading.nearest import suggestion
from ...module_utils.core.request import catalogue
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import cold, drain, live
from ...module_utils.ledger.database import Ledger
from ..plans.set_plans import is_set
from ..run import tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, outcome
from ..run.stage_results import CONTROLLER, StageResults
from ..run.stages import Items, Result, Stages
from ..settings import resize_settings
from . import live_settings

if t.TYPE_CHECKING:
    from ..plans.drain_plans import DrainPlan

#: The actions of the migrations between its stages.
MIGRATIONS = ("instance_live_migrate", "instance_move")
#: What the playbook passes to migrate, live_migrate and confirm_resize itself.
OF_STEPS = ("names", "uuids", "reservation_ids", "host", "all", "project")


class Drain(Stages):
    """A drain of a host. Its stages are the controller's."""

    called = "drain"
    returns = ("begin", "moved", "finish")  # the playbook passes the UUIDs to other playbooks

    def __init__(self, action: LedgerAction, family: str):
        super().__init__(action, family)
        self.migrations = [StageResults(action, name) for name in MIGRATIONS]
        self.host = self.options["host"]

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "ask": self._ask, "moved": self._moved, "finish": self._finish}

    def _ledger(self) -> contextlib.closing[Ledger]:
        action = self.action
        return contextlib.closing(action.rehearsal_ledger() if action.check_mode else action.open_ledger())

    def _begin(self) -> Result:
        """:raises InvalidInput: variables that would change what the steps of the playbook work on."""
        for results in self.migrations:
            results.clear()
        given = ["bootflow_" + n for n in OF_STEPS if n != "project" and self.action.variable("bootflow_" + n)]
        if given:
            raise errors.InvalidInput(
                reason="%s: drain takes all instances of bootflow_drain_host" % ", ".join(given), remedy="Leave it out."
            )
        if self.host not in self.action.compute_hosts():
            near = suggestion(self.host, self.action.compute_hosts(), "The list of compute hosts")
            raise errors.ComputeHostNotFound(host=self.host, remedy=near)
        parsed = catalogue.parse_catalogue(None, None, None, None, None, self.options["pci_alias"], default_project="")
        chosen = Selection(hosts=[self.host])
        wanted = resize_settings.wanted(self.action, chosen, parsed.pci_aliases)
        running = live_settings.wanted(self.action, chosen) if self.options["live"] else None
        plan = self._plan_of_run(wanted, running)
        begun = plan.begin() if plan else self.action.write(lambda tx: drain.begin(tx, self.host, wanted, running))
        places = plan.places if plan else {}
        stays = [
            {"name": begun.rows[u].display_name, "uuid": u, "vm_state": begun.rows[u].vm_state, "error": e.as_dict()}
            for u, e in begun.stays.items()
        ]
        live, leaves = (
            [{"name": r.display_name, "uuid": r.uuid, "vm_state": r.vm_state} for r in rows]
            for rows in (begun.live, begun.leaves)
        )
        if self.options["print_table"]:
            lines = self._plan(begun.disabled, live, leaves, stays, places)
            tables.show(self.action.ports.display, [*(plan.lines() if plan else ()), *lines])
        states = ["%s %s\n" % (self.host, word) for word in ("enabled", "disabled")]
        return {
            "changed": begun.disabled,
            "live": live,
            "live_uuids": [i["uuid"] for i in live],
            "leaves": leaves,
            "uuids": [i["uuid"] for i in leaves],
            "stays": stays,
            "diff": diff("hosts", *states) if begun.disabled else [],
            **(plan.result() if plan else {}),
        }

    def _plan_of_run(self, wanted: cold.Wanted, running: live.Wanted | None) -> DrainPlan | None:
        """Return the plan that the drain uses, or writes; None: there is none."""
        if not is_set(self.action):
            return None
        from ..plans.drain_plans import DrainPlan  # of few runs

        return DrainPlan(self.action, self.host, wanted, running)

    def _plan(
        self,
        disabled: bool,
        live: Items,
        leaves: Items,
        stays: Items,
        places: t.Mapping[str, str],
    ) -> list[str]:
        """:arg places: uuid -> the host that a plan holds"""

        def to(item: t.Mapping[str, t.Any]) -> str:
            return " to %s" % places[item["uuid"]] if item["uuid"] in places else ""

        title = "Plan of draining %s (nothing is touched):" if self.action.check_mode else "Plan of draining %s:"
        lines = ["~ %s gets no new instances" % self.host] if disabled else []
        lines += ["~ %s live_migrate%s" % (i["name"], to(i)) for i in live]
        lines += [
            "~ %s migrate%s%s" % (i["name"], to(i), ", restarts the guest" if i["vm_state"] == "active" else "")
            for i in leaves
        ]
        lines += ["! %s stays: %s" % (i["name"], i["error"]["message"]) for i in stays]
        numbers = ("%d to live_migrate, " % len(live) if live else "", len(leaves), len(stays))
        totals = "%s%d to migrate, %d to stay." % numbers if live or leaves or stays else "No instance is on it."
        return [title % self.host, *lines, totals]

    def _ask(self) -> Result:
        """Select the hosts that are to report before what earlier runs migrated is confirmed."""
        with self._ledger() as ledger:
            hosts = ledger.inspect(drain.hosts_to_ask, self.host)
        known = set(self.action.compute_hosts())
        return {"changed": False, "ask": self.action.within_limit([h for h in hosts if h in known])}

    def _moved(self) -> Result:
        """Select the migrations to confirm."""
        with self._ledger() as ledger:
            uuids = ledger.inspect(drain.to_confirm, self.host)
        return {"changed": False, "uuids": uuids}

    def _finish(self) -> Result:
        """Report what the host still has. The task fails if that is an instance."""
        begun = self.result("begin")
        errors_of = self._errors()
        if begun.get("plan") and not self.action.check_mode:
            from ..plans import chosen  # of few runs

            chosen.give_back(self.action, begun["plan"])
        with self._ledger() as ledger:
            remaining = ledger.inspect(drain.remaining_instances, self.host)
        if self.action.check_mode:  # the others would have left
            remaining = {u: of_row for u, of_row in remaining.items() if u in errors_of}
        unknown = errors.RemoteError(reason="it was not migrated").as_dict()
        items = []
        for uuid, (row, error) in remaining.items():
            problem = error.as_dict() if error else errors_of.get(uuid) or unknown
            items.append(errors.failed_item(row.display_name, uuid, problem, host=row.host))
        moved = [i for i in [*begun.get("live", []), *begun.get("leaves", [])] if i["uuid"] not in remaining]
        if self.options["print_table"]:
            verb, empty = ("would leave", "would be") if self.action.check_mode else ("left", "is")
            text = "drain: %s %s %s." % (counted(len(moved), "instances"), verb, self.host)
            lines = [] if remaining else ["%s %s empty." % (self.host, empty)]
            tables.show(self.action.ports.display, [text, *lines])
        incomplete = errors.DrainIncomplete(items, len(items) + len(moved), host=self.host)
        return outcome(incomplete, changed=False, moved=moved, left=sorted(remaining))

    def _errors(self) -> dict[str, dict[str, t.Any]]:
        """Return why instances did not leave, by UUID, from the results of all steps."""
        problems = {i["uuid"]: i["error"] for i in self.result("begin").get("stays", [])}
        for results in self.migrations:
            begun, finished = (results.read(stage, CONTROLLER) or {} for stage in ("begin", "finish"))
            problems.update({i["uuid"]: i["error"] for i in begun.get("not_placed", [])})
            problems.update({i["uuid"]: i["error"] for i in finished.get("instances", []) if i["error"]})
        return problems
