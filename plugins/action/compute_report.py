# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.compute_report."""

from __future__ import annotations

import functools
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.amounts import counted
from ..module_utils.core.instances.power_sync import RESUME
from ..module_utils.flows.instances import cleanup
from ..module_utils.flows.recovery import operations, power_sync
from ..module_utils.ledger.compute import cleanups, instances, nodes
from ..module_utils.ledger.database import Ledger
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.operations.cleaning import clean_host, warn_of_leftovers
from ..plugin_utils.run import host_settings, host_variables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import host_reports
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs

preload.load(functools.partial(host_programs.make_ready, "bootflow.compute.compute_node_info"))


class ActionModule(LedgerAction):
    def act(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        configuration = host_settings.configuration(host_variables.of_host(self.task_vars["hostvars"], host), host)
        context = self.context()
        asked_at = context.now
        try:
            facts = self.run_module(
                "compute_node_info",
                host_settings.node_info_arguments(self, configuration),
            )["compute_node"]
        except errors.BootflowError as e:
            if not self.check_mode:
                self._is_silent(host, e)
            self._display.warning("%s did not report and is left out: %s" % (host, e.paragraph))
            return {"changed": False, "reported": False, "error": e.as_dict()}
        reason = (facts.get("stats") or {}).get("emulated")
        host_reports.warn_of_emulation(self, {host: reason} if reason else {})
        host_reports.warn_of_guest_content(self, host, facts.get("guest_content") or ())
        if self.check_mode:
            return {"changed": False, "reported": True, "compute_node": facts, "configuration": configuration}
        ledger = self.open_ledger()
        ended = self._settle_builds(ledger, host, facts, asked_at)  # with what is to be cleaned
        cleaned = self._clean_up(ledger, host)
        settled, synced = ledger.transact(
            _record, host, facts, configuration, asked_at, host_settings.resumes(self, host), tuple(cleaned)
        )
        if settled:  # what was settled may have something to be cleaned, without which it cannot be started
            cleaned += self._clean_up(ledger, host)
        settled = {**ended, **settled}
        return {
            "changed": bool(cleaned or settled or synced.changed),
            "reported": True,
            "compute_node": facts,
            "configuration": configuration,
            "cleaned": cleaned,
            "settled": settled,
            "stopped": sorted(synced.stopped),
            "to_resume": self._to_resume(host, synced),
        }

    def _is_silent(self, host: str, error: errors.BootflowError) -> None:
        from ..module_utils.flows.recovery import leases  # with all of a boot

        self.open_ledger().transact(leases.host_is_silent, host, error.message)

    def _settle_builds(
        self, ledger: Ledger, host: str, facts: t.Mapping[str, t.Any], asked_at: float
    ) -> dict[str, str]:
        """Settle the builds of dead runs on this host; of builds that this run took over only finished ones. Returns uuid -> vm_state."""
        left = ledger.inspect(instances.builds_of_expired_runs, self.context().run.id, host)
        taken = {r.uuid: "" for r in ledger.inspect(instances.builds_taken_over, host)}
        if not left and not taken:
            return {}
        from ..plugin_utils.builds import dead_builds  # with all of a boot

        ended = dead_builds.settle(self, ledger, host, facts, asked_at).vm_states if left else {}
        return {**ended, **(dead_builds.settle(self, ledger, host, facts, asked_at, taken).vm_states if taken else {})}

    def _to_resume(self, host: str, synced: power_sync.Synced) -> list[str]:
        """The instances whose guests lost their power with the host's restart."""
        found = sorted(f.uuid for f in synced.found if f.action == RESUME)
        if found:
            text = (
                "%s restarted, and guests of %s wait to be started again: ansible-playbook bootflow.compute.power_sync"
            )
            self._display.display(text % (host, counted(len(found), "active instances")))
        return found

    def _clean_up(self, ledger: Ledger, host: str) -> list[str]:
        """Rid the host of what earlier runs could not remove. Returns the UUIDs of which the host has nothing any more."""
        todo = [{"uuid": c.instance_uuid, "name": c.domain_name} for c in ledger.inspect(cleanups.of_host, host)]
        if not todo:
            return []
        problems, parts, kept = clean_host(self, todo)
        done = [i["uuid"] for i in todo if i["uuid"] not in problems]
        ledger.transact(cleanup.finish, {host: done}, cleanup.parts_on(host, parts))
        warn_of_leftovers(self, host, problems)
        return [uuid for uuid in done if uuid not in kept]  # what was there before the move still is


def _record(
    tx: Transaction,
    host: str,
    facts: t.Mapping[str, t.Any],
    configuration: t.Mapping[str, t.Any],
    asked_at: float,
    resumes: bool,
    cleaned: t.Collection[str],
) -> tuple[dict[str, str], power_sync.Synced]:
    """Enter the report. Returns the instances that it brought out of an operation whose run died, uuid -> vm_state, and what else it changes of
    instances. A guest that should not run, or is to run again after its host's restart, is left to the playbook power_sync.
    """
    power_states = {d["uuid"]: d["power_state"] for d in facts["domains"]}
    rescued = [d["uuid"] for d in facts["domains"] if d.get("rescued")]
    moving = {d["uuid"]: d["moving"] for d in facts["domains"] if d.get("moving")}
    reports = {host: power_sync.Report(asked_at, power_states, facts.get("boot_id") or "", resumes)}
    restarted = host in power_sync.restarted(tx, reports)
    settled = operations.settle(
        tx, host, power_states, asked_at, rescued, restarted, moving, facts.get("at_work") or ()
    )
    synced = power_sync.sync(tx, reports)
    nodes.record_report(tx, host, facts, configuration, asked_at, cleaned)
    return settled, synced
