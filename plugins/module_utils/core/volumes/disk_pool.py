# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pool of a Ceph cluster in which hosts keep the disks of guests, and how its user reaches it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..disks.local import volume_name
from .rbd_names import checked_fsid, checked_key, checked_pool, checked_user, monitor, rbd_connection


@dataclass(frozen=True)
class DiskPool:
    """A pool, as the type of store asks it (core.disks.stores.store_type.Pool).

    ``fsid``: the id of its cluster. ``key``: of the user; "" where only names are needed
    """

    pool: str
    monitors: tuple[str, ...]
    user: str
    fsid: str
    key: str = field(default="", repr=False)

    @classmethod
    def checked(cls, values: t.Mapping[str, t.Any]) -> DiskPool:
        """Return the pool in an option ``disk_pool``. :raises InvalidInput: a field has another form; the message never has the key"""
        return cls(
            checked_pool(values["pool"]),
            tuple(monitor(address) for address in values["monitors"]),
            checked_user(values["user"]),
            checked_fsid(values["fsid"]),
            checked_key(values["key"]) if values.get("key") else "",
        )

    @property
    def place(self) -> str:
        """Return a word for the pool, the same on all hosts that reach it."""
        return "%s/%s" % (self.fsid, self.pool)

    def connection(self, uuid: str, disk: str) -> dict[str, t.Any]:
        """Return the ``connection`` of a guest's disk, see core.guest.devices. :arg disk: its name"""
        return rbd_connection("%s/%s" % (self.pool, volume_name(uuid, disk)), self.monitors, self.fsid, self.user)
