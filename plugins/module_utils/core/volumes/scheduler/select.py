# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choosing backends: filter, weigh, keep to a source's backend, pick, consume in memory, next volume.

source: Cinder's FilterScheduler (Queens). core.scheduler has the common code.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...errors import NoValidBackend
from ...scheduler.columns import Column, np
from ...scheduler.placement import FilterCount
from ...scheduler.weighing import Ranking
from ...times import duration
from ..model import PoolState, VolumeRequest
from ..pool_hosts import extract_host, same_backend
from ..retry import populate_retry, record_backend
from .backends import Backends
from .explain import explain, why_none
from .options import VolumeSchedulerOptions
from .registry import make_filters, make_weighers


@dataclass(frozen=True)
class BackendSelection:
    """The destination of one volume. ``retry``: the record to keep with it, None if there is only one attempt."""

    volume_id: str
    host: str  # host@backend#pool
    alternates: tuple[str, ...] = ()
    retry: dict[str, t.Any] | None = None
    decision: dict[str, t.Any] | None = None


class VolumeScheduler:
    """Chooses backends for one volume after the other, and keeps track of what each took.

    :arg volume_hosts: see Backends; :arg instance_hosts: see Backends.
    Raises InvalidInput for unknown names of filters and weighers.
    """

    def __init__(
        self,
        states: t.Iterable[PoolState],
        options: VolumeSchedulerOptions | None = None,
        volume_hosts: t.Mapping[str, str] | None = None,
        instance_hosts: t.Mapping[str, str] | None = None,
    ):
        self.options = options or VolumeSchedulerOptions()
        self.filters = make_filters(self.options)
        self.weighers = make_weighers(self.options)
        self.backends = Backends(states, volume_hosts, instance_hosts, self.options.max_over_subscription_ratio)
        self.counts: list[FilterCount] = []
        self._candidates: Column = None  # the same for every volume, after any other volume was placed

    def candidates(self) -> Column:
        """Rows of the pools that are enabled and reported recently."""
        if self._candidates is None:
            usable = [row for row, state in enumerate(self.backends.states) if not self.why_out(state)]
            self._candidates = np.array(usable, dtype=np.int64)
        return self._candidates

    def why_out(self, state: PoolState) -> str:
        """Why a pool is excluded before the filters; "" if it is not."""
        if self.options.hosts is not None and extract_host(state.host, "host") not in self.options.hosts:
            return "its host is not in the inventory, or the limit of the run leaves it out"
        if state.disabled:
            return "disabled"
        if state.frozen:
            return "frozen"
        if state.not_ready:
            return "not ready: %s" % state.not_ready
        now = self.options.now
        if now is None:
            return ""
        if state.updated_at is None:
            return "has never reported"
        silent = now - state.updated_at
        return "has not reported for %s" % duration(silent) if silent > self.options.service_down_time else ""

    def select(self, request: VolumeRequest) -> BackendSelection:
        """The best backend for this volume and the alternates; the volume is consumed from the best in memory.

        A backend that has failed this volume comes last; Cinder weighs it like the others, unless
        IgnoreAttemptedHostsFilter excludes it.

        :raises NoValidBackend: no backend passes (``details``: filters, volume_id, decision), or the attempts are used up.
        :raises InvalidInput: an invalid hint or setting.
        """
        retry = populate_retry(request.retry, self.options.max_attempts, request.volume_id)
        request = replace(request, retry=retry)  # without a record earlier attempts do not count, as in Cinder
        candidates = self.candidates()
        rows = self._filter(request, candidates)
        # Ranking only uses attributes that Backends and VolumeRequest have.
        ranking = Ranking(t.cast(t.Any, self.backends), t.cast(t.Any, request), rows, self.weighers, weigh_one=True)
        order = self._order(request, ranking)
        chosen = order[0] if order else None
        decision = None
        if self.options.explain or (chosen is None and self.options.explain_failures):
            decision = explain(self.backends, request, self.filters, candidates, self.why_out, ranking, order)
        if chosen is None:
            raise self._none(request, decision)
        self.backends.consume(chosen, request)
        host = self.backends.states[chosen].host
        alternates = order[1 : max(self.options.max_attempts, 1)]
        return BackendSelection(
            volume_id=request.volume_id,
            host=host,
            alternates=tuple(self.backends.states[row].host for row in alternates),
            retry=record_backend(retry, host),
            decision=decision,
        )

    def _filter(self, request: VolumeRequest, rows: Column) -> Column:
        self.counts = []
        for filter_ in self.filters:
            start = len(rows)
            if start:
                rows = rows[np.asarray(filter_.judge(self.backends, request, rows).mask, dtype=bool)]
            self.counts.append(FilterCount(filter_.name, start, len(rows)))
        return rows

    def _order(self, request: VolumeRequest, ranking: Ranking) -> list[int]:
        """Return the rows that may take the volume, best first; rows that have failed it come last."""
        rows = [int(ranking.rows[position]) for position in ranking.order]
        if request.resource_backend:
            rows = [row for row in rows if same_backend(request.resource_backend, self.backends.states[row].host)]
        tried = set((request.retry or {}).get("backends", ()))
        return sorted(rows, key=lambda row: self.backends.states[row].host in tried)

    def _none(self, request: VolumeRequest, decision: dict[str, t.Any] | None) -> NoValidBackend:
        why = why_none(decision) if decision is not None else "Filter results: %s" % [str(c) for c in self.counts]
        return NoValidBackend(
            reason=why if len(self.backends) else "There is no backend.",
            filters=[{"name": c.name, "start": c.start, "end": c.end} for c in self.counts],
            volume_id=request.volume_id,
            decision=decision,
        )
