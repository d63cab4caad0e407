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
from ...module_utils.flows.recovery import operations, power_sync
from ...module_utils.ledger.compute import cleanups, instances, nodes
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
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

    def _report(self) -> Result:
        host = self.host
        configuration = host_settings.configuration(
            host_variables.of_host(self.action.task_vars["hostvars"], host), host
        )
        context = self.action.context()
        asked_at = context.now
        try:
            facts = self.action.run_module(
                "compute_node_info",
                host_settings.node_info_arguments(self.action, configuration),
            )["compute_node"]
        except errors.BootflowError as e:
            if not self.action.check_mode:
                self._record_silence(host, e)
            self.action.ports.display.warning("%s did not report and is left out: %s" % (host, e.paragraph))
            return {"changed": False, "reported": False, "error": e.as_dict()}
        reason = (facts.get("stats") or {}).get("emulated")
        host_reports.warn_of_emulation(self.action, {host: reason} if reason else {})
        host_reports.warn_of_guest_content(self.action, host, facts.get("guest_content") or ())
        if self.action.check_mode:
            return {"changed": False, "reported": True, "compute_node": facts, "configuration": configuration}
        ledger = self.action.open_ledger()
        ended = self._settle_builds(ledger, host, facts, asked_at)  # with what is to be cleaned
        cleaned = self._clean_up(ledger, host)
        settled, synced = ledger.transact(
            _record, host, facts, configuration, asked_at, host_settings.resumes(self.action, host), tuple(cleaned)
        )
        if settled:  # what was settled may have something to be cleaned, without which it cannot be started
            cleaned += self._clean_up(ledger, host)
        settled = {**ended, **settled}
        joined = vxlan_peers.refresh(self.action, host, facts.get("vxlan_networks") or ())
        return {
            "changed": bool(cleaned or settled or synced.changed or joined),
            "reported": True,
            "compute_node": facts,
            "configuration": configuration,
            "cleaned": cleaned,
            "settled": settled,
            "vxlan_networks_joined": joined,
            "stopped": sorted(synced.stopped),
            "to_resume": self._to_resume(host, synced),
        }

    def _record_silence(self, host: str, error: errors.BootflowError) -> None:
        from ...module_utils.flows.recovery import leases  # with all of a boot

        self.action.open_ledger().transact(leases.host_is_silent, host, error.message)

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

    def _to_resume(self, host: str, synced: power_sync.Synced) -> list[str]:
        """Return the instances whose guests lost their power with the restart of the host."""
        uuids = sorted(f.uuid for f in synced.differences if f.action == RESUME)
        if uuids:
            text = (
                "%s restarted, and guests of %s wait to be started again: ansible-playbook bootflow.compute.power_sync"
            )
            self.action.ports.display.display(text % (host, counted(len(uuids), "active instances")))
        return uuids

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


def _record(
    tx: Transaction,
    host: str,
    facts: t.Mapping[str, t.Any],
    configuration: t.Mapping[str, t.Any],
    asked_at: float,
    resumes: bool,
    cleaned: t.Collection[str],
) -> tuple[dict[str, str], power_sync.Synced]:
    """Enter the report. Returns the instances whose operation it settled, as its run died, UUID -> vm_state, and other changes of instances.

    A guest that should not run, or is to run again after its host's restart, is left to the playbook power_sync.
    """
    power_states = {d["uuid"]: d["power_state"] for d in facts["domains"]}
    rescued = [d["uuid"] for d in facts["domains"] if d.get("rescued")]
    moving = {d["uuid"]: d["moving"] for d in facts["domains"] if d.get("moving")}
    reports = {host: power_sync.Report(asked_at, power_states, facts.get("boot_id") or "", resumes)}
    restarted = host in power_sync.restarted(tx, reports)
    settled = operations.settle_operations(
        tx, host, power_states, asked_at, rescued, restarted, moving, facts.get("at_work") or ()
    )
    synced = power_sync.sync(tx, reports)
    nodes.record_report(tx, host, facts, configuration, asked_at, cleaned)
    return settled, synced
