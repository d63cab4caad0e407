# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of a boot: existing ones are checked and reserved for the instance, new ones are entered with it.

read() reads and locks everything requested, BootVolumeWriter writes. Nothing is written in between.
A volume made for an instance has no name, not even a blank one: names are unique here, but Nova's
(<instance>-blank-vol) are not.
source: Nova's _check_and_transform_bdm and _validate_bdm; Nova's get_bdm_image_metadata and _get_volume_create_az_value
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ...core import errors
from ...core.disks import boot_from_volume
from ...core.disks.block_device_mapping import image_devices
from ...core.disks.block_devices import PlannedDisk, planned_disk
from ...core.guest.config_drive_rules import check_files
from ...core.instances.request import ServerRequest
from ...core.model import BlockDevice, Image
from ...core.reading.problems import Problems
from ...core.request.image_rules import property_errors
from ...core.request.requested_resources import requested_resources
from ...core.volumes import attach_rules, create_request, states
from ...core.volumes.model import Attachment
from ...ledger.compute import instances
from ...ledger.compute.instances import Instance
from ...ledger.db.this_run import Context
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, snapshots, volumes
from ...ledger.storage import backends as storage_backends
from ...ledger.storage.snapshots import SnapshotRow
from ...ledger.storage.volumes import VolumeRow
from ..attachments import life
from ..volumes import accept, dead_uploads
from ..volumes.requests import VolumeSettings
from .planned import VOLUME, BootVolumeOptions, Planned, VolumeToCreate


def read(
    tx: Transaction,
    requests: t.Sequence[ServerRequest],
    new: t.Sequence[t.Sequence[str]],
    options: BootVolumeOptions,
    max_local_block_devices: int,
    refusals: Problems,
    resumed_volume_ids: t.Collection[str] = (),
) -> list[Planned]:
    """The disks of every entry. Errors of a volume are added to ``refusals``, at its block device.

    :arg new: the names of new instances of each entry; entries without any are skipped.
    :arg resumed_volume_ids: ids of the volumes of resumed instances.
    The rows of all these volumes are locked, by id, until the transaction ends.
    """
    devices = [
        [d for d in r.block_device_mapping if not d.no_device] if names else [] for r, names in zip(requests, new)
    ]
    named_rows = _find(tx, requests, devices)
    ids = sorted({*resumed_volume_ids, *(row.id for rows in named_rows for row in rows.values())})
    if any(row.status == states.UPLOADING for rows in named_rows for row in rows.values()):
        dead_uploads.end_dead(tx)
    locked = {r.id: r for r in volumes.select(tx, ids=ids, lock=True)} if ids else {}
    named_rows = [{word: locked[row.id] for word, row in rows.items() if row.id in locked} for rows in named_rows]
    named = sorted({row.id for rows in named_rows for row in rows.values()})
    attached = attachments.of_volumes(tx, named) if named else {}
    sources = VolumeSources(tx, _snapshot_words(requests, devices))
    result = []
    requested_ids: set[str] = set()
    for index, (request, names, rows) in enumerate(zip(requests, new, named_rows)):
        path = "instances[%d]" % index
        planned = Planned(request, max_local_block_devices=max_local_block_devices)
        if names:
            BootVolumeReader(tx, planned, path, rows, attached, sources, options, refusals, requested_ids).read()
        result.append(planned)
    return result


def _find(
    tx: Transaction, requests: t.Sequence[ServerRequest], devices: t.Sequence[t.Sequence[BlockDevice]]
) -> list[dict[str, VolumeRow]]:
    """For each entry: its word for a volume -> the row."""
    words = [
        [*(d.uuid for d in ds if d.source_type == "volume" and d.uuid), *(_image_words(r.image or r.root_image))]
        for r, ds in zip(requests, devices)
    ]
    rows_by_project: dict[str, dict[str, VolumeRow]] = {}
    for project in {r.project for r in requests}:
        named = [w for r, ws in zip(requests, words) if r.project == project for w in ws]
        rows_by_project[project] = volumes.find(tx, named, project)
    return [
        {w: rows_by_project[r.project][w] for w in ws if w in rows_by_project[r.project]}
        for r, ws in zip(requests, words)
    ]


def _snapshot_words(
    requests: t.Sequence[ServerRequest], devices: t.Sequence[t.Sequence[BlockDevice]]
) -> dict[str, set[str]]:
    """Project -> the snapshots that its entries name."""
    words_by_project: dict[str, set[str]] = {}
    for request, block_devices in zip(requests, devices):
        words = {str(d.uuid) for d in block_devices if d.source_type == "snapshot" and d.uuid}
        words_by_project.setdefault(request.project, set()).update(words)
    return words_by_project


class VolumeSources:
    """The sources of volumes, and their possible places, read once for all requests of a run.

    :arg words: project -> names or ids of snapshots that are needed for certain; others are read on demand.
    """

    def __init__(self, tx: Transaction, words: t.Mapping[str, t.Collection[str]] | None = None):
        self.tx = tx
        self.snapshots: dict[tuple[str, str], SnapshotRow | None] = {}
        self.volumes: dict[str, VolumeRow] = {}
        self.places: tuple[set[str], int] | None = None
        for project, named in (words or {}).items():
            self._read(project, named)

    def _read(self, project: str, words: t.Collection[str]) -> None:
        if not words:
            return
        rows_by_word = snapshots.find(self.tx, sorted(words), project)
        self.snapshots.update({(project, word): rows_by_word.get(word) for word in words})
        missing = {s.volume_id for s in rows_by_word.values()} - set(self.volumes)
        if missing:
            self.volumes.update({v.id: v for v in volumes.select(self.tx, ids=missing)})

    def snapshot(self, word: str, project: str) -> SnapshotRow | None:
        """The row of the snapshot of that id or name, or None."""
        if (project, word) not in self.snapshots:
            self._read(project, [word])
        return self.snapshots[project, word]

    def volume_of(self, snapshot: SnapshotRow) -> VolumeRow | None:
        """The row of the snapshot's volume, or None."""
        return self.volumes.get(snapshot.volume_id)

    def known(self, snapshot: SnapshotRow | None, settings: VolumeSettings) -> create_request.Known:
        """The known objects for a request that is made from that snapshot, or from none."""
        if self.places is None:
            self.places = storage_backends.zones(self.tx), storage_backends.count(self.tx)
        zones, backends = self.places
        source_volume = None if snapshot is None else self.volume_of(snapshot)
        rows = (
            {}
            if snapshot is None or source_volume is None
            else {snapshot.id: snapshots.to_snapshot(snapshot, source_volume)}
        )
        return create_request.Known(settings.types, settings.image, snapshots=rows, zones=zones, backends=backends)


def _image_words(image: Image | None) -> list[str]:
    """Volumes in the image's own mappings."""
    with contextlib.suppress(errors.InvalidBDMFormat):  # reported where its disks are planned
        devices = image_devices(image) if image is not None else ()
        return [d.uuid for d in devices if d.source_type == "volume" and d.uuid]
    return []


class BootVolumeReader:
    """One entry."""

    def __init__(
        self,
        tx: Transaction,
        planned: Planned,
        path: str,
        rows: t.Mapping[str, VolumeRow],
        attached: t.Mapping[str, t.Sequence[Attachment]],
        sources: VolumeSources,
        options: BootVolumeOptions,
        refusals: Problems,
        requested_ids: set[str],
    ):
        self.tx = tx
        self.path = path
        self.rows = rows
        self.attached = attached
        self.sources = sources
        self.options = options
        self.context = tx.context
        self.refusals = refusals
        self.requested_ids = requested_ids
        self.planned = planned
        self.asked_zone = planned.request.availability_zone
        self.unused = list(enumerate(planned.request.block_device_mapping))

    def read(self) -> None:
        planned = self.planned
        with self.refusals.collect(self.path + ".block_device_mapping"):
            planned.meta = self._meta()
            self._resources()
            planned.plan_disks()
        paths = [(disk, self._path_of(disk)) for disk in planned.disks if disk.kind == VOLUME]
        # Existing volumes first: the others are made in their zone.
        for disk, where in sorted(paths, key=lambda pair: pair[0].volume_source != "volume"):
            with self.refusals.collect(where):
                if disk.volume_source == "volume":
                    self._existing(disk)
                else:
                    zone, project = planned.request.availability_zone, planned.request.project
                    planned.to_create[disk.name] = volume_to_create(
                        self.sources, disk, where, project, zone, self.options, self.context
                    )

    # --- the guest's properties -----------------------------------------------------------------------------------------

    def _meta(self) -> Image | None:
        """source: Nova's get_bdm_image_metadata"""
        request = self.planned.request
        if request.image is not None:
            return request.image
        if request.root_image is not None:
            return boot_from_volume.anonymous(request.root_image)
        root = next((d for d in request.block_device_mapping if d.boot_index == 0 and not d.no_device), None)
        if root is None or root.source_type == "blank":
            return None
        row = self._origin(root)
        if row is None:
            return None  # reported where its disk is read
        image = boot_from_volume.image_of_volume(row.image_metadata, row.size)
        boot_from_volume.check_volume_flavor(image, request.flavor, root.volume_size)
        return image

    def _origin(self, root: BlockDevice) -> VolumeRow | None:
        if root.source_type == "volume":
            return self.rows.get(str(root.uuid))
        snapshot = self.sources.snapshot(str(root.uuid), self.planned.request.project)
        return None if snapshot is None else self.sources.volume_of(snapshot)

    def _resources(self) -> None:
        """Check and add what is requested by a volume's image, which was unknown when the request was read.

        :raises InvalidRequest: what is wrong with it.
        """
        request, image = self.planned.request, self.planned.meta
        if request.image is not None or request.root_image is not None or image is None or not image.properties:
            return
        path, problems = self.path + ".block_device_mapping", Problems()
        filters = None if request.forced_host or request.forced_node else self.options.filters
        resources = requested_resources(request.flavor, image, self.options.pci_aliases, path, problems, filters)
        for error in property_errors(image.properties):
            problems.add(path, error)
        with problems.collect(path):
            check_files(image.properties, request.injected_files)
        problems.raise_if_any()
        self.planned.request = replace(
            request, numa_topology=resources.numa_topology, pci_requests=resources.pci_requests
        )

    # --- volumes ------------------------------------------------------------------------------------------------------

    def _path_of(self, disk: PlannedDisk) -> str:
        """The path of the disk's block device; a device of the image's mapping has the image's path."""
        word = disk.volume_id or disk.snapshot_id or disk.image_id
        for entry in self.unused:
            index, device = entry
            same = (device.source_type, device.uuid, device.destination_type) == (disk.volume_source, word, VOLUME)
            if same and not device.no_device and (device.volume_size == disk.size_gb):
                self.unused.remove(entry)
                return "%s.block_device_mapping[%d]" % (self.path, index)
        return self.path + ".image"

    def _existing(self, disk: PlannedDisk) -> None:
        word = str(disk.volume_id)
        row = self.rows.get(word)
        if row is None:
            raise errors.InvalidBDMVolume(
                id=word, remedy="volume_list shows which there are in project %s." % self.planned.request.project
            )
        boot_from_volume.check_bootable(row.id, row.bootable, disk.boot_index)
        if row.id in self.requested_ids and not row.multiattach:
            raise errors.InvalidVolume(
                reason="volume %s is requested twice" % row.id, remedy="Give each instance a separate volume."
            )
        if row.id in {other.id for other in self.planned.existing.values()}:
            raise errors.InvalidVolume(
                reason="volume %s already attached" % row.id, remedy="An instance has a volume once: name it once."
            )
        existing = (*self.planned.existing.values(), row)
        zones = [t.cast(str, r.availability_zone) for r in existing]  # a volume that is available has one
        zone = boot_from_volume.volume_zone(self.asked_zone, zones, self.options.cross_az_attach)
        attach_rules.check_attach_to_instance(
            volumes.to_volume(row),
            "",
            self.attached.get(row.id, []),
            zone,
            self.options.cross_az_attach,
            together=life.check_others(self.tx, row, ""),
        )
        self.planned.request = replace(self.planned.request, availability_zone=zone)
        self.requested_ids.add(row.id)
        self.planned.existing[word] = row


def volume_to_create(
    sources: VolumeSources,
    disk: PlannedDisk,
    path: str,
    project: str,
    zone: str | None,
    options: BootVolumeOptions,
    context: Context,
) -> VolumeToCreate:
    """The volume to create for a disk. source: Nova's DriverVolumeBlockDevice and its subclasses

    :arg zone: of the instance, if already known; its volumes are in that zone unless cross_az_attach.
    :raises InvalidBDMSnapshot: :raises InvalidBDMVolumeNotBootable: :raises VolumeTypeNotFound: (400, as for anything
        unknown in an instance's request), and the errors of volume_request().
    """
    settings = settings_of(options, project)
    snapshot = None
    entry: dict[str, t.Any] = {"size": disk.size_gb, "volume_type": disk.volume_type, "image_id": disk.image_id}
    if disk.snapshot_id is not None:
        snapshot = sources.snapshot(disk.snapshot_id, project)
        if snapshot is None:
            raise errors.InvalidBDMSnapshot(
                id=disk.snapshot_id, remedy="Name a snapshot of project %s, by id or name." % project
            )
        source_volume = sources.volume_of(snapshot)
        boot_from_volume.check_bootable(
            snapshot.volume_id, source_volume is not None and source_volume.bootable, disk.boot_index
        )
        entry["snapshot_id"] = snapshot.id
    if not options.cross_az_attach:
        entry["availability_zone"] = zone
    asked = {name: value for name, value in entry.items() if value is not None}
    known = sources.known(snapshot, settings)
    try:
        request = create_request.volume_request(asked, known, settings.options, project=project, user=context.actor)
    except errors.VolumeTypeNotFound as error:
        error.status = 400
        raise
    return VolumeToCreate(path, request, settings.image(disk.image_id) if disk.image_id is not None else None)


def settings_of(options: BootVolumeOptions, project: str) -> VolumeSettings:
    """The settings for volumes of a project. :raises InvalidInput: boots make no volumes."""
    if options.settings is None:
        raise errors.InvalidInput(
            reason="volumes are not made here", remedy="Make the volume first, and name it with source_type: volume."
        )
    return replace(options.settings, project=project)


# --- writing ------------------------------------------------------------------------------------------------------------


class BootVolumeWriter:
    """Enters and reserves the volumes of new instances: reserve() each, then write() the new volumes."""

    def __init__(self, tx: Transaction, options: BootVolumeOptions):
        self.tx = tx
        self.options = options
        self.context = tx.context
        self.made = accept.NewVolumes(tx, options.settings is not None and options.settings.no_snapshot_gb_quota)
        self.reservations: list[attachments.Reservation] = []

    def reserve(self, planned: Planned, uuid: str) -> list[PlannedDisk]:
        """The instance's disks with their volumes' ids.

        :raises InvalidRequest: a quota, at the paths of the block devices.
        """
        ids = self._add(planned, uuid)
        disks = []
        for disk in planned.disks:
            if disk.kind != VOLUME:
                disks.append(disk)
            elif disk.volume_source == "volume":
                row = planned.existing[str(disk.volume_id)]
                disks.append(disk.of_volume(row.id, row.size))
                zone = planned.request.availability_zone
                _reserve(self.tx, row, uuid, disk, zone, self.options)
            else:
                disks.append(disk.of_volume(ids[disk.name], planned.to_create[disk.name].request.size))
                entry = (ids[disk.name], uuid, disk.device_name, disk.delete_on_termination)
                self.reservations.append(attachments.Reservation(*entry))
        return disks

    def _add(self, planned: Planned, uuid: str) -> dict[str, str]:
        """Name of a disk -> id of its new volume."""
        if not planned.to_create:
            return {}
        limits = settings_of(self.options, planned.request.project).limits
        return dict(zip(planned.to_create, self.made.add(list(planned.to_create.values()), limits, uuid)))

    def write(self) -> None:
        """Enter the new volumes."""
        self.made.write()
        attachments.reserve(self.tx, self.reservations)
        self.reservations = []


def add(
    tx: Transaction,
    wanted: VolumeToCreate,
    uuid: str,
    project: str,
    options: BootVolumeOptions,
) -> VolumeRow:
    """Plan the row of the new volume for a disk."""
    settings = settings_of(options, project)
    ids = accept.add(tx, [wanted], settings.limits, uuid, settings.no_snapshot_gb_quota)
    return volumes.select(tx, ids=ids)[0]


def _reserve(
    tx: Transaction,
    row: VolumeRow,
    uuid: str,
    disk: PlannedDisk,
    zone: str | None,
    options: BootVolumeOptions,
) -> None:
    life.reserve(
        tx,
        row,
        uuid,
        disk.device_name,
        delete_on_termination=disk.delete_on_termination,
        instance_zone=zone,
        cross_az_attach=options.cross_az_attach,
    )


# --- building again -----------------------------------------------------------------------------------------------------


def take_over(tx: Transaction, uuids: t.Sequence[str]) -> None:
    """Adopt the volumes of half-built instances, which continue where they are."""
    if attachments.of_instances(tx, uuids):
        accept.take_over(tx, uuids)
        life.resume(tx, uuids)


def begin_again(tx: Transaction, row: Instance, options: BootVolumeOptions) -> None:
    """Prepare the volumes of an instance in ERROR that is built again: reserve them, or create deleted ones again.

    :raises InvalidVolume: another instance has one of them, or it is still connected to a host that could not be cleaned.
    :raises InvalidRequest: a quota.
    """
    disks = [planned_disk(d) for d in instances.disks_of(tx, [row.uuid])[row.uuid]]
    wanted = [d for d in disks if d.kind == VOLUME]
    if not wanted:
        return
    accept.take_over(tx, [row.uuid])
    volumes_by_id = {v.id: v for v in volumes.select(tx, ids=[d.volume_id for d in wanted if d.volume_id])}
    ending = {a.volume_id: a for a in attachments.of_instances(tx, [row.uuid]).get(row.uuid, ())}
    sources = VolumeSources(tx)
    for position, disk in enumerate(disks):
        if disk.kind != VOLUME:
            continue
        volume = volumes_by_id.get(str(disk.volume_id))
        if disk.volume_id in ending and volume is not None and volume.status != states.DELETING:
            life.reserve_again(tx, ending[disk.volume_id])
            continue
        if disk.volume_source == "volume" and volume is None:
            raise errors.InvalidBDMVolume(
                id=disk.volume_id, remedy="The volume was deleted. Delete the instance, and boot it again."
            )
        is_unusable = volume is None or volume.status in (states.DELETING, states.ERROR_DELETING, states.ERROR)
        if volume is None or (is_unusable and disk.volume_source != "volume"):
            zone = row.availability_zone
            created = volume_to_create(sources, disk, row.display_name, row.project, zone, options, tx.context)
            volume = add(tx, created, row.uuid, row.project, options)
            disk = disk.of_volume(volume.id, volume.size)
            instances.replace_disk(tx, row.uuid, position, disk.as_dict())
        _reserve(tx, volume, row.uuid, disk, row.availability_zone, options)
