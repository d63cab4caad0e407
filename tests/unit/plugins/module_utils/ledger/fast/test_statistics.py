# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that fills faster than autovacuum looks at it: rows are found by their keys all the same."""

from __future__ import annotations

import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import bulk, statistics
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

COUNT = 3000
READ = sa.text("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'instances'")
BELIEVED = sa.text("SELECT reltuples FROM pg_class WHERE oid = 'instances'::regclass")


def rows(world: World, count: int, first: int = 0) -> list[dict[str, object]]:
    (instance,) = world.rows(tables.instances, tables.instances.c.display_name == "first")
    changed = [{"uuid": "%036d" % i, "display_name": "vm-%d" % i} for i in range(first, first + count)]
    return [{**instance._mapping, **values} for values in changed]


def grow(world: World, count: int, first: int = 0) -> None:
    """By a transaction of one attempt, which does not look at what it did."""
    with world.ledger.write() as tx:
        bulk.insert(tx, tables.instances, rows(world, count, first))


@pytest.fixture
def grown(world: World) -> t.Iterator[World]:
    """With instances that the planner does not know of."""
    if not world.ledger.is_server:
        pytest.skip("of PostgreSQL's plans")
    connection = world.ledger.engine.raw_connection()
    connection.driver_connection.execute("VACUUM")  # what other tests had in this database makes its tables large
    connection.close()
    world.boot("first", "accepted")
    with world.ledger.write() as tx:
        tx.execute(sa.text("ALTER TABLE instances SET (autovacuum_enabled = off)"))
        tx.execute(sa.text("ANALYZE"))
    grow(world, COUNT)
    yield world
    with world.ledger.write() as tx:
        tx.execute(sa.text("ALTER TABLE instances RESET (autovacuum_enabled)"))


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("which", ["uuids", "uuids of a run", "names"])
def test_live_instances_are_looked_up(grown: World, which: str, lock: bool) -> None:
    wanted = range(0, 1000, 100)
    uuids = ["%036d" % i for i in wanted]
    (first,) = grown.rows(tables.instances, tables.instances.c.display_name == "first")
    with grown.ledger.write() as tx:
        before = tx.execute(READ).scalar_one()  # of this session: the server counts some of what it did before
        if which == "names":
            names = ["vm-%d" % i for i in (*wanted, *wanted)]
            found = instances.select_live(tx, names=names, project=first.project, lock=lock)
        elif which == "uuids":
            found = instances.select_live(tx, uuids=uuids, lock=lock)
        else:
            found = instances.select_live(tx, uuids=uuids, run_id=first.run_id, vm_state=first.vm_state, lock=lock)
        assert tx.execute(READ).scalar_one() - before < 3 * len(uuids) + 10
    assert sorted(r.uuid for r in found) == uuids


def test_a_table_that_a_transaction_made_twice_as_large_is_analyzed(grown: World) -> None:
    def believed() -> float:
        with grown.ledger.read() as tx:
            return float(tx.execute(BELIEVED).scalar_one())

    def insert(tx: Transaction, count: int, first: int) -> None:
        bulk.insert(tx, tables.instances, rows(grown, count, first))

    assert believed() == 1
    grown.ledger.transact(insert, statistics.MANY - 1, 10_000)  # too few to look
    assert believed() == 1
    grown.ledger.transact(insert, statistics.MANY, 20_000)
    total = COUNT + 2 * statistics.MANY
    assert believed() == total
    grown.ledger.transact(insert, statistics.MANY, 30_000)  # looked at, but not twice as large
    assert believed() == total


def test_one_that_another_session_analyzes_is_left_to_it(grown: World) -> None:
    with grown.ledger.write() as tx:
        tx.execute(sa.text("LOCK TABLE instances IN SHARE UPDATE EXCLUSIVE MODE"))
        grown.ledger.transact(lambda tx: bulk.insert(tx, tables.instances, rows(grown, statistics.MANY, 10_000)))
    with grown.ledger.read() as tx:
        assert tx.execute(BELIEVED).scalar_one() == 1
