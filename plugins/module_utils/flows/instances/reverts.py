# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverts of instances to images that were made of them: which image each gets, before any host is contacted. The instance itself does not change."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.images import reverts
from ...core.images.resolve import LedgerImages
from ...core.model import Flavor, Image
from ...core.request.image_rules import image_errors
from ...ledger.compute import history
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ...ledger.images.image_uses import IMAGE_NOTE
from . import operation as engine
from .operation import Begun, Operation, Selection

Images = t.Dict[str, Image]  # by the uuids of instances


def begin(
    tx: Transaction,
    revert: Operation,
    selection: Selection,
    known_hosts: t.Collection[str],
    word: str,
    known: LedgerImages,
) -> tuple[Begun, Images]:
    """Begin to revert the selected instances, all of them or none. Returns also the images.

    The journal has the image of each, so that it is not deleted meanwhile.

    :arg word: the name or id of the image, see core.images.reverts. :arg known: the images of the ledger
    :raises ImageNotActive: an image was deleted since ``known`` was read.
    :raises BootflowError: see flows.instances.operation.begin() and core.images.reverts.image_of(); of all instances that cannot begin
    """
    begun = engine.begin(tx, revert, selection, known_hosts)
    refused: list[errors.BootflowError] = []
    chosen: Images = {}
    for row in begun.rows:
        try:
            image = reverts.image_of(word, known, row.display_name, row.uuid, row.project, row.spec)
            _check(row, image)
            chosen[row.uuid] = image
        except errors.BootflowError as e:
            e.details.setdefault(engine.WHOSE, row.display_name)
            refused.append(e)
    engine.refuse(refused)
    images.check_active(tx, {image.id for image in chosen.values()})
    history.note(tx, {uuid: IMAGE_NOTE % image.id for uuid, image in chosen.items()}, revert.name)
    return begun, chosen


def _check(row: Instance, image: Image) -> None:
    """Check an image that was made of the instance: of what the instance has now, only the size of its root disk matters.

    :raises ImageNotActive: its bytes have not arrived. :raises FlavorDiskSmallerThanImage, FlavorDiskSmallerThanMinDisk: the disk is smaller
    """
    flavor = Flavor(row.spec["flavor"]["name"], memory_mb=image.min_ram, vcpus=row.vcpus, root_gb=row.root_gb)
    for error in image_errors(image, flavor):
        raise error
