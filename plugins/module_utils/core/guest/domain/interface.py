# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network interfaces. source: libvirt's domain format."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .address import AddressConfig
from .element import Element, at, many, one


@dataclass(frozen=True)
class FilterParameterConfig(Element):
    TAG: t.ClassVar[str] = "parameter"

    name: str = at("@name", default="")
    value: str = at("@value", default="")


@dataclass(frozen=True)
class FilterRefConfig(Element):
    """``<filterref>``: the interface's nwfilter."""

    TAG: t.ClassVar[str] = "filterref"

    filter: str = at("@filter", default="")
    parameters: t.Tuple[FilterParameterConfig, ...] = many(FilterParameterConfig)


@dataclass(frozen=True)
class InterfaceConfig(Element):
    """``<interface>`` of type network (a libvirt network), bridge or ethernet. Bandwidth in kilobytes and kB/s."""

    TAG: t.ClassVar[str] = "interface"

    type: str = at("@type", default="network")
    mac: t.Optional[str] = at("mac/@address")
    source_network: t.Optional[str] = at("source/@network")
    source_bridge: t.Optional[str] = at("source/@bridge")
    source_portgroup: t.Optional[str] = at("source/@portgroup")
    virtualport_type: t.Optional[str] = at("virtualport/@type")
    virtualport_interfaceid: t.Optional[str] = at("virtualport/parameters/@interfaceid")
    target_dev: t.Optional[str] = at("target/@dev")
    script: t.Optional[str] = at("script/@path")
    model: t.Optional[str] = at("model/@type")
    driver_name: t.Optional[str] = at("driver/@name")
    driver_queues: t.Optional[int] = at("driver/@queues", "int")
    driver_rx_queue_size: t.Optional[int] = at("driver/@rx_queue_size", "int")
    driver_tx_queue_size: t.Optional[int] = at("driver/@tx_queue_size", "int")
    filterref: t.Optional[FilterRefConfig] = one(FilterRefConfig)
    mtu: t.Optional[int] = at("mtu/@size", "int")
    inbound_average: t.Optional[int] = at("bandwidth/inbound/@average", "int")
    inbound_peak: t.Optional[int] = at("bandwidth/inbound/@peak", "int")
    inbound_burst: t.Optional[int] = at("bandwidth/inbound/@burst", "int")
    outbound_average: t.Optional[int] = at("bandwidth/outbound/@average", "int")
    outbound_peak: t.Optional[int] = at("bandwidth/outbound/@peak", "int")
    outbound_burst: t.Optional[int] = at("bandwidth/outbound/@burst", "int")
    link_state: t.Optional[str] = at("link/@state")
    boot_order: t.Optional[int] = at("boot/@order", "int")
    alias: t.Optional[str] = at("alias/@name")
    address: t.Optional[AddressConfig] = one(AddressConfig)

    @property
    def place(self) -> t.Dict[str, t.Optional[str]]:
        """The type of the interface, the names of the libvirt network and of the bridge that it is plugged into, and its port there."""
        place = {"type": self.type, "network": self.source_network, "bridge": self.source_bridge}
        return {**place, "switch": self.virtualport_type, "port": self.virtualport_interfaceid}
