# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Capacity by day: a row a day, so that people see how a fleet fills."""

from __future__ import annotations

import typing as t

from ..core.times import utc
from .compute import nodes
from .compute.instances import LIVE
from .compute.nodes import NodeRow
from .db.locks import insert_new
from .db.sqlalchemy_import import sa
from .db.transaction import Transaction
from .schema.tables import capacity_days, instances

_COLUMNS = ("id", "host", "node", "machine_id", "reported_at")
_AMOUNTS = {
    "memory_mb": ("reserved_memory_mb", "ram_allocation_ratio"),
    "vcpus": ("reserved_vcpus", "cpu_allocation_ratio"),
    "local_gb": ("reserved_disk_gb", "disk_allocation_ratio"),
}


class CapacityDay:
    """A row of capacity_days. Memory is MB, disk GB."""

    day: str  # ISO 8601, UTC
    hosts: int
    instances: int
    memory_mb: int
    memory_mb_used: int
    vcpus: int
    vcpus_used: int
    local_gb: int
    local_gb_used: int
    created_at: float  # seconds since the epoch


def day_of(seconds: float) -> str:
    """Return the day (UTC) of a moment, as rows have it."""
    return (utc(seconds) or "")[:10]


def is_recorded(tx: Transaction) -> bool:
    """Whether the current day has its row: one look at a key."""
    c = capacity_days.c
    return tx.execute(sa.select(c.day).where(c.day == day_of(tx.now))).first() is not None


def record_day(tx: Transaction) -> bool:
    """Write the row of the current day, unless it is there or no host has reported yet. Returns whether it was written.

    A machine with several names counts once, with the claims of all of its names.
    """
    if is_recorded(tx):
        return False
    settings = [name for pair in _AMOUNTS.values() for name in pair]
    numbers = [part for name in _AMOUNTS for part in (name, name + "_used")]
    machines: dict[t.Any, list[NodeRow]] = {}
    for row in nodes.rows(tx, (*_COLUMNS, *numbers, *settings)):
        if row.reported_at is not None:
            machines.setdefault(row.machine_id or row.id, []).append(row)
    if not machines:
        return False
    c = instances.c
    count = sa.select(sa.func.count()).where(c.deleted == LIVE, c.host.is_not(None))
    values = dict.fromkeys(numbers, 0)
    for rows in machines.values():
        for name, amount in _amounts(rows).items():
            values[name] += amount
    return insert_new(
        tx,
        capacity_days,
        day=day_of(tx.now),
        hosts=len(machines),
        instances=int(tx.execute(count).scalar_one()),
        created_at=tx.now,
        **values,
    )


def _amounts(rows: t.Sequence[NodeRow]) -> dict[str, int]:
    """Return the capacity and the use of one machine. :arg rows: one for each of its names"""
    latest = max(rows, key=lambda row: (row.reported_at or 0.0, row.id))
    amounts = {}
    for name, (reserved, ratio) in _AMOUNTS.items():
        claimed = sum(getattr(row, name + "_used") - getattr(row, reserved) for row in rows)
        amounts[name] = int(getattr(latest, name) * getattr(latest, ratio))
        amounts[name + "_used"] = getattr(latest, reserved) + claimed
    return amounts


def latest_days(tx: Transaction, number: int) -> list[CapacityDay]:
    """Return the rows of the latest days, oldest first. :arg number: how many at most"""
    c = capacity_days.c
    return tx.rows(sa.select(capacity_days).order_by(c.day.desc()).limit(number), CapacityDay)[::-1]
