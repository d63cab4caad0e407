# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Extending volumes, also in use: quota and capacity for the difference are taken first.

An extension that failed, or whose run died, can be requested again. source: Cinder's extend (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances.power_states import POWER_SUSPENDED
from ...core.instances.power_sync import OFF
from ...core.reading.problems import Problems
from ...core.volumes import quotas, states
from ...core.volumes.model import PoolState, VolumeRequest
from ...core.volumes.scheduler.batch import select_backends
from ...core.volumes.scheduler.options import VolumeSchedulerOptions
from ...ledger.compute import instances
from ...ledger.db.this_run import Context
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, backends, snapshots, volumes
from ...ledger.storage.volumes import PlacedVolume, VolumeRow
from . import requests
from .requests import VolumeSettings

_EXTENDING = (states.EXTENDING, states.ERROR_EXTENDING)


@dataclass
class VolumeExtending:
    rows: list[VolumeRow] = field(default_factory=list)  # of volumes that grow, as they were
    hosts: list[str] = field(default_factory=list)  # storage hosts
    compute_hosts: list[str] = field(default_factory=list)  # of the attachments, to update the size afterwards
    unchanged: list[str] = field(default_factory=list)  # ids: already as large as requested


@dataclass(frozen=True)
class FormerSize:
    """A guest that does not have the new size of its volume yet."""

    volume_id: str
    host: str | None
    instance: str  # its name
    is_off: bool

    def ends_at_start(self, code: str) -> bool:
        """Whether its next start connects the volume, with the new size: its host has no device of it any more. :arg code: of the host's error"""
        return self.is_off and code == errors.VolumeDeviceNotFound.__name__


class _Growth(t.NamedTuple):
    """A volume to extend. ``path``: of its size in the request."""

    path: str
    row: PlacedVolume
    size: int


def begin(
    tx: Transaction,
    requested: t.Sequence[t.Mapping[str, t.Any]],
    settings: VolumeSettings,
    scheduler_options: VolumeSchedulerOptions,
) -> VolumeExtending:
    """Mark volumes as extending: {"volume": name or id, "size": GB} each.

    :raises InvalidRequest: all refusals: VolumeNotFound, VolumeLocked, the status, a smaller size, quotas, NoValidBackend
        if the backend lacks capacity. Nothing is written then.
    """
    requests.open_project(tx, settings)
    refusals = Problems()
    growing, unchanged = _read(tx, requested, settings, refusals)
    _check_quota(tx, growing, settings, refusals)
    _check_capacity(tx, growing, scheduler_options, refusals)
    refusals.raise_if_any()
    volumes.update(tx, [_extending(g, tx.context) for g in growing])
    return VolumeExtending(
        rows=[g.row for g in growing],
        hosts=sorted({volumes.host_of(g.row.pool_host) for g in growing}),
        compute_hosts=_compute_hosts(tx, [g.row.id for g in growing], unchanged),
        unchanged=unchanged,
    )


def _read(
    tx: Transaction,
    requested: t.Sequence[t.Mapping[str, t.Any]],
    settings: VolumeSettings,
    refusals: Problems,
) -> tuple[list[_Growth], list[str]]:
    """(volumes to extend, ids of the volumes that are already as large as requested)"""
    words = [str(entry.get("volume") or "") for entry in requested]
    rows_by_word = volumes.find(tx, words, settings.project, lock=True)
    live_runs = volumes.live_runs(tx, rows_by_word.values())
    growing: list[_Growth] = []
    unchanged: list[str] = []
    named: set[str] = set()
    for index, (word, entry) in enumerate(zip(words, requested)):
        with refusals.collect("volumes[%d]" % index):
            row = rows_by_word.get(word)
            if row is None:
                raise errors.VolumeNotFound(volume_id=word)
            if row.id in named:
                raise errors.InvalidInput(reason="volume %s is named twice" % word, remedy="Name it once.")
            requests.check_not_busy(tx, row, volumes.BUSY, live_runs)
            size = _new_size(row, entry.get("size"))
            named.add(row.id)
            if size is None:
                unchanged.append(row.id)
            else:
                growing.append(_Growth("volumes[%d].size" % index, t.cast(PlacedVolume, row), size))
    return growing, unchanged


def _new_size(row: VolumeRow, wanted: t.Any) -> int | None:
    """The new size; None: the volume already has it. :raises InvalidVolume: :raises InvalidInput:"""
    volume = volumes.to_volume(row)
    again = row.status in _EXTENDING
    is_that_large = str(wanted) == str(row.size)
    if is_that_large:
        return int(row.size) if again else None  # after a failed extension the backend decides about the size
    if again:
        volume = replace(volume, status=row.previous_status or states.AVAILABLE)
    states.check_extend(volume, wanted, attached=volume.status == states.IN_USE)
    return int(str(wanted))


def _check_quota(tx: Transaction, growing: t.Sequence[_Growth], settings: VolumeSettings, refusals: Problems) -> None:
    limits = settings.limits
    for path, _row, size in growing:
        with refusals.collect(path):
            quotas.check_size(size, limits)
    wanted = (quotas.for_extend(r.new_size or r.size, size, r.volume_type) for _p, r, size in growing)
    with refusals.collect("quotas"):
        requests.check_quota(wanted, limits, lambda: settings.usage(tx))


def _check_capacity(
    tx: Transaction, growing: t.Sequence[_Growth], options: VolumeSchedulerOptions, refusals: Problems
) -> None:
    """Check that the backend of each volume can extend it by the difference, one after the other; a silent backend does not."""
    larger = [g for g in growing if g.size > g.row.size]
    if not larger:
        return
    # A disabled backend still serves its volumes: only new ones are not placed there.
    own = {g.row.pool_host for g in larger}
    pools = [replace(s, disabled=False, frozen=False) for s in backends.pool_states(tx, lock=True) if s.host in own]
    fixed = _with_fixed_size(tx, larger, pools)
    refused: dict[str, errors.BootflowError] = {}
    wanted: dict[str, VolumeRequest] = {}
    for path, row, size in larger:
        if row.id in fixed:
            refused[path] = errors.InvalidVolume(
                reason="%s is in use and has snapshots: LVM extends an origin only while it is inactive"
                % (row.name or row.id),
                remedy="Detach the volume, or delete its snapshots (%s)." % fixed[row.id],
            )
            continue
        # Capacity already taken by a failed extension is not taken again.
        base = row.size + row.pending_gb if row.pending_gb and row.made else row.size
        if size > base:
            wanted[path] = replace(
                volumes.to_request(row),
                size=base,
                new_size=size,
                resource_backend=row.pool_host,
                scheduler_hints={},
                retry=None,
            )
    choices = zip(wanted, select_backends(pools, list(wanted.values()), replace(options, max_attempts=1)))
    refused.update({path: choice for path, choice in choices if isinstance(choice, errors.BootflowError)})
    for path in [g.path for g in larger if g.path in refused]:
        refusals.add(path, refused[path])


def _with_fixed_size(tx: Transaction, larger: t.Sequence[_Growth], pools: t.Iterable[PoolState]) -> dict[str, str]:
    """Id -> names of the snapshots of an attached thick volume, which LVM does not extend."""
    thick = {pool.host for pool in pools if not pool.thin_provisioning_support}
    ids = [g.row.id for g in larger if g.row.attach_status == states.ATTACHED and g.row.pool_host in thick]
    snapshot_names: dict[str, list[str]] = {}
    for snapshot in snapshots.select(tx, volume_ids=ids, statuses=(states.AVAILABLE,)) if ids else ():
        snapshot_names.setdefault(snapshot.volume_id, []).append(snapshot.name or snapshot.id)
    return {i: ", ".join(sorted(names)) for i, names in snapshot_names.items()}


def _extending(growth: _Growth, context: Context) -> dict[str, t.Any]:
    row = growth.row
    return {
        "id": row.id,
        "status": states.EXTENDING,
        "previous_status": row.previous_status if row.status in _EXTENDING else row.status,
        "new_size": growth.size,
        "pending_gb": max(row.pending_gb, growth.size - row.size),
        "run_id": context.run.id,
    }


def _compute_hosts(tx: Transaction, growing: t.Sequence[str], unchanged: t.Sequence[str]) -> list[str]:
    """Return the compute hosts of the growing volumes' attachments, and the hosts that could not show an earlier extension to their guests."""
    rows = [r for group in attachments.of_volumes(tx, growing).values() for r in group] if growing else []
    if unchanged:
        rows += [r for group in attachments.of_volumes(tx, unchanged).values() for r in group if r.rescan]
    return sorted({r.attached_host for r in rows if r.attached_host})


def former_sizes(tx: Transaction, volume_ids: t.Sequence[str]) -> list[FormerSize]:
    """The guests of these volumes, which were extended, that do not have the new size yet."""
    rows = attachments.too_small(tx, volume_ids)
    uuids = sorted({r.instance_uuid for r in rows})
    guests = {g.uuid: g for g in instances.select_live(tx, uuids=uuids)} if uuids else {}
    off = (*OFF, POWER_SUSPENDED)
    return [
        FormerSize(r.volume_id, r.attached_host, guest.display_name, guest.power_state in off)
        for r in rows
        if (guest := guests.get(r.instance_uuid)) is not None
    ]
