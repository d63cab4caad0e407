# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of RBD in a pool of a Ceph cluster: the storage host works on them, and compute hosts reach them without it."""

from __future__ import annotations

from .driver_type import Configuration


class Rbd:
    """A pool of a Ceph cluster."""

    name = "rbd"
    fields: tuple[str, ...] = ("rbd_pool", "rbd_user", "rbd_monitors")
    required = fields
    has_portals = False

    def room(self, configuration: Configuration) -> tuple[str, ...]:
        return (configuration["rbd_pool"], *sorted(configuration["rbd_monitors"]))

    def is_thin(self, configuration: Configuration) -> bool:
        return True

    def place(self, configuration: Configuration) -> str:
        return str(configuration.get("rbd_pool") or "")
