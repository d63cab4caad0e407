# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attachments and the compute hosts of their instances: those that do not know theirs yet, and those that share it.

An instance's host is told apart from scheduling, whose transaction has locked nodes: no volume is locked after them. A run that is killed in between
leaves nothing wrong: the next one finds them here again.
"""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...core.volumes import names
from ...core.volumes import states as volume_states
from ...ledger.compute import nodes, runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import instances, volume_attachments, volumes
from ...ledger.schema.volume_tables import NOTHING
from ...ledger.storage import attachments
from ...ledger.storage.volumes import host_of

Ends = t.Callable[[str, t.Mapping[str, t.Any]], attachments.HostEnd]  # host, the facts of its node


def waiting(conn: t.Any, context: Context) -> dict[str, tuple[str, str]]:
    """uuid -> (host, node) of this run's instances whose volumes are to be exported for another host than they say."""
    a, i = volume_attachments.c, instances.c
    query = (
        sa.select(i.uuid, i.host, i.node)
        .join(volume_attachments, a.instance_uuid == i.uuid)
        .where(
            a.run_id == context.run.id,
            a.deleted == attachments.LIVE,
            a.attach_status.not_in((volume_states.ATTACHED, volume_states.DETACHED)),
            i.run_id == context.run.id,
            i.host.is_not(None),
            sa.or_(a.attached_host.is_(None), a.attached_host != i.host),
        )
        .distinct()
    )
    return {r.uuid: (r.host, r.node) for r in conn.execute(query.order_by(i.uuid))}


def place(conn: t.Any, ends: Ends, context: Context) -> list[str]:
    """Tell them. Returns the instances.

    :arg ends: gives a host's end of its attachments.
    """
    found = waiting(conn, context)
    if not found:
        return []
    known = {where: ends(where[0], nodes.node_facts(conn, *where)) for where in sorted(set(found.values()))}
    attachments.place(conn, {uuid: known[where] for uuid, where in found.items()}, context)
    return sorted(found)


def storage_hosts(conn: t.Any, uuids: t.Sequence[str]) -> list[str]:
    """Where the volumes of these instances are that are placed already."""
    a, v = volume_attachments.c, volumes.c
    query = (
        sa.select(v.pool_host)
        .join(volume_attachments, a.volume_id == v.id)
        .where(bulk.among(conn, a.instance_uuid, uuids), a.deleted == attachments.LIVE, v.pool_host.is_not(None))
        .distinct()
    )
    return sorted({host_of(p) for p in conn.execute(query).scalars()}) if uuids else []


def shared_on(conn: t.Any, host: str, volume_ids: t.Sequence[str], uuids: t.Sequence[str]) -> set[str]:
    """Those of the volumes that other instances than these have on ``host``, too: the disk there is theirs as well.

    Not where each guest logs in by itself. source: Nova's _should_disconnect_target
    """
    a = volume_attachments.c
    query = sa.select(a.id, a.volume_id, a.instance_uuid, a.initiator).where(
        bulk.among(conn, a.volume_id, sorted(set(volume_ids))),
        a.deleted == attachments.LIVE,
        a.attached_host == host,
        a.connection != NOTHING,
    )
    others = [r for r in conn.execute(query) if r.instance_uuid not in set(uuids)] if volume_ids else []
    return {r.volume_id for r in others if r.initiator != names.attachment_initiator(r.id)}


def give_back(conn: t.Any, context: Context) -> list[str]:
    """What this run was to attach to instances that are there, and could not: it is to end, its export with it.

    Before the storage hosts are asked once more, so that a run that failed leaves nothing. Returns the volumes.
    """
    a, i = volume_attachments.c, instances.c
    query = (
        sa.select(a.id)
        .join(instances, a.instance_uuid == i.uuid)
        .where(
            a.run_id == context.run.id,
            a.deleted == attachments.LIVE,
            a.attach_status.not_in((volume_states.ATTACHED, volume_states.DETACHED)),
            i.vm_state.not_in((states.BUILDING, states.ERROR)),
        )
    )
    rows = attachments.locked_by_ids(conn, conn.execute(query).scalars().all(), context)
    attachments.forget(conn, rows)
    attachments.end_idle(conn, [r.id for r in rows], context)
    return sorted({str(r.volume_id) for r in rows})


def take_leftovers(conn: t.Any, words: t.Collection[str], context: Context) -> list[t.Any]:
    """Attachments of these volumes (names or ids) that were to end, and whose hosts did not answer then: this run's now.

    Without it a volume that could not be attached because a host was away could not be attached when that is back.
    """
    a, v = volume_attachments.c, volumes.c
    named = sorted({str(word) for word in words})
    query = (
        sa.select(a.id, a.run_id)
        .join(volumes, v.id == a.volume_id)
        .where(
            a.deleted == attachments.LIVE,
            a.attach_status == volume_states.DETACHED,
            sa.or_(bulk.among(conn, v.id, named), bulk.among(conn, v.name, named)),
        )
    )
    found = {r.id: r.run_id for r in conn.execute(query)} if named else {}
    if not found:
        return []
    dead = runs.dead_among(conn, {r for r in found.values() if r}, context.run, context.now)
    free = [i for i, run_id in found.items() if run_id in (None, context.run.id) or run_id in dead]
    rows = [r for r in attachments.locked_by_ids(conn, free) if r.run_id == found[r.id]]
    mine = bulk.among(conn, a.id, [r.id for r in rows])
    conn.execute(volume_attachments.update().where(mine).values(run_id=context.run.id))
    return rows
