# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import storage_settings as settings

ADDRESS = {"ansible_host": "192.0.2.7"}


def read(*entries, host="st1", **variables):
    return settings.backends({**ADDRESS, **variables, "bootflow_storage_backends": list(entries)}, host)


def told(*entries, **variables):
    """(path without the host, message) of every error; backends() and check() agree on them."""
    everything = {**ADDRESS, **variables}
    if entries:
        everything["bootflow_storage_backends"] = list(entries)
    problems = Problems()
    settings.check({"st1": everything}, ["st1"], problems)
    with pytest.raises(InvalidRequest) as caught:
        settings.backends(everything, "st1")
    assert caught.value.errors == problems.errors and all(e["remedy"] for e in problems.errors)
    return [(e["path"].replace("st1.bootflow_storage_backends", ""), e["message"]) for e in problems.errors]


def test_the_defaults():
    assert read({"name": "lvm"}) == [
        {
            "name": "lvm",
            "driver": "lvm",
            "pool": "lvm",
            "pool_host": "st1@lvm#lvm",
            "volume_group": "cinder-volumes",
            "provisioning": "thick",
            "thin_pool": "",
            "volume_backend_name": "lvm",
            "availability_zone": "nova",
            "medium": "",
            "reserved_percentage": 0.0,
            "max_over_subscription_ratio": None,
            "target": "lio",
            "portals": ["192.0.2.7:3260"],
            "iqn_prefix": "iqn.2010-10.org.openstack:",
            "volume_clear": "zero",
            "volume_clear_size_mb": 0,
            "image_cache": True,
            "image_cache_max_gb": 0,
            "image_cache_max_count": 0,
            "verify": True,
            "disabled": False,
            "frozen": False,
            "capabilities": {},
        }
    ]


def test_everything_arrives():
    (found,) = read(
        {
            "name": "fast",
            "volume_group": "vg1",
            "provisioning": "thin",
            "volume_backend_name": "ssds",
            "devices": ["/dev/vdb"],
            "availability_zone": "z2",
            "medium": "ssd",
            "reserved_percentage": "10",
            "max_over_subscription_ratio": "2.5",
            "target": "tgt",
            "portals": ["192.0.2.9:3261", "2001:db8::1", "[2001:db8::2]:3260"],
            "iqn_prefix": "iqn.2026-01.example:",
            "volume_clear": "discard",
            "volume_clear_size_mb": 5,
            "image_cache": "no",
            "verify": False,
            "disabled": "true",
            "frozen": "yes",
            "capabilities": {"raid": "10"},
        },
        bootflow_availability_zone="z1",
    )
    assert (found["pool_host"], found["pool"], found["thin_pool"]) == ("st1@fast#ssds", "ssds", "vg1-pool")
    assert (found["availability_zone"], found["reserved_percentage"]) == ("z2", 10.0)
    assert found["max_over_subscription_ratio"] == 2.5
    assert found["portals"] == ["192.0.2.9:3261", "[2001:db8::1]:3260", "[2001:db8::2]:3260"]
    assert (found["image_cache"], found["verify"], found["disabled"], found["frozen"]) == (False, False, True, True)
    assert found["capabilities"] == {"raid": "10"} and "devices" not in found
    assert read({"name": "a"}, bootflow_availability_zone="z1")[0]["availability_zone"] == "z1"
    assert read({"name": "a", "max_over_subscription_ratio": "auto"})[0]["max_over_subscription_ratio"] == "auto"


@pytest.mark.parametrize(
    "variables, portal",
    [
        ({"bootflow_storage_ip": "198.51.100.1"}, "198.51.100.1:3260"),
        ({"bootflow_storage_ip": "2001:db8::5"}, "[2001:db8::5]:3260"),
        ({}, "192.0.2.7:3260"),
    ],
)
def test_the_portal_that_nobody_named(variables, portal):
    assert read({"name": "a"}, **variables)[0]["portals"] == [portal]
    assert settings.backends({"bootflow_storage_backends": [{"name": "a"}]}, "192.0.2.8")[0]["portals"] == [
        "192.0.2.8:3260"
    ]


def test_a_host_without_an_address_says_what_to_set():
    ((path, message),) = told({"name": "a"}, ansible_host="storage.example.com")
    assert path == "[a].portals" and "bootflow_storage_ip" in message
    assert read({"name": "a", "portals": ["192.0.2.1:3260"]}, ansible_host="storage.example.com")


@pytest.mark.parametrize(
    "entry, path, words",
    [
        ({}, ".name", "is missing"),
        ({"name": "a@b"}, ".name", "letters"),
        ({"name": "a b"}, ".name", "letters"),
        ({"name": "a", "volume_backend_name": "x#y"}, ".volume_backend_name", "without @ and #"),
        ({"name": "a", "volume_group": "-vg"}, ".volume_group", "LVM"),
        ({"name": "a", "provisioning": "fat"}, ".provisioning", "one of thick, thin"),
        ({"name": "a", "thin_pool": "p"}, ".thin_pool", "thick"),
        ({"name": "a", "provisioning": "thin", "thin_pool": "../p"}, ".thin_pool", "LVM"),
        ({"name": "a", "reserved_percentage": 101}, ".reserved_percentage", "from 0 to 100"),
        ({"name": "a", "reserved_percentage": "many"}, ".reserved_percentage", "from 0 to 100"),
        ({"name": "a", "max_over_subscription_ratio": 0.5}, ".max_over_subscription_ratio", "at least 1.0, or auto"),
        ({"name": "a", "target": "scst"}, ".target", "lio, tgt"),
        ({"name": "a", "portals": ["192.0.2.1:x"]}, ".portals", "a list of portals"),
        ({"name": "a", "portals": ["storage1:3260"]}, ".portals", "a list of portals"),
        ({"name": "a", "portals": ["192.0.2.1", "192.0.2.1:3260"]}, ".portals", "each named once"),
        ({"name": "a", "portals": "192.0.2.1"}, ".portals", "list"),
        ({"name": "a", "iqn_prefix": "openstack:"}, ".iqn_prefix", "qualified"),
        ({"name": "a", "volume_clear": "burn"}, ".volume_clear", "one of"),
        ({"name": "a", "volume_clear": "discard"}, ".volume_clear", "thick"),
        ({"name": "a", "volume_clear_size_mb": -1}, ".volume_clear_size_mb", "at least 0"),
        ({"name": "a", "verify": "perhaps"}, ".verify", ""),
        ({"name": "a", "capabilities": ["x"]}, ".capabilities", "mapping"),
        ({"name": "a", "capabilities": {"free_capacity_gb": 9}}, ".capabilities", "itself reports"),
        ({"name": "a", "volumegroup": "x"}, ".volumegroup", "Unknown field"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(entry, path, words):
    ((where, message),) = told(entry)
    assert where == "[%s]%s" % (entry.get("name", 0), path) and words in message


def test_all_errors_at_once():
    found = told(
        {"name": "a", "target": "x"},
        {"name": "a", "volume_group": "vg2"},
        "text",
        bootflow_conversion_dir="here",
        bootflow_max_concurrent_volumes="-1",
        bootflow_storage_ip="nowhere",
    )
    assert [path for path, _message in found] == [
        "st1.bootflow_storage_ip",
        "st1.bootflow_conversion_dir",
        "st1.bootflow_max_concurrent_volumes",
        "[2]",
        "[a].target",
        "[a].name",
    ]


def test_two_backends_must_not_promise_the_same_room():
    ((path, message),) = told({"name": "a"}, {"name": "b"})
    assert path == "[b].volume_group" and "counted twice" in message
    thin = {"provisioning": "thin"}
    assert told({"name": "a", **thin}, {"name": "b", **thin})[0][0] == "[b].volume_group"
    assert len(read({"name": "a"}, {"name": "b", **thin}, {"name": "c", **thin, "thin_pool": "other"})) == 3


@pytest.mark.parametrize("value, path", [(None, ""), ([], ""), ("lvm", ""), (7, "")])
def test_a_storage_host_has_to_have_a_backend(value, path):
    problems = Problems()
    settings.check({"st1": {**ADDRESS, "bootflow_storage_backends": value}}, ["st1"], problems)
    assert [e["path"] for e in problems.errors] == ["st1.bootflow_storage_backends" + path]


def test_backends_keyed_by_name():
    found = settings.backends({**ADDRESS, "bootflow_storage_backends": {"a": {"volume_group": "v1"}, "b": None}}, "st1")
    assert [(b["name"], b["volume_group"]) for b in found] == [("a", "v1"), ("b", "cinder-volumes")]


class Action:
    def __init__(self, **variables):
        self.variables = variables
        self.task_vars = {"groups": {"bootflow_storage": ["s1"], "stores": ["s2", "s1"]}}

    def variable(self, name, default=None):
        return self.variables.get(name, default)


def test_the_group_and_the_workers():
    assert settings.storage_hosts(Action()) == ["s1"]
    assert settings.storage_hosts(Action(bootflow_storage_group="stores")) == ["s2", "s1"]
    assert settings.storage_hosts(Action(bootflow_storage_group="none")) == []
    assert [settings.workers(Action(), n) for n in (1, 3, 9)] == [1, 3, 4]
    assert settings.workers(Action(bootflow_max_concurrent_volumes=0), 9) == 9
    assert settings.read_current_host(Action(bootflow_conversion_dir="/x")).conversion_dir == "/x"


CEPH = {
    "name": "ceph",
    "driver": "rbd",
    "rbd_pool": "volumes",
    "rbd_user": "cinder",
    "rbd_monitors": ["192.0.2.21", "[2001:db8::1]:3300"],
}


def test_a_pool_of_ceph_has_no_field_of_lvm():
    (backend,) = read(CEPH)
    assert backend == {
        "name": "ceph",
        "driver": "rbd",
        "pool": "ceph",
        "pool_host": "st1@ceph#ceph",
        "rbd_pool": "volumes",
        "rbd_user": "cinder",
        "rbd_monitors": ["192.0.2.21:6789", "[2001:db8::1]:3300"],
        "provisioning": "thin",
        "volume_backend_name": "ceph",
        "availability_zone": "nova",
        "medium": "",
        "reserved_percentage": 0.0,
        "max_over_subscription_ratio": None,
        "verify": True,
        "disabled": False,
        "frozen": False,
        "capabilities": {},
    }


def test_a_storage_host_of_ceph_needs_no_address():
    assert settings.backends({"bootflow_storage_backends": [CEPH]}, "st1")


def test_what_a_pool_of_ceph_lacks_or_has_too_much():
    assert [path for path, _message in told({"name": "ceph", "driver": "rbd"})] == [
        "[ceph].rbd_pool",
        "[ceph].rbd_user",
        "[ceph].rbd_monitors",
    ]
    assert [path for path, _message in told({**CEPH, "volume_group": "vg"})] == ["[ceph].volume_group"]
    assert [path for path, _message in told({"name": "lvm", "rbd_pool": "volumes"})] == ["[lvm].rbd_pool"]
    assert [path for path, _message in told(CEPH, {**CEPH, "name": "again"})] == ["[again].rbd_pool"]
    for field, wrong in (
        ("rbd_pool", "a/b"),
        ("rbd_user", "client.x"),
        ("rbd_monitors", []),
        ("rbd_monitors", ["192.0.2.21", "192.0.2.21:6789"]),
    ):
        assert told({**CEPH, field: wrong})


def test_a_wrong_key_is_not_shown():
    secret = "bm90IGEga2V5"
    texts = told(CEPH, bootflow_rbd_keys={"ceph": secret})
    assert texts and secret not in str(texts)
