# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A transaction of the ledger, the first argument of every function that reads or writes rows."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass, field

from .database_kind import DatabaseKind, kind_of
from .sqlalchemy_import import sa
from .this_run import Context, RunIdentity

Row = t.TypeVar("Row")

READ_ONLY_SERVER = "25006"  # the state of a write that a standby, or default_transaction_read_only, refuses


class Part(t.NamedTuple):
    """A statement in the driver's form, and its values."""

    text: str
    values: t.Mapping[str, t.Any]


class Waiting(t.NamedTuple):
    """A statement to be sent with the next one, in the driver's form."""

    text: str
    values: t.Mapping[str, t.Any]
    take: t.Callable[[list[tuple[t.Any, ...]]], None] | None = None  # is given its rows


def is_of_standby(error: BaseException | None, driver_connection: t.Any) -> bool:
    """Whether a standby of PostgreSQL refused to write. It stays one: what was to be written there needs another connection."""
    if getattr(error, "sqlstate", None) != READ_ONLY_SERVER:
        return False
    status = driver_connection.info.parameter_status
    # One that was promoted since the transaction began says that it is not a standby, and the transaction stays read-only.
    return bool(status("in_hot_standby") == "on" or status("default_transaction_read_only") == "off")


@dataclass
class Transaction:
    """An open transaction, and the run that it belongs to.

    A ledger opened without a run (a backup, a count) has transactions without a context; reading their run or time is a
    programming error and raises RuntimeError.
    """

    connection: sa.Connection
    of_run: Context | None = None
    _moment: float | None = field(default=None, repr=False)
    parts: list[Part] | None = field(default=None, repr=False)  # what bulk.together() sends later
    mark: Part | None = field(default=None, repr=False)  # of its COMMIT (commits.sign), until bulk.together() sent it
    inserted: dict[str, int] = field(default_factory=dict, repr=False)  # rows by table, for statistics.large()
    renews: bool = field(default=False, repr=False)  # the lease of its run
    _cursor: t.Any = field(default=None, repr=False)  # the driver's, for send() and fetch()

    def execute(
        self, statement: sa.Executable, parameters: t.Any = None
    ) -> sa.CursorResult[t.Unpack[tuple[t.Any, ...]]]:
        return self.connection.execute(statement, parameters)

    def rows(self, query: sa.Executable, kind: type[Row], parameters: t.Any = None) -> list[Row]:
        """The rows of ``query``. ``kind`` declares their columns, for mypy: they stay SQLAlchemy's own, nothing is converted."""
        return t.cast("list[Row]", list(self.connection.execute(query, parameters)))

    # --- PostgreSQL's driver itself --------------------------------------------------------------------------------

    def send(self, text: str, values: t.Mapping[str, t.Any] | None = None) -> int:
        """Run a statement that is in the driver's form, without the work of SQLAlchemy, which takes longer than many a statement.
        Returns the number of written rows."""
        return int(self._sent(text, values, False).rowcount)

    def fetch(
        self, text: str, values: t.Mapping[str, t.Any] | None = None, binary: bool = False
    ) -> list[tuple[t.Any, ...]]:
        """The rows of such a statement, as the driver's tuples. :arg binary: the server sends bytes as they are."""
        return t.cast("list[tuple[t.Any, ...]]", self._sent(text, values, binary).fetchall())

    def later(
        self,
        text: str,
        values: t.Mapping[str, t.Any],
        take: t.Callable[[list[tuple[t.Any, ...]]], None] | None = None,
    ) -> None:
        """Run such a statement before the next one, in one message with it. :arg take: is given its rows then"""
        self._driver_connection().waiting.append(Waiting(text, values, take))

    def flush(self) -> None:
        """Send what waits for another statement."""
        if self.database_kind.joins_messages and self._driver_connection().waiting:
            last = self._driver_connection().waiting.pop()
            cursor = self._sent(last.text, last.values, False)
            if last.take is not None:
                last.take(cursor.fetchall())

    def _sent(self, text: str, values: t.Mapping[str, t.Any] | None, binary: bool) -> t.Any:
        connection = self._driver_connection()
        try:
            if not binary and (connection.begins or connection.waiting):
                return connection.send_with(text, values)
            if self._cursor is None:
                self._cursor = connection.cursor()
            return self._cursor.execute(text, values, binary=binary)
        except t.cast(t.Any, self.dialect.dbapi).Error as e:
            raise self._in_its_form(e, text, values) from e
        except BaseException as e:
            if not isinstance(e, Exception):  # interrupted: what the connection still receives is unknown
                self.connection.invalidate(e)
            raise

    def _in_its_form(self, error: Exception, text: str, values: t.Any) -> sa.exc.DBAPIError:
        """Return the driver's error in the form of SQLAlchemy's own statements. Gives up a lost connection, and idle ones."""
        disconnected = self.dialect.is_disconnect(t.cast(t.Any, error), self._driver_connection(), None)
        disconnected = disconnected or is_of_standby(error, self._driver_connection())
        base = t.cast("type[Exception]", t.cast(t.Any, self.dialect.dbapi).Error)
        dbapi_error = sa.exc.DBAPIError.instance(
            text, values, error, base, hide_parameters=True, connection_invalidated=disconnected, dialect=self.dialect
        )
        if disconnected:
            self.connection.invalidate(error)
            self.connection.engine.dispose()
        return t.cast("sa.exc.DBAPIError", dbapi_error)

    def _driver_connection(self) -> t.Any:
        return self.connection.connection.driver_connection

    @property
    def dialect(self) -> sa.Dialect:
        return self.connection.dialect

    @property
    def database_kind(self) -> DatabaseKind:
        """Names the differences between the databases."""
        return kind_of(self.connection)

    def for_run(self, context: Context) -> Transaction:
        """The same transaction for another run."""
        return Transaction(self.connection, context)

    # --- the run ---------------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        if self.of_run is None:
            raise RuntimeError("this transaction belongs to no run")
        return self.of_run

    @property
    def filters_ports(self) -> bool:
        """Whether the run has hosts filter ports; False of no run."""
        return self.of_run is not None and self.of_run.filters_ports

    @property
    def run(self) -> RunIdentity:
        return self.context.run

    @property
    def request_id(self) -> str:
        return self.context.request_id

    @property
    def actor(self) -> str:
        """The person (or the AWX user) behind the run."""
        return self.context.run.actor

    @property
    def now(self) -> float:
        """Seconds since the epoch by the run's clock, read once: all writes of a transaction have the same time."""
        if self._moment is None:
            self._moment = self.context.clock()
        return self._moment

    @property
    def rng(self) -> random.Random:
        return self.context.rng

    def new_id(self) -> str:
        """The UUID of a new row."""
        return self.context.new_id()
