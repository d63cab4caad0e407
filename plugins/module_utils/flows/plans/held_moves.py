# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that a plan holds for instances that exist, which are to move there.

The instances stay as they are: they have another claim there, which belongs to the plan (ledger.plans.places). The move that does the plan
exchanges it for its own, in the transaction in which it begins.
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict, replace

from ...core import errors
from ...core.plans import plan_file
from ...core.plans.plan_file import Plan
from ...core.plans.plan_states import MIGRATE, RESIZE, USED
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import claims, instances, ports
from ...ledger.compute.claims import Candidate
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.plans import places, plans
from ...ledger.storage import attachments
from ..instances import operation
from ..moves import cold, cold_life
from ..moves.place import Mover, ReadFleet, claim
from . import held


class Unplaced(errors.BootflowError):
    """Instances of a plan have no host: the transaction is rolled back."""

    def __init__(self, failed: t.Mapping[str, errors.BootflowError]):
        """:arg failed: uuid -> why it has none"""
        super().__init__(message="it does not fit")
        self.failed = failed


# --- making a plan ------------------------------------------------------------------------------------------------------


def hold(
    tx: Transaction,
    wanted: cold.Wanted,
    read_fleet: ReadFleet,
    options: SchedulerOptions,
    seconds: float,
    ledger_id: str,
) -> Plan | None:
    """Hold hosts for the selected instances. Returns the content of the plan's file, signed; None: nothing has to be moved.

    :arg seconds: for which the places are held.
    :raises Unplaced: there is no host for one of them. :raises BootflowError: see cold.begin(), and check_unplanned().
    """
    if plans.any_expired(tx):
        held.expire(tx)
    _rows, movers = cold.select(tx, wanted)
    if not movers:
        return None
    check_unplanned(tx, [m.row for m in movers.values()])
    cold.check_quota(tx, wanted, list(movers.values()))
    placed = claimed(tx, movers, read_fleet, options)
    kind = RESIZE if wanted.operation is cold_life.RESIZE else MIGRATE
    new = {u: wanted.flavor_for(u) for u in movers}
    shown = described(tx, [m.row for m in movers.values()])
    planned = [
        {
            **shown[uuid],
            "new_flavor": flavor.name if (flavor := new[uuid]) is not None else None,
            **place_of(tx, uuid, placed[uuid], claims.PLAN),
        }
        for uuid in sorted(movers, key=lambda u: (movers[u].row.project, movers[u].row.display_name))
    ]
    plan = held.entered(tx, kind, _request(wanted), planned, seconds, ledger_id)
    places.add(tx, plan["id"], {u: c.host for u, c in placed.items()})
    return plan


def check_unplanned(tx: Transaction, rows: t.Sequence[Instance]) -> None:
    """Check that no other plan holds a host for one of these locked instances. :raises PlanNotPossible: one does"""
    others = places.plans_of(tx, [r.uuid for r in rows])
    words = ["the plan %s holds a host for %s" % (others[r.uuid], r.display_name) for r in rows if r.uuid in others]
    if words:
        remedy = "Use that plan, or discard it: bootflow.compute.plans with bootflow_plan_discard."
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=remedy)


def claimed(
    tx: Transaction, movers: t.Mapping[str, Mover], read_fleet: ReadFleet, options: SchedulerOptions
) -> dict[str, Candidate]:
    """Claim hosts for these locked instances, as the plan's. :raises Unplaced: there is none for one of them"""
    hosts = claim(tx, list(movers.values()), read_fleet, options, kind=claims.PLAN)
    placed = {u: h for u, h in hosts.items() if isinstance(h, Candidate)}
    if len(placed) < len(movers):
        raise Unplaced({u: h for u, h in hosts.items() if isinstance(h, errors.BootflowError)})
    return placed


def described(tx: Transaction, rows: t.Sequence[Instance]) -> dict[str, dict[str, t.Any]]:
    """Return uuid -> the instance as it is, in the words of the plan's file."""
    uuids = sorted(r.uuid for r in rows)
    of_ports, of_volumes = ports.ports_of(tx, uuids), attachments.of_instances(tx, uuids)
    return {
        r.uuid: {
            "name": r.display_name,
            "project": r.project,
            "uuid": r.uuid,
            "from": r.host,
            "vm_state": r.vm_state,
            "flavor": r.spec["flavor"]["name"],
            "ports": held.described_ports(of_ports[r.uuid]),
            "volumes": sorted(a.volume_id for a in of_volumes.get(r.uuid, ())),
        }
        for r in rows
    }


def place_of(tx: Transaction, uuid: str, candidate: Candidate, kind: str) -> dict[str, t.Any]:
    """Return the host of an instance, and what it has claimed there: {host, node, claims}. :arg kind: of the claim"""
    return {"host": candidate.host, "node": candidate.node, "claims": _claims(tx, [uuid], kind)[uuid]}


def _claims(tx: Transaction, uuids: t.Sequence[str], kind: str) -> dict[str, dict[str, t.Any]]:
    amounts, devices = claims.of_instances(tx, uuids, kind), claims.devices_of(tx, uuids, kind)
    return {u: {**amounts[u], "pci": devices[u], "disks": []} for u in uuids if u in amounts}


def _request(wanted: cold.Wanted) -> dict[str, t.Any]:
    return plan_file.move_request(asdict(wanted.flavor) if wanted.flavor is not None else None)


# --- using it -----------------------------------------------------------------------------------------------------------


def judge(tx: Transaction, plan: Plan, wanted: cold.Wanted, usable: t.Collection[str]) -> None:
    """Check that the moves are as planned, and so are the instances. Writes nothing.

    :arg usable: the hosts that this run may place instances on.
    :raises PlanRequestDiffers: others are requested. :raises PlanOutdated: an instance or host has changed.
    """
    planned = {i["uuid"]: i for i in plan["instances"]}
    differences = plan_file.flavor_differences(plan["request"], _request(wanted))
    if differences:
        raise errors.PlanRequestDiffers(plan=plan["id"], reason=plan_file.some_words(differences))
    check_unchanged(tx, plan, instances.select_live(tx, uuids=sorted(planned)), usable)
    rows = operation.select(tx, wanted.selection, lock=False, operation=wanted.operation)
    asked = {r.uuid: r.display_name for r in rows if not cold.has_flavor_already(r, wanted.flavor_for(r.uuid))}
    differences = ["%s is not in the plan" % name for uuid, name in asked.items() if uuid not in planned]
    differences += ["%s is not selected any more" % i["name"] for uuid, i in planned.items() if uuid not in asked]
    if differences:
        raise errors.PlanRequestDiffers(plan=plan["id"], reason=plan_file.some_words(differences))


def check_unchanged(tx: Transaction, plan: Plan, rows: t.Iterable[Instance], usable: t.Collection[str]) -> None:
    """Check that the instances of a plan are as planned, and its new hosts among the usable ones. :raises PlanOutdated: one is not"""
    now = described(tx, list(rows))
    words: list[str] = []
    for instance in plan["instances"]:
        if instance["uuid"] not in now:
            words.append("instance %s does not exist any more" % instance["name"])
        else:
            words += plan_file.instance_differences(instance, {"how": instance.get("how"), **now[instance["uuid"]]})
    hosts = sorted({str(i["host"]) for i in plan["instances"] if "host" in i})
    words += ["host %s is not among the hosts of this run any more" % host for host in hosts if host not in usable]
    if words:
        raise errors.PlanOutdated(plan=plan["id"], reason=plan_file.some_words(words))


def begin(
    tx: Transaction,
    plan: Plan,
    file: str,
    wanted: cold.Wanted,
    usable: t.Collection[str],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
) -> cold.Begun:
    """Begin the moves of a plan, which is used by that. Each host is asked again, by all filters, as if the plan did not hold it yet.

    :arg file: the path of the plan's file. :arg usable: see judge().
    :raises PlanOutdated: a host does not do any more. :raises BootflowError: see held.check_held(), judge() and cold.begin().
    """
    if plans.any_expired(tx):
        held.expire(tx)
    held.check_held(tx, plan, file, lock=True)
    judge(tx, plan, wanted, usable)
    plans.end(tx, plan["id"], USED)
    hosts = {i["uuid"]: i["host"] for i in plan["instances"]}
    begun = cold.begin(tx, replace(wanted, to_hosts=hosts), read_fleet, replace(options, explain=True))
    check_unchanged(tx, plan, [r for r in begun.rows.values() if r.uuid in hosts], usable)
    check_claims(tx, plan["id"], plan["instances"], begun.failed)
    return begun


def check_claims(
    tx: Transaction,
    plan_id: str,
    planned: t.Sequence[t.Mapping[str, t.Any]],
    failed: t.Mapping[str, errors.BootflowError],
    kind: str = claims.MOVE,
) -> None:
    """Check that instances have claimed what was planned. :arg failed: uuid -> why it has no host. :arg kind: of the claims

    :raises PlanOutdated: one has not.
    """
    words = [
        "host %s: %s" % (i["host"], held.cause(failed[i["uuid"]], i["host"])) for i in planned if i["uuid"] in failed
    ]
    now = _claims(tx, [i["uuid"] for i in planned], kind)
    words += [
        "host %s would give %s other resources than planned" % (i["host"], i["name"])
        for i in planned
        if i["uuid"] not in failed and now.get(i["uuid"]) != i["claims"]
    ]
    if words:
        raise errors.PlanOutdated(plan=plan_id, reason=plan_file.some_words(words))
