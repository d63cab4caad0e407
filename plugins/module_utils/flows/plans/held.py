# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The places that a plan holds: taken when it is made, used once, given back when it is discarded or its time is over.

What the plan of a boot holds are the instances of the boot, accepted, placed and claimed as in a boot, in the hands of a run that no process has
(ledger.plans.plans). So all that another run competes for (room, addresses, names, quotas, devices, places of groups) is decided where it is
between two boots. What plans hold for instances that exist is in held_moves.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import states
from ...core.instances.request import ServerRequest
from ...core.plans import plan_file
from ...core.plans.plan_file import Plan
from ...core.plans.plan_states import DISCARDED, EXPIRED, HELD, USED
from ...core.scheduler.columns import Fleet
from ...core.scheduler.options import SchedulerOptions
from ...core.times import utc
from ...ledger.compute import claims, instances, runs
from ...ledger.compute.fleet import Needs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.plans import places, plans
from ...ledger.plans.places import NamedPlace
from ...ledger.plans.plans import PlanRow
from ..boot import accept, builds, schedule
from ..instances import delete

ReadFleet = t.Callable[[Transaction, Needs], Fleet]


# --- making a plan ------------------------------------------------------------------------------------------------------


def check_holdable(tx: Transaction, accepted: accept.Accepted) -> None:
    """Check that the boot only makes new instances, as a plan changes nothing of others. :raises PlanNotPossible: it does more"""
    words = ["it would replace %s, whose boot failed" % name for name in accepted.replaced]
    changed = dict.fromkeys(str(c["name"]) for c in accepted.changes)
    words += ["it would change %s in place" % name for name in changed]
    if accepted.resumed:
        rows = instances.select_live(tx, uuids=accepted.resumed)
        words += ["it would continue with %s, which an earlier run began" % r.display_name for r in rows]
    if words:
        remedy = "Run the boot for these instances without bootflow_plan_out first, or leave them out of the request."
        raise errors.PlanNotPossible(reason=plan_file.some_words(words), remedy=remedy)


def hold(
    tx: Transaction,
    kind: str,
    entries: t.Sequence[ServerRequest],
    builds_of_plan: t.Sequence[builds.Build],
    seconds: float,
    ledger_id: str,
) -> Plan:
    """Hold what this transaction has accepted, placed and claimed. Returns the content of the plan's file, signed.

    :arg seconds: for which the places are held
    """
    plan = entered(tx, kind, plan_file.request_of(entries), described(tx, builds_of_plan), seconds, ledger_id)
    plans.give(tx, plan["id"], sorted(b.uuid for b in builds_of_plan))
    return plan


def entered(
    tx: Transaction,
    kind: str,
    request: t.Mapping[str, t.Any],
    described_instances: t.Sequence[t.Mapping[str, t.Any]],
    seconds: float,
    ledger_id: str,
) -> Plan:
    """Enter a plan in the ledger. Returns the content of the file, signed.

    :arg request: see plan_file.request_of(). :arg seconds: for which the places are held
    """
    plan_id, expires_at = tx.new_id(), tx.now + seconds
    plan = plan_file.signed(
        {
            "version": plan_file.VERSION,
            "kind": kind,
            "id": plan_id,
            "ledger": ledger_id,
            "created": utc(tx.now),
            "expires": utc(expires_at),
            "actor": tx.actor,
            "request": request,
            "instances": described_instances,
        }
    )
    plans.add(tx, plan_id, kind, plan[plan_file.HASH], len(described_instances), expires_at)
    return plan


def described(tx: Transaction, builds_of_plan: t.Sequence[builds.Build]) -> list[dict[str, t.Any]]:
    """Return the instances as the plan's file has them, by name."""
    claimed = claims.of_instances(tx, [b.uuid for b in builds_of_plan])
    return [
        {
            "name": b.row.display_name,
            "project": b.row.project,
            "uuid": b.uuid,
            "host": b.row.host,
            "node": b.row.node,
            "flavor": b.row.spec["flavor"]["name"],
            "claims": {
                **{n: claimed[b.uuid][n] for n in ("memory_mb", "disk_gb", "vcpus")},
                "pci": [d["address"] for d in b.allocation.get("pci") or ()],
                "disks": [d["path"] for d in b.allocation.get("disks") or ()],
            },
            "ports": described_ports(b.ports),
            "volumes": [],
        }
        for b in sorted(builds_of_plan, key=lambda b: (b.row.project, b.row.display_name))
    ]


def described_ports(ports: t.Iterable[tuple[t.Any, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the ports of an instance as the plan's file has them. :arg ports: (port, its network)"""
    return [
        {
            "id": port.id,
            "network": network.name,
            "mac_address": port.mac_address,
            "addresses": [f["ip_address"] for f in port.fixed_ips],
        }
        for port, network in ports
    ]


# --- using it -----------------------------------------------------------------------------------------------------------


def check_held(tx: Transaction, plan: Plan, file: str, lock: bool = False) -> PlanRow:
    """Return the row of a plan that holds its places.

    :arg lock: until the transaction ends. :arg file: the path of its file, for messages.
    :raises PlanNotFound, PlanAltered, PlanExpired, PlanUsed, PlanDiscarded: it does not.
    """
    row = plans.read(tx, plan["id"], lock)
    if row is None:
        raise errors.PlanNotFound(plan=plan["id"])
    if row.hash != plan[plan_file.HASH]:
        raise errors.PlanAltered(file=file)
    state = plans.state_of(row, tx.now)
    if state == EXPIRED:
        raise errors.PlanExpired(plan=row.id, moment=utc(row.expires_at))
    if state == USED:
        raise errors.PlanUsed(plan=row.id, run=row.run_id, moment=utc(row.changed_at))
    if state == DISCARDED:
        raise errors.PlanDiscarded(plan=row.id, moment=utc(row.changed_at))
    return row


def check_hosts(
    tx: Transaction, plan: Plan, usable: t.Collection[str], read_fleet: ReadFleet, options: SchedulerOptions
) -> None:
    """Check that each host of the plan would still be chosen for its instances. The transaction is to be rolled back.

    The instances give up their claims, and are placed again, each on its own host only, by all filters.

    :arg usable: the hosts that this run may place instances on. :arg read_fleet: reads hosts of the plan.
    :raises PlanOutdated: an instance or host has changed.
    """
    planned = {i["uuid"]: i for i in plan["instances"]}
    rows = {r.uuid: r for r in plans.held(tx, plan["id"], lock=True)}
    words = ["instance %s does not exist any more" % i["name"] for uuid, i in planned.items() if uuid not in rows]
    hosts = sorted({str(i["host"]) for i in planned.values()})
    words += ["host %s is not among the hosts of this run any more" % host for host in hosts if host not in usable]
    if not words:
        claims.release(tx, sorted(rows))
        instances.write(
            tx, sorted(rows), run_id=tx.run.id, host=None, node=None, task_state=states.SCHEDULING, retry=None
        )
        places = {uuid: str(i["host"]) for uuid, i in planned.items()}
        refused = schedule.refusals_on(tx, instances.select_live(tx, uuids=sorted(rows)), places, read_fleet, options)
        words += ["host %s: %s" % (host, cause(error, host)) for host, error in refused.items()]
    if words:
        raise errors.PlanOutdated(plan=plan["id"], reason=plan_file.some_words(words))


def cause(error: errors.BootflowError, host: str) -> str:
    """Return in words why this host was refused."""
    decision = error.details.get("decision") or {}
    entry = next((e for e in decision.get("hosts", ()) if e["host"] == host), None)
    rejection = entry and entry.get("rejected_by")
    if not rejection:
        return error.message
    text = "%s: %s" % (rejection["filter"], rejection["reason"] or "it turns the host down")
    if rejection["missing"]:
        text += " (needed %g, available %g %s)" % (rejection["needed"], rejection["available"], rejection["unit"])
    return text.rstrip()


def use(
    tx: Transaction, plan: Plan, file: str, entries: t.Sequence[ServerRequest], options: accept.AcceptOptions
) -> accept.Accepted:
    """Take over what the plan holds, which is used by that. This run builds it then, as builds that another run left.

    :raises PlanRequestDiffers: the request is another one. :raises BootflowError: see check_held() and accept.accept().
    """
    check_held(tx, plan, file, lock=True)
    names = accept.names_of_ids(options.networks)
    differences = plan_file.request_differences(plan["request"], plan_file.request_of(entries), names)
    if differences:
        raise errors.PlanRequestDiffers(plan=plan["id"], reason=plan_file.some_words(differences))
    plans.end(tx, plan["id"], USED)
    accepted = accept.accept(tx, entries, options)
    planned = {i["uuid"] for i in plan["instances"]}
    if accepted.created or accepted.changes or accepted.replaced or set(accepted.resumed) != planned:
        raise errors.PlanOutdated(plan=plan["id"], reason=_changed(tx, plan, accepted))
    return accepted


def _changed(tx: Transaction, plan: Plan, accepted: accept.Accepted) -> str:
    """Return in words how the instances of the request are not as the plan has them."""
    planned = {i["uuid"]: i["name"] for i in plan["instances"]}
    words = ["instance %s does not exist any more" % name for u, name in planned.items() if u not in accepted.resumed]
    others = [*accepted.created, *(u for u in accepted.resumed if u not in planned)]
    names = set(planned.values())
    rows = instances.select_live(tx, uuids=others) if others else []
    words += ["instance %s would be made as well" % r.display_name for r in rows if r.display_name not in names]
    words += ["instance %s would be replaced" % name for name in accepted.replaced]
    words += ["instance %s would be changed in place" % c["name"] for c in accepted.changes]
    return plan_file.some_words(words)


# --- giving it back -----------------------------------------------------------------------------------------------------


def expire(tx: Transaction) -> list[str]:
    """Give back what plans hold whose time is over. Returns their ids. Used plans whose runs died give back what they still hold."""
    rows = plans.expired(tx)
    for row in rows:
        give_back(tx, row, EXPIRED)
    for used in plans.used_by_dead_runs(tx):
        runs.renew(tx)
        give_places_back(tx, used.id)
    return [r.id for r in rows]


def discard(tx: Transaction, ids: t.Sequence[str]) -> list[str]:
    """Give back what these plans hold. Returns the ids of plans that held something.

    :raises PlanNotFound: the ledger has no plan of an id; nothing is given back.
    """
    discarded = []
    for plan_id in sorted(set(ids)):
        row = plans.read(tx, plan_id, lock=True)
        if row is None:
            raise errors.PlanNotFound(plan=plan_id)
        if row.state == HELD:
            give_back(tx, row, DISCARDED if row.expires_at > tx.now else EXPIRED)
            discarded.append(row.id)
    return discarded


def give_back(tx: Transaction, row: PlanRow, state: str) -> None:
    """Give back all that a locked plan holds. :arg state: of the plan from now on"""
    runs.renew(tx)
    rows = plans.held(tx, row.id, lock=True)
    if rows:
        delete.withdraw(tx, rows, claimed=[r.uuid for r in rows])
    give_places_back(tx, row.id)
    plans.end(tx, row.id, state)


def give_places_back(tx: Transaction, plan_id: str) -> None:
    """Give back the places that a plan holds for instances that exist."""
    uuids = [p.instance_uuid for p in places.of_plan(tx, plan_id)]
    if uuids:
        instances.select_live(tx, uuids=uuids, lock=True)
        claims.release_planned(tx, uuids)
        places.remove(tx, uuids)


@dataclass
class Listed:
    """A plan as people see it."""

    row: PlanRow
    state: str
    rows: list[Instance] = field(default_factory=list)  # that it holds
    places: list[NamedPlace] = field(default_factory=list)  # that it holds for instances that exist


def listed(tx: Transaction) -> list[Listed]:
    """Return all plans, the newest first."""
    known = [Listed(row, plans.state_of(row, tx.now)) for row in plans.all_of(tx)]
    for one in known:
        if one.row.state == HELD:
            one.rows = plans.held(tx, one.row.id)
            one.places = places.of_plan(tx, one.row.id)
    return known
