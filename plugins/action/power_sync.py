# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.power_sync."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.amounts import counted
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import POWER_STATES
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import RUN
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery.power_sync import STOP, Report
from ansible_collections.bootflow.compute.plugins.plugin_utils import host_settings, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction

# As playbooks/power_sync.yml registers what the controller and the hosts answered. What is to be stopped is handed to the
# module instance_operation, which reads it under the third name and answers under the last.
BEGUN = "bootflow_power_begun"
ASKED = "bootflow_power_asked"
SYNCED = "bootflow_operation_begun"
OPERATED = "bootflow_operated"

COUNTS = (
    "%s: While synchronizing instance power states, found %d instances in the database and %d instances on the"
    " hypervisor."
)


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": ["begin", "ask", "sync", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        phases = {"begin": self._begin, "ask": self._ask, "sync": self._sync, "finish": self._finish}
        return phases[self.options["phase"]]()

    def _begin(self) -> dict[str, t.Any]:
        return {"changed": False, "hosts": self.hosts_to_use()}

    def _ask(self) -> dict[str, t.Any]:
        asked_at = self.context().now
        try:
            answer = self.run_module("domain_info", host_settings.libvirt_arguments(self))
        except errors.BootflowError as e:
            host = self.task_vars["inventory_hostname"]
            self._display.warning("%s did not answer and is left out: %s" % (host, e.paragraph))
            return {"changed": False, "answered": False, "error": e.as_dict()}
        return {"changed": False, "answered": True, "asked_at": asked_at, "power_states": answer["power_states"]}

    # --- sync: on the controller, for all hosts -----------------------------------------------------------------------

    def _sync(self) -> dict[str, t.Any]:
        reports, silent = {}, []
        for host in self._registered("localhost", BEGUN).get("hosts", []):
            asked = self._registered(host, ASKED)
            if asked.get("answered"):
                reports[host] = Report(asked["asked_at"], asked["power_states"])
            else:
                silent.append(host)
        synced = self.write(lambda tx: power_sync.follow(tx, reports))
        for host, counts in synced.counts.items():
            self._display.warning(COUNTS % (host, *counts))
        work: dict[str, list[dict[str, t.Any]]] = {}
        for row in synced.to_stop:
            item = {"uuid": row.uuid, "name": row.display_name, "vm_state": row.vm_state, "volumes": False}
            work.setdefault(str(row.host), []).append({**item, "details": STOP.details(row)})
        return {
            "changed": synced.changed,
            "compared": synced.compared,
            "asked": sorted(reports),
            "silent": silent,
            "found": [dataclasses.asdict(f) for f in synced.found],
            "counts": {host: {"ledger": ours, "host": theirs} for host, (ours, theirs) in synced.counts.items()},
            "hosts": sorted(work),
            "work": work,
        }

    # --- finish: on the controller, for all hosts ---------------------------------------------------------------------

    def _finish(self) -> dict[str, t.Any]:
        synced = self._registered("localhost", SYNCED)
        answers = self._answers(synced)
        failed = {u: errors.from_dict(o["error"]) for u, o in answers.items() if o.get("error")}
        if answers and not self.check_mode:
            outcomes = {u: Outcome(int(o.get("power_state") or 0), failed.get(u)) for u, o in answers.items()}
            failed = self.open_ledger().transact(operation.finish, STOP, outcomes)
        instances = [_instance(f, answers.get(f["uuid"], {}), failed.get(f["uuid"])) for f in synced.get("found", [])]
        for instance in instances:
            if instance["error"]:
                problem = failed[instance["uuid"]].paragraph
                text = "%(name)s on %(host)s was not stopped; the next sync tries it again: " % instance
                self._display.warning(text + problem)
        if self.options["print_table"]:
            tables.show(self._display, self._lines(synced, instances))
        changed = any(o.get("changed") for o in answers.values())
        return {"changed": changed, "instances": instances}

    def _answers(self, synced: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
        """uuid -> its outcome, of the instances that their hosts had to stop."""
        answers = {}
        for host, items in synced.get("work", {}).items():
            outcomes = self._registered(host, OPERATED).get("outcomes", {})
            silent = errors.RemoteError(reason="%s returned no result" % host).as_dict()
            answers.update({i["uuid"]: outcomes.get(i["uuid"]) or {"error": silent} for i in items})
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
                i["vm_state"],
                POWER_STATES[i["power_state_before"]],
                POWER_STATES[i["reported"]],
                _note(i),
            )
            for i in instances
        ]
        head = ("INSTANCE", "UUID", "HOST", "VM_STATE", "IN_LEDGER", "ON_HOST", "NOTE")
        title = "Power sync of %s would do (nothing is touched):" if self.check_mode else "Power sync of %s:"
        return [title % of, *tables.table(head, rows), *silent]


def _instance(
    found: t.Mapping[str, t.Any], answer: t.Mapping[str, t.Any], problem: errors.BootflowError | None
) -> dict[str, t.Any]:
    """What became of an instance that was found to be different."""
    stopped = found["action"] is not None and problem is None
    return {
        "name": found["name"],
        "uuid": found["uuid"],
        "host": found["host"],
        "vm_state_before": found["vm_state"],
        "power_state_before": found["power_state"],
        "reported": found["reported"],
        "action": found["action"],
        "reason": found["reason"],
        "vm_state": STOP.rule.result if stopped else found["vm_state"],
        "power_state": answer["power_state"] if stopped and answer else found["reported"],
        "forced": bool(answer.get("forced")),
        "error": None if problem is None else problem.as_dict(),
    }


def _note(instance: t.Mapping[str, t.Any]) -> str:
    if instance["error"]:
        return "%s %s" % (instance["reason"], instance["error"]["code"])
    if instance["forced"]:
        return "%s It lost its power, as it did not shut down in time." % instance["reason"]
    return str(instance["reason"])
