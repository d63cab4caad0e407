# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks of guests on an interface of this host by macvtap: the first guest that needs one has its libvirt network defined.

A purge removes it after the last one, as a managed libvirt network: both have the same mark.
"""

from __future__ import annotations

import typing as t

from ....core.errors import InvalidInput, NetworkError
from ....core.guest.domain.element import parse, to_text
from ....core.networks.types.macvtap import MacvtapNetwork
from ....core.optional import optional_import, require
from ...os.batch import progress
from ...os.locks import LOCK_ROOT, host_lock
from ..connection import libvirt_errors
from ..dhcp import find_network
from ..domain_waits import host_name
from .network import LOCK, add_mark, define, definition_of, is_ours, mark_needed
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks
from .on_physical_networks import physical_networks, uplink_of

etree = optional_import("lxml.etree")


class HostMacvtap:
    """The macvtap networks of this host."""

    kind = MacvtapNetwork()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        """Define and start the libvirt network on the interface of the physical network.

        One of ours on another interface, which the host had before, is defined again when no guest runs in it.

        :raises HostLacksNetwork: the host is not in the physical network. :raises NetworkError: the MTU is too large, a libvirt network of the name is
            another's, or guests run in it on another interface.
        """
        self.kind.check_source(spec.real_name)
        if not spec.physical_network:
            raise InvalidInput(
                message="network %s has no physical_network" % spec.name,
                remedy="Write physical_network for network %s in bootflow_networks." % spec.name,
            )
        interface = uplink_of(spec).interface
        if check_mode:
            return _ensure(connection, spec, interface, True)
        with host_lock(LOCK_ROOT, LOCK):
            return _ensure(connection, spec, interface, False)

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return iter(())  # the purge of libvirt networks finds them by the mark

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        """Return the physical networks that the host is in: the libvirt networks are defined where they are missing."""
        return physical_networks(uplinks)

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # libvirt serves no DHCP there


def network_xml(name: str, interface: str, uuid: str = "") -> str:
    """Return the definition of the libvirt network. :arg uuid: of the network that it replaces; "": there is none. :raises MissingLibrary: without lxml"""
    require(etree, "lxml", "python3-lxml", "host")
    root = etree.Element("network")
    etree.SubElement(root, "name").text = name
    if uuid:  # libvirt refuses a second network of the name otherwise
        etree.SubElement(root, "uuid").text = uuid
    add_mark(root)
    forward = etree.SubElement(root, "forward", mode="bridge")
    etree.SubElement(forward, "interface", dev=interface)
    return to_text(root)


def _ensure(connection: t.Any, spec: NetworkSpec, interface: str, check_mode: bool) -> dict[str, t.Any]:
    name = spec.real_name
    network: t.Any = find_network(connection, name)
    before = running = uuid = ""
    autostart = False
    if network is not None:
        if not is_ours(network):
            raise NetworkError(
                message="network %s needs the libvirt network %s on %s, where another one has the name"
                % (spec.name, name, host_name()),
                remedy="Write another source for network %s in bootflow_networks, or type: network to use that one."
                % spec.name,
            )
        with libvirt_errors():
            uuid = str(network.UUIDString())
            before, autostart = definition_of(network), bool(network.autostart())
            running = str(network.XMLDesc(0)) if network.isActive() else ""
    wanted = network_xml(name, interface, uuid)
    defined = _interfaces(before) != [interface]
    restart = bool(running) and _interfaces(running) != [interface]  # it runs on the interface that the host had before
    if restart:
        _check_unused(network, running, interface, spec.name)
    start = restart or not running
    result: dict[str, t.Any] = {"changed": defined or start or not autostart, "type": spec.type, "source": name}
    result.update({"bridge": "", "defined": defined, "started": start})
    if defined:
        result["diff"] = {"before": before, "after": wanted, "before_header": name, "after_header": name}
    if check_mode:
        return result
    if result["changed"]:
        progress.mark_changed()
    with libvirt_errors():
        if defined:
            network = define(connection, name, wanted)
        if restart:
            network.destroy()
        if start:
            network.create()
        if not autostart:
            network.setAutostart(1)
    mark_needed(network)
    return result


def _check_unused(network: t.Any, running: str, interface: str, name: str) -> None:
    """:raises NetworkError: guests run in the network, which is on another interface"""
    with libvirt_errors():
        is_used = bool(network.listAllPorts(0))
    if is_used:
        raise NetworkError(
            message="guests of network %s run on %s of %s, and bootflow_physical_interface_mappings has %s"
            % (name, ", ".join(_interfaces(running)) or "no interface", host_name(), interface),
            remedy="Stop or move these guests, or correct bootflow_physical_interface_mappings of the host.",
        )


def _interfaces(definition: str) -> list[str]:
    """Return the interfaces that a definition of a network forwards to by macvtap. :arg definition: "": there is none"""
    forward = parse(definition).find("forward") if definition else None
    if forward is None or forward.get("mode") != "bridge":
        return []
    return [str(element.get("dev")) for element in forward.findall("interface")]
