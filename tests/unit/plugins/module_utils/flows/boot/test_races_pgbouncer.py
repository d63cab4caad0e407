# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The races that a snapshot of a whole transaction would lose, through PgBouncer, to a database where that is the default."""

from __future__ import annotations

import typing as t

import pytest
from pgbouncer import PgBouncer

from ansible_collections.bootflow.compute.tests.unit.plugins.module_utils.flows.boot import test_races as races
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import LedgerServer, migrate
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


@pytest.fixture(params=["session", "transaction"])
def world(request: pytest.FixtureRequest, postgres: LedgerServer) -> t.Iterator[World]:
    name = postgres.create()
    with postgres.connect() as conn:
        conn.execute("ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'" % name)
    # Fewer server processes than runs, so that they are handed around.
    pooler = PgBouncer(postgres, request.param, size=20 if request.param == "session" else 3)
    try:
        migrate(pooler.url(name))
        world = World(pooler.url(name))
        yield world
        with world.ledger.read() as tx:
            world.check(tx)
        world.ledger.close()
    finally:
        pooler.stop()
        postgres.drop(name)


test_one_quota = races.test_one_quota
test_members_of_one_group_at_once = races.test_members_of_one_group_at_once
test_claims_and_releases = races.test_claims_and_releases
test_first_reports_and_one_run_in_many_tasks = races.test_first_reports_and_one_run_in_many_tasks
