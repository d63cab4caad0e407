# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of a run get their backends."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.volumes import states
from ...module_utils.core.volumes.scheduler import explain
from ...module_utils.flows.volumes import accept, schedule, work
from ...module_utils.ledger.storage import backends, volumes
from ..run import host_settings, inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, outcome
from ..run.stage_results import CONTROLLER, StageResults
from ..settings import ledger_images, volume_settings
from ..settings.storage_settings import storage_hosts
from . import storage_reports

EXPLAINED = 3
BACKENDS_PRINTED = 50
REMEDY = "The plan says why. Request less, or fix the cause."

Result = t.Dict[str, t.Any]  # of a task


class VolumeSchedule:
    """The stages of a round, by the options of the action."""

    def __init__(self, action: LedgerAction):
        self.action = action
        self.options = action.options

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        if self.options["phase"] == "refresh":
            nothing = {"changed": False, "again": False, "ask": []}
            return nothing if self.action.check_mode else self._refresh()
        if not self.action.check_mode:
            return {**self._schedule(), **self._of_boot()}
        if self.options["round"] > 1:
            return {"changed": False, "storage": [], "plan": [], "msg": "The plan was shown in the first round."}
        return self._plan()

    def _refresh(self) -> Result:
        """Name the hosts that should report before the next round, without hosts that were silent in this run."""
        ledger = self.action.open_ledger()
        rows = ledger.inspect(volumes.select, statuses=(states.CREATING,), run_id=self.action.context().run.id)
        stale: list[str] = []
        if any(row.pool_host is None for row in rows):
            hosts = self.action.within_limit(storage_hosts(self.action))
            stale = ledger.inspect(backends.stale_hosts, hosts, host_settings.facts_age(self.options), silent=False)
        return {"changed": False, "again": bool(rows), "ask": stale}

    def _of_boot(self) -> Result:
        """Return the part of boot_schedule's result, once, that the playbook of a boot needs next; empty where volumes alone are created."""
        results = StageResults(self.action, "boot_schedule")
        scheduled = results.read("schedule", CONTROLLER)
        results.remove("schedule", CONTROLLER)
        return {} if scheduled is None else {**scheduled, "unfinished": True, "volumes": True}

    def _schedule(self) -> Result:
        context = self.action.context()
        ledger = self.action.open_ledger()
        rows = ledger.inspect(volumes.select, statuses=(states.CREATING,), run_id=context.run.id)
        names = {r.id: r.name or r.id for r in rows if r.pool_host is None}
        if not names:
            hosts = ledger.inspect(work.hosts_with_work)
            return {
                "changed": False,
                "storage": inventory_hosts.reachable(self.action, hosts),
                "again": True,
                "placed": [],
                "not_placed": [],
            }
        # Apart from the scheduling, which locks volumes before backends.
        ledger.transact(backends.configure, volume_settings.configurations(self.action))

        options = volume_settings.scheduler_options(
            self.options, context.now, hosts=self.action.within_limit(storage_hosts(self.action))
        )
        result = ledger.transact(schedule.schedule, options)
        for volume_id in sorted(result.failed):
            self.action.ports.display.warning(
                "%s was not placed; the report says why." % names.get(volume_id, volume_id)
            )
        return {
            "changed": bool(result.placed or result.failed),
            "storage": inventory_hosts.reachable(self.action, result.hosts),
            "again": True,
            "placed": [
                {"name": names.get(i, i), "id": i, "pool_host": s.host, "alternates": list(s.alternates)}
                for i, s in result.placed.items()
            ],
            "not_placed": sorted(result.failed),
            "diff": [
                _volume_diff(names[r.id], r.size, result.placed[r.id].host) for r in rows if r.id in result.placed
            ],
        }

    # --- check mode ---------------------------------------------------------------------------------------------------

    def _plan(self) -> Result:
        """Accept, take the reports of this run, schedule: in a transaction that is rolled back."""
        option_values = self.options
        if not option_values["volumes"]:
            return {"changed": False, "storage": [], "plan": []}
        settings = volume_settings.read_options(option_values, ledger_images.images_of(self.action))
        configurations = volume_settings.configurations(self.action)
        context = self.action.context()
        ledger = self.action.rehearsal_ledger()
        reports = storage_reports.of_this_run(self.action)
        hosts = self.action.within_limit(storage_hosts(self.action))
        options = volume_settings.scheduler_options(option_values, context.now, explain=True, hosts=hosts)
        with ledger.rehearse() as tx:
            backends.configure(tx, configurations)
            accepted = accept.accept(tx, option_values["volumes"], settings)
            if not accepted.changed:
                return {
                    "changed": False,
                    "storage": [],
                    "plan": [],
                    "msg": "Nothing to do: everything matches the request.",
                }
            storage_reports.rehearse(tx, reports)
            plan = schedule.plan(tx, options)
        for number, decided in enumerate(plan):
            decided["lines"] = _plan_lines(decided, number < EXPLAINED)
        if option_values["print_table"]:
            tables.show(self.action.ports.display, ["The plan:", *(line for d in plan for line in d["lines"])])
        for decided in plan:
            del decided["lines"]
        items = [
            errors.failed_item(d["name"] or d["volume_id"], d["volume_id"], {**d["error"], "remedy": ""})
            for d in plan
            if d["error"]
        ]
        message = "%d of %d volumes cannot be placed on any backend." % (len(items), len(plan))
        return outcome(
            errors.VolumeFailed(items, len(plan), message=message, remedy=REMEDY),
            reasons=not option_values["print_table"],
            changed=True,
            storage=[],
            plan=plan,
            diff=[_volume_diff(d["name"] or d["volume_id"], d["size"], d["host"]) for d in plan if d["host"]],
        )


def _volume_diff(name: str, size: int, pool_host: str) -> dict[str, str]:
    return diff("volumes", "", "%s: %s GiB on %s\n" % (name, size, pool_host))


def _plan_lines(decided: t.Mapping[str, t.Any], in_full: bool) -> list[str]:
    lines = ["", "%s (%s GiB)" % (decided["name"] or decided["volume_id"], decided["size"])]
    lines.append("  backend: %s" % (decided["host"] or "none"))
    if decided["host"]:
        lines.append("  alternates: %s" % (", ".join(decided["alternates"]) or "none"))
    if decided["error"]:
        lines.append("  %s: %s" % (decided["error"]["code"], decided["error"]["message"]))
    if decided["decision"] and in_full:
        lines += explain.explanation_text(decided["decision"], BACKENDS_PRINTED)[1:]
    elif decided["decision"]:
        lines.append("  the backends: much as above; the result's plan has all")
    return lines
