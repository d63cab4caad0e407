# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of networks, by the word that bootflow_networks and the ledger have for each."""

from __future__ import annotations

import typing as t

from .bridge import Bridge
from .macvtap import MacvtapNetwork
from .network import LibvirtNetwork
from .network_type import NetworkType
from .ovn import Ovn
from .vlan import VlanNetwork
from .vxlan import Vxlan

DEFAULT: NetworkType = LibvirtNetwork()
NETWORK_TYPES: t.Mapping[str, NetworkType] = {
    kind.name: kind for kind in (DEFAULT, Bridge(), Vxlan(), VlanNetwork(), MacvtapNetwork(), Ovn())
}


def kind_of_vif(vif_type: str) -> NetworkType | None:
    """Return the type of the network of a VIF; None: no type has such VIFs."""
    return next((kind for kind in NETWORK_TYPES.values() if kind.vif_type == vif_type), None)
