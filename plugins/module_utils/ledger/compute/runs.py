# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs: the processes that work on the ledger, and whether a run with unfinished work is still alive.

A build has the id of the run that works on it. A live run renews its lease. A build can be adopted if its run is dead (the
process is gone, as seen from the same machine) or if the lease has expired.
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.plans.plan_states import plan_of
from ...core.times import utc
from ..db import this_run
from ..db.sqlalchemy_import import sa
from ..db.this_run import RunIdentity
from ..db.transaction import Transaction
from ..fast import bulk
from ..fast.compiled_statement import CompiledStatement
from ..schema.tables import runs
from ..schema.volume_tables import SNAPSHOTS_AT_WORK


class RunRow:
    """A row of runs: a process that works on the ledger."""

    id: str
    controller: str
    boot_id: str  # of the controller; "": unknown
    pid_namespace: str
    pid: int
    pid_started: int  # clock ticks since the controller's boot
    actor: str
    started_at: float
    lease_until: float


# Two tasks of one run may come here at once; either lease is valid.
_RENEW = CompiledStatement(
    sa.text(
        "INSERT INTO runs (%s) VALUES (%s) ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
        % (", ".join(runs.c.keys()), ", ".join(":" + n for n in runs.c.keys()))
    )
)


def renew(tx: Transaction) -> None:
    """Enter this run, or renew its lease."""
    run = {
        n: getattr(tx.run, n) for n in ("id", "controller", "boot_id", "pid_namespace", "pid", "pid_started", "actor")
    }
    _RENEW.later(tx, {**run, "started_at": tx.now, "lease_until": tx.now + tx.context.lease_seconds})
    tx.renews = True


def is_dead(row: RunRow | None, me: RunIdentity, now: float) -> bool:
    """Whether the run in ``row`` can no longer be working: its lease has expired, or its process is gone from this machine."""
    if row is None or (row.lease_until <= now and not _outlives_jump(row, me, now)):
        return True
    if _is_of_this_machine(row, me):
        return this_run.process_started(row.pid) != row.pid_started
    return row.controller == me.controller and bool(row.boot_id) and row.boot_id != me.boot_id


def _is_of_this_machine(row: RunRow, me: RunIdentity) -> bool:
    return row.boot_id == me.boot_id and row.pid_namespace == me.pid_namespace and bool(row.boot_id)


def _outlives_jump(row: RunRow, me: RunIdentity, now: float) -> bool:
    """Whether the lease of a run on this machine is over only because the clock was set forward since the run started.

    What its clock says has passed is compared with what the machine's own count of seconds says, which nothing sets.
    """
    if not _is_of_this_machine(row, me) or this_run.process_started(row.pid) != row.pid_started:
        return False
    jumped = (now - row.started_at) - this_run.seconds_since_start(row.pid_started)
    return jumped > 0 and row.lease_until > now - jumped


def dead_among(tx: Transaction, run_ids: t.Iterable[str | None]) -> set[str]:
    """The dead runs out of ``run_ids``; an unknown run is dead, this run never is."""
    wanted = {r for r in run_ids if r and r != tx.run.id}
    if not wanted:
        return set()
    rows = {r.id: r for r in tx.rows(sa.select(runs).where(runs.c.id.in_(sorted(wanted))), RunRow)}
    return {r for r in wanted if is_dead(rows.get(r), tx.run, tx.now)}


# Whether instances, volumes, snapshots or attachments belong to another run that is unknown (of instances: only known ones count),
# or whose lease has expired. The conditions of partial indexes are in their own words. Runs are looked up in the set of live ones,
# which the database makes once, and only if a run is at work; they are not joined: of tables that are small
# or new to it PostgreSQL reads the one again for each row of the other. "IS TRUE" stops it from making a join of EXISTS.
_LEFT = "SELECT 1 FROM %s AS w WHERE %s AND run_id IS NOT NULL AND run_id <> :run AND run_id NOT IN (SELECT id FROM runs WHERE lease_until > :now)"
LEFT_WORK = " OR ".join(
    "EXISTS (%s)" % _LEFT % work
    for work in (
        (
            "instances",
            "deleted = '' AND vm_state = 'building' AND (EXISTS (SELECT 1 FROM runs r WHERE r.id = w.run_id)) IS TRUE",
        ),
        ("volumes", "deleted = ''"),
        ("volume_snapshots", SNAPSHOTS_AT_WORK),
        ("volume_attachments", "deleted = ''"),
    )
)


def out_of_lease(tx: Transaction, run_ids: t.Iterable[str | None]) -> set[str]:
    """The runs out of ``run_ids`` that are unknown or whose lease has expired; whether the processes of the others run is not checked."""
    wanted = {r for r in run_ids if r and r != tx.run.id}
    if not wanted:
        return set()
    rows = tx.rows(sa.select(runs).where(bulk.among(tx, runs.c.id, sorted(wanted))), RunRow)
    return wanted - {r.id for r in rows if r.lease_until > tx.now or _outlives_jump(r, tx.run, tx.now)}


def locked_error(tx: Transaction, name: str, run_id: str | None) -> errors.InstanceBusy:
    """The error for an instance that a live run owns."""
    row = next(iter(tx.rows(sa.select(runs).where(runs.c.id == run_id), RunRow)), None)
    if row is None:
        return errors.InstanceBusy(name=name, run=run_id, until="the end of its lease")
    plan_id = plan_of(run_id)
    if plan_id is not None:
        return errors.InstanceBusy(
            message="%s is held by the plan %s (of %s) until %s" % (name, plan_id, row.actor, utc(row.lease_until)),
            remedy="Use the plan (bootflow_plan), or discard it: bootflow.compute.plans with bootflow_plan_discard.",
        )
    run = "%s (of %s on %s, since %s)" % (run_id, row.actor, row.controller, utc(row.started_at))
    return errors.InstanceBusy(name=name, run=run, until=utc(row.lease_until))
