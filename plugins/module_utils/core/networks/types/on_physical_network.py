# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common part of types of networks that are a part of a physical network: which host is in it, by bootflow_physical_interface_mappings."""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ..physical import check_physical_network

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields


class OnPhysicalNetwork:
    """A host needs an interface in the physical network."""

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return str(definition.get("physical_network") or "")

    def words(self, needed: str, exists: bool) -> str:
        if exists:
            return "the interface of physical network %s is missing or down" % needed
        return "physical network %s is not in bootflow_physical_interface_mappings" % needed

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        if exists:
            return (
                "Turn the interface on (ip link set dev INTERFACE up, and in the network configuration of the host), or correct"
                " bootflow_physical_interface_mappings; then let the host report (heartbeat)."
            )
        return (
            "Set bootflow_physical_interface_mappings of the host for network %s, and let it report (heartbeat), or use other hosts."
            % name
        )


def read_physical_network(fields: Fields) -> str:
    """Return the physical network of an entry. Errors are noted in ``fields``."""
    physical_network = fields.name("physical_network")
    try:
        if physical_network:  # else it is missing
            check_physical_network(physical_network)
    except InvalidInput as error:
        fields.wrong("physical_network", error.message, error.remedy)
    return physical_network
