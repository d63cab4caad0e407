# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Listeners on compute hosts: one connection each, in one process, which is kept up for as long as it takes.

A listener reports an event as it happens. Before anything follows from it the host reports the state of the guest, and the
moment before that question is the time of the answer: only the controller's clock counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import subprocess
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ...module_utils.core import errors
from ...module_utils.core.answers import lifecycle
from ...module_utils.core.answers.lifecycle import Event
from ...module_utils.core.legible import legible

# The listener itself: a text for the host's Python, which the controller never imports.
SOURCE = Path(__file__).parents[2] / "module_utils" / "hosts" / "libvirt" / "listener.py"
BOOTSTRAP = (
    "import sys; n = int(sys.stdin.readline()); "
    'exec(compile(sys.stdin.read(n), "listener", "exec"), {"__name__": "__main__"})'
)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds until a listener that ended is started again
SILENCE = 35.0  # seconds: a listener says every ten that it is alive, and answers at once
STEADY = 120.0  # seconds after which a listener that ends is one that worked
STARTING = 20  # at once
MOST_NAMED = 500  # guests in a question; beyond that all are queried
ERRORS_KEPT = 2000  # characters of what ssh said last


def command(interpreter: str, uri: str) -> str:
    """The line for the host's shell that runs the text which follows on its standard input."""
    return "exec %s" % shlex.join([interpreter, "-c", BOOTSTRAP, uri])


@dataclass(frozen=True)
class Heard:
    """Present states of guests of a host, queried after their events."""

    host: str
    asked_at: float  # seconds since the epoch
    power_states: t.Mapping[str, int]  # uuid -> Nova's number, of guests that are there
    events: t.Sequence[Event] | None  # in their order; None: all guests of the host, at the beginning
    boot_id: str = ""  # of the host


@dataclass(frozen=True)
class Lost:
    """A host that is not listened to now."""

    host: str
    reason: str
    pause: float  # seconds until the next attempt


@dataclass
class _Listener:
    host: str
    argv: t.Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    listening: bool = False
    since: float = 0.0  # monotonic: when it was started; without a process: when it is to be started
    heard: float = 0.0  # monotonic: its last line
    pause: float = field(default_factory=lambda: FIRST_PAUSE)
    unread: bytes = b""
    said: str = ""  # on stderr
    number: int = 0  # of the last question
    asked_at: float | None = None  # of the question without an answer, seconds since the epoch
    asked_since: float = 0.0  # the same, monotonic
    asked: list[Event] | None = None  # the events of that question
    events: list[Event] = field(default_factory=list)  # not asked about yet
    everything: bool = False  # all guests are to be queried
    boot_id: str = ""  # of the host, as it said


class Listening:
    """Listeners on hosts, as a context: at its end none is left.

    :arg commands: host -> the program here that runs command() there. :arg clock: seconds since the epoch.
    """

    def __init__(self, commands: t.Mapping[str, t.Sequence[str]], clock: t.Callable[[], float] = time.time):
        self._clock = clock
        self._source = SOURCE.read_text("utf-8")
        self._selector = selectors.DefaultSelector()
        self._listeners = {host: _Listener(host, argv) for host, argv in commands.items()}
        self._losses: list[Lost] = []

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_exception: object) -> None:
        for listener in self._listeners.values():
            self._end(listener)
        self._selector.close()

    def ask(self, hosts: t.Iterable[str]) -> None:
        """Ask these hosts for all of their guests, as at the beginning: what they said was not used."""
        for host in hosts:
            self._listeners[host].everything = True

    def wait(self, seconds: float) -> list[Heard | Lost]:
        """Return the events of hosts within ``seconds``; as soon as there is one."""
        self._start_those_due()
        heard: list[Heard | Lost] = []
        for key, _mask in self._selector.select(seconds):
            listener, is_error = key.data
            with contextlib.suppress(_Ended):
                self._read(listener, is_error, heard)
        self._end_silent()
        for listener in self._listeners.values():
            with contextlib.suppress(_Ended):
                self._ask(listener)
        heard += self._losses
        self._losses = []
        return heard

    # --- their processes ---------------------------------------------------------------------------------------------------

    def _start_those_due(self) -> None:
        now = time.monotonic()
        starting = sum(
            1 for listener in self._listeners.values() if listener.process is not None and not listener.listening
        )
        due = [listener for listener in self._listeners.values() if listener.process is None and listener.since <= now]
        for listener in due[: max(0, STARTING - starting)]:
            with contextlib.suppress(_Ended):
                self._start(listener)

    def _start(self, listener: _Listener) -> None:
        now = time.monotonic()
        listener.since = listener.heard = now
        listener.unread, listener.said, listener.events, listener.asked_at = b"", "", [], None
        listener.everything = False
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(listener.argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        except OSError as e:
            self._fail(listener, "%s: %s" % (listener.argv[0], e.strerror))
        listener.process = process
        for stream, is_error in ((_pipe(process.stdout), False), (_pipe(process.stderr), True)):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (listener, is_error))
        self._send(listener, "%d\n%s" % (len(self._source), self._source))

    def _send(self, listener: _Listener, text: str) -> None:
        """A few kB at most, with no other unread: a pipe takes them without waiting."""
        try:
            _pipe(_alive(listener).stdin).write(text.encode())
        except OSError:
            self._fail(listener, self._why(listener))

    def _end(self, listener: _Listener) -> None:
        process, listener.process, listener.listening = listener.process, None, False
        if process is None:
            return
        for stream in map(_pipe, (process.stdin, process.stdout, process.stderr)):
            with contextlib.suppress(KeyError):
                self._selector.unregister(stream)
            with contextlib.suppress(OSError):
                stream.close()
        process.kill()  # what runs on the host ends with its standard input
        process.wait()

    def _fail(self, listener: _Listener, reason: str) -> t.NoReturn:
        """:raises _Ended: always; the listener is started again after a pause."""
        now = time.monotonic()
        if listener.listening and now - listener.since > STEADY:
            listener.pause = FIRST_PAUSE
        self._end(listener)
        self._losses.append(Lost(listener.host, reason, listener.pause))
        listener.since = now + listener.pause
        listener.pause = min(listener.pause * 2, LONGEST_PAUSE)
        raise _Ended

    def _why(self, listener: _Listener) -> str:
        """Return the last line of the listener's program."""
        process = _alive(listener)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        with contextlib.suppress(OSError):
            listener.said += (_pipe(process.stderr).read(ERRORS_KEPT) or b"").decode(errors="replace")
        lines = [line for line in listener.said.splitlines() if line.strip()]
        return legible(" ".join(lines[-2:])) or "the connection ended (%s)" % process.returncode

    def _end_silent(self) -> None:
        now = time.monotonic()
        for listener in self._listeners.values():
            if listener.process is None:
                continue
            with contextlib.suppress(_Ended):
                if now - listener.heard > SILENCE:
                    self._fail(listener, "it said nothing for %d s" % (now - listener.heard))
                if listener.asked_at is not None and now - listener.asked_since > SILENCE:
                    self._fail(listener, "it did not answer for %d s" % (now - listener.asked_since))

    # --- what they say -----------------------------------------------------------------------------------------------------

    def _read(self, listener: _Listener, is_error: bool, heard: list[Heard | Lost]) -> None:
        """Read from a listener, and add its events to ``heard``, also if it ends then."""
        if listener.process is None:  # it ended while its other stream was read
            return
        stream = _pipe(listener.process.stderr if is_error else listener.process.stdout)
        try:
            chunk = os.read(stream.fileno(), 1024**2)
        except BlockingIOError:
            return
        if is_error:
            listener.said = (listener.said + chunk.decode(errors="replace"))[-ERRORS_KEPT:]
            if not chunk:
                self._selector.unregister(stream)
            return
        if not chunk:
            self._fail(listener, self._why(listener))
        *lines, listener.unread = (listener.unread + chunk).split(b"\n")
        if len(listener.unread) > lifecycle.LONGEST_LINE:
            self._fail(listener, "it said a line of more than %d bytes" % lifecycle.LONGEST_LINE)
        for line in lines:
            heard += self._line(listener, line.decode(errors="replace"))

    def _line(self, listener: _Listener, line: str) -> list[Heard]:
        if line.startswith(lifecycle.MARK):
            listener.heard = time.monotonic()
        try:
            said = lifecycle.read(listener.host, line)
        except errors.InvalidAnswer as e:
            self._fail(listener, e.message)
        if said is None:
            return []
        if said.error:
            self._fail(listener, said.error)
        if said.listening:
            listener.listening = listener.everything = True
            listener.boot_id = said.boot_id
        if said.event is not None:
            listener.events.append(said.event)
        if said.power_states is None or said.answer != listener.number or listener.asked_at is None:
            return []
        asked_at, listener.asked_at = listener.asked_at, None
        return [Heard(listener.host, asked_at, said.power_states, listener.asked, listener.boot_id)]

    def _ask(self, listener: _Listener) -> None:
        """One question at a time: what happens meanwhile is asked about next."""
        if not listener.listening or listener.asked_at is not None or not (listener.everything or listener.events):
            return
        everything, uuids = listener.everything, sorted({e.uuid for e in listener.events})
        listener.asked = None if everything else listener.events
        listener.events, listener.everything = [], False
        listener.number += 1
        listener.asked_at, listener.asked_since = self._clock(), time.monotonic()
        named = None if everything or len(uuids) > MOST_NAMED else uuids
        self._send(listener, json.dumps({"ask": listener.number, "uuids": named}) + "\n")


class _Ended(Exception):
    """The listener ended; it is in _lost."""


def _alive(listener: _Listener) -> subprocess.Popen[bytes]:
    """Its program, which was started."""
    return t.cast("subprocess.Popen[bytes]", listener.process)


def _pipe(stream: t.IO[bytes] | None) -> t.IO[bytes]:
    """A stream of a program that was started with pipes."""
    return t.cast("t.IO[bytes]", stream)
