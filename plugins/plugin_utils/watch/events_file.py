# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file or named pipe that gets one line of JSON after the other. A slow or missing reader of the pipe does not stop the writer."""

from __future__ import annotations

import collections
import json
import os
import select
import typing as t

from ...module_utils.core import errors

MOST_WAITING = 20000  # lines, some MB
SHORT = "Give bootflow_watch_events_file a file or named pipe that can be written to, and start watch again."


class EventsFile:
    """As a context. A named pipe is waited for until a reader opens it.

    :raises InvalidInput: from each method: the file cannot be written.
    """

    def __init__(self, path: str):
        self._path = path
        self._waiting: collections.deque[bytes] = collections.deque()
        self._begun = b""  # the rest of a line
        self.full = False  # lines were left out, and none has been written since
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise self._failed(e) from e
        os.set_blocking(self._file, False)

    def __enter__(self) -> EventsFile:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._file)

    @property
    def waits(self) -> bool:
        """Whether there is more to write than is read now."""
        return bool(self._begun or self._waiting)

    def is_read(self) -> bool:
        """Whether the pipe has a reader; true for a file."""
        poll = select.poll()
        poll.register(self._file, 0)
        return not poll.poll(0)

    def add(self, entries: t.Iterable[t.Mapping[str, t.Any]]) -> None:
        """Write the entries as soon as the file is read. Where too many wait, the waiting ones are left out, and it is ``full``."""
        self._waiting += ((json.dumps(entry) + "\n").encode() for entry in entries)
        self.write()
        if len(self._waiting) > MOST_WAITING:
            self._waiting.clear()
            self.full = True

    def write(self) -> None:
        """Write the waiting entries, as far as the file is read now. :raises BrokenPipeError: the reader is gone."""
        while self.waits:
            line = self._begun or self._waiting.popleft()
            try:
                self._begun = line[os.write(self._file, line) :]
            except BlockingIOError:
                self._begun = line
                return
            except BrokenPipeError:
                raise
            except OSError as e:
                raise self._failed(e) from e

    def _failed(self, error: OSError) -> errors.InvalidInput:
        return errors.InvalidInput(
            reason="the file of events %s cannot be written (%s)" % (self._path, error.strerror), remedy=SHORT
        )
