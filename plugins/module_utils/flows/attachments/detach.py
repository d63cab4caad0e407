# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that instances lose while they live: begun here, done by the hosts, finished here.

source: Nova's compute API detach_volume (Queens)
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.instances import states
from ...core.reading.problems import Problems
from ...core.volumes import attach_rules
from ...core.volumes import states as volume_states
from ...ledger.compute import instances, runs
from ...ledger.context import Context
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import volume_attachments
from ...ledger.schema.volume_tables import NOTHING
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachment_rows import ON_THE_WAY, check_locked
from . import changes, requests
from .changes import Begun
from .requests import Wish

DETACH = "detach_volume"  # event, and Nova's action

_a = volume_attachments.c


def begin_detach(
    conn: t.Any, wishes: t.Sequence[t.Mapping[str, t.Any]], project: str | None, context: Context
) -> Begun:
    """Mark the volumes as detaching; what a dead run left half attached or half detached goes with them.

    :arg wishes: bootflow_attachments; ``instance`` is needed where a volume has several.
    :raises InvalidRequest: all that is wrong with all of them, with paths attachments[i]; nothing is written then.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    refusals = Problems()
    begun = Begun()
    chosen: list[t.Any] = []
    read = requests.read(conn, wishes, project, False, refusals)
    there = attachments.of_volumes(conn, [w.volume.id for w in read])
    guests = {
        r.uuid: r
        for r in instances.select_live(conn, uuids=sorted({a.instance_uuid for g in there.values() for a in g}))
    }
    disks = instances.disks_of(conn, sorted(guests))
    swaps = []
    for wish in read:
        with refusals.collect(wish.path):
            mine = there.get(wish.volume.id, [])
            if wish.guest is not None:
                mine = [a for a in mine if a.instance_uuid == wish.guest.uuid]
            if not mine:
                begun.unchanged.append(wish.volume.name or wish.volume.id)
                continue
            row, transition = _check_detach(conn, wish, mine, guests, disks, context)
            chosen.append(row)
            swaps.append((wish.volume, transition))
    refusals.raise_if_any()
    for volume, transition in swaps:
        if transition is not None:
            volumes.swap(conn, [volume.id], transition.expected, context.now, **transition.values)
    changes.take(conn, chosen, context)
    changes.let_go(conn, [r for r in chosen if r.attach_status in ON_THE_WAY], context)
    return changes.begin(conn, begun, [r.id for r in chosen], DETACH, context)


def _check_detach(
    conn: t.Any,
    wish: Wish,
    mine: t.Sequence[t.Any],
    guests: t.Mapping[str, t.Any],
    disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    context: Context,
) -> tuple[t.Any, volume_states.Transition | None]:
    check_locked(conn, wish.volume, mine, context)
    volume = volumes.to_volume(wish.volume)
    row = mine[0]
    transition = None
    if len(mine) > 1 or (row.attach_status == volume_states.ATTACHED and volume.status != volume_states.DETACHING):
        found = attach_rules.check_detach(
            volume,
            volumes.attachments_of(conn, [volume.id]).get(volume.id, []),
            wish.guest.uuid if wish.guest is not None else None,
        )
        transition = volume_states.check_begin_detaching(volume)
        row = next(a for a in mine if a.id == found.id)
    guest = guests.get(row.instance_uuid)
    if guest is None:
        return row, transition  # its instance is gone, by force: nobody misses it
    root = [d for d in disks[guest.uuid] if d.get("volume_id") == volume.id and d.get("boot_index") == 0]
    if root:
        raise errors.CannotDetachRootVolume()
    states.check_action(
        DETACH,
        guest.vm_state,
        guest.task_state,
        launched=guest.launched_at is not None,
        instance_uuid=guest.uuid,
    )
    return row, transition


def to_detach(conn: t.Any, host: str, context: Context) -> list[t.Any]:
    """Attachments of this run that ``host`` is to take from its guests and to disconnect; not those of its builds."""
    rows = changes.of_host(
        conn,
        host,
        context,
        sa.or_(
            _a.attach_status == volume_states.ATTACHED,
            sa.and_(_a.attach_status == volume_states.DETACHED, _a.connection != NOTHING),
        ),
    )
    settled = changes.settled(conn, rows)
    return [r for r in rows if r.instance_uuid in settled]


def detach_failed(conn: t.Any, failures: t.Mapping[str, errors.BootflowError], context: Context) -> None:
    """These could not be taken away: they are in use as before. {attachment id: why}"""
    rows = attachments.locked_by_ids(conn, failures, context)
    for row in rows:
        volume_history.add_fault(conn, row.volume_id, failures[row.id], row.attached_host, context.now)
    changes.roll_back(conn, [r for r in rows if r.attach_status == volume_states.ATTACHED], context)


def finish_detach(conn: t.Any, context: Context) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """What became of all that this run began: (detached, left with their errors). What no host was asked about is in use."""
    done, left, rows = changes.finish(conn, DETACH, lambda row: row.deleted != attachments.LIVE, context)
    live = [r for r in rows if r.deleted == attachments.LIVE]
    changes.roll_back(conn, [r for r in live if r.attach_status == volume_states.ATTACHED], context)
    attachments.leave_rows_to_others(conn, [r.id for r in live])
    return done, left
