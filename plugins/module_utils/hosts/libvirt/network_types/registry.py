# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of networks on this host, by the word that bootflow_networks has for each."""

from __future__ import annotations

import contextlib
import typing as t

from .bridge import HostBridge
from .macvtap import HostMacvtap
from .network import HostLibvirtNetwork
from .network_type import NO_UPLINKS, FoundNetwork, HostNetworkType, NetworkSpec, ServedNetwork, Uplinks
from .ovn import HostOvn
from .vlan import HostVlan
from .vxlan import HostVxlan

_TYPES: tuple[HostNetworkType, ...] = (
    HostLibvirtNetwork(),
    HostBridge(),
    HostVxlan(),
    HostVlan(),
    HostMacvtap(),
    HostOvn(),
)
HOST_NETWORK_TYPES: t.Mapping[str, HostNetworkType] = {network_type.kind.name: network_type for network_type in _TYPES}


def ensure_network(connection: t.Any, spec: NetworkSpec, check_mode: bool = False) -> dict[str, t.Any]:
    """Ensure that a network exists, as its type does that; see HostNetworkType.ensure()."""
    return HOST_NETWORK_TYPES[spec.type].ensure(connection, spec, check_mode)


def purge_networks(
    connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool = False
) -> t.Iterator[dict[str, t.Any]]:
    """Remove the networks that this collection made and no domain uses; see HostNetworkType.purge()."""
    for network_type in HOST_NETWORK_TYPES.values():
        yield from network_type.purge(connection, min_age, keep, check_mode)


def served_networks(connection: t.Any) -> list[ServedNetwork]:
    """Return the networks of the host whose DHCP server libvirt runs."""
    return [network for network_type in HOST_NETWORK_TYPES.values() for network in network_type.report(connection)]


def found_networks(connection: t.Any, uplinks: Uplinks = NO_UPLINKS) -> dict[str, list[FoundNetwork]]:
    """Return type -> the networks of the host, see HostNetworkType.networks(). A type whose networks cannot be read is left out: nothing is known of them."""
    networks: dict[str, list[FoundNetwork]] = {}
    for name, network_type in HOST_NETWORK_TYPES.items():
        with contextlib.suppress(Exception):  # for any error: the other facts of the host are still reported
            networks[name] = sorted(network_type.networks(connection, uplinks))
    return networks
