# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of devices in the guest. source: libvirt's domain format."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .element import Element, at


@dataclass(frozen=True)
class AddressConfig(Element):
    """``<address>``. PCI numbers are in libvirt's form (``0x05``); a drive's are plain decimal numbers."""

    TAG: t.ClassVar[str] = "address"

    type: str = at("@type", default="pci")
    domain: t.Optional[str] = at("@domain")
    controller: t.Optional[str] = at("@controller")
    bus: t.Optional[str] = at("@bus")
    slot: t.Optional[str] = at("@slot")
    function: t.Optional[str] = at("@function")
    multifunction: t.Optional[bool] = at("@multifunction", "switch")
    target: t.Optional[str] = at("@target")
    unit: t.Optional[str] = at("@unit")
    port: t.Optional[str] = at("@port")


def drive_address(unit: int = 0, controller: int = 0, bus: int = 0, target: int = 0) -> AddressConfig:
    """``<address type='drive' controller='0' bus='0' target='0' unit='0'/>``."""
    return AddressConfig(type="drive", controller=str(controller), bus=str(bus), target=str(target), unit=str(unit))
