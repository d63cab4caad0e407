# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""First shape of the ledger. Frozen: ledgers of this revision are out there, a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0001"

VM_STATES = (
    "active", "building", "deleted", "error", "paused", "rescued", "resized", "shelved", "shelved_offloaded",
    "soft-delete", "stopped", "suspended",
)  # fmt: skip
TASK_STATES = (
    "block_device_mapping", "deleting", "image_backup", "image_pending_upload", "image_snapshot",
    "image_snapshot_pending", "image_uploading", "migrating", "networking", "pausing", "powering-off",
    "powering-on", "reboot_pending", "reboot_pending_hard", "reboot_started", "reboot_started_hard", "rebooting",
    "rebooting_hard", "rebuild_block_device_mapping", "rebuild_spawning", "rebuilding", "rescuing",
    "resize_confirming", "resize_finish", "resize_migrated", "resize_migrating", "resize_prep", "resize_reverting",
    "restoring", "resuming", "scheduling", "shelving", "shelving_image_pending_upload", "shelving_image_uploading",
    "shelving_offloading", "soft-deleting", "spawning", "suspending", "unpausing", "unrescuing", "unshelving",
    "updating_password",
)  # fmt: skip


def _one_of(column: str, values: t.Sequence[str]) -> t.Any:
    listed = ", ".join("'%s'" % v for v in values)
    return sa.CheckConstraint("%s IS NULL OR %s IN (%s)" % (column, column, listed), name="ck_instances_%s" % column)


def upgrade(op: t.Any) -> None:
    op.create_table(
        "cleanups",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("domain_name", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cleanups"),
        sa.UniqueConstraint("host", "instance_uuid", name="uq_cleanups_host_instance"),
    )
    op.create_index("ix_cleanups_instance_uuid", "cleanups", ["instance_uuid"])
    op.create_table(
        "compute_nodes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("host_uuid", sa.String(36), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("memory_mb_used", sa.Integer(), nullable=False),
        sa.Column("reserved_memory_mb", sa.Integer(), nullable=False),
        sa.Column("local_gb", sa.Integer(), nullable=False),
        sa.Column("local_gb_used", sa.Integer(), nullable=False),
        sa.Column("reserved_disk_gb", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("vcpus_used", sa.Integer(), nullable=False),
        sa.Column("reserved_vcpus", sa.Integer(), nullable=False),
        sa.Column("disk_available_least", sa.Integer()),
        sa.Column("ram_allocation_ratio", sa.Float(), nullable=False),
        sa.Column("disk_allocation_ratio", sa.Float(), nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Float(), nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(255), nullable=False),
        sa.Column("unreachable_reason", sa.Text()),
        sa.Column("hypervisor_type", sa.String(64), nullable=False),
        sa.Column("hypervisor_version", sa.Integer(), nullable=False),
        sa.Column("num_instances", sa.Integer(), nullable=False),
        sa.Column("num_io_ops", sa.Integer(), nullable=False),
        sa.Column("failed_builds", sa.Integer(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("reported_at", sa.Float()),
        sa.PrimaryKeyConstraint("id", name="pk_compute_nodes"),
        sa.UniqueConstraint("host", "node", name="uq_compute_nodes_host_node"),
    )
    op.create_table(
        "instance_action_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("start_time", sa.Float(), nullable=False),
        sa.Column("finish_time", sa.Float()),
        sa.Column("result", sa.String(32)),
        sa.Column("details", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_instance_action_events"),
    )
    op.create_index("ix_instance_action_events_instance_uuid", "instance_action_events", ["instance_uuid"])
    op.create_table(
        "instance_actions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("start_time", sa.Float(), nullable=False),
        sa.Column("finish_time", sa.Float()),
        sa.Column("message", sa.String(255)),
        sa.PrimaryKeyConstraint("id", name="pk_instance_actions"),
    )
    op.create_index("ix_instance_actions_instance_uuid", "instance_actions", ["instance_uuid"])
    op.create_table(
        "instance_faults",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.String(64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_faults"),
    )
    op.create_index("ix_instance_faults_instance_uuid", "instance_faults", ["instance_uuid"])
    op.create_table(
        "notifications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("event_type", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notifications"),
    )
    op.create_index("ix_notifications_instance_uuid", "notifications", ["instance_uuid"])
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
    )
    op.create_index("ix_reservations_project", "reservations", ["project"])
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("controller", sa.String(255), nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("pid_namespace", sa.String(64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pid_started", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_table(
        "request_specs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("reservation_id", sa.String(32), nullable=False),
        sa.Column("spec_version", sa.String(8), nullable=False),
        sa.Column("digest", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservations.id"], name="fk_request_specs_reservation_id"),
        sa.PrimaryKeyConstraint("id", name="pk_request_specs"),
    )
    op.create_index("ix_request_specs_reservation_id", "request_specs", ["reservation_id"])
    op.create_table(
        "instances",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("reservation_id", sa.String(32), nullable=False),
        sa.Column("request_spec_id", sa.Integer(), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("display_name", sa.String(255), nullable=False),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("domain_name", sa.String(255), nullable=False),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("vm_state", sa.String(32), nullable=False),
        sa.Column("task_state", sa.String(64)),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("node", sa.String(255)),
        sa.Column("launched_on", sa.String(255)),
        sa.Column("availability_zone", sa.String(255)),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap_mb", sa.Integer(), nullable=False),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("key_name", sa.String(255)),
        sa.Column("limits", sa.JSON(none_as_null=True)),
        sa.Column("retry", sa.JSON(none_as_null=True)),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("scheduled_at", sa.Float()),
        sa.Column("launched_at", sa.Float()),
        sa.Column("deleted_at", sa.Float()),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("task_state", TASK_STATES),
        _one_of("vm_state", VM_STATES),
        sa.ForeignKeyConstraint(["request_spec_id"], ["request_specs.id"], name="fk_instances_request_spec_id"),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservations.id"], name="fk_instances_reservation_id"),
        sa.PrimaryKeyConstraint("uuid", name="pk_instances"),
        sa.UniqueConstraint("project", "display_name", "deleted", name="uq_instances_name"),
    )
    op.create_index("ix_instances_host", "instances", ["host", "deleted"])
    op.create_index("ix_instances_reservation_id", "instances", ["reservation_id"])
    op.create_index("ix_instances_run_id", "instances", ["run_id"])
    op.create_table(
        "block_device_mappings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("device_name", sa.String(32), nullable=False),
        sa.Column("disk", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_block_device_mappings_instance_uuid"),
        sa.PrimaryKeyConstraint("id", name="pk_block_device_mappings"),
    )
    op.create_index("ix_block_device_mappings_instance_uuid", "block_device_mappings", ["instance_uuid"])
    op.create_table(
        "claims",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("compute_node_id", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_claims_compute_node_id"),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_claims_instance_uuid"),
        sa.PrimaryKeyConstraint("id", name="pk_claims"),
        sa.UniqueConstraint("instance_uuid", "compute_node_id", name="uq_claims_instance_node"),
    )
    op.create_index("ix_claims_compute_node_id", "claims", ["compute_node_id"])
    op.create_table(
        "ports",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("network_id", sa.String(36), nullable=False),
        sa.Column("mac_address", sa.String(17), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("tag", sa.String(60)),
        sa.Column("network", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_ports_instance_uuid"),
        sa.PrimaryKeyConstraint("id", name="pk_ports"),
        sa.UniqueConstraint("mac_address", name="uq_ports_mac_address"),
    )
    op.create_index("ix_ports_instance_uuid", "ports", ["instance_uuid"])
    op.create_table(
        "ip_allocations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("subnet_id", sa.String(36), nullable=False),
        sa.Column("ip_address", sa.String(39), nullable=False),
        sa.Column("port_id", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_ip_allocations_port_id"),
        sa.PrimaryKeyConstraint("id", name="pk_ip_allocations"),
        sa.UniqueConstraint("subnet_id", "ip_address", name="uq_ip_allocations_subnet_ip"),
    )
    op.create_index("ix_ip_allocations_port_id", "ip_allocations", ["port_id"])
