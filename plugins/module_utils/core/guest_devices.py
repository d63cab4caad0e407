# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guest's disks, interfaces and other devices as configs. source: 001 section 8.5.15; 002 section 8; semantics 17."""

from __future__ import annotations

import re
import typing as t

from .block_devices import PlannedDisk
from .disk_names import check_bus, default_bus, free_name
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
from .domain.disk import DiskConfig, DiskIoTuneConfig, DiskSourceHostConfig
from .domain.hostdev import HostdevConfig
from .domain.interface import InterfaceConfig
from .errors import InvalidInput, UnsupportedHardware, VirtualInterfaceCreateException
from .guest_platform import is_windows, quota_number
from .guest_spec import GuestSpec, HostCapabilities, is_true
from .pci.spec import split_address

DEFAULT_CACHE: t.Mapping[str, str] = {"file": "writeback", "block": "none", "network": "none"}
CACHE_MODES = ("default", "none", "writethrough", "writeback", "directsync", "unsafe")
VIF_MODELS = ("virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3", "lan9118")
VIDEO_MODELS = ("virtio", "vga", "cirrus", "qxl", "vmvga", "bochs", "none")
SCSI_MODELS = ("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078", "buslogic", "vmpvscsi", "auto")
WATCHDOG_ACTIONS = ("disabled", "reset", "poweroff", "pause", "none")
BOOT_DEVICES: t.Mapping[str, str] = {"disk": "hd", "lun": "hd", "cdrom": "cdrom", "floppy": "fd"}
_IOTUNE = ("total_bytes_sec", "read_bytes_sec", "write_bytes_sec", "total_iops_sec", "read_iops_sec", "write_iops_sec")


def boot_devices(disks: t.Sequence[PlannedDisk]) -> tuple[str, ...]:
    """``hd`` and the like for ``<os>``, when one disk boots; empty when several do: then each disk has its order.

    libvirt takes either form, not both, and ``<boot dev='hd'>`` starts only the first disk.
    """
    bootable = [disk for disk in disks if disk.boot_index is not None]
    return (BOOT_DEVICES[bootable[0].device_type],) if len(bootable) == 1 else ()


def disk_configs(
    guest: GuestSpec, disks: t.Sequence[PlannedDisk], virt_type: str, machine: str | None
) -> list[DiskConfig]:
    """One config per disk, in order.

    :raises InvalidInput: a disk without path or format, or an unknown cache mode.
    :raises UnsupportedHardware: a bus that the machine has not.
    """
    several = sum(1 for disk in disks if disk.boot_index is not None) > 1
    result = []
    scsi_unit = 0
    for disk in disks:
        check_bus(disk.disk_bus, virt_type, machine)
        source = _source(disk)
        address = None
        if disk.disk_bus == "scsi":
            # libvirt would put seven on a controller and add further ones of another model.
            address = drive_address(unit=scsi_unit)
            scsi_unit += 1
        cache = _cache(guest, disk)
        order = disk.boot_index + 1 if several and disk.boot_index is not None else None
        result.append(
            DiskConfig(
                type=disk.source,
                device=disk.device_type,
                driver_name="qemu",
                driver_type=_format(disk),
                driver_cache=cache,
                driver_io=disk.io or ("native" if disk.source == "block" and cache in ("none", "directsync") else None),
                driver_discard=guest.options.disk_discard if disk.device_type == "disk" else None,
                target_dev=disk.dev,
                target_bus=disk.disk_bus,
                iotune=_iotune(guest) if disk.kind in ("image", "ephemeral", "swap") else None,
                readonly=disk.readonly,
                shareable=disk.shareable,
                serial=disk.serial,
                boot_order=order,
                address=address,
                **source,
            )
        )
    return result


def whole_disk_plan(
    guest: GuestSpec, disks: t.Sequence[PlannedDisk], virt_type: str, machine: str | None, arch: str
) -> list[PlannedDisk]:
    """The guest's physical disks, named after those in ``disks``: raw, past the host's cache (row B71).

    :raises InvalidInput: a disk without an absolute path, or given twice.
    :raises InvalidBDM: there is no name left on the bus.
    """
    bus = default_bus("disk", guest.image_properties, virt_type, machine, arch)
    taken = {disk.dev for disk in disks}
    paths = {disk.path for disk in disks if disk.path}
    planned = []
    for disk in guest.whole_disks:
        path = str(disk.get("path") or "")
        if not path.startswith("/") or path in paths:
            raise InvalidInput(
                reason="%r is no disk for %s: %s" % (path, guest.name, "twice" if path in paths else "no absolute path")
            )
        paths.add(path)
        name = free_name(bus, taken)
        taken.add(name)
        planned.append(
            PlannedDisk(
                name=path,
                kind="whole_disk",
                device_name="/dev/" + name,
                disk_bus=bus,
                backend="raw",
                source="block",
                path=path,
                driver_format="raw",
                cache="none",
                io="native",
                # Of a serial libvirt takes only these characters.
                serial=re.sub(r"[^A-Za-z0-9_.+-]+", "_", str(disk.get("serial") or "").strip()) or None,
            )
        )
    return planned


def hostdev_configs(guest: GuestSpec) -> tuple[HostdevConfig, ...]:
    """One per PCI device of the guest, in order. libvirt detaches it from the host's driver and gives it back.

    :raises PciDeviceWrongAddressFormat: an address that is none.
    """
    result = []
    for device in guest.pci_devices:
        domain, bus, slot, function = split_address(str(device.get("address") or ""))
        result.append(HostdevConfig(domain="0x" + domain, bus="0x" + bus, slot="0x" + slot, function="0x" + function))
    return tuple(result)


def _format(disk: PlannedDisk) -> str:
    # Without a format libvirt would probe, and the guest writes what is probed (CVE-2015-7548).
    if not disk.driver_format:
        raise InvalidInput(reason="the disk %s has no driver_format" % disk.name)
    return disk.driver_format


def _source(disk: PlannedDisk) -> dict[str, t.Any]:
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
        raise InvalidInput(reason="the disk %s has no absolute path, but %r" % (disk.name, disk.path))
    return {"source_dev": disk.path} if disk.source == "block" else {"source_file": disk.path}


def _cache(guest: GuestSpec, disk: PlannedDisk) -> str:
    # Two guests on one disk must both see what is written.
    mode = disk.cache or ("none" if disk.shareable else None)
    mode = mode or guest.options.disk_cachemodes.get(disk.source) or DEFAULT_CACHE[disk.source]
    if mode not in CACHE_MODES:
        raise InvalidInput(
            reason="cache mode %r of disk %s is unknown" % (mode, disk.name),
            remedy="One of %s." % ", ".join(CACHE_MODES),
        )
    return mode


def _iotune(guest: GuestSpec) -> DiskIoTuneConfig | None:
    names = _IOTUNE + tuple("%s_max" % name for name in _IOTUNE) + ("size_iops_sec",)
    values = {name: quota_number(guest, "disk_%s" % name) for name in names}
    return DiskIoTuneConfig(**values) if any(value is not None for value in values.values()) else None


def controller_configs(
    guest: GuestSpec, disks: t.Sequence[PlannedDisk], virt_type: str
) -> tuple[ControllerConfig, ...]:
    """The SCSI controller where a disk is on SCSI; libvirt adds all others.

    :raises UnsupportedHardware: an unknown hw_scsi_model.
    """
    if not any(disk.disk_bus == "scsi" for disk in disks):
        return ()
    model = str(guest.image_properties.get("hw_scsi_model") or guest.options.scsi_model)
    _one_of("SCSI model", model, SCSI_MODELS, virt_type)
    return (ControllerConfig(type="scsi", index=0, model=model),)


def interface_configs(guest: GuestSpec, virt_type: str) -> tuple[InterfaceConfig, ...]:
    """One interface per VIF of network_info, in order: that is the order in which the guest finds them.

    :raises UnsupportedHardware: an unknown hw_vif_model.
    :raises VirtualInterfaceCreateException: a VIF of a type that is not bridge or network, or without a name for it.
    """
    model = str(guest.image_properties.get("hw_vif_model") or "virtio")
    _one_of("VIF model", model, VIF_MODELS, virt_type)
    queues = None
    if model == "virtio" and is_true(guest.wish("vif_multiqueue_enabled")) and guest.vcpus > 1:
        queues = min(guest.vcpus, guest.options.max_queues)
    return tuple(_interface(guest, vif, model, queues) for vif in guest.network_info)


def _interface(guest: GuestSpec, vif: t.Mapping[str, t.Any], model: str, queues: int | None) -> InterfaceConfig:
    network = vif.get("network") or {}
    meta = network.get("meta") or {}
    kind = vif.get("type")
    name = None
    if kind == "network":
        name = (vif.get("details") or {}).get("libvirt_network") or meta.get("libvirt_network")
    elif kind == "bridge":
        name = network.get("bridge")
    else:
        raise VirtualInterfaceCreateException(reason="Unexpected vif_type=%s" % kind)
    if not name:
        raise VirtualInterfaceCreateException(
            reason="the VIF %s names no %s of the host" % (vif.get("id"), kind),
            remedy="Set source on the network in bootflow_networks.",
        )
    bandwidth: dict[str, t.Any] = {
        "%s_%s" % (way, what): quota_number(guest, "vif_%s_%s" % (way, what))
        for way in ("inbound", "outbound")
        for what in ("average", "peak", "burst")
    }
    return InterfaceConfig(
        type=str(kind),
        mac=str(vif["address"]).lower(),
        source_network=name if kind == "network" else None,
        source_bridge=name if kind == "bridge" else None,
        target_dev=vif.get("devname") or None,
        model=model,
        driver_queues=queues,
        mtu=int(meta["mtu"]) if meta.get("mtu") else None,
        **bandwidth,
    )


def console_configs(guest: GuestSpec) -> tuple[tuple[SerialConfig, ...], tuple[ConsoleConfig, ...]]:
    """The first serial port, written to the console log, and the console on it."""
    serial = SerialConfig(
        type="pty",
        log_file=guest.console_log,
        log_append=guest.options.console_log_append if guest.console_log else None,
        target_port=0,
    )
    # libvirt takes the console's source and log from the serial port it stands for.
    return (serial,), (ConsoleConfig(type="pty", target_type="serial", target_port=0),)


def channel_configs(guest: GuestSpec) -> tuple[ChannelConfig, ...]:
    """The guest agent's channel, when the image says hw_qemu_guest_agent."""
    if not is_true(guest.image_properties.get("hw_qemu_guest_agent")):
        return ()
    return (ChannelConfig(type="unix", target_type="virtio", target_name="org.qemu.guest_agent.0"),)


def input_configs(guest: GuestSpec) -> tuple[InputConfig, ...]:
    """A USB tablet where hw_pointer_model asks for it; by default none: its polling costs CPU time in idle guests."""
    if guest.image_properties.get("hw_pointer_model") == "usbtablet":
        return (InputConfig(type="tablet", bus="usb"),)
    return ()


def graphics_configs(guest: GuestSpec) -> tuple[GraphicsConfig, ...]:
    """VNC on the address of the setting, 127.0.0.1 by default (row C40)."""
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

    :raises UnsupportedHardware: an unknown hw_video_model, or more hw_video_ram (MB) than the flavor permits.
    """
    if not guest.options.vnc_enabled:
        return ()
    model = guest.image_properties.get("hw_video_model") or guest.options.video_model
    model = str(model or ("vga" if is_windows(guest) else "virtio"))
    _one_of("video model", model, VIDEO_MODELS, host.virt_type)
    ram, limit = guest.image_properties.get("hw_video_ram"), guest.extra_specs.get("hw_video:ram_max_mb")
    vram = None
    if ram is not None:
        if not str(ram).isdigit() or (limit is not None and int(str(ram)) > int(str(limit))):
            raise UnsupportedHardware(
                model="video RAM %s MB" % ram,
                virt=host.virt_type,
                remedy="The flavor's hw_video:ram_max_mb is %s." % limit,
            )
        # Without a limit of the flavor Nova gives no video RAM of the image's choice either.
        vram = int(str(ram)) * 1024 if limit is not None and int(str(ram)) else None
    return (VideoConfig(type=model, vram=vram, heads=1 if vram else None),)


def watchdog_configs(guest: GuestSpec, virt_type: str) -> tuple[WatchdogConfig, ...]:
    """i6300esb when image (hw_watchdog_action) or flavor (hw:watchdog_action) ask for one.

    :raises UnsupportedHardware: an unknown action.
    """
    action = str(guest.wish("watchdog_action") or "disabled")
    _one_of("watchdog action", action, WATCHDOG_ACTIONS, virt_type)
    return () if action == "disabled" else (WatchdogConfig(model="i6300esb", action=action),)


def rng_configs(guest: GuestSpec, virt_type: str) -> tuple[RngConfig, ...]:
    """virtio-rng, so that guests have entropy in their first seconds; hw_rng:allowed of the flavor may forbid it.

    :raises UnsupportedHardware: a hw_rng_model that is not virtio.
    """
    model = guest.image_properties.get("hw_rng_model")
    if model is not None:
        _one_of("rng model", str(model), ("virtio",), virt_type)
    allowed = guest.extra_specs.get("hw_rng:allowed")
    device = guest.options.rng_device
    if device is None and model is not None and is_true(allowed):
        device = "/dev/urandom"
    if device is None or (allowed is not None and not is_true(allowed)):
        return ()
    rate, period = guest.extra_specs.get("hw_rng:rate_bytes"), guest.extra_specs.get("hw_rng:rate_period")
    for value in (rate, period):
        if value is not None and not str(value).isdigit():
            raise InvalidInput(reason="hw_rng:rate_bytes and rate_period are to be numbers, found %r" % value)
    return (
        RngConfig(
            backend=device,
            rate_bytes=int(rate) if rate else None,
            rate_period=int(period) if rate and period else None,
        ),
    )


def memballoon_config(guest: GuestSpec) -> MemballoonConfig:
    return MemballoonConfig(model="virtio", stats_period=guest.options.mem_stats_period_seconds or None)


def _one_of(what: str, value: str, known: t.Sequence[str], virt_type: str) -> None:
    if value not in known:
        raise UnsupportedHardware(
            model="%s %s" % (what, value), virt=virt_type, remedy="Use one of %s." % ", ".join(known)
        )
