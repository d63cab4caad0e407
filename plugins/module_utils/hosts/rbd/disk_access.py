# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The preparation of a host that starts guests with disks in a pool: the secret of its user, a cluster that answers, and disks without other clients."""

from __future__ import annotations

import time
import typing as t

from ...core.errors import DiskOpenElsewhere
from ...core.volumes.disk_pool import DiskPool
from ..libvirt.running import find_domain, is_active
from ..os.batch import progress, run_batch
from ..os.paths import checked_uuid
from .disk_images import DiskImages, disk_images
from .secrets import set_secret

OPEN, ARRIVING, FENCED = "open", "arriving", "fenced"
STATES = (OPEN, ARRIVING, FENCED)
#: Seconds in which a fenced client loses what it has open.
_FENCED = 20.0


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
                fenced = [] if runs else fence(images, names, check_mode)
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


def fence(images: DiskImages, names: t.Sequence[str], check_mode: bool = False) -> list[str]:
    """Have the cluster refuse all clients that have these images open, or wrote to them last. Returns their addresses.

    :raises DiskOpenElsewhere: one of them still has an image open.
    """
    cluster = images.cluster
    addresses = sorted({a for name in names for a in (*cluster.watchers(name), *cluster.lock_owners(name))})
    if check_mode:
        return addresses
    for address in addresses:
        progress.mark_changed()
        cluster.fence(address)
    end = time.monotonic() + _FENCED
    for name in names if addresses else ():
        while cluster.watchers(name):
            if time.monotonic() > end:
                raise DiskOpenElsewhere(
                    disk=cluster.image(name),
                    watchers=", ".join(cluster.watchers(name)),
                    remedy="Run the playbook again.",
                )
            time.sleep(0.5)
    return addresses
