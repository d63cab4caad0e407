# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests where libvirt confines them as Debian's packages do: AppArmor, QEMU as libvirt-qemu, in a mount namespace.

The compute hosts are emulated machines on the network of a lab; their guests are boot sectors that count (counting_guest). What
volumes and logical volumes do there is in tests/storage_py, whose compute hosts are the same machines.
"""

from __future__ import annotations

import hashlib
import io
import re
import typing as t
from pathlib import Path

import counting_guest
import flow as flow_module
import pycdlib
import pytest
from confined_flow import INSTANCES, Confined
from counting_guest import ticks
from kernel_way import ComputeHost


@pytest.mark.always
@pytest.mark.parametrize("drive", ["iso9660", "vfat"])
def test_a_guest_boots(compute: ComputeHost, tmp_path: Path, drive: str) -> None:
    flow = Confined([compute], tmp_path, bootflow_config_drive_format=drive)
    flow.begin(config_drive=True)
    assert compute.sh("ls %s/_base/*.raw" % INSTANCES)
    path = "%s/%s/disk.config" % (INSTANCES, flow.row["uuid"])
    assert path in compute.virsh("domblklist", flow.row["uuid"])
    assert compute.sh("blkid -p -o value -s TYPE %s" % path).strip() == drive
    flow.gone()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["qcow2", "raw"])
def test_disks_of_every_kind(compute: ComputeHost, tmp_path: Path, backend: str) -> None:
    """Root, ephemeral disk and swap. tests/storage_py has logical volumes."""
    flow = Confined([compute], tmp_path, bootflow_disk_backend=backend)
    flow.begin(flavor="several")
    assert len(compute.virsh("domblklist", flow.row["uuid"]).splitlines()) == 4  # with the config drive
    flow.operate("reboot", bootflow_reboot_type="HARD")
    flow.runs()
    flow.gone()


@pytest.mark.long
def test_a_guest_with_uefi_keeps_its_variables_beside_its_disks(compute: ComputeHost, tmp_path: Path) -> None:
    """Nothing on its disk boots by UEFI: its firmware says so."""
    flow = Confined([compute], tmp_path)
    flow.variables["bootflow_images"][0]["properties"] = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}
    wanted = {"name": flow.name, "flavor": "firmware", "image": "counting", "networks": [{"network": "plain"}]}
    flow.boot(wanted)
    flow.until(lambda: "BdsDxe" in flow.said(), 300)
    flow.is_confined()
    owner = compute.sh("stat -c %%U %s/%s/disk.nvram" % (INSTANCES, flow.row["uuid"])).strip()
    assert owner == "libvirt-qemu" and "nvram" not in flow.denied()
    flow.operate("stop", bootflow_shutdown_timeout=0)
    flow.operate("start")
    flow.until(lambda: "BdsDxe" in flow.said(), 300)
    flow.is_confined()
    flow.gone()


@pytest.mark.long
def test_its_power_and_its_memory(compute: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute], tmp_path)
    flow.begin()
    flow.operate("pause")
    flow.operate("unpause")
    flow.runs()
    flow.operate("suspend")
    assert (
        flow.row["vm_state"] == "suspended" and flow.row["domain_name"] not in compute.virsh("list", "--name").split()
    )
    before = ticks(flow.said())
    flow.operate("resume")
    flow.runs()
    assert ticks(flow.said())[-1] > before[-1], "its memory was restored"
    flow.operate("stop", bootflow_shutdown_timeout=0)
    flow.operate("start")
    flow.runs()
    flow.operate("reboot", bootflow_reboot_type="HARD")
    flow.runs()
    shown = flow.run("console", bootflow_names=[flow.name])
    assert shown.returncode == 0 and ticks(shown.output.replace("\\n", "\n")), shown.output
    flow.gone()


@pytest.mark.long
def test_other_disks_under_the_same_guest(compute: ComputeHost, tmp_path: Path) -> None:
    """A rescue, a rebuild, and a resize on the same host."""
    flow = Confined([compute], tmp_path, bootflow_allow_resize_to_same_host=True)
    flow.begin(config_drive=True)
    flow.operate("rescue", bootflow_shutdown_timeout=0)
    flow.runs("rescued")
    assert "disk.rescue" in compute.virsh("domblklist", flow.row["uuid"])
    flow.operate("unrescue")
    flow.runs()
    flow.operate("rebuild", bootflow_rebuild_image="other", bootflow_shutdown_timeout=0)
    flow.runs()
    flow.operate("resize", bootflow_resize_flavor="grown", bootflow_shutdown_timeout=0)
    flow.runs("resized")
    flow.operate("confirm_resize")
    flow.runs()
    assert len(compute.virsh("domblklist", flow.row["uuid"]).splitlines()) == 3  # with swap and config drive
    flow.gone()


@pytest.mark.long
def test_images_of_it(compute: ComputeHost, tmp_path: Path) -> None:
    """While it runs and while it is off. The image of the running guest boots, and AppArmor has refused nothing."""
    flow = Confined([compute], tmp_path)
    (tmp_path / "images").mkdir()
    flow.variables["bootflow_image_stores"] = [{"name": "here", "path": str(tmp_path / "images")}]
    flow.begin()
    uuid, begun, denied = flow.row["uuid"], ticks(flow.said())[-1], flow.denied()
    flow.operate("snapshot", bootflow_snapshot_name="live")
    flow.runs()
    seen = [tick for tick in ticks(flow.said()) if tick >= begun]
    assert seen == list(range(begun, seen[-1] + 1)), "it went on counting"
    assert "mirror" not in compute.virsh("dumpxml", uuid) and compute.sh("ls -A %s/_snapshots" % INSTANCES) == ""
    flow.operate("stop", bootflow_shutdown_timeout=0)
    flow.operate("snapshot", bootflow_snapshot_name="off")
    assert flow.denied() == denied
    flow.gone()
    flow.name = "copy"
    flow.begin(image="live")
    flow.gone()


@pytest.mark.long
def test_interfaces_come_and_go(compute: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute], tmp_path)
    flow.begin()
    for state in ("running", "shut off"):
        wanted = {"instance": flow.name, "network": "other"}
        done = flow.run("attach_interface", bootflow_interfaces=[wanted])
        assert done.returncode == 0, done.output + flow.denied()
        assert len(compute.virsh("domiflist", flow.row["uuid"]).splitlines()) == 2
        if state == "running":  # a guest without a system lets go of nothing while it runs
            flow.runs()
            flow.operate("stop", bootflow_shutdown_timeout=0)
        done = flow.run("detach_interface", bootflow_interfaces=[wanted])
        assert done.returncode == 0, done.output + flow.denied()
        assert len(compute.virsh("domiflist", flow.row["uuid"]).splitlines()) == 1
    flow.operate("start")
    flow.runs()
    flow.gone()


@pytest.mark.long
def test_a_guest_moves(compute: ComputeHost, second: ComputeHost, tmp_path: Path) -> None:
    """While it is off, and while it runs: with its disks, to a host where it gets a profile of its own again."""
    flow = Confined([compute, second], tmp_path)
    flow.begin(config_drive=True)
    flow.operate("migrate", bootflow_shutdown_timeout=0)
    flow.runs("resized")
    assert flow.row["host"] == second.name
    flow.operate("revert_resize")
    flow.runs()
    assert flow.row["host"] == compute.name
    flow.operate("migrate", bootflow_shutdown_timeout=0)
    flow.operate("confirm_resize")
    flow.runs()
    before = ticks(flow.said())[-1]
    flow.operate("live_migrate")
    flow.runs()
    assert flow.row["host"] == compute.name and ticks(flow.said())[-1] > before, "it went on counting"
    flow.gone()


@pytest.mark.long
def test_a_guest_leaves_a_dead_host(compute: ComputeHost, second: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute, second], tmp_path)
    flow.begin()
    compute.virsh("destroy", flow.row["uuid"])  # its power fails
    done = flow.run("host", bootflow_host=[compute.name], bootflow_host_state="forced_down")
    assert done.returncode == 0, done.output
    done = flow.run("evacuate", bootflow_host=[compute.name])
    assert done.returncode == 0, done.output + flow.denied()
    assert flow.row["host"] == second.name
    flow.runs()
    assert flow.run("host", bootflow_host=[compute.name], bootflow_host_state="up").returncode == 0
    done = flow.run("audit")
    assert done.returncode == 0, done.output + flow.denied()
    flow.gone()


@pytest.mark.long
def test_a_deleted_guest_is_restored(compute: ComputeHost, tmp_path: Path) -> None:
    flow = Confined([compute], tmp_path)
    flow.begin()
    flow.operate("delete", bootflow_reclaim_instance_interval=3600)
    assert (
        flow.row["vm_state"] == "soft-delete" and flow.row["domain_name"] not in compute.virsh("list", "--name").split()
    )
    flow.operate("restore")
    flow.runs()
    flow.gone()
    assert not flow.denied()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["qcow2", "raw"])
def test_a_guest_boots_from_an_iso_image(compute: ComputeHost, tmp_path: Path, backend: str) -> None:
    """El Torito has the BIOS load the counting guest. It cannot write to its disc, and says so."""
    flow = Confined([compute], tmp_path, bootflow_disk_backend=backend)
    iso, path = pycdlib.PyCdlib(), tmp_path / "counting.iso"
    iso.new()
    sector = counting_guest.boot_sector().ljust(2048, b"\0")
    iso.add_fp(io.BytesIO(sector), len(sector), "/BOOT.;1")
    iso.add_eltorito("/BOOT.;1", bootcatfile="/BOOT.CAT;1", boot_load_size=4)
    iso.write(str(path))
    iso.close()
    checksum = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    flow.variables["bootflow_images"].append(
        {"name": "disc", "path": str(path), "checksum": checksum, "disk_format": "iso"}
    )
    flow.begin(image="disc")
    assert re.search(
        r"^ *file +cdrom +\S+ +\S+/disk$", compute.virsh("domblklist", "--details", flow.row["uuid"]), re.MULTILINE
    )
    flow.operate("reboot", bootflow_reboot_type="HARD")
    flow.runs()
    flow.gone()
    assert not flow.denied()


DHCP = {
    "name": "served",
    "source": "bf-served",
    "manage": True,
    "forward": "open",
    "subnets": [
        {
            "cidr": "10.81.0.0/24",
            "enable_dhcp": True,
            "allocation_pools": [{"start": "10.81.0.10", "end": "10.81.0.12"}],
        }
    ],
}
# The profile only complains as Debian has it (apparmor-profiles).
SERVED = "sed 's/(complain,/(/; s/ flags=(complain)//' /etc/apparmor.d/usr.sbin.dnsmasq | apparmor_parser --replace"


class Linux(Confined):
    """The same with a guest that has a system, and an address by DHCP.

    :arg image: options of scripts/build-guest-image. With --ssh it has QEMU's agent, and takes minutes to unpack what it has.
    """

    def __init__(self, computes: t.Sequence[ComputeHost], folder: Path, *image: str, **variables: t.Any):
        super().__init__(computes, folder, **variables)
        file = flow_module.image_file(flow_module.build_guest_image(*image))
        properties = {"hw_qemu_guest_agent": "yes", "os_admin_user": "debian"}
        self.variables["bootflow_images"].append(
            {"name": "linux", **file, "disk_format": "qcow2", "properties": properties}
        )
        self.variables["bootflow_flavors"].append({"name": "linux", "vcpus": 1, "memory_mb": 256, "root_gb": 1})
        self.variables["bootflow_networks"].append(DHCP)
        for compute in computes:
            compute.sh(SERVED)

    def begin(self, **fields: t.Any) -> None:
        wanted = {"flavor": "linux", "image": "linux", "networks": [{"network": "served"}], "config_drive": True}
        self.boot({"name": self.name, **wanted, **fields}, bootflow_hosts=[next(iter(self.computes))])
        self.until(lambda: "BOOTFLOW-GUEST-READY" in self.said(), 1200)
        self.is_confined()


@pytest.mark.long
def test_an_address_by_dhcp(compute: ComputeHost, tmp_path: Path) -> None:
    """dnsmasq has its profile, which is enforced."""
    flow = Linux([compute], tmp_path)
    flow.begin()
    (address,) = flow.query("SELECT ip_address FROM ip_allocations")
    assert "BOOTFLOW-GUEST-DHCP address=%s " % address["ip_address"] in flow.said(), flow.said() + flow.denied()
    pid = compute.sh("cat /run/libvirt/network/bf-served.pid").strip()
    assert compute.sh("cat /proc/%s/attr/current" % pid).strip("\0\n") == "dnsmasq (enforce)"
    assert address["ip_address"] in compute.virsh("net-dhcp-leases", "bf-served")
    flow.gone()
    assert address["ip_address"] not in compute.virsh("net-dumpxml", "bf-served")
    assert not flow.denied()
