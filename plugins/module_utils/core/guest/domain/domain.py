# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole domain. source: libvirt's domain format."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .cpu import CpuConfig, CpuTuneConfig
from .devices import (
    ChannelConfig,
    ConsoleConfig,
    ControllerConfig,
    GraphicsConfig,
    InputConfig,
    MemballoonConfig,
    RngConfig,
    SerialConfig,
    VideoConfig,
    WatchdogConfig,
)
from .disk import DiskConfig
from .element import Element, at, many, one, to_text
from .hostdev import HostdevConfig
from .interface import InterfaceConfig
from .metadata import NovaInstanceConfig, OwnerConfig
from .numa import MemoryBackingConfig, NumaTuneConfig
from .platform import ClockConfig, FeaturesConfig, OsConfig, SysinfoConfig


@dataclass(frozen=True)
class DomainConfig(Element):
    """``<domain>``. ``memory`` and ``current_memory`` are numbers of ``memory_unit`` (KiB)."""

    TAG: t.ClassVar[str] = "domain"

    type: str = at("@type", default="kvm")
    name: str = at("name", default="")
    uuid: t.Optional[str] = at("uuid")
    title: t.Optional[str] = at("title")
    description: t.Optional[str] = at("description")
    metadata: t.Optional[NovaInstanceConfig] = one(NovaInstanceConfig, "metadata/instance")
    owner: t.Optional[OwnerConfig] = one(OwnerConfig, "metadata/owner")
    memory_unit: t.Optional[str] = at("memory/@unit")
    memory: int = at("memory", "int", default=0)
    current_memory_unit: t.Optional[str] = at("currentMemory/@unit")
    current_memory: t.Optional[int] = at("currentMemory", "int")
    memory_backing: t.Optional[MemoryBackingConfig] = one(MemoryBackingConfig)
    vcpu_placement: t.Optional[str] = at("vcpu/@placement")
    vcpus: int = at("vcpu", "int", default=1)
    iothreads: t.Optional[int] = at("iothreads", "int")
    cputune: t.Optional[CpuTuneConfig] = one(CpuTuneConfig)
    numatune: t.Optional[NumaTuneConfig] = one(NumaTuneConfig)
    sysinfo: t.Optional[SysinfoConfig] = one(SysinfoConfig)
    os: t.Optional[OsConfig] = one(OsConfig)
    features: t.Optional[FeaturesConfig] = one(FeaturesConfig)
    cpu: t.Optional[CpuConfig] = one(CpuConfig)
    clock: t.Optional[ClockConfig] = one(ClockConfig)
    on_poweroff: t.Optional[str] = at("on_poweroff")
    on_reboot: t.Optional[str] = at("on_reboot")
    on_crash: t.Optional[str] = at("on_crash")
    emulator: t.Optional[str] = at("devices/emulator")
    disks: t.Tuple[DiskConfig, ...] = many(DiskConfig, "devices/disk")
    controllers: t.Tuple[ControllerConfig, ...] = many(ControllerConfig, "devices/controller")
    interfaces: t.Tuple[InterfaceConfig, ...] = many(InterfaceConfig, "devices/interface")
    serials: t.Tuple[SerialConfig, ...] = many(SerialConfig, "devices/serial")
    consoles: t.Tuple[ConsoleConfig, ...] = many(ConsoleConfig, "devices/console")
    channels: t.Tuple[ChannelConfig, ...] = many(ChannelConfig, "devices/channel")
    inputs: t.Tuple[InputConfig, ...] = many(InputConfig, "devices/input")
    graphics: t.Tuple[GraphicsConfig, ...] = many(GraphicsConfig, "devices/graphics")
    videos: t.Tuple[VideoConfig, ...] = many(VideoConfig, "devices/video")
    hostdevs: t.Tuple[HostdevConfig, ...] = many(HostdevConfig, "devices/hostdev")
    watchdogs: t.Tuple[WatchdogConfig, ...] = many(WatchdogConfig, "devices/watchdog")
    memballoon: t.Optional[MemballoonConfig] = one(MemballoonConfig, "devices/memballoon")
    rngs: t.Tuple[RngConfig, ...] = many(RngConfig, "devices/rng")


def render(config: Element) -> str:
    """The XML text for libvirt: indented, the same text for the same config.

    :raises InvalidInput: a value has a character that XML does not allow.
    """
    return to_text(config.to_xml())
