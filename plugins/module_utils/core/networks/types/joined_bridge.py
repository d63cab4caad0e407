# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common part of types of networks that reach over hosts: a bridge on each host, which the collection makes and names by a number."""

from __future__ import annotations

import re
import typing as t

from ...errors import InvalidInput
from ...reading.formats import to_integer
from ..names import check_interface

if t.TYPE_CHECKING:  # hosts load this file, and need no more
    from ...reading.fields import Fields


class JoinedBridge:
    """A Linux bridge of each host with a device that leads to other hosts. ``source``: the bridge.

    ``field``: of the entry, which has the number. ``prefix``: of the bridge's name, before the number. ``devices``: names of such devices.
    """

    can_be_filtered = True
    can_be_managed = False
    is_logical = False
    name: str
    vif_type: str
    noun: str
    field: str
    prefix: str
    devices: re.Pattern[str]

    def default_source(self, fields: Fields, name: str) -> str:
        try:
            return "%s%d" % (self.prefix, to_integer(fields.data.get(self.field)))
        except ValueError:
            return self.prefix + "0"  # the error is noted where the number is read

    def check_source(self, source: str) -> str:
        if self.devices.match(check_interface(source)):
            raise InvalidInput(
                message="%r is the name of a %s device: a bridge cannot have it" % (source, self.name.upper()),
                remedy="Give the network another source, or leave it out: its bridge is named by the %s." % self.field,
            )
        return source

    def vif(self, source: str) -> dict[str, t.Any]:
        return {"bridge": source, "details": {}}

    def source_of(self, vif: t.Mapping[str, t.Any]) -> str | None:
        return (vif.get("network") or {}).get("bridge")

    def interface(self, source: str, port_id: str) -> dict[str, t.Any]:
        return {"type": "bridge", "source_bridge": source}
