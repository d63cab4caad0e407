# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of targets and of connections to them (names and texts: Cinder and os-brick)."""

from __future__ import annotations

from .base import BootflowError, NotFound


class ISCSITargetCreateFailed(BootflowError):
    msg_fmt = "Failed to create iscsi target for volume %(volume_id)s."
    retryable = True


class ISCSITargetRemoveFailed(BootflowError):
    msg_fmt = "Failed to remove iscsi target for volume %(volume_id)s."


class ISCSITargetAttachFailed(BootflowError):
    """Who may use a target could not be set (Cinder)."""

    msg_fmt = "Failed to attach iSCSI target for volume %(volume_id)s."


class ISCSITargetNotFoundForVolume(NotFound):
    msg_fmt = "No target id found for volume %(volume_id)s."


class FailedISCSITargetPortalLogin(BootflowError):
    """No portal of a target let the initiator in (os-brick)."""

    msg_fmt = "Unable to login to iSCSI Target Portal"
    retryable = True


class VolumeDeviceNotFound(BootflowError):
    """Logged in, and the disk did not appear (os-brick)."""

    msg_fmt = "Volume device not found at %(device)s."
    retryable = True


class VolumePathNotRemoved(BootflowError):
    """A disk of a volume is still on the host after its removal (os-brick)."""

    msg_fmt = "Volume path %(volume_path)s was not removed in time."
