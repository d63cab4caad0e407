# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet for the scheduler: the numbers of all hosts in one query, as columns; everything else only if a request needs it."""

from __future__ import annotations

import itertools
import operator
import typing as t
from dataclasses import dataclass, replace

from ...core.answers.compute import PROFILE
from ...core.answers.shapes import LARGEST_BIG, Misshapen, maybe, number
from ...core.networks.on_hosts import Reported
from ...core.scheduler import host_state
from ...core.scheduler.aggregates import Aggregate
from ...core.scheduler.columns import Fleet, Same, np
from ...core.scheduler.host_state import HostState
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk, packed_nodes
from ..schema.packed import TRUTHS
from ..schema.tables import compute_nodes, instances, request_specs
from . import dedicated_resources, nodes, profiles

# Columns from which a HostState is derived, in addition to the columns of its fields.
_OTHERS = ("availability_zone", "profile_id", "disabled", "down")
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
    """Data that a request needs of hosts in addition to numbers; each costs a query."""

    numa: bool = False
    devices: bool = False
    instances: bool = False
    metrics: bool = False
    networks: bool = False


NUMBERS_ONLY = Needs()


class SettingsDiffer(Exception):
    """nodes.configure() has to write the inventory's settings first, in a separate transaction: scheduling locks instances before nodes."""


class _Found(t.NamedTuple):
    """Data that are read of all nodes."""

    table: dict[str, t.Any]  # column -> its values
    io_ops: dict[str, int]  # host -> instances that load its disks
    with_devices: bool  # whether any host has devices or disks to hand out
    known: set[str]  # hosts with a row
    same: bool = False  # whether the settings were compared, and equal the inventory's
    profiles: dict[int, dict[str, t.Any]] | None = None  # None: they are still to be read
    several_names: bool = True  # whether any machine may have several names


def read(
    tx: Transaction,
    hosts: t.Collection[str],
    aggregates: t.Mapping[str, tuple[Aggregate, ...]] | None = None,
    host_vars: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    needs: Needs = NUMBERS_ONLY,
    configurations: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    silent: t.Mapping[str, str] | None = None,
) -> Fleet:
    """Read the inventory's hosts, in the order of their names; hosts that never reported come last, as down.

    :arg aggregates: host -> its aggregates; hosts in the same ones should share the tuple.
    :arg configurations: see nodes.differing(). What is read has what they are compared with.
    :arg silent: host -> why it did not answer in this run, which the ledger does not have of one that never reported.
    :raises SettingsDiffer: a row has other settings than its host in ``configurations``.
    """
    wanted = hosts if isinstance(hosts, (set, frozenset)) else set(hosts)
    try:
        node_rows = _packed(tx, wanted, configurations or {})
    except packed_nodes.Unpackable:
        node_rows = _unpacked(tx, wanted)
    table, known = node_rows.table, node_rows.known
    if configurations and not node_rows.same and nodes.differing(tx, configurations):
        raise SettingsDiffer
    if not node_rows.with_devices and needs.devices:
        needs = replace(needs, devices=False)
    strangers = [] if wanted <= known else [h for h in hosts if h not in known]
    if strangers:
        table = _as_lists(table)
    for stranger in strangers:
        _add_stranger(table, stranger)
    others = nodes.other_names_of(tx) if node_rows.several_names else {}
    table = _with_other_names(table, others)
    reader = _FleetReader(tx, table, node_rows, aggregates or {}, host_vars or {}, needs, nodes.machine_names(others))
    reader.silent = silent or {}
    try:
        return reader.fleet()
    except (TypeError, ValueError, OverflowError):  # a number that is none: the rows are looked at one by one only then
        reader.table = _as_lists(reader.table)
        reader.reasons_of_rows.update(_leave_out_unreadable(reader.table))
        return reader.fleet()


def _with_other_names(table: dict[str, t.Any], others: t.Mapping[int, t.Sequence[nodes.NodeRow]]) -> dict[str, t.Any]:
    """The numbers of machines with several names: what is claimed under one is taken under each."""
    if not others:
        return table
    table = _as_lists(table)
    for index, node_id in enumerate(table["id"]):
        for name, amount in zip(
            ("memory_mb_used", "local_gb_used", "vcpus_used"), nodes.claimed_amounts(others.get(node_id, ()))
        ):
            if amount:
                table[name][index] += amount
    return table


def _profiles(tx: Transaction, column: t.Any) -> dict[int, dict[str, t.Any]]:
    return profiles.load(tx, set(column.tolist() if isinstance(column, np.ndarray) else column))


def _as_lists(table: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: getattr(column, "tolist", lambda column=column: column)() for name, column in table.items()}


def _order(
    hosts: t.Sequence[str], its_nodes: t.Sequence[str], known: t.AbstractSet[str], wanted: t.AbstractSet[str]
) -> list[int] | None:
    """The rows of the hosts that are wanted, by host and node; None: all of them, as they are. :arg known: the hosts, once each"""
    if known <= wanted and len(known) == len(hosts) and not any(map(operator.gt, hosts, hosts[1:])):
        return None
    keys: t.Sequence[t.Any] = hosts if len(known) == len(hosts) else list(zip(hosts, its_nodes))
    wanted_rows = range(len(hosts)) if known <= wanted else [i for i, host in enumerate(hosts) if host in wanted]
    return sorted(wanted_rows, key=keys.__getitem__)


def _packed(
    tx: Transaction, wanted: t.AbstractSet[str], configurations: t.Mapping[str, t.Mapping[str, t.Any]]
) -> _Found:
    rows = packed_nodes.read(tx)
    known = set(rows.column("host"))
    same = bool(configurations) and not known <= wanted and rows.has_settings(configurations, nodes.CONFIGURATION)
    with_devices = rows.with_devices
    order = _order(rows.column("host"), rows.column("node"), known, wanted)
    if order is not None:
        rows.pick(order)
    if configurations and known <= wanted:  # in the order of the hosts, which is mostly that of the inventory
        same = rows.has_settings(configurations, nodes.CONFIGURATION)
    table = {name: rows.column(name) for name in COLUMNS}
    return _Found(table, rows.busy, with_devices, known, same, rows.profiles, rows.several_names)


def _unpacked(tx: Transaction, wanted: t.AbstractSet[str]) -> _Found:
    """The same of sqlite's rows, as the driver's own tuples: ten thousand are read, and none is accessed by name."""
    io_ops = dict(map(tuple, tx.execute(_IO_OPS)))
    rows: list[t.Any] = tx.execute(_EVERYTHING).cursor.fetchall()  # type: ignore[assignment]
    table: dict[str, t.Any] = {n: list(v) for n, v in zip(COLUMNS, zip(*rows))} if rows else {n: [] for n in COLUMNS}
    for name in ("disabled", "down", *TRUTHS):
        table[name] = [bool(value) for value in table[name]]
    known = set(table["host"])
    order = _order(table["host"], table["node"], known, wanted)
    if order is not None:
        table = {name: [column[i] for i in order] for name, column in table.items()}
    return _Found(table, io_ops, True, known)


# COLUMNS as expressions, where they are not columns of the table
_EXPRESSIONS = {
    "disabled": "(disabled OR service_disabled)",
    "down": "(forced_down OR unreachable_reason IS NOT NULL)",
}
_IO_OPS = sa.text(packed_nodes.BUSY_HOSTS)
_EVERYTHING = sa.text("SELECT %s FROM compute_nodes" % ", ".join(_EXPRESSIONS.get(n, n) for n in COLUMNS))


def _add_stranger(table: dict[str, t.Any], host: str) -> None:
    """The row of a host that never reported."""
    values = {host_state.COLUMNS[name]: value for name, value in host_state.DEFAULTS.items()}
    values.update(host=host, node=host, availability_zone="", disabled=False, down=True)
    for name, column in table.items():
        column.append(values.get(name))


def _leave_out_unreadable(table: dict[str, t.Any]) -> dict[int, str]:
    """Turn rows with an invalid number into rows of hosts that are down. Returns why, by row."""
    reasons: dict[int, str] = {}
    defaults = {host_state.COLUMNS[name]: value for name, value in host_state.DEFAULTS.items()}
    for index in range(len(table["host"])):
        for column in _NUMBERS:
            value = table[column][index]
            try:
                _number(value, column)
                if value is None and defaults[column] is not None:
                    raise Misshapen(column, "given", None)
            except Misshapen as wrong:
                reasons[index] = UNREADABLE % wrong.path
                table["down"][index] = True
                table[column][index] = defaults[column]
    return reasons


class _FleetReader:
    def __init__(
        self,
        tx: Transaction,
        table: dict[str, t.Any],
        node_rows: _Found,
        aggregates: t.Mapping[str, tuple[Aggregate, ...]],
        host_vars: t.Mapping[str, t.Mapping[str, t.Any]],
        needs: Needs,
        machines: t.Mapping[str, str],
    ):
        self.table = table
        self.machines = machines
        self.aggregates = aggregates
        self.host_vars = host_vars
        ids = table["id"].tolist() if isinstance(table["id"], np.ndarray) else table["id"]
        self.silent: t.Mapping[str, str] = {}
        self.reasons_of_rows: dict[int, str] = {}  # why hosts are down, in addition to what the ledger says
        self.profiles = _profiles(tx, table["profile_id"]) if node_rows.profiles is None else node_rows.profiles
        self._leave_out_profiles()
        self.io_ops = node_rows.io_ops
        self.reasons = _reasons(tx) if np.any(table["disabled"]) else {}
        self.down_reasons = _down_reasons(tx) if np.any(table["down"]) else {}
        some = None if len(ids) > 500 else [i for i in ids if i is not None]
        self.dedicated = (
            dedicated_resources.load(tx, some, needs.numa, needs.devices) if needs.numa or needs.devices else {}
        )
        self.instances = _of_machines(_instances(tx), machines) if needs.instances else {}
        self.metrics = _metrics(tx) if needs.metrics else {}
        self.networks = _Networks(tx, ids) if needs.networks else None

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
            self.table["down"] = list(self.table["down"])
            for index, profile_id in enumerate(self.table["profile_id"]):
                if profile_id in bad:
                    self.reasons_of_rows[index] = bad[profile_id]
                    self.table["down"][index] = True

    def fleet(self) -> Fleet:
        table = self.table
        count = len(table["host"])
        columns = {
            **{name: table[column] for name, column in host_state.COLUMNS.items()},
            "disabled": table["disabled"],
            "forced_down": table["down"],
            "num_io_ops": list(map(self.io_ops.get, table["host"], itertools.repeat(0)))
            if self.io_ops
            else np.zeros(count, np.int64),
        }
        same = Same(count)
        alike: dict[str, t.Sequence[t.Hashable]] = {
            "availability_zones": table["availability_zone"],
            "cpu_info": table["profile_id"],
            "supported_instances": table["profile_id"],
            "stats": table["profile_id"],
            "aggregates": [id(self.aggregates.get(h)) for h in table["host"]] if self.aggregates else same,
        }
        if self.networks is not None:
            alike["networks"] = t.cast("t.Sequence[t.Hashable]", self.networks.labels)
        for empty, names in (
            (self.networks is None, ("networks",)),
            (not self.dedicated, ("numa_topology", "pci_devices", "free_disks")),
            (not self.instances, ("instances",)),
            (not self.metrics, ("metrics",)),
        ):
            if empty:
                alike.update(dict.fromkeys(names, same))
        self.num_io_ops = columns["num_io_ops"]
        return Fleet.of_columns(columns, alike, self._host_state, self.machines)

    def _host_state(self, index: int) -> HostState:
        row = {
            name: getattr(column[index], "tolist", lambda value=column[index]: value)()
            for name, column in self.table.items()
        }
        host = row["host"]
        profile = self.profiles.get(row["profile_id"]) or {}
        zone = row["availability_zone"]
        free = self.dedicated.get(row["id"], dedicated_resources.NONE_FREE)
        return HostState(
            **{name: row[column] for name, column in host_state.COLUMNS.items()},
            cpu_info=profile.get("cpu_info") or {},
            supported_instances=[tuple(s) for s in profile.get("supported_instances") or ()],
            stats=profile.get("stats") or {},
            availability_zones=(zone,) if zone else (),
            aggregates=self.aggregates.get(host, ()),
            disabled=row["disabled"],
            disabled_reason=self.reasons.get(host, "") if row["disabled"] else "",
            forced_down=row["down"],
            down_reason=self._down_reason(index, row) if row["down"] else "",
            num_io_ops=int(self.num_io_ops[index]),
            numa_topology=free.numa,
            pci_devices=free.pci,
            free_disks=free.disks,
            instances=self.instances.get(host, {}),
            metrics=self.metrics.get(row["id"]) or {},
            networks=None if self.networks is None else self.networks.reported(index),
            vars=dict(self.host_vars.get(host) or {}),
        )

    def _down_reason(self, index: int, row: t.Mapping[str, t.Any]) -> str:
        """A person's reason, what is wrong with the report, or why the host did not answer."""
        if row["id"] is None:
            why = self.silent.get(row["host"])
            return "%s: %s" % (NEVER_REPORTED, why) if why else NEVER_REPORTED
        forced, silent = self.down_reasons.get(row["id"], ("", ""))
        return forced or self.reasons_of_rows.get(index) or silent


def _reasons(tx: Transaction) -> dict[str, str]:
    """host -> why it is disabled, in the ledger or else in the inventory."""
    c = compute_nodes.c
    rows = tx.execute(
        sa.select(c.host, c.service_disabled, c.service_disabled_reason, c.disabled_reason).where(
            sa.or_(c.disabled, c.service_disabled)
        )
    )
    return {r.host: (r.service_disabled_reason if r.service_disabled else "") or r.disabled_reason or "" for r in rows}


def _down_reasons(tx: Transaction) -> dict[int, tuple[str, str]]:
    """id of a node -> why it was forced down, and why it counts as silent."""
    c = compute_nodes.c
    query = sa.select(c.id, c.forced_down, c.forced_down_reason, c.unreachable_reason)
    rows = tx.execute(query.where(sa.or_(c.forced_down, c.unreachable_reason.is_not(None))))
    return {r.id: (r.forced_down_reason if r.forced_down else "", r.unreachable_reason or "") for r in rows}


def _metrics(tx: Transaction) -> dict[int, t.Mapping[str, float]]:
    c = compute_nodes.c
    return {r.id: r.metrics for r in tx.execute(sa.select(c.id, c.metrics)) if r.metrics}


class _Networks:
    """The networks that hosts reported. Most hosts have the same ones: only the others are read one by one.

    :arg ids: of all rows of the fleet
    """

    def __init__(self, tx: Transaction, ids: t.Iterable[int | None]):
        profile_id = compute_nodes.c.networks_profile_id
        kinds = tx.execute(sa.select(profile_id, sa.func.count()).group_by(profile_id)).all()
        most = max(kinds, key=lambda kind: kind[1])[0] if kinds else None
        others: dict[int | None, int | None] = {None: None}  # row without an id: a host that never reported
        if len(kinds) > 1:
            query = sa.select(compute_nodes.c.id, profile_id).where(profile_id.is_distinct_from(most))
            others.update(map(tuple, tx.execute(query)))
        self._networks = nodes.networks_of_profiles(tx, {kind for kind, _number in kinds if kind is not None})
        #: The profile of each row; 0: it reported no networks.
        self.labels = np.array([others.get(node_id, most) or 0 for node_id in ids], dtype=np.int64)

    def reported(self, row: int) -> Reported:
        return self._networks.get(int(self.labels[row]))


def _instances(tx: Transaction) -> dict[str, dict[str, str]]:
    """host -> uuid -> the name of its flavor."""
    c = instances.c
    rows = tx.execute(sa.select(c.uuid, c.host, c.request_spec_id).where(c.deleted == "", c.host.is_not(None))).all()
    named = bulk.among(tx, request_specs.c.id, sorted({r.request_spec_id for r in rows}))
    query = sa.select(request_specs.c.id, request_specs.c.spec["flavor"]["name"].as_string()).where(named)
    flavors = dict(tx.execute(query).all())
    flavors_by_host: dict[str, dict[str, str]] = {}
    for row in rows:
        flavors_by_host.setdefault(row.host, {})[row.uuid] = flavors.get(row.request_spec_id, "")
    return flavors_by_host


def _of_machines(
    instances_by_host: dict[str, dict[str, str]], machines: t.Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The same: the instances of a machine with several names are on each of these hosts. :arg machines: see nodes.machine_names()"""
    if not machines:
        return instances_by_host
    together: dict[str, dict[str, str]] = {}
    for host, machine in machines.items():
        together.setdefault(machine, {}).update(instances_by_host.get(host, {}))
    return {**instances_by_host, **{host: together[machine] for host, machine in machines.items() if together[machine]}}
