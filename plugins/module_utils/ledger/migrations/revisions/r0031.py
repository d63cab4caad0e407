# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that hold places. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0031"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("instances", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.CheckConstraint("kind IS NULL OR kind IN ('apply', 'boot', 'drain', 'resize')", name="ck_plans_kind"),
        sa.CheckConstraint("state IS NULL OR state IN ('discarded', 'expired', 'held', 'used')", name="ck_plans_state"),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
