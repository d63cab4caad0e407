# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress of live migrations, while the task waits for them: into the ledger every few seconds, and to the person now and then.

The host's module writes it into a file, which is read meanwhile. What cannot be read or written is tried again: nothing depends on it.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import typing as t
from dataclasses import dataclass

from ...module_utils.core.answers.outcomes import PROGRESS
from ...module_utils.core.answers.shapes import Misshapen
from ...module_utils.core.instances.progress import Progress, remaining
from ...module_utils.core.legible import legible
from ...module_utils.core.progress_lines import Pace, Speed, progress_line
from ...module_utils.ledger import database
from ...module_utils.ledger.compute import moves as ledger_moves
from ..run import tables, time_limits
from ..run.ledger_action import LedgerAction

PAUSE = 3.0  # seconds between two looks
LARGEST = 1024**2  # characters of the file


@dataclass(frozen=True)
class Leaving:
    """A guest that leaves the host."""

    uuid: str
    name: str
    source: str
    destination: str
    memory_mb: int


def read(text: str) -> dict[str, Progress]:
    """Return the progress in the host's file, by uuid. Nonsense in it is left out."""
    try:
        progress_of_guests = json.loads(text) if len(text) <= LARGEST else {}
        PROGRESS(progress_of_guests, "progress")
    except (ValueError, RecursionError, Misshapen):
        return {}
    return {
        uuid: Progress(**{n: fields[n] for n in Progress.__dataclass_fields__})
        for uuid, fields in progress_of_guests.items()
    }


class Teller:
    """Progress that was last written and printed of each guest."""

    def __init__(self, leaving: t.Sequence[Leaving]):
        self.leaving = {guest.uuid: guest for guest in leaving}
        self.begun: dict[str, float] = {}
        self.paces: dict[str, Pace] = {}
        self.speeds: dict[str, Speed] = {}
        self.written_progress: dict[str, tuple[int, Progress]] = {}

    def news(self, progress: t.Mapping[str, Progress]) -> dict[str, tuple[int, Progress]]:
        """Return the progress that the ledger does not have yet: uuid -> per cent and bytes, of guests that are to leave this host."""
        current = {u: (p.percent(self.leaving[u].memory_mb), p) for u, p in progress.items() if u in self.leaving}
        return {u: entry for u, entry in current.items() if self.written_progress.get(u) != entry}

    def lines(self, changes: t.Mapping[str, tuple[int, Progress]], now: float) -> list[str]:
        """For the person. :arg now: in seconds"""
        lines = []
        for uuid, (percent, progress) in changes.items():
            begun = self.begun.setdefault(uuid, now)
            if not self.paces.setdefault(uuid, Pace()).is_due(percent, now):
                continue
            guest = self.leaving[uuid]
            sent = progress.memory_processed + progress.disk_processed
            rate = self.speeds.setdefault(uuid, Speed()).since_last(sent, now)
            subject = "live_migrate: %s from %s to %s" % (guest.name, guest.source, guest.destination)
            lines.append(progress_line(subject, percent, now - begun, remaining(vars(progress)), rate))
        return lines


@contextlib.contextmanager
def watched(action: LedgerAction, path: str, leaving: t.Sequence[Leaving], to_person: bool) -> t.Iterator[None]:
    """Follow the file at ``path`` of the current host in the block. :arg to_person: print it, too"""
    over = threading.Event()
    teller = Teller(leaving)
    host = action.ports.open_own_connection()
    context = action.context()

    def look() -> None:
        news = teller.news(read(host.output(["cat", "--", path])))
        if not news:
            return
        ledger = database.open_ledger(action.options["ledger_url"], check_revision=False)
        try:
            ledger.for_run(context).transact(ledger_moves.set_progress, news)
        finally:
            ledger.close()
        teller.written_progress.update(news)
        for line in teller.lines(news, time.monotonic()) if to_person else ():
            tables.say(action._display, legible(line))

    def poll_progress() -> None:
        while not over.wait(PAUSE):
            with contextlib.suppress(Exception):  # the next look tries again
                look()

    before = time_limits.children()
    thread = threading.Thread(target=poll_progress, daemon=True, name="bootflow-live-progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PAUSE)
        if thread.is_alive():  # the host does not answer
            time_limits.end(time_limits.children() - before)
