# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who locked an instance; an index of what is being done to instances. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0004"


def upgrade(op: t.Any) -> None:
    op.add_column("instances", sa.Column("locked_by", sa.String(255)))
    where = sa.text("task_state IS NOT NULL")
    op.create_index("ix_instances_task_state", "instances", ["task_state"], sqlite_where=where, postgresql_where=where)
