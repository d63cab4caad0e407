# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The physical networks that this host is in."""

from __future__ import annotations

import typing as t

from ....core.errors import NetworkError
from ....core.networks.on_hosts import ABSENT, INACTIVE, HostNetwork
from ....core.networks.physical import check_interface_mappings
from ...bridges import links
from .network_type import FoundNetwork, NetworkSpec, Uplinks


class Uplink(t.NamedTuple):
    """The interface of this host for a network. ``mtu``: of the interface."""

    interface: str
    mtu: int


def uplink_of(spec: NetworkSpec) -> Uplink:
    """Return the interface of the network's physical network.

    :raises HostLacksNetwork: the host is not in the physical network, or its interface is missing or down. :raises NetworkError: the MTU of the
    network is larger than that of the interface, which carries the frames.
    """
    needed = HostNetwork(spec.type, spec.physical_network, spec.name)
    interface = check_interface_mappings(spec.uplinks.physical_interfaces).get(spec.physical_network)
    if interface is None:
        raise needed.refusal(ABSENT, links.host_name())
    link = links.links_of([interface]).get(interface)
    if link is None or not links.is_up(link):
        raise needed.refusal(INACTIVE, links.host_name())
    most = int(link["mtu"])
    if spec.mtu is not None and spec.mtu > most:
        raise NetworkError(
            message="network %s has MTU %d, and %s on %s has %d"
            % (spec.name, spec.mtu, interface, links.host_name(), most),
            remedy="Write mtu: %d on network %s in bootflow_networks, or raise the MTU of %s and of all between the hosts."
            % (most, spec.name, interface),
        )
    return Uplink(interface, most)


def physical_networks(given: Uplinks) -> list[FoundNetwork]:
    """Return the physical networks of the host, which are active if their interfaces are up."""
    mappings = check_interface_mappings(given.physical_interfaces)
    present = links.links_of(mappings.values())
    return [
        FoundNetwork(network, interface in present and links.is_up(present[interface]))
        for network, interface in mappings.items()
    ]
