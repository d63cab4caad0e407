# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of the host that are dedicated to the guest. source: Nova's libvirt driver; libvirt's domain format"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .address import AddressConfig
from .element import Element, at, one


@dataclass(frozen=True)
class HostdevConfig(Element):
    """``<hostdev>`` of a PCI device. ``managed``: libvirt detaches it from its driver and reattaches it at the end.

    The numbers of the source are in libvirt's form (``0x0a``); ``address`` is its place in the guest.
    """

    TAG: t.ClassVar[str] = "hostdev"

    mode: str = at("@mode", default="subsystem")
    type: str = at("@type", default="pci")
    managed: t.Optional[bool] = at("@managed", "bool", default=True)
    domain: t.Optional[str] = at("source/address/@domain")
    bus: t.Optional[str] = at("source/address/@bus")
    slot: t.Optional[str] = at("source/address/@slot")
    function: t.Optional[str] = at("source/address/@function")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)
