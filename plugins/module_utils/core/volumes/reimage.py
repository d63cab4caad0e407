# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing the root volume of an instance again from another image: when it is done, when it may begin, and what becomes of the volume.

A volume is ``reserved`` meanwhile, and its previous_status is what it becomes if nothing comes of it: its former status until its storage host
begins to write, ``error`` from then on. Cinder's is ``downloading`` then, which here is a volume that does not exist yet.
source: Cinder's API.reimage and VolumeManager.reimage, Nova's API.rebuild with reimage_boot_volume
"""

from __future__ import annotations

import typing as t

from ..errors import BootflowError, Conflict, InvalidVolume
from . import create_request, states

if t.TYPE_CHECKING:
    from ..model import Image
    from .model import Volume

#: Of a volume that waits for its storage host, or is written.
UNDER_WAY = (states.RESERVED,)


def is_wanted(status: str, has: str | None, image_id: str | None) -> bool:
    """Return whether a root volume is written again by a rebuild. One that could not be written before has no content, so that its own image is
    written, too.

    :arg has: id of the image that it was made from. :arg image_id: of the image that is named; None: none is
    """
    return status == states.ERROR or (image_id is not None and image_id != has)


def check(volume: Volume, image: Image, guests: int = 1, name: str = "") -> None:
    """Check whether ``volume``, which an instance has as its root, may be written again. The image is checked as for a new volume.

    :arg guests: how many instances have it. :arg name: of the volume, for messages
    :raises Conflict: another instance has it, too. :raises InvalidVolume: (400) the status.
    :raises InvalidInput, ImageNotReadable: the image does not fit it, or cannot be read by its storage host.
    """
    if guests > 1:
        raise Conflict(
            message="Cannot re-image a volume which is attached to more than one server.",
            remedy="Detach volume %s from the other instances, or rebuild without an image." % (name or volume.id),
        )
    if volume.status not in (states.IN_USE, states.ERROR):
        raise InvalidVolume(
            reason="Volume %s status must be %s, but current status is %s."
            % (name or volume.id, states.any_of((states.IN_USE, states.ERROR)), volume.status),
            remedy="volume_list shows what is done with it.",
        )
    create_request.check_image(image, volume.size)


def is_torn(status: str, previous: str | None) -> bool:
    """Whether the content of a root volume is not known: a storage host began to write it, and did not end that."""
    return states.ERROR in (status, previous if status in UNDER_WAY else None)


def status_after(previous: str | None, former: str | None, error: BootflowError | None, untouched: bool = False) -> str:
    """Return the status that a volume gets by the end of its writing.

    :arg previous: its previous_status. :arg former: its status before. :arg untouched: after an error: its storage host says that nothing was written
    """
    if error is not None and untouched:
        return former or states.IN_USE
    if error is not None:
        return previous or states.IN_USE
    return states.status_after("reimage", None)
