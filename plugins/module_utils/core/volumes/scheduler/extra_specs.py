# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check of a capability against a volume type's extra spec. source: Cinder's extra_specs_ops (Queens)

Cinder's grammar is the grammar of flavors (core.reading.extra_specs_ops) with <is> for booleans and without <all-in>; an invalid
number satisfies nothing instead of being an error. Capabilities keep their types: only <is> accepts True for "True", and
<in> tests the members of a list or mapping. Where Cinder raises an exception (s< of a number, <in> of a boolean, <or>
without a word) nothing is satisfied.
"""

from __future__ import annotations

import typing as t

from ...errors import InvalidInput
from ...reading import extra_specs_ops as shared

_TRUE_WORDS = frozenset(("1", "t", "true", "on", "y", "yes"))


def match(value: t.Any, requirement: str | None) -> bool:
    """Whether a capability (``value``: text, number or boolean) satisfies the requirement."""
    if requirement is None:
        return value is None
    words = requirement.split()
    op = words[0] if words else ""
    if op == "<is>":
        return value is not None and len(words) > 1 and _truth(value) is _truth(words[1])
    if op == "<all-in>" or op not in shared.OPERATORS:
        return bool(value == requirement)
    if isinstance(value, str) or value is None:
        return _shared(value, requirement)
    if op == "<in>" and isinstance(value, (list, tuple, t.Mapping)):
        return len(words) > 1 and words[1] in value
    if op in shared.NUMBER_OPERATORS and isinstance(value, (bool, int, float)):
        return _shared(repr(int(value) if isinstance(value, bool) else value), requirement)
    return op == "s!=" and len(words) > 1


def _shared(value: str | None, requirement: str) -> bool:
    try:
        return shared.match(value, requirement)
    except InvalidInput:
        return False


def _truth(value: t.Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in _TRUE_WORDS


def satisfies(
    capabilities: t.Mapping[str, t.Any], extra_specs: t.Mapping[str, t.Any]
) -> tuple[str, t.Any, t.Any] | None:
    """Return None if all extra specs about capabilities are met, else (key, requirement, capability) of the first that is not.

    These are the keys without a scope and the keys of the scope ``capabilities:``, which may lead down into mappings. One of
    a list of capabilities has to match.
    """
    for key, requirement in extra_specs.items():
        scope = key.split(":")
        if len(scope) > 1 and scope[0] != "capabilities":
            continue
        if scope[0] == "capabilities":
            del scope[0]
        capability: t.Any = capabilities
        for part in scope:
            if not isinstance(capability, t.Mapping) or part not in capability:
                return key, requirement, None
            capability = capability[part]
        wanted = None if requirement is None else str(requirement)
        if not any(match(one, wanted) for one in (capability if isinstance(capability, list) else [capability])):
            return key, requirement, capability
    return None
