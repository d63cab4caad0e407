# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of attachments: read, locked with their volumes, and changed from state to state.

Only apply() writes attach_status, export and connection, by the events of core.volumes.attachment. Writing an
attachment requires the lock of its volume.
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import states as vm_states
from ...core.volumes import attachment, names, states
from ...core.volumes.attachment import BEGUN, DONE, ENDING, NONE, Event, State
from ...core.volumes.connectors.registry import DEFAULT
from ...core.volumes.pool_hosts import extract_host
from ..compute import runs
from ..compute.history import LastFault
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..fast.compiled_statement import CompiledStatement
from ..schema.tables import cleanups, instances
from ..schema.volume_tables import volume_attachments
from ..schema.volume_tables import volumes as volumes_table
from . import volume_history, volumes
from .volumes import LIVE, Owned, VolumeRow

_a = volume_attachments.c
_v = volumes_table.c

OWN = ""  # of the attachment that an instance has; a second one has the id of the first there

OwnedRow = t.TypeVar("OwnedRow", bound=Owned)


class Attachment(t.NamedTuple):
    """A row of volume_attachments."""

    id: str
    volume_id: str
    instance_uuid: str
    attach_status: str
    attach_mode: str
    mountpoint: str | None
    delete_on_termination: bool
    attached_host: str | None
    connector: str | None
    initiator: str | None
    storage_host: str | None
    export: str
    connection: str
    iqn: str | None
    lun: int | None
    portals: list[str] | None
    connection_info: dict[str, t.Any] | None
    device_path: str | None
    rescan: bool
    beside: str
    run_id: str | None
    created_at: float
    attached_at: float | None
    deleted: str

    @property
    def state(self) -> State | None:
        return State(self.attach_status, self.export, self.connection) if self.deleted == LIVE else None


class Connector(t.NamedTuple):
    """A compute host's access to volumes. ``kind``: the name of its ConnectorType."""

    host: str  # the inventory's name
    initiator: str  # IQN
    kind: str = DEFAULT.name


class Reservation(t.NamedTuple):
    """A volume to reserve for an instance. ``ready``: the volume exists. ``on_second_host``: the instance has it on another host, too."""

    volume_id: str
    instance_uuid: str
    mountpoint: str | None
    delete_on_termination: bool = False
    mode: str = "rw"
    storage_host: str | None = None
    ready: bool = False
    on_second_host: bool = False


# --- reading --------------------------------------------------------------------------------------------------------


def select(
    tx: Transaction,
    ids: t.Iterable[str] | None = None,
    volume_ids: t.Iterable[str] | None = None,
    instance_uuids: t.Iterable[str] | None = None,
    attached_host: str | None = None,
    run_id: str | None = None,
    attach_statuses: t.Collection[str] | None = None,
    connected: bool | None = None,
    on_second_host: bool | None = None,
    lock: bool = False,
    ended: bool = False,
) -> list[Attachment]:
    """The live attachments that meet every given condition, by volume and id.

    :arg connected: whether their compute hosts are connected, or may be.
    :arg on_second_host: only attachments on second hosts, or without them.
    :arg lock: lock the rows of their volumes, by id, until the transaction ends.
    :arg ended: include ended ones.
    """
    conditions = [] if ended else [_a.deleted == LIVE]
    for column, values in ((_a.id, ids), (_a.volume_id, volume_ids), (_a.instance_uuid, instance_uuids)):
        if values is not None:
            conditions.append(bulk.among(tx, column, sorted(set(values))))
    if attached_host is not None:
        conditions.append(_a.attached_host == attached_host)
    if run_id is not None:
        conditions.append(_a.run_id == run_id)
    if attach_statuses is not None:
        conditions.append(_a.attach_status.in_(sorted(attach_statuses)))
    if connected is not None:
        conditions.append(_a.connection != NONE if connected else _a.connection == NONE)
    if on_second_host is not None:
        conditions.append(_a.beside != OWN if on_second_host else _a.beside == OWN)
    return _locked(tx, *conditions) if lock else _select(tx, *conditions)


def _select(tx: Transaction, *conditions: sa.ColumnElement[bool]) -> list[Attachment]:
    query = sa.select(volume_attachments).where(*conditions).order_by(_a.volume_id, _a.id)
    return [Attachment(*row) for row in tx.execute(query)]


def _locked(tx: Transaction, *conditions: sa.ColumnElement[bool]) -> list[Attachment]:
    ids = sorted({r.volume_id for r in _select(tx, *conditions)})
    if not ids:
        return []
    volumes.select(tx, ids=ids, lock=True)
    return _select(tx, *conditions)


def of_instances(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, list[Attachment]]:
    """uuid -> its own live attachments by mountpoint; instances without any are left out."""
    attachments: dict[str, list[Attachment]] = {}
    for row in select(tx, instance_uuids=uuids, on_second_host=False):
        attachments.setdefault(row.instance_uuid, []).append(row)
    for rows in attachments.values():
        rows.sort(key=lambda r: (len(r.mountpoint or ""), r.mountpoint or "", r.id))
    return attachments


def of_volumes(tx: Transaction, volume_ids: t.Iterable[str]) -> dict[str, list[Attachment]]:
    """volume id -> its live attachments."""
    attachments: dict[str, list[Attachment]] = {}
    for row in select(tx, volume_ids=volume_ids):
        attachments.setdefault(row.volume_id, []).append(row)
    return attachments


def volumes_of(tx: Transaction, rows: t.Iterable[Attachment]) -> dict[str, VolumeRow]:
    """volume id -> its row, of the volumes of these attachments."""
    ids = sorted({r.volume_id for r in rows})
    return {v.id: v for v in volumes.select(tx, ids=ids)} if ids else {}


def lock(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """Lock the volumes of these instances until the transaction ends, before any node is locked."""
    select(tx, instance_uuids=instance_uuids, lock=True)


def connected_to(tx: Transaction, instance_uuid: str, host: str) -> bool:
    """Whether ``host`` may still use a volume of the instance."""
    return bool(select(tx, instance_uuids=[instance_uuid], attached_host=host, connected=True))


def check_not_locked(tx: Transaction, volume: VolumeRow, rows: t.Sequence[Attachment]) -> None:
    """:raises VolumeLocked: another live run works on one of these attachments."""
    alive = volumes.live_runs(tx, rows)
    for row in rows:
        if row.run_id in alive:
            raise errors.VolumeLocked(**runs.locked_error(tx, volume.name or volume.id, row.run_id).details)


def zones_of(tx: Transaction, instance_uuids: t.Iterable[str]) -> dict[str, str | None]:
    """uuid -> the zone of its volumes, if one is already on a backend."""
    zones: dict[str, str | None] = {}
    attached_to = of_instances(tx, instance_uuids)
    known = volumes_of(tx, [r for rows in attached_to.values() for r in rows])
    for uuid, rows in attached_to.items():
        placed = [known[r.volume_id] for r in rows if r.volume_id in known and known[r.volume_id].pool_host]
        if placed:
            zones[uuid] = placed[0].availability_zone
    return zones


def storage_hosts(tx: Transaction, instance_uuids: t.Sequence[str]) -> list[str]:
    """The storage hosts of these instances' placed volumes."""
    query = (
        sa.select(_v.pool_host)
        .join(volume_attachments, _a.volume_id == _v.id)
        .where(bulk.among(tx, _a.instance_uuid, instance_uuids), _a.deleted == LIVE, _v.pool_host.is_not(None))
        .distinct()
    )
    pool_hosts = tx.execute(query).scalars() if instance_uuids else ()
    return sorted({extract_host(pool_host, "host") for pool_host in pool_hosts})


def last_fault(tx: Transaction, volume_ids: t.Sequence[str]) -> LastFault | None:
    """The newest fault of these volumes as plain data, or None."""
    faults = volume_history.last_faults(tx, volume_ids) if volume_ids else {}
    return max(faults.values(), key=lambda f: f["created_at"], default=None)


# --- writing --------------------------------------------------------------------------------------------------------


def apply(
    tx: Transaction,
    rows: t.Sequence[Attachment],
    event: Event,
    values_by_id: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    **fields: t.Any,
) -> list[Attachment]:
    """Apply ``event`` to these attachments, whose volumes are locked. Returns them afterwards.

    UPDATE volume_attachments SET <parts of the state, fields> WHERE id = <id>, for all of them at once.

    :arg fields: columns written with it; ``values_by_id``: attachment id -> its own columns.
    :raises VolumeAttachmentConflict: the state of one does not admit the event; nothing is written then.
    """
    if not rows:
        return []
    written = []
    for row in rows:
        values = {**event.clears, **fields, **(values_by_id or {}).get(row.id, {})}
        if not set(event.needs) <= set(values) or set(State._fields) & set(values):
            raise ValueError("event %s is written with %s" % (event.name, ", ".join(event.needs) or "no field"))
        ended = {"deleted": row.id} if event.last else {}
        written.append({"id": row.id, **event.after(row.state, row.id)._asdict(), **values, **ended})
    unchanged = set(State._fields) - {part for rule in event.rules for part in rule.to}
    bulk.update(
        tx,
        volume_attachments,
        "id",
        [{n: v for n, v in values_of_row.items() if n not in unchanged} for values_of_row in written],
    )
    return [row._replace(**values) for row, values in zip(rows, written)]


def reserve(tx: Transaction, reservations: t.Sequence[Reservation]) -> list[str]:
    """Enter attachments of this run. Returns their ids, in order."""
    if not reservations:
        return []
    now = tx.now
    reserved = attachment.RESERVE.after(None)
    ready = attachment.VOLUME_READY.after(reserved)
    ids = [tx.new_id() for _reservation in reservations]
    rows = [
        Attachment(
            id=own_id,
            volume_id=reservation.volume_id,
            instance_uuid=reservation.instance_uuid,
            attach_mode=reservation.mode,
            mountpoint=reservation.mountpoint,
            delete_on_termination=reservation.delete_on_termination,
            attached_host=None,
            connector=None,
            initiator=None,
            storage_host=reservation.storage_host,
            iqn=None,
            lun=None,
            portals=None,
            connection_info=None,
            device_path=None,
            rescan=False,
            beside=own_id if reservation.on_second_host else OWN,
            run_id=tx.run.id,
            created_at=now,
            attached_at=None,
            deleted=LIVE,
            **(ready if reservation.ready else reserved)._asdict(),
        )
        for own_id, reservation in zip(ids, reservations)
    ]
    tx.execute(volume_attachments.insert(), [r._asdict() for r in rows])
    details = [(r.volume_id, {"instance_uuid": r.instance_uuid}) for r in rows]
    volume_history.notify_each(tx, details, "volume.attach.start")
    return [r.id for r in rows]


def volumes_ready(tx: Transaction, volume_ids: t.Iterable[str]) -> None:
    """Mark existing volumes that a build waits for as attaching."""
    rows = select(tx, volume_ids=volume_ids, attach_statuses=(states.RESERVED,), lock=True)
    ids = sorted({r.volume_id for r in rows})
    if ids:
        moved = volumes.swap(tx, ids, {"status": (states.AVAILABLE,)}, status=states.ATTACHING)
        apply(tx, [r for r in rows if r.volume_id in moved], attachment.VOLUME_READY)


def take_ownership(tx: Transaction, ids: t.Iterable[str]) -> None:
    """Make this run the owner of these attachments."""
    _set_owner(tx, ids, tx.run.id)


def release_ownership(tx: Transaction, ids: t.Iterable[str]) -> None:
    """Leave the rest of these attachments to the next run that works on their hosts."""
    _set_owner(tx, ids, None)  # an ended attachment has no owner


def _set_owner(tx: Transaction, ids: t.Iterable[str], run_id: str | None) -> None:
    listed = sorted(set(ids))
    if listed:
        tx.execute(volume_attachments.update().where(bulk.among(tx, _a.id, listed)).values(run_id=run_id))


# --- exports ---------------------------------------------------------------------------------------------------------


def hosts_to_export(tx: Transaction) -> set[str]:
    """Storage hosts with exports to create for this run."""
    query = sa.select(_v.pool_host).join(volume_attachments, _a.volume_id == _v.id).where(*_wanted(tx), _exportable())
    return {extract_host(pool_host, "host") for pool_host in tx.execute(query.distinct()).scalars()}


def to_export(tx: Transaction, host: str) -> list[Attachment]:
    """Attachments that storage host ``host`` has to export for this run, locked."""
    on_host = _v.pool_host.startswith(host + "@", autoescape=True)
    return _locked(tx, *_wanted(tx), _a.volume_id.in_(sa.select(_v.id).where(_exportable(), on_host)))


def _wanted(tx: Transaction) -> tuple[sa.ColumnElement[bool], ...]:
    """Attachments to export for this run: those with an initiator."""
    return (
        _a.deleted == LIVE,
        _a.run_id == tx.run.id,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING, states.ATTACHED)),
        _a.export.in_((NONE, BEGUN)),
        _a.attached_host.is_not(None),
        _a.initiator.is_not(None),
    )


def _exportable() -> sa.ColumnElement[bool]:
    """Volumes that can be exported: existing ones, also while they grow or an image is made of them, and after they could not grow."""
    usable = (
        states.AVAILABLE, states.ATTACHING, states.IN_USE, states.EXTENDING, states.ERROR_EXTENDING, states.UPLOADING,
    )  # fmt: skip
    return sa.and_(_v.deleted == LIVE, _v.pool_host.is_not(None), _v.made.is_(True), _v.status.in_(usable))


def hosts_to_unexport(tx: Transaction) -> set[str]:
    """Return storage hosts with targets to remove, whose compute hosts are disconnected; without targets of other live runs."""
    query = sa.select(_a.storage_host, _a.run_id).where(*_unwanted()).distinct()
    return {r.storage_host for r in _free(tx, list(tx.execute(query)))}


def to_unexport(tx: Transaction, host: str) -> list[Attachment]:
    """Return attachments that storage host ``host`` has to stop exporting, locked; without attachments of other live runs."""
    return _free(tx, _locked(tx, _a.storage_host == host, *_unwanted()))


def left_to_unexport(tx: Transaction) -> list[Attachment]:
    """Return the attachments that the next run with work on their storage host stops exporting: no run is at it."""
    return _select(tx, *_unwanted(), _a.run_id.is_(None))


def _unwanted() -> tuple[sa.ColumnElement[bool], ...]:
    return _a.deleted == LIVE, _a.export == ENDING, _a.connection == NONE, _a.storage_host.is_not(None)


def _free(tx: Transaction, rows: t.Sequence[OwnedRow]) -> list[OwnedRow]:
    dead = runs.dead_among(tx, {r.run_id for r in rows if r.run_id})
    return [r for r in rows if r.run_id is None or r.run_id == tx.run.id or r.run_id in dead]


def exported_of(tx: Transaction, volume_ids: t.Iterable[str]) -> dict[str, list[Attachment]]:
    """volume id -> the attachments that its target admits, or may admit."""
    attachments: dict[str, list[Attachment]] = {}
    exported_volumes = bulk.among(tx, _a.volume_id, sorted(set(volume_ids)))
    for row in _select(tx, _a.deleted == LIVE, exported_volumes, _a.export.in_((BEGUN, DONE))):
        attachments.setdefault(row.volume_id, []).append(row)
    return attachments


# --- compute hosts ---------------------------------------------------------------------------------------------------


def instances_to_bind(tx: Transaction) -> dict[str, tuple[str, str]]:
    """uuid -> (host, node) of this run's instances whose attachments are bound to another host, or to none."""
    return {uuid: (host, node) for uuid, host, node in _TO_BIND.tuples(tx, {"run": tx.run.id})}


_TO_BIND = CompiledStatement(
    sa.select(instances.c.uuid, instances.c.host, instances.c.node)
    .join(volume_attachments, _a.instance_uuid == instances.c.uuid)
    .where(
        _a.run_id == sa.bindparam("run"),
        _a.deleted == LIVE,
        _a.beside == OWN,
        sa.or_(*(_a.attach_status == status for status in (*attachment.ON_THE_WAY, states.ATTACHED))),
        instances.c.run_id == sa.bindparam("run"),
        instances.c.host.is_not(None),
        sa.or_(_a.attached_host.is_(None), _a.attached_host != instances.c.host),
    )
    .distinct()
    .order_by(instances.c.uuid)
)


def set_zone(tx: Transaction, volume: VolumeRow, zone: str) -> None:
    """Set the zone of a volume that is not placed yet."""
    values = {"availability_zone": zone, "spec": {**volume.spec, "availability_zone": zone}, "updated_at": tx.now}
    tx.execute(volumes_table.update().where(_v.id == volume.id).values(**values))


def shared_on(tx: Transaction, host: str, volume_ids: t.Collection[str], uuids: t.Collection[str]) -> set[str]:
    """The volumes that other instances use through the same session of ``host``.

    Not if each guest logs in by itself. source: Nova's _should_disconnect_target
    """
    rows = select(tx, volume_ids=volume_ids, attached_host=host, connected=True) if volume_ids else []
    others = [r for r in rows if r.instance_uuid not in set(uuids)]
    return {r.volume_id for r in others if r.initiator != names.attachment_initiator(r.id)}


def hosts_to_clean_first(tx: Transaction) -> list[str]:
    """Hosts with a pending cleanup that may still use a volume, which cannot be reserved again before they are clean."""
    due = {(r.host, r.instance_uuid) for r in tx.execute(sa.select(cleanups.c.host, cleanups.c.instance_uuid))}
    uuids = {uuid for _host, uuid in due}
    rows = select(tx, instance_uuids=uuids, attach_statuses=(states.DETACHED,), connected=True) if due else []
    return sorted({r.attached_host for r in rows if r.attached_host and (r.attached_host, r.instance_uuid) in due})


def exported_or_connected(tx: Transaction, volume_ids: t.Collection[str]) -> set[str]:
    """The volumes that are, or may be, exported by a storage host or connected to a compute host."""
    if not volume_ids:
        return set()
    used = sa.or_(_a.export != NONE, _a.connection != NONE)
    query = sa.select(_a.volume_id).where(bulk.among(tx, _a.volume_id, volume_ids), _a.deleted == LIVE, used)
    return set(tx.execute(query).scalars())


_GROWN = (_a.deleted == LIVE, _a.rescan.is_(True), _a.connection == DONE, _a.attach_status == states.ATTACHED)


def mark_grown(tx: Transaction, volume_ids: t.Sequence[str]) -> None:
    """Mark extended volumes: the hosts of their guests have to update the size."""
    if not volume_ids:
        return
    connected = sa.or_(_a.attach_status == states.ATTACHED, sa.and_(_a.beside != OWN, _a.connection != NONE))
    connected_attachments = (bulk.among(tx, _a.volume_id, volume_ids), _a.deleted == LIVE, connected)
    tx.execute(volume_attachments.update().where(*connected_attachments).values(rescan=True))


def to_rescan(tx: Transaction, host: str) -> list[Attachment]:
    """Attachments on ``host`` whose volumes were extended by any run. A host that is not connected sees the size when it connects."""
    return _select(tx, _a.attached_host == host, *_GROWN)


def too_small(tx: Transaction, volume_ids: t.Sequence[str]) -> list[Attachment]:
    """Attachments of these volumes, which were extended, whose guests do not have the new size yet."""
    return _select(tx, bulk.among(tx, _a.volume_id, volume_ids), *_GROWN) if volume_ids else []


def rescanned(tx: Transaction, ids: t.Sequence[str]) -> None:
    """Clear the mark: host and guest see the new size."""
    tx.execute(volume_attachments.update().where(bulk.among(tx, _a.id, list(ids))).values(rescan=False))


# --- of ended runs ---------------------------------------------------------------------------------------------------


def of_other_runs(tx: Transaction) -> list[Attachment]:
    """Return attachments owned by other runs, live or dead; without attachments of migrations, which are settled with these."""
    settled = sa.or_(_a.beside == OWN, _a.attach_status == states.DETACHED)
    return _select(tx, _a.deleted == LIVE, _a.run_id.is_not(None), _a.run_id != tx.run.id, settled)


def not_attached(tx: Transaction) -> list[Attachment]:
    """This run's unfinished attachments to existing instances, locked."""
    query = (
        sa.select(_a.id)
        .join(instances, _a.instance_uuid == instances.c.uuid)
        .where(
            _a.run_id == tx.run.id,
            _a.deleted == LIVE,
            _a.beside == OWN,
            _a.attach_status.in_(attachment.ON_THE_WAY),
            instances.c.vm_state.not_in((vm_states.BUILDING, vm_states.ERROR)),
        )
    )
    return select(tx, ids=tx.execute(query).scalars().all(), run_id=tx.run.id, lock=True)


def stale_detachments(tx: Transaction, words: t.Collection[str]) -> list[Attachment]:
    """Return attachments of these volumes (names or ids) that are to end, without attachments of other live runs, locked."""
    named = sorted({str(word) for word in words})
    query = (
        sa.select(_a.id, _a.run_id)
        .join(volumes_table, _v.id == _a.volume_id)
        .where(
            _a.deleted == LIVE,
            _a.beside == OWN,  # the others are ended where their hosts are cleaned
            _a.attach_status == states.DETACHED,
            bulk.any_among(tx, volumes_table, {"id": named, "name": named}),
        )
    )
    stale_rows = _free(tx, list(tx.execute(query))) if named else []
    before = {r.id: r.run_id for r in stale_rows}
    return [r for r in select(tx, ids=before, lock=True) if r.run_id == before[r.id]] if before else []


# --- for the audit ----------------------------------------------------------------------------------------------------


def of_volumes_or_hosts(
    tx: Transaction, volume_ids: t.Collection[str], storage_hosts: t.Collection[str]
) -> list[Attachment]:
    """The live attachments of these volumes, and all exports of these storage hosts."""
    wanted = {"volume_id": sorted(volume_ids), "storage_host": sorted(storage_hosts)}
    return _select(tx, _a.deleted == LIVE, bulk.any_among(tx, volume_attachments, wanted))


def without_instance(tx: Transaction) -> list[tuple[Attachment, str]]:
    """(attachment, name of the domain) of instances that are deleted, or failed before they ran.

    SELECT a.*, i.domain_name FROM volume_attachments a LEFT JOIN instances i ON i.uuid = a.instance_uuid
    WHERE a is alive AND (i.uuid IS NULL OR i is deleted OR (i.vm_state = 'error' AND i.launched_at IS NULL))
    """
    i = instances.c
    never_ran = sa.and_(i.vm_state == vm_states.ERROR, i.launched_at.is_(None))
    query = (
        sa.select(volume_attachments, i.domain_name)
        .outerjoin(instances, i.uuid == _a.instance_uuid)
        .where(_a.deleted == LIVE, sa.or_(i.uuid.is_(None), i.deleted != LIVE, never_ran))
        .order_by(_a.id)
    )
    return [(Attachment(*row[:-1]), row[-1] or "") for row in tx.execute(query)]


def volume_ids(tx: Transaction, ids: t.Collection[str], instance_uuids: t.Iterable[str]) -> set[str]:
    """The volumes of these live attachments, and of these instances' attachments."""
    wanted = {"id": sorted(ids), "instance_uuid": sorted(set(instance_uuids))}
    query = sa.select(_a.volume_id).where(_a.deleted == LIVE, bulk.any_among(tx, volume_attachments, wanted))
    return set(tx.execute(query).scalars())
