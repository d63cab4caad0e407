# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a guest's drive for images that read cloud-init's data source NoCloud."""

from __future__ import annotations

import ipaddress
import json
import re
import typing as t

from ..errors import InvalidInput
from ..networks.network_info import network_data
from .config_drive_rules import CONFIG_DRIVE, DATASOURCE, NO_CLOUD, check_files
from .metadata import InstanceMetadata, meta_data, vendor_data

Data = t.Dict[str, t.Any]

#: type of a network in network_data.json -> type of a subnet in network-config
_SUBNET_TYPES = {"ipv4": "static", "ipv6": "static6", "ipv4_dhcp": "dhcp4", "ipv6_dhcp": "dhcp6"}
#: type of a network -> whether the guest heeds router advertisements; source: what cloud-init makes of network_data.json
_ACCEPT_RA = {"ipv6": False, "ipv6_dhcp": True, "ipv6_dhcpv6-stateful": True}


def nocloud_files(md: InstanceMetadata) -> dict[str, bytes]:
    """Path -> content: meta-data, user-data, vendor-data and, for a guest with interfaces, network-config.

    The same metadata gives the same bytes.

    :raises InvalidInput: injected files, or vendor data that is neither a text nor a list of texts.
    """
    check_files({DATASOURCE: NO_CLOUD}, md.injected_files)
    user_data = md.user_data.encode("utf-8") if isinstance(md.user_data, str) else md.user_data
    files = {
        "meta-data": _yaml(_meta_data(md)),
        "user-data": user_data or b"",  # cloud-init requires the file
        "vendor-data": _vendor_data(md),
    }
    config = network_config(md.network_info)
    if config:
        files["network-config"] = _yaml(config)
    return files


def network_config(network_info: t.Sequence[t.Mapping[str, t.Any]]) -> Data:
    """Return version 1 of cloud-init's network configuration, with the same as network_data.json; empty for a guest without interfaces.

    Interfaces are found by their MAC and named eth0, eth1 and so on, in the order of the request.
    """
    data = network_data(network_info)
    names = {vif["address"]: "eth%d" % number for number, vif in enumerate(network_info)}
    config = []
    for link in data.get("links", ()):
        networks = [network for network in data["networks"] if network["link"] == link["id"]]
        mac = link["ethernet_mac_address"]
        interface = {"type": "physical", "name": names[mac], "mac_address": mac}
        if link["mtu"]:
            interface["mtu"] = link["mtu"]
        for network in networks:
            if network["type"] in _ACCEPT_RA:
                interface["accept-ra"] = _ACCEPT_RA[network["type"]]
        config.append({**interface, "subnets": [_subnet(network) for network in networks]})
    if not config:
        return {}
    nameservers = [{"type": "nameserver", "address": service["address"]} for service in data["services"]]
    return {"version": 1, "config": config + nameservers}


def _subnet(network: t.Mapping[str, t.Any]) -> Data:
    subnet: Data = {"type": _SUBNET_TYPES.get(network["type"], network["type"])}
    if network["type"] in ("ipv4", "ipv6"):
        subnet["address"] = "%s/%d" % (network["ip_address"], _prefix(network["netmask"]))
    if network.get("routes"):
        subnet["routes"] = [dict(route) for route in network["routes"]]  # a prefix of 0 would become 64 in cloud-init
    return subnet


def _prefix(netmask: str) -> int:
    return bin(int(ipaddress.ip_address(netmask))).count("1")


def _meta_data(md: InstanceMetadata) -> Data:
    data = meta_data(md)
    keys = data.pop("keys", ())
    for name in ("admin_pass", "public_keys"):  # only Windows guests read the first; the second is a list here
        data.pop(name, None)
    head = {"instance-id": data.pop("uuid"), "local-hostname": data.pop("hostname")}
    return {**head, **({"public-keys": [key["data"] for key in keys]} if keys else {}), **data}


def _vendor_data(md: InstanceMetadata) -> bytes:
    parts = vendor_data(md).get("cloud-init") or ()
    texts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(
            reason="cloud-init in bootflow_vendor_data is neither a text nor a list of texts, which the data source NoCloud requires",
            remedy="Write each part as a text, or leave the image property %s out (%s)." % (DATASOURCE, CONFIG_DRIVE),
        )
    if len(texts) > 1:
        return b"#cloud-config-archive\n" + _yaml(texts)
    return "".join(texts).encode("utf-8")


def _yaml(data: t.Any) -> bytes:
    """JSON that YAML reads as the same: YAML has one escape for a character beyond 16 bits, and reads no raw control characters."""
    text = json.dumps(data, ensure_ascii=False)
    return re.sub(r"[^\x20-\x7e]", lambda character: _escape(ord(character.group())), text).encode("ascii")


def _escape(number: int) -> str:
    return "\\U%08x" % number if number > 0xFFFF else "\\u%04x" % number
