# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims of numbers, CPUs, devices and disks: tested under the lock, given once, given back as they were taken."""

from __future__ import annotations

import itertools
import typing as t

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.resources import dedicated as core_parts
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, cleanups, instances, views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import (
    A_CARD,
    A_DISK,
    A_FUNCTION,
    A_GPU,
    CARD,
    DISKS,
    PF,
    PLAIN,
    VFS,
    allocation_of,
    asked,
    cells,
    claim,
    devices_of,
    free,
    node,
    pinned,
    pins,
    release,
    waiting,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

RATIOS = {"numa_topology": {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}}
FULL = "Insufficient compute resources: %s."


# --- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({}, None),
        ({"memory_mb": None, "disk_gb": None, "vcpu": None}, None),
        ({"memory_mb": 5000}, None),
        ({"memory_mb": 4999}, "Free memory 4999.00 MB < requested 5000 MB"),
        ({"memory_mb": 0}, "Free memory 0.00 MB < requested 5000 MB"),
        ({"disk_gb": 300, "vcpu": 200}, None),
        ({"disk_gb": 299.5}, "Free disk 299.50 GB < requested 300 GB"),
        ({"vcpu": 199}, "Free vcpu 199.00 VCPU < requested 200 VCPU"),
        (
            {"vcpu": 0, "disk_gb": 0, "memory_mb": 0},
            (
                "Free memory 0.00 MB < requested 5000 MB; Free disk 0.00 GB < requested 300 GB;"
                " Free vcpu 0.00 VCPU < requested 200 VCPU"
            ),
        ),
    ],
)
def test_only_the_limits_decide(world: World, limits: dict[str, t.Any], reason: str | None) -> None:
    """The node itself is smaller: without a limit nothing is looked at, 0 is a limit, equality fits."""
    node(world, memory_mb=4096)
    (uuid,) = waiting(world)
    found = claim(world, asked(uuid, memory=5000, disk=300, vcpus=200, limits=limits))
    assert found == {uuid: "h1" if reason is None else FULL % reason}
    assert world.used("h1") == ((5000, 300, 200, 1) if reason is None else (0, 0, 0, 0))


def test_what_is_reserved_and_overused_counts(world: World) -> None:
    node(world, configuration={"reserved_memory_mb": 512})
    first, second = waiting(world, 2)
    assert claim(world, asked(first, memory=4000)) == {first: "h1"}
    reason = "Free memory -416.00 MB < requested 1 MB"
    assert claim(world, asked(second, memory=1, limits={"memory_mb": 4096})) == {second: FULL % reason}


def test_all_reasons_in_their_order(world: World) -> None:
    """Memory, disk, vCPU, NUMA, PCI: all are tested before anything is refused."""
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    (uuid,) = waiting(world)
    everything = asked(
        uuid,
        limits={"memory_mb": 1, "disk_gb": 0, "vcpu": 0, **RATIOS},
        numa=pinned(5),
        pci=(A_GPU, A_GPU, A_GPU),
        disks=(A_DISK, A_DISK),
    )
    (text,) = claim(world, everything).values()
    reasons = text.removeprefix("Insufficient compute resources: ").rstrip(".").split("; ")
    assert [r.split(" ")[1] for r in reasons[:3]] == ["memory", "disk", "vcpu"]
    assert reasons[3] == core_parts.NUMA_PCI_REFUSAL
    assert reasons[4].startswith("Claim pci failed")
    assert world.claims() == set() and world.rows(tables.device_claims) == []


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        ({"numa": pinned(5)}, [core_parts.NUMA_REFUSAL]),
        ({"pci": (A_GPU, A_GPU, A_GPU)}, ["Claim pci failed"]),
        ({"disks": (A_DISK, A_DISK, A_DISK)}, ["whole disks"]),
    ],
)
def test_the_words_of_one_refusal(world: World, wanted: dict[str, t.Any], texts: list[str]) -> None:
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    (uuid,) = waiting(world)
    (found,) = claim(world, asked(uuid, **wanted)).values()
    assert [text for text in texts if text in found] == texts
    assert world.used("h1") == (0, 0, 0, 0)


def test_the_first_candidate_with_room(world: World) -> None:
    for host in ("h1", "h2", "h3"):
        node(world, host)
    limits = {"memory_mb": 250}
    uuids = waiting(world, 7)
    found = claim(world, *(asked(u, "h2", "h1", "h3", limits=limits) for u in uuids))
    assert [found[u] for u in uuids] == [
        "h2",
        "h2",
        "h1",
        "h1",
        "h3",
        "h3",
        FULL % "Free memory 50.00 MB < requested 100 MB",
    ]


def test_a_node_that_is_gone(world: World) -> None:
    node(world)
    first, second = waiting(world, 2)
    found = claim(world, asked(first, "gone", "h1"), asked(second, "gone"))
    assert found[first] == "h1" and "no longer exists in the ledger" in found[second]


# --- CPUs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["one transaction", "one each"])
def test_pinned_cpus_are_given_once(world: World, together: bool) -> None:
    """8 CPUs in two cells, 2 for each guest: four fit, the fifth is told why; what is given back is given again."""
    where = node(world, numa_topology=cells())
    uuids = waiting(world, 5)
    requests = [asked(u, limits=RATIOS, numa=pinned(2)) for u in uuids]
    found: dict[str, str] = {}
    for part in [requests] if together else [[r] for r in requests]:
        found.update(claim(world, *part))
    assert [found[u] for u in uuids] == ["h1"] * 4 + [FULL % core_parts.NUMA_REFUSAL]
    assert sorted(itertools.chain(*(pins(world, u) for u in uuids[:4]))) == list(range(8))
    topology = free(world, where).numa
    assert topology is not None
    assert [(len(c.pinned_cpus), c.cpu_usage, c.memory_usage_mb) for c in topology.cells] == [(4, 4, 1024)] * 2
    before = pins(world, uuids[1])
    assert release(world, uuids[1]) == 1
    assert claim(world, asked(uuids[4], limits=RATIOS, numa=pinned(2))) == {uuids[4]: "h1"}
    assert pins(world, uuids[4]) == before


def test_a_guest_over_two_cells(world: World) -> None:
    where = node(world, numa_topology=cells())
    first, second = waiting(world, 2)
    assert claim(world, asked(first, limits=RATIOS, numa=pinned(3, guest_cells=2))) == {first: "h1"}
    assert len(pins(world, first)) == 6
    assert claim(world, asked(second, limits=RATIOS, numa=pinned(2)))[second] == FULL % core_parts.NUMA_REFUSAL
    release(world, first)
    topology = free(world, where).numa
    assert topology is not None and all(not c.pinned_cpus and not c.memory_usage_mb for c in topology.cells)


def test_the_memory_of_a_cell(world: World) -> None:
    node(world, memory_mb=9000, numa_topology=cells(memory_mb=1000))
    uuids = waiting(world, 3)
    found = claim(world, *(asked(u, limits=RATIOS, numa=pinned(1, memory_mb=700)) for u in uuids))
    assert [found[u] for u in uuids] == ["h1", "h1", FULL % core_parts.NUMA_REFUSAL]


def test_a_host_without_cells_refuses_no_guest(world: World) -> None:
    """The filter does."""
    node(world)
    (uuid,) = waiting(world)
    assert claim(world, asked(uuid, limits=RATIOS, numa=pinned())) == {uuid: "h1"}
    assert allocation_of(world, uuid)["numa"] is None


def test_the_refused_go_to_a_node_with_cpus(world: World) -> None:
    node(world, "h1", numa_topology=cells(1, 2))
    node(world, "h2", numa_topology=cells(1, 4))
    uuids = waiting(world, 4)
    found = claim(world, *(asked(u, "h1", "h2", limits=RATIOS, numa=pinned(2)) for u in uuids))
    assert [found[u] for u in uuids] == ["h1", "h2", "h2", FULL % core_parts.NUMA_REFUSAL]


@pytest.mark.parametrize(
    "later",
    [
        {"numa_topology": cells(2, 3)},  # CPU 3 was taken out of cell 0, 4 and 5 are of cell 1 by another name
        {"numa_topology": cells(1)},  # a cell is gone
        {"numa_topology": cells(2, 4, memory_mb=10)},
        {},  # it tells none any more
    ],
)
def test_a_report_may_take_away_what_guests_have(world: World, later: dict[str, t.Any]) -> None:
    """Guests keep what they have; the books are still read, and others are placed by what is left."""
    where = node(world, numa_topology=cells())
    uuids = waiting(world, 6)
    claim(world, *(asked(u, limits=RATIOS, numa=pinned(2)) for u in uuids[:4]))
    node(world, **later)
    free(world, where)
    found = claim(world, asked(uuids[4], limits=RATIOS, numa=pinned(1)), asked(uuids[5]))
    assert found[uuids[5]] == "h1"
    if later:
        assert found[uuids[4]] == FULL % core_parts.NUMA_REFUSAL
    release(world, *uuids)
    topology = free(world, where).numa
    assert topology is None or not any(c.pinned_cpus for c in topology.cells)


# --- devices and disks -------------------------------------------------------------------------------------------------


def test_a_device_is_given_once(world: World) -> None:
    where = node(world, pci_passthrough_devices=CARD)
    uuids = waiting(world, 3)
    found = claim(world, *(asked(u, pci=(A_GPU,)) for u in uuids))
    assert [found[u] for u in uuids[:2]] == ["h1", "h1"] and "Claim pci failed" in found[uuids[2]]
    assert [devices_of(world, u) for u in uuids[:2]] == [[PLAIN[0]], [PLAIN[1]]]
    assert [d.address for d in free(world, where).pci] == [PF, *VFS]
    release(world, uuids[0])
    assert claim(world, asked(uuids[2], pci=(A_GPU,))) == {uuids[2]: "h1"}
    assert devices_of(world, uuids[2]) == [PLAIN[0]]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [(A_CARD, A_FUNCTION, False), (A_FUNCTION, A_CARD, False), (A_FUNCTION, A_FUNCTION, True), (A_CARD, A_CARD, False)],
)
def test_a_card_and_its_functions(world: World, first: t.Any, second: t.Any, fits: bool, together: bool) -> None:
    """A card that is given away takes its functions with it, a function its card; back they all are free again."""
    where = node(world, pci_passthrough_devices=CARD)
    a, b = waiting(world, 2)
    requests = [asked(a, pci=(first,)), asked(b, pci=(second,))]
    found = claim(world, *requests) if together else {**claim(world, requests[0]), **claim(world, requests[1])}
    assert found[a] == "h1" and (found[b] == "h1") == fits
    release(world, a, b)
    assert sorted(d.address for d in free(world, where).pci) == sorted([PF, *VFS, *PLAIN])
    assert claim(world, asked(b, pci=(second,))) == {b: "h1"}


def test_the_same_address_on_two_nodes(world: World) -> None:
    node(world, "h1", pci_passthrough_devices=CARD)
    node(world, "h2", pci_passthrough_devices=CARD)
    uuids = waiting(world, 3)
    found = claim(world, *(asked(u, "h1", "h2", pci=(A_CARD,)) for u in uuids))
    assert [found[u] for u in uuids[:2]] == ["h1", "h2"] and "Claim pci failed" in found[uuids[2]]


def test_whole_disks(world: World) -> None:
    """The one that the host uses itself is not given away."""
    where = node(world, isolated_disks=DISKS)
    uuids = waiting(world, 3)
    found = claim(world, *(asked(u, disks=(A_DISK,)) for u in uuids))
    assert [found[u] for u in uuids[:2]] == ["h1", "h1"] and "disk" in found[uuids[2]]
    assert sorted(devices_of(world, uuids[0]) + devices_of(world, uuids[1])) == ["/dev/sdb", "/dev/sdc"]
    assert free(world, where).disks == []


def test_what_an_instance_has(world: World) -> None:
    """Devices as the host reported them, with the alias they were asked by; the fitted cells."""
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    (uuid,) = waiting(world)
    claim(world, asked(uuid, limits=RATIOS, numa=pinned(), pci=(A_FUNCTION, A_GPU), disks=(A_DISK,)))
    found = allocation_of(world, uuid)
    assert [(d["address"], d["alias_name"], d["parent_addr"]) for d in found["pci"]] == [
        (VFS[0], "function", PF),
        (PLAIN[0], "gpu", None),
    ]
    assert found["disks"] == [DISKS[0]] or found["disks"] == [DISKS[1]]
    with world.ledger.read() as tx:
        assert claims.allocations_of(tx, ["nobody"]) == {}


def test_what_is_left_on_another_host_is_not_the_guests(world: World) -> None:
    """A host that could not be cleaned keeps its claim: the guest that was built elsewhere has its own devices only."""
    for host in ("h1", "h2"):
        node(world, host, pci_passthrough_devices=CARD)
    (uuid,) = waiting(world)
    claim(world, asked(uuid, "h1", pci=(A_CARD,)))
    claim(world, asked(uuid, "h2", pci=(A_GPU,)))
    with world.ledger.write() as tx:
        cleanups.add(tx.for_run(world.context()), cleanups.Due("h1", uuid, "vm", "busy"))
    assert devices_of(world, uuid) == [PLAIN[0]]
    assert release(world, uuid, host="h1") == 1 and release(world, uuid) == 1


def test_a_claim_that_is_refused_takes_nothing(world: World) -> None:
    """Its device is there, its memory is not: the next one gets the device."""
    node(world, pci_passthrough_devices=CARD)
    first, second = waiting(world, 2)
    found = claim(world, asked(first, limits={"memory_mb": 1}, pci=(A_CARD,)), asked(second, pci=(A_CARD,)))
    assert found[second] == "h1" and "memory" in found[first]
    assert world.rows(tables.device_claims)[0].instance_uuid == second


def test_the_database_itself_gives_a_device_once(world: World) -> None:
    where = node(world, pci_passthrough_devices=CARD)
    first, second = waiting(world, 2)
    claim(world, asked(first, pci=(A_GPU,)))
    row = {"compute_node_id": where, "kind": "pci", "device": PLAIN[0], "detail": {}, "claim_kind": "build"}
    with pytest.raises(sa.exc.IntegrityError), world.ledger.engine.begin() as conn:
        conn.execute(tables.device_claims.insert().values(instance_uuid=second, **row))


# --- giving back -------------------------------------------------------------------------------------------------------


def test_a_second_release_does_nothing(world: World) -> None:
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD)
    first, second = waiting(world, 2)
    claim(world, asked(first, limits=RATIOS, numa=pinned(), pci=(A_GPU,)), asked(second, memory=7))
    assert [release(world, first) for _again in range(3)] == [1, 0, 0]
    assert world.used("h1") == (7, 1, 1, 1)
    assert release(world) == 0 and release(world, "nobody") == 0
    assert world.rows(tables.device_claims) == []


def test_release_on_one_host(world: World) -> None:
    for host in ("h1", "h2"):
        node(world, host, pci_passthrough_devices=CARD)
    (uuid,) = waiting(world)
    claim(world, asked(uuid, "h1", pci=(A_GPU,)))
    claim(world, asked(uuid, "h2", pci=(A_CARD,)))
    assert release(world, uuid, host="h3") == 0
    assert release(world, uuid, host="h2") == 1
    assert (world.used("h1")[3], world.used("h2")[3]) == (1, 0)
    assert [r.device for r in world.rows(tables.device_claims)] == [PLAIN[0]]
    assert release(world, uuid, host="h1") == 1
    assert world.claims() == set()


# --- any history -------------------------------------------------------------------------------------------------------


@settings(
    max_examples=examples(25), deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["cpus", "gpu", "card", "function", "disk", "all", "back"])),
        max_size=14,
    )
)
def test_nothing_is_given_twice_in_any_order(world: World, steps: list[tuple[int, str]]) -> None:
    """Whatever guests come and go: CPUs, devices and disks have one owner, and are all free again at the end."""
    where = node(world, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    uuids = waiting(world, 6) if not world.rows(tables.instances) else [r.uuid for r in world.rows(tables.instances)]
    wanted: dict[str, dict[str, t.Any]] = {
        "cpus": {"numa": pinned(2)},
        "gpu": {"pci": (A_GPU,)},
        "card": {"pci": (A_CARD,)},
        "function": {"pci": (A_FUNCTION, A_FUNCTION)},
        "disk": {"disks": (A_DISK,)},
        "all": {"numa": pinned(1), "pci": (A_FUNCTION,), "disks": (A_DISK,)},
    }
    have: dict[str, str] = {}
    for number, what in steps:
        uuid = uuids[number]
        if what == "back" or uuid in have:
            assert release(world, uuid) == (1 if have.pop(uuid, None) else 0)
        elif claim(world, asked(uuid, limits=RATIOS, **wanted[what]))[uuid] == "h1":
            have[uuid] = what
        cpus = [c for u, w in have.items() if w in ("cpus", "all") for c in pins(world, u)]
        devices = [d for u in have for d in devices_of(world, u)]
        assert len(set(cpus)) == len(cpus) == sum({"cpus": 2, "all": 1}.get(w, 0) for w in have.values())
        assert len(set(devices)) == len(devices) and not (PF in devices and set(VFS) & set(devices))
        left = free(world, where)
        assert left.numa is not None
        assert {c for cell in left.numa.cells for c in cell.pinned_cpus} == set(cpus)
        assert not {d.address for d in left.pci} & set(devices) and not {d["path"] for d in left.disks} & set(devices)
    release(world, *uuids)
    left = free(world, where)
    assert left.numa is not None and not any(c.pinned_cpus or c.cpu_usage or c.memory_usage_mb for c in left.numa.cells)
    assert (len(left.pci), len(left.disks)) == (len(CARD), 2)


@pytest.mark.parametrize("ours", [True, False])
def test_a_disk_that_a_guest_of_ours_had_when_the_host_reported_is_free_when_it_is_gone(
    world: World, ours: bool
) -> None:
    """Nobody asks the host again in between; a domain that is not ours has its disk for good."""
    uuids = waiting(world, 2)
    domain = uuids[0] if ours else "5ec0d000-0000-4000-8000-000000000002"
    disk = {"path": "/dev/sdb", "size_gb": 100, "medium": "ssd"}
    node(world, isolated_disks=[disk])
    claim(world, asked(uuids[0], disks=(A_DISK,)))
    where = node(world, isolated_disks=[{**disk, "reason": "the domain %s has it" % domain, "domain": domain}])
    assert free(world, where).disks == []
    release(world, uuids[0])
    assert [d["path"] for d in free(world, where).disks] == (["/dev/sdb"] if ours else [])
    assert (claim(world, asked(uuids[1], disks=(A_DISK,)))[uuids[1]] == "h1") is ours
    release(world, uuids[1])


def test_people_see_what_a_guest_has_for_itself(world: World) -> None:
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    (uuid,) = waiting(world)
    claim(world, asked(uuid, numa=pinned(2), pci=(A_GPU,), disks=(A_DISK,)))
    with world.ledger.read() as tx:
        (view,) = views.instance_views(tx.for_run(world.context()), instances.select_live(tx, uuids=[uuid]))
    (cell,) = view["numa_topology"]["cells"]
    assert sorted(dict(cell["pinning"]).values()) == [0, 1]
    assert (view["pci_devices"], view["whole_disks"]) == ([PLAIN[0]], ["/dev/sdb"])
    release(world, uuid)
