# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Storage backends: their entries in the inventory, their last reports, and the GB promised since.

A report states what existed when it was read. GB placed since are the sum of pending_gb of the pool's volumes, snapshots
and pending cleanups, which is subtracted from free space. A report never overwrites a later one of the same host.
source: Cinder's host_manager (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.amounts import GIB
from ...core.answers.shapes import Misshapen
from ...core.answers.storage import STORED
from ...core.volumes.model import PoolState
from ...core.volumes.pool_hosts import append_host
from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.volume_tables import storage_backends, volume_cleanups, volume_snapshots, volumes

THIN = "thin"
# Lists of a report that are not stored, because they grow with the number of volumes.
_NOT_KEPT = ("volumes",)
# Column -> its field of a report.
_COLUMNS = {
    "total_gb": "total_capacity_gb",
    "free_gb": "free_capacity_gb",
    "provisioned_gb": "provisioned_capacity_gb",
}

_b = storage_backends.c


@dataclass(frozen=True)
class BackendReport:
    """A storage host's report of one backend. ``capacity``: of the module; None if ``error`` has the reason.

    ``configuration``: the entry of the inventory, with all defaults.
    """

    backend: str
    pool: str
    configuration: t.Mapping[str, t.Any]
    capacity: t.Mapping[str, t.Any] | None = None
    error: errors.BootflowError | None = None


class BackendRow:
    """A row of storage_backends: a pool of a storage host. Sizes are GB, times seconds since the epoch."""

    id: int
    pool_host: str  # host@backend#pool
    host: str  # the inventory's name
    backend: str
    pool: str
    availability_zone: str
    disabled: bool
    frozen: bool
    total_gb: float | None
    free_gb: float | None
    provisioned_gb: float | None
    report: dict[str, t.Any]  # the capacity as the module reported it; empty before its first report
    configuration: dict[str, t.Any]  # its entry of the inventory, with all defaults
    boot_id: str
    read_at: float  # seconds since the boot of its host (boot_id)
    created_at: float
    reported_at: float | None
    error: dict[str, t.Any] | None  # why it is not ready


@dataclass(frozen=True)
class Reported:
    """A backend's last report. ``error``: why it is not ready."""

    total_gb: float | None = None
    free_gb: float | None = None
    provisioned_gb: float | None = None
    report: t.Mapping[str, t.Any] = field(default_factory=dict)
    error: t.Mapping[str, t.Any] | None = None


def reported(row: BackendRow) -> Reported:
    """The report that a row has; a report that cannot be read makes its backend not ready, and harms no other one."""
    amounts = {"total_gb": row.total_gb, "free_gb": row.free_gb, "provisioned_gb": row.provisioned_gb}
    try:
        STORED({**row.report, **{_COLUMNS[name]: amount for name, amount in amounts.items()}}, "")
    except (Misshapen, TypeError) as wrong:
        where = "%s in the ledger" % (wrong.path if isinstance(wrong, Misshapen) else "report")
        error = errors.RemoteError(
            reason="The last report of %s is invalid: %s" % (row.pool_host, where),
            remedy="The report is replaced when its host reports again: ansible-playbook bootflow.compute.heartbeat.",
        )
        return Reported(error=row.error or error.as_dict())
    return Reported(**amounts, report=row.report, error=row.error)


# --- writing -------------------------------------------------------------------------------------------------------------


def configure(tx: Transaction, configurations: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]) -> list[str]:
    """Enter the inventory's backends: host -> its entries. Capacities and their times are not changed.

    Backends of these hosts without an entry are disabled. Returns the pool_hosts of changed rows.
    """
    wanted = {
        pool_host_of(host, entry["name"], _pool(entry)): (host, entry)
        for host, entries in configurations.items()
        for entry in entries
    }
    rows = {r.pool_host: r for r in _locked(tx, bulk.among(tx, _b.host, sorted(configurations)))}
    changed = []
    for pool_host in sorted(set(wanted) - set(rows)):
        host, entry = wanted[pool_host]
        insert_new(
            tx,
            storage_backends,
            pool_host=pool_host,
            host=host,
            backend=entry["name"],
            pool=_pool(entry),
            report={},
            boot_id="",
            read_at=0.0,
            created_at=tx.now,
            **_configured(entry),
        )
        changed.append(pool_host)
    for pool_host, row in rows.items():
        values = _configured(wanted[pool_host][1]) if pool_host in wanted else {"disabled": True}
        if any(getattr(row, name) != value for name, value in values.items()):
            tx.execute(storage_backends.update().where(_b.pool_host == pool_host).values(**values))
            changed.append(pool_host)
    return sorted(changed)


def record_report(tx: Transaction, host: str, reports: t.Sequence[BackendReport]) -> None:
    """Enter a storage host's reports of its backends; those without a report are disabled."""
    entries = [{**r.configuration, "name": r.backend, "volume_backend_name": r.pool} for r in reports]
    unsettled = _unsettled(tx, [pool_host_of(host, r.backend, r.pool) for r in reports])  # volumes are locked first
    configure(tx, {host: entries})
    for report in sorted(reports, key=lambda r: (r.backend, r.pool)):
        pool_host = pool_host_of(host, report.backend, report.pool)
        if report.capacity is not None and report.error is None:
            if record_capacity(tx, pool_host, report.capacity):
                _mark_reported(tx, [r for r in unsettled if r.pool_host == pool_host], report.capacity)
        elif report.error is not None:
            record_error(tx, pool_host, report.error)


def record_capacity(tx: Transaction, pool_host: str, capacity: t.Mapping[str, t.Any]) -> bool:
    """Enter the capacity of a backend. False: a later reading is already stored, and nothing was written."""
    rows = _locked(tx, _b.pool_host == pool_host)
    if not rows:
        return False
    boot_id, read_at = str(capacity.get("boot_id") or ""), float(capacity.get("read_at") or 0.0)
    if boot_id and rows[0].boot_id == boot_id and read_at < rows[0].read_at:
        return False
    tx.execute(
        storage_backends.update()
        .where(_b.pool_host == pool_host)
        .values(
            **{column: _number(capacity, name) for column, name in _COLUMNS.items()},
            report={k: v for k, v in capacity.items() if k not in _NOT_KEPT},
            boot_id=boot_id,
            read_at=read_at,
            reported_at=tx.now,
            error=None,
        )
    )
    return True


def record_unreachable(tx: Transaction, host: str, message: str) -> None:
    """Mark a silent host: nothing is placed on its backends until it reports again."""
    error = errors.HostUnreachable(host=host, reason=message)
    for row in _locked(tx, _b.host == host):
        record_error(tx, row.pool_host, error)


def record_error(tx: Transaction, pool_host: str, error: errors.BootflowError) -> None:
    """Enter why a backend takes no volumes until it reports again."""
    tx.execute(storage_backends.update().where(_b.pool_host == pool_host).values(error=error.as_dict()))


def frozen_pool_hosts(tx: Transaction) -> set[str]:
    """Pools whose content must not be changed."""
    return set(tx.execute(sa.select(_b.pool_host).where(_b.frozen.is_(True))).scalars())


class _Unsettled:
    """A volume that no report includes, with its size in GB."""

    id: str
    pool_host: str
    size: int


def _unsettled(tx: Transaction, pool_hosts: t.Sequence[str]) -> list[_Unsettled]:
    """Volumes that exist there, but were not in the last report. Locked."""
    c = volumes.c
    query = sa.select(c.id, c.pool_host, c.size).where(
        bulk.among(tx, c.pool_host, pool_hosts),
        c.deleted == "",
        c.made.is_(True),
        c.pending_gb != 0,
        c.new_size.is_(None),
    )
    return tx.rows(query.order_by(c.id).with_for_update(), _Unsettled)


def _mark_reported(tx: Transaction, rows: t.Sequence[_Unsettled], capacity: t.Mapping[str, t.Any]) -> None:
    """Mark volumes as included in the capacity if their logical volumes are in this report."""
    reported_sizes = {v["id"]: v.get("size", 0) for v in capacity.get("volumes") or ()}
    seen = [r.id for r in rows if reported_sizes.get(r.id, -1) >= r.size * GIB]
    if seen:
        tx.execute(volumes.update().where(bulk.among(tx, volumes.c.id, seen)).values(pending_gb=0))


def _configured(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {
        "availability_zone": entry.get("availability_zone") or "nova",
        "disabled": bool(entry.get("disabled")),
        "frozen": bool(entry.get("frozen")),
        "configuration": dict(entry),
    }


def _pool(entry: t.Mapping[str, t.Any]) -> str:
    return str(entry.get("volume_backend_name") or entry["name"])


def _number(capacity: t.Mapping[str, t.Any], name: str) -> float | None:
    value = capacity.get(name)
    return None if value is None else float(value)


def _locked(tx: Transaction, *conditions: sa.ColumnElement[bool]) -> list[BackendRow]:
    query = sa.select(storage_backends).where(*conditions).order_by(_b.pool_host)
    return tx.rows(query.with_for_update(), BackendRow)


# --- reading -------------------------------------------------------------------------------------------------------------


def pool_host_of(host: str, backend: str, pool: str) -> str:
    """host@backend#pool"""
    return append_host("%s@%s" % (host, backend), pool)


def rows_of(tx: Transaction, host: str | None = None, lock: bool = False) -> list[BackendRow]:
    """The rows of a host's backends, or of all, by pool_host."""
    conditions = [] if host is None else [_b.host == host]
    if lock:
        return _locked(tx, *conditions)
    return tx.rows(sa.select(storage_backends).where(*conditions).order_by(_b.pool_host), BackendRow)


def at_pool_hosts(tx: Transaction, pool_hosts: t.Collection[str]) -> dict[str, BackendRow]:
    """pool_host -> its row."""
    rows = tx.rows(sa.select(storage_backends).where(bulk.among(tx, _b.pool_host, pool_hosts)), BackendRow)
    return {r.pool_host: r for r in rows}


def lock(tx: Transaction, pool_hosts: t.Iterable[str]) -> list[BackendRow]:
    """Lock the rows of these pools: no other transaction places or removes anything there until this one ends."""
    return _locked(tx, bulk.among(tx, _b.pool_host, sorted(set(pool_hosts))))


@dataclass
class Promised:
    """GB placed in a pool: all of them, and those not yet in a report; and the number of volumes."""

    allocated: int = 0
    pending: int = 0
    volumes: int = 0


def promised(tx: Transaction) -> dict[str, Promised]:
    """pool_host -> the GB promised there.

    SELECT pool_host, sum(coalesce(new_size, size)), sum(pending_gb), count(*) FROM volumes WHERE it is alive
    GROUP BY pool_host, and the sums of pending_gb of the snapshots of these volumes, and of pending cleanups
    """
    promised_by_pool: dict[str, Promised] = {}
    v, s, r = volumes.c, volume_snapshots.c, volume_cleanups.c
    live = (v.deleted == "", v.pool_host.is_not(None))
    query = sa.select(
        v.pool_host, sa.func.sum(sa.func.coalesce(v.new_size, v.size)), sa.func.sum(v.pending_gb), sa.func.count()
    )
    for pool_host, allocated, pending, count in tx.execute(query.where(*live).group_by(v.pool_host)):
        promised_by_pool[pool_host] = Promised(int(allocated), int(pending), int(count))
    of_snapshots = (
        sa.select(v.pool_host, sa.func.sum(s.pending_gb))
        .join(volumes, v.id == s.volume_id)
        .where(*live, s.deleted == "", s.pending_gb != 0)
        .group_by(v.pool_host)
    )
    of_cleanups = sa.select(r.pool_host, sa.func.sum(r.pending_gb)).where(r.pending_gb != 0).group_by(r.pool_host)
    for more in (of_snapshots, of_cleanups):
        for pool_host, pending in tx.execute(more):
            promised_by_pool.setdefault(pool_host, Promised()).pending += int(pending)
    return promised_by_pool


def pool_states(tx: Transaction, lock: bool = False) -> list[PoolState]:
    """All backends for the scheduler, by pool_host.

    :arg lock: lock the rows until the transaction ends (after volumes, before nodes).
    """
    rows = rows_of(tx, lock=lock)
    promised_by_pool = promised(tx)  # after the lock, so that it includes what others placed
    return [_state(row, promised_by_pool.get(row.pool_host, Promised())) for row in rows]


def is_thin(tx: Transaction, pool_host: str) -> bool:
    """Whether the volumes of this pool are thin."""
    row = at_pool_hosts(tx, [pool_host]).get(pool_host)
    return row is not None and _is_thin(row, reported(row))


def _is_thin(row: BackendRow, report: Reported) -> bool:
    return bool(report.report.get("thin_provisioning_support", row.configuration.get("provisioning") == THIN))


def _state(row: BackendRow, promises: Promised) -> PoolState:
    configuration, report = row.configuration, reported(row)
    thin = _is_thin(row, report)
    return PoolState(
        host=row.pool_host,
        total_capacity_gb=report.total_gb or 0,
        free_capacity_gb=None if report.free_gb is None else round(report.free_gb - promises.pending, 2),
        allocated_capacity_gb=promises.allocated,
        provisioned_capacity_gb=round((report.provisioned_gb or 0) + promises.pending, 2),
        max_over_subscription_ratio=configuration.get("max_over_subscription_ratio"),
        reserved_percentage=configuration.get("reserved_percentage") or 0,
        thin_provisioning_support=thin,
        thick_provisioning_support=not thin,
        availability_zone=row.availability_zone,
        medium=configuration.get("medium") or "",
        volume_backend_name=row.pool,
        multiattach=True,  # both kinds of target admit several initiators, each with its own credentials
        volume_count=promises.volumes,
        capabilities=dict(configuration.get("capabilities") or {}),
        disabled=row.disabled,
        frozen=row.frozen,
        updated_at=row.reported_at,
        not_ready=report.error["message"] if report.error else "",
    )


def zones(tx: Transaction) -> set[str]:
    """The availability zones of all backends, also disabled ones."""
    return set(tx.execute(sa.select(_b.availability_zone).distinct()).scalars())


def count(tx: Transaction) -> int:
    """The number of backends, including disabled ones."""
    return int(tx.execute(sa.select(sa.func.count()).select_from(storage_backends)).scalar_one())


def silent_pool_hosts(tx: Transaction, pool_hosts: t.Collection[str]) -> set[str]:
    """The pools that are not ready, or whose host did not answer."""
    if not pool_hosts:
        return set()
    return set(
        tx.execute(
            sa.select(_b.pool_host).where(bulk.among(tx, _b.pool_host, sorted(pool_hosts)), _b.error.is_not(None))
        ).scalars()
    )


def stale_hosts(tx: Transaction, hosts: t.Iterable[str], max_age: float, silent: bool = True) -> list[str]:
    """The hosts with a backend that did not report for ``max_age`` seconds; in order.

    :arg silent: also those with a backend that never reported, or was not ready.
    """
    wanted = list(hosts)
    fresh: dict[str, bool] = {}
    query = sa.select(_b.host, _b.reported_at, _b.error).where(bulk.among(tx, _b.host, wanted), _b.disabled.is_(False))
    for host, reported_at, error in tx.execute(query):
        good = reported_at is not None and tx.now - reported_at <= max_age
        if error is not None or reported_at is None:
            good = not silent
        fresh[host] = fresh.get(host, True) and good
    return [host for host in wanted if not fresh.get(host, not silent)]
