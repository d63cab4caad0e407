# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that hold places: their rows, and the runs that own what they hold.

A plan's instances belong to a separate run, whose lease lasts as long as the plan holds its places: to all others they are builds of a run that lives.
"""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...core.plans.plan_states import EXPIRED, HELD, USED, run_of
from ..compute import instances as instance_rows
from ..compute import runs as runs_
from ..compute.instances import Instance
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..schema.plan_tables import plan_places, plans
from ..schema.tables import runs

_c = plans.c


class PlanRow:
    """A row of plans."""

    id: str
    kind: str  # core.plans.plan_states.KINDS
    state: str  # core.plans.plan_states.STATES; one that is held may have expired
    hash: str
    actor: str
    instances: int
    created_at: float
    expires_at: float
    changed_at: float
    run_id: str | None  # that used it


def read(tx: Transaction, plan_id: str, lock: bool = False) -> PlanRow | None:
    """Return the plan; None if the ledger has none of this id."""
    query = sa.select(plans).where(_c.id == plan_id)
    return next(iter(tx.rows(query.with_for_update() if lock else query, PlanRow)), None)


def all_of(tx: Transaction) -> list[PlanRow]:
    """Return all plans, the newest first."""
    return tx.rows(sa.select(plans).order_by(_c.created_at.desc(), _c.id), PlanRow)


def any_expired(tx: Transaction) -> bool:
    """Return whether a plan whose time is over still holds its places, or a used one does whose run died."""
    query = sa.select(_c.state, _c.run_id).where(
        sa.or_(sa.and_(*_expired_conditions(tx)), sa.and_(*_used_conditions()))
    )
    rows = tx.execute(query).all()
    return any(r.state == HELD for r in rows) or bool(runs_.dead_among(tx, [r.run_id for r in rows]))


def expired(tx: Transaction) -> list[PlanRow]:
    """Return the plans whose time is over and that still hold their places, locked."""
    return tx.rows(sa.select(plans).where(*_expired_conditions(tx)).order_by(_c.id).with_for_update(), PlanRow)


def used_by_dead_runs(tx: Transaction) -> list[PlanRow]:
    """Return the used plans that still hold places, whose runs died, locked."""
    rows = tx.rows(sa.select(plans).where(*_used_conditions()).order_by(_c.id).with_for_update(), PlanRow)
    dead = runs_.dead_among(tx, [r.run_id for r in rows]) if rows else ()
    return [r for r in rows if r.run_id in dead]


def _expired_conditions(tx: Transaction) -> tuple[sa.ColumnElement[bool], ...]:
    return _c.state == HELD, _c.expires_at <= tx.now


def _used_conditions() -> tuple[sa.ColumnElement[bool], ...]:
    return _c.state == USED, _c.id.in_(sa.select(plan_places.c.plan_id))


def add(tx: Transaction, plan_id: str, kind: str, content_hash: str, count: int, expires_at: float) -> None:
    """Enter a plan that holds its places from now on, with the run that owns them."""
    tx.execute(
        plans.insert().values(
            id=plan_id,
            kind=kind,
            state=HELD,
            hash=content_hash,
            actor=tx.actor,
            instances=count,
            created_at=tx.now,
            expires_at=expires_at,
            changed_at=tx.now,
        )
    )
    # No process: it lives as long as its lease.
    tx.execute(
        runs.insert().values(
            id=run_of(plan_id),
            controller=tx.run.controller,
            pid=0,
            actor=tx.actor,
            started_at=tx.now,
            lease_until=expires_at,
        )
    )


def end(tx: Transaction, plan_id: str, state: str) -> None:
    """Set the state of a locked plan that does not hold its places any more, and end the lease of its run."""
    run_id = tx.run.id if state == USED else None
    tx.execute(plans.update().where(_c.id == plan_id).values(state=state, changed_at=tx.now, run_id=run_id))
    tx.execute(
        runs.update().where(runs.c.id == run_of(plan_id), runs.c.lease_until > tx.now).values(lease_until=tx.now)
    )


def state_of(row: PlanRow, now: float) -> str:
    """Return the state of a plan, also where its places were not given back yet after its time."""
    return EXPIRED if row.state == HELD and row.expires_at <= now else row.state


def held(tx: Transaction, plan_id: str, lock: bool = False) -> list[Instance]:
    """Return the instances that the plan holds, by UUID. Instances that are being deleted are left out."""
    rows = instance_rows.select_live(tx, run_id=run_of(plan_id), vm_state=states.BUILDING, lock=lock)
    return [r for r in rows if r.task_state is None]


def give(tx: Transaction, plan_id: str, uuids: t.Sequence[str]) -> None:
    """Give these locked instances to the plan. They are tried on their hosts only, as a plan is done exactly."""
    instance_rows.write(tx, uuids, run_id=run_of(plan_id), retry=None, updated_at=tx.now)
