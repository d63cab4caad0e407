# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a compute host: entered in the ledger, with what it settles, and the host cleaned up."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import counted
from ...module_utils.core.instances.power_sync import RESUME
from ...module_utils.flows.instances import cleanup
from ...module_utils.flows.recovery import host_answers, power_sync
from ...module_utils.flows.recovery.host_answers import HostAnswer
from ...module_utils.ledger.compute import cleanups, instances
from ...module_utils.ledger.database import Ledger
from ..operations.cleaning import clean_host, warn_of_leftovers
from ..run import host_settings, host_variables
from ..run.ledger_action import LedgerAction
from ..settings import host_reports
from . import vxlan_peers

Result = t.Dict[str, t.Any]  # of a task


class HostReport:
    """The report of the current host."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.host = action.task_vars["inventory_hostname"]

    def run(self) -> Result:
        """Ask the host, write its report, and leave it for later stages. Returns the result of the task."""
        return host_reports.leave(self.action, self.host, self._report())

    def ask(self) -> Result:
        """Ask the host, and leave its answer for the task that writes the answers of all hosts. Returns the result of the task."""
        asked = self._ask()
        if not self.action.check_mode:
            host_reports.leave_answer(self.action, self.host, {**asked, "asked_at": self._asked_at, **self._resumes()})
        return host_reports.leave(self.action, self.host, {"changed": False, **asked})

    def _resumes(self) -> dict[str, bool]:
        return {"resumes": host_settings.resumes(self.action, self.host)}

    def _ask(self) -> Result:
        """Return the facts of the host with its configuration, or why it did not answer. Warns of what people have to know."""
        host = self.host
        configuration = host_settings.configuration(
            host_variables.of_host(self.action.task_vars["hostvars"], host), host
        )
        self._asked_at = self.action.context().now
        try:
            facts = self.action.run_module(
                "compute_node_info",
                host_settings.node_info_arguments(self.action, configuration),
            )["compute_node"]
        except errors.BootflowError as e:
            self.action.ports.display.warning("%s did not report and is left out: %s" % (host, e.paragraph))
            return {"reported": False, "error": e.as_dict()}
        reason = (facts.get("stats") or {}).get("emulated")
        host_reports.warn_of_emulation(self.action, {host: reason} if reason else {})
        host_reports.warn_of_guest_content(self.action, host, facts.get("guest_content") or ())
        return {"reported": True, "compute_node": facts, "configuration": configuration}

    def _report(self) -> Result:
        host = self.host
        asked = self._ask()
        if self.action.check_mode:
            return {"changed": False, **asked}
        if not asked["reported"]:
            self.action.open_ledger().transact(
                host_answers.record_silence, host, errors.from_dict(asked["error"]).message
            )
            return {"changed": False, **asked}
        facts, asked_at = asked["compute_node"], self._asked_at
        ledger = self.action.open_ledger()
        ended = self._settle_builds(ledger, host, facts, asked_at)  # with what is to be cleaned
        cleaned = self._clean_up(ledger, host)
        answer = HostAnswer(facts, asked["configuration"], asked_at, **self._resumes())
        settled_by_host, synced = ledger.transact(host_answers.record, {host: answer}, tuple(cleaned))
        settled = settled_by_host[host]
        if settled:  # what was settled may have something to be cleaned, without which it cannot be started
            cleaned += self._clean_up(ledger, host)
        settled = {**ended, **settled}
        joined = vxlan_peers.refresh(self.action, host, facts.get("vxlan_networks") or ())
        return {
            **asked,
            "changed": bool(cleaned or settled or synced.changed or joined),
            "cleaned": cleaned,
            "settled": settled,
            "vxlan_networks_joined": joined,
            "stopped": sorted(synced.stopped),
            "to_resume": show_to_resume(self.action, synced).get(host, []),
        }

    def _settle_builds(
        self, ledger: Ledger, host: str, facts: t.Mapping[str, t.Any], asked_at: float
    ) -> dict[str, str]:
        """Settle the builds of dead runs on this host; of builds that this run took over only finished ones. Returns uuid -> vm_state."""
        expired_builds = ledger.inspect(instances.builds_of_expired_runs, self.action.context().run.id, host)
        builds_taken_over = {r.uuid: "" for r in ledger.inspect(instances.builds_taken_over, host)}
        if not expired_builds and not builds_taken_over:
            return {}
        from ..builds import dead_builds  # with all of a boot

        ended = (
            dead_builds.settle_builds(self.action, ledger, host, facts, asked_at).vm_states if expired_builds else {}
        )
        return {
            **ended,
            **(
                dead_builds.settle_builds(self.action, ledger, host, facts, asked_at, builds_taken_over).vm_states
                if builds_taken_over
                else {}
            ),
        }

    def _clean_up(self, ledger: Ledger, host: str) -> list[str]:
        """Remove from the host what earlier runs could not remove. Returns the UUIDs of instances that are gone from the host."""
        todo = [{"uuid": c.instance_uuid, "name": c.domain_name} for c in ledger.inspect(cleanups.of_host, host)]
        if not todo:
            return []
        problems, parts, preexisting_uuids = clean_host(self.action, todo)
        done = [i["uuid"] for i in todo if i["uuid"] not in problems]
        ledger.transact(cleanup.finish, {host: done}, cleanup.parts_on(host, parts))
        warn_of_leftovers(self.action, host, problems)
        return [uuid for uuid in done if uuid not in preexisting_uuids]  # what was there before the move still is


def show_to_resume(action: LedgerAction, synced: power_sync.Synced) -> dict[str, list[str]]:
    """Print which hosts restarted. Returns the instances whose guests lost their power by that, host -> UUIDs."""
    uuids_by_host: dict[str, list[str]] = {}
    for difference in synced.differences:
        if difference.action == RESUME:
            uuids_by_host.setdefault(difference.host, []).append(difference.uuid)
    text = "%s restarted, and guests of %s wait to be started again: ansible-playbook bootflow.compute.power_sync"
    for host, uuids in sorted(uuids_by_host.items()):
        action.ports.display.display(text % (host, counted(len(uuids), "active instances")))
    return {host: sorted(uuids) for host, uuids in uuids_by_host.items()}
