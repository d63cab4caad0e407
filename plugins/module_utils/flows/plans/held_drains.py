# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that a plan of a drain holds for the instances of a host.

A drain has several steps, each with a transaction. The plan is used in the first one; it holds the hosts until the migrations begin, each of
which takes over its own.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...core import errors
from ...core.plans import plan_file
from ...core.plans.plan_file import Plan
from ...core.plans.plan_states import DRAIN, USED
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import claims, instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.plans import places, plans
from ..moves import cold, drain, live
from ..moves.place import ReadFleet, give_up_planned
from . import held
from .held_moves import Unplaced, check_claims, check_unchanged, check_unplanned, claimed, described, place_of

LIVE, COLD = "live_migrate", "migrate"


@dataclass(frozen=True)
class Wanted:
    """The drain that a run asks for."""

    host: str
    cold: cold.Wanted  # a cold migration of the host's instances
    live: live.Wanted | None  # a live migration of them; None: no guest is to be live-migrated

    @property
    def request(self) -> dict[str, t.Any]:
        """The request as the plan's file has it."""
        return plan_file.drain_request(self.host, self.live is not None)


def hold(
    tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions, seconds: float, ledger_id: str
) -> Plan | None:
    """Hold hosts for the instances of a host. Returns the content of the plan's file, signed; None: no instance is on it.

    :arg seconds: for which the places are held.
    :raises PlanNotPossible: an instance cannot leave the host, or has no other, or more has to be done than migrations.
    """
    if plans.any_expired(tx):
        held.expire(tx)
    rows = instances.select_live(tx, hosts=[wanted.host], lock=True)
    drained = drain.sort_out(tx, rows, wanted.cold, wanted.live)
    words = ["%s stays: %s" % (drained.rows[u].display_name, e.message) for u, e in drained.stays.items()]
    words += _to_confirm(tx, wanted.host)
    if words:
        remedy = "Fix the cause, or drain the host without bootflow_plan_out."
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=remedy)
    if not drained.movers:
        return None
    check_unplanned(tx, [m.row for m in drained.movers.values()])
    try:
        placed = claimed(tx, drained.movers, read_fleet, options)
    except Unplaced as e:
        words = ["%s: %s" % (drained.rows[u].display_name, error.message) for u, error in e.failed.items()]
        raise errors.PlanNotPossible(
            reason=plan_file.some_words(words), remedy="Make room on other hosts, or add one."
        ) from e
    shown = _shown(tx, drained)
    planned = [
        {**shown[row.uuid], **place_of(tx, row.uuid, placed[row.uuid], claims.PLAN)}
        for row in sorted(rows, key=lambda r: (r.project, r.display_name))
    ]
    plan = held.entered(tx, DRAIN, wanted.request, planned, seconds, ledger_id)
    places.add(tx, plan["id"], {u: c.host for u, c in placed.items()})
    return plan


def _shown(tx: Transaction, drained: drain.Drained) -> dict[str, dict[str, t.Any]]:
    """Return uuid -> the instance as it is, and how it would leave, in the words of the plan's file."""
    ways = {
        **dict.fromkeys((r.uuid for r in drained.live), LIVE),
        **dict.fromkeys((r.uuid for r in drained.leaves), COLD),
    }
    shown = described(tx, list(drained.rows.values()))
    return {u: {**shown[u], "how": ways.get(u, "stay")} for u in shown}


def _to_confirm(tx: Transaction, host: str) -> list[str]:
    """Return in words what earlier runs migrated away from the host, and a drain would confirm."""
    uuids = drain.to_confirm(tx, host)
    rows = instances.select_live(tx, uuids=uuids) if uuids else []
    return ["the migration of %s by an earlier run would be confirmed" % r.display_name for r in rows]


def judge(
    tx: Transaction,
    plan: Plan,
    wanted: Wanted,
    usable: t.Collection[str],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
) -> None:
    """Check that each host of the plan would still be chosen, by all filters, as if the plan did not hold it. The transaction is to be rolled back.

    :arg usable: the hosts that this run may place instances on.
    :raises PlanRequestDiffers: another drain is requested. :raises PlanOutdated: an instance or host has changed.
    """
    drained = _as_planned(tx, plan, wanted, usable)
    hosts = {i["uuid"]: i["host"] for i in plan["instances"]}
    movers = {u: replace(m, only=hosts[u]) for u, m in drained.movers.items()}
    give_up_planned(tx, hosts)
    failed: t.Mapping[str, errors.BootflowError] = {}
    try:
        claimed(tx, movers, read_fleet, replace(options, explain=True))
    except Unplaced as e:
        failed = e.failed
    check_claims(tx, plan["id"], plan["instances"], failed, claims.PLAN)


def _as_planned(tx: Transaction, plan: Plan, wanted: Wanted, usable: t.Collection[str]) -> drain.Drained:
    """Return the instances of the host, locked. :raises PlanRequestDiffers, PlanOutdated: something is not as planned"""
    differences = plan_file.drain_differences(plan["request"], wanted.request)
    if differences:
        raise errors.PlanRequestDiffers(plan=plan["id"], reason=plan_file.some_words(differences))
    planned = {i["uuid"] for i in plan["instances"]}
    check_unchanged(tx, plan, instances.select_live(tx, uuids=sorted(planned)), usable)
    rows = instances.select_live(tx, hosts=[wanted.host], lock=True)
    words = ["instance %s is on the host, too" % r.display_name for r in rows if r.uuid not in planned]
    words += _to_confirm(tx, wanted.host)
    drained = drain.sort_out(tx, rows, wanted.cold, wanted.live)
    now = _shown(tx, drained)
    for instance in plan["instances"]:
        if instance["uuid"] in now:
            words += plan_file.instance_differences(instance, now[instance["uuid"]])
    if words:
        raise errors.PlanOutdated(plan=plan["id"], reason=plan_file.some_words(words))
    return drained


def use(tx: Transaction, plan: Plan, file: str, wanted: Wanted, usable: t.Collection[str]) -> drain.Drained:
    """Disable the host, and use the plan: the migrations of this run are to take over what it holds.

    :arg file: the path of the plan's file. :raises BootflowError: see held.check_held() and judge()
    """
    runs.renew(tx)  # what it holds is given back when this run is dead
    held.check_held(tx, plan, file, lock=True)
    drained = _as_planned(tx, plan, wanted, usable)
    plans.end(tx, plan["id"], USED)
    return replace(drained, disabled=drain.disable(tx, wanted.host, drain.REASON))
