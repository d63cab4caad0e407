# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is cleaned of where an instance was resized on it. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0010"


def upgrade(op: t.Any) -> None:
    op.add_column("cleanups", sa.Column("part", sa.String(8), nullable=False, server_default="all"))
