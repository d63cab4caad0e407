# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that are a libvirt network of the host. The collection defines a managed one where it is missing."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ...errors import InvalidInput
from .network_type import lack_words, read_management

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}\Z")


class LibvirtNetwork:
    """A libvirt network. A managed one is a network of each host, which has the gateways of its subnets as addresses."""

    name = vif_type = "network"
    noun = "libvirt network"
    can_be_filtered = True
    can_be_managed = True
    is_logical = False

    def default_source(self, fields: Fields, name: str) -> str:
        return name

    def check_source(self, source: str) -> str:
        if not isinstance(source, str) or not _NAME.match(source):
            raise InvalidInput(
                message="%r is not the name of a libvirt network" % (source,),
                remedy="A libvirt network has 1 to 255 letters, digits, _ . or -, and begins with a letter or digit.",
            )
        return source

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        read_fields = read_management(fields)
        if read_fields["manage"]:
            _check_gateways(fields, subnets)
            _check_dhcp(fields, subnets)
        return read_fields

    def vif(self, source: str) -> dict[str, t.Any]:
        return {"bridge": None, "details": {"libvirt_network": source}}

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        meta = (vif.get("network") or {}).get("meta") or {}
        return (vif.get("details") or {}).get("libvirt_network") or meta.get("libvirt_network")

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return str(definition["source"])

    def words(self, needed: str, exists: bool) -> str:
        return lack_words(self.noun, needed, exists)

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        if exists:
            return "Start it (virsh net-start %s), or set manage: true for network %s." % (needed, name)
        return "Define it there, correct the source of network %s, or set manage: true for it." % name

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        return {"type": self.name, "source_network": source}


def _check_gateways(fields: Fields, subnets: t.Sequence[Subnet]) -> None:
    """Note the gateways that the hosts of a managed network cannot have as their addresses in it."""
    for index, subnet in enumerate(subnets):
        if subnet.gateway_ip is None or ipaddress.ip_address(subnet.gateway_ip) in ipaddress.ip_network(subnet.cidr):
            continue
        fields.problems.add(
            "%s.subnets[%d].gateway_ip" % (fields.path, index),
            InvalidInput(
                message="%s is not in %s; in a managed network it is the address of each host"
                % (subnet.gateway_ip, subnet.cidr),
                remedy="Write an address of the range, or null for none. A gateway outside is possible with type: bridge, and without manage.",
            ),
        )


def _check_dhcp(fields: Fields, subnets: t.Sequence[Subnet]) -> None:
    """Note the subnets of a managed network that libvirt's DHCP server cannot serve."""
    served = [subnet for subnet in subnets if subnet.enable_dhcp]
    for index, subnet in enumerate(subnets):
        if not subnet.enable_dhcp:
            continue
        first = next(other for other in served if other.ip_version == subnet.ip_version)
        if subnet.ip_version == 6:
            reason = "libvirt reserves IPv6 addresses by DUID, which a guest chooses when it starts"
        elif subnet.gateway_ip is None:
            reason = "gateway_ip, which is to be the address of the server, is null"
        elif first is not subnet:
            reason = "libvirt serves DHCP in one IPv4 subnet of a network, and subnet %s has it" % first.name
        else:
            continue
        fields.problems.add(
            "%s.subnets[%d].enable_dhcp" % (fields.path, index),
            InvalidInput(
                message="enable_dhcp is not possible here: %s" % reason,
                remedy="Leave enable_dhcp out: cloud-init configures the address from the config drive.",
            ),
        )
