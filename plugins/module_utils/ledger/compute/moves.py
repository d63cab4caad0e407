# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of instances between hosts (Nova's migrations): from where to where, with which request, and how far each is.

Only add() and apply() write the status, by the events of core.instances.move_life.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...core.errors import MigrationConflict
from ...core.instances import move_life, move_mark, moves
from ...core.instances.move_life import Event
from ...core.instances.progress import Progress
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instance_actions, migrations


class MoveRow:
    """A row of migrations. Times are seconds since the epoch."""

    id: int
    instance_uuid: str
    migration_type: str  # core.instances.moves.TYPES
    status: str  # core.instances.moves.STATUSES
    source_compute: str  # the host that it leaves
    source_node: str
    dest_compute: str
    dest_node: str
    old_request_spec_id: int  # the same as the new one, where the flavor stays
    new_request_spec_id: int
    old_vm_state: str  # before the move
    source_limits: dict[str, t.Any] | None  # of the host, as the scheduler set them
    dest_limits: dict[str, t.Any] | None
    old_disks: list[dict[str, t.Any]] | None  # local ones (PlannedDisk as plain data), where a resize changes them
    new_disks: list[dict[str, t.Any]] | None
    run_id: str  # the run that began it
    created_at: float
    updated_at: float
    progress: int | None  # per cent, of a live migration that has begun
    memory_total: int | None  # bytes
    memory_processed: int | None
    memory_remaining: int | None
    disk_total: int | None
    disk_processed: int | None
    disk_remaining: int | None


def is_at_destination(move: MoveRow, host: str | None, request_spec_id: int) -> bool:
    """Return whether an instance with this host and request is at the destination of its move. Of a resize on its own host the request tells it."""
    return host == move.dest_compute and (not is_same_host_resize(move) or request_spec_id == move.new_request_spec_id)


def is_same_host_resize(move: MoveRow) -> bool:
    """Return whether the move is a resize on the instance's own host."""
    return move.source_compute == move.dest_compute


def made_for(move: MoveRow) -> str:
    """Return the mark that the destination gives what it makes for the move."""
    return move_mark.made_for(move.run_id, move.id, move.created_at)


def add(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Enter moves, with the status of the event ``begun``. :arg rows: columns of migrations, without the status"""
    run = {"run_id": tx.run.id, "created_at": tx.now, "updated_at": tx.now}
    first = {
        kind: move_life.BEGUN.after(move_life.AT_HOME, kind).status for kind in {r["migration_type"] for r in rows}
    }
    bulk.insert(tx, migrations, [{**row, "status": first[row["migration_type"]], **run} for row in rows])


def open_of(tx: Transaction, uuids: t.Collection[str]) -> dict[str, MoveRow]:
    """uuid -> its move that is under way, or waits to be confirmed; an instance without one is left out."""
    if not uuids:
        return {}
    c = migrations.c
    open_moves = (bulk.among(tx, c.instance_uuid, sorted(uuids)), c.status.in_(moves.OPEN))
    return {r.instance_uuid: r for r in tx.rows(sa.select(migrations).where(*open_moves).order_by(c.id), MoveRow)}


def all_open(tx: Transaction) -> list[MoveRow]:
    """Return all moves that are under way, or wait to be confirmed, oldest first."""
    c = migrations.c
    return tx.rows(sa.select(migrations).where(c.status.in_(moves.OPEN)).order_by(c.id), MoveRow)


def open_from(tx: Transaction, host: str) -> list[MoveRow]:
    """The moves away from ``host`` that are under way, or wait to be confirmed: it is claimed for them."""
    c = migrations.c
    open_moves = (c.source_compute == host, c.status.in_(moves.OPEN))
    return tx.rows(sa.select(migrations).where(*open_moves).order_by(c.id), MoveRow)


def open_to(tx: Transaction, host: str, migration_type: str) -> list[MoveRow]:
    """The moves of this type to ``host`` that are under way."""
    c = migrations.c
    open_moves = (c.dest_compute == host, c.migration_type == migration_type, c.status.in_(moves.OPEN))
    return tx.rows(sa.select(migrations).where(*open_moves).order_by(c.id), MoveRow)


def open_between(tx: Transaction, hosts: t.Collection[str]) -> list[MoveRow]:
    """The moves from or to one of these hosts that are under way, or wait to be confirmed."""
    change, names = migrations.c, sorted(hosts)
    from_or_to_hosts = sa.or_(bulk.among(tx, change.source_compute, names), bulk.among(tx, change.dest_compute, names))
    return tx.rows(
        sa.select(migrations).where(from_or_to_hosts, change.status.in_(moves.OPEN)).order_by(change.id), MoveRow
    )


def all_of(tx: Transaction, uuids: t.Collection[str]) -> dict[str, list[MoveRow]]:
    """uuid -> all moves of the instance, live or deleted, oldest first."""
    moves_by_uuid: dict[str, list[MoveRow]] = {uuid: [] for uuid in uuids}
    if moves_by_uuid:
        condition = bulk.among(tx, migrations.c.instance_uuid, sorted(moves_by_uuid))
        for row in tx.rows(sa.select(migrations).where(condition).order_by(migrations.c.id), MoveRow):
            moves_by_uuid[row.instance_uuid].append(row)
    return moves_by_uuid


def detached_while_away(tx: Transaction, uuids: t.Collection[str]) -> set[str]:
    """Return the instances that came back, or do, and that had a volume detached or swapped while they were away: the definition that they had on
    their host has it still, and it may be another instance's by now.
    """
    if not uuids:
        return set()
    c, a = migrations.c, instance_actions.c
    query = (
        sa.select(c.instance_uuid)
        .join(instance_actions, a.instance_uuid == c.instance_uuid)
        .where(
            bulk.among(tx, c.instance_uuid, sorted(uuids)),
            c.status.in_((moves.REVERTING, moves.REVERTED)),
            c.migration_type.in_((moves.RESIZE, moves.MIGRATION)),
            a.action.in_(("detach_volume", "swap_volume")),
            a.start_time >= c.created_at,
            sa.or_(c.status == moves.REVERTING, a.start_time <= c.updated_at),
        )
    )
    return set(tx.execute(query).scalars())


def apply(tx: Transaction, rows: t.Collection[MoveRow], event: Event) -> None:
    """Apply ``event`` to these moves, whose instances are locked.

    UPDATE migrations SET status = <the next one> WHERE id IN (...) AND status IN (<statuses that admit the event>), once for each type.

    :raises MigrationConflict: the status of one does not admit the event; the transaction is rolled back, as others may be written.
    """
    c = migrations.c
    for migration_type in sorted({r.migration_type for r in rows}):
        following = event.statuses(migration_type)
        ids = sorted({r.id for r in rows if r.migration_type == migration_type})
        condition = (bulk.among(tx, c.id, ids), c.status.in_(sorted(following)))
        if not following:  # no status of this type
            raise _conflict(tx, ids, event, ())
        update = (
            migrations.update().where(*condition).values(status=sa.case(following, value=c.status), updated_at=tx.now)
        )
        if tx.execute(update).rowcount != len(ids):
            raise _conflict(tx, ids, event, set(following.values()))


def _conflict(tx: Transaction, ids: t.Sequence[int], event: Event, following: t.Collection[str]) -> MigrationConflict:
    """Name a move that apply() has not written. :arg following: the statuses that it writes"""
    rows = tx.rows(sa.select(migrations).where(bulk.among(tx, migrations.c.id, ids)).order_by(migrations.c.id), MoveRow)
    unwritten = [r for r in rows if r.updated_at != tx.now or r.status not in following]
    for row in unwritten or rows:
        return event.conflict(row.status, row.id, row.instance_uuid)
    return event.conflict("deleted", ids[0])


def set_requests(tx: Transaction, move_id: int, old: int, new: int) -> None:
    """Write the requests of the instance before and after this move: fields of both have changed."""
    condition = migrations.c.id == move_id
    tx.execute(migrations.update().where(condition).values(old_request_spec_id=old, new_request_spec_id=new))


def set_progress(tx: Transaction, progress_by_uuid: t.Mapping[str, tuple[int, Progress]]) -> None:
    """Write how far the live migrations of this run are. :arg progress_by_uuid: instance's uuid -> per cent, and bytes"""
    c = migrations.c
    for uuid, (percent, progress) in sorted(progress_by_uuid.items()):
        running_move = (c.instance_uuid == uuid, c.status == moves.RUNNING, c.run_id == tx.run.id)
        values = {**dataclasses.asdict(progress), "progress": percent, "updated_at": tx.now}
        tx.execute(migrations.update().where(*running_move).values(**values))
