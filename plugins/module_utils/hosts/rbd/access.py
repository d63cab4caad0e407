# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clients that have volumes open. Ceph lets any number of clients write to an image: only a look at its watchers keeps two guests apart.

source: Ceph 16 as tried: a client watches what it has open for writing; one that was killed does so for 30 s more; one that is on the blocklist no longer
"""

from __future__ import annotations

import typing as t

from ...core.errors import VolumeIsBusy, VolumeNotFound, VolumeOpenElsewhere
from ...core.volumes.names import volume_name
from ..os.paths import checked_uuid
from .cluster import FENCE_SECONDS
from .fences import clients, fence
from .images import Images

PRESENT, ABSENT = "present", "absent"
STATES = (PRESENT, ABSENT)


def ensure(images: Images, args: t.Mapping[str, t.Any], check_mode: bool = False) -> dict[str, t.Any]:
    """Check that a volume may be opened (present), or that it is no longer open (absent), but for ``users`` guests that the ledger knows.

    :raises VolumeNotFound: it is not in the pool (present).
    :raises VolumeOpenElsewhere: another client has it open (present).
    :raises VolumeIsBusy: it is open still (absent).
    """
    volume_id = checked_uuid(args["id"])
    name = volume_name(volume_id)
    users = int(args.get("users") or 0)
    if images.cluster.info(name) is None:
        if args.get("state") == ABSENT:
            return _result(name, [])
        raise VolumeNotFound(volume_id=volume_id)
    if args.get("state") == ABSENT:
        if args.get("force"):
            return _fence(images, name, users, check_mode)
        watchers = images.users(name, users)
        if watchers:
            raise VolumeIsBusy(
                message="%s is still open at %s" % (name, ", ".join(watchers)),
                remedy="End the guest or program there, then run the playbook again.",
            )
        return _result(name, [])
    watchers = images.users(name, users)
    if watchers:
        raise VolumeOpenElsewhere(volume_id=volume_id, watchers=", ".join(watchers))
    return _result(name, images.cluster.watchers(name))


def _fence(images: Images, name: str, users: int, check_mode: bool) -> dict[str, t.Any]:
    """Have the cluster refuse all clients that have the volume open, or wrote to it last, as their host is lost.

    :raises VolumeIsBusy: other guests have it, too, and which of the addresses are theirs is not known.
    """
    cluster = images.cluster
    addresses = clients(cluster, [name])
    if not addresses:
        return _result(name, [])
    if users:
        raise VolumeIsBusy(
            message="%s is open at %s, by the lost host and %d other guests" % (name, ", ".join(addresses), users),
            remedy="Fence the addresses of the lost host: ceph osd blocklist add ADDRESS %s. Then run the playbook again."
            % FENCE_SECONDS,
        )
    remaining = {} if check_mode else fence(cluster, [name], addresses)
    if remaining:
        raise VolumeIsBusy(
            message="%s is open at %s, which was fenced" % (name, ", ".join(remaining[name])),
            remedy="Run the playbook again.",
        )
    return {**_result(name, []), "changed": True, "fenced": addresses}


def _result(name: str, watchers: t.Sequence[str]) -> dict[str, t.Any]:
    return {"name": name, "watchers": list(watchers), "fenced": []}
