# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger's own id, by which hosts tell its guests from those of other ledgers. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t
import uuid

from ...db.sqlalchemy_import import sa

revision = "0005"


def upgrade(op: t.Any) -> None:
    identity = op.create_table(
        "ledger_identity",
        sa.Column("id", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_identity"),
    )
    op.bulk_insert(identity, [{"id": str(uuid.uuid4())}])
