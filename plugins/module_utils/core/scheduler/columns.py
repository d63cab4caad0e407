# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as columns: one numpy array per number, so that a filter or weigher is a few operations over all hosts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..disks.local import POOL_STAT
from ..instances.server_groups import ServerGroup
from ..optional import Lazy, require
from .host_state import HostState
from .request_spec import RequestSpec

__all__ = ["Column", "Fleet", "Groups", "LazyHosts", "Rows", "Same", "load_numpy", "np"]

if t.TYPE_CHECKING:
    import numpy as np

    from ..resources.numa.topology import HostNUMATopology
    from ..resources.pci.device import PciDevice
else:
    np = Lazy("numpy")

# Positions of hosts in the fleet: an array of them, or one.
Rows = t.Any
Column = t.Any


def load_numpy() -> None:
    """It takes a twentieth of a second: not in a transaction, whose locks others wait for. :raises MissingLibrary:"""
    require(np, "numpy", "numpy")


@dataclass(frozen=True)
class Groups:
    """Hosts grouped by a common value: ``values[codes[row]]`` is the value of host ``row``."""

    codes: Column
    values: list[t.Any]


class Same(t.Sequence[t.Hashable]):
    """One label for all hosts."""

    def __init__(self, count: int):
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, _index: t.Any) -> t.Any:
        return 0


class LazyHosts(t.Sequence[HostState]):
    """HostStates built on access: most of a large fleet is only ever read as numbers."""

    def __init__(self, count: int, make: t.Callable[[int], HostState]):
        self._made: list[HostState | None] = [None] * count
        self._make = make

    def __len__(self) -> int:
        return len(self._made)

    @t.overload
    def __getitem__(self, index: int) -> HostState: ...

    @t.overload
    def __getitem__(self, index: slice) -> t.Sequence[HostState]: ...

    def __getitem__(self, index: t.Any) -> t.Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        value = self._made[index]
        if value is None:
            value = self._made[index] = self._make(int(index) % len(self))
        return value


class Fleet:
    """Columns over HostStates, and what a request has provisionally taken from them.

    The given HostStates are never written to. Hosts keep the given order: it decides between equals.
    """

    def __init__(self, hosts: t.Iterable[HostState], machines: t.Mapping[str, str] | None = None):
        """:arg machines: host -> one of the names of its machine, the same for each; hosts whose machine has one name are left out"""
        require(np, "numpy", "numpy")
        self._start(list(hosts), {}, {}, machines)

    @classmethod
    def of_columns(
        cls,
        columns: t.Mapping[str, t.Sequence[t.Any]],
        alike: t.Mapping[str, t.Sequence[t.Hashable]],
        make: t.Callable[[int], HostState],
        machines: t.Mapping[str, str] | None = None,
    ) -> Fleet:
        """Return a fleet that was read as columns.

        :arg columns: attribute of HostState -> its value on each host, as a sequence or an array; at least the attributes ``NUMBERS``, and host.
        :arg alike: attribute of HostState -> a label on each host; hosts with the same label have the same value.
        :arg make: position -> the whole HostState.
        :arg machines: see __init__(); it may have hosts that are not in the fleet.
        """
        require(np, "numpy", "numpy")
        fleet = cls.__new__(cls)
        fleet._start(LazyHosts(len(columns["host"]), make), columns, alike, machines)
        return fleet

    def _start(
        self,
        hosts: t.Sequence[HostState],
        columns: t.Mapping[str, t.Sequence[t.Any]],
        alike: t.Mapping[str, t.Sequence[t.Hashable]],
        machines: t.Mapping[str, str] | None,
    ) -> None:
        self.hosts = hosts
        self.machines: t.Mapping[str, str] = machines or {}
        self._given: t.Mapping[str, t.Any] = columns
        self._alike: t.Mapping[str, t.Any] = alike
        self._columns: dict[str, Column] = {}
        self._groups: dict[str, Groups] = {}
        self._kinds_of: dict[tuple[str, ...], tuple[t.Sequence[int], Column]] = {}
        self._group_counts: dict[str, Column] = {}
        self._machine_column: t.Sequence[str] | None = None
        self._machine_array: Column = None
        self._is_one_row_each: bool | None = None
        self._pools: Groups | None = None
        self._current: dict[int, HostState] = {}
        self._dedicated: dict[int, _Dedicated] = {}  # rows whose NUMA cells or devices were taken from
        self._before: dict[int, list[_Dedicated]] = {}
        self.total_ram_mb = self._numbers("memory_mb")
        self.free_ram_mb = self.total_ram_mb - self._numbers("memory_mb_used")
        self.total_disk_mb = self._numbers("local_gb") * 1024
        self.free_disk_mb = self._free_disk_mb()
        self.vcpus_total = self._numbers("vcpus")
        self.vcpus_used = self._numbers("vcpus_used")
        self.ram_allocation_ratio = self._numbers("ram_allocation_ratio", np.float64)
        self.disk_allocation_ratio = self._numbers("disk_allocation_ratio", np.float64)
        self.cpu_allocation_ratio = self._numbers("cpu_allocation_ratio", np.float64)
        self.num_instances = self._numbers("num_instances")
        self.num_io_ops = self._numbers("num_io_ops")

    def __len__(self) -> int:
        return len(self.hosts)

    def place(self, row: int) -> tuple[str, str, int | None]:
        """The host, node and node_id of a row."""
        given = self._given
        if "nodename" in given:
            node_id = given["node_id"][row]
            return given["host"][row], given["nodename"][row], None if node_id is None else int(node_id)
        host = self.hosts[row]
        return host.host, host.nodename, host.node_id

    def values(self, name: str) -> t.Sequence[t.Any]:
        """An attribute of every host, as given."""
        given = self._given.get(name)
        return given if given is not None else [getattr(h, name) for h in self.hosts]

    def _numbers(self, name: str, dtype: t.Any = None) -> Column:
        return np.array(self.values(name), dtype=dtype or np.int64)

    def _free_disk_mb(self) -> Column:
        """As HostState.free_disk_mb: free by the claims, or on the file system if that is less."""
        free_gb = self._numbers("local_gb") - self._numbers("local_gb_used")
        least: t.Any = self.values("disk_available_least")
        if not isinstance(least, np.ndarray) and None in least:
            least = [np.iinfo(np.int64).max if gb is None else gb for gb in least]
        return np.minimum(free_gb, np.array(least, dtype=np.int64)) * 1024

    def column(self, name: str, dtype: t.Any = None) -> Column:
        """A column of any attribute of the hosts, made on first use."""
        cached = self._columns.get(name)
        if cached is None:
            cached = self._columns[name] = np.array(self.values(name), dtype=dtype)
        return cached

    def groups(self, name: str, key: t.Callable[[HostState], t.Hashable], attributes: t.Sequence[str] = ()) -> Groups:
        """Hosts grouped by ``key`` (kept under ``name``): a rule in Python then runs once per group, not once per host.

        :arg attributes: the attributes that ``key`` reads. If the hosts with equal ones are known, ``key`` runs once for each kind.
        """
        cached_groups = self._groups.get(name)
        if cached_groups is None:
            cached_groups = self._groups[name] = self._group(key, attributes)
        return cached_groups

    def _group(self, key: t.Callable[[HostState], t.Hashable], attributes: t.Sequence[str]) -> Groups:
        seen: dict[t.Hashable, int] = {}
        if not attributes or not all(a in self._alike or a in self._given for a in attributes):
            codes = [seen.setdefault(key(h), len(seen)) for h in self.hosts]
            return Groups(np.array(codes, dtype=np.int64), list(seen))
        first, kinds = self._kinds(tuple(attributes))
        codes = [seen.setdefault(key(self.hosts[int(row)]), len(seen)) for row in first]
        return Groups(np.array(codes, dtype=np.int64)[kinds] if len(codes) != 1 else kinds * 0, list(seen))

    def _kinds(self, attributes: tuple[str, ...]) -> tuple[t.Sequence[int], Column]:
        """Return the hosts that are equal in these attributes: one row of each kind, and the kind of every row."""
        cached_kinds = self._kinds_of.get(attributes)
        if cached_kinds is None:
            cached_kinds = self._kinds_of[attributes] = self._make_kinds(attributes)
        return cached_kinds

    def _make_kinds(self, attributes: tuple[str, ...]) -> tuple[t.Sequence[int], Column]:
        if len(attributes) == 1:
            name = attributes[0]
            labels = self._alike[name] if name in self._alike else self._given[name]
            if isinstance(labels, np.ndarray):
                if len(labels) and labels.min() == labels.max():  # as in most fleets
                    return [0], np.zeros(len(labels), dtype=np.int64)
                return _first_and_kind(labels)
            if isinstance(labels, Same):
                return ([0] if len(self) else []), np.zeros(len(self), dtype=np.int64)
            return _first_and_kind_of(labels)
        parts = [self._kinds((name,)) for name in attributes]
        several = [(first, codes) for first, codes in parts if len(first) > 1]
        if len(several) <= 1:
            return several[0] if several else parts[0]
        whole, size = several[0][1], len(several[0][0])
        for first, codes in several[1:]:
            whole = whole * len(first) + codes
            size *= len(first)
        return _first_and_kind(whole)

    # --- what this request has left of a host --------------------------------------------------------------------------

    def numa(self, row: int) -> HostNUMATopology | None:
        """The host's cells with their current use."""
        dedicated = self._dedicated.get(row)
        return dedicated.numa if dedicated is not None else self.hosts[row].numa_topology

    def pci_devices(self, row: int) -> t.Sequence[PciDevice]:
        """The host's free devices."""
        dedicated = self._dedicated.get(row)
        return dedicated.pci if dedicated is not None else self.hosts[row].pci_devices

    def free_disks(self, row: int) -> t.Sequence[t.Mapping[str, t.Any]]:
        """The host's free whole disks."""
        dedicated = self._dedicated.get(row)
        return dedicated.disks if dedicated is not None else self.hosts[row].free_disks

    def machine_names(self) -> t.Sequence[str]:
        """For each row one of the names of its machine, the same for all of them."""
        if self._machine_column is None:
            names = self.values("host")
            self._machine_column = [self.machines.get(h, h) for h in names] if self.machines else names
        return self._machine_column

    def names_of(self, host: str) -> set[str]:
        """All names of a host's machine."""
        machine = self.machines.get(host, host)
        return {host, *(name for name, machine_of_name in self.machines.items() if machine_of_name == machine)}

    @property
    def is_one_row_each(self) -> bool:
        """Whether each machine has one row: no host has several nodes, and no machine several names."""
        if self._is_one_row_each is None:
            self._is_one_row_each = len(set(self.machine_names())) == len(self)
        return self._is_one_row_each

    def group_counts(self, group: ServerGroup) -> Column:
        """Members of the group on the machine of each row, including those placed in this request."""
        counts = self._group_counts.get(group.id)
        if counts is None:
            members_on: dict[str, int] = {}
            for host, number in group.host_counts.items():
                machine = self.machines.get(host, host)
                members_on[machine] = members_on.get(machine, 0) + number
            names = self.machine_names() if members_on else ()
            counts = np.array(
                [members_on.get(h, 0) for h in names] if members_on else np.zeros(len(self)), dtype=np.int64
            )
            self._group_counts[group.id] = counts
        return counts

    def _rows_of_machine(self, row: int) -> t.Any:
        """All rows of a row's machine: a member of a group in one is on the machine."""
        if self.is_one_row_each:
            return row
        names = self.machine_names()
        if self._machine_array is None:
            self._machine_array = np.array(names, dtype=object)
        return np.flatnonzero(self._machine_array == names[row])

    @property
    def has_pools(self) -> bool:
        """Whether a host has its disks in a pool, whose space other hosts may take, too."""
        if self._pools is None:
            self._pools = self.groups("disk_pool", lambda h: str(h.stats.get(POOL_STAT) or ""), ("stats",))
        return any(self._pools.values)

    def _rows_of_pool(self, row: int) -> t.Any:
        """All rows that have their disks in the pool of this one; without a pool only this one."""
        if not self.has_pools or self._pools is None:
            return row
        code = int(self._pools.codes[row])
        return np.flatnonzero(self._pools.codes == code) if self._pools.values[code] else row

    def _take_disk(self, row: int, disk_mb: int) -> None:
        rows = self._rows_of_pool(row)
        self.free_disk_mb[rows] -= disk_mb
        if rows is not row:
            self._current.clear()

    def credit(self, host: str | None, disk_mb: int) -> None:
        """Have the pool of a host as if so much more of it were free, in MiB: disks of an instance that is there stay in it when the instance moves.

        Nothing where the host has no pool. A negative amount takes that back.
        """
        if not self.has_pools or self._pools is None:
            return
        for row in [row for row, name in enumerate(self.values("host")) if name == host]:
            if self._pools.values[int(self._pools.codes[row])]:
                self._take_disk(row, -disk_mb)
                return

    def consume(self, row: int, spec: RequestSpec, sign: int = 1, limits: t.Mapping[str, t.Any] | None = None) -> None:
        """Take (``sign`` 1) or release (-1) the amounts that one instance of ``spec`` needs of a host.

        Swap is not taken, as in Nova. Raises nothing: claims are checked later.

        :arg limits: the limits of the later claim: with them the same cells, devices and disks are taken as by the claim.
        """
        self.free_ram_mb[row] -= sign * spec.memory_mb
        self._take_disk(row, sign * 1024 * spec.disk_gb)
        self.vcpus_used[row] += sign * spec.vcpus
        self.num_instances[row] += sign
        self.num_io_ops[row] += sign
        if spec.instance_group is not None:
            self.group_counts(spec.instance_group)[self._rows_of_machine(row)] += sign
        if spec.takes_dedicated:
            self._consume_dedicated(row, spec, sign, limits or {})
        self._current.pop(row, None)

    def grant(self, row: int, memory_mb: int = 0, disk_mb: int = 0, vcpus: int = 0) -> None:
        """Have a host as if so much more of it were free, in MiB and vCPUs; negative amounts take that back."""
        self.free_ram_mb[row] += memory_mb
        self._take_disk(row, -disk_mb)
        self.vcpus_used[row] -= vcpus
        self._current.pop(row, None)

    def _consume_dedicated(self, row: int, spec: RequestSpec, sign: int, limits: t.Mapping[str, t.Any]) -> None:
        before = _Dedicated(self.numa(row), self.pci_devices(row), self.free_disks(row))
        if sign > 0:
            self._before.setdefault(row, []).append(before)
            from ..resources import dedicated
            from ..resources.numa.topology import NUMALimits

            request = dedicated.DedicatedRequest.from_spec(spec)
            allocation = dedicated.allocate(before.numa, before.pci, before.disks, request, NUMALimits.of_claim(limits))
            if allocation is not None:
                self._dedicated[row] = _Dedicated(allocation.numa, allocation.free_pci, allocation.free_disks)
        elif self._before.get(row):
            self._dedicated[row] = self._before[row].pop()

    def host_state(self, row: int) -> HostState:
        """One host as it is after what was taken."""
        state = self._current.get(row)
        if state is None:
            original = self.hosts[row]
            state = original
            is_taken_from = self.num_instances[row] != original.num_instances
            if is_taken_from or (self.has_pools and int(self.free_disk_mb[row]) != original.free_disk_mb):
                taken_gb = (original.free_disk_mb - int(self.free_disk_mb[row])) // 1024
                least = original.disk_available_least
                state = replace(
                    original,
                    memory_mb_used=original.memory_mb - int(self.free_ram_mb[row]),
                    local_gb_used=original.local_gb_used + taken_gb,
                    disk_available_least=None if least is None else least - taken_gb,
                    vcpus_used=int(self.vcpus_used[row]),
                    num_instances=int(self.num_instances[row]),
                    num_io_ops=int(self.num_io_ops[row]),
                    numa_topology=self.numa(row),
                    pci_devices=self.pci_devices(row),
                    free_disks=self.free_disks(row),
                )
            self._current[row] = state
        return state

    def all_rows(self) -> Column:
        return np.arange(len(self.hosts))


@dataclass(frozen=True)
class _Dedicated:
    numa: HostNUMATopology | None
    pci: t.Sequence[PciDevice]
    disks: t.Sequence[t.Mapping[str, t.Any]]


# The first call of numpy's unique() loads its masked arrays, which takes longer than a loop over so many rows.
FEW = 1000


def _first_and_kind(labels: Column) -> tuple[t.Sequence[int], Column]:
    """Return one row of each label of an array, and the label of every row, as a position in the first."""
    if len(labels) <= FEW:
        return _first_and_kind_of(labels.tolist())
    _values, rows, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return rows.tolist(), inverse


def _first_and_kind_of(labels: t.Sequence[t.Hashable]) -> tuple[t.Sequence[int], Column]:
    """The same of anything that can be hashed."""
    places: dict[t.Hashable, int] = {}
    for row, label in enumerate(labels):
        places.setdefault(label, row)
    numbers = {label: number for number, label in enumerate(places)}
    return list(places.values()), np.fromiter(map(numbers.__getitem__, labels), dtype=np.int64, count=len(labels))
