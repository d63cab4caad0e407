# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ComputeCapabilitiesFilter: what the flavor's extra specs ask of a host's own facts."""

from __future__ import annotations

import json
import typing as t

from ..columns import Fleet, Rows, np
from ..extra_specs_ops import match
from ..host_state import HostState
from ..request_spec import RequestSpec
from .base import Filter, FilterResult

SCOPE = "capabilities"


class ComputeCapabilitiesFilter(Filter):
    """Passes hosts that satisfy ``capabilities:a:b`` specs, and unscoped ones that name a fact of theirs (row D13).

    Other scopes (hw:, quota:, aggregate_instance_extra_specs:...) are not its business.
    """

    name = "ComputeCapabilitiesFilter"
    run_once_per_request = True

    def evaluate(self, fleet: Fleet, spec: RequestSpec, rows: Rows) -> FilterResult:
        wishes = _wishes(spec.flavor.extra_specs)
        reasons: dict[int, str] = {}
        mask = np.ones(len(rows), dtype=bool)
        if wishes:
            for position, row in enumerate(rows):
                reason = _refusal(fleet.host_state(int(row)), wishes)
                if reason is not None:
                    reasons[position] = reason
            mask[list(reasons)] = False
        return FilterResult(mask=mask, text=lambda position: reasons.get(position, ""))


Wish = t.Tuple[str, t.List[str], str]  # the key as written, the path, the requirement


def _wishes(extra_specs: t.Mapping[str, t.Any]) -> list[Wish]:
    wishes: list[Wish] = []
    for key, requirement in extra_specs.items():
        path = key.split(":")
        if key == "hw:maxphysaddr_bits":
            wishes.append((key, ["cpu_info", "maxphysaddr", "bits"], ">= %s" % requirement))
        elif len(path) == 1:
            wishes.append((key, path, str(requirement)))
        elif path[0] == SCOPE:
            wishes.append((key, path[1:], str(requirement)))
    return wishes


def _refusal(host: HostState, wishes: t.Iterable[Wish]) -> str | None:
    for key, path, requirement in wishes:
        if ":" not in key and not hasattr(host, key) and key not in host.stats:
            continue  # an unscoped key that the host knows nothing of is somebody else's
        value = capability(host, path)
        if value is None:
            return "%s: needs %s, the host reports nothing of the kind" % (key, requirement)
        if not match(str(value), requirement):
            return "%s: needs %s, the host has %s" % (key, requirement, value)
    return None


def capability(host: HostState, path: t.Sequence[str]) -> t.Any:
    """Walk from the host over attributes (or its stats), mappings and JSON texts; None where the path ends early."""
    value: t.Any = host
    for name in path:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return None
        if isinstance(value, t.Mapping):
            value = value.get(name)
        elif value is host:
            found = None if name.startswith("_") else getattr(host, name, None)
            value = host.stats.get(name) if found is None else found
        else:
            return None
        if value is None:
            return None
    return value
