# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables of what becomes of instances: a row for each combination of answers, with Nova's outcome beside it."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.answer import Answer, silence

FAILED = errors.LibvirtError(reason="x").as_dict()
RUNNING = {"power_state": states.RUNNING}
ANY = "*"


def said(word: str, host: str, answer: Answer, failed: Answer | None = None) -> Answer:
    """Return what a host answers in a stage, for a word of a table. :arg failed: with an error"""
    return {"answer": answer, "error": failed or {"error": FAILED}, "silence": silence(host)}[word]


def rows_of(table: str) -> list[tuple[list[str], str, str]]:
    """Return the rows of a table: the words of its stages, what comes of the instance, and Nova's outcome."""
    found = []
    for line in filter(None, map(str.strip, table.splitlines())):
        stages, outcome, nova = (part.strip() for part in line.split("|"))
        assert nova, "each row says what Nova does: %s" % line
        found.append((stages.split(), outcome, nova))
    return found


def expanded(table: str, words: t.Sequence[t.Sequence[str]]) -> dict[tuple[str, ...], str]:
    """Return the outcome of each combination. A row may say ``*`` for a stage that decides nothing, and a/b for two words.

    :arg words: of each stage. Exactly one row has each combination.
    """
    rows = rows_of(table)
    used: set[int] = set()
    found: dict[tuple[str, ...], str] = {}
    for combination in itertools.product(*words):
        matching = [n for n, (stages, _outcome, _nova) in enumerate(rows) if _is_of(stages, combination)]
        assert len(matching) == 1, (combination, [rows[n] for n in matching])
        used.update(matching)
        found[combination] = rows[matching[0]][1]
    assert len(used) == len(rows), "each row has a combination"
    return found


def _is_of(stages: t.Sequence[str], combination: t.Sequence[str]) -> bool:
    assert len(stages) == len(combination), stages
    return all(stage == ANY or word in stage.split("/") for stage, word in zip(stages, combination))
