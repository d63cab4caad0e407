# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volumes of a boot: those that exist are looked at and kept for the instance, those it asks for are entered with it.

read() looks at all that is asked for and locks it, keep() writes. Between the two nothing was touched.
source: 000, _check_and_transform_bdm and _validate_bdm (rows A26-A28); semantics 10; Nova's get_bdm_image_metadata and
_get_volume_create_az_value (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ..core import errors
from ..core.block_devices import BlockDeviceOptions, PlannedDisk, block_device_plan, planned_disk
from ..core.model import BlockDevice, Image, ServerRequest
from ..core.numa.constraints import numa_constraints
from ..core.request.problems import Problems
from ..core.volumes import attach_rules, create_request, states
from ..core.volumes.model import VolumeRequest
from . import attachment_reservations, attachments, instances, volume_accept, volumes
from .context import Context
from .libraries import sa
from .tables import block_device_mappings
from .volume_accept import VolumeInputs

VOLUME = "volume"  # kind of a planned disk
# What an image has beside its properties, among the metadata of a volume that was made of it.
_ATTRIBUTES = ("min_disk", "min_ram")
_GIB = 1024**3


class Wish(t.NamedTuple):
    """A volume to be made, as volume_accept.add() takes it."""

    path: str
    request: VolumeRequest
    image: Image | None


@dataclass
class Planned:
    """One entry with its disks, and what of them are volumes."""

    request: ServerRequest  # its zone is that of the volumes it uses, where that binds
    disks: list[PlannedDisk] = field(default_factory=list)
    meta: Image | None = None  # whose properties the guest has
    existing: dict[str, t.Any] = field(default_factory=dict)  # as the disk calls it -> row of volumes
    wishes: dict[str, Wish] = field(default_factory=dict)  # by the disk's name

    @property
    def volume_backed(self) -> bool:
        return any(d.kind == VOLUME and d.boot_index == 0 for d in self.disks)


@dataclass(frozen=True)
class BootVolumeOptions:
    """``inputs``: what volumes that a boot makes are read with; None where nobody makes any."""

    inputs: VolumeInputs | None = None
    cross_az_attach: bool = True


def read(
    conn: t.Any,
    requests: t.Sequence[ServerRequest],
    new: t.Sequence[t.Sequence[str]],
    options: BootVolumeOptions,
    context: Context,
    refusals: Problems,
    resumed: t.Sequence[str] = (),
) -> list[Planned]:
    """The disks of every entry. What is wrong with a volume is added to ``refusals``, at its block device.

    :arg new: the names that each entry is to make; nothing is looked at for an entry without any.
    :arg resumed: instances whose builds are to be taken over, or begun anew.
    The rows of the volumes that all of these use are locked, by id, until the transaction ends.
    """
    devices = [
        [d for d in r.block_device_mapping if not d.no_device] if names else [] for r, names in zip(requests, new)
    ]
    found: list[dict[str, t.Any]] = [_find(conn, r, ds) for r, ds in zip(requests, devices)]
    again = instances.disks_of(conn, resumed)
    kept = {d["volume_id"] for disks in again.values() for d in disks if d.get("volume_id")}
    ids = sorted(kept | {row.id for rows in found for row in rows.values()})
    locked = {r.id: r for r in volumes.select(conn, ids=ids, lock=True)} if ids else {}
    found = [{word: locked[row.id] for word, row in rows.items() if row.id in locked} for rows in found]
    result = []
    taken: set[str] = set()
    for index, (request, names, rows) in enumerate(zip(requests, new, found)):
        reader = _Reader(conn, request, "instances[%d]" % index, rows, options, context, refusals, taken)
        result.append(reader.read() if names else Planned(request))
    return result


def _find(conn: t.Any, request: ServerRequest, devices: t.Sequence[BlockDevice]) -> dict[str, t.Any]:
    words = [d.uuid for d in devices if d.source_type == "volume" and d.uuid]
    words += _image_words(request)
    return volumes.find(conn, list(dict.fromkeys(words)), request.project)[0] if words else {}


def _image_words(request: ServerRequest) -> list[str]:
    """Volumes that the image itself maps."""
    mapped = (request.image.properties.get("block_device_mapping") if request.image is not None else None) or ()
    words = [m.get("uuid") or m.get("volume_id") for m in mapped if isinstance(m, t.Mapping)]
    return [str(w) for w in words if w]


class _Reader:
    """One entry."""

    def __init__(
        self,
        conn: t.Any,
        request: ServerRequest,
        path: str,
        rows: t.Mapping[str, t.Any],
        options: BootVolumeOptions,
        context: Context,
        refusals: Problems,
        taken: set[str],
    ):
        self.conn = conn
        self.path = path
        self.rows = rows
        self.options = options
        self.context = context
        self.refusals = refusals
        self.taken = taken
        self.planned = Planned(request)
        self.unused = list(enumerate(request.block_device_mapping))

    def read(self) -> Planned:
        planned = self.planned
        with self.refusals.collect(self.path + ".block_device_mapping"):
            planned.meta = self._meta()
            properties = planned.meta.properties if planned.meta is not None else {}
            self._resources(properties)
            planned.disks = block_device_plan(
                planned.request.flavor,
                planned.request.image,
                planned.request.block_device_mapping,
                BlockDeviceOptions(max_count=planned.request.max_count),
                properties,
            )
        for disk in planned.disks:
            if disk.kind == VOLUME:
                where = self._path_of(disk)
                with self.refusals.collect(where):
                    if disk.volume_source == "volume":
                        self._existing(disk)
                    else:
                        zone = planned.request.availability_zone
                        project = planned.request.project
                        planned.wishes[disk.name] = wish_of(
                            self.conn, disk, where, project, zone, self.options, self.context
                        )
        return planned

    # --- the guest's properties -----------------------------------------------------------------------------------------

    def _meta(self) -> Image | None:
        """source: Nova's get_bdm_image_metadata"""
        request = self.planned.request
        if request.image is not None:
            return request.image
        if request.root_image is not None:
            return _anonymous(request.root_image)
        root = next((d for d in request.block_device_mapping if d.boot_index == 0 and not d.no_device), None)
        if root is None or root.source_type == "blank":
            return None
        row = self._origin(root)
        if row is None:
            return None  # told where its disk is read
        metadata = dict(row.image_metadata)
        numbers = {name: int(metadata.pop(name, 0) or 0) for name in _ATTRIBUTES}
        if request.flavor.memory_mb < numbers["min_ram"]:
            raise errors.FlavorMemoryTooSmall()
        return Image(name="", id="", disk_format="", size=row.size * _GIB, properties=metadata, **numbers)

    def _origin(self, root: BlockDevice) -> t.Any:
        if root.source_type == "volume":
            return self.rows.get(str(root.uuid))
        snapshot = volumes.find_snapshots(self.conn, [str(root.uuid)], self.planned.request.project).get(str(root.uuid))
        found = volumes.select(self.conn, ids=[snapshot.volume_id]) if snapshot is not None else []
        return found[0] if found else None

    def _resources(self, properties: t.Mapping[str, t.Any]) -> None:
        """What a volume's image wishes of the host's cells was not known when the request was read."""
        request = self.planned.request
        if request.image is None and request.root_image is None and properties:
            topology = numa_constraints(request.flavor, properties)
            self.planned.request = replace(request, numa_topology=topology)

    # --- volumes ------------------------------------------------------------------------------------------------------

    def _path_of(self, disk: PlannedDisk) -> str:
        """The block device that the disk comes from; one that the image maps is the image's."""
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
        if disk.boot_index == 0 and not row.bootable:
            raise errors.InvalidBDMVolumeNotBootable(id=row.id)
        if row.id in self.taken and not row.multiattach:
            raise errors.InvalidVolume(
                reason="volume %s is asked for twice" % row.id, remedy="Give each instance a volume of its own."
            )
        request = self.planned.request
        attach_rules.check_attach_to_instance(
            volumes.to_volume(row),
            "",
            volumes.attachments_of(self.conn, [row.id]).get(row.id, []),
            request.availability_zone,
            self.options.cross_az_attach,
        )
        if not self.options.cross_az_attach and request.availability_zone is None:
            self.planned.request = replace(request, availability_zone=row.availability_zone)
        self.taken.add(row.id)
        self.planned.existing[word] = row


def wish_of(
    conn: t.Any,
    disk: PlannedDisk,
    path: str,
    project: str,
    zone: str | None,
    options: BootVolumeOptions,
    context: Context,
) -> Wish:
    """The volume that is to be made for a disk. source: Nova's DriverVolumeBlockDevice and those derived from it

    :arg zone: of the instance, where it is known already; its volumes are of that zone unless cross_az_attach.
    :raises InvalidBDMSnapshot: :raises InvalidBDMVolumeNotBootable: and what volume_request() raises.
    """
    inputs = inputs_of(options, project)
    entry: dict[str, t.Any] = {"size": disk.size_gb, "volume_type": disk.volume_type, "image_id": disk.image_id}
    if disk.snapshot_id is not None:
        snapshot = volumes.find_snapshots(conn, [disk.snapshot_id], project).get(disk.snapshot_id)
        if snapshot is None:
            raise errors.InvalidBDMSnapshot(
                id=disk.snapshot_id, remedy="Name a snapshot of project %s, by id or name." % project
            )
        bootable = any(v.bootable for v in volumes.select(conn, ids=[snapshot.volume_id]))
        if disk.boot_index == 0 and not bootable:
            raise errors.InvalidBDMVolumeNotBootable(id=snapshot.volume_id)
        entry["snapshot_id"] = snapshot.id
    if not options.cross_az_attach:
        entry["availability_zone"] = zone
    asked = {name: value for name, value in entry.items() if value is not None}
    known = volume_accept.known_of(conn, [asked], inputs)
    request = create_request.volume_request(asked, known, inputs.options, project=project, user=context.actor)
    return Wish(path, request, inputs.image(disk.image_id) if disk.image_id is not None else None)


def inputs_of(options: BootVolumeOptions, project: str) -> VolumeInputs:
    """What volumes of a project are made with. :raises InvalidInput: nobody said."""
    if options.inputs is None:
        raise errors.InvalidInput(
            reason="volumes are not made here", remedy="Make the volume first, and name it with source_type: volume."
        )
    return replace(options.inputs, project=project)


def _anonymous(image: Image) -> Image:
    """Of an image that became a volume its properties are left: nothing is fetched for the guest."""
    return replace(image, name="", id="", checksum="", url="", path="")


# --- writing ------------------------------------------------------------------------------------------------------------


def keep(conn: t.Any, planned: Planned, uuid: str, options: BootVolumeOptions, context: Context) -> list[PlannedDisk]:
    """Enter and keep the volumes of one new instance, whose row is there. Returns its disks with their volumes' ids.

    :raises InvalidRequest: a quota, at the paths of the block devices.
    """
    made = add(conn, planned.wishes, uuid, planned.request.project, options, context)
    disks = []
    for disk in planned.disks:
        if disk.kind != VOLUME:
            disks.append(disk)
            continue
        row = planned.existing[str(disk.volume_id)] if disk.volume_source == "volume" else made[disk.name]
        disks.append(disk.of_volume(row.id, row.size))
        _reserve(conn, row, uuid, disk, planned.request.availability_zone, options, context)
    return disks


def add(
    conn: t.Any,
    wishes: t.Mapping[str, Wish],
    uuid: str,
    project: str,
    options: BootVolumeOptions,
    context: Context,
) -> dict[str, t.Any]:
    """Name of a disk -> the row of the volume that is made for it."""
    if not wishes:
        return {}
    limits = inputs_of(options, project).limits
    ids = volume_accept.add(conn, list(wishes.values()), limits, context, uuid)
    rows = {r.id: r for r in volumes.select(conn, ids=ids)}
    return {name: rows[volume_id] for name, volume_id in zip(wishes, ids)}


def _reserve(
    conn: t.Any,
    row: t.Any,
    uuid: str,
    disk: PlannedDisk,
    zone: str | None,
    options: BootVolumeOptions,
    context: Context,
) -> None:
    attachment_reservations.reserve(
        conn,
        row,
        uuid,
        disk.device_name,
        context,
        delete_on_termination=disk.delete_on_termination,
        instance_zone=zone,
        cross_az_attach=options.cross_az_attach,
    )


# --- once more ----------------------------------------------------------------------------------------------------------


def take_over(conn: t.Any, uuids: t.Sequence[str], context: Context) -> None:
    """Volumes of half-built instances are this run's now, and go on where they are."""
    if attachments.of_instances(conn, uuids):
        volume_accept.take_over(conn, uuids, context)
        attachment_reservations.take_over(conn, uuids, context)


def begin_anew(conn: t.Any, row: t.Any, options: BootVolumeOptions, context: Context) -> None:
    """An instance that ended in ERROR is built again: its volumes are kept for it anew, those that went are made again.

    :raises InvalidVolume: one of them is somebody else's meanwhile, or is still on the host that could not be cleaned.
    :raises InvalidRequest: a quota.
    """
    disks = [planned_disk(d) for d in instances.disks_of(conn, [row.uuid])[row.uuid]]
    wanted = [d for d in disks if d.kind == VOLUME]
    if not wanted:
        return
    volume_accept.take_over(conn, [row.uuid], context)
    there = {v.id: v for v in volumes.select(conn, ids=[d.volume_id for d in wanted if d.volume_id])}
    ending = {a.volume_id: a for a in attachments.of_instances(conn, [row.uuid]).get(row.uuid, ())}
    for position, disk in enumerate(disks):
        if disk.kind != VOLUME:
            continue
        volume = there.get(str(disk.volume_id))
        if disk.volume_id in ending and volume is not None and volume.status != states.DELETING:
            attachment_reservations.revive(conn, ending[disk.volume_id], context)
            continue
        gone = volume is None or volume.status in (states.DELETING, states.ERROR_DELETING, states.ERROR)
        if disk.volume_source == "volume" and volume is None:
            raise errors.InvalidBDMVolume(
                id=disk.volume_id, remedy="It was deleted: delete the instance, and boot it anew."
            )
        if gone and disk.volume_source != "volume":
            wish = wish_of(conn, disk, row.display_name, row.project, row.availability_zone, options, context)
            volume = add(conn, {disk.name: wish}, row.uuid, row.project, options, context)[disk.name]
            disk = disk.of_volume(volume.id, volume.size)
            mine = block_device_mappings.c.instance_uuid == row.uuid
            conn.execute(
                block_device_mappings.update()
                .where(sa.and_(mine, block_device_mappings.c.position == position))
                .values(disk=disk.as_dict())
            )
        _reserve(conn, volume, row.uuid, disk, row.availability_zone, options, context)
