# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning of a live migration: which instances may migrate, and to which hosts. live_life has what follows.

source: Nova's compute.api.API.live_migrate and LiveMigrationTask
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances import moves, states
from ...core.instances.power_states import POWER_STATES
from ...core.reading.nearest import suggestion
from ...core.scheduler.options import SchedulerOptions
from ...core.volumes.connectors.registry import CONNECTOR_TYPES
from ...core.volumes.names import normal_name
from ...ledger.compute import claims, history, instances, nodes
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.claims import Candidate
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ...ledger.storage.attachments import Attachment, Connector
from ..attachments import life, migration_attachments, moving
from ..instances import elsewhere, operation
from ..instances.operation import Selection
from . import live_pins
from .live_life import LIVE_MIGRATE, PRE, Result, end_migration, finish, load
from .moving_instance import MovingInstance
from .place import Mover, ReadFleet, claim, give_up_planned


@dataclass(frozen=True)
class Wanted:
    """The live migrations that a run asks for."""

    selection: Selection
    known_hosts: t.Collection[str]
    backends: t.Mapping[str, str]  # host -> its backend of local disks
    to_host: str | None = None  # None: the scheduler chooses
    inventory: t.Collection[str] | None = None  # hosts that plays reach, the storage hosts among them; None: any host
    to_hosts: t.Mapping[str, str] = field(default_factory=dict)  # uuid -> its host, in place of to_host
    planned: t.Collection[str] = ()  # uuids for which a plan holds these hosts

    def host_for(self, uuid: str) -> str | None:
        """Return the requested host of an instance; None: the scheduler chooses."""
        return self.to_hosts.get(uuid, self.to_host)


@dataclass
class Begun:
    """The live migrations that a run has begun, and the instances that do not migrate."""

    moving: list[MovingInstance] = field(default_factory=list)  # owned by this run
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)  # uuid -> why there is no host for it
    rows: dict[str, Instance] = field(default_factory=dict)  # of all selected instances
    # Instances of ``moving`` whose destinations are to be connected to their volumes.
    with_volumes: set[str] = field(default_factory=set)


# --- begin --------------------------------------------------------------------------------------------------------------


def check(tx: Transaction, wanted: Wanted) -> None:
    """Check states and hosts as begin() does, before any host is contacted. Writes nothing.

    :raises BootflowError: see begin().
    """
    _select_movable(tx, wanted, operation.select(tx, wanted.selection, lock=False, operation=LIVE_MIGRATE))


def begin(
    tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions, connectors: life.Connectors
) -> Begun:
    """Begin to migrate the selected instances: all of them, or with an error none. As in Nova, an instance without a valid host fails alone.

    :arg connectors: raises an error for a host that cannot connect to volumes. Instances with volumes whose destination it is fail, too.
    :raises BootflowError: see operation.begin(). :raises MoveNotSupported: one has disks or devices of its host.
    :raises UnableToMigrateToSelf, ComputeHostNotFound: the requested host is not possible.
    """
    rows = operation.select(tx, wanted.selection, operation=LIVE_MIGRATE)
    movers = _select_movable(tx, wanted, rows)
    return _begin_movable(tx, rows, movers, read_fleet, options, connectors, wanted.planned)


def _begin_movable(
    tx: Transaction,
    rows: t.Sequence[Instance],
    movers: t.Mapping[str, Mover],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
    connectors: life.Connectors,
    planned: t.Collection[str] = (),
) -> Begun:
    """Begin to migrate the instances of ``movers``, which are among the locked ``rows``. :arg planned: see Wanted"""
    begun = Begun(rows={r.uuid: r for r in rows})
    if not movers:
        return begun
    moving.adopt(tx, list(movers))  # before any node is locked
    operation.start(tx, LIVE_MIGRATE, [m.row for m in movers.values()])
    sources = {u: m.row.host for u, m in movers.items()}
    history.start_events_on(tx, sources, LIVE_MIGRATE.name)
    history.notify_each(tx, {u: {"host": sources[u]} for u in sorted(sources)}, "compute.instance.%s.start" % PRE)
    give_up_planned(tx, set(movers).intersection(planned))
    hosts = claim(tx, list(movers.values()), read_fleet, options)
    begun.failed = {u: h for u, h in hosts.items() if isinstance(h, errors.BootflowError)}
    _enter_migrations(tx, [(movers[u].row, h) for u, h in hosts.items() if isinstance(h, Candidate)])
    operation.finish(tx, LIVE_MIGRATE, {u: operation.Outcome(error=e) for u, e in begun.failed.items()})
    moving.release_moved(tx, begun.failed)
    placed = load(tx, sorted(set(movers) - set(begun.failed)))
    ends, without = _destination_connectors(tx, placed, connectors)
    for moving_instance in placed:
        if moving_instance.uuid in without:
            end_migration(tx, moving_instance, without[moving_instance.uuid], states.NOSTATE, cleaned=True)
    begun.failed.update(without)
    begun.moving = [m for m in placed if m.uuid not in without]
    begun.with_volumes = migration_attachments.reserve_on_destination(tx, ends)
    return begun


@dataclass(frozen=True)
class Refusal:
    """The refusal of an instance by its destination, before anything of the guest was touched."""

    result: Result
    hosts: t.Collection[str]  # all hosts that refused the instance in this run


def retry_elsewhere(
    tx: Transaction,
    wanted: Wanted,
    refused: t.Mapping[str, Refusal],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
    connectors: life.Connectors,
) -> Begun:
    """End the migrations of these refused instances, and begin new ones to hosts that have not refused them.

    An instance that may not migrate any more, or for which there is no other host, is in ``failed`` of the result. Its migration has ended.
    source: Nova's LiveMigrationTask._find_destination
    """
    failed = finish(tx, {u: refusal.result for u, refusal in refused.items()})
    ended = [u for u in refused if failed.get(u) is refused[u].result.error]
    rows = instances.select_live(tx, uuids=ended, lock=True) if ended else []
    movers, unfit = sort_out(tx, wanted, rows)
    movers = {u: replace(m, barred={*m.barred, *refused[u].hosts}) for u, m in movers.items()}
    begun = _begin_movable(tx, rows, movers, read_fleet, options, connectors)
    begun.failed.update(unfit)
    begun.failed.update({u: e for u, e in failed.items() if u not in ended})
    return begun


def _destination_connectors(
    tx: Transaction, placed: t.Sequence[MovingInstance], connectors: life.Connectors
) -> tuple[dict[str, Connector], dict[str, errors.BootflowError]]:
    """Return (uuid -> connector of the destination, uuid -> why it has none), of instances with volumes."""
    attachments_by_uuid = attachments.of_instances(tx, [m.uuid for m in placed]) if placed else {}
    ends: dict[str, Connector] = {}
    without: dict[str, errors.BootflowError] = {}
    for moving_instance in placed:
        if moving_instance.uuid in attachments_by_uuid:
            host, node = moving_instance.move.dest_compute, moving_instance.move.dest_node
            try:
                connector = connectors(host, nodes.node_facts(tx, host, node))
                _check_initiator(connector, attachments_by_uuid[moving_instance.uuid])
            except errors.BootflowError as e:
                without[moving_instance.uuid] = e
            else:
                ends[moving_instance.uuid] = connector
    return ends, without


def _check_initiator(connector: Connector, rows: t.Sequence[Attachment]) -> None:
    """Check that the kernels of both hosts log in under different names, by which a target tells them apart.

    :raises HostLacksHardware: they have one name.
    """
    names = {normal_name(r.initiator) for r in rows if r.initiator}
    if CONNECTOR_TYPES[connector.kind].host_logs_in and normal_name(connector.initiator) in names:
        raise errors.HostLacksHardware(
            host=connector.host,
            model="iSCSI initiator",
            reason="it has the same name (%s) as that of host %s" % (connector.initiator, rows[0].attached_host),
            remedy="Give each host a unique name in /etc/iscsi/initiatorname.iscsi.",
        )


def _select_movable(tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance]) -> dict[str, Mover]:
    """Return uuid -> the instance to migrate.

    :raises BootflowError: one of them cannot be migrated, or the requested host is unknown.
    """
    operation.refuse_unknown(tx, rows, wanted.selection, wanted.known_hosts)
    for host in sorted({h for h in map(wanted.host_for, [r.uuid for r in rows]) if h is not None}):
        if host not in wanted.known_hosts:
            near = suggestion(host, wanted.known_hosts, "The list of compute hosts")
            raise errors.ComputeHostNotFound(host=host, remedy=near)
    movers, refused = sort_out(tx, wanted, rows)
    operation.refuse(list(refused.values()))
    return movers


def sort_out(
    tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance]
) -> tuple[dict[str, Mover], dict[str, errors.BootflowError]]:
    """Return (uuid -> the instance to migrate, uuid -> why the instance cannot be migrated)."""
    dead = operation.dead_runs(tx, rows)
    allocations = claims.allocations_of(tx, [r.uuid for r in rows if r.spec.get("numa_topology")])
    volumes = migration_attachments.refusals(tx, {r.uuid: r.host for r in rows}, wanted.inventory) if rows else {}
    found_elsewhere = elsewhere.refusals(tx, rows)
    versions = {n.host: n.hypervisor_version for n in nodes.rows(tx, ("host", "node", "hypervisor_version"))}
    movers: dict[str, Mover] = {}
    refused: dict[str, errors.BootflowError] = {}
    for row in rows:
        try:
            operation.check(tx, LIVE_MIGRATE, row, dead, wanted.known_hosts)
            if row.uuid in found_elsewhere:
                raise found_elsewhere[row.uuid]
            if LIVE_MIGRATE.is_begun(row.task_state):
                raise errors.InstanceInvalidState(
                    method=LIVE_MIGRATE.called, instance_uuid=row.uuid, attr="task_state", state=row.task_state,
                    remedy="The run that did this is dead: bootflow.compute.audit settles it.",
                )  # fmt: skip
            if not instances.is_placed(row):
                raise errors.InstanceNotReady(instance_id=row.uuid)
            _check_runs(row)
            _check_movable(row, wanted)
            if row.uuid in volumes:
                raise volumes[row.uuid]
        except errors.BootflowError as e:
            refused[row.uuid] = e
            continue
        spec = live_pins.as_it_runs(row.spec, allocations.get(row.uuid, {}).get("numa"))
        movers[row.uuid] = Mover(
            row, spec, _barred_hosts(row, wanted, versions), remedy=_remedy_of_requested(row, wanted, versions)
        )
    chosen = [u for u in movers if wanted.host_for(u) is None]
    past = ledger_moves.all_of(tx, chosen) if chosen else {}
    for uuid in chosen:
        movers[uuid] = replace(movers[uuid], failed=_hosts_that_failed(movers[uuid].row, past[uuid]))
    return movers, refused


def _hosts_that_failed(row: PlacedInstance, past: t.Sequence[MoveRow]) -> tuple[str, ...]:
    """Return the destinations of failed live migrations since the instance is on its host, each once, the last one last.

    source: Nova's LiveMigrationTask._find_destination, which tries others in the same request
    """
    hosts: list[str] = []
    for move in reversed(past):
        if move.status not in (moves.ERROR, moves.CANCELLED) or move.source_compute != row.host:
            break
        if (
            move.status == moves.ERROR
            and move.migration_type == moves.LIVE_MIGRATION
            and move.dest_compute not in hosts
        ):
            hosts.append(move.dest_compute)
    return tuple(reversed(hosts))


def _check_runs(row: Instance) -> None:
    """Check that the guest is not known to be off. Where nothing is known, its host checks it before the migration.

    source: Nova's LiveMigrationTask._check_instance_is_active
    :raises InstanceInvalidState: the guest is off.
    """
    if row.power_state in (states.NOSTATE, states.RUNNING, states.POWER_PAUSED):
        return
    error = errors.InstanceInvalidState(
        method=LIVE_MIGRATE.called, instance_uuid=row.uuid, attr="power_state",
        state=POWER_STATES[row.power_state].lower(),
        remedy="The guest is off: run bootflow.compute.start first, or bootflow.compute.migrate.",
    )  # fmt: skip
    error.details[operation.WHOSE] = row.display_name
    raise error


def _check_movable(row: PlacedInstance, wanted: Wanted) -> None:
    """Check that the instance has no disks or devices of its host, and that the requested host is another one.

    :raises MoveNotSupported, UnableToMigrateToSelf: it cannot be migrated, or not there.
    """
    if wanted.host_for(row.uuid) == row.host:
        raise errors.UnableToMigrateToSelf(instance_id=row.uuid, host=row.host)
    if row.spec.get("whole_disks"):
        reason = "it has whole disks of its host"
    elif row.spec.get("pci_requests"):
        reason = "it has PCI devices of its host, which its guest uses while it runs"
    else:
        return
    raise errors.MoveNotSupported(instance_uuid=row.uuid, reason=reason)


def _barred_hosts(row: PlacedInstance, wanted: Wanted, versions: t.Mapping[str, int]) -> set[str]:
    """Return the hosts with another backend of local disks, or with an older hypervisor; and all but the requested one.

    source: Nova's _check_compatible_with_source_hypervisor
    """
    own_backend = wanted.backends[row.host]
    barred = {h for h, backend in wanted.backends.items() if backend != own_backend}
    barred |= {h for h, version in versions.items() if version < versions.get(row.host, 0)}
    to_host = wanted.host_for(row.uuid)
    if to_host is not None:
        barred |= set(wanted.known_hosts) - {to_host}
    return barred


def _remedy_of_requested(row: PlacedInstance, wanted: Wanted, versions: t.Mapping[str, int]) -> str:
    """Return the remedy where the requested host is among _barred_hosts(), or nothing."""
    to_host = wanted.host_for(row.uuid)
    if to_host is None:
        return ""
    if versions.get(to_host, 0) < versions.get(row.host, 0):
        return "Host %s has an older QEMU than host %s: upgrade QEMU there, or request another host." % (
            to_host,
            row.host,
        )
    if wanted.backends.get(to_host) != wanted.backends[row.host]:
        return "Host %s has another kind of local disks than host %s: request another host." % (to_host, row.host)
    return ""


def _enter_migrations(tx: Transaction, placed: t.Sequence[tuple[PlacedInstance, Candidate]]) -> None:
    """Enter the moves of these instances to these hosts."""
    ledger_moves.add(
        tx,
        [
            {
                "instance_uuid": row.uuid,
                "migration_type": moves.LIVE_MIGRATION,
                "source_compute": row.host,
                "source_node": row.node,
                "dest_compute": to.host,
                "dest_node": to.node,
                "old_request_spec_id": row.request_spec_id,
                "new_request_spec_id": row.request_spec_id,
                "old_vm_state": row.vm_state,
                "source_limits": row.limits,
                "dest_limits": dict(to.limits),
            }
            for row, to in placed
        ],
    )
