# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with two names in the inventory, or with a new one, is given out once."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.claims import Candidate, ClaimRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

UUID = "4ba360aa-565a-4939-921e-ad5ce44ce5bf"
NAMES = ("kvm1", "kvm1.example.org")


def known_as(world: World, *names: str, memory: int = 3, **fields: object) -> None:
    for name in names:
        world.report(name, memory=memory, node="kvm1", host_uuid=UUID, **fields)


def fill(world: World) -> int:
    """How many more instances are placed, one by one."""
    for number in range(20):
        world.boot("more-%d" % number, until="accepted")
    return len(world.schedule().placed)


def test_a_renamed_machine_has_what_it_had(world: World) -> None:
    known_as(world, "kvm1")
    world.boot("one"), world.boot("two")
    known_as(world, "kvm1.example.org")
    assert fill(world) == 1
    with world.ledger.read() as tx:
        world.check(tx)


@pytest.mark.parametrize("names", [NAMES, (*NAMES, "192.0.2.1")])
def test_a_machine_that_stands_there_twice_is_filled_once(world: World, names: tuple[str, ...]) -> None:
    known_as(world, *names)
    assert fill(world) == 3
    with world.ledger.read() as tx:
        world.check(tx)


def test_what_a_host_reserves_counts_once(world: World) -> None:
    known_as(world, *NAMES, reserved_memory_mb=1024)
    assert fill(world) == 2


def test_another_machine_is_not_counted(world: World) -> None:
    """Some makers give all machines one UUID, and hostnames may be alike."""
    known_as(world, "kvm1")
    world.report("kvm2", memory=3, node="kvm2", host_uuid=UUID)
    world.report("kvm3", memory=3, node="kvm1", host_uuid="f29cdf09-b68a-4f4f-ae9e-64bd00c2bbd8")
    world.report("kvm4", memory=3, node="kvm1")
    assert fill(world) == 12


def test_the_claim_itself_counts_both_names(world: World) -> None:
    """Whoever chose the host: two runs may choose different names of it at the same time."""
    known_as(world, *NAMES)
    uuids = [world.boot("web-%d" % n, until="accepted") for n in range(4)]
    limits = {"memory_mb": 3 * 1024}
    requests = [
        ClaimRequest(u, ResourceRequest(1024, 0, 1), [Candidate(NAMES[n % 2], "kvm1", limits)])
        for n, u in enumerate(uuids)
    ]
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        first = claims.claim(tx, requests[:2])
    with world.ledger.write() as tx:
        second = claims.claim(tx.for_run(world.context()), requests[2:])
    outcomes = [{**first, **second}[u] for u in uuids]
    assert [isinstance(o, Candidate) for o in outcomes] == [True, True, True, False]
    assert isinstance(outcomes[3], errors.ComputeResourcesUnavailable)
    assert len(world.rows(tables.claims)) == 3
    with world.ledger.write() as tx:  # no instance has been placed
        ids = [r.compute_node_id for r in tx.execute(tables.claims.select())]
        tx.execute(tables.claims.delete())
        nodes.recount(tx, ids)
