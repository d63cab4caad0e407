# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volume and snapshot rows: selecting them, and moving their states by compare-and-swap.

source: Cinder's conditional_update (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...core import errors
from ...core.volumes import states
from ...core.volumes.model import Attachment, Snapshot, Volume, VolumeRequest
from ...core.volumes.pool_hosts import extract_host
from ..compute import runs
from ..context import Context
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import volume_attachments, volume_snapshots
from ..schema.tables import volumes as table

LIVE = ""  # value of the column `deleted` while a volume, snapshot or attachment lives

# Somebody is at work on a volume in one of these: the run in its run_id, unless that is dead.
BUSY = (
    states.CREATING,
    states.DOWNLOADING,
    states.ATTACHING,
    states.DETACHING,
    states.DELETING,
    states.EXTENDING,
)

Row = t.Any


def select(
    conn: t.Any,
    ids: t.Iterable[str] | None = None,
    names: t.Iterable[str] | None = None,
    project: str | None = None,
    statuses: t.Iterable[str] | None = None,
    run_id: str | None = None,
    pool_host: str | None = None,
    instance_uuids: t.Iterable[str] | None = None,
    lock: bool = False,
    pool_hosts: t.Iterable[str] | None = None,
    columns: t.Sequence[t.Any] = (table,),
) -> list[Row]:
    """Rows of the living volumes that meet every condition given, by id.

    :arg lock: keep others from writing them until the transaction ends. For whoever writes what it decided from these rows.
    :arg columns: what the rows are to have, where that is not all.
    """
    c = table.c
    query = sa.select(*columns).where(c.deleted == LIVE).order_by(c.id)
    for column, values in ((c.id, ids), (c.name, names), (c.instance_uuid, instance_uuids), (c.pool_host, pool_hosts)):
        if values is not None:
            query = query.where(bulk.among(conn, column, sorted(set(values))))
    if statuses is not None:
        query = query.where(c.status.in_(sorted(set(statuses))))
    for column, value in ((c.project, project), (c.run_id, run_id), (c.pool_host, pool_host)):
        if value is not None:
            query = query.where(column == value)
    return list(conn.execute(query.with_for_update() if lock else query))


def to_volume(row: Row) -> Volume:
    """The row as the rules read it."""
    return Volume(
        id=row.id,
        size=row.size,
        name=row.name or "",
        description=row.description,
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
        project=row.project,
        user=row.user_name,
        metadata=dict(row.meta),
        image_metadata=dict(row.image_metadata),
        previous_status=row.previous_status,
        created_at=row.created_at,
        scheduled_at=row.scheduled_at,
        launched_at=row.launched_at,
    )


def to_request(row: Row) -> VolumeRequest:
    """What the scheduler reads."""
    request = VolumeRequest.from_dict(row.spec)
    return replace(request, volume_id=row.id, size=row.size, retry=row.retry)


def attachments_of(conn: t.Any, ids: t.Iterable[str]) -> dict[str, list[Attachment]]:
    """volume id -> its attachments that are not over; a volume without any is left out."""
    c = volume_attachments.c
    found: dict[str, list[Attachment]] = {}
    query = sa.select(volume_attachments).where(c.deleted == LIVE, bulk.among(conn, c.volume_id, sorted(set(ids))))
    for row in conn.execute(query.order_by(c.volume_id, c.id)):
        found.setdefault(row.volume_id, []).append(
            Attachment(
                id=row.id,
                volume_id=row.volume_id,
                instance_uuid=row.instance_uuid,
                attached_host=row.attached_host,
                mountpoint=row.mountpoint,
                attach_status=row.attach_status,
                attach_mode=row.attach_mode,
            )
        )
    return found


def swap(
    conn: t.Any,
    ids: t.Iterable[str],
    expected: t.Mapping[str, t.Collection[t.Any]],
    now: float,
    owner: str | None = None,
    **values: t.Any,
) -> set[str]:
    """Write ``values`` to those of the volumes whose fields have one of the values ``expected`` of them (core's
    Transition.expected), and which run ``owner`` has, when given. Returns the ids that moved; the others lost the swap.
    """
    c = table.c
    conditions = [c.deleted == LIVE, bulk.among(conn, c.id, sorted(set(ids)))]
    conditions += [_one_of(name, allowed) for name, allowed in expected.items()]
    if owner is not None:
        conditions.append(c.run_id == owner)
    query = sa.select(c.id).where(*conditions).order_by(c.id).with_for_update()
    moved = list(conn.execute(query).scalars())
    if moved:
        conn.execute(table.update().where(bulk.among(conn, c.id, moved)).values(updated_at=now, **values))
    return set(moved)


def _one_of(name: str, allowed: t.Collection[t.Any]) -> t.Any:
    if name not in table.c:
        return sa.true() if None in allowed else sa.false()  # what this ledger has none of, such as groups
    column = table.c[name]
    named = column.in_([value for value in allowed if value is not None])
    return sa.or_(named, column.is_(None)) if None in allowed else named


def find(conn: t.Any, words: t.Sequence[str], project: str | None) -> tuple[dict[str, Row], list[str]]:
    """As resolve(), with the words that there is no volume of."""
    rows = _by_word(conn, table, words, project)
    by_id = {r.id: r for r in rows}
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        if row.name:
            by_name.setdefault(row.name, []).append(row)
    found: dict[str, Row] = {}
    for word in words:
        named = by_name.get(word, [])
        if word not in by_id and len(named) > 1:
            raise errors.InvalidInput(
                reason="%s is in the projects %s" % (word, ", ".join(sorted(r.project for r in named))),
                remedy="Say which with bootflow_project, or give the UUID.",
            )
        if word in by_id or named:
            found[word] = by_id.get(word) or named[0]
    return found, [w for w in words if w not in found]


def _by_word(conn: t.Any, of: t.Any, words: t.Sequence[str], project: str | None) -> list[Row]:
    c = of.c
    if not words:
        return []
    wanted = sa.or_(bulk.among(conn, c.id, words), bulk.among(conn, c.name, words))
    query = sa.select(of).where(c.deleted == LIVE, wanted).order_by(c.id)
    return list(conn.execute(query if project is None else query.where(c.project == project)))


# --- snapshots -----------------------------------------------------------------------------------------------------------


def snapshots(
    conn: t.Any,
    ids: t.Iterable[str] | None = None,
    names: t.Iterable[str] | None = None,
    project: str | None = None,
    volume_ids: t.Iterable[str] | None = None,
    statuses: t.Iterable[str] | None = None,
    run_id: str | None = None,
    lock: bool = False,
) -> list[Row]:
    """Rows of the living snapshots that meet every condition given, by id.

    :arg lock: their volumes' rows are to be locked already, where they are known.
    """
    c = volume_snapshots.c
    query = sa.select(volume_snapshots).where(c.deleted == LIVE).order_by(c.id)
    for column, values in ((c.id, ids), (c.name, names), (c.volume_id, volume_ids)):
        if values is not None:
            query = query.where(bulk.among(conn, column, sorted(set(values))))
    if statuses is not None:
        query = query.where(c.status.in_(sorted(set(statuses))))
    for column, value in ((c.project, project), (c.run_id, run_id)):
        if value is not None:
            query = query.where(column == value)
    return list(conn.execute(query.with_for_update() if lock else query))


def find_snapshots(conn: t.Any, words: t.Sequence[str], project: str | None) -> dict[str, Row]:
    """Word -> the living snapshot of that id, else of that name; words that there is none of are left out."""
    rows = _by_word(conn, volume_snapshots, words, project)
    found = {r.name: r for r in rows if r.name in words}
    found.update({r.id: r for r in rows if r.id in words})
    return found


def to_snapshot(row: Row, volume: Row) -> Snapshot:
    """The row as the rules read it. :arg volume: the row of its volume."""
    return Snapshot(
        id=row.id,
        volume_id=row.volume_id,
        volume_size=row.volume_size,
        name=row.name or "",
        description=row.description,
        status=row.status,
        volume_type=row.volume_type,
        availability_zone=volume.availability_zone,
        host=volume.pool_host,
        bootable=volume.bootable,
        project=row.project,
        user=row.user_name,
        metadata=dict(row.meta),
        created_at=row.created_at,
    )


# --- who works on them ---------------------------------------------------------------------------------------------------


def host_of(pool_host: str) -> str:
    """The storage host of a pool_host."""
    return extract_host(pool_host, "host")


def live_runs(conn: t.Any, rows: t.Iterable[Row], context: Context) -> set[str]:
    """Runs of these rows that are alive, without this one."""
    named = {r.run_id for r in rows if r.run_id and r.run_id != context.run.id}
    return named - runs.dead_among(conn, named, context.run, context.now)


def locked_error(conn: t.Any, row: Row) -> errors.VolumeLocked:
    """The refusal for a volume or snapshot that a live run works on."""
    by_instances = runs.locked_error(conn, row.name or row.id, row.run_id)
    return errors.VolumeLocked(**by_instances.details)
