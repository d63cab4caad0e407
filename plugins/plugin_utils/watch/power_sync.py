# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sync of power states: the ledger follows what hosts report of their guests.

The guests that are to be stopped, and then the guests that are to be started again, are handed to the module instance_operation, which finds them
as the result of its stage ``begin``.
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
from ...module_utils.core.instances.verdicts.answer import Answer, error_of, silence
from ...module_utils.flows.instances import operation
from ...module_utils.flows.instances.operation import Operation, Outcome
from ...module_utils.flows.recovery import power_sync
from ...module_utils.flows.recovery.power_sync import Report
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.ledger_action import LedgerAction
from ..run.stage_results import CONTROLLER, StageResults
from ..run.stages import Item, Items, Result, Stages

COUNTS = (
    "%s: While synchronizing instance power states, found %d instances in the database and %d instances on the"
    " hypervisor."
)
_FAILED = (
    "%(name)s on %(host)s was not stopped; the next sync tries it again: ",
    "%(name)s on %(host)s was not started after the restart of its host, and is %(vm_state)s now: ",
)


class PowerSync(Stages):
    """All stages, on a host only the question for its guests."""

    called = "power_sync"
    rehearses_on_hosts = True
    keeps_lease = False

    def __init__(self, action: LedgerAction, family: str):
        super().__init__(action, family)
        self.operations = StageResults(action, "instance_operation")

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

    # --- begin, ask and others ------------------------------------------------------------------------------------------

    def _begin(self) -> Result:
        hosts = self.action.hosts_to_use()
        others = [h for h in self.action.within_limit(self.action.compute_hosts()) if h not in hosts]
        return {"changed": False, "compute": hosts, "others": others, "again": bool(others)}

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
        return {"changed": False, "compute": self.result("begin")["others"] if again else []}

    def _reports(self, named_by: str = "begin") -> tuple[dict[str, Report], list[str]]:
        """Return what the hosts answered, and the hosts that did not. :arg named_by: the stage that named them"""
        reports, silent = {}, []
        for host in self.result(named_by).get("compute", []):
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
        others, _silent = self._reports("others") if self.result("begin")["others"] else ({}, [])
        synced = self.action.write(lambda tx: power_sync.settle_and_sync(tx, reports, others=others))
        for host, counts in synced.counts.items():
            self.action.ports.display.warning(COUNTS % (host, *counts))
        stop, resume = _items(power_sync.STOP, synced.to_stop), _items(power_sync.RESUME, synced.to_resume)
        self._hand_over(stop)
        return {
            "changed": synced.changed,
            "compared": synced.compared,
            "asked": sorted(reports),
            "silent": silent,
            "found": [dataclasses.asdict(f) for f in synced.differences],
            "counts": {host: {"ledger": ours, "host": theirs} for host, (ours, theirs) in synced.counts.items()},
            "compute": _hosts_of(stop),
            "stop": stop,
            "again": bool(resume),
            "resume": resume,
        }

    def _resume(self) -> Result:
        """Return what instance_operation is to do next; what was stopped is done."""
        synced = self.result("sync")
        stopped = self._answers_of(synced["stop"])
        self._hand_over(synced["resume"])
        return {"changed": False, "compute": _hosts_of(synced["resume"]), "stopped": stopped}

    def _hand_over(self, items: Items) -> None:
        """Leave the instances for instance_operation, in the form of its stage begin, and remove the answers to an earlier operation."""
        self.operations.clear()
        begun = {"instances": items, "begun_at": self.action.context().now}
        self.operations.leave("begin", CONTROLLER, begun)

    # --- finish ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        synced = self.result("sync")
        resume = synced.get("resume") or []
        stopped = self.result("resume")["stopped"] if resume else self._answers_of(synced.get("stop") or [])
        resumed = self._answers_of(resume)
        answers = {**stopped, **resumed}
        failed = {u: e for u, answer in answers.items() if (e := error_of(answer)) is not None}
        if answers and not self.action.check_mode:
            failed = self._write(stopped, resumed, _hosts_of(resume))
        instances = [_instance(f, answers.get(f["uuid"]), failed.get(f["uuid"])) for f in synced.get("found", [])]
        for instance in instances:
            if instance["error"]:
                problem = failed[instance["uuid"]].paragraph
                text = _FAILED[instance["action"] == core.RESUME] % instance
                self.action.ports.display.warning(text + problem)
        if self.options["print_table"]:
            tables.show(self.action.ports.display, self._lines(synced, instances))
        return {"changed": any(a.get("changed") for a in answers.values()), "instances": instances}

    def _answers_of(self, items: Items) -> dict[str, Answer]:
        """Return the answers of hosts to the last operation, stop or start, by UUID; silence() where a host answered nothing."""
        results = {host: self.operations.read("work", host) or {} for host in _hosts_of(items)}
        outcomes = {host: result.get("outcomes") or {} for host, result in results.items()}
        return {i["uuid"]: outcomes[i["host"]].get(i["uuid"]) or silence(i["host"]) for i in items}

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
        scope = "%s on %s" % (counted(compared, "instances"), counted(len(asked), "hosts"))
        silent = ["Left out, as they did not answer: %s." % ", ".join(synced["silent"])] if synced.get("silent") else []
        if not instances:
            return ["Power sync of %s: all are as the ledger has them." % scope, *silent]
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
        return [title % scope, *tables.table(head, rows), *silent]


def _items(stop_or_start: Operation, rows: t.Sequence[Instance]) -> list[Item]:
    """Return the items of these instances, in the form of the stage begin of instance_operation."""
    return [
        {
            "uuid": row.uuid,
            "name": row.display_name,
            "host": str(row.host),
            "vm_state": row.vm_state,
            "volumes": False,
            "details": stop_or_start.details(row),
        }
        for row in rows
    ]


def _hosts_of(items: Items) -> list[str]:
    return sorted({str(i["host"]) for i in items})


def _instance(finding: Item, answer: Answer | None, problem: errors.BootflowError | None) -> Item:
    """Return what became of an instance that was not as the ledger had it. :arg answer: None: nothing was to be done"""
    answer = answer or {}
    resumes = finding["action"] == core.RESUME
    done = finding["action"] is not None and problem is None
    failed_state = (
        resumption.vm_state({**answer, "error": problem.as_dict()}) if resumes and problem is not None else None
    )
    stop_or_start = power_sync.RESUME if resumes else power_sync.STOP
    return {
        "name": finding["name"],
        "uuid": finding["uuid"],
        "host": finding["host"],
        "vm_state_before": finding["vm_state"],
        "power_state_before": finding["power_state"],
        "reported": finding["reported"],
        "action": finding["action"],
        "reason": finding["reason"],
        "vm_state": stop_or_start.rule.result if done else failed_state or finding["vm_state"],
        "power_state": answer["power_state"] if done and answer else finding["reported"],
        "forced": bool(answer.get("forced")),
        "error": None if problem is None else problem.as_dict(),
    }


def _note(instance: Item) -> str:
    if instance["error"]:
        return "%s %s" % (instance["reason"], instance["error"]["code"])
    if instance["forced"]:
        return "%s The guest was powered off, because it did not shut down in time." % instance["reason"]
    return str(instance["reason"])
