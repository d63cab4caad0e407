# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_schedule."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.volumes import VOLUME, VOLUME_SCHEDULER, VOLUME_WORK
from ..module_utils.core.volumes import states
from ..module_utils.core.volumes.scheduler import explain
from ..module_utils.flows.volumes import accept, schedule, work
from ..module_utils.ledger.storage import backends, volumes
from ..plugin_utils.run import host_settings, inventory_hosts, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff, outcome
from ..plugin_utils.settings import volume_settings
from ..plugin_utils.settings.storage_settings import storage_hosts
from ..plugin_utils.volumes import storage_reports

EXPLAINED = 3
BACKENDS_PRINTED = 50
REMEDY = "The plan says why. Request less, or fix the cause."


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "volumes": VOLUME_WORK.named("volumes").but(required=False, default=()),
        "round": {"type": "int", "default": 1},
        "phase": {"type": "str", "choices": ["refresh", "schedule"], "default": "schedule"},
        **VOLUME.options(),
        **VOLUME_SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "refresh":
            return {"changed": False, "unfinished": False, "stale_hosts": []} if self.check_mode else self._refresh()
        if not self.check_mode:
            return self._schedule()
        if self.options["round"] > 1:
            return {"changed": False, "hosts": [], "plan": [], "msg": "The plan was shown in the first round."}
        return self._plan()

    def _refresh(self) -> dict[str, t.Any]:
        """Name the hosts that should report before the next round. Those that were silent in this run are not asked again."""
        ledger = self.open_ledger()
        rows = ledger.inspect(volumes.select, statuses=(states.CREATING,), run_id=self.context().run.id)
        stale: list[str] = []
        if any(row.pool_host is None for row in rows):
            hosts = self.within_limit(storage_hosts(self))
            stale = ledger.inspect(backends.stale_hosts, hosts, host_settings.facts_age(self.options), silent=False)
        return {"changed": False, "unfinished": bool(rows), "stale_hosts": stale}

    def _schedule(self) -> dict[str, t.Any]:
        context = self.context()
        ledger = self.open_ledger()
        rows = ledger.inspect(volumes.select, statuses=(states.CREATING,), run_id=context.run.id)
        names = {r.id: r.name or r.id for r in rows if r.pool_host is None}
        if not names:
            hosts = ledger.inspect(work.hosts_with_work)
            return {
                "changed": False,
                "hosts": inventory_hosts.reachable(self, hosts),
                "placed": [],
                "not_placed": [],
            }
        # Apart from the scheduling, which locks volumes before backends.
        ledger.transact(backends.configure, volume_settings.configurations(self))

        options = volume_settings.scheduler_options(
            self.options, context.now, hosts=self.within_limit(storage_hosts(self))
        )
        result = ledger.transact(schedule.schedule, options)
        for volume_id in sorted(result.failed):
            self._display.warning("%s was not placed; the report says why." % names.get(volume_id, volume_id))
        return {
            "changed": bool(result.placed or result.failed),
            "hosts": inventory_hosts.reachable(self, result.hosts),
            "placed": [
                {"name": names.get(i, i), "id": i, "pool_host": s.host, "alternates": list(s.alternates)}
                for i, s in result.placed.items()
            ],
            "not_placed": sorted(result.failed),
            "diff": [_diff(names[r.id], r.size, result.placed[r.id].host) for r in rows if r.id in result.placed],
        }

    # --- check mode ---------------------------------------------------------------------------------------------------

    def _plan(self) -> dict[str, t.Any]:
        """Accept, take the reports of this run, schedule: in a transaction that is rolled back."""
        o = self.options
        if not o["volumes"]:
            return {"changed": False, "hosts": [], "plan": []}
        settings = volume_settings.of(o)
        configurations = volume_settings.configurations(self)
        context = self.context()
        ledger = self.rehearsal_ledger()
        reports = storage_reports.of_this_run(self)
        hosts = self.within_limit(storage_hosts(self))
        options = volume_settings.scheduler_options(o, context.now, explain=True, hosts=hosts)
        with ledger.rehearse() as tx:
            backends.configure(tx, configurations)
            accepted = accept.accept(tx, o["volumes"], settings)
            if not accepted.changed:
                return {
                    "changed": False,
                    "hosts": [],
                    "plan": [],
                    "msg": "Nothing to do: everything matches the request.",
                }
            storage_reports.rehearse(tx, reports)
            plan = schedule.plan(tx, options)
        for number, decided in enumerate(plan):
            decided["lines"] = _lines(decided, number < EXPLAINED)
        if o["print_table"]:
            tables.show(self._display, ["The plan:", *(line for d in plan for line in d["lines"])])
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
            reasons=not o["print_table"],
            changed=True,
            hosts=[],
            plan=plan,
            diff=[_diff(d["name"] or d["volume_id"], d["size"], d["host"]) for d in plan if d["host"]],
        )


def _diff(name: str, size: int, pool_host: str) -> dict[str, str]:
    return diff("volumes", "", "%s: %s GiB on %s\n" % (name, size, pool_host))


def _lines(decided: t.Mapping[str, t.Any], in_full: bool) -> list[str]:
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
