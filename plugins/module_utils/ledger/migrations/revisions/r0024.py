# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups of instances. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0024"

KINDS = ("full", "incremental")
STATES = ("complete", "deleting", "failed", "running")


def upgrade(op: t.Any) -> None:
    op.create_table(
        "instance_backups",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("instance_name", sa.String(255), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("parent_id", sa.String(36)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("file", sa.String(255), nullable=False),
        sa.Column("size", sa.BigInteger()),
        sa.Column("virtual_size", sa.BigInteger()),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("checkpoint", sa.String(255), nullable=False),
        sa.Column("checkpoint_xml", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float()),
        sa.Column("deleted_at", sa.Float()),
        sa.Column("deleted", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_backups"),
        _one_of("instance_backups", "kind", KINDS),
        _one_of("instance_backups", "state", STATES),
    )
    op.create_index("ix_instance_backups_instance_uuid", "instance_backups", ["instance_uuid"])


def _one_of(table: str, column: str, values: t.Iterable[str]) -> sa.CheckConstraint:
    listed = ", ".join("'%s'" % v for v in sorted(values))
    return sa.CheckConstraint("%s IS NULL OR %s IN (%s)" % (column, column, listed), name="ck_%s_%s" % (table, column))
