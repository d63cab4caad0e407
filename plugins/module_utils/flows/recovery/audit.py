# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit in the ledger: reading for core.audit.plan, and writing its repairs.

Other runs may change the ledger after a plan. So rows are locked before a repair (in the order of claims), read and
planned again, and only findings that are still in the second plan are repaired.
"""

from __future__ import annotations

import operator
import typing as t
from collections import defaultdict
from dataclasses import asdict, astuple, dataclass, field, replace

from ...core import errors
from ...core.audit import ledger_state
from ...core.audit import plan as audit
from ...core.audit.evidence import Evidence, Snapshot
from ...core.audit.plan import Finding
from ...core.instances import move_life, states
from ...core.instances import moves as core_moves
from ...core.instances.power_states import POWER_STATES
from ...core.instances.power_sync import RESUME
from ...core.resources.claims import Overhead, ResourceRequest, usage_delta
from ...ledger.compute import claims, cleanups, groups, instances, moves, nodes, ports, requests, runs
from ...ledger.compute.instances import InstanceSize
from ...ledger.compute.ports import SuspiciousPort
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.plans import places
from ...ledger.schema.identity import ledger_id
from ..boot import failure
from ..instances import cleanup, delete
from ..instances.operations import BY_TASK_STATE
from ..moves import live_life
from ..moves.cold_life import AT_WORK
from ..moves.evacuate_life import EVACUATE
from ..moves.live_life import LIVE_MIGRATE
from . import dead_builds, dead_runs, operations, power_sync, reservations, storage_audit, volume_audit

#: The parts of a report that are compared with the ledger, in addition to the inventory's settings.
TOTALS = ("memory_mb", "local_gb", "vcpus", "hypervisor_type", "hypervisor_version")


@dataclass
class Todo:
    """Leftovers to clean up on a host, by UUID."""

    builds: list[str] = field(default_factory=list)  # of dead runs, adopted by this run
    deleting: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)  # rows of cleanups

    as_dict = asdict

    def __bool__(self) -> bool:
        return bool(self.builds or self.deleting or self.leftovers)


@dataclass
class Repaired:
    findings: list[Finding] = field(default_factory=list)
    todo: dict[str, Todo] = field(default_factory=dict)  # by host
    abandoned: dict[str, list[str]] = field(default_factory=dict)  # host that does not answer -> builds of dead runs
    complete: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # host -> builds that have ended there -> their dead runs
    ends: dict[str, storage_audit.Ends] = field(default_factory=dict)  # host -> unowned sessions, secrets and targets


# --- reading ------------------------------------------------------------------------------------------------------------


def survey(tx: Transaction, evidence: Evidence) -> ledger_state.Ledger:
    """The ledger as core.audit.plan sees it."""
    cleanup_rows = cleanups.rows(tx)
    unfinished = cleanups.of_dead_builds(tx, cleanup_rows)
    claim_rows = claims.rows(tx)
    port_rows = ports.suspicious(tx)
    device_rows = claims.devices_without_claim(tx)
    open_moves = moves.all_open(tx)
    moving = {m.instance_uuid: m for m in open_moves}
    named = {r.instance_uuid for rows in (cleanup_rows, claim_rows, device_rows) for r in rows}
    named.update(str(r.instance_uuid) for r in port_rows)
    for snapshot in evidence.snapshots.values():
        named.update(d.uuid for d in snapshot.domains)
        named.update(snapshot.folders)
        named.update(snapshot.volumes)
    known_instances = _instances(tx, named, moving)
    contradictory = _contradictory_moves(tx, known_instances, open_moves)
    undecided = {*moving, *(m.instance for m in contradictory)}
    planned = places.planned(tx)
    return ledger_state.Ledger(
        id=ledger_id(tx),
        nodes=_nodes(tx),
        instances=known_instances,
        moves=contradictory,
        claims=[
            ledger_state.Claim(
                r.id,
                r.instance_uuid,
                r.compute_node_id,
                (r.memory_mb, r.disk_gb, r.vcpus),
                of_move=r.kind != claims.BUILD,
                open=r.instance_uuid in (planned if r.kind == claims.PLAN else undecided) and r.kind != claims.BUILD,
            )
            for r in claim_rows
        ],
        devices=[ledger_state.Device(r.id, r.instance_uuid, r.compute_node_id, r.kind, r.device) for r in device_rows],
        ports=_ports(tx, port_rows),
        lost_addresses=ports.addresses_without_port(tx),
        cleanups=[
            ledger_state.Cleanup(
                r.host,
                r.instance_uuid,
                r.domain_name,
                r.reason,
                r.part != cleanups.ALL,
                (r.host, r.instance_uuid) in unfinished,
            )
            for r in cleanup_rows
        ],
        groups=[ledger_state.Group(*g) for g in groups.without_members(tx)],
        reservations=_reservations(tx, evidence),
    )


def plan(tx: Transaction, evidence: Evidence) -> list[Finding]:
    """The findings for the current state of the ledger. Writes nothing."""
    again = power_sync.restarted(tx, {host: _report(s) for host, s in evidence.snapshots.items()})
    findings = audit.plan(survey(tx, evidence), replace(evidence, restarted=again))
    return findings + volume_audit.plan(tx, evidence) + storage_audit.plan(tx, evidence)


def hosts_named(tx: Transaction) -> list[str]:
    """Every host that the ledger knows."""
    return sorted(nodes.hosts(tx) | cleanups.hosts(tx) | instances.hosts_with_instances(tx))


def columns_of(facts: t.Mapping[str, t.Any], configuration: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The columns that a report will write, as far as the audit compares them."""
    columns = {
        "memory_mb": facts["memory_mb"],
        "local_gb": facts["local_gb"],
        "vcpus": facts["vcpus"],
        "hypervisor_type": facts.get("hypervisor_type") or "QEMU",
        "hypervisor_version": facts.get("hypervisor_version") or 0,
    }
    return {**columns, **{k: configuration[k] for k in nodes.CONFIGURATION if k in configuration}}


def _nodes(tx: Transaction) -> list[ledger_state.Node]:
    names = ("unreachable_reason", *TOTALS, *nodes.CONFIGURATION, *audit.USAGE_COLUMNS)
    rows = sorted(nodes.rows(tx, ("id", "host", "node", *names)), key=lambda r: r.id)
    values = operator.attrgetter(*names)
    return [ledger_state.Node(r.id, r.host, r.node, dict(zip(names, values(r)))) for r in rows]


def _instances(
    tx: Transaction, named: t.Collection[str], moving: t.Mapping[str, moves.MoveRow]
) -> dict[str, ledger_state.Instance]:
    rows = instances.living_and(tx, named)
    working = {r.run_id for r in rows.values() if r.run_id and _worked_on(r)}
    dead = runs.dead_among(tx, working)
    built = [r.uuid for r in rows.values() if r.vm_state == states.BUILDING and (not r.run_id or r.run_id in dead)]
    placed = [r for r in instances.select_live(tx, uuids=built) if instances.is_placed(r)] if built else []
    in_ledger = dead_builds.in_ledger(tx, placed) if placed else set()
    overheads = requests.overheads(tx, {r.request_spec_id for r in rows.values()})
    none = Overhead()
    wanted: dict[tuple[t.Any, ...], ledger_state.Amounts] = {}
    audited = {}
    for row in rows.values():
        size = (row.memory_mb, row.vcpus, row.root_gb, row.ephemeral_gb, overheads.get(row.request_spec_id, none))
        if size not in wanted:
            wanted[size] = amounts(*size)
        audited[row.uuid] = ledger_state.Instance(
            uuid=row.uuid,
            name=row.display_name,
            host=row.host,
            node=row.node,
            vm_state=row.vm_state,
            task_state=row.task_state,
            deleted=row.deleted != instances.LIVE,
            touched_at=max(row.updated_at, row.deleted_at or 0.0),
            wanted=wanted[size],
            run=row.run_id or "",
            run_dead=_worked_on(row) and (not row.run_id or row.run_id in dead),
            operation=_operation(row.task_state),
            over=row.uuid in moving and moves.is_at_destination(moving[row.uuid], row.host, row.request_spec_id),
            goes_to=moving[row.uuid].dest_compute if row.uuid in moving and row.task_state == states.MIGRATING else "",
            in_ledger=row.uuid in in_ledger,
        )
    return audited


def _contradictory_moves(
    tx: Transaction, known_instances: t.Mapping[str, ledger_state.Instance], open_moves: t.Sequence[moves.MoveRow]
) -> list[ledger_state.Move]:
    """Return the moves whose statuses contradict the states of their instances.

    Of a live migration without an open move it is the last move: it has ended, and the instance still migrates.
    """
    last = {m.instance_uuid: m for m in open_moves}
    migrating = [i.uuid for i in known_instances.values() if not i.deleted and i.task_state == states.MIGRATING]
    ended = moves.all_of(tx, [u for u in migrating if u not in last])
    last_ended = [all_moves[-1] for all_moves in ended.values() if all_moves]
    # An earlier move of another type ended as it should: the row of the live migration is gone.
    rows = [*open_moves, *(m for m in last_ended if m.migration_type == core_moves.LIVE_MIGRATION)]
    contradictory = []
    for move in rows:
        instance = known_instances.get(move.instance_uuid)
        if instance is None or instance.deleted:
            continue
        kind = move.migration_type
        at_destination = instance.over if instance.uuid in last else instance.host == move.dest_compute
        where = move_life.DESTINATION if at_destination else move_life.SOURCE
        statuses = move_life.open_statuses(kind, instance.vm_state, instance.task_state, where)
        if last.get(instance.uuid, move) is not move:
            statuses = ()  # a later move of the instance is open
        if move.status not in statuses:
            end = core_moves.FAILED if kind == core_moves.EVACUATION else core_moves.ERROR
            contradictory.append(ledger_state.Move(move.id, instance.uuid, move.status, statuses or (end,)))
    return contradictory


def _operation(task_state: str | None) -> str:
    """The operation that a host's report settles; "" for none."""
    if task_state == EVACUATE.during:
        return EVACUATE.name
    if task_state == LIVE_MIGRATE.during:
        return LIVE_MIGRATE.name
    if task_state in AT_WORK:
        return "revert_resize" if task_state == states.RESIZE_REVERTING else "resize"
    return BY_TASK_STATE[task_state].name if task_state in BY_TASK_STATE else ""


def amounts(memory_mb: int, vcpus: int, root_gb: int, ephemeral_gb: int, overhead: Overhead) -> ledger_state.Amounts:
    """(memory, disk, vCPUs) of an instance's claim, as in the scheduler."""
    overhead_amounts = astuple(overhead)
    delta = usage_delta(ResourceRequest(memory_mb, root_gb + ephemeral_gb, vcpus, *overhead_amounts))
    return delta.memory_mb_used, delta.local_gb_used, delta.vcpus_used


def _reservations(tx: Transaction, evidence: Evidence) -> dict[str, list[dict[str, str]]]:
    hosts = [host for host, snapshot in evidence.snapshots.items() if snapshot.domains]
    return {uuid: needed for guests in reservations.of_hosts(tx, hosts).values() for uuid, needed in guests.items()}


def _worked_on(row: InstanceSize) -> bool:
    working = row.vm_state == states.BUILDING or row.task_state in (
        states.DELETING,
        states.MIGRATING,
        *dead_runs.SETTLED,
    )
    return row.deleted == instances.LIVE and working


def _ports(tx: Transaction, rows: t.Sequence[SuspiciousPort]) -> list[ledger_state.Port]:
    addresses = ports.addresses_of(tx, [r.id for r in rows])
    return [
        ledger_state.Port(
            r.id,
            str(r.instance_uuid),
            r.host,
            r.position == ports.HELD,
            tuple(addresses.get(r.id, ())),
            leaving=r.position <= ports.LEAVING,
        )
        for r in rows
    ]


# --- writing ------------------------------------------------------------------------------------------------------------


def repair(tx: Transaction, planned: t.Sequence[Finding], evidence: Evidence) -> Repaired:
    """Repair in the ledger what was ``planned`` and is still different. Two audits take turns.

    This run adopts the builds of dead runs; ``todo`` has the hosts to clean before their claims are released (cleaned),
    ``abandoned`` instances that cannot be cleaned (abandon), and ``complete`` instances that are not cleaned (dead_builds.settle_builds).
    """
    runs.renew(tx)
    take_turns(tx, "audit", ["repair"])
    todo = [f for f in planned if f.changes]
    empty = [f for f in todo if f.kind == audit.SERVER_GROUP]
    take_turns(tx, "project", [f.key[1] for f in empty])  # no instance joins a group meanwhile
    uuids = {f.instance for f in todo if f.instance is not None}
    instances.lock(tx, uuids)
    more = storage_audit.volumes_to_lock(tx, todo)
    volume_audit.lock(tx, [f for f in todo if f.kind in (audit.VOLUME, audit.ATTACHMENT)], uuids - {None}, more)
    still_empty = {group_id for group_id, _name, _project in groups.without_members(tx)} if empty else set()
    empty = [f for f in empty if f.key[0] in still_empty]
    groups.forget_unused(tx, [f.key[0] for f in empty])
    storage_audit.lock(tx, todo)
    nodes.lock(tx, {f.node_id for f in todo if f.node_id is not None})
    known = {_identity(f) for f in todo}
    now = [f for f in plan(tx, evidence) if not f.changes or _identity(f) in known]
    return _Repair(tx, [*now, *empty], evidence).run()


def record_power_states(tx: Transaction, evidence: Evidence) -> list[Finding]:
    """Write what the hosts said of their guests: power states, and the stop of instances whose guests are off. Returns what differed.

    No guest loses its power by that: the playbook power_sync does it.
    """
    snapshots = evidence.snapshots.items()
    synced = power_sync.sync(tx, {h: _report(s) for h, s in snapshots})
    return [_power(f, synced) for f in synced.differences if f.action or f.uuid in synced.written]


def _report(snapshot: Snapshot) -> power_sync.Report:
    power_states = {d.uuid: d.power_state for d in snapshot.domains}
    return power_sync.Report(snapshot.began_at, power_states, snapshot.boot_id, snapshot.resumes)


def _power(difference: power_sync.Difference, synced: power_sync.Synced) -> Finding:
    place = (audit.POWER_STATE, difference.host, difference.uuid)
    if difference.uuid in synced.stopped:
        return Finding(*place, "vm_state", difference.vm_state, states.STOPPED, audit.SETTLE)
    does = "starts" if difference.action == RESUME else "stops"
    remedy = "bootflow.compute.power_sync %s the guest." % does if difference.action else ""
    old, new = POWER_STATES[difference.power_state], POWER_STATES[difference.reported]
    action = audit.RECORD if difference.uuid in synced.written else audit.REPORT
    return Finding(*place, "power_state", old, new, action, remedy)


def _identity(finding: Finding) -> tuple[str, str | None, str | None, str]:
    return (finding.kind, finding.host, finding.instance, finding.what)


class _Repair:
    def __init__(self, tx: Transaction, findings: t.Sequence[Finding], evidence: Evidence):
        self.tx = tx
        self.evidence = evidence
        self.context = tx.context
        self.result = Repaired(findings=list(findings))
        self.by_kind: dict[str, list[Finding]] = defaultdict(list)
        for finding in findings:
            if finding.changes:
                self.by_kind[finding.kind].append(finding)
        self.recount: set[int] = set()

    def run(self) -> Repaired:
        volume_audit.repair(self.tx, self.result.findings)
        self.result.ends = storage_audit.repair(self.tx, self.result.findings)
        self._release()
        self._claim()
        nodes.recount(self.tx, sorted(self.recount | {f.key for f in self.by_kind[audit.USAGE]}))
        for finding in self.by_kind[audit.HOST_UNREACHABLE]:
            if finding.node_id is None:
                continue  # a storage host: entered with the reports
            nodes.record_unreachable(self.tx, str(finding.host), str(finding.key))
        self._settle_operations()
        self._adopt()
        self._orphans()
        for finding in self.by_kind[audit.CLEANUP]:
            self._todo(finding.host).leftovers.append(str(finding.instance))
        return self.result

    def _todo(self, host: str | None) -> Todo:
        return self.result.todo.setdefault(str(host), Todo())

    def _release(self) -> None:
        tx = self.tx
        for finding in self.by_kind[audit.STALE_CLAIM]:
            place = {(str(finding.host), str(finding.instance))}
            if finding.key != audit.OF_MOVE:
                claims.release_on(tx, place)
            elif not claims.release_moves(tx, place):
                claims.release_planned(tx, [str(finding.instance)])
        claims.forget_devices(tx, [f.key for f in self.by_kind[audit.DEVICE_CLAIM]])
        ports.remove(tx, [f.key for f in self.by_kind[audit.PORT]])
        ports.remove_addresses(tx, [f.key for f in self.by_kind[audit.ADDRESS]])

    def _claim(self) -> None:
        missing = self.by_kind[audit.MISSING_CLAIM]
        group_of = instances.groups_of(self.tx, [str(f.instance) for f in missing])
        for finding in missing:
            uuid, node_id = str(finding.instance), int(t.cast(int, finding.node_id))
            claims.restore(self.tx, uuid, node_id, finding.key, group_of.get(uuid))
        for finding in self.by_kind[audit.WRONG_CLAIM]:
            claim_id, amounts_ = finding.key
            claims.correct(self.tx, claim_id, amounts_)
        self.recount.update(f.node_id for f in [*missing, *self.by_kind[audit.WRONG_CLAIM]] if f.node_id is not None)

    def _settle_operations(self) -> None:
        hosts = {str(f.host) for f in self.by_kind[audit.DEAD_OPERATION]}
        # One host's word may not do: the other one's is heard before and after it.
        for host in [*sorted(hosts), *sorted(live_life.hosts_to_ask(self.tx) if hosts else ())]:
            if host not in self.evidence.snapshots:
                continue  # what it knows waits
            snapshot = self.evidence.snapshots[host]
            report = _report(snapshot)
            rescued = [d.uuid for d in snapshot.domains if d.rescued]
            restarted = host in power_sync.restarted(self.tx, {host: report})
            moving = {d.uuid: d.moving for d in snapshot.domains if d.moving}
            operations.settle_operations(
                self.tx, host, report.power_states, snapshot.began_at, rescued, restarted, moving, snapshot.at_work
            )
            # What a resize there left is all that an instance is still to become: it cannot be started before.
            parts = [c.instance_uuid for c in cleanups.of_host(self.tx, host) if c.part != cleanups.ALL]
            known = {f.instance for f in self.by_kind[audit.CLEANUP] if f.host == host}
            if set(parts) - known:
                self._todo(host).leftovers.extend(sorted(set(parts) - known))

    def _adopt(self) -> None:
        """Adopt what dead runs left: they lose every swap, and other runs see the new owner."""
        tx, now = self.tx, self.context.now
        builds = self.by_kind[audit.DEAD_BUILD]
        deletes = self.by_kind[audit.DEAD_DELETE]
        uuids = sorted({str(f.instance) for f in [*builds, *deletes]})
        instances.write(tx, uuids, run_id=self.context.run.id, updated_at=now)
        for finding in builds:
            if finding.host is None:
                rows = instances.select_live(tx, uuids=[str(finding.instance)])
                failure.end_in_error(
                    tx, rows, failure.died_error(str(finding.instance), {str(finding.instance): finding.key}), None
                )
            elif finding.action in (audit.ADOPT, audit.KEEP):
                self.result.complete.setdefault(finding.host, {})[str(finding.instance)] = str(finding.key)
            elif finding.action == audit.END:
                self.result.abandoned.setdefault(finding.host, []).append(str(finding.instance))
            else:
                self._todo(finding.host).builds.append(str(finding.instance))
        for finding in deletes:
            if finding.host is not None:
                self._todo(finding.host).deleting.append(str(finding.instance))

    def _orphans(self) -> None:
        """Enter orphans as cleanups, because no run builds an instance on a host with a cleanup of it."""
        kinds = (audit.ORPHAN_DOMAIN, audit.ORPHAN_FOLDER, audit.ORPHAN_DISK)
        for finding in [f for kind in kinds for f in self.by_kind[kind]]:
            uuid = str(finding.instance)
            cleanups.add(self.tx, cleanups.Due(str(finding.host), uuid, str(finding.key), "an orphan that audit found"))
            self._todo(finding.host).leftovers.append(uuid)


def abandon(tx: Transaction, host: str, uuids: t.Sequence[str], reason: str, died: t.Mapping[str, str]) -> None:
    """End builds of dead runs on a silent host in ERROR; claim and addresses there stay until it is cleaned.

    :arg died: uuid -> the run that built it.
    """
    failed = {
        u: failure.Failed(failure.died_error(u, died), cleaned=False, cleanup_reason=reason, unreachable=True)
        for u in uuids
    }
    failure.end_builds(tx, host, failed)
    nodes.record_unreachable(tx, host, reason)


def open_todo(tx: Transaction, host: str, todo: Todo) -> dict[str, str]:
    """uuid -> name of what repair() listed and still has to be cleaned up on ``host``."""
    open_cleanups = {r.instance_uuid: r.domain_name for r in cleanups.of_host(tx, host)}
    wanted = {u: open_cleanups[u] for u in todo.leftovers if u in open_cleanups}
    own_rows = {r.uuid: r for r in instances.select_live(tx, uuids=[*todo.builds, *todo.deleting], run_id=tx.run.id)}
    for uuid, row in own_rows.items():
        building = row.vm_state == states.BUILDING and row.host == host
        if row.task_state == states.DELETING or (uuid in todo.builds and building):
            wanted[uuid] = row.domain_name
    return wanted


def builds_cleaned(
    tx: Transaction,
    host: str,
    todo: Todo,
    problems: t.Mapping[str, errors.BootflowError],
    died: t.Mapping[str, str],
) -> dict[str, str]:
    """End builds of dead runs in ERROR after their host was cleaned, except ``problems``. Returns uuid -> error, or gone."""
    away = (errors.HostUnreachable, errors.HypervisorUnavailable)
    failed = {}
    for uuid in todo.builds:
        problem = problems.get(uuid)
        failed[uuid] = failure.Failed(
            failure.died_error(uuid, died),
            cleaned=problem is None,
            cleanup_reason=problem.message if problem is not None else "",
            unreachable=isinstance(problem, away),
        )
    outcomes = failure.end_builds(tx, host, failed)
    silent_messages = [p.message for p in problems.values() if isinstance(p, away)]
    if silent_messages:
        nodes.record_unreachable(tx, host, silent_messages[0])
    return outcomes


def deletes_cleaned(tx: Transaction, host: str, todo: Todo, problems: t.Mapping[str, errors.BootflowError]) -> None:
    """Complete deletions on ``host``, except ``problems``."""
    done = [u for u in todo.deleting if u not in problems]
    delete.removed(tx, {host: done}, {u: (host, p) for u, p in problems.items() if u in todo.deleting})


def leftovers_cleaned(tx: Transaction, host: str, uuids: t.Sequence[str], partly: cleanup.Parts | None = None) -> None:
    """These leftovers were removed from ``host``: release their claims and addresses. :arg partly: see cleanup.finish()"""
    instances.select_live(tx, uuids=uuids, lock=True)
    cleanup.finish(tx, {host: uuids}, partly)
