# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and injected files in the ledger. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0032"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "guest_texts",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False, server_default=""),
        sa.Column("contents", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_guest_texts"),
    )
