# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the tests with the markers long and slow, and properties with all of their examples, in turns.

--turn 2/12 selects a twelfth of them, by the hash of their names, and all others; with --turn-all a twelfth of all tests. Of the tests with the
markers postgres and often a third runs. Those with the marker rulebook have no turn: what they need is installed for a run of all tests only.
"""

from __future__ import annotations

import math
import re
import zlib

import pytest

IN_TURNS = ("long", "slow", "hypothesis")
IN_A_THIRD_OF_THE_TURNS = ("postgres", "often")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", metavar="TURN/TURNS", help="of the tests that take long, run one part of TURNS parts")
    parser.addoption("--turn-all", action="store_true", help="likewise of all other tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option = config.getoption("--turn")
    if option is None:
        return
    match = re.fullmatch(r"(\d+)/(\d+)", option)
    if match is None or int(match[2]) == 0:
        raise pytest.UsageError("--turn is %r, not TURN/TURNS, as in 2/12" % option)
    turn, turns = int(match[1]), int(match[2])
    rest = [
        item
        for item in items
        if item.get_closest_marker("rulebook") or (turn - _turn(item, turns)) % _turns_of(config, item, turns)
    ]
    config.hook.pytest_deselected(items=rest)
    left_out = set(rest)
    items[:] = [item for item in items if item not in left_out]


def _turns_of(config: pytest.Config, item: pytest.Item, turns: int) -> int:
    """Return in how many turns the test runs once: 1 where it runs in each."""
    if config.getoption("--turn-all") or any(map(item.get_closest_marker, IN_TURNS)):
        return turns
    return math.gcd(turns, 3) if any(map(item.get_closest_marker, IN_A_THIRD_OF_THE_TURNS)) else 1


def _turn(item: pytest.Item, turns: int) -> int:
    # Not hash(): each worker of pytest-xdist must select the same tests.
    return zlib.crc32(item.nodeid.encode()) % turns
