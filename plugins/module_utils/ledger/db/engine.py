# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engines: one for an sqlite file, one for PostgreSQL, made for processes that live for one task.

sqlite: WAL, synchronous=FULL (a confirmed claim survives a power cut), a busy timeout on every connection and
BEGIN IMMEDIATE for each writing transaction, because a lock upgrade in the middle fails at once and ignores the timeout.
PostgreSQL: all settings are in the connection's first packet, so none costs a round trip.
"""

from __future__ import annotations

import time
import typing as t

from .address import MEMORY, LedgerAddress, normalise_url, url_is_sqlite, without_password
from .sqlalchemy_import import sa

IDLE_BEFORE_PING = 5.0  # seconds; a recently used connection is not pinged
FOREVER = 2_000_000_000  # milliseconds: sqlite cannot wait without a limit

# Execution options of a connection
READ_ONLY = "bootflow_read_only"
FOREIGN_KEYS_OFF = "bootflow_foreign_keys_off"


def make_engine(address: LedgerAddress) -> sa.Engine:
    """The engine of a ledger.

    :raises sqlalchemy.exc.ArgumentError, ValueError: not a database URL."""
    url = normalise_url(address.url)
    return _sqlite(address, url) if url_is_sqlite(url) else _postgresql(address, url)


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
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(conn: sa.Connection) -> None:
        options = conn.get_execution_options()
        if options.get(FOREIGN_KEYS_OFF):
            conn.exec_driver_sql("PRAGMA foreign_keys=OFF")  # has no effect inside a transaction
        conn.exec_driver_sql("BEGIN" if options.get(READ_ONLY) else "BEGIN IMMEDIATE")

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(dbapi_connection: t.Any, _record: sa.pool.ConnectionPoolEntry) -> None:
        if dbapi_connection is not None and not dbapi_connection.in_transaction:
            dbapi_connection.execute("PRAGMA foreign_keys=ON").close()

    return engine


# --- PostgreSQL ----------------------------------------------------------------------------------------------------


def _postgresql(address: LedgerAddress, url: str) -> sa.Engine:
    parsed = sa.make_url(without_password(url))
    query = {k: v for k, v in parsed.query.items() if k != "password"}
    stray = parsed.password
    parsed = sa.URL.create(parsed.drivername, parsed.username, None, parsed.host, parsed.port, parsed.database, query)
    engine = sa.create_engine(
        parsed,
        connect_args=_libpq_arguments(address, query, stray),
        hide_parameters=True,
        pool_size=2,
        max_overflow=4,
        pool_use_lifo=True,
    )

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(_connection: t.Any, record: sa.pool.ConnectionPoolEntry) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def on_checkout(dbapi_connection: t.Any, record: sa.pool.ConnectionPoolEntry, _proxy: t.Any) -> None:
        if time.monotonic() - record.info.get("used", time.monotonic()) < IDLE_BEFORE_PING:
            return
        try:
            dbapi_connection.execute("SELECT 1")
            dbapi_connection.rollback()
        except t.cast(t.Any, engine.dialect.dbapi).Error as e:
            raise sa.exc.DisconnectionError() from e  # the pool opens a new one

    return engine


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
    arguments["options"] = " ".join(
        ["-c %s=%s" % setting for setting in session_settings(address).items()] + _texts(query.get("options"))
    )
    return arguments


def session_settings(address: LedgerAddress) -> dict[str, str]:
    """The session's settings, for the option -c."""
    return {
        "default_transaction_isolation": r"read\ committed",  # the level that the code's locks are written for
        "lock_timeout": str(int(address.lock_timeout * 1000)),
        "statement_timeout": str(int(address.statement_timeout * 1000)),
        "idle_in_transaction_session_timeout": str(int(address.idle_timeout * 1000)),
        # the session and locks of a vanished controller end after two minutes
        "tcp_keepalives_idle": "60",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "6",
    }


def _texts(value: t.Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
