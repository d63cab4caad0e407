# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Host aggregates: named sets of hosts with metadata. A host may be in several."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of the inventory (bootflow_aggregates). Keys and values of its metadata are free text."""

    name: str
    hosts: frozenset[str] = frozenset()  # inventory names
    metadata: t.Mapping[str, str] = field(default_factory=dict, hash=False)


class Membership:
    """The aggregates of a host, as filters and weighers read them."""

    def __init__(self, aggregates: t.Iterable[Aggregate] = ()):
        self.aggregates = tuple(aggregates)

    @property
    def names(self) -> str:
        """For messages: the names with commas, or "none"."""
        return ", ".join(a.name for a in self.aggregates) or "none"

    def values(self, key: str) -> frozenset[str]:
        """The values of a metadata key as written, from all aggregates that have it."""
        return frozenset(str(a.metadata[key]) for a in self.aggregates if key in a.metadata)

    @cached_property
    def metadata(self) -> dict[str, frozenset[str]]:
        """All metadata keys with the entries of their comma lists, over all aggregates."""
        values_by_key: dict[str, set[str]] = {}
        for aggregate in self.aggregates:
            for key, value in aggregate.metadata.items():
                values_by_key.setdefault(key, set()).update(entry.strip() for entry in str(value).split(","))
        return {key: frozenset(entries) for key, entries in values_by_key.items()}

    def entries(self, key: str) -> frozenset[str]:
        """The entries of the comma lists of one metadata key; empty where no aggregate has it."""
        return self.metadata.get(key, frozenset())

    def minimum(self, key: str, cast: t.Callable[[str], float] = float) -> float | None:
        """The least value of a metadata key; None (the host's own value applies) if no aggregate has it or a value is not a number.

        A comma list is not a number.
        """
        try:
            numbers = [cast(value) for value in self.values(key)]
            return min(numbers) if numbers and all(math.isfinite(n) for n in numbers) else None
        except (ValueError, OverflowError):
            return None
