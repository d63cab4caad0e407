# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With which image an instance is rescued, and whether that can be: checked before any host is contacted.

source: Nova's compute.api.API.rescue and ComputeManager._get_rescue_image
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...core import errors
from ...core.images.resolve import LedgerImages, resolve
from ...core.model import Flavor, Image
from ...core.request.catalogue_images import find_image
from ...core.request.image_rules import image_errors, zero_disk_gb
from ...ledger.compute import history
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.images.image_uses import IMAGE_NOTE
from . import operation

_SMALLER = "Name a smaller image with bootflow_rescue_image_ref."
_UNRESCUE = "Unrescue the instance first: the journal does not say that bootflow_rescue_image_ref is the image it was rescued with."
_TOO_LARGE = (errors.FlavorDiskSmallerThanImage, errors.FlavorDiskSmallerThanMinDisk, errors.FlavorMemoryTooSmall)


Disks = t.Sequence[t.Mapping[str, t.Any]]


def image_of(
    row: Instance, images: t.Mapping[str, Image], asked: str | None, ledger_images: LedgerImages | None = None
) -> Image:
    """Return the image of the rescue: the one that ``asked`` names, by name or id, else the instance's own.

    :arg images: of the catalogue, by name. :arg ledger_images: of the ledger
    :raises ImageNotFound: neither has it. :raises ImageAmbiguous, ImageNotReadable: see core.images.resolve.
    :raises InstanceNotRescuable: none is requested, and the instance has none.
    """
    if asked:
        return resolve(asked, images, ledger_images or LedgerImages(), row.project)
    own = row.spec["image"]
    if not own or not own["id"]:  # of a volume only properties are known
        raise errors.InstanceNotRescuable(
            instance_id=row.uuid,
            reason="its root disk is a volume, and the instance has no image",
            remedy="Name an image of bootflow_images with bootflow_rescue_image_ref.",
        )
    return find_image(images.values(), own)


def size_limit(row: Instance, disks: Disks, image: Image) -> int:
    """Return the GB that the disk of the rescue may have: the size of the instance's root disk. No claim counts it, in Nova neither."""
    root = next((disk for disk in disks if disk.get("boot_index") == 0), {})
    size = int(root.get("size_gb") or 0) or zero_disk_gb(row.spec["image"])
    return size or zero_disk_gb({"min_disk": image.min_disk, "disk_format": image.disk_format, "size": image.size})


def check(row: Instance, disks: Disks, image: Image, password: str | None) -> None:
    """Check that the image fits the instance, and that a given password will have an effect.

    :arg disks: the planned ones of the instance.
    :raises FlavorDiskSmallerThanImage, FlavorDiskSmallerThanMinDisk, FlavorMemoryTooSmall, ImageNotActive, ImageUnacceptable: it does not.
    :raises InstanceNotRescuable: the instance has no config drive, which would tell the password.
    """
    if password and not row.config_drive:
        raise errors.InstanceNotRescuable(
            instance_id=row.uuid,
            reason="it has no config drive, without which the guest does not get bootflow_rescue_password",
            remedy="Leave bootflow_rescue_password out.",
        )
    flavor = dataclasses.replace(Flavor(**row.spec["flavor"]), root_gb=size_limit(row, disks, image))
    for error in image_errors(image, flavor):
        if isinstance(error, _TOO_LARGE):
            error.remedy = _SMALLER
        raise error


def begin(tx: Transaction, images: t.Mapping[str, Image]) -> None:
    """Journal with which image each of these instances is rescued. :arg images: by uuid"""
    history.note(tx, {uuid: IMAGE_NOTE % image.id for uuid, image in images.items()}, "rescue")


def refuse_other_images(tx: Transaction, rows: t.Sequence[Instance], image: Image) -> None:
    """Refuse rescued instances that do not have ``image``, as Nova refuses all that are rescued.

    :raises InstanceInvalidState: one of them has another one, or its journal does not say which.
    """
    noted = history.last_details(tx, [r.uuid for r in rows], "rescue")
    refused: list[errors.BootflowError] = []
    for row in rows:
        if IMAGE_NOTE % image.id not in noted.get(row.uuid, "").splitlines():
            error = errors.InstanceInvalidState(
                attr="vm_state", instance_uuid=row.uuid, state=row.vm_state, method="rescue", remedy=_UNRESCUE
            )
            error.details[operation.WHOSE] = row.display_name
            refused.append(error)
    operation.refuse(refused)


def explained(error: errors.BootflowError) -> errors.BootflowError:
    """An error of a host, with what a rescue can do about an image that is too large."""
    if isinstance(error, _TOO_LARGE):
        error.remedy = "%s The guest was left alone." % _SMALLER
    return error
