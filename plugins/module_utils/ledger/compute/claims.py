# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims: taking a host's resources for an instance and giving them back.

source: Nova's instance_claim. The nodes that may be touched are locked (nodes.lock), tested
with core.resources.claims against the usage under that lock, and written in the same transaction: no number of runs can take a
node past its limits, and a node's usage is always what it reserves plus the sum of its claims.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances.server_groups import ANTI_AFFINITY, ServerGroup, late_check
from ...core.resources.claims import NodeUsage, ResourceRequest, claim_test, usage_delta
from ...core.resources.dedicated import Taken
from ...core.resources.dedicated import Wish as PartsWish
from ...core.resources.dedicated import refusals as parts_refusals
from ...core.resources.dedicated import take as take_parts
from ...core.resources.numa.topology import NUMALimits
from ...core.scheduler.placement import Selection
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import claims, compute_nodes, device_claims, instances
from . import dedicated_resources, nodes
from .history import chunks

if t.TYPE_CHECKING:
    from ..database import Ledger

BUILD = "build"
MOVE = "move"


@dataclass(frozen=True)
class Candidate:
    """A place that the scheduler found: the host it chose, or an alternate."""

    host: str
    node: str
    limits: t.Mapping[str, t.Any]
    node_id: int | None = None  # looked up where it is not given


@dataclass(frozen=True)
class Wish:
    """One instance and where it may go, best first."""

    instance_uuid: str
    request: ResourceRequest
    candidates: t.Sequence[Candidate]
    parts: PartsWish = field(default_factory=PartsWish)
    group: ServerGroup | None = None  # its row is locked by the caller (groups.load)
    kind: str = BUILD


def candidates_of(selection: Selection) -> list[Candidate]:
    """The scheduler's choice and its alternates, as the claim takes them."""
    return [
        Candidate(selection.host, selection.nodename, selection.limits, selection.node_id),
        *(Candidate(a.host, a.nodename, a.limits, a.node_id) for a in selection.alternates),
    ]


def take(conn: t.Any, wishes: t.Sequence[Wish], now: float) -> dict[str, Candidate | errors.BootflowError]:
    """Claim for each wish the first candidate that still has room under the lock.

    Returns uuid -> where it was claimed, or the refusal of its last candidate (all reasons joined).
    """
    return _Taking(conn, wishes, now).run()


def take_one(ledger: Ledger, wish: Wish, now: float) -> Candidate | errors.BootflowError:
    """Claim for one wish, in a transaction of its own: where that was claimed, or the refusal.

    A plain wish takes one conditional statement on PostgreSQL, which is a transaction by itself: within a longer one the row
    that it did not get would stay locked, and locking the alternates after it would break the order of locks.
    """
    if _is_plain(wish) and ledger.is_server:
        with contextlib.suppress(errors.LedgerError), ledger.statement() as conn:
            if _take_at_once(conn, wish, now):
                return wish.candidates[0]
    return ledger.transact(_take_unless_there, wish, now)


def _take_unless_there(conn: t.Any, wish: Wish, now: float) -> Candidate | errors.BootflowError:
    """As take(); a claim that was written although its answer got lost is the answer."""
    c = claims.c
    query = sa.select(c.compute_node_id).where(c.instance_uuid == wish.instance_uuid, c.kind == wish.kind)
    there = {r.compute_node_id for r in conn.execute(query)} if _is_plain(wish) else set()
    for candidate in wish.candidates:
        if candidate.node_id in there:
            return candidate
    if _is_plain(wish) and conn.dialect.name == "sqlite" and _take_at_once(conn, wish, now):
        return wish.candidates[0]
    return take(conn, [wish], now)[wish.instance_uuid]


def _is_plain(wish: Wish) -> bool:
    if wish.parts or wish.group is not None or wish.kind != BUILD:
        return False
    return bool(wish.candidates) and wish.candidates[0].node_id is not None


def _take_at_once(conn: t.Any, wish: Wish, now: float) -> bool:
    """A plain wish by a conditional statement: the row is only written if the request fits its limits.

    False where it did not: the long way then tells why, or finds an alternate.
    """
    candidate, delta = wish.candidates[0], usage_delta(wish.request)
    values = {
        "node_id": candidate.node_id,
        "memory": delta.memory_mb_used,
        "disk": delta.local_gb_used,
        "cpus": delta.vcpus_used,
        **{"limit_" + name: candidate.limits.get(name) for name in _LIMITED},
    }
    entry = {
        "instance_uuid": wish.instance_uuid,
        "memory_mb": delta.memory_mb_used,
        "disk_gb": delta.local_gb_used,
        "vcpus": delta.vcpus_used,
        "created_at": now,
        "kind": wish.kind,
    }
    limited = tuple(name for name in _LIMITED if candidate.limits.get(name) is not None)
    if conn.dialect.name == "postgresql":
        bound = {**values, **{"c_" + n: v for n, v in entry.items()}}
        return conn.execute(_at_once(limited), bound).first() is not None
    if not conn.execute(_taking_statement(limited), values).rowcount:
        return False
    conn.execute(claims.insert(), {**entry, "compute_node_id": candidate.node_id})
    return True


# Limit -> the column that counts against it, and the value that is added to it.
_LIMITED = {
    "memory_mb": ("memory_mb_used", "memory"),
    "disk_gb": ("local_gb_used", "disk"),
    "vcpu": ("vcpus_used", "cpus"),
}


@functools.lru_cache(maxsize=None)
def _taking_statement(limited: tuple[str, ...]) -> t.Any:
    c = compute_nodes.c
    statement = compute_nodes.update().where(c.id == sa.bindparam("node_id"))
    for name in limited:
        column, added = _LIMITED[name]
        limit = sa.bindparam("limit_" + name, type_=sa.Float)
        # As core.resources.claims tests it: refused only when the request is more than limit - used.
        statement = statement.where(sa.bindparam(added, type_=sa.Integer) <= limit - c[column])
    return statement.values(
        num_instances=c.num_instances + 1,
        **{column: c[column] + sa.bindparam(added, type_=sa.Integer) for column, added in _LIMITED.values()},
    )


@functools.lru_cache(maxsize=None)
def _at_once(limited: tuple[str, ...]) -> t.Any:
    taken = _taking_statement(limited).returning(compute_nodes.c.id).cte("taken")
    entry = ("instance_uuid", "memory_mb", "disk_gb", "vcpus", "created_at", "kind")
    selected = sa.select(taken.c.id, *(sa.bindparam("c_" + n, type_=claims.c[n].type) for n in entry))
    entered = claims.insert().from_select(["compute_node_id", *entry], selected, include_defaults=False)
    return entered.returning(claims.c.id)


class _Taking:
    def __init__(self, conn: t.Any, wishes: t.Sequence[Wish], now: float):
        self.conn = conn
        self.wishes = wishes
        self.now = now
        rows = _lock(conn, [c for w in wishes for c in w.candidates])
        self.usage = {(r.host, r.node): _usage(r) for r in rows}
        self.ids = {(r.host, r.node): int(r.id) for r in rows}
        self.parts: dict[int, dedicated_resources.Parts] = {}
        asking = [w.parts for w in wishes if w.parts]
        if asking:
            self.parts = dedicated_resources.load(
                conn,
                list(self.ids.values()),
                numa=any(w.numa is not None for w in asking),
                devices=any(w.pci or w.disks for w in asking),
            )
        self.there_already = _places(conn, [w.instance_uuid for w in wishes if w.kind == MOVE])
        groups = {w.group.id for w in wishes if w.group is not None}
        self.members = _Members(conn, groups) if groups else None
        self.taken: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        self.claims: list[dict[str, t.Any]] = []
        self.devices: list[dict[str, t.Any]] = []

    def run(self) -> dict[str, Candidate | errors.BootflowError]:
        results: dict[str, Candidate | errors.BootflowError] = {}
        for wish in self.wishes:
            outcome: Candidate | errors.BootflowError = errors.ComputeResourcesUnavailable(
                reason="the host is gone from the ledger"
            )
            for candidate in wish.candidates:
                if (candidate.host, candidate.node) not in self.ids:
                    continue
                try:
                    self._claim(wish, candidate)
                except errors.BootflowError as e:
                    outcome = e
                    continue
                outcome = candidate
                break
            results[wish.instance_uuid] = outcome
        self._write()
        return results

    def _claim(self, wish: Wish, candidate: Candidate) -> None:
        place = (candidate.host, candidate.node)
        node_id = self.ids[place]
        got = self._test(wish, candidate, node_id)
        slot = None
        if wish.group is not None and self.members is not None:
            slot = self.members.add(wish.group, node_id, candidate.host, wish.instance_uuid)
        delta = usage_delta(wish.request)
        self.usage[place] = delta.apply(self.usage[place])
        # A guest that moves on its own host is one guest with two claims.
        guests = 0 if (wish.instance_uuid, node_id) in self.there_already else delta.num_instances
        amounts = (delta.memory_mb_used, delta.local_gb_used, delta.vcpus_used, guests)
        self.taken[node_id] = [before + more for before, more in zip(self.taken[node_id], amounts)]
        numa = got.guest_numa if got is not None else None
        self.claims.append(
            {
                "instance_uuid": wish.instance_uuid,
                "compute_node_id": node_id,
                "memory_mb": delta.memory_mb_used,
                "disk_gb": delta.local_gb_used,
                "vcpus": delta.vcpus_used,
                "created_at": self.now,
                "kind": wish.kind,
                "numa": numa.as_dict() if numa is not None else None,
                "server_group_id": wish.group.id if wish.group is not None else None,
                "group_slot": slot,
            }
        )
        if got is not None:
            self.parts[node_id] = dedicated_resources.Parts(got.numa, got.free_pci, got.free_disks)
            self._note_devices(wish, node_id, got)

    def _test(self, wish: Wish, candidate: Candidate, node_id: int) -> Taken | None:
        """All tests, then the group. Raises ComputeResourcesUnavailable or RescheduledException."""
        reasons: list[str] = []
        there = self.parts.get(node_id, dedicated_resources.NOTHING)
        limits = _numa_limits(candidate.limits)
        got = None
        if wish.parts:
            got = take_parts(there.numa, there.pci, there.disks, wish.parts, limits)
            if got is None:
                reasons = parts_refusals(there.numa, there.pci, there.disks, wish.parts, limits)
        claim_test(self.usage[candidate.host, candidate.node], wish.request, candidate.limits, reasons)
        if wish.group is not None and self.members is not None:
            self.members.check(wish.group, candidate.host, wish.instance_uuid)
        return got

    def _note_devices(self, wish: Wish, node_id: int, got: Taken) -> None:
        def note(kind: str, device: str, detail: t.Mapping[str, t.Any]) -> None:
            self.devices.append(
                {
                    "instance_uuid": wish.instance_uuid,
                    "compute_node_id": node_id,
                    "claim_kind": wish.kind,
                    "kind": kind,
                    "device": device,
                    "detail": dict(detail),
                }
            )

        for request, devices in got.pci:
            for device in devices:
                note(dedicated_resources.PCI, device.address, {**device.as_dict(), "alias_name": request.alias_name})
        for disk in got.disks:
            note(dedicated_resources.DISK, disk["path"], disk)

    def _write(self) -> None:
        if not self.claims:
            return
        bulk.insert(self.conn, claims, self.claims)
        bulk.insert(self.conn, device_claims, self.devices)
        names = ("memory_mb_used", "local_gb_used", "vcpus_used", "num_instances")
        bulk.update(
            self.conn,
            compute_nodes,
            "id",
            [{"id": n, **dict(zip(names, v))} for n, v in sorted(self.taken.items())],
            add=names,
        )


@dataclass(frozen=True)
class _Place:
    """A claim of a group's member. A member that moves, or that a host is still to be rid of, has more than one."""

    member: str
    node_id: int
    host: str
    slot: int | None


class _Members:
    """Where the members of groups are, by their claims: what the late check looks at, under the lock of the group's row."""

    def __init__(self, conn: t.Any, groups: t.Collection[str]):
        self.there: dict[str, list[_Place]] = {g: [] for g in groups}
        c = claims.c
        for part in chunks(sorted(groups)):
            query = (
                sa.select(c.server_group_id, c.instance_uuid, c.compute_node_id, compute_nodes.c.host, c.group_slot)
                .join(compute_nodes, compute_nodes.c.id == c.compute_node_id)
                .where(c.server_group_id.in_(part))
                .order_by(c.id)
            )
            for group, *place in conn.execute(query):
                self.there[group].append(_Place(*place))

    def check(self, group: ServerGroup, host: str, uuid: str) -> None:
        others: dict[str, set[str]] = defaultdict(set)
        for place in self.there[group.id]:
            if place.member != uuid:
                others[place.host].add(place.member)
        text = late_check(replace(group, host_counts={h: len(m) for h, m in others.items()}), host, uuid)
        if text:
            raise errors.RescheduledException(instance_uuid=uuid, reason=text)

    def add(self, group: ServerGroup, node_id: int, host: str, uuid: str) -> int | None:
        """Enter a member. Returns its place on the host, where the group counts places; none if it has one there already."""
        slot = None
        mine = [p for p in self.there[group.id] if p.node_id == node_id]
        if group.policy == ANTI_AFFINITY and all(p.member != uuid for p in mine):
            full = {p.slot for p in mine}
            slot = next(i for i in range(len(full) + 1) if i not in full)
        self.there[group.id].append(_Place(uuid, node_id, host, slot))
        return slot


def release(conn: t.Any, uuids: t.Sequence[str], host: str | None = None, kind: str | None = None) -> int:
    """Give back the claims of these instances (on ``host`` or of ``kind`` only, when given). A second time does nothing."""
    parts = list(chunks(list(uuids)))
    node_ids = {
        r.compute_node_id
        for part in parts
        for r in conn.execute(sa.select(claims.c.compute_node_id).where(_of(claims.c, part, host, claims.c.kind, kind)))
    }
    if not node_ids:
        return 0
    nodes.lock(conn, node_ids)
    released = 0
    for part in parts:
        d = device_claims.c
        conn.execute(device_claims.delete().where(_of(d, part, host, d.claim_kind, kind)))
        released += conn.execute(claims.delete().where(_of(claims.c, part, host, claims.c.kind, kind))).rowcount
    nodes.recount(conn, sorted(node_ids))
    return released


def settle(conn: t.Any, uuid: str, moved: bool) -> None:
    """End a move: the target's claim becomes the instance's own (``moved``), or goes back and the old one stays."""
    if not moved:
        release(conn, [uuid], kind=MOVE)
        return
    c = claims.c
    columns = (c.id, c.compute_node_id, c.kind, c.group_slot)
    rows = conn.execute(sa.select(*columns).where(c.instance_uuid == uuid)).all()
    slots = {r.compute_node_id: r.group_slot for r in rows if r.kind == BUILD}
    host = conn.execute(sa.select(instances.c.host).where(instances.c.uuid == uuid)).scalar()
    if host is not None:  # what other hosts still have to be rid of stays claimed there (cleanups)
        release(conn, [uuid], host=host, kind=BUILD)
    for row in rows:
        if row.kind == MOVE:  # on its own host it takes over the place in its group
            slot = slots.get(row.compute_node_id) if row.group_slot is None else row.group_slot
            conn.execute(claims.update().where(c.id == row.id).values(kind=BUILD, group_slot=slot))
    conn.execute(device_claims.update().where(device_claims.c.instance_uuid == uuid).values(claim_kind=BUILD))


def _of(c: t.Any, uuids: t.Sequence[str], host: str | None, kind_column: t.Any, kind: str | None) -> t.Any:
    conditions = [c.instance_uuid.in_(uuids)]
    if host is not None:
        conditions.append(c.compute_node_id.in_(sa.select(compute_nodes.c.id).where(compute_nodes.c.host == host)))
    if kind is not None:
        conditions.append(kind_column == kind)
    return sa.and_(*conditions)


def parts_of(conn: t.Any, uuids: t.Sequence[str], kind: str = BUILD) -> dict[str, dict[str, t.Any]]:
    """uuid -> {numa: the fitted topology or None, pci: [device], disks: [disk]} that it has claimed, as plain data.

    Of a build, on its instance's own host: a host that could not be cleaned keeps its claim too, and that is not the guest's.
    """
    found: dict[str, dict[str, t.Any]] = {}
    c, d = claims.c, device_claims.c
    for part in chunks(list(uuids)):
        mine = sa.select(c.instance_uuid, c.numa).where(c.instance_uuid.in_(part), c.kind == kind)
        for row in conn.execute(_at_home(mine, c) if kind == BUILD else mine):
            found[row.instance_uuid] = {"numa": row.numa, "pci": [], "disks": []}
        query = sa.select(d.instance_uuid, d.kind, d.detail).where(d.instance_uuid.in_(part), d.claim_kind == kind)
        for row in conn.execute((_at_home(query, d) if kind == BUILD else query).order_by(d.id)):
            if row.instance_uuid in found:
                found[row.instance_uuid]["pci" if row.kind == dedicated_resources.PCI else "disks"].append(row.detail)
    return found


def _at_home(query: t.Any, c: t.Any) -> t.Any:
    """Only the rows on the host that the instance is on."""
    node, home = compute_nodes.c, instances.c
    return query.join(compute_nodes, node.id == c.compute_node_id).join(
        instances, sa.and_(home.uuid == c.instance_uuid, home.host == node.host)
    )


def disks_on(conn: t.Any, host: str, uuids: t.Sequence[str]) -> dict[str, list[dict[str, t.Any]]]:
    """uuid -> the whole disks of ``host`` that it has, as they were when it got them: {path, serial, size_gb, medium}."""
    found: dict[str, list[dict[str, t.Any]]] = {}
    d = device_claims.c
    for part in chunks(list(uuids)):
        query = (
            sa.select(d.instance_uuid, d.detail)
            .join(compute_nodes, compute_nodes.c.id == d.compute_node_id)
            .where(d.instance_uuid.in_(part), d.kind == dedicated_resources.DISK, compute_nodes.c.host == host)
        )
        for uuid, disk in conn.execute(query.order_by(d.id)):
            found.setdefault(uuid, []).append(disk)
    return found


def _numa_limits(limits: t.Mapping[str, t.Any]) -> NUMALimits | None:
    given = limits.get("numa_topology")
    if given is None:
        return None
    return NUMALimits(
        cpu_allocation_ratio=given["cpu_allocation_ratio"], ram_allocation_ratio=given["ram_allocation_ratio"]
    )


def _lock(conn: t.Any, candidates: t.Sequence[Candidate]) -> list[t.Any]:
    ids = {c.node_id for c in candidates if c.node_id is not None}
    places = {(c.host, c.node) for c in candidates if c.node_id is None}
    c = compute_nodes.c
    for part in chunks(sorted({host for host, _node in places})):
        rows = conn.execute(sa.select(c.id, c.host, c.node).where(c.host.in_(part)))
        ids.update(r.id for r in rows if (r.host, r.node) in places)
    return nodes.lock(conn, ids)


def _places(conn: t.Any, uuids: t.Sequence[str]) -> set[tuple[str, int]]:
    """(uuid, node id) of the claims that these instances have."""
    c = claims.c
    return {
        (r.instance_uuid, r.compute_node_id)
        for part in chunks(uuids)
        for r in conn.execute(sa.select(c.instance_uuid, c.compute_node_id).where(c.instance_uuid.in_(part)))
    }


def _usage(row: t.Any) -> NodeUsage:
    return NodeUsage(
        memory_mb=row.memory_mb,
        memory_mb_used=row.memory_mb_used,
        local_gb=row.local_gb,
        local_gb_used=row.local_gb_used,
        vcpus=row.vcpus,
        vcpus_used=row.vcpus_used,
    )
