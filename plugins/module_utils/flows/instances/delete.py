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
from ...ledger.storage import attachments
from ..attachments import life
from . import cleanup, operation
from .operation import Operation, Selection

DELETE = Operation("delete", "delete")


@dataclass
class Deleting:
    rows: list[t.Any] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # hosts to be rid of something


def begin(conn: t.Any, context: Context, selection: Selection) -> Deleting:
    """Mark the selected instances as deleting, with the hosts that have something of them. One that is not there is no error.

    :raises InvalidInput: nothing says which instances, or a name is in several projects and none is given.
    :raises InstanceBusy: a live run is deleting one of them.
    """
    rows = operation.select(conn, selection, context, everything="bootflow_delete_all")
    operation.enter(conn, DELETE, rows, context)
    found = [r.uuid for r in rows]
    life.end_with_instances(conn, found, context)
    hosts = {r.host for r in rows if r.host is not None} | {c.host for c in cleanups.of_instances(conn, found)}
    return Deleting(rows=rows, hosts=sorted(hosts))


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
    cleanup.finish(conn, host, uuids)
    instances.leave_host(conn, host, uuids, states.DELETING)
    now = context.now
    history.start_events(conn, uuids, DELETE.name, host, now)
    history.finish_events(conn, uuids, DELETE.name, history.SUCCESS, now)


def host_failed(conn: t.Any, host: str, failed: t.Mapping[str, errors.BootflowError], context: Context) -> None:
    """``host`` could not be rid of these: they stay in task_state deleting, with a fault."""
    now, hosts = context.now, dict.fromkeys(failed, host)
    history.add_faults(conn, failed, hosts, now)
    history.start_events_on(conn, hosts, DELETE.name, now)
    history.fail_events(conn, {u: e.message for u, e in failed.items()}, DELETE.name, now)


def finish(conn: t.Any, context: Context, force: bool = False) -> tuple[list[str], list[dict[str, t.Any]]]:
    """Forget the instances that no host has anything of any more, compute host or storage host.

    :arg force: forget also those whose host did not answer; the host is cleaned when it reports again, and until then
        their claim, their addresses and their volumes stay taken.
    Returns (names deleted, what is left: {name, uuid, host, fault}).
    """
    now = context.now
    rows = instances.select_live(conn, run_id=context.run.id, task_state=states.DELETING, lock=True)
    waiting: dict[str, list[str]] = {r.uuid: [r.host] for r in rows if r.host is not None}
    for due in cleanups.of_instances(conn, [r.uuid for r in rows]):
        waiting.setdefault(due.instance_uuid, []).append(due.host)
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
    life.release_instances(conn, uuids)
    ports.release(conn, uuids)
    claims.release(conn, [u for u in uuids if u not in waiting])
    instances.bury(conn, uuids, now)
    history.finish_actions(conn, uuids, "create", now, "Error")  # those that were deleted while they were built
    operation.close(conn, DELETE, uuids, now)
    return [r.display_name for r in gone], left
