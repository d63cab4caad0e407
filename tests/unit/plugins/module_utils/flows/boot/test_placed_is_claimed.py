# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters, consumption in memory, claim and what-if have one arithmetic and the same inputs: a host's report."""

from __future__ import annotations

import collections
import typing as t

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import WholeDiskRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import Overhead
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import whatif
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import A_GPU, PLAIN, allocation_of, cells, node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

CELL_MB = 4096
GPU = {"vendor_id": "10de", "product_id": "1eb8", "dev_type": "type-PCI"}


def guest_cells(count: int, cpus: int, memory_mb: int, dedicated: bool) -> GuestNUMATopology:
    policy = "dedicated" if dedicated else None
    return GuestNUMATopology(
        tuple(
            GuestCell(n, frozenset(range(n * cpus, (n + 1) * cpus)), memory_mb, cpu_policy=policy) for n in range(count)
        )
    )


@st.composite
def hosts(draw: t.Any) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """The facts and the settings of a host."""
    facts: dict[str, t.Any] = {
        "memory_mb": draw(st.sampled_from([2, 8])) * CELL_MB,
        "vcpus": draw(st.sampled_from([8, 40])),
    }
    if draw(st.integers(0, 3)):
        facts["numa_topology"] = cells(draw(st.integers(1, 3)), draw(st.sampled_from([2, 4])), CELL_MB)
    facts["pci_passthrough_devices"] = [
        {**GPU, "address": "0000:0%d:00.0" % n, "numa_node": draw(st.sampled_from([None, 0, 1]))}
        for n in range(draw(st.integers(0, 3)))
    ]
    facts["isolated_disks"] = [
        {"path": "/dev/sd%s" % "bcd"[n], "size_gb": draw(st.sampled_from([40, 100])), "medium": "ssd"}
        for n in range(draw(st.integers(0, 3)))
    ]
    ratio = st.sampled_from([1.0, 1.5, 4.0])
    return facts, {
        "ram_allocation_ratio": draw(ratio),
        "cpu_allocation_ratio": draw(ratio),
        "disk_allocation_ratio": draw(st.sampled_from([1.0, 2.0])),
        "reserved_memory_mb": draw(st.sampled_from([0, 700])),
        "metrics": draw(st.sampled_from([{}, {"cpu.percent": 10.0}, {"cpu.percent": 90.0}])),
    }


@st.composite
def entries(draw: t.Any) -> dict[str, t.Any]:
    """The fields of a request."""
    count, cpus = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 3]))
    memory_mb = draw(st.sampled_from([500, 1000, 2500]))
    fields: dict[str, t.Any] = {"networks": ()}
    numa = draw(st.sampled_from(["none", "shared", "shared", "dedicated"]))
    if numa != "none":
        fields["numa_topology"] = guest_cells(count, cpus, memory_mb, numa == "dedicated")
    extra_specs = {}
    if draw(st.integers(0, 5)) == 0:
        extra_specs["capabilities:metrics:cpu.percent"] = "<= 50"
    if draw(st.integers(0, 3)) == 0:
        policy = draw(st.sampled_from(["legacy", "required", "preferred"]))
        fields["pci_requests"] = (PciRequest(draw(st.integers(1, 2)), A_GPU.spec, "gpu", policy),)
    if draw(st.integers(0, 5)) == 0:
        fields["whole_disks"] = (WholeDiskRequest(draw(st.sampled_from([0, 80])), count=draw(st.integers(1, 2))),)
    fields["flavor"] = Flavor(
        "f", count * memory_mb, count * cpus, draw(st.sampled_from([0, 1, 30])), extra_specs=extra_specs
    )
    fields["overhead"] = Overhead(*draw(st.sampled_from([(), (), (64, 0, 0), (700, 1, 1)])))
    fields["count"] = draw(st.integers(1, 6))
    return fields


@settings(max_examples=examples(40), deadline=None, database=None)
@given(
    fleet=st.lists(hosts(), min_size=1, max_size=2),
    asked=st.lists(entries(), min_size=1, max_size=4),
    weigh_metrics=st.booleans(),
)
def test_what_is_placed_is_claimed_and_what_if_counts_it(
    fleet: list[tuple[dict[str, t.Any], dict[str, t.Any]]], asked: list[dict[str, t.Any]], weigh_metrics: bool
) -> None:
    """On a ledger that nobody else writes to: no claim is refused, and a what-if tells beforehand what a boot places."""
    world = World(MEMORY)
    try:
        for number, (facts, configuration) in enumerate(fleet):
            node(world, "h%d" % number, configuration=configuration, **facts)
        filters: dict[str, t.Any] = {}
        if weigh_metrics:
            weights = {"metrics_weight_setting": {"cpu.percent": -1.0}, "metrics_required": False}
            filters["settings"] = weights
        requests = [request("r%d" % n, **fields) for n, fields in enumerate(asked)]
        answers = world.ledger.inspect(whatif.ask, requests, world.fleet, world.options(**filters), 100)
        created = world.accept(*requests).created
        result = world.schedule(**filters)
        rows = {u: world.row(u) for u in created}
        assert result.waiting == [] and {world.fault(u).error_code for u in result.failed} <= {"NoValidHost"}
        for one, answer in zip(requests, answers):
            placed = collections.Counter(
                rows[u].host for u in result.placed if rows[u].display_name.split("-")[0] == one.name
            )
            assert {p["host"]: p["count"] for p in answer.placed} == placed
            assert sum(placed.values()) == (answer.count if answer.fits else 0)
            event("placed" if placed else "not placed")
        _fill(world, asked[0], filters)
    finally:
        world.ledger.close()


def _fill(world: World, fields: dict[str, t.Any], filters: dict[str, t.Any]) -> None:
    """As many more as the what-if says, and not one more."""
    one = request("more", **{**fields, "count": 1})
    (answer,) = world.ledger.inspect(whatif.ask, [one], world.fleet, world.options(**filters), 30)
    found: collections.Counter[str] = collections.Counter()
    for number in range(answer.total + 1 if answer.total < 30 else answer.total):
        (uuid,) = world.accept(request("more%d" % number, **{**fields, "count": 1})).created
        result = world.schedule(**filters)
        assert result.waiting == []
        if uuid in result.placed:
            found[result.placed[uuid].host] += 1
    assert found == {p["host"]: p["count"] for p in answer.by_host}


def test_cells_are_taken_in_memory_up_to_the_ratio_of_the_host(world: World) -> None:
    """Guests that are not pinned fill a cell up to the host's ratio: the third of three is not placed, so none is."""
    node(world, memory_mb=8192, numa_topology=cells(2, 4, 4096))
    three = request("web", 3, flavor=Flavor("f", 2500, 1, 1), numa_topology=guest_cells(1, 1, 2500, False), networks=())
    (answer,) = world.ledger.inspect(whatif.ask, [three], world.fleet, world.options())
    assert (answer.total, answer.fits) == (2, False)
    created = world.accept(three).created
    result = world.schedule()
    assert (sorted(result.failed), result.placed, result.waiting) == (sorted(created), {}, [])
    assert "NUMATopologyFilter" in world.fault(created[0]).message


def test_a_pinned_guest_without_a_card_leaves_the_cell_of_the_card(world: World) -> None:
    """Nova tries cells with PCI devices last."""
    card = {**GPU, "address": PLAIN[0], "numa_node": 0}
    node(world, memory_mb=8192, numa_topology=cells(), pci_passthrough_devices=[card])
    pinned = guest_cells(1, 2, 512, True)
    flavor = Flavor("f", 512, 2, 1)
    (plain,) = world.accept(request("plain", flavor=flavor, numa_topology=pinned, networks=())).created
    world.schedule(weighers=["RAMWeigher"])  # no weigher asks for the devices
    with_card = request("card", flavor=flavor, numa_topology=pinned, networks=(), pci_requests=(A_GPU,))
    (near,) = world.accept(with_card).created
    world.schedule()
    taken = {u: allocation_of(world, u)["numa"]["cells"][0]["host_cell"] for u in (plain, near)}
    assert taken == {plain: 1, near: 0}


def test_metrics_are_read_for_whoever_looks_at_them(world: World) -> None:
    """Not only for MetricsWeigher with its setting: extra specs and queries name them, too."""
    node(world, "h1", configuration={"metrics": {"cpu.percent": 90.0}})
    node(world, "h2", configuration={"metrics": {"cpu.percent": 10.0}})
    spec = {"capabilities:metrics:cpu.percent": "<= 50"}
    names = [request("spec", flavor=Flavor("f", 100, 1, 1, extra_specs=spec), networks=())]
    names.append(request("query", scheduler_hints={"query": '["<", "$metrics.cpu.percent", 50]'}, networks=()))
    for one in names:
        (uuid,) = world.accept(one).created
        result = world.schedule(enabled_filters=["ComputeCapabilitiesFilter", "JsonFilter"])
        assert result.placed[uuid].host == "h2"


MINE = """
class Mine:
    needs_numa = needs_instances = needs_metrics = needs_pci = True
    hints = ("unused",)

    def told(self, host):
        return (host.numa_topology is not None, bool(host.instances), bool(host.metrics), bool(host.pci_devices))


class MyFilter(Mine):
    def host_passes(self, host, spec):
        return self.told(host) == (True, True, True, True), str(self.told(host))


class MyWeigher(Mine):
    def weigh(self, host, spec):
        return float(sum(self.told(host)))
"""


def test_filters_and_weighers_of_the_user_get_what_they_need(world: World, tmp_path: t.Any) -> None:
    tmp_path.joinpath("mine.py").write_text(MINE)
    card = {**GPU, "address": PLAIN[0]}
    facts: dict[str, t.Any] = {"numa_topology": cells(), "configuration": {"metrics": {"cpu.percent": 1.0}}}
    node(world, "h1", **facts, pci_passthrough_devices=[card])
    world.boot("there", until="scheduled", networks=())
    node(world, "h0", memory_mb=99999)
    folders = {"user_filter_dirs": [str(tmp_path)]}
    (filtered, weighed) = world.accept(request("one", networks=()), request("two", networks=())).created
    result = world.schedule(**folders, enabled_filters=["RamFilter", "MyFilter"], weighers=["RAMWeigher"])
    assert result.placed[filtered].host == result.placed[weighed].host == "h1"
    (last,) = world.accept(request("three", networks=())).created
    result = world.schedule(**folders, enabled_filters=["RamFilter"], weighers=["MyWeigher"])
    assert result.placed[last].host == "h1"
