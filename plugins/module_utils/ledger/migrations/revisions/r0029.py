# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Capacity by day. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0029"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "capacity_days",
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("hosts", sa.Integer, nullable=False),
        sa.Column("instances", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("memory_mb_used", sa.BigInteger, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("vcpus_used", sa.BigInteger, nullable=False),
        sa.Column("local_gb", sa.BigInteger, nullable=False),
        sa.Column("local_gb_used", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("day", name="pk_capacity_days"),
    )
