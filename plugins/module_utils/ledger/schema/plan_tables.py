# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of plans that hold places. See tables.py."""

from __future__ import annotations

from ...core.plans import plan_states
from ..db.sqlalchemy_import import sa
from .base import metadata, one_of

# A plan holds instances that no process builds yet: their run_id is core.plans.plan_states.run_of() its id.
plans = sa.Table(
    "plans",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),  # of the file
    sa.Column("actor", sa.String(255), nullable=False),
    sa.Column("instances", sa.Integer, nullable=False),  # their number
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float, nullable=False),
    sa.Column("changed_at", sa.Float, nullable=False),  # its state
    sa.Column("run_id", sa.String(64)),  # that used it
    one_of("plans", "kind", plan_states.KINDS),
    one_of("plans", "state", plan_states.STATES),
)

# The hosts that plans hold for instances that exist, until the plan is done or given up. The claims there have the kind "plan".
plan_places = sa.Table(
    "plan_places",
    metadata,
    sa.Column("plan_id", sa.String(36), sa.ForeignKey("plans.id"), primary_key=True),
    sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Index("ix_plan_places_instance_uuid", "instance_uuid"),
)
