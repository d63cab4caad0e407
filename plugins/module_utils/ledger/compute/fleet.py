# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet for the scheduler: the numbers of all hosts in one query, as columns; everything else only if a request needs it."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ...core.answers.compute import PROFILE
from ...core.answers.shapes import LARGEST_BIG, Misshapen, maybe, number
from ...core.scheduler import host_state
from ...core.scheduler.aggregates import Aggregate
from ...core.scheduler.columns import Fleet, Same
from ...core.scheduler.host_state import HostState
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..schema.tables import BUSY, compute_nodes, instances, request_specs
from . import dedicated_resources, profiles

# Columns from which a HostState is derived, in addition to those that are its fields.
_OTHERS = ("availability_zone", "profile_id", "disabled", "service_disabled", "forced_down", "unreachable_reason")
# The order of the fleet is that of the first two: host and node.
COLUMNS = (*host_state.COLUMNS.values(), *_OTHERS)
NEVER_REPORTED = "the host never reported"
UNREADABLE = "the last report is invalid (%s); the host must report again"
_NUMBERS = [
    column for name, column in host_state.COLUMNS.items() if not isinstance(host_state.DEFAULTS.get(name, ""), str)
]
_number = maybe(number(-LARGEST_BIG, LARGEST_BIG))


@dataclass(frozen=True)
class Needs:
    """What a request needs of hosts in addition to numbers; each costs a query."""

    numa: bool = False
    devices: bool = False
    instances: bool = False
    metrics: bool = False


NUMBERS_ONLY = Needs()


def read(
    tx: Transaction,
    hosts: t.Collection[str],
    aggregates: t.Mapping[str, tuple[Aggregate, ...]] | None = None,
    host_vars: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    needs: Needs = NUMBERS_ONLY,
) -> Fleet:
    """The inventory's hosts, in the order of their names; those that never reported come last, as down.

    :arg aggregates: host -> its aggregates; hosts in the same ones should share the tuple.
    """
    wanted = hosts if isinstance(hosts, (set, frozenset, dict)) else set(hosts)
    # The driver's own tuples: ten thousand rows are read, and none is accessed by name.
    rows: list[t.Any] = tx.execute(_everything()).cursor.fetchall()  # type: ignore[assignment]
    if not all(row[0] in wanted for row in rows):
        rows = [row for row in rows if row[0] in wanted]
    rows.sort()
    table: dict[str, t.Any] = {n: list(v) for n, v in zip(COLUMNS, zip(*rows))} if rows else {n: [] for n in COLUMNS}
    known = set(table["host"])
    for stranger in [h for h in hosts if h not in known]:
        _add_stranger(table, stranger)
    reader = _FleetReader(tx, table, aggregates or {}, host_vars or {}, needs)
    try:
        return reader.fleet()
    except (TypeError, ValueError, OverflowError):  # a number that is none: the rows are looked at one by one only then
        _leave_out_unreadable(table)
        return reader.fleet()


@functools.lru_cache(maxsize=None)
def _everything() -> sa.Select[t.Unpack[tuple[t.Any, ...]]]:
    return sa.select(*[compute_nodes.c[n] for n in COLUMNS])


def _add_stranger(table: dict[str, t.Any], host: str) -> None:
    """The row of a host that never reported."""
    values = {host_state.COLUMNS[name]: value for name, value in host_state.DEFAULTS.items()}
    values.update(host=host, node=host, availability_zone="", unreachable_reason=NEVER_REPORTED)
    for name, column in table.items():
        column.append(values.get(name))


def _leave_out_unreadable(table: dict[str, t.Any]) -> None:
    """Rows with a number that is none become those of hosts that are down."""
    defaults = {host_state.COLUMNS[name]: value for name, value in host_state.DEFAULTS.items()}
    for i in range(len(table["host"])):
        for column in _NUMBERS:
            value = table[column][i]
            try:
                _number(value, column)
                if value is None and defaults[column] is not None:
                    raise Misshapen(column, "given", None)
            except Misshapen as wrong:
                table["unreachable_reason"][i] = UNREADABLE % wrong.path
                table[column][i] = defaults[column]


class _FleetReader:
    def __init__(
        self,
        tx: Transaction,
        table: dict[str, t.Any],
        aggregates: t.Mapping[str, tuple[Aggregate, ...]],
        host_vars: t.Mapping[str, t.Mapping[str, t.Any]],
        needs: Needs,
    ):
        self.table = table
        self.aggregates = aggregates
        self.host_vars = host_vars
        ids = table["id"]
        self.profiles = profiles.load(tx, set(table["profile_id"]))
        self._leave_out_profiles()
        self.io_ops = dict(
            tx.execute(
                sa.select(instances.c.host, sa.func.count()).where(sa.text(BUSY)).group_by(instances.c.host)
            ).all()
        )
        self.reasons = _reasons(tx) if any(table["disabled"]) or any(table["service_disabled"]) else {}
        self.down_reasons = _down_reasons(tx) if any(table["forced_down"]) else {}
        some = None if len(ids) > 500 else [i for i in ids if i is not None]
        self.dedicated = (
            dedicated_resources.load(tx, some, needs.numa, needs.devices) if needs.numa or needs.devices else {}
        )
        self.instances = _instances(tx) if needs.instances else {}
        self.metrics = _metrics(tx) if needs.metrics else {}

    def _leave_out_profiles(self) -> None:
        """Hosts whose CPU and guests cannot be read are down."""
        bad = {}
        for profile_id, profile in self.profiles.items():
            try:
                PROFILE(profile, "")
            except Misshapen as wrong:
                bad[profile_id] = UNREADABLE % wrong.path
        for profile_id in bad:
            self.profiles[profile_id] = {}
        if bad:
            reasons = self.table["unreachable_reason"]
            for i, profile_id in enumerate(self.table["profile_id"]):
                reasons[i] = bad.get(profile_id, reasons[i])

    def fleet(self) -> Fleet:
        table = self.table
        down = [f or u is not None for f, u in zip(table["forced_down"], table["unreachable_reason"])]
        disabled = [bool(a or b) for a, b in zip(table["disabled"], table["service_disabled"])]
        self.down, self.disabled = down, disabled
        columns = {
            **{name: table[column] for name, column in host_state.COLUMNS.items()},
            "disabled": disabled,
            "forced_down": down,
            "num_io_ops": [self.io_ops.get(h, 0) for h in table["host"]] if self.io_ops else [0] * len(down),
        }
        same = Same(len(down))
        alike: dict[str, t.Sequence[t.Hashable]] = {
            "availability_zones": table["availability_zone"],
            "cpu_info": table["profile_id"],
            "supported_instances": table["profile_id"],
            "stats": table["profile_id"],
            "aggregates": [id(self.aggregates.get(h)) for h in table["host"]] if self.aggregates else same,
        }
        for empty, names in (
            (not self.dedicated, ("numa_topology", "pci_devices", "free_disks")),
            (not self.instances, ("instances",)),
            (not self.metrics, ("metrics",)),
        ):
            if empty:
                alike.update(dict.fromkeys(names, same))
        self.num_io_ops = columns["num_io_ops"]
        return Fleet.of_columns(columns, alike, self._host_state)

    def _host_state(self, i: int) -> HostState:
        table = self.table
        host = table["host"][i]
        profile = self.profiles.get(table["profile_id"][i]) or {}
        zone = table["availability_zone"][i]
        free = self.dedicated.get(table["id"][i], dedicated_resources.NONE_FREE)
        return HostState(
            **{name: table[column][i] for name, column in host_state.COLUMNS.items()},
            cpu_info=profile.get("cpu_info") or {},
            supported_instances=[tuple(s) for s in profile.get("supported_instances") or ()],
            stats=profile.get("stats") or {},
            availability_zones=(zone,) if zone else (),
            aggregates=self.aggregates.get(host, ()),
            disabled=self.disabled[i],
            disabled_reason=self.reasons.get(host, "") if self.disabled[i] else "",
            forced_down=self.down[i],
            down_reason=self.down_reasons.get(host) or table["unreachable_reason"][i] or "",
            num_io_ops=self.num_io_ops[i],
            numa_topology=free.numa,
            pci_devices=free.pci,
            free_disks=free.disks,
            instances=self.instances.get(host, {}),
            metrics=self.metrics.get(table["id"][i]) or {},
            vars=dict(self.host_vars.get(host) or {}),
        )


def _reasons(tx: Transaction) -> dict[str, str]:
    """host -> why it is disabled, in the ledger or else in the inventory."""
    c = compute_nodes.c
    rows = tx.execute(
        sa.select(c.host, c.service_disabled, c.service_disabled_reason, c.disabled_reason).where(
            sa.or_(c.disabled, c.service_disabled)
        )
    )
    return {r.host: (r.service_disabled_reason if r.service_disabled else "") or r.disabled_reason or "" for r in rows}


def _down_reasons(tx: Transaction) -> dict[str, str]:
    """host -> why it was forced down."""
    c = compute_nodes.c
    return {
        r.host: r.forced_down_reason for r in tx.execute(sa.select(c.host, c.forced_down_reason).where(c.forced_down))
    }


def _metrics(tx: Transaction) -> dict[int, t.Mapping[str, float]]:
    c = compute_nodes.c
    return {r.id: r.metrics for r in tx.execute(sa.select(c.id, c.metrics)) if r.metrics}


def _instances(tx: Transaction) -> dict[str, dict[str, str]]:
    """host -> uuid -> the name of its flavor."""
    c = instances.c
    rows = tx.execute(sa.select(c.uuid, c.host, c.request_spec_id).where(c.deleted == "", c.host.is_not(None))).all()
    named = bulk.among(tx, request_specs.c.id, sorted({r.request_spec_id for r in rows}))
    query = sa.select(request_specs.c.id, request_specs.c.spec["flavor"]["name"].as_string()).where(named)
    flavors = dict(tx.execute(query).all())
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row.host, {})[row.uuid] = flavors.get(row.request_spec_id, "")
    return found
