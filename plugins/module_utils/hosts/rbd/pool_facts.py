# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capacity of a pool as Cinder's RBD driver reports it, and the volumes in it.

source: Cinder's RBD driver (_get_pool_stats, _update_volume_stats)
"""

from __future__ import annotations

import os
import typing as t

from ...core.amounts import GIB
from ...core.errors import StorageClusterFull
from ...core.volumes.names import volume_id_of
from ...core.volumes.rbd_names import INCOMPLETE, snapshot_id_of
from ..os.batch import run_batch
from ..os.ownership import is_of_another
from ..volumes.backend_facts import Moment, moment
from .cluster import Cluster, ClusterState, no_figures
from .plan import LEDGER, PROJECT, SNAPSHOT, SOURCE, VOLUME, Image, images_of


def amounts(stored: int, available: int, quota: int) -> tuple[float, float]:
    """Return total and free GiB of a pool: what can be written still, not more than its quota allows, and that with what is stored.

    :arg quota: bytes; 0: none
    """
    if quota:
        return quota / GIB, max(min(quota - stored, available), 0) / GIB
    return (stored + available) / GIB, max(available, 0) / GIB


def capacity(
    cluster: Cluster, state: ClusterState, images: t.Mapping[str, Image], at: Moment | None = None
) -> dict[str, t.Any]:
    """Return the facts of a backend, sizes in GiB. :raises StorageClusterUnavailable: without a manager the figures are none, or old."""
    at = at or moment()
    if not state.figures:
        raise no_figures(cluster.pool)
    total, free = amounts(*cluster.figures())
    ours = [image.size for image in images.values() if volume_id_of(image.name)]
    return {
        "total_capacity_gb": int(total * 100) / 100,
        "free_capacity_gb": int(free * 100) / 100,
        "provisioned_capacity_gb": round(sum(image.size for image in images.values()) / GIB, 2),
        "allocated_capacity_gb": round(sum(ours) / GIB, 2),
        "thin_provisioning_support": True,
        "thick_provisioning_support": False,
        "total_volumes": len(images),
        "location_info": "RBDDriver:%s:%s:%s" % (state.fsid, cluster.pool, os.uname().nodename),
        "vg_uuid": "%s/%s" % (state.fsid, cluster.pool),
        "fsid": state.fsid,
        "boot_id": at.boot_id,
        "read_at": at.read_at,
    }


def described(images: t.Mapping[str, Image]) -> list[dict[str, t.Any]]:
    """Return our volumes and snapshots in the pool: kind, id, name, size in bytes, origin, and whether they are complete."""
    items: list[dict[str, t.Any]] = []
    for image in images.values():
        complete = not image.name.startswith(INCOMPLETE)
        volume_id = volume_id_of(image.name if complete else image.name[len(INCOMPLETE) :])
        if volume_id is None:
            continue
        origin = image.parent.image if image.parent is not None else ""
        row = {"kind": VOLUME, "id": volume_id, "name": image.name, "size": image.size, "origin": origin}
        items.append({**row, "complete": complete, "open": False, "path": "", "pool": ""})
        for name, size in image.snapshots.items():
            snapshot_id = snapshot_id_of(name)
            if snapshot_id is not None:
                row = {"kind": SNAPSHOT, "id": snapshot_id, "name": "%s@%s" % (image.name, name), "size": size}
                items.append({**row, "origin": image.name, "complete": True, "open": False, "path": "", "pool": ""})
    return sorted(items, key=lambda item: str(item["name"]))


def pools_facts(
    backends: t.Sequence[t.Mapping[str, t.Any]], known: t.Sequence[str] | None = None, ledger_id: str = ""
) -> dict[str, dict[str, t.Any]]:
    """Return {name: capacity, our volumes, orphans, error}; the module rbd_backend_info documents the fields.

    :arg backends: mappings with name, pool, monitors, user, key. :arg known: known ids; None: nothing is an orphan.
    :raises InvalidInput: two backends have the same name.
    """

    def facts(args: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        at = moment()
        with Cluster(args["pool"], args["monitors"], args["user"], args["key"]) as cluster:
            state = cluster.state()
            if state.full:
                raise StorageClusterFull(pool=cluster.pool, reason=state.full)
            images = images_of(cluster.rows())
            report = capacity(cluster, state, images, at)
            volumes = described(images)
            others: dict[str, dict[str, t.Any]] = {}
            strangers = _strangers(cluster, volumes, known)
            for item in list(volumes):
                facts_of_image = strangers.get(str(item["name"]).partition("@")[0])
                if facts_of_image is None:
                    continue
                owner = facts_of_image.get(LEDGER, "")
                item.update(project=facts_of_image.get(PROJECT, ""), source=facts_of_image.get(SOURCE, ""))
                if is_of_another(owner, ledger_id):
                    volumes.remove(item)
                    if item["kind"] == VOLUME:
                        sums = others.setdefault(owner, {"volumes": 0, "size_gb": 0.0})
                        sums["volumes"] += 1
                        sums["size_gb"] = round(sums["size_gb"] + item["size"] / GIB, 2)
            orphans = [item for item in volumes if item["id"] not in set(known)] if known is not None else []
            for item in orphans:
                if item["kind"] == VOLUME:
                    item["open"] = bool(cluster.watchers(item["name"]))
        return {**report, "volumes": volumes, "orphans": orphans, "other_ledgers": others}

    results = run_batch([(args["name"], args) for args in backends], facts)
    for result in results.values():
        del result["changed"]
    return results


def _strangers(
    cluster: Cluster, volumes: t.Sequence[t.Mapping[str, t.Any]], known: t.Sequence[str] | None
) -> dict[str, dict[str, str]]:
    """Return the metadata of images that are not known: they may be another ledger's."""
    ids = set(known or ())
    names = {str(v["name"]).partition("@")[0] for v in volumes if v["id"] not in ids} if known is not None else set()
    return {name: cluster.metadata(name) for name in sorted(names)}
