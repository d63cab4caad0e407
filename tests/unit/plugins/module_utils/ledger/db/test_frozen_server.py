# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server or a pooler that is stopped is not waited for without end. Its connections stay, its machine acknowledges."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import threading
import time
import typing as t

import pytest
import sqlalchemy as sa
from pgbouncer import PgBouncer
from postgres import PostgresServer

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import engine
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction

QUICK: dict[str, t.Any] = {
    "connect_timeout": 2, "lock_timeout": 0.3, "statement_timeout": 0.5, "answer_timeout": 0.5, "retry_timeout": 0.5
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def name(server: PostgresServer) -> t.Iterator[str]:
    name = server.create()
    ledger = opened(server.url(name))
    ledger.migrate()
    ledger.transact(lambda tx: tx.execute(sa.text("CREATE TABLE probe (number INTEGER PRIMARY KEY)")))
    ledger.close()
    yield name
    server.drop(name)


def opened(url: str, **settings: t.Any) -> database.Ledger:
    return database.open_ledger(LedgerAddress(url=url, **settings), check_revision=False)


def backend(tx: Transaction) -> int:
    return int(tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())


def add(tx: Transaction, number: int) -> int:
    tx.execute(sa.text("INSERT INTO probe VALUES (:n)"), {"n": number})
    return number


def rows(tx: Transaction) -> list[int]:
    return sorted(tx.execute(sa.text("SELECT number FROM probe")).scalars())


@contextlib.contextmanager
def stopped(*pids: int) -> t.Iterator[None]:
    with contextlib.ExitStack() as going_on:
        for pid in pids:
            going_on.callback(send, pid, signal.SIGCONT)
            send(pid, signal.SIGSTOP)
        yield


@contextlib.contextmanager
def all_stopped(server: PostgresServer) -> t.Iterator[None]:
    """The server's own process, and then all that it had started: it starts none meanwhile."""
    first = int(pathlib.Path(server.data, "postmaster.pid").read_text().split()[0])
    with stopped(first):
        found = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True, check=True).stdout.split()
        with stopped(*map(int, found)):
            yield


def send(pid: int, number: signal.Signals) -> None:
    """A process of a connection that was just closed may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def ends_soon(work: t.Callable[[], t.Any]) -> errors.LedgerError:
    begun = time.monotonic()
    with pytest.raises(errors.LedgerError) as caught:
        work()
    assert time.monotonic() - begun < 20
    return caught.value


@pytest.mark.parametrize("how", ["transact", "inspect", "rehearsal"])
def test_a_server_process_that_is_frozen_inside_a_transaction(server: PostgresServer, name: str, how: str) -> None:
    ledger = opened(server.url(name), **QUICK)
    frozen = contextlib.ExitStack()

    def work(tx: Transaction) -> list[int]:
        if how != "inspect":
            add(tx, 1)
        frozen.enter_context(stopped(backend(tx)))
        return rows(tx)

    with frozen:
        error = ends_soon(lambda: getattr(ledger, how)(work))
    assert error.retryable and error.code == "LedgerError" and "no answer within 1 s" in error.message
    assert "bootflow_ledger_answer_timeout" in error.remedy
    assert ledger.inspect(rows) == []
    ledger.close()


def test_a_server_that_is_frozen_as_a_whole(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name), **QUICK)

    def work(tx: Transaction) -> None:
        add(tx, 1)
        frozen.enter_context(all_stopped(server))
        rows(tx)

    with contextlib.ExitStack() as frozen:
        assert ends_soon(lambda: ledger.transact(work)).retryable
        assert ends_soon(lambda: ledger.inspect(rows)).retryable  # there is no new connection, either
        assert ends_soon(lambda: opened(server.url(name), **QUICK).inspect(rows)).retryable
    assert ledger.inspect(rows) == []
    ledger.close()


def test_a_pooler_that_is_frozen(server: PostgresServer, name: str) -> None:
    pooler = PgBouncer(server, "transaction")
    try:
        ledger = opened(pooler.url(name), **QUICK)

        def work(tx: Transaction) -> None:
            add(tx, 1)
            frozen.enter_context(stopped(pooler.process.pid))
            rows(tx)

        with contextlib.ExitStack() as frozen:
            assert ends_soon(lambda: ledger.transact(work)).retryable
        ledger.close()
    finally:
        pooler.stop()


def test_a_commit_that_a_frozen_server_did_not_answer(server: PostgresServer, name: str) -> None:
    """Whether it was done is unknown, and said; a server that goes on in time is asked."""
    ledger = opened(server.url(name), **QUICK)
    frozen, pids = contextlib.ExitStack(), []

    @sa.event.listens_for(ledger.engine, "commit")
    def freeze(conn: sa.Connection) -> None:
        if not pids:
            pids.append(t.cast(t.Any, conn.connection.dbapi_connection).info.backend_pid)
            frozen.enter_context(stopped(*pids))

    with frozen:
        error = ends_soon(lambda: ledger.transact(add, 1))
    assert not error.retryable and "to tell whether it was" in error.message
    pids.clear()
    ledger.close()

    ledger = opened(server.url(name), **{**QUICK, "retry_timeout": 60})
    sa.event.listen(ledger.engine, "commit", freeze)
    thaw = threading.Timer(3, frozen.close)
    thaw.start()
    assert ledger.transact(add, 2) == 2
    thaw.join()
    assert 2 in ledger.inspect(rows)
    ledger.close()


def test_a_frozen_server_that_goes_on_is_asked_again(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name), **{**QUICK, "retry_timeout": 60})
    frozen, attempts = contextlib.ExitStack(), []

    def work(tx: Transaction) -> list[int]:
        attempts.append(add(tx, 3))
        if len(attempts) == 1:
            frozen.enter_context(stopped(backend(tx)))
            threading.Timer(3, frozen.close).start()
        return rows(tx)

    assert ledger.transact(work) == [3]
    assert len(attempts) > 1 and ledger.inspect(rows) == [3]
    ledger.close()


def test_a_migration(server: PostgresServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take longer than other transactions, but not for ever."""
    monkeypatch.setattr(engine, "MIGRATION_SECONDS", 1.5)
    ledger = opened(server.url(name), **QUICK)

    def upgrade(tx: Transaction, *_others: t.Any) -> None:
        tx.execute(sa.text("SELECT pg_sleep(1.2)"))
        frozen.enter_context(stopped(backend(tx)))
        backend(tx)

    monkeypatch.setattr(database.runner, "upgrade", upgrade)
    with contextlib.ExitStack() as frozen:
        error = ends_soon(ledger.migrate)
    assert error.retryable and "no answer within 2 s" in error.message
    ledger.close()


def test_connecting(server: PostgresServer, name: str) -> None:
    with all_stopped(server):
        assert ends_soon(lambda: opened(server.url(name), **QUICK).inspect(rows)).retryable


def test_a_connection_that_froze_while_it_was_idle(
    server: PostgresServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_BEFORE_PING", -1.0)
    ledger = opened(server.url(name), **QUICK)
    with stopped(ledger.inspect(backend)):
        assert ledger.inspect(rows) == []  # on another one
    ledger.close()


def test_a_statement_that_is_cut_is_ended_on_the_server(server: PostgresServer, name: str) -> None:
    """One that the server's own limit did not end, because it does not know it."""
    ledger = opened(server.url(name), **QUICK)
    pids: list[int] = []

    def work(tx: Transaction) -> None:
        tx.execute(sa.text("SET LOCAL statement_timeout = 0"))
        pids.append(backend(tx))
        tx.execute(sa.text("SELECT pg_sleep(600)"))

    assert ends_soon(lambda: ledger.transact(work)).retryable
    with server.connect() as conn:
        end = time.monotonic() + 10
        while conn.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active'", [pids[0]]).fetchone():
            assert time.monotonic() < end
            time.sleep(0.1)
    ledger.close()


def test_long_answers_are_waited_for_where_the_limits_are_off(server: PostgresServer, name: str) -> None:
    for off in ("statement_timeout", "answer_timeout"):
        settings = {**QUICK, "statement_timeout": 0.2, "answer_timeout": 0.2, off: 0}
        ledger = opened(server.url(name), **settings)
        sleep = sa.text("SET LOCAL statement_timeout = 0; SELECT pg_sleep(1)")
        ledger.transact(lambda tx, s=sleep: tx.execute(s))
        ledger.close()
