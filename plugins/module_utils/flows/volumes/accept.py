# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accepting volumes: one transaction that writes their rows, or nothing.

What Cinder's API does in four steps with an undo each (validate, reserve, create the row, commit) is one transaction here:
its rollback is the undo. source: Cinder's API flow (Queens)
"""

from __future__ import annotations

import typing as t
import uuid as uuid_module
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.model import Image
from ...core.reading.problems import Problems
from ...core.request.stored_images import image_data
from ...core.volumes import create_request, quotas, states
from ...core.volumes.catalogue import VolumeTypes
from ...core.volumes.create_request import CreateOptions, Known
from ...core.volumes.model import VolumeRequest
from ...core.volumes.request_values import check_length, check_text
from ...ledger.compute import instances, runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.locks import take_turns
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.storage import backends, pending_cleanups, volume_quotas, volumes
from ...ledger.storage.volume_digest import VolumeDigest

INSTANCE_HINTS = ("local_to_instance",)
VOLUME_HINTS = ("same_host", "different_host")


@dataclass(frozen=True)
class VolumeInputs:
    """What the inventory and settings say. ``quotas`` is bootflow_quotas; ``image`` finds one by id or name."""

    types: VolumeTypes
    image: t.Callable[[str], Image]
    options: CreateOptions = field(default_factory=CreateOptions)
    quotas: t.Mapping[str, t.Any] = field(default_factory=dict)
    project: str = "default"
    max_attempts: int = 3
    no_snapshot_gb_quota: bool = False

    @property
    def limits(self) -> dict[str, int]:
        """:raises InvalidInput: a quota that makes no sense."""
        return quotas.limits_of(self.quotas, self.project, self.types)


@dataclass
class VolumeAccepted:
    """What became of the wished volumes, by id, each in exactly one of the lists."""

    created: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)  # a dead run left them, or making them failed earlier
    unchanged: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.created or self.resumed)


@dataclass(frozen=True)
class _Entry:
    """One entry: what it asks, under the fields' own names, and with the ids of what it names."""

    path: str
    name: str
    asked: dict[str, t.Any]
    resolved: dict[str, t.Any]


def accept(
    conn: t.Any, entries: t.Sequence[t.Mapping[str, t.Any]], inputs: VolumeInputs, context: Context
) -> VolumeAccepted:
    """Write what is new of ``entries``; take over what a dead run left; leave alone what is as asked.

    A volume that could not be made begins anew, with the image as the catalogue has it now.

    :raises InvalidRequest: with every refusal of every entry (VolumeExists, VolumeLocked, quotas, ...). Nothing is written
        then: the caller's transaction is to be rolled back.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    take_turns(conn, "project", [inputs.project])  # names and quotas are its
    refusals = Problems()
    accepted = VolumeAccepted()
    read = _read(conn, entries, inputs, refusals)
    living = {r.name: r for r in volumes.select(conn, names=[e.name for e in read], project=inputs.project, lock=True)}
    alive = volumes.live_runs(conn, living.values(), context)
    new: list[_Entry] = []
    again: list[tuple[_Entry, t.Any]] = []  # failed before: they begin anew
    taken: list[t.Any] = []  # half made: they go on
    for entry in read:
        row = living.get(entry.name)
        if row is None:
            new.append(entry)
            continue
        with refusals.collect(entry.path + ".name"):
            _check_same(row, entry, inputs)
            if _is_free(conn, row, alive):
                accepted.unchanged.append(row.id)
            elif row.status == states.ERROR:
                again.append((entry, row))
            else:
                taken.append(row)
    known = known_of(conn, [e.resolved for e in read], inputs)
    requests = _requests(new, known, inputs, context, refusals)
    renewed = _requests(
        [replace(e, resolved={**e.resolved, "size": r.size}) for e, r in again], known, inputs, context, refusals
    )
    with refusals.collect("quotas"):
        _check_quota(requests, inputs.limits, lambda: volume_quotas.usage(conn, inputs.project), refusals)
    refusals.raise_if_any()
    _begin_anew(conn, [r for _e, r in again], [(r, i) for _p, r, i in renewed], context)
    _take(conn, taken, context)
    digests = [VolumeDigest.of(e.asked) for e in new]
    rows = [_row(r, i, digest, context, None) for (_p, r, i), digest in zip(requests, digests)]
    accepted.created = _insert(conn, rows)
    accepted.resumed = [r.id for r in taken] + [r.id for _e, r in again]
    return accepted


def add(
    conn: t.Any,
    requests: t.Sequence[tuple[str, VolumeRequest, Image | None]],
    limits: t.Mapping[str, int],
    context: Context,
    instance_uuid: str,
) -> list[str]:
    """Volumes that a boot makes, in creating, for that instance: (path, request, image) each. Returns their ids, in order.

    The caller holds the project's turn. Raises as NewVolumes.add().
    """
    new = NewVolumes(conn, context)
    ids = new.add(requests, limits, instance_uuid)
    new.write()
    return ids


class NewVolumes:
    """Volumes that boots make: each instance's are checked by themselves, and all are entered at once in the end: write().

    The caller holds the turns of their projects.
    """

    def __init__(self, conn: t.Any, context: Context):
        self.conn = conn
        self.context = context
        self.rows: list[dict[str, t.Any]] = []
        self.used: dict[str, t.Mapping[str, int]] = {}  # by project: what it has, with what is in rows

    def add(
        self,
        requests: t.Sequence[tuple[str, VolumeRequest, Image | None]],
        limits: t.Mapping[str, int],
        instance_uuid: str,
    ) -> list[str]:
        """Those of one instance: (path, request, image) each. Returns their ids, in order.

        :arg limits: of the project, core.volumes.quotas.limits_of().
        :raises InvalidRequest: quotas and names, with the paths given; a quota of all together has the first one's. None of
            them is entered then.
        """
        refusals = Problems()
        for project in dict.fromkeys(r.project for _p, r, _i in requests):
            mine = [each for each in requests if each[1].project == project]
            self._check_names(mine, project, instance_uuid, refusals)
            with refusals.collect(mine[0][0]):
                _check_quota(mine, limits, lambda: self._used(project), refusals, size="")  # noqa: B023 - called at once
        refusals.raise_if_any()
        rows = [_row(r, i, None, self.context, instance_uuid) for _p, r, i in requests]
        for _path, request, _image in requests:
            amounts = quotas.for_volume(request.size, type_name(request))
            self.used[request.project] = quotas.total([self._used(request.project), amounts])
        self.rows += rows
        return [r["id"] for r in rows]

    def _used(self, project: str) -> t.Mapping[str, int]:
        if project not in self.used:
            self.used[project] = volume_quotas.usage(self.conn, project)
        return self.used[project]

    def _check_names(
        self,
        requests: t.Sequence[tuple[str, VolumeRequest, t.Any]],
        project: str,
        instance_uuid: str,
        refusals: Problems,
    ) -> None:
        names = [r.name for _p, r, _i in requests if r.name]
        if not names:
            return
        there = {r.name for r in volumes.select(self.conn, names=names, project=project)}
        there.update(r["name"] for r in self.rows if r["project"] == project)
        for path, request, _image in requests:
            if request.name and request.name in there:
                reason = "a volume for instance %s was to have it" % instance_uuid
                refusals.add(path, errors.VolumeExists(name=request.name, reason=reason))
            there.add(request.name)

    def write(self) -> None:
        """Enter them."""
        _insert(self.conn, self.rows)
        self.rows = []


def take_over(conn: t.Any, instance_uuids: t.Iterable[str], context: Context) -> None:
    """The volumes of builds that this run took over are this run's now; those that could not be made begin anew."""
    rows = volumes.select(
        conn,
        instance_uuids=instance_uuids,
        statuses=(states.CREATING, states.DOWNLOADING, states.ERROR),
        lock=True,
    )
    failed = [r for r in rows if r.status == states.ERROR]
    _begin_anew(conn, failed, None, context)
    _take(conn, [r for r in rows if r.status != states.ERROR], context)


def known_of(conn: t.Any, entries: t.Sequence[t.Mapping[str, t.Any]], inputs: VolumeInputs) -> Known:
    """What these entries may name: their sources by id, the zones, and how many backends there are."""
    named = [str(e["snapshot_id"]) for e in entries if e.get("snapshot_id")]
    snapshot_rows = volumes.snapshots(conn, ids=named, project=inputs.project) if named else []
    sources = {str(e["source_volid"]) for e in entries if e.get("source_volid")}
    wanted = sources | {s.volume_id for s in snapshot_rows}
    rows = {r.id: r for r in volumes.select(conn, ids=wanted)} if wanted else {}
    return Known(
        types=inputs.types,
        image=inputs.image,
        volumes={i: volumes.to_volume(rows[i]) for i in sources if i in rows and rows[i].project == inputs.project},
        snapshots={s.id: volumes.to_snapshot(s, rows[s.volume_id]) for s in snapshot_rows},
        zones=backends.zones(conn),
        backends=backends.count(conn),
    )


def resolved(conn: t.Any, entries: t.Sequence[t.Mapping[str, t.Any]], project: str) -> list[dict[str, t.Any]]:
    """Entries (fields_of()) with the ids of the snapshots, volumes and instances that they name; what there is none of stays."""
    snapshot_words = [e["snapshot_id"] for e in entries if isinstance(e.get("snapshot_id"), str)]
    snapshots = volumes.find_snapshots(conn, snapshot_words, project)
    words = [e["source_volid"] for e in entries if isinstance(e.get("source_volid"), str)]
    words += [w for e in entries for hint in VOLUME_HINTS for w in _hinted(e, hint)]
    found, _missing = volumes.find(conn, list(dict.fromkeys(words)), project)
    named = [w for e in entries for hint in INSTANCE_HINTS for w in _hinted(e, hint)]
    guests = (
        {r.display_name: r.uuid for r in instances.select_live(conn, names=named, project=project)} if named else {}
    )
    result = []
    for entry in entries:
        new = dict(entry)
        for key, rows in (("snapshot_id", snapshots), ("source_volid", found)):
            if isinstance(new.get(key), str) and new[key] in rows:
                new[key] = rows[new[key]].id
        if isinstance(new.get("scheduler_hints"), t.Mapping):
            hints = dict(new["scheduler_hints"])
            for hint in VOLUME_HINTS + INSTANCE_HINTS:
                ids = {w: found[w].id for w in _hinted(entry, hint) if w in found} if hint in VOLUME_HINTS else guests
                if isinstance(hints.get(hint), str):
                    hints[hint] = ids.get(hints[hint], hints[hint])
                elif isinstance(hints.get(hint), (list, tuple)):
                    hints[hint] = [ids.get(w, w) if isinstance(w, str) else w for w in hints[hint]]
            new["scheduler_hints"] = hints
        result.append(new)
    return result


def _hinted(entry: t.Mapping[str, t.Any], hint: str) -> list[str]:
    hints = entry.get("scheduler_hints")
    wish = hints.get(hint) if isinstance(hints, t.Mapping) else None
    wishes = list(wish) if isinstance(wish, (list, tuple)) else [wish]
    return [w for w in wishes if isinstance(w, str)]


# --- reading -------------------------------------------------------------------------------------------------------------


def _read(
    conn: t.Any, entries: t.Sequence[t.Mapping[str, t.Any]], inputs: VolumeInputs, refusals: Problems
) -> list[_Entry]:
    """The entries that have a name of their own and known fields only."""
    found: list[tuple[str, str, dict[str, t.Any]]] = []
    names: set[str] = set()
    for index, entry in enumerate(entries):
        path = "volumes[%d]" % index
        with refusals.collect(path):
            if not isinstance(entry, t.Mapping):
                raise errors.InvalidInput(reason="a volume is a mapping", remedy="Give name and size.")
            asked = create_request.fields_of(entry)
            with refusals.collect(path + ".name"):
                name = check_length(check_text(asked.get("name"), "name"), "name", minimum=1)
                if name in names:
                    raise errors.InvalidInput(
                        reason="the name %s is asked for twice" % name, remedy="Give each entry a name of its own."
                    )
                names.add(name)
                found.append((path, name, asked))
    ids = resolved(conn, [asked for _p, _n, asked in found], inputs.project)
    return [_Entry(path, name, asked, its) for (path, name, asked), its in zip(found, ids)]


def _check_same(row: t.Any, entry: _Entry, inputs: VolumeInputs) -> None:
    if row.digest is None:
        raise errors.VolumeExists(name=row.name, reason="it was made for an instance")
    differences = VolumeDigest(row.digest).differences(row, entry.asked, entry.resolved, inputs.types, inputs.image)
    if differences:
        raise errors.VolumeExists(name=row.name, reason="; ".join(differences))


def _is_free(conn: t.Any, row: t.Any, alive: t.Collection[str]) -> bool:
    """Whether the volume is there, and nothing is to be done. :raises VolumeLocked: :raises InvalidVolume: it is being deleted."""
    if row.status in (states.DELETING, states.ERROR_DELETING):
        raise errors.InvalidVolume(
            reason="Volume %s is %s." % (row.name, row.status),
            remedy="Finish the deletion first: run bootflow.compute.volume_delete for it again.",
        )
    making = row.status in (states.CREATING, states.DOWNLOADING)
    if making and row.run_id in alive:
        raise volumes.locked_error(conn, row)
    return not making and not (row.status == states.ERROR and not row.made)


def _requests(
    entries: t.Sequence[_Entry], known: Known, inputs: VolumeInputs, context: Context, refusals: Problems
) -> list[tuple[str, VolumeRequest, Image | None]]:
    found = []
    for entry in entries:
        with refusals.collect(entry.path):
            request = create_request.volume_request(
                entry.resolved, known, inputs.options, project=inputs.project, user=context.actor
            )
            image = inputs.image(entry.resolved["image_id"]) if request.image_id is not None else None
            found.append((entry.path, request, image))
    return found


def _check_quota(
    requests: t.Sequence[tuple[str, VolumeRequest, t.Any]],
    limits: t.Mapping[str, int],
    used: t.Callable[[], t.Mapping[str, int]],
    refusals: Problems,
    size: str = ".size",
) -> None:
    """All of them together, or none. :raises QuotaError: what of them is short, gigabytes before numbers."""
    for path, request, _image in requests:
        with refusals.collect(path + size):
            quotas.check_size(request.size, limits)
    wanted = quotas.total(quotas.for_volume(r.size, type_name(r)) for _p, r, _i in requests)
    if wanted:
        quotas.check_reserve(wanted, used(), limits)


def type_name(request: VolumeRequest) -> str | None:
    return None if request.volume_type is None else request.volume_type.name


# --- writing -------------------------------------------------------------------------------------------------------------


def _row(
    wish: VolumeRequest, image: Image | None, digest: VolumeDigest | None, context: Context, instance_uuid: str | None
) -> dict[str, t.Any]:
    """A new volume; what its source hands on is added by _insert()."""
    now = context.now
    volume_id = str(uuid_module.UUID(int=context.rng.getrandbits(128), version=4))
    request = replace(wish, volume_id=volume_id)
    new = create_request.new_volume(request, now)
    return {
        "id": volume_id,
        "project": request.project,
        "user_name": context.actor,
        "name": request.name or None,
        "description": new.description,
        "size": new.size,
        "status": new.status,
        "attach_status": new.attach_status,
        "bootable": new.bootable,
        "multiattach": new.multiattach,
        "availability_zone": new.availability_zone,
        "volume_type": new.volume_type,
        "snapshot_id": new.snapshot_id,
        "source_volid": new.source_volid,
        "image_id": new.image_id,
        "spec": _spec(request, image, {}),
        "digest": None if digest is None else digest.data,
        "meta": dict(new.metadata),
        "image_metadata": {},
        "instance_uuid": instance_uuid,
        "run_id": context.run.id,
        "created_at": now,
        "updated_at": now,
        "deleted": volumes.LIVE,
    }


def _insert(conn: t.Any, rows: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """Enter rows of _row(), each with what its source hands on. Returns their ids."""
    if not rows:
        return []
    snapshot_ids = {r["snapshot_id"] for r in rows if r["snapshot_id"]}
    origins = _origins(conn, snapshot_ids, {r["source_volid"] for r in rows if r["source_volid"]})
    for row in rows:
        row["spec"].update(_handed_on(origins.get(row["source_volid"] or row["snapshot_id"] or "")))
    conn.execute(volumes_table.insert(), rows)
    return [r["id"] for r in rows]


def _origins(conn: t.Any, snapshot_ids: t.Collection[str], volume_ids: t.Collection[str]) -> dict[str, t.Any]:
    """Id of a source volume or snapshot -> the row of the volume that its content comes from."""
    snapshots = volumes.snapshots(conn, ids=snapshot_ids) if snapshot_ids else []
    wanted = {*volume_ids, *(s.volume_id for s in snapshots)}
    rows = {r.id: r for r in volumes.select(conn, ids=wanted)} if wanted else {}
    found = dict(rows)
    found.update({s.id: rows[s.volume_id] for s in snapshots})
    return found


def _spec(request: VolumeRequest, image: Image | None, origins: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The request as it is kept, with the image as the catalogue has it, and what a source hands on."""
    handed_on = _handed_on(origins.get(request.source_volid or request.snapshot_id or ""))
    return {**request.as_dict(), "image": image_data(image), **handed_on}


def _handed_on(origin: t.Any) -> dict[str, t.Any]:
    """What a volume has of the one that its content comes from."""
    return {
        "source_bootable": bool(origin is not None and origin.bootable),
        "source_image_metadata": dict(origin.image_metadata) if origin is not None else {},
    }


def _take(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """Half-made volumes go on where they are: what is there of them is made again, or left."""
    if rows:
        mine = bulk.among(conn, volumes_table.c.id, [r.id for r in rows])
        conn.execute(volumes_table.update().where(mine).values(run_id=context.run.id, updated_at=context.now))


def _begin_anew(
    conn: t.Any,
    rows: t.Sequence[t.Any],
    requests: t.Sequence[tuple[VolumeRequest, Image | None]] | None,
    context: Context,
) -> None:
    """Volumes that failed are to be placed again; where they were something may be left of them.

    :arg requests: what they are made by now, in the rows' order; None: as they were.
    """
    if not rows:
        return
    now = context.now
    c = volumes_table.c
    if requests is not None:
        asked = [r for r, _i in requests]
        origins = _origins(
            conn, {r.snapshot_id for r in asked if r.snapshot_id}, {r.source_volid for r in asked if r.source_volid}
        )
        renewed = [
            {
                "id": row.id,
                "spec": _spec(replace(request, volume_id=row.id), image, origins),
                "image_id": request.image_id,
            }
            for row, (request, image) in zip(rows, requests)
        ]
        bulk.update(conn, volumes_table, "id", renewed)
    placed = [r for r in rows if r.pool_host]
    if placed:
        backends.lock(conn, {r.pool_host for r in placed})
    why = "it failed there before"
    left = [pending_cleanups.Remains(r.pool_host, r.id, why, r.pending_gb) for r in placed]
    pending_cleanups.add_all(conn, left, now)
    conn.execute(
        volumes_table.update()
        .where(bulk.among(conn, c.id, [r.id for r in rows]))
        .values(
            status=states.CREATING,
            pool_host=None,
            pending_gb=0,
            retry=None,
            scheduled_at=None,
            run_id=context.run.id,
            updated_at=now,
        )
    )
