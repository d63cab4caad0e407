# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What storage hosts have to do for this run, and what becomes of it.

begin() writes what is begun before it is told; finish() writes outcomes and the capacity that was read after the work in one
transaction, so that nothing is promised twice. Of volumes that this run has no more when it comes back (they were deleted, or
a run took them over that thought it dead) nothing is written but that the host is to be rid of them.

A host that did not answer may have done all, some or nothing. Cinder's message would wait for its manager; here nobody does:
a volume that was to be made goes to another backend where it may, and volume_remains keeps that the silent one is to be rid
of it; without another attempt it ends in error and keeps its pool, and its GB stay taken. Deletions end in error_deleting,
extensions in error_extending, and each can be asked for again.
source: Cinder's manager flow (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes import states
from ...core.volumes.outcome import RESCHEDULE, outcome_of
from ...core.volumes.retry import record_failure
from ...ledger.compute import runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import volume_attachments, volume_snapshots
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.schema.volume_tables import NOTHING
from ...ledger.storage import (
    attachment_exports,
    attachment_reservations,
    pending_cleanups,
    tombstones,
    volume_history,
    volumes,
)
from ...ledger.storage import backends as storage_backends

MAKING = (states.CREATING, states.DOWNLOADING)
# What a storage host has to do for a volume, and for a snapshot.
AT_WORK = (*MAKING, states.DELETING, states.EXTENDING)
SNAPSHOT_AT_WORK = (states.CREATING, states.DELETING)

PRESENT, EXTENDED, ABSENT = "present", "extended", "absent"


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
    """What volume_lvm answered for a backend: its outcomes, and its ``backend`` as capacity.

    ``error``: the whole of it failed, or the host did not answer.
    """

    outcomes: t.Mapping[str, t.Mapping[str, t.Any]] = field(default_factory=dict)
    capacity: t.Mapping[str, t.Any] | None = None
    error: errors.BootflowError | None = None


@dataclass
class Finished:
    """By id of volume or snapshot, each in one of them.

    ``lost``: another run has it, or it is deleted; what was made of it here is to go: the next begin() on this host gives it
    again, as absent.
    """

    done: list[str] = field(default_factory=list)
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)
    rescheduled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


# --- beginning -----------------------------------------------------------------------------------------------------------


def begin(conn: t.Any, host: str, context: Context) -> list[BackendWork]:
    """What ``host`` has to do for this run, and what is left there of others, by backend. Journaled before it is done."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    backends = {b.pool_host: b for b in storage_backends.rows_of(conn, host)}
    rows = _volumes_at(conn, backends, context, lock=True)
    snapshots = _snapshots_at(conn, backends, context, lock=True)
    work = {p: BackendWork(b.backend, p, dict(b.configuration)) for p, b in backends.items()}
    images: dict[str, dict[str, t.Any]] = {}
    for row in rows:
        work[row.pool_host].volumes.append(_element(row))
        image = row.spec.get("image") if row.status in MAKING else None
        if image is not None:
            images.setdefault(row.pool_host, {})[image["id"]] = image
    for pool_host, found in images.items():
        work[pool_host].images = [found[i] for i in sorted(found)]
    for snapshot, volume in snapshots:
        work[volume.pool_host].volumes.append(_snapshot_element(snapshot))
    _journal(conn, host, rows, snapshots, context)
    if pending_cleanups.waiting(conn, context, backends):
        storage_backends.lock(conn, backends)
        for remains in pending_cleanups.take(conn, backends, context):
            wishes = work[remains.pool_host].volumes
            if remains.item_id not in {w["id"] for w in wishes}:
                wishes.append({"id": remains.item_id, "kind": remains.kind, "state": ABSENT})
    return [work[p] for p in sorted(work) if work[p].volumes]


def _volumes_at(conn: t.Any, pool_hosts: t.Iterable[str], context: Context, lock: bool) -> list[t.Any]:
    rows = volumes.select(conn, run_id=context.run.id, pool_hosts=pool_hosts, statuses=AT_WORK, lock=lock)
    going = [r.id for r in rows if r.status == states.DELETING]
    used = _connected(conn, going) if going else set()
    return [r for r in rows if r.id not in used]


def _connected(conn: t.Any, ids: t.Sequence[str]) -> set[str]:
    """Those that are exported or connected somewhere still: they go when that has ended."""
    c = volume_attachments.c
    ends = sa.or_(c.export != NOTHING, c.connection != NOTHING)
    query = sa.select(c.volume_id).where(bulk.among(conn, c.volume_id, ids), c.deleted == volumes.LIVE, ends)
    return set(conn.execute(query).scalars())


def _snapshots_at(conn: t.Any, pool_hosts: t.Iterable[str], context: Context, lock: bool) -> list[tuple[t.Any, t.Any]]:
    """(snapshot, its volume's row)"""
    wanted = set(pool_hosts)
    c, s = volumes_table.c, volume_snapshots.c
    mine = (s.run_id == context.run.id, s.deleted == volumes.LIVE, s.status.in_(SNAPSHOT_AT_WORK))
    here = sa.select(s.id, s.volume_id).join(volumes_table, c.id == s.volume_id)
    found = list(conn.execute(here.where(*mine, bulk.among(conn, c.pool_host, sorted(wanted)))))
    if not found:
        return []
    of = {v.id: v for v in volumes.select(conn, ids={r.volume_id for r in found}, lock=lock) if v.pool_host in wanted}
    rows = volumes.snapshots(
        conn, ids=[r.id for r in found], run_id=context.run.id, statuses=SNAPSHOT_AT_WORK, lock=lock
    )
    return [(r, of[r.volume_id]) for r in rows if r.volume_id in of]


def _element(row: t.Any) -> dict[str, t.Any]:
    element = {"id": row.id, "kind": "volume", "project": row.project}
    if row.status == states.DELETING:
        return {**element, "state": ABSENT}
    if row.status == states.EXTENDING:
        return {**element, "state": EXTENDED, "size_gb": row.new_size}
    element.update(state=PRESENT, size_gb=row.size)
    for key, value in (
        ("image_id", row.image_id),
        ("source_volume", row.source_volid),
        ("source_snapshot", row.snapshot_id),
    ):
        if value:
            element[key] = value
    return element


def _snapshot_element(row: t.Any) -> dict[str, t.Any]:
    element = {"id": row.id, "kind": "snapshot", "project": row.project}
    if row.status == states.DELETING:
        return {**element, "state": ABSENT}
    return {**element, "state": PRESENT, "source_volume": row.volume_id}


_EVENTS = {states.DELETING: "delete", states.EXTENDING: "extend"}


def _event(row: t.Any) -> str:
    return _EVENTS.get(row.status, "create")


def _journal(
    conn: t.Any,
    host: str,
    rows: t.Sequence[t.Any],
    snapshots: t.Sequence[tuple[t.Any, t.Any]],
    context: Context,
) -> None:
    now = context.now
    for event in ("create", "delete", "extend"):
        ids = [r.id for r in rows if _event(r) == event]
        volume_history.start_events(conn, ids, event, host, context)
        kind = "resize" if event == "extend" else event
        volume_history.notify(conn, ids, "volume.%s.start" % kind, {"host": host}, now)
    for event in ("create", "delete"):
        items = [(r.volume_id, r.id) for r, _v in snapshots if _event(r) == event]
        volume_history.start_events(conn, items, event, host, context)
        told = [(volume_id, {"host": host, "snapshot_id": snapshot_id}) for volume_id, snapshot_id in items]
        volume_history.notify_each(conn, told, "snapshot.%s.start" % event, now)
    copied = [r.id for r in rows if r.status == states.CREATING and r.image_id]
    if copied:
        volumes.swap(conn, copied, {"status": (states.CREATING,)}, now, status=states.DOWNLOADING)


def hosts_with_work(conn: t.Any, context: Context) -> list[str]:
    """Storage hosts that something is to be done on: for this run, or what an earlier one left to whoever comes next."""
    c = volumes_table.c
    mine = sa.and_(c.run_id == context.run.id, c.deleted == volumes.LIVE, c.pool_host.is_not(None))
    pool_hosts = set(conn.execute(sa.select(c.pool_host).where(mine, c.status.in_(AT_WORK)).distinct()).scalars())
    s = volume_snapshots.c
    of_snapshots = (
        sa.select(c.pool_host)
        .join(volume_snapshots, s.volume_id == c.id)
        .where(s.run_id == context.run.id, s.deleted == volumes.LIVE, s.status.in_(SNAPSHOT_AT_WORK))
    )
    pool_hosts.update(p for p in conn.execute(of_snapshots.distinct()).scalars() if p)
    left = {r.pool_host for r in pending_cleanups.waiting(conn, context)}
    pool_hosts |= left - storage_backends.silent_pool_hosts(conn, left)
    hosts = {volumes.host_of(p) for p in pool_hosts}
    return sorted(
        hosts | attachment_exports.hosts_to_export(conn, context) | attachment_exports.hosts_to_unexport(conn, context)
    )


# --- finishing -----------------------------------------------------------------------------------------------------------


def finish(conn: t.Any, host: str, results: t.Mapping[str, WorkResult], context: Context) -> Finished:
    """Write how the work of begin() went: backend's name -> its result. What no outcome is about has failed."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    of_host = {b.pool_host: b for b in storage_backends.rows_of(conn, host)}
    backends = {pool_host: b for pool_host, b in of_host.items() if b.backend in results}
    rows = _volumes_at(conn, backends, context, lock=True)
    snapshots = _snapshots_at(conn, backends, context, lock=True)
    storage_backends.lock(conn, of_host)
    found = Finished()
    for pool_host, backend in sorted(backends.items()):
        result = results[backend.backend]
        if not result.outcomes and result.error is None:
            continue
        one = _Backend(conn, host, pool_host, result, context, found)
        one.end_volumes([r for r in rows if r.pool_host == pool_host])
        one.end_snapshots([(s, v) for s, v in snapshots if v.pool_host == pool_host])
        one.end_remains()
        one.find_lost()
        one.write_left()
        if isinstance(result.error, errors.HostUnreachable):
            # Its other backends are as far away: the next attempt is for another host.
            for each in of_host:
                storage_backends.record_error(conn, each, result.error)
        elif result.error is not None:
            storage_backends.record_error(conn, pool_host, result.error)
        elif result.capacity is not None:
            storage_backends.record_capacity(conn, pool_host, result.capacity, context.now)
    return found


class _Backend:
    """The outcomes of one backend's work."""

    def __init__(
        self, conn: t.Any, host: str, pool_host: str, result: WorkResult, context: Context, found: Finished
    ) -> None:
        self.conn, self.host, self.pool_host, self.result, self.context = conn, host, pool_host, result, context
        self.found = found
        self.now = context.now
        self.counted = result.capacity is not None and result.error is None  # its numbers have what was made
        self.told: set[str] = set()  # ids that are accounted for
        self.left: list[pending_cleanups.Remains] = []  # what the backend is to be rid of: see write_left()

    def error_of(self, item_id: str) -> errors.BootflowError | None:
        self.told.add(item_id)
        if self.result.error is not None:
            return self.result.error
        outcome = self.result.outcomes.get(item_id)
        if outcome is None:
            return errors.RemoteError(reason="%s said nothing of it" % self.host)
        return errors.from_dict(outcome["error"]) if outcome.get("error") else None

    def pending(self, gigabytes: int) -> int:
        """GB of something that was made, or may have been: they are taken unless the capacity has them."""
        return 0 if self.counted else gigabytes

    def is_removed(self, item_id: str) -> bool:
        return bool(self.result.outcomes[item_id].get("size") == 0)

    def untouched(self, item_id: str) -> bool:
        """Whether the host is sure that nothing is there of something that failed."""
        outcome = self.result.outcomes.get(item_id) if self.result.error is None else None
        return outcome is not None and not outcome.get("changed", True)

    # --- volumes -----------------------------------------------------------------------------------------------------

    def end_volumes(self, rows: t.Sequence[t.Any]) -> None:
        made: list[t.Any] = []
        gone: list[t.Any] = []
        extended: list[t.Any] = []
        failed: dict[str, list[tuple[t.Any, errors.BootflowError]]] = {"create": [], "delete": [], "extend": []}
        for row in rows:
            error = self.error_of(row.id)
            action = _event(row)
            if error is not None:
                failed[action].append((row, error))
            elif action == "create":
                made.append(row)
            elif action == "extend":
                extended.append(row)
            elif self.is_removed(row.id):
                gone.append(row)
            else:
                self.found.lost.append(row.id)  # it was deleted while it was made: the next begin() removes it
        self.made(made)
        self.not_made(failed["create"])
        tombstones.forget(self.conn, gone, self.host, self.context)
        self.found.done += [r.id for r in gone]
        self.not_deleted(failed["delete"])
        growing = extended + [row for row, _error in failed["extend"]]
        attach_statuses = self.attach_statuses(growing)
        self.extended(extended, attach_statuses)
        self.not_extended(failed["extend"], attach_statuses)

    def made(self, rows: t.Sequence[t.Any]) -> None:
        if not rows:
            return
        conn, now = self.conn, self.now
        bulk.update(
            conn,
            volumes_table,
            "id",
            [
                {
                    "id": r.id,
                    "status": states.status_after("create", None),
                    "made": True,
                    "pending_gb": self.pending(r.pending_gb),
                    "bootable": bool(r.bootable or r.image_id or r.spec.get("source_bootable")),
                    "image_metadata": image_metadata(r.spec),
                    "launched_at": now,
                    "updated_at": now,
                    # a boot goes on with it
                    "run_id": self.context.run.id if r.instance_uuid else None,
                }
                for r in rows
            ],
        )
        ids = [r.id for r in rows]
        volume_history.finish_events(conn, ids, "create", volume_history.SUCCESS, now)
        volume_history.notify(conn, ids, "volume.create.end", {"host": self.host}, now)
        attachment_reservations.made(conn, [r.id for r in rows if r.instance_uuid], self.context)
        self.found.done += ids

    def not_made(self, failures: t.Sequence[tuple[t.Any, errors.BootflowError]]) -> None:
        again: list[dict[str, t.Any]] = []
        over: list[dict[str, t.Any]] = []
        for row, error in failures:
            outcome = self.result.outcomes.get(row.id, {})
            answer = outcome_of(error, row.retry, copying=bool(outcome.get("copying")), now=self.now)
            sure = self.untouched(row.id)
            pending = 0 if sure else self.pending(row.pending_gb)
            status = answer.values["status"]
            if answer.kind != RESCHEDULE:
                over.append({"id": row.id, "status": status, "made": False, "pending_gb": pending, "run_id": None})
                self.found.failed[row.id] = error
                continue
            retry = record_failure(row.retry, error)
            values = {"status": status, "made": False, "pending_gb": 0, "pool_host": None, "retry": retry}
            again.append({"id": row.id, **values, "scheduled_at": self.now})
            if not sure:
                self.left.append(pending_cleanups.Remains(self.pool_host, row.id, error.message, pending))
            self.found.rescheduled.append(row.id)
        self._set(again)
        self._set(over)
        self._tell_failures(failures, "create", {each["id"] for each in again})

    def not_deleted(self, failures: t.Sequence[tuple[t.Any, errors.BootflowError]]) -> None:
        self._set([{"id": row.id, "status": states.status_after("delete", error)} for row, error in failures])
        self._tell_failures(failures, "delete")
        self.found.failed.update({row.id: error for row, error in failures})

    def attach_statuses(self, rows: t.Sequence[t.Any]) -> dict[str, str]:
        """Of volumes that were extended while they were in use: their instances may have ended meanwhile."""
        used = [r.id for r in rows if r.attach_status == states.ATTACHED]
        there = volumes.attachments_of(self.conn, used) if used else {}
        found = {r.id: str(r.attach_status) for r in rows}
        for volume_id in used:
            attached = any(a.attach_status == states.ATTACHED for a in there.get(volume_id, []))
            found[volume_id] = states.ATTACHED if attached else states.DETACHED
        return found

    def extended(self, rows: t.Sequence[t.Any], attach_statuses: t.Mapping[str, str]) -> None:
        if not rows:
            return
        conn = self.conn
        written = []
        for row in rows:
            attach_status = attach_statuses[row.id]
            previous = row.previous_status if attach_status == row.attach_status else states.AVAILABLE
            written.append(
                {
                    "id": row.id,
                    "status": states.status_after("extend", None, previous),
                    "attach_status": attach_status,
                    "previous_status": None,
                    "size": row.new_size,
                    "new_size": None,
                    "pending_gb": self.pending(row.pending_gb),
                    "run_id": None,
                }
            )
        self._set(written)
        ids = [r.id for r in rows]
        c = volume_attachments.c
        attached = (bulk.among(conn, c.volume_id, ids), c.deleted == volumes.LIVE, c.attach_status == states.ATTACHED)
        conn.execute(volume_attachments.update().where(*attached).values(rescan=True))
        volume_history.finish_events(conn, ids, "extend", volume_history.SUCCESS, self.now)
        told = [(r.id, {"host": self.host, "size": r.new_size}) for r in rows]
        volume_history.notify_each(conn, told, "volume.resize.end", self.now)
        self.found.done += ids

    def not_extended(
        self, failures: t.Sequence[tuple[t.Any, errors.BootflowError]], attach_statuses: t.Mapping[str, str]
    ) -> None:
        self._set(
            [
                {
                    "id": row.id,
                    "status": states.status_after("extend", error),
                    "attach_status": attach_statuses[row.id],
                    "new_size": None,
                    "pending_gb": self.pending(row.pending_gb),
                }
                for row, error in failures
            ]
        )
        self._tell_failures(failures, "extend")
        self.found.failed.update({row.id: error for row, error in failures})

    def _tell_failures(
        self,
        failures: t.Sequence[tuple[t.Any, errors.BootflowError]],
        action: str,
        again: t.Collection[str] = (),
    ) -> None:
        volume_history.fail_events(self.conn, {r.id: e.message for r, e in failures}, action, self.now)
        faults = [volume_history.Fault(r.id, e, self.host, r.id in again) for r, e in failures]
        volume_history.add_faults(self.conn, faults, self.now)

    def _set(self, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        bulk.update(self.conn, volumes_table, "id", [{**row, "updated_at": self.now} for row in rows])

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def end_snapshots(self, rows: t.Sequence[tuple[t.Any, t.Any]]) -> None:
        conn, now = self.conn, self.now
        gone: list[t.Any] = []
        made: list[t.Any] = []
        failed: dict[str, list[tuple[t.Any, errors.BootflowError]]] = {"create": [], "delete": []}
        written = []
        for row, _volume in rows:
            action = _event(row)
            error = self.error_of(row.id)
            if error is None and action == "delete":
                gone.append(row)
                continue
            pending = 0 if error is not None and self.untouched(row.id) else self.pending(row.pending_gb)
            status = states.status_after("snapshot_%s" % action, error)
            written.append({"id": row.id, "status": status, "pending_gb": pending, "updated_at": now})
            if error is None:
                made.append(row)
            else:
                failed[action].append((row, error))
        bulk.update(conn, volume_snapshots, "id", written)
        if made:
            items = [(r.volume_id, r.id) for r in made]
            volume_history.finish_events(conn, items, "create", volume_history.SUCCESS, now)
            told = [(r.volume_id, {"host": self.host, "snapshot_id": r.id}) for r in made]
            volume_history.notify_each(conn, told, "snapshot.create.end", now)
        for action, failures in failed.items():
            details = {(r.volume_id, r.id): e.message for r, e in failures}
            volume_history.fail_events(conn, details, action, now)
            faults = [volume_history.Fault((r.volume_id, r.id), e, self.host) for r, e in failures]
            volume_history.add_faults(conn, faults, now)
            self.found.failed.update({r.id: e for r, e in failures})
        tombstones.forget_snapshots(conn, gone, self.host, self.context)
        self.found.done += [r.id for r in made + gone]

    # --- what nobody has any more --------------------------------------------------------------------------------------

    def end_remains(self) -> None:
        """What was left here of others: gone, or still there."""
        rows = [
            r for r in pending_cleanups.waiting(self.conn, self.context, [self.pool_host]) if r.item_id not in self.told
        ]
        mine = [r for r in rows if r.run_id == self.context.run.id]
        gone = [r.item_id for r in mine if self.error_of(r.item_id) is None]
        if gone:
            pending_cleanups.done(self.conn, [(self.pool_host, i) for i in gone])
            self.found.done += gone
        for row in mine:
            error = self.error_of(row.item_id)
            if error is not None:
                pending = self.pending(row.pending_gb)
                self.left.append(
                    pending_cleanups.Remains(
                        self.pool_host, row.item_id, error.message, pending, row.kind, row.volume_id
                    )
                )
                self.found.failed[row.item_id] = error

    def find_lost(self) -> None:
        """Outcomes of what this run has no more: what it made is to go, unless it lives here as somebody else's."""
        late = {i: o for i, o in self.result.outcomes.items() if i not in self.told and not o.get("error")}
        late = {i: o for i, o in late.items() if not self.is_removed(i)}
        if not late:
            return
        c = volumes_table.c
        s = volume_snapshots.c
        of_volumes = {
            r.id: r
            for r in self.conn.execute(
                sa.select(c.id, c.pool_host, c.status, c.deleted, c.size).where(
                    bulk.among(self.conn, c.id, sorted(late))
                )
            )
        }
        of_snapshots = {
            r.id: r
            for r in self.conn.execute(
                sa.select(s.id, s.volume_id, c.pool_host, s.status, s.deleted, s.volume_size.label("size"))
                .join(volumes_table, c.id == s.volume_id)
                .where(bulk.among(self.conn, s.id, sorted(late)))
            )
        }
        for item_id in sorted(late):
            row = of_volumes.get(item_id) or of_snapshots.get(item_id)
            if row is None:
                continue  # nothing that this ledger ever knew
            lives = row.deleted == volumes.LIVE and row.pool_host == self.pool_host
            if lives and row.status not in (states.DELETING, states.ERROR_DELETING):
                continue
            is_snapshot = item_id in of_snapshots
            self.left.append(
                pending_cleanups.Remains(
                    self.pool_host,
                    item_id,
                    "it was made too late",
                    self.pending(row.size),
                    pending_cleanups.SNAPSHOT if is_snapshot else pending_cleanups.VOLUME,
                    row.volume_id if is_snapshot else item_id,
                )
            )
            self.found.lost.append(item_id)

    def write_left(self) -> None:
        pending_cleanups.add_all(self.conn, self.left, self.now)


def image_metadata(spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What Cinder keeps as volume_glance_metadata: of the image, or of what it was made from."""
    image = spec.get("image")
    if image is None:
        return dict(spec.get("source_image_metadata") or {})
    return {
        **dict(image.get("properties") or {}),
        "image_id": image["id"],
        "image_name": image["name"],
        "checksum": image["checksum"],
        "container_format": "bare",
        "disk_format": image["disk_format"],
        "min_disk": image["min_disk"],
        "min_ram": image["min_ram"],
        "size": image["size"],
    }
