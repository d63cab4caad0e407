# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engines: one for an sqlite file, one for PostgreSQL, made for processes that live for one task.

sqlite: WAL, synchronous=FULL (a confirmed claim survives a power cut), a busy timeout on every connection and
BEGIN IMMEDIATE for each writing transaction, because a lock upgrade in the middle fails at once and ignores the timeout.
PostgreSQL: the isolation level and the limits of time come with the BEGIN of each transaction, in the message of its first statement. They hold
under any defaults of the server, the role, the database or the URL, and behind PgBouncer, which passes on neither what a
connection asks for when it starts nor, between transactions, the same server process: nothing is left in a session, neither
settings nor prepared statements.
"""

from __future__ import annotations

import json
import time
import typing as t

from .address import MEMORY, LedgerAddress, hosts_as_options, normalise_url, url_is_sqlite, without_password
from .sqlalchemy_import import sa
from .transaction import is_of_standby

IDLE_BEFORE_PING = 5.0  # seconds; a recently used connection is not pinged
# KiB at most; with sqlite's 2 MiB a request of many reads and writes pages of the indexes several times.
SQLITE_CACHE = 64 * 1024
SQLITE_CHECKPOINT = 4096  # pages of WAL: a thousand instances write as many, and the same pages again and again
FOREVER = 2_000_000_000  # milliseconds: sqlite cannot wait without a limit
MIGRATION_SECONDS = 3600.0  # of one statement
# Of the server: the transaction and the locks of a vanished controller end after two minutes.
KEEPALIVES = {"tcp_keepalives_idle": 60, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 6}
# A ledger is in memory for the most part. With PostgreSQL's 4.0, which is for disks that turn, it reads a table of some ten thousand
# rows from end to end for a thousand of them. A bitmap of an index has what is dead in it, too: of the few instances that are being
# built it reads all that ever were, until a vacuum, where a plain scan leaves the dead out from the second time on.
PLANNER = {"random_page_cost": 1.1, "enable_bitmapscan": "off"}

# Execution options of a connection
READ_ONLY = "bootflow_read_only"
MIGRATION = "bootflow_migration"


def make_engine(address: LedgerAddress, connection_class: t.Callable[[], type[t.Any]]) -> sa.Engine:
    """The engine of a ledger.

    :arg connection_class: returns the class of connections to PostgreSQL: psycopg's, with ``limit`` (seconds) and ``begins`` (statements
        that it sends before the first one of a transaction). Is called when one is opened, as psycopg may be missing.
    :raises sqlalchemy.exc.ArgumentError, ValueError: not a database URL.
    """
    url = normalise_url(address.url)
    return _sqlite(address, url) if url_is_sqlite(url) else _postgresql(address, url, connection_class)


# --- sqlite --------------------------------------------------------------------------------------------------------


def _sqlite(address: LedgerAddress, url: str) -> sa.Engine:
    milliseconds = int(address.lock_timeout * 1000) or FOREVER
    options: dict[str, t.Any] = {"connect_args": {"timeout": milliseconds / 1000, "check_same_thread": False}}
    if url == MEMORY:
        options["poolclass"] = sa.pool.StaticPool
    engine = sa.create_engine(url, hide_parameters=True, **options)

    @sa.event.listens_for(engine, "connect")
    def on_connect(dbapi_connection: t.Any, _record: sa.pool.ConnectionPoolEntry) -> None:
        dbapi_connection.isolation_level = None  # transactions begin below, not in the driver
        cursor = dbapi_connection.cursor()
        cursor.execute("PRAGMA busy_timeout=%d" % milliseconds)
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA cache_size=-%d" % SQLITE_CACHE)
        cursor.execute("PRAGMA wal_autocheckpoint=%d" % SQLITE_CHECKPOINT)
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(conn: sa.Connection) -> None:
        options = conn.get_execution_options()
        if options.get(MIGRATION):  # other tables refer to a table that is recreated
            conn.exec_driver_sql("PRAGMA foreign_keys=OFF")  # has no effect inside a transaction
        conn.exec_driver_sql("BEGIN" if options.get(READ_ONLY) else "BEGIN IMMEDIATE")

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(dbapi_connection: t.Any, _record: sa.pool.ConnectionPoolEntry) -> None:
        if dbapi_connection is not None and not dbapi_connection.in_transaction:
            dbapi_connection.execute("PRAGMA foreign_keys=ON").close()

    return engine


# --- PostgreSQL ----------------------------------------------------------------------------------------------------


def _postgresql(address: LedgerAddress, url: str, connection_class: t.Callable[[], type[t.Any]]) -> sa.Engine:
    parsed = sa.make_url(hosts_as_options(without_password(url)))
    query = {k: v for k, v in parsed.query.items() if k != "password"}
    stray = parsed.password
    parsed = sa.URL.create(parsed.drivername, parsed.username, None, parsed.host, parsed.port, parsed.database, query)
    engine = sa.create_engine(
        parsed,
        connect_args=_libpq_arguments(address, query, stray),
        hide_parameters=True,
        json_deserializer=_loads,
        pool_size=2,
        max_overflow=4,
        pool_use_lifo=True,
        use_native_hstore=False,  # no table has one, and SQLAlchemy would look for the type in three messages
    )

    @sa.event.listens_for(engine, "do_connect")
    def on_do_connect(_dialect: t.Any, _record: t.Any, positional: t.Any, named: t.Any) -> t.Any:
        connection: t.Any = connection_class().connect(*positional, **named)
        connection.limit = _answer_limit(address, address.statement_timeout)
        return connection

    @sa.event.listens_for(engine, "begin")
    def on_begin(conn: sa.Connection) -> None:
        options = conn.get_execution_options()
        seconds = address.statement_timeout
        if options.get(MIGRATION) and seconds:
            seconds = max(seconds, MIGRATION_SECONDS)
        connection: t.Any = conn.connection.driver_connection
        connection.limit = _answer_limit(address, seconds)
        connection.begins = _begin(address, seconds, bool(options.get(READ_ONLY)))

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(_connection: t.Any, record: sa.pool.ConnectionPoolEntry) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def on_checkout(dbapi_connection: t.Any, record: sa.pool.ConnectionPoolEntry, _proxy: t.Any) -> None:
        if time.monotonic() - record.info.get("used", time.monotonic()) < IDLE_BEFORE_PING:
            return
        try:
            dbapi_connection.execute("SELECT 1")
        except t.cast(t.Any, engine.dialect.dbapi).Error as e:
            raise sa.exc.DisconnectionError() from e  # the pool opens a new one

    @sa.event.listens_for(engine, "handle_error")
    def on_error(context: sa.engine.ExceptionContext) -> None:
        connection = context.connection
        if connection is None or connection.invalidated:
            return
        if is_of_standby(context.original_exception, connection.connection.driver_connection):
            context.is_disconnect = True

    return engine


def _loads(text: str | bytes) -> t.Any:
    """As json.loads(), which finds out for each of thousands of values that it is UTF-8 without blanks around it."""
    try:
        return _decode(text if isinstance(text, str) else str(text, "utf-8"))[0]
    except ValueError:
        return json.loads(text)


_decode = json.JSONDecoder().raw_decode


def _libpq_arguments(address: LedgerAddress, query: t.Mapping[str, t.Any], stray: str | None) -> dict[str, t.Any]:
    """The arguments for libpq in addition to the URL; the URL overrides our defaults, a setting overrides the URL."""
    arguments: dict[str, t.Any] = {
        "connect_timeout": address.connect_timeout,
        "application_name": address.application_name[:63],
        "keepalives": 1,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60000,
    }
    arguments = {k: v for k, v in arguments.items() if k not in query}
    arguments.update(
        {
            k: getattr(address, k)
            for k in ("sslmode", "sslrootcert", "sslcert", "sslkey")
            if getattr(address, k) is not None
        }
    )
    secret = address.secret() or stray
    if secret is not None:
        arguments["password"] = secret
    # Transactions begin in on_begin(), not in the driver. Behind a pooler another client's statement may have the same name.
    return {**arguments, "autocommit": True, "prepare_threshold": None}


def _answer_limit(address: LedgerAddress, statement_seconds: float) -> float:
    """Return how many seconds an answer is waited for; 0: without a limit, as where the server has none."""
    return statement_seconds + address.answer_timeout if statement_seconds and address.answer_timeout else 0.0


def _begin(address: LedgerAddress, statement_seconds: float, read_only: bool) -> list[str]:
    """The statements that begin a transaction."""
    limits = {
        "lock_timeout": address.lock_timeout,
        "statement_timeout": statement_seconds,
        "idle_in_transaction_session_timeout": address.idle_timeout,
    }
    # READ COMMITTED is the level that the code's locks are written for; a reader sees one snapshot, as on sqlite.
    level = "REPEATABLE READ, READ ONLY" if read_only else "READ COMMITTED"
    settings = {**{name: int(seconds * 1000) for name, seconds in limits.items()}, **KEEPALIVES, **PLANNER}
    return ["BEGIN ISOLATION LEVEL " + level, *("SET LOCAL %s = %s" % s for s in settings.items())]
