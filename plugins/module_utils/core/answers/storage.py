# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of storage hosts: capacities, logical volumes and targets."""

from __future__ import annotations

import typing as t

from .shapes import (
    Shape,
    choice,
    count,
    error,
    flag,
    items,
    mapping,
    maybe,
    name,
    names,
    number,
    path,
    record,
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
_amounts = dict.fromkeys(("total_capacity_gb", "free_capacity_gb", "provisioned_capacity_gb"), number())
_facts: dict[str, Shape] = {
    "allocated_capacity_gb": number(),
    "thin_provisioning_support": flag,
    "thick_provisioning_support": flag,
    "data_percent": _percent,
    "metadata_percent": _percent,
    "vg_free_gb": number(),
    "image_cache_count": size,
    "image_cache_gb": number(),
    "total_volumes": size,
    "extent_size": size,
    "location_info": text(),
    "boot_id": text(64),
    "read_at": number(),
    "vg_uuid": text(),
    "error": error,
}
_others = mapping(uuid, record({"volumes": count, "size_gb": number()}))
CAPACITY: Shape = record(
    _amounts, {**_facts, "volumes": items(_volume), "orphans": items(_volume), "other_ledgers": _others}
)
# What the ledger keeps of it.
STORED: Shape = record(
    {},
    {**{n: maybe(shape) for n, shape in _amounts.items()}, **_facts, "orphans": items(record({"name": name}))},
)
_failed = record({"error": error})


def backend(value: t.Any, where: str) -> None:
    """A capacity, or why there is none."""
    failed = isinstance(value, t.Mapping) and value.get("error") is not None
    (_failed if failed else CAPACITY)(value, where)


_target = record(
    {"target": choice("lio", "tgt"), "iqn_prefix": name, "error": error},
    {
        "exports": items(
            record({"iqn": name, "volume_id": name, "path": path, "sessions": names, "running": flag, "ours": flag})
        )
    },
)
BACKENDS: Shape = mapping(name, backend)
TARGETS: Shape = items(_target)
