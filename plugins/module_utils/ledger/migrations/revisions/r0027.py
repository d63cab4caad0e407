# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups that are read back. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0027"


def upgrade(op: t.Any) -> None:
    with op.batch_alter_table("instance_backups") as batch:
        batch.add_column(sa.Column("verified_at", sa.Float))
        batch.add_column(sa.Column("damage", sa.Text, nullable=False, server_default=""))
