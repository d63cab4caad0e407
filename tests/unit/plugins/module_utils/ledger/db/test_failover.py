# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several servers in one URL: the primary is found among them, and the next one is waited for. A real failover: scripts/test failover."""

from __future__ import annotations

import threading
import time
import typing as t
from types import SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa
import yaml
from patroni_cluster import documented
from postgres import PostgresServer, Standby

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import engine
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress, hosts_as_options
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction, is_of_standby

# --- the URL ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u@a,b/d?x=1", "postgresql://u@/d?host=a,b&x=1"),
        ("postgresql://u@a:5432,b:5433/d", "postgresql://u@/d?host=a,b&port=5432,5433"),
        ("postgresql://u@a,b:5433/d", "postgresql://u@/d?host=a,b&port=,5433"),
        ("postgresql://[::1]:5432,[fd00::2]/d", "postgresql:///d?host=::1,fd00::2&port=5432,"),
        ("postgresql://%2Frun%2Fa,b", "postgresql://?host=%2Frun%2Fa,b"),
        ("postgresql://u@a:5432/d?options=x,y", "postgresql://u@a:5432/d?options=x,y"),
        ("postgresql://u@/d?host=a,b", "postgresql://u@/d?host=a,b"),
        ("postgresql:///d?service=x", "postgresql:///d?service=x"),
    ],
)
def test_a_list_of_hosts(url: str, expected: str) -> None:
    assert hosts_as_options(url) == expected


def test_the_page_shows_the_files_that_a_failover_is_tried_with() -> None:
    patroni = yaml.safe_load(documented("/etc/patroni/config.yml"))
    dcs = patroni["bootstrap"]["dcs"]
    assert dcs["synchronous_mode"] and dcs["loop_wait"] + 2 * dcs["retry_timeout"] <= dcs["ttl"]
    assert 2 * dcs["ttl"] <= LedgerAddress(url="").retry_timeout, "runs wait for the next primary"
    assert "ETCD_INITIAL_CLUSTER=" in documented("/etc/default/etcd")
    assert "httpchk GET /primary" in documented("/etc/haproxy/haproxy.cfg")


class _Connecting(Exception):
    pass


@pytest.mark.parametrize("hosts", ["a:5432,b:5433", "?host=a,b&port=5432,5433", "?host=a:5432&host=b:5433"])
def test_what_libpq_is_given(monkeypatch: pytest.MonkeyPatch, hosts: str) -> None:
    """Whatever the form of the URL, it is the same; settings, options and password reach all servers."""
    given: dict[str, t.Any] = {}

    class Driver:
        @staticmethod
        def connect(*_positional: t.Any, **named: t.Any) -> t.Any:
            given.update(named)
            raise _Connecting

    monkeypatch.setenv("BOOTFLOW_LEDGER_PASSWORD", "from-outside")
    authority, question, options = hosts.partition("?")
    url = "postgresql://u@%s/d?%starget_session_attrs=read-write&options=-c%%20work_mem%%3D8MB"
    url %= (authority, options + "&" if question else "")
    address = LedgerAddress(url=url, application_name="bootflow run", connect_timeout=3)
    found = engine.make_engine(address, lambda: Driver)
    with pytest.raises(_Connecting):
        found.connect()
    expected = {
        "host": "a,b", "port": "5432,5433", "user": "u", "dbname": "d", "target_session_attrs": "read-write",
        "options": "-c work_mem=8MB", "application_name": "bootflow run", "connect_timeout": 3, "password": "from-outside",
    }  # fmt: skip
    assert {name: given[name] for name in expected} == expected


# --- a primary and its standby ---------------------------------------------------------------------------------------


class Pair:
    """Two servers, of which the first may be lost and the second be promoted."""

    def __init__(self, server: PostgresServer, standby: Standby, name: str):
        self.server = server
        self.standby = standby
        self.name = name

    def url(self, *folders: str, attributes: str = "read-write") -> str:
        hosts = ",".join(folders or (self.server.folder, self.standby.folder))
        return "postgresql://postgres@/%s?host=%s&target_session_attrs=%s" % (self.name, hosts, attributes)

    def open(self, *folders: str, **settings: t.Any) -> database.Ledger:
        return database.open_ledger(LedgerAddress(url=self.url(*folders), **settings), check_revision=False)


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> t.Iterator[Pair]:
    with PostgresServer() as server:
        name = server.create()
        make_ledger(server.url(name))
        with Standby(server) as standby:
            standby.catch_up()
            yield Pair(server, standby, name)


def make_ledger(url: str) -> None:
    ledger = database.open_ledger(url, check_revision=False)
    ledger.migrate()
    ledger.transact(lambda tx: tx.execute(sa.text("CREATE TABLE probe (number INTEGER)")))
    ledger.close()


def add(tx: Transaction, number: int) -> int:
    tx.execute(sa.text("INSERT INTO probe VALUES (:n)"), {"n": number})
    return number


def rows(tx: Transaction) -> list[int]:
    return sorted(tx.execute(sa.text("SELECT number FROM probe")).scalars())


@pytest.mark.slow
@pytest.mark.postgres
def test_servers_in_any_order_and_a_failover(pair: Pair) -> None:
    first, second = pair.server.folder, pair.standby.folder
    for order in ((first, second), (second, first)):
        ledger = pair.open(*order)
        ledger.transact(add, 1)
        ledger.close()
    pair.standby.catch_up()
    alone = pair.open(second, retry_timeout=0.5)
    with pytest.raises(errors.LedgerError) as caught:
        alone.transact(add, 2)
    assert caught.value.retryable and "a primary" in caught.value.remedy and "failover.md" in caught.value.remedy
    alone.close()

    ledger = pair.open(second, first)
    attempts: list[int] = []

    def work(tx: Transaction) -> int:
        attempts.append(add(tx, 3))
        if len(attempts) == 1:
            pair.server.halt("immediate")
            threading.Timer(1.0, pair.standby.promote).start()
        return len(rows(tx))

    assert ledger.transact(work) == 3 and len(attempts) == 2
    assert ledger.inspect(rows) == [1, 1, 3]
    ledger.close()


@pytest.mark.slow
@pytest.mark.postgres
def test_a_playbook_that_starts_during_a_failover_waits(pair: Pair) -> None:
    pair.server.halt("immediate")
    with pytest.raises(errors.LedgerError):  # which server is away is not known to come back
        database.open_ledger(pair.url(pair.server.folder), patient=False)
    starter = threading.Timer(1.0, pair.standby.promote)
    starter.start()
    ledger = database.open_ledger(pair.url(), patient=False)
    starter.join()
    assert ledger.transact(add, 1) == 1
    ledger.close()


@pytest.mark.slow
@pytest.mark.postgres
def test_a_connection_to_what_is_a_standby_now(pair: Pair) -> None:
    """Behind a proxy that has not noticed, without target_session_attrs: another connection is tried."""
    url = pair.url(pair.standby.folder, attributes="any")
    ledger = database.open_ledger(LedgerAddress(url=url, retry_timeout=0.5), check_revision=False)
    assert ledger.inspect(rows) == []
    attempts: list[int] = []

    def work(tx: Transaction) -> int:
        attempts.append(int(tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()))
        return add(tx, 1)

    with pytest.raises(errors.LedgerError) as caught:
        ledger.transact(work)
    assert caught.value.retryable and "target_session_attrs=read-write" in caught.value.remedy
    assert len(set(attempts)) == len(attempts) > 1
    ledger.close()
    ledger = database.open_ledger(LedgerAddress(url=url), check_revision=False)
    starter = threading.Timer(0.5, pair.standby.promote)
    starter.start()
    assert ledger.transact(work) == 1
    starter.join()
    ledger.close()


@pytest.mark.parametrize(
    "in_hot_standby, read_only, expected",
    [("on", "off", True), ("off", "off", True), ("off", "on", False), (None, None, False)],
    ids=["a standby", "promoted since the transaction began", "default_transaction_read_only", "a server that tells neither"],
)  # fmt: skip
def test_who_refuses_to_write_is_a_standby(in_hot_standby: str | None, read_only: str | None, expected: bool) -> None:
    told = {"in_hot_standby": in_hot_standby, "default_transaction_read_only": read_only}
    connection = SimpleNamespace(info=SimpleNamespace(parameter_status=told.get))
    assert is_of_standby(psycopg.errors.ReadOnlySqlTransaction(), connection) is expected
    assert not is_of_standby(psycopg.errors.SyntaxError(), connection)


# --- waiting ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        make_ledger(server.url("postgres"))
        yield server


def test_who_waits_is_told_of_it_once(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SILENT_SECONDS", 0.1)
    told: list[str] = []
    address = LedgerAddress(url=server.url("postgres"), password="a-secret")
    ledger = database.open_ledger(address, check_revision=False, tell=told.append)
    assert ledger.inspect(rows) == [] and told == []
    server.halt()
    starter = threading.Timer(1.5, server.resume)
    starter.start()
    assert ledger.transact(add, 1) == 1
    starter.join()
    (text,) = told
    assert text.startswith("The ledger postgresql://postgres@/postgres?host=%s does not answer: " % server.folder)
    assert "up to 60 s (bootflow_ledger_retry_timeout)" in text
    assert "a-secret" not in text
    ledger.close()


def test_the_wait_begins_when_the_server_is_lost(server: PostgresServer) -> None:
    """It may take a minute to find out that a machine is gone: then there is still time for the next one."""
    ledger = database.open_ledger(LedgerAddress(url=server.url("postgres"), retry_timeout=1.0), check_revision=False)
    attempts: list[int] = []

    def work(tx: Transaction) -> int:
        attempts.append(1)
        if len(attempts) == 1:
            time.sleep(1.2)
            pid = int(tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())
            with server.connect() as other:
                other.execute("SELECT pg_terminate_backend(%d, 5000)" % pid)
        return add(tx, 1)

    assert ledger.transact(work) == 1 and len(attempts) == 2
    ledger.close()
