# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal of instances: an action belongs to the request that began it, as in Nova."""

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

ATTACH = "attach_volume"


def begin(world: World, uuid: str, run: str) -> None:
    with world.ledger.write() as tx:
        mine = tx.for_run(world.context(run))
        history.start_actions(mine, [uuid], ATTACH, mine.request_id, "p", "u")


def end(world: World, uuid: str, run: str, message: str | None = None) -> dict[str, tuple[bool, str | None]]:
    """Request -> whether its action has ended, and its message."""
    with world.ledger.write() as tx:
        history.finish_actions(tx.for_run(world.context(run)), [uuid], ATTACH, message)
    rows = [r for r in world.rows(tables.instance_actions) if r.action == ATTACH]
    return {r.request_id: (r.finish_time is not None, r.message) for r in rows}


def test_two_requests_end_each_its_own_action(world: World) -> None:
    begin(world, "u1", "a")
    begin(world, "u1", "b")
    a, b = (world.context(run).request_id for run in "ab")
    assert end(world, "u1", "a", "Error") == {a: (True, "Error"), b: (False, None)}
    assert end(world, "u1", "b") == {a: (True, "Error"), b: (True, None)}


def test_who_ends_what_another_request_began_closes_that(world: World) -> None:
    begin(world, "u1", "a")
    assert list(end(world, "u1", "b", "Error").values()) == [(True, "Error")]
