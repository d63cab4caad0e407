# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of storage hosts for this run, and its results.

begin() records the beginning before a host is asked; finish() writes outcomes, and the capacity read after the work, in
one transaction, so that no capacity is promised twice. Volumes that this run no longer owns when it returns (deleted, or
adopted by a run that took this one for dead) are only recorded for cleanup on the host.

A silent host may have done all, some or nothing. Cinder's message would wait for its manager; here no process waits: a
volume to be created goes to another backend if possible, with a pending cleanup for the silent one; without another
attempt it ends in error and keeps its pool, and its GB stay taken. Deletions end in error_deleting, extensions in
error_extending, and each can be requested again.
source: Cinder's manager flow (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.images import life
from ...core.volumes import states
from ...core.volumes.image_metadata import image_metadata
from ...core.volumes.reimage import UNDER_WAY
from ...core.volumes.retry import is_rescheduled, record_failure
from ...ledger.compute import history, runs
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ...ledger.storage import (
    attachments,
    deletions,
    pending_cleanups,
    snapshots,
    volume_history,
    volumes,
)
from ...ledger.storage import backends as storage_backends
from ...ledger.storage.pending_cleanups import PendingCleanup
from ...ledger.storage.snapshots import SnapshotRow
from ...ledger.storage.volumes import PlacedVolume, VolumeRow
from . import reimage

PRESENT, EXTENDED, ABSENT, REIMAGED = "present", "extended", "absent", "reimaged"


@dataclass
class BackendWork:
    """``volumes`` are elements of volume_lvm's option; ``images`` the stored images (core.model.Image as data)."""

    backend: str
    pool_host: str
    configuration: dict[str, t.Any]
    volumes: list[dict[str, t.Any]] = field(default_factory=list)
    images: list[dict[str, t.Any]] = field(default_factory=list)


@dataclass(frozen=True)
class WorkResult:
    """Answer of volume_lvm for a backend: its outcomes, and its ``backend`` as capacity.

    ``error``: everything failed, or the host did not answer.
    """

    outcomes: t.Mapping[str, t.Mapping[str, t.Any]] = field(default_factory=dict)
    capacity: t.Mapping[str, t.Any] | None = None
    error: errors.BootflowError | None = None


@dataclass
class Finished:
    """By id of volume or snapshot, each in one of the lists.

    ``lost_items``: owned by another run, or deleted. If the host created it, the next begin() on this host lists it as absent.
    """

    done: list[str] = field(default_factory=list)
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)
    rescheduled: list[str] = field(default_factory=list)
    lost_items: list[str] = field(default_factory=list)


# --- beginning -----------------------------------------------------------------------------------------------------------


def begin(tx: Transaction, host: str) -> list[BackendWork]:
    """The work of ``host`` for this run, and its pending cleanups, by backend. Journaled before it is done."""
    runs.renew(tx)
    backends = {b.pool_host: b for b in storage_backends.rows_of(tx, host)}
    rows = _volumes_in(tx, backends)
    of_snapshots = snapshots.at_work_in(tx, backends, lock=True)
    work = {p: BackendWork(b.backend, p, dict(b.configuration)) for p, b in backends.items()}
    images: dict[str, dict[str, t.Any]] = {}
    for row in rows:
        work[row.pool_host].volumes.append(_element(row))
        image = row.spec.get("image") if row.status in volumes.BEING_CREATED else reimage.image_of(row)
        if image is not None:
            images.setdefault(row.pool_host, {})[image["id"]] = image
    for pool_host, images_of_pool in images.items():
        work[pool_host].images = [images_of_pool[i] for i in sorted(images_of_pool)]
    for snapshot, volume in of_snapshots:
        work[volume.pool_host].volumes.append(_snapshot_element(snapshot))
    _journal(tx, host, rows, of_snapshots)
    if pending_cleanups.due(tx, backends) and not (of_snapshots and _are_of_instances(tx)):
        storage_backends.lock(tx, backends)
        for cleanup in pending_cleanups.take(tx, backends):
            elements = work[cleanup.pool_host].volumes
            if cleanup.item_id not in {e["id"] for e in elements}:
                elements.append({"id": cleanup.item_id, "kind": cleanup.kind, "state": ABSENT})
    return [work[p] for p in sorted(work) if work[p].volumes]


def _are_of_instances(tx: Transaction) -> bool:
    """Whether this run makes snapshots of instances now. What earlier runs left waits: wiping it takes time, and guests may stand still meanwhile."""
    return bool(images.select(tx, run_id=tx.run.id, statuses=[life.QUEUED]))


def _volumes_in(tx: Transaction, pool_hosts: t.Iterable[str]) -> list[PlacedVolume]:
    """Rows of this run's work in these pools, locked; deletions, and what is written again, only when nothing uses the volume."""
    rows = volumes.select(tx, run_id=tx.run.id, pool_hosts=pool_hosts, statuses=volumes.AT_WORK, lock=True)
    alone = (states.DELETING, *UNDER_WAY)
    in_use = attachments.exported_or_connected(tx, [r.id for r in rows if r.status in alone])
    return [r for r in rows if r.id not in in_use and volumes.is_placed(r)]


def _element(row: VolumeRow) -> dict[str, t.Any]:
    element: dict[str, t.Any] = {"id": row.id, "kind": "volume", "project": row.project}
    if row.status == states.DELETING:
        return {**element, "state": ABSENT}
    if row.status == states.EXTENDING:
        return {**element, "state": EXTENDED, "size_gb": row.new_size}
    if row.status in UNDER_WAY:
        image = reimage.image_of(row) or {}
        return {**element, "state": REIMAGED, "size_gb": row.size, "image_id": image.get("id")}
    element.update(state=PRESENT, size_gb=row.size)
    for key, value in (
        ("image_id", row.image_id),
        ("source_volume", row.source_volid),
        ("source_snapshot", row.snapshot_id),
    ):
        if value:
            element[key] = value
    return element


def _snapshot_element(row: SnapshotRow) -> dict[str, t.Any]:
    element = {"id": row.id, "kind": "snapshot", "project": row.project}
    if row.status == states.DELETING:
        return {**element, "state": ABSENT}
    return {**element, "state": PRESENT, "source_volume": row.volume_id}


_EVENTS = {states.DELETING: "delete", states.EXTENDING: "extend", **dict.fromkeys(UNDER_WAY, reimage.EVENT)}


def _event(row: VolumeRow | SnapshotRow) -> str:
    return _EVENTS.get(row.status, "create")


def _journal(
    tx: Transaction,
    host: str,
    rows: t.Sequence[VolumeRow],
    of_snapshots: t.Sequence[tuple[SnapshotRow, VolumeRow]],
) -> None:
    for event in ("create", "delete", "extend", reimage.EVENT):
        ids = [r.id for r in rows if _event(r) == event]
        volume_history.start_events(tx, ids, event, host)
        kind = "resize" if event == "extend" else event
        volume_history.notify(tx, ids, "volume.%s.start" % kind, {"host": host})
    for event in ("create", "delete"):
        items = [(r.volume_id, r.id) for r, _v in of_snapshots if _event(r) == event]
        volume_history.start_events(tx, items, event, host)
        payloads = [(volume_id, {"host": host, "snapshot_id": snapshot_id}) for volume_id, snapshot_id in items]
        volume_history.notify_each(tx, payloads, "snapshot.%s.start" % event)
    reimage.begun(tx, [r for r in rows if r.status == states.RESERVED])
    copied = [r.id for r in rows if r.status == states.CREATING and r.image_id]
    if copied:
        volumes.swap(tx, copied, {"status": (states.CREATING,)}, status=states.DOWNLOADING)


def hosts_with_work(tx: Transaction) -> list[str]:
    """Storage hosts with work of this run, or left by an earlier run for the next one."""
    pool_hosts = volumes.pool_hosts_at_work(tx) | snapshots.pool_hosts_at_work(tx)
    to_clean = {r.pool_host for r in pending_cleanups.due(tx)}
    pool_hosts |= to_clean - storage_backends.silent_pool_hosts(tx, to_clean)
    exports = attachments.hosts_to_export(tx) | attachments.hosts_to_unexport(tx)
    return sorted({volumes.host_of(p) for p in pool_hosts} | exports)


# --- finishing -----------------------------------------------------------------------------------------------------------


def finish(tx: Transaction, host: str, results: t.Mapping[str, WorkResult]) -> Finished:
    """Write the results of begin()'s work: name of the backend -> its result. An item without an outcome has failed."""
    runs.renew(tx)
    of_host = {b.pool_host: b for b in storage_backends.rows_of(tx, host)}
    backends = {pool_host: b for pool_host, b in of_host.items() if b.backend in results}
    rows = _volumes_in(tx, backends)
    of_snapshots = snapshots.at_work_in(tx, backends, lock=True)
    storage_backends.lock(tx, of_host)
    finished = Finished()
    for pool_host, backend in sorted(backends.items()):
        result = results[backend.backend]
        if not result.outcomes and result.error is None:
            continue
        outcomes = BackendOutcomes(tx, host, pool_host, result, finished)
        outcomes.end_volumes([r for r in rows if r.pool_host == pool_host])
        outcomes.end_snapshots([s for s, v in of_snapshots if v.pool_host == pool_host])
        outcomes.end_cleanups()
        outcomes.find_lost()
        pending_cleanups.add(tx, outcomes.to_clean)
        if isinstance(result.error, errors.HostUnreachable):
            # Its other backends are unreachable too: the next attempt goes to another host.
            for other_pool_host in of_host:
                storage_backends.record_error(tx, other_pool_host, result.error)
        elif result.error is not None:
            storage_backends.record_error(tx, pool_host, result.error)
        elif result.capacity is not None:
            storage_backends.record_capacity(tx, pool_host, result.capacity)
    return finished


VolumeFailure = t.Tuple[VolumeRow, errors.BootflowError]  # a row, and why its work failed


class BackendOutcomes:
    """The results of one backend for volumes, snapshots and pending cleanups."""

    def __init__(self, tx: Transaction, host: str, pool_host: str, result: WorkResult, finished: Finished) -> None:
        self.tx, self.host, self.pool_host, self.result = tx, host, pool_host, result
        self.finished = finished
        self.counted = result.capacity is not None and result.error is None  # the numbers include new volumes
        self.seen: set[str] = set()  # ids that are accounted for
        self.to_clean: list[PendingCleanup] = []

    def error_of(self, item_id: str) -> errors.BootflowError | None:
        self.seen.add(item_id)
        if self.result.error is not None:
            return self.result.error
        outcome = self.result.outcomes.get(item_id)
        if outcome is None:
            return errors.RemoteError(reason="%s returned no result for the item" % self.host)
        return errors.from_dict(outcome["error"]) if outcome.get("error") else None

    def pending(self, gigabytes: int) -> int:
        """GB of a volume that was, or may have been, created: taken unless the capacity includes them."""
        return 0 if self.counted else gigabytes

    def is_removed(self, item_id: str) -> bool:
        return bool(self.result.outcomes[item_id].get("size") == 0)

    def is_untouched(self, item_id: str) -> bool:
        """Whether the host reports that nothing of a failed item exists."""
        outcome = self.result.outcomes.get(item_id) if self.result.error is None else None
        return outcome is not None and not outcome.get("changed", True)

    # --- volumes -----------------------------------------------------------------------------------------------------

    def end_volumes(self, rows: t.Sequence[PlacedVolume]) -> None:
        succeeded: dict[str, list[PlacedVolume]] = {
            event: [] for event in ("create", "delete", "extend", reimage.EVENT)
        }
        failed: dict[str, list[VolumeFailure]] = {event: [] for event in succeeded}
        for row in rows:
            error = self.error_of(row.id)
            action = _event(row)
            if error is not None:
                failed[action].append((row, error))
            elif action == "delete" and not self.is_removed(row.id):
                self.finished.lost_items.append(row.id)  # deleted during its creation: the next begin() removes it
            else:
                succeeded[action].append(row)
        self._created(succeeded["create"])
        self._not_created(failed["create"])
        deletions.forget(self.tx, succeeded["delete"], self.host)
        self.finished.done += [r.id for r in succeeded["delete"]]
        self._not_deleted(failed["delete"])
        self._extended(succeeded["extend"])
        self._not_extended(failed["extend"])
        self._reimaged(succeeded[reimage.EVENT], failed[reimage.EVENT])

    def _created(self, rows: t.Sequence[VolumeRow]) -> None:
        if not rows:
            return
        tx = self.tx
        written = [
            {
                "id": r.id,
                "status": states.status_after("create", None),
                "made": True,
                "pending_gb": self.pending(r.pending_gb),
                "bootable": bool(r.bootable or r.image_id or r.spec.get("source_bootable")),
                "image_metadata": image_metadata(r.spec),
                "launched_at": tx.now,
                "run_id": self.tx.run.id if r.instance_uuid else None,  # the boot continues with it
            }
            for r in rows
        ]
        volumes.update(tx, written)
        ids = [r.id for r in rows]
        volume_history.finish_events(tx, ids, "create", history.SUCCESS)
        volume_history.notify(tx, ids, "volume.create.end", {"host": self.host})
        attachments.volumes_ready(tx, [r.id for r in rows if r.instance_uuid])
        self.finished.done += ids

    def _not_created(self, failures: t.Sequence[VolumeFailure]) -> None:
        again: list[dict[str, t.Any]] = []
        over: list[dict[str, t.Any]] = []
        for row, error in failures:
            copying = bool(self.result.outcomes.get(row.id, {}).get("copying"))
            is_untouched = self.is_untouched(row.id)
            pending = 0 if is_untouched else self.pending(row.pending_gb)
            if not is_rescheduled(error, row.retry, copying):
                status = states.status_after("create", error)
                over.append({"id": row.id, "status": status, "made": False, "pending_gb": pending, "run_id": None})
                continue
            retry = record_failure(row.retry, error)
            values = {"id": row.id, "status": states.CREATING, "made": False, "pending_gb": 0}
            again.append({**values, "pool_host": None, "retry": retry, "scheduled_at": self.tx.now})
            if not is_untouched:
                self.to_clean.append(PendingCleanup(self.pool_host, row.id, error.message, pending))
            self.finished.rescheduled.append(row.id)
        volumes.update(self.tx, again)
        volumes.update(self.tx, over)
        self._record_failures({r.id: e for r, e in failures}, "create", {columns["id"] for columns in again})

    def _not_deleted(self, failures: t.Sequence[VolumeFailure]) -> None:
        volumes.update(self.tx, [{"id": r.id, "status": states.status_after("delete", e)} for r, e in failures])
        self._record_failures({r.id: e for r, e in failures}, "delete")

    def _extended(self, rows: t.Sequence[VolumeRow]) -> None:
        if not rows:
            return
        tx = self.tx
        written = [
            {
                "id": row.id,
                "status": states.status_after("extend", None, row.previous_status),
                "previous_status": None,
                "size": row.new_size,
                "new_size": None,
                "pending_gb": self.pending(row.pending_gb),
                "run_id": None,
            }
            for row in rows
        ]
        volumes.update(tx, written)
        ids = [r.id for r in rows]
        attachments.mark_grown(tx, ids)
        volume_history.finish_events(tx, ids, "extend", history.SUCCESS)
        payloads = [(r.id, {"host": self.host, "size": r.new_size}) for r in rows]
        volume_history.notify_each(tx, payloads, "volume.resize.end")
        self.finished.done += ids

    def _not_extended(self, failures: t.Sequence[VolumeFailure]) -> None:
        written = [
            {
                "id": row.id,
                "status": states.status_after("extend", error),
                "new_size": None,
                "pending_gb": self.pending(row.pending_gb),
            }
            for row, error in failures
        ]
        volumes.update(self.tx, written)
        self._record_failures({r.id: e for r, e in failures}, "extend")

    def _reimaged(self, rows: t.Sequence[PlacedVolume], failures: t.Sequence[VolumeFailure]) -> None:
        reimage.done(self.tx, rows, self.pending)
        ids = [r.id for r in rows]
        volume_history.finish_events(self.tx, ids, reimage.EVENT, history.SUCCESS)
        volume_history.notify(self.tx, ids, "volume.reimage.end", {"host": self.host})
        self.finished.done += ids
        reimage.failed(self.tx, failures, self.is_untouched)
        self._record_failures({r.id: e for r, e in failures}, reimage.EVENT)

    def _record_failures(
        self,
        failures: t.Mapping[volume_history.Item, errors.BootflowError],
        action: str,
        again: t.Collection[volume_history.Item] = (),
    ) -> None:
        """:arg again: volumes that continue on another backend."""
        volume_history.fail_events(self.tx, {item: e.in_full for item, e in failures.items()}, action)
        faults = [volume_history.Fault(item, e, self.host, item in again) for item, e in failures.items()]
        volume_history.add_faults(self.tx, faults)
        over = {item: e for item, e in failures.items() if item not in again}
        self.finished.failed.update({item if isinstance(item, str) else item[1]: e for item, e in over.items()})

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def end_snapshots(self, rows: t.Sequence[SnapshotRow]) -> None:
        tx = self.tx
        deleted: list[SnapshotRow] = []
        created: list[SnapshotRow] = []
        failed: dict[str, dict[volume_history.Item, errors.BootflowError]] = {"create": {}, "delete": {}}
        written = []
        for row in rows:
            action = _event(row)
            error = self.error_of(row.id)
            if error is None and action == "delete":
                deleted.append(row)
                continue
            pending = 0 if error is not None and self.is_untouched(row.id) else self.pending(row.pending_gb)
            status = states.status_after("snapshot_%s" % action, error)
            written.append({"id": row.id, "status": status, "pending_gb": pending})
            if error is None:
                created.append(row)
            else:
                failed[action][row.volume_id, row.id] = error
        snapshots.update(tx, written)
        volume_history.finish_events(tx, [(r.volume_id, r.id) for r in created], "create", history.SUCCESS)
        payloads = [(r.volume_id, {"host": self.host, "snapshot_id": r.id}) for r in created]
        volume_history.notify_each(tx, payloads, "snapshot.create.end")
        for action, failures in failed.items():
            self._record_failures(failures, action)
        deletions.forget_snapshots(tx, deleted, self.host)
        self.finished.done += [r.id for r in created + deleted]

    # --- leftovers ---------------------------------------------------------------------------------------------------

    def end_cleanups(self) -> None:
        """Settle the pending cleanups of this run: done, or still pending."""
        due = pending_cleanups.due(self.tx, [self.pool_host])
        rows = [r for r in due if r.item_id not in self.seen and r.run_id == self.tx.run.id]
        removed = [r.item_id for r in rows if self.error_of(r.item_id) is None]
        if removed:
            pending_cleanups.done(self.tx, [(self.pool_host, i) for i in removed])
            self.finished.done += removed
        for row in rows:
            error = self.error_of(row.item_id)
            if error is not None:
                pending = self.pending(row.pending_gb)
                cleanup = PendingCleanup(self.pool_host, row.item_id, error.message, pending, row.kind, row.volume_id)
                self.to_clean.append(cleanup)
                self.finished.failed[row.item_id] = error

    def find_lost(self) -> None:
        """Handle outcomes of items that this run no longer owns: clean up what it created, unless another run has it here."""
        late = {i for i, o in self.result.outcomes.items() if i not in self.seen and not o.get("error")}
        late = {i for i in late if not self.is_removed(i)}
        if not late:
            return
        of_volumes = {r.id: r for r in volumes.located(self.tx, late)}
        of_snapshots = {r.id: r for r in snapshots.located(self.tx, late)}
        for item_id in sorted(late):
            row = of_volumes.get(item_id) or of_snapshots.get(item_id)
            if row is None:
                continue  # unknown to this ledger
            lives = row.deleted == volumes.LIVE and row.pool_host == self.pool_host
            if lives and row.status not in (states.DELETING, states.ERROR_DELETING):
                continue
            snapshot = of_snapshots.get(item_id)
            kind = pending_cleanups.VOLUME if snapshot is None else pending_cleanups.SNAPSHOT
            volume_id = item_id if snapshot is None else snapshot.volume_id
            pending = self.pending(row.size)
            self.to_clean.append(
                PendingCleanup(self.pool_host, item_id, "created after the run had lost it", pending, kind, volume_id)
            )
            self.finished.lost_items.append(item_id)
