# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilds of instances whose root disks are volumes, with another image, by whole playbooks."""

from __future__ import annotations

import json
import typing as t

import pytest
from simulated_site import IMAGE, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

RUNNING, OFF = 1, 4
OTHER = {
    **IMAGE,
    "name": "alpine",
    "checksum": "sha256:" + "2" * 64,
    "properties": {"os_distro": "alpine"},
}
ROOT = {
    "source_type": "image",
    "uuid": "debian",
    "destination_type": "volume",
    "volume_size": 2,
    "boot_index": 0,
    "delete_on_termination": True,
}
BROKEN = errors.ImageCopyFailure(reason="the device is broken")


class Rebuilt:
    """A site with the instance db, whose root is a volume of the storage host kvm3."""

    def __init__(self, site: Site):
        self.site = site
        site.storage = ["kvm3"]
        for host in site.hosts.values():
            host.has_facts(initiator="iqn.test:" + host.name)
        site.variables["bootflow_images"] = [IMAGE, OTHER]
        wanted = entry("db", block_device_mapping=[ROOT])
        del wanted["image"]
        site.boots(wanted)
        self.host = site.hosts[self.row["host"]]
        self.storage = site.hosts["kvm3"]

    @property
    def row(self) -> t.Any:
        return self.site.instances()["db"]

    @property
    def volume(self) -> t.Any:
        (row,) = self.site.query("SELECT * FROM volumes WHERE deleted = ''")
        return row

    def rebuild(self, *options: str, expect: int = 0, image: str = "alpine") -> str:
        return self.site.play("rebuild", *options, expect=expect, names=["db"], rebuild_image=image)

    def state(self) -> tuple[str, str | None, int, str, str]:
        """vm_state, task_state, power of the guest, status of the volume, image of the volume."""
        domain = self.host.domains.get(self.row["uuid"])
        power = 0 if domain is None else domain["power_state"]
        image = json.loads(self.volume["image_metadata"])["image_name"]
        return self.row["vm_state"], self.row["task_state"], power, self.volume["status"], image

    def ends(self) -> tuple[str, str, str]:
        (row,) = self.site.query("SELECT attach_status, export, connection FROM volume_attachments WHERE deleted = ''")
        return row["attach_status"], row["export"], row["connection"]


@pytest.fixture
def rebuilt(site: Site) -> Rebuilt:
    return Rebuilt(site)


GOOD = ("attached", "done", "done")


def test_with_another_image(rebuilt: Rebuilt) -> None:
    before, volume = rebuilt.row, rebuilt.volume
    printed = rebuilt.rebuild("--check", "--diff")
    assert "image debian -> alpine" in printed and rebuilt.volume["status"] == "in-use"
    assert rebuilt.state() == ("active", None, RUNNING, "in-use", "debian")
    asked = len(rebuilt.storage.asked())
    printed = rebuilt.rebuild()
    assert "image debian -> alpine" in printed
    assert rebuilt.state() == ("active", None, RUNNING, "in-use", "alpine") and rebuilt.ends() == GOOD
    assert (rebuilt.row["uuid"], rebuilt.volume["id"]) == (before["uuid"], volume["id"])
    assert rebuilt.storage.asked()[asked:] == ["iscsi_target", "volume_lvm", "iscsi_target"]
    rebuilt.rebuild()
    assert "volume_lvm" not in rebuilt.storage.asked()[asked + 3 :], "it has this image: the volume stays as it is"
    rebuilt.site.play("stop", names=["db"])
    rebuilt.rebuild(image="debian")
    assert rebuilt.state() == ("stopped", None, OFF, "in-use", "debian") and rebuilt.ends() == GOOD
    rebuilt.site.play("start", names=["db"])
    rebuilt.site.play("delete", names=["db"])
    assert rebuilt.site.places() == {} and rebuilt.storage.read()["model"]["volumes"] == {}


@pytest.mark.parametrize("off", [False, True])
def test_an_image_that_cannot_be_written_leaves_all_as_it_was(rebuilt: Rebuilt, off: bool) -> None:
    if off:
        rebuilt.site.play("stop", names=["db"])
    before, request = rebuilt.state(), rebuilt.row["request_spec_id"]
    rebuilt.storage.items_fail("volume_lvm", BROKEN, times=1)
    printed = rebuilt.rebuild(expect=2)
    assert "ImageCopyFailure" in printed and "the device is broken" in printed
    assert rebuilt.state() == before and rebuilt.ends() == GOOD and rebuilt.row["request_spec_id"] == request
    rebuilt.rebuild()
    assert rebuilt.state() == (before[0], None, OFF if off else RUNNING, "in-use", "alpine")


@pytest.mark.long
def test_a_storage_host_that_does_not_answer(rebuilt: Rebuilt) -> None:
    """Nothing tells what it has done: no guest boots from the volume until it is written."""
    rebuilt.storage.is_silent("volume_lvm", times=1)
    rebuilt.rebuild(expect=2)
    assert rebuilt.state()[0] == "error" and rebuilt.state()[3] == "error"
    printed = rebuilt.site.play("reboot", expect=2, names=["db"], reboot_type="HARD")
    assert "is not exported" in printed
    printed = rebuilt.site.play("rebuild", names=["db"])
    assert rebuilt.state() == ("active", None, RUNNING, "in-use", "alpine") and rebuilt.ends() == GOOD


@pytest.mark.long
def test_a_guest_that_cannot_be_shut_down(rebuilt: Rebuilt) -> None:
    before = rebuilt.state()
    rebuilt.host.items_fail("domain_power", errors.LibvirtError(reason="libvirt is busy"), times=1)
    printed = rebuilt.rebuild(expect=2)
    assert "LibvirtError" in printed and rebuilt.state() == before and rebuilt.ends() == GOOD
    assert rebuilt.storage.asked().count("volume_lvm") == 1, "of the boot"


@pytest.mark.long
def test_a_guest_that_is_not_built_afterwards(rebuilt: Rebuilt) -> None:
    rebuilt.host.items_fail("domain", errors.LibvirtError(reason="no memory"), times=1)
    rebuilt.rebuild(expect=2)
    assert rebuilt.state()[0] == "error" and rebuilt.state()[3:] == ("in-use", "alpine")
    rebuilt.rebuild()
    assert rebuilt.state() == ("active", None, RUNNING, "in-use", "alpine") and rebuilt.ends() == GOOD


@pytest.mark.long
def test_a_storage_host_that_the_limit_leaves_out(rebuilt: Rebuilt) -> None:
    before = rebuilt.state()
    printed = rebuilt.rebuild("--limit", "localhost,kvm1,kvm2", expect=2)
    assert "leaves out kvm3" in printed and rebuilt.state() == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "module", "torn"),
    [("host", "domain_power", False), ("storage", "iscsi_target", False), ("storage", "volume_lvm", True)],
)
def test_a_killed_run_is_settled_by_the_next_one(rebuilt: Rebuilt, where: str, module: str, torn: bool) -> None:
    host = getattr(rebuilt, where)
    asked = host.asked().count(module)
    host.is_slow(module, 60.0, times=1)
    process = rebuilt.site.begin("rebuild", names=["db"], rebuild_image="alpine")
    try:
        rebuilt.site.wait_until(lambda: host.asked().count(module) > asked)
    finally:
        rebuilt.site.kill(process)
    assert rebuilt.volume["status"] == "reserved" and rebuilt.row["task_state"] == "rebuild_spawning"
    rebuilt.site.play("heartbeat")
    assert rebuilt.row["vm_state"] == "error" and rebuilt.volume["status"] == ("error" if torn else "in-use")
    rebuilt.rebuild()
    assert rebuilt.state() == ("active", None, RUNNING, "in-use", "alpine") and rebuilt.ends() == GOOD
