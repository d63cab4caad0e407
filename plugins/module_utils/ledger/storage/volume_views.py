# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes, snapshots and backends as plain data for people and playbooks, without secrets."""

from __future__ import annotations

import typing as t

from ...core.times import utc
from ...core.volumes import states
from ...core.volumes.drivers.registry import driver_of
from ..compute.history import LastFault
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instances
from ..schema.volume_tables import volume_attachments
from ..schema.volume_tables import volumes as volumes_table
from . import backends as storage_backends
from . import snapshots as snapshot_rows
from . import volume_history
from . import volumes as volume_rows

_FAILED = tuple(status for status in states.VOLUME_STATES if status.startswith(states.ERROR))
# Most of a row is the request; only the image's name of it is shown.
_NOT_SHOWN = ("spec", "digest", "retry")


class _ShownVolume(volume_rows.VolumeRow):
    """The row of a volume without what is not shown."""

    image_name: str | None


def volumes(tx: Transaction, **selection: t.Any) -> list[dict[str, t.Any]]:
    """One dictionary for each live volume, by project and name. :arg selection: see ledger.storage.volumes.select()."""
    image_name = volumes_table.c.spec["image"]["name"].as_string().label("image_name")
    columns = [c for c in volumes_table.c if c.name not in _NOT_SHOWN]
    rows = t.cast("list[_ShownVolume]", volume_rows.select(tx, columns=[*columns, image_name], **selection))
    if not rows:
        return []
    ids = [r.id for r in rows]
    faults = volume_history.last_faults(tx, ids)
    attached = _attachments(tx, ids)
    shown = [_volume(r, faults.get(r.id), attached.get(r.id, [])) for r in rows]
    return sorted(shown, key=lambda v: (v["project"], v["name"], v["id"]))


def _volume(row: _ShownVolume, fault: LastFault | None, attached: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "name": row.name or "",
        "project": row.project,
        "user": row.user_name,
        "description": row.description,
        "status": row.status,
        "attach_status": row.attach_status,
        "size": row.size,
        "new_size": row.new_size,
        "volume_type": row.volume_type,
        "bootable": row.bootable,
        "multiattach": row.multiattach,
        "availability_zone": row.availability_zone,
        "pool_host": row.pool_host,
        "host": volume_rows.host_of(row.pool_host) if row.pool_host else None,
        "source": _source(row),
        "snapshot_id": row.snapshot_id,
        "source_volid": row.source_volid,
        "image_id": row.image_id,
        "metadata": dict(row.meta),
        "image_metadata": dict(row.image_metadata),
        "attached_to": attached,
        "instance_uuids": list(dict.fromkeys(a["instance_uuid"] for a in attached)),
        "created_at": utc(row.created_at),
        "updated_at": utc(row.updated_at),
        "launched_at": utc(row.launched_at),
        "fault": _fault(fault) if row.status in _FAILED else None,
        "tried": volume_history.attempts(fault),
    }


def _source(row: _ShownVolume) -> str:
    if row.image_id:
        return "image %s" % (row.image_id if row.image_name is None else row.image_name)
    if row.snapshot_id:
        return "snapshot %s" % row.snapshot_id
    return "volume %s" % row.source_volid if row.source_volid else ""


def _fault(fault: LastFault | None) -> dict[str, t.Any] | None:
    if fault is None:
        return None
    shown = {k: v for k, v in fault.items() if k in ("code", "status", "message", "remedy", "host")}
    return {**shown, "created_at": utc(fault["created_at"])}


def _attachments(tx: Transaction, ids: t.Sequence[str]) -> dict[str, list[dict[str, t.Any]]]:
    a = volume_attachments.c
    query = (
        sa.select(volume_attachments, instances.c.display_name)
        .outerjoin(instances, instances.c.uuid == a.instance_uuid)
        .where(a.deleted == volume_rows.LIVE, bulk.among(tx, a.volume_id, ids))
        .order_by(a.volume_id, a.created_at, a.id)
    )
    attachments_by_volume: dict[str, list[dict[str, t.Any]]] = {}
    for row in tx.execute(query):
        attachments_by_volume.setdefault(row.volume_id, []).append(
            {
                "attachment_id": row.id,
                "instance": row.display_name,
                "instance_uuid": row.instance_uuid,
                "device": row.mountpoint,
                "host": row.attached_host,
                "mode": row.attach_mode,
                "attach_status": row.attach_status,
                "delete_on_termination": row.delete_on_termination,
                "attached_at": utc(row.attached_at),
            }
        )
    return attachments_by_volume


def snapshots(tx: Transaction, deleted: bool = False, **selection: t.Any) -> list[dict[str, t.Any]]:
    """One dictionary for each live snapshot, by project and name. :arg selection: see ledger.storage.snapshots.select().

    :arg deleted: include deleted ones; only with ``ids``.
    """
    if deleted:
        rows = snapshot_rows.with_deleted(tx, selection["ids"])
    else:
        rows = snapshot_rows.select(tx, **selection)
    if not rows:
        return []
    v = volumes_table.c
    volume_query = sa.select(v.id, v.name, v.pool_host).where(bulk.among(tx, v.id, sorted({r.volume_id for r in rows})))
    known = {r.id: r for r in tx.execute(volume_query)}
    faults = volume_history.last_faults(tx, [r.id for r in rows], snapshots=True)
    shown = [
        {
            "id": r.id,
            "name": r.name or "",
            "project": r.project,
            "user": r.user_name,
            "description": r.description,
            "volume_id": r.volume_id,
            "volume_name": known[r.volume_id].name or "",
            "volume_type": r.volume_type,
            "size": r.volume_size,
            "status": r.status,
            "pool_host": known[r.volume_id].pool_host,
            "metadata": dict(r.meta),
            "created_at": utc(r.created_at),
            "updated_at": utc(r.updated_at),
            "fault": _fault(faults.get(r.id)) if r.status in _FAILED else None,
        }
        for r in rows
    ]
    return sorted(shown, key=lambda s: (s["project"], s["name"], s["id"]))


def backends(tx: Transaction) -> list[dict[str, t.Any]]:
    """One dictionary for each backend, by pool_host: its report, and the GB promised since. Sizes are GB."""
    promised_by_pool = storage_backends.promised(tx)
    views = []
    for row in storage_backends.rows_of(tx):
        promised = promised_by_pool.get(row.pool_host, storage_backends.Promised())
        configuration, reported = row.configuration, storage_backends.reported(row)
        views.append(
            {
                "pool_host": row.pool_host,
                "host": row.host,
                "backend": row.backend,
                "pool": row.pool,
                "availability_zone": row.availability_zone,
                "provisioning": configuration.get("provisioning"),
                "volume_group": driver_of(configuration).place(configuration),
                "medium": configuration.get("medium") or "",
                "disabled": row.disabled,
                "frozen": row.frozen,
                "total_gb": reported.total_gb,
                "free_gb": reported.free_gb,
                "provisioned_gb": reported.provisioned_gb,
                "allocated_gb": promised.allocated,
                "pending_gb": promised.pending,
                "volume_count": promised.volumes,
                "data_percent": reported.report.get("data_percent"),
                "metadata_percent": reported.report.get("metadata_percent"),
                "orphans": [o["name"] for o in reported.report.get("orphans") or ()],
                "reported_at": utc(row.reported_at),
                "error": reported.error,
            }
        )
    return views
