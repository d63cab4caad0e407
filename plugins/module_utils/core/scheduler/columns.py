# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as columns: one numpy array per number, so that a filter or weigher is a few operations over all hosts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..optional import optional_import, require
from .host_state import HostState
from .request_spec import RequestSpec

if t.TYPE_CHECKING:
    import numpy as np
else:
    np = optional_import("numpy")

# Positions of hosts in the fleet: an array of them, or one.
Rows = t.Any
Column = t.Any


@dataclass(frozen=True)
class Groups:
    """Hosts that are alike in something: ``values[codes[row]]`` is the value of host ``row``."""

    codes: Column
    values: list[t.Any]

    def spread(self, verdicts: t.Sequence[t.Any], rows: Rows) -> Column:
        """One verdict for each value, made one for each host of ``rows``."""
        return np.asarray(verdicts)[self.codes[rows]]


class Fleet:
    """Columns over HostStates, and what a request has virtually taken of them.

    The HostStates given are never written to. Hosts keep the order given: it decides between equals.
    """

    def __init__(self, hosts: t.Iterable[HostState]):
        require(np, "numpy", "numpy")
        self.hosts: list[HostState] = list(hosts)
        states = self.hosts
        self.total_ram_mb = self._column((h.memory_mb for h in states), np.int64)
        self.free_ram_mb = self.total_ram_mb - self._column((h.memory_mb_used for h in states), np.int64)
        self.total_disk_mb = self._column((h.local_gb * 1024 for h in states), np.int64)
        self.free_disk_mb = self._column((h.free_disk_mb for h in states), np.int64)
        self.vcpus_total = self._column((h.vcpus for h in states), np.int64)
        self.vcpus_used = self._column((h.vcpus_used for h in states), np.int64)
        self.ram_allocation_ratio = self._column((h.ram_allocation_ratio for h in states), np.float64)
        self.disk_allocation_ratio = self._column((h.disk_allocation_ratio for h in states), np.float64)
        self.cpu_allocation_ratio = self._column((h.cpu_allocation_ratio for h in states), np.float64)
        self.num_instances = self._column((h.num_instances for h in states), np.int64)
        self.num_io_ops = self._column((h.num_io_ops for h in states), np.int64)
        self._groups: dict[str, Groups] = {}
        self._current: dict[int, HostState] = {}

    def __len__(self) -> int:
        return len(self.hosts)

    def _column(self, values: t.Iterable[t.Any], dtype: t.Any) -> Column:
        return np.fromiter(values, dtype=dtype, count=len(self.hosts))

    def column(self, name: str, dtype: t.Any = None) -> Column:
        """A column of any attribute of the hosts, made when first asked for."""
        cached = self.__dict__.get("_column_" + name)
        if cached is None:
            cached = np.array([getattr(h, name) for h in self.hosts], dtype=dtype)
            self.__dict__["_column_" + name] = cached
        return cached

    def groups(self, name: str, key: t.Callable[[HostState], t.Hashable]) -> Groups:
        """Hosts grouped by ``key`` (kept under ``name``): a rule in Python is then asked once per group, not per host."""
        found = self._groups.get(name)
        if found is None:
            seen: dict[t.Hashable, int] = {}
            codes = [seen.setdefault(key(h), len(seen)) for h in self.hosts]
            found = self._groups[name] = Groups(np.array(codes, dtype=np.int64), list(seen))
        return found

    def consume(self, row: int, spec: RequestSpec, sign: int = 1) -> None:
        """Take (``sign`` 1) or give back (-1) what one instance of ``spec`` needs of one host.

        Swap is not taken, as in Nova. Raises nothing: the claim is what refuses.
        """
        self.free_ram_mb[row] -= sign * spec.memory_mb
        self.free_disk_mb[row] -= sign * 1024 * spec.disk_gb
        self.vcpus_used[row] += sign * spec.vcpus
        self.num_instances[row] += sign
        self.num_io_ops[row] += sign
        self._current.pop(row, None)

    def host_state(self, row: int) -> HostState:
        """One host as it stands after what was taken."""
        state = self._current.get(row)
        if state is None:
            original = self.hosts[row]
            state = original
            if self.num_instances[row] != original.num_instances:
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
                )
            self._current[row] = state
        return state

    def all_rows(self) -> Column:
        return np.arange(len(self.hosts))
