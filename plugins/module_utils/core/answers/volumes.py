# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on volumes, their targets and connections."""

from __future__ import annotations

from . import storage
from .outcomes import outcomes
from .shapes import (
    LARGEST_BIG,
    Field,
    Fields,
    Shape,
    count,
    flag,
    items,
    maybe,
    message,
    name,
    names,
    path,
    record,
    size,
    text,
    uuid,
    whole,
)

_evicted: Shape = items(record({"name": name}))
_backend: Shape = maybe(storage.backend)

ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "guest_content": (
        {},
        {
            "exposed": Field(
                None,
                (
                    "Why the content of guests' disks can still do harm, as texts, such as a volume group that the host has activated.",
                    "Empty in check mode.",
                ),
                type="list",
                elements="str",
            )
        },
    ),
    "iscsi_initiator": (
        {
            "outcomes": outcomes(
                "The outcome of each volume, by its UUID.",
                "Whether the connection was, or in check mode would be, changed.",
                {},
                {
                    "changes": Field(
                        None,
                        "Changed parts, of C(record), C(session), C(map), C(disk) and C(size).",
                        type="list",
                        elements="str",
                    ),
                    "iqn": Field(None, "Name of the target.", type="str"),
                    "lun": Field(None, "The volume's LUN.", type="int"),
                    "path": Field(
                        path,
                        "Path of the device for guests, C(/dev/disk/by-id/dm-uuid-mpath-WWID) if multipathd has a map, otherwise the link"
                        " below C(/dev/disk/by-path).",
                    ),
                    "device": Field(path, "The device to which RV(outcomes.path) leads."),
                    "devices": Field(None, "The devices of all sessions.", type="list", elements="str"),
                    "multipath": Field(
                        None, "The map of multipathd over RV(outcomes.devices); empty without one.", type="str"
                    ),
                    "serial": Field(None, "Unit serial number of the disk.", returned="when connected", type="str"),
                    "size": Field(maybe(whole(0, LARGEST_BIG)), "Size in bytes.", returned="when connected"),
                    "sessions": Field(
                        None, "The sessions with C(number), C(portal) and C(group).", type="list", elements="dict"
                    ),
                    "failed_portals": Field(
                        None,
                        "Portals at which the login failed, with the reason, while it succeeded at another one.",
                        returned="when connected",
                        type="list",
                        elements="str",
                    ),
                    "warnings": Field(
                        items(message), "Why the volume has fewer paths than portals.", returned="when connected"
                    ),
                },
            )
        },
        {},
    ),
    "iscsi_secret": (
        {
            "outcomes": outcomes(
                "The outcome of each secret, by its target's name.",
                "Whether the secret was, or in check mode would be, defined or removed.",
                {},
                {
                    "uuid": Field(
                        None,
                        "UUID of the secret, for the XML of a disk.",
                        returned="with O(secrets[].state=present)",
                        type="str",
                    )
                },
            )
        },
        {},
    ),
    "iscsi_target": (
        {
            "outcomes": outcomes(
                "The outcome of each volume, by its UUID.",
                "Whether the export was, or in check mode would be, changed.",
                {},
                {
                    "changes": Field(
                        None,
                        "Parts that differed from the request; C(target) for a created or removed target, C(saved) if only the saved configuration differed.",
                        type="list",
                        elements="str",
                    ),
                    "iqn": Field(name, "Name of the target."),
                    "lun": Field(count, "The volume's LUN."),
                    "path": Field(path, "Path of the exported device or file."),
                    "portals": Field(names, "The portals in the format of Cinder."),
                    "provider_location": Field(
                        None,
                        "Location of the export in the format of Cinder. Empty without portals and for a volume that is not exported.",
                        type="str",
                        sample="192.0.2.10:3260,1 iqn.2010-10.org.openstack:volume-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11 0",
                    ),
                    "sessions": Field(names, "Names of the initiators that are logged in."),
                    "initiators": Field(names, "Names of the initiators with access, including the kept ones."),
                    "unsaved": Field(
                        None,
                        "Kept initiators whose saved CHAP credentials are missing (tgt); they cannot log in after the service restarts.",
                        type="list",
                        elements="str",
                    ),
                },
            )
        },
        {},
    ),
    "rbd_access": (
        {
            "outcomes": outcomes(
                "The outcome of each volume, by its UUID.",
                "Whether a client was, or in check mode would be, fenced.",
                {},
                {
                    "name": Field(name, "Name of the image."),
                    "watchers": Field(names, "Addresses of the clients that have it open."),
                    "fenced": Field(names, "Addresses that the cluster refuses now."),
                },
            ),
            "fsid": Field(uuid, "Id of the cluster."),
        },
        {},
    ),
    "rbd_secret": (
        {
            "outcomes": outcomes(
                "The outcome of each secret, by its UUID.",
                "Whether the secret was, or in check mode would be, defined or removed.",
                {},
                {
                    "uuid": Field(
                        None,
                        "UUID of the secret, for the XML of a disk.",
                        returned="with O(secrets[].state=present)",
                        type="str",
                    ),
                    "users": Field(
                        names,
                        "Domains whose disks refer to the secret, which is kept for them.",
                        returned="with O(secrets[].state=absent)",
                    ),
                },
            )
        },
        {},
    ),
    "storage_backend": (
        {},
        {
            "backends": Field(
                None,
                "The backends, by name.",
                type="dict",
                contains={
                    "changed": Field(None, "Whether the backend was, or in check mode would be, changed.", type="bool"),
                    "actions": Field(
                        None,
                        "Actions, of V(volume_group), V(devices), V(thin_pool), V(thin_pool_size), V(thin_pool_active).",
                        type="list",
                        elements="str",
                    ),
                    "volume_group": Field(None, "Name of the volume group.", type="str"),
                    "devices": Field(None, "Devices of the volume group.", type="list", elements="str"),
                    "thin_pool": Field(None, "Name of the thin pool; empty for a thick backend.", type="str"),
                },
            )
        },
    ),
    "volume_image_cache": (
        {},
        {
            "images": Field(
                None,
                "The cached images, in the order of eviction.",
                type="list",
                elements="dict",
                contains={
                    "name": Field(None, "Name of the logical volume.", returned="always", type="str"),
                    "checksum": Field(
                        None,
                        "The sha256 of the image's content, which is in the file as it is published or is the file itself.",
                        returned="always",
                        type="str",
                    ),
                    "published": Field(
                        None,
                        "Other checksums that the files had from which the image was cached, as V(sha512:<hex>), such as that of a compressed file.",
                        returned="always",
                        type="list",
                        elements="str",
                    ),
                    "image_ids": Field(
                        None,
                        "Ids of the images of the catalogue with this content.",
                        returned="always",
                        type="list",
                        elements="str",
                    ),
                    "size": Field(None, "Virtual size in bytes, in whole extents.", returned="always", type="int"),
                    "written": Field(
                        None,
                        "Bytes that the image uses in the thin pool; volumes created from it may share them.",
                        returned="always",
                        type="int",
                    ),
                    "used_at": Field(
                        None,
                        "When a volume was last created from it, in seconds since the epoch by the host's clock; V(0) if unknown.",
                        returned="always",
                        type="int",
                    ),
                    "users": Field(
                        None, "Number of existing volumes that were created from it.", returned="always", type="int"
                    ),
                    "complete": Field(
                        None,
                        "Whether the image is complete; otherwise a run is writing it, or was killed.",
                        returned="always",
                        type="bool",
                    ),
                },
            ),
            "removed": Field(
                None, "Names of the images that were, or in check mode would be, removed.", type="list", elements="str"
            ),
            "kept": Field(None, "Reasons why other selected images were kept, by name.", type="dict"),
        },
    ),
    "volume_rbd": (
        {
            "outcomes": outcomes(
                "The outcome of each volume or snapshot, by its UUID.",
                "Whether the item was, or in check mode would be, changed.",
                {},
                {
                    "action": Field(text(), "Action, one of V(create), V(reimage), V(extend), V(remove), V(nothing)."),
                    "name": Field(name, "Name of the image, or C(IMAGE@SNAPSHOT)."),
                    "path": path,
                    "size": Field(size, "Size in bytes; 0 after a deletion."),
                },
            ),
            "backend": Field(
                _backend,
                (
                    "Capacity of the backend afterwards, as in RV(bootflow.compute.rbd_backend_info#module:backends).",
                    "null if no manager of the cluster counts what is stored.",
                ),
                contains={},
            ),
        },
        {},
    ),
    "volume_lvm": (
        {
            "outcomes": outcomes(
                "The outcome of each volume or snapshot, by its UUID.",
                "Whether the item was, or in check mode would be, changed.",
                {},
                {
                    "action": Field(
                        text(),
                        "Action, one of V(create), V(redo) (the item was incomplete), V(reimage), V(activate), V(extend), V(remove), V(nothing).",
                    ),
                    "name": Field(name, "Name of the logical volume."),
                    "path": Field(path, "Path of the device; empty after a deletion."),
                    "size": Field(size, "Size in bytes; 0 after a deletion."),
                    "copying": flag,
                },
            ),
            "backend": Field(
                _backend,
                "Capacity of the backend afterwards, as in RV(bootflow.compute.storage_backend_info#module:backends).",
                contains={},
            ),
        },
        {
            "evicted": Field(
                _evicted,
                "Cached images that were evicted, with C(name), C(checksum), C(published), C(image_ids), C(size) in bytes, C(used_at)...",
            )
        },
    ),
}
