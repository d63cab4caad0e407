# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second attachment of a volume to the same instance, on another host. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.database_kind import kind_of
from ...db.sqlalchemy_import import sa

revision = "0013"

UNIQUE = "uq_volume_attachments_volume_instance"
STATUSES = ("attached", "attaching", "detached", "error_attaching", "error_detaching", "reserved")
PROGRESS = ("begun", "done", "ending", "none")
LIVE = "deleted = ''"
AT_WORK = LIVE + " AND run_id IS NOT NULL"
TO_UNEXPORT = LIVE + " AND export = 'ending'"


def upgrade(op: t.Any) -> None:
    # sqlite makes the table anew, and what it says of a table lacks its checks.
    table = None if kind_of(op.get_bind()).alters_tables else _table()
    with op.batch_alter_table("volume_attachments", copy_from=table) as batch:
        batch.drop_constraint(UNIQUE, type_="unique")
        batch.add_column(sa.Column("beside", sa.String(36), nullable=False, server_default=""))
        batch.create_unique_constraint(UNIQUE, ["volume_id", "instance_uuid", "beside", "deleted"])


def _table() -> sa.Table:
    """The table as it was."""
    table = sa.Table(
        "volume_attachments",
        sa.MetaData(),
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
        _one_of("attach_status", STATUSES),
        _one_of("connection", PROGRESS),
        _one_of("export", PROGRESS),
        sa.ForeignKeyConstraint(["volume_id"], ["volumes.id"], name="fk_volume_attachments_volume_id"),
        sa.PrimaryKeyConstraint("id", name="pk_volume_attachments"),
        sa.UniqueConstraint("volume_id", "instance_uuid", "deleted", name=UNIQUE),
        sa.Index("ix_volume_attachments_at_work", "deleted", "run_id", sqlite_where=sa.text(AT_WORK)),
        sa.Index("ix_volume_attachments_to_unexport", "connection", "storage_host", sqlite_where=sa.text(TO_UNEXPORT)),
    )
    for column in ("attached_host", "instance_uuid", "storage_host", "volume_id"):
        sa.Index("ix_volume_attachments_" + column, table.c[column])
    return table


def _one_of(column: str, values: t.Iterable[str]) -> sa.CheckConstraint:
    listed = ", ".join("'%s'" % v for v in values)
    text = "%s IS NULL OR %s IN (%s)" % (column, column, listed)
    return sa.CheckConstraint(text, name="ck_volume_attachments_%s" % column)
