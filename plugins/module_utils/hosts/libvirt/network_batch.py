# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module virtual_network: networks of guests, and reservations of their DHCP servers."""

from __future__ import annotations

import typing as t

from ...core.networks.types.network_type import FORWARDS
from ...core.networks.types.registry import DEFAULT
from ..bridges.tunnels import refresh_tunnels
from ..os.batch import run_batch
from .connection import LIBVIRT_ARGUMENTS, connect
from .dhcp import RESERVATIONS_ARGUMENT, Reservation, reserve
from .network_types.network_type import NetworkSpec, Uplinks
from .network_types.registry import HOST_NETWORK_TYPES, ensure_network

NETWORK_BATCH_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    **LIBVIRT_ARGUMENTS,
    "networks": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "type": {"type": "str", "choices": list(HOST_NETWORK_TYPES), "default": DEFAULT.name},
            "source": {"type": "str"},
            "manage": {"type": "bool", "default": False},
            "forward": {"type": "str", "choices": list(FORWARDS), "default": "none"},
            "bridge": {"type": "str"},
            "mtu": {"type": "int"},
            "vni": {"type": "int"},
            "vlan": {"type": "int"},
            "physical_network": {"type": "str"},
            "subnets": {"type": "list", "elements": "dict", "default": []},
        },
    },
    "vxlan_address": {"type": "str", "default": ""},
    "physical_interface_mappings": {"type": "dict", "default": {}},
    "vxlan_peers": {"type": "list", "elements": "str", "default": []},
    "refresh_vxlan": {"type": "bool", "default": False},
    "reservations": RESERVATIONS_ARGUMENT,
}


def ensure_networks(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Return {outcomes by name, reservations by MAC address, diff}; see the module for the fields.

    :arg params: the options of the module
    :raises BootflowError: libvirt does not answer, or two items have one key.
    """
    specs = [_network_spec(args, params) for args in params["networks"]]
    wanted = [Reservation(**args) for args in params["reservations"]]
    with connect(params["libvirt_uri"], params["libvirt_timeout"]) as connection:
        # One after the other: libvirt chooses names of bridges, and two specs may mean the same network.
        results = run_batch(
            [(s.name, s) for s in specs], lambda s: ensure_network(connection, s, check_mode), workers=1
        )
        reserved = run_batch(
            [(reservation.mac, reservation) for reservation in wanted],
            lambda reservation: {"changed": reserve(connection, reservation, check_mode, replace=False)},
            workers=1,
        )
    if params["refresh_vxlan"]:
        refreshed = refresh_tunnels(params["vxlan_address"], params["vxlan_peers"], check_mode)
        results.update({name: outcome for name, outcome in refreshed.items() if name not in results})
    diff = [result.pop("diff") for result in results.values() if "diff" in result]
    return {"outcomes": results, "reservations": reserved, "diff": diff}


def _network_spec(args: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any]) -> NetworkSpec:
    """Return a NetworkSpec from an element of the option networks, and the options of all."""
    return NetworkSpec(
        name=args["name"],
        type=args["type"],
        source=args["source"] or "",
        manage=args["manage"],
        forward=args["forward"],
        bridge=args["bridge"] or "",
        mtu=args["mtu"],
        vni=args["vni"],
        vlan=args["vlan"],
        physical_network=args["physical_network"] or "",
        uplinks=Uplinks(params["vxlan_address"], params["physical_interface_mappings"]),
        vxlan_peers=tuple(params["vxlan_peers"]),
        subnets=tuple(args["subnets"]),
    )
