# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The smaller devices: controllers, character devices, input, display, balloon, rng, watchdog."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .address import AddressConfig
from .element import Element, at, one


@dataclass(frozen=True)
class ControllerConfig(Element):
    """``<controller>``: usb, pci (pci-root, pcie-root, pcie-root-port), ide, sata, scsi, virtio-serial."""

    TAG: t.ClassVar[str] = "controller"

    type: str = at("@type", default="")
    index: t.Optional[int] = at("@index", "int")
    model: t.Optional[str] = at("@model")
    driver_queues: t.Optional[int] = at("driver/@queues", "int")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)


@dataclass(frozen=True)
class CharDeviceConfig(Element):
    """The base of serial, console and channel. ``log_append`` False: the log is truncated at each boot."""

    type: str = at("@type", default="pty")
    source_path: t.Optional[str] = at("source/@path")
    source_mode: t.Optional[str] = at("source/@mode")
    log_file: t.Optional[str] = at("log/@file")
    log_append: t.Optional[bool] = at("log/@append", "switch")
    target_type: t.Optional[str] = at("target/@type")
    target_name: t.Optional[str] = at("target/@name")
    target_port: t.Optional[int] = at("target/@port", "int")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)


@dataclass(frozen=True)
class SerialConfig(CharDeviceConfig):
    TAG: t.ClassVar[str] = "serial"


@dataclass(frozen=True)
class ConsoleConfig(CharDeviceConfig):
    TAG: t.ClassVar[str] = "console"


@dataclass(frozen=True)
class ChannelConfig(CharDeviceConfig):
    TAG: t.ClassVar[str] = "channel"


@dataclass(frozen=True)
class InputConfig(Element):
    TAG: t.ClassVar[str] = "input"

    type: str = at("@type", default="tablet")  # mouse, keyboard, tablet
    bus: t.Optional[str] = at("@bus")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)


@dataclass(frozen=True)
class ListenConfig(Element):
    TAG: t.ClassVar[str] = "listen"

    type: str = at("@type", default="address")
    address: t.Optional[str] = at("@address")


@dataclass(frozen=True)
class GraphicsConfig(Element):
    """``<graphics>``. Passwords are not supported on purpose: the XML would show them."""

    TAG: t.ClassVar[str] = "graphics"

    type: str = at("@type", default="vnc")
    port: t.Optional[int] = at("@port", "int")
    autoport: t.Optional[bool] = at("@autoport", "bool")
    keymap: t.Optional[str] = at("@keymap")
    listen: t.Optional[str] = at("@listen")
    listener: t.Optional[ListenConfig] = one(ListenConfig)


@dataclass(frozen=True)
class VideoConfig(Element):
    TAG: t.ClassVar[str] = "video"

    type: str = at("model/@type", default="virtio")
    vram: t.Optional[int] = at("model/@vram", "int")  # KiB
    heads: t.Optional[int] = at("model/@heads", "int")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)


@dataclass(frozen=True)
class MemballoonConfig(Element):
    TAG: t.ClassVar[str] = "memballoon"

    model: str = at("@model", default="virtio")
    stats_period: t.Optional[int] = at("stats/@period", "int")  # seconds
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)


@dataclass(frozen=True)
class RngConfig(Element):
    """``<rng>`` fed from a device of the host; bytes per period, period in milliseconds."""

    TAG: t.ClassVar[str] = "rng"

    model: str = at("@model", default="virtio")
    rate_bytes: t.Optional[int] = at("rate/@bytes", "int")
    rate_period: t.Optional[int] = at("rate/@period", "int")
    backend_model: str = at("backend/@model", default="random")
    backend: t.Optional[str] = at("backend")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)


@dataclass(frozen=True)
class WatchdogConfig(Element):
    TAG: t.ClassVar[str] = "watchdog"

    model: str = at("@model", default="i6300esb")
    action: t.Optional[str] = at("@action")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)
