# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading from a replica, and what is read where it does not serve."""

from __future__ import annotations

import typing as t

import pytest
import sqlalchemy as sa
from postgres import PostgresServer, Standby

from ansible_collections.bootflow.compute.plugins.action import hypervisor_info, instance_info, volume_info
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database, replica
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import Ports
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import migrate
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


@pytest.fixture(scope="module")
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def standby(server: PostgresServer) -> t.Iterator[Standby]:
    with Standby(server) as standby:
        yield standby


@pytest.fixture
def name(server: PostgresServer, standby: Standby) -> t.Iterator[str]:
    name = server.create()
    migrate(server.url(name))
    standby.catch_up()
    yield name
    server.drop(name)


def is_standby(tx: Transaction) -> bool:
    return bool(tx.execute(sa.text("SELECT pg_is_in_recovery()")).scalar_one())


def opened(url: str, read_url: str) -> tuple[bool, list[str]]:
    """Whether a standby is read, and what a person is told."""
    told: list[str] = []
    ledger = replica.open_reader(LedgerAddress(url=url, retry_timeout=0.5), read_url, told.append)
    try:
        return ledger.inspect(is_standby), told
    finally:
        ledger.close()


def test_the_replica_is_read(server: PostgresServer, standby: Standby, name: str) -> None:
    assert opened(server.url(name), standby.url(name)) == (True, [])
    url = "postgresql://postgres@/%s?host=%s,%s&target_session_attrs=" % (name, server.folder, standby.folder)
    assert opened(url + "read-write", url + "prefer-standby") == (True, [])
    assert opened(url + "read-write", url + "read-write") == (False, [])


def test_without_a_replica_the_ledger_is_read(server: PostgresServer, standby: Standby, name: str) -> None:
    gone = "postgresql://postgres:secret-word@/%s?host=/nowhere" % name
    alone = server.url(name) + "&target_session_attrs=standby"
    for read_url, reason in ((gone, "No such file or directory"), (alone, "not in hot standby mode")):
        found, told = opened(server.url(name), read_url)
        assert not found
        (text,) = told
        assert text.startswith("bootflow_ledger_read_url: The ledger ") and reason in text
        assert text.endswith("The ledger itself is read.") and "secret-word" not in text


def test_a_replica_of_another_revision_is_not_read(
    server: PostgresServer, standby: Standby, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind an upgrade, it lacks what this version reads."""
    checked: list[bool] = []
    check_revision = runner.check_revision

    def behind(tx: Transaction, url: str) -> None:
        checked.append(is_standby(tx))
        if checked[-1]:
            raise errors.LedgerTooOld(url=url, revision="0001", head="0002")
        check_revision(tx, url)

    monkeypatch.setattr(database.runner, "check_revision", behind)
    found, (text,) = opened(server.url(name), standby.url(name))
    assert not found and "revision 0001" in text and checked == [True, False]


def test_a_replica_that_does_not_follow_is_not_read(
    server: PostgresServer, standby: Standby, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replication broke yesterday: it answers, with what was then."""
    with standby.connect() as conn:
        conn.execute("SELECT pg_wal_replay_pause()")
        while conn.execute("SELECT pg_get_wal_replay_pause_state()").fetchone()[0] != "paused":
            pass
        try:
            World(server.url(name)).report("h1")
            assert opened(server.url(name), standby.url(name)) == (True, []), "it may be a little behind"
            monkeypatch.setattr(replica, "MOST_BEHIND", 0.0)
            found, (text,) = opened(server.url(name), standby.url(name))
        finally:
            conn.execute("SELECT pg_wal_replay_resume()")
    assert not found and "behind the ledger" in text and text.endswith("The ledger itself is read.")
    standby.catch_up()
    assert opened(server.url(name), standby.url(name)) == (True, [])


def test_a_ledger_that_is_away_leaves_the_replica(server: PostgresServer, standby: Standby, name: str) -> None:
    away = "postgresql://postgres@/%s?host=/nowhere" % name
    found, (text,) = opened(away, standby.url(name))
    assert found and "Read is its replica" in text and "which may be behind" in text


def test_another_ledger_is_never_read(server: PostgresServer, standby: Standby, name: str) -> None:
    other = server.create()
    migrate(server.url(other))
    standby.catch_up()
    with pytest.raises(errors.LedgerError) as caught:
        opened(server.url(name), standby.url(other))
    assert "no replica of" in caught.value.message and "bootflow_ledger_read_url" in caught.value.remedy
    server.drop(other)


@pytest.mark.parametrize(
    ("url", "read_url", "word"),
    [
        ("postgresql://h/d", "/var/lib/ledger.db", "not a PostgreSQL URL"),
        ("postgresql://h/d", "", "not a PostgreSQL URL"),
        ("/var/lib/ledger.db", "postgresql://h/d", "an sqlite file"),
    ],
)
def test_urls_that_do_not_go_together(url: str, read_url: str, word: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        opened(url, read_url)
    assert word in caught.value.message and "bootflow_ledger_read_url" in caught.value.message and caught.value.remedy


@pytest.mark.parametrize("module", [instance_info, hypervisor_info, volume_info])
def test_the_actions_that_only_read(server: PostgresServer, standby: Standby, name: str, module: t.Any) -> None:
    world = World(server.url(name))
    world.report("h1")
    world.boot("web")
    standby.catch_up()
    ports = WorldPorts(world, "reader")
    read: list[bool] = []

    def open_reader(address: LedgerAddress, url: str) -> database.Ledger:
        ledger = Ports.open_reader(ports, address, url)
        read.append(ledger.inspect(is_standby))
        return ledger

    ports.open_reader = open_reader  # type: ignore[method-assign]
    ports.open_ledger = None  # type: ignore[assignment]
    variables = {"bootflow_ledger_read_url": standby.url(name), "groups": {"bootflow_compute": ["h1"]}}
    result = action_of(module, ports, variables).act()
    assert read == [True] and ports.warnings == []
    found = result["instances" if module is instance_info else "volumes" if module is volume_info else "hypervisors"]
    assert len(found) == (0 if module is volume_info else 1)
    action_of(module, ports, {**variables, "bootflow_ledger_read_url": standby.url(name, "postgres:secret-word")}).act()
    (text,) = ports.warnings
    assert text.startswith("bootflow_ledger_read_url contains a password") and "secret-word" not in text
    world.ledger.close()
