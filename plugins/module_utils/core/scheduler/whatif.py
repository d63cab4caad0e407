# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The number of instances of a kind that still fit, and where: the result of placing them one by one, computed faster.

If every enabled filter depends on one host alone, each host is filled under any weighers, so hosts are
counted separately; by bisection if the filters only compare numbers that fall evenly. Weighers matter only if a filter
depends on several hosts (affinity), or if a limit leaves hosts unfilled.
"""

from __future__ import annotations

import copy
import random
import typing as t
from dataclasses import dataclass, field, replace

from ..errors import InvalidInput, NoValidHost
from .columns import Column, Fleet, np
from .explain import explain
from .filters.base import Filter
from .options import SchedulerOptions
from .placement import Placement, _candidates, limits_of
from .registry import make_filters, make_weighers, user_classes
from .request_spec import RequestSpec
from .weighing import Ranking

#: A host that takes more instances of a kind than this counts as unlimited.
NO_END = 1 << 15

# They compare a number that falls evenly with each instance: a host that cannot take k more cannot take k + 1.
_EVEN = frozenset(
    prefix + name
    for prefix in ("", "Aggregate")
    for name in ("RamFilter", "DiskFilter", "CoreFilter", "IoOpsFilter", "NumInstancesFilter")
)
# The claim checks these too, so they also apply to a forced host.
_OF_THE_CLAIM = frozenset(
    ("RamFilter", "DiskFilter", "CoreFilter", "AggregateRamFilter", "AggregateDiskFilter", "AggregateCoreFilter")
    + ("NUMATopologyFilter", "PciPassthroughFilter", "WholeDiskFilter")
)


@dataclass(frozen=True)
class WhatIf:
    """``total`` more fit, ``by_host`` of them: [{host, node, count}] in the order of the fleet, without empty ones.

    stopped_by: None if a limit ended the count; else {filters: [{name, start, end}], decision: an explanation if options
    request one, reason}: what rejects one more.
    """

    total: int
    by_host: list[dict[str, t.Any]] = field(default_factory=list)
    stopped_by: dict[str, t.Any] | None = None

    def as_dict(self) -> dict[str, t.Any]:
        return {"total": self.total, "by_host": self.by_host, "stopped_by": self.stopped_by}


def how_many(fleet: Fleet, spec: RequestSpec, options: SchedulerOptions, limit: int | None = None) -> WhatIf:
    """Return how many more instances of ``spec`` fit under all filters and groups. The fleet is left unchanged.

    :arg limit: the most to count.
    :raises InvalidInput: unknown filters or weighers; a limit below 0; neither a limit nor a filter that ends the count.
    """
    if limit is not None and limit < 0:
        raise InvalidInput(
            reason="the limit is %d" % limit, remedy="Give the number of instances to try at most, 0 or more."
        )
    user = user_classes(options)
    filters = make_filters(options, user)
    make_weighers(options, user)  # reports a wrong name even if the answer does not depend on it
    rows, why_none = _candidates(fleet, spec)
    if spec.forced:
        filters = [f for f in filters if f.binds_forced or f.name in _OF_THE_CLAIM]
        spec = replace(spec, force_host=None, force_node=None)
    asked = [f for f in filters if f.concerns(spec)]
    count = _Count(fleet, spec, options, filters, asked, rows)
    return count.answer(limit, why_none)


class _Count:
    def __init__(
        self,
        fleet: Fleet,
        spec: RequestSpec,
        options: SchedulerOptions,
        filters: list[Filter],
        asked: list[Filter],
        candidates: Column,
    ):
        self.fleet = fleet
        self.spec = spec
        self.options = options
        self.filters = filters
        self.asked = asked
        self.candidates = candidates

    def answer(self, limit: int | None, why_none: str) -> WhatIf:
        rows = self.candidates
        for filter_ in self.asked:
            if len(rows):
                rows = rows[np.asarray(filter_.evaluate(self.fleet, self.spec, rows).mask, dtype=bool)]
        again = [f for f in self.asked if not f.run_once_per_request]
        in_order = any(not f.per_host for f in again)
        if not len(rows):
            counts = np.zeros(len(self.fleet), dtype=np.int64)
        elif in_order:
            counts = self._in_order(self._bound(rows, again) if limit is None else limit)
        else:
            counts = self._count_by_host(rows, again, limit)
            if limit is not None and int(counts.sum()) > limit:
                counts = self._in_order(limit)
        total = int(counts.sum())
        by_host = [
            {"host": self.fleet.hosts[row].host, "node": self.fleet.hosts[row].nodename, "count": int(counts[row])}
            for row in np.flatnonzero(counts).tolist()
        ]
        ended = limit is not None and total >= limit
        return WhatIf(total, by_host, None if ended else self._one_more(counts, why_none))

    # --- host by host -------------------------------------------------------------------------------------------------

    def _count_by_host(self, rows: Column, again: list[Filter], limit: int | None) -> Column:
        most = NO_END if limit is None else min(limit, NO_END)
        uneven = [f for f in again if f.name not in _EVEN]
        if self.spec.takes_dedicated or uneven:
            return self._step(rows, again, most, limit is None)
        return self._by_bisection(rows, again) if limit is None else self._bisect(rows, again, most)

    def _by_bisection(self, rows: Column, again: list[Filter]) -> Column:
        counts = self._bisect(rows, again, NO_END)
        if int(counts.max(initial=0)) >= NO_END:
            raise self._endless(int(counts.argmax()))
        return counts

    def _endless(self, row: int) -> InvalidInput:
        return InvalidInput(
            reason="no enabled filter ends how many of flavor %s fit on host %s"
            % (self.spec.flavor.name, self.fleet.hosts[row].host),
            remedy="Set bootflow_whatif_limit, or enable a filter for a resource that the flavor takes.",
        )

    def _bisect(self, rows: Column, again: list[Filter], most: int) -> Column:
        """For each host the largest number of instances whose last one still passes."""
        fits = np.ones(len(rows), dtype=np.int64)  # all of these passed with one
        reach = 1
        going = np.ones(len(rows), dtype=bool)
        over = np.full(len(rows), most + 1, dtype=np.int64)
        while reach < most and going.any():
            reach = min(reach * 2, most)
            going = self._takes(rows, again, np.where(going, reach, fits)) & going
            over = np.where(~going & (over > reach), reach, over)
            fits = np.where(going, reach, fits)
        while True:
            middle = (fits + over) // 2
            if not np.any(middle > fits):
                break
            passes = self._takes(rows, again, middle)
            fits = np.where(passes, middle, fits)
            over = np.where(passes, over, middle)
        counts = np.zeros(len(self.fleet), dtype=np.int64)
        counts[rows] = np.minimum(fits, most)
        return counts

    def _takes(self, rows: Column, again: list[Filter], numbers: Column) -> Column:
        """Return, for each of ``rows``, whether it still takes the last of ``numbers`` instances."""
        before = np.zeros(len(self.fleet), dtype=np.int64)
        before[rows] = numbers - 1
        shadow = _with(self.fleet, self.spec, before)
        passes = np.ones(len(rows), dtype=bool)
        for filter_ in again:
            passes &= np.asarray(filter_.evaluate(shadow, self.spec, rows).mask, dtype=bool)
        return passes

    def _step(self, rows: Column, again: list[Filter], most: int, must_end: bool) -> Column:
        """Place one after the other on each host: for hosts with unequal parts, or filters that may say anything."""
        counts = np.zeros(len(self.fleet), dtype=np.int64)
        one = np.zeros(1, dtype=np.int64)
        try:
            for row in rows.tolist():
                one[0] = row
                while counts[row] < most:
                    # The first one passed with all hosts.
                    if counts[row] and not all(f.evaluate(self.fleet, self.spec, one).mask[0] for f in again):
                        break
                    self._take(row)
                    counts[row] += 1
                if must_end and counts[row] >= most:
                    raise self._endless(row)
        finally:
            self._release(counts)
        return counts

    def _take(self, row: int) -> None:
        self.fleet.consume(row, self.spec, limits=limits_of(self.filters, self.fleet, self.spec, row))

    def _release(self, counts: Column) -> None:
        for row in np.flatnonzero(counts).tolist():
            for _instance in range(int(counts[row])):
                self.fleet.consume(row, self.spec, -1)

    # --- one by one ---------------------------------------------------------------------------------------------------

    def _bound(self, rows: Column, again: list[Filter]) -> int:
        """An upper bound, by the filters that only compare numbers."""
        return int(self._by_bisection(rows, [f for f in again if f.name in _EVEN]).sum())

    def _in_order(self, most: int) -> Column:
        filling = Filling(self.fleet, self.spec, self.options, self.filters)
        try:
            filling.fill(self.candidates, most)
            return np.bincount(np.array(filling.chosen_rows, dtype=np.int64), minlength=len(self.fleet))
        finally:
            filling.undo()

    # --- why no more --------------------------------------------------------------------------------------------------

    def _one_more(self, counts: Column, why_none: str) -> dict[str, t.Any]:
        """Return what rejects one more instance on all candidates."""
        if self.spec.takes_dedicated or self.spec.instance_group is not None:
            placed_counts = np.zeros(len(self.fleet), dtype=np.int64)
            try:
                for row in np.flatnonzero(counts).tolist():
                    for _instance in range(int(counts[row])):
                        self._take(row)
                        placed_counts[row] += 1
                return self._refusals(self.fleet, why_none)
            finally:
                self._release(placed_counts)
        return self._refusals(_with(self.fleet, self.spec, counts), why_none)

    def _refusals(self, fleet: Fleet, why_none: str) -> dict[str, t.Any]:
        filters: list[dict[str, t.Any]] = []
        rows = self.candidates
        for filter_ in self.filters:
            if not len(rows):
                break
            start = len(rows)
            rows = rows[np.asarray(filter_.evaluate(fleet, self.spec, rows).mask, dtype=bool)]
            filters.append({"name": filter_.name, "start": start, "end": len(rows)})
        by = ", ".join("%s %d" % (f["name"], f["start"] - f["end"]) for f in filters if f["start"] > f["end"])
        decision = None
        if self.options.explain:
            decision = explain(fleet, self.spec, self.filters, self.candidates, "one more")
        return {"filters": filters, "decision": decision, "reason": why_none or "rejected by: %s" % (by or "none")}


class Filling(Placement):
    """Placement of as many instances as fit (``taken``: rows), with its own random generator.

    :arg filters: these instead of the enabled ones.
    """

    def __init__(self, fleet: Fleet, spec: RequestSpec, options: SchedulerOptions, filters: list[Filter] | None = None):
        super().__init__(fleet, spec, options)
        if filters is not None:
            self.filters = filters
        self.rng = random.Random(spec.instance_uuids[0] if spec.instance_uuids else "")
        if options.rng is not None:
            self.rng.setstate(options.rng.getstate())

    def fill(self, candidates: Column, most: int, why_none: str = "") -> None:
        """Take from the fleet for at most ``most`` instances; undo() releases them."""
        self.candidates, self.why_none = candidates, why_none
        ranking = Ranking(self.fleet, self.spec, self._filter_all(candidates), self.weighers)
        while len(self.chosen_rows) < most:
            self._filter_again(ranking)
            if not len(ranking):
                break
            row = ranking.pick(self._draw(ranking, self.spec.instance_uuids))
            self._take(row)

    def undo(self) -> None:
        for row in reversed(self.chosen_rows):
            self.fleet.consume(row, self.spec, -1)
        self.chosen_rows = []

    def refusal(self, uuid: str) -> NoValidHost:
        """Why the next instance found no host."""
        return self._no_valid_host(uuid, self.spec.num_instances)


def _with(fleet: Fleet, spec: RequestSpec, counts: Column) -> Fleet:
    """The fleet as if each host had ``counts`` more instances; only for requests that take plain numbers."""
    shadow = copy.copy(fleet)
    shadow.free_ram_mb = fleet.free_ram_mb - counts * spec.memory_mb
    shadow.free_disk_mb = fleet.free_disk_mb - counts * (1024 * spec.disk_gb)
    shadow.vcpus_used = fleet.vcpus_used + counts * spec.vcpus
    shadow.num_instances = fleet.num_instances + counts
    shadow.num_io_ops = fleet.num_io_ops + counts
    shadow._current = {}  # a separate cache, or the fleet would keep these hosts
    return shadow
