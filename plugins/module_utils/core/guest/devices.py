# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configs of the guest's disks, interfaces and other devices."""

from __future__ import annotations

import re
import typing as t

from ..disks.block_devices import PlannedDisk
from ..disks.disk_names import check_bus, check_device, default_bus, free_name
from ..errors import HostLacksHardware, InvalidInput, VirtualInterfaceCreateException
from ..networks.types.registry import kind_of_vif
from ..resources.pci.spec import split_address
from . import constraints, values
from .constraints import CACHE_MODES, is_true
from .domain.address import drive_address
from .domain.devices import (
    ChannelConfig,
    ConsoleConfig,
    ControllerConfig,
    GraphicsConfig,
    InputConfig,
    ListenConfig,
    MemballoonConfig,
    RngConfig,
    SerialConfig,
    VideoConfig,
    WatchdogConfig,
)
from .domain.disk import USER_ALIAS, DiskConfig, DiskIoTuneConfig, DiskSourceHostConfig, cut_serial
from .domain.hostdev import HostdevConfig
from .domain.interface import InterfaceConfig
from .spec import GuestSpec, HostCapabilities

DEFAULT_CACHE: t.Mapping[str, str] = {"file": "writeback", "block": "none", "network": "none"}
#: Addresses with which a SCSI controller distinguishes its disks. libvirt numbers the units of one target, and a target has one or two of them.
SCSI_PLACES: t.Mapping[str, str] = {
    "virtio-scsi": "unit",
    "vmpvscsi": "target",
    "lsisas1068": "target",
}
BOOT_DEVICES: t.Mapping[str, str] = {"disk": "hd", "lun": "hd", "cdrom": "cdrom", "floppy": "fd"}


def boot_devices(disks: t.Sequence[PlannedDisk]) -> tuple[str, ...]:
    """``hd`` and the like for ``<os>``, if one disk boots; empty if each disk has its order (see boot_orders()).

    libvirt accepts only one of the two forms.

    :raises InvalidInput: a disk of an unknown type.
    """
    for disk in disks:
        if disk.device_type not in BOOT_DEVICES:
            raise InvalidInput(reason="the disk %s is of the unknown type %r" % (disk.name, disk.device_type))
    return () if boot_orders(disks) else tuple(BOOT_DEVICES[d.device_type] for d in disks if d.boot_index is not None)


def boot_orders(disks: t.Sequence[PlannedDisk]) -> dict[str, int]:
    """Device name -> order from 1, if ``<boot dev='hd'>`` is not enough: it starts only the first disk of its kind, and
    libvirt sorts the disks of a bus by name.

    Nova always writes that element; with several bootable disks the guest boots from the first, or from a wrong one.
    """
    bootable = [disk for disk in disks if disk.boot_index is not None]
    if len(bootable) < 2 and all(_comes_first(disk, disks) for disk in bootable):
        return {}
    return {disk.device_name: int(disk.boot_index or 0) + 1 for disk in bootable}


def _comes_first(root: PlannedDisk, disks: t.Sequence[PlannedDisk]) -> bool:
    """Whether ``root`` is the disk that its kind of ``<boot dev>`` starts. vdb comes before vdaa."""
    alike = [d for d in disks if BOOT_DEVICES.get(d.device_type) == BOOT_DEVICES.get(root.device_type)]
    on_its_bus = [d for d in alike if d.disk_bus == root.disk_bus]
    return alike[0] is root and min(on_its_bus, key=lambda d: (len(d.dev), d.dev)) is root


def disk_configs(
    guest: GuestSpec, disks: t.Sequence[PlannedDisk], virt_type: str, machine: str | None
) -> list[DiskConfig]:
    """One config per disk, in order.

    The serial of a volume is the uuid, or the part of it that the bus takes. A lun has the serial of the real disk (as in Nova).
    Where the serial is not the whole uuid, the alias has it.
    Files are cached by the host (writeback) unless disk_cachemodes says otherwise; Nova uses ``none`` for them if
    the file system has O_DIRECT.

    :raises InvalidInput: a disk without path or format, or an unknown cache mode; a lun that is not a block device.
    :raises UnsupportedHardware: a bus that the machine lacks, or that does not have such devices.
    """
    orders = boot_orders(disks)
    result = []
    scsi_place = 0
    model = scsi_model(guest, virt_type)
    for disk in disks:
        check_device(disk.device_type, check_bus(disk.disk_bus, virt_type, machine), virt_type)
        source = _source(disk)
        address = None
        if disk.disk_bus == "scsi" and model in SCSI_PLACES:
            # libvirt would put seven on a controller and add further ones of another model. Other buses lack such units.
            address = drive_address(**{SCSI_PLACES[model]: scsi_place})
            scsi_place += 1
        cache = _cache(guest, disk)
        serial = cut_serial(disk.serial, disk.disk_bus) if disk.serial and disk.device_type != "lun" else None
        has_alias = disk.serial and disk.serial != serial and disk.kind != "whole_disk"
        result.append(
            DiskConfig(
                type=disk.source,
                device=disk.device_type,
                driver_name="qemu",
                driver_type=_format(disk),
                driver_cache=cache,
                driver_io=_io(disk, cache),
                driver_discard=_discard(guest, disk),
                target_dev=disk.dev,
                target_bus=disk.disk_bus,
                iotune=disk_limits(guest) if disk.kind in ("image", "ephemeral", "swap") else None,
                readonly=disk.readonly,
                shareable=disk.shareable,
                serial=serial,
                boot_order=orders.get(disk.device_name),
                alias="%s%s" % (USER_ALIAS, disk.serial) if has_alias else None,
                address=address,
                **source,
            )
        )
    return result


def volume_source(disk: PlannedDisk) -> DiskConfig:
    """Return the location of a volume on a host, and how QEMU reaches it there, for a guest that arrives running: without what the guest sees of it.

    :raises InvalidInput: a disk without its location.
    """
    return DiskConfig(type=disk.source, driver_io=_io(disk, "none"), **_source(disk))


def whole_disk_plan(
    guest: GuestSpec, disks: t.Sequence[PlannedDisk], virt_type: str, machine: str | None, arch: str
) -> list[PlannedDisk]:
    """Return the guest's physical disks, with names after the names of ``disks``: raw, without the host's cache.

    :raises InvalidInput: a disk without an absolute path, or given twice.
    :raises InvalidBDM: the bus has no free name.
    """
    bus = default_bus("disk", guest.image_properties, virt_type, machine, arch)
    used_names = {disk.dev for disk in disks}
    paths = {disk.path for disk in disks if disk.path}
    planned = []
    for disk in guest.whole_disks:
        path = str(disk.get("path") or "")
        if not path.startswith("/") or path in paths:
            raise InvalidInput(
                reason="%r is not a disk for %s: %s"
                % (path, guest.name, "twice" if path in paths else "no absolute path")
            )
        paths.add(path)
        name = free_name(bus, used_names)
        used_names.add(name)
        planned.append(
            PlannedDisk(
                name=path,
                kind="whole_disk",
                device_name="/dev/" + name,
                disk_bus=bus,
                source="block",
                path=path,
                driver_format="raw",
                cache="none",
                io="native",
                # libvirt accepts only these characters in a serial.
                serial=re.sub(r"[^A-Za-z0-9_.+-]+", "_", str(disk.get("serial") or "").strip()) or None,
            )
        )
    return planned


def hostdev_configs(guest: GuestSpec) -> tuple[HostdevConfig, ...]:
    """One per PCI device of the guest, in order. libvirt detaches it from the host's driver and reattaches it later.

    :raises PciDeviceWrongAddressFormat: an invalid address.
    """
    result = []
    for device in guest.pci_devices:
        domain, bus, slot, function = split_address(str(device.get("address") or ""))
        result.append(HostdevConfig(domain="0x" + domain, bus="0x" + bus, slot="0x" + slot, function="0x" + function))
    return tuple(result)


def _format(disk: PlannedDisk) -> str:
    # Without a format libvirt would probe content that the guest can write (CVE-2015-7548).
    if not disk.driver_format:
        raise InvalidInput(reason="the disk %s has no driver_format" % disk.name)
    return disk.driver_format


def _source(disk: PlannedDisk) -> dict[str, t.Any]:
    if disk.device_type == "lun" and disk.source == "file":
        raise InvalidInput(
            reason="disk %s is a file and cannot be a lun" % disk.name,
            remedy="Only volumes and block devices can be lun.",
        )
    if disk.source == "network":
        connection = disk.connection
        if not connection.get("protocol") or not connection.get("name"):
            raise InvalidInput(reason="the disk %s has no protocol and name of its network source" % disk.name)
        auth = connection.get("auth") or {}
        return {
            "source_protocol": connection["protocol"],
            "source_name": connection["name"],
            "source_hosts": tuple(
                DiskSourceHostConfig(
                    name=host.get("name"), port=None if host.get("port") is None else str(host["port"])
                )
                for host in connection.get("hosts") or ()
            ),
            "initiator_iqn": connection.get("initiator"),
            "auth_username": auth.get("username"),
            "auth_secret_type": auth.get("secret_type"),
            "auth_secret_uuid": auth.get("secret_uuid"),
        }
    if disk.source not in ("file", "block"):
        raise InvalidInput(reason="the disk %s has the unknown source %r" % (disk.name, disk.source))
    if not disk.path or not disk.path.startswith("/"):
        raise InvalidInput(reason="disk %s must have an absolute path, got %r" % (disk.name, disk.path))
    return {"source_dev": disk.path} if disk.source == "block" else {"source_file": disk.path}


def _cache(guest: GuestSpec, disk: PlannedDisk) -> str:
    # Two guests with one disk must see each other's writes. source: Nova's _set_cache_mode
    setting = guest.options.disk_cachemodes.get(disk.source)
    # The setting overrides a volume's connection, not the purpose of a disk.
    wanted = (setting or disk.cache if disk.kind == "volume" else disk.cache or setting) or DEFAULT_CACHE[disk.source]
    mode = "none" if disk.shareable else wanted
    if mode not in CACHE_MODES:
        raise InvalidInput(
            reason="cache mode %r of disk %s is unknown" % (mode, disk.name),
            remedy="One of %s." % ", ".join(CACHE_MODES),
        )
    return mode


def _io(disk: PlannedDisk, cache: str) -> str | None:
    """Native AIO for a block device without the host's page cache (it needs O_DIRECT), threads with other cache modes.
    source: Nova's _set_cache_mode
    """
    wanted = disk.io or ("native" if disk.source == "block" else None)
    return "threads" if wanted == "native" and cache not in ("none", "directsync") else wanted


def _discard(guest: GuestSpec, disk: PlannedDisk) -> str | None:
    """The setting applies to the host's own disks; a volume states itself whether its blocks may be discarded (Nova)."""
    if disk.kind == "volume":
        return "unmap" if disk.connection.get("discard") is True else None
    return guest.options.disk_discard if disk.device_type == "disk" else None


def disk_limits(guest: GuestSpec) -> DiskIoTuneConfig | None:
    """The flavor's quota:disk_*, of each local disk; None without them."""
    names = (*values.DISK_LIMITS, *("%s_max" % name for name in values.DISK_LIMITS), "size_iops_sec")
    limits = {name: values.quota_number(guest.flavor, "disk_%s" % name) for name in names}
    return DiskIoTuneConfig(**limits) if any(limit is not None for limit in limits.values()) else None


def controller_configs(
    guest: GuestSpec, disks: t.Sequence[PlannedDisk], virt_type: str
) -> tuple[ControllerConfig, ...]:
    """The SCSI controller, if a disk is on SCSI or the image sets hw_scsi_model; libvirt adds all other controllers.

    Nova writes one in the second case only, and other SCSI disks get libvirt's default model, for which current systems
    have no driver.

    :raises UnsupportedHardware: an unknown hw_scsi_model.
    """
    model = scsi_model(guest, virt_type)
    if not guest.image_properties.get("hw_scsi_model") and not any(disk.disk_bus == "scsi" for disk in disks):
        return ()
    return (ControllerConfig(type="scsi", index=0, model=model),)


def pcie_ports(guest: GuestSpec, arch: str, machine: str | None) -> tuple[ControllerConfig, ...]:
    """As many PCI Express ports as the operator wants, with their root; none where libvirt decides, or the machine has no PCI Express.

    source: Nova's _guest_needs_pcie and _guest_add_pcie_root_ports
    """
    has_pcie = (arch == "x86_64" and "q35" in (machine or "")) or (
        arch == "aarch64" and (machine or "").startswith("virt")
    )
    if not guest.options.num_pcie_ports or not has_pcie:
        return ()
    ports = (
        ControllerConfig(type="pci", index=n, model="pcie-root-port")
        for n in range(1, guest.options.num_pcie_ports + 1)
    )
    return (ControllerConfig(type="pci", index=0, model="pcie-root"), *ports)


def scsi_model(guest: GuestSpec, virt_type: str) -> str:
    """The image's hw_scsi_model, else virtio-scsi.

    :raises UnsupportedHardware: an unknown model.
    """
    return str(values.model(guest.image_properties, "hw_scsi_model", "virtio-scsi", virt_type))


def interface_configs(guest: GuestSpec, virt_type: str) -> tuple[InterfaceConfig, ...]:
    """One interface per VIF of network_info; the guest finds them in this order.

    :raises UnsupportedHardware: an unknown hw_vif_model.
    :raises VirtualInterfaceCreateException: a VIF whose type is not one of networks.types, or without a name on the host.
    """
    model = str(values.model(guest.image_properties, "hw_vif_model", "virtio", virt_type))
    queues = None
    if constraints.multiqueue(guest.flavor, guest.image_properties) and model == "virtio":
        queues = min(guest.vcpus, guest.options.max_queues)
    return tuple(_interface(guest, vif, model, queues) for vif in guest.network_info)


def _interface(guest: GuestSpec, vif: t.Mapping[str, t.Any], model: str, queues: int | None) -> InterfaceConfig:
    network = vif.get("network") or {}
    meta = network.get("meta") or {}
    kind = kind_of_vif(str(vif.get("type")))
    if kind is None:
        raise VirtualInterfaceCreateException(reason="Unexpected vif_type=%s" % vif.get("type"))
    source = kind.source_of(vif)
    if not source:
        raise VirtualInterfaceCreateException(
            reason="the VIF %s names no %s of the host" % (vif.get("id"), kind.name),
            remedy="Set source on the network in bootflow_networks.",
        )
    bandwidth: dict[str, t.Any] = {  # 0 means without a limit, for which libvirt's schema has no number
        name: values.quota_number(guest.flavor, "vif_%s" % name) or None for name in values.VIF_LIMITS
    }
    return InterfaceConfig(
        mac=str(vif["address"]).lower(),
        target_dev=vif.get("devname") or None,
        model=model,
        driver_queues=queues,
        mtu=int(meta["mtu"]) if meta.get("mtu") else None,
        **kind.interface(source, str(vif["id"])),
        **bandwidth,
    )


def console_configs(
    guest: GuestSpec, host: HostCapabilities
) -> tuple[tuple[SerialConfig, ...], tuple[ConsoleConfig, ...]]:
    """Return the serial ports, the first with the console log, and the console.

    :raises HostLacksHardware: several ports on a machine that has one.
    """
    number = constraints.serial_ports(guest.flavor, guest.image_properties)
    if number > 1 and not host.is_x86:
        raise HostLacksHardware(
            host=host.host or "chosen",
            model="%d serial ports" % number,
            reason="machines of %s have one" % host.arch,
            remedy="Leave hw:serial_port_count and hw_serial_port_count out.",
        )
    first = SerialConfig(
        type="pty",
        log_file=guest.console_log,
        # The log is that of this boot: a pattern that is waited for is new.
        log_append=False if guest.console_log else None,
        target_port=0,
    )
    # libvirt takes the console's source and log from its serial port.
    others = (SerialConfig(type="pty", target_port=port) for port in range(1, number))
    return (first, *others), (ConsoleConfig(type="pty", target_type="serial", target_port=0),)


def has_agent(image_properties: t.Mapping[str, t.Any]) -> bool:
    """Whether the image says that its guests run QEMU's guest agent."""
    return is_true(image_properties.get("hw_qemu_guest_agent"))


def channel_configs(guest: GuestSpec) -> tuple[ChannelConfig, ...]:
    """The guest agent's channel, if the image has the agent."""
    if not has_agent(guest.image_properties):
        return ()
    return (ChannelConfig(type="unix", target_type="virtio", target_name="org.qemu.guest_agent.0"),)


def input_configs(guest: GuestSpec, virt_type: str) -> tuple[InputConfig, ...]:
    """Tablet and keyboard on the bus of hw_input_bus; else a USB tablet if hw_pointer_model requests it.

    Not by default, because the polling of a tablet costs CPU time in idle guests.

    :raises UnsupportedHardware: an unknown bus.
    """
    bus = values.model(guest.image_properties, "hw_input_bus", virt_type=virt_type)
    if bus:
        return InputConfig(type="tablet", bus=bus), InputConfig(type="keyboard", bus=bus)
    if guest.image_properties.get("hw_pointer_model") == "usbtablet":
        return (InputConfig(type="tablet", bus="usb"),)
    return ()


def graphics_configs(guest: GuestSpec) -> tuple[GraphicsConfig, ...]:
    """VNC on the address of the setting, 127.0.0.1 by default."""
    options = guest.options
    if not options.vnc_enabled:
        return ()
    listener = ListenConfig(type="address", address=options.vnc_listen)
    return (
        GraphicsConfig(
            type="vnc",
            port=-1,
            autoport=True,
            keymap=options.vnc_keymap,
            listen=options.vnc_listen,
            listener=listener,
        ),
    )


def video_configs(guest: GuestSpec, host: HostCapabilities) -> tuple[VideoConfig, ...]:
    """The display adapter; none without VNC.

    :raises UnsupportedHardware: an unknown hw_video_model.
    :raises RequestedVRamTooHigh: more hw_video_ram (MB) than the flavor permits.
    """
    if not guest.options.vnc_enabled:
        return ()
    default = "vga" if values.is_windows(guest.image_properties) else "virtio"
    model = str(values.model(guest.image_properties, "hw_video_model", default, host.virt_type))
    vram = constraints.video_ram(guest.flavor, guest.image_properties) * 1024 or None
    return (VideoConfig(type=model, vram=vram, heads=1 if vram else None),)


def watchdog_configs(guest: GuestSpec, virt_type: str) -> tuple[WatchdogConfig, ...]:
    """i6300esb if image (hw_watchdog_action) or flavor (hw:watchdog_action) request a watchdog.

    :raises UnsupportedHardware: an unknown action.
    """
    action = values.watchdog_action(guest.flavor, guest.image_properties, virt_type)
    return () if action == "disabled" else (WatchdogConfig(model="i6300esb", action=action),)


def rng_configs(guest: GuestSpec, virt_type: str) -> tuple[RngConfig, ...]:
    """virtio-rng, which gives guests entropy in their first seconds; the flavor's hw_rng:allowed may forbid it.

    :raises UnsupportedHardware: a hw_rng_model that is not virtio.
    """
    values.model(guest.image_properties, "hw_rng_model", virt_type=virt_type)
    allowed = guest.extra_specs.get("hw_rng:allowed")
    if allowed is not None and not is_true(allowed):
        return ()
    rate, period = (values.rng_number(guest.flavor, "hw_rng:rate_" + name) for name in ("bytes", "period"))
    return (
        RngConfig(
            backend=guest.options.rng_dev_path,
            rate_bytes=rate,
            rate_period=period if rate else None,
        ),
    )


def memballoon_config(guest: GuestSpec) -> MemballoonConfig:
    return MemballoonConfig(model="virtio", stats_period=guest.options.mem_stats_period_seconds or None)
