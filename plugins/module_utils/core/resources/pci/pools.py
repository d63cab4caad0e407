# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pools of equal PCI devices, and the choice of devices for requests.

The check (supports) and the choice (choose_devices) share their code, so that scheduler and claim cannot differ from the
later allocation.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from .device import PF, VF, PciDevice
from .request import LEGACY, REQUIRED, PciRequest


@dataclass
class Pool:
    """Devices that are equal for every request, by address."""

    vendor_id: str
    product_id: str
    numa_node: int | None
    dev_type: str
    tags: t.Mapping[str, str | None]
    devices: list[PciDevice] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.devices)

    def as_dict(self) -> dict[str, t.Any]:
        """Nova's form of a pool, without the devices."""
        return {
            "vendor_id": self.vendor_id,
            "product_id": self.product_id,
            "numa_node": self.numa_node,
            "dev_type": self.dev_type,
            **self.tags,
            "count": self.count,
        }

    def fits(self, alternatives: t.Iterable[t.Mapping[str, t.Any]]) -> bool:
        """Whether the pool satisfies one of the alternatives, ignoring case."""
        own = self.as_dict()
        return any(all(_fold(own.get(key)) == _fold(value) for key, value in spec.items()) for spec in alternatives)


def _fold(value: t.Any) -> t.Any:
    return value.lower() if isinstance(value, str) else value


def pools_of(devices: t.Iterable[PciDevice]) -> list[Pool]:
    """The devices in pools: fewer tags first, then by lowest address."""
    pools: dict[t.Hashable, Pool] = {}
    for device in sorted(devices, key=lambda d: d.address):
        key = (
            device.vendor_id,
            device.product_id,
            device.numa_node,
            device.dev_type,
            tuple(sorted(device.tags.items(), key=lambda item: item[0])),
        )
        if key not in pools:
            pools[key] = Pool(device.vendor_id, device.product_id, device.numa_node, device.dev_type, device.tags)
        pools[key].devices.append(device)
    return sorted(pools.values(), key=lambda pool: len(pool.tags))


def supports(
    devices: t.Iterable[PciDevice],
    requests: t.Iterable[PciRequest],
    numa_cells: t.Sequence[int] | None = None,
) -> bool:
    """Whether these free devices satisfy all requests, one after the other.

    :arg numa_cells: ids of the guest's host cells; None: affinity does not matter.
    """
    return choose_devices(devices, requests, numa_cells) is not None


def choose_devices(
    devices: t.Iterable[PciDevice],
    requests: t.Iterable[PciRequest],
    numa_cells: t.Sequence[int] | None = None,
) -> list[tuple[PciRequest, list[PciDevice]]] | None:
    """The devices for each request, None if they do not suffice. The same input always gives the same devices.

    A PF excludes its VFs, and a VF its PF, from later requests.
    """
    chosen = hand_out(devices, requests, numa_cells)
    return chosen if all(len(picked) == request.count for request, picked in chosen) else None


def hand_out(
    devices: t.Iterable[PciDevice],
    requests: t.Iterable[PciRequest],
    numa_cells: t.Sequence[int] | None = None,
) -> list[tuple[PciRequest, list[PciDevice]]]:
    """The devices for each request, up to its count; a request with fewer shows what is missing."""
    pools = pools_of(devices)
    return [(request, _consume(pools, request, numa_cells)) for request in requests]


def candidate_pools(pools: t.Sequence[Pool], request: PciRequest, numa_cells: t.Sequence[int] | None) -> list[Pool]:
    """The pools that may serve a request, in order."""
    fitting = [pool for pool in pools if pool.fits(request.spec)]
    if numa_cells:
        fitting = _near(fitting, numa_cells, request)
    if any(_fold(alternative.get("dev_type")) == _fold(PF) for alternative in request.spec):
        return fitting
    # A PF often has the ids of its VFs; without an explicit request it would take a whole card.
    return [pool for pool in fitting if pool.dev_type != PF]


def _near(pools: t.Sequence[Pool], numa_cells: t.Sequence[int], request: PciRequest) -> list[Pool]:
    """The pools with the strictest affinity that suffices, at least as strict as the policy requires."""
    local = [pool for pool in pools if pool.numa_node in numa_cells]
    if request.numa_policy == REQUIRED or _total(local) >= request.count:
        return local
    wanted = (None, *numa_cells)
    near = [pool for pool in pools if pool.numa_node in wanted]
    if (request.numa_policy or LEGACY) == LEGACY or _total(near) >= request.count:
        return near
    return near + [pool for pool in pools if pool.numa_node not in wanted]


def _total(pools: t.Iterable[Pool]) -> int:
    return sum(pool.count for pool in pools)


def _consume(pools: t.Sequence[Pool], request: PciRequest, numa_cells: t.Sequence[int] | None) -> list[PciDevice]:
    picked: list[PciDevice] = []
    for pool in candidate_pools(pools, request, numa_cells):
        while pool.devices and len(picked) < request.count:
            device = _least_missed(pool, pools)
            pool.devices.remove(device)
            _drop_relatives(pools, device)
            picked.append(device)
    return picked


def _least_missed(pool: Pool, pools: t.Iterable[Pool]) -> PciDevice:
    """The device with the least loss for its card: a VF of an already split card, a PF with few VFs; then by address."""
    if pool.dev_type not in (PF, VF):
        return pool.devices[0]
    free = [device for other in pools for device in other.devices if device.dev_type in (PF, VF)]
    whole = {device.address for device in free if device.dev_type == PF}
    parts = Counter(device.parent_addr for device in free if device.dev_type == VF)

    def loss(device: PciDevice) -> int:
        return parts[device.address] if device.dev_type == PF else int(device.parent_addr in whole)

    return min(pool.devices, key=lambda device: (loss(device), device.address))


def _drop_relatives(pools: t.Iterable[Pool], chosen_device: PciDevice) -> None:
    if chosen_device.dev_type not in (PF, VF):
        return
    for pool in pools:
        pool.devices[:] = [device for device in pool.devices if not _excludes(chosen_device, device)]


def _excludes(chosen_device: PciDevice, device: PciDevice) -> bool:
    """Whether two functions of one card cannot have different owners."""
    if chosen_device.dev_type == PF:
        return device.dev_type == VF and device.parent_addr == chosen_device.address
    return device.dev_type == PF and chosen_device.dev_type == VF and chosen_device.parent_addr == device.address


def free_devices(all_devices: t.Iterable[PciDevice], taken_addresses: t.Iterable[str]) -> list[PciDevice]:
    """The free devices by address: neither taken, nor a VF of a taken PF, nor a PF with a taken VF."""
    devices = sorted(all_devices, key=lambda d: d.address)
    claimed_addresses = frozenset(taken_addresses)
    cards = {d.parent_addr for d in devices if d.dev_type == VF and d.address in claimed_addresses}
    return [
        device
        for device in devices
        if device.address not in claimed_addresses
        and not (device.dev_type == VF and device.parent_addr in claimed_addresses)
        and not (device.dev_type == PF and device.address in cards)
    ]
