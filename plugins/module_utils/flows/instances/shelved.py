# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelved instances that leave their hosts, and the end of being shelved.

Apart from the beginnings of shelve and unshelve, as reports of hosts and deletions need only this.
source: Nova's ComputeManager._shelve_offload_instance and remove_shelved_keys_from_system_metadata
"""

from __future__ import annotations

import typing as t

from ...core.images import life
from ...core.instances import states
from ...ledger.compute import cleanups, instances, nodes, ports, shelved
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ..attachments import life as attachment_life
from ..attachments import moving
from . import cleanup


def end(tx: Transaction, uuids: t.Iterable[str]) -> list[str]:
    """These instances are not shelved any more: their images are deleted. Returns the ids of the images.

    What stores have of the images is removed by the next work of these stores.
    """
    rows = shelved.of_instances(tx, uuids)
    ids = sorted({r.image_id for r in rows.values() if r.image_id is not None})
    ended = [r.id for r in images.select(tx, ids=ids, lock=True)] if ids else []
    for image_id in ended:
        images.apply(tx, image_id, life.DELETE)
    shelved.forget(tx, rows)
    return ended


def leave_hosts(tx: Transaction, rows: t.Sequence[PlacedInstance], unclean: t.Collection[str] = ()) -> None:
    """Take these locked instances from their hosts, which have nothing of them any more: claims end, ports and volumes stay and are bound to none.

    :arg unclean: instances whose hosts may have something of them still. Such a host owes a cleanup, and stays claimed until that is done. Its volumes
        stay connected until then, unless it is forced down: storage hosts cut it off.
    """
    if not rows:
        return
    uuids = [r.uuid for r in rows]
    ports.unbind(tx, uuids)
    instances.write(tx, uuids, host=None, node=None, limits=None, updated_at=tx.now)
    down = nodes.forced_down(tx) if unclean else set()
    lost_uuids = [r.uuid for r in rows if r.uuid in unclean and r.host in down]
    if lost_uuids:
        moving.cut_off(tx, lost_uuids)
        attachment_life.unbind_lost(tx, lost_uuids)
    due = [cleanups.Due(r.host, r.uuid, r.domain_name, "it is shelved, and left the host") for r in rows]
    cleanups.add(tx, *(d for d in due if d.instance_uuid in unclean))
    cleaned: dict[str, list[str]] = {}
    for row in rows:
        if row.uuid not in unclean:
            cleaned.setdefault(row.host, []).append(row.uuid)
    cleanup.finish(tx, cleaned)


def release_volumes(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Release the volumes of instances whose offload died with its run."""
    moving.release_after_crash(tx, uuids)


def settle_after_crash(tx: Transaction, row: Instance, power_state: int | None) -> bool:
    """Settle an unshelve whose run died, of an instance that is settled otherwise. Returns whether its guest runs, and the instance is active.

    An instance that was to be built has no host again, where its guest does not run. The host owes a cleanup.

    :arg power_state: of the guest on its host; None: there is no guest
    """
    moving.release_after_crash(tx, [row.uuid])
    if power_state == states.RUNNING:
        end(tx, [row.uuid])
        return True
    if row.vm_state == states.SHELVED_OFFLOADED and instances.is_placed(row):
        leave_hosts(tx, [row], unclean=[row.uuid])
    return False
