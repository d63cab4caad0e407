# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput

from .test_filters import NOW, verdict


@pytest.mark.parametrize(
    ("instances", "passes"),
    [
        ({}, True),
        ({"1": "f"}, True),
        ({"1": "f", "2": "f"}, True),
        ({"1": "g"}, False),
        ({"1": "f", "2": "g"}, False),
    ],
)
def test_type_affinity(instances, passes):
    ok, reason = verdict("TypeAffinityFilter", {"instances": instances})
    assert ok == passes
    assert ok or reason == "flavor f: it runs g"


# (hint, instances on the host, one of them is there, only some of them are)
@pytest.mark.parametrize(
    ("hint", "instances", "overlap"),
    [
        ("a", ["a"], True),
        ("a", ["b"], False),
        ("a", [], False),
        (["a"], ["a", "c"], True),
        (["a", "b"], ["b"], True),
        (("a", "b"), ["b"], True),
        (["a", "b"], ["c"], False),
        ("abc", ["a"], False),  # one uuid, not three letters
        ("A", ["a"], False),
    ],
)
def test_same_and_different_host(hint, instances, overlap):
    host = {"instances": dict.fromkeys(instances, "f")}
    ok, reason = verdict("SameHostFilter", host, scheduler_hints={"same_host": hint})
    assert ok == overlap
    assert ok or reason.startswith("same_host: it runs none of ")
    ok, reason = verdict("DifferentHostFilter", host, scheduler_hints={"different_host": hint})
    assert ok != overlap
    assert ok or reason.startswith("different_host: it runs ")


@pytest.mark.parametrize(
    "hints", [{}, {"same_host": "", "different_host": ""}, {"same_host": [], "different_host": None}]
)
def test_no_hint_no_affinity(hints):
    for name in ("SameHostFilter", "DifferentHostFilter"):
        assert verdict(name, {"instances": {"a": "f"}}, scheduler_hints=hints)[0]


@pytest.mark.parametrize("name", ["SameHostFilter", "DifferentHostFilter"])
@pytest.mark.parametrize("hint", [5, {"a": 1}, ["a", 5], ["a", ""], True])
def test_hints_that_name_no_instances(name, hint):
    with pytest.raises(InvalidInput, match="the scheduler hint (same|different)_host is ") as caught:
        verdict(name, scheduler_hints={"same_host": hint, "different_host": hint})
    assert "UUID" in caught.value.remedy


@pytest.mark.parametrize("name", ["SameHostFilter", "DifferentHostFilter"])
@pytest.mark.parametrize(
    ("same", "different", "contradict"),
    [("a", "a", True), (["a"], ["b", "a"], True), (["a", "b"], "a", False), ("a", "b", False)],
)
def test_hints_that_leave_no_host(name, same, different, contradict):
    hints = {"same_host": same, "different_host": different}
    if contradict:
        with pytest.raises(InvalidInput, match="asks for the host of a, and different_host forbids it"):
            verdict(name, scheduler_hints=hints)
    else:
        assert verdict(name, scheduler_hints=hints)[0] == (name == "DifferentHostFilter")


@pytest.mark.parametrize(
    ("near", "cidr", "host_ip", "passes"),
    [
        (None, None, "", True),
        ("", "/32", "10.0.0.1", True),
        (None, "/32", "10.0.0.1", True),
        ("10.0.0.5", None, "10.0.0.250", True),  # /24
        ("10.0.0.5", None, "10.0.1.5", False),
        ("10.0.0.5", "/16", "10.0.1.5", True),
        ("10.0.0.5", "/31", "10.0.0.4", True),
        ("10.0.0.5", "/31", "10.0.0.6", False),
        ("10.0.0.5", "/32", "10.0.0.5", True),
        ("10.0.0.5", "/0", "192.0.2.1", True),
        ("10.0.0.5", "/255.255.0.0", "10.0.1.5", True),
        ("10.0.0.5", "/24", "", False),
        ("10.0.0.5", "/24", "compute7", False),
        ("10.0.0.5", "/0", "2001:db8::1", False),
        ("2001:db8::5", "/64", "2001:db8::ffff", True),
        ("2001:db8::5", "/64", "2001:db8:0:1::5", False),
        (["10.0.0.5"], ["/31"], "10.0.0.6", False),  # lists of one
    ],
)
def test_cidr_affinity(near, cidr, host_ip, passes):
    hints = {k: v for k, v in (("build_near_host_ip", near), ("cidr", cidr)) if v is not None}
    ok, reason = verdict("SimpleCIDRAffinityFilter", {"host_ip": host_ip}, scheduler_hints=hints)
    assert ok == passes
    assert ok or "/" in reason  # the network that was asked for


@pytest.mark.parametrize(
    ("near", "cidr", "name"),
    [
        ("compute7", "/24", "build_near_host_ip"),
        ("10.0.0", "/24", "build_near_host_ip"),
        ("10.0.0.5/8", "/24", "build_near_host_ip"),
        (7, "/24", "build_near_host_ip"),
        (["10.0.0.5", "10.0.0.6"], "/24", "build_near_host_ip"),
        ("10.0.0.5", "24", "cidr"),
        ("10.0.0.5", "/33", "cidr"),
        ("10.0.0.5", "/x", "cidr"),
        ("10.0.0.5", "/", "cidr"),
        ("10.0.0.5", "", "cidr"),
        ("10.0.0.5", 24, "cidr"),
    ],
)
def test_cidr_hints_that_are_none(near, cidr, name):
    with pytest.raises(InvalidInput, match="the scheduler hint %s|cidr" % name) as caught:
        verdict("SimpleCIDRAffinityFilter", scheduler_hints={"build_near_host_ip": near, "cidr": cidr})
    assert caught.value.remedy


HOSTS, IMAGES = ["h", "h2"], ["isolated", "other"]


@pytest.mark.parametrize(
    ("hosts", "images", "image", "restrict", "passes"),
    [
        # the whole matrix
        (HOSTS, IMAGES, "isolated", True, True),
        (HOSTS, IMAGES, "plain", True, False),
        (["x"], IMAGES, "isolated", True, False),
        (["x"], IMAGES, "plain", True, True),
        (HOSTS, IMAGES, "isolated", False, True),
        (HOSTS, IMAGES, "plain", False, True),
        (["x"], IMAGES, "isolated", False, False),
        (["x"], IMAGES, "plain", False, True),
        # nothing is isolated, or only one of both
        ([], [], "plain", True, True),
        ([], [], "plain", False, True),
        (HOSTS, [], "plain", True, False),
        (HOSTS, [], "plain", False, True),
        ([], IMAGES, "isolated", True, False),
        ([], IMAGES, "isolated", False, False),
        ([], IMAGES, "plain", True, True),
        # a boot from a volume has no image
        (HOSTS, IMAGES, "", True, False),
        (["x"], IMAGES, "", True, True),
        (HOSTS, ["", *IMAGES], "", True, False),
        (["H"], IMAGES, "isolated", True, False),  # upper case is another host
    ],
)
@pytest.mark.parametrize("attribute", ["image_id", "image_name"])
def test_isolated_hosts(hosts, images, image, restrict, passes, attribute):
    options = {
        "isolated_hosts": hosts,
        "isolated_images": images,
        "restrict_isolated_hosts_to_isolated_images": restrict,
    }
    ok, reason = verdict("IsolatedHostsFilter", options=options, **{attribute: image})
    assert ok == passes
    assert ok or ("isolated_hosts" in reason and (image or "(none)") in reason)


@pytest.mark.parametrize("setting", ["isolated_hosts", "isolated_images"])
@pytest.mark.parametrize("value", [{"a": "b"}, [["a"]]])
def test_isolated_things_are_lists_of_names(setting, value):
    with pytest.raises(InvalidInput, match=setting):
        verdict("IsolatedHostsFilter", options={setting: value})


@pytest.mark.parametrize(
    ("metrics", "wanted", "missing"),
    [
        ({}, {}, ""),
        ({"a": 1.0}, {}, ""),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0}, ""),
        ({"a": 0.0}, {"a": -1.0}, ""),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, "b"),
        ({}, {"b": 1.0, "a": 1.0}, "a, b"),
        ({"A": 1.0}, {"a": 1.0}, "a"),
    ],
)
def test_metrics(metrics, wanted, missing):
    ok, reason = verdict("MetricsFilter", {"metrics": metrics}, options={"metrics_weight_setting": wanted})
    assert ok == (not missing)
    assert reason == ("needs the metrics %s, it reports none" % missing if missing else "")


def test_metrics_setting_is_a_mapping():
    with pytest.raises(InvalidInput, match="bootflow_metrics_weight_setting must be a mapping"):
        verdict("MetricsFilter", options={"metrics_weight_setting": ["a=1.0"]})


@pytest.mark.parametrize(
    ("limit", "updated_at", "reason"),
    [
        (None, None, ""),
        (None, 0.0, ""),
        (100, NOW, ""),
        (100, NOW - 100, ""),
        (100, NOW - 101, "the facts of the host are 101 s old, more than 100 s"),
        ("100", NOW - 101, "the facts of the host are 101 s old, more than 100 s"),
        (100, NOW + 1000, ""),  # another clock: they are not old
        (100, None, "the host has reported no facts (they may be 100 s old)"),
    ],
)
def test_facts_age(limit, updated_at, reason):
    assert verdict("FactsAgeFilter", {"updated_at": updated_at}, options={"max_facts_age": limit}) == (
        not reason,
        reason,
    )


@pytest.mark.parametrize("limit", [0, -1, "old", float("nan"), []])
def test_a_facts_age_that_is_none(limit):
    with pytest.raises(InvalidInput, match="bootflow_max_facts_age must be a whole number of seconds, at least 1, got"):
        verdict("FactsAgeFilter", options={"max_facts_age": limit})
