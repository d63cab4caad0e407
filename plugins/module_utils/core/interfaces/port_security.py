# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Port security of entries of bootflow_ports: security groups, allowed address pairs, and whether the port is filtered at all.

source: Neutron's portsecurity and allowedaddresspairs
"""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass

from ..errors import (
    AddressPairAndPortSecurityRequired,
    AllowedAddressPairExhausted,
    BootflowError,
    DuplicateAddressPairInRequest,
    InvalidInput,
    NotSupportedYet,
    PortSecurityPortHasSecurityGroup,
)
from ..networks.security_rules import DEFAULT
from ..reading.formats import to_boolean
from ..reading.problems import Problems
from ..reading.setting import canonical

MOST_PAIRS = 10  # source: Neutron's max_allowed_address_pair

Pair = t.Mapping[str, t.Optional[str]]


@dataclass(frozen=True)
class GivenSecurity:
    """Port security as an entry gives it. Fields that are None are not given. ``groups``: names or ids."""

    enabled: t.Optional[bool] = None
    groups: t.Optional[tuple[str, ...]] = None
    pairs: t.Optional[tuple[Pair, ...]] = None

    def __bool__(self) -> bool:
        return not (self.enabled is None and self.groups is None and self.pairs is None)


def fields(name: t.Mapping[str, t.Any], mac: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the schema of the fields. :arg name: the schema of names. :arg mac: of MAC addresses"""
    pair = {
        "type": "object",
        "properties": {"ip_address": {"type": "string", "minLength": 1, "maxLength": 64}, "mac_address": mac},
        "required": ["ip_address"],
        "additionalProperties": False,
    }
    return {
        "security_groups": {"type": "array", "maxItems": 100, "items": name},
        "allowed_address_pairs": {"type": "array", "items": pair},
        "port_security_enabled": {"type": ["boolean", "string"], "format": "boolean"},
    }


def read_security(path: str, entry: t.Mapping[str, t.Any], filters_ports: bool, problems: Problems) -> GivenSecurity:
    """Return the port security of an entry; its errors are noted. :arg filters_ports: hosts filter the ports of guests"""
    enabled = to_boolean(entry["port_security_enabled"]) if "port_security_enabled" in entry else None
    groups = tuple(dict.fromkeys(map(canonical, entry["security_groups"]))) if "security_groups" in entry else None
    pairs = _pairs(path, entry["allowed_address_pairs"], problems) if "allowed_address_pairs" in entry else None
    given = {
        "security_groups": groups is not None and groups != (DEFAULT,),
        "allowed_address_pairs": bool(pairs),
        "port_security_enabled": bool(enabled),
    }
    for field, named in given.items():
        if named and not filters_ports:
            problems.add("%s.%s" % (path, field), _without_effect(field))
    return GivenSecurity(enabled, groups, pairs)


def _without_effect(field: str) -> BootflowError:
    return NotSupportedYet(
        feature="%s of a port with bootflow_firewall_driver: noop" % field,
        remedy="Set bootflow_firewall_driver: nftables for all hosts, or leave %s out. Nothing filters the traffic of a guest."
        % field,
    )


def _pairs(path: str, given: t.Sequence[t.Mapping[str, str]], problems: Problems) -> tuple[Pair, ...]:
    pairs: list[Pair] = []
    for index, pair in enumerate(given):
        with problems.collect("%s.allowed_address_pairs[%d]" % (path, index)):
            mac = pair.get("mac_address")
            if mac is not None and int(mac[:2], 16) & 1:
                raise InvalidInput(message="%s is not a unicast MAC address" % mac)
            read = {"ip_address": _range(pair["ip_address"]), "mac_address": mac.lower() if mac is not None else None}
            if read in pairs:
                raise DuplicateAddressPairInRequest(**read)
            pairs.append(read)
    if len(pairs) > MOST_PAIRS:
        problems.add(path + ".allowed_address_pairs", AllowedAddressPairExhausted(quota=MOST_PAIRS))
    return tuple(pairs)


def _range(text: str) -> str:
    """Return an address, or a range with its prefix length, in its short form."""
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidInput(
            message="%s is not an address or an address range" % ascii(text),
            remedy="Write it such as 10.0.0.5 or 10.0.0.0/24.",
        ) from None
    return str(network) if "/" in text else str(network.network_address)


def check_together(enabled: bool, groups: t.Collection[str], pairs: t.Collection[Pair]) -> None:
    """Check what a port would have. :raises PortSecurityPortHasSecurityGroup, AddressPairAndPortSecurityRequired: it needs port security"""
    if not enabled and groups:
        raise PortSecurityPortHasSecurityGroup()
    if not enabled and pairs:
        raise AddressPairAndPortSecurityRequired()
