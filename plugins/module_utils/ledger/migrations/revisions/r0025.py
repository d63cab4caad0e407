# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exports without a target: attachments have what their connectors need. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0025"


def upgrade(op: t.Any) -> None:
    op.add_column("volume_attachments", sa.Column("connection_info", sa.JSON(none_as_null=True)))
