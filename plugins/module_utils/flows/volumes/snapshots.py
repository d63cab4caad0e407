# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creating and deleting snapshots of volumes. work.py has the storage hosts' part.

source: Cinder's snapshot API (Queens)
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.amounts import disk
from ...core.reading.formats import to_boolean
from ...core.reading.problems import Problems
from ...core.volumes import quotas, states
from ...core.volumes.request_values import check_metadata, check_text
from ...ledger.db.this_run import Context
from ...ledger.db.transaction import Transaction
from ...ledger.storage import backends, volume_history, volume_views, volumes
from ...ledger.storage import snapshots as snapshot_rows
from ...ledger.storage.snapshots import SnapshotRow
from ...ledger.storage.volumes import VolumeRow
from . import requests
from .requests import VolumeSettings

PRESENT, ABSENT = "present", "absent"
FIELDS = ("name", "volume", "description", "force", "metadata", "state")
_GOING = (states.DELETING, states.ERROR_DELETING)


@dataclass
class SnapshotsBegun:
    """By id of the snapshot, each in one of the lists; snapshots requested as absent that do not exist are in none."""

    created: list[str] = field(default_factory=list)
    deleting: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)  # left by a dead run, or failed earlier
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


def begin(tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], settings: VolumeSettings) -> SnapshotsBegun:
    """Enter the new snapshots of the entries {name, volume, description, force, metadata, state}, mark absent ones as deleting.

    ``volume`` is a name or id. ``force``: a snapshot of a volume in use, as after a power cut; a deletion from any status.

    :raises InvalidRequest: all refusals (SnapshotExists, VolumeLocked, quotas, capacity, ...). Nothing is written then.
    """
    requests.open_project(tx, settings)
    refusals = Problems()
    wanted = _read(entries, refusals)
    work = _Comparison(tx, wanted, settings)
    for entry in wanted:
        with refusals.collect(entry.path):
            work.add(entry)
    new, again, going = work.new, work.again, work.going
    with refusals.collect("quotas"):
        _check_quota(tx, [v for _e, v in new], settings)
    capacity_gb = _take_capacity(tx, [(e.path, v) for e, v in new], [(r, work.volume_of(r)) for r in again], refusals)
    refusals.raise_if_any()
    rows = [_row(entry, volume, capacity_gb[volume.id], tx.context) for entry, volume in new]
    snapshot_rows.insert(tx, rows)
    snapshot_rows.take_ownership(tx, [r.id for r in again], status=states.CREATING)
    snapshot_rows.take_ownership(tx, [r.id for r in going], status=states.DELETING)
    pending = [{"id": r.id, "pending_gb": max(capacity_gb[r.volume_id], r.pending_gb)} for r in again]
    snapshot_rows.update(tx, pending)
    at_work = [v for _e, v in new] + [work.volume_of(r) for r in again + going]
    return SnapshotsBegun(
        created=[r["id"] for r in rows],
        deleting=[r.id for r in going],
        unchanged=work.unchanged,
        resumed=[r.id for r in again],
        hosts=sorted({volumes.host_of(v.pool_host) for v in at_work if v.pool_host}),
    )


class _Comparison:
    """The entries compared with the existing snapshots and volumes, and the work for each. Their rows are locked."""

    def __init__(self, tx: Transaction, entries: t.Sequence[_Entry], settings: VolumeSettings) -> None:
        self.tx = tx
        rows_by_word = volumes.find(tx, (e.volume for e in entries if e.volume), settings.project)
        self.volume_ids = {word: r.id for word, r in rows_by_word.items()}
        existing_snapshots = snapshot_rows.select(tx, names=[e.name for e in entries], project=settings.project)
        ids_to_lock = {*self.volume_ids.values(), *(r.volume_id for r in existing_snapshots)}
        # Volumes are locked before their snapshots.
        self.volumes = {r.id: r for r in volumes.select(tx, ids=ids_to_lock, lock=True)} if ids_to_lock else {}
        existing_snapshots = snapshot_rows.select(tx, ids=[r.id for r in existing_snapshots], lock=True)
        self.snapshots = {r.name: r for r in existing_snapshots}
        self.live_runs = volumes.live_runs(tx, [*existing_snapshots, *self.volumes.values()])
        created = (
            volumes.being_created_from(tx, snapshot_ids=[r.id for r in existing_snapshots])
            if existing_snapshots
            else []
        )
        self.readers = {snapshot_id: name for _id, name, _volume, snapshot_id in created}
        self.frozen = backends.frozen_pool_hosts(tx)
        self.new: list[tuple[_Entry, VolumeRow]] = []  # with its volume
        self.again: list[SnapshotRow] = []  # their creation continues
        self.going: list[SnapshotRow] = []
        self.unchanged: list[str] = []  # ids

    def volume_of(self, row: SnapshotRow) -> VolumeRow:
        return self.volumes[row.volume_id]

    def add(self, entry: _Entry) -> None:
        """:raises BootflowError: the entry is rejected."""
        row = self.snapshots.get(entry.name)
        if row is not None:
            requests.check_not_busy(self.tx, row, snapshot_rows.BUSY, self.live_runs)
        if entry.state == ABSENT:
            if row is not None:
                self._check_delete(row, entry.force)
                self.going.append(row)
        elif row is not None:
            _check_same(row, entry, self.volume_ids.get(entry.volume))
            if row.status in (states.CREATING, states.ERROR):
                self.again.append(row)
            else:
                self.unchanged.append(row.id)
        else:
            self.new.append((entry, self._source(entry)))

    def _source(self, entry: _Entry) -> VolumeRow:
        """The volume of a new snapshot. :raises BootflowError: the volume cannot have one now."""
        volume = self.volumes.get(self.volume_ids.get(entry.volume, ""))
        if volume is None:
            raise errors.VolumeNotFound(volume_id=entry.volume, remedy="The playbook volume_list shows the volumes.")
        requests.check_not_busy(self.tx, volume, volumes.BUSY, self.live_runs)
        states.check_snapshot(volumes.to_volume(volume), entry.force, frozen=volume.pool_host in self.frozen)
        return volume

    def _check_delete(self, row: SnapshotRow, force: bool) -> None:
        volume = self.volume_of(row)
        states.check_not_frozen(volume.pool_host in self.frozen)
        if row.status in _GOING:
            return  # the deletion continues
        snapshot = snapshot_rows.to_snapshot(row, volume)
        if row.status == states.CREATING:
            snapshot = replace(snapshot, status=states.ERROR)  # left by a dead run
        states.check_snapshot_delete(snapshot, force)
        if row.id in self.readers:
            raise errors.SnapshotIsBusy(
                snapshot_name=row.name or row.id,
                remedy="Wait until volume %s has been created from it." % self.readers[row.id],
            )


class NewSnapshot(t.NamedTuple):
    """A snapshot that an operation on instances makes. ``path``: of its errors. ``volume``: is locked, and may be in use"""

    path: str
    name: str
    volume: VolumeRow


def add(tx: Transaction, wanted: t.Sequence[NewSnapshot], settings: VolumeSettings) -> list[str]:
    """Enter new snapshots of a project, also of volumes in use. Returns their ids, in the same order. The project's turn was waited for.

    :raises InvalidRequest: all refusals (VolumeLocked, InvalidVolume, quotas, capacity). Nothing is written then.
    """
    refusals = Problems()
    frozen = backends.frozen_pool_hosts(tx)
    live_runs = volumes.live_runs(tx, [w.volume for w in wanted])
    for new in wanted:
        with refusals.collect(new.path):
            requests.check_not_busy(tx, new.volume, volumes.BUSY, live_runs)
            states.check_snapshot(volumes.to_volume(new.volume), True, frozen=new.volume.pool_host in frozen)
    with refusals.collect("quotas"):
        _check_quota(tx, [w.volume for w in wanted], settings)
    capacity_gb = _take_capacity(tx, [(w.path, w.volume) for w in wanted], [], refusals)
    refusals.raise_if_any()
    rows = [_row(_Entry(w.path, w.name), w.volume, capacity_gb[w.volume.id], tx.context) for w in wanted]
    snapshot_rows.insert(tx, rows)
    return [row["id"] for row in rows]


def finish(tx: Transaction) -> dict[str, t.Any]:
    """{"done": created or deleted snapshots, "left": the others of this run}, in the form of volume_views.snapshots()."""
    rows = snapshot_rows.of_run(tx)
    stuck = [r for r in rows if r.deleted == volumes.LIVE and r.status in snapshot_rows.BUSY]
    error = errors.RemoteError(reason="the storage host was not asked, or did not answer")
    ends = {
        states.CREATING: states.status_after("snapshot_create", error),
        states.DELETING: states.status_after("snapshot_delete", error),
    }
    snapshot_rows.update(tx, [{"id": r.id, "status": ends[r.status]} for r in stuck])
    volume_history.add_faults(tx, [volume_history.Fault((r.volume_id, r.id), error, None) for r in stuck])
    shown = volume_views.snapshots(tx, ids=[r.id for r in rows], deleted=True) if rows else []
    good = (states.AVAILABLE, states.DELETED)
    return {"done": [s for s in shown if s["status"] in good], "left": [s for s in shown if s["status"] not in good]}


# --- rules ---------------------------------------------------------------------------------------------------------------


def _read(entries: t.Sequence[t.Mapping[str, t.Any]], refusals: Problems) -> list[_Entry]:
    result = []
    for path, name, fields in requests.read_entries(entries, "snapshot", _known_fields, refusals):
        with refusals.collect(path):
            result.append(_entry(path, name, fields))
    return result


def _known_fields(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    unknown = sorted(set(map(str, entry)) - set(FIELDS))
    if unknown:
        raise errors.InvalidInput(
            reason="a snapshot has no field %s" % ascii(unknown[0]), remedy="Known fields: %s." % ", ".join(FIELDS)
        )
    return dict(entry)


def _entry(path: str, name: str, entry: t.Mapping[str, t.Any]) -> _Entry:
    state = entry.get("state") or PRESENT
    if state not in (PRESENT, ABSENT):
        raise errors.InvalidInput(reason="state must be present or absent, got %s" % ascii(state))
    try:
        force = to_boolean(entry.get("force") or False)
    except ValueError as e:
        raise errors.InvalidInput(reason="force %s" % e) from None
    volume = check_text(entry.get("volume"), "volume")
    if state == PRESENT and not volume:
        raise errors.InvalidInput(reason="volume is missing", remedy="Name the volume of the snapshot.")
    return _Entry(
        path=path,
        name=name,
        volume=volume,
        description=check_text(entry.get("description"), "description"),
        force=force,
        metadata=check_metadata(entry.get("metadata")),
        state=state,
    )


def _check_same(row: SnapshotRow, entry: _Entry, volume_id: str | None) -> None:
    differences = []
    if row.volume_id != volume_id:
        differences.append("volume is %s, not %s" % (row.volume_id, entry.volume))
    if row.description != entry.description:
        differences.append("description is %s, not %s" % (row.description or "none", entry.description or "none"))
    if dict(row.meta) != dict(entry.metadata):
        differences.append("metadata is %s, not %s" % (dict(row.meta), dict(entry.metadata)))
    if differences:
        raise errors.SnapshotExists(name=row.name, reason="; ".join(differences))
    if row.status in _GOING:
        raise errors.InvalidSnapshot(
            reason="Snapshot %s is %s." % (row.name, row.status), remedy="Finish the deletion first: state: absent."
        )


def _check_quota(tx: Transaction, source_volumes: t.Sequence[VolumeRow], settings: VolumeSettings) -> None:
    wanted = (quotas.for_snapshot(v.size, v.volume_type, settings.no_snapshot_gb_quota) for v in source_volumes)
    requests.check_quota(wanted, settings.limits, lambda: settings.usage(tx), quotas.SNAPSHOTS)


def _take_capacity(
    tx: Transaction,
    new: t.Sequence[tuple[str, VolumeRow]],
    again: t.Sequence[tuple[SnapshotRow, VolumeRow]],
    refusals: Problems,
) -> dict[str, int]:
    """Volume id -> GB that a snapshot of it takes. Thick ones have to fit into free space; a thin one takes nothing yet.

    :arg new: (path, volume). :arg again: (snapshot, volume).
    """
    source_volumes = [v for _p, v in new] + [v for _r, v in again]
    if not source_volumes:
        return {}
    pools = {s.host: s for s in backends.pool_states(tx, lock=True)}
    thick = {host for host, pool in pools.items() if not pool.thin_provisioning_support}
    sizes = {v.id: _thick_size(v.size) if v.pool_host in thick else 0 for v in source_volumes}
    free = {host: pool.free_capacity_gb for host, pool in pools.items()}
    wanted = [(path, v, sizes[v.id]) for path, v in new]
    wanted += [("snapshots", v, sizes[v.id] - r.pending_gb) for r, v in again]
    for path, volume, size in wanted:
        if size <= 0 or volume.pool_host is None:
            continue
        free_gb = free.get(volume.pool_host)
        if not isinstance(free_gb, (int, float)):
            continue
        free[volume.pool_host] = free_gb - size
        if free_gb < size:
            refusals.add(
                path,
                errors.NoValidBackend(
                    reason="A snapshot of volume %s needs %d GiB on %s, which has %s free."
                    % (volume.name or volume.id, size, volume.pool_host, disk(free_gb * 1024)),
                    remedy="Delete volumes or snapshots there, or extend its volume group.",
                ),
            )
    return sizes


def _thick_size(size: int) -> int:
    """GB of a thick snapshot that can never overflow: the volume's size, 16 bytes for each chunk of 4 KiB, and an extent."""
    return math.ceil(size + size / 256 + 1 / 256)


def _row(entry: _Entry, volume: VolumeRow, pending_gb: int, context: Context) -> dict[str, t.Any]:
    now = context.now
    return {
        "id": context.new_id(),
        "volume_id": volume.id,
        "project": volume.project,
        "user_name": context.actor,
        "name": entry.name,
        "description": entry.description,
        "volume_size": volume.size,
        "volume_type": volume.volume_type,
        "status": states.CREATING,
        "pending_gb": pending_gb,
        "meta": dict(entry.metadata),
        "run_id": context.run.id,
        "created_at": now,
        "updated_at": now,
        "deleted": volumes.LIVE,
    }
