# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of the ledger and the stores that have them; an index of machines with several names. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0021"

STATUSES = ("active", "deleted", "killed", "queued", "saving")
VISIBILITIES = ("community", "private", "public")
PROGRESS = ("begun", "done", "ending")


def upgrade(op: t.Any) -> None:
    several = sa.text("machine_id IS NOT NULL")
    op.create_index(
        "ix_compute_nodes_machine_id",
        "compute_nodes",
        ["machine_id"],
        sqlite_where=several,
        postgresql_where=several,
    )
    op.create_table(
        "images",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("protected", sa.Boolean(), nullable=False),
        sa.Column("size", sa.BigInteger()),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("requested_checksum", sa.Text(), nullable=False),
        sa.Column("disk_format", sa.String(16)),
        sa.Column("container_format", sa.String(16), nullable=False),
        sa.Column("min_disk", sa.Integer(), nullable=False),
        sa.Column("min_ram", sa.Integer(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("instance_uuid", sa.String(36)),
        sa.Column("fault", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("deleted_at", sa.Float()),
        sa.Column("deleted", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_images"),
        _one_of("images", "status", STATUSES),
        _one_of("images", "visibility", VISIBILITIES),
    )
    op.create_index("ix_images_instance_uuid", "images", ["instance_uuid"])
    op.create_index("ix_images_name", "images", ["project", "name", "deleted"])
    at_work = sa.text("deleted = '' AND status IN ('queued', 'saving')")
    op.create_index(
        "ix_images_at_work", "images", ["deleted", "run_id"], sqlite_where=at_work, postgresql_where=at_work
    )
    op.create_table(
        "image_places",
        sa.Column("image_id", sa.String(36), nullable=False),
        sa.Column("store", sa.String(255), nullable=False),
        sa.Column("progress", sa.String(8), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("image_id", "store", name="pk_image_places"),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name="fk_image_places_image_id"),
        _one_of("image_places", "progress", PROGRESS),
    )


def _one_of(table: str, column: str, values: t.Iterable[str]) -> sa.CheckConstraint:
    listed = ", ".join("'%s'" % v for v in sorted(values))
    return sa.CheckConstraint("%s IS NULL OR %s IN (%s)" % (column, column, listed), name="ck_%s_%s" % (table, column))
