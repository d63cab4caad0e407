# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The owner of a logical volume according to its tags."""

from __future__ import annotations

import contextlib

from ...core.errors import InvalidInput
from ..lvm.lvm import LogicalVolume, VolumeGroup
from ..lvm.lvm_tags import OWNER, tag_value
from ..os.paths import checked_uuid

INSTANCE = "instance"


def of_instance(group: VolumeGroup, uuid: str) -> list[LogicalVolume]:
    """The volumes of the instance in the group, by name."""
    found = [lv for lv in group.lvs.values() if OWNER in lv.tags and tag_value(lv.tags, INSTANCE) == uuid]
    return sorted(found, key=lambda lv: lv.name)


def by_instance(group: VolumeGroup) -> dict[str, list[str]]:
    """UUID of an instance -> names of its volumes in the group. Tags without a valid UUID are ignored."""
    found: dict[str, list[str]] = {}
    for lv in sorted(group.lvs.values(), key=lambda lv: lv.name):
        uuid = tag_value(lv.tags, INSTANCE) if OWNER in lv.tags else ""
        with contextlib.suppress(InvalidInput):
            if uuid and checked_uuid(uuid) == uuid:
                found.setdefault(uuid, []).append(lv.name)
    return found
