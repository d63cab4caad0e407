# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""WholeDiskFilter: hosts with free whole disks."""

from __future__ import annotations

import typing as t

from ....disks.whole_disks import WholeDiskRequest, choose_disks
from ...columns import Fleet, Rows
from ...request_spec import RequestSpec
from ..base import Filter, FilterResult
from .holdings import holdings_result

#: A free disk: path, size in GiB, medium.
Holding = t.Tuple[t.Tuple[str, int, str], ...]


class WholeDiskFilter(Filter):
    """Passes if each requested disk gets a different free disk. Hosts with the same free disks are asked once."""

    name = "WholeDiskFilter"
    counts_capacity = True
    needs_pci = True

    def concerns(self, spec: RequestSpec) -> bool:
        return bool(spec.whole_disks)

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        requests = tuple(spec.whole_disks)
        needed = sum(request.count for request in requests)
        return holdings_result(
            rows,
            needed=needed,
            holding=lambda row: _holding(fleet.free_disks(row)),
            served=lambda disks: _served(disks, requests, needed),
            unit="disks",
        )


def _holding(disks: t.Iterable[t.Mapping[str, t.Any]]) -> Holding:
    return tuple((str(disk["path"]), int(disk.get("size_gb") or 0), str(disk.get("medium") or "")) for disk in disks)


def _served(holding: Holding, requests: t.Sequence[WholeDiskRequest], needed: int) -> tuple[int, str]:
    disks = [{"path": path, "size_gb": size_gb, "medium": medium} for path, size_gb, medium in holding]
    if choose_disks(disks, requests) is not None:
        return needed, ""
    fitting = sum(1 for disk in disks if any(request.accepts(disk) for request in requests))
    return (
        min(fitting, needed - 1),
        "whole disks: needs %s, %d of %d free ones will do"
        % (" and ".join(str(request) for request in requests), fitting, len(disks)),
    )
