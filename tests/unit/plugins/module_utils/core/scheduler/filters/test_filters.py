# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import numpy as np
import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.capacity import at
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import make_filters
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options

NOW = 1000.0
CPU = {"arch": "x86_64", "model": "Skylake", "vendor": "Intel", "features": ["aes", "avx2"], "topology": {"cores": 4}}


def verdict(name, host=None, flavor=None, options=None, **spec):
    """(passes, the reason if not) of one host before one filter, and the same asked about one row alone."""
    made = {"host": "h", "nodename": "n", "updated_at": NOW, **(host or {})}
    fleet = Fleet([HostState(**made)])
    opts = make_options(enabled_filters=[name], now=NOW, **(options or {}))
    (filter_,) = make_filters(opts, {})
    request = RequestSpec(["u"], Flavor("f", **{"memory_mb": 0, "vcpus": 0, **(flavor or {})}), **spec)
    result = filter_.evaluate(fleet, request, fleet.all_rows())
    alone = filter_.evaluate(fleet, request, 0)  # a single row
    assert bool(alone.mask) == bool(result.mask[0])
    if result.mask[0]:
        return True, ""
    reason = result.text(0)
    assert reason
    assert alone.text(0) == reason
    if filter_.counts_capacity:
        assert result.unit
        assert np.all(at(result.needed, 0) > at(result.available, 0))
    return False, reason


@pytest.mark.parametrize(
    ("total", "used", "ratio", "need", "passes"),
    [
        (1000, 0, 1.0, 1000, True),
        (1000, 0, 1.0, 1001, False),
        (1000, 0, 1.5, 1001, False),  # never against itself
        (1000, 500, 1.5, 1000, True),
        (1000, 501, 1.5, 1000, False),
        (1000, 999, 0.5, 1, False),
        (1000, 1400, 1.5, 100, True),
        (1000, 2000, 1.5, 0, False),  # over its limit already
        (1000, 0, None, 1000, True),
        (0, 0, 1.5, 0, True),
    ],
)
def test_ram(total, used, ratio, need, passes):
    host = {"memory_mb": total, "memory_mb_used": used, "ram_allocation_ratio": ratio}
    assert verdict("RamFilter", host, {"memory_mb": need})[0] == passes


def test_ram_reasons():
    assert (
        verdict("RamFilter", {"memory_mb": 100}, {"memory_mb": 120})[1]
        == "memory: needs 120 MiB, the whole host has 100 MiB"
    )
    host = {"memory_mb": 100, "memory_mb_used": 60}
    assert (
        verdict("RamFilter", host, {"memory_mb": 95})[1] == "memory: needs 95 MiB, 90 MiB usable (allocation ratio 1.5)"
    )


@pytest.mark.parametrize(
    ("name", "host", "flavor", "words"),
    [
        (
            "RamFilter",
            {"memory_mb": 1000, "memory_mb_used": 1554, "ram_allocation_ratio": 1.0},
            {"memory_mb": 64},
            "memory: needs 64 MiB, 0 MiB usable, 554 MiB more than that are claimed (allocation ratio 1)",
        ),
        (
            "CoreFilter",
            {"vcpus": 4, "vcpus_used": 7, "cpu_allocation_ratio": 1.0},
            {"vcpus": 1},
            "vCPUs: needs 1 vCPU, 0 vCPUs usable, 3 vCPUs more than that are claimed (allocation ratio 1)",
        ),
        (
            "DiskFilter",
            {"local_gb": 10, "local_gb_used": 12, "disk_allocation_ratio": 1.0},
            {"root_gb": 1},
            "disk: needs 1 GiB, 0 GiB usable, 2 GiB more than that are claimed (allocation ratio 1)",
        ),
    ],
)
def test_a_host_that_is_over_its_ratio_has_nothing_and_not_less(name, host, flavor, words):
    """Claims of former ratios, or of another name of the machine, may be more than what there is."""
    assert verdict(name, host, flavor) == (False, words)


def test_ram_overhead():
    assert verdict("RamFilter", {"memory_mb": 100}, {"memory_mb": 90}, memory_overhead_mb=10)[0]
    assert not verdict("RamFilter", {"memory_mb": 100}, {"memory_mb": 90}, memory_overhead_mb=11)[0]


@pytest.mark.parametrize(
    ("total", "used", "least", "ratio", "flavor", "passes"),
    [
        (100, 0, None, 1.0, {"root_gb": 100}, True),
        (100, 0, None, 1.0, {"root_gb": 99, "swap": 1024}, True),
        (100, 0, None, 1.0, {"root_gb": 99, "swap": 1025}, False),
        (100, 0, None, 1.0, {"root_gb": 60, "ephemeral_gb": 41}, False),
        (100, 50, None, 1.0, {"root_gb": 51}, False),
        (100, 0, 30, 1.0, {"root_gb": 31}, False),  # the file system has less than the books
        (100, 80, 90, 1.0, {"root_gb": 21}, False),  # the books have less than the file system
        (100, 0, -10, 1.0, {"root_gb": 0}, False),
        (100, 0, None, 2.0, {"root_gb": 100}, True),
        (100, 90, None, 2.0, {"root_gb": 100}, True),
        (100, 0, None, 2.0, {"root_gb": 101}, False),  # never against itself
        (100, 0, None, 2.0, {"root_gb": 100, "swap": 1}, False),
        (0, 0, None, 1.0, {"root_gb": 0}, True),
        (100, 0, 30, 1.5, {"root_gb": 80}, True),
        (100, 0, 30, 1.5, {"root_gb": 81}, False),
    ],
)
def test_disk(total, used, least, ratio, flavor, passes):
    host = {"local_gb": total, "local_gb_used": used, "disk_available_least": least, "disk_allocation_ratio": ratio}
    assert verdict("DiskFilter", host, flavor)[0] == passes


@pytest.mark.parametrize(
    ("total", "used", "ratio", "need", "passes"),
    [
        (4, 0, 16.0, 4, True),
        (4, 0, 16.0, 5, False),
        (4, 60, 16.0, 4, True),
        (4, 61, 16.0, 4, False),
        (4, 4, 1.0, 1, False),
        (0, 7, 16.0, 99, True),  # no count is known
    ],
)
def test_core(total, used, ratio, need, passes):
    host = {"vcpus": total, "vcpus_used": used, "cpu_allocation_ratio": ratio}
    assert verdict("CoreFilter", host, {"vcpus": need})[0] == passes


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ({}, ""),
        ({"updated_at": NOW - 60}, ""),
        ({"updated_at": NOW + 60}, ""),  # the clocks of two hosts
        ({"updated_at": NOW - 61}, "down: last report 61 s ago, more than 60 s"),
        ({"updated_at": NOW + 61}, "down: last report 61 s ago, more than 60 s"),
        ({"updated_at": None}, "the host never reported"),
        ({"disabled": True}, "disabled"),
        ({"disabled": True, "disabled_reason": "memory is replaced"}, "disabled: memory is replaced"),
        ({"forced_down": True}, "down: the host did not answer or was forced down"),
    ],
)
def test_compute(host, reason):
    assert verdict("ComputeFilter", host) == (not reason, reason)


def test_compute_with_another_time():
    assert verdict("ComputeFilter", {"updated_at": NOW - 899}, options={"service_down_time": 900})[0]
    assert not verdict("ComputeFilter", {"updated_at": NOW - 901}, options={"service_down_time": 900})[0]


@pytest.mark.parametrize(
    ("zones", "wanted", "passes"),
    [
        ((), None, True),
        ((), "", True),
        ((), "nova", True),
        (("",), "nova", True),
        ((), "az1", False),
        (("az1",), "az1", True),
        (("az1",), "nova", False),
        (("az1",), None, True),
        (("az1,az2",), "az2", True),
        (("az1 , az2",), "az2", True),
        (("az1", "az2"), "az2", True),
        (("az10",), "az1", False),
        (("az1,az2",), "az1,az2", False),
    ],
)
def test_availability_zone(zones, wanted, passes):
    assert verdict("AvailabilityZoneFilter", {"availability_zones": zones}, availability_zone=wanted)[0] == passes


def aggregate(**metadata):
    return Aggregate("agg", frozenset({"h"}), metadata)


@pytest.mark.parametrize(
    ("own", "of_aggregates", "wanted", "passes"),
    [
        ((), ["az1"], "az1", True),
        ((), ["az1"], "nova", False),
        ((), ["az1,az2"], "az2", True),
        ((), ["az1 , az2"], "az2", True),
        ((), ["az1", "az2"], "az2", True),
        ((), ["az10"], "az1", False),
        ((), [""], "nova", True),
        (("az1",), ["az2"], "az1", True),
        (("az1",), ["az2"], "az2", True),
        (("az1",), ["az2"], "nova", False),
        ((), [], "nova", True),
    ],
)
def test_availability_zone_of_aggregates(own, of_aggregates, wanted, passes):
    host = {
        "availability_zones": own,
        "aggregates": [aggregate(ssd="true"), *(aggregate(availability_zone=z) for z in of_aggregates)],
    }
    ok, reason = verdict("AvailabilityZoneFilter", host, availability_zone=wanted)
    assert ok == passes
    if not ok:
        assert reason.startswith("zone %s requested, the host is in az1" % wanted)


def test_availability_zone_default_and_reason():
    options = {"default_availability_zone": "home"}
    assert verdict("AvailabilityZoneFilter", {}, options=options, availability_zone="home")[0]
    assert (
        verdict("AvailabilityZoneFilter", {}, options=options, availability_zone="nova")[1]
        == "zone nova requested, the host is in home"
    )


@pytest.mark.parametrize(
    ("tried", "passes"),
    [
        ([], True),
        ([("h", "n")], False),
        ([("h", "other")], True),
        ([("other", "n")], True),
        ([("x", "y"), ("h", "n")], False),
        ([["h", "n"]], False),
    ],
)
def test_retry(tried, passes):
    ok, reason = verdict("RetryFilter", retry_hosts=tried)
    assert ok == passes
    assert ok or "on h/n" in reason


CAPABLE = {
    "hypervisor_type": "QEMU",
    "hypervisor_version": 7002000,
    "cpu_info": CPU,
    "stats": {"rack": "r7", "nested": '{"a": {"b": 5}}'},
    "memory_mb": 2048,
    "vcpus": 8,
}


@pytest.mark.parametrize(
    ("specs", "passes"),
    [
        ({}, True),
        ({"capabilities:hypervisor_type": "QEMU"}, True),
        ({"capabilities:hypervisor_type": "s== QEMU"}, True),
        ({"capabilities:hypervisor_type": "xen"}, False),
        ({"capabilities:hypervisor_type": "<or> kvm <or> QEMU"}, True),
        ({"capabilities:hypervisor_version": ">= 6000000"}, True),
        ({"capabilities:hypervisor_version": ">= 8000000"}, False),
        ({"capabilities:cpu_info:arch": "x86_64"}, True),
        ({"capabilities:cpu_info:arch": "aarch64"}, False),
        ({"capabilities:cpu_info:features": "<in> aes"}, True),
        ({"capabilities:cpu_info:features": "<all-in> aes avx2"}, True),
        ({"capabilities:cpu_info:features": "<all-in> aes avx512f"}, False),
        ({"capabilities:cpu_info:topology:cores": ">= 4"}, True),
        ({"capabilities:cpu_info:topology:cores": ">= 5"}, False),
        ({"capabilities:cpu_info:no:such": "1"}, False),
        ({"capabilities:no_such": "1"}, False),
        ({"capabilities:rack": "r7"}, True),
        ({"capabilities:nested:a:b": "== 5"}, True),
        ({"capabilities:rack:x": "1"}, False),  # text that is no JSON
        ({"capabilities:vcpus:x": "1"}, False),
        ({"capabilities:vcpus_total": "= 8"}, True),
        ({"capabilities:free_ram_mb": ">= 2049"}, False),
        ({"hypervisor_type": "QEMU"}, True),
        ({"hypervisor_type": "xen"}, False),
        ({"rack": "r8"}, False),
        ({"no_such": "1"}, True),  # nothing that the host knows: somebody else's
        ({"hw:cpu_policy": "dedicated"}, True),
        ({"quota:cpu_shares": "5"}, True),
        ({"aggregate_instance_extra_specs:ssd": "true"}, True),
        ({"capabilities:hypervisor_type": "QEMU", "capabilities:rack": "r9"}, False),
        ({"hw:maxphysaddr_bits": "40"}, False),
    ],
)
def test_compute_capabilities(specs, passes):
    assert verdict("ComputeCapabilitiesFilter", CAPABLE, {"extra_specs": specs})[0] == passes


def test_compute_capabilities_reasons_and_bad_specs():
    _passes, reason = verdict("ComputeCapabilitiesFilter", CAPABLE, {"extra_specs": {"capabilities:rack": "s== r1"}})
    assert reason == "capabilities:rack: needs s== r1, the host has r7"
    with pytest.raises(InvalidInput, match="'many' in the requirement '>= many'"):
        verdict("ComputeCapabilitiesFilter", CAPABLE, {"extra_specs": {"capabilities:vcpus": ">= many"}})


def test_compute_capabilities_asks_each_host_of_its_own_facts():
    cpus = [{"arch": "x86_64"}, {"arch": "aarch64"}, {}, {"arch": "x86_64"}]
    hosts = [HostState("h%d" % i, "n", cpu_info=c, stats={"rack": "r%d" % i}) for i, c in enumerate(cpus)]
    hosts.append(HostState("h4", "n", cpu_info={"arch": "x86_64"}))
    fleet = Fleet(hosts)
    opts = make_options(enabled_filters=["ComputeCapabilitiesFilter"], now=NOW)
    (filter_,) = make_filters(opts, {})
    specs = {"capabilities:cpu_info:arch": "x86_64", "rack": "<or> r0 <or> r1"}  # h4 has no rack: not its business
    request = RequestSpec(["u"], Flavor("f", 0, 0, extra_specs=specs))
    result = filter_.evaluate(fleet, request, np.array([4, 3, 2, 1, 0]))
    assert result.mask.tolist() == [True, False, False, False, True]
    assert [result.text(p) for p in (1, 2, 3)] == [
        "rack: needs <or> r0 <or> r1, the host has r3",
        "capabilities:cpu_info:arch: needs x86_64, the host reports nothing of the kind",
        "capabilities:cpu_info:arch: needs x86_64, the host has aarch64",
    ]


def test_compute_capabilities_look_at_what_is_left():
    """The fleet as it stands, also where instances of an earlier request were taken from it."""
    fleet = Fleet([HostState("h", "n", memory_mb=1000)])
    (filter_,) = make_filters(make_options(enabled_filters=["ComputeCapabilitiesFilter"], now=NOW), {})
    request = RequestSpec(["u"], Flavor("f", 600, 0, extra_specs={"capabilities:free_ram_mb": ">= 600"}))
    assert filter_.evaluate(fleet, request, fleet.all_rows()).mask.tolist() == [True]
    fleet.consume(0, request)
    assert filter_.evaluate(fleet, request, fleet.all_rows()).mask.tolist() == [False]


def test_compute_capabilities_reads_json_texts():
    host = {**CAPABLE, "cpu_info": '{"arch": "x86_64"}'}
    assert verdict("ComputeCapabilitiesFilter", host, {"extra_specs": {"capabilities:cpu_info:arch": "x86_64"}})[0]


KVM = {"supported_instances": [["x86_64", "kvm", "hvm"], ["i686", "qemu", "hvm"]], "hypervisor_version": 7002003}


@pytest.mark.parametrize(
    ("host", "props", "passes"),
    [
        (KVM, {}, True),
        ({}, {}, True),
        (KVM, {"hw_architecture": "x86_64"}, True),
        (KVM, {"hw_architecture": "amd64"}, True),
        (KVM, {"hw_architecture": "AMD64"}, True),
        (KVM, {"architecture": "i386"}, True),
        (KVM, {"hw_architecture": "aarch64"}, False),
        ({}, {"hw_architecture": "x86_64"}, False),
        (KVM, {"img_hv_type": "kvm"}, True),
        (KVM, {"hypervisor_type": "QEMU"}, True),
        (KVM, {"img_hv_type": "xapi"}, False),
        ({"supported_instances": [("x86_64", "xen", "xen")]}, {"img_hv_type": "xapi", "hw_vm_mode": "pv"}, True),
        (KVM, {"hw_vm_mode": "hv"}, True),
        (KVM, {"vm_mode": "xen"}, False),
        (KVM, {"hw_architecture": "x86_64", "img_hv_type": "qemu"}, False),  # not of one and the same kind
        (KVM, {"hw_architecture": "i686", "img_hv_type": "qemu", "hw_vm_mode": "hvm"}, True),
        (KVM, {"img_hv_type": "kvm", "img_hv_requested_version": ">=7.0"}, True),
        (KVM, {"img_hv_type": "kvm", "img_hv_requested_version": ">=7.0, <7.2.3"}, False),
        (KVM, {"img_hv_type": "kvm", "img_hv_requested_version": "==7.2.3"}, True),
        (KVM, {"img_hv_type": "kvm", "hypervisor_version_requires": "!=7.2.3"}, False),
        (KVM, {"img_hv_requested_version": ">=99"}, True),  # alone it is not looked at
        ({**KVM, "hypervisor_version": 0}, {"img_hv_type": "kvm", "img_hv_requested_version": ">=99"}, True),
        ({**KVM, "cpu_info": {"maxphysaddr": {"bits": 39}}}, {"img_hv_type": "kvm", "hw_maxphysaddr_bits": 40}, False),
        ({**KVM, "cpu_info": {"maxphysaddr": {"bits": 40}}}, {"img_hv_type": "kvm", "hw_maxphysaddr_bits": "40"}, True),
        (KVM, {"img_hv_type": "kvm", "hw_maxphysaddr_bits": 40}, True),
    ],
)
def test_image_properties(host, props, passes):
    ok, reason = verdict("ImagePropertiesFilter", host, image_properties=props)
    assert ok == passes
    assert bool(reason) != passes


@pytest.mark.parametrize(
    ("props", "text"),
    [
        ({"hw_architecture": "x87"}, "Architecture name 'x87' is not valid"),
        ({"img_hv_type": "kmv"}, "type 'kmv' is not valid"),
        ({"hw_vm_mode": "fast"}, "mode 'fast' is not valid"),
        ({"img_hv_type": "kvm", "img_hv_requested_version": "7.0"}, "bad version range"),
    ],
)
def test_image_properties_that_do_not_exist(props, text):
    with pytest.raises(InvalidInput, match=text):
        verdict("ImagePropertiesFilter", KVM, image_properties=props)


@pytest.mark.parametrize(("props", "passes"), [({}, False), ({"hw_architecture": "x86_64"}, True)])
def test_the_architecture_of_images_that_name_none(props, passes):
    options = {"image_properties_default_architecture": "aarch64"}
    assert verdict("ImagePropertiesFilter", KVM, options=options, image_properties=props)[0] is passes
    wrong = "bootflow_image_properties_default_architecture: .* 'x87' is not valid"
    with pytest.raises(InvalidInput, match=wrong):
        verdict("ImagePropertiesFilter", KVM, options={"image_properties_default_architecture": "x87"})


@pytest.mark.parametrize(
    ("name", "host", "flavor", "reason"),
    [
        ("ExactRamFilter", {"memory_mb": 1000, "memory_mb_used": 200}, {"memory_mb": 800}, ""),
        (
            "ExactRamFilter",
            {"memory_mb": 1000, "ram_allocation_ratio": 1.5},
            {"memory_mb": 800},
            "800 MiB free, this has 1000 MiB",
        ),
        ("ExactDiskFilter", {"local_gb": 10, "local_gb_used": 4}, {"root_gb": 5, "ephemeral_gb": 1}, ""),
        (
            "ExactDiskFilter",
            {"local_gb": 10, "local_gb_used": 4},
            {"root_gb": 6, "swap": 1},
            "6145 MiB free, this has 6144 MiB",
        ),
        ("ExactCoreFilter", {"vcpus": 4, "vcpus_used": 2}, {"vcpus": 2}, ""),
        ("ExactCoreFilter", {"vcpus": 4, "vcpus_used": 2}, {"vcpus": 1}, "1 vCPU free, this has 2 vCPUs"),
        ("ExactCoreFilter", {"vcpus": 0}, {"vcpus": 0}, "0 vCPUs free, this has 0 vCPUs"),
    ],
)
def test_exact_filters_pass_hosts_that_the_guest_fills(name, host, flavor, reason):
    passes, why = verdict(name, host, flavor)
    assert passes is (not reason) and why.endswith(reason)


def test_limits_of_exact_filters_are_the_physical_ones():
    host = HostState("h", "n", memory_mb=1000, local_gb=10, vcpus=4, ram_allocation_ratio=1.5)
    names = ["ExactRamFilter", "ExactDiskFilter", "ExactCoreFilter"]
    limits = {}
    for made in make_filters(make_options(enabled_filters=names, now=NOW), {}):
        limits.update(made.limits(Fleet([host]), 0))
    assert limits == {"memory_mb": 1000.0, "disk_gb": 10.0, "vcpu": 4.0}
