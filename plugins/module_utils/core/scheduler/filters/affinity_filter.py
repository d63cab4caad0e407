# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SameHostFilter, DifferentHostFilter and SimpleCIDRAffinityFilter: near others, or away from them."""

from __future__ import annotations

import ipaddress
import typing as t

from ..columns import Fleet, Groups, Rows
from ..host_state import HostState
from ..request_spec import RequestSpec
from .base import Filter, FilterResult
from .hints import bad_hint, text_hint, uuids_hint
from .verdicts import by_group, pass_all

DEFAULT_CIDR = "/24"


def _hinted_uuids(spec: RequestSpec, name: str) -> tuple[str, ...]:
    """The instances of a hint. Raises InvalidInput if same_host and different_host leave no host."""
    same, different = uuids_hint(spec, "same_host"), uuids_hint(spec, "different_host")
    if same and set(same) <= set(different):
        raise bad_hint(
            "same_host",
            "asks for the host of %s, and different_host forbids it" % ", ".join(same),
            "Take each instance out of one of the two hints.",
        )
    return same if name == "same_host" else different


def _present(fleet: Fleet, uuids: t.Sequence[str]) -> Groups:
    """Hosts grouped by the instances of ``uuids`` that they run."""

    def key(host: HostState) -> tuple[str, ...]:
        return tuple(u for u in uuids if u in host.instances) if host.instances else ()

    return fleet.groups("instances %s" % " ".join(uuids), key, ("instances",))


class SameHostFilter(Filter):
    """Passes hosts that run at least one instance of the hint same_host."""

    name = "SameHostFilter"
    run_once_per_request = True
    hints = ("same_host",)
    needs_instances = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        uuids = _hinted_uuids(spec, "same_host")
        if not uuids:
            return pass_all(rows)
        groups = _present(fleet, uuids)
        refusal = "same_host: it runs none of %s" % ", ".join(uuids)
        return by_group(groups, [None if present_uuids else refusal for present_uuids in groups.values], rows)


class DifferentHostFilter(Filter):
    """Passes hosts that run no instance of the hint different_host."""

    name = "DifferentHostFilter"
    run_once_per_request = True
    hints = ("different_host",)
    needs_instances = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        uuids = _hinted_uuids(spec, "different_host")
        if not uuids:
            return pass_all(rows)
        groups = _present(fleet, uuids)
        refusals = [
            "different_host: it runs %s" % ", ".join(present_uuids) if present_uuids else None
            for present_uuids in groups.values
        ]
        return by_group(groups, refusals, rows)


Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


def _network(spec: RequestSpec) -> Network | None:
    address = text_hint(spec, "build_near_host_ip")
    cidr = text_hint(spec, "cidr", DEFAULT_CIDR)
    if not address:
        return None
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise bad_hint(
            "build_near_host_ip", "is %r" % address, "Give the IP address of a host, such as 192.0.2.10."
        ) from None
    try:
        if not cidr.startswith("/"):
            raise ValueError(cidr)
        return ipaddress.ip_network(address + cidr, strict=False)
    except ValueError:
        raise bad_hint(
            "cidr",
            "%r cannot be combined with %s" % (cidr, address),
            "Give a prefix length with its slash, such as /24.",
        ) from None


def _ip(host: HostState) -> str:
    return host.host_ip


class SimpleCIDRAffinityFilter(Filter):
    """Passes hosts whose address is in the network of the hint build_near_host_ip, as large as the hint cidr says (/24)."""

    name = "SimpleCIDRAffinityFilter"
    run_once_per_request = True
    hints = ("cidr", "build_near_host_ip")

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        network = _network(spec)
        if network is None:
            return pass_all(rows)
        groups = fleet.groups("host_ip", _ip, ("host_ip",))
        return by_group(groups, [_outside(network, address) for address in groups.values], rows)


def _outside(network: Network, address: str) -> str | None:
    try:
        if ipaddress.ip_address(address) in network:
            return None
    except ValueError:
        return "the host has no valid address (%r), one in %s is requested" % (address, network)
    return "the address %s of the host is not in %s" % (address, network)
