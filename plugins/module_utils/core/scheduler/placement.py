# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing hosts: filter, weigh, pick, consume in memory, next instance.

source: Nova's FilterScheduler.select_destinations
"""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass

from ..errors import NoValidHost
from .columns import Column, Fleet, np
from .explain import binding, explain, summary, summary_text
from .filters.base import Filter
from .filters.compute_filter import ComputeFilter
from .filters.network_filter import NetworkFilter
from .filters.resources.numa_topology_filter import NUMATopologyFilter
from .options import SchedulerOptions
from .registry import make_filters, make_weighers, user_classes
from .request_spec import RequestSpec
from .smallest_change import enough_for
from .weighers.base import Weigher
from .weighing import Ranking

#: What to do where hosts lack networks, or do not filter ports.
MAKE_NETWORKS = (
    "Create what is missing on hosts that are to have it, or correct the source in bootflow_networks; then run bootflow.compute.heartbeat, so that"
    " the hosts report it. Where hosts are to filter ports, apply the role compute_host before."
)
#: Names of all filters that rejected hosts -> what to do about it, where that is not a change of the request.
_REMEDIES = {
    frozenset(
        (ComputeFilter.name,)
    ): "Bring hosts up, so that they report (bootflow.compute.heartbeat), or enable them (bootflow.compute.host).",
    frozenset((NetworkFilter.name,)): MAKE_NETWORKS,
}


@dataclass(frozen=True)
class Alternate:
    """A host to try next."""

    host: str
    nodename: str
    limits: dict[str, t.Any]
    node_id: int | None = None


@dataclass(frozen=True)
class Selection:
    """The destination of one instance. limits: {memory_mb, disk_gb, vcpu, numa_topology} of the claim (total x ratio)."""

    instance_uuid: str
    host: str
    nodename: str
    limits: dict[str, t.Any]
    alternates: tuple[Alternate, ...] = ()
    decision: dict[str, t.Any] | None = None
    node_id: int | None = None


@dataclass
class FilterCount:
    """The number of hosts before and after a filter."""

    name: str
    start: int
    end: int

    def __str__(self) -> str:
        return "%s: (start: %d, end: %d)" % (self.name, self.start, self.end)


def select_destinations(fleet: Fleet, spec: RequestSpec, options: SchedulerOptions) -> list[Selection]:
    """A host for each instance of the request, consumed from the fleet in memory; all instances or none.

    A forced host or node skips the filters, except for filters that bind it too, and keeps their limits: the claim still applies.
    Raises NoValidHost (with ``details``: filters, placed, requested, instance_uuid, decision) and leaves the fleet
    unchanged; InvalidInput for unknown names of filters and weighers.
    """
    return Placement(fleet, spec, options).select(spec.instance_uuids)


class Placement:
    """One request over one fleet. Hosts can be requested repeatedly: results of filters and weighers are kept, and only
    hosts that were taken from are evaluated again.

    Raises InvalidInput for unknown names of filters and weighers.
    """

    def __init__(self, fleet: Fleet, spec: RequestSpec, options: SchedulerOptions):
        user = user_classes(options)
        self.fleet = fleet
        self.spec = spec
        self.options = options
        self.filters: list[Filter] = make_filters(options, user)
        self.weighers: list[Weigher] = make_weighers(options, user)
        self.rng = options.rng
        self._counts: list[tuple[Filter, int]] = []  # filters that were asked, and the hosts after each
        self._start = 0  # hosts before the first of them
        self.chosen_rows: list[int] = []  # by the current call
        self._ranking: Ranking | None = None
        self._changed: int | None = None  # the host taken from since the ranking was last updated
        self._limits: dict[int, dict[str, t.Any]] = {}
        # Filters that are asked again after a pick, and the ones among them that the request concerns
        self._repeated = [] if spec.forced else [f for f in self.filters if not f.run_once_per_request]
        # Filters that limit claims; limits of cells apply to guests with cells
        self._limiting = [
            f
            for f in self.filters
            if type(f).limits is not Filter.limits
            and not (spec.numa_topology is None and type(f).limits is NUMATopologyFilter.limits)
        ]
        self._concerned = [f for f in self._repeated if f.concerns(spec)]

    @property
    def counts(self) -> list[FilterCount]:
        """The hosts before and after each filter that was asked last, up to the one that left none."""
        filter_counts = []
        start = self._start
        for filter_, end in self._counts:
            filter_counts.append(FilterCount(filter_.name, start, end))
            start = end
        return filter_counts

    def select(self, uuids: t.Sequence[str]) -> list[Selection]:
        """A host for each of these instances, or for none: see select_destinations()."""
        if not uuids:
            return []
        self.chosen_rows = []
        try:
            return self._select(uuids)
        except BaseException:
            for row in self.chosen_rows:
                self.fleet.consume(row, self.spec, -1)
            self._ranking = None
            raise

    def _select(self, uuids: t.Sequence[str]) -> list[Selection]:
        if self._ranking is None:
            self.candidates, self.why_none = _candidates(self.fleet, self.spec)
            self._ranking = Ranking(self.fleet, self.spec, self._filter_all(self.candidates), self.weighers)
            self._changed = None
        ranking = self._ranking
        decisions: list[dict[str, t.Any] | None] = []
        draws = int(self.options.host_subset_size) > 1 or self.options.shuffle_best_same_weighed_hosts
        explains = self.options.explain
        for uuid in uuids:
            self._filter_again(ranking)
            if not len(ranking):
                raise self._no_valid_host(uuid, len(uuids))
            row = ranking.pick(self._draw(ranking, uuids) if draws else 0)
            decisions.append(self._explain(uuid, ranking, row) if explains else None)
            self._take(row)
        self._note_limits(self.chosen_rows)
        alternates = self._alternates(ranking, uuids)
        return [
            Selection(
                instance_uuid=uuid,
                host=host,
                nodename=nodename,
                limits=dict(self._limits_of(row)),
                alternates=alternates,
                decision=self._with_alternates(decision, alternates),
                node_id=node_id,
            )
            for uuid, row, decision in zip(uuids, self.chosen_rows, decisions)
            for host, nodename, node_id in (self.fleet.place(row),)
        ]

    def _take(self, row: int) -> None:
        self.fleet.consume(row, self.spec, limits=self._limits_of(row) if self.spec.takes_dedicated else None)
        self._changed = row
        self.chosen_rows.append(row)

    def _filter_all(self, rows: Column) -> Column:
        """The hosts that pass all filters. Each filter runs on the hosts that passed those before it."""
        self._counts, self._start = [], len(rows)
        for filter_ in binding(self.filters, self.spec):
            if not len(rows):
                break
            rows = rows[filter_.evaluate(self.fleet, self.spec, rows).mask]
            self._counts.append((filter_, len(rows)))
        return rows

    def _filter_again(self, ranking: Ranking) -> None:
        """Filter for the next instance: only one host was taken from, so filters that depend on one host ask it alone."""
        changed = self._changed
        if changed is None:
            return
        self._changed = None
        if len(ranking) > 1 and all(f.per_host for f in self._concerned):
            for filter_ in self._concerned:
                if not filter_.passes(self.fleet, self.spec, changed):
                    ranking.drop(changed)
                    break
            ranking.update(changed)
            return
        self._start = len(ranking)
        last: int | None = changed
        remaining: dict[int, int] = {}
        for filter_ in self._concerned:
            if not len(ranking):
                break
            if not filter_.per_host:
                ranking.keep(np.asarray(filter_.evaluate(self.fleet, self.spec, ranking.rows).mask, dtype=bool))
                last = changed if last is not None and ranking.has(changed) else None
            elif last is not None and not filter_.passes(self.fleet, self.spec, last):
                ranking.drop(last)
                last = None
            remaining[id(filter_)] = len(ranking)
        if not len(ranking):
            self._count_again(remaining)
        ranking.update(changed)

    def _count_again(self, remaining: t.Mapping[int, int]) -> None:
        """Record the filters that _filter_again() asked, for the text that there is no host. :arg remaining: hosts after each filter, by its id()."""
        self._counts = []
        end = self._start
        for filter_ in self._repeated:
            if not end:
                break
            end = remaining.get(id(filter_), end)
            self._counts.append((filter_, end))

    def _random(self, uuids: t.Sequence[str]) -> random.Random:
        if self.rng is None:
            self.rng = random.Random(uuids[0])
        return self.rng

    def _draw(self, ranking: Ranking, uuids: t.Sequence[str]) -> int:
        size = min(max(int(self.options.host_subset_size), 1), len(ranking))
        index = self._random(uuids).randrange(size) if size > 1 else 0
        if self.options.shuffle_best_same_weighed_hosts:
            best = ranking.best
            if index < best > 1:  # any of the best may be at this place
                index = self._random(uuids).randrange(best)
        return index

    def _alternates(self, ranking: Ranking, uuids: t.Sequence[str]) -> tuple[Alternate, ...]:
        """The next hosts in order that were not chosen in this request."""
        wanted = max(int(self.options.max_attempts), 1) - 1
        if not wanted:
            return ()
        counts = self._counts, self._start
        if len(self.chosen_rows) > 1:
            self._filter_again(ranking)
            if len(ranking):
                ranking.pick(self._draw(ranking, uuids))
        if len(ranking) and self.options.shuffle_best_same_weighed_hosts:
            ranking.shuffle_best(self._random(uuids))
        self._counts, self._start = counts
        chosen = set(self.chosen_rows)
        alternates: list[Alternate] = []
        for position in ranking.order:
            row = int(ranking.rows[position])
            if row not in chosen:
                host, nodename, node_id = self.fleet.place(row)
                alternates.append(Alternate(host, nodename, dict(self._limits_of(row)), node_id))
                if len(alternates) == wanted:
                    break
        return tuple(alternates)

    def _limits_of(self, row: int) -> dict[str, t.Any]:
        if row not in self._limits:
            self._note_limits([row])
        return self._limits[row]

    def _note_limits(self, rows: t.Iterable[int]) -> None:
        new = [row for row in dict.fromkeys(rows) if row not in self._limits]
        limits_by_filter = [filter_.limits_each(self.fleet, new) for filter_ in self._limiting] if new else []
        for number, row in enumerate(new):
            limits: dict[str, t.Any] = {}
            for of_rows in limits_by_filter:
                limits.update(of_rows[number])
            if self.spec.numa_topology is None:
                limits.pop("numa_topology", None)  # of a user's filter
            self._limits[row] = limits

    def _explain(self, uuid: str, ranking: Ranking | None, row: int | None) -> dict[str, t.Any] | None:
        most = self.options.explain_most
        if not self.options.explain or (most is not None and len(self.chosen_rows) >= most):
            return None
        return explain(self.fleet, self.spec, self.filters, self.candidates, uuid, ranking=ranking, chosen=row)

    def _with_alternates(
        self, decision: dict[str, t.Any] | None, alternates: t.Sequence[Alternate]
    ) -> dict[str, t.Any] | None:
        if decision is not None:
            decision["alternates"] = [{"host": a.host, "node": a.nodename} for a in alternates]
        return decision

    def _no_valid_host(self, uuid: str, requested: int) -> NoValidHost:
        decision = None
        if self.options.explain or (self.options.explain_failures and len(self.fleet)):
            decision = explain(self.fleet, self.spec, self.filters, self.candidates, uuid)
        remaining = requested - len(self.chosen_rows)
        if decision is not None and decision["nearest_miss"] and remaining > 1:
            self._of_each(decision["nearest_miss"], remaining)
        overview = None if decision is None or not decision["hosts"] else summary(decision)
        parts = ["There are not enough hosts available."]
        if self.chosen_rows:
            parts.append(
                "There is room for %d of the %d instances of this entry, which are placed together or not at all."
                % (len(self.chosen_rows), requested)
            )
        if self.why_none:
            parts.append(self.why_none)
        elif overview is not None:
            parts.append(summary_text(overview))
        elif self.counts:
            results = [str(c) for c in self.counts]
            parts.append(
                "Filtering removed all hosts for the request with instance ID '%s'. Filter results: %s"
                % (uuid, results)
            )
        change = overview and overview["nearest_miss"] and overview["nearest_miss"]["smallest_change"]
        remedy = "Smallest change: %s. With --check the same boot explains each host." % change if change else None
        if overview is not None:
            remedy = _REMEDIES.get(frozenset(r["filter"] for r in overview["rejected"] if r["filter"]), remedy)
        return NoValidHost(
            reason=" ".join(parts),
            remedy=remedy,
            filters=[{"name": c.name, "start": c.start, "end": c.end} for c in self.counts],
            placed=len(self.chosen_rows),
            requested=requested,
            instance_uuid=uuid,
            decision=decision,
        )

    def _of_each(self, near: dict[str, t.Any], remaining: int) -> None:
        """Say what the smallest change is enough for: the next instance; and what is enough for all that found no host.

        :arg remaining: instances without a host, two or more.
        """
        change = near["smallest_change"]
        if change is None or all(setting_change["what"] == "setting" for setting_change in change["changes"]):
            return
        change["text"] = "for the next of the %d instances that found no host, %s" % (remaining, change["text"])
        row = next(int(r) for r in self.candidates if self.fleet.place(int(r))[:2] == (near["host"], near["node"]))
        placed = self.chosen_rows.count(row)
        more = enough_for(self.fleet, self.spec, row, self.filters, remaining, self._limits_of(row), placed)
        if more:
            change["text"] += "; for %s, %s more free there" % (
                "both" if remaining == 2 else "all %d" % remaining,
                more,
            )


def limits_of(filters: t.Iterable[Filter], fleet: Fleet, spec: RequestSpec, row: int) -> dict[str, t.Any]:
    """Return the limits of a claim on that host: the limits of the filters that accepted it."""
    limits: dict[str, t.Any] = {}
    for filter_ in filters:
        limits.update(filter_.limits(fleet, row))
    if spec.numa_topology is None:
        limits.pop("numa_topology", None)
    return limits


def _candidates(fleet: Fleet, spec: RequestSpec) -> tuple[Column, str]:
    """Rows without ignored hosts and only of a forced host and node; and why there are none."""
    rows = fleet.all_rows()
    if not len(rows):
        return rows, "There is no compute host."
    names = fleet.values("host") if spec.ignore_hosts or spec.force_host else ()
    if spec.ignore_hosts:
        ignored = {h.lower() for h in spec.ignore_hosts}
        rows = np.array([r for r in rows if names[r].lower() not in ignored], dtype=np.int64)
        if not len(rows):
            return rows, "All hosts are ignored (ignore_hosts %s)." % ", ".join(spec.ignore_hosts)
    if spec.force_host:
        wanted = spec.force_host.lower()
        rows = np.array([r for r in rows if names[r].lower() == wanted], dtype=np.int64)
        if not len(rows):
            return rows, "No hosts matched due to not matching 'force_hosts' value of '%s'" % spec.force_host
    if spec.force_node:
        nodenames = fleet.values("nodename")
        rows = np.array([r for r in rows if nodenames[r] == spec.force_node], dtype=np.int64)
        if not len(rows):
            return rows, "No nodes matched due to not matching 'force_nodes' value of '%s'" % spec.force_node
    return rows, ""
