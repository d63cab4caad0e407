# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks: files, block devices and network storage. source: libvirt's domain format."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .address import AddressConfig
from .element import Element, at, many, one

# libvirt keeps aliases with this prefix, and assigns all others itself.
USER_ALIAS = "ua-"
# The longest serial that each bus takes: QEMU 8 and later refuse longer ones, older releases cut them. On virtio, SATA and IDE each
# release cuts at 20 characters by itself.
SERIAL_LENGTHS: t.Mapping[str, int] = {"usb": 20, "scsi": 36}


def cut_serial(serial: str, bus: str) -> str:
    """Return the part of a serial that a guest sees on this bus."""
    return serial[: SERIAL_LENGTHS.get(bus, len(serial))]


def identify_disk(alias: str | None, serial: str | None) -> str | None:
    """Return the uuid of a volume: the serial, or the user alias behind ``ua-`` where the serial is not the whole uuid.

    A lun has the serial of the real disk, which libvirt does not know; on USB a serial has no room for a uuid.
    """
    whole = alias[len(USER_ALIAS) :] if alias is not None and alias.startswith(USER_ALIAS) else ""
    return whole if whole and whole.startswith(serial or "") else serial


@dataclass(frozen=True)
class DiskSourceHostConfig(Element):
    """One ``<host>`` of a network source (an iSCSI portal, a Ceph monitor)."""

    TAG: t.ClassVar[str] = "host"

    name: t.Optional[str] = at("@name")
    port: t.Optional[str] = at("@port")
    transport: t.Optional[str] = at("@transport")
    socket: t.Optional[str] = at("@socket")


@dataclass(frozen=True)
class DiskIoTuneConfig(Element):
    """``<iotune>``: bytes and operations per second, from Nova's ``quota:disk_*`` extra specs."""

    TAG: t.ClassVar[str] = "iotune"

    total_bytes_sec: t.Optional[int] = at("total_bytes_sec", "int")
    read_bytes_sec: t.Optional[int] = at("read_bytes_sec", "int")
    write_bytes_sec: t.Optional[int] = at("write_bytes_sec", "int")
    total_iops_sec: t.Optional[int] = at("total_iops_sec", "int")
    read_iops_sec: t.Optional[int] = at("read_iops_sec", "int")
    write_iops_sec: t.Optional[int] = at("write_iops_sec", "int")
    total_bytes_sec_max: t.Optional[int] = at("total_bytes_sec_max", "int")
    read_bytes_sec_max: t.Optional[int] = at("read_bytes_sec_max", "int")
    write_bytes_sec_max: t.Optional[int] = at("write_bytes_sec_max", "int")
    total_iops_sec_max: t.Optional[int] = at("total_iops_sec_max", "int")
    read_iops_sec_max: t.Optional[int] = at("read_iops_sec_max", "int")
    write_iops_sec_max: t.Optional[int] = at("write_iops_sec_max", "int")
    size_iops_sec: t.Optional[int] = at("size_iops_sec", "int")


@dataclass(frozen=True)
class DiskConfig(Element):
    """``<disk>``. Only the source of its ``type`` is set: file, block (dev), network (protocol and name)."""

    TAG: t.ClassVar[str] = "disk"

    type: str = at("@type", default="file")
    device: str = at("@device", default="disk")  # disk, cdrom, floppy, lun
    driver_name: t.Optional[str] = at("driver/@name")
    driver_type: t.Optional[str] = at("driver/@type")  # always written, so that a guest's disk is never probed
    driver_cache: t.Optional[str] = at("driver/@cache")
    driver_io: t.Optional[str] = at("driver/@io")
    driver_discard: t.Optional[str] = at("driver/@discard")
    driver_iothread: t.Optional[int] = at("driver/@iothread", "int")
    driver_queues: t.Optional[int] = at("driver/@queues", "int")
    auth_username: t.Optional[str] = at("auth/@username")
    auth_secret_type: t.Optional[str] = at("auth/secret/@type")
    auth_secret_uuid: t.Optional[str] = at("auth/secret/@uuid")  # libvirt has the secret itself, the XML never
    source_file: t.Optional[str] = at("source/@file")
    source_dev: t.Optional[str] = at("source/@dev")
    source_protocol: t.Optional[str] = at("source/@protocol")
    source_name: t.Optional[str] = at("source/@name")
    source_hosts: t.Tuple[DiskSourceHostConfig, ...] = many(DiskSourceHostConfig, "source/host")
    initiator_iqn: t.Optional[str] = at("source/initiator/iqn/@name")
    target_dev: t.Optional[str] = at("target/@dev")
    target_bus: t.Optional[str] = at("target/@bus")
    physical_block_size: t.Optional[int] = at("blockio/@physical_block_size", "int")
    logical_block_size: t.Optional[int] = at("blockio/@logical_block_size", "int")
    iotune: t.Optional[DiskIoTuneConfig] = one(DiskIoTuneConfig)
    readonly: bool = at("readonly", "flag")
    shareable: bool = at("shareable", "flag")
    serial: t.Optional[str] = at("serial")  # of a volume: the uuid, as far as the bus has room for it
    boot_order: t.Optional[int] = at("boot/@order", "int")  # from 1
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)

    @property
    def known_as(self) -> str | None:
        """The uuid of a volume (see identify_disk())."""
        return identify_disk(self.alias, self.serial)

    @property
    def source_path(self) -> str | None:
        """The file or device on the host, None for network storage."""
        return self.source_file if self.source_file is not None else self.source_dev
