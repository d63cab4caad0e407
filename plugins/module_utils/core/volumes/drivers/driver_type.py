# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The protocol of a type of volume driver, by which a backend has its volumes. Each type is an object in its own file; ``registry`` lists the types."""

from __future__ import annotations

import typing as t

Configuration = t.Mapping[str, t.Any]  # a backend's entry of the inventory, with all defaults


class DriverType(t.Protocol):
    """Type of a backend.

    ``name``: the word of the field ``driver`` in bootflow_storage_backends. ``fields``: the fields of an entry that are of this type alone.
    ``required``: the fields among them that an entry must have. ``has_portals``: compute hosts reach the volumes at portals of the storage host.
    """

    name: str
    fields: tuple[str, ...]
    required: tuple[str, ...]
    has_portals: bool

    def room(self, configuration: Configuration) -> tuple[str, ...]:
        """Return the space that the backend's volumes are in: two backends of a host with the same would count it twice."""

    def is_thin(self, configuration: Configuration) -> bool:
        """Whether volumes get their space as they are written."""

    def place(self, configuration: Configuration) -> str:
        """Return the name of the space, for people."""
