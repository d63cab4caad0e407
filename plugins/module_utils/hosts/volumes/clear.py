# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of the data of a volume before its room is somebody else's.

source: Cinder's volume_clear and volume_clear_size
"""

from __future__ import annotations

from ...core.volumes.names import DISCARD, NONE, SHRED
from ..lvm import lvm
from ..lvm.lvm import LogicalVolume, VolumeGroup
from . import copy
from .backend import Backend
from .process import Steps


def is_wiped(backend: Backend, group: VolumeGroup, lv: LogicalVolume) -> bool:
    """Thin volumes are not wiped: their pool zeroes a block before somebody else gets it, unless it was told not to."""
    if backend.clear == NONE:
        return False
    if lv.is_thin:
        return backend.clear == DISCARD or not group.zeroing.get(lv.pool, False)
    return True


def wipe(backend: Backend, group: VolumeGroup, lv: LogicalVolume, written: int = 0) -> None:
    """Overwrite what the settings say; no more than the first ``written`` bytes where only those are somebody's."""
    if not is_wiped(backend, group, lv):
        return
    path = group.path(lv.name)
    with Steps(lv.uuid.replace("-", "")) as steps:
        steps.at("deleting")
        if lv.is_thick_snapshot:
            with lvm.group_lock(group.name):
                lvm.split_snapshot(group.name, lv.name)
                lvm.set_active(group.name, [lv.name], True)
        elif not lv.is_active:
            lvm.set_active(group.name, [lv.name], True)
        size = copy.device_size(path)
        limit = min(size, backend.clear_size or size, written or size)
        if lv.is_thin and backend.clear == DISCARD:
            copy.discard(path)
        elif backend.clear == SHRED:
            copy.shred(path, limit)
        else:
            copy.zero(path, limit)
