# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of storage hosts: capacities, logical volumes and targets."""

from __future__ import annotations

import typing as t

from .shapes import (
    KINDS,
    Field,
    Fields,
    Shape,
    choice,
    count,
    error,
    flag,
    items,
    mapping,
    maybe,
    message,
    name,
    names,
    number,
    path,
    record,
    shapes_of,
    size,
    text,
    uuid,
)

_percent = maybe(number(0, 1000))
_volume = record(
    {"kind": choice("volume", "snapshot", "image"), "id": text(), "name": name, "size": size},
    {
        "path": path,
        "project": maybe(text()),
        "source": maybe(text()),
        "active": flag,
        "open": flag,
        "complete": flag,
        "deleting": flag,
        "origin": maybe(text()),
        "pool": maybe(text()),
        "data_percent": _percent,
    },
)
_amounts: Fields = {
    "total_capacity_gb": Field(
        number(), "Size in GiB, of the thin pool or of the volume group, rounded down to two decimals."
    ),
    "free_capacity_gb": Field(
        number(),
        (
            "Space that is not written (thin) or not allocated to a logical volume (thick), in GiB, rounded down to two decimals.",
            "Cached images that no volume uses count as free and not in RV(backends.provisioned_capacity_gb); they are evicted when space is needed.",
        ),
    ),
    "provisioned_capacity_gb": Field(
        number(),
        "Sum of all logical volumes (thin), or space that is not free (thick), in GiB, rounded up to two decimals.",
    ),
}
_facts: Fields = {
    "allocated_capacity_gb": Field(number(), "Sum of the volumes of this collection, in GiB."),
    "thin_provisioning_support": Field(flag, "Whether volumes are thin."),
    "thick_provisioning_support": flag,
    "data_percent": Field(_percent, "Usage of the thin pool; null for a thick backend."),
    "metadata_percent": Field(_percent, "Usage of the metadata of the thin pool; null for a thick backend."),
    "vg_free_gb": number(),
    "image_cache_count": Field(size, "Number of cached images."),
    "image_cache_gb": Field(number(), "Sum of the cached images of a thin backend, in GiB."),
    "total_volumes": size,
    "extent_size": size,
    "location_info": text(),
    "boot_id": Field(text(64), "Id of the boot of the host during which this was read."),
    "read_at": Field(
        number(), "Time of reading, in seconds since that boot; earlier changes are included in the numbers."
    ),
    "vg_uuid": Field(text(), "UUID of the volume group."),
    "fsid": text(36),
    "error": Field(
        error,
        "Why the backend is not ready, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.",
        returned="always",
    ),
}
_others = mapping(uuid, record({"volumes": count, "size_gb": number()}))
CAPACITY: Shape = record(
    _amounts,
    {
        **_facts,
        "volumes": Field(
            items(_volume),
            (
                (
                    "Our logical volumes with C(kind), C(id), C(name), C(path), C(project), C(source), C(size) in bytes, C(complete), C(open),"
                    " C(origin), C(pool)..."
                ),
                "All of the volume group, whichever of its backends they belong to.",
            ),
        ),
        "orphans": Field(items(_volume), "Logical volumes of this collection that are not in O(known)."),
        "other_ledgers": Field(
            _others,
            (
                "Other ledgers than O(ledger_id) that have logical volumes in the group, by their ids.",
                "C(volumes) is their number, C(size_gb) their size.",
            ),
            returned="with O(ledger_id)",
        ),
    },
)
# What the ledger keeps of it.
STORED: Shape = record(
    {},
    {
        **{n: maybe(shape) for n, shape in shapes_of(_amounts).items()},
        **_facts,
        "orphans": items(record({"name": name})),
    },
)
_failed = record({"error": error})


def backend(value: t.Any, where: str) -> None:
    """A capacity, or why there is none."""
    failed = isinstance(value, t.Mapping) and value.get("error") is not None
    (_failed if failed else CAPACITY)(value, where)


_target = record(
    {
        "target": choice("lio", "tgt"),
        "iqn_prefix": name,
        "error": Field(
            error,
            "Why the targets could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.",
            returned="always",
        ),
    },
    {
        "exports": Field(
            items(
                record({"iqn": name, "volume_id": name, "path": path, "sessions": names, "running": flag, "ours": flag})
            ),
            (
                (
                    "The targets with C(iqn), C(volume_id), C(path), C(sessions) (the initiators that are logged in), C(running) (whether"
                    " initiators find it; otherwise it exists only in a saved configuration) and C(ours) (whether this collection created it)."
                ),
            ),
            returned="always",
        ),
    },
)
KINDS[backend] = KINDS[CAPACITY]
BACKENDS: Shape = mapping(name, backend)
TARGETS: Shape = items(_target)

ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "rbd_backend_info": (
        {
            "backends": Field(
                BACKENDS,
                "The backends, by name, with fields as in RV(bootflow.compute.storage_backend_info#module:backends).",
                contains={},
            )
        },
        {},
    ),
    "storage_backend_info": (
        {"backends": Field(BACKENDS, "The backends, by name.")},
        {
            "targets": Field(TARGETS, "Results for each of O(targets), with its C(target) and C(iqn_prefix)."),
            "guest_content": Field(
                items(message),
                (
                    (
                        "Why the content of volumes can do harm on this host, as texts. Volume groups, arrays and the like that the host"
                        " activated from it, and the settings of udev and LVM that are missing (M(bootflow.compute.guest_content) writes them)."
                    ),
                ),
            ),
            "progress": Field(
                None,
                "Images and volumes that are being fetched, copied or wiped, with C(id), C(step) and C(percent).",
                type="list",
                elements="dict",
            ),
        },
    ),
}
