# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each transaction brings its own settings: whatever the defaults are, with and without PgBouncer in between."""

from __future__ import annotations

import time
import typing as t

import pytest
import sqlalchemy as sa
from pgbouncer import PgBouncer
from postgres import PostgresServer

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction

SETTINGS = ("transaction_isolation", "transaction_read_only", "lock_timeout", "statement_timeout",
            "idle_in_transaction_session_timeout")  # fmt: skip
POOLINGS = ("session", "transaction")


@pytest.fixture(scope="module")
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def name(server: PostgresServer) -> t.Iterator[str]:
    name = server.create()
    ledger = opened(server.url(name))
    ledger.migrate()
    ledger.close()
    yield name
    server.drop(name)


@pytest.fixture
def poolers() -> t.Iterator[list[PgBouncer]]:
    """Those that a test starts, to be stopped."""
    started: list[PgBouncer] = []
    yield started
    for pooler in started:
        pooler.stop()


def opened(url: str, **settings: t.Any) -> database.Ledger:
    return database.open_ledger(LedgerAddress(url=url, **settings), check_revision=False)


def show(tx: Transaction) -> list[str]:
    return [str(tx.execute(sa.text("SHOW " + n)).scalar()) for n in SETTINGS]


@pytest.mark.parametrize("between", [None, *POOLINGS])
@pytest.mark.parametrize("default", ["server", "database", "role", "URL"])
def test_a_transaction_has_its_own_isolation_level_and_limits(
    server: PostgresServer, name: str, poolers: list[PgBouncer], between: str | None, default: str
) -> None:
    """What the server, the database, the role or the URL have for defaults is not what a transaction gets."""
    defaults = {"default_transaction_isolation": "serializable", "lock_timeout": "90s", "statement_timeout": "91s"}
    option = ""
    if default == "URL":
        option = "&options=" + "%20".join("-c%%20%s%%3D%s" % each for each in defaults.items())
    targets = {"server": "SYSTEM", "database": "DATABASE " + name, "role": "ROLE postgres"}

    def alter(what: str, *settings: str) -> None:
        with server.connect() as conn:
            for setting in settings:
                conn.execute("ALTER %s %s %s" % (targets[default], what, setting))
            conn.execute("SELECT pg_reload_conf()")

    if default in targets:
        alter("SET", *("%s = '%s'" % each for each in defaults.items()))
    try:
        if between is not None:
            poolers.append(PgBouncer(server, between, size=1))
        ledger = opened((server if between is None else poolers[0]).url(name) + option, lock_timeout=7, idle_timeout=8)
        for _each in range(2):
            assert ledger.transact(show) == ["read committed", "off", "7s", "5min", "8s"]
            assert ledger.inspect(show) == ["repeatable read", "on", "7s", "5min", "8s"]
            assert ledger.rehearsal(show) == ["read committed", "off", "7s", "5min", "8s"]
        ledger.close()
    finally:
        if default in targets:
            alter("RESET", *defaults)


@pytest.mark.parametrize("between", [None, *POOLINGS])
def test_a_server_that_only_reads_by_default_is_not_written_to(
    server: PostgresServer, name: str, poolers: list[PgBouncer], between: str | None
) -> None:
    """Neither at first, nor on a connection that has read before."""
    ledger = opened(server.url(name))
    ledger.transact(lambda tx: tx.execute(sa.text("CREATE TABLE probe (number INTEGER)")))
    ledger.close()
    with server.connect() as conn:
        conn.execute("ALTER DATABASE %s SET default_transaction_read_only = on" % name)
    if between is not None:
        poolers.append(PgBouncer(server, between, size=1))
    ledger = opened((server if between is None else poolers[0]).url(name))
    for _each in range(2):
        with pytest.raises(errors.LedgerError) as caught:
            ledger.transact(lambda tx: tx.execute(sa.text("INSERT INTO probe VALUES (1)")))
        assert "default_transaction_read_only" in caught.value.remedy and not caught.value.retryable
        assert ledger.inspect(lambda tx: tx.execute(sa.text("SELECT number FROM probe")).all()) == []
    ledger.close()


def test_statements_of_another_client_are_not_run(server: PostgresServer, name: str, poolers: list[PgBouncer]) -> None:
    """Two clients take turns at one server process, each with statements that a driver would prepare."""
    poolers.append(PgBouncer(server, "transaction", size=1))
    ledgers = [opened(poolers[0].url(name), retry_timeout=0.1) for _each in range(2)]
    for number in range(20):
        for ledger, word in zip(ledgers, ("one", "two")):
            query = sa.text("SELECT '%s ' || CAST(:number AS VARCHAR)" % word).bindparams(number=str(number))
            found = ledger.transact(lambda tx, q=query: tx.execute(q).scalar())
            assert found == "%s %d" % (word, number)
    for ledger in ledgers:
        ledger.close()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_limits_hold_behind_pgbouncer(
    server: PostgresServer, name: str, poolers: list[PgBouncer], pooling: str
) -> None:
    poolers.append(PgBouncer(server, pooling))
    url = poolers[0].url(name)
    lock = sa.text("SELECT pg_advisory_xact_lock(1)")
    holder, short = opened(url), opened(url, lock_timeout=0.2, statement_timeout=5, idle_timeout=0.3, retry_timeout=0)
    with holder.write() as tx:
        tx.execute(lock)
        with pytest.raises(errors.LedgerError) as caught:
            short.transact(lambda tx: tx.execute(lock))
        assert caught.value.retryable and "0.2 s (bootflow_ledger_lock_timeout)" in caught.value.remedy
    with pytest.raises(errors.LedgerError) as caught:
        short.transact(lambda tx: tx.execute(sa.text("SELECT pg_sleep(60)")))
    assert "5 s: raise bootflow_ledger_statement_timeout" in caught.value.remedy

    def freeze(tx: Transaction) -> None:
        tx.execute(lock)
        time.sleep(1)
        tx.execute(lock)

    with pytest.raises(errors.LedgerError) as caught:
        short.transact(freeze)
    assert caught.value.retryable
    for ledger in (holder, short):
        ledger.close()


def test_statement_pooling_is_refused_in_words(server: PostgresServer, name: str, poolers: list[PgBouncer]) -> None:
    poolers.append(PgBouncer(server, "statement"))
    begun = time.monotonic()
    with pytest.raises(errors.LedgerError) as caught:
        opened(poolers[0].url(name), retry_timeout=30).migrate()
    assert "pool_mode to session or transaction" in caught.value.remedy and not caught.value.retryable
    assert time.monotonic() - begun < 10  # it does not get better by waiting


def test_pgbouncer_needs_no_setting(server: PostgresServer, name: str, poolers: list[PgBouncer]) -> None:
    """But for options of the URL itself."""
    poolers.append(PgBouncer(server, "session", ignored=""))
    ledger = opened(poolers[0].url(name))
    ledger.migrate()
    ledger.close()
    with pytest.raises(errors.LedgerError) as caught:
        opened(poolers[0].url(name) + "&options=-c%20work_mem%3D8MB", retry_timeout=30).migrate()
    assert "ignore_startup_parameters" in caught.value.remedy
