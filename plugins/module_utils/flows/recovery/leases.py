# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Releasing what runs with an expired lease still hold; every boot does this without waiting for an audit.

bootflow_lease_seconds is the duration of a lease.
"""

from __future__ import annotations

from ...core.instances import states
from ...ledger.compute import instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volumes
from ..boot import failure
from . import volume_leases

OUT = "the lease of the run has expired"


def expire(tx: Transaction) -> list[str]:
    """End the builds of runs whose lease has expired, except those that this run adopted. Returns their hosts.

    Such an instance ends in ERROR with a fault that names the run. Its claim and addresses are released when its host has
    been cleaned (cleanups), which the boot does before scheduling. Volumes that such a run was creating, attaching or
    detaching are released too.
    """
    died = instances.builds_of_expired_runs(tx, tx.run.id)
    expired = runs.out_of_lease(tx, died.values())
    died = {uuid: run for uuid, run in died.items() if run in expired}
    left = volume_leases.left(tx, instance_uuids=died)
    if not died and not left:
        return []
    rows = instances.select_live(tx, uuids=sorted(died), lock=True) if died else []
    rows = [r for r in rows if r.run_id == died[r.uuid] and r.vm_state == states.BUILDING]
    cables = attachments.of_instances(tx, [r.uuid for r in rows])
    ids = left.volume_ids | {a.volume_id for group in cables.values() for a in group}
    if ids:
        volumes.select(tx, ids=sorted(ids), lock=True)  # all of them, before any node is
    instances.write(tx, [r.uuid for r in rows], run_id=tx.run.id)
    by_host: dict[str, list[str]] = {}
    for row in rows:
        if row.host is None:
            failure.end_in_error(tx, [row], failure.died_error(row.uuid, died), None)
        else:
            by_host.setdefault(row.host, []).append(row.uuid)
    for host, uuids in sorted(by_host.items()):
        failed = {u: failure.Failed(failure.died_error(u, died), cleaned=False, cleanup_reason=OUT) for u in uuids}
        failure.end_builds(tx, host, failed)
    volume_leases.expire(tx, left)
    return sorted(by_host)
