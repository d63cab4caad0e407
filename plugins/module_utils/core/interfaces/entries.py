# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to attach interfaces to existing instances, and to detach them. source: Nova's attach_interfaces (os-interface)"""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass

from ..errors import InterfaceAttachFailedNoNetwork, InvalidInput, NetworkAmbiguous
from ..model import NetworkRequest
from ..networks.network_info import PortRecord
from ..reading.problems import Problems
from ..reading.setting import canonical
from ..request.catalogue import Catalogue
from ..request.networks import requested_interface
from ..request.schema import entry_errors, schema_validator, without_nulls

_NAME = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
_IP = {"type": "string", "format": "ip"}
_TAG = {
    "type": "string",
    "minLength": 1,
    "maxLength": 60,
    "pattern": "^[^,/]*$(?!\\n)",
    "x-expects": "characters without a comma and a slash",
}
_MAC = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$(?!\\n)",
    "x-expects": "a MAC address such as fa:16:3e:00:00:01",
}
_ATTACHED = {
    "instance": _NAME,
    "network": _NAME,
    "net_id": _NAME,
    "subnet": _NAME,
    "fixed_ip": _IP,
    "tag": _TAG,
    "port": _NAME,
    "port_id": _NAME,
}
_DETACHED = {
    "instance": _NAME,
    "port": _NAME,
    "port_id": _NAME,
    "mac_address": _MAC,
    "network": _NAME,
    "net_id": _NAME,
    "fixed_ip": _IP,
    "tag": _TAG,
}


#: What these are where an interface is attached; a boot answers 409 and 400.
STATUSES = {"NetworkAmbiguous": 400, "NetworkNotFound": 404}


@dataclass(frozen=True)
class WantedInterface:
    """An interface that an instance is to have. ``request``: network and subnet by id, as in a boot."""

    path: str  # of its entry: interfaces[i]
    instance: str  # name or UUID
    request: NetworkRequest

    def is_met_by(self, port: PortRecord) -> bool:
        """Whether a port of the instance is what is wanted."""
        asked = self.request
        if asked.port is not None:
            return asked.port in (port.id, port.name) and asked.tag in (None, port.tag)
        return (
            port.network_id == asked.network
            and asked.tag in (None, port.tag)
            and (asked.subnet is None or any(fixed["subnet_id"] == asked.subnet for fixed in port.fixed_ips))
            and (asked.fixed_ip is None or any(fixed["ip_address"] == asked.fixed_ip for fixed in port.fixed_ips))
        )

    @property
    def conditions(self) -> int:
        """The number of conditions: a port that meets many is not to be taken by an entry with few."""
        asked = self.request
        return sum(value is not None for value in (asked.subnet, asked.fixed_ip, asked.fixed_ip, asked.tag)) + 9 * bool(
            asked.port
        )


@dataclass(frozen=True)
class NamedInterface:
    """An interface that an instance is not to have any more: the one that meets all that is given."""

    path: str
    instance: str  # name or UUID
    port_id: t.Optional[str] = None  # or its name
    mac_address: t.Optional[str] = None
    network: t.Optional[str] = None  # name or id
    fixed_ip: t.Optional[str] = None  # in its short form
    tag: t.Optional[str] = None

    def is_met_by(self, port: PortRecord, network_name: str) -> bool:
        """Whether this port of the instance is meant. :arg network_name: of its network"""
        return (
            self.port_id in (None, port.id, port.name)
            and self.mac_address in (None, port.mac_address.lower())
            and (self.network is None or self.network in (port.network_id, network_name))
            and (self.fixed_ip is None or any(fixed["ip_address"] == self.fixed_ip for fixed in port.fixed_ips))
            and self.tag in (None, port.tag)
        )

    @property
    def words(self) -> str:
        """The given fields, for a message."""
        given = {"port": self.port_id, "mac_address": self.mac_address, "network": self.network}
        given.update(fixed_ip=self.fixed_ip, tag=self.tag)
        return ", ".join("%s %s" % (name, value) for name, value in given.items() if value is not None)


def wanted_interfaces(
    entries: t.Sequence[t.Any], catalogue: Catalogue, project: str, problems: Problems
) -> list[WantedInterface]:
    """The interfaces to attach, without the entries that have an error in ``problems`` (paths interfaces[i]).

    An entry without a network means the only one, as in Nova.

    :arg entries: ``instance``; ``network`` (or Nova's ``net_id``), ``subnet``, ``fixed_ip``, ``tag``; or ``port`` (or Nova's ``port_id``), ``tag``.
    :arg project: named where there is no network.
    """
    interfaces = []
    for path, entry in _sound(entries, _ATTACHED, problems):
        before = len(problems.errors)
        asked: dict[str, t.Any] = {n: entry[n] for n in ("network", "subnet", "fixed_ip", "tag", "port") if n in entry}
        with problems.collect(path):
            if not asked.keys() & {"network", "subnet", "port"}:
                asked["network"] = _only_network(entry, catalogue, project)
            request = requested_interface(asked, 1, catalogue, path, problems)
            if request is not None and len(problems.errors) == before:
                interfaces.append(WantedInterface(path, canonical(entry["instance"]), request))
        for problem in problems.errors[before:]:
            problem["status"] = STATUSES.get(problem["code"], problem["status"])
    return interfaces


def _only_network(entry: t.Mapping[str, t.Any], catalogue: Catalogue, project: str) -> str:
    if "fixed_ip" in entry:
        raise InvalidInput(
            message="Must input network_id when request IP address", remedy="Name the network of fixed_ip."
        )
    networks = list(catalogue.networks.values())
    if not networks:
        raise InterfaceAttachFailedNoNetwork(project_id=project)
    if len(networks) > 1:
        raise NetworkAmbiguous(remedy="Set network to one of: %s." % ", ".join(sorted(catalogue.networks)))
    return networks[0].id


def named_interfaces(entries: t.Sequence[t.Any], problems: Problems) -> list[NamedInterface]:
    """The interfaces to detach, without the entries that have an error in ``problems`` (paths interfaces[i]).

    :arg entries: ``instance``, and one or more of ``port`` (or ``port_id``), ``mac_address``, ``network`` (or ``net_id``), ``fixed_ip``, ``tag``.
    """
    interfaces = []
    for path, entry in _sound(entries, _DETACHED, problems):
        if len(entry) == 1:
            error = InvalidInput(
                message="no interface of instance %s is named" % entry["instance"],
                remedy="Give port_id, mac_address, network, fixed_ip or tag.",
            )
            problems.add(path, error)
            continue
        address, mac = entry.get("fixed_ip"), entry.get("mac_address")
        interfaces.append(
            NamedInterface(
                path=path,
                instance=canonical(entry["instance"]),
                port_id=canonical(entry["port"]) if "port" in entry else None,
                mac_address=mac.lower() if mac is not None else None,
                network=canonical(entry["network"]) if "network" in entry else None,
                fixed_ip=str(ipaddress.ip_address(address)) if address is not None else None,
                tag=entry.get("tag"),
            )
        )
    return interfaces


def _sound(
    entries: t.Sequence[t.Any], fields: t.Mapping[str, t.Any], problems: Problems
) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """(path, entry) of the entries that have the form, with ``network`` also where Nova's word was used."""
    schema = {"type": "object", "properties": fields, "required": ["instance"], "additionalProperties": False}
    validator = schema_validator(schema)
    for index, raw in enumerate(entries):
        path = "interfaces[%d]" % index
        if not isinstance(raw, t.Mapping):
            error = InvalidInput(reason="an interface must be a mapping", remedy="Give instance and network.")
            problems.add(path, error)
            continue
        entry = without_nulls(raw)
        wrong = entry_errors(validator, entry, path)
        if wrong:
            problems.extend(wrong)
            continue
        for name, other in (("network", "net_id"), ("port", "port_id")):
            if entry.get(name, entry.get(other)) != entry.get(other, entry.get(name)):
                error = InvalidInput(
                    message="%s and %s name different %ss" % (name, other, name), remedy="Give only one of them."
                )
                problems.add("%s.%s" % (path, other), error)
                break
            if other in entry:
                entry[name] = entry.pop(other)
        else:
            yield path, entry


def take_met(wanted: t.Sequence[WantedInterface], ports: t.Sequence[PortRecord]) -> dict[int, PortRecord]:
    """Return the wanted interfaces of an instance (by their numbers) that are there already, each with its own port: as many as can be, in any
    order of their names."""
    number_of_port: dict[int, int] = {}  # place of a port -> number of the interface that has it

    def take(number: int, tried: set[int]) -> bool:
        """Whether the interface gets a port, where needed one that another has, which gets another one then."""
        for place, port in enumerate(ports):
            if place in tried or not wanted[number].is_met_by(port):
                continue
            tried.add(place)
            if place not in number_of_port or take(number_of_port[place], tried):
                number_of_port[place] = number
                return True
        return False

    for number in sorted(range(len(wanted)), key=lambda n: -wanted[n].conditions):
        take(number, set())
    return {number: ports[place] for place, number in number_of_port.items()}
