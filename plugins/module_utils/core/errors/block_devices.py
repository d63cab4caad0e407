# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of block devices: in requests, and of disks of existing guests."""

from __future__ import annotations

from .base import BootflowError, Conflict, InvalidInput


class InvalidBDM(InvalidInput):
    """A block device of the request is invalid."""

    msg_fmt = "Block Device Mapping is Invalid: %(reason)s"


class InvalidBDMBootSequence(InvalidBDM):
    """The boot indexes do not give exactly one root disk, or contradict the image."""

    msg_fmt = "Block Device Mapping is Invalid: Boot sequence for the instance and image/block device mapping combination is not valid."


class InvalidBDMFormat(InvalidBDM):
    """A field of a block device is malformed."""

    msg_fmt = "Block Device Mapping is Invalid: %(details)s"


class InvalidBDMEphemeralSize(InvalidBDM):
    """The ephemeral disks exceed the flavor's ephemeral_gb."""

    msg_fmt = (
        "Ephemeral disks requested are larger than the instance type allows. If no size is given in one block device "
        "mapping, flavor ephemeral size will be used."
    )


class InvalidBDMSwapSize(InvalidBDM):
    """The swap disk exceeds the flavor's swap_mb."""

    msg_fmt = "Swap drive requested is larger than instance type allows."


class InvalidBDMLocalsLimit(InvalidBDM):
    """The request has more local disks than a guest may have."""

    msg_fmt = "Block Device Mapping is Invalid: You specified more local devices than the limit allows"


class InvalidBDMVolume(InvalidBDM):
    """The volume of a block device does not exist, or cannot be used."""

    msg_fmt = "Block Device Mapping is Invalid: failed to get volume %(id)s."


class InvalidBDMSnapshot(InvalidBDM):
    """The snapshot of a block device does not exist, or cannot be used."""

    msg_fmt = "Block Device Mapping is Invalid: failed to get snapshot %(id)s."


class InvalidBDMImage(InvalidBDM):
    """The image of a block device does not exist."""

    msg_fmt = "Block Device Mapping is Invalid: failed to get image %(id)s."
    remedy = "Name an image of bootflow_images."


class InvalidBDMVolumeNotBootable(InvalidBDM):
    """The root disk is a volume that was not created from an image."""

    msg_fmt = "Block Device %(id)s is not bootable."
    remedy = "Boot from a volume that was made of an image, or attach this one without boot_index 0."


class InvalidBDMDiskBus(InvalidBDM):
    """The disk bus is unknown. The text is the one that Nova intends; a slip in Nova cuts it after the first sentence."""

    msg_fmt = "Block Device Mapping is invalid: The provided disk bus %(disk_bus)s is not valid."
    remedy = "Use one of virtio, scsi, sata, ide, usb and fdc, or leave disk_bus out."


class TooManyDiskDevices(InvalidBDM):
    """The guest would have more disks than its bus or the limit allows."""

    msg_fmt = (
        "The maximum allowed number of disk devices (%(maximum)d) to attach to a single instance has been exceeded."
    )
    status = 403
    remedy = "Put the disk on another bus (virtio or scsi), or leave it out."


class MismatchVolumeAZException(InvalidInput):
    """A volume and the requested zone differ while bootflow_cross_az_attach is false (source: Nova's create, 400)."""

    msg_fmt = "The availability zone between the server and its attached volumes do not match: %(reason)s."
    remedy = "Choose volumes of one zone and ask for that zone or for none, or set bootflow_cross_az_attach: true."


class DevicePathInUse(Conflict):
    """Another disk of the guest has the requested device name (Nova)."""

    msg_fmt = "The supplied device path (%(path)s) is in use."
    remedy = "Name another device, or leave device out: the next free one is taken."


class DeviceDetachFailed(BootflowError):
    """The guest did not release a disk or an interface (Nova)."""

    msg_fmt = "Device detach failed for %(device)s: %(reason)s"
    remedy = "Unmount the disk in the guest, make sure that the guest runs and takes part in hot-unplug (ACPI), and detach again."
