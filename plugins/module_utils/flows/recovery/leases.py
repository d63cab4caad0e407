# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs whose lease is out still hold goes back, without waiting for an audit: every boot looks for it.

The time is bootflow_lease_seconds.
"""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...ledger.compute import instances
from ...ledger.context import Context
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import instances as instances_table
from ...ledger.schema.tables import runs as runs_table
from ...ledger.storage import attachments, volumes
from ..boot import failure
from . import audit, volume_leases

OUT = "its run's lease is out"


def give_back(conn: t.Any, context: Context) -> list[str]:
    """End the builds of runs whose lease is out, but not those that this run took over. Returns their hosts.

    Such an instance ends in ERROR with a fault that names the run. Its claim and addresses go back when its host has been
    cleaned (cleanups), which the boot does before it schedules. Volumes that such a run was making, and those it was attaching
    or detaching, go back with it.
    """
    c = instances_table.c
    query = (
        sa.select(c.uuid, c.run_id)
        .join(runs_table, runs_table.c.id == c.run_id)
        .where(
            c.deleted == instances.LIVE,
            c.vm_state == states.BUILDING,
            c.run_id != context.run.id,
            runs_table.c.lease_until <= context.now,
            sa.or_(c.task_state.is_(None), c.task_state != states.DELETING),
        )
    )
    died: dict[str, str] = {r.uuid: r.run_id for r in conn.execute(query)}
    left = volume_leases.left(conn, context, instance_uuids=died)
    if not died and not left:
        return []
    rows = instances.select_live(conn, uuids=sorted(died), lock=True) if died else []
    rows = [r for r in rows if r.run_id == died[r.uuid] and r.vm_state == states.BUILDING]
    cables = attachments.of_instances(conn, [r.uuid for r in rows])
    ids = left.volume_ids | {a.volume_id for group in cables.values() for a in group}
    if ids:
        volumes.select(conn, ids=sorted(ids), lock=True)  # all of them, before any node is
    for row in rows:
        conn.execute(instances_table.update().where(c.uuid == row.uuid).values(run_id=context.run.id))
    by_host: dict[str, list[str]] = {}
    for row in rows:
        if row.host is None:
            failure.end_in_error(conn, [row], audit.died_error(row.uuid, died), None, context)
        else:
            by_host.setdefault(row.host, []).append(row.uuid)
    for host, uuids in sorted(by_host.items()):
        failed = {u: failure.Failed(audit.died_error(u, died), cleaned=False, cleanup_reason=OUT) for u in uuids}
        audit.end_builds(conn, host, failed, context)
    volume_leases.give_back(conn, left, context)
    return sorted(by_host)
