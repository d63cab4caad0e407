# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the tests in turns: CI has an hour, and all of them take many.

--turn 2/36 selects a twelfth of the tests with the markers long and slow, and of the properties with all of their examples, by the hash of their
names; of the long ones on emulated machines a thirty-sixth. Of the tests on PostgreSQL, on simulated hosts and on the lab's a quarter runs, and of the
others on emulated machines the tests of a quarter of the files, since the machines of a file take longer than its tests. Tests with the marker always
run in each turn. --turn-all selects a thirty-sixth of all tests. Tests with the marker rulebook have no turn: what they need is installed for a run
of all tests only.
"""

from __future__ import annotations

import math
import re
import zlib

import pytest

IN_TURNS = ("long", "slow", "hypothesis")
A_QUARTER, A_TWELFTH = 4, 12
FOLDERS_OF_A_QUARTER = ("integration_py", "simulated_py")
FOLDERS_OF_MACHINES = ("storage_py", "confined_py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn", metavar="TURN/TURNS", help="of the tests that have turns, run one part of TURNS parts, or none"
    )
    parser.addoption("--turn-all", action="store_true", help="likewise of all other tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option = config.getoption("--turn")
    if option is None:
        return
    turn, turns = _turn(option)
    all_in_turns = config.getoption("--turn-all")
    rest = [
        item for item in items if item.get_closest_marker("rulebook") or not _has_turn(item, turn, turns, all_in_turns)
    ]
    config.hook.pytest_deselected(items=rest)
    left_out = set(rest)
    items[:] = [item for item in items if item not in left_out]


def _turn(option: str) -> tuple[int | None, int]:
    if option == "none":
        return None, 1
    match = re.fullmatch(r"(\d+)/(\d+)", option)
    if match is None or int(match[2]) == 0:
        raise pytest.UsageError("--turn is %r, not none or TURN/TURNS, as in 2/36" % option)
    return int(match[1]), int(match[2])


def _has_turn(item: pytest.Item, turn: int | None, turns: int, all_in_turns: bool) -> bool:
    if all_in_turns:
        return _is_turn_of(item.nodeid, turn, turns)
    if any(map(item.get_closest_marker, IN_TURNS)):
        of_machines = item.path.parent.name in FOLDERS_OF_MACHINES
        return _is_turn_of(item.nodeid, turn, turns if of_machines else math.gcd(turns, A_TWELFTH))
    if item.get_closest_marker("always"):
        return True
    folder = item.path.parent.name
    if item.get_closest_marker("postgres") or folder in FOLDERS_OF_A_QUARTER:
        name = item.nodeid
    elif folder in FOLDERS_OF_MACHINES:
        name = item.path.name
    else:
        return True
    return _is_turn_of(name, turn, math.gcd(turns, A_QUARTER))


def _is_turn_of(name: str, turn: int | None, parts: int) -> bool:
    return turn is not None and (turn - _hash(name)) % parts == 0


def _hash(name: str) -> int:
    # Not hash(): each worker of pytest-xdist must select the same tests.
    return zlib.crc32(name.encode())
