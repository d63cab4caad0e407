# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of targets and connections to them (names and texts: Cinder and os-brick)."""

from __future__ import annotations

from .base import BootflowError, NotFound


class ISCSITargetCreateFailed(BootflowError):
    """The storage host could not export the volume (Cinder)."""

    msg_fmt = "Failed to create iscsi target for volume %(volume_id)s."
    retryable = True


class ISCSITargetRemoveFailed(BootflowError):
    """The storage host could not end the volume's export (Cinder)."""

    msg_fmt = "Failed to remove iscsi target for volume %(volume_id)s."


class ISCSITargetAttachFailed(BootflowError):
    """The storage host could not set who may log in to the target (Cinder)."""

    msg_fmt = "Failed to attach iSCSI target for volume %(volume_id)s."


class ISCSITargetNotFoundForVolume(NotFound):
    """The volume has no target (Cinder)."""

    msg_fmt = "No target id found for volume %(volume_id)s."


class FailedISCSITargetPortalLogin(BootflowError):
    """The compute host could not log in to any portal of the target (os-brick)."""

    msg_fmt = "Unable to login to iSCSI Target Portal"
    retryable = True


class VolumeDeviceNotFound(BootflowError):
    """The compute host is logged in, but the disk did not appear (os-brick)."""

    msg_fmt = "Volume device not found at %(device)s."
    retryable = True


class VolumePathNotRemoved(BootflowError):
    """A disk of a volume is still on the host after its removal (os-brick)."""

    msg_fmt = "Volume path %(volume_path)s was not removed in time."
