# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operator grammar of extra specs: ``>= 4``, ``s== x86_64``, ``<in> avx``, ``<all-in> a b``, ``<or> a <or> b``.

A requirement that does not begin with an operator is compared as a whole.
"""

from __future__ import annotations

import operator
import typing as t

from ..errors import InvalidInput

NUMBER_OPERATORS: dict[str, t.Callable[[float, float], bool]] = {
    "=": operator.ge,  # for compatibility, as Nova has it: at least
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
TEXT_OPERATORS: dict[str, t.Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
    "<in>": operator.contains,
}
OPERATORS = (*NUMBER_OPERATORS, *TEXT_OPERATORS, "<all-in>", "<or>")


def match(value: str | None, requirement: str) -> bool:
    """Whether a host's ``value`` satisfies a flavor's requirement.

    = == != >= <= compare numbers; a value that is not a number does not satisfy them. An operator takes one
    word (the rest is ignored), <all-in> and <or> take several; without a word nothing satisfies it.
    Raises InvalidInput if the requirement lacks a number.
    """
    words = requirement.split()
    op = words.pop(0) if words else ""
    if op not in OPERATORS:
        return value == requirement
    if value is None or not words:
        return False
    if op == "<or>":
        return value in words[::2]  # every second word is the next <or>
    if op == "<all-in>":
        return all(word in value for word in words)
    if op in TEXT_OPERATORS:
        return TEXT_OPERATORS[op](value, words[0])
    wanted = _number(words[0], requirement)
    try:
        return NUMBER_OPERATORS[op](float(value), wanted)
    except ValueError:
        return False


def check(requirement: str) -> None:
    """Raises InvalidInput if the requirement has no number where its operator compares numbers."""
    words = requirement.split()
    if len(words) > 1 and words[0] in NUMBER_OPERATORS:
        _number(words[1], requirement)


def _number(word: str, requirement: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(
            reason="%r in the requirement %r is not a number" % (word, requirement),
            remedy="Correct the flavor's extra_specs; text is compared by s==, s!=, s<, s<=, s>, s>=.",
        ) from None
