# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The domain of a guest, from the elements of platform.py, devices.py and numa.py.

source: Nova's libvirt driver (_get_guest_config).
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ..disks.block_devices import PlannedDisk, config_drive_disk, on_machine
from ..errors import InvalidInput
from . import devices, platform
from .domain.domain import DomainConfig, render
from .domain.metadata import NovaFlavorConfig, NovaInstanceConfig, NovaIpConfig, NovaPortConfig, OwnerConfig
from .names import LONGEST_DOMAIN_NAME, checked_uuid, domain_name, short_domain_names
from .numa import GuestNuma
from .spec import GuestOptions, GuestSpec, HostCapabilities

__all__ = [
    "GuestOptions",
    "GuestSpec",
    "HostCapabilities",
    "domain_name",
    "guest_config",
    "render",
    "short_domain_names",
]

_SAFE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
KIB_PER_MIB = 1024


def guest_config(guest: GuestSpec, host: HostCapabilities) -> DomainConfig:
    """The domain of a guest on that host.

    :raises InvalidInput: invalid name, UUID, memory, vcpus, path or setting.
    :raises UnsupportedHardware: image or flavor request something that QEMU cannot do.
    :raises HostLacksHardware: image or flavor request something that this host cannot do (machine type, UEFI).
    :raises NUMATopologyUnsupported: the host lacks the NUMA cells that the guest was fitted to.
    :raises VirtualInterfaceCreateException: a VIF that cannot be plugged on this host.
    """
    _check(guest)
    platform.check_architecture(guest, host)
    machine = platform.machine_type(guest.image_properties, guest.options.machine_type, host)
    disks = _all_disks(guest, host, machine)
    serials, consoles = devices.console_configs(guest, host)
    memory = guest.memory_mb * KIB_PER_MIB
    numa = GuestNuma(guest, host)
    return DomainConfig(
        type=host.virt_type,
        name=guest.name,
        uuid=checked_uuid(guest.uuid),
        metadata=_metadata(guest),
        owner=OwnerConfig(ledger=guest.ledger_id) if guest.ledger_id else None,
        memory_unit="KiB",
        memory=memory,
        current_memory_unit="KiB",
        current_memory=memory,
        memory_backing=numa.memory_backing(),
        vcpu_placement="static",
        vcpus=guest.vcpus,
        cputune=numa.cputune(platform.cputune_config(guest)),
        numatune=numa.numatune(),
        sysinfo=platform.sysinfo_config(guest, host),
        os=platform.os_config(guest, host, machine, devices.boot_devices(disks)),
        features=platform.features_config(guest, host),
        cpu=numa.cpu(platform.cpu_config(guest, host)),
        clock=platform.clock_config(guest, host),
        emulator=host.emulator,
        disks=tuple(devices.disk_configs(guest, disks, host.virt_type, machine)),
        controllers=devices.pcie_ports(guest, host.arch, machine)
        + devices.controller_configs(guest, disks, host.virt_type),
        interfaces=devices.interface_configs(guest, host.virt_type),
        serials=serials,
        consoles=consoles,
        channels=devices.channel_configs(guest),
        inputs=devices.input_configs(guest, host.virt_type),
        graphics=devices.graphics_configs(guest),
        videos=devices.video_configs(guest, host),
        hostdevs=devices.hostdev_configs(guest),
        watchdogs=devices.watchdog_configs(guest, host.virt_type),
        memballoon=devices.memballoon_config(guest),
        rngs=devices.rng_configs(guest, host.virt_type),
    )


def _check(guest: GuestSpec) -> None:
    if not _SAFE_NAME.match(guest.name) or len(guest.name) > LONGEST_DOMAIN_NAME:
        raise InvalidInput(reason="%r is not a safe domain name" % guest.name, remedy="Use guest.domain_name().")
    if guest.memory_mb < 1 or guest.vcpus < 1:
        raise InvalidInput(reason="%s has %d MiB of memory and %d vCPUs" % (guest.name, guest.memory_mb, guest.vcpus))
    for path in (guest.config_drive, guest.console_log, guest.nvram):
        if path is not None and not path.startswith("/"):
            raise InvalidInput(reason="%r of %s is not an absolute path" % (path, guest.name))
    try:
        ipaddress.ip_address(guest.options.vnc_listen)
    except ValueError:
        raise InvalidInput(
            reason="vnc_listen %r is not an IP address" % guest.options.vnc_listen,
            remedy="Set bootflow_vnc_listen to an address of the host; 127.0.0.1 is the default.",
        ) from None


def _all_disks(guest: GuestSpec, host: HostCapabilities, machine: str | None) -> list[PlannedDisk]:
    disks = on_machine(guest.disks, guest.image_properties, machine)
    disks += devices.whole_disk_plan(guest, disks, host.virt_type, machine, host.arch)
    if guest.config_drive:
        drive = config_drive_disk(
            disks,
            guest.image_properties,
            guest.config_drive_format,
            host.virt_type,
            machine,
            host.arch,
        )
        disks.append(drive.placed(guest.config_drive, "raw"))
    return disks


def _metadata(guest: GuestSpec) -> NovaInstanceConfig:
    flavor = guest.flavor
    image_id = guest.image_id or next((disk.image_id for disk in guest.disks if disk.kind == "image"), None)
    return NovaInstanceConfig(
        package=guest.package_version,
        name=guest.display_name,
        creation_time=guest.creation_time,
        flavor=NovaFlavorConfig(
            name=flavor.name,
            memory=flavor.memory_mb,
            disk=flavor.root_gb,
            swap=flavor.swap,
            ephemeral=flavor.ephemeral_gb,
            vcpus=flavor.vcpus,
        ),
        user=guest.user,
        project=guest.project,
        root_type="image" if image_id else None,
        root_uuid=image_id,
        ports=tuple(_port(vif) for vif in guest.network_info),
    )


def _port(vif: t.Mapping[str, t.Any]) -> NovaPortConfig:
    subnets = (vif.get("network") or {}).get("subnets") or ()
    ips = [ip for subnet in subnets for ip in subnet.get("ips") or ()]
    return NovaPortConfig(
        uuid=str(vif.get("id") or ""),
        ips=tuple(
            NovaIpConfig(
                type=str(ip.get("type") or "fixed"), address=ip["address"], ip_version=str(ip.get("version") or 4)
            )
            for ip in ips
        ),
    )
