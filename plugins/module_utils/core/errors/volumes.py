# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of volumes and snapshots (names, texts and codes: Cinder)."""

from __future__ import annotations

from .base import BootflowError, Conflict, Forbidden, InvalidInput, NotFound


class InvalidVolume(InvalidInput):
    msg_fmt = "Invalid volume: %(reason)s"


class InvalidSnapshot(InvalidInput):
    msg_fmt = "Invalid snapshot: %(reason)s"


class InvalidVolumeType(InvalidInput):
    msg_fmt = "Invalid volume type: %(reason)s"


class InvalidVolumeMetadata(InvalidInput):
    msg_fmt = "Invalid metadata: %(reason)s"


class InvalidVolumeMetadataSize(InvalidInput):
    msg_fmt = "Invalid metadata size: %(reason)s"


class InvalidVolumeAttachMode(InvalidInput):
    msg_fmt = "Invalid attaching mode '%(mode)s' for volume %(volume_id)s."


class InvalidAvailabilityZone(InvalidInput):
    msg_fmt = "Availability zone '%(az)s' is invalid."
    remedy = "Name a zone that a backend of bootflow_storage is in, or set bootflow_allow_availability_zone_fallback."


class VolumeExists(Conflict):
    """The project has a volume of that name, and it is another."""

    msg_fmt = "Volume %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first, give the new one another name, extend it, or restore its definition."


class SnapshotExists(Conflict):
    msg_fmt = "Snapshot %(name)s already exists with another definition: %(reason)s."
    remedy = "Delete it first, give the new one another name, or restore its definition."


class VolumeLocked(Conflict):
    """Another live run works on the volume."""

    msg_fmt = "Volume %(name)s is being worked on by run %(run)s until %(until)s."
    remedy = "Wait for that run; if it is dead, its lease ends at the time named."


class VolumeAttached(InvalidInput):
    msg_fmt = "Volume %(volume_id)s is still attached, detach volume first."


class VolumeNotFound(NotFound):
    msg_fmt = "Volume %(volume_id)s could not be found."
    remedy = "Name a volume that bootflow.compute.volume_list shows, of the same project, or give its id."


class SnapshotNotFound(NotFound):
    msg_fmt = "Snapshot %(snapshot_id)s could not be found."
    remedy = "Name a snapshot that bootflow.compute.volume_list shows, of the same project, or give its id."


class CannotDetachRootVolume(Forbidden):
    """Nova's answer in the API; it has no name there."""

    msg_fmt = "Cannot detach a root device volume"
    remedy = "Delete the instance: without delete_on_termination its root volume stays."


class VolumeAttachmentNotFound(NotFound):
    msg_fmt = "Volume attachment could not be found with filter: %(filter)s."


class VolumeTypeNotFound(NotFound):
    msg_fmt = "Volume type %(volume_type_id)s could not be found."
    remedy = "Name a type of bootflow_volume_types."


class VolumeTypeNotFoundByName(VolumeTypeNotFound):
    msg_fmt = "Volume type with name %(volume_type_name)s could not be found."


class NoValidBackend(BootflowError):
    msg_fmt = "No valid backend was found. %(reason)s"
    remedy = "Run the same with --check to see why each backend was turned down."


class DriverNotInitialized(BootflowError):
    msg_fmt = "Volume driver not ready."
    status = 503
    retryable = True
    remedy = "Prepare the backend: its volume group is missing or not active."


class VolumeBackendAPIException(BootflowError):
    msg_fmt = "Bad or unexpected response from the storage volume backend API: %(data)s"
    retryable = True


class MetadataCopyFailure(BootflowError):
    msg_fmt = "Failed to copy metadata to volume: %(reason)s"
    status = 400


class MetadataCreateFailure(BootflowError):
    msg_fmt = "Failed to create metadata for volume: %(reason)s"
    status = 400


class MetadataUpdateFailure(BootflowError):
    msg_fmt = "Failed to update metadata for volume: %(reason)s"
    status = 400


class VolumeNotCreated(BootflowError):
    """A boot waited for its volume in vain (Nova)."""

    msg_fmt = (
        "Volume %(volume_id)s did not finish being created even after we waited %(seconds)s seconds or %(attempts)s "
        "attempts. And its status is %(volume_status)s."
    )


class VolumeIsBusy(Conflict):
    """In use, or with snapshots that need it (Cinder)."""

    msg_fmt = "deleting volume %(volume_name)s that has snapshot"
    remedy = "Delete its snapshots first."


class SnapshotIsBusy(Conflict):
    msg_fmt = "deleting snapshot %(snapshot_name)s that has dependent volumes"
