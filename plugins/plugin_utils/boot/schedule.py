# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builds of a run get their hosts, and are handed to them."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

from ...module_utils.core.scheduler import explain
from ...module_utils.core.scheduler.columns import Fleet, load_numpy
from ...module_utils.flows.attachments import life
from ...module_utils.flows.boot import builds, schedule
from ...module_utils.ledger.compute import fleet, instances, nodes
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments, backends, volumes
from ..builds import handover
from ..relay import boot_images, large_images
from ..run import host_settings
from ..run.firewall import filter_handover
from ..run.ledger_action import LedgerAction
from ..run.stage_results import CONTROLLER, StageResults
from ..scheduling import boot_fleet
from ..settings import host_reports, scheduler_settings, storage_settings

Result = t.Dict[str, t.Any]  # of a task


class BootSchedule:
    """The stages of a round, by the options of the action."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        if not self.action.check_mode:
            filter_handover.collect(self.action)
        if self.options["phase"] == "refresh":
            return self._in_boot(self._refresh())
        if not self.action.check_mode:
            return self._in_boot(self._schedule())
        if self.options["round"] > 1:
            return {"changed": False, "compute": [], "plan": [], "msg": "The plan was shown in the first round."}
        from ..builds import boot_rehearsal  # with all that makes domains

        return boot_rehearsal.plan_of_boot(self.action, self._fleet_reader())

    def _in_boot(self, result: Result) -> Result:
        """Return the result of a stage with the part that the playbook needs until its report."""
        if self.action.check_mode:
            return result
        accepted = StageResults(self.action, "boot_accept").read("accept", CONTROLLER) or {}
        volumes = bool(accepted.get("volumes"))
        if volumes and "compute" in result:  # for volume_schedule, whose result replaces this one
            StageResults(self.action, "boot_schedule").leave(
                "schedule", CONTROLLER, {n: result[n] for n in ("compute", "images", "lacking")}
            )
        return {"again": True, **result, "unfinished": True, "volumes": volumes}

    def _refresh(self) -> Result:
        """Write what hosts ended, give back what they did not, and name the hosts that should report before the next round.

        Hosts that were silent in this run are not asked again. Hosts with leftovers of builds are asked, which removes them.
        """
        given_back: list[str] = []
        compute: list[str] = []
        storage: list[str] = []
        unfinished = False
        if not self.action.check_mode:
            ledger, run = self.action.open_ledger(), self.action.context().run.id
            to_clean = [*handover.collect(self.action, ledger), *self._leftovers()]
            given_back = ledger.transact(builds.give_back, untaken=handover.untaken(self.action))
            unfinished = ledger.inspect(instances.has_builds, run)
            age = host_settings.facts_age(self.options)
            if ledger.inspect(instances.waits_for_host, run):
                compute = ledger.inspect(nodes.stale_hosts, self.action.hosts_to_use(), age, silent=False)
            compute += [h for h in dict.fromkeys(self._reachable(to_clean)) if h not in compute]
            if ledger.inspect(volumes.waits_for_backend, run):
                hosts = self.action.within_limit(storage_settings.storage_hosts(self.action))
                storage = ledger.inspect(backends.stale_hosts, hosts, age, silent=False)
        return {
            "changed": bool(given_back),
            "given_back": given_back,
            "again": unfinished,
            "attempt": self.options["round"],
            "ask": list(dict.fromkeys([*compute, *storage])),
            "reports": {"compute": compute, "storage": storage},
        }

    def _leftovers(self) -> list[str]:
        """Return the hosts on which the report after the first round found leftovers, once."""
        results = StageResults(self.action, "boot_report")
        report = results.read("report", CONTROLLER) or {}
        results.remove("report", CONTROLLER)
        return list(report.get("to_clean") or ())

    def _schedule(self) -> Result:
        context = self.action.context()
        ledger = self.action.open_ledger()
        # Most boots come to the first round because something waits.
        if self.options["round"] > 1 and not ledger.inspect(instances.waits_for_host, context.run.id):
            self._bind_attachments(ledger, ledger.inspect(attachments.instances_to_bind))
            return {
                "changed": False,
                **self._hand_over(ledger, ledger.inspect(instances.hosts_of_run, context.run.id)),
                "placed": [],
                "not_placed": [],
                "explanations": {},
            }
        configurations = scheduler_settings.configurations(self.action)
        options = replace(scheduler_settings.scheduler_options(self.action, context.now), explain_failures=True)
        read = self._fleet_reader()

        def write(tx: Transaction, compare: bool) -> tuple[schedule.Scheduled, dict[str, tuple[str, str]]]:
            read_fleet = functools.partial(read, configurations=configurations) if compare else read
            result = schedule.schedule(tx, read_fleet, options, log_claims=self.action.ports.display.verbosity > 0)
            if compare and not result.names and nodes.differing(tx, configurations):  # nothing waits: no host was read
                raise fleet.SettingsDiffer
            return result, attachments.instances_to_bind(tx) if result.with_attachments else {}

        load_numpy()
        try:
            result, to_bind = ledger.transact(write, compare=True)
        except fleet.SettingsDiffer:
            ledger.transact(nodes.configure, configurations)  # apart: it locks nodes, scheduling locks instances first
            result, to_bind = ledger.transact(write, compare=False)
        names = result.names
        self._bind_attachments(ledger, to_bind)
        for line in result.log:
            self.action.ports.display.v(line)
        for line in result.warnings:
            self.action.ports.display.warning(line)
        host_reports.warn_of_placements(self.action, result.emulated)
        for uuid in result.failed:
            self.action.ports.display.warning("%s was not placed; the report says why." % names.get(uuid, uuid))
        return {
            "changed": bool(names),
            **self._hand_over(ledger, result.hosts),
            "placed": [
                {"name": names.get(u, u), "uuid": u, "host": s.host, "node": s.nodename}
                for u, s in result.placed.items()
            ],
            "not_placed": sorted(result.failed),
            "explanations": {u: explain.summary(decision) for u, decision in result.explanations.items()},
        }

    def _hand_over(self, ledger: Ledger, hosts: t.Sequence[str]) -> Result:
        """Begin the builds on these hosts, and hand them to the hosts' tasks.

        Returns the hosts that plays can reach, of these the hosts that may lack large images, and the file that is there once one does:
        {compute, images, lacking}.
        """
        reachable = self._reachable(hosts)
        begun, waiting = ledger.transact(builds.begin_each, reachable) if reachable else ({}, ())
        # After the first round a task writes at once, and removes at once what was deleted meanwhile: no report follows.
        handover.give(self.action, begun, waiting, later=self.options["round"] == 1)
        filter_handover.give(self.action, {*begun, *waiting})
        images = boot_images.begin(self.action, begun, self.options["images"])
        return {"compute": reachable, "images": images, "lacking": str(large_images.lacking_file(self.action))}

    def _bind_attachments(self, ledger: Ledger, to_bind: t.Mapping[str, tuple[str, str]]) -> None:
        """Bind the attachments of instances that have a host now: their volumes are exported to it. :arg to_bind: see attachments.instances_to_bind()"""
        if to_bind:
            from ..volumes import attached_volumes  # of few boots

            hosts = {host for host, _node in to_bind.values()}
            connectors = attached_volumes.connectors_of(self.action.task_vars["hostvars"], hosts)
            ledger.transact(life.bind_waiting, connectors)

    def _reachable(self, hosts: t.Sequence[str]) -> list[str]:
        inventory = set(self.action.task_vars.get("groups", {}).get("all", []))
        return self.action.within_limit([h for h in hosts if h in inventory])

    def _fleet_reader(self) -> t.Callable[..., Fleet]:
        return boot_fleet.reader(self.action, self.action.hosts_to_use())
