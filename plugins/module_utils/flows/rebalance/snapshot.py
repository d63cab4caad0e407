# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guests of the ledger for a plan of live migrations: what each of them needs elsewhere, and why some stay.

The judgements are the ones of a live migration (flows.moves.live), so that a plan has no step that a live migration refuses.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...core import errors
from ...core.disks.local import POOL_STAT
from ...core.rebalance.plan_data import Guest
from ...core.scheduler.columns import Fleet
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import groups, instances
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ..boot.schedule import needs_of
from ..moves import live, local_disks, place
from ..moves.place import Mover, ReadFleet


@dataclass(frozen=True)
class Snapshot:
    """The fleet and its guests at one moment. stays: the instances that are not migrated: (name, uuid, host, why)."""

    fleet: Fleet
    guests: list[Guest]
    stays: list[tuple[str, str, str, str]]

    def fresh_fleet(self) -> Fleet:
        """Return the fleet as it was read, for a caller that changes it."""
        return Fleet(list(self.fleet.hosts), self.fleet.machines)


def read(
    tx: Transaction,
    wanted: live.Wanted,
    kept_instances: t.Collection[str],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
) -> Snapshot:
    """Read the fleet and the instances of all hosts.

    :arg kept_instances: names and UUIDs of instances that are left alone
    :raises InstanceNotFound: one of them names no instance. :raises InvalidInput: unknown filters or weighers.
    """
    rows = [r for r in instances.select_live(tx) if instances.is_placed(r)]
    _check_kept(rows, kept_instances)
    movers, refused = live.sort_out(tx, wanted, rows)
    others = [movers[r.uuid] if r.uuid in movers else Mover(r, r.spec) for r in rows]
    fleet = read_fleet(tx, needs_of([m.spec for m in others], options))
    stays = {u: _sentence(e) for u, e in refused.items()}
    stays.update({r.uuid: "it is locked by %s" % r.locked_by for r in rows if r.locked_by is not None})
    stays.update({r.uuid: "it is left alone" for r in rows if {r.display_name, r.uuid} & set(kept_instances)})
    guests = _guests(tx, others, fleet, stays)
    names = {g.uuid: (g.name, g.uuid, g.host) for g in guests}
    return Snapshot(fleet, guests, [(*names[u], why) for u, why in sorted(stays.items(), key=lambda s: names[s[0]])])


def _check_kept(rows: t.Sequence[Instance], kept_instances: t.Collection[str]) -> None:
    known = {name for row in rows for name in (row.display_name, row.uuid)}
    unknown = sorted(set(kept_instances) - known)
    if unknown:
        raise errors.InstanceNotFound(
            instance_id=", ".join(unknown),
            remedy="Correct bootflow_rebalance_keep_instances: it takes names and UUIDs of instances that have a host.",
        )


def _sentence(error: errors.BootflowError) -> str:
    return error.message.rstrip(".")


def _guests(tx: Transaction, movers: t.Sequence[Mover], fleet: Fleet, stays: t.Mapping[str, str]) -> list[Guest]:
    movers = place.with_networks(tx, movers)
    members = groups.load(tx, {m.row.server_group_id for m in movers if m.row.server_group_id})
    barred = place.hosts_with_leftovers(tx, movers)
    zones = place.zones_of_volumes(tx, movers)
    disks = instances.disks_of(tx, [m.row.uuid for m in movers])
    pooled = {fleet.hosts[row].host for row in range(len(fleet)) if fleet.hosts[row].stats.get(POOL_STAT)}
    guests = []
    for mover in movers:
        row: PlacedInstance = mover.row
        group = members.get(row.server_group_id) if row.server_group_id else None
        sizes = local_disks.largest(disks[row.uuid], row.spec.get("image"))
        guests.append(
            Guest(
                uuid=row.uuid,
                name=row.display_name,
                host=row.host,
                node=row.node,
                spec=replace(place.spec_elsewhere(mover, zones.get(row.uuid)), instance_group=group),
                barred=frozenset({*mover.barred, *barred[row.uuid], *mover.failed, row.host}),
                disk_bytes=0 if row.host in pooled else sum(sizes.values()),
                stays=stays.get(row.uuid),
            )
        )
    return guests


def places(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, str | None]:
    """Return uuid -> the host that an instance is on now."""
    return {r.uuid: r.host for r in instances.select_live(tx, uuids=uuids)} if uuids else {}
