# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explanation of a volume's destination: as core.scheduler.explain's of instances, with backends in place of hosts."""

from __future__ import annotations

import typing as t

from ...amounts import disk
from ...scheduler import explain as of_hosts
from ...scheduler.columns import Column
from ...scheduler.weighing import Ranking
from ..model import PoolState, VolumeRequest
from ..pool_hosts import same_backend
from .backends import Backends
from .base import BackendFilter

BACKENDS = "backends"


def explain(
    backends: Backends,
    request: VolumeRequest,
    filters: t.Sequence[BackendFilter],
    candidates: Column,
    why_out: t.Callable[[PoolState], str],
    ranking: Ranking,
    order: t.Sequence[int],
) -> dict[str, t.Any]:
    """Explain one decision over the backends as they are, before anything is taken from the chosen one.

    Returns {volume_id, size, chosen: host@backend#pool|None, filters, backends, nearest_miss}, with the fields of of_hosts.explain();
    ``host`` of a backend is its host@backend#pool, and ``smallest_change`` of the nearest miss is filled in by select_backends(). Accepted
    backends come first, best first, and then the backend of its source, which is then the nearest miss or one of several.
    """
    source = request.resource_backend
    entries = {row: of_hosts.entry(state.host, "") for row, state in enumerate(backends.states)}
    for row in set(entries) - {int(r) for r in candidates}:
        entries[row]["rejected_by"] = of_hosts.outside(why_out(backends.states[row]))
    # Filters of backends read Backends and a VolumeRequest.
    counts, _rows, against = of_hosts.verdicts(
        t.cast(t.Any, backends), t.cast(t.Any, request), filters, candidates, entries
    )
    for place in ranking.order.tolist():
        entry = entries[int(ranking.rows[place])]
        entry.update(weight=float(ranking.score[place]), weighers=of_hosts.scores(ranking, place))
        if int(ranking.rows[place]) not in order:
            entry["rejected_by"] = of_hosts.outside("the source is on %s" % source)
    for rank, row in enumerate(order, 1):
        entries[row].update(rank=rank, passed=True)
    of_source = {row for row in entries if source and same_backend(source, entries[row]["host"])}
    nearest = of_hosts.nearest(
        entries, {row: rejections for row, rejections in against.items() if not source or row in of_source}
    )
    rest = sorted(set(entries) - set(order), key=lambda row: (row not in of_source, row))
    return {
        "volume_id": request.volume_id,
        "size": request.requested_size,
        "chosen": backends.states[order[0]].host if order else None,
        "filters": counts,
        "backends": [entries[row] for row in [*order, *rest]],
        "nearest_miss": None
        if nearest is None
        else {**of_hosts.miss(entries[nearest], against[nearest]), "smallest_change": None},
    }


def explanation_text(decision: t.Mapping[str, t.Any], limit: int | None = None) -> list[str]:
    """The decision as lines. :arg limit: the maximum of backends listed of each kind; the rest is counted."""
    return of_hosts.explanation_text(_as_of_hosts(decision), limit, BACKENDS)


def why_none(decision: t.Mapping[str, t.Any]) -> str:
    """Why no backend was chosen, in sentences."""
    return of_hosts.summary_text(of_hosts.summary(_as_of_hosts(decision)), BACKENDS)


def _as_of_hosts(decision: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    chosen = decision["chosen"]
    return {
        **decision,
        "instance_uuid": "volume %s (%s)" % (decision["volume_id"], disk(decision["size"] * 1024)),
        "forced": False,
        "chosen": chosen and {"host": chosen, "node": ""},
        "hosts": decision["backends"],
    }
