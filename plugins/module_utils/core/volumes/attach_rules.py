# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for attaching and detaching volumes. source: Cinder's manager.attach_volume, Nova's volume API (Queens)"""

from __future__ import annotations

import typing as t

from ..errors import InvalidVolume, InvalidVolumeAttachMode, VolumeAttachmentNotFound
from . import states
from .model import Attachment, Volume

MODES = ("rw", "ro")

_Attachment = t.TypeVar("_Attachment", bound=Attachment)


def check_attach_to_instance(
    volume: Volume,
    instance_uuid: str,
    attachments: t.Sequence[Attachment] = (),
    instance_zone: str | None = None,
    cross_az_attach: bool = True,
    mode: str = "rw",
    together: bool = False,
) -> states.Transition:
    """Nova's and Cinder's checks before a volume is reserved for an instance.

    :arg attachments: all of the volume.
    :arg together: this run is attaching the volume to other instances, see states.check_reserve().
    :arg cross_az_attach: False: volume and instance have to be in the same zone.
    :raises InvalidVolume: already attached to the instance, in another zone, in maintenance, or not available.
    :raises InvalidVolumeAttachMode: an unknown mode.
    """
    if any(a.instance_uuid == instance_uuid and a.attach_status != states.DETACHED for a in attachments):
        raise InvalidVolume(
            reason="volume %s already attached" % volume.id,
            remedy="The volume is already attached to this instance %s." % instance_uuid,
        )
    if not cross_az_attach and instance_zone is not None and instance_zone != volume.availability_zone:
        raise InvalidVolume(
            reason="Instance %s and volume %s are not in the same availability_zone. Instance is in %s. Volume is in %s"
            % (instance_uuid, volume.id, instance_zone, volume.availability_zone),
            remedy="Choose a volume of that zone, or set bootflow_cross_az_attach: true.",
        )
    if volume.status == states.MAINTENANCE:
        raise InvalidVolume(reason="The volume cannot be attached in maintenance mode.")
    if mode not in MODES:
        raise InvalidVolumeAttachMode(mode=mode, volume_id=volume.id, remedy="Attach it with mode rw or ro.")
    if volume.status == states.IN_USE and not volume.multiattach and not volume.migration_status:
        where = ", ".join(a.instance_uuid for a in attachments) or "an instance"
        raise InvalidVolume(
            reason="volume is already attached and multiple attachments are not enabled",
            remedy="Volume %s is attached to %s: detach it there first." % (volume.id, where),
        )
    return states.check_reserve(volume, together)


def check_detach(volume: Volume, attachments: t.Sequence[_Attachment], instance_uuid: str | None = None) -> _Attachment:
    """The attachment to detach.

    :raises InvalidVolume: (400) maintenance, not attached, or several attachments and no instance given.
    :raises VolumeAttachmentNotFound: (404) the volume is not attached to that instance.
    """
    if volume.status == states.MAINTENANCE:
        raise InvalidVolume(reason="The volume cannot be detached in maintenance mode.")
    states.check_begin_detaching(volume)
    live_attachments = [a for a in attachments if a.attach_status != states.DETACHED]
    if instance_uuid is not None:
        live_attachments = [a for a in live_attachments if a.instance_uuid == instance_uuid]
        if not live_attachments:
            raise VolumeAttachmentNotFound(
                filter="instance_uuid = %s, volume_id = %s" % (instance_uuid, volume.id),
                remedy="volume_list shows where it is attached.",
            )
    if len(live_attachments) > 1:
        raise InvalidVolume(
            reason="Detach volume failed: More than one attachment, but no attachment_id provided.",
            remedy="Name the instance.",
        )
    if not live_attachments:
        raise InvalidVolume(reason="volume %s is not attached" % volume.id)
    return live_attachments[0]
