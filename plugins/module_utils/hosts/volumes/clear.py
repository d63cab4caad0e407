# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wipes the data of a volume before its space is reused.

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
    """Thin volumes are not wiped: their pool zeroes blocks before reuse, unless zeroing is disabled."""
    if backend.clear == NONE:
        return False
    if lv.is_thin:
        return backend.clear == DISCARD or not group.zeroing.get(lv.pool, False)
    return True


def wipe(backend: Backend, group: VolumeGroup, lv: LogicalVolume, written: int = 0) -> None:
    """Overwrite according to the settings; at most the first ``written`` bytes if only those contain data."""
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
