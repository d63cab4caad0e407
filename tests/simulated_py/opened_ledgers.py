# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notes of the ledgers that tasks of simulated hosts open, and of the functions that opened them."""

from __future__ import annotations

import fcntl
import functools
import json
import sys
import typing as t
from pathlib import Path

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database

NOTES = "opened-ledgers"
PLUGINS = Path(database.__file__).parents[2]
#: What opens a ledger for others.
OPENERS = ("plugin_utils/run/ledger_action.py",)

opened_by_collection = database.open_ledger
_task: dict[str, t.Any] = {}


def note(host: str, folder: str) -> None:
    """Note each ledger that this process, which has a task of ``host``, opens from now on. :arg folder: of the notes"""
    _task.update(host=host, path=Path(folder) / NOTES)
    database.open_ledger = _noted


def read(folder: Path) -> list[tuple[str, list[str]]]:
    """Return (host, the functions that opened a ledger, as "FILE FUNCTION" below plugins/, innermost first) of each note."""
    path = folder / NOTES
    lines = path.read_text().splitlines() if path.exists() else []
    return [(note["host"], note["functions"]) for note in map(json.loads, lines)]


@functools.wraps(opened_by_collection)
def _noted(*arguments: t.Any, **named: t.Any) -> t.Any:
    line = json.dumps({"host": _task["host"], "functions": _functions()})
    with open(_task["path"], "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line + "\n")
    return opened_by_collection(*arguments, **named)


def _functions() -> list[str]:
    """Return the functions of the collection that are being executed."""
    functions, frame = [], sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if PLUGINS in path.parents:
            name = path.relative_to(PLUGINS).as_posix()
            if name not in OPENERS:
                functions.append("%s %s" % (name, frame.f_code.co_name))
        frame = frame.f_back
    return functions
