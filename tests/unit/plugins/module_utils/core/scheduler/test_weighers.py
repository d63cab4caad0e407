# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    ComputeHostMetricNotFound,
    InvalidInput,
    NoValidHost,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import PciDevice
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import make_weighers
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.weighing import Ranking
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from . import reference
from .reference import make_options

NOW = 1000.0
DEVICE = types.SimpleNamespace(address="0000:00:01.0")


def host(name, **more):
    more.setdefault("memory_mb", 8192)
    return HostState(name, more.pop("node", name), **{"local_gb": 100, "vcpus": 8, "updated_at": NOW, **more})


def spec(count=1, **more):
    flavor = more.pop("flavor", Flavor("f", 512, 1, 1))
    return RequestSpec(["u%d" % i for i in range(count)], flavor, **more)


def weigher(name, multiplier=None, **options):
    multipliers = {} if multiplier is None else {name: multiplier}
    (made,) = make_weighers(make_options(weighers=[name], multipliers=multipliers, **options), {})
    return made


def raws(name, hosts, request=None, **options):
    fleet = Fleet(hosts)
    made = weigher(name, **options)
    values = made.raw(fleet, request or spec(), fleet.all_rows())
    for row in fleet.all_rows():  # asked for one host it says the same
        assert float(made.raw(fleet, request or spec(), row)) == values[row]
    return values.tolist()


def scores(name, hosts, request=None, multiplier=None, **options):
    fleet = Fleet(hosts)
    made = weigher(name, multiplier, **options)
    return Ranking(fleet, request or spec(), fleet.all_rows(), [made]).score.tolist()


def group(policy, **more):
    return ServerGroup("g", "g", policy, **more)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("RAMWeigher", [{}, {"memory_mb_used": 192}, {"memory_mb_used": 9000}], [8192, 8000, -808]),
        ("CPUWeigher", [{}, {"vcpus_used": 3}, {"cpu_allocation_ratio": 0.5, "vcpus_used": 5}], [128, 125, -1]),
        ("DiskWeigher", [{}, {"local_gb_used": 1}, {"disk_available_least": 7}], [102400, 101376, 7168]),
        ("IoOpsWeigher", [{}, {"num_io_ops": 3}], [0, 3]),
        ("BuildFailureWeigher", [{}, {"failed_builds": 2}], [0, 2]),
        ("PCIWeigher", [{}, {"pci_devices": [DEVICE]}, {"pci_devices": [DEVICE] * 98}], [100, 99, 2]),
        ("PCIWeigher", [{"pci_devices": [DEVICE] * n} for n in (99, 100, 500)], [1, 1, 1]),
        ("MetricsWeigher", [{}, {"metrics": {"a": 1}}], [0, 0]),  # nothing to weigh is set
        ("ServerGroupSoftAffinityWeigher", [{}, {}], [0, 0]),
        ("ServerGroupSoftAntiAffinityWeigher", [{}, {}], [0, 0]),
    ],
)
def test_raw_numbers(name, fields, expected):
    assert raws(name, [host("h%d" % i, **f) for i, f in enumerate(fields)]) == expected


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("IoOpsWeigher", [{}, {"num_io_ops": 2}, {"num_io_ops": 4}], [0, -0.5, -1]),
        ("IoOpsWeigher", [{"num_io_ops": 4}, {"num_io_ops": 4}], [-1, -1]),  # the scale starts at 0
        ("BuildFailureWeigher", [{}, {"failed_builds": 1}, {"failed_builds": 2}], [0, -500000, -1000000]),
        ("BuildFailureWeigher", [{"failed_builds": 2}, {"failed_builds": 2}], [0, 0]),  # this one has no fixed end
        ("PCIWeigher", [{}, {"pci_devices": [DEVICE] * 2}, {"pci_devices": [DEVICE] * 4}], [1, 0.5, 0]),
    ],
)
def test_default_multipliers(name, fields, expected):
    assert scores(name, [host("h%d" % i, **f) for i, f in enumerate(fields)]) == pytest.approx(expected)


def test_the_configured_multiplier_of_build_failures_is_negated():
    hosts = [host("a"), host("b", failed_builds=1)]
    assert scores("BuildFailureWeigher", hosts, multiplier=10) == [0, -10]
    assert scores("BuildFailureWeigher", hosts, multiplier=-10) == [0, 10]


def test_a_host_sinks_to_the_end_after_a_failed_build():
    hosts = [host("a", memory_mb=99999, local_gb=9999, vcpus=99, failed_builds=1), host("b"), host("c", num_io_ops=9)]
    (found,) = select_destinations(Fleet(hosts), spec(), make_options(now=NOW))
    assert [found.host, *(a.host for a in found.alternates)] == ["b", "c", "a"]


def test_guests_without_devices_keep_away_from_them():
    hosts = [host("a", pci_devices=[DEVICE] * 3), host("b", memory_mb=8000)]
    options = make_options(now=NOW, weighers=["PCIWeigher"])
    assert [s.host for s in select_destinations(Fleet(hosts), spec(2), options)] == ["b", "b"]


def test_guests_with_devices_are_stacked_as_devices_go():
    devices = {n: [PciDevice("0000:%02x:00.0" % i, "8086", "10fb") for i in range(n)] for n in (2, 3)}
    hosts = [host("a", pci_devices=devices[3]), host("b", pci_devices=devices[2])]
    request = spec(5, pci_requests=[PciRequest(1, ({"vendor_id": "8086"},))])
    fleet = Fleet(hosts)
    options = make_options(now=NOW, weighers=["PCIWeigher"])
    made = weigher("PCIWeigher")
    seen = []
    for _each in range(3):
        (one,) = select_destinations(
            fleet, RequestSpec(["u"], request.flavor, pci_requests=request.pci_requests), options
        )
        seen.append((one.host, made.raw(fleet, request, fleet.all_rows()).tolist()))
    assert seen == [("b", [97, 99]), ("b", [97, 100]), ("a", [98, 100])]  # b has none left at the end
    found = select_destinations(Fleet(hosts), request, options)
    assert [s.host for s in found] == ["b", "b", "a", "a", "a"]


class TestMetrics:
    SETTING = {"cpu.percent": -1.0, "mem": 2.0}
    HOSTS = [{"cpu.percent": 10.0, "mem": 3.0}, {"cpu.percent": 0.5, "mem": 0.0, "other": 9.0}]

    def test_sum_of_metric_times_ratio(self):
        hosts = [host("h%d" % i, metrics=m) for i, m in enumerate(self.HOSTS)]
        assert raws("MetricsWeigher", hosts, metrics_weight_setting=self.SETTING) == [-4, -0.5]

    @pytest.mark.parametrize("value", [None, float("nan"), "gone"])
    def test_a_missing_metric_is_an_error(self, value):
        metrics = {"cpu.percent": 1.0, "mem": value}
        if value == "gone":
            del metrics["mem"]
        hosts = [host("a", metrics=self.HOSTS[0]), host("b", node="n", metrics=metrics)]
        with pytest.raises(ComputeHostMetricNotFound) as caught:
            raws("MetricsWeigher", hosts, metrics_weight_setting=self.SETTING)
        assert caught.value.message == "Metric mem could not be found on the compute host node b.n."
        assert caught.value.remedy

    def test_one_candidate_is_not_weighed_and_needs_no_metric(self):
        options = make_options(now=NOW, metrics_weight_setting=self.SETTING)
        assert select_destinations(Fleet([host("a")]), spec(2), options)[1].host == "a"

    def test_where_not_required_the_whole_number_is_replaced(self):
        hosts = [host("a", metrics=self.HOSTS[0]), host("b", metrics={"mem": 5.0})]
        options = {"metrics_weight_setting": self.SETTING, "metrics_required": False}
        assert raws("MetricsWeigher", hosts, **options) == [-4, -10000]
        assert raws("MetricsWeigher", hosts, metrics_weight_of_unavailable=-7.0, **options) == [-4, -7]

    def test_a_missing_metric_of_ratio_0_is_passed_over(self):
        hosts = [host("a", metrics={"mem": 5.0}), host("b", metrics={"mem": 1.0})]
        setting = {"cpu.percent": 0.0, "mem": 2.0}
        assert raws("MetricsWeigher", hosts, metrics_weight_setting=setting, metrics_required=False) == [10, 2]

    def test_a_missing_metric_is_passed_over_where_the_hosts_multiplier_is_0(self):
        none = Aggregate("none", metadata={"metrics_weight_multiplier": "0"})
        hosts = [host("a", metrics={"mem": 5.0}, aggregates=[none]), host("b", metrics={"mem": 1.0})]
        options = {"metrics_weight_setting": self.SETTING, "metrics_required": False}
        assert raws("MetricsWeigher", hosts, **options) == [10, -10000]

    @pytest.mark.parametrize("ratio", ["much", None, float("nan"), float("inf")])
    def test_a_ratio_is_a_number(self, ratio):
        with pytest.raises(
            InvalidInput, match="bootflow_metrics_weight_setting must be a mapping of names to numbers, got 'mem: "
        ):
            weigher("MetricsWeigher", metrics_weight_setting={"mem": ratio})


class TestSoftGroups:
    HOSTS = ("a", "b", "c")

    @pytest.mark.parametrize(
        ("name", "policy", "expected"),
        [
            ("ServerGroupSoftAffinityWeigher", "soft-affinity", [0, 1, 3]),
            ("ServerGroupSoftAntiAffinityWeigher", "soft-anti-affinity", [0, -1, -3]),
            ("ServerGroupSoftAffinityWeigher", "soft-anti-affinity", [0, 0, 0]),
            ("ServerGroupSoftAntiAffinityWeigher", "soft-affinity", [0, 0, 0]),
            ("ServerGroupSoftAffinityWeigher", "affinity", [0, 0, 0]),
            ("ServerGroupSoftAntiAffinityWeigher", "anti-affinity", [0, 0, 0]),
        ],
    )
    def test_members_on_the_host(self, name, policy, expected):
        request = spec(instance_group=group(policy, host_counts={"b": 1, "c": 3, "elsewhere": 9}))
        assert raws(name, [host(h) for h in self.HOSTS], request) == expected

    @pytest.mark.parametrize(
        ("policy", "expected"), [("soft-affinity", ["a"] * 3 + ["b"]), ("soft-anti-affinity", ["a", "b", "c", "c"])]
    )
    def test_hosts_just_picked_count(self, policy, expected):
        hosts = [host(h, memory_mb=1600, ram_allocation_ratio=1.0) for h in self.HOSTS]
        weighers = ["ServerGroupSoftAffinityWeigher", "ServerGroupSoftAntiAffinityWeigher"]
        options = make_options(now=NOW, weighers=weighers)
        found = select_destinations(Fleet(hosts), spec(4, instance_group=group(policy)), options)
        assert [s.host for s in found] == expected


@pytest.mark.parametrize("name", ["PCIWeigher", "ServerGroupSoftAffinityWeigher", "ServerGroupSoftAntiAffinityWeigher"])
def test_multipliers_that_may_not_be_negative(name):
    with pytest.raises(InvalidInput, match="multiplier of %s is -0.5" % name) as caught:
        weigher(name, -0.5)
    assert "0 or more" in caught.value.remedy
    assert weigher(name, 0).multiplier == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "much", None])
def test_a_multiplier_is_a_number(value):
    with pytest.raises(InvalidInput, match="multiplier of RAMWeigher"):
        make_weighers(make_options(multipliers={"RAMWeigher": value}), {})


KEYS = {
    "RAMWeigher": "ram_weight_multiplier",
    "CPUWeigher": "cpu_weight_multiplier",
    "DiskWeigher": "disk_weight_multiplier",
    "IoOpsWeigher": "io_ops_weight_multiplier",
    "PCIWeigher": "pci_weight_multiplier",
    "MetricsWeigher": "metrics_weight_multiplier",
    "BuildFailureWeigher": "build_failure_weight_multiplier",
    "ServerGroupSoftAffinityWeigher": "soft_affinity_weight_multiplier",
    "ServerGroupSoftAntiAffinityWeigher": "soft_anti_affinity_weight_multiplier",
}


class TestPerAggregate:
    @staticmethod
    def multipliers(name, *metadata, configured=5.0):
        """One host in aggregates of these metadata, beside one in none."""
        aggregates = [Aggregate("a%d" % i, metadata=m) for i, m in enumerate(metadata)]
        fleet = Fleet([host("a", aggregates=aggregates), host("b")])
        found = weigher(name, configured).multipliers(fleet, fleet.all_rows())
        return np.broadcast_to(found, 2).tolist()

    @pytest.mark.parametrize("name", KEYS)
    def test_each_weigher_has_its_key(self, name):
        sign = -1 if name == "BuildFailureWeigher" else 1
        assert self.multipliers(name, {KEYS[name]: "2.5"}) == [2.5 * sign, 5 * sign]
        others = {k: "9" for k in KEYS.values() if k != KEYS[name]}
        assert self.multipliers(name, others) == [5 * sign, 5 * sign]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (["2", "-3", "7"], -3),
            (["2"], 2),
            ([" 2 "], 2),
            (["0"], 0),
            (["2", "much"], 5),  # one that is no number spoils all
            (["1,2"], 5),
            (["nan"], 5),
            (["inf", "1"], 5),
            ([""], 5),
        ],
    )
    def test_the_least_one_or_the_configured_one(self, values, expected):
        metadata = [{"ram_weight_multiplier": v} for v in values]
        assert self.multipliers("RAMWeigher", *metadata) == [expected, 5]

    def test_a_host_is_stacked_and_another_spread(self):
        stack = Aggregate("stack", metadata={"ram_weight_multiplier": "-1"})
        hosts = [host("a", aggregates=[stack]), host("b", memory_mb=4096)]
        assert scores("RAMWeigher", hosts) == [-1, 0.5]


# --- Nova's loop ---------------------------------------------------------------------------------------------------

written = st.sampled_from(["-1", "0", "0.3", "2", "much", "1000"])
AGGREGATES = st.lists(
    st.dictionaries(st.sampled_from(sorted(KEYS.values())), written, max_size=4), min_size=2, max_size=3
)
SETTING = {"m": 1.5, "z": 0.0}


@st.composite
def requests(draw):
    names = ["h%d" % i for i in range(draw(st.integers(1, 7)))]
    made = [Aggregate("g%d" % i, metadata=m) for i, m in enumerate(draw(AGGREGATES))]
    members = {"m%d" % i: draw(st.sampled_from(names)) for i in range(draw(st.integers(0, 4)))}
    states = []
    for name in names:
        states.append(
            host(
                name,
                memory_mb=draw(st.sampled_from([1024, 2048, 4096])),
                memory_mb_used=draw(st.sampled_from([0, 0, 512])),
                vcpus=draw(st.sampled_from([1, 4])),
                num_io_ops=draw(st.sampled_from([0, 0, 1, 5])),
                failed_builds=draw(st.sampled_from([0, 0, 0, 1, 3])),
                pci_devices=[DEVICE] * draw(st.sampled_from([0, 0, 1, 99, 120])),
                metrics=draw(st.sampled_from([{}, {"m": 1.0}, {"m": 2.5, "z": 1.0}, {"z": 4.0}])),
                aggregates=draw(st.lists(st.sampled_from(made), max_size=2, unique_by=id)),
                instances={uuid: "f" for uuid, where in members.items() if where == name},
            )
        )
    count = draw(st.integers(1, 9))
    policy = draw(st.sampled_from([None, "affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]))
    of_group = None
    if policy:
        counts = {n: sum(w == n for w in members.values()) for n in names if n in members.values()}
        of_group = ServerGroup(
            "g",
            "g",
            policy,
            draw(st.integers(1, 3)) if policy == "anti-affinity" else 1,
            members=frozenset(members) | {"u%d" % i for i in range(count)},
            host_counts=counts,
        )
    flavor = Flavor("f", draw(st.sampled_from([0, 256, 500])), draw(st.sampled_from([0, 1])), 1)
    return states, spec(count, flavor=flavor, instance_group=of_group)


@settings(max_examples=examples(400), deadline=None)
@given(
    requests(),
    st.dictionaries(
        st.sampled_from([n for n in KEYS if n != "PCIWeigher" and "Soft" not in n]), st.sampled_from([-2.0, 0.0, 3.0])
    ),
    st.sampled_from([1, 1, 3]),
)
def test_all_weighers_and_groups_equal_novas_loop(made, multipliers, subset):
    states, request = made
    options = make_options(
        now=NOW,
        multipliers=multipliers,
        host_subset_size=subset,
        metrics_weight_setting=SETTING,
        metrics_required=False,
    )
    expected = reference.select(states, request, options)
    if expected is None:
        with pytest.raises(NoValidHost):
            select_destinations(Fleet(states), request, options)
        return
    found = select_destinations(Fleet(states), request, options)
    assert ([(s.host, s.nodename) for s in found], [(a.host, a.nodename) for a in found[-1].alternates]) == expected
