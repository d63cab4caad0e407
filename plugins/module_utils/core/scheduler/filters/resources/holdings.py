# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common part of PciPassthroughFilter and WholeDiskFilter: devices that a host has or lacks, one by one."""

from __future__ import annotations

import typing as t

from ...columns import Rows, np
from ..base import FilterResult

H = t.TypeVar("H", bound=t.Hashable)


def holdings_result(
    rows: Rows,
    needed: int,
    holding: t.Callable[[int], H],
    served: t.Callable[[H], tuple[int, str]],
    unit: str,
) -> FilterResult:
    """Passes if ``served`` gives no reason; passes all hosts if nothing is needed.

    :arg holding: what the host at a row has; hosts with equal holdings are asked once.
    :arg served: how many of the ``needed`` things a holding serves, and why that is not enough ("": it is).
    """
    if not needed:
        return FilterResult(mask=np.ones(np.shape(rows), dtype=bool))
    known: dict[H, tuple[int, str]] = {}
    answers = []
    for row in np.atleast_1d(rows).tolist():
        have = holding(row)
        if have not in known:
            known[have] = served(have)
        answers.append(known[have])
    mask = np.array([not reason for dummy, reason in answers], dtype=bool).reshape(np.shape(rows))
    available = np.array([number for number, dummy in answers], dtype=np.int64).reshape(np.shape(rows))
    return FilterResult(
        mask=mask, available=available, needed=needed, unit=unit, text=lambda position: answers[position][1]
    )
