# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Address ranges that a host has already, so that a managed network cannot start there.

libvirt itself refuses only an IPv4 range that a route of the host has exactly. It would start the others, and they would take each
other's packets.
"""

from __future__ import annotations

import ipaddress
import json
import re
import typing as t

from ....core.errors import NetworkRangeInUse
from ....core.guest.domain.element import parse
from ....core.networks.ipam import overlap
from ...os.command import program, run
from ..connection import is_code, libvirt_errors
from ..dhcp import range_of

_ATTEMPTS = 20  # lists of interfaces that the kernel ends early; the last one is taken as it is

_REFUSED = re.compile(r"already in use by interface (\S+)")


def check_unused(connection: t.Any, definition: str, name: str, is_defined: bool) -> None:
    """Check that the host does not use the network's ranges. :arg name: of the network in the catalogue.

    :raises NetworkRangeInUse: another libvirt network that is active overlaps, or an interface of the host has an address there.
    """
    root = parse(definition)
    source, wanted = root.findtext("name"), _ranges(root)
    if not wanted:
        return
    with libvirt_errors():
        others = [
            (str(other.name()), parse(other.XMLDesc(0)))
            for other in connection.listAllNetworks(0)
            if other.isActive() and other.name() != source
        ]
    bridges = set()
    for other, other_root in others:
        bridge = other_root.find("bridge")
        interface = bridge.get("name", "") if bridge is not None else ""
        bridges.add(interface)
        for own_range in wanted:
            for used in _ranges(other_root):
                if overlap(used, own_range):
                    reason = "libvirt network %s has %s%s" % (other, used, " on %s" % interface if interface else "")
                    raise _in_use(source, own_range, reason, name, is_defined, other)
    for interface, address in _addresses():
        for own_range in wanted:
            if interface not in bridges and (address.ip in own_range or address.network == own_range):
                raise _in_use(source, own_range, "%s has the address %s" % (interface, address), name, is_defined)


def refused(error: t.Any, definition: str, name: str, is_defined: bool) -> NetworkRangeInUse | None:
    """Return libvirt's own refusal to start a network in a range of the host; None for another error."""
    match = _REFUSED.search(error.get_error_message() or "")
    if match is None or not is_code(error, "VIR_ERR_INTERNAL_ERROR"):
        return None
    root = parse(definition)
    wanted = ", ".join(str(r) for r in _ranges(root) if r.version == 4)
    return _in_use(root.findtext("name"), wanted, "the host has a route to it on %s" % match[1], name, is_defined)


def _in_use(source: str, wanted: t.Any, reason: str, name: str, is_defined: bool, other: str = "") -> NetworkRangeInUse:
    remedy = (
        "Place the guests of network %s on hosts that do not have this range, or give the network another cidr" % name
    )
    remedy += " in bootflow_networks while it has no guests"
    remedy += " and remove its definition from this host (virsh net-undefine %s)." % source if is_defined else "."
    if other:
        remedy += " If no guest on this host uses libvirt network %s, remove that one" % other
        remedy += " (virsh net-destroy %s, virsh net-undefine %s)." % (other, other)
    return NetworkRangeInUse(network=source, range=wanted, reason=reason, remedy=remedy)


def _ranges(root: t.Any) -> list[t.Any]:
    return [range_of(element) for element in root.findall("ip") if element.get("address")]


def _addresses() -> t.Iterator[tuple[str, t.Any]]:
    """Yield every interface of the host that is up, with its addresses.

    While interfaces come and go the kernel may end its list early; ip says so in words only, and is asked again.
    """
    argv = [program("ip", "iproute2"), "-json", "address", "show", "up"]
    for _attempt in range(_ATTEMPTS):
        answer = run(argv, timeout=60)
        if "Dump was interrupted" not in answer.stderr:
            break
    for interface in json.loads(answer.stdout or "[]"):
        for address_facts in interface.get("addr_info") or ():
            yield (
                interface["ifname"],
                ipaddress.ip_interface("%s/%s" % (address_facts["local"], address_facts["prefixlen"])),
            )
