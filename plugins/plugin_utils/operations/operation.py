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
from ...module_utils.core.instances.power_states import NOSTATE, POWER_STATES, SHUTDOWN
from ...module_utils.core.reading.problems import Problems
from ...module_utils.core.reading.setting import PREFIX
from ...module_utils.core.settings.selection import OPERATION
from ...module_utils.flows.instances import operation as flow
from ...module_utils.flows.instances.operation import Operation, Selection
from ...module_utils.ledger.compute import moves
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ...module_utils.ledger.storage.attachments import Connector
from ..run import host_settings, tables
from ..run.inventory_hosts import in_inventory, reachable, refuse_left_out
from ..run.ledger_action import LedgerAction
from ..run.results import diff
from ..run.stage_results import CONTROLLER
from ..run.stages import Failed, Result, Stages
from ..settings import host_reports, variable_names
from ..startup import opening
from . import guest_handover
from .guest_handover import Guests
from .work import Items, Work, uuids_of
from .works import HARD_REBOOT, work_of

if t.TYPE_CHECKING:
    from ...module_utils.ledger.compute.instances import Instance


class _Begun(t.NamedTuple):
    """The instances that an operation begins with, and their volumes."""

    begun: flow.Begun
    with_volumes: set[str]
    lacking: t.Sequence[str] = ()  # instances to be defined again, for volumes that have no connection
    storage_hosts: t.Sequence[str] = ()  # which export these volumes
    given: Guests | None = None  # for the tasks of hosts


class InstanceOperation(Stages):
    """An operation on the instances of a run."""

    answered_by = {"work": "host"}  # the host of a store answers for several hosts
    rehearses_on_hosts = True
    returns = ("finish", "report")
    #: Whether stages behind the last one end what hosts made for instances that were deleted meanwhile.
    clears = True

    def __init__(self, action: LedgerAction, operation: Operation):
        super().__init__(action, guest_handover.OPERATION)
        self.operation = operation
        self.called, self.event = operation.called, operation.name
        self.keeps_lease = not action.check_mode
        self.starts = {self.begins: "compute"} if self.work.starts_any else {}
        self._lost_by_host: dict[str, list[str]] = {}
        self._touched: set[str] = set()  # instances for which the current host may have made something

    @functools.cached_property
    def work(self) -> Work:
        return work_of(self.action, self.operation.work)

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        earlier = self.results.read("begin", CONTROLLER) or {}  # of a begin that named the hosts to ask
        begin = functools.partial(self._begin, earlier.get("run_limit"))
        return {
            "begin": begin,
            "settle": self._settle_snapshots,
            "finish": self._finish_or_clear,
            "report": self._report,
        }

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        stages = {"freeze": self._freeze, "release": self._release, "work": self._work, "store": self._store}
        return {**stages, "clear": self._clear}

    # --- begin: on the controller, for all hosts --------------------------------------------------------------------

    def _begin(self, limit: list[str] | None) -> Result:
        """:arg limit: the hosts that plays can reach, if hosts were asked before; None: all"""
        action, ask = self.action, self.options["ask"]
        opened = opening.opened(action) if self.options["open_ledger"] else None
        host_settings.check_common(action)
        variable = self.work.image_variable
        variable_names.refuse(action, OPERATION, meant={PREFIX + "image": variable} if variable else None)
        selection = Selection.from_options(self.options)
        known_hosts = frozenset(action.compute_hosts())
        self.work.prepare()
        limit = opened.get("run_limit") if opened else limit
        clean_first = set(opened["ask"]) if opened and ask else set()
        upgraded = opened["diff"] if opened and opened["changed"] else None
        begun_at = action.context().now

        def begin(tx: Transaction) -> _Begun | set[str]:
            if clean_first:
                return clean_first | self._hosts_to_ask(tx, selection, known_hosts)
            if action.check_mode:
                host_reports.follow_power(action, tx)
            begun = self.work.begin(tx, self.operation, selection, known_hosts, ask)
            if begun.ask:
                return begun.ask
            if limit is not None:
                others = {*self.work.store_hosts(begun.rows), *self.work.storage_hosts()}
                refuse_left_out({*(str(r.host) for r in begun.rows), *others}, limit)
            self._refuse_shared_disks(begun.rows)
            self.work.check(tx, begun)
            return self._with_guests(tx, self._with_volumes(tx, begun, limit))

        done = action.write(begin)
        if isinstance(done, set):
            return {
                "changed": upgraded is not None,
                "ask": sorted(done),
                "run_limit": limit,
                "compute": [],
                "diff": upgraded or [],
            }
        states = self._diff(done.begun.rows)
        items = self._items(done)
        if done.given is not None:
            guest_handover.give(action, {i["uuid"]: i["host"] for i in items}, done.given, begun_at)
        images = {} if action.check_mode else self.work.begin_images(done.begun.rows)
        return {
            "changed": upgraded is not None or bool(done.begun.rows),
            "ask": [],
            "instances": items,
            "unchanged": self._unchanged(done.begun.unchanged),
            "compute": sorted({i["host"] for i in items}),
            "freezing": [] if action.check_mode else sorted({i["host"] for i in items if self.work.is_frozen(i)}),
            "uuids": [i["uuid"] for i in items],
            "begun_at": begun_at,
            "clears": self.clears,
            "storage": sorted({*done.storage_hosts, *([] if action.check_mode else self.work.storage_hosts())}),
            "release": []
            if action.check_mode
            else sorted({i["host"] for i in items if i["uuid"] in self.work.storage_work}),
            **images,
            "stores": [] if action.check_mode else self.work.store_hosts(done.begun.rows),
            "diff": [upgraded, states] if upgraded else states,
        }

    def _refuse_shared_disks(self, rows: t.Sequence[Instance]) -> None:
        """Refuse a work on local disks that are in a pool of their hosts, before anything is touched. :raises NotSupportedYet: one has such"""
        if self.work.reads_disks:
            from ..scheduling import shared_disks

            shared_disks.refuse(self.action, [r for r in rows if not r.spec.get("is_bfv")], self.called)

    def _hosts_to_ask(self, tx: Transaction, selection: Selection, known: t.Collection[str]) -> set[str]:
        """Return the hosts of instances that are as requested by the ledger: their guests may have been changed by other means."""
        try:
            hosts = flow.hosts_to_ask(tx, self.operation, selection, known)
            return hosts | self.work.hosts_to_ask(tx, self.operation, selection)
        except errors.InvalidInput:  # the step that begins says so
            return set()

    def _with_volumes(self, tx: Transaction, begun: flow.Begun, limit: t.Collection[str] | None) -> _Begun:
        """Find the instances with volumes; connect volumes that a fault left without a connection, and volumes that storage hosts work on."""
        done, storage_work = self._with_lacking(tx, begun, limit), self.work.storage_work
        if not storage_work:
            return done
        hosts = in_inventory(self.action, sorted(set(storage_work.values())))
        return done._replace(
            lacking=sorted({*done.lacking, *storage_work}), storage_hosts=sorted({*done.storage_hosts, *hosts})
        )

    def _with_lacking(self, tx: Transaction, begun: flow.Begun, limit: t.Collection[str] | None) -> _Begun:
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
            absent_guests = [r.uuid for r in anew if r.uuid in done.with_volumes and r.power_state == NOSTATE]
            starts = self.work.sets_power and self.work.connects_volumes
            off = [r.uuid for r in begun.rows if starts and r.uuid in done.with_volumes and r.power_state == SHUTDOWN]
            unconnected = moving.adopt_unconnected(tx, places, self._connector, absent_guests, off)
            if unconnected:
                if limit is not None:
                    from ...module_utils.flows.attachments import life

                    refuse_left_out(reachable(self.action, life.storage_hosts_of(tx, unconnected)), limit)
                exporting = reachable(self.action, moving.storage_hosts(tx))
                return done._replace(lacking=sorted({*lacking, *unconnected}), storage_hosts=exporting)
        return done._replace(lacking=sorted(lacking))

    def _with_guests(self, tx: Transaction, done: _Begun) -> _Begun:
        """Read what the tasks of hosts need of guests."""
        uuids = [r.uuid for r in done.begun.rows if r.uuid not in done.lacking]
        if self.work.needs_guests and uuids:
            from . import hard_reboot

            return done._replace(given=hard_reboot.guests_to_give(tx, uuids))
        with_volumes = sorted(done.with_volumes & set(uuids)) if self.work.connects_volumes else []
        if with_volumes:
            from ..volumes import attached_volumes

            return done._replace(given=Guests([], attached_volumes.load(tx, with_volumes)))
        return done

    def _connector(self, host: str, facts: t.Mapping[str, t.Any]) -> Connector:
        """Return the connector of ``host`` for volumes that a fault left without a connection: rare, so its settings are read only now."""
        from ..volumes import attached_volumes

        return attached_volumes.connectors_of(self.action.task_vars["hostvars"], [host])(host, facts)

    def _items(self, done: _Begun) -> list[dict[str, t.Any]]:
        """Return the items by which later stages know the instances."""
        items = []
        for row in done.begun.rows:
            item: dict[str, t.Any] = {
                "uuid": row.uuid,
                "name": row.display_name,
                "host": str(row.host),
                "vm_state": row.vm_state,
                "power_state": row.power_state,
                "volumes": row.uuid in done.with_volumes,
                "domain": row.domain_name,
                "details": self.operation.details(row),
            }
            if row.uuid in done.lacking:
                item["lacking"] = True
            if row.uuid in self.work.storage_work:
                item["storage_work"] = True
            items.append({**item, **self.work.item_of(row)})
        return items

    def _unchanged(self, rows: t.Sequence[Instance]) -> list[dict[str, t.Any]]:
        """Return instances that are as requested, and whether their hosts were silent when they were asked."""
        silent = host_reports.silences(self.action) if rows else {}
        return [
            {
                "name": r.display_name,
                "uuid": r.uuid,
                "host": r.host,
                "power_state": r.power_state,
                "vm_state": r.vm_state,
                "silent": r.host in silent,
                "note": self.work.note_of_unchanged(r),
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

    def _freeze(self, host: str) -> Result:
        """Have the file systems of guests stand still, until the work on their host."""
        items = [item for item in self.items_on(host, "host") if self.work.is_frozen(item)]
        outcomes = self.guarded(uuids_of(items), lambda: self.work.freeze(items))
        return {"changed": any(outcome.get("changed") for outcome in outcomes.values()), "outcomes": outcomes}

    def _release(self, host: str) -> Result:
        """Have the host disconnect volumes that storage hosts are to work on."""
        items = [i for i in self.items_on(host, "host") if i.get("storage_work")]
        outcomes = self.guarded(uuids_of(items), lambda: self.work.release(items))
        return {"changed": any(outcome.get("changed") for outcome in outcomes.values()), "outcomes": outcomes}

    def _released(self, host: str) -> Answers | None:
        """Return what the host answered to the stage release; None: nothing."""
        result = self.result("release", host)
        return dict(result.get("outcomes") or {}) if self.is_current(result, "release") else None

    def _work(self, host: str) -> Result:
        items = self.items_on(host, "host")
        if any(self.work.is_frozen(item) for item in items) and not self.action.check_mode:
            frozen = self.result("freeze", host)
            self.work.frozen = frozen.get("outcomes") or {} if self.is_current(frozen, "freeze") else {}

        def work() -> tuple[Answers, Failed]:
            lost_instances = self._lost_since(uuids_of(items))
            return self._on_host([i for i in items if i["uuid"] not in lost_instances]), lost_instances

        answers = self.work.judged(items, self.guarded(uuids_of(items), work))
        changed = any(answer.get("changed") for answer in answers.values())
        return {"changed": changed, "outcomes": answers, "touched": sorted(self._touched)}

    def _store(self, host: str) -> Result:
        """Have the host of a store receive what other hosts give it."""
        answers, items = self.answers("work"), self.items()
        made = sorted(uuid for uuid in items if not answers[uuid].get("error"))
        outcomes = self.guarded(made, lambda: self.work.on_store_host(host, list(items.values()), answers))
        return {"changed": any(outcome.get("changed") for outcome in outcomes.values()), "outcomes": outcomes}

    def _lost_since(self, uuids: t.Sequence[str]) -> Failed:
        """Find the instances that another run has now, and why. As long as the lease from the beginning is not over, no run believes this one
        dead, and the ledger need not be asked.
        """
        context = self.action.context()
        begun_at = float(self.result(self.begins).get("begun_at") or 0.0)
        if self.action.check_mode or context.now < begun_at + context.lease_seconds / 2:
            return {}
        return self.find_lost(uuids)

    def lost_in(self, tx: Transaction, uuids: t.Collection[str]) -> Failed:
        return flow.find_lost_instances(tx, self.operation, sorted(uuids))

    def find_lost(self, uuids: t.Iterable[str]) -> Failed:
        return {} if self.action.check_mode else super().find_lost(uuids)

    def _failed(self, failed: Failed) -> Answers:
        """Return the answers of failed instances. Tracebacks are journalled here, not in the last stage: people read the result of this task."""
        self.journal_tracebacks(failed)
        return {uuid: {"error": error.as_dict()} for uuid, error in failed.items()}

    def _on_host(self, items: Items) -> Answers:
        """Return the answers of the current host."""
        host = self.action.task_vars["inventory_hostname"]
        problems = Problems()
        host_settings.check({host: host_settings.Variables(self.action)}, [host], problems)
        problems.raise_if_any()
        answers: Answers = {}
        if any(i.get("storage_work") for i in items) and not self.action.check_mode:
            screened, why = self.work.screen(items, self._released(host))
            answers = operation_outcomes.with_errors(screened, self._failed(why))
            items = [i for i in items if i["uuid"] not in answers]
        fresh, failed = self._connect_volumes(items)
        undone = self.work.undo_on_host([i for i in items if i["uuid"] in failed]) if failed else {}
        answers.update(operation_outcomes.with_errors(undone, self._failed(failed)))
        items = [i for i in items if i["uuid"] not in failed]
        if not self.work.sets_power:
            return {**answers, **self._define_again(self.work, items, fresh)}
        cut_off = {i["uuid"] for i in items if self._is_cut_off(i)}
        answers.update(self._set_power([i for i in items if i["uuid"] not in cut_off]))
        deaf = operation_outcomes.not_restarted(answers)
        remaining = [i for i in items if i["uuid"] in deaf or i["uuid"] in cut_off]
        if remaining:
            answers.update(self._define_again(work_of(self.action, HARD_REBOOT), remaining, fresh, deaf))
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
        if (
            self.work.starts_guests
            and host_settings.disk_pool(host_settings.read_current_host(self.action)) is not None
        ):
            from ..builds import pool_disks

            failed.update(pool_disks.open_disks(self.action, [i["uuid"] for i in items if i["uuid"] not in failed]))
        if cut_off:
            from ..volumes import attached_volumes

            fresh, problems = attached_volumes.come_to_host(self.action, cut_off)
            failed.update(problems)
        return fresh, failed

    def _log_in(self, uuids: t.Sequence[str]) -> Failed:
        """Log a restarted host in to its guests' volumes. Returns uuid -> why that failed."""
        from ..volumes import attached_volumes

        given = guest_handover.find(self.action, uuids) if uuids else guest_handover.Guests([], {})
        if given is not None:
            volumes = given.volumes
        else:
            with contextlib.closing(self.action.open_ledger()) as ledger:
                volumes = ledger.inspect(attached_volumes.load, uuids)
        volume_attachments = [a for group in volumes.values() for a in group]
        problems = attached_volumes.reconnect(self.action, volume_attachments)
        return {a.row.instance_uuid: problems[a.id] for a in volume_attachments if a.id in problems}

    def _set_power(self, items: Items) -> Answers:
        if not items:
            return {}
        answers, problems = self.work.on_host(items, ())
        off: Answers = {}
        if self.operation.missing_domain_note:
            off, problems = operation_outcomes.accept_missing_domains(problems)
        answers = {**operation_outcomes.with_errors(answers, self._failed(problems)), **off}
        if self.work.starts_guests:
            self._clear_lost(uuids_of(items))
        return answers

    @property
    def _clears_later(self) -> bool:
        """Whether the controller looks for instances that were deleted meanwhile, for all hosts, before the playbook ends."""
        return bool(self.result(self.begins).get("clears"))

    def _clear_lost(self, started: t.Sequence[str]) -> None:
        """End the guests of instances that were deleted meanwhile: their host may have started them after their deletion took their power."""
        if self._clears_later:
            self._touched.update(started)
            return
        lost_instances = self.find_lost(started)
        if lost_instances:
            from . import cleaning

            cleaning.clear_lost(self.action, lost_instances)

    def _define_again(
        self, work: Work, items: Items, fresh: t.Collection[str], deaf: t.Collection[str] = ()
    ) -> Answers:
        """Do a work that does more than set a power state. If it fails, guests whose power state was set before stay as they are.

        :arg deaf: guests that did not restart when they were asked
        """
        # A guest may have been waited for, or deleted. What was read at the beginning is trusted for a while.
        was_read_lately = guest_handover.is_fresh(self.action, float(self.result(self.begins).get("begun_at") or 0.0))
        trusted = self._clears_later and was_read_lately and not self.work.sets_power
        lost_instances = {} if trusted else self.find_lost(uuids_of(items))
        answers = self._failed(lost_instances)
        items = [i for i in items if i["uuid"] not in lost_instances]
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
        if self._clears_later:
            self._touched.update(uuids_of(items))
        elif not self.action.check_mode:
            from . import cleaning

            cleaning.clear_lost(self.action, uuids_of(items))
        return answers

    # --- settle: on the controller, where storage hosts worked for the instances --------------------------------------------

    def _settle_snapshots(self) -> Result:
        """Give up what failed before the operation ends, so that the storage hosts remove it in this run."""
        items, answers = self.items(), self.answers("work")
        known = {u: errors.from_dict(a["error"]) for u, a in answers.items() if a.get("error")}
        with contextlib.closing(self.action.open_ledger()) as ledger:
            failed, hosts = ledger.transact(lambda tx: self.work.settle_snapshots(tx, items, known))
        return {
            "changed": bool(hosts),
            "cleaning": reachable(self.action, hosts),
            "outcomes": {uuid: {"error": error.as_dict()} for uuid, error in failed.items()},
        }

    def _settled_outcomes(self) -> t.Mapping[str, Item]:
        """Return the outcomes of settle_snapshots(); empty where it had nothing to do."""
        begun = self.result(self.begins)
        settles = self.work.settles and bool(begun.get("storage"))
        return (self.result("settle").get("outcomes") or {}) if settles else {}

    # --- finish: on the controller, for all hosts -----------------------------------------------------------------------

    def _finish_or_clear(self) -> Result:
        """Finish. Where instances were deleted meanwhile, their hosts clear what they made for them before the result is returned, see _report()."""
        self._lost_by_host = {}
        result = self._finish()
        if not self._lost_by_host:
            return result
        self.results.leave("lost", CONTROLLER, {"result": result, "hosts": self._lost_by_host})
        return {"changed": bool(result["changed"]), "clearing": sorted(self._lost_by_host)}

    def _report(self) -> Result:
        return dict(self.result("lost")["result"])

    def _clear(self, host: str) -> Result:
        """End what the host made for instances that were deleted meanwhile. The ledger is asked now what that is: they may be another run's."""
        from . import cleaning

        uuids = list(self.result("lost")["hosts"].get(host) or ())

        def work() -> tuple[Answers, Failed]:
            cleaning.clear_lost(self.action, uuids)
            return {}, {}

        return {"changed": True, "outcomes": self.guarded(uuids, work)}

    def answers_of_work(self, items: t.Mapping[str, Item]) -> dict[str, Item]:
        """Return what hosts answered of these instances: their own, and the hosts of stores."""
        dies_to = self.operation.rule.dies_to
        answers = {u: operation_outcomes.after_death(items[u], a, dies_to) for u, a in self.answers("work").items()}
        for uuid, outcome in self._settled_outcomes().items():
            answers[uuid] = {**answers[uuid], **outcome}
        for host in self.result(self.begins).get("stores") or ():
            stored = self.result("store", host)
            outcomes = stored.get("outcomes") if self.is_current(stored, "store") else None
            answers = dict(self.work.with_stored(host, items, answers, outcomes))
        return answers

    def _finish(self) -> Result:
        items = self.items()
        answers = self.answers_of_work(items)
        failed = self._write_outcomes(items, answers)
        instances = []
        for uuid, item in items.items():
            result = operation_outcomes.outcome_of(answers[uuid], failed.get(uuid))
            vm_state = flow.vm_state_after(self.operation, result)
            summary = operation_outcomes.summary_of(
                item, answers[uuid], failed.get(uuid), vm_state, self.operation.missing_domain_note
            )
            instances.append({**summary, **self.work.result_of(item)})
        passwords = self._leave_passwords([i for u, i in items.items() if u not in failed])
        if self.options["print_table"]:
            before = {uuid: item["vm_state"] for uuid, item in items.items()}
            unchanged = self.result(self.begins).get("unchanged") or []
            lines = self._lines(instances, before, unchanged) + passwords
            if lines:
                tables.show(self.action._display, lines)
        return self.finish(instances)

    def _write_outcomes(self, items: t.Mapping[str, Item], answers: t.Mapping[str, Item]) -> Failed:
        """Write the outcomes of all hosts. Returns why instances failed."""
        if not answers or self.action.check_mode:
            return errors_of(answers)
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.transact(self.end, items, answers)

    def end(
        self, tx: Transaction, items: t.Mapping[str, Item], answers: t.Mapping[str, Item]
    ) -> dict[str, errors.BootflowError]:
        """Write the outcomes of all hosts. Returns why instances failed."""
        failed = errors_of(answers)
        outcomes = {u: operation_outcomes.outcome_of(a, failed.get(u)) for u, a in answers.items()}
        lacking = [u for u, item in items.items() if item.get("lacking")]
        if failed:
            self.work.undo(tx, self.operation, items, {u: outcomes[u] for u in failed})
        if lacking:
            from ...module_utils.flows.attachments import moving

            moving.release_moved(tx, lacking)
        ended = flow.finish(tx, self.operation, outcomes)
        if self.clears:
            self._lost_by_host = self._find_lost_work(tx, items, ended)
        return {**ended, **self.work.write_results(tx, items, answers, ended)}

    def _find_lost_work(self, tx: Transaction, items: t.Mapping[str, Item], failed: Failed) -> dict[str, list[str]]:
        """Find the instances for which hosts made something although another run had deleted them by then. Returns host -> their UUIDs."""
        uuids_by_host: dict[str, list[str]] = {}
        for host in sorted({str(items[uuid]["host"]) for uuid in failed}):
            touched = set(self.result("work", host).get("touched") or ()) & set(failed)
            if not touched:
                continue
            from ...module_utils.flows.instances import cleanup

            work = cleanup.lost_on(tx, host, touched)
            uuids = sorted({*work.domains_to_remove, *work.off})
            if uuids:
                uuids_by_host[host] = uuids
        return uuids_by_host

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
        rows += [
            (
                i["name"],
                i["uuid"],
                i["host"],
                i["vm_state"],
                POWER_STATES.get(i["power_state"]),
                "its host did not answer" if i["silent"] else i["note"],
            )
            for i in unchanged
        ]
        if not rows and self.begin_failed():  # its error is reported already
            return []
        if not rows:
            return ["%s: no instance is selected." % self.operation.called]
        head = ("INSTANCE", "UUID", "HOST", "VM_STATE", "POWER_STATE", "NOTE")
        return [title % self.operation.called, *tables.table(head, rows)]


def errors_of(answers: t.Mapping[str, Item]) -> dict[str, errors.BootflowError]:
    """Return why instances failed on their hosts."""
    return {uuid: errors.from_dict(answer["error"]) for uuid, answer in answers.items() if answer.get("error")}
