# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables of block storage: backends, volumes, snapshots, attachments, and their history. Re-exported by tables.

Sizes are GB (GiB).
"""

from __future__ import annotations

from ...core.volumes import states
from ...core.volumes.attachment import NONE, PROGRESS
from ..db.sqlalchemy_import import sa
from .base import metadata, one_of, partial_index

# The rows of partial indexes: live ones, those a run works on, those to remove from a storage host. They stay small, and
# find pending work without reading other rows. The first column of such an index is one that queries compare with a
# single value; otherwise sqlite, which has no statistics, would read a whole index in order.
NOT_DELETED = "deleted = ''"
AT_WORK = "deleted = '' AND run_id IS NOT NULL"
TO_UNEXPORT = "deleted = '' AND export = 'ending'"
OF_SNAPSHOTS = "snapshot_id IS NOT NULL"
PENDING = "deleted = '' AND pending_gb != 0"
# A snapshot keeps the run that made it; its status shows work on it. Queries have to use exactly these words.
SNAPSHOTS_AT_WORK = "deleted = '' AND status IN ('creating', 'deleting')"


# A pool of a storage host at its last report. Placing a volume locks the row.
storage_backends = sa.Table(
    "storage_backends",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("pool_host", sa.String(255), nullable=False, unique=True),  # host@backend#pool
    sa.Column("host", sa.String(255), nullable=False, index=True),  # the inventory's
    sa.Column("backend", sa.String(255), nullable=False),
    sa.Column("pool", sa.String(255), nullable=False),
    sa.Column("availability_zone", sa.String(255), nullable=False, default="nova"),
    sa.Column("disabled", sa.Boolean, nullable=False, default=False),
    sa.Column("frozen", sa.Boolean, nullable=False, default=False),
    # As reported; GB placed since are the sum of pending_gb of its volumes and snapshots.
    sa.Column("total_gb", sa.Float),
    sa.Column("free_gb", sa.Float),
    sa.Column("provisioned_gb", sa.Float),
    sa.Column("report", sa.JSON, nullable=False),  # the complete report
    sa.Column("configuration", sa.JSON, nullable=False),  # the entry of the inventory
    # When its capacity was read, by the storage host's own clock: a report never overwrites a later one.
    sa.Column("boot_id", sa.String(64), nullable=False, default=""),
    sa.Column("read_at", sa.Float, nullable=False, default=0.0),  # seconds since that boot
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("reported_at", sa.Float),
    sa.Column("error", sa.JSON(none_as_null=True)),  # why it is not ready, or did not answer
)

# Possible leftovers of a volume or snapshot on a backend, after its host did not answer or a worker was late. The next
# work on that host removes them.
volume_cleanups = sa.Table(
    "volume_cleanups",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("pool_host", sa.String(255), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),  # volume, snapshot
    sa.Column("item_id", sa.String(36), nullable=False, index=True),
    sa.Column("volume_id", sa.String(36), nullable=False),
    sa.Column("pending_gb", sa.Integer, nullable=False, default=0),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", sa.String(64)),  # the run that removes it now
    sa.Column("created_at", sa.Float, nullable=False),
    sa.UniqueConstraint("pool_host", "item_id", name="uq_volume_cleanups_pool_host_item"),
)


volumes = sa.Table(
    "volumes",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("name", sa.String(255)),  # empty: made by a boot, without a name
    sa.Column("description", sa.String(255), nullable=False, default=""),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("attach_status", sa.String(32), nullable=False, default=states.DETACHED),
    sa.Column("migration_status", sa.String(32)),
    sa.Column("previous_status", sa.String(32)),
    sa.Column("bootable", sa.Boolean, nullable=False, default=False),
    sa.Column("multiattach", sa.Boolean, nullable=False, default=False),
    sa.Column("availability_zone", sa.String(255)),
    sa.Column("pool_host", sa.String(255)),  # host@backend#pool; empty until scheduled
    sa.Column("pending_gb", sa.Integer, nullable=False, default=0),  # of its backend, not yet in the report
    sa.Column("made", sa.Boolean, nullable=False, default=False),  # the logical volume exists
    sa.Column("new_size", sa.Integer),  # during an extension
    sa.Column("volume_type", sa.String(255)),
    sa.Column("snapshot_id", sa.String(36)),
    sa.Column("source_volid", sa.String(36)),
    sa.Column("image_id", sa.String(36)),
    sa.Column(
        "spec", sa.JSON, nullable=False
    ),  # VolumeRequest.as_dict(), with "image": the catalogue's image as it was
    sa.Column("digest", sa.JSON(none_as_null=True)),  # of the request, for comparison with later ones
    sa.Column("metadata", sa.JSON, nullable=False, key="meta"),
    sa.Column("image_metadata", sa.JSON, nullable=False),
    sa.Column("retry", sa.JSON(none_as_null=True)),
    # The booting instance it is made for: the volume is placed after the instance, and made before its disks.
    sa.Column("instance_uuid", sa.String(36), index=True),
    sa.Column("run_id", sa.String(64), index=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("scheduled_at", sa.Float),
    sa.Column("launched_at", sa.Float),
    sa.Column("deleted_at", sa.Float),
    sa.Column("deleted", sa.String(36), nullable=False, default=""),  # '' while it lives, its id afterwards
    sa.UniqueConstraint("project", "name", "deleted", name="uq_volumes_name"),
    # Covers the sums of what is promised in each pool, and of each project's usage.
    partial_index("ix_volumes_pool_host", "pool_host", "size", "new_size", "pending_gb", where=NOT_DELETED),
    partial_index("ix_volumes_usage", "project", "volume_type", "size", "new_size", where=NOT_DELETED),
    partial_index("ix_volumes_at_work", "deleted", "run_id", "pool_host", where=AT_WORK),
    one_of("volumes", "status", states.VOLUME_STATES),
    one_of("volumes", "attach_status", states.ATTACH_STATES),
)

volume_snapshots = sa.Table(
    "volume_snapshots",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False, index=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("name", sa.String(255)),
    sa.Column("description", sa.String(255), nullable=False, default=""),
    sa.Column("volume_size", sa.Integer, nullable=False),
    sa.Column("volume_type", sa.String(255)),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("pending_gb", sa.Integer, nullable=False, default=0),
    sa.Column("metadata", sa.JSON, nullable=False, key="meta"),
    sa.Column("run_id", sa.String(64), index=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("deleted_at", sa.Float),
    sa.Column("deleted", sa.String(36), nullable=False, default=""),
    sa.UniqueConstraint("project", "name", "deleted", name="uq_volume_snapshots_name"),
    partial_index("ix_volume_snapshots_at_work", "deleted", "run_id", where=SNAPSHOTS_AT_WORK),
    partial_index("ix_volume_snapshots_pending", "deleted", "volume_id", where=PENDING),
    one_of("volume_snapshots", "status", states.SNAPSHOT_STATES),
)

# Without secrets: each run that exports generates new CHAP credentials, which only target and initiator store.
volume_attachments = sa.Table(
    "volume_attachments",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("volume_id", sa.String(36), sa.ForeignKey("volumes.id"), nullable=False, index=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
    sa.Column("attach_status", sa.String(32), nullable=False),
    sa.Column("attach_mode", sa.String(2), nullable=False, default="rw"),
    sa.Column("mountpoint", sa.String(32)),  # /dev/vdb, as the guest's domain names it
    sa.Column("delete_on_termination", sa.Boolean, nullable=False, default=False),
    sa.Column("attached_host", sa.String(255), index=True),  # the compute host
    sa.Column("connector", sa.String(8)),  # kernel, qemu, rbd
    sa.Column("initiator", sa.String(255)),
    sa.Column("storage_host", sa.String(255), index=True),  # where it is exported
    # The state of its life: attach_status, export and connection of core.volumes.attachment.
    sa.Column("export", sa.String(8), nullable=False, default=NONE),
    sa.Column("connection", sa.String(8), nullable=False, default=NONE),
    sa.Column("iqn", sa.String(255)),
    sa.Column("lun", sa.Integer),
    sa.Column("portals", sa.JSON(none_as_null=True)),
    # What an export has in place of a target: the name of its connector, and what that needs. Without secrets.
    sa.Column("connection_info", sa.JSON(none_as_null=True)),
    sa.Column("device_path", sa.String(255)),  # kernel: the source of the guest's disk
    sa.Column(
        "rescan", sa.Boolean, nullable=False, default=False
    ),  # after an extension: the host has to update the size
    # Empty: the instance's own. Else the id of that one: this is the second attachment, while the guest migrates and until its former host is clean.
    sa.Column("beside", sa.String(36), nullable=False, default="", server_default=""),
    sa.Column("run_id", sa.String(64)),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("attached_at", sa.Float),
    sa.Column("deleted", sa.String(36), nullable=False, default=""),
    sa.UniqueConstraint(
        "volume_id", "instance_uuid", "beside", "deleted", name="uq_volume_attachments_volume_instance"
    ),
    partial_index("ix_volume_attachments_at_work", "deleted", "run_id", where=AT_WORK),
    partial_index("ix_volume_attachments_to_unexport", "connection", "storage_host", where=TO_UNEXPORT),
    one_of("volume_attachments", "attach_status", states.ATTACH_STATES),
    one_of("volume_attachments", "export", PROGRESS),
    one_of("volume_attachments", "connection", PROGRESS),
)

# The journal: the events of a volume or snapshot on a host, and their results.
volume_events = sa.Table(
    "volume_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("volume_id", sa.String(36), nullable=False, index=True),
    sa.Column("snapshot_id", sa.String(36)),
    sa.Column("event", sa.String(255), nullable=False),
    sa.Column("host", sa.String(255)),
    sa.Column("request_id", sa.String(64), nullable=False, default=""),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("start_time", sa.Float, nullable=False),
    sa.Column("finish_time", sa.Float),
    sa.Column("result", sa.String(32)),  # Success, Error; empty: not finished
    sa.Column("details", sa.Text),
    partial_index("ix_volume_events_snapshot_id", "snapshot_id", where=OF_SNAPSHOTS),
)

volume_faults = sa.Table(
    "volume_faults",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("volume_id", sa.String(36), nullable=False, index=True),
    sa.Column("snapshot_id", sa.String(36)),
    sa.Column("code", sa.Integer, nullable=False),
    sa.Column("error_code", sa.String(64), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("remedy", sa.Text, nullable=False, default=""),
    sa.Column("host", sa.String(255)),
    sa.Column("rescheduled", sa.Boolean, nullable=False, default=False),  # not the final failure
    sa.Column("created_at", sa.Float, nullable=False),
    partial_index("ix_volume_faults_snapshot_id", "snapshot_id", where=OF_SNAPSHOTS),
)

volume_notifications = sa.Table(
    "volume_notifications",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("volume_id", sa.String(36), nullable=False, index=True),
    sa.Column("event_type", sa.String(64), nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)
