# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The physical networks of hosts: by which interface a host is in each, and the VLANs on it. source: Neutron's physical_interface_mappings"""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput
from .names import check_interface

MOST_VLAN = 4094
_LONGEST = 15  # characters of an interface's name


def vlan_device(interface: str, vlan: int) -> str:
    """Return the name of the VLAN device on an interface: that of interface and VLAN, as is usual, where it is short enough."""
    name = "%s.%d" % (interface, vlan)
    return name if len(name) <= _LONGEST else "vlan%d" % vlan


def check_interface_mappings(value: t.Any) -> dict[str, str]:
    """Return physical network -> interface of a host. :raises InvalidInput: a name is wrong, or two networks have one interface"""
    if not isinstance(value, t.Mapping):
        raise InvalidInput(message="%r is not a mapping of physical networks to interfaces" % (value,), remedy=_REMEDY)
    mappings: dict[str, str] = {}
    for network, interface in value.items():
        check_physical_network(network)
        check_interface(interface)
        if interface in mappings.values():
            raise InvalidInput(message="two physical networks have the interface %s" % interface, remedy=_REMEDY)
        mappings[network] = interface
    return mappings


def check_physical_network(name: t.Any) -> str:
    """Return the name of a physical network. :raises InvalidInput: it does not have 1 to 64 printable characters, or has a space"""
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not name.isprintable() or " " in name:
        raise InvalidInput(message="%r is not the name of a physical network" % (name,), remedy=_REMEDY)
    return name


_REMEDY = "Write physical networks and interfaces as in {physnet1: eno2}."
