# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of an operation on instances: begin on the controller, work on each host, finish on the controller.

Imports that only some operations or instances need (any work but power states, attached_volumes) are made where they are needed: they take
longer than a stop takes here.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances import operation_outcomes
from ...module_utils.core.instances.operation_outcomes import Answers, Item
from ...module_utils.core.instances.power_states import NOSTATE, POWER_STATES
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.reading.setting import PREFIX
from ...module_utils.core.settings.selection import OPERATION
from ...module_utils.flows.instances import operation as flow
from ...module_utils.flows.instances.operation import Operation, Selection
from ...module_utils.ledger.compute import history, moves
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ...module_utils.ledger.storage.attachments import Connector
from ..run import host_settings, host_variables, tables
from ..run.inventory_hosts import reachable, refuse_left_out
from ..run.lease import lease_kept
from ..run.ledger_action import CONTROLLER, LedgerAction
from ..run.results import diff, outcome
from ..settings import host_reports, variable_names
from ..startup import opening
from .work import Items, Work, uuids_of
from .works import HARD_REBOOT, work_of

if t.TYPE_CHECKING:
    from ...module_utils.ledger.compute.instances import Instance

# As playbooks/operation.yml registers what the controller and the hosts answered.
BEGUN = "bootflow_operation_begun"
OPERATED = "bootflow_operated"

Failed = t.Mapping[str, errors.BootflowError]  # by the uuids of instances


class _Begun(t.NamedTuple):
    """The instances that an operation begins with, and their volumes."""

    begun: flow.Begun
    with_volumes: set[str]
    lacking: t.Sequence[str] = ()  # instances to be defined again, for volumes that have no connection
    storage_hosts: t.Sequence[str] = ()  # which export these volumes


class InstanceOperation:
    """An operation on the instances of a run, in one task."""

    def __init__(self, action: LedgerAction, operation: Operation):
        self.action = action
        self.options = action.options
        self.operation = operation

    @functools.cached_property
    def work(self) -> Work:
        return work_of(self.action, self.operation.work)

    # --- begin: on the controller, for all hosts --------------------------------------------------------------------

    def begin(self) -> dict[str, t.Any]:
        action, ask = self.action, self.options["ask"]
        opened = opening.opened(action) if self.options["open_ledger"] else None
        host_settings.check_common(action)
        variable = self.work.image_variable
        variable_names.refuse(action, OPERATION, meant={PREFIX + "image": variable} if variable else None)
        selection = Selection.from_options(self.options)
        known_hosts = frozenset(action.compute_hosts())
        self.work.prepare()
        limit = (opened or self._registered()).get("run_limit")
        clean_first = set(opened["clean_first"]) if opened and ask else set()
        upgraded = opened["diff"] if opened and opened["changed"] else None

        def begin(tx: Transaction) -> _Begun | set[str]:
            if clean_first:
                return clean_first | self._hosts_to_ask(tx, selection, known_hosts)
            if action.check_mode:
                host_reports.follow_power(action, tx)
            begun = self.work.begin(tx, self.operation, selection, known_hosts, ask)
            if begun.ask:
                return begun.ask
            if limit is not None:
                refuse_left_out({str(r.host) for r in begun.rows}, limit)
            self.work.check(tx, begun)
            return self._with_volumes(tx, begun, limit)

        done = action.write(begin)
        if isinstance(done, set):
            return {
                "changed": upgraded is not None,
                "ask": sorted(done),
                "run_limit": limit,
                "hosts": [],
                "storage_hosts": [],
                "work": {},
                "diff": upgraded or [],
            }
        states = self._diff(done.begun.rows)
        work = self._items(done)
        return {
            "changed": upgraded is not None or bool(done.begun.rows),
            "ask": [],
            "instances": [{"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in done.begun.rows],
            "unchanged": self._unchanged(done.begun.unchanged),
            "hosts": sorted(work),
            "begun_at": action.context().now,
            "storage_hosts": list(done.storage_hosts),
            "work": work,
            "diff": [upgraded, states] if upgraded else states,
        }

    def _hosts_to_ask(self, tx: Transaction, selection: Selection, known: t.Collection[str]) -> set[str]:
        """Return the hosts of instances that are as requested by the ledger: their guests may have been changed by other means."""
        try:
            return flow.hosts_to_ask(tx, self.operation, selection, known)
        except errors.InvalidInput:  # the step that begins says so
            return set()

    def _with_volumes(self, tx: Transaction, begun: flow.Begun, limit: t.Collection[str] | None) -> _Begun:
        """Find the instances with volumes, and connect volumes that a fault left without a connection."""
        uuids = [r.uuid for r in begun.rows]
        done = _Begun(begun, set(attachments.of_instances(tx, uuids)))
        if not self.operation.recovers_volumes:
            return done
        lacking = moves.detached_while_away(tx, uuids) if self.work.connects_volumes else set()
        if done.with_volumes:
            from ...module_utils.flows.attachments import moving

            places = {r.uuid: r.host for r in begun.rows if r.uuid in done.with_volumes}
            # Its definition is written again. A start would not know that the guest runs.
            anew = [] if self.work.sets_power else begun.rows
            gone = [r.uuid for r in anew if r.uuid in done.with_volumes and r.power_state == NOSTATE]
            unconnected = moving.adopt_unconnected(tx, places, self._connector, gone)
            if unconnected:
                if limit is not None:
                    from ...module_utils.flows.attachments import life

                    refuse_left_out(reachable(self.action, life.storage_hosts_of(tx, unconnected)), limit)
                exporting = reachable(self.action, moving.storage_hosts(tx))
                return done._replace(lacking=sorted({*lacking, *unconnected}), storage_hosts=exporting)
        return done._replace(lacking=sorted(lacking))

    def _connector(self, host: str, facts: t.Mapping[str, t.Any]) -> Connector:
        """Return the connector of ``host`` for volumes that a fault left without a connection: rare, so its settings are read only now."""
        from ..volumes import attached_volumes

        return attached_volumes.connectors_of(self.action.task_vars["hostvars"], [host])(host, facts)

    def _items(self, done: _Begun) -> dict[str, list[dict[str, t.Any]]]:
        """Return the items of each host, by which later stages know its instances."""
        items: dict[str, list[dict[str, t.Any]]] = {}
        for row in done.begun.rows:
            item: dict[str, t.Any] = {
                "uuid": row.uuid,
                "name": row.display_name,
                "vm_state": row.vm_state,
                "power_state": row.power_state,
                "volumes": row.uuid in done.with_volumes,
                "details": self.operation.details(row),
            }
            if row.uuid in done.lacking:
                item["lacking"] = True
            items.setdefault(str(row.host), []).append({**item, **self.work.item_of(row)})
        return items

    def _unchanged(self, rows: t.Sequence[Instance]) -> list[dict[str, t.Any]]:
        """Return instances that are as requested, and whether their hosts were silent when they were asked."""
        reports = host_reports.of_this_run(self.action) if rows else {}
        silent = {host for host, report in reports.items() if report.get("error")}
        return [
            {
                "name": r.display_name,
                "uuid": r.uuid,
                "host": r.host,
                "power_state": r.power_state,
                "silent": r.host in silent,
            }
            for r in rows
        ]

    def _diff(self, rows: t.Sequence[Instance]) -> dict[str, str]:
        result = self.operation.rule.result
        words = {r.uuid: self.work.change_of(r) for r in rows}
        line = "%s %s: %s%s\n"
        before = [line % (r.display_name, r.uuid, r.vm_state, words[r.uuid][0]) for r in rows]
        after = [line % (r.display_name, r.uuid, result or r.vm_state, words[r.uuid][1]) for r in rows]
        return diff("instances", "".join(before), "".join(after))

    # --- work: on each host, for all of its instances -----------------------------------------------------------------

    def work_on_host(self) -> dict[str, t.Any]:
        action = self.action
        items: Items = self._registered().get("work", {}).get(action.task_vars["inventory_hostname"], [])
        uuids = uuids_of(items)
        try:
            kept = lease_kept(action)
            with contextlib.nullcontext() if action.check_mode else kept:
                lost = self._lost_since(uuids)
                answers = {**self._failed(lost), **self._on_host([i for i in items if i["uuid"] not in lost])}
        except errors.BootflowError as e:
            answers = self._failed(dict.fromkeys(uuids, e))
        except Exception as e:  # the instances fail, never the play
            answers = self._failed(dict.fromkeys(uuids, action.unexpected(e)))
        changed = any(each.get("changed") for each in answers.values())
        return {"changed": changed, "operation": self.operation.name, "outcomes": answers}

    def _lost_since(self, uuids: t.Sequence[str]) -> Failed:
        """Find the instances that another run has now, and why. As long as the lease from the beginning is not over, no run believes this one
        dead, and the ledger need not be asked.
        """
        context = self.action.context()
        begun_at = float(self._registered().get("begun_at") or 0.0)
        if self.action.check_mode or context.now < begun_at + context.lease_seconds / 2:
            return {}
        return self._lost(uuids)

    def _lost(self, uuids: t.Iterable[str]) -> Failed:
        """Find the instances that another run has now, and why; none in check mode."""
        if self.action.check_mode:
            return {}
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.inspect(flow.lost, self.operation, sorted(uuids))

    def _failed(self, failed: Failed) -> Answers:
        """Return the answers of failed instances. Tracebacks are journalled here, not in the last stage: people read the result of this task."""
        frames = {u: e.details["traceback"] for u, e in failed.items() if e.details.get("traceback")}
        if frames and not self.action.check_mode:
            with contextlib.suppress(errors.BootflowError), contextlib.closing(self.action.open_ledger()) as ledger:
                ledger.transact(history.note, frames, self.operation.name)
        return {uuid: {"error": error.as_dict()} for uuid, error in failed.items()}

    def _on_host(self, items: Items) -> Answers:
        """Return the answers of the current host."""
        host = self.action.task_vars["inventory_hostname"]
        problems = Problems()
        host_settings.check({host: host_settings.Variables(self.action)}, [host], problems)
        problems.raise_if_any()
        fresh, failed = self._connect_volumes(items)
        answers = self._failed(failed)
        items = [i for i in items if i["uuid"] not in failed]
        if not self.work.sets_power:
            return {**answers, **self._define_again(self.work, items, fresh)}
        cut_off = {i["uuid"] for i in items if self._is_cut_off(i)}
        answers.update(self._set_power([i for i in items if i["uuid"] not in cut_off]))
        deaf = operation_outcomes.not_restarted(answers)
        left = [i for i in items if i["uuid"] in deaf or i["uuid"] in cut_off]
        if left:
            answers.update(self._define_again(work_of(self.action, HARD_REBOOT), left, fresh, deaf))
        return answers

    def _is_cut_off(self, item: Item) -> bool:
        return bool(item.get("lacking")) and not self.action.check_mode

    def _connect_volumes(self, items: Items) -> tuple[set[str], Failed]:
        """Connect the host to the volumes of guests that it starts, and to volumes that a fault left without a connection.

        Returns the attachments that were connected after such a fault, and why instances failed.
        """
        fresh: set[str] = set()
        failed: dict[str, errors.BootflowError] = {}
        cut_off = [i["uuid"] for i in items if self._is_cut_off(i)]
        connect = [i["uuid"] for i in items if i["volumes"]] if self.work.connects_volumes else []
        if connect and not self.action.check_mode:
            failed.update(self._log_in([u for u in connect if u not in cut_off]))
        if cut_off:
            from ..volumes import attached_volumes

            fresh, lost = attached_volumes.come_to_host(self.action, cut_off)
            failed.update(lost)
        return fresh, failed

    def _log_in(self, uuids: t.Sequence[str]) -> Failed:
        """Log a restarted host in to its guests' volumes. Returns uuid -> why that failed."""
        from ..volumes import attached_volumes

        with contextlib.closing(self.action.open_ledger()) as ledger:
            volumes = ledger.inspect(attached_volumes.load, uuids)
        found = [a for group in volumes.values() for a in group]
        problems = attached_volumes.reconnect(self.action, found)
        return {a.row.instance_uuid: problems[a.id] for a in found if a.id in problems}

    def _set_power(self, items: Items) -> Answers:
        if not items:
            return {}
        answers, problems = self.work.on_host(items, ())
        off: Answers = {}
        if self.operation.gone:
            off, problems = operation_outcomes.accept_missing_domains(problems)
        answers = {**operation_outcomes.with_errors(answers, self._failed(problems)), **off}
        if self.work.starts_guests:
            self._clear_lost(uuids_of(items))
        return answers

    def _clear_lost(self, started: t.Sequence[str]) -> None:
        """End the guests of instances that were deleted meanwhile: their host may have started them after their deletion took their power."""
        lost = self._lost(started)
        if lost:
            from . import cleaning

            cleaning.clear_lost(self.action, lost)

    def _define_again(
        self, work: Work, items: Items, fresh: t.Collection[str], deaf: t.Collection[str] = ()
    ) -> Answers:
        """Do a work that is no matter of a power state. If it fails, guests whose power state was set before stay as they are.

        :arg deaf: guests that did not restart when they were asked
        """
        lost = self._lost(uuids_of(items))  # a guest may have been waited for, or deleted
        answers = self._failed(lost)
        items = [i for i in items if i["uuid"] not in lost]
        if not items:
            return answers
        done: Answers = {}
        try:
            done, problems = work.on_host(items, fresh)
        except errors.BootflowError as e:
            problems = dict.fromkeys(uuids_of(items), e)
        except Exception as e:
            problems = dict.fromkeys(uuids_of(items), self.action.unexpected(e))
        done = operation_outcomes.with_errors(done, self._failed(problems))
        answers.update(operation_outcomes.with_reset_guests(done, deaf))
        if not self.action.check_mode:
            from . import cleaning

            cleaning.clear_lost(self.action, uuids_of(items))
        return answers

    # --- finish: on the controller, for all hosts -----------------------------------------------------------------------

    def finish(self) -> dict[str, t.Any]:
        begun = self._registered()
        items = {i["uuid"]: (host, i) for host, group in begun.get("work", {}).items() for i in group}
        answers = self._answers(begun)
        failed = self._write_outcomes({u: item for u, (_host, item) in items.items()}, answers)
        instances = []
        for uuid, (host, item) in items.items():
            result = operation_outcomes.outcome_of(answers[uuid], failed.get(uuid))
            vm_state = flow.vm_state_after(self.operation, result)
            instances.append(
                operation_outcomes.summary_of(
                    item, host, answers[uuid], failed.get(uuid), vm_state, self.operation.gone
                )
            )
        passwords = self._leave_passwords([i for _host, i in items.values() if i["uuid"] not in failed])
        if self.options["print_table"]:
            before = {uuid: item["vm_state"] for uuid, (_host, item) in items.items()}
            lines = self._lines(instances, before, begun.get("unchanged") or []) + passwords
            if lines:
                tables.show(self.action._display, lines)
        listed = [errors.failed_item(i["name"], i["uuid"], i["error"], host=i["host"]) for i in instances if i["error"]]
        error = errors.OperationFailed(listed, len(instances), operation=self.operation.called)
        return outcome(error, changed=len(failed) < len(instances), instances=instances)

    def _answers(self, begun: t.Mapping[str, t.Any]) -> Answers:
        """Return the answers of all instances, as the hosts' tasks of this playbook registered them."""
        work: t.Mapping[str, Items] = begun.get("work", {})
        registered = host_variables.results(self.action.task_vars["hostvars"], list(work), OPERATED)
        dies_to = self.operation.rule.dies_to
        answers: Answers = {}
        for host, items in work.items():
            result = registered.get(host) or {}
            answers.update(operation_outcomes.answers_of_host(items, host, result, self.operation.name, dies_to))
        return answers

    def _write_outcomes(self, items: t.Mapping[str, Item], answers: Answers) -> Failed:
        """Write the outcomes of all hosts. Returns why instances failed."""
        failed = {u: errors.from_dict(a["error"]) for u, a in answers.items() if a.get("error")}
        if not answers or self.action.check_mode:
            return failed
        outcomes = {u: operation_outcomes.outcome_of(a, failed.get(u)) for u, a in answers.items()}
        lacking = [u for u, item in items.items() if item.get("lacking")]

        def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
            if failed:
                self.work.undo(tx, self.operation, items, {u: outcomes[u] for u in failed})
            if lacking:
                from ...module_utils.flows.attachments import moving

                moving.release_moved(tx, lacking)
            return flow.finish(tx, self.operation, outcomes)

        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.transact(finish)

    def _leave_passwords(self, items: Items) -> list[str]:
        """Leave the passwords of instances in the folder that a person named. Returns the lines that say so."""
        folder = self.options["admin_password_dir"]
        uuids = [i["uuid"] for i in items if i["details"].get("tells_password", True)]
        if not folder or not uuids or self.action.check_mode or self.work.password_suffix is None:
            return []
        from ..builds import passwords

        suffix = self.work.password_suffix
        passwords.leave_in(folder, {uuid + suffix: self.work.password(uuid) for uuid in uuids})
        return ["Admin passwords: in %s, in files named UUID%s" % (folder, suffix)]

    def _lines(
        self, instances: t.Sequence[t.Mapping[str, t.Any]], before: t.Mapping[str, str], unchanged: Items
    ) -> list[str]:
        """Return the table of all instances. :arg before: uuid -> vm_state"""
        title = "Would %s (nothing is touched):" if self.action.check_mode else "%s:"
        rows: list[tuple[t.Any, ...]] = [
            (
                i["name"],
                i["uuid"],
                i["host"],
                # Check mode tells both states, as the power_state is that of the first.
                tables.change(before[i["uuid"]], i["vm_state"]) if self.action.check_mode else i["vm_state"],
                POWER_STATES.get(i["power_state"]),
                operation_outcomes.note_of(i, self.operation.forced),
            )
            for i in instances
        ]
        result = self.operation.rule.result
        rows += [
            (
                i["name"],
                i["uuid"],
                i["host"],
                result,
                POWER_STATES.get(i["power_state"]),
                "its host did not answer" if i["silent"] else "nothing to do",
            )
            for i in unchanged
        ]
        if not rows and self._registered().get("failed"):  # its error is reported already
            return []
        if not rows:
            return ["%s: no instance is selected." % self.operation.called]
        head = ("INSTANCE", "UUID", "HOST", "VM_STATE", "POWER_STATE", "NOTE")
        return [title % self.operation.called, *tables.table(head, rows)]

    def _registered(self) -> t.Mapping[str, t.Any]:
        """Return the result of the stage ``begin``; empty before it."""
        found = host_variables.results(self.action.task_vars["hostvars"], [CONTROLLER], BEGUN)
        return t.cast("t.Mapping[str, t.Any]", found.get(CONTROLLER) or {})
