# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operations that dead runs left: their instances and hosts. Every playbook begins with this question, so little is loaded for it."""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...ledger.compute import instances, moves, runs
from ...ledger.compute.instances import InstanceAtWork
from ...ledger.db.transaction import Transaction
from ..instances.operations import BY_TASK_STATE

#: The task_states that a host's report settles.
MOVING = (*states.RESIZING, str(states.ACTIONS["evacuate"].at_work))
SETTLED = (*BY_TASK_STATE, *MOVING)


def find_interrupted(tx: Transaction, host: str | None = None) -> list[InstanceAtWork]:
    """Instances (of ``host``) left in an operation by a dead run: rows of instances.in_task_states()."""
    return _of_dead_runs(tx, instances.in_task_states(tx, SETTLED, host=host))


def hosts_to_ask(tx: Transaction) -> set[str]:
    """Hosts whose report would settle an operation; of a live migration both."""
    rows = _of_dead_runs(tx, instances.in_task_states(tx, (*SETTLED, states.MIGRATING)))
    migrating = [r.uuid for r in rows if r.task_state == states.MIGRATING]
    destinations = {move.dest_compute for move in moves.open_of(tx, migrating).values()} if migrating else set()
    return {r.host for r in rows if r.host is not None} | destinations


def _of_dead_runs(tx: Transaction, rows: t.Sequence[InstanceAtWork]) -> list[InstanceAtWork]:
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    return [r for r in rows if not r.run_id or r.run_id in dead]
