# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The preparation of a host that starts guests with disks in a pool: the secret of its user, a cluster that answers, and disks without other clients."""

from __future__ import annotations

import typing as t

from ...core.errors import DiskOpenElsewhere
from ...core.volumes.disk_pool import DiskPool
from ..libvirt.running import find_domain, is_active
from ..os.batch import run_batch
from ..os.paths import checked_uuid
from .disk_images import DiskImages, disk_images
from .fences import clients, fence
from .secrets import set_secret

OPEN, ARRIVING, FENCED = "open", "arriving", "fenced"
STATES = (OPEN, ARRIVING, FENCED)


def prepare(
    connection: t.Any, pool: DiskPool, instances: t.Sequence[t.Mapping[str, t.Any]], check_mode: bool = False
) -> dict[str, t.Any]:
    """Set the secret, and check the disks of each instance; {outcomes by uuid}.

    :arg instances: {uuid, state, rolls_back}. ``open``: its guest is to start here. ``arriving``: its guest comes running, and another host has its disks open.
        ``fenced``: its host is lost, and is to write to its disks no more. ``rolls_back``: the mark of a move that failed or is reverted:
        disks that are open become what they were before it.
    :raises StorageClusterUnavailable, OtherCluster: see disk_images().
    """
    with disk_images(pool, writing=False) as images:
        secret = set_secret(connection, pool.fsid, pool.user, pool.key, check_mode)

        def one(wanted: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
            uuid = checked_uuid(wanted["uuid"])
            names = images.of_instance(uuid)
            domain = find_domain(connection, uuid)
            runs = domain is not None and is_active(domain)
            if wanted["state"] == FENCED:
                # A guest that runs here was started by a killed run. Its host is not lost.
                fenced = [] if runs else _fence(images, names, check_mode)
                return {"changed": bool(fenced), "fenced": fenced}
            if wanted["state"] == ARRIVING:
                return {"changed": False, "fenced": []}
            # A guest that runs has its disks open, and starts again with the same QEMU or after its end.
            if not runs:
                images.check_closed(names)
            mark = "" if runs else wanted.get("rolls_back")
            roll_back = images.is_kept if check_mode else images.roll_back
            return {"changed": bool(mark and roll_back(uuid, mark)), "fenced": []}

        outcomes = run_batch([(wanted["uuid"], wanted) for wanted in instances], one, workers=8)
    return {"changed": bool(secret["changed"]), "outcomes": outcomes}


def _fence(images: DiskImages, names: t.Sequence[str], check_mode: bool) -> list[str]:
    """Have the cluster refuse the clients of these images. Returns their addresses. :raises DiskOpenElsewhere: an image stays open"""
    cluster = images.cluster
    addresses = clients(cluster, names)
    remaining = {} if check_mode else fence(cluster, names, addresses)
    for name, watchers in remaining.items():
        raise DiskOpenElsewhere(
            disk=cluster.image(name), watchers=", ".join(watchers), remedy="Run the playbook again."
        )
    return addresses
