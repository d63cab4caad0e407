# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose backends for several volumes, one after the other, and say how much more room volumes without a backend need."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ...amounts import disk
from ...errors import BootflowError, NoValidBackend
from ..model import PoolState, VolumeRequest
from .backends import Backends
from .options import VolumeSchedulerOptions
from .select import BackendSelection, VolumeScheduler

Choice = t.Union[BackendSelection, BootflowError]
#: Each one costs a look at all requests.
MOST_BACKENDS_TOLD = 3


def select_backends(
    states: t.Sequence[PoolState],
    requests: t.Sequence[VolumeRequest],
    options: VolumeSchedulerOptions | None = None,
    volume_hosts: t.Mapping[str, str] | None = None,
    instance_hosts: t.Mapping[str, str] | None = None,
) -> list[Choice]:
    """The backend of each volume, or why it has none.

    A NoValidBackend says in ``decision.nearest_miss.smallest_change`` {free_gb, provisioned_gb, volumes, text}, and in its remedy, how much more
    free or less provisioned the backend of its nearest miss would have to be, so that it and all others with the same nearest miss fit; None if
    no such amount is known.

    :arg volume_hosts: see Backends; :arg instance_hosts: see Backends.
    :raises InvalidInput: an unknown filter or weigher.
    """
    options = options or VolumeSchedulerOptions()
    more = (volume_hosts, instance_hosts)
    scheduler = VolumeScheduler(states, options, *more)
    choices = [_select(scheduler, request) for request in requests]
    near: dict[str, list[int]] = {}  # backend -> the requests whose nearest miss it is
    for number, choice in enumerate(choices):
        miss = _nearest_miss(choice)
        if miss:
            near.setdefault(miss["host"], []).append(number)
    failed = sum(map(len, near.values()))
    for host, numbers in list(near.items())[:MOST_BACKENDS_TOLD]:
        row = next(i for i, state in enumerate(states) if state.host == host)
        change = _change(scheduler.backends, row, [requests[n] for n in numbers])
        if change is None:
            continue
        changed = [_changed(state, *change) if i == row else state for i, state in enumerate(states)]
        again = VolumeScheduler(changed, dataclasses.replace(options, explain=False, explain_failures=False), *more)
        if _fit(again, requests, numbers):
            _tell([choices[n] for n in numbers], host, change, failed)
    return choices


def _select(scheduler: VolumeScheduler, request: VolumeRequest) -> Choice:
    try:
        return scheduler.select(request)
    except BootflowError as error:
        return error


def _nearest_miss(choice: Choice) -> dict[str, t.Any] | None:
    decision = choice.details.get("decision") if isinstance(choice, NoValidBackend) else None
    return decision["nearest_miss"] if decision else None


def _change(backends: Backends, row: int, requests: t.Sequence[VolumeRequest]) -> tuple[float, float] | None:
    """Return how many GB more free, and how many less provisioned, CapacityFilter needs there for all of these together; whole tenths.

    None: the backend reports no numbers, or has never so much provisioned.
    """
    total, ratio, free = backends.total_gb[row], backends.ratio[row], backends.free_gb[row]
    provisioned = backends.provisioned_gb[row]
    if backends.free_unset[row] or backends.free_word[row] or backends.total_word[row] or total <= 0:
        return None
    more_free = less_provisioned = 0.0
    for request in requests:
        size = request.requested_size
        thin = backends.thin_support[row] and not request.thick
        if thin and ratio < 1:
            return None
        if thin:
            less_provisioned = max(less_provisioned, provisioned + size - total * ratio)
        more_free = max(more_free, size / (ratio if thin else 1) + backends.reserved_gb[row] - free)
        free, provisioned = free - size, provisioned + size
    change = _tenths(more_free), _tenths(less_provisioned)
    return None if change[1] > backends.states[row].provisioned or not any(change) else change


def _tenths(number: float) -> float:
    return math.ceil(round(float(number) * 10, 6)) / 10


def _changed(state: PoolState, more_free: float, less_provisioned: float) -> PoolState:
    return dataclasses.replace(
        state,
        free_capacity_gb=t.cast(float, state.free_capacity_gb) + more_free,
        provisioned_capacity_gb=state.provisioned - less_provisioned,
    )


def _fit(scheduler: VolumeScheduler, requests: t.Sequence[VolumeRequest], numbers: t.Sequence[int]) -> bool:
    """Whether these of the requests get a backend, with all in their order."""
    wanted = set(numbers)
    return all(
        isinstance(_select(scheduler, request), BackendSelection) or number not in wanted
        for number, request in enumerate(requests[: max(wanted) + 1])
    )


def _tell(choices: t.Sequence[Choice], host: str, change: tuple[float, float], failed: int) -> None:
    """:arg choices: the refusals of these volumes. :arg failed: how many volumes have no backend"""
    parts = ["%s of disk more free" % disk(change[0] * 1024)] if change[0] else []
    parts += ["%s less provisioned" % disk(change[1] * 1024)] if change[1] else []
    text = "%s on %s would have been enough" % (" and ".join(parts), host)
    count = len(choices)
    if failed > 1:
        of_all = "both" if count == 2 else "all %d" % count
        text = "for %s volumes without a backend, %s" % (
            of_all if count == failed else "%d of %d" % (count, failed),
            text,
        )
    for choice in choices:
        error = t.cast(NoValidBackend, choice)
        smallest_change = {"free_gb": change[0], "provisioned_gb": change[1], "volumes": count, "text": text}
        error.details["decision"]["nearest_miss"]["smallest_change"] = smallest_change
        error.remedy = "Smallest change: %s. %s" % (text, NoValidBackend.remedy)
