# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol of a type of network. Each type is an object in its own file; ``registry`` lists the types."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet

FORWARDS = ("none", "nat", "route", "open")


class NetworkType(t.Protocol):
    """A type of network, as the catalogue, network_info and the domain XML have it.

    ``name``: the word of bootflow_networks, which is also the type of the network's VIFs. ``can_be_managed``: whether each host can have its
    own network, which the collection defines. ``noun``: what such a network is called on a host. ``source``: the name of the network on its hosts.
    """

    name: str
    noun: str
    can_be_managed: bool

    def check_source(self, source: str) -> str:
        """Check the name of such a network on a host. :raises InvalidInput: a host cannot have this name."""

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        """Read the fields of the catalogue's entry that depend on the type, as fields of core.networks.network.Network. Errors are noted in ``fields``."""

    def vif(self, source: str) -> dict[str, t.Any]:
        """Return what network_info has of the network's place on the host: the ``bridge`` of the network and the ``details`` of the VIF."""

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        """Return the name on the host that a VIF of network_info has."""

    def remedy(self, source: str, name: str, exists: bool) -> str:
        """Return what to do about a host that lacks the network. :arg name: in the catalogue. :arg exists: it is there, and not active"""

    def interface(self, source: str) -> dict[str, t.Any]:
        """Return the fields of guest.domain.interface.InterfaceConfig that say where an interface of the guest is plugged in."""


def read_management(fields: Fields) -> dict[str, t.Any]:
    """Read ``manage`` and ``forward``, which an entry of each type may have: only a type that can be managed uses them."""
    return {"manage": fields.boolean("manage"), "forward": fields.choice("forward", FORWARDS, "none")}
