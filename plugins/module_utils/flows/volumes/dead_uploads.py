# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of volumes whose runs died: the next work on volumes, or the audit, deletes them and gives the volumes their status back."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.volumes import states
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import volume_history, volumes
from ...ledger.storage.volumes import VolumeRow
from ..images import dead_images

#: The event of the journal.
EVENT = "upload"


def find_dead(tx: Transaction) -> list[VolumeRow]:
    """Return the volumes of which dead runs made images."""
    rows = volumes.uploading(tx)
    dead = runs.dead_among(tx, [r.run_id for r in rows]) if rows else ()
    return [r for r in rows if r.run_id in dead]


def end_dead(tx: Transaction) -> None:
    """Give volumes of dead runs their status back, and delete the images. What a store has of these is removed by its next work."""
    before = {r.id: r.run_id for r in find_dead(tx)}
    if not before:
        return
    locked = volumes.select(tx, ids=before, statuses=(states.UPLOADING,), lock=True)
    rows = [r for r in locked if r.run_id == before[r.id]]
    faults = {
        r.id: errors.RemoteError(reason="run %s died while it made an image of volume %s" % (r.run_id, r.name or r.id))
        for r in rows
    }
    give_back(tx, rows, faults)
    dead_images.end_dead(tx)


def give_back(tx: Transaction, rows: t.Sequence[VolumeRow], failed: t.Mapping[str, errors.BootflowError]) -> None:
    """Give volumes the status that they have without the work on their images, and journal how it ended.

    :arg rows: locked. :arg failed: why some failed, by the ids of volumes
    """
    written = [
        {
            "id": r.id,
            "status": states.status_after_upload(r.attach_status),
            "previous_status": None,
            "run_id": None,
        }
        for r in rows
    ]
    volumes.update(tx, written)
    ended = [r for r in rows if r.id in failed]
    volume_history.fail_events(tx, {r.id: failed[r.id].in_full for r in ended}, EVENT)
    hosts = {r.id: volumes.host_of(r.pool_host) if r.pool_host else None for r in ended}
    volume_history.add_faults(tx, [volume_history.Fault(r.id, failed[r.id], hosts[r.id]) for r in ended])
