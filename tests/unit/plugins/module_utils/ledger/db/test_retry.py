# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Transactions that something came between: they are done once, or not at all and said so."""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
import time
import typing as t

import pytest
import sqlalchemy as sa
from postgres import PostgresServer, Wire

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import commits
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import bulk
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import at

FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def name(server: PostgresServer) -> t.Iterator[str]:
    name = server.create()
    ledger = opened(server.url(name))
    ledger.migrate()
    ledger.transact(make_probe)
    ledger.close()
    yield name
    server.drop(name)


@pytest.fixture
def wire(server: PostgresServer) -> t.Iterator[Wire]:
    wire = Wire(server)
    yield wire
    wire.close()


def opened(url: str, **settings: t.Any) -> database.Ledger:
    return database.open_ledger(LedgerAddress(url=url, **settings), create=True, check_revision=False)


def make_probe(tx: Transaction) -> None:
    tx.execute(sa.text("CREATE TABLE probe (who VARCHAR(40), number INTEGER)"))
    tx.execute(sa.text("CREATE TABLE seats (id INTEGER PRIMARY KEY, free INTEGER)"))
    tx.execute(sa.text("INSERT INTO seats VALUES (1, 1000000), (2, 1000000)"))


def add(tx: Transaction, who: str, number: int) -> int:
    """Not repeatable by itself: two of it are two rows and two seats."""
    tx.execute(sa.text("INSERT INTO probe VALUES (:w, :n)"), {"w": who, "n": number})
    tx.execute(sa.text("UPDATE seats SET free = free - 1 WHERE id = 1"))
    return number


PROBE = sa.Table("probe", sa.MetaData(), sa.Column("who", sa.Text), sa.Column("number", sa.Integer))


def add_together(tx: Transaction, who: str, number: int) -> int:
    """The same, with writes that are sent as one."""
    with bulk.together(tx):
        bulk.insert(tx, PROBE, [{"who": who, "number": number}])
    tx.execute(sa.text("UPDATE seats SET free = free - 1 WHERE id = 1"))
    return number


def rows(tx: Transaction) -> list[tuple[str, int]]:
    return sorted((r.who, r.number) for r in tx.execute(sa.text("SELECT who, number FROM probe")))


def free(tx: Transaction, seat: int = 1) -> int:
    return int(tx.execute(sa.text("SELECT free FROM seats WHERE id = :s"), {"s": seat}).scalar_one())


def backend(tx: Transaction) -> int:
    return int(tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())


# --- the commit that got no answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("adding", [add, add_together])
@pytest.mark.parametrize(
    "breaks", [["before"], ["after"], ["late"], ["after", "after"], ["before", "after"], ["before", "before", "late"]]
)
def test_a_commit_without_an_answer_is_done_once(
    server: PostgresServer, name: str, wire: Wire, breaks: list[str], adding: t.Callable[[Transaction, str, int], int]
) -> None:
    ledger = opened(wire.url(name))
    assert ledger.transact(add, "a", 0) == 0
    calls = []

    def work(tx: Transaction) -> str:
        calls.append(1)
        adding(tx, "a", 1)
        return "value %d" % len(calls)

    wire.breaks = list(breaks)
    value = ledger.transact(work)
    assert not wire.breaks  # also the asking may be broken
    assert ledger.inspect(rows) == [("a", 0), ("a", 1)]
    assert 1_000_000 - ledger.inspect(free) == 2
    done_at = next((i for i, how in enumerate(breaks) if how != "before"), len(breaks))
    assert value == "value %d" % (done_at + 1)  # of the attempt that counts
    assert len(calls) == done_at + 1
    ledger.close()


def test_the_server_dies_at_the_commit(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    kills = [1, 1, 1]

    @sa.event.listens_for(ledger.engine, "commit")
    def kill(tx: Transaction) -> None:
        if kills:
            kills.pop()
            pid = tx.connection.dbapi_connection.info.backend_pid
            with server.connect() as other:
                other.execute("SELECT pg_terminate_backend(%d, 5000)" % pid)

    ledger.transact(add, "a", 1)
    assert not kills and ledger.inspect(rows) == [("a", 1)]
    ledger.close()


def test_an_unknown_outcome_is_said(server: PostgresServer, name: str, wire: Wire) -> None:
    ledger = opened(wire.url(name), retry_timeout=1.0)
    ledger.transact(add, "a", 0)
    wire.breaks = ["after"]

    def work(tx: Transaction) -> None:
        add(tx, "a", 1)
        wire.refuse()  # nobody can ask again

    with pytest.raises(errors.LedgerError) as caught:
        ledger.transact(work)
    assert "to tell whether it was" in caught.value.message and "bootflow.compute.list" in caught.value.remedy
    assert not caught.value.retryable
    ledger.close()


def test_a_transaction_that_wrote_nothing_is_not_signed(server: PostgresServer, name: str, wire: Wire) -> None:
    ledger = opened(wire.url(name))
    count = sa.select(sa.func.count()).select_from(commits.table)
    before = ledger.inspect(lambda tx: tx.execute(count).scalar())
    assert ledger.transact(rows) == []
    assert ledger.inspect(lambda tx: tx.execute(count).scalar()) == before
    wire.breaks = ["after"]
    assert ledger.transact(rows) == []
    for number in range(5):
        ledger.transact(add, "a", number)
    assert ledger.inspect(lambda tx: tx.execute(count).scalar()) == before + 1  # one row, however many transactions
    ledger.close()


def test_writes_that_are_sent_together_have_the_mark_with_them(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    for work in (add, add_together, add_together):
        with counted(ledger) as sent:
            ledger.transact(work, "a", 1)
        assert sum("ledger_commits" in text for text, _values in sent) == 1
        # What was written, with what began the transaction, and of the one the mark in a statement of its own
        assert len(sent) == (3 if work is add else 2)
    with ledger.read() as tx:
        assert tx.execute(sa.select(commits.table.c.number)).scalars().all()[-1] >= 3
    ledger.close()


def test_threads_and_forks_sign_for_themselves(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    threads = [threading.Thread(target=ledger.transact, args=(add, "t", n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker = commits.Worker()
    mine = worker.next()
    reader, writer = FORK.Pipe()
    child = FORK.Process(target=lambda: writer.send(worker.next()))
    child.start()
    theirs = reader.recv()
    child.join()
    assert theirs[0] != mine[0] and theirs[1] == 1 and worker.next() == (mine[0], 2)
    assert ledger.inspect(rows) == [("t", n) for n in range(4)]
    ledger.close()


def test_old_signatures_are_forgotten(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    ledger.transact(add, "a", 1)
    assert ledger.transact(lambda tx: commits.forget_old(at(tx, time.time() + 60))) == 0
    assert ledger.transact(lambda tx: commits.forget_old(at(tx, time.time() + commits.KEEP_SECONDS + 60))) >= 1
    ledger.close()


# --- a restarting server ---------------------------------------------------------------------------------------------


def _work(url: str, who: str, count: int, answers: t.Any) -> None:
    try:
        ledger = opened(url, retry_timeout=60)
        for number in range(count):
            assert ledger.transact(add, who, number) == number
            if number % 10 == 0:
                ledger.inspect(rows)
        answers.put((who, None))
    except Exception as e:
        answers.put((who, repr(e)))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_nothing_is_lost_or_doubled_over_restarts(server: PostgresServer, name: str, mode: str) -> None:
    answers = FORK.Queue()
    workers = [FORK.Process(target=_work, args=(server.url(name), "w%d" % w, 400, answers)) for w in range(6)]
    for worker in workers:
        worker.start()
    for _each in range(3):
        time.sleep(0.3)
        server.restart(mode)
    found = [answers.get(timeout=120) for _each in workers]
    for worker in workers:
        worker.join(60)
    assert [f for f in found if f[1]] == []
    ledger = opened(server.url(name))
    assert ledger.inspect(rows) == sorted(("w%d" % w, n) for w in range(6) for n in range(400))
    assert ledger.inspect(free) == 1_000_000 - 2400
    ledger.close()


def test_a_restart_in_the_middle_of_a_transaction(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    restarts = [1]

    def work(tx: Transaction) -> int:
        add(tx, "a", 1)
        if restarts:
            restarts.pop()
            server.restart()
        add(tx, "a", 2)
        return free(tx)

    assert ledger.transact(work) == 1_000_000 - 2
    restarts.append(1)
    assert ledger.rehearsal(work) == 1_000_000 - 4
    restarts.append(1)

    def read(tx: Transaction) -> list[tuple[str, int]]:
        found = rows(tx)
        if restarts:
            restarts.pop()
            server.restart()
            return rows(tx)
        return found

    assert ledger.inspect(read) == [("a", 1), ("a", 2)]
    ledger.close()


def test_a_connection_that_went_while_it_was_idle_is_made_anew(
    server: PostgresServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import engine

    monkeypatch.setattr(engine, "IDLE_BEFORE_PING", -1.0)
    ledger = opened(server.url(name))
    first = ledger.inspect(backend)
    server.restart()
    with ledger.write() as tx:  # no second attempt here: the pool asks before it hands out
        assert backend(tx) != first
    ledger.close()


def test_opening_waits_for_a_server_that_starts(server: PostgresServer, name: str) -> None:
    server.halt()
    starter = threading.Timer(1.0, server.resume)
    starter.start()
    begun = time.monotonic()
    ledger = database.open_ledger(server.url(name))
    assert time.monotonic() - begun > 0.5
    ledger.close()
    starter.join()


def test_opening_does_not_wait_where_it_was_told_not_to(server: PostgresServer, name: str) -> None:
    server.halt()
    try:
        begun = time.monotonic()
        with pytest.raises(errors.LedgerError) as caught:
            database.open_ledger(server.url(name), patient=False)
        assert time.monotonic() - begun < 15 and caught.value.retryable and "server runs" in caught.value.remedy
        with pytest.raises(errors.LedgerError):
            database.open_ledger(LedgerAddress(url=server.url(name), retry_timeout=0.3))
    finally:
        server.resume()


# --- other runs ------------------------------------------------------------------------------------------------------


def test_a_deadlock_is_not_seen(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    barrier = threading.Barrier(2, timeout=30)
    attempts = []

    def work(tx: Transaction, order: tuple[int, int]) -> None:
        attempts.append(order)
        for i, seat in enumerate(order):
            tx.execute(sa.text("UPDATE seats SET free = free - 1 WHERE id = %d" % seat))
            if i == 0 and len(attempts) <= 2:
                barrier.wait()

    threads = [threading.Thread(target=ledger.transact, args=(work, o)) for o in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(attempts) == 3
    assert ledger.inspect(free, 1) == ledger.inspect(free, 2) == 1_000_000 - 2
    ledger.close()


def test_a_serialisation_failure_is_not_seen(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    attempts = []

    def work(tx: Transaction) -> int:
        tx.execute(sa.text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
        attempts.append(free(tx))
        if len(attempts) == 1:
            thread = threading.Thread(target=ledger.transact, args=(add, "other", 1))
            thread.start()
            thread.join(30)
        tx.execute(sa.text("UPDATE seats SET free = :f WHERE id = 1"), {"f": attempts[-1] - 1})
        return attempts[-1] - 1

    assert ledger.transact(work) == 1_000_000 - 2
    assert attempts == [1_000_000, 999_999]
    ledger.close()


@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
def test_a_lock_of_another_run_is_waited_for_and_then_told(
    request: pytest.FixtureRequest, tmp_path: t.Any, database_kind: str
) -> None:
    if database_kind == "sqlite":
        url = "sqlite:///%s" % (tmp_path / "ledger.db")
        first = opened(url)
        first.migrate()
        first.transact(make_probe)
        first.close()
    else:
        url = request.getfixturevalue("server").url(request.getfixturevalue("name"))
    holder = opened(url)
    short = opened(url, lock_timeout=0.2, retry_timeout=0.6)
    long = opened(url, lock_timeout=0.2, retry_timeout=30)
    with holder.write() as tx:
        add(tx, "holder", 0)
        with pytest.raises(errors.LedgerError) as caught:
            short.transact(add, "short", 0)
        assert caught.value.retryable and "0.2 s (bootflow_ledger_lock_timeout)" in caught.value.remedy
        waiting = threading.Thread(target=long.transact, args=(add, "long", 0))
        waiting.start()
        time.sleep(0.7)
    waiting.join(30)
    assert holder.inspect(rows) == [("holder", 0), ("long", 0)]
    for ledger in (holder, short, long):
        ledger.close()


def test_a_collision_is_repeated_where_the_code_says_so(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    attempts = []

    def work(tx: Transaction) -> int:
        attempts.append(1)
        number = 1 if len(attempts) == 1 else 3
        tx.execute(sa.text("INSERT INTO seats VALUES (:n, 1)"), {"n": number})
        return number

    with pytest.raises(errors.LedgerError) as caught:
        ledger.transact(work)
    assert caught.value.retryable and len(attempts) == 1
    attempts.clear()
    assert ledger.transact(work, collisions=2) == 3 and len(attempts) == 2
    attempts.clear()
    with pytest.raises(errors.LedgerError):
        ledger.transact(lambda tx: (attempts.append(1), make_seat(tx)), collisions=2)
    assert len(attempts) == 3
    ledger.close()


def make_seat(tx: Transaction) -> None:
    tx.execute(sa.text("INSERT INTO seats VALUES (1, 1)"))


def test_an_error_of_ours_ends_it_at_once(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name))
    attempts = []

    def work(tx: Transaction) -> None:
        attempts.append(1)
        add(tx, "a", 1)
        raise errors.NoValidHost(reason="none")

    with pytest.raises(errors.NoValidHost):
        ledger.transact(work)
    assert attempts == [1] and ledger.inspect(rows) == []
    with pytest.raises(errors.LedgerError) as caught:
        ledger.transact(lambda tx: tx.execute(sa.text("SELECT nonsense")))
    assert not caught.value.retryable
    ledger.close()


# --- the session's settings ------------------------------------------------------------------------------------------


def test_a_frozen_run_lets_its_locks_go(server: PostgresServer, name: str) -> None:
    frozen, other = opened(server.url(name), idle_timeout=0.3), opened(server.url(name))
    attempts, locked, let_go = [], threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        add(tx, "frozen", 0)
        attempts.append(1)
        if len(attempts) == 1:
            locked.set()
            let_go.wait(60)  # it sleeps until the other one is through
        add(tx, "frozen", 1)

    thread = threading.Thread(target=frozen.transact, args=(work,))
    thread.start()
    assert locked.wait(30)
    other.transact(add, "other", 0)
    let_go.set()
    thread.join(30)
    assert len(attempts) == 2
    assert other.inspect(rows) == [("frozen", 0), ("frozen", 1), ("other", 0)]
    frozen.close()
    other.close()


def test_a_statement_that_takes_too_long(server: PostgresServer, name: str) -> None:
    ledger = opened(server.url(name), statement_timeout=0.2)
    with pytest.raises(errors.LedgerError) as caught:
        ledger.transact(lambda tx: tx.execute(sa.text("SELECT pg_sleep(5)")).all())
    assert "bootflow_ledger_statement_timeout" in caught.value.remedy and not caught.value.retryable
    ledger.close()


def test_settings_arrive(server: PostgresServer, name: str) -> None:
    address = LedgerAddress(
        url=server.url(name) + "&options=-c%20work_mem%3D8MB", application_name="bootflow " + "x" * 100, lock_timeout=7
    )

    def show(ledger: database.Ledger, *names: str) -> list[str]:
        with ledger.write() as tx:
            return [str(tx.execute(sa.text("SHOW " + n)).scalar()) for n in names]

    ledger = database.open_ledger(address)
    found = show(ledger, "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "work_mem",
                 "transaction_isolation", "application_name", "random_page_cost", "enable_bitmapscan")  # fmt: skip
    assert found == ["7s", "5min", "2min", "8MB", "read committed", "bootflow " + "x" * 54, "1.1", "off"]
    ledger.close()
    ledger = database.open_ledger(
        dataclasses.replace(address, lock_timeout=0, statement_timeout=0, idle_timeout=0, application_name="b")
    )
    assert show(ledger, "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout") == ["0", "0", "0"]
    ledger.close()
    ledger = opened(server.url(name) + "&application_name=mine")
    assert show(ledger, "application_name") == ["mine"]
    ledger.close()


@pytest.mark.parametrize(
    "setting", [{"lock_timeout": -1}, {"statement_timeout": 1e12}, {"retry_timeout": float("nan")}, {"sslmode": "maybe"},
                {"password": "a", "password_file": "/b"}, {"sslrootcert": "/nowhere/ca.pem"}],
)  # fmt: skip
def test_settings_that_cannot_be(setting: dict[str, t.Any]) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        database.open_ledger(LedgerAddress(url="postgresql://h/d", **setting))
    assert "bootflow_ledger_" in caught.value.message and caught.value.remedy
