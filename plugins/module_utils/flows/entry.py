# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an action on an instance may begin: locks by users, rules of states, and other runs at work."""

from __future__ import annotations

from ..core import errors
from ..core.instances import states
from ..ledger.compute import runs
from ..ledger.compute.instances import Instance
from ..ledger.db.transaction import Transaction


def check(tx: Transaction, action: str, row: Instance) -> None:
    """Check whether an action that does not set the instance's task_state (attach_volume, detach_volume) may begin.

    :raises InstanceIsLocked, InstanceInvalidState, InstanceBusy: the action may not begin.
    """
    free = row.task_state is None or row.run_id in (None, "", tx.run.id)
    free = free or bool(runs.dead_among(tx, [row.run_id]))
    check_rule(tx, action, row, row.task_state, free)


def check_rule(tx: Transaction, action: str, row: Instance, task_state: str | None, free: bool) -> None:
    """The same for a given task_state. :arg free: no live run but this one works on the instance."""
    locked = row.locked_by not in (None, tx.actor)
    try:
        states.check_action(action, row.vm_state, task_state, row.launched_at is not None, locked, row.uuid)
    except errors.InstanceInvalidState as e:
        if e.details.get("attr") == "task_state":
            if not free:
                raise runs.locked_error(tx, row.display_name, row.run_id) from e
            e.remedy = "The run that did this is dead: bootflow.compute.audit settles it."
        raise
