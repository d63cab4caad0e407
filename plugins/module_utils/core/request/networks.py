# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks of one request: looked up, completed and checked."""

from __future__ import annotations

import ipaddress
import itertools
import typing as t

from ..errors import (
    InvalidFixedIpAndMaxCountRequest,
    InvalidInput,
    InvalidIpForNetwork,
    MultiplePortsNotApplicable,
    NetworkAmbiguous,
    NetworkDuplicated,
    NotSupportedYet,
    PortInUse,
)
from ..model import NetworkRequest
from ..networks.ipam import check_fixed_ip, overlap, parse_cidr
from ..networks.network import Network
from ..networks.subnet import Subnet
from ..reading.problems import Problems
from ..reading.setting import canonical
from .catalogue import Catalogue, find_subnet
from .options import RequestOptions


def requested_networks(
    requested: t.Any, max_count: int, catalogue: Catalogue, options: RequestOptions, path: str, problems: Problems
) -> tuple[NetworkRequest, ...]:
    """The interfaces, with ids of networks and subnets and addresses in their short form.

    ``requested`` is the entry's field after the schema's check: a list; none; auto; or None if it was left out. As in
    Nova, left out and auto both mean the only network: several are ambiguous; without networks, left out means no
    interface. An empty list means no interface too.
    """
    if requested is None or requested == "auto":
        with problems.collect(path):
            return _the_only_network(requested, catalogue)
        return ()
    if requested == "none" or not requested:
        return ()
    requests: list[NetworkRequest] = []
    for index, item in enumerate(requested):
        where = "%s[%d]" % (path, index)
        request = requested_interface(
            item if isinstance(item, t.Mapping) else {"network": item}, max_count, catalogue, where, problems
        )
        if request is None:
            continue
        if request.port is not None:
            if any(request.port == other.port for other in requests):
                problems.add(
                    where + ".port",
                    PortInUse(message="Port %s is requested twice." % request.port, remedy="Name each port once."),
                )
            requests.append(request)
            continue
        if not options.allow_duplicate_networks and any(request.network == other.network for other in requests):
            problems.add(where, NetworkDuplicated(network_id=request.network))
        with problems.collect(where):
            check_overlap(
                catalogue.network(str(request.network)),
                [catalogue.network(o.network) for o in requests if o.network is not None],
            )
        requests.append(request)
    return tuple(requests)


def check_overlap(network: Network, others: t.Iterable[Network]) -> None:
    """Check that the networks of a guest do not overlap on its host. Networks that guests use on different hosts may overlap.

    :raises InvalidInput: the host would have one range in two libvirt networks.
    """
    for other in others:
        for own_range, other_range in itertools.product(network.host_ranges, other.host_ranges):
            if network.source != other.source and overlap(parse_cidr(own_range), parse_cidr(other_range)):
                raise InvalidInput(
                    message="network %s (%s) overlaps with network %s (%s): both are managed, and one host cannot have both"
                    % (network.name, own_range, other.name, other_range),
                    remedy="Give one of them another cidr in bootflow_networks, or request only one of them. A subnet with"
                    " gateway_ip: null may overlap: hosts have no address in it.",
                )


def _the_only_network(requested: t.Optional[str], catalogue: Catalogue) -> tuple[NetworkRequest, ...]:
    networks = list(catalogue.networks.values())
    if len(networks) > 1:
        raise NetworkAmbiguous(
            remedy="Set networks to some of: %s; or to none." % ", ".join(sorted(catalogue.networks))
        )
    if not networks:
        if requested is None:
            return ()
        raise NotSupportedYet(
            feature="A network created for the instance (networks: auto without a network in the catalogue)",
            remedy="Add a network to bootflow_networks, or set networks: none.",
        )
    return (NetworkRequest(network=networks[0].id),)


def requested_interface(
    item: t.Mapping[str, t.Any], max_count: int, catalogue: Catalogue, path: str, problems: Problems
) -> t.Optional[NetworkRequest]:
    """One interface, with ids of network and subnet and its address in the short form; None with an error in ``problems``."""
    name, subnet_name, fixed_ip = item.get("network", item.get("uuid")), item.get("subnet"), item.get("fixed_ip")
    if "network" in item and "uuid" in item and item["network"] != item["uuid"]:
        problems.add(
            path + ".uuid",
            InvalidInput(message="network and uuid name different networks", remedy="Give only one of them."),
        )
    if item.get("port") is not None:
        return _requested_port(item, max_count, path, problems)
    if name is None and subnet_name is None:
        problems.add(
            path,
            InvalidInput(message="Bad network format: missing 'network'", remedy="Name a network or a subnet."),
        )
        return None
    if fixed_ip is not None and max_count > 1:
        problems.add(
            path + ".fixed_ip",
            InvalidFixedIpAndMaxCountRequest(
                reason="max_count cannot be greater than 1 if an fixed_ip is specified.",
                remedy="Write one entry per instance that needs its own address.",
            ),
        )
    network, subnet = _look_up(name, subnet_name, catalogue, path, problems)
    if network is None or (subnet_name is not None and subnet is None):
        return None
    if fixed_ip is not None:
        with problems.collect(path + ".fixed_ip"):
            if subnet is None:
                subnet = subnet_of_address(network, fixed_ip)
            check_fixed_ip(subnet, fixed_ip, network.enforce_allocation_pools, network.is_managed)
    elif not network.subnets:
        problems.add(
            path + ".network",
            InvalidInput(
                message="Network %s requires a subnet in order to boot instances on." % network.name,
                remedy="Add a subnet to it in bootflow_networks.",
            ),
        )
    return NetworkRequest(
        network=network.id,
        subnet=subnet.id if subnet is not None else None,
        fixed_ip=str(ipaddress.ip_address(fixed_ip)) if fixed_ip is not None else None,
        tag=item.get("tag"),
    )


def _requested_port(
    item: t.Mapping[str, t.Any], max_count: int, path: str, problems: Problems
) -> t.Optional[NetworkRequest]:
    """An interface with an existing port, which the ledger resolves; None with an error in ``problems``."""
    port = item["port"]
    before = len(problems.errors)
    for other in ("fixed_ip", "subnet", "network", "uuid"):
        if item.get(other) is not None:
            text = (
                "Specified Fixed IP '%s' cannot be used with port '%s': the two cannot be specified together."
                % (item[other], port)
                if other == "fixed_ip"
                else "%s cannot be given together with port '%s'" % (other, port)
            )
            problems.add(
                "%s.%s" % (path, other), InvalidInput(message=text, remedy="The port has its own network and address.")
            )
    if max_count > 1:
        problems.add(
            path + ".port",
            MultiplePortsNotApplicable(
                reason="Unable to launch multiple instances with a single configured port ID. "
                "Please launch your instance one by one with different ports.",
                remedy="Write one entry per port.",
            ),
        )
    if len(problems.errors) > before:
        return None
    return NetworkRequest(port=canonical(port), tag=item.get("tag"))


def _look_up(
    name: t.Optional[str], subnet_name: t.Optional[str], catalogue: Catalogue, path: str, problems: Problems
) -> tuple[t.Optional[Network], t.Optional[Subnet]]:
    network: t.Optional[Network] = None
    subnet: t.Optional[Subnet] = None
    if name is None:
        with problems.collect(path + ".subnet"):
            network, subnet = catalogue.subnet(str(subnet_name))
        return network, subnet
    with problems.collect(path + ".network"):
        network = catalogue.network(str(name))
    if network is not None and subnet_name is not None:
        with problems.collect(path + ".subnet"):
            subnet = find_subnet(network, str(subnet_name))
    return network, subnet


def subnet_of_address(network: Network, fixed_ip: str) -> Subnet:
    """The subnet of ``network`` that contains the address.

    :raises InvalidIpForNetwork: no subnet contains it.
    """
    address = ipaddress.ip_address(fixed_ip)
    for subnet in network.subnets:
        if address in ipaddress.ip_network(subnet.cidr):
            return subnet
    raise InvalidIpForNetwork(address=fixed_ip, network=network.name)
