# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accepting volumes: one transaction that writes their rows, or nothing.

Cinder's API has four steps with an undo each (validate, reserve, create the row, commit); here they are one transaction,
whose rollback is the undo. source: Cinder's API flow (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.model import Image
from ...core.reading.problems import Problems
from ...core.reading.setting import canonical
from ...core.request.catalogue_images import image_data
from ...core.volumes import create_request, quotas, states
from ...core.volumes.create_request import Known
from ...core.volumes.digest import VolumeDigest
from ...core.volumes.model import VolumeRequest
from ...ledger.compute import instances
from ...ledger.db.this_run import Context
from ...ledger.db.transaction import Transaction
from ...ledger.storage import backends, pending_cleanups, snapshots, volumes
from ...ledger.storage.pending_cleanups import PendingCleanup
from ...ledger.storage.volumes import VolumeRow
from . import requests
from .requests import VolumeSettings

INSTANCE_HINTS = ("local_to_instance",)
VOLUME_HINTS = ("same_host", "different_host")

# The path of the entry in the request, the volume, and its image.
NewVolume = t.Tuple[str, VolumeRequest, t.Optional[Image]]


@dataclass
class VolumeAccepted:
    """The requested volumes by outcome: ids, each in exactly one of the lists."""

    created: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)  # left by a dead run, or failed earlier
    unchanged: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.created or self.resumed)


@dataclass(frozen=True)
class _Entry:
    """One entry: what it requests, under the fields' own names, and the same with ids for the names in it."""

    path: str
    name: str
    requested: dict[str, t.Any]
    resolved: dict[str, t.Any]


@dataclass
class _Compared:
    """The entries compared with the existing volumes."""

    new: list[_Entry] = field(default_factory=list)
    failed: list[tuple[_Entry, VolumeRow]] = field(default_factory=list)  # creation failed: it starts over
    unfinished: list[VolumeRow] = field(default_factory=list)  # left by a dead run: creation continues
    unchanged: list[str] = field(default_factory=list)


def accept(tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], settings: VolumeSettings) -> VolumeAccepted:
    """Enter the new volumes of ``entries``, adopt volumes of dead runs, leave volumes alone that match the request.

    A failed creation starts over, with the current image of the catalogue.

    :raises InvalidRequest: all refusals of all entries (VolumeExists, VolumeLocked, quotas, ...). The caller has to
        roll its transaction back then.
    """
    requests.open_project(tx, settings)
    refusals = Problems()
    compared = _compare(tx, _read(tx, entries, settings, refusals), settings, refusals)
    again = [replace(e, resolved={**e.resolved, "size": r.size}) for e, r in compared.failed]
    known = known_of(tx, [e.resolved for e in [*compared.new, *again]], settings)
    new = _requests(compared.new, known, settings, tx.context, refusals)
    renewed = _requests(again, known, settings, tx.context, refusals)
    with refusals.collect("quotas"):
        _check_quota(new, settings.limits, lambda: settings.usage(tx), refusals)
    refusals.raise_if_any()
    failed = [r for _e, r in compared.failed]
    _start_over(tx, failed, [(r, i) for _p, r, i in renewed])
    volumes.take_ownership(tx, [r.id for r in compared.unfinished])
    digests = [VolumeDigest.from_request(e.requested) for e in compared.new]
    rows = [_row(r, i, digest, tx.context, None) for (_p, r, i), digest in zip(new, digests)]
    return VolumeAccepted(
        created=_insert(tx, rows),
        resumed=[r.id for r in [*compared.unfinished, *failed]],
        unchanged=compared.unchanged,
    )


def add(
    tx: Transaction,
    new_volumes: t.Sequence[NewVolume],
    limits: t.Mapping[str, int],
    instance_uuid: str,
    no_snapshot_gb_quota: bool = False,
) -> list[str]:
    """Enter volumes that a boot creates for the instance. Returns their ids, in order.

    The caller holds the project's turn. Raises as NewVolumes.add().
    """
    new = NewVolumes(tx, no_snapshot_gb_quota)
    ids = new.add(new_volumes, limits, instance_uuid)
    new.write()
    return ids


class NewVolumes:
    """Volumes that boots create: checked for each instance separately, entered together by write().

    The caller holds the turns of their projects.
    """

    def __init__(self, tx: Transaction, no_snapshot_gb_quota: bool = False):
        self.tx = tx
        self.no_snapshot_gb_quota = no_snapshot_gb_quota
        self.rows: list[dict[str, t.Any]] = []
        self.used: dict[str, t.Mapping[str, int]] = {}  # by project: its usage, including ``rows``

    def add(self, new_volumes: t.Sequence[NewVolume], limits: t.Mapping[str, int], instance_uuid: str) -> list[str]:
        """Add the volumes of one instance. Returns their ids, in order.

        :arg limits: of the project, core.volumes.quotas.limits_of().
        :raises InvalidRequest: quotas and names, with the given paths; an exceeded quota has the first path. None of the
            volumes is entered then.
        """
        refusals = Problems()
        for project in dict.fromkeys(r.project for _p, r, _i in new_volumes):
            of_project = [new_volume for new_volume in new_volumes if new_volume[1].project == project]
            self._check_names(of_project, project, instance_uuid, refusals)
            with refusals.collect(of_project[0][0]):
                _check_quota(of_project, limits, lambda: self._used(project), refusals, size="")  # noqa: B023 - called at once
        refusals.raise_if_any()
        rows = [_row(r, i, None, self.tx.context, instance_uuid) for _p, r, i in new_volumes]
        for _path, request, _image in new_volumes:
            amounts = quotas.for_volume(request.size, type_name(request))
            self.used[request.project] = quotas.total([self._used(request.project), amounts])
        self.rows += rows
        return [r["id"] for r in rows]

    def _used(self, project: str) -> t.Mapping[str, int]:
        if project not in self.used:
            self.used[project] = volumes.usage(self.tx, project, self.no_snapshot_gb_quota)
        return self.used[project]

    def _check_names(
        self,
        new_volumes: t.Sequence[NewVolume],
        project: str,
        instance_uuid: str,
        refusals: Problems,
    ) -> None:
        names = [r.name for _p, r, _i in new_volumes if r.name]
        if not names:
            return
        used_names = {r.name for r in volumes.select(self.tx, names=names, project=project)}
        used_names.update(r["name"] for r in self.rows if r["project"] == project)
        for path, request, _image in new_volumes:
            if request.name and request.name in used_names:
                reason = "a new volume of instance %s cannot have the same name" % instance_uuid
                refusals.add(path, errors.VolumeExists(name=request.name, reason=reason))
            used_names.add(request.name)

    def write(self) -> None:
        """Enter them."""
        _insert(self.tx, self.rows)
        self.rows = []


def take_over(tx: Transaction, instance_uuids: t.Iterable[str]) -> None:
    """Adopt the volumes of adopted builds; failed creations start over."""
    statuses = (*volumes.BEING_CREATED, states.ERROR)
    rows = volumes.select(tx, instance_uuids=instance_uuids, statuses=statuses, lock=True)
    _start_over(tx, [r for r in rows if r.status == states.ERROR], None)
    volumes.take_ownership(tx, [r.id for r in rows if r.status != states.ERROR])


def known_of(tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], settings: VolumeSettings) -> Known:
    """Return the objects that these entries can refer to: their sources by id, the zones, and the number of backends. The sources are locked: no run
    attaches or deletes one while it becomes one.
    """
    named = [str(e["snapshot_id"]) for e in entries if e.get("snapshot_id")]
    snapshot_rows = snapshots.select(tx, ids=named, project=settings.project) if named else []
    sources = {str(e["source_volid"]) for e in entries if e.get("source_volid")}
    wanted = sources | {s.volume_id for s in snapshot_rows}
    rows = {r.id: r for r in volumes.select(tx, ids=wanted, lock=True)} if wanted else {}
    return Known(
        types=settings.types,
        image=settings.image,
        volumes={i: volumes.to_volume(rows[i]) for i in sources if i in rows and rows[i].project == settings.project},
        snapshots={s.id: snapshots.to_snapshot(s, rows[s.volume_id]) for s in snapshot_rows},
        zones=backends.zones(tx),
        backends=backends.count(tx),
    )


def resolved(tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], project: str) -> list[dict[str, t.Any]]:
    """Entries (fields_of()) with ids for the names of snapshots, volumes and instances; a name without one stays."""
    known = _Ids.read(tx, entries, project)
    return [known.put_into(entry) for entry in entries]


@dataclass(frozen=True)
class _Ids:
    """Name or id -> id of what entries refer to."""

    snapshots: dict[str, str]
    volumes: dict[str, str]
    instances: dict[str, str]

    @classmethod
    def read(cls, tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], project: str) -> _Ids:
        of_snapshots = [e["snapshot_id"] for e in entries if isinstance(e.get("snapshot_id"), str)]
        of_volumes = [e["source_volid"] for e in entries if isinstance(e.get("source_volid"), str)]
        of_volumes += [w for e in entries for hint in VOLUME_HINTS for w in _hinted(e, hint)]
        names = [w for e in entries for hint in INSTANCE_HINTS for w in _hinted(e, hint)]
        source_volumes = volumes.find(tx, of_volumes, project)
        return cls(
            snapshots={w: r.id for w, r in snapshots.find(tx, of_snapshots, project).items()},
            volumes={w: r.id for w, r in source_volumes.items()},
            instances={r.display_name: r.uuid for r in instances.select_live(tx, names=names, project=project)}
            if names
            else {},
        )

    def put_into(self, entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        new = dict(entry)
        for key, ids in (("snapshot_id", self.snapshots), ("source_volid", self.volumes)):
            if isinstance(new.get(key), str):
                new[key] = ids.get(new[key], new[key])
        if isinstance(new.get("scheduler_hints"), t.Mapping):
            new["scheduler_hints"] = {k: self._hint(k, v) for k, v in new["scheduler_hints"].items()}
        return new

    def _hint(self, name: str, value: t.Any) -> t.Any:
        """The ids for a hint's name or list of names; any other value stays."""
        if name not in VOLUME_HINTS + INSTANCE_HINTS:
            return value
        ids = self.volumes if name in VOLUME_HINTS else self.instances
        if isinstance(value, (list, tuple)):
            return [ids.get(w, canonical(w)) if isinstance(w, str) else w for w in value]
        return ids.get(value, canonical(value)) if isinstance(value, str) else value


def _hinted(entry: t.Mapping[str, t.Any], hint: str) -> list[str]:
    hints = entry.get("scheduler_hints")
    value = hints.get(hint) if isinstance(hints, t.Mapping) else None
    return [w for w in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(w, str)]


# --- reading -------------------------------------------------------------------------------------------------------------


def _read(
    tx: Transaction, entries: t.Sequence[t.Mapping[str, t.Any]], settings: VolumeSettings, refusals: Problems
) -> list[_Entry]:
    """The entries with a unique name and known fields."""
    parsed_entries = list(requests.read_entries(entries, "volume", create_request.fields_of, refusals))
    with_ids = resolved(tx, [requested for _p, _n, requested in parsed_entries], settings.project)
    return [_Entry(*entry, with_ids[number]) for number, entry in enumerate(parsed_entries)]


def _compare(tx: Transaction, entries: t.Sequence[_Entry], settings: VolumeSettings, refusals: Problems) -> _Compared:
    rows = volumes.select(tx, names=[e.name for e in entries], project=settings.project, lock=True)
    living = {r.name: r for r in rows}
    live_runs = volumes.live_runs(tx, rows)
    comparison = _Compared()
    for entry in entries:
        row = living.get(entry.name)
        if row is None:
            comparison.new.append(entry)
            continue
        with refusals.collect(entry.path + ".name"):
            _check_same(row, entry, settings)
            _check_not_being_deleted(row)
            requests.check_not_busy(tx, row, volumes.BEING_CREATED, live_runs)
            if row.status in volumes.BEING_CREATED:
                comparison.unfinished.append(row)
            elif row.status == states.ERROR and not row.made:
                comparison.failed.append((entry, row))
            else:
                comparison.unchanged.append(row.id)
    return comparison


def _check_same(row: VolumeRow, entry: _Entry, settings: VolumeSettings) -> None:
    if row.digest is None:
        raise errors.VolumeExists(name=row.name, reason="the existing volume was created for an instance")
    volume = volumes.to_volume(row)
    digest = VolumeDigest(row.digest)
    differences = digest.differences(volume, entry.requested, entry.resolved, settings.types, settings.image)
    if differences:
        raise errors.VolumeExists(name=row.name, reason="; ".join(differences))


def _check_not_being_deleted(row: VolumeRow) -> None:
    if row.status in (states.DELETING, states.ERROR_DELETING):
        raise errors.InvalidVolume(
            reason="Volume %s is %s." % (row.name, row.status),
            remedy="Finish the deletion first: run bootflow.compute.volume_delete for it again.",
        )


def _requests(
    entries: t.Sequence[_Entry], known: Known, settings: VolumeSettings, context: Context, refusals: Problems
) -> list[NewVolume]:
    new_volumes = []
    for entry in entries:
        with refusals.collect(entry.path):
            request = create_request.volume_request(
                entry.resolved, known, settings.options, project=settings.project, user=context.actor
            )
            image = settings.image(entry.resolved["image_id"]) if request.image_id is not None else None
            new_volumes.append((entry.path, request, image))
    return new_volumes


def _check_quota(
    new_volumes: t.Sequence[NewVolume],
    limits: t.Mapping[str, int],
    used: t.Callable[[], t.Mapping[str, int]],
    refusals: Problems,
    size: str = ".size",
) -> None:
    """:raises QuotaError: all of them together exceed a quota, gigabytes before numbers."""
    for path, request, _image in new_volumes:
        with refusals.collect(path + size):
            quotas.check_size(request.size, limits)
    requests.check_quota((quotas.for_volume(r.size, type_name(r)) for _p, r, _i in new_volumes), limits, used)


def type_name(request: VolumeRequest) -> str | None:
    return None if request.volume_type is None else request.volume_type.name


# --- writing -------------------------------------------------------------------------------------------------------------


def _row(
    requested: VolumeRequest,
    image: Image | None,
    digest: VolumeDigest | None,
    context: Context,
    instance_uuid: str | None,
) -> dict[str, t.Any]:
    """A new volume; _insert() adds what it inherits from its source."""
    now = context.now
    request = replace(requested, volume_id=context.new_id())
    return {
        "id": request.volume_id,
        "project": request.project,
        "user_name": context.actor,
        "name": request.name or None,
        "description": request.description,
        "size": request.size,
        "status": states.CREATING,
        "attach_status": states.DETACHED,
        "bootable": request.bootable,
        "multiattach": request.multiattach,
        "availability_zone": request.availability_zone,
        "volume_type": type_name(request),
        "snapshot_id": request.snapshot_id,
        "source_volid": request.source_volid,
        "image_id": request.image_id,
        "spec": _spec(request, image, {}),
        "digest": None if digest is None else digest.data,
        "meta": dict(request.metadata),
        "image_metadata": {},
        "instance_uuid": instance_uuid,
        "run_id": context.run.id,
        "created_at": now,
        "updated_at": now,
        "deleted": volumes.LIVE,
    }


def _insert(tx: Transaction, rows: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """Enter rows of _row(), each with what it inherits. Returns their ids."""
    if not rows:
        return []
    origins = _origins(tx, [r["snapshot_id"] for r in rows], [r["source_volid"] for r in rows])
    for row in rows:
        row["spec"].update(_inherited(origins.get(row["source_volid"] or row["snapshot_id"] or "")))
    volumes.insert(tx, rows)
    return [r["id"] for r in rows]


def _origins(
    tx: Transaction, snapshot_ids: t.Iterable[str | None], volume_ids: t.Iterable[str | None]
) -> dict[str, VolumeRow]:
    """Id of a source volume or snapshot -> the row of the volume that its content comes from."""
    of_snapshots, of_volumes = {i for i in snapshot_ids if i}, {i for i in volume_ids if i}
    sources = snapshots.select(tx, ids=of_snapshots) if of_snapshots else []
    wanted = {*of_volumes, *(s.volume_id for s in sources)}
    rows = {r.id: r for r in volumes.select(tx, ids=wanted)} if wanted else {}
    return {**rows, **{s.id: rows[s.volume_id] for s in sources}}


def _spec(request: VolumeRequest, image: Image | None, origins: t.Mapping[str, VolumeRow]) -> dict[str, t.Any]:
    """The request as stored, with the catalogue's image, and the values inherited from a source."""
    inherited = _inherited(origins.get(request.source_volid or request.snapshot_id or ""))
    return {**request.as_dict(), "image": image_data(image), **inherited}


def _inherited(origin: VolumeRow | None) -> dict[str, t.Any]:
    """The values that a volume inherits from the source of its content."""
    return {
        "source_bootable": bool(origin is not None and origin.bootable),
        "source_image_metadata": dict(origin.image_metadata) if origin is not None else {},
    }


def _start_over(
    tx: Transaction,
    rows: t.Sequence[VolumeRow],
    renewed: t.Sequence[tuple[VolumeRequest, Image | None]] | None,
) -> None:
    """Place volumes again whose creation failed; possible leftovers at their former place become pending cleanups.

    :arg renewed: their current requests, in the rows' order; None: unchanged.
    """
    if not rows:
        return
    if renewed is not None:
        origins = _origins(tx, [r.snapshot_id for r, _i in renewed], [r.source_volid for r, _i in renewed])
        specs = [_spec(replace(r, volume_id=row.id), i, origins) for row, (r, i) in zip(rows, renewed)]
        written = [
            {"id": row.id, "spec": spec, "image_id": request.image_id}
            for row, spec, (request, _image) in zip(rows, specs, renewed)
        ]
        volumes.update(tx, written)
    placed = [r for r in rows if volumes.is_placed(r)]
    if placed:
        backends.lock(tx, {r.pool_host for r in placed})
    leftovers = [PendingCleanup(r.pool_host, r.id, "creation of the volume failed", r.pending_gb) for r in placed]
    pending_cleanups.add(tx, leftovers)
    volumes.take_ownership(
        tx,
        [r.id for r in rows],
        status=states.CREATING,
        pool_host=None,
        pending_gb=0,
        retry=None,
        scheduled_at=None,
    )
