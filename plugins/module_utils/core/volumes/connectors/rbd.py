# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connector of volumes in Ceph, on every host: QEMU opens them by itself, with a secret from libvirt."""

from __future__ import annotations

import typing as t

from ...errors import HostLacksHardware
from ..names import device_to_come
from ..rbd_names import rbd_connection
from .connector_type import Connected


class Rbd:
    """The librbd of QEMU. The volume says that it is in Ceph: hosts have no setting for that."""

    name = "rbd"
    host_logs_in = False
    is_watched = True

    def check_host(self, host: str, facts: t.Mapping[str, t.Any]) -> None:
        if facts.get("qemu_rbd") is False:
            raise HostLacksHardware(
                host=host,
                model="RBD driver of QEMU",
                reason="block-rbd.so is not installed",
                remedy="Install qemu-block-extra there (bootflow.compute.prepare does).",
            )

    def source_of(self, row: Connected) -> str:
        return str((row.connection_info or {}).get("name") or "")

    def disk(self, row: Connected, user: t.Callable[[], str], secret: str) -> dict[str, t.Any]:
        info = row.connection_info
        if not info:  # a plan before the export
            path = row.device_path or device_to_come(row.volume_id)
            return {"path": path, "driver_format": "raw", "source": "block", "io": "native"}
        connection = rbd_connection(info["name"], info["monitors"], info["fsid"], info["user"])
        return {"path": "", "driver_format": "raw", "source": "network", "connection": connection}
