# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of what an image of an instance inherits from the image that the instance was booted from.

source: Nova's initialize_instance_snapshot_metadata and get_system_metadata_from_image (34.0.0)
"""

from __future__ import annotations

import typing as t

from ..disks.local import QCOW2

SNAPSHOT, BACKUP = "snapshot", "backup"  # the property image_type
VOLUME_ID = "volume_id"  # the property of an image of a volume: the volume's id

#: Default of bootflow_non_inheritable_image_properties, as Nova's setting has it.
NON_INHERITABLE = ("cache_in_nova", "bittorrent")
#: Properties that belong to one image by design: no image of an instance has them.
NEVER_INHERITED = frozenset(
    (
        "cinder_encryption_key_id",
        "cinder_encryption_key_deletion_policy",
        "img_signature",
        "img_signature_hash_method",
        "img_signature_key_type",
        "img_signature_certificate_uuid",
    )
)
#: Properties that begin with these belong to another service.
NEVER_INHERITED_BEGINNINGS = ("os_glance",)
#: Lists, which Nova does not keep with an instance.
NOT_KEPT = frozenset(("mappings", "block_device_mapping", "img_mappings", "img_block_device_mapping"))
#: Characters of a value that an instance keeps.
LONGEST = 255


class Inherited(t.NamedTuple):
    """The parts of an image that come from its instance."""

    properties: dict[str, t.Any]
    min_disk: int  # GB
    min_ram: int  # MB


def is_layer(disk_format: str, properties: t.Mapping[str, t.Any]) -> bool:
    """Whether an image is a qcow2 file of an instance or a volume. With a full disk the file is larger than the disk, whose size is the image's min_disk."""
    return disk_format == QCOW2 and (properties.get("image_type") in (SNAPSHOT, BACKUP) or VOLUME_ID in properties)


def inherited(
    own_image: t.Mapping[str, t.Any] | None,
    root_gb: int,
    non_inheritable: t.Iterable[str] = NON_INHERITABLE,
) -> Inherited:
    """Return what an image of an instance inherits.

    :arg own_image: the instance's own, as a request stores it; None: it has none.
    :arg root_gb: of its flavor. An image of its root disk fits no smaller one; of a VHD the flavor's size counts alone.
    :arg non_inheritable: further properties to leave out.
    """
    own = own_image or {}
    left_out = {*non_inheritable, *NEVER_INHERITED, *NOT_KEPT}
    properties = {
        key: str(value)[:LONGEST]
        for key, value in (own.get("properties") or {}).items()
        if value is not None and key not in left_out and not key.startswith(NEVER_INHERITED_BEGINNINGS)
    }
    if own.get("id"):
        properties.setdefault("base_image_ref", str(own["id"]))
    min_disk = root_gb if own.get("disk_format") == "vhd" else max(int(own.get("min_disk") or 0), root_gb)
    return Inherited(properties, min_disk, int(own.get("min_ram") or 0))


def properties_of_instance(
    inherited_properties: t.Mapping[str, t.Any],
    instance_uuid: str,
    user: str,
    extra: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """Return the properties of an image of an instance. :arg extra: given by a person; they take precedence over all others"""
    named = {"instance_uuid": instance_uuid, "user_id": user, "image_type": SNAPSHOT}
    return {**inherited_properties, **named, **(extra or {})}
