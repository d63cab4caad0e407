# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of instances' volumes: begun, done by the hosts, finished; abandoned when a run ended.

The beginning is journaled with the attachment (volume_events), so that the end can be reported whatever happened in between.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.instances import states
from ...core.volumes import attachment
from ...core.volumes import states as volume_states
from ...core.volumes.attachment import ON_THE_WAY
from ...core.volumes.pool_hosts import extract_host
from ...ledger.compute import history, instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachments import Attachment
from . import life


@dataclass
class Begun:
    """``rows``: attachments on the way; ``unchanged``: names of volumes that match the request."""

    rows: list[Attachment] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    storage_hosts: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # compute hosts


def resume(tx: Transaction, rows: t.Sequence[Attachment]) -> list[Attachment]:
    """Continue these in this run."""
    half = [r for r in rows if r.attach_status in ON_THE_WAY]
    others = [r for r in rows if r.attach_status not in ON_THE_WAY]
    attachments.take_ownership(tx, [r.id for r in others])
    return [*attachments.apply(tx, half, attachment.RESUME, run_id=tx.run.id), *others]


def begin(tx: Transaction, begun: Begun, ids: t.Sequence[str], event: str) -> Begun:
    """Journal the beginning, and collect the hosts involved."""
    begun.rows = _of_ids(tx, ids)
    volume_ids = sorted({r.volume_id for r in begun.rows})
    pool_hosts = {v.id: v.pool_host for v in volumes.select(tx, ids=volume_ids)} if volume_ids else {}
    begun.hosts = sorted({r.attached_host for r in begun.rows if r.attached_host})
    begun.storage_hosts = sorted({extract_host(p, "host") for p in pool_hosts.values() if p})
    volume_history.start_changes(tx, begun.rows, event)
    guests = {r.instance_uuid for r in begun.rows}
    rows = instances.select_live(tx, uuids=sorted(guests)) if guests else []
    for project in sorted({r.project for r in rows}):
        mine = [r.uuid for r in rows if r.project == project]
        history.start_actions(tx, mine, event, tx.request_id, project, tx.actor)
    return begun


def finish(
    tx: Transaction, event: str, is_done: t.Callable[[Attachment], bool]
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]], list[Attachment]]:
    """The results of what this run began: (done, left with their errors, the attachments)."""
    runs.renew(tx)
    events = volume_history.open_changes(tx, event)
    attachments.select(tx, ids=events, lock=True)
    rows = _of_ids(tx, sorted(events))
    ids = sorted({r.volume_id for r in rows})
    names = volumes.names(tx, ids)
    uuids = sorted({r.instance_uuid for r in rows})
    guests = {r.uuid: r.display_name for r in instances.select_live(tx, uuids=uuids)} if uuids else {}
    faults = volume_history.last_faults(tx, ids) if ids else {}
    done, left = [], []
    results = {}
    failed = set()  # instances with at least one failed volume
    for row in rows:
        begun = events[row.id]
        reported: dict[str, t.Any] = {
            "volume": names.get(row.volume_id) or row.volume_id,
            "volume_id": row.volume_id,
            "instance": guests.get(row.instance_uuid, row.instance_uuid),
            "instance_uuid": row.instance_uuid,
            "device": row.mountpoint,
            "host": row.attached_host,
        }
        fault = faults.get(row.volume_id)
        good = is_done(row)
        if good:
            done.append(reported)
        else:
            recent = fault is not None and fault["created_at"] >= begun.start_time
            left.append({**reported, "error": history.shown_fault(fault) if recent else None})
            failed.add(row.instance_uuid)
        results[begun.id] = volume_history.SUCCESS if good else volume_history.ERROR
    volume_history.finish_changes(tx, results)
    history.finish_actions(tx, [u for u in uuids if u not in failed], event)
    history.finish_actions(tx, sorted(failed), event, "Error")
    return done, left, rows


def _of_ids(tx: Transaction, ids: t.Collection[str]) -> list[Attachment]:
    """Attachments, live or ended, by id."""
    rows = attachments.select(tx, ids=ids, ended=True) if ids else []
    return sorted(rows, key=lambda r: r.id)


def of_host(tx: Transaction, host: str, *attach_statuses: str) -> list[Attachment]:
    """This run's attachments on a compute host in one of these statuses.

    Without those of instances that are being built or deleted, or whose build ended in ERROR.
    """
    rows = attachments.select(tx, attached_host=host, run_id=tx.run.id, attach_statuses=attach_statuses)
    living = _settled(tx, rows)
    return sorted((r for r in rows if r.instance_uuid in living), key=lambda r: (r.instance_uuid, r.id))


def _settled(tx: Transaction, rows: t.Sequence[Attachment]) -> set[str]:
    """The instances that are neither being built nor deleted, and whose build did not end in ERROR."""
    uuids = sorted({r.instance_uuid for r in rows})
    living = instances.select_live(tx, uuids=uuids) if uuids else []
    return {
        r.uuid for r in living if r.vm_state not in (states.BUILDING, states.ERROR) and r.task_state != states.DELETING
    }


# --- rolling back ---------------------------------------------------------------------------------------------------


def roll_back_detach(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """Return these to in-use instead of detaching them."""
    transition = volume_states.roll_detaching()
    ids = sorted({r.volume_id for r in rows})
    if ids:
        volumes.swap(tx, ids, transition.expected, **transition.values)
    attachments.release_ownership(tx, [r.id for r in rows])


def abandon_attach(tx: Transaction) -> list[str]:
    """End this run's unfinished attachments to existing instances, and their exports. Returns the volumes.

    Called before the storage hosts are asked again, so that a failed run leaves nothing behind.
    """
    rows = attachments.not_attached(tx)
    life.end_alone(tx, rows)
    return sorted({r.volume_id for r in rows})


def adopt_stale_detachments(tx: Transaction, words: t.Collection[str]) -> list[Attachment]:
    """Adopt attachments of these volumes (names or ids) that are to end and whose hosts did not answer before.

    Otherwise a volume whose attachment failed because of a host could not be attached when the host is back.
    """
    rows = attachments.stale_detachments(tx, words)
    attachments.take_ownership(tx, [r.id for r in rows])
    return rows


def begun_by_others(tx: Transaction) -> list[Attachment]:
    """Attachments that other runs, dead or live, began to create or to end for existing instances."""
    rows = attachments.of_other_runs(tx)
    living = _settled(tx, rows)
    return [r for r in rows if r.instance_uuid in living]


def expire(tx: Transaction, rows: t.Sequence[Attachment]) -> None:
    """Settle attachments of ended runs: half attached ones end, half detached ones are in-use again."""
    before = {r.id: r.run_id for r in rows}
    if not before:
        return
    locked = [r for r in attachments.select(tx, ids=before, lock=True) if r.run_id == before[r.id]]
    locked = resume(tx, locked)
    life.end_alone(tx, [r for r in locked if r.attach_status in ON_THE_WAY])
    roll_back_detach(tx, [r for r in locked if r.attach_status == volume_states.ATTACHED])
    attachments.release_ownership(tx, [r.id for r in locked])
