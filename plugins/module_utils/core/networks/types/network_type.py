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

    ``name``: the word of bootflow_networks. ``vif_type``: of the network's VIFs. ``can_be_managed``: whether each host can have its
    own network, which the collection defines. ``can_be_filtered``: whether its ports can be filtered.
    ``is_logical``: whether it is of the northbound database of OVN, which filters its ports and serves DHCP; hosts filter the ports of others.
    ``noun``: what such a network is called on a host. ``source``: the name of the network on its hosts.
    """

    name: str
    vif_type: str
    noun: str
    can_be_managed: bool
    can_be_filtered: bool
    is_logical: bool

    def default_source(self, fields: Fields, name: str) -> str:
        """Return the name on the hosts of a network whose entry has no ``source``. :arg name: in the catalogue"""

    def check_source(self, source: str) -> str:
        """Check the name of such a network on a host. :raises InvalidInput: a host cannot have this name."""

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        """Read the fields of the catalogue's entry that depend on the type, as fields of core.networks.network.Network. Errors are noted in ``fields``."""

    def vif(self, source: str) -> dict[str, t.Any]:
        """Return what network_info has of the network's place on the host: the ``bridge`` of the network and the ``details`` of the VIF."""

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        """Return the name on the host that a VIF of network_info has."""

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        """Return the name of what a host must have for the network, as hosts report it. :arg definition: of the network, with its ``source``"""

    def words(self, needed: str, exists: bool) -> str:
        """Return what a host lacks, as a sentence without the host. :arg needed: see needed_on_host(). :arg exists: it is there, and not active"""

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        """Return what to do about a host that lacks the network. :arg name: in the catalogue. :arg exists: it is there, and not active"""

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        """Return the fields of guest.domain.interface.InterfaceConfig that say where an interface of the guest is plugged in. :arg port_id: of its port"""


def lack_words(noun: str, source: str, exists: bool) -> str:
    """Return the words for a host without a network that it must have by its name: Linux bridge br0 does not exist."""
    return "%s %s %s" % (noun, source, "is not active" if exists else "does not exist")


def read_management(fields: Fields) -> dict[str, t.Any]:
    """Read ``manage`` and ``forward``, which an entry of each type may have: only a type that can be managed uses them."""
    return {"manage": fields.boolean("manage"), "forward": fields.choice("forward", FORWARDS, "none")}
