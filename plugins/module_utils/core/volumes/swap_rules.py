# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules for exchanging an attached volume for another one. source: Nova's API.swap_volume and its libvirt driver (Queens)"""

from __future__ import annotations

import typing as t

from ..errors import InvalidVolume, MultiattachSwapVolumeNotSupported, NotSupportedYet
from . import attach_rules, states
from .connectors.registry import connector_type
from .model import Attachment, Volume


class AttachmentOfHost(Attachment, t.Protocol):
    """The attachment of a volume to a guest on a host."""

    @property
    def attach_mode(self) -> str: ...
    @property
    def connector(self) -> str | None: ...


_AttachmentOfHost = t.TypeVar("_AttachmentOfHost", bound=AttachmentOfHost)


def check_swap(
    old: Volume,
    new: Volume,
    instance_uuid: str,
    old_attachments: t.Sequence[_AttachmentOfHost],
    new_attachments: t.Sequence[Attachment] = (),
    instance_zone: str | None = None,
    cross_az_attach: bool = True,
) -> tuple[_AttachmentOfHost, states.Transition, states.Transition]:
    """Nova's and Cinder's checks, in their order, before the volumes are exchanged.

    :arg old_attachments: all of the old volume. :arg new_attachments: all of the new one. :arg cross_az_attach: see check_attach_to_instance()
    Returns the attachment of the old volume to the instance, and the compare-and-swaps of the old and the new volume.

    :raises InvalidVolume: the old volume is not attached to the instance; the new one is attached, too small, in another zone or not available.
    :raises MultiattachSwapVolumeNotSupported: another instance may write to the old volume, too.
    :raises NotSupportedYet: the volume is not a device of the host.
    """
    live = [a for a in old_attachments if a.attach_status != states.DETACHED]
    own = next((a for a in live if a.instance_uuid == instance_uuid), None)
    if own is None or own.attach_status != states.ATTACHED:
        raise InvalidVolume(
            reason="Old volume is attached to a different instance.",
            remedy="Volume %s is not attached to instance %s: volume_list shows where it is." % (old.id, instance_uuid),
        )
    if new.attach_status == states.ATTACHED:
        raise InvalidVolume(
            reason="New volume must be detached in order to swap.", remedy="Choose a volume that is available."
        )
    if new.size < old.size:
        raise InvalidVolume(
            reason="New volume must be the same size or larger.",
            remedy="Volume %s has %d GiB and volume %s %d GiB: choose or extend another one."
            % (old.id, old.size, new.id, new.size),
        )
    attaching = attach_rules.check_attach_to_instance(
        new, instance_uuid, new_attachments, instance_zone, cross_az_attach
    )
    detaching = states.check_begin_detaching(old)
    if own.attach_mode != "ro" and any(a.attach_mode != "ro" for a in live if a is not own):
        raise MultiattachSwapVolumeNotSupported(volume_id=old.id)
    if not connector_type(own.connector).host_logs_in:
        raise NotSupportedYet(
            feature="swapping a volume that QEMU logs in to (bootflow_volume_attach: qemu)",
            remedy="Detach the volume, copy it with volume_create (source_volid), and attach the copy.",
        )
    return own, detaching, attaching
