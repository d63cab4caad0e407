# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that other hosts report than those where the ledger has them, moves whose leftovers are removed, machines with two names. Frozen: a later
change is a revision of its own.
"""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0018"


def upgrade(op: t.Any) -> None:
    op.add_column("cleanups", sa.Column("made_for", sa.String(128), nullable=False, server_default=""))
    op.create_table(
        "sightings",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("power_state", sa.Integer),
        sa.Column("reported_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("host", "instance_uuid", name="pk_sightings"),
    )
    op.create_index("ix_sightings_instance_uuid", "sightings", ["instance_uuid"])
    op.add_column("compute_nodes", sa.Column("has_other_name", sa.Boolean, nullable=False, server_default=sa.false()))
