# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine that gets another hostname, or comes in place of another one, is the node that it was: what it has is not given out a second time."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

UUID = "4ba360aa-565a-4939-921e-ad5ce44ce5bf"
OTHER = "f29cdf09-b68a-4f4f-ae9e-64bd00c2bbd8"


def nodes(world: World) -> list[tuple[str, str, int]]:
    return sorted((r.host, r.node, r.num_instances) for r in world.rows(tables.compute_nodes))


def test_its_claims_and_what_people_said_of_it_stay(world: World) -> None:
    world.report("h1", memory=2, host_uuid=UUID)
    first, second = world.boot("one"), world.boot("two")
    with world.ledger.write() as tx:
        service_state.set_state(tx, ["h1"], service_state.DISABLED, "to be serviced")
    world.report("h1", memory=2, node="kvm1.example.org", host_uuid=UUID)
    assert nodes(world) == [("h1", "kvm1.example.org", 2)]
    assert {world.row(u).node for u in (first, second)} == {"kvm1.example.org"}
    assert world.rows(tables.compute_nodes)[0].service_disabled_reason == "to be serviced"
    with world.ledger.write() as tx:
        service_state.set_state(tx, ["h1"], service_state.ENABLED)
    world.boot("three", until="accepted")
    assert not world.schedule().placed, "the host is full"
    with world.ledger.read() as tx:
        found = audit.plan(tx.for_run(world.context()), host_evidence.Evidence())
    assert not [f for f in found if f.changes and f.instance in (first, second)]


@pytest.mark.parametrize("node", ["h1", "n2"])
def test_another_machine_in_its_place_has_what_it_had(world: World, node: str) -> None:
    """With another hostname it was a second node: boots went to the one that was gone, and what came back by a rebuild or reboot was counted there."""
    world.report("h1", memory=2, host_uuid=UUID)
    uuid = world.boot("one")
    with world.ledger.write() as tx:
        service_state.set_state(tx, ["h1"], service_state.DISABLED, "to be replaced")
    world.report("h1", memory=2, node=node, host_uuid=OTHER)
    world.report("h2", memory=2, node="n3", host_uuid=UUID)
    assert nodes(world) == [("h1", node, 1), ("h2", "n3", 0)] and world.row(uuid).node == node
    assert [r.service_disabled for r in world.rows(tables.compute_nodes)] == [True, False]
    with world.ledger.read() as tx:
        world.check(tx)


def test_a_machine_without_a_uuid_is_told_by_its_hostname(world: World) -> None:
    world.report("h1", memory=2, host_uuid=UUID)
    world.report("h1", memory=2, node="n2")
    assert nodes(world) == [("h1", "h1", 0), ("h1", "n2", 0)]


@pytest.mark.parametrize("device", ["0000:04:00.0", "0000:05:00.0"])
def test_a_machine_that_was_two_nodes_is_one(world: World, device: str) -> None:
    """Unless both have given out the same device."""
    world.report("h1", memory=2)
    first = world.boot("one")
    world.report("h1", memory=2, node="n2")
    second = world.boot("two")
    assert nodes(world) == [("h1", "h1", 1), ("h1", "n2", 1)]
    ids = {r.node: r.id for r in world.rows(tables.compute_nodes)}
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().values(host_uuid=UUID))
        its = {"kind": "pci", "detail": {}}
        for uuid, node, address in ((first, "h1", "0000:04:00.0"), (second, "n2", device)):
            row = {"instance_uuid": uuid, "compute_node_id": ids[node], "device": address, **its}
            tx.execute(tables.device_claims.insert().values(**row))
    world.report("h1", memory=2, node="n2", host_uuid=UUID)
    if device == "0000:04:00.0":
        assert nodes(world) == [("h1", "h1", 1), ("h1", "n2", 1)]
    else:
        assert nodes(world) == [("h1", "n2", 2)] and {world.row(u).node for u in (first, second)} == {"n2"}
        assert {r.compute_node_id for r in world.rows(tables.device_claims)} == {ids["n2"]}
    with world.ledger.read() as tx:
        world.check(tx)
