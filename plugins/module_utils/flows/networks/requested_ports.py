# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Existing ports that requests name (port): looked up in the ledger, and checked, before an instance gets them.

source: Nova's allocate_for_instance and validate_networks
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...core import errors
from ...core.instances.request import ServerRequest
from ...core.model import NetworkRequest
from ...core.networks.network import Network
from ...core.reading.problems import Problems
from ...core.request.networks import check_overlap
from ...ledger.compute import project_ports
from ...ledger.compute.ports import PortRow
from ...ledger.db.transaction import Transaction

#: What an unknown port is in a boot; elsewhere it is 404.
NOT_FOUND_AT_BOOT = 400


def ports_of(requested: t.Iterable[NetworkRequest]) -> list[str]:
    """Return the existing ports that are requested: names and ids, or ids once they are resolved."""
    return [request.port for request in requested if request.port is not None]


def resolve_boot(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    needed: t.Sequence[bool],
    networks: t.Mapping[str, Network],
    problems: Problems,
) -> list[ServerRequest]:
    """Return the entries with the ids of their ports, and the networks of these. Refusals are added to ``problems``.

    :arg needed: of each entry whether it makes instances; the others have their ports. :arg networks: by id
    """
    wanted = [(word, r.project) for r, asked in zip(entries, needed) if asked for word in ports_of(r.networks)]
    if not wanted:
        return list(entries)
    rows = project_ports.find(tx, wanted)
    resolved = []
    seen: set[str] = set()
    for index, (request, asked) in enumerate(zip(entries, needed)):
        if not asked or not ports_of(request.networks):
            resolved.append(request)
            continue
        interfaces: list[NetworkRequest] = []
        for number, interface in enumerate(request.networks):
            path = "instances[%d].networks[%d]" % (index, number)
            if interface.port is None:
                interfaces.append(interface)
                continue
            before = len(problems.errors)
            with problems.collect(path + ".port"):
                row = usable(rows.get((interface.port, request.project)), interface.port, request.project, request.name)
                if row.id in seen:
                    raise requested_twice(interface.port)
                seen.add(row.id)
                network = network_of(row, networks)
                check_overlap(network, [networks[str(i.network)] for i in interfaces if i.network in networks])
                interfaces.append(bound(interface, row))
            for problem in problems.errors[before:]:
                if problem["code"] == "PortNotFound":
                    problem["status"] = NOT_FOUND_AT_BOOT
        resolved.append(replace(request, networks=tuple(interfaces)))
    return resolved


def usable(row: PortRow | None, word: str, project: str, instance: str) -> PortRow:
    """The port, if an instance of the project may get it.

    :raises PortNotFound: there is none. :raises PortNotUsable: it is another project's. :raises PortInUse: an instance has it.
    """
    if row is None:
        raise errors.PortNotFound(port_id=word)
    if row.project is None or row.instance_uuid is not None:
        raise errors.PortInUse(port_id=word)
    if row.project != project:
        raise errors.PortNotUsable(port_id=word, instance=instance)
    return row


def requested_twice(word: str) -> errors.PortInUse:
    """Return the error of a port that a request names for two interfaces."""
    return errors.PortInUse(message="Port %s is requested twice." % word, remedy="Name each port once.")


def network_of(row: PortRow, networks: t.Mapping[str, Network]) -> Network:
    """The network of the port. :raises NetworkNotFound: the inventory lacks it."""
    network = networks.get(row.network_id)
    if network is None:
        raise errors.NetworkNotFound(
            network_id=row.network_id, remedy="Put the network of port %s back into bootflow_networks." % row.id
        )
    return network


def bound(request: NetworkRequest, row: PortRow) -> NetworkRequest:
    """Return the request of the interface with the ids of its port and network."""
    return replace(request, port=row.id, network=row.network_id)
