# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of instances between hosts. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0008"

TYPES = ("evacuation", "live-migration", "migration", "resize")
STATUSES = (
    "accepted", "cancelled", "completed", "confirmed", "done", "error", "failed", "finished", "migrating",
    "post-migrating", "pre-migrating", "preparing", "reverted", "reverting", "running",
)  # fmt: skip


def _one_of(column: str, values: t.Iterable[str]) -> sa.CheckConstraint:
    listed = ", ".join("'%s'" % v for v in values)
    text = "%s IS NULL OR %s IN (%s)" % (column, column, listed)
    return sa.CheckConstraint(text, name="ck_migrations_%s" % column)


def upgrade(op: t.Any) -> None:
    op.create_table(
        "migrations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("migration_type", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("source_compute", sa.String(255), nullable=False),
        sa.Column("source_node", sa.String(255), nullable=False),
        sa.Column("dest_compute", sa.String(255), nullable=False),
        sa.Column("dest_node", sa.String(255), nullable=False),
        sa.Column("old_request_spec_id", sa.Integer(), nullable=False),
        sa.Column("new_request_spec_id", sa.Integer(), nullable=False),
        sa.Column("old_vm_state", sa.String(32), nullable=False),
        sa.Column("source_limits", sa.JSON(none_as_null=True)),
        sa.Column("dest_limits", sa.JSON(none_as_null=True)),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_migrations"),
        _one_of("migration_type", TYPES),
        _one_of("status", STATUSES),
    )
    op.create_index("ix_migrations_instance_uuid", "migrations", ["instance_uuid"])
