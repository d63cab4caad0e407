# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Statements that wait for the next one: they are done before it, in their order, in its transaction, and never get lost."""

from __future__ import annotations

import threading
import time
import typing as t

import psycopg
import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import locks
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast.compiled_statement import CompiledStatement
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

ADD = CompiledStatement(
    sa.text("INSERT INTO node_profiles (digest, profile) VALUES (:digest, CAST('{}' AS JSON)) RETURNING digest, id > 0")
)
NAMES = CompiledStatement(sa.text("SELECT digest FROM node_profiles ORDER BY id"))
ODD = ("it's", 'a \\ "b"', "100 %s %(x)s %%", "\u00fc; DELETE FROM node_profiles", ":x", "$1")


def names(tx: Transaction) -> list[str]:
    return [name for (name,) in NAMES.tuples(tx, {})]


@pytest.fixture
def empty(world: World) -> World:
    """Without rows of other tests."""
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.delete())
        tx.execute(tables.node_profiles.delete())
    return world


@pytest.mark.parametrize("next_one", ["kept", "core", "binary", "flush", "commit"])
def test_they_are_done_before_the_next_one(empty: World, next_one: str) -> None:
    taken: list[t.Any] = []

    def work(tx: Transaction) -> None:
        for name in ODD:
            ADD.later(tx, {"digest": name}, taken.extend)
        if next_one == "kept":
            assert names(tx) == list(ODD)
        elif next_one == "core":
            in_order = sa.select(tables.node_profiles.c.digest).order_by(tables.node_profiles.c.id)
            assert tx.execute(in_order).scalars().all() == list(ODD)
        elif next_one == "binary" and empty.ledger.is_server:
            assert [n for (n,) in tx.fetch("SELECT digest FROM node_profiles ORDER BY id", binary=True)] == list(ODD)
        elif next_one == "flush":
            tx.flush()
        if next_one != "commit":
            assert [name for name, _id in taken] == list(ODD)

    empty.ledger.transact(work)
    assert [name for name, positive in taken if positive] == list(ODD)
    with empty.ledger.read() as tx:
        assert names(tx) == list(ODD)


def test_they_are_undone_with_their_transaction(empty: World) -> None:
    def fail(tx: Transaction, sent: bool) -> None:
        ADD.later(tx, {"digest": "a"})
        if sent:
            names(tx)
        raise errors.InvalidInput(reason="no", remedy="")

    for sent in (True, False):
        with pytest.raises(errors.InvalidInput):
            empty.ledger.transact(fail, sent)
        empty.ledger.rehearsal(lambda tx: ADD.later(tx, {"digest": "b"}))
    with empty.ledger.read() as tx:
        assert names(tx) == []
    empty.ledger.transact(lambda tx: ADD.later(tx, {"digest": "c"}))
    with empty.ledger.write() as tx:  # of a transaction that is not repeated
        ADD.later(tx, {"digest": "d"})
    with empty.ledger.read() as tx:
        assert names(tx) == ["c", "d"]


def test_an_error_of_one_that_waits_is_found(empty: World) -> None:
    def twice(tx: Transaction) -> list[str]:
        ADD.later(tx, {"digest": "a"})
        ADD.later(tx, {"digest": "a"})
        return names(tx)

    with pytest.raises(errors.LedgerError) as caught:
        empty.ledger.transact(twice)
    assert "node_profiles" in caught.value.message
    with empty.ledger.read() as tx:
        assert names(tx) == []


def test_a_lock_that_waits_is_held_by_the_next_statement(empty: World) -> None:
    """Which sees what was committed while it waited for the lock, as if the lock had been taken alone."""
    if not empty.ledger.is_server:
        pytest.skip("sqlite's transactions lock everything")
    locked = threading.Event()

    def first(tx: Transaction) -> None:
        locks.take_turns(tx, "project", ["p"])
        ADD.later(tx, {"digest": "first"})
        names(tx)
        locked.set()
        with psycopg.connect(empty.url.replace("postgresql+psycopg", "postgresql")) as conn:
            while not conn.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
            ).fetchone()[0]:
                time.sleep(0.01)

    def second(tx: Transaction) -> list[str]:
        locks.take_turns(tx, "project", ["p"])
        return names(tx)

    thread = threading.Thread(target=empty.ledger.transact, args=(first,))
    thread.start()
    locked.wait(30)
    found = empty.ledger.transact(second)
    thread.join(30)
    assert found == ["first"]
