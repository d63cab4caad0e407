# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of guests in a sysfs as kernels have it, what a host made of their content, and the settings that prevent it.

tests/storage_py/test_guest_content.py has the same on a host with a kernel of its own.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.answer import check as check_answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import guest_content, guest_rules
from ansible_collections.bootflow.compute.plugins.modules import storage_backend_info

ONE, TWO = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


class Sys:
    """A folder like /sys."""

    def __init__(self, root):
        self.root = root

    def write(self, path, text=""):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)

    def block(self, name, at="devices/virtual/block", holders=(), **files):
        folder = "%s/%s" % (at, name)
        (self.root / folder / "holders").mkdir(parents=True)
        for each in holders:
            (self.root / folder / "holders" / each).mkdir()
        for path, text in files.items():
            self.write("%s/%s" % (folder, path.replace("__", "/")), text)
        link = self.root / "class/block" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / folder)
        return self

    def scsi(self, name, session, target, **more):
        self.write("class/iscsi_session/session%d/targetname" % session, target)
        device = "devices/platform/host3/session%d/target3:0:0/3:0:0:0" % session
        self.block(name, device + "/block", **more)
        (self.root / device / "block" / name / "device").symlink_to(self.root / device)
        return self

    def dm(self, number, name, uuid, holders=()):
        return self.block("dm-%d" % number, holders=holders, dm__name=name, dm__uuid=uuid)

    def partition(self, of, name, holders=()):
        parent = os.path.relpath((self.root / "class/block" / of).resolve(), self.root)
        return self.block(name, parent, holders=holders, partition="1")


@pytest.fixture
def host(tmp_path):
    return Sys(tmp_path)


def blocks(host):
    return guest_content.Blocks(str(host.root))


def test_disks_of_volumes_are_found_by_their_targets_whatever_their_prefix_and_case(host):
    host.scsi("sda", 1, "iqn.2010-10.org.openstack:volume-" + ONE)
    host.scsi("sdb", 2, "iqn.2001-05.example:ledger-0a1b2c3d.Volume-" + TWO.upper())
    host.scsi("sdc", 3, "iqn.2001-05.example:backup").block("vda")
    host.partition("sda", "sda1").partition("sdc", "sdc1")
    assert blocks(host).of_guests() == {
        "sda": "volume " + ONE,
        "sda1": "volume " + ONE,
        "sdb": "volume " + TWO,
    }


def test_maps_over_a_disk_are_disks_of_the_guest_and_other_devices_are_made_by_the_host(host):
    host.scsi("sda", 1, "iqn.a:volume-" + ONE, holders=["dm-0"]).dm(0, "mpatha", "mpath-36001", ["dm-1", "md127"])
    host.dm(1, "mpatha-part1", "part1-mpath-36001", ["dm-2"]).dm(2, "guest-root", "LVM-abc").block("md127")
    found = blocks(host)
    assert sorted(found.of_guests()) == ["dm-0", "dm-1", "sda"]
    assert found.activated() == ["LVM guest/root on volume " + ONE, "md md127 on volume " + ONE]
    assert [(h.kind, h.label) for h in found.holders(["sda"])] == [
        ("LVM", "guest/root"),
        ("kpartx", "mpatha-part1"),
        ("md", "md127"),
    ]


def test_what_is_on_another_is_released_first(host):
    host.scsi("sda", 1, "iqn.a:volume-" + ONE)
    host.partition("sda", "sda1", ["md1"]).partition("sda", "sda2", ["dm-5"])
    host.block("md1", holders=["dm-3"]).dm(3, "g-pool_tdata", "LVM-1", ["dm-4"]).dm(4, "g-pool", "LVM-2", ["dm-5"])
    host.dm(5, "g-thin", "LVM-3")
    order = [h.name for h in blocks(host).holders(["sda"])]
    assert order == ["dm-5", "dm-4", "dm-3", "md1"]


def test_logical_volumes_with_disks_of_guests_are_known_by_their_names(host):
    names = [
        "cinder--volumes-volume--" + ONE.replace("-", "--"),
        "v-_snapshot--" + ONE.replace("-", "--"),
        "v-%s_disk" % TWO.replace("-", "--"),
        "v-%s_disk.eph0" % TWO.replace("-", "--"),
    ]
    others = [
        "v-root",
        "v-volume--" + ONE.replace("-", "--") + "-real",
        "v-volume--" + ONE.replace("-", "--") + "_rimage_0",
        "v-cinder--pool_tdata",
    ]
    for number, name in enumerate(names + others):
        host.dm(number, name, "LVM-x%d" % number)
    host.dm(20, "volume-" + ONE, "CRYPT-x")
    assert sorted(blocks(host).of_guests()) == ["dm-%d" % n for n in range(len(names))]
    assert blocks(host).of_guests()["dm-0"] == "logical volume cinder-volumes/volume-" + ONE
    assert blocks(host).of_guests(local=False) == {}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("vg-lv", ("vg", "lv")),
        ("my--vg-my--lv", ("my-vg", "my-lv")),
        ("vg---lv", ("vg-", "lv")),
        ("vg-lv-real", ("vg", "")),
    ],
)
def test_names_of_the_device_mapper_are_taken_apart_as_lvm_does(name, parts):
    assert guest_content.split_dm_name(name) == parts


def test_rules_name_further_disks_and_refuse_what_is_no_path():
    text = guest_rules.rules(["/dev/disk/by-id/nvme-eui.0025385b71b01234", "/dev/sdq"])
    assert 'SYMLINK=="disk/by-id/nvme-eui.0025385b71b01234", ENV{BOOTFLOW_GUEST}="1"' in text
    assert 'KERNEL=="sdq", ENV{BOOTFLOW_GUEST}="1"' in text
    for path in ("sda", "/dev/../etc", '/dev/sda", RUN+="x', "/dev/disk/*", "/etc/passwd"):
        with pytest.raises(InvalidInput):
            guest_rules.rules([path])


BY_PATH = "disk/by-path/ip-192.0.2.1:3260-iscsi-iqn.2010-10.org.openstack:volume-" + ONE + "-lun-0"


def test_rules_leave_no_link_by_a_name_that_a_guest_chose(tmp_path):
    """The program of the rule, as udev runs it: with all links of the disk in DEVLINKS, two letters for each dollar."""
    (program,) = re.findall(r"PROGRAM==\"/bin/sh -c '([^']*DEVLINKS[^']*)'\"", guest_rules.rules())
    stay = [
        BY_PATH,
        "disk/by-path/ip-fd00::1:3260-iscsi-iqn.2010-10.org.openstack:volume-%s-lun-0-part1" % ONE,
        "disk/by-id/dm-uuid-mpath-36001405abc",
        "disk/by-id/wwn-0x6001405",
        "disk/by-diskseq/12",
        "mapper/cinder--volumes-volume--" + ONE.replace("-", "--"),
        "cinder-volumes/volume-" + ONE,
        "of-an-administrator",
    ]
    go = [
        "disk/by-uuid/2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11",
        r"disk/by-label/my\x20root",
        "disk/by-partuuid/b9254b22-01",
        "disk/by-partlabel/root",
        "disk/by-path/pci-0000:00:1f.2-part/by-label/root",
        "gpt-auto-root",
        "gpt-auto-root-luks",
    ]
    # A file that a pattern in a label would name.
    (tmp_path / "disk").mkdir()
    links = " ".join("/dev/" + link for pair in zip(stay, [*go, "disk/by-label/*"], strict=True) for link in pair)
    argv = ["/bin/sh", "-c", program.replace("$$", "$")]
    done = subprocess.run(argv, env={"DEVLINKS": links}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == stay
    assert (
        ", ".join('SYMLINK%s"%%c{%d}"' % ("+=" if n else "=", n + 1) for n in range(len(stay))) in guest_rules.rules()
    )


def test_links_of_guests_come_after_those_of_the_host():
    """Where the program did not run: a host's own file system keeps its name."""
    lines = guest_rules.rules().splitlines()
    (paths,) = [line for line in lines if 'link_priority=-100"' in line]
    (maps,) = [line for line in lines if 'link_priority=-99"' in line]
    end = lines.index('ENV{BOOTFLOW_GUEST}!="1", GOTO="guests_end"')
    assert paths.startswith('ENV{DM_NAME}!="?*"') and maps.startswith('ENV{DM_NAME}=="?*"')
    assert lines.index(paths) > end and lines.index('ENV{ID_PART_GPT_AUTO_ROOT}=""') > end


def test_a_storage_host_reports_what_is_active_and_what_is_missing(host, tmp_path, monkeypatch):
    """The module as its host runs it: a guest's volume group is active on a volume, and there are no rules for udev."""

    class Ended(Exception):
        pass

    def module(argument_spec, supports_check_mode):
        params = {name: argument.get("default") for name, argument in argument_spec.items()}

        def end(**result):
            raise Ended(result)

        return types.SimpleNamespace(params={**params, "backends": []}, exit_json=end, fail_json=end)

    host.dm(0, "cinder--volumes-volume--" + ONE.replace("-", "--"), "LVM-a", ["dm-1"]).dm(1, "guest-root", "LVM-b")
    monkeypatch.setattr(guest_rules, "RULES", str(tmp_path / "rules"))
    monkeypatch.setattr(guest_rules, "UDEV", str(tmp_path))
    monkeypatch.setattr(guest_rules, "has_lvm", lambda: False)
    monkeypatch.setattr(guest_rules, "Blocks", lambda: blocks(host))
    monkeypatch.setattr(storage_backend_info, "AnsibleModule", module)
    with pytest.raises(Ended) as ended:
        storage_backend_info.main()
    (answer,) = ended.value.args
    assert answer["guest_content"] == [
        "LVM guest/root on logical volume cinder-volumes/volume-%s is active" % ONE,
        "udev has no rules for disks of guests, or older ones (%s)" % (tmp_path / "rules"),
    ]
    check_answer("storage_backend_info", "s1", answer)


def test_udev_accepts_the_rules(tmp_path):
    file = tmp_path / "61-bootflow-guests.rules"
    file.write_text(guest_rules.rules(["/dev/disk/by-id/nvme-eui.0025385b71b01234", "/dev/sdq"]))
    udevadm = shutil.which("udevadm", path="/usr/bin:/bin:/usr/sbin:/sbin")
    words = subprocess.run([udevadm, "--help"], capture_output=True, text=True, check=True).stdout if udevadm else ""
    if "verify" not in words:
        pytest.skip("udevadm verify is of systemd 254 and newer")
    done = subprocess.run([udevadm, "verify", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_disks_that_are_there_get_the_rules(host, monkeypatch, tmp_path):
    """Paths before the maps over them, and nothing of the host."""
    host.scsi("sda", 1, "iqn.2010-10.org.openstack:volume-" + ONE, holders=["dm-4"])
    host.block("sdb").block("sdq").partition("sdq", "sdq1").dm(4, "volume", "mpath-3600")
    calls = tmp_path / "calls"
    (tmp_path / "udevadm").write_text('#!/bin/sh\necho "$*" >>%s\n' % calls)
    (tmp_path / "udevadm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + ":/usr/bin:/bin")
    monkeypatch.setattr(guest_rules, "RULES", str(tmp_path / "rules.d" / "rules"))
    monkeypatch.setattr(guest_rules, "UDEV", str(tmp_path))
    monkeypatch.setattr(guest_rules, "has_lvm", lambda: False)
    monkeypatch.setattr(guest_rules, "Blocks", lambda: blocks(host))
    assert guest_rules.ensure(["/dev/sdq"], check_mode=True)["changed"] and not calls.exists()
    assert guest_rules.ensure(["/dev/sdq"])["changed"] and not guest_rules.ensure(["/dev/sdq"])["changed"]
    folder = "%s/class/block/" % blocks(host).sys
    trigger = "trigger --action=change --settle "
    assert calls.read_text().splitlines() == [
        "control --reload",
        trigger + " ".join(folder + name for name in ("sda", "sdq", "sdq1")),
        trigger + folder + "dm-4",
    ]


def test_rules_of_an_older_release_are_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(guest_rules, "RULES", str(tmp_path / "rules"))
    monkeypatch.setattr(guest_rules, "UDEV", str(tmp_path))
    monkeypatch.setattr(guest_rules, "has_lvm", lambda: False)
    (tmp_path / "rules").write_text(re.sub(r"PROGRAM[^\n]*DEVLINKS", "", guest_rules.rules()))
    assert len(guest_rules.missing(True)) == 1
    (tmp_path / "rules").write_text(guest_rules.rules(["/dev/sdq"]))
    assert guest_rules.missing(True) == []


def test_rules_hide_logical_volumes_of_cached_images_and_no_others():
    (names,) = re.findall(r'ENV\{DM_LV_NAME\}=="([^"]*image-[^"]*)"', guest_rules.rules())
    hidden = [
        name
        for name in (
            "image-" + "0a" * 32,
            "image-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11-0f0f0f",
            "image-a",
            "image-archive",
        )
        if any(fnmatch.fnmatchcase(name, each) for each in names.split("|"))
    ]
    assert hidden == ["image-" + "0a" * 32, "image-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11-0f0f0f"]


@pytest.mark.parametrize(
    ("config", "local", "uses"),
    [
        ("devices {\n\tuse_devicesfile = 1\n}\n", "", True),
        ("\t# use_devicesfile = 1\n", "", False),
        ("use_devicesfile = 0\n", "devices { use_devicesfile=1 }\n", True),
        ("use_devicesfile = 1\n", "devices/use_devicesfile = 0\n", False),
    ],
)
def test_whether_lvm_uses_its_file_of_devices_is_read_as_lvm_does(monkeypatch, tmp_path, config, local, uses):
    (tmp_path / "lvm.conf").write_text(config)
    (tmp_path / "lvmlocal.conf").write_text(local)
    monkeypatch.setattr(guest_rules, "LVM_CONFIG", str(tmp_path / "lvm.conf"))
    monkeypatch.setattr(guest_rules, "LVM_LOCAL", str(tmp_path / "lvmlocal.conf"))
    monkeypatch.setattr(guest_rules, "LVM_DEVICES", str(tmp_path / "system.devices"))
    assert guest_rules.uses_devices_file() is False  # without the file LVM looks at all disks
    (tmp_path / "system.devices").write_text("")
    assert guest_rules.uses_devices_file() is uses
