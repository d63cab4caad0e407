# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The owner of a logical volume according to its tags."""

from __future__ import annotations

import contextlib

from ....core.errors import InvalidInput
from ...lvm.lvm import LogicalVolume, VolumeGroup
from ...lvm.lvm_tags import LEDGER, OWNER, tag_value
from ...os.ownership import is_of_another
from ...os.paths import checked_uuid

INSTANCE = "instance"


def of_instance(group: VolumeGroup, uuid: str) -> list[LogicalVolume]:
    """Return the volumes of the instance in the group, without volumes of other ledgers."""
    return [lv for lv in _of_ledger(group) if tag_value(lv.tags, INSTANCE) == uuid]


def by_instance(group: VolumeGroup) -> dict[str, list[str]]:
    """Return UUID of an instance -> names of its volumes in the group, without volumes of other ledgers. Tags without a valid UUID are ignored."""
    names: dict[str, list[str]] = {}
    for lv in _of_ledger(group):
        uuid = tag_value(lv.tags, INSTANCE)
        with contextlib.suppress(InvalidInput):
            if uuid and checked_uuid(uuid) == uuid:
                names.setdefault(uuid, []).append(lv.name)
    return names


def _of_ledger(group: VolumeGroup) -> list[LogicalVolume]:
    lvs = [lv for lv in group.lvs.values() if OWNER in lv.tags]
    lvs = [lv for lv in lvs if not is_of_another(tag_value(lv.tags, LEDGER), group.ledger_id)]
    return sorted(lvs, key=lambda lv: lv.name)
