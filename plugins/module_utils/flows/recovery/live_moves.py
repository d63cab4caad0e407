# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Live migrations of dead runs, settled by the reports of the two hosts: libvirt alone knows where the guest is.

A migration goes on without the run that began it. As long as it does, nothing is decided; nothing is started or removed on either host.
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import states
from ...core.instances.moves import ENDED_HERE, Seen, went_over
from ...core.instances.power_states import CRASHED, SHUTDOWN
from ...ledger.compute import instances, runs
from ...ledger.compute import moves as ledger_moves
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ..moves import live_course
from ..moves.course import Moving

DIED = "the run that migrated it died"
_OFF = (SHUTDOWN, CRASHED)
#: What the source said of a guest that is off, kept as the power state until the other host reports: whether it knew that it ended there.
_SAID = {SHUTDOWN: Seen(SHUTDOWN, ENDED_HERE), CRASHED: Seen(SHUTDOWN)}


def hosts_to_hear(tx: Transaction) -> set[str]:
    """The hosts whose reports would settle migrations of dead runs."""
    return {host for m in _left(tx) for host in (m.move.source_compute, m.move.dest_compute)}


def _left(tx: Transaction, host: str | None = None) -> list[Moving]:
    """Those from or to ``host``."""
    rows = instances.in_task_states(tx, [str(live_course.LIVE_MIGRATE.during)])
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    uuids = [r.uuid for r in rows if not r.run_id or r.run_id in dead]
    found = ledger_moves.open_of(tx, uuids)
    mine = [u for u, m in found.items() if host is None or host in (m.source_compute, m.dest_compute)]
    return [Moving(r, found[r.uuid]) for r in instances.select_live(tx, uuids=sorted(mine))] if mine else []


def settle(
    tx: Transaction, host: str, power_states: t.Mapping[str, int], moving: t.Mapping[str, str] | None, asked_at: float
) -> dict[str, str]:
    """Settle the migrations from and to ``host``. Returns uuid -> its vm_state, of those that are settled.

    :arg moving: uuid -> one of core.instances.moves.MOVING; None: not known, and all waits.
    :arg asked_at: when the host was asked: rows written after that are left alone.
    """
    if moving is None:
        return {}
    settled = {}
    left = [m for m in _left(tx, host) if m.row.updated_at < asked_at]
    rows = {r.uuid: r for r in instances.select_live(tx, uuids=[m.uuid for m in left], lock=True)} if left else {}
    attachments.lock(tx, rows)  # before any node is locked
    for m in left:
        row = rows.get(m.uuid)
        if row is None or (row.run_id, row.updated_at) != (m.row.run_id, m.row.updated_at):
            continue  # another run was faster
        seen = Seen(power_states.get(m.uuid), moving.get(m.uuid, ""))
        here: Seen | None = seen
        there: Seen | None = None
        if host != m.move.source_compute:
            here, there = _SAID.get(m.row.power_state), seen
        elif seen.power_state in _OFF or seen.power_state is None:  # the report of the other host is to know it
            instances.write(tx, [m.uuid], power_state=SHUTDOWN if seen.moving == ENDED_HERE else CRASHED)
        over = went_over(here, there)
        if over is not None:
            _end(tx, m, over, seen if (host == m.move.dest_compute) == over else None)
            settled[m.uuid] = m.row.vm_state if over or here is None or here.goes_on else states.STOPPED
    return settled


def _end(tx: Transaction, m: Moving, over: bool, seen: Seen | None) -> None:
    """:arg seen: the guest on the host where it is, if that is who reported"""
    if over:
        live_course.go_over(tx, m.row, m.move)
        m = Moving(instances.select_live(tx, uuids=[m.uuid])[0], m.move)
    power_state = states.NOSTATE if seen is None or seen.power_state is None else seen.power_state
    off = not over and (seen is None or not seen.goes_on)
    remedy = "The instance is on %s." % (m.move.dest_compute if over else m.move.source_compute)
    error = errors.RemoteError(
        reason="run %s died while it did '%s' with instance %s"
        % (m.row.run_id or "unknown", live_course.LIVE_MIGRATE.called, m.uuid),
        remedy=remedy + (" Start it." if off else ""),
    )
    live_course.end(tx, m, error, SHUTDOWN if off else power_state, cleaned=False, reason=DIED)
    if off:
        notify = tx.context.notify_on_state_change
        instances.swap(tx, [m.uuid], [None], None, notify, vm_state=states.STOPPED)
