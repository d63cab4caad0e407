# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""First shape of the ledger. Frozen: later changes are new revisions."""

from __future__ import annotations

import typing as t
import uuid

from ...db.sqlalchemy_import import sa

revision = "0033"

# Names of keys, constraints and indexes of a single column.
NAMING = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
}


def upgrade(op: t.Any) -> None:
    metadata = sa.MetaData(naming_convention=NAMING)
    for define in (_ledger, _hosts, _requests, _instances, _networks, _images, _volumes):
        define(metadata)
    metadata.create_all(op.get_bind(), checkfirst=False)
    op.bulk_insert(metadata.tables["ledger_identity"], [{"id": str(uuid.uuid4())}])


def _partial_index(name: str, *columns: str, where: str) -> sa.Index:
    return sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _one_of(table: str, column: str, values: str) -> sa.CheckConstraint:
    """Make a constraint: the column is empty, or has one of the values."""
    listed = ", ".join("'%s'" % value for value in values.split())
    return sa.CheckConstraint("%s IS NULL OR %s IN (%s)" % (column, column, listed), name="ck_%s_%s" % (table, column))


def _ledger(metadata: sa.MetaData) -> None:
    sa.Table(
        "capacity_days",
        metadata,
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("hosts", sa.Integer, nullable=False),
        sa.Column("instances", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("memory_mb_used", sa.BigInteger, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("vcpus_used", sa.BigInteger, nullable=False),
        sa.Column("local_gb", sa.BigInteger, nullable=False),
        sa.Column("local_gb_used", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    sa.Table(
        "cleanups",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("domain_name", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("part", sa.String(8), nullable=False, server_default="all"),
        sa.Column("begun_at", sa.Float),
        sa.Column("made_for", sa.String(128), nullable=False, server_default=""),
        sa.UniqueConstraint("host", "instance_uuid", name="uq_cleanups_host_instance"),
    )
    sa.Table(
        "guest_texts",
        metadata,
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("key_id", sa.String(16), nullable=False, server_default=""),
        sa.Column("contents", sa.Text, nullable=False),
    )
    sa.Table(
        "ledger_identity",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
    )
    sa.Table(
        "notifications",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("event_type", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    sa.Table(
        "reservations",
        metadata,
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("project", sa.String(255), nullable=False, index=True),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    sa.Table(
        "runs",
        metadata,
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("controller", sa.String(255), nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("pid_namespace", sa.String(64), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("pid_started", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("lease_until", sa.Float, nullable=False),
    )


def _hosts(metadata: sa.MetaData) -> None:
    sa.Table(
        "compute_nodes",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("host_uuid", sa.String(36), nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("memory_mb_used", sa.Integer, nullable=False),
        sa.Column("reserved_memory_mb", sa.Integer, nullable=False),
        sa.Column("local_gb", sa.Integer, nullable=False),
        sa.Column("local_gb_used", sa.Integer, nullable=False),
        sa.Column("reserved_disk_gb", sa.Integer, nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("vcpus_used", sa.Integer, nullable=False),
        sa.Column("reserved_vcpus", sa.Integer, nullable=False),
        sa.Column("disk_available_least", sa.Integer),
        sa.Column("ram_allocation_ratio", sa.Float, nullable=False),
        sa.Column("disk_allocation_ratio", sa.Float, nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Float, nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.String(255), nullable=False),
        sa.Column("unreachable_reason", sa.Text),
        sa.Column("hypervisor_type", sa.String(64), nullable=False),
        sa.Column("hypervisor_version", sa.Integer, nullable=False),
        sa.Column("num_instances", sa.Integer, nullable=False),
        sa.Column("failed_builds", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("reported_at", sa.Float),
        sa.Column("service_disabled", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("service_disabled_reason", sa.String(255), nullable=False, server_default=""),
        sa.Column("forced_down", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("forced_down_reason", sa.String(255), nullable=False, server_default=""),
        sa.Column("host_ip", sa.String(64), nullable=False, server_default=""),
        sa.Column("profile_id", sa.Integer),
        sa.Column("numa_profile_id", sa.Integer),
        sa.Column("networks_profile_id", sa.Integer),
        sa.Column("has_pci", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("has_disks", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("metrics", sa.JSON(none_as_null=True)),
        sa.Column("boot_id", sa.String(64), nullable=False, server_default=""),
        sa.Column("reported_boot_id", sa.String(64), nullable=False, server_default=""),
        sa.Column("machine_id", sa.String(36)),
        sa.UniqueConstraint("host", "node", name="uq_compute_nodes_host_node"),
        _partial_index("ix_compute_nodes_machine_id", "machine_id", where="machine_id IS NOT NULL"),
    )
    sa.Table(
        "node_profiles",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("profile", sa.JSON, nullable=False),
    )
    sa.Table(
        "services",
        metadata,
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("run_id", sa.String(64)),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("longest", sa.Float, nullable=False, server_default="0"),
    )
    sa.Table(
        "sightings",
        metadata,
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("instance_uuid", sa.String(36), primary_key=True, index=True),
        sa.Column("power_state", sa.Integer),
        sa.Column("reported_at", sa.Float, nullable=False),
    )
    sa.Table(
        "node_facts",
        metadata,
        sa.Column(
            "compute_node_id", sa.Integer, sa.ForeignKey("compute_nodes.id"), primary_key=True, autoincrement=False
        ),
        sa.Column("facts", sa.JSON, nullable=False),
    )
    sa.Table(
        "service_hosts",
        metadata,
        sa.Column("service", sa.String(255), sa.ForeignKey("services.name", ondelete="CASCADE"), primary_key=True),
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        _one_of("service_hosts", "state", "done drain pending report return tasks"),
    )
    sa.Table(
        "service_instances",
        metadata,
        sa.Column("service", sa.String(255), primary_key=True),
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("instance_uuid", sa.String(36), primary_key=True),
        sa.ForeignKeyConstraint(
            ["service", "host"], ["service_hosts.service", "service_hosts.host"], ondelete="CASCADE"
        ),
    )
    sa.Table(
        "claims",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), nullable=False),
        sa.Column("compute_node_id", sa.Integer, sa.ForeignKey("compute_nodes.id"), nullable=False, index=True),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("disk_gb", sa.Integer, nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False, server_default="build"),
        sa.Column("numa", sa.JSON(none_as_null=True)),
        sa.Column("server_group_id", sa.String(36)),
        sa.Column("group_slot", sa.Integer),
        sa.Index("uq_claims_group_node_slot", "server_group_id", "compute_node_id", "group_slot", unique=True),
        sa.Index("uq_claims_instance_node_kind", "instance_uuid", "compute_node_id", "kind", unique=True),
    )


def _requests(metadata: sa.MetaData) -> None:
    sa.Table(
        "server_groups",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("policy", sa.String(32), nullable=False),
        sa.Column("max_server_per_host", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.UniqueConstraint("project", "name", name="uq_server_groups_project_name"),
    )
    sa.Table(
        "request_specs",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("reservation_id", sa.String(32), sa.ForeignKey("reservations.id"), nullable=False, index=True),
        sa.Column("spec_version", sa.String(8), nullable=False),
        sa.Column("digest", sa.JSON, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
    )


def _instances(metadata: sa.MetaData) -> None:
    sa.Table(
        "instance_action_events",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("start_time", sa.Float, nullable=False),
        sa.Column("finish_time", sa.Float),
        sa.Column("result", sa.String(32)),
        sa.Column("details", sa.Text),
    )
    sa.Table(
        "instance_actions",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("start_time", sa.Float, nullable=False),
        sa.Column("finish_time", sa.Float),
        sa.Column("message", sa.String(255)),
    )
    sa.Table(
        "instance_backups",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("instance_name", sa.String(255), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("parent_id", sa.String(36)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("fault", sa.Text, nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("file", sa.String(255), nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.Column("virtual_size", sa.BigInteger),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("checkpoint", sa.String(255), nullable=False),
        sa.Column("checkpoint_xml", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
        sa.Column("verified_at", sa.Float),
        sa.Column("damage", sa.Text, nullable=False, server_default=""),
        sa.Column("deleted_at", sa.Float),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("instance_backups", "kind", "full incremental"),
        _one_of("instance_backups", "state", "complete deleting failed running"),
    )
    sa.Table(
        "instance_faults",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("error_code", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("remedy", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    sa.Table(
        "migrations",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("migration_type", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("source_compute", sa.String(255), nullable=False),
        sa.Column("source_node", sa.String(255), nullable=False),
        sa.Column("dest_compute", sa.String(255), nullable=False),
        sa.Column("dest_node", sa.String(255), nullable=False),
        sa.Column("old_request_spec_id", sa.Integer, nullable=False),
        sa.Column("new_request_spec_id", sa.Integer, nullable=False),
        sa.Column("old_vm_state", sa.String(32), nullable=False),
        sa.Column("source_limits", sa.JSON(none_as_null=True)),
        sa.Column("dest_limits", sa.JSON(none_as_null=True)),
        sa.Column("old_disks", sa.JSON(none_as_null=True)),
        sa.Column("new_disks", sa.JSON(none_as_null=True)),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("progress", sa.Integer),
        sa.Column("memory_total", sa.BigInteger),
        sa.Column("memory_processed", sa.BigInteger),
        sa.Column("memory_remaining", sa.BigInteger),
        sa.Column("disk_total", sa.BigInteger),
        sa.Column("disk_processed", sa.BigInteger),
        sa.Column("disk_remaining", sa.BigInteger),
        _one_of("migrations", "migration_type", "evacuation live-migration migration resize"),
        _one_of(
            "migrations",
            "status",
            (
                "accepted cancelled completed confirmed done error failed finished migrating post-migrating pre-migrating "
                "preparing reverted reverting running"
            ),
        ),
    )
    sa.Table(
        "plans",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("instances", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("run_id", sa.String(64)),
        _one_of("plans", "kind", "apply boot drain migrate resize"),
        _one_of("plans", "state", "discarded expired held used"),
    )
    sa.Table(
        "instances",
        metadata,
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("reservation_id", sa.String(32), sa.ForeignKey("reservations.id"), nullable=False, index=True),
        sa.Column("request_spec_id", sa.Integer, sa.ForeignKey("request_specs.id"), nullable=False, index=True),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("display_name", sa.String(255), nullable=False),
        sa.Column("hostname", sa.String(255), nullable=False),
        sa.Column("domain_name", sa.String(255), nullable=False),
        sa.Column("launch_index", sa.Integer, nullable=False),
        sa.Column("vm_state", sa.String(32), nullable=False),
        sa.Column("task_state", sa.String(64)),
        sa.Column("power_state", sa.Integer, nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("node", sa.String(255)),
        sa.Column("launched_on", sa.String(255)),
        sa.Column("availability_zone", sa.String(255)),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("root_gb", sa.Integer, nullable=False),
        sa.Column("ephemeral_gb", sa.Integer, nullable=False),
        sa.Column("swap_mb", sa.Integer, nullable=False),
        sa.Column("config_drive", sa.Boolean, nullable=False),
        sa.Column("key_name", sa.String(255)),
        sa.Column("limits", sa.JSON(none_as_null=True)),
        sa.Column("retry", sa.JSON(none_as_null=True)),
        sa.Column("run_id", sa.String(64), index=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("scheduled_at", sa.Float),
        sa.Column("launched_at", sa.Float),
        sa.Column("deleted_at", sa.Float),
        sa.Column("deleted", sa.String(36), nullable=False),
        sa.Column("server_group_id", sa.String(36), index=True),
        sa.Column("locked_by", sa.String(255)),
        sa.Column("locked_reason", sa.String(255)),
        sa.Column("machine_type", sa.String(255)),
        sa.Column("ssh_host_key", sa.String(255)),
        _one_of(
            "instances",
            "task_state",
            (
                "block_device_mapping deleting image_backup image_pending_upload image_snapshot image_snapshot_pending "
                "image_uploading migrating networking pausing powering-off powering-on reboot_pending reboot_pending_hard "
                "reboot_started reboot_started_hard rebooting rebooting_hard rebuild_block_device_mapping rebuild_spawning "
                "rebuilding rescuing resize_confirming resize_finish resize_migrated resize_migrating resize_prep "
                "resize_reverting restoring resuming scheduling shelving shelving_image_pending_upload shelving_image_uploading"
                " shelving_offloading soft-deleting spawning suspending unpausing unrescuing unshelving updating_password"
            ),
        ),
        _one_of(
            "instances",
            "vm_state",
            "active building deleted error paused rescued resized shelved shelved_offloaded soft-delete stopped suspended",
        ),
        sa.UniqueConstraint("project", "display_name", "deleted", name="uq_instances_name"),
        sa.Index("ix_instances_host", "host", "deleted"),
        _partial_index(
            "ix_instances_io",
            "host",
            where=(
                "deleted = '' AND (vm_state = 'building' OR task_state IN ('resize_migrating', 'rebuilding', 'resize_prep', "
                "'image_snapshot', 'image_backup', 'unshelving', 'rescuing'))"
            ),
        ),
        _partial_index("ix_instances_task_state", "task_state", where="task_state IS NOT NULL"),
    )
    sa.Table(
        "block_device_mappings",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), nullable=False, index=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("device_name", sa.String(32), nullable=False),
        sa.Column("disk", sa.JSON, nullable=False),
    )
    sa.Table(
        "device_claims",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), nullable=False, index=True),
        sa.Column("compute_node_id", sa.Integer, sa.ForeignKey("compute_nodes.id"), nullable=False),
        sa.Column("claim_kind", sa.String(8), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("device", sa.String(255), nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.UniqueConstraint("compute_node_id", "kind", "device", name="uq_device_claims_node_device"),
    )
    sa.Table(
        "plan_places",
        metadata,
        sa.Column("plan_id", sa.String(36), sa.ForeignKey("plans.id"), primary_key=True),
        sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Index("ix_plan_places_instance_uuid", "instance_uuid"),
    )
    sa.Table(
        "shelved_instances",
        metadata,
        sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), primary_key=True),
        sa.Column("image_id", sa.String(36)),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("shelved_at", sa.Float, nullable=False),
    )


def _networks(metadata: sa.MetaData) -> None:
    sa.Table(
        "free_addresses",
        metadata,
        sa.Column("subnet_id", sa.String(36), primary_key=True),
        sa.Column("lowest", sa.String(32), primary_key=True),
        sa.Column("highest", sa.String(32), nullable=False),
    )
    sa.Table(
        "port_filter_revisions",
        metadata,
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("applied", sa.Integer, nullable=False, server_default="0"),
    )
    sa.Table(
        "security_groups",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("description", sa.String(255), nullable=False, server_default=""),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.UniqueConstraint("project", "name", name="uq_security_groups_project_name"),
    )
    sa.Table(
        "subnet_pools",
        metadata,
        sa.Column("subnet_id", sa.String(36), primary_key=True),
        sa.Column("pools", sa.JSON, nullable=False),
    )
    sa.Table(
        "security_group_rules",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("security_group_id", sa.String(36), sa.ForeignKey("security_groups.id"), nullable=False, index=True),
        sa.Column("direction", sa.String(8), nullable=False),
        sa.Column("ethertype", sa.String(4), nullable=False),
        sa.Column("protocol", sa.String(8)),
        sa.Column("port_range_min", sa.Integer),
        sa.Column("port_range_max", sa.Integer),
        sa.Column("remote_ip_prefix", sa.String(43)),
        sa.Column("remote_group_id", sa.String(36), sa.ForeignKey("security_groups.id"), index=True),
        sa.Column("description", sa.String(255), nullable=False, server_default=""),
        sa.Column("created_at", sa.Float, nullable=False),
        _one_of("security_group_rules", "direction", "egress ingress"),
        _one_of("security_group_rules", "ethertype", "IPv4 IPv6"),
    )
    sa.Table(
        "ports",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), index=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("network_id", sa.String(36), nullable=False),
        sa.Column("mac_address", sa.String(17), nullable=False, unique=True),
        sa.Column("host", sa.String(255)),
        sa.Column("tag", sa.String(60)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("project", sa.String(255)),
        sa.Column("name", sa.String(255)),
        sa.Column("tags", sa.JSON),
        sa.Column("preserve_on_delete", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("has_own_groups", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("port_security_enabled", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("allowed_address_pairs", sa.JSON(none_as_null=True)),
        sa.UniqueConstraint("project", "name", name="uq_ports_project_name"),
    )
    sa.Table(
        "ip_allocations",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("subnet_id", sa.String(36), nullable=False),
        sa.Column("ip_address", sa.String(39), nullable=False),
        sa.Column("port_id", sa.String(36), sa.ForeignKey("ports.id"), nullable=False, index=True),
        sa.UniqueConstraint("subnet_id", "ip_address", name="uq_ip_allocations_subnet_ip"),
    )
    sa.Table(
        "port_security_groups",
        metadata,
        sa.Column("port_id", sa.String(36), sa.ForeignKey("ports.id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "security_group_id", sa.String(36), sa.ForeignKey("security_groups.id"), primary_key=True, index=True
        ),
    )


def _images(metadata: sa.MetaData) -> None:
    sa.Table(
        "images",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("protected", sa.Boolean, nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("requested_checksum", sa.Text, nullable=False),
        sa.Column("disk_format", sa.String(16)),
        sa.Column("container_format", sa.String(16), nullable=False),
        sa.Column("min_disk", sa.Integer, nullable=False),
        sa.Column("min_ram", sa.Integer, nullable=False),
        sa.Column("properties", sa.JSON, nullable=False),
        sa.Column("instance_uuid", sa.String(36), index=True),
        sa.Column("fault", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("deleted_at", sa.Float),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("images", "status", "active deleted killed queued saving"),
        _one_of("images", "visibility", "community private public"),
        _partial_index(
            "ix_images_at_work", "deleted", "run_id", where="deleted = '' AND status IN ('queued', 'saving')"
        ),
        sa.Index("ix_images_name", "project", "name", "deleted"),
    )
    sa.Table(
        "image_nvrams",
        metadata,
        sa.Column("image_id", sa.String(36), sa.ForeignKey("images.id"), primary_key=True),
        sa.Column("data", sa.Text, nullable=False),
    )
    sa.Table(
        "image_places",
        metadata,
        sa.Column("image_id", sa.String(36), sa.ForeignKey("images.id"), primary_key=True),
        sa.Column("store", sa.String(255), primary_key=True),
        sa.Column("progress", sa.String(8), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        _one_of("image_places", "progress", "begun done ending"),
    )


def _volumes(metadata: sa.MetaData) -> None:
    sa.Table(
        "storage_backends",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("pool_host", sa.String(255), nullable=False, unique=True),
        sa.Column("host", sa.String(255), nullable=False, index=True),
        sa.Column("backend", sa.String(255), nullable=False),
        sa.Column("pool", sa.String(255), nullable=False),
        sa.Column("availability_zone", sa.String(255), nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("frozen", sa.Boolean, nullable=False),
        sa.Column("total_gb", sa.Float),
        sa.Column("free_gb", sa.Float),
        sa.Column("provisioned_gb", sa.Float),
        sa.Column("report", sa.JSON, nullable=False),
        sa.Column("configuration", sa.JSON, nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("read_at", sa.Float, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("reported_at", sa.Float),
        sa.Column("error", sa.JSON(none_as_null=True)),
    )
    sa.Table(
        "volume_cleanups",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("pool_host", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("item_id", sa.String(36), nullable=False, index=True),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("pending_gb", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.UniqueConstraint("pool_host", "item_id", name="uq_volume_cleanups_pool_host_item"),
    )
    sa.Table(
        "volume_events",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("volume_id", sa.String(36), nullable=False, index=True),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("start_time", sa.Float, nullable=False),
        sa.Column("finish_time", sa.Float),
        sa.Column("result", sa.String(32)),
        sa.Column("details", sa.Text),
        _partial_index("ix_volume_events_snapshot_id", "snapshot_id", where="snapshot_id IS NOT NULL"),
    )
    sa.Table(
        "volume_faults",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("volume_id", sa.String(36), nullable=False, index=True),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("error_code", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("remedy", sa.Text, nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("rescheduled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        _partial_index("ix_volume_faults_snapshot_id", "snapshot_id", where="snapshot_id IS NOT NULL"),
    )
    sa.Table(
        "volume_notifications",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("volume_id", sa.String(36), nullable=False, index=True),
        sa.Column("event_type", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    sa.Table(
        "volumes",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("attach_status", sa.String(32), nullable=False),
        sa.Column("migration_status", sa.String(32)),
        sa.Column("previous_status", sa.String(32)),
        sa.Column("bootable", sa.Boolean, nullable=False),
        sa.Column("multiattach", sa.Boolean, nullable=False),
        sa.Column("availability_zone", sa.String(255)),
        sa.Column("pool_host", sa.String(255)),
        sa.Column("pending_gb", sa.Integer, nullable=False),
        sa.Column("made", sa.Boolean, nullable=False),
        sa.Column("new_size", sa.Integer),
        sa.Column("volume_type", sa.String(255)),
        sa.Column("snapshot_id", sa.String(36)),
        sa.Column("source_volid", sa.String(36)),
        sa.Column("image_id", sa.String(36)),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("digest", sa.JSON(none_as_null=True)),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("image_metadata", sa.JSON, nullable=False),
        sa.Column("retry", sa.JSON(none_as_null=True)),
        sa.Column("instance_uuid", sa.String(36), index=True),
        sa.Column("run_id", sa.String(64), index=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("scheduled_at", sa.Float),
        sa.Column("launched_at", sa.Float),
        sa.Column("deleted_at", sa.Float),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of("volumes", "attach_status", "attached attaching detached error_attaching error_detaching reserved"),
        _one_of(
            "volumes",
            "status",
            (
                "attaching available awaiting-transfer backing-up creating deleted deleting detaching downloading error "
                "error_attaching error_deleting error_detaching error_extending error_managing error_restoring extending in-use"
                " maintenance reserved restoring-backup retyping reverting uploading"
            ),
        ),
        sa.UniqueConstraint("project", "name", "deleted", name="uq_volumes_name"),
        _partial_index(
            "ix_volumes_at_work", "deleted", "run_id", "pool_host", where="deleted = '' AND run_id IS NOT NULL"
        ),
        _partial_index("ix_volumes_pool_host", "pool_host", "size", "new_size", "pending_gb", where="deleted = ''"),
        _partial_index("ix_volumes_usage", "project", "volume_type", "size", "new_size", where="deleted = ''"),
    )
    sa.Table(
        "volume_attachments",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False, index=True),
        sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
        sa.Column("attach_status", sa.String(32), nullable=False),
        sa.Column("attach_mode", sa.String(2), nullable=False),
        sa.Column("mountpoint", sa.String(32)),
        sa.Column("delete_on_termination", sa.Boolean, nullable=False),
        sa.Column("attached_host", sa.String(255), index=True),
        sa.Column("connector", sa.String(8)),
        sa.Column("initiator", sa.String(255)),
        sa.Column("storage_host", sa.String(255), index=True),
        sa.Column("export", sa.String(8), nullable=False),
        sa.Column("connection", sa.String(8), nullable=False),
        sa.Column("iqn", sa.String(255)),
        sa.Column("lun", sa.Integer),
        sa.Column("portals", sa.JSON(none_as_null=True)),
        sa.Column("connection_info", sa.JSON(none_as_null=True)),
        sa.Column("device_path", sa.String(255)),
        sa.Column("rescan", sa.Boolean, nullable=False),
        sa.Column("beside", sa.String(36), nullable=False, server_default=""),
        sa.Column("run_id", sa.String(64)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("attached_at", sa.Float),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of(
            "volume_attachments",
            "attach_status",
            "attached attaching detached error_attaching error_detaching reserved",
        ),
        _one_of("volume_attachments", "connection", "begun done ending none"),
        _one_of("volume_attachments", "export", "begun done ending none"),
        sa.UniqueConstraint(
            "volume_id", "instance_uuid", "beside", "deleted", name="uq_volume_attachments_volume_instance"
        ),
        _partial_index(
            "ix_volume_attachments_at_work", "deleted", "run_id", where="deleted = '' AND run_id IS NOT NULL"
        ),
        _partial_index(
            "ix_volume_attachments_to_unexport",
            "connection",
            "storage_host",
            where="deleted = '' AND export = 'ending'",
        ),
    )
    sa.Table(
        "volume_snapshots",
        metadata,
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False, index=True),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255)),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("volume_size", sa.Integer, nullable=False),
        sa.Column("volume_type", sa.String(255)),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("pending_gb", sa.Integer, nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("run_id", sa.String(64), index=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("deleted_at", sa.Float),
        sa.Column("deleted", sa.String(36), nullable=False),
        _one_of(
            "volume_snapshots",
            "status",
            "available backing-up creating deleted deleting error error_deleting restoring unmanaging updating",
        ),
        sa.UniqueConstraint("project", "name", "deleted", name="uq_volume_snapshots_name"),
        _partial_index(
            "ix_volume_snapshots_at_work",
            "deleted",
            "run_id",
            where="deleted = '' AND status IN ('creating', 'deleting')",
        ),
        _partial_index("ix_volume_snapshots_pending", "deleted", "volume_id", where="deleted = '' AND pending_gb != 0"),
    )
