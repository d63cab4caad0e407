# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of apply: a fleet follows its file."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.core.apply.fields import REBUILD, RESIZE
from ...module_utils.core.apply.plan import BOOT, HARD_REBOOT, REPLACE, UP, Change, Plan, not_done
from ...module_utils.core.settings.apply import APPLY
from ...module_utils.core.settings.request import REQUEST
from ...module_utils.core.settings.selection import DELETION
from ...module_utils.flows.apply import fleet
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.ledger.compute import history
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import backends
from ..plans.set_plans import is_set
from ..run import inventory_hosts, tables
from ..run.firewall import port_filters
from ..run.ledger_action import LedgerAction, read_settings
from ..run.results import outcome, unfit
from ..run.stage_results import CONTROLLER, StageResults
from ..settings import (
    apply_plan,
    boot_request,
    boot_volume_settings,
    host_reports,
    ledger_images,
    resize_settings,
    scheduler_settings,
    variable_names,
    volume_settings,
)
from ..startup import opening

if t.TYPE_CHECKING:
    from ..plans.apply_plans import ApplyPlan

#: Variables with which the playbook hands the instances of its steps around.
OF_STEPS = ("names", "uuids", "reservation_ids", "host", "all", "delete_all", "attachments", "interfaces")
#: Operations after which a guest runs.
STARTING = (*filter(None, UP.values()), HARD_REBOOT, REBUILD)

#: What a run that has nothing to do names for the steps of the playbook.
NOTHING_BEGUN: t.Mapping[str, t.Any] = {
    "operations": {},
    "resizes": False,
    "flavors": {},
    "attach": [],
    "detach": [],
    "attach_interfaces": [],
    "detach_interfaces": [],
}

Rehearsed = t.TypeVar("Rehearsed")
Result = t.Dict[str, t.Any]  # of a task


class Apply:
    """All stages, which are of the controller: hosts are changed by the playbooks of the operations."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options
        self.results = StageResults(action, "instance_apply")
        self.moves = StageResults(action, "instance_move")

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        ledger_result = self._open_ledger()
        entries = [e for e in self.options["instances"] if isinstance(e, dict)]
        self._check_projects(sorted({str(e.get("project") or self.options["project"]) for e in entries}))
        self.request = boot_request.BootRequest(
            self.options,
            scheduler_settings.reading_of(self.action),
            scheduler_settings.zones(self.action),
            self.action.context().actor,
            follows_file=True,
            ledger_images=ledger_images.images_of(self.action),
            filters_ports=port_filters.are_filtered(self.action),
        )
        stages = {
            "ask": self._ask,
            apply_plan.PLAN: self._plan,
            apply_plan.BEGIN: self._begin,
            "follow": self._begin_booted,
            "finish": self._finish,
        }
        stage = self.options["phase"]
        result = stages[stage](self._file())
        if stage in (apply_plan.PLAN, apply_plan.BEGIN):
            self.results.leave(stage, CONTROLLER, result)
        if ledger_result["changed"]:
            return {**result, "changed": True, "diff": [d for d in (ledger_result["diff"], result.get("diff")) if d]}
        return result

    def _open_ledger(self) -> Result:
        """Open the ledger for the first task of the playbook. Returns what its result says of that."""
        opened = opening.opened(self.action) if self.options["open_ledger"] else {"changed": False}
        return {"changed": opened["changed"], "diff": opened["diff"] if opened["changed"] else []}

    def _file(self) -> fleet.File:
        options = self.options
        return fleet.File(
            requests=self.request.requests,
            options=boot_volume_settings.accept_options(self.action, self.request),
            default_project=options["project"],
            prune=options["prune"],
            prune_max=options["prune_max"],
            allow=options["allow"],
            moves=resize_settings.wanted(self.action, Selection(), self.request.catalogue.pci_aliases),
            inventory=None if self._is_deletion_forced() else inventory_hosts.all_of(self.action),
        )

    @staticmethod
    def _check_projects(projects: t.Sequence[str]) -> None:
        if len(projects) > 1:
            raise errors.InvalidInput(
                reason="the entries are of the projects %s; apply takes the entries of one project"
                % ", ".join(projects),
                remedy="Write a file for each project, and run the playbook for each.",
            )

    def _is_deletion_forced(self) -> bool:
        return bool(read_settings({"force": DELETION.named("delete_force")}, {}, self.action.variable)["force"])

    # --- ask ----------------------------------------------------------------------------------------------------------

    def _ask(self, file: fleet.File) -> Result:
        known: set[str] | None = None
        first: list[str] = []
        if self.options["ask"]:
            self.results.clear()
            self.moves.clear()
            self._check_variables(file)
            scheduler_settings.check(self.action)
            variable_names.refuse(self.action, APPLY, DELETION, REQUEST.options("instances", "project").values())
            variable_names.warn(self.action, scheduler_settings.variables_of_hosts(self.action))
            known = set(self.action.compute_hosts())
            first = (StageResults(self.action, "ledger").read("open", CONTROLLER) or {}).get("ask") or []
        plan = self._plan_of_run(file)
        looked = self._look(file, known, first, plan.before if plan else None)
        if looked.ask:
            return {"changed": False, "ask": looked.ask}
        of_plan = plan.check(looked.plan) if plan else {}
        planned = {**self._planned(file, looked.plan, over=not looked.plan.changes), **of_plan}
        self.results.leave(apply_plan.PLAN, CONTROLLER, planned)
        if planned["over"]:
            done = self._show_rehearsal(looked.plan) if self.action.check_mode else self._end(file, looked, planned)
            return {**planned, **NOTHING_BEGUN, **done, "ask": []}
        begun = self._begin(file, plan)
        self.results.leave(apply_plan.BEGIN, CONTROLLER, begun)
        return {**begun, **{n: of_plan[n] for n in ("plan_file",) if n in of_plan}, "ask": []}

    def _plan_of_run(self, file: fleet.File) -> ApplyPlan | None:
        """Return the plan that this run uses, or writes; None: there is none."""
        if not is_set(self.action):
            return None
        from ..plans.apply_plans import ApplyPlan  # of few runs

        return ApplyPlan(self.action, file)

    def _check_variables(self, file: fleet.File) -> None:
        """:raises InvalidInput: variables that would change what the steps of the playbook work on."""
        given = ["bootflow_" + n for n in OF_STEPS if self.action.variable("bootflow_" + n)]
        if given:
            raise errors.InvalidInput(
                reason="%s: apply takes its instances from bootflow_instances" % ", ".join(given),
                remedy="Leave it out.",
            )
        project = self.action.variable("bootflow_project")
        if project is not None and str(project) != file.projects[0]:
            raise errors.InvalidInput(
                reason="the entries are of project %s, bootflow_project is %s" % (file.projects[0], project),
                remedy="Set it to the project of the entries, or leave it out of them.",
            )

    # --- plan ---------------------------------------------------------------------------------------------------------

    def _plan(self, file: fleet.File) -> Result:
        return self._planned(file, self._look(file).plan)

    def _planned(self, file: fleet.File, plan: Plan, over: bool = False) -> Result:
        """Show the plan, and return it. :arg over: nothing follows, and the end shows it"""
        if self.options["print_table"] and not self.action.check_mode and not over:
            tables.show(self.action.ports.display, ["Plan:", *plan.lines()])
        return {
            "changed": False,
            "over": over,
            "project": file.projects[0],
            "planned_at": self.action.context().now,
            "changes": [c.as_dict() for c in plan.changes],
            "delete": fleet.instances_to_delete(plan),
            "boots": any(c.kind in (BOOT, REPLACE) for c in plan.to_do),
            "resize": self._flavors_of_resizes(file) if any(c.kind == RESIZE for c in plan.to_do) else {},
        }

    def _look(
        self,
        file: fleet.File,
        known: t.Collection[str] | None = None,
        clean_first: t.Sequence[str] = (),
        before: t.Callable[[Transaction], None] | None = None,
    ) -> fleet.Looked:
        """Return the plan, or the hosts to ask before (see fleet.look). All that it does with the ledger is tried out and rolled back."""
        makes_volumes = boot_volume_settings.makes_volumes(file.requests)
        configurations = volume_settings.configurations(self.action) if makes_volumes else {}

        def look(tx: Transaction) -> fleet.Looked:
            if before is not None:
                before(tx)
            if makes_volumes:
                backends.configure(tx, configurations)
            return fleet.look(tx, file, known, clean_first)

        return self._rehearse(look)

    def _rehearse(self, function: t.Callable[[Transaction], Rehearsed]) -> Rehearsed:
        """Return the result of ``function``, whose writes are rolled back."""
        ledger = self.action.rehearsal_ledger() if self.action.check_mode else self.action.open_ledger()

        def rehearse(tx: Transaction) -> Rehearsed:
            if self.action.check_mode:
                apply_plan.take_planned(self.action, tx)
                host_reports.follow_power(self.action, tx)
            return function(tx)

        return ledger.rehearsal(rehearse)

    def _flavors_of_resizes(self, file: fleet.File) -> dict[str, str]:
        return self._rehearse(lambda tx: fleet.resizes(tx, file))

    # --- begin --------------------------------------------------------------------------------------------------------

    def _begin(self, file: fleet.File, plan: ApplyPlan | None = None) -> Result:
        """Change what is in the ledger alone. Returns the operations that hosts are to do. :arg plan: is used by that"""
        planned = self.results.begun(apply_plan.PLAN)
        steps = {name: planned[name] for name in ("project", "delete", "boots")}
        if self.action.check_mode:
            return {**self._rehearse_begin(), **steps}
        ledger = self.action.open_ledger()
        begun = ledger.transact(plan.begin) if plan is not None else ledger.transact(fleet.begin, file)
        return {
            **steps,
            "changed": begun.changed,
            "operations": begun.operations,
            "resizes": RESIZE in begun.operations,
            "flavors": begun.flavors,
            "attach": begun.attach,
            "detach": begun.detach,
            "attach_interfaces": begun.attach_interfaces,
            "detach_interfaces": begun.detach_interfaces,
        }

    def _rehearse_begin(self) -> Result:
        """Return the resizes of instances that need nothing else before: only these find their hosts in check mode."""
        planned = self.results.begun(apply_plan.PLAN)
        first = {c["uuid"] for c in planned["changes"] if c["done"] and set(c["steps"]) & set(STARTING)}
        flavors = {u: name for u, name in planned["resize"].items() if u not in first}
        operations = {RESIZE: sorted(flavors)} if flavors else {}
        return {**NOTHING_BEGUN, "changed": False, "operations": operations, "flavors": flavors}

    def _begin_booted(self, file: fleet.File) -> Result:
        """Change what is in the ledger alone of the booted instances. Returns their operations: what failed before is not tried twice."""
        new: set[str] = set()
        if self.results.begun(apply_plan.PLAN)["boots"]:
            accepted = StageResults(self.action, "boot_accept").begun("accept")
            new = {*accepted["created"], *accepted["resumed"]}
        begun = self._begin(file)
        operations = {name: [u for u in uuids if u in new] for name, uuids in begun["operations"].items()}
        return {**begun, "operations": operations}

    # --- finish -------------------------------------------------------------------------------------------------------

    def _finish(self, file: fleet.File) -> Result:
        planned = self.results.begun(apply_plan.PLAN)
        if planned.get("plan") and not self.action.check_mode:
            from ..plans import chosen  # of few runs

            chosen.give_back(self.action, planned["plan"])
        looked = self._look(file)
        return self._show_rehearsal(looked.plan) if self.action.check_mode else self._end(file, looked, planned)

    def _end(self, file: fleet.File, looked: fleet.Looked, planned: t.Mapping[str, t.Any]) -> Result:
        """Report what was done of the plan ``planned``. :arg looked: the fleet as it is now"""
        plan, ledger = looked.plan, self.action.open_ledger()
        expected = sum(1 for c in planned.get("changes") or () if c["done"])
        recorded = looked.unrecorded and ledger.transact(fleet.record, file)
        uuids = [str(c.uuid) for c in plan.unfinished if c.uuid is not None]
        since = planned.get("planned_at") or 0.0
        last_faults = ledger.inspect(history.last_faults, uuids) if uuids else {}
        faults = {u: f for u, f in last_faults.items() if f["created_at"] >= since}
        items = [
            errors.failed_item(c.name, c.uuid or "", history.shown_fault(faults.get(c.uuid or "")), state=c.line()[2:])
            for c in plan.unfinished
        ]
        done = max(expected - len(items), 0)
        if self.options["print_table"]:
            applied = ["Applied: %d of %d changes." % (done, expected), plan.totals()]
            over = planned["over"]
            tables.show(self.action.ports.display, ["Plan:", *plan.lines()] if over else applied, brief=over)
        result: dict[str, t.Any] = {
            "changed": recorded,
            "applied": done,
            "changes": [c.as_dict() for c in plan.changes],
        }
        return outcome(errors.ApplyIncomplete(items, max(expected, len(items))), **result)

    def _show_rehearsal(self, plan: Plan) -> Result:
        """Show the plan of check mode, with the hosts of its boots and moves."""
        boots = {p["name"]: p for p in apply_plan.result_of(self.action, "boots").get("boots") or ()}
        hosts = {
            name: "on %s" % p["host"] if p["host"] else "(cannot be placed on any host)" for name, p in boots.items()
        }
        moves = self.moves.read("begin", CONTROLLER) or {}
        unplaced = {i["uuid"]: i for i in moves.get("not_placed") or ()}
        plan = _without_room(plan, unplaced)
        lines = plan.lines(hosts)
        changed = bool(plan.to_do)
        if self.options["print_table"]:
            tables.show(self.action.ports.display, ["Plan (nothing is touched):", *lines])
        items = [errors.failed_item(n, p["uuid"], p["error"]) for n, p in boots.items() if p["error"]]
        items += [errors.failed_item(i["name"], u, i["error"], host=i["host"]) for u, i in unplaced.items()]
        moved = {i["uuid"]: i["destination"] for i in moves.get("instances") or ()}
        result: dict[str, t.Any] = {
            "changed": changed,
            "applied": 0,
            "changes": [{**c.as_dict(), "host": _host_of(c, boots, moved)} for c in plan.changes],
            "diff": {"prepared": "\n".join(lines) + "\n"} if not self.options["print_table"] else [],
        }
        total = len(boots) + len(unplaced) + len(moved)
        message = unfit(len(items), total, [p for p in boots.values() if p["error"]])
        return outcome(errors.ApplyIncomplete(items, total, message=message), **result)


def _without_room(plan: Plan, unplaced: t.Mapping[str, t.Mapping[str, t.Any]]) -> Plan:
    """Return the plan without the resizes that have no host. The error says why."""
    changes = [
        not_done(c, "there is no host for it") if c.kind == RESIZE and c.uuid in unplaced else c for c in plan.changes
    ]
    return replace(plan, changes=tuple(changes))


def _host_of(change: Change, boots: t.Mapping[str, t.Mapping[str, t.Any]], moved: t.Mapping[str, str]) -> str | None:
    """Return the host that a boot or a resize would use; None where there is none."""
    if change.kind == RESIZE and change.done:
        return moved.get(str(change.uuid))
    plan = boots.get(change.name) if change.kind in (BOOT, REPLACE) else None
    return None if plan is None else t.cast("str | None", plan["host"])
