# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of volumes: making and deleting them. The work itself is volume_work's.

source: Cinder's snapshot API (Queens)
"""

from __future__ import annotations

import math
import typing as t
import uuid as uuid_module
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.reading.formats import to_boolean
from ...core.reading.problems import Problems
from ...core.volumes import quotas, states
from ...core.volumes.request_values import check_length, check_metadata, check_text
from ...ledger.compute import runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.locks import take_turns
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import volume_snapshots as table
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.storage import backends, volume_history, volume_quotas, volume_views, volumes
from .accept import VolumeInputs

PRESENT, ABSENT = "present", "absent"
FIELDS = ("name", "volume", "description", "force", "metadata", "state")
_BUSY = (states.CREATING, states.DELETING)


@dataclass
class SnapshotsBegun:
    """By id of the snapshot, each in one of the lists; what is to be absent and is not there is in none."""

    created: list[str] = field(default_factory=list)
    deleting: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)  # a dead run left them, or making them failed earlier
    hosts: list[str] = field(default_factory=list)  # storage hosts with work


@dataclass(frozen=True)
class _Entry:
    path: str
    name: str
    volume: str = ""
    description: str = ""
    force: bool = False
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    state: str = PRESENT


def begin(
    conn: t.Any, entries: t.Sequence[t.Mapping[str, t.Any]], inputs: VolumeInputs, context: Context
) -> SnapshotsBegun:
    """Write what is new of the entries {name, volume, description, force, metadata, state}, mark what is to go.

    ``volume`` is a name or id. ``force``: a snapshot of a volume in use, as after a power cut; a deletion from any status.

    :raises InvalidRequest: all refusals (SnapshotExists, VolumeLocked, quotas, no room, ...). Nothing is written then.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    take_turns(conn, "project", [inputs.project])
    refusals = Problems()
    wishes = _read(entries, refusals)
    words = list(dict.fromkeys(w.volume for w in wishes if w.volume))
    found, _missing = volumes.find(conn, words, inputs.project)
    there = {r.name: r for r in volumes.snapshots(conn, names=[w.name for w in wishes], project=inputs.project)}
    of = {r.id for r in found.values()} | {r.volume_id for r in there.values()}
    known = {r.id: r for r in volumes.select(conn, ids=of, lock=True)} if of else {}
    there = {r.name: r for r in volumes.snapshots(conn, ids=[r.id for r in there.values()], lock=True)}
    alive = volumes.live_runs(conn, [*there.values(), *known.values()], context)
    sources = _being_read(conn, [r.id for r in there.values()])
    frozen = backends.frozen_pool_hosts(conn)
    result = SnapshotsBegun()
    new: list[tuple[_Entry, t.Any]] = []
    again: list[t.Any] = []
    going: list[t.Any] = []
    for wish in wishes:
        row = there.get(wish.name)
        with refusals.collect(wish.path):
            if row is not None and row.run_id in alive and row.status in _BUSY:
                raise volumes.locked_error(conn, row)
            if wish.state == ABSENT:
                if row is not None:
                    states.check_not_frozen(known[row.volume_id].pool_host in frozen)
                    _check_delete(row, known[row.volume_id], wish.force, sources)
                    going.append(row)
                continue
            volume = known.get(found[wish.volume].id) if wish.volume in found else None
            if row is not None:
                _check_same(row, wish, volume)
                if row.status in (states.CREATING, states.ERROR):
                    again.append(row)
                else:
                    result.unchanged.append(row.id)
                continue
            if volume is None:
                raise errors.VolumeNotFound(volume_id=wish.volume, remedy="volume_list shows which there are.")
            if volume.run_id in alive and volume.status in volumes.BUSY:
                raise volumes.locked_error(conn, volume)
            states.check_snapshot(volumes.to_volume(volume), wish.force, frozen=volume.pool_host in frozen)
            new.append((wish, volume))
    _check_quota(conn, [v for _w, v in new], inputs, refusals)
    room = _take_room(conn, [(w.path, v) for w, v in new], [(r, known[r.volume_id]) for r in again], refusals)
    refusals.raise_if_any()
    result.created = _insert(conn, new, room, context)
    _set(conn, again, context, status=states.CREATING)
    _set(conn, going, context, status=states.DELETING)
    taken = [{"id": r.id, "pending_gb": max(room[r.volume_id], r.pending_gb)} for r in again]
    bulk.update(conn, table, "id", taken)
    result.resumed, result.deleting = [r.id for r in again], [r.id for r in going]
    at_work = [v for _w, v in new] + [known[r.volume_id] for r in again + going]
    result.hosts = sorted({volumes.host_of(v.pool_host) for v in at_work if v.pool_host})
    return result


def finish(conn: t.Any, context: Context) -> dict[str, t.Any]:
    """{"done": what this run made or deleted, "left": what it could not}, as volume_views.snapshots() has them."""
    c = table.c
    now = context.now
    rows = list(conn.execute(sa.select(table).where(c.run_id == context.run.id).order_by(c.id).with_for_update()))
    stuck = [r for r in rows if r.deleted == volumes.LIVE and r.status in _BUSY]
    error = errors.RemoteError(reason="its storage host was not asked, or did not answer")
    ends = {
        states.CREATING: states.status_after("snapshot_create", error),
        states.DELETING: states.status_after("snapshot_delete", error),
    }
    bulk.update(conn, table, "id", [{"id": r.id, "status": ends[r.status], "updated_at": now} for r in stuck])
    faults = [volume_history.Fault((r.volume_id, r.id), error, None) for r in stuck]
    volume_history.add_faults(conn, faults, now)
    shown = volume_views.snapshots(conn, ids=[r.id for r in rows], deleted=True) if rows else []
    good = (states.AVAILABLE, states.DELETED)
    return {"done": [s for s in shown if s["status"] in good], "left": [s for s in shown if s["status"] not in good]}


# --- reading -------------------------------------------------------------------------------------------------------------


def _read(entries: t.Sequence[t.Mapping[str, t.Any]], refusals: Problems) -> list[_Entry]:
    found: list[_Entry] = []
    names: set[str] = set()
    for index, entry in enumerate(entries):
        path = "snapshots[%d]" % index
        with refusals.collect(path):
            if not isinstance(entry, t.Mapping):
                raise errors.InvalidInput(reason="a snapshot is a mapping", remedy="Give name and volume.")
            unknown = sorted(set(map(str, entry)) - set(FIELDS))
            if unknown:
                raise errors.InvalidInput(
                    reason="unknown field %s of a snapshot" % ascii(unknown[0]),
                    remedy="Known: %s." % ", ".join(FIELDS),
                )
            wish = _entry(path, entry)
            if wish.name in names:
                raise errors.InvalidInput(
                    reason="the name %s is asked for twice" % wish.name, remedy="Give each entry a name of its own."
                )
            names.add(wish.name)
            found.append(wish)
    return found


def _entry(path: str, entry: t.Mapping[str, t.Any]) -> _Entry:
    state = entry.get("state") or PRESENT
    if state not in (PRESENT, ABSENT):
        raise errors.InvalidInput(reason="state is %s" % ascii(state), remedy="It is present or absent.")
    try:
        force = to_boolean(entry.get("force") or False)
    except ValueError as e:
        raise errors.InvalidInput(reason="force %s" % e) from None
    volume = check_text(entry.get("volume"), "volume")
    if state == PRESENT and not volume:
        raise errors.InvalidInput(reason="volume is missing", remedy="Name the volume that it is a snapshot of.")
    return _Entry(
        path=path,
        name=check_length(check_text(entry.get("name"), "name"), "name", minimum=1),
        volume=volume,
        description=check_text(entry.get("description"), "description"),
        force=force,
        metadata=check_metadata(entry.get("metadata")),
        state=state,
    )


def _being_read(conn: t.Any, ids: t.Sequence[str]) -> dict[str, str]:
    """Snapshot -> name of a volume that is just being made from it."""
    if not ids:
        return {}
    c = volumes_table.c
    making = c.status.in_((states.CREATING, states.DOWNLOADING))
    query = sa.select(c.snapshot_id, c.name, c.id).where(
        c.deleted == volumes.LIVE, c.run_id.is_not(None), making, bulk.among(conn, c.snapshot_id, ids)
    )
    return {r.snapshot_id: r.name or r.id for r in conn.execute(query)}


def _check_delete(row: t.Any, volume: t.Any, force: bool, sources: t.Mapping[str, str]) -> None:
    if row.status in (states.DELETING, states.ERROR_DELETING):
        return  # it was to go already
    snapshot = volumes.to_snapshot(row, volume)
    if row.status == states.CREATING:
        snapshot = replace(snapshot, status=states.ERROR)  # a dead run left it
    states.check_snapshot_delete(snapshot, force)
    if row.id in sources:
        raise errors.SnapshotIsBusy(
            snapshot_name=row.name or row.id, remedy="Volume %s is being made from it: wait." % sources[row.id]
        )


def _check_same(row: t.Any, wish: _Entry, volume: t.Any) -> None:
    differences = []
    if volume is None or row.volume_id != volume.id:
        differences.append("it is of volume %s, not %s" % (row.volume_id, wish.volume))
    if row.description != wish.description:
        differences.append("its description is %s, not %s" % (row.description or "none", wish.description or "none"))
    if dict(row.meta) != dict(wish.metadata):
        differences.append("its metadata is %s, not %s" % (dict(row.meta), dict(wish.metadata)))
    if differences:
        raise errors.SnapshotExists(name=row.name, reason="; ".join(differences))
    if row.status in (states.DELETING, states.ERROR_DELETING):
        raise errors.InvalidSnapshot(
            reason="Snapshot %s is %s." % (row.name, row.status), remedy="Finish the deletion first: state: absent."
        )


def _check_quota(conn: t.Any, of: t.Sequence[t.Any], inputs: VolumeInputs, refusals: Problems) -> None:
    without = inputs.no_snapshot_gb_quota
    wanted = quotas.total(quotas.for_snapshot(v.size, v.volume_type, without) for v in of)
    if wanted:
        with refusals.collect("quotas"):
            used = volume_quotas.usage(conn, inputs.project, without)
            quotas.check_reserve(wanted, used, inputs.limits, quotas.SNAPSHOTS)


def _take_room(
    conn: t.Any, new: t.Sequence[tuple[str, t.Any]], again: t.Sequence[tuple[t.Any, t.Any]], refusals: Problems
) -> dict[str, int]:
    """Volume id -> GB that a snapshot of it takes. Thick ones are checked against what is free; a thin one takes nothing yet."""
    of = [v for _p, v in new] + [v for _r, v in again]
    if not of:
        return {}
    pools = {s.host: s for s in backends.pool_states(conn, lock=True)}
    room = {
        v.id: 0 if v.pool_host not in pools or pools[v.pool_host].thin_provisioning_support else _room(v.size)
        for v in of
    }
    free = {pool_host: s.free_capacity_gb for pool_host, s in pools.items()}
    wishes = [(p, v, room[v.id]) for p, v in new]
    wishes += [("snapshots", v, room[v.id] - r.pending_gb) for r, v in again]
    for path, volume, size in wishes:
        left = free.get(volume.pool_host)
        if size <= 0 or not isinstance(left, (int, float)):
            continue
        free[volume.pool_host] = left - size
        if left < size:
            refusals.add(
                path,
                errors.NoValidBackend(
                    reason="A snapshot of volume %s takes %d GB of %s, which has %s."
                    % (volume.name or volume.id, size, volume.pool_host, left),
                    remedy="Delete volumes or snapshots there, or make its volume group larger.",
                ),
            )
    return room


def _room(size: int) -> int:
    """GB of a thick snapshot that can never overflow: all of the volume, 16 bytes for each chunk of 4 KiB, and an extent."""
    return math.ceil(size + size / 256 + 1 / 256)


# --- writing -------------------------------------------------------------------------------------------------------------


def _insert(
    conn: t.Any, new: t.Sequence[tuple[_Entry, t.Any]], room: t.Mapping[str, int], context: Context
) -> list[str]:
    now = context.now
    rows = [
        {
            "id": str(uuid_module.UUID(int=context.rng.getrandbits(128), version=4)),
            "volume_id": volume.id,
            "project": volume.project,
            "user_name": context.actor,
            "name": wish.name,
            "description": wish.description,
            "volume_size": volume.size,
            "volume_type": volume.volume_type,
            "status": states.CREATING,
            "pending_gb": room[volume.id],
            "meta": dict(wish.metadata),
            "run_id": context.run.id,
            "created_at": now,
            "updated_at": now,
            "deleted": volumes.LIVE,
        }
        for wish, volume in new
    ]
    if rows:
        conn.execute(table.insert(), rows)
    return [r["id"] for r in rows]


def _set(conn: t.Any, rows: t.Sequence[t.Any], context: Context, **values: t.Any) -> None:
    if rows:
        mine = bulk.among(conn, table.c.id, [r.id for r in rows])
        values = {"run_id": context.run.id, "updated_at": context.now, **values}
        conn.execute(table.update().where(mine).values(**values))
