# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt's secrets. Their values are never in XML. source: libvirt's secret format; Nova's create_secret

This room has every element of libvirt's XML, also this one, which hosts.libvirt.secrets alone uses.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .element import Element, at


@dataclass(frozen=True)
class SecretConfig(Element):
    """``<secret>``. ephemeral: only in memory, lost when libvirt's daemon ends; private: libvirt returns it to no client."""

    TAG: t.ClassVar[str] = "secret"

    ephemeral: t.Optional[bool] = at("@ephemeral", "bool", default=False)
    private: t.Optional[bool] = at("@private", "bool", default=False)
    uuid: t.Optional[str] = at("uuid")
    description: t.Optional[str] = at("description")
    usage_type: t.Optional[str] = at("usage/@type")
    usage_target: t.Optional[str] = at("usage/target")
    usage_name: t.Optional[str] = at("usage/name")
    usage_volume: t.Optional[str] = at("usage/volume")
