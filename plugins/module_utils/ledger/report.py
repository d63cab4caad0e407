# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows that only the report reads: claims with the names of their instances, the actions and steps of a run, instances in ERROR."""

from __future__ import annotations

import typing as t

from ..core.instances import states
from .compute.instances import LIVE
from .db.sqlalchemy_import import sa
from .db.transaction import Transaction
from .fast import bulk
from .schema.tables import claims, instance_action_events, instance_actions, instances, notifications

CREATE = "create"  # the action of a boot
BUILD_INSTANCES = "compute_task.build_instances"  # the notification of a build that found no host


class NamedClaim:
    """A claim with fields of its instance. Memory is MB, disk GB."""

    compute_node_id: int
    kind: str
    memory_mb: int
    vcpus: int
    disk_gb: int
    uuid: str
    display_name: str
    project: str
    vm_state: str


class NamedAction:
    """An action on an instance, with the name that the instance has; None: it was purged. Times are seconds since the epoch."""

    instance_uuid: str
    action: str
    project: str
    user_name: str
    start_time: float
    finish_time: float | None
    message: str | None
    display_name: str | None


class Step:
    """A row of instance_action_events, as far as the report reads it. Times are seconds since the epoch."""

    id: int
    instance_uuid: str
    event: str
    host: str | None
    start_time: float
    finish_time: float | None
    result: str | None
    details: str | None


class FailedInstance:
    """An instance in ERROR."""

    uuid: str
    display_name: str


def named_claims(tx: Transaction) -> list[NamedClaim]:
    """Return all claims, by node, name and uuid of the instance."""
    k, i = claims.c, instances.c
    query = sa.select(
        *(k.compute_node_id, k.kind, k.memory_mb, k.vcpus, k.disk_gb), i.uuid, i.display_name, i.project, i.vm_state
    ).join(instances, i.uuid == k.instance_uuid)
    rows = tx.rows(query, NamedClaim)
    return sorted(rows, key=lambda row: (row.compute_node_id, row.display_name, row.uuid, row.kind))


def newest_boot(tx: Transaction) -> str | None:
    """Return the request id of the newest run that built instances; None: there was none."""
    c = instance_actions.c
    newest = sa.select(c.request_id).where(c.action == CREATE).order_by(c.id.desc()).limit(1)
    return tx.execute(newest).scalar()


def actions_of_run(tx: Transaction, request_id: str) -> list[NamedAction]:
    """Return the actions of a run in their order."""
    c, i = instance_actions.c, instances.c
    columns = (c.instance_uuid, c.action, c.project, c.user_name, c.start_time, c.finish_time, c.message)
    joined = instance_actions.outerjoin(instances, i.uuid == c.instance_uuid)
    query = sa.select(*columns, i.display_name).select_from(joined).where(c.request_id == request_id)
    return tx.rows(query.order_by(c.id), NamedAction)


def steps_since(tx: Transaction, uuids: t.Sequence[str], begin: float) -> dict[str, list[Step]]:
    """Return uuid -> the steps of the instance that began at ``begin`` or later, in their order."""
    c = instance_action_events.c
    columns = (c.id, c.instance_uuid, c.event, c.host, c.start_time, c.finish_time, c.result, c.details)
    query = sa.select(*columns).where(bulk.among(tx, c.instance_uuid, uuids), c.start_time >= begin)
    steps: dict[str, list[Step]] = {}
    for row in tx.rows(query.order_by(c.start_time, c.id), Step) if uuids else ():
        steps.setdefault(row.instance_uuid, []).append(row)
    return steps


def failed_instances(tx: Transaction) -> list[FailedInstance]:
    """Return the instances in ERROR, by name."""
    c = instances.c
    query = sa.select(c.uuid, c.display_name).where(c.deleted == LIVE, c.vm_state == states.ERROR)
    return tx.rows(query.order_by(c.display_name, c.uuid), FailedInstance)


def explanations(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, t.Mapping[str, t.Any]]:
    """Return uuid -> the payload of the newest notification of a build that found no host."""
    c = notifications.c
    conditions = (bulk.among(tx, c.instance_uuid, uuids), c.event_type == BUILD_INSTANCES)
    query = sa.select(c.instance_uuid, c.payload).where(*conditions).order_by(c.id)
    return {row.instance_uuid: row.payload for row in tx.execute(query)} if uuids else {}
