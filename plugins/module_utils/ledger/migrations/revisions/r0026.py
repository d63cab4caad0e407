# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that outlive their instances. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0026"


def upgrade(op: t.Any) -> None:
    with op.batch_alter_table("ports") as batch:
        batch.alter_column("instance_uuid", existing_type=sa.String(36), nullable=True)
        batch.add_column(sa.Column("project", sa.String(255)))
        batch.add_column(sa.Column("name", sa.String(255)))
        batch.add_column(sa.Column("tags", sa.JSON))
        batch.add_column(sa.Column("preserve_on_delete", sa.Boolean, nullable=False, server_default=sa.false()))
        batch.create_unique_constraint("uq_ports_project_name", ["project", "name"])
