# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers of the ledger for monitoring: instances, volumes, moves, actions and runs, each counted by the database."""

from __future__ import annotations

import typing as t

from ..core.instances import moves
from .compute.history import ERROR
from .compute.instances import LIVE
from .db.sqlalchemy_import import sa
from .db.transaction import Transaction
from .schema.tables import instance_actions, instances, migrations, runs
from .schema.volume_tables import volumes

Counted = t.List[t.Dict[str, t.Any]]

WINDOW = 86400  # seconds, of instance_actions()


def instance_counts(tx: Transaction) -> Counted:
    """Return {project, state, instances, vcpus, memory_mb, disk_gb} of the live instances, by project and vm_state."""
    c = instances.c
    return _rows(
        tx,
        sa.select(
            c.project,
            c.vm_state.label("state"),
            sa.func.count().label("instances"),
            sa.func.sum(c.vcpus).label("vcpus"),
            sa.func.sum(c.memory_mb).label("memory_mb"),
            sa.func.sum(c.root_gb + c.ephemeral_gb).label("disk_gb"),
        )
        .where(c.deleted == LIVE)
        .group_by(c.project, c.vm_state)
        .order_by(c.project, c.vm_state),
    )


def task_counts(tx: Transaction) -> Counted:
    """Return {task, instances} of the live instances that something works on, by task_state."""
    c = instances.c
    busy = (c.deleted == LIVE, c.task_state.is_not(None))
    counted = sa.select(c.task_state.label("task"), sa.func.count().label("instances"))
    return _rows(tx, counted.where(*busy).group_by(c.task_state).order_by(c.task_state))


def volume_counts(tx: Transaction) -> Counted:
    """Return {project, status, volumes, size_gb} of the live volumes, by project and status."""
    c = volumes.c
    counted = sa.select(
        c.project, c.status, sa.func.count().label("volumes"), sa.func.sum(c.size).label("size_gb")
    ).where(c.deleted == LIVE)
    return _rows(tx, counted.group_by(c.project, c.status).order_by(c.project, c.status))


def move_counts(tx: Transaction) -> Counted:
    """Return {type, status, moves} of the moves that have not ended."""
    c = migrations.c
    counted = sa.select(c.migration_type.label("type"), c.status, sa.func.count().label("moves"))
    unfinished = c.status.in_(moves.OPEN)
    return _rows(
        tx, counted.where(unfinished).group_by(c.migration_type, c.status).order_by(c.migration_type, c.status)
    )


def action_counts(tx: Transaction) -> Counted:
    """Return {action, result, actions} of the actions on instances that began in the last WINDOW seconds.

    result: success, error, or unfinished.
    """
    c = instance_actions.c
    result = sa.case((c.finish_time.is_(None), "unfinished"), (c.message == ERROR, "error"), else_="success")
    counted = sa.select(c.action, result.label("result"), sa.func.count().label("actions"))
    recent = c.start_time > tx.now - WINDOW
    return _rows(tx, counted.where(recent).group_by(c.action, result).order_by(c.action, result))


def run_counts(tx: Transaction) -> dict[str, t.Any]:
    """Return {runs, last_started}: the runs whose lease has not ended, and when the newest run began (None: there was none)."""
    c = runs.c
    active = sa.func.sum(sa.case((c.lease_until > tx.now, 1), else_=0))
    row = tx.execute(sa.select(active, sa.func.max(c.started_at))).one()
    return {"runs": row[0] or 0, "last_started": row[1]}


def _rows(tx: Transaction, query: t.Any) -> Counted:
    return [{name: _number(value) for name, value in row._mapping.items()} for row in tx.execute(query)]


def _number(value: t.Any) -> t.Any:
    # PostgreSQL adds integers to a Decimal.
    return value if isinstance(value, str) else int(value or 0)
