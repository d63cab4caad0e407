# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volume rows: reading and writing them, and changing their states by compare-and-swap.

source: Cinder's conditional_update (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...core import errors
from ...core.reading.setting import canonical
from ...core.volumes import quotas, states
from ...core.volumes.model import Volume, VolumeRequest
from ...core.volumes.pool_hosts import extract_host
from ..compute import runs
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.volume_tables import volume_attachments, volume_snapshots
from ..schema.volume_tables import volumes as table

LIVE = ""  # value of the column `deleted` of a live volume, snapshot or attachment

# A volume in one of these is being created; a storage host has work for those in AT_WORK; and a run works on a volume
# that is BUSY: that of its run_id, unless the run is dead.
BEING_CREATED = (states.CREATING, states.DOWNLOADING)
AT_WORK = (*BEING_CREATED, states.DELETING, states.EXTENDING, states.RESERVED)
BUSY = (*AT_WORK, states.ATTACHING, states.DETACHING, states.UPLOADING)

_v = table.c

Row = t.TypeVar("Row")


class Owned(t.Protocol):
    """A row that a run works on, or worked on last: of a volume, a snapshot or an attachment."""

    @property
    def run_id(self) -> str | None: ...


class Named(Owned, t.Protocol):
    """A row of a volume or a snapshot."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def status(self) -> str: ...


class VolumePlace:
    """Place and state of a volume, as located() reads them. Sizes are GB, times seconds since the epoch."""

    id: str
    name: str | None  # None: a boot created it, and its request names none
    pool_host: str | None  # host@backend#pool; None until it is scheduled
    size: int
    status: str
    made: bool  # its logical volume exists
    updated_at: float
    deleted_at: float | None
    deleted: str  # "" while it lives, its id afterwards
    run_id: str | None


class VolumeRow(VolumePlace):
    """A row of volumes, with all columns."""

    project: str
    user_name: str
    description: str
    attach_status: str
    migration_status: str | None
    previous_status: str | None
    bootable: bool
    multiattach: bool
    availability_zone: str | None
    pending_gb: int  # what it takes of its backend, as far as no report includes it
    new_size: int | None  # while it is extended
    volume_type: str | None
    snapshot_id: str | None
    source_volid: str | None
    image_id: str | None
    spec: dict[str, t.Any]  # VolumeRequest.as_dict(), with "image": the catalogue's image as it was
    digest: dict[str, t.Any] | None  # what was requested: whether a request is the same
    meta: dict[str, t.Any]
    image_metadata: dict[str, t.Any]
    retry: dict[str, t.Any] | None
    instance_uuid: str | None  # the instance that it is created for, while that boots
    created_at: float
    scheduled_at: float | None
    launched_at: float | None


class PlacedVolume(VolumeRow):
    """A volume that has a pool."""

    pool_host: str


def is_placed(row: VolumeRow) -> t.TypeGuard[PlacedVolume]:
    return row.pool_host is not None


# --- reading -------------------------------------------------------------------------------------------------------------


def select(
    tx: Transaction,
    ids: t.Iterable[str] | None = None,
    names: t.Iterable[str] | None = None,
    project: str | None = None,
    statuses: t.Iterable[str] | None = None,
    run_id: str | None = None,
    instance_uuids: t.Iterable[str] | None = None,
    lock: bool = False,
    pool_hosts: t.Iterable[str] | None = None,
    columns: t.Sequence[sa.FromClause | sa.ColumnElement[t.Any]] = (table,),
) -> list[VolumeRow]:
    """Rows of the live volumes that meet every given condition, by id.

    :arg lock: lock the rows until the transaction ends, for writes that depend on them.
    :arg columns: the columns of the rows; by default all.
    """
    among = {"id": ids, "name": names, "instance_uuid": instance_uuids, "pool_host": pool_hosts}
    query = living(tx, table, among, {"project": project, "run_id": run_id}, statuses, columns)
    return tx.rows(query.with_for_update() if lock else query, VolumeRow)


def living(
    tx: Transaction,
    rows_table: sa.Table,
    among: t.Mapping[str, t.Iterable[str] | None],
    equal: t.Mapping[str, str | None],
    statuses: t.Iterable[str] | None,
    columns: t.Sequence[sa.FromClause | sa.ColumnElement[t.Any]],
) -> sa.Select[t.Any]:
    """A query for the live rows of ``rows_table`` (the table of volumes or snapshots) that meet every condition that is not None, by id."""
    query = sa.select(*columns).where(rows_table.c.deleted == LIVE).order_by(rows_table.c.id)
    for name, values in among.items():
        if values is not None:
            query = query.where(bulk.among(tx, rows_table.c[name], sorted(set(values))))
    if statuses is not None:
        query = query.where(rows_table.c.status.in_(sorted(set(statuses))))
    return query.where(*(rows_table.c[name] == value for name, value in equal.items() if value is not None))


def waits_for_backend(tx: Transaction, run_id: str) -> bool:
    """Whether a volume that this run creates waits for a backend."""
    return any(r.pool_host is None for r in select(tx, statuses=(states.CREATING,), run_id=run_id))


def find(tx: Transaction, words: t.Iterable[str], project: str | None, lock: bool = False) -> dict[str, VolumeRow]:
    """Word -> the live volume of that id (capitals or not), else of that name; words without a volume are left out.

    :arg project: None: of any project. :arg lock: lock the rows until the transaction ends.
    :raises InvalidInput: several projects have a volume of that name.
    """
    wanted = list(dict.fromkeys(words))
    rows = by_word(tx, table, VolumeRow, wanted, project)
    by_id = {r.id: r for r in rows}
    by_name: dict[str, list[VolumeRow]] = {}
    for row in rows:
        if row.name:
            by_name.setdefault(row.name, []).append(row)
    volumes_by_word: dict[str, VolumeRow] = {}
    for word in wanted:
        named, volume_of_id = by_name.get(word, []), by_id.get(canonical(word))
        if volume_of_id is None and len(named) > 1:
            raise errors.InvalidInput(
                reason="volume %s exists in the projects %s" % (word, ", ".join(sorted(r.project for r in named))),
                remedy="Set bootflow_project, or give the UUID.",
            )
        if volume_of_id or named:
            volumes_by_word[word] = volume_of_id or named[0]
    if not lock or not volumes_by_word:
        return volumes_by_word
    locked = {r.id: r for r in select(tx, ids={r.id for r in volumes_by_word.values()}, lock=True)}
    return {word: locked[r.id] for word, r in volumes_by_word.items() if r.id in locked}


def by_word(
    tx: Transaction, rows_table: sa.Table, kind: type[Row], words: t.Sequence[str], project: str | None
) -> list[Row]:
    """The live rows of ``rows_table`` (the table of volumes or snapshots, with rows of ``kind``) whose id or name is one of ``words``, by id.
    UUIDs may have capitals.
    """
    c = rows_table.c
    if not words:
        return []
    wanted = bulk.any_among(tx, rows_table, {"id": sorted({canonical(w) for w in words}), "name": words})
    query = sa.select(rows_table).where(c.deleted == LIVE, wanted).order_by(c.id)
    return tx.rows(query if project is None else query.where(c.project == project), kind)


def located(tx: Transaction, ids: t.Iterable[str], pool_hosts: t.Iterable[str] = ()) -> list[VolumePlace]:
    """Places and states of volumes: these, deleted or not, and all live ones of these pools; by id.

    SELECT ... FROM volumes WHERE id IN (...), and the same WHERE pool_host IN (...) AND it is alive
    """
    query = sa.select(*(_v[name] for name in VolumePlace.__annotations__))
    places = {r.id: r for r in tx.rows(query.where(bulk.among(tx, _v.id, sorted(set(ids)))), VolumePlace)}
    of_pools = sorted(set(pool_hosts))
    if of_pools:
        live_places = query.where(_v.deleted == LIVE, bulk.among(tx, _v.pool_host, of_pools))
        places.update({r.id: r for r in tx.rows(live_places, VolumePlace)})
    return [places[i] for i in sorted(places)]


def deleted_by(tx: Transaction, ids: t.Iterable[str] | None = None) -> list[VolumeRow]:
    """Rows of the volumes that this run deleted, by id. :arg ids: only these."""
    query = sa.select(table).where(_v.run_id == tx.run.id, _v.deleted != LIVE).order_by(_v.id)
    if ids is not None:
        query = query.where(bulk.among(tx, _v.id, sorted(set(ids))))
    return tx.rows(query, VolumeRow)


def being_created_from(
    tx: Transaction, volume_ids: t.Iterable[str] = (), snapshot_ids: t.Iterable[str] = ()
) -> list[tuple[str, str, str | None, str | None]]:
    """(id, name or id, source volume, source snapshot) of the volumes that runs create from these.

    SELECT ... FROM volumes WHERE it is alive and being created AND run_id IS NOT NULL
    AND (source_volid IN (...) OR snapshot_id IN (...))
    """
    of_these = sa.or_(
        bulk.among(tx, _v.source_volid, sorted(set(volume_ids))),
        bulk.among(tx, _v.snapshot_id, sorted(set(snapshot_ids))),
    )
    query = sa.select(_v.id, _v.name, _v.source_volid, _v.snapshot_id).where(
        _v.deleted == LIVE, _v.run_id.is_not(None), _v.status.in_(BEING_CREATED), of_these
    )
    return [(r.id, r.name or r.id, r.source_volid, r.snapshot_id) for r in tx.execute(query)]


def pool_hosts_at_work(tx: Transaction) -> set[str]:
    """Pools whose hosts have work for volumes of this run."""
    work_conditions = (_v.run_id == tx.run.id, _v.deleted == LIVE, _v.pool_host.is_not(None), _v.status.in_(AT_WORK))
    return set(tx.execute(sa.select(_v.pool_host).where(*work_conditions).distinct()).scalars())


def at_work_by_others(tx: Transaction) -> list[VolumeRow]:
    """Volumes for which storage hosts have, or had, work of other runs, live or dead; by id."""
    others = (_v.deleted == LIVE, _v.status.in_(AT_WORK), _v.run_id.is_not(None), _v.run_id != tx.run.id)
    return tx.rows(sa.select(table).where(*others).order_by(_v.id), VolumeRow)


def uploading(tx: Transaction) -> list[VolumeRow]:
    """Volumes of which a run makes an image, live or dead; by id.

    SELECT ... FROM volumes WHERE it is alive AND run_id IS NOT NULL AND status = 'uploading'
    """
    condition = (_v.deleted == LIVE, _v.run_id.is_not(None), _v.status == states.UPLOADING)
    return tx.rows(sa.select(table).where(*condition).order_by(_v.id), VolumeRow)


def without_attachment(tx: Transaction, statuses: t.Collection[str], run_id: str | None = None) -> list[VolumeRow]:
    """Volumes in one of these statuses without a live attachment, by id.

    SELECT * FROM volumes v WHERE it is alive AND status IN (...)
    AND NOT EXISTS (SELECT id FROM volume_attachments WHERE volume_id = v.id AND it is alive)
    """
    a = volume_attachments.c
    attachment = sa.select(a.id).where(a.volume_id == _v.id, a.deleted == LIVE)
    query = sa.select(table).where(_v.deleted == LIVE, _v.status.in_(sorted(statuses)), ~attachment.exists())
    if run_id is not None:
        query = query.where(_v.run_id == run_id)
    return tx.rows(query.order_by(_v.id), VolumeRow)


def usage(tx: Transaction, project: str, no_snapshot_gb_quota: bool = False) -> dict[str, int]:
    """The usage of a project: {volumes, gigabytes, snapshots, and each with _<type>}. A growing volume counts with its new size.

    Usage is counted, not stored: writers hold the project's turn. source: Cinder's quota engine (Queens)

    SELECT volume_type, count(*), sum(coalesce(new_size, size)) FROM volumes WHERE project = :project AND it is alive
    GROUP BY volume_type, and the same of volume_snapshots with sum(volume_size)
    """
    s = volume_snapshots.c
    of_volumes = sa.select(_v.volume_type, sa.func.count(), sa.func.sum(sa.func.coalesce(_v.new_size, _v.size)))
    of_snapshots = sa.select(s.volume_type, sa.func.count(), sa.func.sum(s.volume_size))
    amounts_of_types = []
    for kind, count, gigabytes in tx.execute(
        of_volumes.where(_v.project == project, _v.deleted == LIVE).group_by(_v.volume_type)
    ):
        amounts_of_types.append(
            {**quotas.for_volume(int(gigabytes), kind), **_counted(quotas.VOLUMES, int(count), kind)}
        )
    for kind, count, gigabytes in tx.execute(
        of_snapshots.where(s.project == project, s.deleted == LIVE).group_by(s.volume_type)
    ):
        amounts = quotas.for_snapshot(int(gigabytes), kind, no_snapshot_gb_quota)
        amounts_of_types.append({**amounts, **_counted(quotas.SNAPSHOTS, int(count), kind)})
    return {quotas.VOLUMES: 0, quotas.GIGABYTES: 0, quotas.SNAPSHOTS: 0, **quotas.total(amounts_of_types)}


def _counted(what: str, count: int, kind: str | None) -> dict[str, int]:
    return {what: count, **({"%s_%s" % (what, kind): count} if kind else {})}


def to_volume(row: VolumeRow) -> Volume:
    """The row in the form of core's rules."""
    return Volume(
        id=row.id,
        size=row.size,
        status=row.status,
        attach_status=row.attach_status,
        migration_status=row.migration_status,
        availability_zone=row.availability_zone,
        host=row.pool_host,
        volume_type=row.volume_type,
        snapshot_id=row.snapshot_id,
        source_volid=row.source_volid,
        image_id=row.image_id,
        bootable=row.bootable,
        multiattach=row.multiattach,
    )


def to_request(row: VolumeRow) -> VolumeRequest:
    """The row as a request for the scheduler."""
    request = VolumeRequest.from_dict(row.spec)
    return replace(request, volume_id=row.id, size=row.size, retry=row.retry)


# --- writing -------------------------------------------------------------------------------------------------------------


def insert(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Enter new volumes."""
    if rows:
        tx.execute(table.insert(), rows)


def update(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Write each mapping, all with the same columns, to the volume of its id."""
    bulk.update(tx, table, "id", [{**row, "updated_at": tx.now} for row in rows])


def take_ownership(tx: Transaction, ids: t.Collection[str], **values: t.Any) -> None:
    """Make this run the owner of these volumes. :arg values: columns written with it."""
    own(tx, table, ids, **values)


def own(tx: Transaction, rows_table: sa.Table, ids: t.Collection[str], **values: t.Any) -> None:
    """take_ownership() of rows of the table of volumes or snapshots."""
    if ids:
        condition = bulk.among(tx, rows_table.c.id, ids)
        tx.execute(rows_table.update().where(condition).values(run_id=tx.run.id, updated_at=tx.now, **values))


def swap(
    tx: Transaction,
    ids: t.Iterable[str],
    expected: t.Mapping[str, t.Collection[t.Any]],
    owner: str | None = None,
    **values: t.Any,
) -> set[str]:
    """Write ``values`` to the volumes whose fields have one of their ``expected`` values (core's Transition.expected), and
    whose run is ``owner``, if given. Returns the changed ids; the others lost the swap.
    """
    c = table.c
    conditions = [c.deleted == LIVE, bulk.among(tx, c.id, sorted(set(ids)))]
    conditions += [_one_of(name, allowed) for name, allowed in expected.items()]
    if owner is not None:
        conditions.append(c.run_id == owner)
    query = sa.select(c.id).where(*conditions).order_by(c.id).with_for_update()
    moved = list(tx.execute(query).scalars())
    if moved:
        tx.execute(table.update().where(bulk.among(tx, c.id, moved)).values(updated_at=tx.now, **values))
    return set(moved)


def names(tx: Transaction, ids: t.Collection[str]) -> dict[str, str | None]:
    """id -> name, of live and deleted volumes."""
    c = table.c
    query = sa.select(c.id, c.name).where(bulk.among(tx, c.id, ids))
    return {r.id: r.name for r in tx.execute(query)} if ids else {}


def forget_instance(tx: Transaction, ids: t.Collection[str]) -> None:
    """Clear the instance for which these volumes were created, because it no longer waits for them."""
    if ids:
        tx.execute(table.update().where(bulk.among(tx, table.c.id, sorted(set(ids)))).values(instance_uuid=None))


def _one_of(name: str, allowed: t.Collection[t.Any]) -> sa.ColumnElement[bool]:
    column = table.c[name]
    named = column.in_([value for value in allowed if value is not None])
    return sa.or_(named, column.is_(None)) if None in allowed else named


# --- runs at work --------------------------------------------------------------------------------------------------------


def host_of(pool_host: str) -> str:
    """The storage host of a pool_host."""
    return extract_host(pool_host, "host")


def live_runs(tx: Transaction, rows: t.Iterable[Owned]) -> set[str]:
    """The live runs of these rows, without this one."""
    named = {r.run_id for r in rows if r.run_id and r.run_id != tx.run.id}
    return named - runs.dead_among(tx, named)


def locked_error(tx: Transaction, row: Named) -> errors.VolumeLocked:
    """The error for a volume or snapshot that a live run works on."""
    by_instances = runs.locked_error(tx, row.name or row.id, row.run_id)
    return errors.VolumeLocked(**by_instances.details)
