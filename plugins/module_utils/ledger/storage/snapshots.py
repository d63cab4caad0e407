# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshot rows: reading and writing them. A snapshot keeps the run that made it; its status says whether one works on it."""

from __future__ import annotations

import typing as t

from ...core.reading.setting import canonical
from ...core.volumes import states
from ...core.volumes.model import Snapshot
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.volume_tables import SNAPSHOTS_AT_WORK
from ..schema.volume_tables import volume_snapshots as table
from ..schema.volume_tables import volumes as volumes_table
from . import volumes
from .volumes import LIVE, PlacedVolume, VolumeRow

# A run works on a snapshot in one of these: that of its run_id, unless the run is dead.
BUSY = (states.CREATING, states.DELETING)

_s = table.c
_v = volumes_table.c


class SnapshotPlace:
    """Place and state of a snapshot, as located() reads them. ``size``: of its volume when it was created, in GB."""

    id: str
    name: str | None
    volume_id: str
    pool_host: str | None  # of its volume
    size: int
    status: str
    updated_at: float
    deleted_at: float | None
    deleted: str
    run_id: str | None


class SnapshotRow:
    """A row of volume_snapshots. Sizes are GB, times seconds since the epoch."""

    id: str
    volume_id: str
    project: str
    user_name: str
    name: str | None
    description: str
    volume_size: int  # of its volume when it was created
    volume_type: str | None
    status: str
    pending_gb: int  # what it takes of its backend, as far as no report includes it
    meta: dict[str, t.Any]
    run_id: str | None
    created_at: float
    updated_at: float
    deleted_at: float | None
    deleted: str  # "" while it lives, its id afterwards


# --- reading -------------------------------------------------------------------------------------------------------------


def select(
    tx: Transaction,
    ids: t.Iterable[str] | None = None,
    names: t.Iterable[str] | None = None,
    project: str | None = None,
    volume_ids: t.Iterable[str] | None = None,
    statuses: t.Iterable[str] | None = None,
    run_id: str | None = None,
    lock: bool = False,
) -> list[SnapshotRow]:
    """Rows of the live snapshots that meet every given condition, by id.

    :arg lock: lock the rows until the transaction ends. Their volumes, if known, have to be locked before.
    """
    among = {"id": ids, "name": names, "volume_id": volume_ids}
    query = volumes.living(tx, table, among, {"project": project, "run_id": run_id}, statuses, (table,))
    return tx.rows(query.with_for_update() if lock else query, SnapshotRow)


def find(tx: Transaction, words: t.Sequence[str], project: str | None) -> dict[str, SnapshotRow]:
    """Word -> the live snapshot of that id (capitals or not), else of that name; words without a snapshot are left out."""
    rows = volumes.by_word(tx, table, SnapshotRow, words, project)
    snapshots_by_word = {r.name: r for r in rows if r.name is not None and r.name in words}
    by_id = {r.id: r for r in rows}
    snapshots_by_word.update({w: by_id[canonical(w)] for w in words if canonical(w) in by_id})
    return snapshots_by_word


def with_deleted(tx: Transaction, ids: t.Iterable[str]) -> list[SnapshotRow]:
    """Rows of these snapshots, deleted or not."""
    return tx.rows(sa.select(table).where(bulk.among(tx, _s.id, sorted(set(ids)))), SnapshotRow)


def of_run(tx: Transaction) -> list[SnapshotRow]:
    """All snapshots that this run wrote last, deleted or not, by id. Locked."""
    query = sa.select(table).where(_s.run_id == tx.run.id).order_by(_s.id)
    return tx.rows(query.with_for_update(), SnapshotRow)


def volume_ids(tx: Transaction, ids: t.Iterable[str]) -> dict[str, str]:
    """Id of a snapshot, deleted or not -> id of its volume."""
    query = sa.select(_s.id, _s.volume_id).where(bulk.among(tx, _s.id, sorted(set(ids))))
    return {r.id: r.volume_id for r in tx.execute(query)}


def located(tx: Transaction, ids: t.Iterable[str], volume_ids: t.Iterable[str] = ()) -> list[SnapshotPlace]:
    """Places and states of snapshots: these, deleted or not, and all live ones of these volumes; by id.

    SELECT s.*, v.pool_host FROM volume_snapshots s JOIN volumes v ON v.id = s.volume_id WHERE s.id IN (...)
    and the same WHERE s.volume_id IN (...) AND s is alive
    """
    columns = {**_s, "pool_host": _v.pool_host, "size": _s.volume_size.label("size")}
    query = sa.select(*(columns[name] for name in SnapshotPlace.__annotations__)).join(
        volumes_table, _v.id == _s.volume_id
    )
    places = {r.id: r for r in tx.rows(query.where(bulk.among(tx, _s.id, sorted(set(ids)))), SnapshotPlace)}
    of_volumes = sorted(set(volume_ids))
    if of_volumes:
        live_places = query.where(_s.deleted == LIVE, bulk.among(tx, _s.volume_id, of_volumes))
        places.update({r.id: r for r in tx.rows(live_places, SnapshotPlace)})
    return [places[i] for i in sorted(places)]


def at_work_in(tx: Transaction, pool_hosts: t.Iterable[str], lock: bool) -> list[tuple[SnapshotRow, PlacedVolume]]:
    """(snapshot, its volume) of the snapshots that this run creates or deletes in these pools."""
    wanted = set(pool_hosts)
    # SELECT s.id, s.volume_id FROM volumes v JOIN volume_snapshots s ON v.id = s.volume_id
    # WHERE s is alive and busy AND s.run_id = :run AND v.pool_host IN (:pools)
    work_conditions = (_s.run_id == tx.run.id, _s.deleted == LIVE, _s.status.in_(BUSY))
    join_query = sa.select(_s.id, _s.volume_id).join(volumes_table, _v.id == _s.volume_id)
    snapshot_ids = list(tx.execute(join_query.where(*work_conditions, bulk.among(tx, _v.pool_host, sorted(wanted)))))
    if not snapshot_ids:
        return []
    ids = {r.volume_id for r in snapshot_ids}
    placed_volumes = {
        v.id: v for v in volumes.select(tx, ids=ids, lock=lock) if volumes.is_placed(v) and v.pool_host in wanted
    }
    rows = select(tx, ids=[r.id for r in snapshot_ids], run_id=tx.run.id, statuses=BUSY, lock=lock)
    return [(r, placed_volumes[r.volume_id]) for r in rows if r.volume_id in placed_volumes]


def pool_hosts_at_work(tx: Transaction) -> set[str]:
    """Pools in which this run has snapshots to create or to delete."""
    query = (
        sa.select(_v.pool_host)
        .join(table, _s.volume_id == _v.id)
        .where(_s.run_id == tx.run.id, _s.deleted == LIVE, _s.status.in_(BUSY))
    )
    return {p for p in tx.execute(query.distinct()).scalars() if p}


def at_work_by_others(tx: Transaction) -> list[SnapshotRow]:
    """Snapshots that other runs, live or dead, create or delete."""
    others = (_s.run_id.is_not(None), _s.run_id != tx.run.id)
    return tx.rows(sa.select(table).where(sa.text(SNAPSHOTS_AT_WORK), *others), SnapshotRow)


def to_snapshot(row: SnapshotRow, volume: VolumeRow) -> Snapshot:
    """The row in the form of core's rules. :arg volume: the row of its volume."""
    return Snapshot(
        id=row.id,
        volume_size=row.volume_size,
        name=row.name or "",
        status=row.status,
        volume_type=row.volume_type,
        availability_zone=volume.availability_zone,
        host=volume.pool_host,
    )


# --- writing -------------------------------------------------------------------------------------------------------------


def insert(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Enter new snapshots."""
    if rows:
        tx.execute(table.insert(), rows)


def update(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Write each mapping, all with the same columns, to the snapshot of its id."""
    bulk.update(tx, table, "id", [{**row, "updated_at": tx.now} for row in rows])


def take_ownership(tx: Transaction, ids: t.Collection[str], **values: t.Any) -> None:
    """Make this run the owner of these snapshots. :arg values: columns written with it."""
    volumes.own(tx, table, ids, **values)
