# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far live migrations are. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0011"

_BYTES = ("memory_total", "memory_processed", "memory_remaining", "disk_total", "disk_processed", "disk_remaining")


def upgrade(op: t.Any) -> None:
    op.add_column("migrations", sa.Column("progress", sa.Integer))
    for name in _BYTES:
        op.add_column("migrations", sa.Column(name, sa.BigInteger))
