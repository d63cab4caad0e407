# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, NoValidHost
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import (
    Placement,
    select_destinations,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from . import reference
from .reference import make_options

NOW = 1000.0
SMALL = Flavor("m1.small", memory_mb=1024, vcpus=1, root_gb=10)


def host(name, memory_mb=8192, local_gb=100, vcpus=8, **more):
    more.setdefault("updated_at", NOW)
    return HostState(
        host=name,
        nodename=more.pop("nodename", name + ".lab"),
        memory_mb=memory_mb,
        local_gb=local_gb,
        vcpus=vcpus,
        **more,
    )


def spec(count=1, flavor=SMALL, **more):
    return RequestSpec(instance_uuids=["u%d" % i for i in range(count)], flavor=flavor, **more)


def place(hosts, request, **options):
    options.setdefault("now", NOW)
    return select_destinations(hosts if isinstance(hosts, Fleet) else Fleet(hosts), request, make_options(**options))


def names(selections):
    return [s.host for s in selections]


# --- Nova's loop ---------------------------------------------------------------------------------------------------

ratios = st.sampled_from([None, 0.0, 0.5, 1.0, 1.1, 1.5, 3.3])


@st.composite
def fleets(draw):
    """Few different numbers, so that ties, full hosts and overcommitted hosts are common."""
    states = []
    for i in range(draw(st.integers(1, 9))):
        memory = draw(st.sampled_from([0, 1000, 2048, 4096]))
        disk = draw(st.sampled_from([0, 20, 40, 100]))
        vcpus = draw(st.sampled_from([0, 1, 2, 4]))
        states.append(
            host(
                "h%d" % draw(st.integers(0, 3)) if draw(st.booleans()) else "k%d" % i,
                nodename="n%d" % i,
                memory_mb=memory,
                memory_mb_used=draw(st.sampled_from([0, 0, 512, 3000])),
                local_gb=disk,
                local_gb_used=draw(st.sampled_from([0, 0, 10, 50])),
                disk_available_least=draw(st.sampled_from([None, None, 15, 60, -5])),
                vcpus=vcpus,
                vcpus_used=draw(st.sampled_from([0, 0, 1, 9])),
                ram_allocation_ratio=draw(ratios),
                disk_allocation_ratio=draw(ratios),
                cpu_allocation_ratio=draw(ratios),
                disabled=draw(st.integers(0, 9)) == 0,
                updated_at=NOW - draw(st.sampled_from([0, 60, 61])),
                availability_zones=draw(st.sampled_from([(), ("nova",), ("az1",), ("az1", "az2")])),
            )
        )
    return states


flavors = st.builds(
    Flavor,
    name=st.just("f"),
    memory_mb=st.sampled_from([0, 1, 256, 512, 1000]),
    vcpus=st.sampled_from([0, 1, 2]),
    root_gb=st.sampled_from([0, 1, 5, 20]),
    ephemeral_gb=st.sampled_from([0, 1]),
    swap=st.sampled_from([0, 512]),
)


@settings(max_examples=examples(400), deadline=None)
@given(
    fleets(),
    flavors,
    st.integers(1, 12),
    st.sampled_from([None, None, "nova", "az1", "az3"]),
    st.dictionaries(
        st.sampled_from(["RAMWeigher", "CPUWeigher", "DiskWeigher"]), st.sampled_from([-1.0, 0.0, 0.3, 2.0])
    ),
    st.sampled_from([1, 1, 2, 5]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([0, 0, 16]),
)
def test_equals_novas_loop(states, flavor, count, zone, multipliers, subset, attempts, overhead):
    retry_hosts = [(states[0].host, states[0].nodename)] if count % 3 == 0 else []
    request = spec(count, flavor, availability_zone=zone, retry_hosts=retry_hosts, memory_overhead_mb=overhead)
    options = make_options(now=NOW, multipliers=multipliers, host_subset_size=subset, max_attempts=attempts)
    expected = reference.select(states, request, options)
    fleet = Fleet(states)
    before = _columns(fleet)
    if expected is None:
        with pytest.raises(NoValidHost):
            select_destinations(fleet, request, options)
        assert _columns(fleet) == before  # all or nothing
        return
    selections = select_destinations(fleet, request, options)
    assert [(s.host, s.nodename) for s in selections] == expected[0]
    for s in selections:
        assert [(a.host, a.nodename) for a in s.alternates] == expected[1]
        assert s.limits == _limits(next(h for h in states if h.nodename == s.nodename))
        for a in s.alternates:
            assert a.limits == _limits(next(h for h in states if h.nodename == a.nodename))


def _columns(fleet):
    return [
        c.tolist()
        for c in (fleet.free_ram_mb, fleet.free_disk_mb, fleet.vcpus_used, fleet.num_instances, fleet.num_io_ops)
    ]


def _limits(state):
    """limits = total x ratio; none for vCPUs where no count is known."""
    limits = {
        "memory_mb": state.memory_mb * state.ram_allocation_ratio,
        "disk_gb": state.local_gb * state.disk_allocation_ratio,
    }
    if state.vcpus:
        limits["vcpu"] = state.vcpus * state.cpu_allocation_ratio
    return {k: pytest.approx(v) for k, v in limits.items()}


@pytest.mark.parametrize("seed", range(6))
def test_equals_novas_loop_over_many_hosts(seed):
    rng = random.Random(seed)
    kinds = [(4096, 50, 4), (8192, 200, 8), (8192, 100, 16)]
    states = []
    for i in range(120):
        memory, disk, vcpus = (
            rng.choice(kinds) if seed % 2 else (rng.randrange(2000, 9000), rng.randrange(40, 300), rng.randrange(2, 20))
        )
        states.append(
            host("h%03d" % i, memory, disk, vcpus, memory_mb_used=rng.choice([0, 512, 5000]), nodename="n%d" % i)
        )
    for count, flavor in ((1, SMALL), (60, Flavor("f", 900, 1, 7)), (300, Flavor("g", 1500, 1, 3))):
        request = spec(count, flavor)
        options = make_options(now=NOW)
        expected = reference.select(states, request, options)
        got = select_destinations(Fleet(states), request, options)
        assert ([(s.host, s.nodename) for s in got], [(a.host, a.nodename) for a in got[-1].alternates]) == expected


# --- picks, consumption, all or nothing ----------------------------------------------------------------------------


def test_three_guests_over_two_hosts_are_spread_by_what_is_left():
    hosts = [host("a", memory_mb=8192), host("b", memory_mb=7000)]
    assert names(place(hosts, spec(3, Flavor("f", 2048, 0)), weighers=["RAMWeigher"])) == ["a", "b", "a"]


def test_a_fleet_remembers_between_requests_and_hosts_are_not_written():
    hosts = [host("a", memory_mb=2048, ram_allocation_ratio=1.0), host("b", memory_mb=1024, ram_allocation_ratio=1.0)]
    before = copy.deepcopy(hosts)
    fleet = Fleet(hosts)
    assert [names(place(fleet, spec(), weighers=["RAMWeigher"])) for _each in range(3)] == [["a"], ["a"], ["b"]]
    with pytest.raises(NoValidHost):
        place(fleet, spec())
    assert hosts == before


def test_equals_keep_the_order_that_they_had():
    """At first the order given; then, as Nova sorts its sorted list again, the host picked last stands before its equals."""
    assert names(place([host(n) for n in "cab"], spec(6))) == ["c", "a", "b", "b", "a", "c"]


def test_negative_multiplier_stacks():
    hosts = [host(n) for n in "abc"]
    assert (
        names(
            place(
                hosts,
                spec(4),
                weighers=["RAMWeigher", "CPUWeigher", "DiskWeigher"],
                multipliers={"RAMWeigher": -1, "CPUWeigher": -1, "DiskWeigher": -1},
            )
        )
        == ["a"] * 4
    )


def test_host_subset_size_draws_from_the_best():
    hosts = [host("h%d" % i, memory_mb=100000 - 5000 * i) for i in range(10)]
    tiny = Flavor("f", 1, 0)
    drawn = {names(place(hosts, spec(1, tiny), host_subset_size=3, rng=random.Random(i)))[0] for i in range(60)}
    assert drawn == {"h0", "h1", "h2"}
    for size in (1, 0, -4):
        assert names(place(hosts, spec(1, tiny), host_subset_size=size, rng=random.Random(5))) == ["h0"]
    assert names(place(hosts[:2], spec(1, tiny), host_subset_size=50))[0] in ("h0", "h1")


def test_the_best_of_the_same_weight_are_shuffled():
    """Nova's shuffle_best_same_weighed_hosts: all of the best are as likely, and none that weighs less is chosen."""
    hosts = [host("h%d" % i, memory_mb=9000 if i < 4 else 8000) for i in range(6)]
    tiny = Flavor("f", 1, 0)

    def placed(count=1, **options):
        return [
            place(hosts, spec(count, tiny), shuffle_best_same_weighed_hosts=True, rng=random.Random(i), **options)
            for i in range(200)
        ]

    drawn = [names(found)[0] for found in placed()]
    assert set(drawn) == {"h0", "h1", "h2", "h3"}
    assert min(drawn.count(name) for name in set(drawn)) > 25
    assert {found[0].alternates[0].host for found in placed()} == {"h0", "h1", "h2", "h3"}
    assert {found[0].alternates[3].host for found in placed(max_attempts=6)} == {"h4"}
    four = [names(found) for found in placed(4)]
    assert all(set(each) == {"h0", "h1", "h2", "h3"} for each in four), "one on each: who was chosen weighs less"
    assert len({tuple(each) for each in four}) > 10
    wide = [names(found)[0] for found in placed(host_subset_size=5)]
    assert set(wide) == {"h0", "h1", "h2", "h3", "h4"} and wide.count("h4") < 80
    assert len({names(place(hosts, spec(1, tiny)))[0] for _once in range(20)}) == 1, "not by default"


def test_nothing_asked():
    assert place([host("a")], spec(0)) == []


def test_what_is_taken():
    """Root and ephemeral disk without swap, memory with its overhead; and given back."""
    fleet = Fleet([host("a", local_gb_used=5, disk_available_least=90)])
    request = spec(1, Flavor("f", 1000, 3, root_gb=10, ephemeral_gb=2, swap=2048), memory_overhead_mb=24)
    place(fleet, request)
    state = fleet.host_state(0)
    assert (state.free_ram_mb, state.free_disk_mb, state.vcpus_used) == (8192 - 1024, 78 * 1024, 3)
    assert (state.num_instances, state.num_io_ops, state.local_gb_used) == (1, 1, 17)
    fleet.consume(0, request, -1)
    assert fleet.host_state(0) == fleet.hosts[0]


# --- failure -------------------------------------------------------------------------------------------------------


def test_no_valid_host_tells_the_counts():
    hosts = [host("a", memory_mb=512), host("b", memory_mb=512), host("c", disabled=True)]
    with pytest.raises(NoValidHost) as caught:
        place(hosts, spec())
    assert caught.value.message == (
        "No valid host was found. There are not enough hosts available. Filtering removed all hosts for the request with "
        "instance ID 'u0'. Filter results: ['RetryFilter: (start: 3, end: 3)', 'AvailabilityZoneFilter: (start: 3, end: 3)', "
        "'ComputeFilter: (start: 3, end: 2)', 'RamFilter: (start: 2, end: 0)']"
    )
    assert caught.value.details["filters"][-1] == {"name": "RamFilter", "start": 2, "end": 0}
    assert (caught.value.details["placed"], caught.value.details["requested"]) == (0, 1)


def test_all_or_nothing():
    fleet = Fleet([host("a", memory_mb=2048, ram_allocation_ratio=1.0)])
    with pytest.raises(NoValidHost) as caught:
        place(fleet, spec(3))
    assert "There is room for 2 of the 3 instances of this entry" in caught.value.message
    assert "'RamFilter: (start: 1, end: 0)'" in caught.value.message
    assert caught.value.details["instance_uuid"] == "u2"
    assert names(place(fleet, spec(2))) == ["a", "a"]


def test_no_hosts_at_all():
    with pytest.raises(NoValidHost, match="no compute host"):
        place([], spec())


# --- forced, ignored, retried --------------------------------------------------------------------------------------


def test_a_forced_host_skips_the_filters_but_keeps_their_limits():
    hosts = [host("a"), host("B", memory_mb=100, disabled=True, updated_at=None, availability_zones=("x",))]
    for force in ({"force_host": "b"}, {"force_node": "B.lab"}, {"force_host": "B", "force_node": "B.lab"}):
        (selection,) = place(hosts, spec(availability_zone="nova", **force))
        assert (selection.host, selection.limits["memory_mb"], selection.alternates) == ("B", 150.0, ())


@pytest.mark.parametrize(
    ("force", "text"),
    [
        ({"force_host": "zz"}, "'force_hosts' value of 'zz'"),
        ({"force_node": "zz"}, "'force_nodes' value of 'zz'"),
        ({"force_host": "a", "force_node": "b.lab"}, "'force_nodes' value of 'b.lab'"),
    ],
)
def test_an_unknown_forced_host(force, text):
    with pytest.raises(NoValidHost, match=text):
        place([host("a"), host("b")], spec(**force))


def test_forced_to_a_host_with_two_nodes_still_weighs():
    hosts = [host("a", nodename="n1", memory_mb=4096), host("a", nodename="n2", memory_mb=8192), host("b")]
    assert [s.nodename for s in place(hosts, spec(force_host="a"))] == ["n2"]


def test_ignored_and_retried_hosts():
    hosts = [host("a"), host("b", nodename="n1"), host("b", nodename="n2")]
    assert [s.nodename for s in place(hosts, spec(ignore_hosts=["A"], retry_hosts=[("b", "n1")]))] == ["n2"]
    with pytest.raises(NoValidHost, match="ignore_hosts a, B"):
        place(hosts, spec(ignore_hosts=["a", "B"]))


# --- alternates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attempts", "expected"), [(1, []), (2, ["b"]), (3, ["b", "c"]), (9, ["b", "c", "d"])])
def test_alternates_are_next_in_order(attempts, expected):
    hosts = [host(n, memory_mb=8192 - 100 * i) for i, n in enumerate("abcd")] + [host("tiny", memory_mb=10)]
    (selection,) = place(hosts, spec(), max_attempts=attempts)
    assert (selection.host, [a.host for a in selection.alternates]) == ("a", expected)


def test_alternates_are_none_of_the_chosen_and_still_fit():
    hosts = [host(n, memory_mb=8192 - 100 * i) for i, n in enumerate("abcd")]
    first, second = place(hosts, spec(2), max_attempts=4)
    assert names([first, second]) == ["a", "b"]
    assert [a.host for a in first.alternates] == [a.host for a in second.alternates] == ["c", "d"]


def test_alternates_of_one_instance_stand_as_they_were_weighed_for_it():
    """Weighed again after the pick b would come first: a's free memory, the end of the scale, has moved."""
    hosts = [
        host("a", memory_mb=10000, local_gb=100),
        host("b", memory_mb=5000, local_gb=10),
        host("c", memory_mb=1000, local_gb=55),
    ]
    flavor = Flavor("f", 4900, 0)
    options = {"enabled_filters": [], "weighers": ["RAMWeigher", "DiskWeigher"]}
    (selection,) = place(hosts, spec(1, flavor), **options)
    assert (selection.host, [a.host for a in selection.alternates]) == ("a", ["c", "b"])
    assert names(place(hosts, spec(2, flavor), **options)) == ["a", "a"]
    assert [a.host for a in place(hosts, spec(2, Flavor("f", 2450, 0)), **options)[0].alternates] == ["b", "c"]


# --- settings ------------------------------------------------------------------------------------------------------


def test_a_filter_that_is_not_enabled_leaves_no_limit():
    (selection,) = place([host("a", memory_mb=1)], spec(), enabled_filters=["DiskFilter"])
    assert selection.limits == {"disk_gb": 100.0}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"enabled_filters": ["RamFilter", "NoSuchFilter"]}, "unknown filter NoSuchFilter"),
        ({"weighers": ["NoSuchWeigher"]}, "unknown weigher NoSuchWeigher"),
        ({"multipliers": {"Ram": 1}}, "unknown weigher Ram"),
        ({"multipliers": {"RAMWeigher": "much"}}, "multiplier of RAMWeigher is 'much'"),
        ({"enabled_filters": ["RamFilter", "RamFilter"]}, "RamFilter is listed twice"),
    ],
)
def test_unknown_names(options, text):
    with pytest.raises(InvalidInput, match=text) as caught:
        place([host("a")], spec(), **options)
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio"])
def test_ratios(name):
    default = getattr(host("a"), name)
    assert getattr(host("a", **{name: None}), name) == getattr(host("a", **{name: 0.0}), name) == default
    assert default == {"ram_allocation_ratio": 1.5, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}[name]
    for bad in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="%s of host a" % name):
            host("a", **{name: bad})


def test_a_host_of_several_nodes_has_one_member_of_an_anti_affinity_group() -> None:
    group = ServerGroup(id="g", name="g", policy="anti-affinity")
    nodes = [
        HostState(host=h, nodename=n, memory_mb=4096, local_gb=100, vcpus=8)
        for h, n in (("a", "n1"), ("a", "n2"), ("b", "n3"))
    ]
    spec = RequestSpec(instance_uuids=["1", "2"], flavor=Flavor("f", 512, 1), instance_group=group)
    chosen = [s.host for s in select_destinations(Fleet(nodes), spec, make_options())]
    assert sorted(chosen) == ["a", "b"]


def test_a_placement_goes_on_where_it_was() -> None:
    """Asked one by one it chooses as for all at once."""

    def fleet() -> Fleet:
        return Fleet(
            HostState(host=h, nodename=h, memory_mb=1024 * m, local_gb=100, vcpus=8)
            for h, m in (("a", 4), ("b", 7), ("c", 5))
        )

    def asked(*uuids: str) -> RequestSpec:
        return RequestSpec(instance_uuids=uuids, flavor=Flavor("f", 1024, 1))

    at_once = select_destinations(fleet(), asked("1", "2", "3", "4", "5"), make_options(max_attempts=1))
    placement = Placement(fleet(), asked(), make_options(max_attempts=1))
    one_by_one = [placement.select([u])[0] for u in "12345"]
    assert one_by_one == at_once


# --- pools --------------------------------------------------------------------------------------------------------------


def in_pool(name, pool="cluster/vms", **more):
    return host(name, disk_available_least=25, stats={"disk_pool": pool}, **more)


@pytest.mark.parametrize("disk_filter", ["DiskFilter", "AggregateDiskFilter"])
def test_hosts_of_one_pool_share_its_space(disk_filter):
    options = {"enabled_filters": [disk_filter]}
    fleet = Fleet([in_pool("a"), in_pool("b"), in_pool("c", pool="cluster/other")])
    free = fleet.free_disk_mb.tolist()
    with pytest.raises(NoValidHost) as refused:
        place(fleet, spec(5), **options)
    assert refused.value.details["placed"] == 4, "two in each pool"
    assert fleet.free_disk_mb.tolist() == free
    placed = names(place(fleet, spec(4), **options))
    assert placed.count("c") == 2 and set(placed) <= {"a", "b", "c"}
    assert fleet.free_disk_mb.tolist() == [5 * 1024] * 3
    assert [fleet.host_state(row).free_disk_mb for row in range(3)] == [5 * 1024] * 3
    with pytest.raises(NoValidHost):
        place(fleet, spec(1), **options)


def test_hosts_without_a_pool_share_nothing():
    fleet = Fleet([host("a", disk_available_least=15), host("b", disk_available_least=15)])
    assert sorted(names(place(fleet, spec(2), enabled_filters=["DiskFilter"]))) == ["a", "b"]
    assert fleet.free_disk_mb.tolist() == [5 * 1024] * 2
    fleet.credit("a", 1024)
    assert fleet.free_disk_mb.tolist() == [5 * 1024] * 2


def test_an_exact_filter_sees_what_is_left_of_the_pool():
    fleet = Fleet([in_pool("a"), in_pool("b")])
    flavor = Flavor("all", memory_mb=1024, vcpus=1, root_gb=25)
    with pytest.raises(NoValidHost) as refused:
        place(fleet, spec(2, flavor), enabled_filters=["ExactDiskFilter"])
    assert refused.value.details["placed"] == 1


def test_disks_that_stay_in_their_pool_are_credited_to_it():
    fleet = Fleet([in_pool("a"), in_pool("b"), in_pool("c", pool="cluster/other")])
    fleet.credit("a", 10 * 1024)
    assert fleet.free_disk_mb.tolist() == [35 * 1024, 35 * 1024, 25 * 1024]
    fleet.credit("a", -10 * 1024)
    fleet.credit("nowhere", 1024)
    fleet.credit(None, 1024)
    assert fleet.free_disk_mb.tolist() == [25 * 1024] * 3
