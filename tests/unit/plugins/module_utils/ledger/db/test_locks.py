# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import locks
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


def test_insert_new_tells_whether_it_did(world: World) -> None:
    """Also where the key is the database's own number."""
    node = {"host": "h1", "node": "n1", "created_at": 0.0}
    row = {"pool_host": "p", "kind": "volume", "item_id": "x", "volume_id": "x", "reason": "", "created_at": 0.0}
    group = {"id": "g", "project": "p", "name": "n", "policy": "affinity", "created_at": 0.0}
    for table, values in (
        (tables.compute_nodes, node),
        (volume_tables.volume_cleanups, row),
        (tables.server_groups, group),
    ):
        with world.ledger.write() as tx:
            assert locks.insert_new(tx, table, **values)
            assert not locks.insert_new(tx, table, **values)
        assert world.count(table) == 1
