# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a guest's local disks lie, and what its domain has of them, for each backend."""

from __future__ import annotations

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import block_device_plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import (
    GuestSpec,
    HostCapabilities,
    domain_name,
    guest_config,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds.domain_builder import local_disk

from ...module_utils.core.guest.domain.schema import assert_valid

UUID = "0fd65882-945e-4386-b2f2-5a36d62fefad"
FOLDER = "/var/lib/bootflow/instances/" + UUID
VG = {"bootflow_disk_volume_group": "hdd-volumes"}
BLOCK = {"name": "qemu", "type": "raw", "cache": "none", "io": "native"}
QCOW2 = {"name": "qemu", "type": "qcow2", "cache": "writeback"}


def disks_of(**variables):
    """(type, driver, source, target) of each disk but the config drive, as the domain has them."""
    settings = HOST.read(variables)
    flavor = Flavor("f", 512, 1, 1, 2, 64)
    image = Image("i", "11111111-1111-4111-8111-111111111111", "qcow2")
    spec = GuestSpec(
        uuid=UUID,
        name=domain_name("web", UUID),
        display_name="web",
        memory_mb=512,
        vcpus=1,
        flavor=flavor,
        disks=[local_disk(d, UUID, FOLDER, settings) for d in block_device_plan(flavor, image)],
    )
    text = render(guest_config(spec, HostCapabilities(machine_types=("pc", "q35"), libvirt_version=9000000)))
    assert_valid(text)
    return [
        (d.get("type"), dict(d.find("driver").attrib), dict(d.find("source").attrib), d.find("target").get("dev"))
        for d in etree.fromstring(text).iter("disk")
        if d.get("device") == "disk"
    ]


@pytest.mark.parametrize(
    ("variables", "kind", "driver", "attribute", "paths"),
    [
        ({}, "file", QCOW2, "file", [FOLDER + "/disk", FOLDER + "/disk.eph0", FOLDER + "/disk.swap"]),
        (
            {"bootflow_disk_backend": "raw", **VG},
            "file",
            {**QCOW2, "type": "raw"},
            "file",
            [FOLDER + "/disk", FOLDER + "/disk.eph0", FOLDER + "/disk.swap"],
        ),
        (
            {"bootflow_disk_backend": "lvm", **VG},
            "block",
            BLOCK,
            "dev",
            ["/dev/hdd-volumes/%s_%s" % (UUID, name) for name in ("disk", "disk.eph0", "disk.swap")],
        ),
        (
            {"bootflow_disk_backend": "qcow2_on_lvm", **VG},
            "file",
            QCOW2,
            "file",
            [FOLDER + "/disk/disk", FOLDER + "/disk/disk.eph0", FOLDER + "/disk/disk.swap"],
        ),
    ],
)
def test_the_domain_of_each_backend(variables, kind, driver, attribute, paths):
    targets = ["vda", "vdb", "vdc"]
    assert disks_of(**variables) == [
        (kind, driver, {attribute: path}, dev) for path, dev in zip(paths, targets, strict=True)
    ]


def test_disks_in_a_pool_are_reached_by_librbd():
    fsid = "99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654"
    disks = disks_of(
        bootflow_disk_backend="rbd",
        bootflow_disk_rbd_pool="vms",
        bootflow_disk_rbd_user="nova",
        bootflow_disk_rbd_monitors=["192.0.2.21", "192.0.2.22:3300"],
        bootflow_disk_rbd_fsid=fsid,
        bootflow_disk_rbd_key="AQC+uwxrfXuXJxAAzXdVGMtCYdczKnlZyGYwdA==",
    )
    names = ["disk", "disk.eph0", "disk.swap"]
    assert [(kind, source, dev) for kind, _driver, source, dev in disks] == [
        ("network", {"protocol": "rbd", "name": "vms/%s_%s" % (UUID, name)}, dev)
        for name, dev in zip(names, ["vda", "vdb", "vdc"], strict=True)
    ]
    assert {(driver["type"], driver["cache"]) for _kind, driver, _source, _dev in disks} == {("raw", "none")}
