# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deleting volumes, and never leaving anything of them.

The rules are Cinder's (core.volumes.states.check_delete). Beside them: what a dead run left half made is deleted like one
that failed, and a deletion that failed is asked for again without force. source: Cinder's volume API (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.reading.problems import Problems
from ...core.volumes import states
from ...ledger.compute import runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import volume_attachments, volume_snapshots
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.schema.volume_tables import NOTHING
from ...ledger.storage import backends, tombstones, volume_history, volumes

MAKING = (states.CREATING, states.DOWNLOADING)
# What a run that is dead was at, and what it is taken for.
_LEFT = {
    states.CREATING: states.ERROR,
    states.DOWNLOADING: states.ERROR,
    states.EXTENDING: states.ERROR_EXTENDING,
}
_GOING = (states.DELETING, states.ERROR_DELETING)


@dataclass
class VolumeDeleting:
    rows: list[t.Any] = field(default_factory=list)  # rows of volumes that their hosts have to delete, as they were
    hosts: list[str] = field(default_factory=list)  # storage hosts with something to delete
    gone: list[dict[str, t.Any]] = field(
        default_factory=list
    )  # nothing is to be done for them: {id, name}, pool_host where known


def begin(
    conn: t.Any,
    context: Context,
    ids: t.Sequence[str] | None = None,
    names: t.Sequence[str] | None = None,
    project: str | None = None,
    everything: bool = False,
    force: bool = False,
    cascade: bool = False,
) -> VolumeDeleting:
    """Mark what is to go as deleting. What is not there is no error.

    :arg force: from any status, also what a live run is just making; not what is attached.
    :arg cascade: their snapshots go with them.
    :raises InvalidInput: nothing says which volumes, a name is in several projects and none is given, or one is on a frozen backend.
    :raises InvalidVolume: :raises VolumeLocked: :raises VolumeIsBusy: one of them may not be deleted.
    :raises InvalidRequest: several may not, with the reasons of all. Nothing is written then.
    """
    if names is None and ids is None and not (project is not None and everything):
        raise errors.InvalidInput(
            reason="nothing says which volumes to delete",
            remedy="Give bootflow_volume_names or bootflow_volume_ids; for a whole project also bootflow_volume_delete_all: true.",
        )
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = selected(conn, ids, names, project)
    of = _snapshots(conn, [r.id for r in rows])
    listed = [s for each in of.values() for s in each]
    alive = volumes.live_runs(conn, [*rows, *listed], context)
    used = _with_ends(conn, [r.id for r in rows])
    sources = {} if force else _sources_of_others(conn, rows, listed)
    frozen = backends.frozen_pool_hosts(conn)
    refusals: list[tuple[str, errors.BootflowError]] = []
    for row in rows:
        try:
            states.check_not_frozen(row.pool_host in frozen)
            _check(conn, row, of.get(row.id, []), alive, row.id in used, force, cascade, sources)
        except errors.BootflowError as e:
            refusals.append(("volumes[%s]" % (row.name or row.id), e))
    _raise(refusals)
    _mark_snapshots(conn, [s for s in listed if cascade], context)
    return _begin(conn, rows, context)


def mark(conn: t.Any, ids: t.Iterable[str], context: Context) -> VolumeDeleting:
    """Volumes that go with their instance: nobody uses them any more, and nothing is asked."""
    rows = [r for r in volumes.select(conn, ids=ids, lock=True) if r.status != states.DELETING]
    return _begin(conn, rows, context)


def finish(
    conn: t.Any, context: Context, ids: t.Sequence[str] | None = None
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """(what this run deleted, what is left of what it was to delete): {id, name, project, pool_host, fault}.

    :arg ids: of these only. What no host was asked for ends in error_deleting, too: delete it again.
    """
    now = context.now
    c = volumes_table.c
    query = sa.select(volumes_table).where(c.run_id == context.run.id, c.deleted != volumes.LIVE).order_by(c.id)
    if ids is not None:
        query = query.where(bulk.among(conn, c.id, sorted(set(ids))))
    deleted = [_shown(r, None) for r in conn.execute(query)]
    left = volumes.select(conn, ids=ids, run_id=context.run.id, statuses=_GOING, lock=True)
    hosts = {r.id: volumes.host_of(r.pool_host) for r in left if r.status == states.DELETING}
    silent = {i: errors.HostUnreachable(host=h, reason="it did not delete the volume") for i, h in hosts.items()}
    volume_history.add_faults(conn, [volume_history.Fault(i, e, hosts[i]) for i, e in silent.items()], now)
    volumes.swap(
        conn,
        [r.id for r in left],
        {"status": (states.DELETING,)},
        now,
        status=states.status_after("delete", errors.RemoteError(reason="")),
    )
    faults = volume_history.last_faults(conn, [r.id for r in left]) if left else {}
    return deleted, [_shown(r, faults.get(r.id)) for r in left]


def _shown(row: t.Any, fault: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    return {"id": row.id, "name": row.name or "", "project": row.project, "pool_host": row.pool_host, "fault": fault}


# --- which ---------------------------------------------------------------------------------------------------------------


def selected(
    conn: t.Any, ids: t.Sequence[str] | None, names: t.Sequence[str] | None, project: str | None
) -> list[t.Any]:
    """Rows of the volumes that are meant, locked. :raises InvalidInput: a name is in several projects."""
    wanted: dict[str, t.Any] = {}
    if ids is None and names is None:
        wanted = {r.id: r for r in volumes.select(conn, project=project)}
    if ids is not None:
        wanted.update({r.id: r for r in volumes.select(conn, ids=ids, project=project)})
    if names is not None:
        named = volumes.select(conn, names=names, project=project)
        _refuse_ambiguous(named)
        wanted.update({r.id: r for r in named})
    return volumes.select(conn, ids=wanted, lock=True) if wanted else []


def _refuse_ambiguous(rows: t.Sequence[t.Any]) -> None:
    projects: dict[str, set[str]] = {}
    for row in rows:
        projects.setdefault(row.name, set()).add(row.project)
    several = {name: sorted(found) for name, found in projects.items() if len(found) > 1}
    if several:
        raise errors.InvalidInput(
            reason="; ".join("%s is in the projects %s" % (n, ", ".join(p)) for n, p in sorted(several.items())),
            remedy="Say which with bootflow_project, or give the UUID.",
        )


def _snapshots(conn: t.Any, volume_ids: t.Sequence[str]) -> dict[str, list[t.Any]]:
    found: dict[str, list[t.Any]] = {}
    for row in volumes.snapshots(conn, volume_ids=volume_ids, lock=True) if volume_ids else ():
        found.setdefault(row.volume_id, []).append(row)
    return found


def _with_ends(conn: t.Any, ids: t.Sequence[str]) -> set[str]:
    """Those that some host has exported or connected."""
    if not ids:
        return set()
    c = volume_attachments.c
    ends = sa.or_(c.export != NOTHING, c.connection != NOTHING)
    query = sa.select(c.volume_id).where(bulk.among(conn, c.volume_id, ids), c.deleted == volumes.LIVE, ends)
    return set(conn.execute(query).scalars())


def _sources_of_others(conn: t.Any, rows: t.Sequence[t.Any], snapshots: t.Sequence[t.Any]) -> dict[str, str]:
    """Id of a volume -> name of one that stays and is just being made from it, or from a snapshot of it."""
    if not rows:
        return {}
    c = volumes_table.c
    ids = [r.id for r in rows]
    of = {s.id: s.volume_id for s in snapshots}
    made_from = sa.or_(bulk.among(conn, c.source_volid, ids), bulk.among(conn, c.snapshot_id, sorted(of)))
    query = sa.select(c.id, c.name, c.source_volid, c.snapshot_id).where(
        c.deleted == volumes.LIVE, c.run_id.is_not(None), c.status.in_(MAKING), made_from
    )
    mine = set(ids)
    return {r.source_volid or of[r.snapshot_id]: r.name or r.id for r in conn.execute(query) if r.id not in mine}


def _check(
    conn: t.Any,
    row: t.Any,
    snapshots: t.Sequence[t.Any],
    alive: t.Collection[str],
    used: bool,
    force: bool,
    cascade: bool,
    sources: t.Mapping[str, str],
) -> None:
    working = row.run_id in alive and row.status in volumes.BUSY
    if working and not (force and row.status in _LEFT):
        raise volumes.locked_error(conn, row)
    for snapshot in snapshots:
        if snapshot.run_id in alive and snapshot.status in (states.CREATING, states.DELETING):
            raise volumes.locked_error(conn, snapshot)
    if row.status in _GOING:
        return
    volume = volumes.to_volume(row)
    if not working:
        volume = replace(volume, status=_LEFT.get(row.status, row.status))
    theirs = [volumes.to_snapshot(s, row) for s in snapshots]
    theirs = [replace(s, status=_LEFT.get(s.status, s.status)) for s in theirs]
    # One that a deletion did not get rid of goes with its volume.
    theirs = [replace(s, status=states.DELETING) if s.status == states.ERROR_DELETING else s for s in theirs]
    states.check_delete(volume, theirs, force, cascade)
    if used:
        raise errors.InvalidVolume(
            reason="Volume %s is connected to a host, or exported to it." % row.id, remedy="Detach it first."
        )
    if row.id in sources:
        raise errors.VolumeIsBusy(
            message="deleting volume %s that volume %s is being made from" % (row.name or row.id, sources[row.id]),
            remedy="Wait until that is done.",
        )


def _raise(refusals: t.Sequence[tuple[str, errors.BootflowError]]) -> None:
    if len(refusals) == 1:
        raise refusals[0][1]
    problems = Problems()
    for path, error in refusals:
        problems.add(path, error)
    problems.raise_if_any()


# --- writing -------------------------------------------------------------------------------------------------------------


def _mark_snapshots(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    if rows:
        mine = bulk.among(conn, volume_snapshots.c.id, [r.id for r in rows])
        values = {"status": states.DELETING, "run_id": context.run.id, "updated_at": context.now}
        conn.execute(volume_snapshots.update().where(mine).values(**values))


def _begin(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> VolumeDeleting:
    placed = [r for r in rows if r.pool_host]
    never = [r for r in rows if not r.pool_host]
    if placed:
        mine = bulk.among(conn, volumes_table.c.id, [r.id for r in placed])
        values = {
            "status": states.DELETING,
            "run_id": context.run.id,
            "new_size": None,
            "instance_uuid": None,
            "updated_at": context.now,
        }
        conn.execute(volumes_table.update().where(mine).values(**values))
    tombstones.forget(conn, never, None, context)
    return VolumeDeleting(
        rows=placed,
        hosts=sorted({volumes.host_of(r.pool_host) for r in placed}),
        gone=[{"id": r.id, "name": r.name or ""} for r in never],
    )
