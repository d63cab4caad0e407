# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sync of power states: the ledger follows what hosts report of their guests.

The guests that are to be stopped, and then the guests that are to be started again, are handed to the module instance_operation, which reads the
results of the stages ``sync`` and ``resume`` as of its own beginning.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import counted
from ...module_utils.core.instances import power_sync as core
from ...module_utils.core.instances import states
from ...module_utils.core.instances.power_states import POWER_STATES
from ...module_utils.core.instances.verdicts import resumption
from ...module_utils.core.instances.verdicts.answer import Answer, error_of
from ...module_utils.flows.instances import operation
from ...module_utils.flows.instances.operation import Operation, Outcome
from ...module_utils.flows.recovery import power_sync
from ...module_utils.flows.recovery.power_sync import Report
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.stages import Item, Result, Stages

COUNTS = (
    "%s: While synchronizing instance power states, found %d instances in the database and %d instances on the"
    " hypervisor."
)
_FAILED = (
    "%(name)s on %(host)s was not stopped; the next sync tries it again: ",
    "%(name)s on %(host)s was not started after the restart of its host, and is %(vm_state)s now: ",
)
#: The work of instance_operation on hosts, among the stages.
STOP, START = "stop", "start"

Work = t.Mapping[str, t.Sequence[Item]]  # host -> what instance_operation takes of each of its instances


class PowerSync(Stages):
    """All stages, on a host only the question for its guests."""

    called = "power_sync"
    answered_by = {STOP: "host", START: "host"}
    rehearses_on_hosts = True
    keeps_lease = False

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {
            "begin": self._begin,
            "others": self._others,
            "sync": self._sync,
            "resume": self._resume,
            "finish": self._finish,
        }

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"ask": self._ask}

    def is_current(self, result: t.Mapping[str, t.Any], stage: str) -> bool:
        return True  # of instance_operation

    # --- begin, ask and others ------------------------------------------------------------------------------------------

    def _begin(self) -> Result:
        hosts = self.action.hosts_to_use()
        others = [h for h in self.action.within_limit(self.action.compute_hosts()) if h not in hosts]
        return {"changed": False, "hosts": hosts, "others": others}

    def _ask(self, host: str) -> Result:
        asked_at = self.action.context().now
        try:
            answer = self.action.run_module("domain_info", host_settings.libvirt_arguments(self.action))
        except errors.BootflowError as e:
            self.action.ports.display.warning("%s did not answer and is left out: %s" % (host, e.paragraph))
            return {"changed": False, "answered": False, "error": e.as_dict()}
        return {"changed": False, "answered": True, "asked_at": asked_at, **answer}

    def _others(self) -> Result:
        """Return the hosts to ask before guests are started: any of them may run one, of a ledger that was restored."""
        reports, _silent = self._reports()
        again = self.action.write(lambda tx: power_sync.restarted(tx, reports))
        return {"changed": False, "hosts": self.result("begin")["others"] if again else []}

    def _reports(self, named_by: str = "begin") -> tuple[dict[str, Report], list[str]]:
        """Return what the hosts answered, and the hosts that did not. :arg named_by: the stage that named them"""
        reports, silent = {}, []
        for host in self.result(named_by).get("hosts", []):
            asked = self.result("ask", host)
            if asked.get("answered"):
                answer = (asked["asked_at"], asked["power_states"], asked["boot_id"])
                resumes = host_settings.resumes(self.action, host)
                reports[host] = Report(*answer, resumes, asked.get("at_work") or ())
            else:
                silent.append(host)
        return reports, silent

    # --- sync and resume ------------------------------------------------------------------------------------------------

    def _sync(self) -> Result:
        """Write what the hosts reported. Returns what instance_operation is to do."""
        reports, silent = self._reports()
        others, _silent = self._reports("others")
        synced = self.action.write(lambda tx: power_sync.follow(tx, reports, others=others))
        for host, counts in synced.counts.items():
            self.action.ports.display.warning(COUNTS % (host, *counts))
        work, resume = _work(power_sync.STOP, synced.to_stop), _work(power_sync.RESUME, synced.to_resume)
        return {
            "changed": synced.changed,
            "compared": synced.compared,
            "asked": sorted(reports),
            "silent": silent,
            "found": [dataclasses.asdict(f) for f in synced.found],
            "counts": {host: {"ledger": ours, "host": theirs} for host, (ours, theirs) in synced.counts.items()},
            "hosts": sorted(work),
            "begun_at": self.action.context().now,
            "work": work,
            "hosts_to_resume": sorted(resume),
            "resume": resume,
        }

    def _resume(self) -> Result:
        """Return what instance_operation is to do next; what was stopped is done."""
        synced = self.result("sync")
        return {**synced, "changed": False, "stops": synced["work"], "work": synced["resume"]}

    # --- finish ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        synced = self.result("sync")
        stopped = self._answers_of(STOP, synced.get("stops", synced.get("work", {})))
        resumed = self._answers_of(START, synced.get("resume", {}))
        answers = {**stopped, **resumed}
        failed = {u: e for u, answer in answers.items() if (e := error_of(answer)) is not None}
        if answers and not self.action.check_mode:
            failed = self._write(stopped, resumed, list(synced.get("resume", {})))
        instances = [_instance(f, answers.get(f["uuid"]), failed.get(f["uuid"])) for f in synced.get("found", [])]
        for instance in instances:
            if instance["error"]:
                problem = failed[instance["uuid"]].paragraph
                text = _FAILED[instance["action"] == core.RESUME] % instance
                self.action.ports.display.warning(text + problem)
        if self.options["print_table"]:
            tables.show(self.action.ports.display, self._lines(synced, instances))
        return {"changed": any(a.get("changed") for a in answers.values()), "instances": instances}

    def _answers_of(self, stage: str, work: Work) -> dict[str, Answer]:
        """Return what hosts answered of the instances that they had to stop, or to start."""
        items = {i["uuid"]: {**i, "host": host} for host, group in work.items() for i in group}
        return self.answers(stage, items)

    def _write(
        self, stopped: t.Mapping[str, Answer], resumed: t.Mapping[str, Answer], hosts: t.Sequence[str]
    ) -> dict[str, errors.BootflowError]:
        """Write what came of the stops, and of the starts on ``hosts``. Returns why instances failed, by UUID."""
        reports, _silent = self._reports()
        stops = {u: Outcome.of_answer(a, error_of(a)) for u, a in stopped.items()}
        starts = {u: Outcome.of_answer(a, error_of(a), resumption.vm_state(a)) for u, a in resumed.items()}

        def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
            failed = operation.finish(tx, power_sync.STOP, stops)
            failed.update(operation.finish(tx, power_sync.RESUME, starts))
            if starts:
                again = {u for u, start in starts.items() if start.vm_state == states.ACTIVE}
                power_sync.resumed(tx, {h: reports[h] for h in hosts}, again)
            return failed

        return self.action.open_ledger().transact(finish)

    def _lines(self, synced: t.Mapping[str, t.Any], instances: t.Sequence[Item]) -> list[str]:
        compared, asked = synced.get("compared", 0), synced.get("asked", ())
        of = "%s on %s" % (counted(compared, "instances"), counted(len(asked), "hosts"))
        silent = ["Left out, as they did not answer: %s." % ", ".join(synced["silent"])] if synced.get("silent") else []
        if not instances:
            return ["Power sync of %s: all are as the ledger has them." % of, *silent]
        rows = [
            (
                i["name"],
                i["uuid"],
                i["host"],
                tables.change(i["vm_state_before"], i["vm_state"]),
                POWER_STATES[i["power_state_before"]],
                POWER_STATES[i["reported"]],
                _note(i),
            )
            for i in instances
        ]
        head = ("INSTANCE", "UUID", "HOST", "VM_STATE", "IN_LEDGER", "ON_HOST", "NOTE")
        title = "Power sync of %s would do (nothing is touched):" if self.action.check_mode else "Power sync of %s:"
        return [title % of, *tables.table(head, rows), *silent]


def _work(stop_or_start: Operation, rows: t.Sequence[Instance]) -> dict[str, list[Item]]:
    """Return what instance_operation takes of instances, by host."""
    work: dict[str, list[Item]] = {}
    for row in rows:
        item = {"uuid": row.uuid, "name": row.display_name, "vm_state": row.vm_state, "volumes": False}
        work.setdefault(str(row.host), []).append({**item, "details": stop_or_start.details(row)})
    return work


def _instance(found: Item, answer: Answer | None, problem: errors.BootflowError | None) -> Item:
    """Return what became of an instance that was not as the ledger had it. :arg answer: None: nothing was to be done"""
    answer = answer or {}
    resumes = found["action"] == core.RESUME
    done = found["action"] is not None and problem is None
    left = resumption.vm_state({**answer, "error": problem.as_dict()}) if resumes and problem is not None else None
    stop_or_start = power_sync.RESUME if resumes else power_sync.STOP
    return {
        "name": found["name"],
        "uuid": found["uuid"],
        "host": found["host"],
        "vm_state_before": found["vm_state"],
        "power_state_before": found["power_state"],
        "reported": found["reported"],
        "action": found["action"],
        "reason": found["reason"],
        "vm_state": stop_or_start.rule.result if done else left or found["vm_state"],
        "power_state": answer["power_state"] if done and answer else found["reported"],
        "forced": bool(answer.get("forced")),
        "error": None if problem is None else problem.as_dict(),
    }


def _note(instance: Item) -> str:
    if instance["error"]:
        return "%s %s" % (instance["reason"], instance["error"]["code"])
    if instance["forced"]:
        return "%s The guest was powered off, because it did not shut down in time." % instance["reason"]
    return str(instance["reason"])
