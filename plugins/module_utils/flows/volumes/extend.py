# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Making volumes larger, those in use too: quota and room for the difference are taken before anything is done.

An extension that failed, or whose run died, is asked for again. source: Cinder's extend (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.reading.problems import Problems
from ...core.volumes import quotas, states
from ...core.volumes.scheduler.options import VolumeSchedulerOptions
from ...core.volumes.scheduler.select import VolumeScheduler
from ...ledger.compute import runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.locks import take_turns
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import volume_attachments
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.storage import backends, volume_quotas, volumes
from .accept import VolumeInputs


@dataclass
class VolumeExtending:
    rows: list[t.Any] = field(default_factory=list)  # of volumes that grow, as they were
    hosts: list[str] = field(default_factory=list)  # their storage hosts
    compute_hosts: list[str] = field(default_factory=list)  # that have them attached, and are to look again afterwards
    unchanged: list[str] = field(default_factory=list)  # ids: so large already


def begin(
    conn: t.Any,
    wishes: t.Sequence[t.Mapping[str, t.Any]],
    inputs: VolumeInputs,
    scheduler_options: VolumeSchedulerOptions,
    context: Context,
) -> VolumeExtending:
    """Mark volumes as extending: {"volume": name or id, "size": GB} each.

    :raises InvalidRequest: all refusals: VolumeNotFound, VolumeLocked, the status, a smaller size, quotas, NoValidBackend
        where the backend has no room. Nothing is written then.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    take_turns(conn, "project", [inputs.project])
    refusals = Problems()
    words = [str(w.get("volume") or "") for w in wishes]
    found, _missing = volumes.find(conn, list(dict.fromkeys(words)), inputs.project)
    locked = {r.id: r for r in volumes.select(conn, ids={r.id for r in found.values()}, lock=True)} if found else {}
    alive = volumes.live_runs(conn, locked.values(), context)
    result = VolumeExtending()
    chosen: list[tuple[str, t.Any, int]] = []
    named: set[str] = set()
    for index, (word, wish) in enumerate(zip(words, wishes)):
        with refusals.collect("volumes[%d]" % index):
            row = locked.get(found[word].id) if word in found else None
            if row is None:
                raise errors.VolumeNotFound(volume_id=word)
            if row.id in named:
                raise errors.InvalidInput(reason="volume %s is named twice" % word, remedy="Name it once.")
            size = _size(conn, row, wish.get("size"), alive)
            named.add(row.id)
            if size is None:
                result.unchanged.append(row.id)
            else:
                chosen.append(("volumes[%d].size" % index, row, size))
    _check_quota(conn, chosen, inputs, refusals)
    _check_room(conn, chosen, scheduler_options, refusals)
    refusals.raise_if_any()
    _write(conn, chosen, context)
    result.rows = [r for _p, r, _s in chosen]
    result.hosts = sorted({volumes.host_of(r.pool_host) for r in result.rows})
    attached = volumes.attachments_of(conn, [r.id for r in result.rows]) if chosen else {}
    hosts = {a.attached_host for each in attached.values() for a in each if a.attached_host}
    result.compute_hosts = sorted(hosts | _hosts_that_did_not_look(conn, result.unchanged))
    return result


def _hosts_that_did_not_look(conn: t.Any, ids: t.Sequence[str]) -> set[str]:
    """Compute hosts that could not show their guests the size that these volumes got before."""
    if not ids:
        return set()
    a = volume_attachments.c
    conditions = (a.deleted == "", a.rescan.is_(True), a.attached_host.is_not(None), bulk.among(conn, a.volume_id, ids))
    return set(conn.execute(sa.select(a.attached_host).where(*conditions)).scalars())


def _size(conn: t.Any, row: t.Any, wanted: t.Any, alive: t.Collection[str]) -> int | None:
    """The size to grow to; None: it is so large. :raises InvalidVolume: :raises InvalidInput: :raises VolumeLocked:"""
    if row.run_id in alive and row.status in volumes.BUSY:
        raise volumes.locked_error(conn, row)
    volume = volumes.to_volume(row)
    again = row.status in (states.EXTENDING, states.ERROR_EXTENDING)
    if again:
        volume = replace(volume, status=row.previous_status or states.AVAILABLE)
    elif str(wanted) == str(row.size):
        return None
    if again and str(wanted) == str(row.size):
        return int(row.size)  # as large as it was: its backend says whether that is so
    states.check_extend(volume, wanted, attached=volume.status == states.IN_USE)
    return int(str(wanted))


def _check_quota(
    conn: t.Any, chosen: t.Sequence[tuple[str, t.Any, int]], inputs: VolumeInputs, refusals: Problems
) -> None:
    limits = inputs.limits
    wanted = []
    for path, row, size in chosen:
        with refusals.collect(path):
            quotas.check_size(size, limits)
        wanted.append(quotas.for_extend(row.new_size or row.size, size, row.volume_type))
    amounts = quotas.total(wanted)
    if amounts:
        with refusals.collect("quotas"):
            quotas.check_reserve(amounts, volume_quotas.usage(conn, inputs.project), limits)


def _check_room(
    conn: t.Any,
    chosen: t.Sequence[tuple[str, t.Any, int]],
    options: VolumeSchedulerOptions,
    refusals: Problems,
) -> None:
    """Whether each's own backend takes the difference, one after the other; a backend that is silent does not."""
    growing = [(path, row, size) for path, row, size in chosen if size > row.size]
    if not growing:
        return
    states_now = backends.pool_states(conn, lock=True)
    # Its backend has the volume already, disabled or not: no new one is placed there.
    own = {row.pool_host for _p, row, _s in growing}
    states_now = [replace(s, disabled=False, frozen=False) for s in states_now if s.host in own]
    scheduler = VolumeScheduler(states_now, replace(options, max_attempts=1))
    for path, row, size in growing:
        # What an extension that did not end well has taken already is not asked for again.
        base = row.size + row.pending_gb if row.pending_gb and row.made else row.size
        if size <= base:
            continue
        request = volumes.to_request(row)
        request = replace(
            request, size=base, new_size=size, resource_backend=row.pool_host, scheduler_hints={}, retry=None
        )
        with refusals.collect(path):
            scheduler.select(request)


def _write(conn: t.Any, chosen: t.Sequence[tuple[str, t.Any, int]], context: Context) -> None:
    bulk.update(
        conn,
        volumes_table,
        "id",
        [
            {
                "id": row.id,
                "status": states.EXTENDING,
                "previous_status": row.previous_status
                if row.status in (states.EXTENDING, states.ERROR_EXTENDING)
                else row.status,
                "new_size": size,
                "pending_gb": max(row.pending_gb, size - row.size),
                "run_id": context.run.id,
                "updated_at": context.now,
            }
            for _path, row, size in chosen
        ],
    )
