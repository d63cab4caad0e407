# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, NoValidHost
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import registry
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.on_rebuild import check_host
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from .reference import make_options

RACK = """
class RackFilter:
    def host_passes(self, host_state, spec):
        wanted = spec.scheduler_hints.get("rack")
        if wanted and host_state.vars.get("rack") != wanted:
            return False, "rack %s asked for" % wanted
        return True
"""


def fleet(**vars_of):
    return Fleet(HostState(n, n, memory_mb=8192, local_gb=100, vcpus=8, vars=v) for n, v in vars_of.items())


def spec(count=1, **hints):
    return RequestSpec(["u%d" % i for i in range(count)], Flavor("f", 1024, 1, 1), scheduler_hints=hints)


def place(tmp_path, hosts, request, **options):
    options = make_options(enabled_filters=options.pop("filters", None), user_filter_dirs=[str(tmp_path)], **options)
    got = select_destinations(hosts, request, options)
    return [s.host for s in got]


@pytest.fixture
def no_heartbeat(monkeypatch):
    """Hosts of these tests never reported: the ComputeFilter stays out."""
    monkeypatch.setattr(registry, "DEFAULT_FILTERS", ("RamFilter", "CoreFilter"))


@pytest.mark.usefixtures("no_heartbeat")
def test_a_file_in_the_folder_is_enough(tmp_path):
    (tmp_path / "rack.py").write_text(RACK)
    hosts = fleet(a={"rack": "r1"}, b={"rack": "r2"})
    assert place(tmp_path, hosts, spec(rack="r2")) == ["b"]
    with pytest.raises(NoValidHost, match=r"RackFilter: \(start: 2, end: 0\)"):
        place(tmp_path, hosts, spec(rack="r3"))
    assert place(tmp_path, hosts, spec(rack="r3"), filters=["RamFilter"]) in (["a"], ["b"])
    assert not list(tmp_path.glob("__pycache__"))


def test_it_can_be_listed_by_name(tmp_path):
    (tmp_path / "rack.py").write_text(RACK)
    assert place(tmp_path, fleet(a={}, b={"rack": "r2"}), spec(rack="r2"), filters=["RackFilter", "RamFilter"]) == ["b"]
    with pytest.raises(InvalidInput) as caught:
        place(tmp_path, fleet(a={}), spec(), filters=["RockFilter"])
    assert "unknown filter RockFilter" in caught.value.message
    assert "RamFilter" in caught.value.remedy
    assert "RackFilter" in caught.value.remedy


@pytest.mark.parametrize(
    ("once", "calls"),
    [("", 5), ("run_once_per_request = True", 2), ("run_filter_once_per_request = True", 2), ("per_host = False", 8)],
)
def test_a_user_filter_sees_what_was_taken(tmp_path, once, calls):
    """Two hosts, three instances: after a pick the chosen host is asked again, with its present numbers."""
    (tmp_path / "f.py").write_text(
        """
ASKED = []
class Ask:
    %s
    def host_passes(self, host_state, spec):
        ASKED.append((host_state.host, host_state.free_ram_mb, host_state.vcpus_used, host_state.num_instances, host_state.free_disk_mb))
        return True
"""
        % once
    )
    options = make_options(enabled_filters=["Ask"], weighers=["RAMWeigher"], user_filter_dirs=[str(tmp_path)])
    select_destinations(fleet(a={}, b={}), spec(3), options)
    asked = sys.modules[options.user_classes["Ask"][0].__module__].ASKED
    assert len(asked) == calls
    if calls == 5:
        full = 100 * 1024
        assert asked == [
            ("a", 8192, 0, 0, full),
            ("b", 8192, 0, 0, full),
            ("a", 7168, 1, 1, full - 1024),
            ("b", 7168, 1, 1, full - 1024),
            ("b", 6144, 2, 2, full - 2048),  # as the request has alternates to find
        ]


@pytest.mark.parametrize(("flag", "calls"), [("", 0), ("RUN_ON_REBUILD = True", 1), ("run_on_rebuild = True", 1)])
def test_a_user_filter_of_images_is_asked_on_rebuild(tmp_path, flag, calls):
    (tmp_path / "f.py").write_text(
        "ASKED = []\nclass Ask:\n    %s\n    def host_passes(self, host_state, spec):\n"
        "        ASKED.append(host_state.host)\n        return not ASKED[1:], 'twice'\n" % (flag or "pass")
    )
    options = make_options(enabled_filters=["Ask", "RamFilter"], weighers=[], user_filter_dirs=[str(tmp_path)])
    hosts = fleet(a={}, b={"free_ram_mb": 0})
    check_host(hosts, spec(), options, "b", "b")
    assert sys.modules[options.user_classes["Ask"][0].__module__].ASKED == ["b"] * calls
    if calls:
        with pytest.raises(NoValidHost, match="Ask rejects b .*: twice"):
            check_host(hosts, spec(), options, "b", "b")
    with pytest.raises(NoValidHost, match="c has not reported"):
        check_host(hosts, spec(), options, "c", "c")


def test_a_filter_over_all_hosts(tmp_path):
    """evaluate() with columns, and an answer that depends on the other hosts: only those with the most free vCPUs."""
    (tmp_path / "most.py").write_text(
        """
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.base import Filter, FilterResult


class Most(Filter):
    per_host = False
    def evaluate(self, fleet, spec, rows):
        free = fleet.vcpus_total[rows] - fleet.vcpus_used[rows]
        return FilterResult(mask=free == free.max(), available=free, needed=int(free.max()), unit="vCPUs")
"""
    )
    assert place(tmp_path, fleet(a={}, b={}, c={}), spec(3), filters=["Most"]) == ["a", "b", "c"]


def test_a_user_weigher(tmp_path):
    (tmp_path / "w.py").write_text(
        """
class Cheap:
    multiplier = 5
    def weigh(self, host_state, spec):
        return -host_state.vars["price"]
"""
    )
    hosts = {"a": {"price": 3}, "b": {"price": 1}, "c": {"price": 2}}
    assert place(tmp_path, fleet(**hosts), spec(2), filters=[]) == ["b", "b"]
    assert place(tmp_path, fleet(**hosts), spec(), filters=[], multipliers={"Cheap": -1}) == ["a"]
    assert place(tmp_path, fleet(**hosts), spec(), filters=[], weighers=["RAMWeigher"]) == ["a"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_thing_at_all", "ModuleNotFoundError"),
        ("class X(:", "SyntaxError"),
        (
            "class X:\n  def host_passes(self, h, s): return 1/0",
            r"X of .*f.py: host_passes\(\) for host a: ZeroDivisionError",
        ),
        ("class X:\n  def __init__(self, need): pass\n  def host_passes(self, h, s): return 1", "X of .*: TypeError"),
        ("class X:\n  def weigh(self, h, s): return 'much'", r"weigh\(\) for host a: ValueError"),
        ("class X:\n  def weigh(self, h, s): return float('nan')", r"weigh\(\) for host a gave nan"),
        ("class RamFilter:\n  def host_passes(self, h, s): return 1", "RamFilter of .*f.py is already the name"),
        ("class X:\n  def evaluate(self, f, s, r): return 1", "derives from Filter"),
        ("class X:\n  def raw(self, f, s, r): return 1", "derives from Weigher"),
    ],
)
@pytest.mark.usefixtures("no_heartbeat")
def test_broken_files(tmp_path, text, reason):
    (tmp_path / "f.py").write_text(text)
    with pytest.raises(InvalidInput, match=reason) as caught:
        place(tmp_path, fleet(a={}, b={}), spec())
    assert caught.value.remedy


def test_the_same_name_in_two_files(tmp_path):
    (tmp_path / "a.py").write_text(RACK)
    (tmp_path / "b.py").write_text(RACK)
    with pytest.raises(InvalidInput, match="RackFilter of .*b.py is already the name of one of .*a.py"):
        place(tmp_path, fleet(a={}), spec())


def test_what_is_no_filter_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("no python")
    (tmp_path / "_helper.py").write_text("raise SystemError")
    (tmp_path / "lib.py").write_text(
        "class Helper:\n  pass\nclass _Base:\n  def host_passes(self, h, s): return False\n"
    )
    assert registry.load_user_classes([str(tmp_path), str(tmp_path / "missing")]) == {}


def test_default_order():
    made = registry.make_filters(make_options(), {})
    assert [f.name for f in made] == [
        "RetryFilter",
        "AvailabilityZoneFilter",
        "ComputeFilter",
        "RamFilter",
        "DiskFilter",
        "CoreFilter",
        "ComputeCapabilitiesFilter",
        "ImagePropertiesFilter",
        "ServerGroupAntiAffinityFilter",
        "ServerGroupAffinityFilter",
        "NUMATopologyFilter",
        "PciPassthroughFilter",
        "WholeDiskFilter",
        "NetworkFilter",
    ]
    assert [w.name for w in registry.make_weighers(make_options(), {})] == [
        "RAMWeigher",
        "CPUWeigher",
        "DiskWeigher",
        "IoOpsWeigher",
        "PCIWeigher",
        "MetricsWeigher",
        "BuildFailureWeigher",
        "ServerGroupSoftAffinityWeigher",
        "ServerGroupSoftAntiAffinityWeigher",
    ]
