# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with two names in the inventory, or with a new one, is given out once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import DEFAULT_FILTERS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import whatif
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, fleet, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.claims import Candidate, ClaimRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import (
    A_DISK,
    A_FUNCTION,
    CARD,
    DISKS,
    allocation_of,
    asked,
    cells,
    live,
    node,
    pins,
    waiting,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import pinned as pinned_cells
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

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


@pytest.mark.parametrize("together", [True, False])
def test_each_device_and_each_cpu_is_given_out_once(world: World, together: bool) -> None:
    """Also where one transaction places guests under both names."""
    for name in NAMES:
        facts = {"numa_topology": cells(), "pci_passthrough_devices": CARD, "isolated_disks": DISKS}
        node(world, name, hypervisor_hostname="kvm1", host_uuid=UUID, **facts)
    uuids = waiting(world, 2)
    limits = {"numa_topology": {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}}
    requests = [
        replace(
            asked(uuid, numa=pinned_cells(2), pci=(A_FUNCTION,), disks=(A_DISK,)),
            candidates=[Candidate(name, "kvm1", limits)],
        )
        for uuid, name in zip(uuids, NAMES)
    ]
    found = {}
    for batch in [requests] if together else [requests[:1], requests[1:]]:
        with world.ledger.write() as tx:
            found.update(claims.claim(tx.for_run(world.context()), batch))
            for request in batch:
                live(tx, request.instance_uuid, request.candidates[0].host)
    assert all(isinstance(outcome, Candidate) for outcome in found.values()), found
    first, second = (allocation_of(world, uuid) for uuid in uuids)
    assert {d["path"] for d in first["disks"]}.isdisjoint(d["path"] for d in second["disks"])
    assert {d["address"] for d in first["pci"]}.isdisjoint(d["address"] for d in second["pci"])
    assert len({*pins(world, uuids[0]), *pins(world, uuids[1])}) == 4


def group(policy: str, most: int = 1) -> ServerGroup:
    return ServerGroup(id="id-of-g", name="g", policy=policy, max_server_per_host=most, project="default")


@pytest.mark.parametrize("filters", [DEFAULT_FILTERS, [f for f in DEFAULT_FILTERS if not f.startswith("ServerGroup")]])
def test_a_machine_has_one_member_of_an_anti_affinity_group(world: World, filters: list[str]) -> None:
    """With the filter, and by the late check alone."""
    known_as(world, *NAMES)
    world.report("kvm2", memory=3)
    for number in range(3):
        world.accept(request("web-%d" % number, server_group=group("anti-affinity")))
        world.schedule(enabled_filters=filters)
    placed = [r.host for r in world.rows(tables.instances) if r.host]
    assert len(placed) == 2 and "kvm2" in placed


@pytest.mark.parametrize("filters", [DEFAULT_FILTERS, [f for f in DEFAULT_FILTERS if not f.startswith("ServerGroup")]])
def test_members_of_an_affinity_group_are_on_either_name(world: World, filters: list[str]) -> None:
    known_as(world, "kvm1")
    world.accept(request("one", server_group=group("affinity")))
    world.schedule()
    known_as(world, "kvm1.example.org")
    world.report("kvm2", memory=9)
    with world.ledger.write() as tx:
        nodes.configure(tx.for_run(world.context()), {"kvm1": {"disabled": True}})
    world.accept(request("two", server_group=group("affinity")))
    assert [c.host for c in world.schedule(enabled_filters=filters).placed.values()] == ["kvm1.example.org"]


@pytest.mark.parametrize(("hint", "hosts"), [("same_host", {"kvm1", "kvm1.example.org"}), ("different_host", {"kvm2"})])
@pytest.mark.parametrize("in_inventory", [NAMES, NAMES[1:]])
def test_hints_mean_the_machine(world: World, hint: str, hosts: set[str], in_inventory: tuple[str, ...]) -> None:
    """Also where the instance is under its former name, which the inventory has no more."""
    known_as(world, "kvm1", memory=9)
    uuid = world.boot("one")
    known_as(world, "kvm1.example.org", memory=9)
    world.report("kvm2", memory=2)
    world.accept(request("two", scheduler_hints={hint: [uuid]}))
    world.fleet = lambda tx, needs=fleet.NUMBERS_ONLY: fleet.read(tx, {*in_inventory, "kvm2"}, needs=needs)  # type: ignore[method-assign]
    filters = ["ComputeFilter", "RamFilter", "SameHostFilter", "DifferentHostFilter"]
    (placed,) = world.schedule(enabled_filters=filters).placed.values()
    assert placed.host in hosts & {*in_inventory, "kvm2"}


def test_a_machine_is_lost_with_all_of_its_names(world: World) -> None:
    known_as(world, "kvm1")
    world.boot("one")
    known_as(world, "kvm1.example.org")
    world.report("kvm2", memory=3)
    for name in NAMES:
        with world.ledger.read() as tx:
            (found,) = whatif.lose(tx, world.fleet, world.options(), {name})
        assert [(m["name"], m["host"]) for m in found["moved"]] == [("one", "kvm2")]
