# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelved instances and the images of their root disks. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0022"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "shelved_instances",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("image_id", sa.String(36)),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("shelved_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_shelved_instances"),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_shelved_instances_instance_uuid"),
    )
