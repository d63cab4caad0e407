# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolling services of hosts. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0030"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "services",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("longest", sa.Float, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("name", name="pk_services"),
    )
    op.create_table(
        "service_hosts",
        sa.Column("service", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.CheckConstraint(
            "state IS NULL OR state IN ('done', 'drain', 'pending', 'report', 'return', 'tasks')",
            name="ck_service_hosts_state",
        ),
        sa.ForeignKeyConstraint(["service"], ["services.name"], name="fk_service_hosts_service", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("service", "host", name="pk_service_hosts"),
    )
    op.create_table(
        "service_instances",
        sa.Column("service", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(
            ["service", "host"],
            ["service_hosts.service", "service_hosts.host"],
            name="fk_service_instances_service",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("service", "host", "instance_uuid", name="pk_service_instances"),
    )
