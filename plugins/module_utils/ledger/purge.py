# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Purging old rows: deleted instances, volumes and snapshots with their history, deleted images and backups, old runs, notifications and days of capacity.

Live instances, volumes and images are kept, and so are deleted ones that a host still has to clean up. Tables that refer to an
instance are found in the schema, so that tables of later revisions are included.
"""

from __future__ import annotations

import typing as t

from ..core.plans.plan_states import HELD
from .capacity import day_of
from .compute.instances import LIVE
from .database import Ledger
from .db.sqlalchemy_import import sa
from .db.transaction import Transaction
from .schema.backup_tables import instance_backups
from .schema.image_tables import image_places, images
from .schema.plan_tables import plan_places, plans
from .schema.tables import (
    capacity_days,
    instances,
    metadata,
    migrations,
    notifications,
    request_specs,
    reservations,
    runs,
)
from .schema.volume_tables import (
    volume_attachments,
    volume_cleanups,
    volume_events,
    volume_faults,
    volume_notifications,
    volume_snapshots,
    volumes,
)

if t.TYPE_CHECKING:
    Condition = sa.ColumnElement[bool]

BATCH = 200  # instances in one transaction
ROWS = 2000  # rows of other tables in one transaction

# Rows of resources on a host or network: an instance with one is not purged
HOLDING = ("claims", "device_claims", "ports", "cleanups")
# A volume, image or backup belongs to its project, not to the instance it was made for, or made of
NOT_ITS = ("volumes", "images", "instance_backups")
# Rows of a volume, in the order of their removal: those first that no others refer to
OF_VOLUMES = (volume_attachments, volume_snapshots, volume_events, volume_faults, volume_notifications)

# A resize under way brings its instance another request, and its end may bring the former one back; requests of ended moves are shown with them.
_OF_MOVES = (
    migrations.c.old_request_spec_id == request_specs.c.id,
    migrations.c.new_request_spec_id == request_specs.c.id,
)


def cutoff(now: float, retention_days: float) -> float | None:
    """The time before which history is removed; None: never."""
    return now - retention_days * 86400.0 if retention_days > 0 else None


def plan(tx: Transaction, before: float) -> dict[str, int]:
    """table -> number of rows that purge() would remove now, including dependent rows."""
    over = sa.select(instances.c.uuid).where(*_over(before))
    counts: dict[str, int] = {}
    counts["instances"] = _count(tx, instances, *_over(before))
    for table in _referrers():
        counts[table.name] = _count(tx, table, table.c.instance_uuid.in_(over))
    counts["notifications"] = _count(
        tx, notifications, sa.or_(notifications.c.instance_uuid.in_(over), sa.and_(*_old_notifications(before)))
    )
    purged = sa.and_(*_over(before))
    specs = [
        request_specs.c.reservation_id.in_(sa.select(reservations.c.id).where(reservations.c.created_at < before)),
        ~_refers(instances, *_of_spec(), sa.not_(purged)),
        *(~_refers(migrations, move_spec, migrations.c.instance_uuid.not_in(over)) for move_spec in _OF_MOVES),
    ]
    counts["request_specs"] = _count(tx, request_specs, *specs)
    counts["reservations"] = _count(
        tx,
        reservations,
        reservations.c.created_at < before,
        ~_refers(instances, instances.c.reservation_id == reservations.c.id, sa.not_(purged)),
    )
    old = sa.select(volumes.c.id).where(*_old_volumes(before))
    counts["volumes"] = _count(tx, volumes, *_old_volumes(before))
    snapshots = sa.select(volume_snapshots.c.id).where(*_old_snapshots(before))
    for table in OF_VOLUMES:
        wanted: sa.ColumnElement[bool] = table.c.volume_id.in_(old)
        if table is volume_attachments:
            wanted = sa.or_(wanted, table.c.instance_uuid.in_(over))
        elif table is not volume_notifications:
            key = table.c.id if table is volume_snapshots else table.c.snapshot_id
            wanted = sa.or_(wanted, key.in_(snapshots))
        counts[table.name] = _count(tx, table, wanted)
    counts["images"] = _count(tx, images, *_old_images(before))
    counts["instance_backups"] = _count(tx, instance_backups, *_old_backups(before))
    counts["runs"] = _count(tx, runs, *_old_runs(before))
    counts["plans"] = _count(tx, plans, *_old_plans(before))
    counts["capacity_days"] = _count(tx, capacity_days, capacity_days.c.day < day_of(before))
    return {name: count for name, count in counts.items() if count}


def purge(ledger: Ledger, before: float, batch: int = BATCH) -> dict[str, int]:
    """Remove what is older than ``before`` (seconds since the epoch), in transactions of ``batch`` instances.

    Returns table -> number of removed rows. If it is killed, the next purge removes the rest.
    """
    total: dict[str, int] = {}
    steps: list[tuple[t.Callable[..., dict[str, int]], int]] = [
        (_instances, batch),
        (_request_specs, ROWS),
        (_reservations, ROWS),
        (_notifications, ROWS),
        (_volumes, batch),
        (_snapshots, batch),
        (_images, ROWS),
        (_backups, ROWS),
        (_runs, ROWS),
        (_plans, ROWS),
        (_capacity_days, ROWS),
    ]
    for step, size in steps:
        while True:
            done = ledger.transact(step, before, size)
            for name, count in done.items():
                total[name] = total.get(name, 0) + count
            if not any(done.values()):
                break
    return {name: count for name, count in total.items() if count}


# --- old rows --------------------------------------------------------------------------------------------------------


def _over(before: float) -> list[Condition]:
    holding = [
        ~_refers(metadata.tables[name], metadata.tables[name].c.instance_uuid == instances.c.uuid)
        for name in HOLDING
        if name in metadata.tables
    ]
    a = volume_attachments.c
    holding.append(~_refers(volume_attachments, a.instance_uuid == instances.c.uuid, a.deleted == LIVE))
    return [instances.c.deleted != LIVE, instances.c.deleted_at < before, *holding]


def _old_notifications(before: float) -> list[Condition]:
    """Notifications of deleted and of unknown instances."""
    return [
        notifications.c.created_at < before,
        ~_refers(instances, instances.c.uuid == notifications.c.instance_uuid, instances.c.deleted == LIVE),
    ]


def _old_runs(before: float) -> list[Condition]:
    return [
        runs.c.lease_until < before,
        *(
            ~_refers(table, table.c.run_id == runs.c.id, table.c.deleted == LIVE)
            for table in (instances, volumes, volume_snapshots, volume_attachments, images, instance_backups)
        ),
    ]


def _old_volumes(before: float) -> list[Condition]:
    """Deleted volumes without leftovers and without dependent rows."""
    holding = [
        ~_refers(table, table.c.volume_id == volumes.c.id, table.c.deleted == LIVE)
        for table in (volume_snapshots, volume_attachments)
    ]
    cleaned = ~_refers(volume_cleanups, volume_cleanups.c.volume_id == volumes.c.id)
    return [volumes.c.deleted != LIVE, volumes.c.deleted_at < before, cleaned, *holding]


def _old_snapshots(before: float) -> list[Condition]:
    c = volume_snapshots.c
    return [c.deleted != LIVE, c.deleted_at < before, ~_refers(volume_cleanups, volume_cleanups.c.item_id == c.id)]


def _old_images(before: float) -> list[Condition]:
    """Deleted images of which no store has a file."""
    c = images.c
    return [c.deleted != LIVE, c.deleted_at < before, ~_refers(image_places, image_places.c.image_id == c.id)]


def _old_backups(before: float) -> list[Condition]:
    """Deleted backups: no host has anything of them."""
    c = instance_backups.c
    return [c.deleted != LIVE, c.deleted_at < before]


def _of_spec() -> list[Condition]:
    # only the reservation has an index
    return [
        instances.c.reservation_id == request_specs.c.reservation_id,
        instances.c.request_spec_id == request_specs.c.id,
    ]


def _refers(table: sa.Table, *where: Condition) -> sa.Exists:
    return sa.exists(sa.select(sa.literal(1)).select_from(table).where(*where))


def _referrers() -> list[sa.Table]:
    """Tables with rows of an instance, those first that no others refer to."""
    return [
        table
        for table in reversed(metadata.sorted_tables)
        if "instance_uuid" in table.c and table.name not in HOLDING + NOT_ITS
    ]


# --- removing --------------------------------------------------------------------------------------------------------


def _instances(tx: Transaction, before: float, size: int) -> dict[str, int]:
    chosen = sa.select(instances.c.uuid).where(*_over(before)).order_by(instances.c.deleted_at).limit(size)
    uuids = list(tx.execute(chosen.with_for_update(skip_locked=True)).scalars())
    done: dict[str, int] = {}
    for table in [*_referrers(), instances]:
        column = table.c.uuid if table is instances else table.c.instance_uuid
        done[table.name] = _delete(tx, table, column, uuids)
    return done


def _request_specs(tx: Transaction, before: float, size: int) -> dict[str, int]:
    unused = (
        sa.select(request_specs.c.id)
        .join(reservations, reservations.c.id == request_specs.c.reservation_id)
        .where(
            reservations.c.created_at < before,
            ~_refers(instances, *_of_spec()),
            *(~_refers(migrations, move_spec) for move_spec in _OF_MOVES),
        )
    )
    return _by_key(tx, request_specs, request_specs.c.id, unused, size)


def _reservations(tx: Transaction, before: float, size: int) -> dict[str, int]:
    unused = sa.select(reservations.c.id).where(
        reservations.c.created_at < before,
        ~_refers(instances, instances.c.reservation_id == reservations.c.id),
        ~_refers(request_specs, request_specs.c.reservation_id == reservations.c.id),
    )
    return _by_key(tx, reservations, reservations.c.id, unused, size)


def _notifications(tx: Transaction, before: float, size: int) -> dict[str, int]:
    old = sa.select(notifications.c.id).where(*_old_notifications(before))
    return _by_key(tx, notifications, notifications.c.id, old, size)


def _volumes(tx: Transaction, before: float, size: int) -> dict[str, int]:
    chosen = sa.select(volumes.c.id).where(*_old_volumes(before)).order_by(volumes.c.deleted_at).limit(size)
    ids = list(tx.execute(chosen.with_for_update(skip_locked=True)).scalars())
    done = {table.name: _delete(tx, table, table.c.volume_id, ids) for table in OF_VOLUMES}
    done[volumes.name] = _delete(tx, volumes, volumes.c.id, ids)
    return done


def _snapshots(tx: Transaction, before: float, size: int) -> dict[str, int]:
    """Snapshots of live volumes."""
    c = volume_snapshots.c
    chosen = sa.select(c.id).where(*_old_snapshots(before)).order_by(c.deleted_at).limit(size)
    ids = list(tx.execute(chosen.with_for_update(skip_locked=True)).scalars())
    done = {table.name: _delete(tx, table, table.c.snapshot_id, ids) for table in (volume_events, volume_faults)}
    done[volume_snapshots.name] = _delete(tx, volume_snapshots, c.id, ids)
    return done


def _images(tx: Transaction, before: float, size: int) -> dict[str, int]:
    return _by_key(tx, images, images.c.id, sa.select(images.c.id).where(*_old_images(before)), size)


def _backups(tx: Transaction, before: float, size: int) -> dict[str, int]:
    key = instance_backups.c.id
    return _by_key(tx, instance_backups, key, sa.select(key).where(*_old_backups(before)), size)


def _runs(tx: Transaction, before: float, size: int) -> dict[str, int]:
    return _by_key(tx, runs, runs.c.id, sa.select(runs.c.id).where(*_old_runs(before)), size)


def _old_plans(before: float) -> list[Condition]:
    holding = _refers(plan_places, plan_places.c.plan_id == plans.c.id)
    return [plans.c.state != HELD, plans.c.changed_at < before, ~holding]


def _plans(tx: Transaction, before: float, size: int) -> dict[str, int]:
    return _by_key(tx, plans, plans.c.id, sa.select(plans.c.id).where(*_old_plans(before)), size)


def _capacity_days(tx: Transaction, before: float, size: int) -> dict[str, int]:
    c = capacity_days.c
    return _by_key(tx, capacity_days, c.day, sa.select(c.day).where(c.day < day_of(before)), size)


def _by_key(
    tx: Transaction, table: sa.Table, key: sa.Column[t.Any], query: sa.Select[t.Unpack[tuple[t.Any, ...]]], size: int
) -> dict[str, int]:
    return {table.name: _delete(tx, table, key, list(tx.execute(query.limit(size)).scalars()))}


def _delete(tx: Transaction, table: sa.Table, key: sa.Column[t.Any], values: t.Sequence[str | int]) -> int:
    removed = 0
    for start in range(0, len(values), 500):
        removed += tx.execute(table.delete().where(key.in_(values[start : start + 500]))).rowcount
    return removed


def _count(tx: Transaction, table: sa.Table, *where: Condition) -> int:
    return int(tx.execute(sa.select(sa.func.count()).select_from(table).where(*where)).scalar() or 0)
