# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with two names in the inventory, or with a new one, is given out once."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import DEFAULT_FILTERS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import whatif
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, fleet, hypervisors, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.claims import Candidate, ClaimRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
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


def says(world: World, host: str, node: str, boot: str, host_uuid: str = UUID) -> None:
    """A machine reports under a name of the inventory, by this hostname and since this start."""
    world.time += 60.0
    world.report(host, memory=3, node=node, host_uuid=host_uuid, boot_id=boot)


def machines(world: World) -> set[frozenset[str]]:
    """The names of each machine that has several."""
    with world.ledger.read() as tx:
        world.check(tx)
        named = nodes.same_machines(tx, [r.host for r in world.rows(tables.compute_nodes)])
    return {frozenset({host, *others}) for host, others in named.items()}


ONE = {frozenset(NAMES)}


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (("kvm1", "kvm1", "b1"), [("kvm1.example.org", "kvm1", "b1")]),  # in the inventory
        (("kvm1", "kvm1", "b1"), [("kvm1.example.org", "kvm1", "b2")]),
        (("kvm1", "kvm1", "b1"), [("kvm1.example.org", "kvm1.example.org", "b1")]),  # with its hostname
        (("kvm1", "kvm1", "b1"), [("kvm1", "new", "b2"), ("kvm1.example.org", "new", "b3")]),  # one after the other
        (("kvm1", "kvm1", "b1"), [("kvm1.example.org", "kvm1", "b2"), ("kvm1.example.org", "new", "b3")]),
        (("kvm1", "kvm1", "b1"), [("kvm1.example.org", "new", "b1"), ("kvm1.example.org", "new", "b2")]),
        (("kvm1", "kvm1", "b1"), [("kvm1.example.org", "new", "b1"), ("kvm1.example.org", "newer", "b2")]),
    ],
)
def test_a_machine_that_is_renamed_stays_what_it_was(
    world: World, before: tuple[str, str, str], then: list[tuple[str, str, str]]
) -> None:
    """Also after it restarts under its new names, when its former row has another hostname and another start."""
    says(world, *before)
    world.boot("one"), world.boot("two")
    for each in [*then, then[-1], then[-1]]:
        says(world, *each)
    assert machines(world) == ONE
    assert fill(world) == 1
    with world.ledger.read() as tx:
        assert nodes.other_names(tx, ["kvm1"]) == {"kvm1": "kvm1.example.org"}, "it is no host that is lost"


def test_another_hostname_alone_is_the_same_row(world: World) -> None:
    says(world, "kvm1", "kvm1", "b1")
    world.boot("one"), world.boot("two")
    for node_name, boot in (("new", "b1"), ("newer", "b2")):
        says(world, "kvm1", node_name, boot)
    assert not machines(world) and len(world.rows(tables.compute_nodes)) == 1 and fill(world) == 1


def test_three_names_of_a_machine_are_one(world: World) -> None:
    """Each was seen with one of the others only."""
    says(world, "a", "kvm1", "b1")
    says(world, "b", "new", "b1")
    says(world, "c", "new", "b2")
    assert machines(world) == {frozenset("abc")} and fill(world) == 3


def test_two_groups_of_names_become_one(world: World) -> None:
    says(world, "a", "x", "b1"), says(world, "b", "x", "b2")
    says(world, "c", "y", "b3"), says(world, "d", "y", "b4")
    assert machines(world) == {frozenset("ab"), frozenset("cd")}
    says(world, "e", "x", "b4")
    assert machines(world) == {frozenset("abcde")} and fill(world) == 3


@pytest.mark.parametrize("hostnames", [("kvm1", "kvm2"), ("template", "template")])
@pytest.mark.parametrize("restarts", [False, True])
def test_copies_of_a_machine_are_machines(world: World, hostnames: tuple[str, str], restarts: bool) -> None:
    """They have one UUID, and each goes on while the other reports another start."""
    for number in range(3):
        for name, node_name in zip(NAMES, hostnames):
            says(world, name, node_name, "%s-%d" % (name, number if restarts else 0))
            says(world, name, node_name, "%s-%d" % (name, number if restarts else 0))
    for name, node_name in zip(NAMES, hostnames):
        says(world, name, node_name, "%s-%d" % (name, 2 if restarts else 0))
    assert not machines(world) and fill(world) == 6


def test_copies_that_were_taken_for_one_get_apart_with_their_hostnames(world: World) -> None:
    says(world, "kvm1", "template", "b1"), says(world, "kvm1.example.org", "template", "b2")
    assert machines(world) == ONE, "nothing tells them apart yet"
    says(world, "kvm1.example.org", "other", "b3")
    says(world, "kvm1", "template", "b1")
    assert not machines(world)
    says(world, "kvm1.example.org", "other", "b3")
    assert not machines(world) and fill(world) == 6


def test_a_name_that_another_machine_got_is_let_go(world: World) -> None:
    says(world, "kvm1", "kvm1", "b1"), says(world, "kvm1.example.org", "kvm1", "b1")
    assert machines(world) == ONE
    says(world, "kvm1.example.org", "kvm1.example.org", "b9", host_uuid="f29cdf09-b68a-4f4f-ae9e-64bd00c2bbd8")
    assert not machines(world)
    says(world, "kvm1", "kvm1", "b1")
    assert not machines(world) and fill(world) == 6


@pytest.mark.parametrize("host_uuid", ["", UUID])
def test_starts_that_are_not_known_are_not_the_same(world: World, host_uuid: str) -> None:
    says(world, "kvm1", "kvm1", "", host_uuid), says(world, "kvm1.example.org", "new", "", host_uuid)
    assert not machines(world)


def test_a_machine_that_lost_its_uuid_is_not_linked(world: World) -> None:
    says(world, "kvm1", "kvm1", "b1"), says(world, "kvm1.example.org", "kvm1", "b1")
    says(world, "kvm1", "kvm1", "b1", host_uuid="")
    assert not machines(world)


def test_names_that_are_gone_and_may_be_the_machine_are_told(world: World) -> None:
    """Where hostname, name and start are others nothing says that it is the machine that it was."""
    says(world, "kvm3", "kvm3", "b3"), says(world, "kvm1", "kvm1", "b1")
    says(world, "kvm1.example.org", "new", "b2")

    def problems(*inventory: str) -> dict[str, list[str]]:
        with world.ledger.read() as tx:
            return {v["host"]: v["problems"] for v in hypervisors.views(tx.for_run(world.context()), inventory, 1e9)}

    assert not any(problems("kvm1", "kvm1.example.org", "kvm3").values()), "both answer"
    found = problems("kvm1.example.org", "kvm3")
    assert (
        not found["kvm3"] and "has libvirt's UUID of kvm1, which has not answered since" in found["kvm1.example.org"][0]
    )
    with world.ledger.write() as tx:
        nodes.record_unreachable(tx, "kvm1", "no route")
    assert "UUID of kvm1" in problems("kvm1", "kvm1.example.org", "kvm3")["kvm1.example.org"][0]
    says(world, "kvm1.example.org", "kvm1", "b2")  # as the remedy says
    assert machines(world) == ONE
    says(world, "kvm1.example.org", "new", "b4")
    problem, *more = problems("kvm1.example.org", "kvm3")["kvm1.example.org"]
    assert not more
    assert problem.startswith("the same machine as kvm1") and machines(world) == ONE


@pytest.mark.parametrize("machines", [None, {}, dict.fromkeys(NAMES, "kvm1")])
def test_the_claim_itself_counts_both_names(world: World, machines: dict[str, str] | None) -> None:
    """Whoever chose the host: two runs may choose different names of it at the same time, and it may have got one since the fleet was read."""
    known_as(world, *NAMES)
    uuids = [world.boot("web-%d" % n, until="accepted") for n in range(4)]
    limits = {"memory_mb": 3 * 1024}
    requests = [
        ClaimRequest(u, ResourceRequest(1024, 0, 1), [Candidate(NAMES[n % 2], "kvm1", limits)])
        for n, u in enumerate(uuids)
    ]
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        first = claims.claim(tx, requests[:2], machines=machines)
    with world.ledger.write() as tx:
        second = claims.claim(tx.for_run(world.context()), requests[2:], machines=machines)
    outcomes = [{**first, **second}[u] for u in uuids]
    assert [isinstance(o, Candidate) for o in outcomes] == [True, True, True, False]
    assert isinstance(outcomes[3], errors.ComputeResourcesUnavailable)
    assert len(world.rows(tables.claims)) == 3
    with world.ledger.write() as tx:  # no instance has been placed
        ids = [r.compute_node_id for r in tx.execute(tables.claims.select())]
        tx.execute(tables.claims.delete())
        nodes.recount(tx, ids)


OTHER_NAMES = re.compile(r"JOIN compute_nodes AS \S+ ON \S+\.machine_id = ")
LOCK = re.compile(r"^SELECT compute_nodes\.id,.* compute_nodes\.machine_id FROM .* ORDER BY compute_nodes\.id")


def cost_of_scheduling(world: World, host: str) -> tuple[int, int, int]:
    """The statements of a scheduling that chooses ``host``: all, those that read names of machines, and those that lock nodes."""
    world.boot("web-%d" % world.count(tables.instances), until="accepted")
    with counted(world.ledger) as statements:
        placed = world.schedule().placed
    assert [selection.host for selection in placed.values()] == [host]
    texts = [text for text, _parameters in statements]
    return len(texts), len(list(filter(OTHER_NAMES.search, texts))), len(list(filter(LOCK.search, texts)))


def test_names_of_machines_cost_statements_only_where_there_are_any(world: World) -> None:
    """A fleet without machines of several names is the usual one, and a boot of one is some dozen statements."""
    world.report("kvm9", memory=9)
    usual, names, locks = cost_of_scheduling(world, "kvm9")
    assert (names, locks) == (0, 1)
    known_as(world, *NAMES, memory=0)
    assert cost_of_scheduling(world, "kvm9") == (usual + 1, 1, 1), (
        "the fleet is read with them, and no candidate is one"
    )
    known_as(world, *NAMES, memory=9)
    with world.ledger.write() as tx:
        nodes.configure(tx.for_run(world.context()), {"kvm9": {"disabled": True}})
    assert cost_of_scheduling(world, "kvm1")[1:] == (3, 1), (
        "all rows of a machine are locked by one statement, by their ids"
    )


def test_a_name_that_a_machine_got_since_the_fleet_was_read_is_locked_too(world: World) -> None:
    """Its row has a machine_id now. A row that lost its other names has one as well, and is a machine of its own."""
    known_as(world, *NAMES)
    uuid = world.boot("web", until="accepted")
    wanted = ClaimRequest(uuid, ResourceRequest(1024, 0, 1), [Candidate("kvm1", "kvm1", {"memory_mb": 3 * 1024})])

    class Undone(Exception):
        """The transaction is rolled back."""

    for locks in (2, 1):
        with pytest.raises(Undone), counted(world.ledger) as statements, world.ledger.write() as tx:
            assert isinstance(claims.claim(tx.for_run(world.context()), [wanted], machines={})[uuid], Candidate)
            raise Undone
        assert len([text for text, _parameters in statements if LOCK.search(text)]) == locks
        with world.ledger.write() as tx:
            nodes.forget(tx.for_run(world.context()), ["kvm1.example.org"])


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
