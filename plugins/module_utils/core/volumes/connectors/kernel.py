# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connector of hosts whose kernel logs in: their guests have block devices."""

from __future__ import annotations

import typing as t

from ...errors import HostLacksHardware
from ..names import device_to_come
from .connector_type import Connected


class Kernel:
    """The iSCSI initiator of the host."""

    name = "kernel"
    host_logs_in = True
    is_watched = False

    def check_host(self, host: str, facts: t.Mapping[str, t.Any]) -> None:
        if not facts.get("initiator"):
            raise HostLacksHardware(
                host=host,
                model="iSCSI initiator",
                reason="/etc/iscsi/initiatorname.iscsi contains no valid name",
                remedy="Install open-iscsi there (bootflow.compute.prepare does), or set bootflow_volume_attach: qemu.",
            )

    def source_of(self, row: Connected) -> str:
        return row.device_path or ""

    def disk(self, row: Connected, user: t.Callable[[], str], secret: str) -> dict[str, t.Any]:
        path = row.device_path or device_to_come(row.volume_id)
        return {"path": path, "driver_format": "raw", "source": "block", "io": "native"}
