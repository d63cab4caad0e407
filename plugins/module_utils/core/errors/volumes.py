# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of volumes and snapshots (names, texts and codes: Cinder)."""

from __future__ import annotations

from .base import BootflowError, Conflict, Forbidden, InvalidInput, NotFound


class InvalidVolume(InvalidInput):
    """The volume's state or properties do not allow the request."""

    msg_fmt = "Invalid volume: %(reason)s"


class InvalidSnapshot(InvalidInput):
    """The snapshot's state does not allow the request."""

    msg_fmt = "Invalid snapshot: %(reason)s"


class InvalidVolumeMetadata(InvalidInput):
    """The metadata of a volume is malformed."""

    msg_fmt = "Invalid metadata: %(reason)s"


class InvalidVolumeMetadataSize(InvalidInput):
    """A key or value of a volume's metadata is too long."""

    msg_fmt = "Invalid metadata size: %(reason)s"


class InvalidVolumeAttachMode(InvalidInput):
    """The attach mode is not allowed for the volume."""

    msg_fmt = "Invalid attaching mode '%(mode)s' for volume %(volume_id)s."


class InvalidAvailabilityZone(InvalidInput):
    """No storage backend is in this availability zone."""

    msg_fmt = "Availability zone '%(az)s' is invalid."
    remedy = "Name a zone that a backend of bootflow_storage is in, or set bootflow_allow_availability_zone_fallback."


class VolumeExists(Conflict):
    """A volume of this name exists in the project and differs from the request."""

    msg_fmt = "Volume %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first, give the new one another name, extend it, or restore its definition."


class SnapshotExists(Conflict):
    """A snapshot of this name exists in the project and differs from the request."""

    msg_fmt = "Snapshot %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first, give the new one another name, or restore its definition."


class VolumeLocked(Conflict):
    """Another live run is working on the volume."""

    msg_fmt = "Volume %(name)s is being worked on by run %(run)s until %(until)s."
    remedy = "Wait for that run; if it is dead, its lease ends at the time named."


class VolumeNotFound(NotFound):
    """No volume has this name or id."""

    msg_fmt = "Volume %(volume_id)s could not be found."
    remedy = "Name a volume that bootflow.compute.volume_list shows, of the same project, or give its id."


class SnapshotNotFound(NotFound):
    """No snapshot has this name or id."""

    msg_fmt = "Snapshot %(snapshot_id)s could not be found."
    remedy = "Name a snapshot that bootflow.compute.volume_list shows, of the same project, or give its id."


class CannotDetachRootVolume(Forbidden):
    """The volume is the root disk of its instance (Nova's API, where the error is unnamed)."""

    msg_fmt = "Cannot detach a root device volume"
    remedy = "Delete the instance: without delete_on_termination its root volume stays."


class VolumeAttachmentNotFound(NotFound):
    """The volume is not attached to the instance."""

    msg_fmt = "Volume attachment could not be found with filter: %(filter)s."


class VolumeAttachmentConflict(Conflict):
    """The state of the attachment does not admit the event: another run changed it."""

    msg_fmt = "Attachment %(attachment_id)s is %(state)s, which does not admit the event %(event)s."
    remedy = "Run the playbook again: it continues from the state the attachment has now."


class VolumeTypeNotFound(NotFound):
    """The volume type is not in bootflow_volume_types."""

    msg_fmt = "Volume type %(volume_type_id)s could not be found."
    remedy = "Name a type of bootflow_volume_types."


class VolumeTypeNotFoundByName(VolumeTypeNotFound):
    """No volume type has this name."""

    msg_fmt = "Volume type with name %(volume_type_name)s could not be found."


class NoValidBackend(BootflowError):
    """The volume scheduler found no backend for the volume."""

    msg_fmt = "No valid backend was found. %(reason)s"
    remedy = "Run the same command with --check to see why each backend was rejected."


class DriverNotInitialized(BootflowError):
    """The backend's volume group or thin pool is missing or inactive."""

    msg_fmt = "Volume driver not ready."
    status = 503
    retryable = True
    remedy = "Prepare the backend: its volume group is missing or not active."


class VolumeBackendAPIException(BootflowError):
    """The storage host could not do what it was asked."""

    msg_fmt = "Bad or unexpected response from the storage volume backend API: %(data)s"
    retryable = True


class VolumeNotCreated(BootflowError):
    """A boot waited too long for its volume (Nova)."""

    msg_fmt = (
        "Volume %(volume_id)s did not finish being created even after we waited %(seconds)s seconds or %(attempts)s "
        "attempts. And its status is %(volume_status)s."
    )


class VolumeIsBusy(Conflict):
    """The volume is in use, or snapshots depend on it (Cinder)."""

    msg_fmt = "deleting volume %(volume_name)s that has snapshot"
    remedy = "Delete its snapshots first."


class MultiattachSwapVolumeNotSupported(InvalidInput):
    """Another instance may write to the volume that is to be exchanged (Nova)."""

    msg_fmt = "Swapping multi-attach volume %(volume_id)s with multiple read/write attachments is not supported."
    remedy = "Detach the volume from the other instances first."


class DiskJobRunning(Conflict):
    """QEMU already copies the disk, or backs the guest up."""

    msg_fmt = "Disk %(disk)s of guest %(instance_uuid)s has a block job or backup already."
    retryable = True
    remedy = "Wait until it has ended (virsh blockjob DOMAIN DISK, virsh domjobinfo DOMAIN), or abort it; then run the playbook again."


class SwapUnderWay(Conflict):
    """A run that died, or whose host did not answer, left the exchange of the volume half done."""

    msg_fmt = "Volume %(old)s of instance %(instance_uuid)s is being swapped for volume %(new)s."
    retryable = True
    remedy = (
        "Run bootflow.compute.swap_volume while host %(host)s answers: it completes the swap, or undoes it. If the host is lost, force it down and"
        " evacuate the instance: the evacuation keeps the former volume."
    )


class SwapCutShort(Conflict):
    """The host was lost in the exchange of a volume, and the instance went to another one with the former volume."""

    msg_fmt = "The swap of volume %(old)s of instance %(instance_uuid)s for volume %(new)s was cut short: host %(host)s was lost, and the instance has %(old)s."
    remedy = "Compare both volumes before you use or delete %(new)s: if the guest had switched before its host was lost, its last writes are there."


class SnapshotIsBusy(Conflict):
    """Volumes depend on the snapshot (Cinder)."""

    msg_fmt = "deleting snapshot %(snapshot_name)s that has dependent volumes"


class StorageClusterUnavailable(BootflowError):
    """The storage cluster of a backend does not answer, or not in time."""

    msg_fmt = "The storage cluster of pool %(pool)s does not answer: %(reason)s"
    status = 503
    retryable = True
    remedy = "Look at the cluster (ceph status) and at the network between it and the storage host, then run the playbook again."


class StorageClusterFull(BootflowError):
    """The pool is full, by its quota or by the disks of its cluster: each write to it would wait."""

    msg_fmt = "Pool %(pool)s is full (%(reason)s)."
    status = 507
    retryable = True
    remedy = "Add disks to the cluster, raise the quota of the pool, or delete volumes once it takes writes again."


class RbdFailed(VolumeBackendAPIException):
    """A program of Ceph failed on the storage host."""

    msg_fmt = "%(command)s failed: %(reason)s"
    errno = 0  # the number that its message has; 0: none


class VolumeOpenElsewhere(Conflict):
    """A client that the ledger does not know has the volume open: a second guest would destroy its data."""

    msg_fmt = "Volume %(volume_id)s is open at %(watchers)s, which the ledger does not know of."
    remedy = "End the guest or program there. A client that was killed counts for 30 s more."


class DiskOpenElsewhere(Conflict):
    """A client has a local disk in Ceph open that is not the guest on this host: a second guest would destroy its data."""

    msg_fmt = "Disk %(disk)s is open at %(watchers)s, which is not the guest on this host."
    remedy = "End the guest or program there. A client that was killed counts for 30 s more."


class DiskInPool(Conflict):
    """A pool has a disk of an instance of which the host has no record."""

    msg_fmt = "Pool %(pool)s has disk %(disk)s already, of which this host has no record; it was left alone."
    remedy = "Another host may have the guest. Run bootflow.compute.audit to see where the instance is. If no host has it, remove the image (rbd rm)."


class OtherCluster(InvalidInput):
    """A host reaches another Ceph cluster than its settings name."""

    msg_fmt = "The monitors of pool %(pool)s belong to cluster %(found)s, not to %(fsid)s."
    remedy = "Correct bootflow_disk_rbd_monitors or bootflow_disk_rbd_fsid of the host."
