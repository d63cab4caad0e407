# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is free in subnets; the networks of ports are those of their requests. Frozen: a later change is a revision of its own.

Nothing is moved: the ranges are made when a subnet is next allocated from, and requests always had the networks of their ports.
"""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0006"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "subnet_pools",
        sa.Column("subnet_id", sa.String(36), nullable=False),
        sa.Column("pools", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("subnet_id", name="pk_subnet_pools"),
    )
    op.create_table(
        "free_addresses",
        sa.Column("subnet_id", sa.String(36), nullable=False),
        sa.Column("lowest", sa.String(32), nullable=False),
        sa.Column("highest", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("subnet_id", "lowest", name="pk_free_addresses"),
    )
    with op.batch_alter_table("ports") as batch:
        batch.drop_column("network")
