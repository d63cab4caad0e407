# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of extra specs and image properties that nothing reads are warned of."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.disk_names import default_bus
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.local import POOL_STAT
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.rescue import rescue_plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import whole_disk_requests
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import guest_config
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.constraints import constraint_errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading import platform_names
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.image_rules import image_errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.unread_names import (
    EXTRA_SPECS,
    IMAGE_PROPERTIES,
    unread_names,
    unread_requirements,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.constraints import numa_constraints
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import pci_requests
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.compute_capabilities_filter import (
    STATS,
)

from ..guest.test_guest import KVM, guest


class Recorder(t.Dict[str, t.Any]):
    """Extra specs or properties that keep the names that were asked for, with N for a number."""

    def __init__(self, **values: t.Any):
        super().__init__(values)
        self.asked: set[str] = set()

    def _ask(self, name: t.Any) -> None:
        self.asked.add(re.sub(r"\.\d+$", ".N", str(name)))

    def __getitem__(self, name: str) -> t.Any:
        self._ask(name)
        return super().__getitem__(name)

    def get(self, name: str, default: t.Any = None) -> t.Any:
        self._ask(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._ask(name)
        return super().__contains__(name)


def names_read() -> tuple[set[str], set[str]]:
    """Those of extra specs and of image properties, by whatever reads them."""
    specs, properties = Recorder(**{"hw:numa_nodes": "1"}), Recorder(hw_machine_type="pc")
    pieces = Recorder(**{"bootflow:whole_disks": "1"})
    flavor = Flavor("f", 512, 2, 1, extra_specs=specs)
    numa_constraints(flavor, properties)
    dedicated = Recorder(**{"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"})
    numa_constraints(dataclasses.replace(flavor, extra_specs=dedicated), properties)
    pci_requests(flavor, {}, properties)
    assert list(constraint_errors(flavor, properties)) == []
    locked = Recorder(**{"hw:locked_memory": "yes"})
    assert list(constraint_errors(dataclasses.replace(flavor, extra_specs=locked), properties))
    for rate in ({}, {"hw_rng:rate_bytes": "9"}):
        specs.update(rate)
        guest_config(dataclasses.replace(guest(vcpus=2), flavor=flavor, image_properties=properties), KVM)
    rescue_plan([], Image("r", "r", "qcow2", properties=properties))
    whole_disk_requests(dataclasses.replace(flavor, extra_specs=pieces))
    for kind in ("disk", "cdrom", "floppy", "lun"):
        default_bus(kind, properties, "kvm", None, "x86_64")
    image = Image("i", "i", "raw", properties=properties)
    assert list(image_errors(image, flavor)) == []
    properties.asked.update(platform_names.LEGACY, {"hw_maxphysaddr_bits"})  # of ImagePropertiesFilter
    properties.asked.add("os_admin_user")  # of the config drive's vendor data
    specs.asked.add("hw:maxphysaddr_bits")  # of ComputeCapabilitiesFilter
    return specs.asked | pieces.asked | dedicated.asked | locked.asked, properties.asked


def test_the_known_names_are_those_that_are_read() -> None:
    specs, properties = names_read()
    scoped = re.compile(r"(hw|hw_rng|hw_video|os|quota|pci_passthrough|bootflow):|(hw|os|img)_")
    assert {n for n in specs if scoped.match(n)} == EXTRA_SPECS
    assert {n for n in properties if scoped.match(n)} == IMAGE_PROPERTIES


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ({"hw:cpu_polcy": "dedicated"}, "hw:cpu_polcy (did you mean hw:cpu_policy?)"),
        ({"hw_cpu_policy": "dedicated"}, "hw_cpu_policy (did you mean hw:cpu_policy?)"),
        ({"quota:disk_read_byte_sec": "1"}, "quota:disk_read_byte_sec (did you mean quota:disk_read_bytes_sec?)"),
        ({"bootflow:whole_disk": "1"}, "bootflow:whole_disk (did you mean bootflow:whole_disks?)"),
        ({"pci_passthrough:aliases": "a:1"}, "pci_passthrough:aliases (did you mean pci_passthrough:alias?)"),
        ({"os:secureboot": "required"}, "os:secureboot (did you mean os:secure_boot?)"),
        (
            {"hw:mem_encryption": "true", "hw:numa_cpus.x": "0"},
            "hw:mem_encryption, hw:numa_cpus.x (did you mean hw:numa_cpus.N?)",
        ),
        ({"hw:numa_sets": "1"}, "hw:numa_sets"),
        ({"hw:secure_boot": "required"}, "hw:secure_boot (did you mean os:secure_boot?)"),
    ],
)
def test_extra_specs_that_nothing_reads(specs: dict[str, str], text: str) -> None:
    flavor = Flavor("f", 512, 1, extra_specs={**specs, "hw:boot_menu": "true"})
    assert unread_names([flavor], []) == ["The extra specs of flavor f have names that nothing reads: %s." % text]
    assert unread_names([flavor], [], set(specs)) == []


def test_image_properties_that_nothing_reads() -> None:
    image = Image(
        "debian", "d", "raw", properties={"hw_video_modell": "vga", "img_signature": "x", "os_distro": "debian"}
    )
    (text,) = unread_names([], [image])
    assert text.startswith("The properties of image debian have names that nothing reads: ")
    assert text.endswith(": hw_video_modell (did you mean hw_video_model?), img_signature.")


def test_former_names_that_nova_reads() -> None:
    properties = {"ipxe_boot": "true", "vmware_adaptertype": "ide", "architecture": "x86_64", "ipxe": "x"}
    (text,) = unread_names(
        [Flavor("f", 512, 1, extra_specs=properties)], [Image("i", "i", "raw", properties=properties)]
    )
    assert text == "The properties of image i have names that nothing reads: ipxe_boot, vmware_adaptertype."


def test_a_rescue_image_is_not_warned_of() -> None:
    properties = {"hw_rescue_device": "cdrom", "hw_rescue_bus": "scsi"}
    assert unread_names([], [Image("i", "i", "raw", properties=properties)]) == []


def test_names_that_are_read_or_are_of_other_scopes() -> None:
    specs = {name.replace("N", "3"): "1" for name in EXTRA_SPECS}
    specs |= {"aggregate_instance_extra_specs:ssd": "1", "capabilities:hw": "1", "ssd": "1", "hide_hypervisor_id": "1"}
    properties = {name.replace("N", "0"): "1" for name in IMAGE_PROPERTIES} | {"architecture": "x", "colour": "red"}
    image = Image("i", "i", "raw", properties=properties)
    assert unread_names([Flavor("f", 512, 1, extra_specs=specs)], [image]) == []


_DEFAULT = ("RamFilter", "ComputeCapabilitiesFilter")
_AGGREGATES = "AggregateInstanceExtraSpecsFilter"


@pytest.mark.parametrize(
    ("specs", "filters", "own", "words"),
    [
        ({"ssd": "true"}, _DEFAULT, False, "ssd (%s would, in the metadata of aggregates)" % _AGGREGATES),
        ({"ssd": "true"}, (*_DEFAULT, _AGGREGATES), False, None),
        ({"ssd": "true"}, _DEFAULT, True, None),
        ({"vcpus_total": ">= 4", "disk_medium": "ssd", "hypervisor_type": "QEMU"}, _DEFAULT, False, None),
        (
            {"disk_medium": "ssd"},
            ("RamFilter",),
            False,
            "disk_medium (ComputeCapabilitiesFilter would, as a fact of hosts)",
        ),
        (
            {"vcpus_totl": ">= 4"},
            _DEFAULT,
            False,
            "vcpus_totl (did you mean vcpus_total? %s would, in the metadata of aggregates)" % _AGGREGATES,
        ),
        (
            {"capabilites:disk_medium": "ssd"},
            _DEFAULT,
            False,
            "capabilites:disk_medium (did you mean capabilities:disk_medium?)",
        ),
        (
            {"capabilities:disk_medium": "ssd", "acme:rack": "1", "hide_hypervisor_id": "true", "ssd": ""},
            _DEFAULT,
            False,
            None,
        ),
        ({"hw_cpu_polcy": "dedicated"}, _DEFAULT, False, None),  # unread_names() tells of it
    ],
)
def test_extra_specs_for_the_choice_of_a_host_that_no_filter_reads(
    specs: dict[str, str], filters: tuple[str, ...], own: bool, words: str | None
) -> None:
    found = unread_requirements([Flavor("f", 512, 1, extra_specs=specs)], filters, own)
    start = "The extra specs of flavor f have names that no enabled filter reads: "
    end = ". Add the filter to bootflow_enabled_filters, or remove the names."
    assert found == ([] if words is None else [start + words + end])


def test_facts_are_those_that_hosts_report() -> None:
    text = (pathlib.Path(__file__).parents[6] / "plugins/module_utils/hosts/facts/facts.py").read_text(encoding="utf-8")
    reported = set(re.findall(r'node\["stats"\]\["(\w+)"\]', text))
    made = text[text.index("store = store_of(") : text.index("if filters_ports:")]
    named = set(re.findall(r'"(\w+)":', made)) | ({POOL_STAT} if "POOL_STAT:" in made else set())
    assert reported | named == STATS


def test_the_documents_list_the_names() -> None:
    text = (pathlib.Path(__file__).parents[6] / "docs" / "request.md").read_text(encoding="utf-8")
    for name in EXTRA_SPECS | IMAGE_PROPERTIES:
        if not re.match(r"quota:(disk|vif)_", name):
            assert "`%s`" % name in text, name
