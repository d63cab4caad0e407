# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that reach over hosts by VXLAN: a bridge and a VXLAN device on each host, which the collection makes."""

from __future__ import annotations

import re
import typing as t

from ..underlay import DEFAULT_MTU, MOST_VNI
from .joined_bridge import JoinedBridge
from .network_type import read_management

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet

#: The name under which hosts report that they have an address in the underlay: their own bridges are made where they are missing.
UNDERLAY = "underlay"


class Vxlan(JoinedBridge):
    """A Linux bridge of each host, joined to the other hosts' by VXLAN. ``source``: the bridge."""

    name = vif_type = "vxlan"
    noun = "VXLAN network"
    field = "vni"
    prefix = "vxbr"
    devices = re.compile(r"vxlan[0-9]+\Z")

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        return {
            **read_management(fields),
            "vni": fields.integer("vni", 1, maximum=MOST_VNI),
            **({} if fields.data.get("mtu") is not None else {"mtu": DEFAULT_MTU}),
        }

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return UNDERLAY

    def words(self, needed: str, exists: bool) -> str:
        if exists:
            return "the address of bootflow_vxlan_address is on no interface that is up"
        return "bootflow_vxlan_address is not set"

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        if exists:
            return "Give an interface of the host this address, or correct bootflow_vxlan_address; then let the host report (heartbeat)."
        return (
            "Set bootflow_vxlan_address of the host for network %s, and let it report (heartbeat), or use other hosts."
            % name
        )
