# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that a host must have before a guest can use them there: bridges, libvirt networks that the collection does not define,
an address in the underlay of VXLAN networks, and an interface in the physical network of VLANs.
"""

from __future__ import annotations

import typing as t

from ..errors import HostLacksNetwork
from .types.network_type import NetworkType
from .types.registry import DEFAULT, NETWORK_TYPES

#: What a host reported: type -> name on the host -> whether it is active. A type that is left out is not known; None: nothing is known.
Reported = t.Optional[t.Mapping[str, t.Mapping[str, bool]]]

ABSENT = "does not exist"
INACTIVE = "is not active"


class HostNetwork(t.NamedTuple):
    """The need of a network on its hosts: a bridge, or an interface. ``needed``: its name there. ``name``: of the network in bootflow_networks."""

    type: str
    needed: str
    name: str

    def lack(self, reported: Reported) -> str:
        """Return why a host with this report cannot serve the network, ABSENT or INACTIVE; "": it can, or nothing is known of it."""
        of_type = (reported or {}).get(self.type)
        if of_type is None:
            return ""
        if of_type.get(self.needed):
            return ""
        return INACTIVE if self.needed in of_type else ABSENT

    def words(self, lack: str) -> str:
        """Return a sentence without the host: Linux bridge br0 does not exist."""
        return NETWORK_TYPES[self.type].words(self.needed, lack == INACTIVE)

    def refusal(self, lack: str, host: str) -> HostLacksNetwork:
        """Return the error of a host that lacks the network. :arg lack: see lack()"""
        remedy = NETWORK_TYPES[self.type].remedy(self.needed, self.name, lack == INACTIVE)
        return HostLacksNetwork(what=self.words(lack), host=host, remedy=remedy)


def filtered_by_hosts(definitions: t.Iterable[t.Mapping[str, t.Any]]) -> bool:
    """Whether hosts filter ports of an instance with these networks: not if all are logical, whose ports OVN filters. :arg definitions: see needed()"""
    kinds = [NETWORK_TYPES[d.get("type") or DEFAULT.name] for d in definitions]
    return not (kinds and all(kind.is_logical for kind in kinds))


def needed(definitions: t.Iterable[t.Mapping[str, t.Any]]) -> tuple[HostNetwork, ...]:
    """Return the networks of these that hosts must have, each once. :arg definitions: asdict() of networks of the catalogue, as requests are stored"""
    networks = dict.fromkeys(
        _needed(NETWORK_TYPES[d.get("type") or DEFAULT.name], d)
        for d in definitions
        if not (d.get("manage") and NETWORK_TYPES[d.get("type") or DEFAULT.name].can_be_managed)
    )
    return tuple(networks)


def _needed(kind: NetworkType, definition: t.Mapping[str, t.Any]) -> HostNetwork:
    name = definition["name"]
    return HostNetwork(kind.name, kind.needed_on_host({**definition, "source": definition.get("source") or name}), name)
