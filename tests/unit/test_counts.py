# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/architecture.md has the counts of the tree as it is: scripts/counts.py --write."""

from __future__ import annotations

import importlib.util
import re
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CLOSE = 0.05  # the page says some thousand lines: it is true within this part of them


@pytest.fixture(scope="module")
def counts() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("counts", ROOT / "scripts" / "counts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_a_place_for_the_counts(counts: types.ModuleType) -> None:
    assert PAGE.count(counts.BEGIN) == PAGE.count(counts.END) == 1
    assert PAGE.index(counts.BEGIN) < PAGE.index(counts.END)


def test_the_files_of_rooms_are_those_of_the_tree(counts: types.ModuleType) -> None:
    assert counts.rooms_table() in PAGE, "run scripts/counts.py --write"
    rooms = counts.rooms()
    there = [p for p in (ROOT / "plugins" / "module_utils" / "core" / "errors").glob("*.py") if p.stat().st_size]
    assert rooms["core"]["errors"] == len(there)
    assert set(counts.FLOORS) < set(rooms)


def test_the_page_describes_each_room(counts: types.ModuleType) -> None:
    described: dict[str, set[str]] = {}
    floor = ""
    for first, second in re.findall(r"^\| (\w*) ?\| ((?:`\w+/`(?:, )?)+) \|", PAGE, re.MULTILINE):
        floor = first or floor
        described.setdefault(floor, set()).update(re.findall(r"`(\w+)/`", second))
    rooms = {floor: set(rooms) - {""} for floor, rooms in counts.rooms().items()}
    assert described == {floor: names for floor, names in rooms.items() if names}


def test_the_lines_are_close_to_those_of_the_tree(counts: types.ModuleType) -> None:
    found = re.search(r"some (\d+),000 lines", PAGE)
    assert found is not None
    stated, counted = int(found.group(1)) * 1000, counts.lines()
    assert abs(stated - counted) <= CLOSE * counted, "run scripts/counts.py --write"


def test_the_most_complex_function_is_that_of_the_tree(counts: types.ModuleType) -> None:
    pytest.importorskip("ruff")
    assert counts.complexity_line() in PAGE, "run scripts/counts.py --write"


@pytest.mark.slow
def test_the_files_of_a_boot_are_close_to_those_of_a_traced_one(counts: types.ModuleType) -> None:
    found = re.search(r"executes (\d+) files on the controller", PAGE)
    assert found is not None
    counted = counts.files_of_boot()
    assert {"action", "core", "flows", "ledger", "plugin_utils"} <= set(counted)
    assert abs(int(found.group(1)) - sum(counted.values())) <= CLOSE * sum(counted.values()), (
        "run scripts/counts.py --write"
    )


def test_each_change_of_the_script_is_on_the_page(counts: types.ModuleType) -> None:
    for change, commit in counts.COMMITS:
        row = re.search(r"^\| %s \| %s \| (\d+) \|$" % (re.escape(change), commit), PAGE, re.MULTILINE)
        assert row is not None, change
        counted = counts.files_of(commit)
        assert counted in (None, int(row.group(1))), change
