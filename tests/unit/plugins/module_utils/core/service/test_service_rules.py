# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a rolling service, as tables."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.service.host_life import (
    BEGUN,
    DONE,
    DRAIN,
    PENDING,
    REPORT,
    RETURN,
    STATES,
    TASKS,
    Verdict,
    verdict,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.service.order import (
    HostInService,
    batches,
    in_order,
    next_batch,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.service.window import Window


@pytest.mark.parametrize(
    ("state", "well", "expected"),
    [
        (DRAIN, True, Verdict(TASKS, False)),
        (DRAIN, False, Verdict(DRAIN, True)),
        (TASKS, True, Verdict(REPORT, False)),
        (TASKS, False, Verdict(TASKS, True)),
        (REPORT, True, Verdict(RETURN, False)),
        (REPORT, False, Verdict(REPORT, True)),
        (RETURN, True, Verdict(DONE, False)),
        (RETURN, False, Verdict(DONE, False)),
    ],
)
def test_what_becomes_of_a_host(state: str, well: bool, expected: Verdict) -> None:
    assert verdict(state, well) == expected


def test_states_without_a_step() -> None:
    assert set(STATES) - set(BEGUN) == {PENDING, DONE}
    for state in (PENDING, DONE, "unknown"):
        with pytest.raises(ValueError, match=state):
            verdict(state, True)


def hosts(*words: str) -> list[HostInService]:
    """Hosts of words as "a1 drain": the zone is the first letter; without a state pending."""
    parts = [(word.split() + [PENDING])[:2] for word in words]
    return [HostInService(name, name[0], state) for name, state in parts]


@pytest.mark.parametrize(
    ("selected", "at_once", "zone_at_once", "expected"),
    [
        ([], 1, 1, []),
        (["a1", "b1", "a2"], 1, 1, [["a1"], ["a2"], ["b1"]]),
        (["a1", "b1", "a2"], 2, 1, [["a1", "b1"], ["a2"]]),
        (["a1", "a2", "b1"], 2, 2, [["a1", "a2"], ["b1"]]),
        (["a1", "a2", "a3", "b1", "c1"], 9, 2, [["a1", "a2", "b1", "c1"], ["a3"]]),
        (["b1", "a1", "b2"], 1, 9, [["b1"], ["b2"], ["a1"]]),
        (["a1 done", "a2", "b1 done"], 1, 1, [["a2"]]),
        (["a1", "a2 report", "b1 drain"], 1, 1, [["a2", "b1"], ["a1"]]),
        (["a1 return", "a2"], 2, 2, [["a1"], ["a2"]]),
    ],
)
def test_batches(selected: list[str], at_once: int, zone_at_once: int, expected: list[list[str]]) -> None:
    planned = batches(hosts(*selected), at_once, zone_at_once)
    assert [[h.name for h in batch] for batch in planned] == expected
    assert next_batch(hosts(*selected), at_once, zone_at_once) == (planned[0] if planned else [])
    assert [h.state == DONE for h in in_order(hosts(*selected))].count(True) == 0


@pytest.mark.parametrize(
    ("seconds", "expected", "longest", "passed", "has_room"),
    [
        (0, 60, 0, 10**9, True),
        (60, 60, 0, 0, True),
        (59, 60, 0, 0, False),
        (100, 60, 0, 40, True),
        (100, 60, 0, 41, False),
        (100, 60, 90, 11, False),
        (100, 60, 30, 40, True),
    ],
)
def test_the_room_of_a_window(seconds: int, expected: int, longest: float, passed: float, has_room: bool) -> None:
    assert Window.begin(1000.0, seconds, expected, longest).has_room(1000.0 + passed) is has_room
