# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers common to many filters."""

from __future__ import annotations

import typing as t

from ..columns import Groups, Rows, np
from .base import FilterResult
from .capacity import at


def pass_all(rows: Rows) -> FilterResult:
    """Every one of ``rows`` passes."""
    return FilterResult(mask=np.ones(np.shape(rows), dtype=bool))


def by_group(groups: Groups, refusals: t.Sequence[str | None], rows: Rows) -> FilterResult:
    """The answer for ``rows`` from one refusal (None: passes) for each group of hosts."""
    mask = np.array([refusal is None for refusal in refusals], dtype=bool)[groups.codes[rows]]
    return FilterResult(mask=mask, text=lambda position: refusals[groups.codes[at(rows, position)]] or "")
