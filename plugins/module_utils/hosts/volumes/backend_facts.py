# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capacity of a backend as reported by Cinder's LVM driver, and its unknown volumes.

source: Cinder's LVM driver (_update_volume_stats).
"""

from __future__ import annotations

import os
import time
import typing as t

from ...core.amounts import GIB
from ..lvm.lvm import VolumeGroup, check_group, read_group
from ..lvm.lvm_tags import DELETING, IMAGE, INCOMPLETE, LEDGER, identity, project_of, tag_value
from ..os.batch import run_batch
from ..os.boots import boot_id
from ..os.ownership import is_of_another
from .image_cache import CachedImage, cached_images, yielding


class Moment(t.NamedTuple):
    """The time of a report by a clock of this host that is never set: a later report has a later time."""

    boot_id: str
    read_at: float  # seconds since that boot, including suspend


def moment() -> Moment:
    """Return the current time. Taken before LVM is read, so that the report contains all earlier changes."""
    return Moment(boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))


def _gb(size: float) -> float:
    return round(size / GIB, 2)


def _gb_down(size: float) -> float:
    """Round down, because the nearest number could exceed the existing space."""
    return int(size) * 100 // GIB / 100


def _gb_up(size: float) -> float:
    """Round up to GiB."""
    return -(-int(size) * 100 // GIB) / 100


def capacity(group: VolumeGroup, pool: str = "", at: Moment | None = None) -> dict[str, t.Any]:
    """Return the facts of a backend; sizes in GiB with two decimals as in Cinder, but with free space rounded down and provisioned space rounded up.

    Thick: total and free are the group's, provisioned is their difference. Thin: total is the pool, free is the
    unwritten space, provisioned is the sum of all logical volumes except the pool. ``allocated_capacity_gb`` is the sum of our
    volumes. Cached images without volumes count as free: they are evicted when space is needed, so evicting them
    does not change the report.

    :arg pool: name of the thin pool; "" for a thick backend.
    :arg at: the time before the group was read; None: now.
    """
    at = at or moment()
    total, free = float(group.size), float(group.free)
    provisioned = total - free
    data = metadata = None
    images: list[CachedImage] = []
    if pool:
        lv = group.lvs[pool]
        data, metadata = lv.data_percent or 0.0, lv.metadata_percent or 0.0
        total, free = float(lv.size), lv.size * (100.0 - data) / 100.0
        provisioned = float(sum(other.size for other in group.lvs.values() if not other.is_pool))
        giving_way = yielding(group, pool)
        free = min(total, free + sum(image.written for image in giving_way))
        provisioned -= sum(image.lv.size for image in giving_way)
        images = cached_images(group, pool)
    ours = [lv for lv in group.lvs.values() if identity(lv.tags, group.ledger_id)[0] == "volume"]
    return {
        "total_capacity_gb": _gb_down(total),
        "free_capacity_gb": _gb_down(free),
        "provisioned_capacity_gb": _gb_up(provisioned),
        "allocated_capacity_gb": _gb(sum(lv.size for lv in ours)),
        "thin_provisioning_support": bool(pool),
        "thick_provisioning_support": not pool,
        "data_percent": data,
        "metadata_percent": metadata,
        "vg_free_gb": _gb_down(group.free),
        "image_cache_count": len(images),
        "image_cache_gb": _gb(sum(image.lv.size for image in images)),
        "total_volumes": len(group.lvs),
        "extent_size": group.extent_size,
        "location_info": "LVMVolumeDriver:%s:%s:%s:0"
        % (os.uname().nodename, group.name, "thin" if pool else "default"),
        "boot_id": at.boot_id,
        "read_at": at.read_at,
    }


def described(group: VolumeGroup) -> list[dict[str, t.Any]]:
    """Return our logical volumes: kind, id, name, path, project, source, size in bytes, and their state."""
    volumes = []
    for lv in group.lvs.values():
        kind, item_id = identity(lv.tags, group.ledger_id)
        if not kind:
            continue
        volumes.append(
            {
                "kind": kind,
                "id": item_id,
                "name": lv.name,
                "path": group.path(lv.name),
                "project": project_of(lv.tags),
                "source": tag_value(lv.tags, "source"),
                "size": lv.size,
                "active": lv.is_active,
                "open": lv.is_open,
                "complete": INCOMPLETE not in lv.tags,
                "deleting": DELETING in lv.tags,
                "origin": lv.origin,
                "pool": lv.pool,
                "data_percent": lv.data_percent,
            }
        )
    return sorted(volumes, key=lambda item: str(item["name"]))


def of_other_ledgers(group: VolumeGroup) -> dict[str, dict[str, t.Any]]:
    """Return id of another ledger -> {volumes: how many logical volumes it has here, size_gb}."""
    sizes_by_ledger: dict[str, list[int]] = {}
    for lv in group.lvs.values():
        owner = tag_value(lv.tags, LEDGER)
        if is_of_another(owner, group.ledger_id):
            sizes_by_ledger.setdefault(owner, []).append(lv.size)
    return {
        owner: {"volumes": len(sizes), "size_gb": _gb(sum(sizes))} for owner, sizes in sorted(sizes_by_ledger.items())
    }


def orphans(group: VolumeGroup, known: t.Iterable[str]) -> list[dict[str, t.Any]]:
    """Return our volumes and snapshots whose ids are not in ``known``. Cached images are not orphans."""
    ids = set(known)
    return [item for item in described(group) if item["kind"] != IMAGE and item["id"] not in ids]


def backends_facts(
    backends: t.Sequence[t.Mapping[str, t.Any]], known: t.Sequence[str] | None = None, ledger_id: str = ""
) -> dict[str, dict[str, t.Any]]:
    """Return {name: capacity, our volumes, orphans, error}; the module storage_backend_info documents the fields.

    :arg backends: mappings with name, volume_group, provisioning (thick or thin), thin_pool.
    :arg known: known ids; None: nothing is an orphan.
    :raises InvalidInput: two backends have the same name.
    """

    def facts(args: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        at = moment()
        group = read_group(args["volume_group"], ledger_id)
        pool = ""
        if args.get("provisioning") == "thin":
            pool = args.get("thin_pool") or args["volume_group"] + "-pool"
        if pool and pool in group.lvs and group.lvs[pool].is_active:
            check_group(group)  # also for a failed pool
        else:
            check_group(group, pool)
        report = capacity(group, pool, at)
        report["vg_uuid"] = group.uuid
        report["volumes"] = described(group)
        report["other_ledgers"] = of_other_ledgers(group)
        report["orphans"] = orphans(group, known) if known is not None else []
        return report

    results = run_batch([(args["name"], args) for args in backends], facts)
    for result in results.values():
        del result["changed"]
    return results
