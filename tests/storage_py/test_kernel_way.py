# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ``kernel`` way of attaching, on a compute host whose kernel logs in: by-path names and <disk type='block'>.

Every playbook takes many seconds on emulated CPUs: one volume to boot from serves all tests, and what a fault leaves is the beginning of
what follows.
"""

from __future__ import annotations

import typing as t

import firmware_variables
import kernel_way
import pytest
import sizing_guest
import storage_vm
from flow import CACHE
from kernel_way import WORDS, KernelFlow, guest

pytestmark = pytest.mark.long

GIB = 1024**3
# What KernelFlow.residue() has of the volume ``system``.
OF_SYSTEM = ["logical volumes of thick", "volumes"]
CHAP_OF_LIO = "/sys/kernel/config/target/iscsi/%s%s/tpgt_1/acls/*/auth/password"


@pytest.fixture(scope="module")
def compute(lab, storage):
    vm = storage_vm.StorageVM(
        str(CACHE / "storage-compute"), storage.vm.image, lab=lab, disks={}, number=9, kind="compute"
    )
    with kernel_way.compute_host(vm) as host:
        yield host


@pytest.fixture(scope="module")
def volumes(compute, backends, tmp_path_factory) -> t.Iterator[KernelFlow]:
    """With a bootable volume ``system``, which every test gives back."""
    flow = KernelFlow(compute, tmp_path_factory.mktemp("kernel"), backends)
    flow.create({"name": "system", "size": 1, "image": "sector", "volume_type": "thick"})
    yield flow
    flow.remove("system")
    assert flow.residue() == {}


def given_back(volumes: KernelFlow, instance: str, volume: str) -> None:
    """Nova: the instance is in error. Cinder: its volume is available again, and nobody can reach it."""
    assert volumes.instances()[instance]["vm_state"] == "error"
    assert volumes.status(volume) == ("available", "detached")
    assert volumes.exported() == {} and volumes.compute.left_of_iscsi() == []


def crashed_boot(volumes: KernelFlow, sql: str) -> None:
    """The compute host loses its power in the middle of a boot, and is started again."""
    process = volumes.start("boot", {"bootflow_instances": [guest("app", "system")]})
    volumes.during(process, sql, volumes.compute.vm.crash)
    volumes.compute.vm.start(keep=True)


def test_a_guest_on_volumes_from_boot_to_delete(volumes: KernelFlow) -> None:
    """Its host dies while it connects, and the same boot goes on. It boots from LIO, and gets a disk of tgt, which grows and leaves.

    That disk is a SCSI one: it can be taken away from a guest that does not answer.
    """
    host = volumes.compute
    volumes.create({"name": "data", "size": 1, "volume_type": "thin"})
    system, data = volumes.volume("system")["id"], volumes.volume("data")["id"]
    said = sizing_guest.said(WORDS, GIB)

    crashed_boot(volumes, "SELECT 1 FROM volume_attachments WHERE deleted = '' AND connection = 'begun'")
    volumes.boot(guest("app", "system"), bootflow_wait_console=said)
    row = volumes.instances()["app"]
    assert (row["vm_state"], volumes.status("system")) == ("active", ("in-use", "attached"))
    assert said in volumes.console("", row["uuid"]) and host.virsh("domstate", row["uuid"]).strip() == "running"
    assert host.sessions() == [system]
    disk = volumes.disk(row["uuid"], system)
    assert disk.get("type") == "block" and disk.get("device") == "disk"
    assert disk.find("source").get("dev") == volumes.by_path(system, "thick")
    driver = disk.find("driver")
    assert (driver.get("type"), driver.get("cache"), driver.get("io")) == ("raw", "none", "native")
    assert disk.find("target").get("dev") == "vda"

    wish = {"bootflow_attachments": [{"instance": "app", "volume": "data", "disk_bus": "scsi"}]}
    volumes.done("attach_volume", **wish)
    assert volumes.status("data") == ("in-use", "attached") and host.sessions() == sorted([system, data])
    disk = volumes.disk(row["uuid"], data)
    assert disk.get("type") == "block" and disk.find("source").get("dev") == volumes.by_path(data, "thin")
    target = disk.find("target").get("dev")
    assert volumes.size_in_guest(row["uuid"], target) == GIB
    assert volumes.secrets_in(volumes.everything_written()) == []

    volumes.done("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
    assert volumes.size_in_guest(row["uuid"], target) == 2 * GIB
    device = host.sh("readlink -f %s" % volumes.by_path(data, "thin")).strip()
    assert int(host.sh("blockdev --getsize64 %s" % device)) == 2 * GIB

    volumes.done("detach_volume", **wish)
    assert volumes.status("data") == ("available", "detached") and host.sessions() == [system]
    assert volumes.disk(row["uuid"], data) is None and list(volumes.exported()) == [system]

    volumes.delete("app")
    assert volumes.status("system") == ("available", "detached")
    assert host.left_of_iscsi() == [] and volumes.exported() == {}
    volumes.remove("data")
    assert list(volumes.residue()) == OF_SYSTEM


def test_logins_that_fail(volumes: KernelFlow) -> None:
    """No way to the portal; a secret that is another; the target's service gone. The volume is given back each time."""
    wanted = guest("app", "system")
    once = {"bootflow_max_attempts": 1}

    with volumes.portal_unreachable():
        failed = volumes.boot(wanted, expect=2, **once)
    assert "Unable to login to iSCSI Target Portal" in " ".join(failed.output.split())
    given_back(volumes, "app", "system")
    volumes.delete("app")

    system = volumes.volume("system")["id"]
    other = "for f in %s; do printf Other4567890123456 >$f; done" % (CHAP_OF_LIO % (volumes.iqn, system))
    gone = "rmdir /sys/kernel/config/target/iscsi/%s%s/tpgt_1/np/*" % (volumes.iqn, system)
    for break_it, message in ((other, "the target rejected the login"), (gone, "Unable to login")):
        process = volumes.start("boot", {"bootflow_instances": [wanted], **once})
        volumes.during(
            process,
            "SELECT 1 FROM volume_attachments WHERE deleted = '' AND export = 'done'",
            lambda script=break_it: volumes.storage.sh(script),
        )
        output = (volumes.folder / "killed.log").read_text()
        assert process.returncode == 2 and message in " ".join(output.split()), output
        given_back(volumes, "app", "system")
        volumes.delete("app")

    assert list(volumes.residue()) == OF_SYSTEM


def test_two_guests_of_a_host_share_a_disk(volumes: KernelFlow) -> None:
    """One session and one disk serve both, and go with the last: whichever run gave the disk to the first."""
    host = volumes.compute
    volumes.create(
        {"name": "second", "size": 1, "image": "sector", "volume_type": "thin"},
        {"name": "shared", "size": 1, "volume_type": "thick", "multiattach": True},
    )
    ids = {name: volumes.volume(name)["id"] for name in ("system", "second", "shared")}
    volumes.boot(guest("one", "system"), guest("two", "second"))
    uuids = {name: row["uuid"] for name, row in volumes.instances().items()}

    def change(playbook: str, name: str) -> None:
        volumes.done(playbook, bootflow_attachments=[{"instance": name, "volume": "shared", "disk_bus": "scsi"}])

    def who_has_it() -> list[str]:
        disks = {name: volumes.disk(uuid, ids["shared"]) for name, uuid in uuids.items()}
        there = {name: disk for name, disk in disks.items() if disk is not None}
        for disk in there.values():
            assert disk.find("source").get("dev") == volumes.by_path(ids["shared"], "thick")
            assert disk.find("shareable") is not None
        return sorted(there)

    change("attach_volume", "one")
    change("attach_volume", "two")
    assert who_has_it() == ["one", "two"] and host.sessions() == sorted(ids.values())
    change("detach_volume", "one")
    assert who_has_it() == ["two"] and host.sessions() == sorted(ids.values())
    assert volumes.status("shared") == ("in-use", "attached")
    change("attach_volume", "one")
    assert who_has_it() == ["one", "two"]
    volumes.delete("two")
    del uuids["two"]
    assert who_has_it() == ["one"] and host.sessions() == sorted([ids["system"], ids["shared"]])
    device = volumes.by_path(ids["shared"], "thick")
    assert host.sh("dd if=%s of=/dev/null bs=1M count=1 iflag=direct 2>&1" % device).count("1048576 bytes") == 1
    change("detach_volume", "one")
    assert who_has_it() == [] and host.sessions() == [ids["system"]] and list(volumes.exported()) == [ids["system"]]
    assert volumes.status("shared") == ("available", "detached")
    volumes.delete("one")
    volumes.remove("second", "shared")
    assert host.left_of_iscsi() == [] and list(volumes.residue()) == OF_SYSTEM


def test_the_compute_host_dies_while_it_spawns(volumes: KernelFlow) -> None:
    """What the host logs in to again when it is back is ended by a delete."""
    crashed_boot(
        volumes,
        "SELECT 1 FROM instance_action_events JOIN instances ON instances.uuid = instance_uuid"
        " WHERE deleted = '' AND event = 'spawning' AND finish_time IS NULL",
    )
    volumes.delete("app")
    assert volumes.status("system") == ("available", "detached")
    assert list(volumes.residue()) == OF_SYSTEM


def test_uefi_variables_of_a_guest_on_a_volume(volumes: KernelFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume has the properties of its image. Nothing on it boots by UEFI: its firmware says so."""
    image = {**volumes.variables["bootflow_images"][0], "name": "uefi", "properties": firmware_variables.UEFI}
    for name, more in (("images", image), ("flavors", firmware_variables.FLAVOR)):
        monkeypatch.setitem(volumes.variables, "bootflow_" + name, [*volumes.variables["bootflow_" + name], more])
    volumes.create({"name": "firm", "size": 1, "image": "uefi", "volume_type": "thick"})
    volumes.boot({**guest("app", "firm"), "flavor": "firmware"})
    row = volumes.instances()["app"]
    assert volumes.disk(row["uuid"], volumes.volume("firm")["id"]).get("type") == "block"
    firmware_variables.live_and_die(volumes, "app", volumes.compute)
    assert volumes.status("firm") == ("available", "detached")
    volumes.remove("firm")
    assert list(volumes.residue()) == OF_SYSTEM
