# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of images, of flavors that are too small for them, and of disks made of them."""

from __future__ import annotations

from .base import BootflowError, Conflict, Forbidden, NotFound


class ImageNotFound(NotFound):
    """The image is not in bootflow_images."""

    msg_fmt = "Image %(image_id)s could not be found."
    status = 400
    remedy = "Name an image of bootflow_images."


class ImageError(BootflowError):
    """An image cannot be used."""

    status = 400


class ImageUnacceptable(ImageError):
    """The image's content or entry contradicts what the request or the catalogue says."""

    msg_fmt = "Image %(image_id)s is unacceptable: %(reason)s"


class ImageNotActive(ImageError):
    """The image is not active in the catalogue."""

    msg_fmt = "Image %(image_id)s is not active."


class ImageChecksumMismatch(ImageUnacceptable):
    """The fetched file has another checksum than the catalogue."""

    msg_fmt = "Image %(image_id)s is unacceptable: sha256 is %(actual)s, the catalogue says %(expected)s"
    remedy = "Fetch the image again, or correct its checksum in bootflow_images."


class ImageDownloadFailed(ImageError):
    """The host could not fetch the image."""

    msg_fmt = "Image %(image_id)s could not be fetched from %(url)s: %(reason)s"
    status = 503
    retryable = True
    remedy = "Check the URL and that this host reaches it."


class InvalidDiskFormat(ImageError):
    """The image's disk_format is not supported."""

    msg_fmt = "Disk format %(disk_format)s is not acceptable"


class InvalidDiskInfo(ImageError):
    """An existing disk on the host does not match its description."""

    msg_fmt = "Disk info file is invalid: %(reason)s"


class FlavorDiskSmallerThanImage(ImageError):
    """The image does not fit into the flavor's root disk."""

    msg_fmt = (
        "Flavor's disk is too small for requested image. Flavor disk is %(flavor_size)i bytes, "
        "image is %(image_size)i bytes."
    )
    remedy = "Choose a flavor with a larger root_gb."


class VolumeSmallerThanMinDisk(ImageError):
    """The root volume is smaller than the image's min_disk."""

    msg_fmt = (
        "Volume is smaller than the minimum size specified in image metadata. "
        "Volume size is %(volume_size)i bytes, minimum size is %(image_min_disk)i bytes."
    )
    remedy = "Ask for a larger volume_size."


class FlavorDiskSmallerThanMinDisk(ImageError):
    """The flavor's root disk is smaller than the image's min_disk."""

    msg_fmt = (
        "Flavor's disk is smaller than the minimum size specified in image metadata. "
        "Flavor disk is %(flavor_size)i bytes, minimum size is %(image_min_disk)i bytes."
    )
    remedy = "Choose a flavor with a larger root_gb."


class FlavorMemoryTooSmall(ImageError):
    """The flavor has less memory than the image's min_ram."""

    msg_fmt = "Flavor's memory is too small for requested image."
    remedy = "Choose a flavor with at least as much memory_mb as the image's min_ram."


class AutoDiskConfigDisabledByImage(ImageError):
    """The request sets disk_config to AUTO and the image forbids it."""

    msg_fmt = "Requested image %(image)s has automatic disk resize disabled."


class ImageTooBig(ImageError):
    """The storage host lacks space to convert the image."""

    msg_fmt = "Image %(image_id)s size exceeded available disk space: %(reason)s"
    remedy = "Free space in the directory that images are converted in."


class ImageCopyFailure(BootflowError):
    """Copying an image into a volume failed."""

    msg_fmt = "Failed to copy image to volume: %(reason)s"
    status = 400


class LedgerImageNotFound(NotFound):
    """The ledger has no image of this name or id that the project sees."""

    msg_fmt = "Image %(image_id)s could not be found."
    remedy = "Name an image that bootflow.compute.image_list shows, of the same project, or give its id."


class ImageAmbiguous(Conflict):
    """Several images have the name."""

    msg_fmt = "The name %(name)s is that of several images: %(images)s"
    remedy = "Name the image by its id."


class ImageStatusConflict(Conflict):
    """The status of the image does not admit the event: another run changed it."""

    msg_fmt = "Image %(image_id)s is %(state)s, which does not admit the event %(event)s."
    remedy = "Run the playbook again: it continues from the status that the image has now."


class ImageExists(Conflict):
    """An image of this name has other content."""

    msg_fmt = "Image %(name)s exists as %(image_id)s with %(has)s, not %(wanted)s."
    remedy = "Delete that image first, or give the new one another name."


class ImageProtected(Forbidden):
    """The image is protected from deletion."""

    msg_fmt = "Image %(image_id)s is protected and cannot be deleted."
    remedy = "Import it again with protected: false, which changes nothing else."


class ImageOfOtherProject(Forbidden):
    """The image belongs to another project."""

    msg_fmt = "You are not permitted to delete image %(image_id)s, which belongs to project %(owner)s."
    remedy = "Set bootflow_project to the project of the image."


class ImageInUse(Conflict):
    """A run works on the image, or makes disks of it."""

    msg_fmt = "Image %(image_id)s is in use: %(reason)s"
    remedy = "Wait until this has ended, and run the same command again."


class ImageStoreNotFound(NotFound):
    """The store is not in bootflow_image_stores."""

    msg_fmt = "Image store %(store)s could not be found."
    remedy = "Name a store of bootflow_image_stores."


class ImageNotReadable(Conflict):
    """No store from which the image can be read has it."""

    msg_fmt = "Image %(image_id)s cannot be read: %(reason)s"
