# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that are a Linux bridge of the host."""

from __future__ import annotations

import typing as t

from ..names import check_interface
from .network_type import lack_words, read_management

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields
    from ..subnet import Subnet


class Bridge:
    """A Linux bridge that the host has already."""

    name = vif_type = "bridge"
    noun = "Linux bridge"
    can_be_filtered = True
    can_be_managed = False
    is_logical = False

    def default_source(self, fields: Fields, name: str) -> str:
        return name

    def check_source(self, source: str) -> str:
        return check_interface(source)

    def read(self, fields: Fields, subnets: t.Sequence[Subnet]) -> dict[str, t.Any]:
        return read_management(fields)

    def vif(self, source: str) -> dict[str, t.Any]:
        return {"bridge": source, "details": {}}

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        return (vif.get("network") or {}).get("bridge")

    def needed_on_host(self, definition: t.Mapping[str, t.Any]) -> str:
        return str(definition["source"])

    def words(self, needed: str, exists: bool) -> str:
        return lack_words(self.noun, needed, exists)

    def remedy(self, needed: str, name: str, exists: bool) -> str:
        return "Create bridge %s in the network configuration of the host, or correct the source of network %s." % (
            needed,
            name,
        )

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        return {"type": self.name, "source_bridge": source}
