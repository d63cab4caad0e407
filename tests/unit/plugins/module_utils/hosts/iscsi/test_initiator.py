# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    CommandFailed,
    InvalidInput,
    MissingLibrary,
    VolumePathNotRemoved,
    WaitTimeout,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import devices as iscsi_devices
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import initiator as iscsi_initiator
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import multipath, records
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import TIMED_OUT, Completed

ID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2d01"
OTHER_ID = "9b1f3d5c-0f7a-4c39-8f0e-5f0d2c1b7a22"
IQN = "iqn.2010-10.org.openstack:volume-" + ID
SECRET = "Secret0123456789"
PORTALS = ["192.0.2.10:3260", "192.0.2.11:3260"]


def wish(**changes):
    base = {"volume_id": ID, "iqn": IQN, "lun": 1, "portals": PORTALS[:1], "chap_user": "u", "chap_secret": SECRET}
    return dict(base, **changes)


# ---- words ----------------------------------------------------------------------------------------------------------------


def test_sessions_are_read_as_iscsiadm_writes_them():
    text = (
        "tcp: [1] 192.0.2.10:3260,1 %s (non-flash)\n"
        "tcp: [12] [2001:db8::1]:3260,-1 iqn.2004-10.com.example:x\n"
        "iser: [3] 192.0.2.11:3261,1034 eui.0123456789abcdef (non-flash)\n"
        "iscsiadm: No active sessions.\n" % IQN
    )
    assert [(s.number, s.portal, s.group, s.iqn) for s in iscsi_initiator.parse_sessions(text)] == [
        (1, "192.0.2.10:3260", "1", IQN),
        (12, "[2001:db8::1]:3260", "-1", "iqn.2004-10.com.example:x"),
        (3, "192.0.2.11:3261", "1034", "eui.0123456789abcdef"),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"volume_id": "x"}, "UUID"),
        ({"iqn": "iqn.2010-10.org.openstack:../../etc"}, "qualified name"),
        ({"iqn": "--logout"}, "qualified name"),
        ({"lun": -1}, "LUN"),
        ({"lun": True}, "LUN"),
        ({"lun": 16384}, "LUN"),
        ({"portals": []}, "portal"),
        ({"portals": PORTALS[:1] * 2}, "each listed once"),
        ({"portals": ["storage"]}, "portal"),
        ({"chap_user": None}, "not both"),
        ({"chap_secret": "a\nnode.name = x"}, "cannot be used"),
        ({"state": "there"}, "state"),
    ],
)
def test_what_is_no_connection_is_refused(changes, words):
    with pytest.raises(InvalidInput, match=words) as raised:
        iscsi_initiator.connection_of(wish(**changes))
    assert raised.value.status == 400


_names = st.text("abcdefghij.[]0", min_size=1, max_size=12)
_values = st.text("abcdefghij0123456789-_", min_size=1, max_size=12)


@given(st.dictionaries(_names, _values), st.dictionaries(_names, st.none() | _values))
def test_a_record_has_what_was_set_and_keeps_the_rest(there, settings):
    text = "# BEGIN RECORD 2.1.8\n%s# END RECORD\n" % "".join("%s = %s\n" % pair for pair in there.items())
    done = records.with_settings(text, settings)
    merged = dict(there, **settings)
    assert records.settings_of(done) == {key: value for key, value in merged.items() if value is not None}
    assert done.startswith("# BEGIN RECORD") and done.endswith("# END RECORD\n")


def test_of_a_failed_login_the_reason_is_told():
    text = (
        "Logging in to [iface: default...]\n"
        "iscsiadm: Could not login to [iface: default, target: x, portal: y].\n"
        "iscsiadm: initiator reported error (8 - connection timed out)\n"
        "iscsiadm: Could not log into all portals\n"
    )
    assert iscsi_initiator.login_problem(text) == "initiator reported error (8 - connection timed out)"
    assert (
        iscsi_initiator.login_problem("iscsiadm: Could not log into all portals\n") == "Could not log into all portals"
    )
    assert iscsi_initiator.login_problem("") == ""


def test_the_database_is_locked_as_iscsiadm_locks_it(tmp_path):
    path = str(tmp_path / "iscsi" / "lock")
    with records.database_lock(path):
        assert os.stat(path + ".write").st_nlink == 2
        with pytest.raises(WaitTimeout), records.database_lock(path, timeout=0.1):
            pass
    assert os.listdir(tmp_path / "iscsi") == ["lock"]


# ---- a host in a folder -----------------------------------------------------------------------------------------------------


class Host:
    """iscsiadm, the kernel's sysfs and udev's links."""

    def __init__(self, folder):
        self.folder = folder
        self.sys, self.dev, self.proc = folder / "sys", folder / "dev", folder / "proc"
        self.nodes = folder / "etc" / "iscsi" / "nodes"
        for path in (self.nodes, self.sys / "block", self.dev, self.proc / "self"):
            path.mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text("1 0 8:99 / / rw - ext4 /dev/root rw\n")
        self.sessions = {}
        self.kernel = threading.Lock()
        self.next = 1
        self.luns = [1]
        self.secret = SECRET
        self.down = set()
        self.silent = set()
        self.argvs = []
        self.slept = []
        self.late = 0
        self.keeps = False

    # multipathd: test_multipath has one

    def program(self, name, package):
        raise MissingLibrary(name=name, package=package, where="host")

    def multipath(self, name, words):
        raise AssertionError("%s %s" % (name, words))

    # iscsiadm

    def run(self, argv, timeout=None, check=True):
        self.argvs.append(list(argv))
        name, words = os.path.basename(argv[0]), argv[1:]
        if name in ("multipath", "multipathd"):
            return self.multipath(name, words)
        if name != "iscsiadm":
            return Completed(0, "", "")
        if not (self.folder / "lock").is_dir():  # two of them would both make it, and one of them fail
            return Completed(6, "", "iscsiadm: Could not open /run/lock/iscsi: File exists\n")
        if words == ["-m", "session"]:
            lines = ["tcp: [%d] %s,1 %s (non-flash)\n" % (n, where, iqn) for n, (where, iqn) in self.sessions.items()]
            return Completed(0, "".join(lines), "") if lines else Completed(21, "", "iscsiadm: No active sessions.\n")
        iqn, where, what = words[3], words[5], words[6:]
        record = self.nodes / iqn / where.rpartition(":")[0].strip("[]").__add__("," + where.rpartition(":")[2])
        if what == ["-o", "new"]:
            record.parent.mkdir(exist_ok=True)
            record.write_text("# BEGIN RECORD\nnode.name = %s\nnode.startup = manual\n# END RECORD\n" % iqn)
        elif what == ["-o", "delete"]:
            if not record.is_file() or not record.read_text():
                return Completed(21, "", "iscsiadm: No records found\n")
            record.unlink()
        elif what == ["--login"]:
            with self.kernel:
                return self.login(iqn, where, record)
        elif what == ["--logout"]:
            mine = [n for n, session in self.sessions.items() if session == (where, iqn)]
            if not mine:
                return Completed(21, "", "iscsiadm: No matching sessions found\n")
            for number in mine:
                del self.sessions[number]
        return Completed(0, "", "")

    def login(self, iqn, where, record):
        if (where, iqn) in self.sessions.values():
            return Completed(15, "", "iscsiadm: default: 1 session requested, but 1 already present.\n")
        if where in self.down:
            return Completed(8, "", "iscsiadm: initiator reported error (8 - connection timed out)\n")
        if records.settings_of(record.read_text()).get("node.session.auth.password") != self.secret:
            return Completed(
                24, "", "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization)\n"
            )
        number, self.next = self.next, self.next + 1
        self.sessions[number] = (where, iqn)
        self.session_folder(number)
        if not self.late and where not in self.silent:
            for lun in self.luns:
                self.appear(number, lun)
        return Completed(0, "", "")

    # the kernel

    def session_folder(self, number):
        real = self.sys / "devices" / "platform" / ("host%d" % number) / ("session%d" % number)
        (real / ("target%d:0:0" % number)).mkdir(parents=True)
        inner = real / "iscsi_session" / ("session%d" % number)
        inner.mkdir(parents=True)
        (inner / "state").write_text("LOGGED_IN\n")
        (inner / "device").symlink_to(real)
        (self.sys / "class" / "iscsi_session").mkdir(parents=True, exist_ok=True)
        (self.sys / "class" / "iscsi_session" / ("session%d" % number)).symlink_to(inner)
        (self.sys / "class" / "scsi_host" / ("host%d" % number)).mkdir(parents=True)
        return real

    def appear(self, number, lun):
        name = "sd%s" % chr(ord("a") + len(list((self.sys / "block").glob("sd*"))))
        real = self.sys / "devices" / "platform" / ("host%d" % number) / ("session%d" % number)
        scsi = real / ("target%d:0:0" % number) / ("%d:0:0:%d" % (number, lun))
        block = scsi / "block" / name
        (block / "holders").mkdir(parents=True)
        (block / "size").write_text("2048\n")
        (block / "dev").write_text("8:%d\n" % (16 * (ord(name[2]) - ord("a"))))
        (block / "device").symlink_to(scsi)
        (scsi / "vpd_pg80").write_bytes(b"\x00\x80\x00\x04SN01")
        (self.sys / "block" / name).symlink_to(block)
        where, iqn = self.sessions[number]
        link = self.dev / ("disk/by-path/ip-%s-iscsi-%s-lun-%d" % (where, iqn, lun))
        link.parent.mkdir(parents=True, exist_ok=True)
        (self.dev / name).write_text("")
        link.symlink_to(self.dev / name)
        return name

    def vanish(self, path):
        """What the kernel does when ``delete`` is written to."""
        name = re.search(r"/block/(\w+)/device/delete", path).group(1)
        if self.keeps:
            return
        block = os.path.realpath(self.sys / "block" / name)
        os.unlink(self.sys / "block" / name)
        os.rename(os.path.dirname(block), os.path.dirname(block) + ".gone")
        os.unlink(self.dev / name)
        for link in (self.dev / "disk" / "by-path").iterdir():
            if not link.exists():
                link.unlink()

    def write(self, path, text, timeout=60):
        if path.endswith("/delete"):
            self.vanish(path)
        elif path.endswith("/scan"):
            self.argvs.append(["scan", text])
            if self.sessions[int(re.search(r"/host(\d+)/", path).group(1))][0] in self.silent:
                raise WaitTimeout(what="the end of the scan", seconds=timeout, host="compute1")
            self.late -= 1
            if self.late == 0:
                for number in self.sessions:
                    self.appear(number, int(text.split(" ")[2]))
        elif path.endswith("/device/rescan"):
            name = re.search(r"/block/(\w+)/", path).group(1)
            (self.sys / "block" / name / "size").write_text("4096\n")

    def initiator(self):
        devices = iscsi_devices.Devices(str(self.sys), str(self.proc), str(self.dev), timeout=0.2)
        lock = str(self.folder / "lock" / "lock")
        return iscsi_initiator.Initiator(devices, records.NodeRecords([str(self.nodes)], lock), 3, self.slept.append)

    def make(self, *wishes, check_mode=False):
        return iscsi_initiator.make_connections(wishes, self.initiator(), 1, check_mode)

    def one(self, check_mode=False, **changes):
        args = wish(**changes)
        return self.make(args, check_mode=check_mode)["outcomes"][args["volume_id"]]

    def commands(self, word):
        return [argv for argv in self.argvs if word in argv]


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = Host(tmp_path)
    by_path_names = iscsi_initiator.by_path_names
    monkeypatch.setattr(iscsi_initiator, "run", made.run)
    monkeypatch.setattr(iscsi_devices, "run", made.run)
    monkeypatch.setattr(iscsi_initiator, "program", lambda name, package: "/sbin/" + name)
    monkeypatch.setattr(iscsi_devices, "program", lambda name, package: "/sbin/" + name)
    monkeypatch.setattr(multipath, "run", made.run)
    monkeypatch.setattr(multipath, "program", made.program)
    monkeypatch.setattr(iscsi_devices, "write_sysfs", made.write)
    monkeypatch.setattr(iscsi_initiator, "LOCK_ROOT", str(tmp_path / "run"))
    monkeypatch.setattr(
        iscsi_initiator, "by_path_names", lambda *args: [str(tmp_path) + name for name in by_path_names(*args)]
    )
    return made


def test_it_logs_in_with_chap_and_gives_the_path(host):
    outcome = host.one()
    assert outcome["error"] is None and outcome["changed"] and outcome["changes"] == ["record", "session"]
    assert outcome["path"].endswith("/dev/disk/by-path/ip-192.0.2.10:3260-iscsi-%s-lun-1" % IQN)
    assert outcome["device"] == str(host.dev / "sda") and outcome["size"] == 2048 * 512
    assert outcome["serial"] == "SN01" and outcome["multipath"] == ""
    assert outcome["sessions"] == [{"number": 1, "portal": PORTALS[0], "group": "1"}]
    record = host.nodes / IQN / "192.0.2.10,3260"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    settings = records.settings_of(record.read_text())
    assert settings["node.startup"] == "automatic" and settings["node.name"] == IQN
    assert [settings["node.session.auth." + key] for key in ("authmethod", "username", "password")] == [
        "CHAP",
        "u",
        SECRET,
    ]
    assert SECRET not in json.dumps(host.argvs)
    assert sorted(os.listdir(host.nodes.parent)) == ["nodes"] and os.listdir(host.nodes / IQN) == ["192.0.2.10,3260"]
    assert host.slept == []


class Going:
    """iscsiadm beside another process that removes records: each command does its work, and fails the first times."""

    FAILED = "iscsiadm: Could not execute operation on all records: encountered iSCSI database failure\n"

    def __init__(self, host, times):
        self.host, self.times, self.failed = host, times, {}

    def run(self, argv, timeout=None, check=True):
        done = self.host.run(argv, timeout, check)
        failed = self.failed.setdefault(tuple(argv), 0)
        if argv[1:3] != ["-m", "node"] or failed >= self.times:
            return done
        self.failed[tuple(argv)] += 1
        return Completed(6, "", self.FAILED)


@pytest.mark.parametrize("times", [1, 5])
def test_records_of_other_targets_may_go_while_iscsiadm_looks_at_them(host, monkeypatch, times):
    going = Going(host, times)
    monkeypatch.setattr(iscsi_initiator, "run", going.run)
    outcome = host.one()
    assert outcome["error"] is None and outcome["size"] == 2048 * 512 and len(outcome["sessions"]) == 1
    outcome = host.one(state="disconnected")
    assert outcome["error"] is None and host.sessions == {} and os.listdir(host.nodes / IQN) == []
    assert sorted(argv[7:] for argv in map(list, going.failed) if argv[2] == "node") == [
        ["--login"],
        ["--logout"],
        ["-o", "delete"],
        ["-o", "new"],
    ]
    assert host.slept == [0.2] * 4 * times


def test_a_damaged_database_of_iscsiadm_is_told(host, monkeypatch):
    monkeypatch.setattr(iscsi_initiator, "run", Going(host, 1000).run)
    error = host.one()["error"]
    assert error["code"] == "CommandFailed" and "encountered iSCSI database failure" in error["message"]
    assert len(host.slept) < 100


def test_the_same_again_changes_nothing(host):
    host.one()
    before = (host.nodes / IQN / "192.0.2.10,3260").stat().st_mtime_ns
    outcome = host.make(wish())
    assert not outcome["outcomes"][ID]["changed"] and outcome["before"] == outcome["after"]
    assert len(host.commands("--login")) == 1
    assert (host.nodes / IQN / "192.0.2.10,3260").stat().st_mtime_ns == before


def test_other_credentials_are_in_the_record_for_the_next_login(host):
    host.one()
    outcome = host.one(chap_secret="Another012345678")
    assert outcome["changes"] == ["record"]
    assert "Another012345678" in (host.nodes / IQN / "192.0.2.10,3260").read_text()
    host.one(chap_user=None, chap_secret=None)
    text = (host.nodes / IQN / "192.0.2.10,3260").read_text()
    assert "authmethod = None" in text and "password" not in text


def test_check_mode_tells_and_touches_nothing(host):
    checked = host.make(wish(), check_mode=True)
    assert checked["outcomes"][ID]["changes"] == ["record", "session"]
    assert host.sessions == {} and os.listdir(host.nodes) == [] and not host.commands("--login")
    assert checked["before"][ID]["connected"] is False and checked["after"][ID]["connected"] is True
    host.one()
    gone = host.make(wish(state="disconnected"), check_mode=True)
    assert gone["outcomes"][ID]["changes"] == ["disk", "session", "record"] and host.sessions
    assert gone["after"][ID] == host.make(wish(state="disconnected"))["after"][ID]


def test_a_second_guest_s_disk_is_the_first_s_with_its_session_and_its_record(host):
    first = host.one()
    record = host.nodes / IQN / "192.0.2.10,3260"
    before = record.read_text()
    shared = {"shared": True, "chap_user": None, "chap_secret": None}
    second = host.one(**shared)
    assert not second["changed"] and second["path"] == first["path"] and record.read_text() == before
    host.one(state="disconnected")  # then the host as it is when it was started again, and did not log in yet
    record.parent.mkdir(exist_ok=True)
    record.write_text(before)
    again = host.one(**shared)
    assert again["changes"] == ["session"] and again["error"] is None and record.read_text() == before


def test_a_refused_login_is_told_and_its_record_does_not_stay(host):
    outcome = host.one(chap_secret="Wrong01234567890")
    assert outcome["error"]["code"] == "FailedISCSITargetPortalLogin" and "rejected" in outcome["error"]["message"]
    assert outcome["error"]["retryable"] is False
    assert "Wrong01234567890" not in json.dumps(outcome)
    assert host.commands("delete") and not list(host.nodes.rglob("*3260"))


def test_who_uses_the_map_holds_the_disk(host):
    host.one()
    (host.sys / "block" / "sda" / "holders" / "dm-3").mkdir()
    (host.sys / "block" / "dm-3" / "dm").mkdir(parents=True)
    (host.sys / "block" / "dm-3" / "dm" / "uuid").write_text("mpath-36f4c\n")
    (host.sys / "block" / "dm-3" / "dev").write_text("253:3\n")
    (host.proc / "self" / "mountinfo").write_text("1 0 253:3 / /srv rw - ext4 /dev/mapper/mpatha rw\n")
    outcome = host.one(state="disconnected")
    assert outcome["error"]["code"] == "VolumePathNotRemoved" and "mounted at /srv" in outcome["error"]["message"]


def test_a_disk_that_comes_late_is_scanned_for_with_growing_pauses(host):
    host.late = 3
    assert host.one()["error"] is None
    assert host.slept == [0.3, 1, 4]
    assert host.commands("scan") == [["scan", "- - 1"]] * 3


def test_a_disk_that_does_not_come_is_told(host):
    host.luns = [5]
    outcome = host.one()
    assert outcome["error"]["code"] == "VolumeDeviceNotFound" and "lun-1" in outcome["error"]["message"]
    assert outcome["changed"] and len(host.slept) == 3


def test_a_target_that_answers_no_command_is_told_after_one_scan(host):
    host.silent = set(PORTALS)
    assert host.one()["error"]["code"] == "WaitTimeout" and len(host.commands("scan")) == 1
    # The session stays, and the next run goes on with it.
    host.silent, host.late = set(), 1
    assert host.one()["error"] is None and len(host.commands("--login")) == 1


def test_a_login_that_does_not_end_is_told(host, monkeypatch):
    def run(argv, timeout=None, check=True):
        if argv[-1] == "--login":
            return Completed(TIMED_OUT, "", "killed: not finished after %d s" % timeout)
        return host.run(argv, timeout, check)

    monkeypatch.setattr(iscsi_initiator, "run", run)
    message = host.one()["error"]["message"]
    assert message.endswith(":3260: iscsiadm was killed: not finished after 150 s"), message


# ---- removal ----------------------------------------------------------------------------------------------------------------


def test_a_disk_is_flushed_and_deleted_before_the_logout(host):
    host.one()
    outcome = host.one(state="disconnected")
    assert outcome["error"] is None and outcome["changes"] == ["disk", "session", "record"]
    assert host.sessions == {} and os.listdir(host.sys / "block") == []
    words = [argv[1] if argv[0].endswith("blockdev") else argv[-1] for argv in host.argvs]
    assert words.index("--flushbufs") < words.index("--logout") < words.index("delete")
    assert not list(host.nodes.rglob("*3260"))
    assert not host.one(state="disconnected")["changed"]


def test_the_session_stays_while_the_target_has_another_disk(host):
    host.luns = [1, 2]
    host.one()
    outcome = host.one(state="disconnected")
    assert outcome["changes"] == ["disk"] and len(outcome["sessions"]) == 1
    assert host.sessions and not host.commands("--logout") and list(host.nodes.rglob("*3260"))
    last = host.one(lun=2, state="disconnected")
    assert last["changes"] == ["disk", "session", "record"] and host.sessions == {}


@pytest.mark.parametrize("kind", ["mounted", "partition", "held", "swap"])
def test_what_is_in_use_is_never_taken(host, kind):
    host.one()
    sda = host.sys / "block" / "sda"
    if kind == "mounted":
        (host.proc / "self" / "mountinfo").write_text("1 0 8:0 / /mnt rw - ext4 /dev/sda rw\n")
    elif kind == "partition":
        (sda / "sda1").mkdir()
        (sda / "sda1" / "partition").write_text("1\n")
        (sda / "sda1" / "dev").write_text("8:1\n")
        (host.proc / "self" / "mountinfo").write_text("1 0 8:1 / /mnt rw - ext4 /dev/sda1 rw\n")
    elif kind == "held":
        (sda / "holders" / "dm-7").mkdir()
        (host.sys / "block" / "dm-7" / "dm").mkdir(parents=True)
        (host.sys / "block" / "dm-7" / "dm" / "uuid").write_text("LVM-x\n")
        (host.sys / "block" / "dm-7" / "dm" / "name").write_text("vg-lv\n")
    else:
        (host.proc / "swaps").write_text("Filename Type\n%s partition 1 0 -2\n" % (host.dev / "sda"))
    outcome = host.one(state="disconnected")
    assert outcome["error"]["code"] == "VolumePathNotRemoved" and not outcome["changed"]
    assert host.sessions and "sda" in os.listdir(host.sys / "block") and not host.commands("--flushbufs")


def test_a_process_that_has_the_disk_open_is_named(host, monkeypatch):
    host.one()
    descriptors = host.proc / "4711" / "fd"
    descriptors.mkdir(parents=True)
    (host.proc / "4711" / "comm").write_text("qemu-system-x86\n")
    (descriptors / "9").symlink_to(host.dev / "sda")
    real = os.stat

    class Device:
        st_rdev = os.makedev(8, 0)

    monkeypatch.setattr(os, "stat", lambda path, **kw: Device if str(path).endswith("/fd/9") else real(path, **kw))
    outcome = host.one(state="disconnected")
    assert "sda is open in qemu-system-x86 (process 4711)" in outcome["error"]["message"]
    (host.proc / "4711" / "comm").write_text("(udev-worker)\n")
    assert host.one(state="disconnected")["error"] is None


def test_a_disk_that_will_not_go_keeps_its_session(host):
    host.one()
    host.keeps = True
    outcome = host.one(state="disconnected")
    assert outcome["error"]["code"] == "VolumePathNotRemoved" and outcome["changed"]
    assert host.sessions and not host.commands("--logout")


def test_records_that_discovery_left_go_too(host):
    host.one()
    (host.nodes / IQN / "192.0.2.99,3260").write_text("node.name = %s\nnode.session.auth.password = x\n" % IQN)
    host.one(state="disconnected")
    assert not list(host.nodes.rglob("*3260"))


@pytest.mark.parametrize("left", ["file", "folder"])
@pytest.mark.parametrize("state", ["connected", "disconnected"])
def test_what_a_lost_power_left_of_a_record(host, left, state):
    """iscsiadm sees nothing in an empty file or folder: it goes, or is made anew."""
    record = host.nodes / IQN / PORTALS[0].replace(":", ",")
    record.parent.mkdir()
    if left == "file":
        record.touch()
    else:
        record.mkdir()
    outcome = host.one(state=state)
    assert outcome["error"] is None and outcome["changed"] and "record" in outcome["changes"]
    if state == "disconnected":
        assert not list(host.nodes.iterdir())
    else:
        assert host.sessions and "node.name = %s" % IQN in record.read_text()


def test_a_disk_that_grew_is_asked_for_its_size(host):
    host.one()
    outcome = host.one(state="rescanned")
    assert outcome["changed"] and outcome["size"] == 4096 * 512
    assert not host.one(state="rescanned")["changed"]
    missing = host.one(volume_id=OTHER_ID, iqn="iqn.2004-10.com.example:none", state="rescanned")
    assert missing["error"]["code"] == "VolumeDeviceNotFound"


def test_two_wishes_for_one_volume_are_refused(host):
    with pytest.raises(InvalidInput, match="more than once"):
        host.make(wish(), wish())


def test_one_bad_connection_does_not_fail_the_others(host):
    outcomes = host.make(wish(), wish(volume_id=OTHER_ID, lun=-1))["outcomes"]
    assert outcomes[ID]["error"] is None and outcomes[OTHER_ID]["error"]["status"] == 400


def test_a_session_that_does_not_end_is_an_error(host):
    host.one()
    real = host.run

    def run(argv, timeout=None, check=True):
        return Completed(0, "", "") if "--logout" in argv else real(argv, timeout, check)

    iscsi_initiator.run = run  # the fixture's monkeypatch puts the real one back
    with pytest.raises(VolumePathNotRemoved, match="did not end"):
        host.initiator().disconnect(iscsi_initiator.connection_of(wish()))


def test_what_iscsiadm_says_is_told(host, monkeypatch):
    monkeypatch.setattr(
        iscsi_initiator, "run", lambda *args, **kw: Completed(20, "", "iscsiadm: can not connect to iscsid")
    )
    with pytest.raises(CommandFailed, match="iscsid"):
        host.initiator().sessions(IQN)
