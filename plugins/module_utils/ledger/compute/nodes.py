# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute nodes in the ledger: their reports, their settings from the inventory, and their use."""

from __future__ import annotations

import contextlib
import functools
import typing as t
import uuid

from ...core.answers.compute import NETWORKS
from ...core.answers.shapes import Misshapen
from ...core.firewall.driver import FIREWALL_DRIVER
from ...core.networks.on_hosts import Reported
from ...core.scheduler.host_state import COLUMNS, REPORTED
from ..db.database_kind import DatabaseKind
from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk, setting_kinds
from ..fast.compiled_statement import CompiledStatement
from ..schema.identity import ledger_id
from ..schema.tables import claims, compute_nodes, device_claims, instances, migrations
from ..schema.tables import node_facts as node_facts_table
from . import profiles, sightings

# Facts that the scheduler reads and that many nodes share.
PROFILE_KEYS = ("cpu_info", "supported_instances", "stats")

# Inventory variable -> column: a host's settings are read in each run, its facts are reported.
CONFIGURATION = (
    "ram_allocation_ratio",
    "disk_allocation_ratio",
    "cpu_allocation_ratio",
    "reserved_memory_mb",
    "reserved_disk_gb",
    "reserved_vcpus",
    "availability_zone",
    "disabled",
    "disabled_reason",
)


class NodeUsageRow:
    """Fields that lock() reads of a node. Memory is MB, disk GB; used is what the node reserves plus the sum of its claims."""

    id: int
    host: str  # the inventory's name
    node: str
    memory_mb: int
    memory_mb_used: int
    local_gb: int
    local_gb_used: int
    vcpus: int
    vcpus_used: int
    machine_id: str | None  # the same in all rows of a machine with several names; None: it has one row


class NodeRow(NodeUsageRow):
    """A row of compute_nodes, as far as it is read by name; the scheduler reads its columns as fields of a HostState."""

    reserved_memory_mb: int
    reserved_disk_gb: int
    reserved_vcpus: int
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    cpu_allocation_ratio: float
    availability_zone: str
    disabled: bool  # by the inventory
    disabled_reason: str
    unreachable_reason: str | None  # None: it answered when it was asked last
    created_at: float  # seconds since the epoch, like the next one
    reported_at: float | None
    reported_boot_id: str  # of the start that its last report was from; "": not known
    host_uuid: str  # libvirt's, as the host reported it, like the next two
    host_ip: str
    hypervisor_version: int
    service_disabled: bool  # in the ledger (service_state), like the three that follow
    service_disabled_reason: str
    forced_down: bool
    forced_down_reason: str


def record_report(
    tx: Transaction,
    host: str,
    facts: t.Mapping[str, t.Any],
    configuration: t.Mapping[str, t.Any],
    asked_at: float | None = None,
    cleaned: t.Collection[str] = (),
) -> int:
    """Enter a host's report; usage is the node's reserve plus the sum of its claims. Returns the node's id.

    :arg asked_at: when the host was asked, in seconds since the epoch; None: now. :arg cleaned: instances that it was cleaned of since.

    A second report updates the row of (host, node), also after the machine got another hostname.
    """
    c = compute_nodes.c
    node = facts["hypervisor_hostname"]
    host_uuid = facts.get("host_uuid") or ""
    boot_id = facts.get("boot_id") or ""
    former = _rows_of(tx, host) if host_uuid else []
    _follow_name(tx, host, node, former)
    values = {
        "host_uuid": host_uuid,
        **({} if host_uuid else {"machine_id": None}),
        "reported_boot_id": boot_id,
        **{COLUMNS[name]: _reported(facts, name, unreported) for name, unreported in REPORTED.items()},
        "profile_id": profiles.profile_id(tx, {k: facts[k] for k in PROFILE_KEYS if facts.get(k)}),
        "numa_profile_id": _numa_profile(tx, facts, configuration),
        "networks_profile_id": _networks_profile(tx, facts),
        "has_pci": bool(facts.get("pci_passthrough_devices")),
        "has_disks": bool(facts.get("isolated_disks")),
        "metrics": {**(facts.get("metrics") or {}), **(configuration.get("metrics") or {})} or None,
        "reported_at": tx.now,
        "unreachable_reason": None,
        **{k: configuration[k] for k in CONFIGURATION if k in configuration},
    }
    host_row = sa.and_(c.host == host, c.node == node)
    if tx.execute(compute_nodes.update().where(host_row).values(**values)).rowcount == 0:
        if not insert_new(tx, compute_nodes, host=host, node=node, created_at=tx.now, boot_id=boot_id, **values):
            tx.execute(compute_nodes.update().where(host_row).values(**values))  # another run was faster
    node_id = int(tx.execute(sa.select(c.id).where(host_row)).scalar_one())
    table = node_facts_table
    node_row = table.c.compute_node_id == node_id
    if tx.execute(table.update().where(node_row).values(facts=dict(facts))).rowcount == 0:
        if not insert_new(tx, table, compute_node_id=node_id, facts=dict(facts)):
            tx.execute(table.update().where(node_row).values(facts=dict(facts)))
    recount(tx, [node_id])
    if host_uuid:
        before = max(former, key=lambda r: r.reported_at or 0.0, default=None)
        _link_names(tx, node_id, host, _Reported(node, host_uuid, boot_id), before)
    sightings.record(tx, host, facts, tx.now if asked_at is None else asked_at, ledger_id(tx), cleaned)
    return node_id


class _Reported(t.NamedTuple):
    """A report's fields of its machine."""

    node: str
    host_uuid: str
    boot_id: str  # "": not known


def _rows_of(tx: Transaction, host: str) -> list[NodeRow]:
    """The rows of ``host`` as they are before its report, the latest reported last."""
    c = compute_nodes.c
    columns = (c.id, c.node, c.host_uuid, c.reported_boot_id, c.reported_at, c.machine_id)
    return tx.rows(sa.select(*columns).where(c.host == host).order_by(c.reported_at, c.id), NodeRow)


def _link_names(tx: Transaction, node_id: int, host: str, said: _Reported, before: NodeRow | None) -> None:
    """Give all rows of a machine one machine_id: it was renamed in the inventory, or stands there twice.

    It is the same machine by libvirt's UUID and the hostname or the start, which is another one after each restart. So a machine whose names
    both change is known by its start, and what was linked stays so when it restarts. The UUID alone says nothing: some makers and copies of
    machines have one for all.

    :arg before: the row of ``host`` before this report
    """
    if before is not None and before.host_uuid != said.host_uuid:
        before = None  # another machine
    c = compute_nodes.c
    key = None if before is None else before.machine_id
    alike = [c.node == said.node]
    alike += [c.reported_boot_id == said.boot_id] if said.boot_id else []
    alike += [c.machine_id == key] if key is not None else []
    columns = (c.id, c.node, c.reported_boot_id, c.reported_at, c.machine_id)
    query = sa.select(*columns).where(c.host_uuid == said.host_uuid, c.host != host, sa.or_(*alike))
    rows = tx.rows(query.order_by(c.id), NodeRow)
    same = [r for r in rows if not _is_another(said, before, r)]
    others = [r for r in rows if r not in same]
    members = {node_id, *(r.id for r in same)}
    keys = {r.machine_id for r in same if r.machine_id is not None}
    if keys - {key}:  # with what the others are linked
        linked = (bulk.among(tx, c.machine_id, sorted(keys)), c.host_uuid == said.host_uuid)
        members |= set(tx.execute(sa.select(c.id).where(*linked)).scalars()) - {r.id for r in others}
    machine_id = None
    if len(members) > 1:
        machine_id = min(keys - {r.machine_id for r in others}, default=None) or str(uuid.uuid4())
    rows_to_link = (bulk.among(tx, c.id, sorted(members)), c.machine_id.is_distinct_from(machine_id))
    tx.execute(compute_nodes.update().where(*rows_to_link).values(machine_id=machine_id))


def _is_another(said: _Reported, before: NodeRow | None, other: NodeRow) -> bool:
    """Whether the machine that reports cannot be that of the row ``other``, which reported another start while this one went on without a restart."""
    if before is None or before.reported_at is None or other.reported_at is None:
        return False
    starts = (said.boot_id, other.reported_boot_id)
    goes_on = before.reported_boot_id == said.boot_id and before.reported_at < other.reported_at
    return all(starts) and starts[0] != starts[1] and goes_on


def other_names_of(tx: Transaction) -> dict[int, list[NodeRow]]:
    """Return id of a node -> the other rows of its machine, with their use; nodes without any are left out.

    A machine has its room once, under any number of names: what is claimed under one is taken under each.
    """
    other_rows: dict[int, list[NodeRow]] = {}
    for row in sorted(tx.execute(_other_names()), key=lambda row: (row.own_id, row.id)):
        other_rows.setdefault(int(row.own_id), []).append(t.cast(NodeRow, row))
    return other_rows


@functools.cache  # each scheduling asks, and few machines have several names
def _other_names() -> sa.Select[t.Any]:
    """The query of other_names_of(), by the index ix_compute_nodes_machine_id: sqlite reads all rows instead if it is to order them by id."""
    c, other = compute_nodes.c, compute_nodes.alias().c
    names = (
        "memory_mb_used",
        "reserved_memory_mb",
        "local_gb_used",
        "reserved_disk_gb",
        "vcpus_used",
        "reserved_vcpus",
    )
    same = sa.and_(other.machine_id == c.machine_id, other.id != c.id)
    return (
        sa.select(c.id.label("own_id"), other.id, other.host, other.node, *(other[n] for n in names))
        .select_from(compute_nodes)
        .join(other.id.table, same)
        .where(c.machine_id.is_not(None))
    )


def machine_names(others: t.Mapping[int, t.Sequence[NodeRow]]) -> dict[str, str]:
    """host -> one of the names of its machine, the same for each. :arg others: other_names_of()"""
    hosts = {int(r.id): r.host for rows in others.values() for r in rows}
    return {hosts[i]: min(hosts[i], *(r.host for r in rows)) for i, rows in others.items()}


def claimed_amounts(rows: t.Iterable[NodeRow]) -> tuple[int, int, int]:
    """Return the claimed amounts on these nodes: memory in MB, disk in GB, vCPUs."""
    amounts = [
        (
            r.memory_mb_used - r.reserved_memory_mb,
            r.local_gb_used - r.reserved_disk_gb,
            r.vcpus_used - r.reserved_vcpus,
        )
        for r in rows
    ]
    memory_mb, disk_gb, vcpus = (sum(amount) for amount in zip(*amounts)) if amounts else (0, 0, 0)
    return memory_mb, disk_gb, vcpus


def _follow_name(tx: Transaction, host: str, node: str, rows: t.Sequence[NodeRow]) -> None:
    """Rename the row of a host whose machine got another hostname, or has another machine now. A host has one machine: with a row for
    each name, its room would be given out twice, and claims of instances there would count for a machine that is gone.

    What it has under several names is put together, unless two instances have the same device.
    source: Nova's update_available_resource, which destroys orphan compute nodes

    :arg rows: rows of ``host``, the latest reported last
    """
    c = compute_nodes.c
    former = [r for r in rows if r.node != node]
    if not former:
        return
    lock(tx, [r.id for r in rows])
    if len(former) == len(rows):
        tx.execute(compute_nodes.update().where(c.id == former[-1].id).values(node=node))
        _rename(tx, host, former.pop().node, node)
    current_id = tx.execute(sa.select(c.id).where(c.host == host, c.node == node)).scalar_one()
    for row in former:
        if not _claimed_twice(tx, current_id, row.id):
            for table in (claims, device_claims):
                tx.execute(table.update().where(table.c.compute_node_id == row.id).values(compute_node_id=current_id))
            tx.execute(node_facts_table.delete().where(node_facts_table.c.compute_node_id == row.id))
            tx.execute(compute_nodes.delete().where(c.id == row.id))
            _rename(tx, host, row.node, node)


def _rename(tx: Transaction, host: str, former: str, node: str) -> None:
    """Move all that is on ``host`` to ``node``, in the rows that have its name."""
    i, m = instances.c, migrations.c
    for its_host, its_node in ((i.host, i.node), (m.source_compute, m.source_node), (m.dest_compute, m.dest_node)):
        former_place = (its_host == host, its_node == former)
        tx.execute(its_node.table.update().where(*former_place).values({its_node.name: node}))


def _claimed_twice(tx: Transaction, one: int, other: int) -> bool:
    """Whether the two rows of a machine have claims that one row cannot have."""
    for table, same in (
        (device_claims, ("kind", "device")),
        (claims, ("instance_uuid", "kind")),
        (claims, ("server_group_id", "group_slot")),
    ):
        a, b = table.alias(), table.alias()
        alike = [a.c[name] == b.c[name] for name in same]
        query = sa.select(sa.literal(1)).where(a.c.compute_node_id == one, b.c.compute_node_id == other, *alike)
        if tx.execute(query.limit(1)).first() is not None:
            return True
    return False


def _reported(facts: t.Mapping[str, t.Any], name: str, unreported: t.Any) -> t.Any:
    value = facts.get(name)
    return unreported if value is None or value == "" else value


def _numa_profile(tx: Transaction, facts: t.Mapping[str, t.Any], configuration: t.Mapping[str, t.Any]) -> int | None:
    """The row of the node's NUMA cells, with the huge pages that the inventory reserves."""
    numa = facts.get("numa_topology")
    if not numa or not numa.get("cells"):
        return None
    reserved_pages = {
        (int(r["node"]), int(r["size"])): int(r["count"]) for r in configuration.get("reserved_huge_pages") or ()
    }
    if reserved_pages:
        cells = [
            {
                **cell,
                "pages": [
                    {**page, "reserved": reserved_pages.get((cell["id"], page["size_kb"]), 0)}
                    for page in cell.get("pages") or ()
                ],
            }
            for cell in numa["cells"]
        ]
        numa = {**numa, "cells": cells}
    return profiles.profile_id(tx, numa)


def _networks_profile(tx: Transaction, facts: t.Mapping[str, t.Any]) -> int | None:
    """The row of the node's networks, as the scheduler reads them; None: it reported none, and nothing is known."""
    reported = facts.get("networks")
    if reported is None:
        return None
    networks = {kind: {n["name"]: n.get("active", True) for n in of_type} for kind, of_type in reported.items()}
    return profiles.profile_id(tx, {"networks": networks})


def networks_of_profiles(tx: Transaction, ids: t.Iterable[int]) -> dict[int, Reported]:
    """Profile id -> the networks; ones that cannot be read are left out."""
    networks: dict[int, Reported] = {}
    wanted = set(ids)
    for profile_id, profile in profiles.load(tx, wanted).items() if wanted else ():
        with contextlib.suppress(Misshapen):
            NETWORKS(profile.get("networks"), "networks")
            networks[profile_id] = profile["networks"]
    return networks


def reported_networks(tx: Transaction, hosts: t.Collection[str]) -> dict[tuple[str, str], Reported]:
    """(host, node) -> the networks that it reported, of these hosts."""
    c = compute_nodes.c
    query = sa.select(c.host, c.node, c.networks_profile_id).where(bulk.among(tx, c.host, sorted(hosts)))
    rows = tx.execute(query.where(c.networks_profile_id.is_not(None))).all() if hosts else []
    networks = networks_of_profiles(tx, {r.networks_profile_id for r in rows})
    return {(r.host, r.node): networks.get(r.networks_profile_id) for r in rows}


def filtering_hosts(tx: Transaction, hosts: t.Collection[str]) -> set[str]:
    """Return which of these hosts reported that they filter the ports of their guests."""
    c = compute_nodes.c
    query = sa.select(c.host, c.profile_id).where(bulk.among(tx, c.host, sorted(hosts)))
    rows = tx.execute(query).all() if hosts else []
    reported = profiles.load(tx, {r.profile_id for r in rows}) if rows else {}
    return {r.host for r in rows if FIREWALL_DRIVER in (reported.get(r.profile_id, {}).get("stats") or {})}


def boot_ids(tx: Transaction, hosts: t.Collection[str]) -> dict[str, str]:
    """host -> the start of it that was dealt with, as the kernel names it; "" where none was. Hosts without a node are left out."""
    c = compute_nodes.c
    return {
        r.host: r.boot_id for r in tx.execute(sa.select(c.host, c.boot_id).where(bulk.among(tx, c.host, sorted(hosts))))
    }


def record_boots(tx: Transaction, boots: t.Mapping[str, str]) -> None:
    """These starts of these hosts were dealt with. :arg boots: host -> boot_id"""
    for host, boot_id in sorted(boots.items()):
        tx.execute(compute_nodes.update().where(compute_nodes.c.host == host).values(boot_id=boot_id))


def record_unreachable(tx: Transaction, host: str, reason: str) -> None:
    """Mark a silent host as down, until it reports again."""
    tx.execute(compute_nodes.update().where(compute_nodes.c.host == host).values(unreachable_reason=reason[:1000]))


def reported_since(tx: Transaction, asked_at: t.Mapping[str, float]) -> set[str]:
    """Return the hosts whose last report is younger than the question of this run. :arg asked_at: by host, in seconds since the epoch"""
    c = compute_nodes.c
    query = sa.select(c.host, c.reported_at).where(bulk.among(tx, c.host, sorted(asked_at)), c.reported_at.is_not(None))
    return {str(r.host) for r in tx.execute(query) if r.reported_at > asked_at[r.host]}


def silent_hosts(tx: Transaction, hosts: t.Collection[str]) -> set[str]:
    """Return the ``hosts`` that did not answer last time, or are forced down."""
    c = compute_nodes.c
    down = sa.or_(c.forced_down, c.unreachable_reason.is_not(None))
    return set(tx.execute(sa.select(c.host).where(bulk.among(tx, c.host, sorted(hosts)), down)).scalars())


def lock(tx: Transaction, node_ids: t.Collection[int]) -> list[NodeUsageRow]:
    """Lock the rows of these nodes, in the order of their ids, until the transaction ends. Returns them."""
    if not node_ids:
        return []
    ids = bulk.listed(tx, compute_nodes.c.id, sorted(set(node_ids)))
    return _lock_query(tx.database_kind).rows(tx, NodeUsageRow, {"ids": ids})


@functools.cache
def _lock_query(database: DatabaseKind) -> CompiledStatement:
    c = compute_nodes.c
    amounts = (c.memory_mb, c.memory_mb_used, c.local_gb, c.local_gb_used, c.vcpus, c.vcpus_used)
    return CompiledStatement(
        sa.select(c.id, c.host, c.node, *amounts, c.machine_id)
        .where(bulk.among_named(database, c.id, "ids"))
        .order_by(c.id)
        .with_for_update()
    )


def recount(tx: Transaction, node_ids: t.Sequence[int]) -> None:
    """Recompute the usage of these nodes, whose rows the caller has locked: reserved + the sum of the claims."""
    c = compute_nodes.c
    claims_of_node = claims.c.compute_node_id == c.id

    def total(column: sa.Column[t.Any]) -> sa.ScalarSelect[t.Any]:
        return (
            sa.select(sa.func.coalesce(sa.func.sum(column), 0))
            .where(claims_of_node)
            .correlate(compute_nodes)
            .scalar_subquery()
        )

    # Guests are counted: one that is being resized has two claims.
    guests = sa.select(sa.func.count(claims.c.instance_uuid.distinct())).where(claims_of_node)
    if node_ids:
        tx.execute(
            compute_nodes.update()
            .where(bulk.among(tx, c.id, node_ids))
            .values(
                memory_mb_used=c.reserved_memory_mb + total(claims.c.memory_mb),
                local_gb_used=c.reserved_disk_gb + total(claims.c.disk_gb),
                vcpus_used=c.reserved_vcpus + total(claims.c.vcpus),
                num_instances=guests.correlate(compute_nodes).scalar_subquery(),
            )
        )


def configure(tx: Transaction, configurations: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[str]:
    """Write the inventory's settings to the rows that differ. Returns the changed hosts."""
    changed: set[str] = set()
    reserves: list[int] = []
    for node_id, host, values in differing(tx, configurations):
        tx.execute(compute_nodes.update().where(compute_nodes.c.id == node_id).values(**values))
        changed.add(host)
        if any(k.startswith("reserved_") for k in values):
            reserves.append(node_id)
    recount(tx, reserves)
    return sorted(changed)


def differing(
    tx: Transaction, configurations: t.Mapping[str, t.Mapping[str, t.Any]]
) -> list[tuple[int, str, dict[str, t.Any]]]:
    """(id, host, settings as the inventory has them) of the rows with others, by id.

    Only rows of another kind than their host's are read (setting_kinds).
    """
    other = setting_kinds.hosts_with_other_settings(tx, configurations, CONFIGURATION)
    return _differences(tx, {host: configurations[host] for host in other}) if other else []


def _differences(
    tx: Transaction, configurations: t.Mapping[str, t.Mapping[str, t.Any]]
) -> list[tuple[int, str, dict[str, t.Any]]]:
    c = compute_nodes.c
    query = sa.select(c.id, c.host, *(c[k] for k in CONFIGURATION)).where(
        bulk.among(tx, c.host, sorted(configurations))
    )
    different_rows = []
    for row in tx.execute(query.order_by(c.id)):
        wanted = configurations[row.host]
        values = {k: wanted[k] for k in CONFIGURATION if k in wanted and getattr(row, k) != wanted[k]}
        if values:
            different_rows.append((int(row.id), str(row.host), values))
    return different_rows


def rows(tx: Transaction, names: t.Iterable[str]) -> list[NodeRow]:
    """Every compute node, by host and node: with these columns only."""
    c = compute_nodes.c
    return tx.rows(sa.select(*(c[n] for n in names)).order_by(c.host, c.node), NodeRow)


def hosts(tx: Transaction) -> set[str]:
    """Hosts that reported."""
    return set(tx.execute(sa.select(compute_nodes.c.host).distinct()).scalars())


def same_machines(tx: Transaction, hosts: t.Collection[str]) -> dict[str, set[str]]:
    """host -> other names of its machine, see _link_names(); hosts without any are left out."""
    c, other = compute_nodes.c, compute_nodes.alias().c
    same = sa.and_(other.machine_id == c.machine_id, other.host != c.host)
    query = sa.select(c.host, other.host.label("name")).where(bulk.among(tx, c.host, sorted(hosts)), same)
    names_by_host: dict[str, set[str]] = {}
    for row in tx.execute(query):
        names_by_host.setdefault(str(row.host), set()).add(str(row.name))
    return names_by_host


def other_names(tx: Transaction, hosts: t.Collection[str]) -> dict[str, str]:
    """Return host -> another one, for hosts whose machine, see _link_names(), answered later as that one."""
    c, other = compute_nodes.c, compute_nodes.alias().c
    same = sa.and_(other.machine_id == c.machine_id, other.host != c.host)
    answers = sa.and_(
        other.unreachable_reason.is_(None), other.reported_at > c.reported_at, other.forced_down.is_(sa.false())
    )
    query = sa.select(c.host, other.host.label("name")).where(bulk.among(tx, c.host, sorted(hosts)), same, answers)
    return {str(r.host): str(r.name) for r in tx.execute(query.order_by(other.reported_at))}


def lock_hosts(tx: Transaction, hosts: t.Collection[str]) -> list[NodeUsageRow]:
    """Lock the rows of these hosts until the transaction ends: nothing is claimed there meanwhile. Returns them."""
    c = compute_nodes.c
    return lock(tx, tx.execute(sa.select(c.id).where(bulk.among(tx, c.host, sorted(hosts)))).scalars().all())


def forget(tx: Transaction, hosts: t.Collection[str]) -> None:
    """Remove the rows of these hosts, and the claims and devices that are still on them."""
    c = compute_nodes.c
    ids = [r.id for r in lock_hosts(tx, hosts)]
    for table in (device_claims, claims, node_facts_table):
        tx.execute(table.delete().where(bulk.among(tx, table.c.compute_node_id, ids)))
    tx.execute(compute_nodes.delete().where(bulk.among(tx, c.id, ids)))
    sightings.forget_hosts(tx, hosts)


def forced_down(tx: Transaction) -> set[str]:
    """Hosts that are forced down: their instances may be evacuated."""
    c = compute_nodes.c
    return set(tx.execute(sa.select(c.host).where(c.forced_down.is_(sa.true())).distinct()).scalars())


def stale_hosts(tx: Transaction, hosts: t.Iterable[str], max_age: float, silent: bool = True) -> list[str]:
    """Return the hosts whose report is older than ``max_age`` seconds.

    :arg silent: also hosts that never reported, or did not answer last time.
    """
    since = tx.now - max_age
    if silent:
        fresh = _hosts_with(tx, RECENT, since)
        return [h for h in hosts if h not in fresh]
    old = _hosts_with(tx, "%s AND NOT (%s)" % (_ANSWERED, RECENT), since)
    old -= _hosts_with(tx, "(%s) OR NOT (%s)" % (RECENT, _ANSWERED), since)
    return [h for h in hosts if h in old]


_ANSWERED = "reported_at IS NOT NULL AND unreachable_reason IS NULL"
RECENT = _ANSWERED + " AND reported_at >= :since"


def _hosts_with(tx: Transaction, condition: str, since: float) -> set[str]:
    """The hosts with a node that meets the condition."""
    ((names,),) = _hosts_query(tx.database_kind, condition).tuples(tx, {"since": since})
    return set(bulk.texts(names))


@functools.cache
def _hosts_query(database: DatabaseKind, condition: str) -> CompiledStatement:
    return CompiledStatement(
        sa.text("SELECT %s FROM compute_nodes WHERE %s" % (bulk.json_list(database, "host"), condition))
    )


def node_facts(tx: Transaction, host: str, node: str) -> dict[str, t.Any]:
    """The last reported facts of a node; empty if it never reported."""
    c = compute_nodes.c
    table = node_facts_table
    query = sa.select(table.c.facts).join(compute_nodes, c.id == table.c.compute_node_id)
    row = tx.execute(query.where(c.host == host, c.node == node)).first()
    return dict(row.facts) if row is not None else {}


def domains_on(tx: Transaction) -> dict[tuple[str, str], list[dict[str, t.Any]]]:
    """(host, node) -> all domains of its last report."""
    c = compute_nodes.c
    table = node_facts_table
    query = sa.select(c.host, c.node, table.c.facts["domains"].label("domains")).join(
        table, c.id == table.c.compute_node_id
    )
    return {(r.host, r.node): list(r.domains or ()) for r in tx.execute(query)}


def facts_and_zones(tx: Transaction, hosts: t.Collection[str]) -> dict[tuple[str, str], tuple[dict[str, t.Any], str]]:
    """(host, node) -> the last reported facts, empty if it never reported, and the availability zone, of the nodes of ``hosts``."""
    c = compute_nodes.c
    table = node_facts_table
    joined = compute_nodes.outerjoin(table, c.id == table.c.compute_node_id)
    query = sa.select(c.host, c.node, table.c.facts, c.availability_zone).select_from(joined)
    rows = tx.execute(query.where(bulk.among(tx, c.host, sorted(hosts))))
    return {(r.host, r.node): (dict(r.facts or {}), r.availability_zone) for r in rows}


def zones(tx: Transaction) -> dict[str, str]:
    """host -> its availability zone."""
    c = compute_nodes.c
    return {r.host: r.availability_zone for r in tx.execute(sa.select(c.host, c.availability_zone))}


def zone_of(tx: Transaction, host: str | None, node: str | None) -> str | None:
    """The availability zone of a node."""
    c = compute_nodes.c
    query = sa.select(c.availability_zone).where(c.host == host, c.node == node)
    return t.cast("str | None", tx.execute(query).scalar())


def count_failed_build(tx: Transaction, host: str) -> None:
    """Count a failed build of the host."""
    c = compute_nodes.c
    tx.execute(compute_nodes.update().where(c.host == host).values(failed_builds=c.failed_builds + 1))


def reset_failed_builds(tx: Transaction, hosts: t.Collection[str]) -> None:
    """Forget the failed builds of hosts on which one succeeded."""
    c = compute_nodes.c
    if hosts:
        conditions = (bulk.among(tx, c.host, sorted(hosts)), c.failed_builds != 0)
        tx.execute(compute_nodes.update().where(*conditions).values(failed_builds=0))
