# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of apply: they hold the instances that are booted, as plans of boots, and the hosts of resizes.

All other changes need no place; the plan has them with their instances, which are to be the same when it is used. Instances that it deletes keep
their own places until then.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, replace

from ...core import errors
from ...core.apply import plan as planning
from ...core.apply.fields import RESIZE
from ...core.apply.plan import ATTACH_INTERFACE, BOOT, DETACH, REPLACE
from ...core.plans import plan_file
from ...core.plans.plan_file import Plan
from ...core.plans.plan_states import APPLY, EXPIRED, USED
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import claims, instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.plans import places, plans
from ..apply import fleet
from ..boot import accept, builds, schedule
from ..instances.operation import Selection
from ..moves import cold
from ..moves.place import Mover, ReadFleet, give_up_planned
from . import held
from .held_moves import Unplaced, check_claims, check_unchanged, check_unplanned, claimed, described, place_of


@dataclass(frozen=True)
class Wanted:
    """The apply that a run asks for."""

    file: fleet.File
    changes: planning.Plan  # what it would do

    @property
    def request(self) -> dict[str, t.Any]:
        """The request as the plan's file has it."""
        how = {"prune": self.file.prune, "allow": sorted(self.file.allow)}
        return {**plan_file.request_of(self.file.requests), **how, "changes": changes_of(self.changes)}


#: Fields of a change in the plan's file. What is booted has no UUID there: before, there is none.
OF_CHANGES = ("kind", "name", "project", "uuid", "field", "what", "how", "steps")


def changes_of(changes: planning.Plan) -> list[dict[str, t.Any]]:
    """Return what is to be done as the plan's file has it."""
    shown = [{n: c.as_dict()[n] for n in OF_CHANGES} for c in changes.to_do]
    return sorted(shown, key=plan_file.canonical)


# --- making a plan ------------------------------------------------------------------------------------------------------


def hold(
    tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions, seconds: float, ledger_id: str
) -> Plan | None:
    """Hold what apply would boot, and hosts for what it would resize. Returns the content of the plan's file, signed; None: there is nothing to do.

    :arg seconds: for which the places are held.
    :raises PlanNotPossible: something does not fit, or is more than a plan can hold.
    """
    if not wanted.changes.to_do:
        return None
    if plans.any_expired(tx):
        held.expire(tx)
    _check_holdable(wanted.changes)
    moves = _moves(tx, wanted.file)
    movers = cold.select(tx, moves)[1] if moves is not None else {}
    check_unplanned(tx, [m.row for m in movers.values()])
    accepted = _accepted(tx, wanted)
    placed = _claimed(tx, movers, read_fleet, options)
    booted = _built(tx, accepted, read_fleet, options)
    _check_whole(wanted.changes, movers, booted)
    shown = described(tx, [m.row for m in movers.values()])
    moved = [
        {
            **shown[u],
            "how": RESIZE,
            "new_flavor": movers[u].spec["flavor"]["name"],
            **place_of(tx, u, placed[u], claims.PLAN),
        }
        for u in sorted(movers, key=lambda u: movers[u].row.display_name)
    ]
    instances_of_plan = [*held.described(tx, booted), *moved]
    request = {**wanted.request, "existing": _existing(tx, wanted.changes, movers)}
    plan = held.entered(tx, APPLY, request, instances_of_plan, seconds, ledger_id)
    plans.give(tx, plan["id"], sorted(b.uuid for b in booted))
    places.add(tx, plan["id"], {u: c.host for u, c in placed.items()})
    return plan


def _check_holdable(changes: planning.Plan) -> None:
    """:raises PlanNotPossible: instances are booted again, or something else has to be done before a resize."""
    before = {c.uuid for c in changes.to_do if c.kind == DETACH or (set(c.steps) - {RESIZE, planning.CONFIRM})}
    words = ["it would replace %s, whose boot failed" % c.name for c in changes.to_do if c.kind == REPLACE]
    words += [
        "more than its resize would be done with %s" % c.name
        for c in changes.to_do
        if c.kind == RESIZE and c.uuid in before
    ]
    if words:
        remedy = "Apply the file for these instances without bootflow_plan_out first."
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=remedy)


def _accepted(tx: Transaction, wanted: Wanted) -> accept.Accepted:
    """Accept what is booted, while what is deleted before the boot still exists.

    :raises PlanNotPossible: it is more than new instances, or refused.
    """
    if not any(c.kind == BOOT for c in wanted.changes.to_do):
        return accept.Accepted()
    options = replace(wanted.file.options, keep_built_instances=True)
    try:
        accepted = accept.accept(tx, wanted.file.requests, options)
    except errors.InvalidRequest as e:  # not without what the same plan deletes, or it was refused before
        words = [str(problem["message"]) for problem in e.errors] or [e.message]
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=FREE) from e
    held.check_holdable(tx, accepted)
    return accepted


def _check_whole(changes: planning.Plan, movers: t.Collection[str], booted: t.Sequence[builds.Build]) -> None:
    """:raises PlanNotPossible: the plan would not hold all that is booted and resized."""
    names = {(b.row.project, b.row.display_name) for b in booted}
    words = [
        "the quota has no place for %s until the others are deleted" % c.name
        for c in changes.to_do
        if c.kind == BOOT and (c.project, c.name) not in names
    ]
    words += ["no host can be held for %s" % c.name for c in changes.to_do if c.kind == RESIZE and c.uuid not in movers]
    if words:
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=FREE)


def _existing(tx: Transaction, changes: planning.Plan, movers: t.Collection[str]) -> list[dict[str, t.Any]]:
    """Return the instances that are deleted or changed where they are, as they are, in the words of the plan's file."""
    uuids = sorted({str(c.uuid) for c in changes.to_do if c.uuid is not None}.difference(movers))
    rows = instances.select_live(tx, uuids=uuids) if uuids else []
    shown = described(tx, rows)
    return [shown[u] for u in sorted(shown, key=lambda u: (shown[u]["project"], shown[u]["name"]))]


def _moves(tx: Transaction, file: fleet.File) -> cold.Wanted | None:
    """Return the resizes of a file; None: there are none."""
    flavors = fleet.resize_flavors(tx, file)
    if not flavors or file.moves is None:
        return None
    return replace(file.moves, selection=Selection(uuids=sorted(flavors)), flavors=flavors)


def _claimed(
    tx: Transaction, movers: t.Mapping[str, Mover], read_fleet: ReadFleet, options: SchedulerOptions
) -> dict[str, claims.Candidate]:
    """:raises PlanNotPossible: an instance has no other host."""
    if not movers:
        return {}
    try:
        return claimed(tx, movers, read_fleet, options)
    except Unplaced as e:
        words = ["%s: %s" % (movers[u].row.display_name, error.message) for u, error in e.failed.items()]
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=ROOM) from e


#: What is deleted by the same plan is there until then.
ROOM = "Make room on other hosts, or add one. What the plan deletes has its room until then: delete it before."
FREE = "What the plan deletes keeps its addresses and its part of the quota until then: delete it before, or apply without bootflow_plan_out."


def _built(
    tx: Transaction, accepted: accept.Accepted, read_fleet: ReadFleet, options: SchedulerOptions
) -> list[builds.Build]:
    """Place what was accepted. :raises PlanNotPossible: it does not fit"""
    if not accepted.created:
        return []
    result = schedule.schedule(tx, read_fleet, replace(options, explain_failures=True))
    words = [
        "%s: %s" % (result.names[u], fault["message"] if fault else "another run was faster")
        for u, fault in schedule.faults(tx, [*result.failed, *result.waiting]).items()
    ]
    if result.failed or result.waiting:
        raise errors.PlanNotPossible(reason=plan_file.some_words(words) or "another run was faster", remedy=ROOM)
    rows = [r for r in instances.select_live(tx, uuids=accepted.created) if instances.is_placed(r)]
    return builds.load(tx, rows)


# --- using it -----------------------------------------------------------------------------------------------------------


def give_back(tx: Transaction, plan: Plan, file: str) -> None:
    """Give back what the plan holds, so that the plan of the file can be made as it was. The transaction is to be rolled back.

    :arg file: the path of the plan's file. :raises BootflowError: see held.check_held()
    """
    held.give_back(tx, held.check_held(tx, plan, file, lock=True), EXPIRED)


def judge_request(plan: Plan, wanted: Wanted, names: t.Mapping[str, str]) -> None:
    """Check that the file and what it changes are as planned. :arg names: of ids, for messages

    :raises PlanRequestDiffers: the file is another one. :raises PlanOutdated: it would change something else now.
    """
    before, now = plan["request"], json_of(wanted.request)
    words = plan_file.request_differences(before, now, names)
    words += ["%s was %s, is %s" % (n, before.get(n), now[n]) for n in ("prune", "allow") if before.get(n) != now[n]]
    if words:
        raise errors.PlanRequestDiffers(plan=plan["id"], reason=plan_file.some_words(words))
    words = ["%s: %s is not in the plan" % (c["name"], _word(c)) for c in now["changes"] if c not in before["changes"]]
    words += [
        "%s: %s is not to be done any more" % (c["name"], _word(c))
        for c in before["changes"]
        if c not in now["changes"]
    ]
    if words:
        raise errors.PlanOutdated(plan=plan["id"], reason=plan_file.some_words(words))


def json_of(content: t.Any) -> t.Any:
    """Return plain data as a file has it."""
    return json.loads(json.dumps(content))


def _word(change: t.Mapping[str, t.Any]) -> str:
    return str(change["what"] or change["kind"])


def _moved_of(plan: Plan) -> list[dict[str, t.Any]]:
    """Return the instances of a plan that are resized."""
    return [i for i in plan["instances"] if "from" in i]


def _built_of(plan: Plan) -> list[dict[str, t.Any]]:
    """Return the instances of a plan that are booted."""
    return [i for i in plan["instances"] if "from" not in i]


def check_existing(tx: Transaction, plan: Plan, usable: t.Collection[str]) -> None:
    """Check that the instances that are deleted, changed or resized are as planned, and so are the new hosts of the last. :arg usable: see begin()

    :raises PlanOutdated: an instance has changed, or a host is not among the usable ones.
    """
    planned = [*_moved_of(plan), *plan["request"]["existing"]]
    rows = instances.select_live(tx, uuids=sorted(i["uuid"] for i in planned)) if planned else []
    check_unchanged(tx, {**plan, "instances": planned}, rows, usable)


def judge_hosts(
    tx: Transaction,
    plan: Plan,
    file: fleet.File,
    usable: t.Collection[str],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
) -> None:
    """Check that each host of the plan would still be chosen, by all filters. The transaction is to be rolled back.

    :raises PlanOutdated: an instance or host has changed.
    """
    moved, built = _moved_of(plan), _built_of(plan)
    hosts = {i["uuid"]: i["host"] for i in moved}
    check_existing(tx, plan, usable)
    moves = _moves(tx, file)
    if moved and moves is not None:
        _rows, movers = cold.select(tx, moves)
        give_up_planned(tx, hosts)
        failed: t.Mapping[str, errors.BootflowError] = {}
        try:
            only = {u: replace(m, only=hosts[u]) for u, m in movers.items() if u in hosts}
            claimed(tx, only, read_fleet, replace(options, explain=True))
        except Unplaced as e:
            failed = e.failed
        check_claims(tx, plan["id"], moved, failed, claims.PLAN)
    if built:
        held.check_hosts(tx, {**plan, "instances": built}, usable, read_fleet, replace(options, explain=True))


def begin(tx: Transaction, plan: Plan, path: str, file: fleet.File, usable: t.Collection[str]) -> fleet.Begun:
    """Use the plan, and begin what it does. What it holds for boots is this run's by that, and resizes are to take over the rest.

    :arg path: of the plan's file. :arg usable: the hosts that this run may place instances on.
    :raises PlanOutdated: something has changed since it was judged. :raises BootflowError: see held.check_held() and fleet.begin().
    """
    runs.renew(tx)
    held.check_held(tx, plan, path, lock=True)
    uuids = take(tx, plan["id"])
    words = ["instance %s does not exist any more" % i["name"] for i in _built_of(plan) if i["uuid"] not in uuids]
    if words:
        raise errors.PlanOutdated(plan=plan["id"], reason=plan_file.some_words(words))
    plans.end(tx, plan["id"], USED)
    begun = fleet.begin(tx, file)  # which locks the instances
    check_existing(tx, plan, usable)
    _check_begun(plan, begun.plan)
    return begun


def _check_begun(plan: Plan, changes: planning.Plan) -> None:
    """Check the changes of existing instances once more, in the transaction that begins them. :raises PlanOutdated: others would be begun"""
    before = {_key(c) for c in plan["request"]["changes"] if c["kind"] != BOOT}
    now = {_key(c) for c in json_of(changes_of(changes)) if c["kind"] != BOOT}
    # Only a rehearsal finds interfaces that cannot be attached.
    differing = [key for key in before.symmetric_difference(now) if key in before or key[0] != ATTACH_INTERFACE]
    if differing:
        words = ["%s has changed" % name for name in sorted({key[1] for key in differing})]
        raise errors.PlanOutdated(plan=plan["id"], reason=plan_file.some_words(words))


def _key(change: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    return (change["kind"], change["name"], *(str(change[n]) for n in ("project", "uuid", "field", "what", "steps")))


def take(tx: Transaction, plan_id: str) -> set[str]:
    """Give this run the builds that the plan holds. Returns their UUIDs."""
    uuids = [r.uuid for r in plans.held(tx, plan_id, lock=True)]
    if uuids:
        instances.write(tx, uuids, run_id=tx.run.id)
    return set(uuids)
