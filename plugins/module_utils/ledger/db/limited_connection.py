# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to PostgreSQL that waits for each answer for a limited time.

The server ends a statement that takes too long, and TCP ends a connection to a machine that is gone. Neither helps when the
server's process, or a pooler, is frozen: its machine still acknowledges what it receives.
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


@functools.cache
def limited_connection() -> type[psycopg.Connection[t.Any]]:
    """The class of these connections: psycopg's, in which all that waits for the server goes through ``wait``."""
    driver = optional_import("psycopg")
    base: t.Any = driver.Connection

    class LimitedConnection(base):  # type: ignore[misc]
        limit = 0.0  # seconds; 0: none

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


class _NoAnswerError(Exception):
    pass


def _driven(gen: t.Generator[int, int, t.Any], socket: int, limit: float) -> t.Any:
    """Return the result of ``gen``. As psycopg's, it yields what it awaits of the socket (1: input, 2: output) and is sent what is ready."""
    end = time.monotonic() + limit
    poll = select.poll()
    try:
        awaited = next(gen)
        while True:
            poll.register(socket, (select.POLLIN if awaited & 1 else 0) | (select.POLLOUT if awaited & 2 else 0))
            events = poll.poll(max(0.0, end - time.monotonic()) * 1000)
            if not events:
                raise _NoAnswerError
            event = events[0][1]
            ready = (1 if event & select.POLLIN else 0) | (2 if event & select.POLLOUT else 0)
            awaited = gen.send(ready or awaited)  # of a broken connection it finds out by using it
    except StopIteration as e:
        return e.value
