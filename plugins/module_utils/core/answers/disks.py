# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on the disks, networks and builds of instances."""

from __future__ import annotations

from dataclasses import replace

from .guests import ANSWERS as OF_GUESTS
from .guests import DISK_RECORD, power_state
from .outcomes import ANY, outcome_fields, outcomes
from .shapes import (
    LARGEST_BIG,
    Field,
    Fields,
    Shape,
    flag,
    items,
    maybe,
    name,
    names,
    number,
    path,
    prose,
    record,
    shapes_of,
    size,
    text,
    whole,
)

# One in a pool has no size: it stays there.
_file: Shape = record({"name": name, "allocated": size}, {"size": size, "record": maybe(DISK_RECORD), "mounted": flag})
_unused_images: Shape = items(record({"path": path, "size": size, "age": number(most=LARGEST_BIG)}))
_failed_items: Shape = items(record({"name": path, "error": record({"code": name, "message": prose})}))

ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "compute_unused": (
        {
            "images": Field(
                _unused_images,
                (
                    "Base images that were, or in check mode would be, removed, with C(path), C(size) (bytes on the disk) and C(age) (seconds).",
                ),
                returned="always",
                sample=[
                    {
                        "path": "/var/lib/bootflow/instances/_base/6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e-5f70bf18a0860070",
                        "size": 1073741824,
                        "age": 172800,
                    }
                ],
            ),
            "networks": Field(
                names,
                "Names of the libvirt networks that were, or in check mode would be, removed.",
                returned="always",
                sample=["old-private"],
            ),
        },
        {
            "failed_items": Field(
                _failed_items,
                (
                    (
                        "What failed, each item with C(name), C(id), C(host), C(state), C(error) (its error, if one is known) and C(tried) (the"
                        " errors of earlier attempts)."
                    ),
                    "Missing if the task failed as a whole.",
                ),
                returned="failure",
            )
        },
    ),
    "config_drive": (
        {
            "outcomes": replace(
                outcomes(
                    "The outcome of each drive, by the UUID of its instance.",
                    "Whether the drive was, or in check mode would be, written.",
                    {},
                    {
                        "path": Field(None, "Path of the image file.", type="str"),
                        "format": Field(None, "Format of the file system.", type="str"),
                        "size": Field(None, "Size of the image file in bytes.", type="int"),
                    },
                ),
                returned="always",
                sample={
                    "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11": {
                        "changed": True,
                        "error": None,
                        "format": "iso9660",
                        "path": "/var/lib/bootflow/instances/2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11/disk.config",
                        "size": 231424,
                    }
                },
            )
        },
        {},
    ),
    "instance_cleanup": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether anything was, or in check mode would be, removed.",
                {},
                {
                    "removed": Field(
                        None, "Items that were, or in check mode would be, removed.", type="list", elements="str"
                    ),
                    "kept": Field(
                        None,
                        "Whether nothing was removed because nothing was made for O(instances[].made_for).",
                        returned="when so",
                        type="bool",
                    ),
                },
            )
        },
        {},
    ),
    "instance_disks": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether disks were, or in check mode would be, created.",
                {},
                {
                    "disks": Field(
                        None,
                        "The disks with C(name), C(path), C(format) and C(virtual_size) in bytes.",
                        type="list",
                        elements="dict",
                    ),
                    "pending": Field(
                        names,
                        "Ids of images in RV(missing_images) that this instance needs. Its disks are not created.",
                    ),
                },
            )
        },
        {
            "image_outcomes": Field(
                None,
                "The outcome of each image, by its id.",
                type="dict",
                contains=outcome_fields(
                    "Whether the image was, or in check mode would be, fetched.",
                    {
                        "virtual_size": Field(None, "Virtual size in bytes; null if not known yet.", type="int"),
                        "path": Field(
                            None, "Path of the raw file in the cache; empty if it does not exist yet.", type="str"
                        ),
                    },
                ),
            ),
            "missing_images": Field(
                names, "Ids of images that must be uploaded from the controller before the disks can be created."
            ),
        },
    ),
    "instance_disks_access": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether a client was fenced, or a disk was brought back to what it was.",
                {},
                {"fenced": Field(names, "Addresses that the cluster refuses now.")},
            )
        },
        {},
    ),
    "instance_disks_fetch": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether something was written.",
                {
                    "disks": Field(
                        items(record({"name": name, "size": size, "sha256": text(64)})),
                        "The disks with C(name), C(size) in bytes and C(sha256) of what was transferred.",
                    )
                },
                {},
            )
        },
        {},
    ),
    "instance_disks_offer": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether a disk was copied.",
                {
                    "files": Field(
                        items(_file),
                        "What is served, each with C(name), C(size) and C(allocated) in bytes, and C(record), which"
                        " M(bootflow.compute.instance_disks_fetch) takes; C(mounted) is true of a disk in a file system of its instance, on a"
                        " logical volume.",
                    )
                },
                {},
            ),
            "port": Field(whole(0, 65535), "Where the process listens; 0 if there is nothing to serve."),
            "fingerprint": Field(text(64), "The SHA-256 of its certificate."),
        },
        {},
    ),
    "instance_disks_resize": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether something was written.",
                {},
                {
                    "disks": Field(
                        None,
                        "The copies with C(name) and C(size) in bytes.",
                        returned="success, with O(state=prepared)",
                        type="list",
                        elements="dict",
                    )
                },
            )
        },
        {},
    ),
    "instance_disks_revert": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether a disk was, or with O(state=checked) or in check mode would be, exchanged or removed.",
                {},
                {
                    "power_state": Field(
                        power_state,
                        "Nova's number for the guest's state, 1 for running.",
                        "success, not with O(state=undone)",
                    ),
                    "reverted": Field(
                        flag,
                        "Whether the root disk is that of the image. An error is about what it was before then.",
                        "with O(state=reverted), when the disks were exchanged",
                    ),
                },
            )
        },
        {},
    ),
    "virtual_network": (
        {
            "outcomes": outcomes(
                "The outcome of each network, by its name.",
                "Whether the network was, or in check mode would be, changed.",
                {},
                {
                    "type": Field(None, "Type of the network, V(network), V(bridge), V(vxlan) or V(vlan).", type="str"),
                    "source": Field(None, "Name on the host.", type="str"),
                    "bridge": Field(
                        None,
                        "Bridge of the guests' interfaces; empty if there is none or it is not known yet.",
                        type="str",
                    ),
                    "defined": Field(flag, "Whether this task defined the network, or made its bridge."),
                    "started": Field(None, "Whether this task started the network.", type="bool"),
                },
            )
        },
        {
            "reservations": Field(
                ANY,
                "The outcome of each of O(reservations), by its MAC address, with C(changed) and C(error) as in RV(outcomes).",
                contains={},
            )
        },
    ),
}
_PARTS = {"networks": "virtual_network", "disks": "instance_disks", "drives": "config_drive", "domains": "domain"}


def _part(module: str) -> Shape:
    required, optional = {**OF_GUESTS, **ANSWERS}[module]
    return record(shapes_of(required), {**shapes_of(optional), "seconds": number()})


_parts: Shape = record({part: _part(module) for part, module in _PARTS.items()})
ANSWERS["instance_build"] = (
    {
        "parts": Field(
            _parts,
            "V(networks), V(disks), V(drives) and V(domains), each with what its module returns and its C(seconds).",
            sample={
                "networks": {"outcomes": {}, "reservations": {}, "seconds": 0.0},
                "disks": {"image_outcomes": {}, "missing_images": [], "outcomes": {}, "seconds": 0.2},
                "drives": {"outcomes": {}, "seconds": 0.0},
                "domains": {"outcomes": {}, "seconds": 0.4},
            },
        )
    },
    {
        "uploads_removed": Field(
            flag,
            "Whether the files of O(uploads) and their folder are gone.",
            returned="with O(remove_uploads)",
            sample=True,
        )
    },
)
