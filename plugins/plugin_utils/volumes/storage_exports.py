# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exports of the current storage host that are to be there, and that are to go, each by the driver of its backend.

An export that fails never fails its neighbours; a host that does not answer fails them all, and the play never.
"""

from __future__ import annotations

import typing as t

from ...module_utils.flows.attachments.exports import Export
from ..run.ledger_action import LedgerAction
from .drivers.registry import VOLUME_DRIVERS, volume_driver
from .drivers.volume_driver import Ended, Made, VolumeDriver


def end_exports(action: LedgerAction, exports: t.Sequence[Export]) -> Ended:
    """End them on the current host. Returns attachment id -> None, or why it could not be ended."""
    ended: Ended = {}
    for driver, group in _by_driver(exports):
        ended.update(driver.end_exports(action, group))
    return ended


def make_exports(action: LedgerAction, exports: t.Sequence[Export]) -> Made:
    """Make them on the current host. Returns attachment id -> {iqn, lun, portals} or {connection_info}, or why there is none."""
    made: Made = {}
    for driver, group in _by_driver(exports):
        made.update(driver.make_exports(action, group))
    return made


def _by_driver(exports: t.Sequence[Export]) -> t.Iterator[tuple[VolumeDriver, list[Export]]]:
    for driver in VOLUME_DRIVERS.values():
        group = [export for export in exports if volume_driver(export.configuration) is driver]
        if group:
            yield driver, group
