# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block storage: backends, volumes, snapshots and attachments. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0003"

ATTACH_STATES = (
    "attached",
    "attaching",
    "detached",
    "error_attaching",
    "error_detaching",
    "reserved",
)
VOLUME_STATES = (
    "attaching",
    "available",
    "awaiting-transfer",
    "backing-up",
    "creating",
    "deleted",
    "deleting",
    "detaching",
    "downloading",
    "error",
    "error_attaching",
    "error_deleting",
    "error_detaching",
    "error_extending",
    "error_managing",
    "error_restoring",
    "extending",
    "in-use",
    "maintenance",
    "reserved",
    "restoring-backup",
    "retyping",
    "reverting",
    "uploading",
)
SNAPSHOT_STATES = (
    "available",
    "backing-up",
    "creating",
    "deleted",
    "deleting",
    "error",
    "error_deleting",
    "restoring",
    "unmanaging",
    "updating",
)
ENDS = (
    "begun",
    "done",
    "ending",
    "none",
)

# Rows that some indexes have.
LIVE = "deleted = ''"
AT_WORK = "deleted = '' AND run_id IS NOT NULL"
TO_UNEXPORT = "deleted = '' AND export = 'ending'"
OF_SNAPSHOTS = "snapshot_id IS NOT NULL"
PENDING = "deleted = '' AND pending_gb != 0"
SNAPSHOTS_AT_WORK = "deleted = '' AND status IN ('creating', 'deleting')"


def _one_of(table: str, column: str, values: tuple[str, ...]) -> t.Any:
    listed = ", ".join("'%s'" % v for v in values)
    return sa.CheckConstraint("%s IS NULL OR %s IN (%s)" % (column, column, listed), name="ck_%s_%s" % (table, column))


def _index(op: t.Any, name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def upgrade(op: t.Any) -> None:
    op.create_table(
        "storage_backends",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("pool_host", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("backend", sa.String(255), nullable=False),
        sa.Column("pool", sa.String(255), nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("frozen", sa.Boolean(), nullable=False),
        sa.Column("total_gb", sa.Float()),
        sa.Column("free_gb", sa.Float()),
        sa.Column("provisioned_gb", sa.Float()),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("configuration", sa.JSON(), nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("read_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("reported_at", sa.Float()),
        sa.Column("error", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name="pk_storage_backends"),
        sa.UniqueConstraint("pool_host", name="uq_storage_backends_pool_host"),
    )
    op.create_index("ix_storage_backends_host", "storage_backends", ["host"])
    op.create_table(
        "volume_cleanups",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("pool_host", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("item_id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("pending_gb", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_cleanups"),
        sa.UniqueConstraint("pool_host", "item_id", name="uq_volume_cleanups_pool_host_item"),
    )
    op.create_index("ix_volume_cleanups_item_id", "volume_cleanups", ["item_id"])
    op.create_table(
        "volumes",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("attach_status", sa.String(32), nullable=False),
        sa.Column("migration_status", sa.String(32)),
        sa.Column("previous_status", sa.String(32)),
        sa.Column("bootable", sa.Boolean(), nullable=False),
        sa.Column("multiattach", sa.Boolean(), nullable=False),
        sa.Column("availability_zone", sa.String(255)),
        sa.Column("pool_host", sa.String(255)),
        sa.Column("pending_gb", sa.Integer(), nullable=False),
        sa.Column("made", sa.Boolean(), nullable=False),
        sa.Column("new_size", sa.Integer()),
        sa.Column("volume_type", sa.String(255)),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("source_volid", sa.String(36)),
        sa.Column("image_id", sa.String(36)),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("digest", sa.JSON()),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("image_metadata", sa.JSON(), nullable=False),
        sa.Column("retry", sa.JSON()),
        sa.Column("instance_uuid", sa.String(36)),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("scheduled_at", sa.Float()),
        sa.Column("launched_at", sa.Float()),
        sa.Column("deleted_at", sa.Float()),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("volumes", "attach_status", ATTACH_STATES),
        _one_of("volumes", "status", VOLUME_STATES),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
        sa.UniqueConstraint("project", "name", "deleted", name="uq_volumes_name"),
    )
    op.create_index("ix_volumes_instance_uuid", "volumes", ["instance_uuid"])
    _index(op, "ix_volumes_at_work", "volumes", ["deleted", "run_id", "pool_host"], AT_WORK)
    _index(op, "ix_volumes_pool_host", "volumes", ["pool_host", "size", "new_size", "pending_gb"], LIVE)
    op.create_index("ix_volumes_run_id", "volumes", ["run_id"])
    _index(op, "ix_volumes_usage", "volumes", ["project", "volume_type", "size", "new_size"], LIVE)
    op.create_table(
        "volume_snapshots",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("volume_size", sa.Integer(), nullable=False),
        sa.Column("volume_type", sa.String(255)),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("pending_gb", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("deleted_at", sa.Float()),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("volume_snapshots", "status", SNAPSHOT_STATES),
        sa.ForeignKeyConstraint(["volume_id"], ["volumes.id"], name="fk_volume_snapshots_volume_id"),
        sa.PrimaryKeyConstraint("id", name="pk_volume_snapshots"),
        sa.UniqueConstraint("project", "name", "deleted", name="uq_volume_snapshots_name"),
    )
    _index(op, "ix_volume_snapshots_at_work", "volume_snapshots", ["deleted", "run_id"], SNAPSHOTS_AT_WORK)
    _index(op, "ix_volume_snapshots_pending", "volume_snapshots", ["deleted", "volume_id"], PENDING)
    op.create_index("ix_volume_snapshots_run_id", "volume_snapshots", ["run_id"])
    op.create_index("ix_volume_snapshots_volume_id", "volume_snapshots", ["volume_id"])
    op.create_table(
        "volume_attachments",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("attach_status", sa.String(32), nullable=False),
        sa.Column("attach_mode", sa.String(2), nullable=False),
        sa.Column("mountpoint", sa.String(32)),
        sa.Column("delete_on_termination", sa.Boolean(), nullable=False),
        sa.Column("attached_host", sa.String(255)),
        sa.Column("connector", sa.String(8)),
        sa.Column("initiator", sa.String(255)),
        sa.Column("storage_host", sa.String(255)),
        sa.Column("export", sa.String(8), nullable=False),
        sa.Column("connection", sa.String(8), nullable=False),
        sa.Column("iqn", sa.String(255)),
        sa.Column("lun", sa.Integer()),
        sa.Column("portals", sa.JSON()),
        sa.Column("device_path", sa.String(255)),
        sa.Column("rescan", sa.Boolean(), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("attached_at", sa.Float()),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("volume_attachments", "attach_status", ATTACH_STATES),
        _one_of("volume_attachments", "connection", ENDS),
        _one_of("volume_attachments", "export", ENDS),
        sa.ForeignKeyConstraint(["volume_id"], ["volumes.id"], name="fk_volume_attachments_volume_id"),
        sa.PrimaryKeyConstraint("id", name="pk_volume_attachments"),
        sa.UniqueConstraint("volume_id", "instance_uuid", "deleted", name="uq_volume_attachments_volume_instance"),
    )
    _index(op, "ix_volume_attachments_at_work", "volume_attachments", ["deleted", "run_id"], AT_WORK)
    _index(op, "ix_volume_attachments_to_unexport", "volume_attachments", ["connection", "storage_host"], TO_UNEXPORT)
    op.create_index("ix_volume_attachments_attached_host", "volume_attachments", ["attached_host"])
    op.create_index("ix_volume_attachments_instance_uuid", "volume_attachments", ["instance_uuid"])
    op.create_index("ix_volume_attachments_storage_host", "volume_attachments", ["storage_host"])
    op.create_index("ix_volume_attachments_volume_id", "volume_attachments", ["volume_id"])
    op.create_table(
        "volume_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("start_time", sa.Float(), nullable=False),
        sa.Column("finish_time", sa.Float()),
        sa.Column("result", sa.String(32)),
        sa.Column("details", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_volume_events"),
    )
    _index(op, "ix_volume_events_snapshot_id", "volume_events", ["snapshot_id"], OF_SNAPSHOTS)
    op.create_index("ix_volume_events_volume_id", "volume_events", ["volume_id"])
    op.create_table(
        "volume_faults",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.String(64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("rescheduled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_faults"),
    )
    _index(op, "ix_volume_faults_snapshot_id", "volume_faults", ["snapshot_id"], OF_SNAPSHOTS)
    op.create_index("ix_volume_faults_volume_id", "volume_faults", ["volume_id"])
    op.create_table(
        "volume_notifications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("event_type", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_notifications"),
    )
    op.create_index("ix_volume_notifications_volume_id", "volume_notifications", ["volume_id"])
