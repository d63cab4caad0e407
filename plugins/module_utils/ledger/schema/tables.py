# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger's tables in their newest form. ledger.migrations upgrades older ledgers.

Times are seconds since the epoch (UTC). Memory is MB, disk GB. Queries filter on typed, indexed columns;
JSON columns are read as a whole.
"""

from __future__ import annotations

from ...core.instances import moves, states
from ..db.sqlalchemy_import import sa
from . import (
    backup_tables,
    guest_data_tables,
    image_tables,
    plan_tables,
    security_tables,
    service_tables,
    volume_tables,
)
from .base import one_of, partial_index

# Of all tables, including tables of volumes, images, backups, security groups, services, plans and user data
_OTHERS = (
    volume_tables.volumes,
    image_tables.images,
    backup_tables.instance_backups,
    security_tables.security_groups,
    service_tables.services,
    plan_tables.plans,
    plan_tables.plan_places,
    guest_data_tables.guest_texts,
)
metadata = next(t.metadata for t in _OTHERS)

# Instances that currently load their host's disks. source: Nova's stats.io_workload
IO_TASKS = (
    states.RESIZE_MIGRATING,
    states.REBUILDING,
    states.RESIZE_PREP,
    states.IMAGE_SNAPSHOT,
    states.IMAGE_BACKUP,
    states.UNSHELVING,
    states.RESCUING,
)
BUSY = "deleted = '' AND (vm_state = 'building' OR task_state IN (%s))" % ", ".join("'%s'" % t for t in IO_TASKS)


# One row: the UUID that was drawn when the ledger was made. Copies and backups keep it.
ledger_identity = sa.Table("ledger_identity", metadata, sa.Column("id", sa.String(36), primary_key=True))


# A process that works on the ledger: one ansible-playbook run on one controller.
runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("controller", sa.String(255), nullable=False),
    sa.Column("boot_id", sa.String(64), nullable=False, default=""),
    sa.Column("pid_namespace", sa.String(64), nullable=False, default=""),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("pid_started", sa.BigInteger, nullable=False, default=0),
    sa.Column("actor", sa.String(255), nullable=False, default=""),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("lease_until", sa.Float, nullable=False),
)


compute_nodes = sa.Table(
    "compute_nodes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("node", sa.String(255), nullable=False),
    sa.Column("host_uuid", sa.String(36), nullable=False, default=""),
    sa.Column("memory_mb", sa.Integer, nullable=False, default=0),
    sa.Column("memory_mb_used", sa.Integer, nullable=False, default=0),
    sa.Column("reserved_memory_mb", sa.Integer, nullable=False, default=0),
    sa.Column("local_gb", sa.Integer, nullable=False, default=0),
    sa.Column("local_gb_used", sa.Integer, nullable=False, default=0),
    sa.Column("reserved_disk_gb", sa.Integer, nullable=False, default=0),
    sa.Column("vcpus", sa.Integer, nullable=False, default=0),
    sa.Column("vcpus_used", sa.Integer, nullable=False, default=0),
    sa.Column("reserved_vcpus", sa.Integer, nullable=False, default=0),
    sa.Column("disk_available_least", sa.Integer),
    sa.Column("ram_allocation_ratio", sa.Float, nullable=False, default=1.5),
    sa.Column("disk_allocation_ratio", sa.Float, nullable=False, default=1.0),
    sa.Column("cpu_allocation_ratio", sa.Float, nullable=False, default=16.0),
    sa.Column("availability_zone", sa.String(255), nullable=False, default="nova"),
    sa.Column("disabled", sa.Boolean, nullable=False, default=False),
    sa.Column("disabled_reason", sa.String(255), nullable=False, default=""),
    sa.Column("unreachable_reason", sa.Text),
    sa.Column("hypervisor_type", sa.String(64), nullable=False, default="QEMU"),
    sa.Column("hypervisor_version", sa.Integer, nullable=False, default=0),
    sa.Column("num_instances", sa.Integer, nullable=False, default=0),
    sa.Column("failed_builds", sa.Integer, nullable=False, default=0),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("reported_at", sa.Float),
    # The host's state set by people, in addition to the inventory's
    sa.Column("service_disabled", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("service_disabled_reason", sa.String(255), nullable=False, default="", server_default=""),
    sa.Column("forced_down", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("forced_down_reason", sa.String(255), nullable=False, default="", server_default=""),
    sa.Column("host_ip", sa.String(64), nullable=False, default="", server_default=""),
    sa.Column("profile_id", sa.Integer),  # node_profiles: CPU and supported guests
    sa.Column("numa_profile_id", sa.Integer),  # node_profiles: NUMA cells; empty if it reported none
    sa.Column(
        "networks_profile_id", sa.Integer
    ),  # node_profiles: networks that hosts must have; empty if it reported none
    sa.Column("has_pci", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("has_disks", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("metrics", sa.JSON(none_as_null=True)),
    sa.Column(
        "boot_id", sa.String(64), nullable=False, default="", server_default=""
    ),  # of the start that was dealt with
    sa.Column("reported_boot_id", sa.String(64), nullable=False, default="", server_default=""),  # of its last report
    # The same in all rows of a machine that the inventory names twice or renamed: what is claimed on one counts on each. NULL: it has one row.
    sa.Column("machine_id", sa.String(36)),
    sa.UniqueConstraint("host", "node", name="uq_compute_nodes_host_node"),
    partial_index("ix_compute_nodes_machine_id", "machine_id", where="machine_id IS NOT NULL"),
)

# The complete report of a node: read for one node at a time, never by the scheduler for the fleet.
node_facts = sa.Table(
    "node_facts",
    metadata,
    sa.Column("compute_node_id", sa.Integer, sa.ForeignKey("compute_nodes.id"), primary_key=True, autoincrement=False),
    sa.Column("facts", sa.JSON, nullable=False),
)

# Facts common to many nodes, stored once: a fleet of equal machines has one row, which is read and evaluated once.
node_profiles = sa.Table(
    "node_profiles",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("profile", sa.JSON, nullable=False),
)


server_groups = sa.Table(
    "server_groups",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("policy", sa.String(32), nullable=False),
    sa.Column("max_server_per_host", sa.Integer, nullable=False, default=1),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.UniqueConstraint("project", "name", name="uq_server_groups_project_name"),
)

# One call of boot. source: Nova's _create_instance
reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False, index=True),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("request_id", sa.String(64), nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)

# The request, shared by the instances of one entry, without secrets.
request_specs = sa.Table(
    "request_specs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("reservation_id", sa.String(32), sa.ForeignKey("reservations.id"), nullable=False, index=True),
    sa.Column("spec_version", sa.String(8), nullable=False),
    sa.Column("digest", sa.JSON, nullable=False),
    sa.Column("spec", sa.JSON, nullable=False),
)

instances = sa.Table(
    "instances",
    metadata,
    sa.Column("uuid", sa.String(36), primary_key=True),
    sa.Column("reservation_id", sa.String(32), sa.ForeignKey("reservations.id"), nullable=False, index=True),
    sa.Column("request_spec_id", sa.Integer, sa.ForeignKey("request_specs.id"), nullable=False, index=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("display_name", sa.String(255), nullable=False),
    sa.Column("hostname", sa.String(255), nullable=False),
    sa.Column("domain_name", sa.String(255), nullable=False),
    sa.Column("launch_index", sa.Integer, nullable=False, default=0),
    sa.Column("vm_state", sa.String(32), nullable=False),
    sa.Column("task_state", sa.String(64)),
    sa.Column("power_state", sa.Integer, nullable=False, default=0),
    sa.Column("host", sa.String(255)),
    sa.Column("node", sa.String(255)),
    sa.Column("launched_on", sa.String(255)),
    sa.Column("availability_zone", sa.String(255)),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("root_gb", sa.Integer, nullable=False),
    sa.Column("ephemeral_gb", sa.Integer, nullable=False),
    sa.Column("swap_mb", sa.Integer, nullable=False, default=0),
    sa.Column("config_drive", sa.Boolean, nullable=False, default=False),
    sa.Column("key_name", sa.String(255)),
    sa.Column("limits", sa.JSON(none_as_null=True)),
    sa.Column("retry", sa.JSON(none_as_null=True)),
    sa.Column("run_id", sa.String(64), index=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("scheduled_at", sa.Float),
    sa.Column("launched_at", sa.Float),
    sa.Column("deleted_at", sa.Float),
    # '' while live, the uuid afterwards: a name has one live instance in a project
    sa.Column("deleted", sa.String(36), nullable=False, default=""),
    sa.Column("server_group_id", sa.String(36), index=True),
    sa.Column("locked_by", sa.String(255)),  # only this user may act on it
    sa.Column("locked_reason", sa.String(255)),
    sa.Column("machine_type", sa.String(255)),  # that it was booted with, where its image names none
    sa.Column("ssh_host_key", sa.String(255)),  # the public key, where its config drive has the private one
    sa.UniqueConstraint("project", "display_name", "deleted", name="uq_instances_name"),
    sa.Index("ix_instances_host", "host", "deleted"),
    partial_index("ix_instances_io", "host", where=BUSY),
    partial_index("ix_instances_task_state", "task_state", where="task_state IS NOT NULL"),
    one_of("instances", "vm_state", states.VM_STATES),
    one_of("instances", "task_state", states.TASK_STATES),
)

# source: Nova's instance_claim. A node's usage is its reserve plus the sum of its claims.
claims = sa.Table(
    "claims",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), nullable=False),
    sa.Column("compute_node_id", sa.Integer, sa.ForeignKey("compute_nodes.id"), nullable=False, index=True),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("kind", sa.String(8), nullable=False, default="build", server_default="build"),  # build, move, or plan
    sa.Column("numa", sa.JSON(none_as_null=True)),  # the fitted topology: cells, pinned CPUs, pages
    sa.Column("server_group_id", sa.String(36)),
    # anti-affinity: one of the host's max_server_per_host places, which two members cannot share
    sa.Column("group_slot", sa.Integer),
    sa.Index("uq_claims_instance_node_kind", "instance_uuid", "compute_node_id", "kind", unique=True),
    sa.Index("uq_claims_group_node_slot", "server_group_id", "compute_node_id", "group_slot", unique=True),
)

# Devices of a node dedicated to an instance: PCI addresses and whole disks. The row is the device.
device_claims = sa.Table(
    "device_claims",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), nullable=False, index=True),
    sa.Column("compute_node_id", sa.Integer, sa.ForeignKey("compute_nodes.id"), nullable=False),
    sa.Column("claim_kind", sa.String(8), nullable=False, default="build"),
    sa.Column("kind", sa.String(8), nullable=False),  # pci, disk
    sa.Column("device", sa.String(255), nullable=False),  # PCI address, or path of the disk
    sa.Column("detail", sa.JSON, nullable=False),  # the device as reported, and the request it was claimed for
    sa.UniqueConstraint("compute_node_id", "kind", "device", name="uq_device_claims_node_device"),
)


ports = sa.Table(
    "ports",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), index=True),  # empty: it is not bound
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("network_id", sa.String(36), nullable=False),
    sa.Column("mac_address", sa.String(17), nullable=False, unique=True),
    sa.Column("host", sa.String(255)),
    sa.Column("tag", sa.String(60)),
    sa.Column("created_at", sa.Float, nullable=False),
    # Of ports that a project made; a port that an instance's boot made belongs to the instance.
    sa.Column("project", sa.String(255)),
    sa.Column("name", sa.String(255)),
    sa.Column("tags", sa.JSON),
    sa.Column("preserve_on_delete", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    # False: it has the default group of its project; true: the groups of port_security_groups
    sa.Column("has_own_groups", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
    sa.Column("port_security_enabled", sa.Boolean, nullable=False, default=True, server_default=sa.true()),
    sa.Column("allowed_address_pairs", sa.JSON(none_as_null=True)),  # [{mac_address, ip_address}]
    sa.UniqueConstraint("project", "name", name="uq_ports_project_name"),
)

# The row is the address: two runs can never have the same one.
ip_allocations = sa.Table(
    "ip_allocations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("subnet_id", sa.String(36), nullable=False),
    sa.Column("ip_address", sa.String(39), nullable=False),
    sa.Column("port_id", sa.String(36), sa.ForeignKey("ports.id"), nullable=False, index=True),
    sa.UniqueConstraint("subnet_id", "ip_address", name="uq_ip_allocations_subnet_ip"),
)

# What is free in the allocation pools of a subnet, as ranges: made when an address of it is first allocated, and again when its
# pools have changed or nothing is left. The row of an address in ip_allocations decides; this says where to look. Addresses are
# hexadecimal numbers of equal length, so that texts have the order of addresses.
subnet_pools = sa.Table(
    "subnet_pools",
    metadata,
    sa.Column("subnet_id", sa.String(36), primary_key=True),
    sa.Column("pools", sa.JSON, nullable=False),  # [[lowest, highest]], for which free_addresses was made
)
free_addresses = sa.Table(
    "free_addresses",
    metadata,
    sa.Column("subnet_id", sa.String(36), primary_key=True),
    sa.Column("lowest", sa.String(32), primary_key=True),
    sa.Column("highest", sa.String(32), nullable=False),
)

block_device_mappings = sa.Table(
    "block_device_mappings",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), nullable=False, index=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("device_name", sa.String(32), nullable=False),
    sa.Column("disk", sa.JSON, nullable=False),  # core.disks.block_devices.PlannedDisk as plain data
)


# source: Nova's system_metadata of a shelved instance. A row is there as long as the instance is shelved, offloaded or not.
shelved_instances = sa.Table(
    "shelved_instances",
    metadata,
    sa.Column("instance_uuid", sa.String(36), sa.ForeignKey("instances.uuid"), primary_key=True),
    sa.Column("image_id", sa.String(36)),  # of its root disk; empty: that is a volume
    sa.Column("host", sa.String(255), nullable=False),  # where it was shelved
    sa.Column("shelved_at", sa.Float, nullable=False),
)

# source: Nova's migrations. A move of an instance to another host, which may bring another flavor.
migrations = sa.Table(
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
    # The local disks, where a resize changes them: core.disks.block_devices.PlannedDisk as plain data.
    sa.Column("old_disks", sa.JSON(none_as_null=True)),
    sa.Column("new_disks", sa.JSON(none_as_null=True)),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    # Of a live migration: per cent of it, and bytes.
    sa.Column("progress", sa.Integer),
    sa.Column("memory_total", sa.BigInteger),
    sa.Column("memory_processed", sa.BigInteger),
    sa.Column("memory_remaining", sa.BigInteger),
    sa.Column("disk_total", sa.BigInteger),
    sa.Column("disk_processed", sa.BigInteger),
    sa.Column("disk_remaining", sa.BigInteger),
    one_of("migrations", "migration_type", moves.TYPES),
    one_of("migrations", "status", moves.STATUSES),
)

instance_actions = sa.Table(
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

instance_action_events = sa.Table(
    "instance_action_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
    sa.Column("event", sa.String(255), nullable=False),
    sa.Column("host", sa.String(255)),
    sa.Column("start_time", sa.Float, nullable=False),
    sa.Column("finish_time", sa.Float),
    sa.Column("result", sa.String(32)),  # Success, Error; empty: not finished
    sa.Column("details", sa.Text),
)

instance_faults = sa.Table(
    "instance_faults",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
    sa.Column("code", sa.Integer, nullable=False),
    sa.Column("error_code", sa.String(64), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("remedy", sa.Text, nullable=False, default=""),
    sa.Column("details", sa.Text, nullable=False, default=""),
    sa.Column("host", sa.String(255)),
    sa.Column("created_at", sa.Float, nullable=False),
)

# source: Nova's _notify_about_instance_usage
notifications = sa.Table(
    "notifications",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
    sa.Column("event_type", sa.String(64), nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)

# Pending cleanups of hosts. Until they are done, the claim and the addresses there stay taken.
cleanups = sa.Table(
    "cleanups",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
    sa.Column("domain_name", sa.String(255), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("part", sa.String(8), nullable=False, default="all", server_default="all"),  # all, old or new
    sa.Column("begun_at", sa.Float),
    # The mark of the move for which the host made what is to be removed (core.instances.move_mark); empty: all.
    sa.Column("made_for", sa.String(128), nullable=False, default="", server_default=""),
    sa.UniqueConstraint("host", "instance_uuid", name="uq_cleanups_host_instance"),
)

# Hosts that reported something of an instance which the ledger has on another host: written with each report of such a host.
sightings = sa.Table(
    "sightings",
    metadata,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("instance_uuid", sa.String(36), primary_key=True, index=True),
    sa.Column(
        "power_state", sa.Integer
    ),  # of its domain there; empty: it has no domain, but a folder or logical volumes
    sa.Column("reported_at", sa.Float, nullable=False),
)

# The fleet on one day (UTC), written by the first heartbeat of the day. Capacity is with allocation ratios; used is reserved and claimed.
capacity_days = sa.Table(
    "capacity_days",
    metadata,
    sa.Column("day", sa.String(10), primary_key=True),  # ISO 8601: the order of texts is that of days
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
