# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import request_digest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import Overhead

from .conftest import NETWORKS, SHA

ALIASES = [{"name": "gpu", "vendor_id": "10de", "product_id": "1b38"}, {"name": "nic", "vendor_id": "8086"}]


def parse(specs, properties=None, vcpus=4, memory_mb=4096, image="tiny", options=None):
    flavor = {"name": "f", "memory_mb": memory_mb, "vcpus": vcpus, "root_gb": 1, "extra_specs": specs}
    tiny = {"name": "tiny", "disk_format": "raw", "checksum": SHA, "path": "/t", "properties": properties or {}}
    catalogue = parse_catalogue([flavor], [tiny], NETWORKS, None, None, ALIASES)
    entry = {"name": "web", "flavor": "f", "image": image, "networks": ["blue"]}
    return parse_requests([entry], catalogue, options)[0]


def errors(*arguments, **fields):
    with pytest.raises(InvalidRequest) as caught:
        parse(*arguments, **fields)
    assert all(e["remedy"] for e in caught.value.errors)
    return [(e["path"].replace("instances[0].", ""), e["code"], e["status"]) for e in caught.value.errors]


def test_a_plain_flavor_wishes_nothing():
    request = parse({"quota:cpu_shares": "10", "aggregate_instance_extra_specs:ssd": "true"})
    assert request.numa_topology is None
    assert request.pci_requests == () and request.whole_disks == ()


def test_wishes_of_flavor_and_image_are_kept():
    request = parse(
        {"hw:numa_nodes": "2", "pci_passthrough:alias": "gpu:2,nic:1", "bootflow:whole_disks": "2"},
        {"hw_cpu_policy": "dedicated"},
    )
    cells = request.numa_topology.cells
    assert [(sorted(c.cpus), c.memory_mb, c.cpu_policy) for c in cells] == [
        ([0, 1], 2048, "dedicated"),
        ([2, 3], 2048, "dedicated"),
    ]
    assert [(r.alias_name, r.count) for r in request.pci_requests] == [("gpu", 2), ("nic", 1)]
    assert [r.count for r in request.whole_disks] == [2]


def test_the_hypervisor_s_overhead_is_the_flavor_s_and_not_part_of_what_is_requested():
    settings = {"memory_mb": 64, "memory_mb_per_vcpu": 1.5, "memory_percent": 0.781, "disk_gb": 0.5, "vcpus": 1}
    with_it = parse({}, options=RequestOptions(overhead=settings))
    assert with_it.overhead == Overhead(memory_mb=64 + 6 + 32, disk_gb=1, vcpus=1), "4 vCPUs, 4096 MB; rounded up"
    isolated = {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"}
    assert parse(isolated).overhead == Overhead(vcpus=1), "as Nova claims it"
    assert parse({}).overhead == Overhead() and request_digest(parse({})) == request_digest(with_it)


def test_wishes_are_not_stored_twice():
    assert "hw:numa_nodes" in request_digest(parse({"hw:numa_nodes": "2"}))["flavor"]["extra_specs"]
    assert not {"numa_topology", "pci_requests", "whole_disks"} & set(request_digest(parse({"hw:numa_nodes": "2"})))


@pytest.mark.parametrize(
    "specs, properties, code",
    [
        ({"hw:numa_nodes": "3"}, {}, "ImageNUMATopologyAsymmetric"),
        ({"hw:numa_nodes": "none"}, {}, "InvalidNUMANodesNumber"),
        ({"hw:numa_nodes": "2"}, {"hw_numa_nodes": 1}, "ImageNUMATopologyForbidden"),
        ({"hw:cpu_policy": "mine"}, {}, "InvalidCPUAllocationPolicy"),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "ImageCPUPinningForbidden"),
        ({}, {"hw_mem_page_size": "large"}, "MemoryPageSizeForbidden"),
        ({"hw:mem_page_size": "huge"}, {}, "MemoryPageSizeInvalid"),
        ({"pci_passthrough:alias": "fpga:1"}, {}, "PciRequestAliasNotDefined"),
        ({"bootflow:whole_disks": "many"}, {}, "InvalidInput"),
    ],
)
def test_bad_wishes_are_told_with_the_request(specs, properties, code):
    assert errors(specs, properties) == [("flavor", code, 400)]


def test_all_bad_wishes_at_once():
    specs = {"hw:numa_nodes": "3", "pci_passthrough:alias": "fpga:1", "bootflow:whole_disks": "-1"}
    assert [code for _path, code, _status in errors(specs, image="nobody")] == [
        "ImageNotFound",
        "ImageNUMATopologyAsymmetric",
        "PciRequestAliasNotDefined",
        "InvalidInput",
    ]


@pytest.mark.parametrize(
    "specs, properties, code",
    [
        ({"os:secure_boot": "disabled"}, {"os_secure_boot": "required"}, "FlavorImageConflict"),
        ({"os:secure_boot": "maybe"}, {}, "InvalidInput"),
        ({"hw:vif_multiqueue_enabled": "false"}, {"hw_vif_multiqueue_enabled": "true"}, "FlavorImageConflict"),
        ({"hw:pmu": "false"}, {"hw_pmu": "yes"}, "FlavorImageConflict"),
        (
            {"hw:locked_memory": "false", "hw:mem_page_size": "large"},
            {"hw_locked_memory": True},
            "FlavorImageConflict",
        ),
        ({"hw:locked_memory": "true"}, {}, "LockMemoryForbidden"),
        ({}, {"hw_locked_memory": True}, "LockMemoryForbidden"),
        ({}, {"hw_video_ram": 64}, "RequestedVRamTooHigh"),
        ({"hw_video:ram_max_mb": "32"}, {"hw_video_ram": "64"}, "RequestedVRamTooHigh"),
        ({}, {"hw_video_ram": "much"}, "InvalidInput"),
        ({"hw:cpu_max_sockets": "2"}, {"hw_cpu_max_sockets": "4"}, "ImageVCPULimitsRangeExceeded"),
        ({"hw:cpu_max_sockets": "2"}, {"hw_cpu_sockets": "4"}, "ImageVCPUTopologyRangeExceeded"),
        (
            {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "3"},
            {"hw_cpu_max_threads": 1},
            "ImageVCPULimitsRangeImpossible",
        ),
        ({"hw:cpu_sockets": "many"}, {}, "InvalidInput"),
        ({"hw:serial_port_count": "many"}, {}, "ImageSerialPortNumberInvalid"),
        ({"hw:serial_port_count": "1.5"}, {}, "ImageSerialPortNumberInvalid"),
        ({"hw:serial_port_count": "-1"}, {}, "ImageSerialPortNumberInvalid"),
        ({}, {"hw_serial_port_count": "many"}, "ImageSerialPortNumberInvalid"),
        ({"hw:serial_port_count": "1"}, {"hw_serial_port_count": 2}, "ImageSerialPortNumberExceedFlavorValue"),
        ({}, {"hw_serial_port_count": "6"}, "SerialPortNumberLimitExceeded"),
        ({"hw:serial_port_count": "9" * 200}, {}, "SerialPortNumberLimitExceeded"),
    ],
)
def test_flavor_and_image_that_contradict_each_other_are_refused_with_the_request(specs, properties, code):
    """Neither overrules the other silently."""
    assert errors(specs, properties) == [("flavor", code, 400)]


@pytest.mark.parametrize(
    "specs, properties",
    [
        ({"os:secure_boot": "required"}, {"os_secure_boot": "required"}),
        ({"hw:vif_multiqueue_enabled": "true"}, {"hw_vif_multiqueue_enabled": "yes"}),
        ({"hw:locked_memory": "true", "hw:mem_page_size": "large"}, {}),
        ({"hw_video:ram_max_mb": "64"}, {"hw_video_ram": 64}),
        ({"hw:serial_port_count": "4"}, {"hw_serial_port_count": 2}),
        ({"hw:serial_port_count": "6"}, {"hw_serial_port_count": 2}),
    ],
)
def test_flavor_and_image_that_agree_are_accepted(specs, properties):
    assert parse(specs, properties).flavor.extra_specs == specs


def test_queues_of_one_vcpu_do_not_contradict():
    parse({"hw:vif_multiqueue_enabled": "false"}, {"hw_vif_multiqueue_enabled": "true"}, vcpus=1)


@pytest.mark.parametrize("value", ["soon", "-5", "1.5", True])
def test_a_time_to_shut_down_that_is_no_number_is_refused(value):
    """The host's time was used silently."""
    assert errors({}, {"os_shutdown_timeout": value}) == [("image", "InvalidInput", 400)]
    parse({}, {"os_shutdown_timeout": 120})


@pytest.mark.parametrize(
    "specs,properties",
    [
        ({"trait:HW_CPU_X86_AVX2": "required"}, {}),
        ({"trait:CUSTOM_LICENSED": "forbidden"}, {}),
        ({"trait_net-1:CUSTOM_A": "required"}, {}),
        ({"resources:PCPU": "4"}, {}),
        ({"resources1:VGPU": "1"}, {}),
        ({"accel:device_profile": "gpu"}, {}),
        ({"hw:mem_encryption": "true"}, {}),
        ({"hw:ephemeral_encryption": "True"}, {}),
        ({"hw:tpm_version": "2.0"}, {}),
        ({}, {"trait:CUSTOM_A": "required"}),
        ({}, {"hw_mem_encryption": True}),
        ({}, {"hw_tpm_model": "tpm-crb"}),
    ],
)
def test_what_a_guest_would_be_without_is_refused(specs, properties):
    assert errors(specs, properties) == [("flavor", "NotSupportedYet", 400)]


def test_what_asks_for_nothing_is_not_refused():
    parse({"hw:mem_encryption": "false", "traits": "x", "resourceful:x": "1"}, {"hw_ephemeral_encryption": "no"})
