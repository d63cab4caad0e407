# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""domain, instance_cleanup, virtual_network and compute_node_info against a real libvirtd with real (tiny) guests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from xml.etree import ElementTree

import private_libvirt
import pytest
import tiny_guest
from host_python import ModuleRunner

IMAGE_ID = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"


def guest(n):
    return "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2b%02x" % n


@pytest.fixture(scope="module")
def libvirt(tmp_path_factory):
    with private_libvirt.PrivateLibvirt(tmp_path_factory.mktemp("libvirt")) as host:
        yield host


@pytest.fixture
def host(libvirt, tmp_path):
    host = Host(libvirt, libvirt.make_folder(tmp_path.name))
    yield host
    for uuid in libvirt.run("virsh", "-q", "list", "--all", "--uuid").split():
        libvirt.run("virsh", "destroy", uuid, check=False)
        libvirt.run("virsh", "undefine", "--nvram", "--managed-save", uuid, check=False)


class Host:
    def __init__(self, libvirt, folder):
        self.libvirt = libvirt
        self.path = str(folder / "instances")
        self.modules = ModuleRunner(str(folder / "library"), libvirt.prefix)
        self.tmp = folder

    def make_disk(self, n, words="TINY-GUEST hello", **options):
        """The instance's disk through the real module; its path."""
        source = str(self.tmp / ("guest%d.raw" % n))
        tiny_guest.raw_image(source, words)
        if options.get("power_off"):
            with open(source, "r+b") as file:
                file.write(tiny_guest.boot_sector(words, power_off=True))
        with open(source, "rb") as file:
            checksum = hashlib.sha256(file.read()).hexdigest()
        image = {"id": "image-%d" % n, "url": "file://" + source, "checksum": checksum, "disk_format": "raw"}
        disk = {"name": "disk", "kind": "image", "image_id": "image-%d" % n, "size_gb": 1}
        answer = self.modules(
            "instance_disks", instances_path=self.path, images=[image], instances=[{"uuid": guest(n), "disks": [disk]}]
        )
        assert answer["outcomes"][guest(n)]["error"] is None, answer
        return answer["outcomes"][guest(n)]["disks"][0]["path"]

    def log(self, n):
        return os.path.join(self.path, guest(n), "console.log")

    def wanted(self, n, disk=None, description="", name=None, **more):
        name = name or "tiny-%d" % n
        disk = disk or os.path.join(self.path, guest(n), "disk")
        os.makedirs(os.path.dirname(self.log(n)), exist_ok=True)
        xml = tiny_guest.domain_xml(guest(n), name, disk, log=self.log(n), description=description)
        return dict({"uuid": guest(n), "name": name, "xml": xml}, **more)

    def domains(self, *wanted, check=False, diff=False):
        return self.modules("domain", check=check, diff=diff, domains=list(wanted), instances_path=self.path)

    def cleanup(self, *uuids, check=False):
        return self.modules(
            "instance_cleanup", check=check, instances_path=self.path, instances=[{"uuid": u} for u in uuids]
        )

    def virsh(self, *argv):
        return self.libvirt.run("virsh", "-q", *argv)


def test_a_defined_guest_says_where_its_devices_are(host):
    host.make_disk(1)
    assert "devices" not in host.domains(host.wanted(1, state="defined"), check=True)["outcomes"][guest(1)]
    for defined in (True, False):
        outcome = host.domains(host.wanted(1, state="defined"))["outcomes"][guest(1)]
        assert (outcome["defined"], outcome["started"], outcome["power_state"]) == (defined, False, 4)
        (disk,) = outcome["devices"]
        text = host.virsh("dumpxml", "--inactive", guest(1))
        assert (disk["type"], disk["name"], disk["bus"]) == ("disk", "vda", "pci")
        assert "slot='0x%s'" % disk["address"][8:10] in text
    assert host.domains(host.wanted(1))["outcomes"][guest(1)]["started"]


def test_all_parts_of_guests_in_one_task(host):
    """Of three guests one has no image on the host, and one a network that is not there: these get no part after that."""
    source = str(host.tmp / "all.raw")
    tiny_guest.raw_image(source, "TINY-GUEST all")
    with open(source, "rb") as file:
        checksum = hashlib.sha256(file.read()).hexdigest()
    image = {"id": "image-all", "url": "file://" + source, "checksum": checksum, "disk_format": "raw"}
    disk = {"name": "disk", "kind": "image", "image_id": "image-all", "size_gb": 1}
    options = {
        "instances_path": host.path,
        "images": [image, {**image, "id": "image-none", "checksum": "0" * 64}],
        "instances": [
            {"uuid": guest(1), "disks": [disk]},
            {"uuid": guest(2), "disks": [{**disk, "image_id": "image-none"}]},
            {"uuid": guest(3), "disks": [disk]},
        ],
        "drives": [
            {"uuid": guest(n), "path": os.path.join(host.path, guest(n), "disk.config"), "files": {"a": "aGVsbG8="}}
            for n in (1, 2, 3)
        ],
        "domains": [host.wanted(n) for n in (1, 2, 3)],
        "networks": [{"name": "none", "type": "bridge", "source": "not-there"}],
        "networks_of": {guest(1): [], guest(3): ["none"]},
        "fetch": False,
    }
    parts = host.modules("instance_build", **options)["parts"]
    assert parts["disks"]["missing_images"] == ["image-all", "image-none"], "nothing is fetched"
    assert set(parts["disks"]["outcomes"]) == {guest(1), guest(2)} and not parts["domains"]["outcomes"]

    host.modules("instance_disks", instances_path=host.path, images=[image])  # now it is there
    planned = host.modules("instance_build", check=True, **options)
    assert planned["changed"] and not os.path.exists(options["drives"][0]["path"])
    answer = host.modules("instance_build", **options)
    parts = answer["parts"]
    assert answer["changed"] and parts["networks"]["outcomes"]["none"]["error"]["code"]
    assert parts["disks"]["outcomes"][guest(2)]["pending"] == ["image-none"]
    assert [set(parts[part]["outcomes"]) for part in ("drives", "domains")] == [{guest(1)}] * 2
    assert parts["domains"]["outcomes"][guest(1)]["power_state"] == 1
    assert all(part["seconds"] >= 0 for part in parts.values())
    assert host.virsh("list", "--uuid").split() == [guest(1)]
    assert os.path.isfile(options["drives"][0]["path"]) and not os.path.exists(options["drives"][2]["path"])

    again = host.modules("instance_build", **options)
    assert not again["changed"] and not again["parts"]["domains"]["outcomes"][guest(1)]["changed"]


def test_a_guest_from_nothing_to_nothing(host):
    host.make_disk(1)
    console = {"pattern": r"TINY-GUEST \w+", "timeout": 30}

    planned = host.domains(host.wanted(1), check=True, diff=True)
    assert planned["changed"] and planned["outcomes"][guest(1)]["power_state"] == 0
    assert "<name>tiny-1</name>" in planned["diff"][0]["after"] and planned["diff"][0]["before"] == ""
    assert host.virsh("list", "--all", "--name") == ""

    first = host.domains(host.wanted(1, wait_console=console))["outcomes"][guest(1)]
    assert first["error"] is None and first["changed"] and first["defined"] and first["started"]
    assert (first["power_state"], first["console_match"]) == (1, "TINY-GUEST hello")
    assert host.virsh("domstate", guest(1)) == "running" and 0 < first["seconds"] < 30

    for check in (True, False):
        again = host.domains(host.wanted(1, wait_console=console), check=check)
        assert not again["changed"] and again["outcomes"][guest(1)]["power_state"] == 1, again

    planned = host.cleanup(guest(1), check=True)
    assert planned["changed"] and host.virsh("domstate", guest(1)) == "running"
    gone = host.cleanup(guest(1))["outcomes"][guest(1)]
    assert gone["error"] is None and gone["removed"] == planned["outcomes"][guest(1)]["removed"]
    assert "running domain tiny-1" in gone["removed"] and os.path.join(host.path, guest(1), "disk") in gone["removed"]
    assert host.virsh("list", "--all", "--name") == "" and not os.path.exists(os.path.join(host.path, guest(1)))
    assert os.listdir(os.path.join(host.path, "locks")) == []
    assert not host.cleanup(guest(1))["changed"]


def test_states(host):
    host.make_disk(1)
    steps = [
        ("defined", {"defined": True, "started": False, "power_state": 4, "changed": True}),
        ("defined", {"defined": False, "started": False, "power_state": 4, "changed": False}),
        ("paused", {"defined": False, "started": True, "power_state": 3, "changed": True}),
        ("running", {"started": False, "resumed": True, "power_state": 1, "changed": True}),
        ("paused", {"started": False, "power_state": 1, "changed": False}),
        ("defined", {"started": False, "power_state": 1, "changed": False}),
    ]
    for state, expected in steps:
        result = host.domains(host.wanted(1, state=state))["outcomes"][guest(1)]
        assert result["error"] is None and {k: result[k] for k in expected} == expected, (state, result)


def test_another_definition_of_a_running_guest(host):
    pytest.importorskip("ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.compare")
    host.make_disk(1)
    host.domains(host.wanted(1, description="one"))
    more = host.wanted(1)
    more["xml"] = more["xml"].replace("<vcpu>1</vcpu>", "<vcpu>2</vcpu>")
    for check in (True, False):
        result = host.domains(more, check=check, diff=True)
        assert result["changed"] and result["outcomes"][guest(1)]["started"] is False
        assert "<vcpu placement" in result["diff"][0]["before"]
    assert host.virsh("domstate", guest(1)) == "running" and "<vcpu placement='static'>1" in host.virsh(
        "dumpxml", guest(1)
    )
    assert "<vcpu placement='static'>2" in host.virsh("dumpxml", "--inactive", guest(1))
    assert not host.domains(more)["changed"]


def test_a_running_guest_that_somebody_undefined_restarts(host):
    """libvirt forgets it with its guest, which loses its power for the restart."""
    host.make_disk(1)
    host.domains(host.wanted(1))
    host.virsh("undefine", guest(1))
    outcome = host.domains(host.wanted(1, restart=True))["outcomes"][guest(1)]
    assert (outcome["error"], outcome["started"], outcome["differences"]) == (None, True, ["not persistent"])
    assert guest(1) in host.virsh("list", "--persistent", "--uuid")
    again = host.domains(host.wanted(1))["outcomes"][guest(1)]
    assert (again["changed"], again["differences"]) == (False, [])


def test_a_lost_domain_is_defined_only_where_its_disks_are(host):
    """One without them would pass for the instance, whose disks may be on another host."""
    disk = host.make_disk(1)
    again = host.wanted(1, restart=True, keep_disks=True)
    os.rename(disk, disk + ".away")
    for check in (True, False):
        problem = host.domains(again, check=check)["outcomes"][guest(1)]["error"]
        assert problem["code"] == "Conflict" and disk in problem["message"]
        assert guest(1) not in host.virsh("list", "--all", "--uuid")
    os.rename(disk + ".away", disk)
    outcome = host.domains(again)["outcomes"][guest(1)]
    assert (outcome["error"], outcome["started"]) == (None, True)


def test_one_failing_does_not_fail_the_others(host):
    for n in (1, 2):
        host.make_disk(n)
    no_disk = host.wanted(3, disk="/nonexistent/disk")
    bad_xml = dict(host.wanted(4), xml="<domain")
    other_uuid = dict(host.wanted(5), xml=host.wanted(6)["xml"])
    same_name = host.wanted(2, name="tiny-1")
    entity = dict(
        host.wanted(7),
        xml='<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + host.wanted(7)["xml"].replace("tiny-7<", "&x;<"),
    )
    invalid = dict(host.wanted(8), xml=host.wanted(8)["xml"].replace("<vcpu>1</vcpu>", "<vcpu>many</vcpu>"))
    host.domains(host.wanted(1))
    answer = host.domains(host.wanted(1), same_name, no_disk, bad_xml, other_uuid, entity, invalid)
    results = answer["outcomes"]
    assert results[guest(1)]["error"] is None
    codes = {n: results[guest(n)]["error"]["code"] for n in (2, 3, 4, 5, 7, 8)}
    assert codes == {
        2: "InstanceExists",
        3: "LibvirtError",
        4: "InvalidInput",
        5: "InvalidInput",
        7: "InvalidInput",
        8: "LibvirtError",
    }
    assert "/nonexistent/disk" in results[guest(3)]["error"]["message"] and results[guest(3)]["error"]["retryable"]
    assert results[guest(3)]["changed"] and not results[guest(4)]["changed"]
    for n, text in ((3, "/nonexistent/disk"), (8, "<vcpu>many</vcpu>")):
        path = os.path.join(host.path, "_refused", guest(n) + ".xml")
        assert path in results[guest(n)]["error"]["remedy"]
        with open(path) as file:
            assert text in file.read()
    assert host.cleanup(guest(3))["outcomes"][guest(3)]["removed"][0] == "definition of domain tiny-3"


def test_many_at_once(host):
    for n in range(6):
        host.make_disk(n, words="TINY-GUEST number %d" % n)
    wanted = [host.wanted(n, wait_console={"pattern": "number [0-9]+$", "timeout": 60}) for n in range(6)]
    results = host.domains(*wanted)["outcomes"]
    assert {n: results[guest(n)]["console_match"] for n in range(6)} == {
        n: "TINY-GUEST number %d" % n for n in range(6)
    }
    gone = host.cleanup(*[guest(n) for n in range(6)])
    assert all(result["changed"] and not result["error"] for result in gone["outcomes"].values())


def test_processes_at_once_start_one_guest(host):
    host.make_disk(1)
    args = {"domains": [host.wanted(1)]}
    answers = [host.modules.result(p) for p in [host.modules.start("domain", **args) for _n in range(3)]]
    assert [a["outcomes"][guest(1)]["error"] for a in answers] == [None] * 3
    gone = [
        host.modules.start("instance_cleanup", instances_path=host.path, instances=[{"uuid": guest(1)}])
        for _n in range(3)
    ]
    assert [a["outcomes"][guest(1)]["error"] for a in map(host.modules.result, gone)] == [None] * 3
    assert host.virsh("list", "--all", "--name") == "" and not os.path.exists(os.path.join(host.path, guest(1)))


def test_words_that_do_not_come(host):
    host.make_disk(1)
    result = host.domains(host.wanted(1, wait_console={"pattern": "never", "timeout": 1}))["outcomes"][guest(1)]
    assert result["error"]["code"] == "WaitTimeout" and "/never/ on the console" in result["error"]["message"]
    assert result["changed"]


def test_words_of_an_earlier_run_do_not_count(host):
    host.make_disk(1)
    os.makedirs(os.path.dirname(host.log(1)), exist_ok=True)
    with open(host.log(1), "w") as file:
        file.write("OLD-WORDS\n" * 10)
    result = host.domains(host.wanted(1, wait_console={"pattern": "OLD-WORDS|TINY", "timeout": 30}))["outcomes"][
        guest(1)
    ]
    assert result["console_match"] == "TINY-GUEST hello"


def test_a_guest_that_ends_at_once(host):
    host.make_disk(1, power_off=True)
    wanted = host.wanted(1, wait_console={"pattern": "never", "timeout": 20})
    wanted["xml"] = (
        wanted["xml"]
        .replace("<domain type", "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0' type")
        .replace(
            "</domain>",
            "<qemu:commandline><qemu:arg value='-device'/><qemu:arg value='isa-debug-exit,iobase=0xf4'/></qemu:commandline></domain>",
        )
    )
    result = host.domains(wanted)["outcomes"][guest(1)]
    assert result["error"]["code"] == "LibvirtError" and "ended" in result["error"]["message"]


def test_address_and_agent(host):
    host.make_disk(1)
    answers = host.domains(host.wanted(1, wait_address={"address": "127.0.0.1", "timeout": 5}))
    assert answers["outcomes"][guest(1)]["error"] is None
    for wait, words in (
        ({"wait_address": {"address": "127.0.0.1", "port": 1, "timeout": 0.5}}, "connection to port 1 of 127.0.0.1"),
        ({"wait_agent": 0.5}, "guest agent"),
    ):
        error = host.domains(host.wanted(1, **wait))["outcomes"][guest(1)]["error"]
        assert error["code"] == "WaitTimeout" and words in error["message"]
    error = host.domains(host.wanted(1, wait_address={"address": "-c1 localhost"}))["outcomes"][guest(1)]["error"]
    assert error["code"] == "InvalidInput"


# --- clean-up stays inside its folder --------------------------------------------------------------------------------


@pytest.mark.parametrize("uuid", ["..", "", ".", "_base", "/etc", guest(1) + "/..", guest(1).replace("-", ""), "*"])
def test_cleanup_of_what_is_no_uuid(host, uuid):
    host.make_disk(1)
    before = sorted(os.walk(host.path))
    result = host.cleanup(uuid)["outcomes"][uuid]
    assert result["error"]["code"] == "InvalidInput" and sorted(os.walk(host.path)) == before


@pytest.mark.parametrize("path", ["/", "relative", "/var/../etc", ""])
def test_instances_path_that_is_not_acceptable(host, path):
    results = host.modules("instance_cleanup", instances_path=path, instances=[{"uuid": guest(1)}], check=True)
    # Ansible makes a relative path absolute itself
    assert (
        path == "relative"
        or "results" not in results
        or results["outcomes"][guest(1)]["error"]["code"] == "InvalidInput"
    )


def test_cleanup_follows_no_link(host):
    precious = host.tmp / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    os.makedirs(os.path.join(host.path, guest(1)))
    os.symlink(str(precious), os.path.join(host.path, guest(1), "inside"))
    os.symlink(str(precious), os.path.join(host.path, guest(2)))
    os.link(str(precious / "file"), os.path.join(host.path, guest(1), "disk"))
    for n in (1, 2):
        assert host.cleanup(guest(n))["outcomes"][guest(n)]["changed"]
        assert not os.path.lexists(os.path.join(host.path, guest(n)))
    assert (precious / "file").read_text() == "mine"


def test_cleanup_refuses_a_mount(host):
    inside = os.path.join(host.path, guest(1), "mnt")
    os.makedirs(inside)
    host.libvirt.run("mount", "-t", "tmpfs", "precious", inside)
    host.libvirt.run("touch", os.path.join(inside, "file"))
    try:
        error = host.cleanup(guest(1))["outcomes"][guest(1)]["error"]
        assert error["code"] == "InvalidInput" and "mount point" in error["message"]
        assert host.libvirt.run("ls", inside) == "file"
    finally:
        host.libvirt.run("umount", inside)
    assert host.cleanup(guest(1))["outcomes"][guest(1)]["changed"]


def test_cleanup_leaves_a_neighbour_of_the_same_name(host):
    """Only the UUID tells which domain goes."""
    host.make_disk(1)
    host.domains(host.wanted(1, name="web"))
    answer = host.modules("instance_cleanup", instances_path=host.path, instances=[{"uuid": guest(2), "name": "web"}])
    assert not answer["changed"] and host.virsh("domstate", "web") == "running"


@pytest.mark.parametrize("left", ["nothing", "disk", "defined", "running without a folder", "paused", "saved"])
def test_cleanup_from_any_half_way_point(host, left):
    if left != "nothing":
        host.make_disk(1)
    if left in ("defined", "paused"):
        host.domains(host.wanted(1, state=left))
    if left in ("running without a folder", "saved"):
        host.domains(host.wanted(1))
    if left == "nothing":
        shutil.rmtree(host.path, ignore_errors=True)
    if left == "running without a folder":
        shutil.rmtree(os.path.join(host.path, guest(1)))
    if left == "saved":
        host.virsh("managedsave", guest(1))
    result = host.cleanup(guest(1))["outcomes"][guest(1)]
    assert result["error"] is None and result["changed"] == (left != "nothing")
    assert host.virsh("list", "--all", "--name") == "" and not os.path.exists(os.path.join(host.path, guest(1)))
    assert host.libvirt.run("ls", "/var/lib/libvirt/qemu/save") == ""
    assert not host.cleanup(guest(1))["changed"]


def test_cleanup_removes_uefi_variables(host):
    node = host.modules("compute_node_info", instances_path=host.path, virt_type="qemu")["compute_node"]
    assert node["uefi"], "install the package ovmf"
    host.make_disk(1)
    wanted = host.wanted(1, state="paused")
    wanted["xml"] = wanted["xml"].replace(
        "<os><type arch='x86_64' machine='pc'>", "<os firmware='efi'><type arch='x86_64' machine='q35'>"
    )
    assert host.domains(wanted)["outcomes"][guest(1)]["error"] is None
    assert host.libvirt.run("ls", "/var/lib/libvirt/qemu/nvram") != ""
    assert host.cleanup(guest(1))["outcomes"][guest(1)]["error"] is None
    assert host.libvirt.run("ls", "/var/lib/libvirt/qemu/nvram") == ""


def test_uefi_variables_of_an_earlier_version(host):
    """They are where libvirt chose. A hard reboot keeps them, and they come into the folder of an instance that leaves."""
    host.make_disk(1)
    bios, uefi = "<os><type arch='x86_64' machine='pc'>", "<os firmware='efi'><type arch='x86_64' machine='q35'>"
    wanted = host.wanted(1)
    own = os.path.join(host.path, guest(1), "disk.nvram")
    old = {**wanted, "xml": wanted["xml"].replace(bios, uefi)}
    new = {**wanted, "xml": old["xml"].replace("</type></os>", "</type><nvram>%s</nvram></os>" % own)}
    assert host.domains(old)["outcomes"][guest(1)]["error"] is None
    there = host.libvirt.run("sh", "-c", "ls /var/lib/libvirt/qemu/nvram/*")
    host.virsh("destroy", guest(1))
    marker = "printf marker | dd of=%s bs=1 seek=540000 conv=notrunc status=none"
    host.libvirt.run("sh", "-c", marker % there)

    rebooted = host.domains({**new, "restart": True, "keep_disks": True})["outcomes"][guest(1)]
    assert rebooted["error"] is None and rebooted["power_state"] == 1
    assert not os.path.exists(own) and host.libvirt.run("grep", "-c", "marker", there) == "1"
    owner = host.libvirt.run("stat", "-c", "%U:%G", there)
    assert owner.startswith("libvirt-qemu:")

    host.virsh("destroy", guest(1))
    host.virsh("undefine", "--keep-nvram", guest(1))
    assert host.domains({**old, "state": "defined"})["outcomes"][guest(1)]["error"] is None
    leaves = {"uuid": guest(1), "leaves": True}
    for _time in range(2):
        left = host.modules("domain_power", domains=[leaves], state="shutdown", instances_path=host.path)
        assert left["outcomes"][guest(1)]["error"] is None, left
        assert host.libvirt.run("ls", "/var/lib/libvirt/qemu/nvram") == ""
        assert host.libvirt.run("grep", "-c", "marker", own) == "1"
        assert host.libvirt.run("stat", "-c", "%U:%G %a", own) == owner + " 600"
        assert ElementTree.fromstring(host.virsh("dumpxml", "--inactive", guest(1))).findtext("os/nvram") == own
    host.virsh("start", guest(1))
    assert host.libvirt.run("grep", "-c", "marker", own) == "1"
    assert host.libvirt.run("ls", "/var/lib/libvirt/qemu/nvram") == ""


# --- the host --------------------------------------------------------------------------------------------------------


def test_compute_node_info(host):
    host.make_disk(1)
    host.domains(host.wanted(1))
    host.domains(host.wanted(2, state="defined"))
    for cached in (False, True):
        answer = host.modules("compute_node_info", instances_path=host.path)
        node = answer["compute_node"]
        assert not answer["changed"]
        with (
            open(os.path.join(host.path, "_probe", "kvm.json"))
            if os.path.exists("/dev/kvm")
            else open(os.devnull) as file
        ):
            assert not cached or not os.path.exists("/dev/kvm") or json.load(file)["virt_type"] == node["virt_type"]
    nodeinfo = dict(line.split(":", 1) for line in host.virsh("nodeinfo").splitlines())
    assert node["hypervisor_hostname"] == host.libvirt.name == host.virsh("hostname")
    assert node["vcpus"] == int(nodeinfo["CPU(s)"]) == os.cpu_count()
    assert node["memory_mb"] == int(nodeinfo["Memory size"].split()[0]) // 1024
    assert 0 < node["memory_mb_used"] and node["vcpus_used"] == 1 and node["running_domains"] == 1
    stat = os.statvfs(host.path)
    assert node["local_gb"] == stat.f_blocks * stat.f_frsize // 1024**3
    # the running guest's overlay and the missing disk of the other: 1 GiB that is not written yet
    assert abs(node["disk_available_least"] - (stat.f_bavail * stat.f_frsize // 1024**3 - 1)) <= 1
    version = host.libvirt.run("qemu-system-x86_64", "--version").split()[3].split("(")[0].split(".")
    assert node["hypervisor_version"] == int(version[0]) * 1000000 + int(version[1]) * 1000 + int(version[2])
    assert node["hypervisor_type"] == "QEMU" and node["virt_type"] in ("kvm", "qemu")
    assert ("kvm" in [row[1] for row in node["supported_instances"]]) == (node["virt_type"] == "kvm")
    assert ["x86_64", "qemu", "hvm"] in node["supported_instances"] and "pc" in node["machine_types"]["x86_64"]
    assert os.access(node["emulators"]["x86_64"], os.X_OK)
    assert node["cpu_info"]["arch"] == os.uname().machine and node["cpu_info"]["features"] and node["cpu_info"]["model"]
    # What the filters of hw:maxphysaddr_bits compare, and what bootflow_cpu_model and bootflow_cpu_model_extra_flags may name.
    capabilities = ElementTree.fromstring(host.virsh("capabilities"))
    (bits,) = capabilities.iterfind("host/cpu/maxphysaddr")
    assert node["cpu_info"]["maxphysaddr"] == {"mode": bits.get("mode"), "bits": int(bits.get("bits"))}
    assert {"qemu64", "EPYC"} <= set(node["cpu_models"])
    flags = host.modules("compute_node_info", instances_path=host.path, cpu_flags=["+PCID", "-vmx", "no<such", "-nor"])
    assert flags["compute_node"]["unknown_cpu_flags"] == ["no<such", "nor"]
    assert sorted(c for cell in node["numa_topology"]["cells"] for c in cell["cpus"]) == list(range(os.cpu_count()))
    states = {d["uuid"]: d["power_state"] for d in node["domains"]}
    assert states == {guest(1): 1, guest(2): 4}


def test_disk_available_least_counts_what_may_still_grow(host):
    free = host.modules("compute_node_info", instances_path=host.path, virt_type="qemu")["compute_node"][
        "disk_available_least"
    ]
    disk = str(host.tmp / "large.qcow2")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "5000G"], check=True)
    host.domains(host.wanted(1, disk=disk, state="defined"))
    less = host.modules("compute_node_info", instances_path=host.path, virt_type="qemu")["compute_node"][
        "disk_available_least"
    ]
    assert abs((free - less) - 5000) <= 1 and less < 0


def test_check_mode_keeps_no_answer(host):
    host.modules("compute_node_info", instances_path=host.path, check=True)
    assert not os.path.exists(host.path)


def test_virt_type_settings(host):
    for setting, listed in (("qemu", True), ("kvm", os.path.exists("/dev/kvm"))):
        answer = host.modules("compute_node_info", instances_path=host.path, virt_type=setting)
        if listed:
            assert answer["compute_node"]["virt_type"] == setting
        else:
            assert answer["failed"] and answer["error_code"] == "HypervisorUnavailable"


def reported_networks(host):
    """Of each libvirt network whether it is active and starts with the host, and the Linux bridges."""
    node = host.modules("compute_node_info", instances_path=host.path, virt_type="qemu")["compute_node"]
    libvirt = {n["name"]: (n["active"], n["autostart"]) for n in node["networks"]["network"]}
    return libvirt, {n["name"] for n in node["networks"]["bridge"]}


def test_networks(host):
    wanted = [
        {
            "name": "private",
            "source": "bf-private",
            "manage": True,
            "mtu": 1400,
            "subnets": [{"cidr": "10.9.0.0/24", "gateway_ip": "10.9.0.1"}],
        },
        {"name": "alone", "source": "bf-alone", "manage": True, "bridge": "bf-alone0"},
        {"name": "missing"},
        {"name": "hostbridge", "type": "bridge", "source": "bf-alone0"},
        {"name": "nobridge", "type": "bridge", "source": "lo"},
        {"name": "evil", "type": "bridge", "source": "../lo"},
        {
            "name": "wrong",
            "source": "bf-wrong",
            "manage": True,
            "subnets": [{"cidr": "10.9.1.0/24", "gateway_ip": "10.9.2.1"}],
        },
    ]
    plan = host.modules("virtual_network", check=True, networks=wanted)
    assert (
        plan["changed"] and plan["outcomes"]["private"]["changed"] and host.virsh("net-list", "--all", "--name") == ""
    )
    made = host.modules("virtual_network", diff=True, networks=wanted)
    results = made["outcomes"]
    assert {n: (r.get("error") or {}).get("code") for n, r in results.items()} == {
        "private": None, "alone": None, "missing": "HostLacksNetwork", "hostbridge": None, "nobridge": "HostLacksNetwork",
        "evil": "InvalidInput",
        "wrong": "InvalidInput",
    }  # fmt: skip
    assert results["nobridge"]["error"]["message"] == "Linux bridge lo does not exist on " + host.libvirt.name
    assert results["missing"]["error"]["message"] == "libvirt network missing does not exist on " + host.libvirt.name
    assert results["private"]["started"] and results["private"]["bridge"].startswith("virbr") and len(made["diff"]) == 2
    assert "inet 10.9.0.1/24" in host.libvirt.run("ip", "addr", "show", results["private"]["bridge"])
    assert "mtu 1400" in host.libvirt.run("ip", "link", "show", results["private"]["bridge"])
    assert not host.modules("virtual_network", networks=wanted)["changed"]
    # libvirt compares with the routes of its host, and only where a network begins exactly there.
    host.libvirt.run("ip", "route", "add", "10.9.4.0/24", "dev", results["private"]["bridge"])
    ranges = {"same": "10.9.0.0/24", "larger": "10.9.0.0/16", "routed": "10.9.4.0/24"}
    clashing = [
        {
            "name": name,
            "source": "bf-" + name,
            "manage": True,
            "subnets": [{"cidr": cidr, "gateway_ip": cidr.partition("/")[0][:-1] + "1"}],
        }
        for name, cidr in ranges.items()
    ]
    refused = host.modules("virtual_network", networks=clashing)["outcomes"]
    assert {r["error"]["code"] for r in refused.values()} == {"NetworkRangeInUse"}, refused
    assert "libvirt network bf-private has 10.9.0.0/24 on virbr" in refused["same"]["error"]["message"]
    assert "the host has a route to it on virbr" in refused["routed"]["error"]["message"]
    assert host.virsh("net-list", "--all", "--name").split() == ["bf-alone", "bf-private"]
    host.virsh("net-destroy", "bf-private")
    stopped = host.modules("virtual_network", networks=[{"name": "bf-private"}])["outcomes"]["bf-private"]
    assert stopped["error"]["code"] == "HostLacksNetwork" and "not active" in stopped["error"]["message"]
    networks, bridges = reported_networks(host)
    assert networks == {"bf-alone": (True, True), "bf-private": (False, True)}, "the scheduler knows it as well"
    assert "bf-alone0" in bridges and results["private"]["bridge"] not in bridges and "lo" not in bridges
    again = host.modules("virtual_network", networks=wanted[:1])["outcomes"]["private"]
    assert again["started"] and not again["defined"]
    for name in ("bf-private", "bf-alone"):
        host.virsh("net-destroy", name)
        host.virsh("net-undefine", name)


TAP = "<interface type='%s'><mac address='52:54:00:00:00:%02x'/><source %s='%s'/><model type='virtio'/></interface></devices>"


def test_guests_whose_network_was_restarted(host):
    """libvirt leaves their taps without a bridge until its daemon restarts; the guests stay running and reach nobody."""
    network = {"name": "blue", "source": "bf-blue", "manage": True, "bridge": "bf-blue0"}
    host.modules("virtual_network", networks=[network])
    host.libvirt.run("ip", "link", "add", "bf-br", "type", "bridge")
    wanted = host.wanted(1)
    for number, words in enumerate((("network", "network", "bf-blue"), ("bridge", "bridge", "bf-br"))):
        tap = TAP % (words[0], number, *words[1:])
        wanted["xml"] = wanted["xml"].replace("</devices>", tap)
    host.make_disk(1)
    try:
        assert host.domains(wanted)["outcomes"][guest(1)]["error"] is None

        def unplugged():
            found = host.modules("compute_node_info", instances_path=host.path, list_reservations=True)["dhcp"]
            assert found["error"] is None
            return {(tap["uuid"], tap["source"], tap["bridge"]) for tap in found["unplugged"]}

        assert unplugged() == set()
        host.virsh("net-destroy", "bf-blue")
        host.libvirt.run("ip", "link", "delete", "bf-br")
        assert unplugged() == {(guest(1), "bf-blue", ""), (guest(1), "bf-br", "bf-br")}
        host.virsh("net-start", "bf-blue")
        assert (guest(1), "bf-blue", "bf-blue0") in unplugged(), "libvirt would do it itself"
        host.virsh("net-destroy", "bf-blue")
        again = host.modules("virtual_network", networks=[network])["outcomes"]["blue"]
        assert again["started"] and again["error"] is None
        assert unplugged() == {(guest(1), "bf-br", "bf-br")}
        assert host.virsh("domstate", guest(1)) == "running"
        host.virsh("net-destroy", "bf-blue")
        host.virsh("net-undefine", "bf-blue")
        again = host.modules("virtual_network", networks=[network])["outcomes"]["blue"]
        assert again["defined"] and unplugged() == {(guest(1), "bf-br", "bf-br")}
    finally:
        host.cleanup(guest(1))
        host.libvirt.run("ip", "link", "delete", "bf-br", check=False)
        host.virsh("net-destroy", "bf-blue")
        host.virsh("net-undefine", "bf-blue")


def test_libvirtd_is_down(host):
    host.make_disk(1)
    host.libvirt.stop_libvirtd()
    try:
        for module, args in (
            ("compute_node_info", {"instances_path": host.path}),
            ("virtual_network", {"networks": [{"name": "x"}]}),
            ("domain", {"domains": [host.wanted(1)]}),
            ("instance_cleanup", {"instances_path": host.path, "instances": [{"uuid": guest(1)}]}),
        ):
            answer = host.modules(module, **args)
            assert answer["failed"] and answer["error_code"] == "HypervisorUnavailable", answer
            assert (
                (answer["status"], answer["retryable"]) == (503, True)
                and host.libvirt.name in answer["msg"]
                and answer["remedy"]
            )
        assert os.path.exists(os.path.join(host.path, guest(1), "disk"))
    finally:
        host.libvirt.start_libvirtd()


def test_a_guest_does_not_run_before_its_interfaces_are_up(host):
    """Its CPUs stay stopped; without the interface it never runs, unless that is not fatal."""
    host.make_disk(1)
    host.libvirt.run("ip", "tuntap", "add", "dev", "bf-late", "mode", "tap")
    try:
        wanted = host.wanted(1)
        wanted["xml"] = wanted["xml"].replace(
            "</devices>",
            "<interface type='ethernet'><target dev='bf-late' managed='no'/><model type='virtio'/></interface></devices>",
        )
        console = {"pattern": r"TINY-GUEST \w+", "timeout": 30}
        missing = host.domains(dict(wanted, vif_plugging_timeout=1, wait_console=console))["outcomes"][guest(1)]
        assert (
            missing["error"]["code"] == "VirtualInterfaceCreateException" and "bf-late" in missing["error"]["message"]
        )
        assert host.virsh("domstate", guest(1)) == "paused"
        with open(host.log(1), encoding="utf-8", errors="replace") as log:
            assert "TINY-GUEST" not in log.read()

        host.libvirt.run("ip", "link", "set", "bf-late", "up")
        there = host.domains(dict(wanted, vif_plugging_timeout=5, wait_console=console))["outcomes"][guest(1)]
        assert there["error"] is None and there["resumed"] and there["vifs_missing"] == [], there
        assert "TINY-GUEST" in there["console_match"]

        host.cleanup(guest(1))
        host.make_disk(1)
        host.libvirt.run("ip", "link", "set", "bf-late", "down")
        wanted = dict(host.wanted(1), xml=wanted["xml"])
        without = host.domains(
            dict(wanted, vif_plugging_timeout=0.5, vif_plugging_is_fatal=False, wait_console=console)
        )
        assert without["outcomes"][guest(1)]["vifs_missing"] == ["bf-late"]
        assert host.virsh("domstate", guest(1)) == "running"
    finally:
        host.cleanup(guest(1))
        host.libvirt.run("ip", "tuntap", "del", "dev", "bf-late", "mode", "tap", check=False)
