# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.power_sync."""

from __future__ import annotations

import dataclasses
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.amounts import counted
from ..module_utils.core.instances import power_sync as core
from ..module_utils.core.instances import states
from ..module_utils.core.instances.power_states import POWER_STATES
from ..module_utils.core.settings.run import RUN
from ..module_utils.flows.instances import operation
from ..module_utils.flows.instances.operation import Operation, Outcome
from ..module_utils.flows.recovery import power_sync
from ..module_utils.flows.recovery.power_sync import RESUME, STOP, Report
from ..module_utils.ledger.compute.instances import Instance
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import host_settings, tables
from ..plugin_utils.run.ledger_action import LedgerAction

# As playbooks/power_sync.yml registers what the controller and the hosts answered. What is to be stopped, and then what is to be
# started again, is handed to the module instance_operation, which reads it under the third name and answers under the last two.
BEGUN = "bootflow_power_begun"
OTHERS = "bootflow_power_others"
ASKED = "bootflow_power_asked"
SYNCED = "bootflow_operation_begun"
OPERATED = "bootflow_operated"
RESUMED = "bootflow_resumed"

COUNTS = (
    "%s: While synchronizing instance power states, found %d instances in the database and %d instances on the"
    " hypervisor."
)


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": ["begin", "ask", "others", "sync", "resume", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        phases = {
            "begin": self._begin,
            "ask": self._ask,
            "others": self._others,
            "sync": self._sync,
            "resume": self._resume,
            "finish": self._finish,
        }
        return phases[self.options["phase"]]()

    def _begin(self) -> dict[str, t.Any]:
        hosts = self.hosts_to_use()
        others = [h for h in self.within_limit(self.compute_hosts()) if h not in hosts]
        return {"changed": False, "hosts": hosts, "others": others}

    def _others(self) -> dict[str, t.Any]:
        """The hosts to ask before guests are started: any of them may run one, of a ledger that was restored."""
        reports, _silent = self._reports()
        again = self.write(lambda tx: power_sync.restarted(tx, reports))
        return {"changed": False, "hosts": self._registered("localhost", BEGUN)["others"] if again else []}

    def _ask(self) -> dict[str, t.Any]:
        asked_at = self.context().now
        try:
            answer = self.run_module("domain_info", host_settings.libvirt_arguments(self))
        except errors.BootflowError as e:
            host = self.task_vars["inventory_hostname"]
            self._display.warning("%s did not answer and is left out: %s" % (host, e.paragraph))
            return {"changed": False, "answered": False, "error": e.as_dict()}
        return {"changed": False, "answered": True, "asked_at": asked_at, **answer}

    # --- sync: on the controller, for all hosts -----------------------------------------------------------------------

    def _sync(self) -> dict[str, t.Any]:
        reports, silent = self._reports()
        others, _silent = self._reports(OTHERS)
        synced = self.write(lambda tx: power_sync.follow(tx, reports, others=others))
        for host, counts in synced.counts.items():
            self._display.warning(COUNTS % (host, *counts))
        work, resume = _work(STOP, synced.to_stop), _work(RESUME, synced.to_resume)
        return {
            "changed": synced.changed,
            "compared": synced.compared,
            "asked": sorted(reports),
            "silent": silent,
            "found": [dataclasses.asdict(f) for f in synced.found],
            "counts": {host: {"ledger": ours, "host": theirs} for host, (ours, theirs) in synced.counts.items()},
            "hosts": sorted(work),
            "begun_at": self.context().now,
            "work": work,
            "hosts_to_resume": sorted(resume),
            "resume": resume,
        }

    def _reports(self, of: str = BEGUN) -> tuple[dict[str, Report], list[str]]:
        """What the hosts answered, and those that did not. :arg of: the step that named them"""
        reports, silent = {}, []
        for host in self._registered("localhost", of).get("hosts", []):
            asked = self._registered(host, ASKED)
            if asked.get("answered"):
                its = (asked["asked_at"], asked["power_states"], asked["boot_id"])
                reports[host] = Report(*its, host_settings.resumes(self, host), asked.get("at_work") or ())
            else:
                silent.append(host)
        return reports, silent

    def _resume(self) -> dict[str, t.Any]:
        """What the module instance_operation is to do next; what was stopped is done."""
        synced = self._registered("localhost", SYNCED)
        return {**synced, "changed": False, "stops": synced["work"], "work": synced["resume"]}

    # --- finish: on the controller, for all hosts ---------------------------------------------------------------------

    def _finish(self) -> dict[str, t.Any]:
        synced = self._registered("localhost", SYNCED)
        stopped = self._answers(synced.get("stops", synced.get("work", {})), OPERATED)
        started = self._answers(synced.get("resume", {}), RESUMED)
        answers = {**stopped, **started}
        failed = {u: errors.from_dict(o["error"]) for u, o in answers.items() if o.get("error")}
        if answers and not self.check_mode:
            reports, _silent = self._reports()
            outcomes = {u: _outcome(o, failed.get(u), u in started) for u, o in answers.items()}

            def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
                found = operation.finish(tx, STOP, {u: outcomes[u] for u in stopped})
                found.update(operation.finish(tx, RESUME, {u: outcomes[u] for u in started}))
                if started:
                    again = {u for u in started if outcomes[u].vm_state == states.ACTIVE}
                    power_sync.resumed(tx, {h: reports[h] for h in synced["resume"]}, again)
                return found

            failed = self.open_ledger().transact(finish)
        instances = [_instance(f, answers.get(f["uuid"]), failed.get(f["uuid"])) for f in synced.get("found", [])]
        for instance in instances:
            if instance["error"]:
                problem = failed[instance["uuid"]].paragraph
                self._display.warning(_FAILED[instance["action"] == core.RESUME] % instance + problem)
        if self.options["print_table"]:
            tables.show(self._display, self._lines(synced, instances))
        changed = any(o.get("changed") for o in answers.values())
        return {"changed": changed, "instances": instances}

    def _answers(
        self, work: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]], registered: str
    ) -> dict[str, dict[str, t.Any]]:
        """uuid -> its outcome, of the instances that their hosts had to stop or to start."""
        answers = {}
        for host, items in work.items():
            outcomes = self._registered(host, registered).get("outcomes", {})
            silent = errors.RemoteError(reason="%s returned no result" % host).as_dict()
            answers.update({i["uuid"]: outcomes.get(i["uuid"]) or {"error": silent, "silent": True} for i in items})
        return answers

    def _registered(self, host: str, name: str) -> t.Mapping[str, t.Any]:
        return t.cast("t.Mapping[str, t.Any]", self.task_vars["hostvars"][host].get(name) or {})

    def _lines(self, synced: t.Mapping[str, t.Any], instances: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
        of = "%s on %s" % (
            counted(synced.get("compared", 0), "instances"),
            counted(len(synced.get("asked", ())), "hosts"),
        )
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
        title = "Power sync of %s would do (nothing is touched):" if self.check_mode else "Power sync of %s:"
        return [title % of, *tables.table(head, rows), *silent]


_FAILED = (
    "%(name)s on %(host)s was not stopped; the next sync tries it again: ",
    "%(name)s on %(host)s was not started after the restart of its host, and is %(vm_state)s now: ",
)


def _work(its: Operation, rows: t.Sequence[Instance]) -> dict[str, list[dict[str, t.Any]]]:
    """host -> what the module instance_operation takes of each instance."""
    work: dict[str, list[dict[str, t.Any]]] = {}
    for row in rows:
        item = {"uuid": row.uuid, "name": row.display_name, "vm_state": row.vm_state, "volumes": False}
        work.setdefault(str(row.host), []).append({**item, "details": its.details(row)})
    return work


#: What keeps a guest from being started for a while, and is not the guest's: after a power failure storage hosts may come later.
_NOT_YET = (
    errors.HostUnreachable,
    errors.HypervisorUnavailable,
    errors.LedgerError,
    errors.FailedISCSITargetPortalLogin,
    errors.VolumeDeviceNotFound,
)

#: What QEMU says where it logs in by itself, and the storage host is not reached; one that refuses it fails later.
_NO_STORAGE = "iSCSI: Failed to connect to LUN : Failed to start full connect"


def _is_of_a_while(problem: errors.BootflowError) -> bool:
    if isinstance(problem, errors.FailedISCSITargetPortalLogin) and not problem.retryable:
        return False  # the target is there, and lets this host in no longer
    return isinstance(problem, _NOT_YET) or (
        isinstance(problem, errors.LibvirtError) and _NO_STORAGE in problem.message
    )


def _outcome(answer: t.Mapping[str, t.Any], problem: errors.BootflowError | None, started: bool) -> Outcome:
    """Of a guest that was to be stopped, or ``started``: where that failed for good the instance is in error, as in Nova."""
    vm_state = None
    if started and problem is not None:
        vm_state = states.ACTIVE if _is_of_a_while(problem) or answer.get("silent") else states.ERROR
    return Outcome.of_answer(answer, problem, vm_state)


def _instance(
    found: t.Mapping[str, t.Any], answer: t.Mapping[str, t.Any] | None, problem: errors.BootflowError | None
) -> dict[str, t.Any]:
    """What became of an instance that was found to be different."""
    done = found["action"] is not None and problem is None
    resumes = found["action"] == core.RESUME
    its = RESUME if resumes else STOP
    answer = answer or {}
    left = _outcome(answer, problem, resumes).vm_state or found["vm_state"]
    return {
        "name": found["name"],
        "uuid": found["uuid"],
        "host": found["host"],
        "vm_state_before": found["vm_state"],
        "power_state_before": found["power_state"],
        "reported": found["reported"],
        "action": found["action"],
        "reason": found["reason"],
        "vm_state": its.rule.result if done else left,
        "power_state": answer["power_state"] if done and answer else found["reported"],
        "forced": bool(answer.get("forced")),
        "error": None if problem is None else problem.as_dict(),
    }


def _note(instance: t.Mapping[str, t.Any]) -> str:
    if instance["error"]:
        return "%s %s" % (instance["reason"], instance["error"]["code"])
    if instance["forced"]:
        return "%s The guest was powered off, because it did not shut down in time." % instance["reason"]
    return str(instance["reason"])
