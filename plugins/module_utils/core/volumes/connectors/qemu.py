# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connector of hosts where QEMU logs in by itself, with a secret from libvirt."""

from __future__ import annotations

import typing as t

from ...errors import HostLacksHardware
from ..names import device_to_come, split_portal
from ..qemu_connection import iscsi_connection
from .connector_type import Connected


class Qemu:
    """The iSCSI initiator of QEMU."""

    name = "qemu"
    host_logs_in = False
    is_watched = False

    def check_host(self, host: str, facts: t.Mapping[str, t.Any]) -> None:
        if facts.get("qemu_iscsi") is False:
            raise HostLacksHardware(
                host=host,
                model="iSCSI driver of QEMU",
                reason="block-iscsi.so is not installed",
                remedy="Install qemu-block-extra there (bootflow.compute.prepare does), or set bootflow_volume_attach: kernel.",
            )

    def source_of(self, row: Connected) -> str:
        return "%s/%d" % (row.iqn, row.lun) if row.iqn and row.lun is not None else ""

    def disk(self, row: Connected, user: t.Callable[[], str], secret: str) -> dict[str, t.Any]:
        if not row.iqn:  # a plan before the export
            path = row.device_path or device_to_come(row.volume_id)
            return {"path": path, "driver_format": "raw", "source": "block", "io": "native"}
        portals = [split_portal(address) for address in row.portals or ()]
        connection = iscsi_connection(row.iqn, t.cast(int, row.lun), portals, user(), row.initiator or "", secret)
        return {"path": "", "driver_format": "raw", "source": "network", "connection": connection}
