# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The local disks of an instance before and after its resize. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0012"


def upgrade(op: t.Any) -> None:
    for name in ("old_disks", "new_disks"):
        op.add_column("migrations", sa.Column(name, sa.JSON(none_as_null=True)))
