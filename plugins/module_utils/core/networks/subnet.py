# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A subnet of the catalogue."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Subnet:
    id: str
    name: str
    cidr: str
    gateway_ip: str | None = None
    enable_dhcp: bool = False
    dns_nameservers: tuple[str, ...] = ()
    host_routes: tuple[t.Mapping[str, str], ...] = ()  # {destination, nexthop}
    allocation_pools: tuple[t.Mapping[str, str], ...] = ()  # {start, end}, inclusive
    ipv6_address_mode: str | None = None  # slaac, dhcpv6-stateful, dhcpv6-stateless; None: a static address

    @property
    def ip_version(self) -> int:
        return 6 if ":" in self.cidr else 4
