# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.spec import GuestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.setting import to_number
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import CONFIGURATION, GUEST, HOST
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.host_settings import (
    check,
    cleanup_arguments,
    configuration,
    disk_place,
    node_info_arguments,
    read_current_host,
)


def told(**variables):
    """The errors of one host, (message, remedy) each; configuration() and check() agree on them."""
    problems = Problems()
    check({"kvm1": variables}, ["kvm1"], problems)
    found = [e["message"] for e in problems.errors]
    assert all(e["path"] == "host kvm1" and e["remedy"] for e in problems.errors)
    return found


def test_the_defaults():
    assert configuration({}, "kvm1") == {
        "ram_allocation_ratio": 1.5,
        "disk_allocation_ratio": 1.0,
        "cpu_allocation_ratio": 16.0,
        "reserved_memory_mb": 512,
        "reserved_disk_gb": 0,
        "reserved_vcpus": 0,
        "disabled": False,
        "disabled_reason": "",
        "pci_device_spec": [],
        "isolated_disks": [],
        "reserved_huge_pages": [],
        "metrics": {},
    }
    assert told() == []


def test_a_zone_is_the_hosts_own_or_that_of_its_aggregate():
    """Without a zone of its own nothing is reported that would overwrite the aggregate's."""
    assert configuration({"bootflow_availability_zone": "east"}, "kvm1")["availability_zone"] == "east"
    for unset in ({}, {"bootflow_availability_zone": None}):
        assert "availability_zone" not in configuration(unset, "kvm1")


def test_the_defaults_are_nobodys_to_change():
    configuration({}, "a")["metrics"]["x"] = 1.0
    configuration({}, "a")["isolated_disks"].append("/dev/x")
    assert configuration({}, "b")["metrics"] == {} and configuration({}, "b")["isolated_disks"] == []


@pytest.mark.parametrize("ratio", [0, 0.0, "0", "0.0"])
def test_a_ratio_of_zero_is_the_default(ratio):
    assert configuration({"bootflow_cpu_allocation_ratio": ratio}, "h")["cpu_allocation_ratio"] == 16.0


LEDGER = "1ed9e000-0000-4000-8000-000000000001"
CONFIGURATION_NAMES = {setting.name for setting in CONFIGURATION}
SPEC = [{"vendor_id": "10de", "product_id": "1b38"}, {"address": "0000:0a:00.1", "physical_network": "blue"}]


@pytest.mark.parametrize(
    "column, value, read",
    [
        ("ram_allocation_ratio", "2.5", 2.5),
        ("reserved_vcpus", "2", 2),
        ("disabled", "yes", True),
        ("pci_device_spec", SPEC, SPEC),
        ("pci_device_spec", json.dumps(SPEC), SPEC),
        ("pci_device_spec", [json.dumps(SPEC[0])], [json.dumps(SPEC[0])]),
        ("isolated_disks", ["/dev/sdb", "/dev/disk/by-id/x"], ["/dev/sdb", "/dev/disk/by-id/x"]),
        ("isolated_disks", '["/dev/sdb"]', ["/dev/sdb"]),
        ("isolated_disks", [], []),
        ("reserved_huge_pages", [{"node": 0, "size": 2048, "count": 64}], [{"node": 0, "size": 2048, "count": 64}]),
        (
            "reserved_huge_pages",
            [{"node": "1", "size": "1GB", "count": "2"}, "node:0,size:2048,count:4"],
            [{"node": 1, "size": 1048576, "count": 2}, {"node": 0, "size": 2048, "count": 4}],
        ),
        ("metrics", {"cpu.percent": "0.5", "temperature": -3}, {"cpu.percent": 0.5, "temperature": -3.0}),
        ("metrics", '{"a": 1}', {"a": 1.0}),
    ],
)
def test_values(column, value, read):
    variables = {"bootflow_" + column: value}
    assert configuration(variables, "h")[column] == read
    assert told(**variables) == []
    assert json.loads(json.dumps(configuration(variables, "h"))) == configuration(variables, "h")


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("ram_allocation_ratio", -1, "bootflow_ram_allocation_ratio must be a number, at least 0, got -1"),
        ("ram_allocation_ratio", "nan", "must be a number, at least 0"),
        ("ram_allocation_ratio", "inf", "must be a number, at least 0"),
        ("cpu_allocation_ratio", "much", "must be a number, at least 0, got 'much'"),
        ("reserved_memory_mb", "1.5", "must be a whole number"),
        ("reserved_vcpus", -1, "at least 0, got -1"),
        ("disabled", "perhaps", "must be true or false"),
        ("virt_type", "xen", "must be one of auto, kvm, qemu"),
        ("disk_backend", "zfs", "must be one of qcow2, raw, lvm, qcow2_on_lvm, rbd, got 'zfs'"),
        ("disk_backend", "lvm", "is lvm, and bootflow_disk_volume_group is not set"),
        ("disk_backend", "qcow2_on_lvm", "is qcow2_on_lvm, and bootflow_disk_volume_group is not set"),
        ("disk_backend", "rbd", "is rbd, and bootflow_disk_rbd_pool is not set"),
        ("disk_rbd_pool", "a/b", "must be the name of a pool"),
        ("disk_rbd_user", "client.nova", "must be the name of a Ceph user without client."),
        ("disk_rbd_monitors", "192.0.2.21", "must be a list of monitors"),
        ("disk_rbd_fsid", "ceph", "must be the id of a cluster"),
        ("disk_rbd_key", "secret", "must be the key of a Ceph user"),
        ("disk_volume_group", "a b", "must be a name that LVM takes"),
        ("disk_volume_group", "-x", "must be a name that LVM takes"),
        ("disk_volume_clear", "discard", "must be one of zero, shred, none"),
        ("disk_volume_clear_size_mb", "-1", "must be a whole number of MiB, at least 0"),
        ("disk_medium", "tape", "one of hdd, ssd, nvme, or empty, got 'tape'"),
        ("instances_path", "here", "must be an absolute path"),
        ("wait_timeout", "abc", "bootflow_wait_timeout must be a number of seconds, at least 0, got 'abc'"),
        ("wait_timeout", "", "must be a number of seconds"),
        ("wait_address", "maybe", "bootflow_wait_address must be true or false, got 'maybe'"),
        ("wait_console", "(", "must be a regular expression"),
        ("max_concurrent_builds", "many", "must be a whole number, at least 0, got 'many'"),
        ("vif_plugging_timeout", "", "must be a number of seconds"),
        ("firmware", "coreboot", "must be one of bios, uefi, got 'coreboot'"),
        ("cpu_mode", "best", "must be one of none, host-model"),
        ("volume_attach", "nfs", "must be one of kernel, qemu, got 'nfs'"),
        ("libvirt_uri", "", "must be a text that is not empty"),
        ("pci_device_spec", "10de", "must be a list of mappings"),
        ("pci_device_spec", {"vendor_id": "10de"}, "must be a list of mappings"),
        ("pci_device_spec", [5], "bootflow_pci_device_spec: Invalid PCI devices Whitelist config"),
        ("pci_device_spec", ["{"], "bootflow_pci_device_spec: Invalid PCI devices Whitelist config"),
        ("pci_device_spec", [{"vendor_id": "nvidia"}], "bootflow_pci_device_spec: "),
        ("pci_device_spec", [{"address": "there"}], "bootflow_pci_device_spec: Invalid PCI devices Whitelist config"),
        ("pci_device_spec", [{"address": "0000:0a:00.1", "devname": "eth0"}], "devname or address, but not both"),
        ("isolated_disks", "/dev/sdb", "must be a list of absolute paths"),
        ("isolated_disks", ["sdb"], "must be a list of absolute paths, got 'sdb'"),
        ("isolated_disks", ["/dev/../etc/passwd"], "must be a list of absolute paths"),
        ("isolated_disks", ["/dev/sd\0b"], "must be a list of absolute paths"),
        ("isolated_disks", [7], "must be a list of absolute paths"),
        ("isolated_disks", ["/dev/sdb", "/dev/sdc", "/dev/sdb"], "without duplicates, got '/dev/sdb'"),
        ("reserved_huge_pages", {"node": 0}, "must be a list of {node, size"),
        ("reserved_huge_pages", [{"node": 0, "size": 2048}], "must be a list of {node, size"),
        ("reserved_huge_pages", [{"node": 0, "size": 2048, "count": 1, "x": 1}], "must be a list of {node, size"),
        ("reserved_huge_pages", [{"node": -1, "size": 2048, "count": 1}], "must be a list of {node, size"),
        ("reserved_huge_pages", [{"node": 0, "size": 0, "count": 1}], "must be a list of {node, size"),
        ("reserved_huge_pages", [{"node": 0, "size": "big", "count": 1}], "must be a list of {node, size"),
        ("reserved_huge_pages", [{"node": 0, "size": 2048, "count": -1}], "must be a list of {node, size"),
        ("reserved_huge_pages", ["0:2048:1"], "must be a list of {node, size"),
        (
            "reserved_huge_pages",
            [{"node": 0, "size": 2048, "count": 1}, {"node": 0, "size": "2MB", "count": 2}],
            "once",
        ),
        ("metrics", ["cpu.percent"], "must be a mapping of names to numbers"),
        ("metrics", {"cpu.percent": "high"}, "got 'cpu.percent: high'"),
        ("metrics", {"cpu.percent": True}, "got 'cpu.percent: True'"),
        ("metrics", {"cpu.percent": float("nan")}, "got 'cpu.percent: nan'"),
        ("metrics", {"cpu.percent": None}, "got 'cpu.percent: None'"),
    ],
)
def test_values_that_cannot_be(name, value, message):
    (text,) = told(**{"bootflow_" + name: value})
    assert message in text and ("bootflow_" + name) in text
    if name in CONFIGURATION_NAMES:
        with pytest.raises(InvalidRequest) as caught:
            configuration({"bootflow_" + name: value}, "kvm1")
        assert [e["message"] for e in caught.value.errors] == [text]


class Host:
    """An action as it sees the variables of its host."""

    def ledger_id(self):
        return LEDGER

    def __init__(self, **variables):
        self.variables = variables

    def variable(self, name, default=None):
        return self.variables.get(name, default)


def test_what_the_hosts_modules_are_told_of_local_disks():
    asked = {"pci_device_spec": [], "isolated_disks": []}
    backend = {"bootflow_disk_backend": "lvm", "bootflow_disk_volume_group": "vg", "bootflow_disk_medium": "ssd"}
    assert told(**backend, bootflow_disk_volume_clear="shred", bootflow_disk_volume_clear_size_mb="8") == []
    of_lvm = node_info_arguments(Host(**backend), asked)
    assert [of_lvm[n] for n in ("disk_backend", "volume_group", "disk_medium")] == ["lvm", "vg", "ssd"]
    cleanup = cleanup_arguments(Host(**backend, bootflow_disk_volume_clear_size_mb="8"))
    assert [cleanup[n] for n in ("volume_group", "volume_clear", "volume_clear_size_mb")] == ["vg", "zero", 8]
    of_files = node_info_arguments(Host(bootflow_disk_volume_group="vg"), asked)
    assert [of_files[n] for n in ("disk_backend", "volume_group", "disk_medium")] == ["qcow2", "", ""]
    assert cleanup_arguments(Host(bootflow_disk_volume_group="vg"))["volume_group"] == "", "no LVM is asked for files"


def test_the_same_mistake_of_many_hosts_is_told_once():
    problems = Problems()
    hosts = {"kvm%d" % i: {"bootflow_metrics": 5, "bootflow_disabled": "x" if i == 3 else False} for i in range(8)}
    check(hosts, hosts, problems)
    assert [e["path"] for e in problems.errors] == ["hosts kvm0, kvm1, kvm2, kvm3, kvm4, and 3 more", "host kvm3"]


@pytest.mark.parametrize(
    "value, number",
    [
        (1, 1.0),
        ("-2.5", -2.5),
        (1e3, 1000.0),
        (True, None),
        ("x", None),
        (None, None),
        ([], None),
        ("inf", None),
        (10**400, None),
    ],
)
def test_to_number(value, number):
    assert to_number(value) == number


@pytest.mark.parametrize("word", [True, "yes", "y", "on", "T", "1", 1, " true "])
def test_one_table_of_words_for_true(word):
    assert HOST.read({"bootflow_wait_address": word}).wait_address is True
    assert configuration({"bootflow_disabled": word}, "kvm1")["disabled"] is True


def test_settings_are_read_once_a_task():
    action = Host(bootflow_wait_timeout="5")
    assert read_current_host(action).wait_timeout == 5.0
    action.variables["bootflow_wait_timeout"] = 6
    assert read_current_host(action).wait_timeout == 5.0


def test_what_shapes_guests_arrives_in_their_options():
    given = {
        "cpu_model_extra_flags": ["pcid", "-vmx"],
        "vnc_enabled": False,
        "vnc_keymap": "de",
        "disk_cachemodes": {"file": "none"},
        "disk_discard": "unmap",
        "mem_stats_period_seconds": 0,
        "max_queues": 2,
        "num_pcie_ports": 12,
    }
    read = HOST.read({"bootflow_" + name: value for name, value in given.items()})
    options = GuestOptions(**{setting.name: getattr(read, setting.name) for setting in GUEST})
    assert {name: getattr(options, name) for name in given} == given
    plain = GuestOptions(**{setting.name: getattr(HOST.read({}), setting.name) for setting in GUEST})
    assert dataclasses.replace(plain, cpu_model_extra_flags=()) == GuestOptions()
    wrong = "bootflow_disk_cachemodes must be a mapping of file, .*, got 'file: fast'"
    with pytest.raises(InvalidInput, match=wrong):
        getattr(HOST.read({"bootflow_disk_cachemodes": {"file": "fast"}}), "disk_cachemodes")  # noqa: B009


POOL = {
    "bootflow_disk_backend": "rbd",
    "bootflow_disk_rbd_pool": "vms",
    "bootflow_disk_rbd_user": "nova",
    "bootflow_disk_rbd_monitors": ["192.0.2.21"],
    "bootflow_disk_rbd_fsid": "99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654",
    "bootflow_disk_rbd_key": "AQC+uwxrfXuXJxAAzXdVGMtCYdczKnlZyGYwdA==",
}


def test_the_pool_of_local_disks():
    pool = cleanup_arguments(Host(**POOL))["disk_pool"]
    assert pool == {name[len("bootflow_disk_rbd_") :]: value for name, value in POOL.items() if "_rbd_" in name} | {
        "monitors": ["192.0.2.21:6789"]
    }
    assert cleanup_arguments(Host(**{**POOL, "bootflow_disk_backend": "raw"}))["disk_pool"] is None
    (message,) = told(**{**POOL, "bootflow_disk_rbd_key": None})
    assert "bootflow_disk_rbd_key is not set" in message


def test_hosts_share_disks_where_cluster_and_pool_are_the_same():
    def place(**more):
        return disk_place(HOST.read({**POOL, **more}))

    assert place() == place(bootflow_disk_rbd_monitors=["192.0.2.22"]) != place(bootflow_disk_rbd_pool="others")
    assert place(bootflow_disk_backend="raw") == "raw"


def test_a_wrong_key_is_not_shown():
    (message,) = told(bootflow_disk_rbd_key="AQC+secret")
    assert "AQC+secret" not in message
