# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    ImageNotFound,
    InvalidRequest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import REQUEST
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import SCHEDULER
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.volumes import VOLUME, VOLUME_SCHEDULER
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.create_request import CreateOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.options import (
    VolumeSchedulerOptions,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.registry import FILTERS
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import inventory_hosts, ledger_action
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import volume_settings

BACKEND = {"ansible_host": "192.0.2.1", "bootflow_storage_backends": [{"name": "lvm"}]}


class Action:
    def __init__(self, hosts, options):
        arguments = {**VOLUME.options(), **VOLUME_SCHEDULER.options()}
        assert not set(options) - set(arguments)
        self.options = ledger_action.read_settings(arguments, options, self.variable)
        self.task_vars = {"hostvars": hosts, "groups": {"bootflow_storage": list(hosts), "all": list(hosts)}}

    def variable(self, _name, default=None):
        return default


def action(hosts=None, **options):
    return Action({"s1": BACKEND} if hosts is None else hosts, options)


def told(made):
    with pytest.raises(InvalidRequest) as caught:
        volume_settings.check(made)
    assert all(e["message"] and e["remedy"] for e in caught.value.errors)
    return [(e["path"], e["message"]) for e in caught.value.errors]


def test_the_defaults_are_cinders_own():
    made = action()
    volume_settings.check(made)
    found = volume_settings.read_options(made.options)
    assert found.options == CreateOptions() and found.project == "default" and len(found.types) == 0
    assert (found.max_attempts, found.no_snapshot_gb_quota, found.quotas) == (3, False, {})
    options = volume_settings.scheduler_options(made.options, now=7.0)
    assert options == VolumeSchedulerOptions(now=7.0, service_down_time=900)


def test_every_setting_arrives():
    image = {"name": "debian", "url": "https://x.example/y", "checksum": "0" * 64, "disk_format": "qcow2"}
    made = action(
        volume_types=[{"name": "fast", "extra_specs": {"medium": "ssd"}}],
        default_volume_type="fast",
        images=[image],
        quotas={"volumes": "5", "gigabytes_fast": 9, "instances": 3},
        project="red",
        storage_availability_zone="z",
        allow_availability_zone_fallback=True,
        no_snapshot_gb_quota=True,
        volume_max_attempts=2,
        volume_filters=["CapacityFilter"],
        volume_weighers=["VolumeNumberWeigher"],
        volume_weight_multipliers={"VolumeNumberWeigher": "-2"},
        max_over_subscription_ratio="auto",
        service_down_time=5,
    )
    volume_settings.check(made)
    found = volume_settings.read_options(made.options)
    assert found.types.get("fast").extra_specs == {"medium": "ssd"} and found.image("debian").disk_format == "qcow2"
    assert found.options == CreateOptions("fast", "z", True)
    assert (found.quotas["volumes"], found.project, found.max_attempts) == ("5", "red", 2)
    assert found.no_snapshot_gb_quota is True
    with pytest.raises(ImageNotFound):
        found.image("none")
    options = volume_settings.scheduler_options(made.options, now=1.0, explain=True)
    assert options == VolumeSchedulerOptions(
        enabled_filters=["CapacityFilter"],
        weighers=["VolumeNumberWeigher"],
        multipliers={"VolumeNumberWeigher": -2.0},
        max_attempts=2,
        max_over_subscription_ratio="auto",
        now=1.0,
        service_down_time=5,
        explain=True,
    )


def test_all_errors_at_once():
    found = told(
        action(
            hosts={"s1": BACKEND, "s2": {}},
            volume_types=[{"name": "fast", "extra_specs": {"provisioning:type": "fat"}}],
            default_volume_type="slow",
            images=[{"name": "not requested"}],
            quotas={"gigabytes_none": 3, "projects": {"red": {"volumes": "many"}}},
            volume_weight_multipliers={"None": 1},
        )
    )
    paths = [path for path, _message in found]
    for path in (
        "volume_types[fast].extra_specs",
        "bootflow_default_volume_type",
        "bootflow_quotas",
        "scheduler",
        "s2.bootflow_storage_backends",
    ):
        assert path in paths, found
    assert not [p for p in paths if p.startswith(("s1", "images"))]


def test_an_inventory_without_storage_hosts_is_told():
    ((path, message),) = told(action(hosts={}))
    assert path == "bootflow_storage_group" and "no storage host" in message


@pytest.mark.parametrize(
    ("name", "value", "expects"),
    [
        ("volume_max_attempts", 4, "a whole number from 1 to 3"),
        ("volume_filters", ["SizeFilter"], "a list of " + ", ".join(FILTERS)),
        ("volume_weighers", ["None"], "a list of CapacityWeigher, AllocatedCapacityWeigher, VolumeNumberWeigher"),
        ("volume_weight_multipliers", {"CapacityWeigher": "x"}, "a mapping of names to numbers"),
        ("max_over_subscription_ratio", 0.1, "a number, at least 1.0, or auto"),
        ("max_over_subscription_ratio", "much", "a number, at least 1.0, or auto"),
        ("service_down_time", 0, "a whole number of seconds, at least 1"),
    ],
)
def test_a_setting_of_the_scheduler_that_cannot_be(name, value, expects):
    with pytest.raises(InvalidRequest) as caught:
        action(**{name: value})
    (error,) = caught.value.errors
    assert error["message"].startswith("%s must be %s, got " % (name, expects))


def test_configurations_are_those_of_every_storage_host():
    made = action(hosts={"s1": BACKEND, "s2": {**BACKEND, "bootflow_storage_backends": {"a": None}}})
    found = volume_settings.configurations(made)
    assert {h: [b["pool_host"] for b in backends] for h, backends in found.items()} == {
        "s1": ["s1@lvm#lvm"],
        "s2": ["s2@a#a"],
    }
    assert inventory_hosts.reachable(made, ["s3", "s2"]) == ["s2"]


def test_a_boot_reads_the_same_options_with_the_same_meaning():
    """One option, one meaning: an action may take those of a boot and those of volumes together."""
    for name, argument in {**VOLUME.options(), **VOLUME_SCHEDULER.options()}.items():
        for other in (REQUEST.options(), SCHEDULER.options()):
            assert other.get(name, argument) == argument, name


def test_an_extra_spec_that_is_true_is_no_text():
    types = [{"name": "thin", "extra_specs": {"thin_provisioning_support": True, "medium": "ssd"}}]
    with pytest.raises(InvalidRequest) as caught:
        volume_settings.read_options(action(volume_types=types).options)
    (error,) = caught.value.errors
    assert (error["path"], error["remedy"]) == ("volume_types[thin].extra_specs", 'Write "<is> True".')


def test_words_of_quotas_that_nobody_knows():
    quotas = {"gigabites": 1, "cores": 4, "volumes": 3, "projects": {"a": {"volume": 1, "snapshots": 2}}}
    found = told(action(quotas=quotas))
    assert found == [
        ("bootflow_quotas", "unknown resource 'gigabites'"),
        ("bootflow_quotas", "unknown resource 'volume'"),
    ]


def test_ansibles_own_words_are_kept_without_its_classes():
    text = "argument 'volumes' is of type dict and we were unable to convert to list"
    internal = ": <class 'ansible.module_utils._internal._datatag._AnsibleTaggedDict'> cannot be converted to a list"
    assert ledger_action.CLASSES.sub("", text + internal) == text
