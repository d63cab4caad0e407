# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups and their rules, and the port security of ports. Frozen."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0028"


def upgrade(op: t.Any) -> None:
    op.create_table(
        "security_groups",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("description", sa.String(255), nullable=False, server_default=""),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.UniqueConstraint("project", "name", name="uq_security_groups_project_name"),
        sa.PrimaryKeyConstraint("id", name="pk_security_groups"),
    )
    op.create_table(
        "security_group_rules",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("security_group_id", sa.String(36), nullable=False),
        sa.Column("direction", sa.String(8), nullable=False),
        sa.Column("ethertype", sa.String(4), nullable=False),
        sa.Column("protocol", sa.String(8)),
        sa.Column("port_range_min", sa.Integer),
        sa.Column("port_range_max", sa.Integer),
        sa.Column("remote_ip_prefix", sa.String(43)),
        sa.Column("remote_group_id", sa.String(36)),
        sa.Column("description", sa.String(255), nullable=False, server_default=""),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(
            ["security_group_id"], ["security_groups.id"], name="fk_security_group_rules_security_group_id"
        ),
        sa.ForeignKeyConstraint(
            ["remote_group_id"], ["security_groups.id"], name="fk_security_group_rules_remote_group_id"
        ),
        sa.CheckConstraint(
            "direction IS NULL OR direction IN ('egress', 'ingress')", name="ck_security_group_rules_direction"
        ),
        sa.CheckConstraint(
            "ethertype IS NULL OR ethertype IN ('IPv4', 'IPv6')", name="ck_security_group_rules_ethertype"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_security_group_rules"),
    )
    op.create_index("ix_security_group_rules_security_group_id", "security_group_rules", ["security_group_id"])
    op.create_index("ix_security_group_rules_remote_group_id", "security_group_rules", ["remote_group_id"])
    op.create_table(
        "port_security_groups",
        sa.Column("port_id", sa.String(36), nullable=False),
        sa.Column("security_group_id", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_port_security_groups_port_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["security_group_id"], ["security_groups.id"], name="fk_port_security_groups_security_group_id"
        ),
        sa.PrimaryKeyConstraint("port_id", "security_group_id", name="pk_port_security_groups"),
    )
    op.create_index("ix_port_security_groups_security_group_id", "port_security_groups", ["security_group_id"])
    op.create_table(
        "port_filter_revisions",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("applied", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("host", name="pk_port_filter_revisions"),
    )
    op.add_column("ports", sa.Column("has_own_groups", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("ports", sa.Column("port_security_enabled", sa.Boolean, nullable=False, server_default=sa.true()))
    op.add_column("ports", sa.Column("allowed_address_pairs", sa.JSON(none_as_null=True)))
