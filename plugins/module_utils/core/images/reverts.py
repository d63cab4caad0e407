# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a revert: which image the root disk of an instance goes back to. Nova has no such action."""

from __future__ import annotations

import typing as t

from ..errors import ImageUnacceptable, InvalidInput, NotSupportedYet
from ..model import Image
from .image import StoredImage
from .resolve import LedgerImages, ambiguous, only
from .snapshots import INSTANCE_NAME

VARIABLE = "bootflow_revert_image"
BACKUP_VARIABLE = "bootflow_revert_backup"
NEWEST = "newest"  # in place of the id: the newest backup


def read_word(word: str | None, backup: str | None = None) -> str:
    """Return the name or id of the image; "": each instance goes back to an incremental backup. :raises InvalidInput: neither is given, or both are"""
    if word and backup:
        raise InvalidInput(
            message="%s and %s are both set" % (VARIABLE, BACKUP_VARIABLE),
            remedy="Set only one of them.",
        )
    if backup:
        return ""
    if not word:
        raise InvalidInput(
            message="%s is not set" % VARIABLE,
            remedy="Name a snapshot or backup of the instance, by its name or id; bootflow.compute.image_list shows them. %s in the name is the name of the"
            " instance. Or set bootflow_revert_backup to go back to an incremental backup." % INSTANCE_NAME,
        )
    return str(word)


def image_of(word: str, ledger: LedgerImages, name: str, uuid: str, project: str, spec: t.Mapping[str, t.Any]) -> Image:
    """Return the image that an instance goes back to. Among several of the name it is the one that was made of the instance.

    :arg word: see read_word(). :arg name, uuid, project: of the instance. :arg spec: its request
    :raises NotSupportedYet: its root is a volume. :raises LedgerImageNotFound: no image of the ledger has the name or id.
    :raises ImageUnacceptable: the image was not made of this instance. :raises ImageAmbiguous: several were.
    :raises ImageNotReadable: none of its stores is known.
    """
    if spec.get("is_bfv"):
        raise NotSupportedYet(
            feature="A revert of instance %s, whose root is a volume," % name,
            remedy="Make a volume of a snapshot of its volume (bootflow.compute.volume_create), and boot another instance with it.",
        )
    named = ledger.find(word.replace(INSTANCE_NAME, name), project)
    own = [image for image in named if image.instance_uuid == uuid]
    if len(own) > 1:
        raise ambiguous(own[0].name, own)
    if not own:
        raise _of_another(only(word.replace(INSTANCE_NAME, name), named), name, uuid)
    return ledger.as_image(own[0])


def _of_another(image: StoredImage, name: str, uuid: str) -> ImageUnacceptable:
    made = "of instance %s" % image.instance_uuid if image.instance_uuid else "of no instance"
    return ImageUnacceptable(
        image_id=image.name,
        reason="it was made %s, and not of instance %s (%s)" % (made, name, uuid),
        remedy="An instance goes back to its own snapshots and backups only. Rebuild it to give it the content of another image: bootflow.compute.rebuild.",
    )
