# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit in the ledger: reading what core.audit.plan compares, and writing what it plans.

A plan is made on what a reader sees, which others go on changing. So whatever is to be written is locked as claims lock it,
read again, planned again, and only what is still in that second plan is done.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.audit import plan as audit
from ...core.audit.plan import Evidence, Finding
from ...core.instances import states
from ...core.resources.claims import ResourceRequest, estimate_overhead, usage_delta
from ...ledger.compute import claims, cleanups, groups, history, instances, nodes, runs
from ...ledger.context import Context
from ...ledger.db.locks import take_turns
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import claims as claims_table
from ...ledger.schema.tables import cleanups as cleanups_table
from ...ledger.schema.tables import compute_nodes, device_claims, ip_allocations, server_groups
from ...ledger.schema.tables import instances as instances_table
from ...ledger.schema.tables import ports as ports_table
from ..boot import failure
from ..instances import cleanup, delete
from ..instances.operations import BY_TASK_STATE
from . import operations, storage_audit, volume_audit

#: What of a report is compared with the ledger, beside the settings from the inventory.
TOTALS = ("memory_mb", "local_gb", "vcpus", "hypervisor_type", "hypervisor_version")


@dataclass
class Todo:
    """What a host is to be rid of, by UUID."""

    builds: list[str] = field(default_factory=list)  # of dead runs, this run's now
    deleting: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)  # rows of cleanups

    def as_dict(self) -> dict[str, list[str]]:
        return {"builds": self.builds, "deleting": self.deleting, "remains": self.remains}

    def __bool__(self) -> bool:
        return bool(self.builds or self.deleting or self.remains)


@dataclass
class Repaired:
    findings: list[Finding] = field(default_factory=list)
    todo: dict[str, Todo] = field(default_factory=dict)  # host -> what it is to be rid of
    abandoned: dict[str, list[str]] = field(default_factory=dict)  # host that does not answer -> builds of dead runs
    ends: dict[str, storage_audit.Ends] = field(default_factory=dict)  # host -> sessions, secrets, targets of nobody


# --- reading ------------------------------------------------------------------------------------------------------------


def survey(conn: t.Any, context: Context, evidence: Evidence) -> audit.Ledger:
    """The ledger as core.audit.plan sees it."""
    cleanup_rows = conn.execute(sa.select(cleanups_table).order_by(cleanups_table.c.id)).all()
    claim_rows = conn.execute(sa.select(claims_table).order_by(claims_table.c.id)).all()
    port_rows = _suspicious_ports(conn)
    device_rows = _lonely_devices(conn)
    named = {r.instance_uuid for rows in (cleanup_rows, claim_rows, port_rows, device_rows) for r in rows}
    for snapshot in evidence.snapshots.values():
        named.update(d.uuid for d in snapshot.domains)
        named.update(snapshot.folders)
        named.update(snapshot.volumes)
    return audit.Ledger(
        nodes=_nodes(conn),
        instances=_instances(conn, named, context),
        claims=[
            audit.Claim(r.id, r.instance_uuid, r.compute_node_id, r.kind, (r.memory_mb, r.disk_gb, r.vcpus))
            for r in claim_rows
        ],
        devices=[
            audit.Device(r.id, r.instance_uuid, r.compute_node_id, r.kind, r.device, r.claim_kind) for r in device_rows
        ],
        ports=_ports(conn, port_rows),
        lost_addresses=_lost_addresses(conn),
        cleanups=[audit.Cleanup(r.host, r.instance_uuid, r.domain_name, r.reason) for r in cleanup_rows],
        groups=_empty_groups(conn),
    )


def plan(conn: t.Any, context: Context, evidence: Evidence) -> list[Finding]:
    """What is to be done, by what the ledger says now. Writes nothing."""
    found = audit.plan(survey(conn, context, evidence), evidence)
    return found + volume_audit.plan(conn, context, evidence) + storage_audit.plan(conn, context, evidence)


def hosts_named(conn: t.Any) -> list[str]:
    """Every host that the ledger has something on."""
    found: set[str] = set()
    for column in (compute_nodes.c.host, cleanups_table.c.host):
        found.update(conn.execute(sa.select(column).distinct()).scalars())
    c = instances_table.c
    query = sa.select(c.host).where(c.deleted == instances.LIVE, c.host.is_not(None)).distinct()
    found.update(conn.execute(query).scalars())
    return sorted(found)


def columns_of(facts: t.Mapping[str, t.Any], configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What a report is going to write, of what the audit compares."""
    found = {
        "memory_mb": facts["memory_mb"],
        "local_gb": facts["local_gb"],
        "vcpus": facts["vcpus"],
        "hypervisor_type": facts.get("hypervisor_type") or "QEMU",
        "hypervisor_version": facts.get("hypervisor_version") or 0,
    }
    return {**found, **{k: configuration[k] for k in nodes.CONFIGURATION if k in configuration}}


def _nodes(conn: t.Any) -> list[audit.Node]:
    names = ("unreachable_reason", *TOTALS, *nodes.CONFIGURATION, *audit.USAGE_COLUMNS)
    c = compute_nodes.c
    rows = conn.execute(sa.select(c.id, c.host, c.node, *(c[n] for n in names)).order_by(c.id))
    return [audit.Node(r[0], r[1], r[2], dict(zip(names, r[3:]))) for r in rows]


def _instances(conn: t.Any, named: t.Collection[str], context: Context) -> dict[str, audit.Instance]:
    c = instances_table.c
    columns = (
        c.uuid,
        c.display_name,
        c.host,
        c.node,
        c.vm_state,
        c.task_state,
        c.deleted,
        c.deleted_at,
        c.updated_at,
        c.run_id,
        c.memory_mb,
        c.vcpus,
        c.root_gb,
        c.ephemeral_gb,
    )
    rows = {r.uuid: r for r in conn.execute(sa.select(*columns).where(c.deleted == instances.LIVE))}
    for part in history.chunks(sorted(set(named) - set(rows))):
        rows.update({r.uuid: r for r in conn.execute(sa.select(*columns).where(c.uuid.in_(part)))})
    working = {r.run_id for r in rows.values() if r.run_id and _worked_on(r)}
    dead = runs.dead_among(conn, working, context.run, context.now)
    wanted: dict[tuple[int, ...], audit.Amounts] = {}
    found = {}
    for r in rows.values():
        flavor = (r.memory_mb, r.vcpus, r.root_gb, r.ephemeral_gb)
        if flavor not in wanted:
            wanted[flavor] = amounts(*flavor)
        found[r.uuid] = audit.Instance(
            uuid=r.uuid,
            name=r.display_name,
            host=r.host,
            node=r.node,
            vm_state=r.vm_state,
            task_state=r.task_state,
            deleted=r.deleted != instances.LIVE,
            touched_at=r.updated_at if r.deleted_at is None else r.deleted_at,
            wanted=wanted[flavor],
            run=r.run_id or "",
            run_dead=_worked_on(r) and (not r.run_id or r.run_id in dead),
            operation=BY_TASK_STATE[r.task_state].name if r.task_state in BY_TASK_STATE else "",
        )
    return found


def amounts(memory_mb: int, vcpus: int, root_gb: int, ephemeral_gb: int) -> audit.Amounts:
    """(memory, disk, vCPUs) of a claim for such an instance, as the scheduler claims them."""
    delta = usage_delta(
        ResourceRequest(
            memory_mb, root_gb + ephemeral_gb, vcpus, memory_overhead_mb=estimate_overhead(vcpus, memory_mb)
        )
    )
    return delta.memory_mb_used, delta.local_gb_used, delta.vcpus_used


def _worked_on(row: t.Any) -> bool:
    return bool(
        row.deleted == instances.LIVE
        and (row.vm_state == states.BUILDING or row.task_state in (states.DELETING, *BY_TASK_STATE))
    )


def _suspicious_ports(conn: t.Any) -> list[t.Any]:
    c = ports_table.c
    query = sa.select(c.id, c.instance_uuid, c.host, c.position).join(
        instances_table, instances_table.c.uuid == c.instance_uuid
    )
    return list(conn.execute(query.where(sa.or_(instances_table.c.deleted != instances.LIVE, c.position < 0))))


def _ports(conn: t.Any, rows: t.Sequence[t.Any]) -> list[audit.Port]:
    addresses: dict[str, list[str]] = defaultdict(list)
    c = ip_allocations.c
    for part in history.chunks(sorted(r.id for r in rows)):
        for row in conn.execute(sa.select(c.port_id, c.ip_address).where(c.port_id.in_(part)).order_by(c.id)):
            addresses[row.port_id].append(row.ip_address)
    return [audit.Port(r.id, r.instance_uuid, r.host, r.position < 0, tuple(addresses[r.id])) for r in rows]


def _lonely_devices(conn: t.Any) -> list[t.Any]:
    d, c = device_claims.c, claims_table.c
    claim = sa.select(c.id).where(
        c.instance_uuid == d.instance_uuid, c.compute_node_id == d.compute_node_id, c.kind == d.claim_kind
    )
    query = sa.select(d.id, d.instance_uuid, d.compute_node_id, d.kind, d.device, d.claim_kind)
    return list(conn.execute(query.where(~claim.exists()).order_by(d.id)))


def _lost_addresses(conn: t.Any) -> list[tuple[int, str]]:
    c = ip_allocations.c
    port = sa.select(ports_table.c.id).where(ports_table.c.id == c.port_id)
    return [(r[0], r[1]) for r in conn.execute(sa.select(c.id, c.ip_address).where(~port.exists()).order_by(c.id))]


def _empty_groups(conn: t.Any) -> list[audit.Group]:
    c = server_groups.c
    member = sa.select(instances_table.c.uuid).where(
        instances_table.c.server_group_id == c.id, instances_table.c.deleted == instances.LIVE
    )
    rows = conn.execute(sa.select(c.id, c.name, c.project).where(~member.exists()).order_by(c.id))
    return [audit.Group(*r) for r in rows]


# --- writing ------------------------------------------------------------------------------------------------------------


def repair(conn: t.Any, planned: t.Sequence[Finding], evidence: Evidence, context: Context) -> Repaired:
    """Do what is to be done in the ledger of what was ``planned`` and still is to be done. Two audits take turns.

    Builds of dead runs become this run's; ``todo`` says which hosts are to be cleaned before their claims go back
    (cleaned), ``abandoned`` which cannot be (abandon).
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    take_turns(conn, "audit", ["repair"])
    todo = [f for f in planned if f.changes]
    empty = [f for f in todo if f.kind == audit.SERVER_GROUP]
    take_turns(conn, "project", [f.key[1] for f in empty])  # nobody joins a group meanwhile
    uuids = {f.instance for f in todo if f.instance is not None}
    for part in history.chunks(sorted(uuids)):
        c = instances_table.c
        conn.execute(sa.select(c.uuid).where(c.uuid.in_(part)).order_by(c.uuid).with_for_update()).all()
    more = storage_audit.volumes_to_lock(conn, todo)
    volume_audit.lock(conn, [f for f in todo if f.kind in (audit.VOLUME, audit.ATTACHMENT)], uuids - {None}, more)
    still_empty = {g.id for g in _empty_groups(conn)} if empty else set()
    empty = [f for f in empty if f.key[0] in still_empty]
    groups.forget_unused(conn, [f.key[0] for f in empty])
    storage_audit.lock(conn, todo)
    nodes.lock(conn, {f.node_id for f in todo if f.node_id is not None})
    known = {_identity(f) for f in todo}
    now = [f for f in plan(conn, context, evidence) if not f.changes or _identity(f) in known]
    return _Repair(conn, [*now, *empty], evidence, context).run()


def _identity(finding: Finding) -> t.Any:
    return (finding.kind, finding.host, finding.instance, finding.what)


class _Repair:
    def __init__(self, conn: t.Any, findings: t.Sequence[Finding], evidence: Evidence, context: Context):
        self.conn = conn
        self.evidence = evidence
        self.context = context
        self.result = Repaired(findings=list(findings))
        self.by_kind: dict[str, list[Finding]] = defaultdict(list)
        for f in findings:
            if f.changes:
                self.by_kind[f.kind].append(f)
        self.recount: set[int] = set()

    def run(self) -> Repaired:
        volume_audit.repair(self.conn, self.result.findings, self.context)
        self.result.ends = storage_audit.repair(self.conn, self.result.findings, self.context)
        self._release()
        self._claim()
        nodes.recount(self.conn, sorted(self.recount | {f.key for f in self.by_kind[audit.USAGE]}))
        for f in self.by_kind[audit.HOST_UNREACHABLE]:
            if f.node_id is None:
                continue  # a storage host: it is entered with the reports
            nodes.record_unreachable(self.conn, str(f.host), str(f.key))
        self._settle()
        self._adopt()
        self._orphans()
        for f in self.by_kind[audit.CLEANUP]:
            self._todo(f.host).remains.append(str(f.instance))
        return self.result

    def _todo(self, host: str | None) -> Todo:
        return self.result.todo.setdefault(str(host), Todo())

    def _release(self) -> None:
        conn = self.conn
        for f in self.by_kind[audit.STALE_CLAIM]:
            claims.release(conn, [str(f.instance)], host=f.host, kind=f.key)
        for part in history.chunks([f.key for f in self.by_kind[audit.DEVICE_CLAIM]]):
            conn.execute(device_claims.delete().where(device_claims.c.id.in_(part)))
        for part in history.chunks([f.key for f in self.by_kind[audit.PORT]]):
            conn.execute(ip_allocations.delete().where(ip_allocations.c.port_id.in_(part)))
            conn.execute(ports_table.delete().where(ports_table.c.id.in_(part)))
        for part in history.chunks([f.key for f in self.by_kind[audit.ADDRESS]]):
            conn.execute(ip_allocations.delete().where(ip_allocations.c.id.in_(part)))

    def _claim(self) -> None:
        c = instances_table.c
        missing = self.by_kind[audit.MISSING_CLAIM]
        group_of: dict[str, str | None] = {}
        for part in history.chunks(sorted({str(f.instance) for f in missing})):
            group_of.update(self.conn.execute(sa.select(c.uuid, c.server_group_id).where(c.uuid.in_(part))).all())
        for f in missing:
            memory_mb, disk_gb, vcpus = f.key
            self.conn.execute(
                claims_table.insert().values(
                    instance_uuid=f.instance,
                    compute_node_id=f.node_id,
                    memory_mb=memory_mb,
                    disk_gb=disk_gb,
                    vcpus=vcpus,
                    created_at=self.context.now,
                    kind=claims.BUILD,
                    server_group_id=group_of.get(str(f.instance)),
                )
            )
        for f in self.by_kind[audit.WRONG_CLAIM]:
            claim_id, (memory_mb, disk_gb, vcpus) = f.key
            self.conn.execute(
                claims_table.update()
                .where(claims_table.c.id == claim_id)
                .values(memory_mb=memory_mb, disk_gb=disk_gb, vcpus=vcpus)
            )
        self.recount.update(
            int(t.cast(int, f.node_id)) for f in [*missing, *self.by_kind[audit.WRONG_CLAIM]] if f.node_id is not None
        )

    def _settle(self) -> None:
        for host in sorted({str(f.host) for f in self.by_kind[audit.DEAD_OPERATION]}):
            snapshot = self.evidence.snapshots[host]
            power_states = {d.uuid: d.power_state for d in snapshot.domains}
            operations.settle(self.conn, host, power_states, snapshot.began_at, self.context)

    def _adopt(self) -> None:
        """What dead runs left is this run's now: they lose every swap, and other runs see who works on it."""
        conn, now = self.conn, self.context.now
        builds = self.by_kind[audit.DEAD_BUILD]
        deletes = self.by_kind[audit.DEAD_DELETE]
        uuids = sorted({str(f.instance) for f in [*builds, *deletes]})
        for part in history.chunks(uuids):
            conn.execute(
                instances_table.update()
                .where(instances_table.c.uuid.in_(part))
                .values(run_id=self.context.run.id, updated_at=now)
            )
        for f in builds:
            if f.host is None:
                rows = instances.select_live(conn, uuids=[str(f.instance)])
                failure.end_in_error(
                    conn, rows, died_error(str(f.instance), {str(f.instance): f.key}), None, self.context
                )
            elif f.action == audit.END:
                self.result.abandoned.setdefault(f.host, []).append(str(f.instance))
            else:
                self._todo(f.host).builds.append(str(f.instance))
        for f in deletes:
            if f.host is not None:
                self._todo(f.host).deleting.append(str(f.instance))

    def _orphans(self) -> None:
        """Through a row of cleanups: no run builds an instance on a host that has one of it."""
        kinds = (audit.ORPHAN_DOMAIN, audit.ORPHAN_FOLDER, audit.ORPHAN_DISK)
        for f in [f for kind in kinds for f in self.by_kind[kind]]:
            uuid = str(f.instance)
            cleanups.add(self.conn, str(f.host), uuid, str(f.key), "an orphan that audit found", self.context.now)
            self._todo(f.host).remains.append(uuid)


def abandon(
    conn: t.Any, host: str, uuids: t.Sequence[str], reason: str, died: t.Mapping[str, str], context: Context
) -> None:
    """Builds of dead runs on a host that does not answer end in ERROR; claim and addresses there stay until it is cleaned.

    :arg died: uuid -> the run that built it.
    """
    failed = {
        u: failure.Failed(died_error(u, died), cleaned=False, cleanup_reason=reason, unreachable=True) for u in uuids
    }
    end_builds(conn, host, failed, context)
    nodes.record_unreachable(conn, host, reason)


def open_todo(conn: t.Any, host: str, todo: Todo, context: Context) -> dict[str, str]:
    """uuid -> name of what ``host`` is still to be rid of, of what repair() said."""
    left = {r.instance_uuid: r.domain_name for r in cleanups.of_host(conn, host)}
    wanted = {u: left[u] for u in todo.remains if u in left}
    mine = {r.uuid: r for r in instances.select_live(conn, uuids=[*todo.builds, *todo.deleting], run_id=context.run.id)}
    for uuid, row in mine.items():
        building = row.vm_state == states.BUILDING and row.host == host
        if row.task_state == states.DELETING or (uuid in todo.builds and building):
            wanted[uuid] = row.domain_name
    return wanted


def builds_cleaned(
    conn: t.Any,
    host: str,
    todo: Todo,
    problems: t.Mapping[str, errors.BootflowError],
    died: t.Mapping[str, str],
    context: Context,
) -> dict[str, str]:
    """Builds of dead runs, whose host was cleaned but for ``problems``, end in ERROR. Returns uuid -> error, or gone."""
    away = (errors.HostUnreachable, errors.HypervisorUnavailable)
    failed = {}
    for uuid in todo.builds:
        problem = problems.get(uuid)
        failed[uuid] = failure.Failed(
            died_error(uuid, died),
            cleaned=problem is None,
            cleanup_reason=problem.message if problem is not None else "",
            unreachable=isinstance(problem, away),
        )
    outcomes = end_builds(conn, host, failed, context)
    gone = [p.message for p in problems.values() if isinstance(p, away)]
    if gone:
        nodes.record_unreachable(conn, host, gone[0])
    return outcomes


def deletes_cleaned(
    conn: t.Any, host: str, todo: Todo, problems: t.Mapping[str, errors.BootflowError], context: Context
) -> None:
    """``host`` is rid of what was being deleted there, but for ``problems``."""
    delete.host_done(conn, host, [u for u in todo.deleting if u not in problems], context)
    delete.host_failed(conn, host, {u: p for u, p in problems.items() if u in todo.deleting}, context)


def remains_cleaned(conn: t.Any, host: str, uuids: t.Sequence[str]) -> None:
    """``host`` is rid of these remains: their claims and addresses go back."""
    instances.select_live(conn, uuids=uuids, lock=True)
    cleanup.finish(conn, host, uuids)


def died_error(uuid: str, runs: t.Mapping[str, str]) -> errors.BuildAbortException:
    """The fault of a build whose run is gone. :arg runs: uuid -> the run that built it."""
    name = runs.get(uuid) or "unknown"
    return errors.BuildAbortException(
        message="Build of instance %s aborted: run %s died while it built it." % (uuid, name),
        remedy="Run the same boot again: it builds the instance anew.",
    )


def end_builds(conn: t.Any, host: str, failed: t.Mapping[str, failure.Failed], context: Context) -> dict[str, str]:
    """ERROR, by the way that failed builds go. The host is not to blame: its failed builds are not counted."""
    context = replace(context, count_failed_builds=False)
    by_event: dict[str, dict[str, failure.Failed]] = defaultdict(dict)
    # all instances are locked before the first node is
    stages = {r.uuid: r.task_state for r in instances.select_live(conn, uuids=list(failed), lock=True)}
    for uuid, how in failed.items():
        by_event[stages.get(uuid) or "schedule"][uuid] = how
    outcomes: dict[str, str] = {}
    for event, part in by_event.items():
        outcomes.update(failure.fail_builds(conn, host, event, part, context))
    return outcomes
