# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines about work that takes minutes."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.progress_lines import (
    Pace,
    Speed,
    parse_progress_line,
    progress_line,
)


@pytest.mark.parametrize(
    ("left", "rate", "end"),
    [
        ("", 0.0, ""),
        ("", 5.0, ""),
        ("1 of 2 MiB", 0.0, " (left: 1 of 2 MiB)"),
        ("1 of 2 MiB", 2.5 * 1024**2, " (left: 1 of 2 MiB, 2.5 MiB/s)"),
    ],
)
def test_a_line_and_what_is_read_of_it(left: str, rate: float, end: str) -> None:
    line = progress_line("live_migrate: web from a to b", 40, 12.9, left, rate)
    assert line == "live_migrate: web from a to b: 40 % after 12 s" + end
    assert parse_progress_line(line) == ("live_migrate: web from a to b", 40)


@pytest.mark.parametrize(
    "text", ["", "web-1: ACTIVE after 3 s", "a: 40 % after 12 s, and more", "a: 40 % after 1 s\nb"]
)
def test_other_texts(text: str) -> None:
    assert parse_progress_line(text) is None


def test_a_line_is_due_at_each_tenth_and_once_a_minute() -> None:
    pace = Pace()
    assert [pace.is_due(*at) for at in ((50, 100), (59, 103), (48, 106), (60, 112), (60, 150), (60, 172))] == [
        True, False, False, True, False, True,
    ]  # fmt: skip


def test_bytes_a_second() -> None:
    speed = Speed()
    assert [speed.since_last(*at) for at in ((100, 1.0), (300, 3.0), (300, 3.0), (200, 4.0), (250, 5.0))] == [
        0.0, 100.0, 0.0, 0.0, 50.0,
    ]  # fmt: skip
