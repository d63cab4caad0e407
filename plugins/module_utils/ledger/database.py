# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Opening the ledger: sqlite or PostgreSQL with one interface, errors as text, and transactions that are repeated after a
conflict with another run or a restart of the server.

A function given to ``transact`` may run several times, and only its last run counts. So it

- takes all its input from ``tx`` and its arguments, and reads it again each time;
- changes nothing but the ledger: no file, no host, no argument, nothing that outlives the call;
- returns plain data (such as rows), not an open cursor;
- does not catch database errors. Errors of core.errors end it, and roll back, at once.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import time
import typing as t

from ..core import errors
from .db import commits, database_errors, engine, sqlite_file
from .db.address import LedgerAddress, as_address, normalise_url, shown, sqlite_path
from .db.database_errors import Kind
from .db.database_kind import kind_of
from .db.sqlalchemy_import import need_libraries, sa
from .db.this_run import Context
from .db.transaction import Transaction
from .fast import statistics
from .fast.joined_messages import joining_connection
from .migrations import runner
from .schema.identity import ledger_id

FIRST_DELAY = 0.02  # seconds; doubled with each attempt, the delay is a random part of it
LONGEST_DELAY = 3.0
SILENT_SECONDS = 5.0  # a server that is away for longer is reported

Result = t.TypeVar("Result")
P = t.ParamSpec("P")  # what a function is given after the transaction


class Ledger:
    """An open ledger: ``transact`` to write, ``inspect`` to read, ``rehearsal`` to write and roll back.

    ``with ledger.write() as tx`` and the like are a single attempt: an error of the database becomes a LedgerError.
    """

    def __init__(
        self,
        address: LedgerAddress,
        engine: sa.Engine,
        warnings: t.Sequence[str] = (),
        tell: t.Callable[[str], None] | None = None,
    ):
        self.address = address
        self.url = normalise_url(address.url)
        self.engine = engine
        self.warnings = list(warnings)
        self.tell = tell  # a person, of a server that is waited for
        self.context: Context | None = None  # of the run whose transactions these are
        self._id: str | None = None
        self._worker = commits.Worker()
        self._secrets = (address.password, address.secret()) if self.is_server else ()

    @property
    def is_server(self) -> bool:
        return kind_of(self.engine).is_server

    @property
    def id(self) -> str:
        """The ledger's own UUID: it marks what hosts have of this ledger."""
        if self._id is None:
            self._id = self.inspect(ledger_id)
        return self._id

    def for_run(self, context: Context) -> Ledger:
        """The same ledger with transactions of that run."""
        other = copy.copy(self)
        other.context = context
        return other

    def _transaction(self, conn: sa.Connection) -> Transaction:
        return Transaction(conn, self.context)

    # --- repeated until they succeed -------------------------------------------------------------------------------

    @t.overload
    def transact(
        self, function: t.Callable[t.Concatenate[Transaction, P], Result], *arguments: P.args, **named: P.kwargs
    ) -> Result: ...

    @t.overload
    def transact(
        self, function: t.Callable[..., Result], *arguments: t.Any, collisions: int, **named: t.Any
    ) -> Result: ...

    def transact(  # type: ignore[misc]  # a function with a parameter "collisions" cannot be run here
        self, function: t.Callable[..., Result], *arguments: t.Any, collisions: int = 0, **named: t.Any
    ) -> Result:
        """The result of ``function(tx, *arguments, **named)``, its writes committed exactly once.

        :arg collisions: how often to repeat after a unique row that already exists, for a function that inserts rows that
            it did not find before.
        :raises LedgerError: no success within the address's retry_timeout; nothing was written, unless the message
            says that this is unknown.
        """
        doubt: tuple[tuple[str, int], Result] | None = None  # mark and value of a COMMIT without an answer
        tries = _Tries(self)
        while True:
            mark = None
            own_mark: tuple[str, int] = ("", 0)
            committing = False
            value: t.Any = None
            began = self._now()
            try:
                with no_garbage_sought(), self.engine.connect() as conn, conn.begin():
                    tx = self._transaction(conn)
                    if doubt is not None:
                        if not commits.sign_again(tx, doubt[0]):
                            return doubt[1]
                        mark, doubt = doubt[0], None  # not committed: no doubt any more
                    elif self.is_server:
                        own_mark = self._worker.next()
                        commits.begin(tx, own_mark)
                    value = function(tx, *arguments, **named)
                    tx.flush()
                    if mark is None and self.is_server:
                        mark = own_mark if commits.sign(tx, own_mark) else None
                    committing = True
                self._see_growth(statistics.large(tx.inserted))
                self._tell_lease(began, tx)
                return t.cast(Result, value)
            except sa.exc.DBAPIError as e:
                kind = database_errors.kind_of(e)
                if committing and kind in (Kind.LOST, Kind.AWAY) and mark is not None:
                    doubt = (mark, value)
                repeat = kind in (Kind.CONFLICT, Kind.LOST, Kind.AWAY)
                if kind is Kind.COLLISION and collisions > 0:
                    collisions, repeat = collisions - 1, True
                if not (repeat and tries.again(e)):
                    if doubt is not None:
                        raise database_errors.outcome_unknown(self.address) from e
                    raise self._in_words(e) from e
            except database_errors.DAMAGED as e:
                raise database_errors.damaged(self.address, e) from e

    def _now(self) -> float:
        return self.context.now if self.context is not None and self.context.lease is not None else 0.0

    def _tell_lease(self, began: float, tx: Transaction | None = None) -> None:
        """:arg tx: was committed"""
        lease = self.context.lease if self.context is not None else None
        if lease is not None:
            lease.looked(began)
            if tx is not None and tx.renews:
                lease.renewed(tx.now)

    def _see_growth(self, tables: t.Sequence[str]) -> None:
        """After a COMMIT: what fails here costs other statements time, and nothing else."""
        if not tables:
            return
        with contextlib.suppress(sa.exc.DBAPIError), self.engine.connect() as conn, conn.begin():
            statistics.refresh(self._transaction(conn), tables)

    def inspect(
        self, function: t.Callable[t.Concatenate[Transaction, P], Result], *arguments: P.args, **named: P.kwargs
    ) -> Result:
        """The result of ``function(tx, ...)`` on one snapshot of the ledger; repeated after a lost connection."""
        began = self._now()
        value = self._repeat(self._reading, function, arguments, named)
        self._tell_lease(began)
        return value

    def rehearsal(
        self, function: t.Callable[t.Concatenate[Transaction, P], Result], *arguments: P.args, **named: P.kwargs
    ) -> Result:
        """The result of ``function(tx, ...)`` in a writing transaction that is rolled back, for check mode."""
        return self._repeat(self._rehearsing, function, arguments, named)

    def migrate(self) -> list[str]:
        """Upgrade the ledger to this version. Returns the applied revisions."""
        return self._repeat(self._migrating, runner.upgrade, (shown(self.url),), {})

    def _repeat(
        self,
        begin: t.Callable[[], t.ContextManager[Transaction]],
        function: t.Callable[..., Result],
        arguments: t.Sequence[t.Any],
        named: t.Mapping[str, t.Any],
    ) -> Result:
        tries = _Tries(self)
        while True:
            try:
                with no_garbage_sought(), begin() as tx:
                    return function(tx, *arguments, **named)
            except sa.exc.DBAPIError as e:
                repeat = database_errors.kind_of(e) in (Kind.CONFLICT, Kind.LOST, Kind.AWAY)
                if not (repeat and tries.again(e)):
                    raise self._in_words(e) from e
            except database_errors.DAMAGED as e:
                raise database_errors.damaged(self.address, e) from e

    # --- one attempt -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def write(self) -> t.Iterator[Transaction]:
        """One transaction or nothing."""
        with no_garbage_sought(), self._errors(), self.engine.begin() as conn:
            yield self._transaction(conn)

    @contextlib.contextmanager
    def read(self) -> t.Iterator[Transaction]:
        """One snapshot of the ledger; never locks writers."""
        with self._errors(), self._reading() as tx:
            yield tx

    @contextlib.contextmanager
    def rehearse(self) -> t.Iterator[Transaction]:
        """A writing transaction that is always rolled back, for check mode."""
        with self._errors(), self._rehearsing() as tx:
            yield tx

    @contextlib.contextmanager
    def _reading(self) -> t.Iterator[Transaction]:
        with self.engine.connect() as plain:
            conn = plain.execution_options(**{engine.READ_ONLY: True})
            with conn.begin():
                yield self._transaction(conn)

    @contextlib.contextmanager
    def _rehearsing(self) -> t.Iterator[Transaction]:
        with self.engine.connect() as conn:
            transaction = conn.begin()
            try:
                yield self._transaction(conn)
            finally:
                transaction.rollback()

    @contextlib.contextmanager
    def _migrating(self) -> t.Iterator[Transaction]:
        with self.engine.connect() as plain:
            conn = plain.execution_options(**{engine.MIGRATION: True})
            with conn.begin():
                yield self._transaction(conn)
                if not self.is_server and conn.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise errors.LedgerError(
                        url=shown(self.url),
                        reason="a row refers to a missing row",
                        remedy="Restore a backup; nothing was changed.",
                    )

    @contextlib.contextmanager
    def _errors(self) -> t.Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as e:
            raise self._in_words(e) from e
        except database_errors.DAMAGED as e:
            raise database_errors.damaged(self.address, e) from e

    def _in_words(self, error: sa.exc.DBAPIError) -> errors.LedgerError:
        if getattr(error.orig, "_pgconn", None) is not None:
            t.cast(t.Any, error.orig)._pgconn = None  # psycopg keeps its connection parameters there, with the password
        return database_errors.in_words(self.address, error, self._secrets)

    def waiting(self, error: sa.exc.DBAPIError) -> str:
        """Return the message for a person while the server is waited for."""
        return database_errors.waiting(self.address, error, self._secrets)

    def close(self) -> None:
        self.engine.dispose()


@contextlib.contextmanager
def no_garbage_sought() -> t.Iterator[None]:
    """Work on many instances makes rows that stay, and hardly any garbage. Python would look through all of them again and
    again, which makes a large request dearer than as many small ones."""
    sought = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if sought:
            gc.enable()


class _Tries:
    """Waits between attempts: longer each time, random so that runs do not collide again, up to a total.

    The total begins again when the server goes away: it may take a minute to find out that a machine is gone, and that minute
    does not count as waiting for the next one.
    """

    def __init__(self, ledger: Ledger):
        self.ledger = ledger
        self.delay = FIRST_DELAY
        self.end = time.monotonic() + ledger.address.retry_timeout
        self.away_since: float | None = None
        self.has_reported = False

    def again(self, error: sa.exc.DBAPIError) -> bool:
        """Wait. Returns whether there is time for one more attempt."""
        if database_errors.kind_of(error) in (Kind.LOST, Kind.AWAY):
            self._away(error)
        wait = random.uniform(0.2, 1.0) * self.delay
        self.delay = min(self.delay * 2, LONGEST_DELAY)
        if time.monotonic() + wait >= self.end:
            return False
        time.sleep(wait)
        return True

    def _away(self, error: sa.exc.DBAPIError) -> None:
        now = time.monotonic()
        if self.away_since is None:
            self.away_since = now
            if not database_errors.is_frozen(error):  # which has been waited for all the time
                self.end = now + self.ledger.address.retry_timeout
        elif self.ledger.tell and not self.has_reported and now - self.away_since > SILENT_SECONDS:
            self.has_reported = True
            self.ledger.tell(self.ledger.waiting(error))


def open_ledger(
    address: str | LedgerAddress,
    create: bool = False,
    check_revision: bool = True,
    patient: bool = True,
    tell: t.Callable[[str], None] | None = None,
) -> Ledger:
    """Open the ledger at ``address``: a URL or path, or one of them with its settings.

    :arg create: create the sqlite file (0600) and its folder if they are missing.
    :arg check_revision: reject a ledger that is newer (LedgerTooNew) or older (LedgerTooOld) than this code.
    :arg patient: wait up to retry_timeout for a server that does not answer, because it may be restarting. A failover is
        waited for in any case.
    :arg tell: is given a sentence for a person when a server is waited for.
    :raises LedgerError: the ledger cannot be opened, with reason and remedy.
    :raises InvalidInput: invalid settings of the connection.
    """
    address = as_address(address)
    url = normalise_url(address.url)
    address.check()
    need_libraries(url)
    path = sqlite_path(url)
    warnings = [] if path is None else sqlite_file.prepare(shown(url), path, create)
    try:
        ledger = Ledger(address, engine.make_engine(address, joining_connection), warnings, tell)
    except (sa.exc.ArgumentError, ValueError):
        raise errors.LedgerError(
            url=shown(url),
            reason="the URL is not a database URL",
            remedy="Write it as postgresql://user@host:5432/database; special characters of a password as %40, %2F...",
        ) from None
    if check_revision or not patient:
        try:
            if not patient:
                _ask_once(ledger)
            if check_revision:
                ledger.inspect(runner.check_revision, shown(url))
        except errors.BootflowError:
            ledger.close()
            raise
    return ledger


def _ask_once(ledger: Ledger) -> None:
    try:
        with ledger.read() as tx:
            tx.execute(sa.text("SELECT 1"))
    except errors.LedgerError as e:
        if not database_errors.is_failing_over(e.__cause__):
            raise


def memory_ledger() -> Ledger:
    """An empty, migrated, private ledger, for check mode before the first boot."""
    need_libraries("sqlite://")
    address = LedgerAddress(url="sqlite://")
    ledger = Ledger(address, engine.make_engine(address, joining_connection))
    ledger.migrate()
    return ledger
