# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of bootflow_ports: ports to make, and changes of ports."""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass

from ..errors import InvalidInput
from ..networks.fixed_addresses import FixedAddress
from ..networks.ipam import check_fixed_ip
from ..networks.network import Network
from ..reading.problems import Problems
from ..reading.setting import canonical
from ..request.catalogue import Catalogue, find_subnet
from ..request.networks import subnet_of_address
from ..request.schema import entry_errors, schema_validator, without_nulls
from . import port_security
from .port_security import GivenSecurity, read_security

NAME = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
_MAC = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$(?!\\n)",
    "x-expects": "a MAC address such as fa:16:3e:00:00:01",
}
_FIXED_IPS = {
    "type": "array",
    "minItems": 1,
    "maxItems": 64,
    "items": {
        "type": "object",
        "properties": {"subnet": NAME, "subnet_id": NAME, "ip_address": {"type": "string", "format": "ip"}},
        "additionalProperties": False,
    },
}
_TAGS = {
    "type": "array",
    "maxItems": 50,
    "items": {"type": "string", "minLength": 1, "maxLength": 60, "format": "name"},
}
_FIELDS = {
    "name": NAME,
    "mac_address": _MAC,
    "fixed_ips": _FIXED_IPS,
    "tags": _TAGS,
    **port_security.fields(NAME, _MAC),
}
_MADE = {**_FIELDS, "network": NAME, "network_id": NAME}
_CHANGED = {**_FIELDS, "port": NAME}


@dataclass(frozen=True)
class PortEntry:
    """A port to make. Fields that are None are not given."""

    path: str
    name: str
    network: Network
    mac_address: t.Optional[str] = None
    fixed_ips: t.Optional[tuple[FixedAddress, ...]] = None
    tags: t.Optional[tuple[str, ...]] = None
    security: GivenSecurity = GivenSecurity()


@dataclass(frozen=True)
class PortChange:
    """A port to change. Fields that are None stay. ``fixed_ips``: as given, since its network is not known yet."""

    path: str
    port: str  # name or id
    name: t.Optional[str] = None
    mac_address: t.Optional[str] = None
    fixed_ips: t.Optional[tuple[t.Mapping[str, str], ...]] = None
    tags: t.Optional[tuple[str, ...]] = None
    security: GivenSecurity = GivenSecurity()

    @property
    def is_security_only(self) -> bool:
        """Whether nothing else changes: ports that boots made for their instances can have that, too."""
        return all(value is None for value in (self.name, self.mac_address, self.fixed_ips, self.tags))


def read_ports(entries: t.Sequence[t.Any], catalogue: Catalogue, filters_ports: bool = False) -> list[PortEntry]:
    """The ports to make.

    :arg filters_ports: hosts filter the ports of guests; otherwise port security is refused.

    :raises InvalidRequest: all errors, the paths beginning with ports.
    """
    problems, made, names = Problems(), [], set()
    for path, entry in _sound(entries, _MADE, ("name",), problems):
        network = None
        word = entry.get("network", entry.get("network_id"))
        if entry.get("network_id", word) != word:
            problems.add(path + ".network_id", _two_words("network", "network_id"))
            continue
        with problems.collect(path + ".network"):
            network = catalogue.network(str(word)) if word is not None else _only_network(catalogue)
        if network is None:
            continue
        if entry["name"] in names:
            error = InvalidInput(message="%r is used twice" % entry["name"], remedy="Give each port its own name.")
            problems.add(path + ".name", error)
        names.add(entry["name"])
        fixed_ips = _addresses(path, entry.get("fixed_ips"), network, problems)
        if fixed_ips is None and not network.subnets:
            error = InvalidInput(
                message="Network %s requires a subnet in order to create ports on." % network.name,
                remedy="Add a subnet to it in bootflow_networks.",
            )
            problems.add(path + ".network", error)
        mac_address = _mac(path, entry, problems)
        security = read_security(path, entry, filters_ports, problems)
        made.append(PortEntry(path, entry["name"], network, mac_address, fixed_ips, _tags(entry), security))
    problems.raise_if_any()
    return made


def read_port_changes(entries: t.Sequence[t.Any], filters_ports: bool = False) -> list[PortChange]:
    """The ports to change. :arg filters_ports: see read_ports(). :raises InvalidRequest: all errors, the paths beginning with ports."""
    problems, changes, words = Problems(), [], set()
    for path, entry in _sound(entries, _CHANGED, ("port",), problems):
        if canonical(entry["port"]) in words:
            problems.add(path + ".port", InvalidInput(message="port %s is named twice" % entry["port"]))
        words.add(canonical(entry["port"]))
        if len(entry) == 1:
            error = InvalidInput(
                message="no change of port %s is requested" % entry["port"],
                remedy="Give name, mac_address, fixed_ips, tags, security_groups, allowed_address_pairs or port_security_enabled.",
            )
            problems.add(path, error)
        given = entry.get("fixed_ips")
        changes.append(
            PortChange(
                path=path,
                port=entry["port"],
                name=entry.get("name"),
                mac_address=_mac(path, entry, problems),
                fixed_ips=tuple(given) if given is not None else None,
                tags=_tags(entry),
                security=read_security(path, entry, filters_ports, problems),
            )
        )
    problems.raise_if_any()
    return changes


def _sound(
    entries: t.Sequence[t.Any], fields: t.Mapping[str, t.Any], required: t.Sequence[str], problems: Problems
) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """(path, entry) of the entries that have the form."""
    schema = {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}
    validator = schema_validator(schema)
    for index, raw in enumerate(entries):
        path = "ports[%d]" % index
        if not isinstance(raw, t.Mapping):
            problems.add(path, InvalidInput(reason="a port must be a mapping", remedy="Give name and network."))
            continue
        entry = without_nulls(raw)
        wrong = entry_errors(validator, entry, path)
        if wrong:
            problems.extend(wrong)
            continue
        yield path, entry


def _two_words(one: str, other: str) -> InvalidInput:
    return InvalidInput(message="%s and %s name different ones" % (one, other), remedy="Give only one of them.")


def _only_network(catalogue: Catalogue) -> Network:
    networks = list(catalogue.networks.values())
    if len(networks) != 1:
        known = ", ".join(sorted(n.name for n in networks))
        raise InvalidInput(message="network is missing", remedy="Name a network of bootflow_networks: %s." % known)
    return networks[0]


def _mac(path: str, entry: t.Mapping[str, t.Any], problems: Problems) -> t.Optional[str]:
    mac = entry.get("mac_address")
    if mac is None:
        return None
    mac = mac.lower()
    if int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00":
        error = InvalidInput(
            message="%s is not a unicast MAC address" % mac,
            remedy="The second digit of a unicast address is even, as in fa:16:3e:00:00:01.",
        )
        problems.add(path + ".mac_address", error)
    return str(mac)


def _tags(entry: t.Mapping[str, t.Any]) -> t.Optional[tuple[str, ...]]:
    return tuple(sorted(set(entry["tags"]))) if "tags" in entry else None


def _addresses(
    path: str, given: t.Optional[t.Sequence[t.Mapping[str, str]]], network: Network, problems: Problems
) -> t.Optional[tuple[FixedAddress, ...]]:
    if given is None:
        return None
    addresses = []
    for index, fixed in enumerate(given):
        with problems.collect("%s.fixed_ips[%d]" % (path, index)):
            addresses.append(wanted_address(fixed, network))
    return tuple(addresses)


def wanted_address(fixed: t.Mapping[str, str], network: Network) -> FixedAddress:
    """An entry of fixed_ips, checked. :raises BootflowError: it is not an address for ports of the network."""
    word, address = fixed.get("subnet", fixed.get("subnet_id")), fixed.get("ip_address")
    if fixed.get("subnet_id", word) != word:
        raise _two_words("subnet", "subnet_id")
    if word is None and address is None:
        raise InvalidInput(message="neither subnet nor ip_address is given", remedy="Give one of them, or both.")
    subnet = find_subnet(network, word) if word is not None else subnet_of_address(network, str(address))
    if address is None:
        return FixedAddress(subnet.id, None)
    check_fixed_ip(subnet, address, network.enforce_allocation_pools, network.is_managed)
    return FixedAddress(subnet.id, str(ipaddress.ip_address(address)))
