# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to PostgreSQL that sends what needs no answer with the next statement, in one message.

A message and its answer cost both sides more than many a statement. What begins a transaction, the lease of its run and its locks
go with its first query: PostgreSQL works on them one after the other, each with its own snapshot, as if they had come alone.

SQL: ``BEGIN ISOLATION LEVEL ...; SET LOCAL ...; INSERT INTO runs ... ON CONFLICT ...; SELECT pg_advisory_xact_lock(...); SELECT ...``.
Bench: `scripts/bench scheduling`, "boots of one by".
"""

from __future__ import annotations

import functools
import typing as t

from ...core.optional import optional_import
from ..db.limited_connection import limited_connection
from ..db.transaction import Waiting

if t.TYPE_CHECKING:
    import psycopg


@functools.cache
def joining_connection() -> type[psycopg.Connection[t.Any]]:
    """The class of these connections: they wait for answers as limited_connection() does."""
    driver = optional_import("psycopg")
    base: t.Any = limited_connection()
    base_cursor: t.Any = driver.Cursor

    class FollowingCursor(base_cursor):  # type: ignore[misc]
        """Sends before its own statement what waits for one."""

        def execute(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
            self.connection.send_waiting()
            return super().execute(*args, **kwargs)

        def executemany(self, *args: t.Any, **kwargs: t.Any) -> t.Any:
            self.connection.send_waiting()
            return super().executemany(*args, **kwargs)

    class JoiningConnection(base):  # type: ignore[misc]
        @classmethod
        def connect(cls, *args: t.Any, **kwargs: t.Any) -> t.Any:
            return super().connect(*args, **kwargs, cursor_factory=FollowingCursor)

        def __init__(self, *args: t.Any, **kwargs: t.Any):
            super().__init__(*args, **kwargs)
            self.begins: list[str] = []  # what begins the transaction, until its first statement is sent
            self.waiting: list[Waiting] = []

        def send_with(self, text: str, values: t.Mapping[str, t.Any] | None) -> t.Any:
            """Return a cursor on the result of the statement, which is sent with the waiting ones in one message."""
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

    return t.cast("type[psycopg.Connection[t.Any]]", JoiningConnection)


def _go_on(cursor: t.Any, place: int, number: int) -> int:
    """From the result at ``place`` to another one behind it."""
    if hasattr(cursor, "set_result"):  # psycopg 3.3
        cursor.set_result(number)
    else:
        for _step in range(number - place):
            cursor.nextset()
    return number
