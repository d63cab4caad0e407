# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_operation.

What only some operations or instances need (operation_works, attached_volumes, rebuild) is imported where they do: that takes longer than
a stop takes here.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.instances.power_states import NOSTATE, POWER_STATES
from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.reading.setting import PREFIX
from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import OPERATION
from ..module_utils.flows.instances import operation
from ..module_utils.flows.instances.operation import Operation, Outcome
from ..module_utils.flows.instances.operations import find
from ..module_utils.ledger.compute import history, moves
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import attachments
from ..module_utils.ledger.storage.attachments import Connector
from ..plugin_utils.run import host_settings, host_variables, tables
from ..plugin_utils.run.inventory_hosts import reachable, refuse_left_out
from ..plugin_utils.run.lease import lease_kept
from ..plugin_utils.run.ledger_action import CONTROLLER, RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import diff, item_errors, outcome
from ..plugin_utils.settings import host_reports, variable_names
from ..plugin_utils.startup import opening, preload
from ..plugin_utils.transport import host_programs

if t.TYPE_CHECKING:
    from ..module_utils.flows.instances.rebuild import Before
    from ..module_utils.ledger.compute.instances import Instance

# As playbooks/operation.yml registers what the controller and the hosts answered.
BEGUN = "bootflow_operation_begun"
OPERATED = "bootflow_operated"

#: operation -> the variable of its image: without it an instance's own is taken, and its disks are lost to that
MEANT = {"rebuild": "bootflow_rebuild_image", "rescue": "bootflow_rescue_image_ref"}
_START = ("running", "rebooted")  # what Operation.power has guests start
Items = t.List[t.Dict[str, t.Any]]
# What is begun; those with volumes; what they were before, of a rebuild; those to be defined again, for their volumes; who exports these.
_Begun = t.Tuple[operation.Begun, t.Set[str], t.Dict[str, "Before"], t.List[str], t.List[str]]


preload.load(functools.partial(host_programs.make_ready, "bootflow.compute.domain_power"))


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **OPERATION.options(),
        **FOLLOW.options(),
        **REQUEST.options("quotas"),
        "phase": {"type": "str", "choices": ["begin", "work", "finish"], "default": "begin"},
        "open_ledger": {"type": "bool", "default": False},
        "ask": {"type": "bool", "default": False},
        **RUN_LIMIT,
        **RUN.options("admin_password_dir", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        self.operation: Operation = find(self.options["operation"], self.options["reboot_type"])
        # uuid -> the names of the images that it was made from and is rebuilt from
        self._images: dict[str, tuple[str | None, str | None]] = {}
        return {"begin": self._begin, "work": self._work, "finish": self._finish}[self.options["phase"]]()

    # --- begin: on the controller, for all hosts --------------------------------------------------------------------

    def _begin(self) -> dict[str, t.Any]:
        opened = opening.opened(self) if self.options["open_ledger"] else None
        host_settings.check_common(self)
        taken_for = MEANT.get(self.operation.name, "")
        variable_names.refuse(self, OPERATION, meant={PREFIX + "image": taken_for} if taken_for else None)
        selection = operation.Selection.from_options(self.options)
        known_hosts = frozenset(self.compute_hosts())
        rebuild = self._rebuild() if self.operation.work == "rebuild" else None
        check = self._check() if self.operation.work else None
        ask = self.options["ask"]
        limit = (opened or self._begun()).get("run_limit")
        clean_first = set(opened["clean_first"]) if opened and ask else set()
        upgraded = opened["diff"] if opened and opened["changed"] else None

        def begin(tx: Transaction) -> _Begun | set[str]:
            if clean_first:
                return clean_first | self._hosts_to_ask(tx, selection, known_hosts)
            before: dict[str, Before] = {}
            if self.check_mode:
                host_reports.follow_power(self, tx)
            if rebuild is not None:
                begun, before = rebuild(tx, selection, known_hosts)
            else:
                begun = operation.begin(tx, self.operation, selection, known_hosts, self.options["quotas"], ask)
            if begun.ask:
                return begun.ask
            if limit is not None:
                refuse_left_out({str(r.host) for r in begun.rows}, limit)
            if check is not None:
                check(self, tx, begun)
            with_volumes = set(attachments.of_instances(tx, [r.uuid for r in begun.rows]))
            lacking: list[str] = []
            if self.operation.connects_volumes and self.operation.recovers_volumes:
                lacking = sorted(moves.detached_while_away(tx, [r.uuid for r in begun.rows]))
            if self.operation.recovers_volumes and with_volumes:
                from ..module_utils.flows.attachments import moving

                places = {r.uuid: r.host for r in begun.rows if r.uuid in with_volumes}
                # Its definition is written anew. A start would not know that the guest runs.
                anew = begun.rows if self.operation.work else []
                gone = [r.uuid for r in anew if r.uuid in with_volumes and r.power_state == NOSTATE]
                unconnected = moving.take_unconnected(tx, places, self._connector, gone)
                if unconnected:
                    lacking = sorted({*lacking, *unconnected})
                    if limit is not None:
                        from ..module_utils.flows.attachments import life

                        refuse_left_out(reachable(self, life.storage_hosts_of(tx, unconnected)), limit)
                    return begun, with_volumes, before, lacking, reachable(self, moving.storage_hosts(tx))
            return begun, with_volumes, before, lacking, []

        done = self.write(begin)
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
        begun, with_volumes, before, lacking, storage_hosts = done
        work: dict[str, Items] = {}
        for row in begun.rows:
            item: dict[str, t.Any] = {"uuid": row.uuid, "name": row.display_name, "vm_state": row.vm_state}
            item["power_state"] = row.power_state
            item.update(volumes=row.uuid in with_volumes, details=self.operation.details(row))
            if row.uuid in lacking:
                item["lacking"] = True
            own, new = self._images.get(row.uuid) or (None, None)
            if own and new:
                item["note"] = "image %s" % tables.change(own, new)
            if row.uuid in before:
                item["before"] = before[row.uuid]
            work.setdefault(t.cast(str, row.host), []).append(item)
        after = self.operation.rule.result
        states = diff(
            "instances",
            "".join(self._described(r, r.vm_state, 0) for r in begun.rows),
            "".join(self._described(r, after or r.vm_state, 1) for r in begun.rows),
        )
        reports = host_reports.of_this_run(self) if begun.unchanged else {}
        silent = {host for host, report in reports.items() if report.get("error")}
        return {
            "changed": upgraded is not None or bool(begun.rows),
            "ask": [],
            "instances": [{"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in begun.rows],
            "unchanged": [
                {
                    "name": r.display_name,
                    "uuid": r.uuid,
                    "host": r.host,
                    "power_state": r.power_state,
                    "silent": r.host in silent,
                }
                for r in begun.unchanged
            ],
            "hosts": sorted(work),
            "begun_at": self.context().now,
            "storage_hosts": storage_hosts,
            "work": work,
            "diff": [upgraded, states] if upgraded else states,
        }

    def _described(self, row: Instance, vm_state: str, which: int) -> str:
        """A line of the diff. :arg which: 0: before, 1: after"""
        image = ", image %s" % self._images[row.uuid][which] if row.uuid in self._images else ""
        return "%s %s: %s%s\n" % (row.display_name, row.uuid, vm_state, image)

    def _check(self) -> t.Callable[[LedgerAction, Transaction, operation.Begun], None] | None:
        from ..plugin_utils.operations import operation_works

        return operation_works.CHECKS.get(self.operation.name)

    def _rebuild(self) -> t.Callable[..., tuple[operation.Begun, dict[str, Before]]]:
        """What begins a rebuild with the image that is asked for."""
        from ..module_utils.flows.instances import rebuild as of_rebuild
        from ..plugin_utils.operations import rebuild

        wanted = rebuild.wanted(self, self.options["rebuild_image"], self.options["follow_file"])

        def begin(
            tx: Transaction, selection: operation.Selection, known_hosts: t.Collection[str]
        ) -> tuple[operation.Begun, dict[str, Before]]:
            begun, before = of_rebuild.begin(tx, self.operation, selection, known_hosts, wanted)
            rebuild.check_files(self, wanted, begun.rows)
            for row in begun.rows:
                own, new = (row.spec["image"] or {}).get("name"), wanted.image_for(row)
                self._images[row.uuid] = own, own if new is None else new.name
            return begun, before

        return begin

    def _hosts_to_ask(self, tx: Transaction, selection: operation.Selection, known: t.Collection[str]) -> set[str]:
        """Of instances that are as requested by the ledger, since somebody else may have changed their guests."""
        try:
            return operation.hosts_to_ask(tx, self.operation, selection, known)
        except errors.InvalidInput:  # is told by the step that begins
            return set()

    def _connector(self, host: str, facts: t.Mapping[str, t.Any]) -> Connector:
        """How ``host`` reaches volumes that a fault left without a connection: rare, so its settings are read only now."""
        from ..plugin_utils.volumes import attached_volumes

        return attached_volumes.connectors_of(self.task_vars["hostvars"], [host])(host, facts)

    # --- work: on each host, for all of its instances -----------------------------------------------------------------

    def _work(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        items: Items = self._begun().get("work", {}).get(host, [])
        uuids = [i["uuid"] for i in items]
        try:
            kept = lease_kept(self)
            with contextlib.nullcontext() if self.check_mode else kept:
                lost = self._lost_since(uuids)
                outcomes = {**self._failed(lost), **self._on_host(host, [i for i in items if i["uuid"] not in lost])}
        except errors.BootflowError as e:
            outcomes = self._failed(dict.fromkeys(uuids, e))
        except Exception as e:  # the instances fail, never the play
            outcomes = self._failed(dict.fromkeys(uuids, self.unexpected(e)))
        changed = any(o.get("changed") for o in outcomes.values())
        return {"changed": changed, "operation": self.operation.name, "outcomes": outcomes}

    def _lost_since(self, uuids: t.Sequence[str]) -> dict[str, errors.BootflowError]:
        """uuid -> why another run has it now. As long as the lease from the beginning is not over, no run believes this one dead, and the
        ledger need not be asked.
        """
        context = self.context()
        if self.check_mode or context.now < float(self._begun().get("begun_at") or 0.0) + context.lease_seconds / 2:
            return {}
        return self._lost(uuids)

    def _lost(self, uuids: t.Sequence[str]) -> dict[str, errors.BootflowError]:
        with contextlib.closing(self.open_ledger()) as ledger:
            return ledger.inspect(operation.lost, self.operation, sorted(uuids))

    def _failed(self, failed: t.Mapping[str, errors.BootflowError]) -> dict[str, dict[str, t.Any]]:
        """The outcomes. Tracebacks are journalled here: what finishes has the result of this task, which people read."""
        frames = {u: e.details["traceback"] for u, e in failed.items() if e.details.get("traceback")}
        if frames and not self.check_mode:
            with contextlib.suppress(errors.BootflowError), contextlib.closing(self.open_ledger()) as ledger:
                ledger.transact(history.note, frames, self.operation.name)
        return {uuid: {"error": error.as_dict()} for uuid, error in failed.items()}

    def _on_host(self, host: str, items: Items) -> dict[str, dict[str, t.Any]]:
        """uuid -> the module's outcome, or {error}."""
        problems = Problems()
        host_settings.check({host: host_settings.Variables(self)}, [host], problems)
        problems.raise_if_any()
        failed: dict[str, errors.BootflowError] = {}
        cut_off = [i["uuid"] for i in items if i.get("lacking") and not self.check_mode]
        connect = [i["uuid"] for i in items if i["volumes"]] if self.operation.connects_volumes else []
        if connect and not self.check_mode:
            failed = self._connect_volumes([u for u in connect if u not in cut_off])
        fresh: set[str] = set()
        if cut_off:
            from ..plugin_utils.volumes import attached_volumes

            fresh, lost = attached_volumes.come_to_host(self, cut_off)
            failed.update(lost)
        cut_off = [u for u in cut_off if u not in failed]
        domains = [{"uuid": i["uuid"], **i["details"]} for i in items if i["uuid"] not in failed]
        outcomes = self._failed(failed)
        as_they_are = [d for d in domains if d["uuid"] not in cut_off]
        if as_they_are and self.operation.power:
            outcomes.update(self._power(as_they_are))
            if self.operation.power in _START and not self.check_mode:
                self._clear_lost([d["uuid"] for d in as_they_are])
        deaf = {u for u, o in outcomes.items() if not o.get("error") and o.get("restarted") is False}
        name = self.operation.work or ("hard_reboot" if deaf or cut_off else "")
        left = [d["uuid"] for d in domains if self.operation.work or d["uuid"] in (*deaf, *cut_off)]
        if name and left and not self.check_mode:
            lost = self._lost(left)  # a guest may have been waited for, or deleted
            outcomes.update(self._failed(lost))
            left = [u for u in left if u not in lost]
        if name and left:
            from ..plugin_utils.operations import cleaning, operation_works

            try:
                done, lacking = operation_works.work(name, fresh)(self, left)
            except errors.BootflowError as e:  # those that restarted by themselves have
                done, lacking = {}, dict.fromkeys(left, e)
            except Exception as e:
                done, lacking = {}, dict.fromkeys(left, self.unexpected(e))
            outcomes.update(
                {u: {**o, "forced": u in deaf or bool(o.get("forced"))} for u, o in self._with(done, lacking).items()}
            )
            if not self.check_mode:
                cleaning.clear_lost(self, left)
        return outcomes

    def _power(self, domains: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        """uuid -> the outcome of domain_power, or {error}."""
        settings = host_settings.of(self)
        result = self.run_module(
            "domain_power",
            {
                **host_settings.libvirt_arguments(self),
                "domains": domains,
                "state": self.operation.power,
                "shutdown_timeout": settings.shutdown_timeout,
                "wait_soft_reboot_seconds": settings.wait_soft_reboot_seconds,
                "wait_timeout": settings.wait_timeout,
                "vif_plugging_timeout": settings.vif_plugging_timeout,
                "vif_plugging_is_fatal": settings.vif_plugging_is_fatal,
                "workers": host_settings.workers(self, len(domains)),
            },
        )
        problems = item_errors(result, [d["uuid"] for d in domains])
        gone = {u for u, e in problems.items() if self.operation.gone and isinstance(e, errors.InstanceNotFound)}
        off = {u: {"changed": True, "power_state": NOSTATE, "gone": True} for u in gone}
        return {**self._with(result["outcomes"], {u: e for u, e in problems.items() if u not in gone}), **off}

    def _with(
        self, outcomes: t.Mapping[str, dict[str, t.Any]], lacking: t.Mapping[str, errors.BootflowError]
    ) -> dict[str, dict[str, t.Any]]:
        """``outcomes`` with the errors of what is ``lacking``."""
        failed = self._failed(lacking)
        return {**outcomes, **{u: {**outcomes.get(u, {}), **problem} for u, problem in failed.items()}}

    def _clear_lost(self, started: t.Sequence[str]) -> None:
        """End the guests of those that were deleted meanwhile: their host may have started them after it was told to take their power."""
        lost = self._lost(started)
        if lost:
            from ..plugin_utils.operations import cleaning

            cleaning.clear_lost(self, lost)

    def _connect_volumes(self, uuids: t.Sequence[str]) -> dict[str, errors.BootflowError]:
        """Log a restarted host in to its guests' volumes. Returns uuid -> why that failed."""
        from ..plugin_utils.volumes import attached_volumes

        with contextlib.closing(self.open_ledger()) as ledger:
            volumes = ledger.inspect(attached_volumes.load, uuids)
        found = [a for group in volumes.values() for a in group]
        problems = attached_volumes.reconnect(self, found)
        return {a.row.instance_uuid: problems[a.id] for a in found if a.id in problems}

    # --- finish: on the controller, for all hosts -----------------------------------------------------------------------

    def _finish(self) -> dict[str, t.Any]:
        begun = self._begun()
        answers = self._answers(begun)
        items = {i["uuid"]: (host, i) for host, group in begun.get("work", {}).items() for i in group}
        failed = {u: errors.from_dict(o["error"]) for u, o in answers.items() if o.get("error")}
        if answers and not self.check_mode:
            outcomes = {u: _outcome(o, failed.get(u)) for u, o in answers.items()}
            kept = {u: items[u][1]["before"] for u in failed if not outcomes[u].vm_state and "before" in items[u][1]}

            lacking = [u for u, (_host, item) in items.items() if item.get("lacking")]

            def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
                if kept:
                    from ..module_utils.flows.instances import rebuild as of_rebuild

                    of_rebuild.keep(tx, self.operation, kept)
                if lacking:
                    from ..module_utils.flows.attachments import moving

                    moving.kept(tx, lacking)
                return operation.finish(tx, self.operation, outcomes)

            ledger = self.open_ledger()
            try:
                failed = ledger.transact(finish)
            finally:
                ledger.close()
        instances = []
        for uuid, (host, item) in items.items():
            problem, gone = failed.get(uuid), answers[uuid].get("gone")
            instances.append(
                {
                    "name": item["name"],
                    "uuid": uuid,
                    "host": host,
                    "vm_state": operation.vm_state_after(self.operation, _outcome(answers[uuid], problem))
                    or item["vm_state"],
                    "power_state": NOSTATE if gone else answers[uuid].get("power_state") or item["power_state"],
                    "forced": bool(answers[uuid].get("forced")),
                    "note": self.operation.gone if gone else item.get("note", ""),
                    "error": None if problem is None else problem.as_dict(),
                }
            )
        told = self._leave_passwords([i for host, i in items.values() if i["uuid"] not in failed])
        if self.options["print_table"]:
            before = {uuid: item["vm_state"] for uuid, (_host, item) in items.items()}
            lines = self._lines(instances, before, begun.get("unchanged") or []) + told
            if lines:
                tables.show(self._display, lines)
        listed = [errors.failed_item(i["name"], i["uuid"], i["error"], host=i["host"]) for i in instances if i["error"]]
        error = errors.OperationFailed(listed, len(instances), operation=self.operation.called)
        return outcome(error, changed=len(failed) < len(instances), instances=instances)

    def _leave_passwords(self, items: Items) -> list[str]:
        """Those that the instances got, where the person names a folder. Returns what the person is told."""
        folder = self.options["admin_password_dir"]
        uuids = [i["uuid"] for i in items if i["details"].get("tells_password", True)]
        if not folder or not uuids or self.check_mode or not self.operation.work:
            return []
        from ..plugin_utils.operations import operation_works

        given = operation_works.PASSWORDS.get(self.operation.name)
        if given is None:
            return []
        from ..plugin_utils.builds import passwords

        password_of, suffix = given
        passwords.leave_in(folder, {uuid + suffix: password_of(self, uuid) for uuid in uuids})
        return ["Admin passwords: in %s, in files named UUID%s" % (folder, suffix)]

    def _answers(self, begun: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
        """uuid -> its outcome, as the hosts' tasks of this playbook registered it."""
        answers: dict[str, dict[str, t.Any]] = {}
        registered = host_variables.results(self.task_vars["hostvars"], list(begun.get("work", {})), OPERATED)
        for host, items in begun.get("work", {}).items():
            answer = registered.get(host) or {}
            of_host = answer.get("outcomes", {}) if answer.get("operation") == self.operation.name else {}
            silent = {"error": errors.RemoteError(reason="%s returned no result" % host).as_dict()}
            for item in items:
                found = of_host.get(item["uuid"]) or {**silent, "vm_state": self.operation.rule.dies_to}
                if found.get("error") and self.operation.rule.dies_to and "before" not in item:  # a dead run began it
                    found = {"vm_state": self.operation.rule.dies_to, **found}
                answers[item["uuid"]] = found
        return answers

    def _lines(
        self, instances: t.Sequence[t.Mapping[str, t.Any]], before: t.Mapping[str, str], unchanged: Items
    ) -> list[str]:
        """:arg before: uuid -> vm_state"""
        title = "Would %s (nothing is touched):" if self.check_mode else "%s:"
        rows: list[tuple[t.Any, ...]] = [
            (
                i["name"],
                i["uuid"],
                i["host"],
                self._change(before[i["uuid"]], i["vm_state"]),
                POWER_STATES.get(i["power_state"]),
                self._note(i),
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
        if not rows and self._begun().get("failed"):  # its error is told already
            return []
        if not rows:
            return ["%s: no instance is selected." % self.operation.called]
        head = ("INSTANCE", "UUID", "HOST", "VM_STATE", "POWER_STATE", "NOTE")
        return [title % self.operation.called, *tables.table(head, rows)]

    def _change(self, before: str, after: str) -> str:
        """Check mode tells both states, as the power_state is that of the first."""
        return tables.change(before, after) if self.check_mode else after

    def _note(self, instance: t.Mapping[str, t.Any]) -> str:
        if instance["error"]:
            return str(instance["error"]["code"])
        return "; ".join(filter(None, (instance["note"], self.operation.forced if instance["forced"] else "")))

    def _begun(self) -> t.Mapping[str, t.Any]:
        found = host_variables.results(self.task_vars["hostvars"], [CONTROLLER], BEGUN)
        return t.cast("t.Mapping[str, t.Any]", found.get(CONTROLLER) or {})


def _outcome(answer: t.Mapping[str, t.Any], problem: errors.BootflowError | None) -> Outcome:
    return Outcome.of_answer(answer, problem, answer.get("vm_state"))
