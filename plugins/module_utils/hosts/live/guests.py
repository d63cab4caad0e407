# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that is to leave this host while it runs: what its new host must have, and its definition there."""

from __future__ import annotations

import os
import typing as t

from ...core.disks.stores.registry import RECORD_FORMATS, is_shared
from ...core.errors import BootflowError, InstanceNotFound, MigrationPreCheckError
from ...core.guest.domain.disk import identify_disk
from ...core.guest.domain.element import parse, to_text
from ...core.guest.nvram import NVRAM
from ...core.instances.moves import ENDED_HERE
from ...core.instances.power_states import POWER_PAUSED, RUNNING
from ..copies.other_disks import recorded_paths, refuse_to_leave
from ..copies.sender import CONFIG_DRIVE
from ..libvirt.connection import libvirt, libvirt_errors
from ..libvirt.running import find_domain, power_state
from ..os.paths import instance_dir
from ..os.volume_sources import name_swapped
from .channels import sockets_of
from .state import moving_of

_UNCACHED = ("none", "directsync")  # source: libvirt's qemuMigrationSrcIsSafe


def leaving(connection: t.Any, uuid: str) -> t.Any:
    """Return the domain of a guest that runs or is paused.

    :raises InstanceNotFound: the host has no such domain. :raises MigrationPreCheckError: it is off.
    """
    domain = find_domain(connection, uuid)
    if domain is None:
        raise InstanceNotFound(instance_id=uuid)
    if power_state(domain) not in (RUNNING, POWER_PAUSED):
        raise MigrationPreCheckError(
            reason="guest %s is not running" % uuid,
            remedy="Run bootflow.compute.power_sync, which writes into the ledger that the guest is off.",
        )
    return domain


def is_here(connection: t.Any, uuid: str) -> bool:
    """Return whether libvirt reports for sure that the guest is here and did not migrate: it runs here, or ran here to its end.

    Of one that is off and libvirt does not know why (it crashed, when its memory was still to follow it) both hosts have to be heard.
    """
    try:
        domain = find_domain(connection, uuid)
        if domain is None:
            return False
        goes_on = power_state(domain) in (RUNNING, POWER_PAUSED)
        return moving_of(domain) in (("", ENDED_HERE) if goes_on else (ENDED_HERE,))
    except (BootflowError, libvirt.libvirtError):
        return False


def drive_of(instances_path: str, uuid: str) -> str:
    """Return the path of a guest's config drive: it is sent before the guest migrates, and QEMU copies it only if the guest can write to it."""
    return os.path.join(instance_dir(instances_path, uuid), CONFIG_DRIVE)


def describe(
    connection: t.Any, instances_path: str, uuid: str, has: t.Mapping[str, str] | None = None
) -> dict[str, t.Any]:
    """Describe the guest for its new host: {name, power_state, cpu, disks, drive, ...}, see the module for the fields.

    :arg has: id of each of its volumes -> where this host has it
    :raises MigrationPreCheckError: the guest has a disk that cannot be copied while it runs, or is off.
    :raises GuestDisksDiffer, GuestHasSnapshots: it has what would stay behind. :raises BackupRuns: a backup of it runs.
    :raises InstanceNotFound: the host has no such domain. :raises LibvirtError: libvirt fails. :raises InvalidInput: see channels.sockets_of().
    """
    domain = leaving(connection, uuid)
    folder = instance_dir(instances_path, uuid)
    refuse_to_leave(domain, folder, has or {})
    with libvirt_errors():
        xml = parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE))
        _refuse_swapped(uuid, parse(domain.XMLDesc(0)), parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
        cpu = xml.find("cpu")
        of_host = cpu is not None and cpu.get("mode") in ("host-passthrough", "maximum")
        if of_host:
            cpu = parse(connection.getCapabilities()).find("host/cpu")
        description = {
            "name": domain.name(),
            "cpu": "" if cpu is None else to_text(cpu),
            "cpu_of_host": of_host,
            "virt_type": xml.get("type"),
            "arch": xml.find("os/type").get("arch"),
            "machine": xml.find("os/type").get("machine"),
            "hypervisor_version": connection.getVersion(),
            "libvirt_version": connection.getLibVersion(),
        }
    sockets_of("", description["name"])  # refuses a name that cannot be in the path of a socket
    volumes = [disk for disk in xml.iterfind("devices/disk") if _volume_of(disk) is not None]
    return {
        **description,
        "power_state": power_state(domain),
        "disks": list(_disks(domain, xml, folder, uuid)),
        "volumes": [_described(disk, uuid) for disk in volumes],
        "drive": os.path.isfile(drive_of(instances_path, uuid)),
        "drive_target": _written_drive(xml, drive_of(instances_path, uuid)),
    }


def _refuse_swapped(uuid: str, running: t.Any, definition: t.Any) -> None:
    """:raises MigrationPreCheckError: a disk of the guest has the serial of a volume that it exchanged, which its new host would not know."""
    swapped = name_swapped(running, definition)
    if swapped:
        raise MigrationPreCheckError(
            reason="guest %s has exchanged the volume of disk %s since it was started" % (uuid, ", ".join(swapped)),
            remedy="Reboot the instance hard first: its disk gets the serial of its volume.",
        )


def _written_drive(xml: t.Any, path: str) -> str:
    """Return the name of a config drive that the guest can write to (vfat): libvirt copies it as the disks. "" for a CD-ROM, or none."""
    for disk in xml.iterfind("devices/disk[@device='disk']"):
        source = disk.find("source")
        if source is not None and source.get("file") == path and disk.find("readonly") is None:
            return str(disk.find("target").get("dev"))
    return ""


def _volume_of(disk: t.Any) -> str | None:
    """Return the id of the volume that a disk is; None: it is none."""
    if disk.get("type") not in ("block", "network"):
        return None
    alias = disk.find("alias")
    return identify_disk(None if alias is None else alias.get("name"), disk.findtext("serial")) or None


def _described(disk: t.Any, uuid: str) -> dict[str, str]:
    """Describe a volume. :raises MigrationPreCheckError: the host may keep something of the volume that the guest has written."""
    target, driver = disk.find("target").get("dev"), disk.find("driver")
    cache = "default" if driver is None else driver.get("cache") or "default"
    if cache not in _UNCACHED and disk.find("readonly") is None:
        raise MigrationPreCheckError(
            reason="volume %s of guest %s has the cache mode %s" % (target, uuid, cache),
            remedy="Only with none or directsync another host sees at once what the guest has written. Migrate it while it is off: bootflow.compute.migrate.",
        )
    return {"id": str(_volume_of(disk)), "target": target}


def _disks(domain: t.Any, xml: t.Any, folder: str, uuid: str) -> t.Iterator[dict[str, t.Any]]:
    """Yield the local disks, each with its record in disk.info and its size now; ``mounted``: in a file system on a logical volume."""
    known = recorded_paths(folder)
    for disk in xml.iterfind("devices/disk"):
        source, target = disk.find("source"), disk.find("target").get("dev")
        path = "" if source is None else source.get("file") or source.get("dev") or source.get("name") or "a volume"
        if path in ("", os.path.join(folder, CONFIG_DRIVE)) or _volume_of(disk) is not None:
            continue
        name, record, mounted = known.get(path, ("", {}, False))
        if record.get("format") not in RECORD_FORMATS:
            raise MigrationPreCheckError(reason="disk %s of guest %s is %s" % (target, uuid, path))
        # Nothing of a disk in a pool is copied; where its cluster hangs, libvirt would not answer, and the guest stand still.
        if is_shared(record):
            size, allocated = int(record["virtual_size"]), 0
        else:
            with libvirt_errors():
                size, allocated = domain.blockInfo(target)[:2]
        yield {
            "name": name,
            "target": target,
            "allocated": allocated,
            "record": {**record, "base": "", "virtual_size": size},
            "mounted": mounted,
        }


def definition_there(
    xml: str,
    folder: str,
    folder_there: str,
    vnc_listen: str,
    pins: t.Mapping[str, t.Any] | None = None,
    volumes: t.Mapping[str, str] | None = None,
    devices: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
) -> str:
    """Return the definition of the guest on its new host: its files are in ``folder_there``, its volumes and logical volumes where that host has them,
    none of its disks is a layer over another file, and libvirt of the new host chooses its security labels.

    :arg pins: its host CPUs and cells there, see core.guest.numa.pins().
    :arg volumes: id -> ``<disk>`` with its source there. source: Nova's _update_volume_xml
    :arg devices: of disks that are logical volumes, see empty_disks.make_disks(). With a size of 0 the guest sees all of one.
    :raises MigrationPreCheckError: the guest has no such pins here; a volume or logical volume of the guest is not among them.
    """
    root = parse(xml)
    for disk in root.iterfind("devices/disk"):
        volume_id = _volume_of(disk)
        if volume_id is not None:
            if volume_id not in (volumes or {}):
                raise MigrationPreCheckError(reason="volume %s is not connected on the new host" % volume_id)
            _put_there(disk, parse((volumes or {})[volume_id]))
        elif disk.get("type") == "block":
            target = disk.find("target").get("dev")
            if target not in (devices or {}):
                raise MigrationPreCheckError(reason="the new host has no logical volume for disk %s" % target)
            _put_on(disk.find("source"), (devices or {})[target])
    for label in root.findall(
        "seclabel[@type='dynamic']"
    ):  # a host without AppArmor refuses a definition that names it
        root.remove(label)
    nvram = root.find("os/nvram")
    if nvram is not None:  # it may have been named after the domain
        nvram.text = os.path.join(folder_there, NVRAM)
    machine = root.find("devices")
    for element in machine.iter():
        for key, value in list(element.attrib.items()):
            if value.startswith(folder + "/"):
                element.set(key, folder_there + value[len(folder) :])
    for disk in machine.iterfind("disk"):
        for tag in ("backingStore", "mirror"):
            for layer in disk.findall(tag):
                disk.remove(layer)
        if disk.get("type") == "file" and disk.find("driver[@type='qcow2']") is not None:
            disk.find("source").addnext(parse("<backingStore/>"))
    for graphics in machine.iterfind("graphics[@listen]") if vnc_listen else ():
        graphics.set("listen", vnc_listen)
        for listen in graphics.iterfind("listen[@type='address']"):
            listen.set("address", vnc_listen)
    if pins:
        _pin(root, pins)
    return to_text(root)


def _pin(root: t.Any, pins: t.Mapping[str, t.Any]) -> None:
    """Pin the guest to the CPUs and cells of its new host. The guest itself sees the same cells. source: Nova's _update_numa_xml"""
    places = [("cputune/emulatorpin", "cpuset", pins["emulator"]), ("numatune/memory", "nodeset", pins["memory"])]
    places += [
        ("cputune/vcpupin[@vcpu='%d']" % int(n), "cpuset", pinned_set) for n, pinned_set in pins["vcpus"].items()
    ]
    places += [
        ("numatune/memnode[@cellid='%d']" % int(n), "nodeset", pinned_set) for n, pinned_set in pins["cells"].items()
    ]
    for path, attribute, value in places:
        element = root.find(path)
        if element is None:
            raise MigrationPreCheckError(
                reason="the definition of the guest has no %s" % path,
                remedy="A hard reboot defines it again, with the CPUs and cells that the ledger has for it.",
            )
        element.set(attribute, value)


def _put_on(source: t.Any, device: t.Mapping[str, t.Any]) -> None:
    """Set the source to the logical volume on the new host, or its beginning: QEMU copies a disk only to one of the same size."""
    source.set("dev", device["path"])
    for slices in source.findall("slices"):
        source.remove(slices)
    if device["size"]:
        seen = "<slices><slice type='storage' offset='0' size='%d'/></slices>" % int(device["size"])
        source.append(parse(seen))


def _put_there(disk: t.Any, disk_there: t.Any) -> None:
    """Replace the source of a disk, and QEMU's access to it, by the new host's; the guest sees the same disk."""
    disk.set("type", disk_there.get("type"))
    for tag in ("auth", "source"):
        for element in disk.findall(tag):
            disk.remove(element)
        disk.extend(disk_there.findall(tag))
    driver, driver_there = disk.find("driver"), disk_there.find("driver")
    driver.attrib.pop("io", None)
    if driver_there is not None and driver_there.get("io"):
        driver.set("io", driver_there.get("io"))
