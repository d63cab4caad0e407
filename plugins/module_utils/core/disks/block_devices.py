# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a guest's disks: root, ephemeral, swap and volumes with bus, device name, size and boot order.

source: Nova's libvirt driver (disk mapping), _check_and_transform_bdm.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ..errors import DevicePathInUse, InvalidInput
from ..model import BlockDevice, Flavor, Image
from .block_device_checks import MAX_LOCAL_BLOCK_DEVICES, check_disk_bus, check_words, is_swap, strip_dev, validate_bdms
from .block_device_mapping import blank_bdm, normalise_bdms, prepend_dev, root_name_of
from .disk_names import (
    BUS_PREFIX,
    bus_of_name,
    check_bus,
    check_device,
    check_name,
    config_drive_bus,
    default_bus,
    free_name,
    is_q35,
)


@dataclass(frozen=True)
class PlannedDisk:
    """One disk of a guest. The plan fills all but its location; the caller adds that with ``placed()``."""

    name: str  # disk, disk.eph0, disk.swap, disk.config; a volume's uuid
    kind: str  # image, ephemeral, swap, volume, config_drive
    device_name: str  # Nova's: /dev/vda
    disk_bus: str
    device_type: str = "disk"
    boot_index: int | None = None  # from 0; None: not bootable
    size_gb: int | None = None  # root and ephemeral; root 0: as large as the image
    size_mb: int | None = None  # swap
    image_id: str | None = None
    volume_id: str | None = None
    guest_format: str | None = None  # file system of an ephemeral disk; None: the host's default
    delete_on_termination: bool = False
    tag: str | None = None
    # of a volume: its source (volume, image, snapshot, blank), and how a new one is made
    volume_source: str = ""
    snapshot_id: str | None = None
    volume_type: str | None = None
    # its location: set by the caller
    source: str = "file"  # file, block, network
    path: str | None = None
    driver_format: str | None = None  # qcow2, raw
    cache: str | None = None
    io: str | None = None
    serial: str | None = None
    readonly: bool = False
    shareable: bool = False
    connection: t.Mapping[str, t.Any] = field(default_factory=dict)  # of source network

    @property
    def dev(self) -> str:
        """libvirt's target: ``vda``."""
        return strip_dev(self.device_name) or ""

    def placed(self, path: str, driver_format: str, source: str = "file", **more: t.Any) -> PlannedDisk:
        """The disk with its file or block device on the host."""
        return dataclasses.replace(self, path=path, driver_format=driver_format, source=source, **more)

    def of_volume(self, volume_id: str, size_gb: int) -> PlannedDisk:
        """The disk with its volume."""
        return dataclasses.replace(self, name=volume_id, volume_id=volume_id, serial=volume_id, size_gb=size_gb)

    def as_dict(self) -> dict[str, t.Any]:
        """Plain data, for the ledger and for the module instance_disks."""
        return {**vars(self), "connection": dict(self.connection)}


def planned_disk(data: t.Mapping[str, t.Any]) -> PlannedDisk:
    """The disk from as_dict()'s data; unknown keys are ignored.

    :raises InvalidInput: name, kind, device_name or disk_bus is missing, or not a text; not a mapping.
    """
    if not isinstance(data, t.Mapping):
        raise InvalidInput(reason="a planned disk is a mapping")
    known = {item.name for item in dataclasses.fields(PlannedDisk)}
    missing = [k for k in ("name", "kind", "device_name", "disk_bus") if not (data.get(k) and isinstance(data[k], str))]
    if missing:
        raise InvalidInput(reason="a planned disk lacks %s" % ", ".join(missing))
    return PlannedDisk(**{key: value for key, value in data.items() if key in known})


def block_device_plan(
    flavor: Flavor,
    image: Image | None,
    bdms: t.Sequence[BlockDevice] = (),
    properties: t.Mapping[str, t.Any] | None = None,
    meta: Image | None = None,
    max_count: int = 1,
    max_local_block_devices: int = MAX_LOCAL_BLOCK_DEVICES,
) -> list[PlannedDisk]:
    """Return all disks of a guest except the config drive: root first, then ephemerals, swap, volumes.

    Names follow Nova: the root takes the first name of its bus (or the image's root_device_name), the others the next
    names that are free and not claimed by mappings. A user's name is used (Nova's libvirt driver ignores all but the
    root's), and decides the bus if neither its mapping nor, for the root and local disks, the image names one. A blank
    disk of size 0 is left out. An ISO image is a CD-ROM, on the CD-ROMs' bus under any mapping, also on a volume.

    :arg properties: of the guest, if the root is an existing volume and there is no image: they choose buses.
    :arg meta: the image of the root volume, if there is no image: its properties choose buses, and its mappings count.
    :arg max_count: the number of instances with these disks. :arg max_local_block_devices: see validate_bdms.
    :raises InvalidBDM: see normalise_bdms and validate_bdms; a device name that does not fit its bus.
    :raises TooManyDiskDevices: (403) the bus is full.
    :raises UnsupportedHardware: a bus that the machine lacks, or that does not have such devices.
    """
    merged = normalise_bdms(flavor, image, bdms, max_count, meta)
    validate_bdms(merged, flavor, image, max_local_block_devices)
    return _Planner(flavor, image, properties, meta).plan(merged)


def attached_disk(
    flavor: Flavor,
    bdm: BlockDevice,
    used_names: t.Collection[str],
    properties: t.Mapping[str, t.Any] | None = None,
) -> PlannedDisk:
    """A volume attached to an existing guest.

    :arg used_names: the names (vda...) of the guest's disks; the volume gets the next free one if it requests none.
    :raises DevicePathInUse: (409) the requested name is taken.
    :raises InvalidBDM: an invalid mapping; a name that does not fit the bus. :raises UnsupportedHardware: a bus that
        the machine lacks. :raises TooManyDiskDevices: (403) the bus is full.
    """
    check_words(bdm)
    check_disk_bus(bdm)
    if bdm.device_name and strip_dev(bdm.device_name) in used_names:
        raise DevicePathInUse(path=prepend_dev(bdm.device_name))
    planner = _Planner(flavor, None, properties)
    planner.used_names = set(used_names)
    return planner.volume(bdm)


def replanned(
    disks: t.Sequence[PlannedDisk], flavor: Flavor, image: Image, before: t.Mapping[str, t.Any]
) -> list[PlannedDisk]:
    """The disks of an instance whose root disk is made from another image. Volumes stay as they are.

    A local disk on the bus that the former image chose is on the new image's: where that is another one, it gets the first free name there.

    :arg before: the properties of the former image.
    :raises UnsupportedHardware: a bus that the machine lacks. :raises TooManyDiskDevices: (403) the bus is full.
    """
    old, new = _Planner(flavor, None, before), _Planner(flavor, image)
    new.used_names = {d.dev for d in disks}
    planned_disks = []
    for disk in disks:
        if disk.kind == "image":
            device_type = "cdrom" if new.of_iso else "disk"
            disk = dataclasses.replace(disk, image_id=image.id, readonly=new.of_iso)
        else:
            device_type = disk.device_type
        chosen = old.default(disk.device_type) == disk.disk_bus or device_type != disk.device_type
        bus = new.default(device_type) if chosen else disk.disk_bus
        if disk.kind != "volume" and (bus, device_type) != (disk.disk_bus, disk.device_type):
            new.used_names.discard(disk.dev)
            dev = free_name(bus, new.used_names)
            new.used_names.add(dev)
            disk = dataclasses.replace(disk, disk_bus=bus, device_type=device_type, device_name=prepend_dev(dev))
        planned_disks.append(disk)
    return planned_disks


def resized(
    disks: t.Sequence[PlannedDisk],
    before: t.Mapping[str, t.Any],
    flavor: Flavor,
    properties: t.Mapping[str, t.Any],
    reserved_names: t.Collection[str] = (),
) -> list[PlannedDisk]:
    """The disks of an instance that gets another flavor, in order: the root, local ones, then volumes, which stay as they are.

    A root disk made from an image has the flavor's size. So have an ephemeral disk and a swap disk that were all of what the former
    flavor had; those to which the request gave sizes keep them, swap within the flavor. What the former flavor had none of is made.
    Swap that the flavor has none of is left out.

    :arg before: the former flavor, as the request has it. :arg properties: of the guest: they choose buses
    :arg reserved_names: names (vda...) that no new disk gets
    :raises UnsupportedHardware: a bus that the machine lacks. :raises TooManyDiskDevices: (403) the bus is full.
    """
    ephemerals = [d for d in disks if d.kind == "ephemeral"]
    swaps = [d for d in disks if d.kind == "swap"]
    planner = _Planner(flavor, None, properties)
    planner.used_names = {d.dev for d in disks} | set(reserved_names)
    planned_disks = [_with_root_gb(d, flavor) for d in disks if d.kind == "image"]
    for disk in ephemerals:
        whole = len(ephemerals) == 1 and disk.size_gb == before["ephemeral_gb"]
        planned_disks.append(dataclasses.replace(disk, size_gb=flavor.ephemeral_gb) if whole else disk)
    if not ephemerals and flavor.ephemeral_gb and not before["ephemeral_gb"]:
        planned_disks.append(planner.blank(flavor.ephemeral_gb))
    for disk in swaps:
        has = disk.size_mb or 0
        size = flavor.swap if has == before["swap"] else min(has, flavor.swap)
        if size or disk.boot_index == 0:
            planned_disks.append(dataclasses.replace(disk, size_mb=size or has))
    if not swaps and flavor.swap and not before["swap"]:
        planned_disks.append(planner.blank(flavor.swap, "swap"))
    planned_disks += [d for d in disks if d.kind == "volume"]
    return sorted(planned_disks, key=lambda disk: disk.boot_index != 0)


def _with_root_gb(disk: PlannedDisk, flavor: Flavor) -> PlannedDisk:
    return dataclasses.replace(disk, size_gb=flavor.root_gb)


def config_drive_disk(
    disks: t.Sequence[PlannedDisk],
    properties: t.Mapping[str, t.Any],
    drive_format: str = "iso9660",
    virt_type: str = "kvm",
    machine: str | None = None,
    arch: str = "x86_64",
) -> PlannedDisk:
    """The config drive of a guest with these disks: a CD-ROM if iso9660, a disk if vfat.

    A CD-ROM takes the first free name of its bus (hda), a disk the last (vdz), which leaves names for volumes.

    :raises InvalidInput: an unknown format.
    :raises UnsupportedHardware: a bus that the machine lacks.
    """
    if drive_format not in ("iso9660", "vfat"):
        raise InvalidInput(reason="config_drive_format %r is neither iso9660 nor vfat" % drive_format)
    device_type = "cdrom" if drive_format == "iso9660" else "disk"
    chosen = config_drive_bus(device_type, properties, virt_type, machine, arch)
    return PlannedDisk(
        name="disk.config",
        kind="config_drive",
        device_name=prepend_dev(free_name(chosen, {disk.dev for disk in disks}, last=device_type == "disk")),
        disk_bus=chosen,
        device_type=device_type,
        driver_format="raw",
        readonly=device_type == "cdrom",
        delete_on_termination=True,
    )


def on_machine(
    disks: t.Iterable[PlannedDisk], properties: t.Mapping[str, t.Any], machine: str | None
) -> list[PlannedDisk]:
    """The disks as the guest's machine can have them: a CD-ROM that was planned for IDE is on SATA with q35, under a free name.

    A plan is made before the guest has a host, whose setting gives the machine type where the image names none. An image whose properties
    name the bus (hw_cdrom_bus) keeps it, and is refused where the machine lacks it.
    """
    fitted = list(disks)
    if not is_q35(machine) or properties.get("hw_cdrom_bus"):
        return fitted
    used_names = {disk.dev for disk in fitted}
    for number, disk in enumerate(fitted):
        if disk.device_type == "cdrom" and disk.disk_bus == "ide":
            name = free_name("sata", used_names)
            used_names.add(name)
            fitted[number] = dataclasses.replace(disk, disk_bus="sata", device_name=prepend_dev(name))
    return fitted


class _Planner:
    """Assigns buses and names one after the other."""

    def __init__(
        self,
        flavor: Flavor,
        image: Image | None,
        properties: t.Mapping[str, t.Any] | None = None,
        meta: Image | None = None,
    ):
        self.flavor = flavor
        meta = image if image is not None else meta
        self.of_iso = meta is not None and meta.disk_format == "iso"
        self.properties: t.Mapping[str, t.Any] = meta.properties if meta is not None else properties or {}
        self.machine = str(self.properties.get("hw_machine_type") or "") or None
        self.arch = str(self.properties.get("hw_architecture") or self.properties.get("architecture") or "x86_64")
        self.used_names: set[str] = set()

    def default(self, device_type: str) -> str:
        """The bus of a device whose mapping names none."""
        return default_bus(device_type, self.properties, machine=self.machine, arch=self.arch)

    def plan(self, bdms: t.Sequence[BlockDevice]) -> list[PlannedDisk]:
        ephemerals = [b for b in bdms if b.source_type == "blank" and b.destination_type == "local" and not is_swap(b)]
        swaps = [b for b in bdms if is_swap(b)]
        root = next(b for b in bdms if b.boot_index == 0)
        rest = [b for b in bdms if b is not root and b.destination_type == "volume"]
        self.used_names = {strip_dev(b.device_name) or "" for b in bdms if b.device_name} - {""}
        disks = [self._root(self._fitted(self._named(self._cdrom(root) if self.of_iso else root)))]
        number = 1 if root in ephemerals else 0
        for bdm in ephemerals:
            size = self.flavor.ephemeral_gb if bdm.volume_size is None else bdm.volume_size
            if bdm is root or not size:
                continue
            disks.append(self._ephemeral(self._fitted(bdm), number, size))
            number += 1
        for bdm in swaps:
            size = self.flavor.swap if bdm.volume_size is None else bdm.volume_size
            if size and bdm is not root:
                disks.append(self._swap(self._fitted(bdm), size))
        return disks + [self.volume(bdm) for bdm in rest]

    def _root(self, bdm: BlockDevice) -> PlannedDisk:
        if bdm.destination_type == "volume":
            return self.volume(bdm)
        if is_swap(bdm):
            return self._swap(bdm, bdm.volume_size or self.flavor.swap)
        if bdm.source_type == "blank":
            return self._ephemeral(bdm, 0, bdm.volume_size or self.flavor.ephemeral_gb)
        return self._disk(
            bdm,
            "disk",
            "image",
            image_id=bdm.uuid,
            size_gb=self.flavor.root_gb,
            readonly=bdm.device_type == "cdrom",
        )

    def _cdrom(self, bdm: BlockDevice) -> BlockDevice:
        """The root of an ISO image. source: Nova's get_root_info"""
        if bdm.source_type == "blank":
            return bdm
        return dataclasses.replace(bdm, device_type="cdrom", disk_bus=self.default("cdrom"))

    def _named(self, root: BlockDevice) -> BlockDevice:
        """The root with its name in the guest's properties, unless it has a name, or is on another bus."""
        name = root_name_of(self.properties) if root.device_name is None else None
        if not name or name in self.used_names or (root.disk_bus and not name.startswith(BUS_PREFIX[root.disk_bus])):
            return root
        self.used_names.add(name)
        return dataclasses.replace(root, device_name=name)

    def _fitted(self, bdm: BlockDevice) -> BlockDevice:
        """Put the root or a local disk on the image's bus, under any name (as in Nova); the letter stays."""
        device_type = bdm.device_type or "disk"
        dev = strip_dev(bdm.device_name)
        if bdm.disk_bus or not dev or not self.properties.get("hw_%s_bus" % device_type):
            return bdm
        bus = self.default(device_type)
        if BUS_PREFIX[bus_of_name(dev)] == BUS_PREFIX[bus]:
            return bdm
        name = BUS_PREFIX[bus] + dev[len(BUS_PREFIX[bus]) :]
        return dataclasses.replace(bdm, disk_bus=bus, device_name=None if name in self.used_names else name)

    def _swap(self, bdm: BlockDevice, size: int) -> PlannedDisk:
        return self._disk(bdm, "disk.swap", "swap", size_mb=size, guest_format="swap")

    def blank(self, size: int, guest_format: str | None = None) -> PlannedDisk:
        """The flavor's own ephemeral disk (GB), or with guest_format swap its swap disk (MB)."""
        bdm = blank_bdm(size, guest_format)
        return self._swap(bdm, size) if is_swap(bdm) else self._ephemeral(bdm, 0, size)

    def _ephemeral(self, bdm: BlockDevice, number: int, size: int) -> PlannedDisk:
        return self._disk(bdm, "disk.eph%d" % number, "ephemeral", size_gb=size, guest_format=bdm.guest_format)

    def volume(self, bdm: BlockDevice) -> PlannedDisk:
        volume_id = bdm.uuid if bdm.source_type == "volume" else None
        image_id = bdm.uuid if bdm.source_type == "image" else None
        disk = self._disk(bdm, "", "volume", size_gb=bdm.volume_size, volume_id=volume_id, image_id=image_id)
        return dataclasses.replace(
            disk,
            name=volume_id or disk.device_name,
            serial=volume_id,
            volume_source=bdm.source_type,
            snapshot_id=bdm.uuid if bdm.source_type == "snapshot" else None,
            volume_type=bdm.volume_type,
        )

    def _disk(self, bdm: BlockDevice, name: str, kind: str, **more: t.Any) -> PlannedDisk:
        device_type = bdm.device_type or "disk"
        dev = strip_dev(bdm.device_name)
        bus = self._bus(bdm.disk_bus, device_type, dev)
        if dev:
            check_name(dev, bus)
        else:
            dev = free_name(bus, self.used_names)
        self.used_names.add(dev)
        index = bdm.boot_index
        return PlannedDisk(
            name=name,
            kind=kind,
            device_name=prepend_dev(dev),
            disk_bus=bus,
            device_type=device_type,
            boot_index=index if index is not None and index >= 0 else None,
            delete_on_termination=bdm.delete_on_termination,
            tag=bdm.tag,
            **more,
        )

    def _bus(self, asked: str | None, device_type: str, dev: str | None) -> str:
        if asked:
            return check_device(device_type, check_bus(asked, machine=self.machine))
        bus = self.default(device_type)
        if dev:
            named = bus_of_name(dev)
            # SCSI, SATA and USB share sd: the default stays if it is one of them.
            if not (named == "scsi" and bus in ("scsi", "sata", "usb")) and named != bus:
                return check_device(device_type, check_bus(named, machine=self.machine))
        return bus
