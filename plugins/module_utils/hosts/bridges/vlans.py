# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The VLANs of this host: for each VLAN network a bridge, and a VLAN device in it on the interface of its physical network."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core.errors import NetworkError
from ...core.networks.physical import MOST_VLAN, vlan_device
from .links import Links, host_name, info_of, ip
from .made_bridges import MadeBridge, in_words, up_words


@dataclass(frozen=True)
class Vlan(MadeBridge):
    """A VLAN network on this host. ``interface``: of the physical network, which gets the frames with their tags."""

    interface: str
    vlan: int

    KIND = "vlan"
    NOUN = "VLAN device"
    MARK = "urn:bootflow:compute:vlan:1"
    FIELD = "vlan"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.vlan <= MOST_VLAN:
            raise ValueError(self.vlan)

    @property
    def device(self) -> str:
        return vlan_device(self.interface, self.vlan)

    @property
    def number(self) -> str:
        return "VLAN %d of %s" % (self.vlan, self.interface)

    @property
    def device_lines(self) -> list[str]:
        fields = (self.device, self.vlan, self.interface, self.mtu, self.bridge)
        return ["VLAN device %s: VLAN %d on %s, MTU %d, in %s, up" % fields]

    def found_device_lines(self, link: t.Mapping[str, t.Any]) -> list[str]:
        where = (self.device, info_of(link).get("id", 0), link.get("link") or "nothing", link["mtu"])
        return ["VLAN device %s: VLAN %d on %s, MTU %d%s%s" % (*where, in_words(link), up_words(link))]

    def fits(self, link: t.Mapping[str, t.Any]) -> bool:
        return (link.get("link"), info_of(link).get("id")) == (self.interface, self.vlan)

    @property
    def kind_words(self) -> str:
        return "link %s name %s type vlan id %d" % (self.interface, self.device, self.vlan)

    @property
    def remedy(self) -> str:
        return "Write another vlan for network %%s in bootflow_networks, or correct %s on the host." % self.interface

    def check_others(self, links: Links, network: str) -> None:
        """:raises NetworkError: another device has the VLAN of the interface"""
        if self.device in links:
            return
        for link in ip("-details", "link", "show", "type", "vlan"):
            if self.fits(link):
                raise NetworkError(
                    message="network %s needs VLAN %d of %s on %s, where %s has it already"
                    % (network, self.vlan, self.interface, host_name(), link["ifname"]),
                    remedy="Use the bridge that %s is in (type: bridge), or remove %s if nothing uses it, or write another vlan for network %s."
                    % (link["ifname"], link["ifname"], network),
                )
