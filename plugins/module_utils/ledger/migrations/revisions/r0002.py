# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA, devices, server groups and the state of hosts. Frozen: a later change is a revision of its own.

Facts leave compute_nodes for a table of their own, so that a claim rewrites a short row; what many nodes have alike is
stored once.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ...db.sqlalchemy_import import sa

revision = "0002"

BUSY = (
    "deleted = '' AND (vm_state = 'building' OR task_state IN ('resize_migrating', 'rebuilding', 'resize_prep', "
    "'image_snapshot', 'image_backup', 'unshelving', 'rescuing'))"
)
PROFILE_KEYS = ("cpu_info", "supported_instances")


def upgrade(op: t.Any) -> None:
    op.create_table(
        "node_facts",
        sa.Column("compute_node_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_node_facts_compute_node_id"),
        sa.PrimaryKeyConstraint("compute_node_id", name="pk_node_facts"),
    )
    op.create_table(
        "node_profiles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("profile", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_node_profiles"),
        sa.UniqueConstraint("digest", name="uq_node_profiles_digest"),
    )
    op.create_table(
        "server_groups",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("policy", sa.String(32), nullable=False),
        sa.Column("max_server_per_host", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_server_groups"),
        sa.UniqueConstraint("project", "name", name="uq_server_groups_project_name"),
    )
    op.create_table(
        "device_claims",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("claim_kind", sa.String(8), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("device", sa.String(255), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_device_claims_instance_uuid"),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_device_claims_compute_node_id"),
        sa.PrimaryKeyConstraint("id", name="pk_device_claims"),
        sa.UniqueConstraint("compute_node_id", "kind", "device", name="uq_device_claims_node_device"),
    )
    op.create_index("ix_device_claims_instance_uuid", "device_claims", ["instance_uuid"])

    for column in (
        sa.Column("service_disabled", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("service_disabled_reason", sa.String(255), nullable=False, server_default=""),
        sa.Column("forced_down", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("forced_down_reason", sa.String(255), nullable=False, server_default=""),
        sa.Column("host_ip", sa.String(64), nullable=False, server_default=""),
        sa.Column("profile_id", sa.Integer()),
        sa.Column("numa_profile_id", sa.Integer()),
        sa.Column("has_pci", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("has_disks", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("metrics", sa.JSON()),
    ):
        op.add_column("compute_nodes", column)
    _move_facts(op.get_bind())
    op.drop_column("compute_nodes", "facts")
    op.drop_column("compute_nodes", "num_io_ops")

    op.add_column("instances", sa.Column("server_group_id", sa.String(36)))
    op.create_index(
        "ix_instances_io", "instances", ["host"], sqlite_where=sa.text(BUSY), postgresql_where=sa.text(BUSY)
    )
    op.create_index("ix_instances_request_spec_id", "instances", ["request_spec_id"])
    op.create_index("ix_instances_server_group_id", "instances", ["server_group_id"])

    with op.batch_alter_table("claims") as batch:
        batch.drop_constraint("uq_claims_instance_node", type_="unique")
        batch.add_column(sa.Column("kind", sa.String(8), nullable=False, server_default="build"))
        batch.add_column(sa.Column("numa", sa.JSON()))
        batch.add_column(sa.Column("server_group_id", sa.String(36)))
        batch.add_column(sa.Column("group_slot", sa.Integer()))
    op.create_index("uq_claims_instance_node_kind", "claims", ["instance_uuid", "compute_node_id", "kind"], unique=True)
    op.create_index(
        "uq_claims_group_node_slot", "claims", ["server_group_id", "compute_node_id", "group_slot"], unique=True
    )


def _move_facts(conn: t.Any) -> None:
    nodes = sa.table(
        "compute_nodes",
        sa.column("id", sa.Integer),
        sa.column("facts", sa.JSON),
        sa.column("profile_id", sa.Integer),
        sa.column("numa_profile_id", sa.Integer),
    )
    node_facts = sa.table("node_facts", sa.column("compute_node_id", sa.Integer), sa.column("facts", sa.JSON))
    profiles = sa.table(
        "node_profiles",
        sa.column("id", sa.Integer),
        sa.column("digest", sa.String),
        sa.column("profile", sa.JSON),
    )
    ids: dict[str, int] = {}

    def profile(content: t.Any) -> int:
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if digest not in ids:
            ids[digest] = len(ids) + 1
            conn.execute(profiles.insert().values(digest=digest, profile=content))
            ids[digest] = conn.execute(sa.select(profiles.c.id).where(profiles.c.digest == digest)).scalar_one()
        return ids[digest]

    for row in conn.execute(sa.select(nodes.c.id, nodes.c.facts)).all():
        facts = row.facts or {}
        conn.execute(node_facts.insert().values(compute_node_id=row.id, facts=facts))
        numa = facts.get("numa_topology")
        conn.execute(
            nodes.update()
            .where(nodes.c.id == row.id)
            .values(
                profile_id=profile({k: facts[k] for k in PROFILE_KEYS if facts.get(k)}),
                numa_profile_id=profile(numa) if numa else None,
            )
        )
