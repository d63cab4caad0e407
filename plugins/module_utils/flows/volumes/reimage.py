# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root volumes that rebuilds write again from other images. The rules are in core.volumes.reimage.

begin() reserves a volume in the transaction that begins the rebuild. Its storage host writes it once no host is connected to it any more (flows.volumes.work);
the volume keeps its id, type, size and attachment. end_unbegun() and end_dead() end what no storage host will write. source: Cinder's reimage
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.model import Image
from ...core.request.catalogue_images import image_data
from ...core.volumes import reimage, states
from ...core.volumes.image_metadata import image_metadata
from ...ledger.compute import history
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.volumes import PlacedVolume, VolumeRow
from ..attachments import moving

EVENT = "reimage"
#: Key in the request of a volume until it is written: ``image`` as the catalogue had it, and ``former``, the status before.
REIMAGE = "reimage"


def root_of(disks: t.Iterable[t.Mapping[str, t.Any]]) -> str | None:
    """Return the id of the volume that is the root disk among the planned disks of an instance."""
    return next((d["volume_id"] for d in disks if d["kind"] == "volume" and d.get("boot_index") == 0), None)


def image_wanted(volume: VolumeRow, image: Image | None) -> Image | None:
    """Return the image that the root volume is written from by a rebuild; None: it stays as it is. :arg image: the one that is named"""
    has = volume.image_metadata.get("image_id") or volume.image_id
    if not reimage.is_wanted(volume.status, has, None if image is None else image.id):
        return None
    data = image_of(volume) or volume.spec.get("image")
    return image if image is not None or data is None else Image(**data)


def begin(
    tx: Transaction, wanted: t.Mapping[str, tuple[str, Image]], places: t.Mapping[str, str | None]
) -> dict[str, str]:
    """Reserve root volumes, and adopt their attachments. Nothing is written if one of them is refused.

    :arg wanted: uuid of an instance -> its root volume and the image. :arg places: uuid -> host of the instance
    :raises VolumeLocked: another run works on the volume. :raises BootflowError: see core.volumes.reimage.check()
    Returns uuid -> the storage host.
    """
    if not wanted:
        return {}
    for problem in moving.refusals(tx, {uuid: places[uuid] for uuid in wanted}).values():
        raise problem
    ids = sorted({volume_id for volume_id, _image in wanted.values()})
    rows = {r.id: r for r in volumes.select(tx, ids=ids, lock=True)}
    alive = volumes.live_runs(tx, rows.values())
    of_volumes = attachments.of_volumes(tx, ids)
    written, hosts = [], {}
    for uuid, (volume_id, image) in sorted(wanted.items()):
        row = rows.get(volume_id)
        if row is None or not volumes.is_placed(row):
            raise errors.VolumeNotFound(volume_id=volume_id)
        if row.status in volumes.BUSY and row.run_id in alive:
            raise volumes.locked_error(tx, row)
        guests = len({a.instance_uuid for a in of_volumes[volume_id] if a.attach_status != states.DETACHED})
        reimage.check(volumes.to_volume(row), image, guests, row.name or "")
        hosts[uuid] = volumes.host_of(row.pool_host)
        written.append(
            {
                "id": row.id,
                "status": states.RESERVED,
                "previous_status": row.status,
                "spec": {**row.spec, REIMAGE: {"image": image_data(image), "former": row.status}},
                "run_id": tx.run.id,
            }
        )
    volumes.update(tx, written)
    own = [a for i in ids for a in of_volumes[i] if a.instance_uuid in wanted and a.beside == attachments.OWN]
    moving.adopt_attachments(tx, [a.id for a in own])
    return hosts


def image_of(row: VolumeRow) -> dict[str, t.Any] | None:
    """Return the image that the storage host writes to a volume that is reserved or written."""
    image: dict[str, t.Any] | None = (row.spec.get(REIMAGE) or {}).get("image")
    return image


def begun(tx: Transaction, rows: t.Sequence[VolumeRow]) -> None:
    """The storage host begins to write these."""
    if rows:
        expected = {"status": reimage.UNDER_WAY}
        volumes.swap(tx, [r.id for r in rows], expected, tx.run.id, previous_status=states.ERROR)


def done(tx: Transaction, rows: t.Sequence[PlacedVolume], pending_gb: t.Callable[[int], int]) -> None:
    """These have the content of their new images, and the metadata of volumes that are made from these."""
    written = []
    for row in rows:
        image = image_of(row) or {}
        spec = {**{k: v for k, v in row.spec.items() if k != REIMAGE}, "image": image, "image_id": image.get("id")}
        written.append(
            {
                "id": row.id,
                "status": states.status_after("reimage", None),
                "previous_status": None,
                "image_id": image.get("id"),
                "image_metadata": image_metadata(spec),
                "spec": spec,
                "bootable": True,
                "pending_gb": pending_gb(row.pending_gb),
                "run_id": None,
            }
        )
    volumes.update(tx, written)


def failed(
    tx: Transaction,
    problems: t.Sequence[tuple[VolumeRow, errors.BootflowError]],
    untouched: t.Callable[[str], bool] = lambda volume_id: False,
) -> None:
    """End these without their new content. One of which nothing was written is what it was. :arg untouched: whether the host says so"""
    written = []
    for row, error in problems:
        former = (row.spec.get(REIMAGE) or {}).get("former")
        status = reimage.status_after(row.previous_status, former, error, untouched(row.id))
        spec = dict(row.spec)
        if status != states.ERROR:  # which is written from it the next time
            spec.pop(REIMAGE, None)
        written.append({"id": row.id, "status": status, "previous_status": None, "spec": spec, "run_id": None})
    volumes.update(tx, written)


def end_unbegun(
    tx: Transaction, uuids: t.Collection[str], cause: t.Callable[[str], errors.BootflowError]
) -> dict[str, errors.BootflowError]:
    """End what this run began with the root volumes of these instances, and their storage hosts did not end.

    :arg cause: why, by the instance's uuid. Returns uuid -> why the content of its root volume is not known.
    """
    rows_of = attachments.of_instances(tx, uuids) if uuids else {}
    instance_of = {a.volume_id: uuid for uuid, group in rows_of.items() for a in group}
    rows = volumes.select(tx, ids=instance_of, run_id=tx.run.id, statuses=reimage.UNDER_WAY, lock=True)
    problems = [(r, cause(instance_of[r.id])) for r in rows]
    _end(tx, problems)
    return {instance_of[r.id]: e for r, e in problems if reimage.is_torn(r.status, r.previous_status)}


def end_left(tx: Transaction, uuids: t.Collection[str]) -> None:
    """End the writing of the root volumes of these instances, whose rebuilds dead runs left."""
    ids = {a.volume_id for group in attachments.of_instances(tx, uuids).values() for a in group} if uuids else set()
    rows = volumes.select(tx, ids=ids, statuses=reimage.UNDER_WAY, lock=True) if ids else []
    alive = volumes.live_runs(tx, rows)
    end_dead(tx, [r for r in rows if r.run_id not in alive and r.run_id != tx.run.id])


def end_dead(tx: Transaction, rows: t.Sequence[VolumeRow]) -> None:
    """End the writing of these volumes, whose runs died: the content of volumes that a storage host had begun to write is not known."""
    _end(tx, [(r, died_error(r)) for r in rows])


def _end(tx: Transaction, problems: t.Sequence[tuple[VolumeRow, errors.BootflowError]]) -> None:
    failed(tx, problems)
    torn = {r.id: (e, volumes.host_of(r.pool_host) if r.pool_host else None) for r, e in problems}
    torn = {r.id: torn[r.id] for r, _e in problems if reimage.is_torn(r.status, r.previous_status)}
    volume_history.fail_events(tx, {i: e.in_full for i, (e, _host) in torn.items()}, EVENT)
    volume_history.add_faults(tx, [volume_history.Fault(i, e, host) for i, (e, host) in torn.items()])


def died_error(row: VolumeRow) -> errors.BootflowError:
    """The fault of a volume whose run died while it was written again."""
    return errors.VolumeBackendAPIException(
        data="run %s died while volume %s was written again" % (row.run_id, row.name or row.id),
        remedy="Rebuild its instance again, with the same image or another one.",
    )


class Reimaged(t.NamedTuple):
    """The outcome of a storage host for the root volume of an instance that is rebuilt."""

    done: bool
    torn: bool = False  # its content is not known
    error: errors.BootflowError | None = None


def outcomes(tx: Transaction, wanted: t.Mapping[str, tuple[str, str]]) -> dict[str, Reimaged]:
    """Return by instance what became of its root volume, after its storage host was asked. :arg wanted: uuid -> the volume and the image's id"""
    rows = {r.id: r for r in volumes.select(tx, ids={v for v, _image in wanted.values()})} if wanted else {}
    faults = volume_history.last_faults(tx, list(rows)) if rows else {}
    by_uuid: dict[str, Reimaged] = {}
    for uuid, (volume_id, image_id) in wanted.items():
        row = rows.get(volume_id)
        if row is not None and row.status == states.IN_USE and row.image_id == image_id:
            by_uuid[uuid] = Reimaged(True)
            continue
        fault = faults.get(volume_id)
        torn = row is None or reimage.is_torn(row.status, row.previous_status)
        by_uuid[uuid] = Reimaged(False, torn, _why(row, volume_id, fault))
    return by_uuid


def _why(row: VolumeRow | None, volume_id: str, fault: history.LastFault | None) -> errors.BootflowError:
    if fault is not None and (row is None or row.status not in reimage.UNDER_WAY):
        return errors.from_dict(dict(fault))
    host = volumes.host_of(row.pool_host) if row is not None and row.pool_host else "its host"
    return errors.VolumeBackendAPIException(
        data="%s did not write volume %s again" % (host, volume_id),
        remedy="Bring storage host %s back, then run the same command again." % host,
    )
