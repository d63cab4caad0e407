# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks and subnets of the catalogue, with Neutron's rules and defaults."""

from __future__ import annotations

import ipaddress
import typing as t

from ..errors import BootflowError, InvalidInput
from ..networks.ipam import IPNetwork, default_pools, overlap, validate_pools
from ..networks.network import Network
from ..networks.subnet import Subnet
from ..networks.types.registry import DEFAULT, NETWORK_TYPES
from ..reading.fields import Fields, catalogue_id

_OWN_VNI = "Each VXLAN network needs a vni that no other network of these hosts has."
_OWN_VLAN = "Each VLAN network needs a vlan that no other network of its physical network has."
_OWN_BRIDGE = "Give the VXLAN or VLAN network another source, or leave it out: its bridge is named by the number."


class NetworkReader:
    """Reads the networks of one catalogue: no two have the same VNI or VLAN, and no other network has the bridge of one that joins hosts."""

    def __init__(self) -> None:
        self._by_vni: dict[int, str] = {}
        self._by_vlan: dict[tuple[str | None, int], str] = {}
        self._by_bridge: dict[str, Network] = {}

    def read(self, fields: Fields, name: str) -> Network:
        """A network of the inventory; its errors are noted in ``fields``."""
        network = _read_network(fields, name)
        numbers = {fields.at(name) for name in ("vni", "vlan", "physical_network")}
        if any(error["path"] in numbers for error in fields.problems.errors):
            return network
        if network.vni is not None:
            first = self._by_vni.setdefault(network.vni, name)
            if first != name:
                fields.wrong("vni", "%d is also the VNI of network %s" % (network.vni, first), _OWN_VNI)
        if network.vlan is not None:
            first = self._by_vlan.setdefault((network.physical_network, network.vlan), name)
            if first != name:
                place = (network.vlan, network.physical_network, first)
                fields.wrong("vlan", "%d of %s is also the VLAN of network %s" % place, _OWN_VLAN)
        bridge = NETWORK_TYPES[network.type].vif(network.source)["bridge"]
        if bridge:
            other = self._by_bridge.setdefault(bridge, network)
            if other.name != name and (other.joins_hosts or network.joins_hosts):
                fields.wrong("source", "%s is also the bridge of network %s" % (bridge, other.name), _OWN_BRIDGE)
        return network


def _read_network(fields: Fields, name: str) -> Network:
    """A network of the inventory; its errors are noted in ``fields``."""
    kind = NETWORK_TYPES[fields.choice("type", tuple(NETWORK_TYPES), DEFAULT.name)]
    given_source = fields.text("source")
    source = given_source or kind.default_source(fields, name)
    try:
        kind.check_source(source)
    except InvalidInput as error:
        if given_source or not any(e["path"] == fields.at("name") for e in fields.problems.errors):
            fields.wrong("source", error.message, error.remedy)
    mtu = fields.integer("mtu", 68, None, maximum=65535)
    subnets: list[Subnet] = []
    networks: list[IPNetwork] = []
    for index, data in enumerate(fields.items("subnets")):
        path = "%s.subnets[%d]" % (fields.path, index)
        if not isinstance(data, t.Mapping):
            fields.problems.add(
                path,
                InvalidInput(
                    message="must be a mapping with a cidr", remedy="Write cidr: and the other fields below it."
                ),
            )
            continue
        _read_subnet(Fields(data, path, fields.problems), name, index, subnets, networks)
    if mtu is not None and mtu < 1280 and any(net.version == 6 for net in networks):
        fields.wrong("mtu", "must be 1280 or more with an IPv6 subnet")
    of_all = {
        "id": fields.name("id", catalogue_id("network", name)),
        "name": name,
        "subnets": tuple(subnets),
        "type": kind.name,
        "source": source,
        "mtu": mtu,
        "enforce_allocation_pools": fields.boolean("enforce_allocation_pools"),
        "port_security_enabled": fields.boolean("port_security_enabled", True),
    }
    return Network(**{**of_all, **kind.read(fields, subnets)})


def _read_subnet(fields: Fields, network: str, index: int, subnets: list[Subnet], networks: list[IPNetwork]) -> None:
    """Append the subnet, and its range to ``networks``, unless its cidr is unusable."""
    name = fields.name("name", "%s-%d" % (network, index + 1))
    subnet_id = fields.name("id", catalogue_id("subnet", "%s/%s" % (network, name)))
    enable_dhcp = fields.boolean("enable_dhcp")
    nameservers = tuple(_address(fields, "dns_nameservers", item) for item in fields.items("dns_nameservers"))
    routes = tuple(_host_route(fields, item) for item in fields.items("host_routes"))
    if any(name == other.name or subnet_id == other.id for other in subnets):
        fields.wrong("name", "%r is used twice in network %s" % (name, network))
    net = _read_cidr(fields)
    if net is None:
        for rest in ("gateway_ip", "allocation_pools"):
            fields.raw(rest)
        fields.unknown()
        return
    for other, other_net in zip(subnets, networks):
        if overlap(other_net, net):
            fields.wrong("cidr", "%s overlaps with %s of subnet %s" % (net, other_net, other.name))
    gateway = _read_gateway(fields, net)
    pools: t.Any = ()
    with fields.problems.collect(fields.at("allocation_pools")):
        pools = _read_pools(fields, net, gateway)
    fields.unknown()
    for route in routes:
        if route and ipaddress.ip_address(route["nexthop"]).version != net.version:
            fields.wrong("host_routes", "nexthop %s is not of IP version %d" % (route["nexthop"], net.version))
    networks.append(net)
    subnets.append(
        Subnet(
            id=subnet_id,
            name=name,
            cidr=str(net),
            gateway_ip=gateway,
            enable_dhcp=enable_dhcp,
            dns_nameservers=tuple(item for item in nameservers if item),
            host_routes=tuple(route for route in routes if route),
            allocation_pools=tuple(pools),
        )
    )


def _read_cidr(fields: Fields) -> t.Optional[IPNetwork]:
    """The range; as in Neutron, bits behind the prefix are rejected and the right range is recommended."""
    text = fields.text("cidr").strip()
    if not text:
        fields.wrong("cidr", "is missing", "Write an address range such as 10.0.0.0/24.")
        return None
    try:
        net = ipaddress.ip_network(text, strict=False)
    except ValueError:
        net = None
    if net is None or "/" not in text:
        fields.wrong("cidr", "%r is not an address range" % text, "Write it such as 10.0.0.0/24 or fd00:1::/64.")
        return None
    if ipaddress.ip_address(text.split("/")[0]) != net.network_address:
        fields.wrong("cidr", "%r is not a recognized IP subnet cidr, %r is recommended" % (text, str(net)))
        return None
    if net.prefixlen == 0 or net.is_multicast or net.is_loopback:
        fields.wrong("cidr", "%s cannot be the range of a subnet" % net)
        return None
    return net


def _read_gateway(fields: Fields, net: IPNetwork) -> t.Optional[str]:
    """The gateway: none if null, the first host address if left out (none in a range of one address)."""
    value = fields.raw("gateway_ip")
    if value is None:
        if fields.has("gateway_ip") or net.num_addresses == 1:
            return None
        return str(net.network_address + 1)
    try:
        gateway = ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        fields.wrong(
            "gateway_ip", "is not an IP address", "Write one, null for none, or leave it out for the first address."
        )
        return None
    if gateway.version != net.version:
        fields.wrong("gateway_ip", "%s is not of IP version %d" % (gateway, net.version))
        return None
    if (
        gateway in net
        and net.version == 4
        and net.prefixlen < 31
        and gateway in (net.network_address, net.broadcast_address)
    ):
        fields.wrong("gateway_ip", "%s is the network or broadcast address of %s" % (gateway, net))
        return None
    if gateway.is_multicast or gateway.is_unspecified or gateway.is_loopback or str(gateway) == "255.255.255.255":
        fields.wrong("gateway_ip", "%s is not the address of a gateway" % gateway)
        return None
    return str(
        gateway
    )  # As in Neutron it may be outside of the range: link-local, or of a provider that routes single addresses.


def _read_pools(fields: Fields, net: IPNetwork, gateway: t.Optional[str]) -> t.Any:
    """The pools: if left out or null the whole range without the gateway; an empty list allows fixed_ip only."""
    value = fields.raw("allocation_pools")
    if value is None:
        return default_pools(str(net), gateway)
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(pool, t.Mapping) and set(pool) == {"start", "end"} for pool in value
    ):
        raise InvalidInput(
            reason="allocation_pools must be a list of {start, end}",
            remedy="Write start and end of each pool, both inclusive.",
        )
    return validate_pools(str(net), [{key: str(pool[key]) for key in ("start", "end")} for pool in value], gateway)


def _address(fields: Fields, name: str, value: t.Any) -> str:
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        fields.wrong(name, "%r is not an IP address" % (value,))
        return ""


def _host_route(fields: Fields, value: t.Any) -> dict[str, str]:
    try:
        if not isinstance(value, t.Mapping) or set(value) != {"destination", "nexthop"}:
            raise InvalidInput(reason="host_routes must be a list of {destination, nexthop}")
        destination = ipaddress.ip_network(str(value["destination"]))
        nexthop = ipaddress.ip_address(str(value["nexthop"]))
        if destination.version != nexthop.version:
            raise InvalidInput(reason="destination and nexthop must be of one IP version")
    except BootflowError as error:
        fields.problems.add(fields.at("host_routes"), error)
        return {}
    except ValueError as error:
        fields.wrong("host_routes", "is not valid: %s" % error)
        return {}
    return {"destination": str(destination), "nexthop": str(nexthop)}
