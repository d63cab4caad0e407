# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deleting volumes completely.

The rules are Cinder's (core.volumes.states.check_delete). In addition, a volume left half created by a dead run is deleted
like a failed one, and a failed deletion can be requested again without force.
source: Cinder's volume API (Queens; unmanage is its delete with unmanage_only)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.reading.nearest import suggestion
from ...core.reading.problems import Problems
from ...core.volumes import attachment, states
from ...core.volumes.model import Snapshot
from ...ledger import projects
from ...ledger.compute import runs
from ...ledger.compute.history import LastFault, shown_fault
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, backends, deletions, snapshots, volume_history, volumes
from ...ledger.storage.snapshots import SnapshotRow
from ...ledger.storage.volumes import PlacedVolume, VolumeRow
from ..attachments import life
from . import dead_uploads, requests

# A status left by a dead run -> the status it counts as.
_LEFT = {
    states.CREATING: states.ERROR,
    states.DOWNLOADING: states.ERROR,
    states.EXTENDING: states.ERROR_EXTENDING,
}
_GOING = (states.DELETING, states.ERROR_DELETING)


@dataclass
class VolumeDeleting:
    rows: list[PlacedVolume] = field(default_factory=list)  # of volumes for their hosts to delete, as before
    hosts: list[str] = field(default_factory=list)  # storage hosts with volumes to delete
    without_host: list[dict[str, t.Any]] = field(default_factory=list)  # on no host: {id, name}, and pool_host if known


def begin(
    tx: Transaction,
    ids: t.Sequence[str] | None = None,
    names: t.Sequence[str] | None = None,
    project: str | None = None,
    everything: bool = False,
    force: bool = False,
    cascade: bool = False,
    missing_ok: bool = False,
) -> VolumeDeleting:
    """Mark volumes as deleting.

    :arg force: from any status, also volumes that a live run is creating; not attached ones.
    :arg cascade: delete their snapshots with them.
    :raises InvalidInput: the selection is empty, a name is in several projects and none is given, or a backend is frozen.
    :raises VolumeNotFound, ProjectNotFound: one of those named does not exist, unless ``missing_ok``.
    :raises InvalidVolume: :raises VolumeLocked: :raises VolumeIsBusy: one of them cannot be deleted.
    :raises InvalidRequest: several cannot, with the reasons of all. Nothing is written then.
    """
    if names is None and ids is None and not (project is not None and everything):
        raise errors.InvalidInput(
            reason="no volumes are selected for deletion",
            remedy="Set bootflow_volume_names or bootflow_volume_ids; for a whole project also bootflow_volume_delete_all: true.",
        )
    runs.renew(tx)
    rows = selected(tx, ids, names, project)
    if not missing_ok:
        if project is not None and everything and not rows:
            projects.refuse_unknown(tx, project)
        refuse_unknown(tx, rows, [*(ids or ()), *(names or ())], project)
    check = _Check(tx, rows, force, cascade)
    refusals: list[tuple[str, errors.BootflowError]] = []
    for row in rows:
        try:
            check.volume(row)
        except errors.BootflowError as e:
            refusals.append(("volumes[%s]" % (row.name or row.id), e))
    _raise(refusals)
    if cascade:
        snapshots.take_ownership(tx, [s.id for s in check.snapshots], status=states.DELETING)
    placed = deletions.begin(tx, rows)
    return VolumeDeleting(
        rows=placed,
        hosts=sorted({volumes.host_of(r.pool_host) for r in placed}),
        without_host=[{"id": r.id, "name": r.name or ""} for r in rows if not r.pool_host],
    )


def unmanage(tx: Transaction, known_hosts: t.Collection[str], **which: t.Any) -> VolumeDeleting:
    """Remove volumes from the ledger without touching their data, for a storage host that never comes back.

    With ``cascade`` their snapshots too. No host is asked: all are ``gone`` at once, and their quota is free.
    :arg known_hosts: storage hosts that can be asked. Exports that another host has to remove count as removed, because
        it will never report that.
    :arg which: as in begin(), with its errors: attached volumes and those with snapshots are rejected.
    """
    rows = selected(tx, which.get("ids"), which.get("names"), which.get("project"))
    _end_exports(tx, [r.id for r in rows], known_hosts)
    begun = begin(tx, **which)
    of_volumes = snapshots.select(tx, volume_ids=[r.id for r in begun.rows], lock=True) if begun.rows else []
    deletions.forget_snapshots(tx, of_volumes, None)
    deletions.forget(tx, begun.rows, None)
    return VolumeDeleting(
        without_host=[
            *begun.without_host,
            *({"id": r.id, "name": r.name or "", "pool_host": r.pool_host} for r in begun.rows),
        ]
    )


def _end_exports(tx: Transaction, volume_ids: t.Sequence[str], known_hosts: t.Collection[str]) -> None:
    rows = attachments.select(tx, volume_ids=volume_ids, attach_statuses=(states.DETACHED,), connected=False, lock=True)
    orphan_rows = [r for r in rows if attachment.UNEXPORTED.admits(r.state) and r.storage_host not in known_hosts]
    life.unexported(tx, orphan_rows)


def finish(
    tx: Transaction, ids: t.Sequence[str] | None = None
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """(what this run deleted, what it could not delete): {id, name, project, pool_host, fault}.

    :arg ids: only these. Volumes that no host was asked to delete end in error_deleting too: delete them again.
    """
    deleted = [_shown(r, None) for r in volumes.deleted_by(tx, ids)]
    remaining = volumes.select(tx, ids=ids, run_id=tx.run.id, statuses=_GOING, lock=True)
    hosts = {
        r.id: volumes.host_of(r.pool_host) for r in remaining if r.status == states.DELETING and volumes.is_placed(r)
    }
    silent = {i: errors.HostUnreachable(host=h, reason="the host did not delete the volume") for i, h in hosts.items()}
    volume_history.add_faults(tx, [volume_history.Fault(i, e, hosts[i]) for i, e in silent.items()])
    volumes.swap(
        tx,
        [r.id for r in remaining],
        {"status": (states.DELETING,)},
        status=states.status_after("delete", errors.RemoteError(reason="")),
    )
    faults = volume_history.last_faults(tx, [r.id for r in remaining]) if remaining else {}
    return deleted, [_shown(r, faults.get(r.id)) for r in remaining]


def _shown(row: VolumeRow, fault: LastFault | None) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "name": row.name or "",
        "project": row.project,
        "pool_host": row.pool_host,
        "fault": shown_fault(fault),
    }


# --- selecting -----------------------------------------------------------------------------------------------------------


def selected(
    tx: Transaction, ids: t.Sequence[str] | None, names: t.Sequence[str] | None, project: str | None
) -> list[VolumeRow]:
    """Rows of the selected volumes, locked. :raises InvalidInput: a name is in several projects."""
    dead_uploads.end_dead(tx)
    wanted: dict[str, VolumeRow] = {}
    if ids is None and names is None:
        wanted = {r.id: r for r in volumes.select(tx, project=project)}
    if ids is not None:
        wanted.update({r.id: r for r in volumes.select(tx, ids=ids, project=project)})
    if names is not None:
        named = volumes.select(tx, names=names, project=project)
        _refuse_ambiguous(named)
        wanted.update({r.id: r for r in named})
    return volumes.select(tx, ids=wanted, lock=True) if wanted else []


def refuse_unknown(tx: Transaction, rows: t.Sequence[VolumeRow], named: t.Sequence[str], project: str | None) -> None:
    """:raises VolumeNotFound: what is named is not among ``rows``."""
    unknown = sorted(set(named) - {r.id for r in rows} - {r.name or "" for r in rows})
    if unknown:
        known = [r.name for r in volumes.select(tx, project=project) if r.name]
        raise errors.VolumeNotFound(
            volume_id=", ".join(unknown), remedy=suggestion(unknown[0], known, "The list of volumes")
        )


def _refuse_ambiguous(rows: t.Sequence[VolumeRow]) -> None:
    projects: dict[str | None, set[str]] = {}
    for row in rows:
        projects.setdefault(row.name, set()).add(row.project)
    several = {name: sorted(owners) for name, owners in projects.items() if len(owners) > 1}
    if several:
        raise errors.InvalidInput(
            reason="; ".join(
                "volume %s exists in the projects %s" % (n, ", ".join(p)) for n, p in sorted(several.items())
            ),
            remedy="Set bootflow_project, or give the UUID.",
        )


# --- checking ------------------------------------------------------------------------------------------------------------


class _Check:
    """Checks whether volumes can be deleted, with their snapshots and readers from the ledger."""

    def __init__(self, tx: Transaction, rows: t.Sequence[VolumeRow], force: bool, cascade: bool) -> None:
        self.tx, self.force, self.cascade = tx, force, cascade
        ids = [r.id for r in rows]
        self.snapshots = snapshots.select(tx, volume_ids=ids, lock=True) if ids else []
        self.live_runs = volumes.live_runs(tx, [*rows, *self.snapshots])
        self.in_use = attachments.exported_or_connected(tx, ids)
        self.frozen = backends.frozen_pool_hosts(tx)
        self.readers = {} if force or not ids else deletions.readers(tx, ids, self.snapshots)

    def volume(self, row: VolumeRow) -> None:
        """:raises BootflowError: the volume cannot be deleted."""
        states.check_not_frozen(row.pool_host in self.frozen)
        worked_on = row.run_id in self.live_runs and row.status in volumes.BUSY
        if worked_on and not (self.force and row.status in _LEFT):
            raise volumes.locked_error(self.tx, row)
        of_volume = [s for s in self.snapshots if s.volume_id == row.id]
        for snapshot in of_volume:
            requests.check_not_busy(self.tx, snapshot, snapshots.BUSY, self.live_runs)
        if row.status in _GOING:
            return
        volume = volumes.to_volume(row)
        if not worked_on:
            volume = replace(volume, status=_LEFT.get(row.status, row.status))
        states.check_delete(volume, [_as_left(s, row) for s in of_volume], self.force, self.cascade)
        if row.id in self.in_use:
            raise errors.InvalidVolume(
                reason="Volume %s is connected to a host, or exported to it." % row.id, remedy="Detach it first."
            )
        if row.id in self.readers:
            raise errors.VolumeIsBusy(
                message="deleting volume %s that volume %s is being made from"
                % (row.name or row.id, self.readers[row.id]),
                remedy="Wait until that volume has been created.",
            )


def _as_left(row: SnapshotRow, volume: VolumeRow) -> Snapshot:
    """A snapshot for the rules: one whose deletion failed is deleted with its volume."""
    snapshot = snapshots.to_snapshot(row, volume)
    status = states.DELETING if row.status == states.ERROR_DELETING else _LEFT.get(row.status, row.status)
    return replace(snapshot, status=status)


def _raise(refusals: t.Sequence[tuple[str, errors.BootflowError]]) -> None:
    if len(refusals) == 1:
        raise refusals[0][1]
    problems = Problems()
    for path, error in refusals:
        problems.add(path, error)
    problems.raise_if_any()
