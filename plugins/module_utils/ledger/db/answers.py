# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to PostgreSQL that waits for each answer for a limited time, and sends what needs no answer with the next statement.

The server ends a statement that takes too long, and TCP ends a connection to a machine that is gone. Neither helps when the
server's process, or a pooler, is frozen: its machine still acknowledges what it receives.

A message and its answer cost both sides more than many a statement. What begins a transaction, the lease of its run and its locks
go with its first query: PostgreSQL works on them one after the other, each with a snapshot of its own, as if they had come alone.
"""

from __future__ import annotations

import contextlib
import functools
import select
import time
import typing as t

from ...core.optional import optional_import

NO_ANSWER = "the server gave no answer within"
CANCEL_SECONDS = 2.0  # for telling the server to end the statement, which it may still hear

if t.TYPE_CHECKING:
    import psycopg


class Waiting(t.NamedTuple):
    """A statement to be sent with the next one, in the driver's form."""

    text: str
    values: t.Mapping[str, t.Any]
    take: t.Callable[[list[tuple[t.Any, ...]]], None] | None = None  # is given its rows


@functools.cache
def limited_connection() -> type[psycopg.Connection[t.Any]]:
    """The class of these connections: psycopg's, in which all that waits for the server goes through ``wait``."""
    driver = optional_import("psycopg")
    base: t.Any = driver.Connection
    base_cursor: t.Any = driver.Cursor

    class FollowingCursor(base_cursor):  # type: ignore[misc]
        """Sends before its own statement what waits for one."""

        def execute(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
            self.connection.send_waiting()
            return super().execute(*args, **kwargs)

        def executemany(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
            self.connection.send_waiting()
            return super().executemany(*args, **kwargs)

    class LimitedConnection(base):  # type: ignore[misc]
        limit = 0.0  # seconds; 0: none

        @classmethod
        def connect(cls, *args: t.Any, **kwargs: t.Any) -> t.Any:
            return super().connect(*args, **kwargs, cursor_factory=FollowingCursor)

        def __init__(self, *args: t.Any, **kwargs: t.Any):
            super().__init__(*args, **kwargs)
            self.begins: list[str] = []  # what begins the transaction, until its first statement is sent
            self.waiting: list[Waiting] = []

        def send_with(self, text: str, values: t.Mapping[str, t.Any] | None) -> t.Any:
            """A cursor on the result of the statement, which goes with those that wait for it in one message."""
            begins, before, self.begins, self.waiting = self.begins, self.waiting, [], []
            merged = driver.ClientCursor(self).mogrify  # not kept: it keeps the connection
            texts = [*begins, *(merged(one.text, one.values) for one in before)]
            cursor = base_cursor(self)
            cursor.execute("; ".join([*texts, text if values is None else merged(text, values)]))
            place = 0
            for number, one in enumerate(before, len(begins)):
                if one.take is not None:
                    place = _go_on(cursor, place, number)
                    one.take(cursor.fetchall())
            _go_on(cursor, place, len(texts))
            return cursor

        def send_waiting(self) -> None:
            """Without a statement that they could go with."""
            if self.waiting:
                last = self.waiting.pop()
                cursor = self.send_with(last.text, last.values)
                if last.take is not None:
                    last.take(cursor.fetchall())
            elif self.begins:
                begins, self.begins = self.begins, []
                base_cursor(self).execute("; ".join(begins))

        def commit(self) -> None:
            if self.waiting:
                self.send_waiting()
            self.begins = []
            super().commit()

        def rollback(self) -> None:
            self.begins, self.waiting = [], []
            super().rollback()

        def wait(self, gen: t.Any, *args: t.Any, **kwargs: t.Any) -> t.Any:
            if not self.limit:
                return super().wait(gen, *args, **kwargs)
            try:
                return _driven(gen, self.pgconn.socket, self.limit)
            except _NoAnswerError:
                self._give_up()
                raise driver.OperationalError("%s %g s" % (NO_ANSWER, self.limit)) from None
            except KeyboardInterrupt:
                self._give_up()
                raise

        def _give_up(self) -> None:
            capabilities = getattr(driver, "capabilities", None)
            if capabilities and capabilities.has_cancel_safe():  # an older libpq waits for the server without end
                with contextlib.suppress(driver.Error):
                    self.cancel_safe(timeout=CANCEL_SECONDS)
            self.close()

    return t.cast("type[psycopg.Connection[t.Any]]", LimitedConnection)


def _go_on(cursor: t.Any, place: int, number: int) -> int:
    """From the result at ``place`` to another one behind it."""
    if hasattr(cursor, "set_result"):  # psycopg 3.3
        cursor.set_result(number)
    else:
        for _each in range(number - place):
            cursor.nextset()
    return number


class _NoAnswerError(Exception):
    pass


def _driven(gen: t.Generator[int, int, t.Any], socket: int, limit: float) -> t.Any:
    """What ``gen`` returns. As psycopg's, it yields what it awaits of the socket (1: input, 2: output) and is sent what is ready."""
    end = time.monotonic() + limit
    poll = select.poll()
    try:
        awaited = next(gen)
        while True:
            poll.register(socket, (select.POLLIN if awaited & 1 else 0) | (select.POLLOUT if awaited & 2 else 0))
            found = poll.poll(max(0.0, end - time.monotonic()) * 1000)
            if not found:
                raise _NoAnswerError
            event = found[0][1]
            ready = (1 if event & select.POLLIN else 0) | (2 if event & select.POLLOUT else 0)
            awaited = gen.send(ready or awaited)  # of a broken connection it finds out by using it
    except StopIteration as e:
        return e.value
