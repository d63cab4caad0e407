# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import Completed

from . import test_initiator
from .test_initiator import ID, IQN, PORTALS, SECRET, Host

WWID = "360014052f4c1c0e6a0f4d8e9f0b0c6f3"
DOWN = PORTALS[1] + ": initiator reported error (8 - connection timed out)"


class MultipathHost(Host):
    """With multipathd, as it is shipped: what it does not know gets no map."""

    def __init__(self, folder):
        super().__init__(folder)
        self.runs = True
        self.known = set()
        self.makes = True
        self.busy = 0
        self.remembered = []
        self.resizes = 1

    @property
    def map(self):
        return self.sys / "block" / "dm-3"

    @property
    def link(self):
        return self.dev / "disk" / "by-id" / ("dm-uuid-mpath-" + WWID)

    def disks(self):
        return sorted(name for name in os.listdir(self.sys / "block") if name.startswith("sd"))

    def program(self, name, package):
        return "/sbin/" + name

    def multipath(self, name, words):
        if name == "multipathd" and not self.runs:
            return Completed(1, "error connecting to multipathd\n", "")
        if words[0] == "-a":
            self.known.add(WWID)
        elif words[0] == "-w":
            self.known.discard(words[1])
        elif words[:2] == ["add", "path"] and self.known and self.makes:
            self.add(words[2])
        elif words[0] == "-f":
            if self.busy:
                self.busy -= 1
                return Completed(1, "", "mpatha: map in use\n")
            self.remove()
        elif words[:2] == ["show", "paths"]:
            return Completed(0, "\n".join(self.remembered or self.disks()), "")
        elif words[:2] == ["del", "path"]:
            self.remembered.remove(words[2])
        elif words[:2] == ["resize", "map"]:
            self.resizes -= 1
            if self.resizes:
                return Completed(1, "timeout\n", "")
            (self.map / "size").write_text((self.sys / "block" / self.disks()[0] / "size").read_text())
        return Completed(0, "ok\n", "")

    def add(self, name):
        (self.map / "dm").mkdir(parents=True, exist_ok=True)
        (self.map / "dm" / "uuid").write_text("mpath-%s\n" % WWID)
        (self.map / "dm" / "name").write_text("mpatha\n")
        (self.map / "size").write_text((self.sys / "block" / name / "size").read_text())
        (self.map / "slaves" / name).mkdir(parents=True)
        (self.sys / "block" / name / "holders" / "dm-3").mkdir()
        self.link.parent.mkdir(parents=True, exist_ok=True)
        self.link.write_text("")

    def remove(self):
        shutil.rmtree(self.map)
        self.link.unlink()
        for name in self.disks():
            if (self.sys / "block" / name / "holders" / "dm-3").exists():
                (self.sys / "block" / name / "holders" / "dm-3").rmdir()

    def lose(self, number):
        """A session's connection is gone; it is kept."""
        inner = self.sys / "class" / "iscsi_session" / ("session%d" % number)
        (inner / "state").write_text("FAILED\n")

    def find(self, number):
        inner = self.sys / "class" / "iscsi_session" / ("session%d" % number)
        (inner / "state").write_text("LOGGED_IN\n")

    def both(self, **changes):
        return self.one(portals=PORTALS, **changes)

    def portals(self):
        return sorted(where for where, iqn in self.sessions.values() if iqn == IQN)


@pytest.fixture(name="host")
def fixture_host(tmp_path, monkeypatch):
    monkeypatch.setattr(test_initiator, "Host", MultipathHost)
    return test_initiator.host.__wrapped__(tmp_path, monkeypatch)


def test_several_portals_are_several_sessions_and_the_map_is_the_path(host):
    outcome = host.both()
    assert outcome["error"] is None and outcome["changes"] == ["map", "record", "session"]
    assert sorted(each["portal"] for each in outcome["sessions"]) == host.portals() == PORTALS
    assert outcome["devices"] == ["/dev/sda", "/dev/sdb"] and host.known == {WWID}
    assert outcome["path"] == outcome["multipath"] == str(host.link)
    assert outcome["warnings"] == outcome["failed_portals"] == []
    calls = len(host.commands("add"))
    again = host.both()
    assert not again["changed"] and again["path"] == outcome["path"] and len(host.commands("add")) == calls


def test_a_map_that_has_no_link_by_its_wwid_is_told_by_its_name(host):
    host.both()
    host.link.unlink()
    (host.dev / "mapper").mkdir()
    (host.dev / "mapper" / "mpatha").write_text("")
    assert host.both()["path"] == str(host.dev / "mapper" / "mpatha")


def test_one_portal_needs_no_map(host):
    outcome = host.one()
    assert outcome["multipath"] == "" and "by-path" in outcome["path"] and outcome["warnings"] == []
    assert not host.commands("-a") and not host.commands("show")


def test_a_portal_that_is_down_is_told_and_comes_into_the_map_later(host):
    host.down = {PORTALS[1]}
    outcome = host.both()
    assert outcome["error"] is None and outcome["path"] == str(host.link) and outcome["devices"] == ["/dev/sda"]
    assert outcome["failed_portals"] == [DOWN] and outcome["warnings"] == ["login failed at portal " + DOWN]
    host.down = set()
    outcome = host.both()
    assert outcome["changes"] == ["session"] and outcome["devices"] == ["/dev/sda", "/dev/sdb"]
    assert sorted(os.listdir(host.map / "slaves")) == ["sda", "sdb"]
    host.both(state="disconnected")
    for down, retryable in ((set(PORTALS), True), ({PORTALS[1]}, True), (set(), False)):
        host.down = down
        error = host.both(chap_secret="Wrong01234567890")["error"]
        assert (error["code"], error["retryable"]) == ("FailedISCSITargetPortalLogin", retryable)
    assert not list(host.nodes.rglob("*3260"))


def test_multipathd_that_makes_no_map_is_told(host):
    host.makes = False
    outcome = host.both()
    assert outcome["error"] is None and "by-path" in outcome["path"] and outcome["multipath"] == ""
    (text,) = outcome["warnings"]
    assert "did not create a map of sda sdb" in text and outcome["path"] in text
    assert 10 <= sum(host.slept) < 12


def test_without_multipathd_one_portal_is_taken(host):
    host.runs = False
    checked = host.both(check_mode=True)
    assert checked["changes"] == ["record", "session"]
    outcome = host.both()
    assert outcome["error"] is None and host.portals() == PORTALS[:1]
    assert outcome["path"].endswith("ip-%s-iscsi-%s-lun-1" % (PORTALS[0], IQN)) and outcome["multipath"] == ""
    assert outcome["warnings"] == [
        "multipathd is not running on this host; only portal %s of 2 is used" % PORTALS[0],
    ]
    shown = host.make(dict(test_initiator.wish(), portals=PORTALS))
    assert not shown["outcomes"][ID]["changed"] and shown["before"] == shown["after"]
    assert shown["before"][ID]["record"] == "as requested"
    assert host.both(state="disconnected")["changes"] == ["disk", "session", "record"]
    assert not host.sessions and not list(host.nodes.rglob("*3260"))


def test_without_multipathd_the_next_portal_is_taken_when_the_first_is_down(host):
    host.runs, host.down = False, {PORTALS[0]}
    outcome = host.both()
    assert outcome["error"] is None and host.portals() == PORTALS[1:]
    assert PORTALS[1] in outcome["path"]
    assert outcome["failed_portals"] == [PORTALS[0] + ": initiator reported error (8 - connection timed out)"]
    assert sorted(path.name for path in host.nodes.rglob("*3260")) == [PORTALS[1].replace(":", ",")]
    host.both(state="disconnected")
    host.down = set(PORTALS)
    failed = host.both()["error"]
    assert failed["code"] == "FailedISCSITargetPortalLogin" and all(where in failed["message"] for where in PORTALS)
    assert not list(host.nodes.rglob("*3260"))


def test_without_multipathd_a_portal_without_the_disk_is_left(host):
    host.runs, host.luns = False, []
    assert host.both()["error"]["code"] == "VolumeDeviceNotFound"
    assert not host.sessions and not list(host.nodes.rglob("*3260"))


def test_a_portal_that_answers_no_command_is_told_and_the_others_are_used(host):
    host.silent = {PORTALS[0]}
    outcome = host.both()
    assert outcome["error"] is None and outcome["path"] == str(host.link) and len(outcome["devices"]) == 1
    assert (
        outcome["warnings"] == ["portal %s does not respond to commands" % PORTALS[0]]
        and len(host.commands("scan")) == 1
    )
    assert host.both(state="disconnected")["error"] is None
    host.runs = False
    outcome = host.both()
    assert outcome["error"] is None and PORTALS[1] in outcome["path"]
    assert [each.partition(": ")[0] for each in outcome["failed_portals"]] == PORTALS[:1]
    assert host.both(state="disconnected")["error"] is None
    host.silent = set(PORTALS)
    assert host.both()["error"]["code"] == "WaitTimeout"


def test_multipathd_that_ended_leaves_its_map_and_all_sessions(host):
    host.both()
    host.runs = False
    host.makes = False
    outcome = host.both()
    assert not outcome["changed"] and outcome["path"] == str(host.link) and host.portals() == PORTALS
    assert host.both(state="disconnected")["error"] is None and not host.map.exists()


def test_a_map_with_a_disk_of_another_volume_is_given_to_nobody(host):
    host.both()
    host.appear(1, 7)
    host.add("sdc")
    outcome = host.both()
    assert outcome["error"]["code"] == "VolumeDeviceNotFound" and "sdc" in outcome["error"]["message"]


def test_the_map_goes_before_its_disks_and_they_before_the_logouts(host):
    host.both()
    assert host.both(state="disconnected")["error"] is None
    words = [" ".join([os.path.basename(argv[0]), *argv[1:]]) for argv in host.argvs]
    flushed = [text for text in words if text.startswith("blockdev")]
    assert flushed == ["blockdev --flushbufs %s" % host.link]
    order = [words.index(text) for text in (flushed[0], "multipath -f mpatha", "multipath -w " + WWID)]
    assert order == sorted(order) and order[-1] < min(i for i, text in enumerate(words) if "--logout" in text)
    assert not host.sessions and not host.known and host.disks() == [] and not host.map.exists()
    assert SECRET not in " ".join(words)


def test_a_map_that_somebody_looks_at_is_tried_again_and_one_that_stays_is_told(host):
    host.both()
    host.busy = 2
    assert host.both(state="disconnected")["error"] is None and not host.map.exists()
    host.both()
    host.busy = 3
    error = host.both(state="disconnected")["error"]
    assert error["code"] == "VolumePathNotRemoved" and "map in use" in error["message"]
    assert host.portals() == PORTALS and host.disks() == ["sda", "sdb"] and host.known == {WWID}


def test_multipathd_is_made_to_forget_what_it_did_not_see_leave(host):
    host.both()
    host.remembered = ["sda", "sdb", "sdx"]
    assert host.both(state="disconnected")["error"] is None
    assert host.remembered == ["sdx"]


# ---- extend ---------------------------------------------------------------------------------------------------------------


def test_the_map_gets_the_new_size(host):
    host.both()
    host.resizes = 3
    outcome = host.both(state="rescanned")
    assert outcome["changes"] == ["size"] and outcome["size"] == 4096 * 512
    assert (host.map / "size").read_text().strip() == "4096"
    assert len(host.commands("reconfigure")) == 1
    assert not host.both(state="rescanned")["changed"]


def test_a_map_that_was_left_small_is_resized_by_the_next_rescan(host):
    host.both()
    host.resizes = -1
    error = host.both(state="rescanned")["error"]
    assert error["code"] == "CommandFailed" and "timeout" in error["message"] and sum(host.slept) >= 120
    host.resizes = 1
    outcome = host.both(state="rescanned")
    assert outcome["changes"] == ["size"] and outcome["size"] == 4096 * 512


def test_nothing_is_resized_while_a_path_is_down(host):
    host.both()
    host.lose(2)
    error = host.both(state="rescanned")["error"]
    assert "All paths need to be up" in error["message"] and error["retryable"]
    assert not host.commands("resize") and 10 < sum(host.slept) < 20
    assert (host.sys / "block" / "sda" / "size").read_text().strip() == "2048"


def test_a_session_that_comes_back_is_waited_for(host, monkeypatch):
    """The target ended it so that the size is read again."""
    host.both()
    for number in (1, 2):
        host.lose(number)
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) in (1, 4):
            host.find((len(slept) + 2) // 3)

    monkeypatch.setattr(host, "slept", types.SimpleNamespace(append=sleep))
    outcome = host.both(state="rescanned")
    assert outcome["error"] is None and outcome["size"] == 4096 * 512 and slept.count(0.2) == 4


def test_a_path_that_kept_the_old_size_keeps_the_map_as_it_is(host, monkeypatch):
    host.both()
    write = host.write
    monkeypatch.setattr(
        test_initiator.iscsi_devices,
        "write_sysfs",
        lambda path, text: write(path, text) if "/sdb/" not in path else None,
    )
    error = host.both(state="rescanned")["error"]
    assert "All paths need to be up" in error["message"] and "sdb" in error["message"]
    assert not host.commands("resize") and (host.map / "size").read_text().strip() == "2048"
