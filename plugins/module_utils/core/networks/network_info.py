# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nova's network_info from ports and networks, and its form in config drives.

network_info is a list of VIFs as plain data with Nova's key names, the source of domain XML and config drive.
"""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass

from ..errors import NetworkNotFound, SubnetNotFound
from .network import Network
from .subnet import Subnet
from .types.registry import NETWORK_TYPES

Data = t.Dict[str, t.Any]

DEVNAME_LENGTH = 14  # "tap" and the first 11 characters of the port's id: the length of an interface name

# Types that network_data.json names; every other type of VIF is "phy" there.
EXPOSED_VIF_TYPES = frozenset({"bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif"})


@dataclass(frozen=True)
class PortRecord:
    """A port of the ledger."""

    id: str
    network_id: str
    mac_address: str
    fixed_ips: tuple[t.Mapping[str, str], ...] = ()  # {subnet_id, ip_address}, in order
    instance_uuid: str | None = None
    tag: str | None = None
    preserve_on_delete: bool = False  # True: the port existed before the instance and outlives it
    host: str | None = None
    active: bool = False  # its status is ACTIVE: plugged in
    name: str | None = None  # of a port that a project made


def build_network_info(
    ports: t.Iterable[PortRecord],
    networks: t.Mapping[str, Network],
    project_id: str,
) -> list[Data]:
    """One VIF per port, in the order of ``ports``.

    :arg networks: network id -> Network.
    :raises NetworkNotFound, SubnetNotFound: ``networks`` lacks that of a port.
    """
    return [_vif(port, networks, project_id) for port in ports]


def fixed_ips(network_info: t.Iterable[t.Mapping[str, t.Any]]) -> list[Data]:
    """All fixed IPs ({address, version, ...}) of all VIFs, in order."""
    return [
        ip
        for vif in network_info
        for subnet in ((vif.get("network") or {}).get("subnets") or ())
        for ip in subnet["ips"]
    ]


def ip_info(network_info: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, list[str]]:
    """{fixed_ips, fixed_ip6s, floating_ips}: addresses as texts."""
    fixed = fixed_ips(network_info)
    return {
        "fixed_ips": [ip["address"] for ip in fixed if ip["version"] == 4],
        "fixed_ip6s": [ip["address"] for ip in fixed if ip["version"] == 6],
        "floating_ips": [floating["address"] for ip in fixed for floating in ip.get("floating_ips") or ()],
    }


def network_data(network_info: t.Sequence[t.Mapping[str, t.Any]]) -> Data:
    """The content of network_data.json: {links, networks, services}; empty for a guest without VIFs.

    Each VIF has its first IPv4 and its first IPv6 subnet; a VIF without a subnet is left out.
    """
    if not network_info:
        return {}
    links: list[Data] = []
    nets: list[Data] = []
    services: list[Data] = []
    for vif in network_info:
        subnets = (vif.get("network") or {}).get("subnets")
        if not subnets:
            continue
        link = _link(vif, len(links))
        links.append(link)
        for version in (4, 6):
            subnet = _first_subnet(vif, version)
            if subnet is None or not subnet["ips"]:
                continue
            nets.append(_net(vif, subnet, version, len(nets), link["id"]))
            services += [dns for dns in _dns_services(subnet) if dns not in services]
    return {"links": links, "networks": nets, "services": services}


def _vif(port: PortRecord, networks: t.Mapping[str, Network], project_id: str) -> Data:
    network = networks.get(port.network_id)
    if network is None:
        raise NetworkNotFound(
            network_id=port.network_id, remedy="Put the network of port %s back into bootflow_networks." % port.id
        )
    kind = NETWORK_TYPES[network.type]
    place = kind.vif(network.source)
    return {
        "id": port.id,
        "address": port.mac_address,
        "network": _network(port, network, project_id, place["bridge"]),
        "type": kind.vif_type,
        "details": place["details"],
        "devname": devname(port.id),
        "ovs_interfaceid": port.id if kind.is_logical else None,
        "qbh_params": None,
        "qbg_params": None,
        "active": port.active,
        "vnic_type": "normal",
        "profile": {},
        "preserve_on_delete": port.preserve_on_delete,
        "delegate_create": True,
        "meta": {"tag": port.tag} if port.tag else {},
    }


def devname(port_id: str) -> str:
    """Return the name of the interface of a port on its host."""
    return ("tap" + port_id)[:DEVNAME_LENGTH]


def _network(port: PortRecord, network: Network, project_id: str, bridge: str | None) -> Data:
    return {
        "id": network.id,
        "bridge": bridge,
        "label": network.name,
        "subnets": _subnets(port, network),
        "meta": {
            "injected": False,
            "tenant_id": project_id,
            "mtu": network.mtu,
            "physical_network": network.physical_network,
            "tunneled": network.vni is not None or network.is_logical,
        },
    }


def _subnets(port: PortRecord, network: Network) -> list[Data]:
    """The subnets in which the port has an address, each with these addresses."""
    by_id = {subnet.id: subnet for subnet in network.subnets}
    subnets: dict[str, Data] = {}
    for fixed in port.fixed_ips:
        subnet_id = fixed["subnet_id"]
        if subnet_id not in subnets:
            if subnet_id not in by_id:
                raise SubnetNotFound(
                    subnet_id=subnet_id,
                    remedy="Put the subnet of port %s back into network %s." % (port.id, network.name),
                )
            subnets[subnet_id] = _subnet(by_id[subnet_id])
        subnets[subnet_id]["ips"].append(_ip(fixed["ip_address"], "fixed", floating_ips=[]))
    return list(subnets.values())


def _subnet(subnet: Subnet) -> Data:
    meta: Data = {"enable_dhcp": subnet.enable_dhcp}
    if subnet.enable_dhcp and subnet.gateway_ip:
        # The host has the server: libvirt answers on the address of the network's gateway.
        meta["dhcp_server"] = subnet.gateway_ip
    if subnet.ipv6_address_mode:
        meta["ipv6_address_mode"] = subnet.ipv6_address_mode
    return {
        "cidr": subnet.cidr,
        "dns": [_ip(address, "dns") for address in subnet.dns_nameservers],
        "gateway": _ip(subnet.gateway_ip, "gateway"),
        "ips": [],
        "routes": [
            {"cidr": route["destination"], "gateway": _ip(route["nexthop"], "gateway"), "interface": None, "meta": {}}
            for route in subnet.host_routes
        ],
        "version": subnet.ip_version,
        "meta": meta,
    }


def _ip(address: str | None, kind: str, **more: t.Any) -> Data:
    version = ipaddress.ip_address(address).version if address else None
    return {"address": address, "type": kind, "version": version, "meta": {}, **more}


def _first_subnet(vif: t.Mapping[str, t.Any], version: int) -> Data | None:
    return next((s for s in vif["network"]["subnets"] if s["version"] == version), None)


def _link(vif: t.Mapping[str, t.Any], number: int) -> Data:
    return {
        "id": vif.get("devname") or "interface%d" % number,
        "vif_id": vif["id"],
        "type": vif.get("type") if vif.get("type") in EXPOSED_VIF_TYPES else "phy",
        "mtu": _mtu(vif["network"]),
        "ethernet_mac_address": vif.get("address"),
    }


def _mtu(network: t.Mapping[str, t.Any]) -> int | None:
    # With DHCP, its option gives the MTU.
    if any(subnet["meta"].get("dhcp_server") for subnet in network["subnets"]):
        return None
    mtu: int | None = network["meta"].get("mtu")
    return mtu


def _net(vif: t.Mapping[str, t.Any], subnet: t.Mapping[str, t.Any], version: int, number: int, link_id: str) -> Data:
    mode = subnet["meta"].get("ipv6_address_mode")
    dhcp = subnet["meta"].get("dhcp_server") is not None or subnet["meta"].get("enable_dhcp")
    head = {"id": "network%d" % number, "link": link_id, "network_id": vif["network"]["id"]}
    if dhcp and mode is None:
        return {**head, "type": "ipv%d_dhcp" % version}
    routes = _default_route(subnet, version)
    for route in subnet["routes"]:
        target = ipaddress.ip_network(route["cidr"], strict=False)
        routes.append(
            {
                "network": str(target.network_address),
                "netmask": str(target.netmask),
                "gateway": route["gateway"]["address"],
            }
        )
    return {
        **head,
        "type": "ipv%d%s" % (version, "" if mode is None else "_" + mode),
        "ip_address": subnet["ips"][0]["address"],
        "netmask": _netmask(subnet),
        "routes": routes,
        "services": _dns_services(subnet),
    }


def _default_route(subnet: t.Mapping[str, t.Any], version: int) -> list[Data]:
    gateway = (subnet.get("gateway") or {}).get("address")
    if not gateway:
        return []
    anywhere = "0.0.0.0" if version == 4 else "::"
    return [{"network": anywhere, "netmask": anywhere, "gateway": gateway}]


def _dns_services(subnet: t.Mapping[str, t.Any]) -> list[Data]:
    return [{"type": "dns", "address": dns["address"]} for dns in subnet["dns"]]


def _netmask(subnet: t.Mapping[str, t.Any]) -> str:
    return str(ipaddress.ip_network(subnet["cidr"], strict=False).netmask)
