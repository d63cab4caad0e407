# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deleting instances from any state, half-built ones too, and never leaving anything of them.

A delete may begin in any vm_state and any task_state, as in Nova.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import states
from ...ledger.compute import claims, cleanups, history, instances, ports, runs
from ...ledger.context import Context
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import block_device_mappings
from ...ledger.schema.tables import instances as instances_table
from ...ledger.storage import attachments


@dataclass
class Deleting:
    rows: list[t.Any] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # hosts to be rid of something


def begin(
    conn: t.Any,
    context: Context,
    names: t.Sequence[str] | None = None,
    uuids: t.Sequence[str] | None = None,
    reservations: t.Sequence[str] | None = None,
    project: str | None = None,
    everything: bool = False,
) -> Deleting:
    """Mark what is to go as deleting and tell which hosts have a part in it. What is not there is no error.

    :raises InvalidInput: nothing says which instances, or a name is in several projects and none is given.
    :raises InstanceBusy: a live run is deleting one of them.
    """
    if names is None and uuids is None and reservations is None and not (project is not None and everything):
        raise errors.InvalidInput(
            reason="nothing says which instances to delete",
            remedy="Give names, uuids or a reservation id; for a whole project also bootflow_delete_all: true.",
        )
    now = context.now
    runs.renew(conn, context.run, now, context.lease_seconds)
    rows = instances.select_live(conn, names=names, uuids=uuids, reservations=reservations, project=project, lock=True)
    if project is None and uuids is None:
        _refuse_ambiguous(rows, names or ())
    dead = runs.dead_among(conn, [r.run_id for r in rows], context.run, now)
    for row in rows:
        mine = row.run_id in (None, context.run.id)
        if row.task_state == states.DELETING and not mine and row.run_id not in dead:
            raise runs.locked_error(conn, row.display_name, row.run_id)
    found = [r.uuid for r in rows]
    instances.swap(
        conn,
        found,
        sorted({r.task_state for r in rows}, key=str),
        now,
        None,
        context.notify_on_state_change,
        task_state=states.DELETING,
        run_id=context.run.id,
    )
    for owner in sorted({r.project for r in rows}):
        begun = [r.uuid for r in rows if r.project == owner and r.task_state != states.DELETING]
        history.start_actions(conn, begun, "delete", context.request_id, owner, context.actor, now)
    history.notify(conn, found, "compute.instance.delete.start", {}, now)
    attachments.let_go(conn, found, context)
    hosts = {r.host for r in rows if r.host is not None} | {c.host for c in cleanups.of_instances(conn, found)}
    return Deleting(rows=rows, hosts=sorted(hosts))


def _refuse_ambiguous(rows: t.Sequence[t.Any], names: t.Collection[str]) -> None:
    projects: dict[str, set[str]] = {}
    for row in rows:
        if row.display_name in names:
            projects.setdefault(row.display_name, set()).add(row.project)
    several = {name: sorted(found) for name, found in projects.items() if len(found) > 1}
    if several:
        raise errors.InvalidInput(
            reason="; ".join("%s is in the projects %s" % (n, ", ".join(p)) for n, p in sorted(several.items())),
            remedy="Say which with bootflow_project, or give the UUID.",
        )


def of_host(conn: t.Any, host: str, context: Context) -> list[dict[str, str]]:
    """What this run has to remove on ``host``: [{uuid, name}]."""
    rows = instances.select_live(conn, run_id=context.run.id, host=host, task_state=states.DELETING)
    wanted = {r.uuid: r.domain_name for r in rows}
    wanted.update({c.instance_uuid: c.domain_name for c in cleanups.of_host(conn, host)})
    return [{"uuid": u, "name": n} for u, n in sorted(wanted.items())]


def host_done(conn: t.Any, host: str, uuids: t.Sequence[str], context: Context) -> None:
    """``host`` is rid of these instances: their claims on it go back."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    instances.select_live(conn, uuids=uuids, lock=True)
    attachments.host_clean(conn, host, uuids)
    cleanups.done(conn, host, uuids)
    c = instances_table.c
    for part in history.chunks(list(uuids)):
        conn.execute(
            instances_table.update()
            .where(c.uuid.in_(part), c.host == host, c.task_state == states.DELETING)
            .values(host=None, node=None)
        )
    now = context.now
    history.start_events(conn, uuids, "delete", host, now)
    history.finish_events(conn, uuids, "delete", history.SUCCESS, now)


def host_failed(conn: t.Any, host: str, failed: t.Mapping[str, errors.BootflowError], context: Context) -> None:
    """``host`` could not be rid of these: they stay in task_state deleting, with a fault."""
    now = context.now
    for uuid, error in failed.items():
        history.add_fault(conn, uuid, error, host, now)
        history.start_events(conn, [uuid], "delete", host, now)
        history.finish_events(conn, [uuid], "delete", history.ERROR, now, error.message)


def finish(conn: t.Any, context: Context, force: bool = False) -> tuple[list[str], list[dict[str, t.Any]]]:
    """Forget the instances that no host has anything of any more, compute host or storage host.

    :arg force: forget also those whose host did not answer; the host is cleaned when it reports again, and until then
        their claim, their addresses and their volumes stay taken.
    Returns (names deleted, what is left: {name, uuid, host, fault}).
    """
    now = context.now
    rows = instances.select_live(conn, run_id=context.run.id, task_state=states.DELETING, lock=True)
    waiting: dict[str, list[str]] = {r.uuid: [r.host] for r in rows if r.host is not None}
    for cleanup in cleanups.of_instances(conn, [r.uuid for r in rows]):
        waiting.setdefault(cleanup.instance_uuid, []).append(cleanup.host)
    exported = attachments.of_instances(conn, [r.uuid for r in rows])
    faults = history.last_faults(conn, sorted(waiting))
    gone, left = [], []
    for row in rows:
        if (row.uuid in waiting or row.uuid in exported) and not force:
            volumes = exported.get(row.uuid, [])
            left.append(
                {
                    "name": row.display_name,
                    "uuid": row.uuid,
                    "host": [*waiting.get(row.uuid, ()), *(a.storage_host or a.attached_host for a in volumes)][0],
                    "fault": faults.get(row.uuid) or attachments.last_fault(conn, [a.volume_id for a in volumes]),
                }
            )
            continue
        for host in waiting.get(row.uuid, ()):
            cleanups.add(conn, host, row.uuid, row.domain_name, "deleted by force while the host did not answer", now)
            ports.hold(conn, row.uuid, host)
        gone.append(row)
    uuids = [r.uuid for r in gone]
    attachments.leave_to_others(conn, uuids)
    ports.release(conn, uuids)
    claims.release(conn, [u for u in uuids if u not in waiting])
    c = instances_table.c
    for part in history.chunks(uuids):
        conn.execute(block_device_mappings.delete().where(block_device_mappings.c.instance_uuid.in_(part)))
        conn.execute(
            instances_table.update()
            .where(c.uuid.in_(part))
            .values(
                deleted=sa.cast(c.uuid, sa.String),
                deleted_at=now,
                vm_state=states.DELETED,
                task_state=None,
                power_state=states.NOSTATE,
                host=None,
                node=None,
            )
        )
    history.finish_actions(conn, uuids, "create", now, "Error")  # those that were deleted while they were built
    history.finish_actions(conn, uuids, "delete", now)
    history.notify(conn, uuids, "compute.instance.delete.end", {}, now)
    return [r.display_name for r in gone], left
