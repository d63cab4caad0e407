# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines at the bottom of a terminal that are written again while they change; all other output stands above them."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import typing as t

from ansible import constants

from ...module_utils.core.progress_lines import parse_progress_line

ERASE = "\x1b[%dF\x1b[J"  # from the beginning of the line that is so many lines above
DUMB = ("", "dumb")  # values of TERM


class Display(t.Protocol):
    """The part of Ansible's Display that the board stands before."""

    display: t.Callable[..., None]


def is_usable(stream: t.Any) -> bool:
    """Whether lines can be written again: a terminal that knows escapes, unless ANSIBLE_NOCOLOR or NO_COLOR says that none are wanted."""
    return bool(stream.isatty()) and not constants.ANSIBLE_NOCOLOR and os.environ.get("TERM", "") not in DUMB


class Board:
    """Lines that are not over, at the bottom of the terminal.

    Ansible prints all with one function, also for its workers: the board takes its place in the main process, erases its lines before anything
    is printed, and writes them again after it. Lines of progress are not printed: the newest of each subject is a line of the board.
    """

    def __init__(self, display: Display, stream: t.Any = None):
        self._stream = stream or sys.stdout
        self._print = display.display
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._lines: dict[str, str] = {}
        self._progress: dict[str, str] = {}  # by subject
        self._drawn = 0
        display.display = self._display

    def set_lines(self, lines: t.Mapping[str, str]) -> None:
        """Replace the lines of instances. :arg lines: by any key"""
        with self._lock:
            self._erase()
            self._lines = dict(lines)
            self._draw()

    def end_progress(self) -> None:
        """Remove the lines of progress: their task is over."""
        with self._lock:
            self._erase()
            self._progress.clear()
            self._draw()

    def _display(self, msg: str, *args: t.Any, **options: t.Any) -> None:
        if os.getpid() != self._process:  # a worker, whose output comes to the main process
            self._print(msg, *args, **options)
            return
        progress = parse_progress_line(msg)
        with self._lock:
            self._erase()
            if progress is not None and progress[1] < 100:
                self._progress[progress[0]] = msg
            else:
                self._progress.pop(progress[0] if progress else "", None)
                self._print(msg, *args, **options)
            if options.get("newline", True):
                self._draw()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(ERASE % self._drawn)
            self._stream.flush()
            self._drawn = 0

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        room = max(1, size.lines // 2)
        lines = [*self._lines.values(), *self._progress.values()]
        if len(lines) > room:
            lines = [*lines[: room - 1], "... and %d more" % (len(lines) - room + 1)]
        if lines:
            self._stream.write("".join(line[: max(1, size.columns - 1)] + "\n" for line in lines))
            self._stream.flush()
            self._drawn = len(lines)
