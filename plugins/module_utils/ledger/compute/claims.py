# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims: taking a host's resources for an instance and releasing them.

source: Nova's instance_claim. The candidate nodes are locked (nodes.lock), tested with core.resources.claims against their
usage under that lock, and written in the same transaction: concurrent runs cannot exceed a node's limits, and a node's
usage is always its reserve plus the sum of its claims.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances.server_groups import ANTI_AFFINITY, ServerGroup, late_check
from ...core.resources import dedicated
from ...core.resources.claims import NodeUsage, ResourceRequest, UsageDelta, claim_test, usage_delta
from ...core.resources.dedicated import Allocation, DedicatedRequest
from ...core.resources.numa.topology import NUMALimits
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import claims, compute_nodes, device_claims, instances
from . import dedicated_resources, nodes

if t.TYPE_CHECKING:
    from ...core.scheduler.placement import Selection

    Query = sa.Select[t.Unpack[tuple[t.Any, ...]]]

# Kinds of a claim. An instance that moves has two: where it is, and, until the move is decided, where it goes to or came from.
# Another one is where a plan holds a host for it.
BUILD, MOVE, PLAN = "build", "move", "plan"
_BETWEEN = "between"  # of a claim that changes its kind, within a transaction


class ClaimRow:
    """A row of claims. Memory is MB, disk GB."""

    id: int
    instance_uuid: str
    compute_node_id: int
    memory_mb: int
    disk_gb: int
    vcpus: int
    created_at: float  # seconds since the epoch
    kind: str
    numa: dict[str, t.Any] | None  # GuestNUMATopology.as_dict(), as it fits into the node
    server_group_id: str | None
    group_slot: int | None  # anti-affinity: which of the max_server_per_host places of the node


class Claimed(t.TypedDict, total=False):
    """Individual resources of an instance on its host, as plain data; empty for one without."""

    numa: dict[str, t.Any] | None  # the fitted topology
    pci: list[dict[str, t.Any]]  # devices, as their host reported them
    disks: list[dict[str, t.Any]]  # whole disks, as they were when it got them


class ClaimedDevice:
    """Fields that devices_without_claim() reads of device_claims."""

    id: int
    instance_uuid: str
    compute_node_id: int
    kind: str  # pci or disk
    device: str  # PCI address, or path of the disk


@dataclass(frozen=True)
class Candidate:
    """A node selected by the scheduler: the chosen one or an alternate."""

    host: str
    node: str
    limits: t.Mapping[str, t.Any]
    node_id: int | None = None  # looked up if None


@dataclass(frozen=True)
class ClaimRequest:
    """One instance and its candidates, best first."""

    instance_uuid: str
    resources: ResourceRequest
    candidates: t.Sequence[Candidate]
    dedicated: DedicatedRequest = field(default_factory=DedicatedRequest)
    group: ServerGroup | None = None  # its row is locked by the caller (groups.load)
    kind: str = BUILD
    home: str | None = None  # of an instance that exists: its host, where it is counted already


def candidates_of(selections: t.Sequence[Selection]) -> list[list[Candidate]]:
    """For each of the scheduler's selections the host that it chose, and the alternates, which a request's instances share."""
    shared: dict[int, list[Candidate]] = {}
    candidates = []
    for selection in selections:
        others = shared.get(id(selection.alternates))
        if others is None:
            others = [Candidate(a.host, a.nodename, a.limits, a.node_id) for a in selection.alternates]
            shared[id(selection.alternates)] = others
        candidates.append([Candidate(selection.host, selection.nodename, selection.limits, selection.node_id), *others])
    return candidates


def claim(
    tx: Transaction,
    requests: t.Sequence[ClaimRequest],
    log: list[str] | None = None,
    machines: t.Mapping[str, str] | None = None,
) -> dict[str, Candidate | errors.BootflowError]:
    """Claim for each request the first candidate that still fits under the lock.

    :arg log: gets the lines that Nova's resource tracker logs; None: they are not read.
    :arg machines: of the fleet that the candidates are from (Fleet.machines); None: the names of machines are read, which costs a statement.
    Returns uuid -> the candidate claimed, or the refusal of the last candidate (all reasons joined).
    """
    return ClaimBatch(tx, requests, log, machines).run()


class ClaimBatch:
    """Claims of one transaction: their nodes are locked and read together, tested one by one, written together."""

    def __init__(
        self,
        tx: Transaction,
        requests: t.Sequence[ClaimRequest],
        log: list[str] | None = None,
        machines: t.Mapping[str, str] | None = None,
    ):
        self.tx = tx
        self.requests = requests
        self.log = log
        self.now = tx.now
        rows, named = _lock(tx, [c for r in requests for c in r.candidates], machines)
        self.usage = {(r.host, r.node): _usage(r, named.get(int(r.id), ())) for r in rows}
        # Of a machine with several names, what is claimed under one is taken under each.
        self.others = {(r.host, r.node): [(o.host, o.node) for o in named.get(int(r.id), ())] for r in rows if named}
        self.ids = {(r.host, r.node): int(r.id) for r in rows}
        self.free: dict[int, dedicated_resources.FreeResources] = {}
        asking = [r.dedicated for r in requests if r.dedicated]
        if asking:
            # The devices in any case: a guest with cells and without devices takes cells without devices first.
            numa = any(d.numa is not None for d in asking)
            self.free = dedicated_resources.load(tx, list(self.ids.values()), numa=numa)
        groups = {r.group.id for r in requests if r.group is not None}
        self.members = _Members(tx, groups, nodes.machine_names(named)) if groups else None
        self.planned = _planned(tx, [r.instance_uuid for r in requests if r.home is not None])
        self._delta: tuple[ResourceRequest, UsageDelta] | None = None
        self.added: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])  # by node: in the order of _USAGE
        self.claims: list[dict[str, t.Any]] = []
        self.devices: list[dict[str, t.Any]] = []

    def run(self) -> dict[str, Candidate | errors.BootflowError]:
        results = {r.instance_uuid: self._first_that_fits(r) for r in self.requests}
        self._write()
        return results

    def _first_that_fits(self, request: ClaimRequest) -> Candidate | errors.BootflowError:
        refusal: errors.BootflowError = errors.ComputeResourcesUnavailable(
            reason="the compute node no longer exists in the ledger"
        )
        for candidate in request.candidates:
            if (candidate.host, candidate.node) not in self.ids:
                continue
            if self.log is not None:
                wanted = request.resources
                amounts = (candidate.node, wanted.memory_mb, wanted.disk_gb, wanted.vcpus)
                self._note(request, "Attempting claim on node %s: memory %d MB, disk %d GB, vcpus %d CPU", *amounts)
            try:
                self._claim(request, candidate)
            except errors.BootflowError as e:
                self._note(request, "Claim unsuccessful on node %s: %s", candidate.node, e.message)
                refusal = e
                continue
            self._note(request, "Claim successful on node %s", candidate.node)
            return candidate
        return refusal

    def _note(self, request: ClaimRequest, line: str, *values: object) -> None:
        if self.log is not None:
            self.log.append("[instance: %s] %s" % (request.instance_uuid, line % values if values else line))

    def _claim(self, request: ClaimRequest, candidate: Candidate) -> None:
        place = (candidate.host, candidate.node)
        node_id = self.ids[place]
        allocation = self._test(request, candidate, node_id)
        slot = None
        if request.group is not None and self.members is not None:
            slot = self.members.add(request.group, node_id, candidate.host, request.instance_uuid)
        delta = self._delta_of(request.resources)
        for name in (place, *self.others.get(place, ())):
            self.usage[name] = delta.apply(self.usage[name])
        counted = candidate.host == request.home or (request.instance_uuid, node_id) in self.planned
        guests = 0 if counted else delta.num_instances
        added = self.added[node_id]
        added[0] += delta.memory_mb_used
        added[1] += delta.local_gb_used
        added[2] += delta.vcpus_used
        added[3] += guests
        numa = allocation.guest_numa if allocation is not None else None
        self.claims.append(
            {
                "instance_uuid": request.instance_uuid,
                "compute_node_id": node_id,
                "memory_mb": delta.memory_mb_used,
                "disk_gb": delta.local_gb_used,
                "vcpus": delta.vcpus_used,
                "created_at": self.now,
                "kind": request.kind,
                "numa": numa.as_dict() if numa is not None else None,
                "server_group_id": request.group.id if request.group is not None else None,
                "group_slot": slot,
            }
        )
        if allocation is not None:
            self.free[node_id] = dedicated_resources.FreeResources(
                allocation.numa, allocation.free_pci, allocation.free_disks
            )
            for other in [self.ids[o] for o in self.others.get(place, ()) if self.ids[o] in self.free]:
                self.free[other] = dedicated_resources.less(self.free[other], allocation)
            self._note_devices(request, node_id, allocation)

    def _delta_of(self, resources: ResourceRequest) -> UsageDelta:
        """The instances of an entry share the object."""
        if self._delta is None or self._delta[0] is not resources:
            self._delta = (resources, usage_delta(resources))
        return self._delta[1]

    def _test(self, request: ClaimRequest, candidate: Candidate, node_id: int) -> Allocation | None:
        """All tests, then the group. Raises ComputeResourcesUnavailable or RescheduledException."""
        reasons: list[str] = []
        allocation = None
        if request.dedicated:
            free = self.free.get(node_id, dedicated_resources.NONE_FREE)
            wanted = (free.numa, free.pci, free.disks, request.dedicated, NUMALimits.of_claim(candidate.limits))
            allocation = dedicated.allocate(*wanted)
            if allocation is None:
                reasons = dedicated.refusals(*wanted)
        usage = self.usage[candidate.host, candidate.node]
        log = None if self.log is None else lambda line: self._note(request, line)
        claim_test(usage, request.resources, candidate.limits, reasons, log)
        if request.group is not None and self.members is not None:
            self.members.check(request.group, candidate.host, request.instance_uuid)
        return allocation

    def _note_devices(self, request: ClaimRequest, node_id: int, allocation: Allocation) -> None:
        def note(kind: str, device: str, detail: t.Mapping[str, t.Any]) -> None:
            self.devices.append(
                {
                    "instance_uuid": request.instance_uuid,
                    "compute_node_id": node_id,
                    "claim_kind": request.kind,
                    "kind": kind,
                    "device": device,
                    "detail": dict(detail),
                }
            )

        for pci_request, devices in allocation.pci:
            for device in devices:
                detail = {**device.as_dict(), "alias_name": pci_request.alias_name}
                note(dedicated_resources.PCI, device.address, detail)
        for disk in allocation.disks:
            note(dedicated_resources.DISK, disk["path"], disk)

    def _write(self) -> None:
        if not self.claims:
            return
        bulk.insert(self.tx, claims, self.claims)
        bulk.insert(self.tx, device_claims, self.devices)
        bulk.update(
            self.tx,
            compute_nodes,
            "id",
            [{"id": n, **dict(zip(_USAGE, v))} for n, v in sorted(self.added.items())],
            add=_USAGE,
        )


_USAGE = ("memory_mb_used", "local_gb_used", "vcpus_used", "num_instances")


@dataclass(frozen=True)
class _Place:
    """A claim of a group's member. A member with a pending cleanup has more than one."""

    member: str
    node_id: int
    host: str
    slot: int | None


class _Members:
    """The members of groups by their claims, for the late check under the lock of the group's row."""

    def __init__(self, tx: Transaction, groups: t.Collection[str], machines: t.Mapping[str, str]):
        """:arg machines: see nodes.machine_names()"""
        self.machines = machines
        self.places_by_group: dict[str, list[_Place]] = {g: [] for g in groups}
        c = claims.c
        query = (
            sa.select(c.server_group_id, c.instance_uuid, c.compute_node_id, compute_nodes.c.host, c.group_slot)
            .join(compute_nodes, compute_nodes.c.id == c.compute_node_id)
            .where(bulk.among(tx, c.server_group_id, sorted(groups)))
            .order_by(c.id)
        )
        for group, *place in tx.execute(query) if groups else ():
            self.places_by_group[group].append(_Place(*place))

    def check(self, group: ServerGroup, host: str, uuid: str) -> None:
        others: dict[str, set[str]] = defaultdict(set)
        for place in self.places_by_group[group.id]:
            if place.member != uuid:
                others[self.machines.get(place.host, place.host)].add(place.member)
        counts = {h: len(m) for h, m in others.items()}
        text = late_check(replace(group, host_counts=counts), self.machines.get(host, host), uuid)
        if text:
            raise errors.RescheduledException(instance_uuid=uuid, reason=text)

    def add(self, group: ServerGroup, node_id: int, host: str, uuid: str) -> int | None:
        """Enter a member. Returns its place on the host if the group counts places; None if it already has one there."""
        slot = None
        places_on_node = [p for p in self.places_by_group[group.id] if p.node_id == node_id]
        if group.policy == ANTI_AFFINITY and all(p.member != uuid for p in places_on_node):
            full = {p.slot for p in places_on_node}
            slot = next(i for i in range(len(full) + 1) if i not in full)
        self.places_by_group[group.id].append(_Place(uuid, node_id, host, slot))
        return slot


def release(tx: Transaction, uuids: t.Collection[str]) -> int:
    """Release all claims of these instances, whose rows are locked. Repeating it does nothing. Returns their number."""
    return _release(tx, uuids, lambda _host, _uuid, _kind: True)


def release_on(tx: Transaction, cleaned: t.Collection[tuple[str, str]]) -> int:
    """Release the claims of instances on hosts that were cleaned of them. {(host, instance's uuid)}"""
    return _release(tx, {uuid for _host, uuid in cleaned}, lambda host, uuid, _kind: (host, uuid) in cleaned)


def moves_on(tx: Transaction, host: str, uuid: str) -> int:
    """Return how many claims of moves the instance has on ``host``."""
    c = claims.c
    conditions = (c.instance_uuid == uuid, c.kind == MOVE, compute_nodes.c.host == host)
    query = sa.select(sa.func.count()).select_from(claims).join(compute_nodes, compute_nodes.c.id == c.compute_node_id)
    return int(tx.execute(query.where(*conditions)).scalar_one())


def release_moves(tx: Transaction, places: t.Collection[tuple[str, str]]) -> int:
    """Release the claims of moves on these hosts, where the instances will not be. {(host, instance's uuid)}. Returns their number.

    A host that an earlier move left, and that is still to be cleaned, keeps its own.
    """
    return _release(tx, {u for _h, u in places}, lambda host, uuid, kind: kind == MOVE and (host, uuid) in places)


def release_planned(tx: Transaction, uuids: t.Collection[str]) -> int:
    """Release the claims with which plans hold hosts for these locked instances. Returns their number."""
    c = claims.c
    of_plans = (bulk.among(tx, c.instance_uuid, sorted(uuids)), c.kind == PLAN)
    query = sa.select(c.instance_uuid, c.compute_node_id, c.group_slot).where(*of_plans, c.group_slot.is_not(None))
    slots = tx.execute(query.order_by(c.id)).all() if uuids else []
    released = _release(tx, uuids, lambda _host, _uuid, kind: kind == PLAN)
    for row in slots:  # another claim of the instance there relied on the place in the group
        others = (c.instance_uuid == row.instance_uuid, c.compute_node_id == row.compute_node_id)
        first = sa.select(sa.func.min(c.id)).where(*others).scalar_subquery()
        tx.execute(claims.update().where(c.id == first).values(group_slot=row.group_slot))
    return released


def exchange(tx: Transaction, between: t.Mapping[str, t.Collection[tuple[str, str]]]) -> None:
    """Move these instances to the hosts of their moves, or back: the claim there becomes theirs, and the other the move's.

    :arg between: uuid -> the two (host, node) of its move. Claims on other hosts belong to pending cleanups there.
    """
    n = compute_nodes.c
    for table, kind in ((claims, claims.c.kind), (device_claims, device_claims.c.claim_kind)):
        c = table.c
        query = sa.select(c.id, c.instance_uuid, kind.label("kind"), n.host, n.node)
        query = query.join(compute_nodes, n.id == c.compute_node_id)
        rows = tx.execute(query.where(bulk.among(tx, c.instance_uuid, sorted(between)))).all()
        claims_between = [r for r in rows if (r.host, r.node) in between[r.instance_uuid]]
        of_move, at_home = ([r.id for r in claims_between if r.kind == claim_kind] for claim_kind in (MOVE, BUILD))
        for ids, after in ((of_move, _BETWEEN), (at_home, MOVE), (of_move, BUILD)):
            if ids:
                tx.execute(table.update().where(bulk.among(tx, c.id, sorted(ids))).values({kind: after}))
    _keep_slots(tx, [uuid for uuid, places in between.items() if len(set(places)) == 1])


def _keep_slots(tx: Transaction, uuids: t.Sequence[str]) -> None:
    """These have both of their claims on one host, where an anti-affinity group counts them once: the place is that of the claim that stays."""
    c = claims.c
    for uuid in uuids:
        move_claim = (c.instance_uuid == uuid, c.kind == MOVE, c.group_slot.is_not(None))
        for row in tx.execute(sa.select(c.id, c.compute_node_id, c.group_slot).where(*move_claim)).all():
            tx.execute(claims.update().where(c.id == row.id).values(group_slot=None))
            build_claim = (c.instance_uuid == uuid, c.kind == BUILD, c.compute_node_id == row.compute_node_id)
            tx.execute(claims.update().where(*build_claim).values(group_slot=row.group_slot))


def _release(tx: Transaction, uuids: t.Collection[str], chosen: t.Callable[[str, str, str], bool]) -> int:
    """:arg chosen: by host, instance's uuid, and kind."""
    c, n = claims.c, compute_nodes.c
    condition = bulk.among(tx, c.instance_uuid, sorted(uuids))
    columns = (c.id, c.instance_uuid, c.compute_node_id, c.kind, n.host)
    query = sa.select(*columns).join(compute_nodes, n.id == c.compute_node_id)
    rows = [r for r in tx.execute(query.where(condition)) if chosen(r.host, r.instance_uuid, r.kind)] if uuids else []
    if not rows:
        return 0
    node_ids = {r.compute_node_id for r in rows}
    nodes.lock(tx, node_ids)
    released_claims = {(r.instance_uuid, r.compute_node_id, r.kind) for r in rows}
    d = device_claims.c
    device_claim_of_instance = bulk.among(tx, d.instance_uuid, sorted(uuids))
    devices = tx.execute(
        sa.select(d.id, d.instance_uuid, d.compute_node_id, d.claim_kind).where(device_claim_of_instance)
    )
    device_ids = [r.id for r in devices if (r.instance_uuid, r.compute_node_id, r.claim_kind) in released_claims]
    if device_ids:
        tx.execute(device_claims.delete().where(bulk.among(tx, d.id, device_ids)))
    released = tx.execute(claims.delete().where(bulk.among(tx, c.id, sorted(r.id for r in rows)))).rowcount
    nodes.recount(tx, sorted(node_ids))
    return int(released)


def of_instances(tx: Transaction, uuids: t.Sequence[str], kind: str = BUILD) -> dict[str, dict[str, int]]:
    """uuid -> {memory_mb, disk_gb, vcpus} of its claim of this kind."""
    c = claims.c
    query = sa.select(c.instance_uuid, c.memory_mb, c.disk_gb, c.vcpus)
    rows = tx.execute(query.where(bulk.among(tx, c.instance_uuid, uuids), c.kind == kind))
    return {r.instance_uuid: {"memory_mb": r.memory_mb, "disk_gb": r.disk_gb, "vcpus": r.vcpus} for r in rows}


def allocations_of(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, Claimed]:
    """uuid -> its claimed {numa: the fitted topology or None, pci: [device], disks: [disk]}, as plain data.

    Only on the instance's own host: a host that could not be cleaned, or that of a move, keeps another claim, which is not the
    guest's.
    """
    allocations: dict[str, Claimed] = {}
    c, d = claims.c, device_claims.c
    instance_claims = sa.select(c.instance_uuid, c.numa).where(bulk.among(tx, c.instance_uuid, uuids), c.kind == BUILD)
    for row in tx.execute(_at_home(instance_claims, claims)) if uuids else ():
        allocations[row.instance_uuid] = {"numa": row.numa, "pci": [], "disks": []}
    device_conditions = (bulk.among(tx, d.instance_uuid, allocations), d.claim_kind == BUILD)
    query = sa.select(d.instance_uuid, d.kind, d.detail).where(*device_conditions)
    for row in tx.execute(_at_home(query, device_claims).order_by(d.id)) if allocations else ():
        allocations[row.instance_uuid]["pci" if row.kind == dedicated_resources.PCI else "disks"].append(row.detail)
    return allocations


def devices_of(tx: Transaction, uuids: t.Collection[str], kind: str) -> dict[str, list[str]]:
    """Return uuid -> the addresses of the PCI devices that claims of this kind give the instance, in order."""
    d = device_claims.c
    conditions = (
        bulk.among(tx, d.instance_uuid, sorted(uuids)),
        d.claim_kind == kind,
        d.kind == dedicated_resources.PCI,
    )
    devices: dict[str, list[str]] = {uuid: [] for uuid in uuids}
    for row in tx.execute(sa.select(d.instance_uuid, d.device).where(*conditions).order_by(d.id)) if uuids else ():
        devices[row.instance_uuid].append(row.device)
    return devices


def numa_of_moves(tx: Transaction, places: t.Collection[tuple[str, str]]) -> dict[str, dict[str, t.Any]]:
    """uuid -> the topology that the claim of its move gave it there. An instance without one is left out. :arg places: {(host, uuid)}"""
    c, n = claims.c, compute_nodes.c
    query = sa.select(c.instance_uuid, n.host, c.numa).join(compute_nodes, n.id == c.compute_node_id)
    conditions = (c.kind == MOVE, bulk.among(tx, c.instance_uuid, sorted({uuid for _host, uuid in places})))
    rows = tx.execute(query.where(*conditions)).all() if places else []
    return {r.instance_uuid: r.numa for r in rows if r.numa and (r.host, r.instance_uuid) in places}


def _at_home(query: Query, table: sa.Table) -> Query:
    """Only the rows on the instance's own host."""
    c = table.c
    node, home = compute_nodes.c, instances.c
    return query.join(compute_nodes, node.id == c.compute_node_id).join(
        instances, sa.and_(home.uuid == c.instance_uuid, home.host == node.host)
    )


def rows(tx: Transaction) -> list[ClaimRow]:
    """Every claim."""
    return tx.rows(sa.select(claims).order_by(claims.c.id), ClaimRow)


def devices_without_claim(tx: Transaction) -> list[ClaimedDevice]:
    """Claimed devices whose instance has no claim on their node."""
    d, c = device_claims.c, claims.c
    its_claim = sa.select(c.id).where(
        c.instance_uuid == d.instance_uuid, c.compute_node_id == d.compute_node_id, c.kind == d.claim_kind
    )
    query = sa.select(d.id, d.instance_uuid, d.compute_node_id, d.kind, d.device)
    return tx.rows(query.where(~its_claim.exists()).order_by(d.id), ClaimedDevice)


def forget_devices(tx: Transaction, ids: t.Sequence[int]) -> None:
    """Release these devices (ids of device_claims)."""
    tx.execute(device_claims.delete().where(bulk.among(tx, device_claims.c.id, ids)))


def restore(tx: Transaction, uuid: str, node_id: int, amounts: t.Sequence[int], group_id: str | None) -> None:
    """Enter the missing claim of an instance on this node. The caller recounts the node.

    :arg amounts: memory in MB, disk in GB, vCPUs.
    """
    memory_mb, disk_gb, vcpus = amounts
    tx.execute(
        claims.insert().values(
            instance_uuid=uuid,
            compute_node_id=node_id,
            memory_mb=memory_mb,
            disk_gb=disk_gb,
            vcpus=vcpus,
            created_at=tx.now,
            kind=BUILD,
            server_group_id=group_id,
        )
    )


def enter(
    tx: Transaction,
    uuid: str,
    node_id: int,
    amounts: t.Sequence[int],
    numa: t.Mapping[str, t.Any] | None,
    devices: t.Iterable[t.Mapping[str, t.Any]],
) -> None:
    """Enter the claim of a guest that has these resources already, whatever the limits of the node. The caller has locked the node, and recounts it.

    :arg amounts: memory in MB, disk in GB, vCPUs. :arg numa: the fitted topology. :arg devices: PCI devices, as the host reported them
    """
    restore(tx, uuid, node_id, amounts, None)
    c = claims.c
    if numa is not None:
        own_claim = (c.instance_uuid == uuid, c.compute_node_id == node_id, c.kind == BUILD)
        tx.execute(claims.update().where(*own_claim).values(numa=dict(numa)))
    common = {"instance_uuid": uuid, "compute_node_id": node_id, "claim_kind": BUILD, "kind": dedicated_resources.PCI}
    rows = [{**common, "device": device["address"], "detail": {**device, "alias_name": ""}} for device in devices]
    bulk.insert(tx, device_claims, rows)


def correct(tx: Transaction, claim_id: int, amounts: t.Sequence[int]) -> None:
    """Write the amounts of a claim. The caller recounts the node. :arg amounts: memory in MB, disk in GB, vCPUs."""
    memory_mb, disk_gb, vcpus = amounts
    values = {"memory_mb": memory_mb, "disk_gb": disk_gb, "vcpus": vcpus}
    tx.execute(claims.update().where(claims.c.id == claim_id).values(**values))


def disks_on(tx: Transaction, host: str, uuids: t.Sequence[str]) -> dict[str, list[dict[str, t.Any]]]:
    """uuid -> its whole disks on ``host``, as they were when claimed: {path, serial, size_gb, medium}."""
    disks: dict[str, list[dict[str, t.Any]]] = {}
    d = device_claims.c
    conditions = (
        bulk.among(tx, d.instance_uuid, uuids),
        d.kind == dedicated_resources.DISK,
        compute_nodes.c.host == host,
    )
    query = sa.select(d.instance_uuid, d.detail).join(compute_nodes, compute_nodes.c.id == d.compute_node_id)
    for uuid, disk in tx.execute(query.where(*conditions).order_by(d.id)):
        disks.setdefault(uuid, []).append(disk)
    return disks


def having_disks(tx: Transaction, uuids: t.Sequence[str]) -> set[str]:
    """Return the instances that have whole disks, on any host."""
    d = device_claims.c
    query = sa.select(d.instance_uuid).where(bulk.among(tx, d.instance_uuid, uuids), d.kind == dedicated_resources.DISK)
    return set(tx.execute(query).scalars()) if uuids else set()


def _planned(tx: Transaction, uuids: t.Collection[str]) -> set[tuple[str, int]]:
    """Return {(uuid, id of a node)} where plans hold hosts for these instances: they are counted there."""
    c = claims.c
    query = sa.select(c.instance_uuid, c.compute_node_id).where(
        bulk.among(tx, c.instance_uuid, sorted(uuids)), c.kind == PLAN
    )
    return {(r.instance_uuid, r.compute_node_id) for r in tx.execute(query)} if uuids else set()


def _lock(
    tx: Transaction, candidates: t.Sequence[Candidate], machines: t.Mapping[str, str] | None
) -> tuple[list[nodes.NodeUsageRow], dict[int, list[nodes.NodeRow]]]:
    """The rows of the candidates' machines, locked, and nodes.other_names_of() them. :arg machines: see claim()

    All names of a machine are locked by one statement, in the order of their ids. A second one follows only if a machine got another name since.
    """
    ids = {c.node_id for c in candidates if c.node_id is not None}
    places = {(c.host, c.node) for c in candidates if c.node_id is None}
    c = compute_nodes.c
    if places:
        named = bulk.among(tx, c.host, sorted({host for host, _node in places}))
        rows = tx.execute(sa.select(c.id, c.host, c.node).where(named))
        ids.update(r.id for r in rows if (r.host, r.node) in places)
    if machines is None or any(candidate.host in machines for candidate in candidates):
        ids |= _ids_of_others(nodes.other_names_of(tx), ids)
    while True:
        locked_rows = nodes.lock(tx, ids)
        if all(r.machine_id is None for r in locked_rows):
            return locked_rows, {}
        others = nodes.other_names_of(tx)
        missing = _ids_of_others(others, ids) - ids
        if not missing:
            return locked_rows, {i: others[i] for i in ids if i in others}
        ids |= missing


def _ids_of_others(others: t.Mapping[int, t.Sequence[nodes.NodeRow]], ids: t.Collection[int]) -> set[int]:
    """The other rows of the machines of these nodes. :arg others: nodes.other_names_of()"""
    return {int(r.id) for i in ids for r in others.get(i, ())}


def _usage(row: nodes.NodeUsageRow, others: t.Sequence[nodes.NodeRow] = ()) -> NodeUsage:
    """:arg others: the rows that its machine has under other names"""
    memory_mb, disk_gb, vcpus = nodes.claimed_amounts(others)
    return NodeUsage(
        memory_mb=row.memory_mb,
        memory_mb_used=row.memory_mb_used + memory_mb,
        local_gb=row.local_gb,
        local_gb_used=row.local_gb_used + disk_gb,
        vcpus=row.vcpus,
        vcpus_used=row.vcpus_used + vcpus,
    )
