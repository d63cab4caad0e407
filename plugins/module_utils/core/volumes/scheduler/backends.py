# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pools as columns, and what a run has provisionally taken from them: the Fleet of volumes.

source: Cinder's host_manager, PoolState.consume_from_volume (Queens)
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...optional import require
from ...scheduler.columns import Column, np
from ..model import PoolState, VolumeRequest


class Backends:
    """Columns over PoolStates. The given states are never written to; their order decides between equals.

    :arg volume_hosts: uuid of a volume -> host@backend#pool, for the hints same_host and different_host.
    :arg instance_hosts: uuid of an instance -> its host, for the hint local_to_instance.
    :arg default_ratio: max_over_subscription_ratio of backends that report none; a number or ``auto``.
    """

    def __init__(
        self,
        states: t.Iterable[PoolState],
        volume_hosts: t.Mapping[str, str] | None = None,
        instance_hosts: t.Mapping[str, str] | None = None,
        default_ratio: float | str = 20.0,
    ):
        require(np, "numpy", "numpy")
        self.states = list(states)
        self.volume_hosts = dict(volume_hosts or {})
        self.instance_hosts = dict(instance_hosts or {})
        self.capabilities: list[dict[str, t.Any] | None] = [None] * len(self.states)
        # Results of a filter on a row's capabilities, by request; cleared when they change.
        self.judged: list[dict[str, t.Any]] = [{} for _state in self.states]
        self.ids = np.array([s.host for s in self.states], dtype=object)
        self.zones = np.array([s.availability_zone for s in self.states], dtype=object)
        free = [s.free_capacity_gb for s in self.states]
        total = [s.total_capacity_gb for s in self.states]
        self.free_unset = _flags(f is None for f in free)
        self.free_word = _flags(isinstance(f, str) for f in free)
        self.total_word = _flags(isinstance(x, str) for x in total)
        self.free_gb = _numbers(free)
        self.total_gb = _numbers(total)
        self.allocated_gb = np.array([s.allocated_capacity_gb for s in self.states], dtype=np.float64)
        self.provisioned_gb = np.array([s.provisioned for s in self.states], dtype=np.float64)
        self.reserved_percentage = np.array([s.reserved_percentage for s in self.states], dtype=np.float64)
        self.thin_support = _flags(bool(s.thin_provisioning_support) for s in self.states)
        self.ratio = np.array([s.ratio(default_ratio) for s in self.states], dtype=np.float64)
        self.volume_count = np.array([s.volume_count for s in self.states], dtype=np.float64)

    def __len__(self) -> int:
        return len(self.states)

    def all_rows(self) -> Column:
        return np.arange(len(self.states))

    @property
    def reserved_gb(self) -> Column:
        """Whole GB kept free; 0 if the total is a word."""
        return np.floor(self.total_gb * (self.reserved_percentage / 100))

    def capabilities_of(self, row: int) -> dict[str, t.Any]:
        """The capabilities for CapabilitiesFilter, with the amounts after what was taken."""
        capabilities = self.capabilities[row]
        if capabilities is None:
            capabilities = self.capabilities[row] = self.state(row).all_capabilities()
        return capabilities

    def consume(self, row: int, request: VolumeRequest, sign: int = 1) -> None:
        """Take (``sign`` 1) or release (-1) what a volume needs: allocated, provisioned, and free if that is a number."""
        size = sign * request.requested_size
        self.allocated_gb[row] += size
        self.provisioned_gb[row] += size
        self.free_gb[row] -= size  # without meaning if free is a word: see state()
        if request.new_size is None:
            self.volume_count[row] += sign
        if request.volume_id and request.new_size is None:
            if sign > 0:
                self.volume_hosts[request.volume_id] = self.states[row].host
            else:
                self.volume_hosts.pop(request.volume_id, None)
        self.capabilities[row] = None
        self.judged[row] = {}

    def state(self, row: int) -> PoolState:
        """One pool as it is after what was taken."""
        original = self.states[row]
        numeric = not self.free_word[row] and not self.free_unset[row]
        return dataclasses.replace(
            original,
            allocated_capacity_gb=_tidy(self.allocated_gb[row]),
            provisioned_capacity_gb=_tidy(self.provisioned_gb[row]),
            free_capacity_gb=_tidy(self.free_gb[row]) if numeric else original.free_capacity_gb,
            volume_count=int(self.volume_count[row]),
        )


def _flags(values: t.Iterable[bool]) -> Column:
    return np.array(list(values), dtype=bool)


def _numbers(values: t.Iterable[t.Any]) -> Column:
    return np.array([0.0 if v is None or isinstance(v, str) else v for v in values], dtype=np.float64)


def _tidy(number: t.Any) -> float:
    value = float(number)
    return int(value) if value.is_integer() else value
