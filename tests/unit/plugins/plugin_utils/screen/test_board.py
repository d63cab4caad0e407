# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines at the bottom of a terminal."""

from __future__ import annotations

import io
import os
import typing as t

import pytest
from ansible import constants

from ansible_collections.bootflow.compute.plugins.plugin_utils.screen import board
from ansible_collections.bootflow.compute.plugins.plugin_utils.screen.board import Board, is_usable

UP = board.ERASE
PROGRESS = "kvm1: copying image d: %d %% after 9 s (left: 1 of 2 MiB)"


class Screen(io.StringIO):
    """A terminal, and Ansible's function that prints on it."""

    def display(self, msg: str, color: str | None = None, newline: bool = True) -> None:
        self.write(msg + ("\n" if newline else ""))

    def isatty(self) -> bool:
        return True

    def new(self) -> str:
        """Return what was written since the last call."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "8")
    return Screen()


def test_what_is_printed_stands_above_the_lines(screen: Screen) -> None:
    made = Board(screen, screen)
    made.set_lines({"u1": "web-1", "u2": "web-2"})
    assert screen.new() == "web-1\nweb-2\n"
    screen.display("hello", color="red")
    assert screen.new() == UP % 2 + "hello\nweb-1\nweb-2\n"
    made.set_lines({})
    assert screen.new() == UP % 2
    screen.display("plain")
    assert screen.new() == "plain\n"


def test_a_prompt_keeps_its_line(screen: Screen) -> None:
    Board(screen, screen).set_lines({"u1": "web-1"})
    screen.new()
    screen.display("Password: ", newline=False)
    assert screen.new() == UP % 1 + "Password: "


def test_lines_do_not_wrap_and_leave_half_of_the_screen(screen: Screen) -> None:
    Board(screen, screen).set_lines({str(number): "x" * 100 for number in range(9)})
    lines = screen.new().splitlines()
    assert lines == ["x" * 59] * 3 + ["... and 6 more"]


def test_the_newest_line_of_progress_stands_below(screen: Screen) -> None:
    made = Board(screen, screen)
    screen.display(PROGRESS % 40)
    assert screen.new() == PROGRESS % 40 + "\n"
    screen.display(PROGRESS % 50)
    assert screen.new() == UP % 1 + PROGRESS % 50 + "\n"
    screen.display("hello")
    assert screen.new() == UP % 1 + "hello\n" + PROGRESS % 50 + "\n"
    screen.display(PROGRESS % 100)
    screen.display("hello")
    assert screen.new() == UP % 1 + PROGRESS % 100 + "\nhello\n"
    screen.display(PROGRESS % 10)
    screen.new()
    made.end_progress()
    assert screen.new() == UP % 1


def test_workers_print_as_before(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    Board(screen, screen).set_lines({"u1": "web-1"})
    screen.new()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    screen.display(PROGRESS % 40)
    assert screen.new() == PROGRESS % 40 + "\n"


@pytest.mark.parametrize(
    ("terminal", "no_color", "term", "usable"),
    [(True, False, "xterm", True), (False, False, "xterm", False), (True, True, "xterm", False), (True, False, "dumb", False)],
)  # fmt: skip
def test_where_lines_can_be_written_again(
    terminal: bool, no_color: bool, term: str, usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(constants, "ANSIBLE_NOCOLOR", no_color)
    stream: t.Any = Screen() if terminal else io.StringIO()
    assert is_usable(stream) is usable
