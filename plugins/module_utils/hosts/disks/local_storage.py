# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space for disks of instances in a volume group of this host. source: Nova's _get_local_gb_info"""

from __future__ import annotations

import typing as t

from ...core.amounts import GIB
from ...core.disks.stores.registry import STORE_TYPES
from ...core.errors import DriverNotInitialized
from ..lvm import lvm
from .instance_tags import by_instance
from .qcow2_room import promised_gb


def group_facts(backend: str, volume_group: str, ledger_id: str = "") -> dict[str, t.Any]:
    """local_gb, local_gb_used and disk_available_least, in GiB rounded down, of the volume group, and instance_volumes.

    A volume group is never oversubscribed: free space is really free. For qcow2_on_lvm the sizes exclude the overhead of file systems.

    :raises InvalidInput: the group is not set.
    :raises DriverNotInitialized: the group does not exist or is not usable.
    """
    store = STORE_TYPES[backend]
    vg = store.checked_group(volume_group)
    try:
        group = lvm.read_group(vg, ledger_id)
        lvm.check_group(group)
    except DriverNotInitialized as error:
        raise DriverNotInitialized(
            message=error.message,
            remedy="Create it (vgcreate %s DEVICES) or repair it, or correct the host's bootflow_disk_volume_group."
            % vg,
        ) from None

    def gb(room: int) -> int:
        return promised_gb(room, group.extent_size) if store.is_file_system else room // GIB

    total, free = gb(group.size), gb(group.free)
    return {
        "local_gb": total,
        "local_gb_used": total - free,
        "disk_available_least": free,
        "instance_volumes": by_instance(group),
    }
