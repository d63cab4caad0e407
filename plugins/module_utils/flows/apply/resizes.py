# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resizes of a file that is applied, tried out: what is booted after them finds the room that they leave and take."""

from __future__ import annotations

from ...core.instances import states
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import instances
from ...ledger.db.transaction import Transaction
from ..instances import cleanup
from ..instances.operation import Selection
from ..moves import cold, confirm, course
from ..moves.place import ReadFleet


def rehearse(tx: Transaction, wanted: cold.Wanted, read_fleet: ReadFleet, options: SchedulerOptions) -> None:
    """Check mode: the instances of ``wanted`` are resized and confirmed, as if all hosts had done their part.

    :raises BootflowError: see cold.begin().
    """
    rows = instances.select_live(tx, uuids=wanted.selection.uuids)
    first = [r.uuid for r in rows if r.vm_state not in (states.ACTIVE, states.STOPPED)]
    if first:  # their guests are started before
        instances.write(tx, first, vm_state=states.ACTIVE)
    begun = cold.begin(tx, wanted, read_fleet, options)
    moved = [m.uuid for m in course.switch(tx, [m.uuid for m in begun.moving])] if begun.moving else []
    if moved:
        course.finish(tx, course.RESIZE, dict.fromkeys(moved, course.Result(states.RUNNING)))
        left = confirm.confirm(tx, Selection(uuids=moved)).left
        cleanup.finish(tx, {host: [u for u in left if left[u] == host] for host in left.values()})
