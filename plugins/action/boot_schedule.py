# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_schedule."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

from ..module_utils.core.scheduler import explain
from ..module_utils.core.scheduler.columns import Fleet, load_numpy
from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.flows.attachments import life
from ..module_utils.flows.boot import builds, schedule
from ..module_utils.ledger.compute import fleet, instances, nodes
from ..module_utils.ledger.database import Ledger
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import attachments, backends, volumes
from ..plugin_utils.builds import handover
from ..plugin_utils.run import host_settings
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import boot_volume_settings, host_reports, scheduler_settings, storage_settings
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs

# In the order of need.
preload.load(
    preload.action("boot_build"),
    "lxml.etree",
    functools.partial(host_programs.make_ready, "bootflow.compute.instance_build"),
    *map(preload.action, ("boot_report", "boot_passwords")),
)


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        **FOLLOW.options(),
        "round": {"type": "int", "default": 1},
        "phase": {"type": "str", "choices": ["refresh", "schedule"], "default": "schedule"},
        **SCHEDULER.options(),
        **boot_volume_settings.ARGUMENTS,
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "refresh":
            return self._refresh()
        if not self.check_mode:
            return self._schedule()
        if self.options["round"] > 1:
            return {"changed": False, "hosts": [], "plan": [], "msg": "The plan was shown in the first round."}
        from ..plugin_utils.builds import boot_rehearsal  # with all that makes domains

        return boot_rehearsal.plan_of_boot(self, self._fleet_reader())

    def _refresh(self) -> dict[str, t.Any]:
        """Write what hosts ended, give back what they did not, and name the hosts that should report before the next round.

        Hosts that were silent in this run are not asked again.
        """
        left: list[str] = []
        compute: list[str] = []
        storage: list[str] = []
        unfinished = False
        if not self.check_mode:
            ledger, run = self.open_ledger(), self.context().run.id
            to_clean = handover.collect(self, ledger)
            left = ledger.transact(builds.give_back, untaken=handover.untaken(self))
            unfinished = ledger.inspect(instances.has_builds, run)
            age = host_settings.facts_age(self.options)
            if ledger.inspect(instances.waits_for_host, run):
                compute = ledger.inspect(nodes.stale_hosts, self.hosts_to_use(), age, silent=False)
            compute += [h for h in self._reachable(to_clean) if h not in compute]
            if ledger.inspect(volumes.waits_for_backend, run):
                hosts = self.within_limit(storage_settings.storage_hosts(self))
                storage = ledger.inspect(backends.stale_hosts, hosts, age, silent=False)
        return {
            "changed": bool(left),
            "given_back": left,
            "unfinished": unfinished,
            "stale_hosts": compute,
            "stale_storage_hosts": storage,
        }

    def _schedule(self) -> dict[str, t.Any]:
        context = self.context()
        ledger = self.open_ledger()
        # Most boots come to the first round because something waits.
        if self.options["round"] > 1 and not ledger.inspect(instances.waits_for_host, context.run.id):
            self._place_volumes(ledger, ledger.inspect(attachments.instances_to_bind))
            return {
                "changed": False,
                "hosts": self._hand_over(ledger, ledger.inspect(instances.hosts_of_run, context.run.id)),
                "placed": [],
                "not_placed": [],
                "explanations": {},
            }
        configurations = scheduler_settings.configurations(self)
        options = replace(scheduler_settings.scheduler_options(self, context.now), explain_failures=True)
        read = self._fleet_reader()

        def write(tx: Transaction, compare: bool) -> tuple[schedule.Scheduled, dict[str, tuple[str, str]]]:
            read_fleet = functools.partial(read, configurations=configurations) if compare else read
            result = schedule.schedule(tx, read_fleet, options, log_claims=self._display.verbosity > 0)
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
        self._place_volumes(ledger, to_bind)
        for line in result.log:
            self._display.v(line)
        for line in result.warnings:
            self._display.warning(line)
        host_reports.warn_of_placements(self, result.emulated)
        for uuid in result.failed:
            self._display.warning("%s was not placed; the report says why." % names.get(uuid, uuid))
        return {
            "changed": bool(names),
            "hosts": self._hand_over(ledger, result.hosts),
            "placed": [
                {"name": names.get(u, u), "uuid": u, "host": s.host, "node": s.nodename}
                for u, s in result.placed.items()
            ],
            "not_placed": sorted(result.failed),
            "explanations": {u: explain.summary(decision) for u, decision in result.explanations.items()},
        }

    def _hand_over(self, ledger: Ledger, hosts: t.Sequence[str]) -> list[str]:
        """Begin the builds on these hosts, and hand them to the hosts' tasks. Returns the hosts that plays can reach."""
        reachable = self._reachable(hosts)
        begun, waiting = ledger.transact(builds.begin_each, reachable) if reachable else ({}, ())
        # After the first round a task writes at once, and removes at once what was deleted meanwhile: no report follows.
        handover.give(self, begun, waiting, later=self.options["round"] == 1)
        return reachable

    def _place_volumes(self, ledger: Ledger, to_bind: t.Mapping[str, tuple[str, str]]) -> None:
        """For whom volumes are exported is known with the instance's host. :arg to_bind: see attachments.instances_to_bind()"""
        if to_bind:
            from ..plugin_utils.volumes import attached_volumes  # of few boots

            hosts = {host for host, _node in to_bind.values()}
            connectors = attached_volumes.connectors_of(self.task_vars["hostvars"], hosts)
            ledger.transact(life.bind_waiting, connectors)

    def _reachable(self, hosts: t.Sequence[str]) -> list[str]:
        inventory = set(self.task_vars.get("groups", {}).get("all", []))
        return self.within_limit([h for h in hosts if h in inventory])

    # --- the fleet ----------------------------------------------------------------------------------------------------

    def _fleet_reader(self) -> t.Callable[..., Fleet]:
        """fleet.read() of a transaction, for the scheduler's needs, of the inventory's hosts."""
        hosts = self.hosts_to_use()
        reports = host_reports.of_this_run(self)
        silent = {host: report["error"]["message"] for host, report in reports.items() if report.get("error")}
        aggregates, host_vars = scheduler_settings.aggregates_of(self), scheduler_settings.vars_for_filters(self)

        def read(
            tx: Transaction,
            needs: fleet.Needs,
            configurations: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
        ) -> Fleet:
            return fleet.read(tx, hosts, aggregates, host_vars, needs, configurations, silent)

        return read
