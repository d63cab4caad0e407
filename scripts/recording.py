#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes docs/images/demo.svg from docs/images/demo.cast: a recording of scripts/demo as a picture that moves, without scripts.

With --record it first runs the demo in a terminal and writes the recording (asciicast v2), as root on a machine of which nothing is to stay secret: the
folder of the clone, the home and the names of the machine and the user are replaced, all else is as printed. With --check nothing is written: the exit
code is 1 if the picture is not the one of the recording.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import getpass
import json
import os
import platform
import pty
import re
import struct
import sys
import termios
import time
import typing as t
from html import escape
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[1]
CAST, PICTURE = ROOT / "docs" / "images" / "demo.cast", ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 132, 38
TITLE = "scripts/demo boots two guests"
UNTIL = "Look closer"  # the demo ends with advice, which is to be copied: no picture

# --- the picture ---
CELL, LINE, MARGIN = 8.4, 18, 14  # width and height of a character with a font of 14 px, and the room around the screen
LONGEST, SHORTEST = 1.6, 0.12  # seconds that a screen stays: a wait is shortened, quick lines come together
AT_THE_END = 7.0  # seconds of the last screen

STYLE = """\
.page { fill: #ffffff; stroke: #d0d7de; }
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; fill: #1f2328; white-space: pre; }
.bold { font-weight: bold; }
.red { fill: #b3261e; } .green { fill: #116329; } .brown { fill: #7d4e00; } .blue { fill: #0550ae; } .magenta { fill: #8250df; } .cyan { fill: #1b6e7a; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #30363d; }
  text { fill: #e6edf3; }
  .red { fill: #ff7b72; } .green { fill: #56d364; } .brown { fill: #e3b341; } .blue { fill: #79c0ff; } .magenta { fill: #d2a8ff; } .cyan { fill: #76e3ea; }
}
"""


class Piece(t.NamedTuple):
    """Characters of a line that look the same. ``look``: classes of the style sheet."""

    column: int
    text: str
    look: str


Row = t.Tuple[Piece, ...]
Screen = t.Tuple[Row, ...]


# --- record ---


def record() -> str:
    """Run the demo in a terminal of its own; return the recording. :raises SystemExit: the demo failed"""
    names = {str(ROOT): "~/bootflow", str(Path.home()): "~", platform.node(): "kvm1"}
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.environ["TERM"] = "xterm-256color"
        os.execv(str(ROOT / "scripts" / "demo"), ["scripts/demo"])
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    began, printed, events = time.monotonic(), "", [(0.0, "\x1b[1m$ scripts/demo\x1b[0m\r\n")]
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the demo has ended
            break
        printed += decoder.decode(data)
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        # A name that is to be replaced may be cut by the end of what was read: whole lines only.
        whole, newline, printed = printed.rpartition("\n")
        if newline:
            events.append((time.monotonic() - began, without(whole + newline, names)))
    if printed:
        events.append((time.monotonic() - began, without(printed, names)))
    _process, status = os.waitpid(process, 0)
    if status:
        sys.exit("scripts/demo failed: no recording was written")
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": TITLE}
    lines = [json.dumps(head), *(json.dumps([round(at, 3), "o", text]) for at, text in events)]
    return "\n".join(lines) + "\n"


def without(text: str, names: t.Mapping[str, str]) -> str:
    """The text with other names for the folders and the machine. :raises SystemExit: it has the name of the user who records"""
    for name, other in names.items():
        text = text.replace(name, other)
    user = getpass.getuser()
    if user != "root" and re.search(r"\b%s\b" % re.escape(user), text):
        sys.exit("the demo prints the name of the user: %s" % text)
    return text


# --- draw ---


def screens(cast: str) -> list[tuple[float, Screen]]:
    """The screens of a recording, each with the seconds that it stays in the picture."""
    head, *lines = cast.splitlines()
    size = json.loads(head)
    screen = pyte.Screen(size["width"], size["height"])
    stream = pyte.Stream(screen)
    found: list[tuple[float, Screen]] = []
    waited, last = 0.0, 0.0
    for line in lines:
        at, _kind, text = json.loads(line)
        if text.lstrip().startswith(UNTIL):
            break
        waited += min(at - last, LONGEST)
        last = at
        # What scrolls by in one piece is shown in parts, so that it can be read.
        for part in parts(text, size["height"] // 2):
            stream.feed(part)
            now = tuple(row(screen.buffer[number], size["width"]) for number in range(size["height"]))
            if found and (waited < SHORTEST or now == found[-1][1]):
                found[-1] = (found[-1][0], now)
            else:
                if found:
                    found[-1] = (waited, found[-1][1])
                found.append((0.0, now))
                waited = 0.0
            if part is not text:
                waited = max(waited, LONGEST / 2)
    found[-1] = (AT_THE_END, found[-1][1])
    return found


def parts(text: str, lines: int) -> list[str]:
    """The text, in parts of so many lines where it has more."""
    whole = text.splitlines(keepends=True)
    if len(whole) <= lines:
        return [text]
    return ["".join(whole[begin : begin + lines]) for begin in range(0, len(whole), lines)]


def row(cells: t.Mapping[int, t.Any], width: int) -> Row:
    """A line of the screen in pieces, without the spaces at its end."""
    found: list[Piece] = []
    for column in range(width):
        cell = cells[column]
        look = " ".join(filter(None, ("bold" if cell.bold else "", "" if cell.fg == "default" else colour(cell.fg))))
        if found and found[-1].look == look:
            found[-1] = found[-1]._replace(text=found[-1].text + cell.data)
        else:
            found.append(Piece(column, cell.data, look))
    stripped = [piece._replace(text=piece.text.rstrip()) for piece in found]
    return tuple(piece for piece in stripped if piece.text)


def colour(name: str) -> str:
    """pyte's name of a colour as a class: bright ones are as the others."""
    return name.replace("bright", "")


def picture(cast: str) -> str:
    """The recording as SVG: all screens below each other, of which a window shows one at a time."""
    shown = screens(cast)
    size = json.loads(cast.partition("\n")[0])
    width, height = round(size["width"] * CELL + 2 * MARGIN), size["height"] * LINE + 2 * MARGIN
    rows = sorted({row for _seconds, screen in shown for row in screen if row})
    names = {row: "r%d" % number for number, row in enumerate(rows)}
    inner = height - 2 * MARGIN
    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">\n'
        % (
            *(width, height),
            *(width, height),
        )
    )
    text += '<title id="title">%s</title>\n<desc id="desc">%s</desc>\n' % (escape(size["title"]), escape(words(cast)))
    text += "<style>\n%s%s</style>\n<defs>\n" % (STYLE, motion([seconds for seconds, _screen in shown], inner))
    for line, name in names.items():
        text += '<g id="%s">%s</g>\n' % (name, "".join(map(drawn, line)))
    text += '</defs>\n<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>\n' % (width - 1, height - 1)
    text += '<svg x="%d" y="%d" width="%d" height="%d" overflow="hidden">\n<g class="film">\n' % (
        *(MARGIN, MARGIN),
        *(width - 2 * MARGIN, inner),
    )
    for number, (_seconds, screen) in enumerate(shown):
        for place, line in enumerate(screen):
            if line:
                text += '<use href="#%s" y="%d"/>' % (names[line], number * inner + place * LINE)
        text += "\n"
    return text + "</g>\n</svg>\n</svg>\n"


def drawn(piece: Piece) -> str:
    look = ' class="%s"' % piece.look if piece.look else ""
    # The length keeps columns below each other with any font.
    return '<text x="%.1f" y="14" textLength="%.1f"%s>%s</text>' % (
        piece.column * CELL,
        len(piece.text) * CELL,
        look,
        escape(piece.text, quote=False).replace(" ", "\u00a0"),
    )


def motion(seconds: t.Sequence[float], height: int) -> str:
    """The style of what moves. Who wants no motion sees the last screen."""
    whole, last = sum(seconds), -(len(seconds) - 1) * height
    text, at = "@keyframes film {\n", 0.0
    for number, time_ in enumerate(seconds):
        text += "  %.3f%% { transform: translateY(%dpx); }\n" % (at / whole * 100, -number * height)
        at += time_
    text += "  100%% { transform: translateY(%dpx); }\n}\n" % last
    text += ".film { transform: translateY(%dpx); animation: film %.1fs step-end infinite; }\n" % (last, whole)
    return text + "@media (prefers-reduced-motion: reduce) { .film { animation: none; } }\n"


def words(cast: str) -> str:
    """The recording for those who do not see it: the steps and the commands in their order."""
    printed = "".join(json.loads(line)[2] for line in cast.splitlines()[1:])
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed).splitlines()
    steps = [line.removeprefix("==> ").rstrip(".") for line in lines if line.startswith(("$ ", "==> "))]
    return "A terminal. %s." % ". ".join(steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the demo first, and record it")
    parser.add_argument("--check", action="store_true", help="compare only")
    chosen = parser.parse_args()
    if chosen.record:
        CAST.write_text(record())
    svg = picture(CAST.read_text())
    if chosen.check:
        sys.exit(svg != PICTURE.read_text())
    PICTURE.write_text(svg)
