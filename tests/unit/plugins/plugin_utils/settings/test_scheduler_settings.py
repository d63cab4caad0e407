# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler import registry
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import FILTERS
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import scheduler_settings, variable_names

HINTED = """
class RackFilter:
    hints = ("rack",)

    def host_passes(self, host_state, spec):
        return True
"""


def told(action):
    with pytest.raises(InvalidRequest) as caught:
        scheduler_settings.check(action)
    assert all(e["message"] and e["remedy"] for e in caught.value.errors)
    return [(e["path"], e["message"]) for e in caught.value.errors]


def test_the_defaults_are_the_schedulers_own(make_action):
    action = make_action()
    scheduler_settings.check(action)
    made, plain = scheduler_settings.scheduler_options(action, now=5.0), SchedulerOptions()
    differ = {f.name for f in dataclasses.fields(plain) if getattr(made, f.name) != getattr(plain, f.name)}
    assert differ == {"now", "service_down_time", "settings", "user_classes"}
    assert made.settings == {s.name: s.read(None) if s.name != "isolated_hosts" else () for s in FILTERS}
    assert (made.now, made.service_down_time) == (5.0, 900)
    assert action.options["lease_seconds"] == 600
    assert action.options["consecutive_build_service_disable_threshold"] == 10


def test_every_setting_arrives(make_action):
    given = {
        "enabled_filters": ["RamFilter"],
        "weighers": ["RAMWeigher"],
        "host_subset_size": 3,
        "shuffle_best_same_weighed_hosts": True,
        "max_attempts": 2,
        "service_down_time": 7,
        "max_facts_age": 8,
        "default_availability_zone": "z",
        "max_io_ops_per_host": 9,
        "max_instances_per_host": 10,
        "isolated_images": ["i"],
        "restrict_isolated_hosts_to_isolated_images": False,
        "aggregate_image_properties_isolation_namespace": "os",
        "aggregate_image_properties_isolation_separator": "_",
        "metrics_required": False,
        "metrics_weight_of_unavailable": -1.0,
    }
    action = make_action(
        **given,
        groups={"rack": ["kvm3", "kvm1"]},
        weight_multipliers={"RAMWeigher": "-1.5"},
        isolated_hosts=["kvm1", "rack"],
        metrics_weight_setting={"cpu.percent": "-2"},
    )
    scheduler_settings.check(action)
    made = scheduler_settings.scheduler_options(action, now=1.0, explain=True)
    fields = {f.name for f in dataclasses.fields(made)}
    for name, value in given.items():
        assert (getattr(made, name) if name in fields else made.settings[name]) == value, name
    assert made.multipliers == {"RAMWeigher": -1.5}
    assert made.settings["isolated_hosts"] == ("kvm1", "kvm3")
    assert made.settings["metrics_weight_setting"] == {"cpu.percent": -2.0}
    assert made.explain is True
    untouched = {"now", "rng", "user_filter_dirs", "user_classes", "settings"}
    untouched |= {"explain", "explain_most", "explain_failures"}
    named = set(given) | {"multipliers", "isolated_hosts", "metrics_weight_setting"}
    assert fields | set(made.settings) == named | untouched | {setting.name for setting in FILTERS}


@pytest.mark.parametrize(
    "options, path, message",
    [
        ({"enabled_filters": ["RamFilter", "RumFilter"]}, "scheduler", "unknown filter RumFilter"),
        ({"enabled_filters": ["RamFilter", "RamFilter"]}, "scheduler", "RamFilter is listed twice"),
        ({"weighers": ["RumWeigher"]}, "scheduler", "unknown weigher RumWeigher"),
        ({"weight_multipliers": {"RumWeigher": 1}}, "scheduler", "unknown weigher RumWeigher"),
        ({"filter_dirs": ["/nowhere/at/all"]}, "bootflow_filter_dirs", "folder /nowhere/at/all does not exist"),
        ({"isolated_hosts": ["kvm9"]}, "bootflow_isolated_hosts", "Compute host kvm9 could not be found"),
        ({"aggregates": [{"name": "a", "hosts": ["kvm9"]}]}, "aggregates[a].hosts[0]", "Compute host kvm9"),
        ({"hosts": {"kvm1": {"bootflow_ram_allocation_ratio": -1}}}, "host kvm1", "at least 0, got -1"),
    ],
)
def test_settings_that_cannot_be(make_action, options, path, message):
    ((where, text),) = told(make_action(**options))
    assert where == path and message in text


def test_underlay_addresses_that_cannot_be_together_are_refused_before_anything_is_touched(make_action):
    address = "bootflow_vxlan_address"
    ((path, text),) = told(make_action(hosts={"kvm1": {address: "10.0.0.1"}, "kvm2": {address: "fd00::2"}}))
    assert path == address and "is 10.0.0.1 on kvm1 and fd00::2 on kvm2: a VXLAN network has one IP version" in text
    ((_path, text),) = told(make_action(hosts={"kvm1": {address: "FD00::1"}, "kvm2": {address: "fd00:0::1"}}))
    assert "is fd00::1 on kvm1 and on kvm2" in text
    ((path, text),) = told(make_action(hosts={"kvm1": {address: "10.0.0.1"}, "kvm2": {address: "nowhere"}}))
    assert path == "host kvm2" and address in text, "one that is wrong by itself is reported as that alone"
    scheduler_settings.check(make_action(hosts={"kvm1": {address: "10.0.0.1"}, "kvm2": {}, "kvm3": {address: ""}}))


def test_all_problems_of_the_settings_at_once(make_action):
    found = told(
        make_action(
            hosts={"kvm1": {"bootflow_disabled": "x"}},
            enabled_filters=["No"],
            weighers=["Nor"],
            aggregates=[{"name": "a", "hosts": ["b"]}],
        )
    )
    assert [path for path, _text in found] == ["scheduler", "scheduler", "host kvm1", "aggregates[a].hosts[0]"]


@pytest.mark.parametrize(
    ("name", "value", "expects"),
    [
        ("max_attempts", 0, "a whole number from 1 to 3"),
        ("max_attempts", 4, "a whole number from 1 to 3"),
        ("service_down_time", 0, "a whole number of seconds, at least 1"),
        ("host_subset_size", 0, "a whole number, at least 1"),
        ("max_io_ops_per_host", 0, "a whole number, at least 1"),
        ("max_instances_per_host", 0, "a whole number, at least 1"),
        ("max_facts_age", 0, "a whole number of seconds, at least 1"),
        ("lease_seconds", 29, "a whole number of seconds, at least 30"),
        ("consecutive_build_service_disable_threshold", -1, "a whole number, at least 0"),
        ("weight_multipliers", {"RAMWeigher": "much"}, "a mapping of names to numbers"),
        ("weight_multipliers", {"RAMWeigher": "nan"}, "a mapping of names to numbers"),
        ("metrics_weight_setting", {"cpu": None}, "a mapping of names to numbers"),
        ("metrics_weight_of_unavailable", float("inf"), "a number"),
        ("aggregates", "a", "a list of mappings, or a mapping keyed by name"),
    ],
)
def test_values_that_no_option_takes(make_action, name, value, expects):
    with pytest.raises(InvalidRequest) as caught:
        make_action(**{name: value})
    (error,) = caught.value.errors
    assert error["message"].startswith("%s must be %s, got " % (name, expects))
    if isinstance(value, int):
        good = value + 1 if value < 4 or name == "lease_seconds" else 3
        scheduler_settings.check(make_action(**{name: good}))


USERS = """
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import Setting

class Rack:
    settings = (Setting("my_racks", list, ("a",), "Racks that take instances."),)

    def host_passes(self, host_state, spec):
        return host_state.vars.get("rack") in self.conf.my_racks
"""


def test_a_users_filter_has_settings_of_its_own(make_action, tmp_path):
    (tmp_path / "rack.py").write_text(USERS)
    action = make_action(filter_dirs=[str(tmp_path)], enabled_filters=["Rack"])
    assert scheduler_settings.scheduler_options(action, now=0.0).settings["my_racks"] == ["a"]
    action.variables["bootflow_my_racks"] = ["b", "c"]
    options = scheduler_settings.scheduler_options(action, now=0.0)
    (made,) = registry.make_filters(options, registry.user_classes(options))
    assert made.made.conf.my_racks == ["b", "c"]
    action.variables["bootflow_my_racks"] = {"b": 1}
    assert told(action) == [("scheduler", "bootflow_my_racks must be a list of names, got {'b': 1}")]


# --- aggregates and zones ---------------------------------------------------------------------------------------------

AGGREGATES = [
    {"name": "north", "hosts": ["rack"], "availability_zone": "north"},
    {"name": "ssd", "hosts": ["kvm2", "kvm3"], "metadata": {"ssd": "true"}},
]


def test_aggregates_by_host(make_action):
    action = make_action(groups={"rack": ["kvm1", "kvm2", "storage1"]}, aggregates=AGGREGATES)
    scheduler_settings.check(action)
    found = scheduler_settings.aggregates_of(action)
    assert {h: [a.name for a in of_host] for h, of_host in found.items()} == {
        "kvm1": ["north"],
        "kvm2": ["north", "ssd"],
        "kvm3": ["ssd"],
    }
    assert found["kvm3"][0].metadata == {"ssd": "true"}
    assert scheduler_settings.aggregates_of(make_action()) == {}


def test_the_zone_of_a_host(make_action):
    hosts = {
        "kvm1": {"bootflow_availability_zone": "north"},
        "kvm2": {},
        "kvm3": {},
        "kvm4": {"bootflow_availability_zone": "east"},
    }
    action = make_action(
        hosts=hosts, groups={"rack": ["kvm1", "kvm2"]}, aggregates=AGGREGATES, default_availability_zone="home"
    )
    zones = {h: c["availability_zone"] for h, c in scheduler_settings.configurations(action).items()}
    assert zones == {"kvm1": "north", "kvm2": "north", "kvm3": "home", "kvm4": "east"}


def test_a_zone_that_contradicts_the_variable(make_action):
    hosts = {"kvm1": {"bootflow_availability_zone": "south"}, "kvm2": {}, "kvm3": {}}
    action = make_action(hosts=hosts, groups={"rack": ["kvm1", "kvm2"]}, aggregates=AGGREGATES)
    assert [path for path, _text in told(action)] == ["aggregates[north]"]
    for call in (scheduler_settings.aggregates_of, scheduler_settings.configurations):
        with pytest.raises(InvalidRequest, match="bootflow_availability_zone is south"):
            call(action)


# --- what is read of a request ----------------------------------------------------------------------------------------


def test_reading(make_action, tmp_path):
    (tmp_path / "rack.py").write_text(HINTED)
    action = make_action(
        enabled_filters=["JsonFilter", "RackFilter"], weighers=["RAMWeigher"], filter_dirs=[str(tmp_path)]
    )
    found = scheduler_settings.reading(scheduler_settings.scheduler_options(action, now=0.0))
    assert found == scheduler_settings.Reading(
        ("JsonFilter", "RackFilter"), ("RAMWeigher",), frozenset(("query", "rack"))
    )
    assert scheduler_settings.reading_of(action) == found
    with pytest.raises(InvalidInput, match="unknown filter"):
        scheduler_settings.reading(SchedulerOptions(enabled_filters=["RackFilter"]))


def test_reading_while_the_settings_are_wrong(make_action):
    found = scheduler_settings.reading_of(
        make_action(enabled_filters=["RumFilter", "JsonFilter"], weighers=["RAMWeigher"])
    )
    assert found == scheduler_settings.Reading(("RumFilter", "JsonFilter"), ("RAMWeigher",), frozenset(("query",)))


def test_reading_by_names_alone():
    found = scheduler_settings.reading_by_names(["SameHostFilter", "RackFilter"], None)
    assert found.filters == ("SameHostFilter", "RackFilter") and found.hints == {"same_host"}
    assert found.weighers == registry.DEFAULT_WEIGHERS
    default = scheduler_settings.reading_by_names(None, ["RAMWeigher"])
    exact = scheduler_settings.reading(SchedulerOptions(weighers=["RAMWeigher"]))
    assert set(exact.filters) <= set(default.filters) and exact[1:] == default[1:]
    assert "ServerGroupAntiAffinityFilter" in default.filters


class Display:
    def __init__(self):
        self.told = []

    def warning(self, text):
        self.told.append(text)


def test_variables_that_do_not_exist_are_warned_of_with_the_nearest_name(make_action, tmp_path):
    (tmp_path / "rack.py").write_text(USERS)
    action = make_action(hosts={"kvm1": {"bootflow_wait_timout": 5, "bootflow_my_racks": ["a"]}})
    action._display = Display()
    action.variables["bootflow_filter_dirs"] = [str(tmp_path)]
    action.task_vars["bootflow_max_atempts"] = 2
    variable_names.warn(action)
    assert action._display.told == ["Variable bootflow_max_atempts does not exist; did you mean bootflow_max_attempts?"]
    variable_names.warn(action, scheduler_settings.variables_of_hosts(action))
    assert action._display.told[1:] == [
        "Variable bootflow_wait_timout does not exist; did you mean bootflow_wait_timeout?"
    ]


def test_the_variables_of_hosts_are_put_together_once_a_task(make_action):
    asked = []

    class HostVars(dict):
        def __getitem__(self, host):
            asked.append(host)
            return super().__getitem__(host)

    action = make_action(hosts=HostVars(kvm1={}, kvm2={}))
    scheduler_settings.check(action)
    scheduler_settings.configurations(action)
    scheduler_settings.aggregates_of(action)
    assert sorted(asked) == ["kvm1", "kvm2"]
