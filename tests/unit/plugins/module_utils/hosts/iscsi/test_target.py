# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import socket
import stat
import sys
import threading
import time
import types

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import CommandFailed, InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import target as targets
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import target_lio as lio
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import target_tgt as tgt
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import Completed

ID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2d01"
OTHER_ID = "9b1f3d5c-0f7a-4c39-8f0e-5f0d2c1b7a22"
IQN = "iqn.2010-10.org.openstack:volume-" + ID
ME = "iqn.2004-10.com.example:compute1"
SECRET = "Secret0123456789"
PORTAL = "192.0.2.10:3260"


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "LOCK_ROOT", str(tmp_path / "run"))


@pytest.fixture
def volume(tmp_path):
    path = tmp_path / "volume"
    path.write_bytes(b"v" * 4096)
    return str(path)


def wish(path, /, **changes):
    base = {"volume_id": ID, "path": path, "initiators": [ME], "chap_user": "user1", "chap_secret": SECRET}
    return dict(base, **changes)


# ---- what is wished -----------------------------------------------------------------------------------------------------


def test_the_names_are_cinders():
    export = targets.export_of(wish("/dev/vg/v"), portals=["192.0.2.10:3260", "[2001:db8::1]:3260"])
    assert (export.iqn, export.name) == (IQN, "volume-" + ID)
    assert targets.location(types.SimpleNamespace(lun=1), export, None) == (
        "192.0.2.10:3260;[2001:db8::1]:3260,1 %s 1" % IQN
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"volume_id": "../etc"}, "not a UUID"),
        ({"path": ""}, "path"),
        ({"path": "relative"}, "path"),
        ({"path": "/dev/vg/../sda"}, "path"),
        ({"path": "/dev/vg/v\nincominguser a b"}, "path"),
        ({"path": "/dev/vg/v;reboot"}, "path"),
        ({"initiators": ["compute1"]}, "qualified name"),
        ({"initiators": [ME + ";reboot"]}, "qualified name"),
        ({"chap_user": ""}, "not both"),
        ({"chap_secret": None}, "not both"),
        ({"chap_secret": "short"}, "cannot be used"),
        ({"chap_secret": "with blank 0123"}, "cannot be used"),
        ({"chap_secret": "$(reboot)0123456"}, "cannot be used"),
        ({"chap_user": "a\nb"}, "cannot be used"),
        ({"state": "exported"}, "state"),
    ],
)
def test_what_a_target_cannot_hold_is_refused_before_anything_is_touched(changes, words):
    with pytest.raises(InvalidInput, match=words) as raised:
        targets.export_of(wish("/dev/vg/v", **changes))
    assert raised.value.status == 400
    assert not changes.get("chap_secret") or changes["chap_secret"] not in str(raised.value)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_credentials_break_a_line_of_the_file(user, secret):
    try:
        export = targets.export_of(wish("/dev/vg/v", chap_user=user, chap_secret=secret))
    except InvalidInput:
        return
    found = tgt.parse_config(tgt.config_text(export))
    assert found["secrets"] == ({user: secret} if user else {})
    assert found["logins"] == ({ME: user} if user else {})


@pytest.mark.parametrize("kind", ["missing", "empty", "folder"])
def test_a_path_that_is_gone_is_cinders_error(tmp_path, kind):
    path = tmp_path / kind
    if kind == "empty":
        path.touch()
    if kind == "folder":
        path.mkdir()
    target = FakeTarget()
    outcome = targets.make_exports(target, [wish(str(path))])["outcomes"][ID]
    assert outcome["error"]["code"] == "ISCSITargetCreateFailed" and str(path) in outcome["error"]["message"]
    assert not outcome["changed"] and target.done == []


# ---- the batch ----------------------------------------------------------------------------------------------------------


class FakeTarget:
    """Exports in memory, with what may go wrong."""

    name = "fake"
    lun = 7

    def __init__(self):
        self.live = {}
        self.kept = {}
        self.sessions = {}
        self.done = []
        self.breaks = ""
        self.error = OSError(5, "Input/output error " + SECRET)

    def read(self, exports):
        return {
            export.iqn: targets.Found(
                export.iqn, dict(self.live[export.iqn]), sessions=tuple(self.sessions.get(export.iqn, ()))
            )
            for export in exports
            if export.iqn in self.live
        }

    def aspects(self, export):
        return {"path": export.path, "initiators": export.initiators, "chap": export.credentials}

    def is_saved(self, export, found):
        return self.kept.get(export.iqn) == found.aspects

    def apply(self, export, found):
        self.done.append("apply")
        if self.breaks == "silent":
            return
        self.live[export.iqn] = self.aspects(export)
        if self.breaks == "apply":
            raise self.error

    def remove(self, export, found):
        self.done.append("remove")
        if self.breaks == "remove":
            raise self.error
        self.live.pop(export.iqn)

    def save(self, exports):
        self.done.append("save")
        if self.breaks != "save":
            self.kept = {iqn: dict(value) for iqn, value in self.live.items()}


def test_an_export_is_made_once_changed_where_it_differs_and_taken_away(volume):
    target = FakeTarget()
    first = targets.make_exports(target, [wish(volume)], portals=[PORTAL])
    assert first["outcomes"][ID] == {
        "changed": True,
        "changes": ["target"],
        "error": None,
        "iqn": IQN,
        "lun": 7,
        "path": volume,
        "portals": [PORTAL],
        "provider_location": "%s,1 %s 7" % (PORTAL, IQN),
        "sessions": [],
        "initiators": [ME],
        "unsaved": [],
    }
    assert first["before"] == {ID: {}} and first["after"][ID]["path"] == volume
    again = targets.make_exports(target, [wish(volume)], portals=[PORTAL])
    assert not again["outcomes"][ID]["changed"] and again["before"] == again["after"]
    other = targets.make_exports(target, [wish(volume, chap_secret="Another012345678")])
    assert other["outcomes"][ID]["changes"] == ["chap"] and other["before"] != other["after"]
    assert target.done == ["apply", "save"] * 2
    gone = targets.make_exports(target, [{"volume_id": ID, "state": "absent"}])
    assert gone["outcomes"][ID]["changed"] and gone["after"] == {ID: {}} and target.live == {}
    assert not targets.make_exports(target, [{"volume_id": ID, "state": "absent"}])["outcomes"][ID]["changed"]


def test_no_secret_is_in_a_result_or_a_diff(volume):
    for breaks in ("", "apply", "silent", "save"):
        target = FakeTarget()
        target.breaks = breaks
        assert SECRET not in json.dumps(targets.make_exports(target, [wish(volume)]))


def test_check_mode_says_the_same_and_touches_nothing(volume):
    target, other = FakeTarget(), FakeTarget()
    checked = targets.make_exports(target, [wish(volume)], check_mode=True)
    made = targets.make_exports(other, [wish(volume)])
    assert target.done == []
    for key in ("before", "after"):
        assert checked[key] == made[key]
    assert checked["outcomes"][ID]["changes"] == made["outcomes"][ID]["changes"]
    gone = targets.make_exports(other, [{"volume_id": ID, "state": "absent"}], check_mode=True)
    assert gone["outcomes"][ID]["changed"] and other.live


def test_what_only_a_restart_would_lose_is_saved(volume):
    target = FakeTarget()
    targets.make_exports(target, [wish(volume)])
    target.kept = {}
    outcome = targets.make_exports(target, [wish(volume)])["outcomes"][ID]
    assert outcome["changes"] == ["saved"] and target.kept


@pytest.mark.parametrize(
    ("state", "code"), [("absent", "ISCSITargetRemoveFailed"), ("present", "ISCSITargetCreateFailed")]
)
def test_a_disk_is_not_taken_from_under_a_guest_unless_forced(volume, tmp_path, state, code):
    target = FakeTarget()
    targets.make_exports(target, [wish(volume)])
    target.sessions = {IQN: [ME]}
    second = tmp_path / "second"
    second.write_bytes(b"2")
    args = wish(str(second), state=state)
    refused = targets.make_exports(target, [args])
    assert refused["outcomes"][ID]["error"]["code"] == code and ME in refused["outcomes"][ID]["error"]["message"]
    assert target.live[IQN]["path"] == volume and refused["before"] == refused["after"]
    assert targets.make_exports(target, [dict(args, force=True)])["outcomes"][ID]["changed"]


@pytest.mark.parametrize(
    ("breaks", "code"),
    [
        ("apply", "ISCSITargetCreateFailed"),
        ("silent", "ISCSITargetNotFoundForVolume"),
        ("save", "ISCSITargetCreateFailed"),
    ],
)
def test_what_failed_is_told_in_cinders_words_and_half_a_target_is_not_left(volume, breaks, code):
    target = FakeTarget()
    target.breaks = breaks
    error = targets.make_exports(target, [wish(volume)])["outcomes"][ID]["error"]
    assert error["code"] == code and ID in error["message"]
    assert breaks != "apply" or target.live == {}


def test_a_removal_that_failed_is_told(volume):
    target = FakeTarget()
    targets.make_exports(target, [wish(volume)])
    target.breaks = "remove"
    outcome = targets.make_exports(target, [{"volume_id": ID, "state": "absent"}])["outcomes"][ID]
    assert outcome["error"]["code"] == "ISCSITargetRemoveFailed" and outcome["changed"]


def test_one_bad_export_does_not_fail_the_others(volume):
    target = FakeTarget()
    outcomes = targets.make_exports(target, [wish("relative"), wish(volume, volume_id=OTHER_ID)])["outcomes"]
    assert list(outcomes) == [ID, OTHER_ID]
    assert outcomes[ID]["error"]["status"] == 400 and outcomes[OTHER_ID]["error"] is None


@pytest.mark.parametrize("portals", [["192.0.2.1"], ["storage:3260"], ["2001:db8::1:3260"]])
def test_a_portal_that_is_none_fails_all_before_anything_is_touched(volume, portals):
    target = FakeTarget()
    with pytest.raises(InvalidInput):
        targets.make_exports(target, [wish(volume)], portals=portals)
    assert target.done == []


# ---- several initiators -------------------------------------------------------------------------------------------------

SECOND, THIRD = "iqn.2004-10.com.example:compute2", "iqn.2004-10.com.example:compute3"


def login(number, **changes):
    base = {"initiator": "iqn.2004-10.com.example:compute%d" % number, "chap_user": "user%d" % number}
    return dict(base, **{"chap_secret": "Secret-of-number-%d" % number, **changes})


def several(path, *logins, keep=(), **changes):
    return {"volume_id": ID, "path": path, "logins": list(logins), "keep": list(keep), **changes}


@pytest.mark.parametrize(
    ("logins", "words"),
    [
        ([login(1), login(1, chap_user="other")], "twice: " + ME),
        ([login(1), login(2, chap_user="user1")], "twice: user1"),
        ([login(1, chap_secret=None)], "not both"),
        ([login(1, initiator="compute1")], "qualified name"),
        ([login(1, initiator=None)], "qualified name"),
    ],
)
def test_logins_that_a_target_cannot_tell_apart_are_refused(logins, words):
    with pytest.raises(InvalidInput, match=words) as raised:
        targets.export_of(several("/dev/vg/v", *logins))
    assert "Secret-of" not in str(raised.value)


class Both:
    """A host with one of the targets, as it is looked at from outside."""

    def __init__(self, kind, tgtd, library):
        self.kind, self.tgtd, self.library = kind, tgtd, library
        tgtd.strict = True

    def do(self, wished, **more):
        make = self.library.make if self.kind == "lio" else self.tgtd.target
        found = targets.make_exports(make(), [wished], **more)
        assert "Secret-of" not in json.dumps(found)
        return found

    def outcome(self, wished, **more):
        outcome = self.do(wished, **more)["outcomes"][ID]
        assert outcome["error"] is None, outcome
        return outcome

    def logins(self):
        """initiator -> its credentials; of tgt {initiator: all of them}."""
        if self.kind == "lio":
            acls = self.library.kernel.targets[IQN].tpgs[0].acls
            return {name: (acl.chap_userid, acl.chap_password) for name, acl in acls.items()}
        live = self.tgtd.targets[IQN]
        kept = tgt.parse_config(self.saved())
        assert kept["secrets"] == self.tgtd.accounts and sorted(live["accounts"]) == sorted(self.tgtd.accounts)
        named = {word for word in live["acls"] if word.startswith("iqn")}
        assert named == {line.split()[1] for line in self.saved().splitlines() if "initiator-name" in line}
        assert named == set(kept["logins"])
        return {name: (user, self.tgtd.accounts[user]) for name, user in kept["logins"].items()}

    def saved(self):
        path = self.library.save_file if self.kind == "lio" else self.tgtd.folder / ("volume-%s.conf" % ID)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return path.read_text()

    def restart(self):
        """The service comes back with what it has saved."""
        if self.kind == "lio":
            saved = json.loads(self.saved())
            assert lio.part_of(saved, IQN) == lio.part_of(self.library.RTSRoot().dump(), IQN)
            return
        accounts = [line.split()[1:] for line in self.saved().splitlines() if "incominguser" in line]
        self.tgtd.accounts = dict(accounts)
        self.tgtd.targets[IQN]["accounts"] = [user for user, _secret in accounts]


@pytest.fixture(params=["lio", "tgt"])
def both(request, tgtd, lio_host):
    return Both(request.param, tgtd, lio_host)


def pair(number):
    return "user%d" % number, "Secret-of-number-%d" % number


def test_a_second_attachment_leaves_the_first_alone_and_goes_without_it(both, volume):
    both.outcome(several(volume, login(1)))
    second = several(volume, login(2), keep=[ME])
    checked = both.do(second, check_mode=True)
    assert checked["outcomes"][ID]["changes"] == ["initiators"] and both.logins() == {ME: pair(1)}
    made = both.do(second)
    assert made["outcomes"][ID]["changes"] == ["initiators"] and not made["outcomes"][ID]["error"]
    assert (made["before"], made["after"]) == (checked["before"], checked["after"])
    assert made["after"][ID]["initiators"] == (ME, SECOND) and made["after"][ID]["chap"] is True
    assert both.logins() == {ME: pair(1), SECOND: pair(2)}
    assert not both.outcome(second)["changed"]
    both.restart()
    assert not both.outcome(second)["changed"]
    # a later run knows neither: it sets anew what is its own
    anew = both.do(several(volume, login(1, chap_user="anew", chap_secret="Secret-of-later-run"), keep=[SECOND]))
    assert anew["outcomes"][ID]["changes"] == ["chap"] and anew["after"][ID]["chap"] == "other credentials"
    assert both.logins() == {ME: ("anew", "Secret-of-later-run"), SECOND: pair(2)}
    # the first goes
    assert both.outcome(several(volume, keep=[SECOND]))["changes"] == ["initiators"]
    assert both.logins() == {SECOND: pair(2)}
    assert not both.outcome(several(volume, keep=[SECOND]))["changed"]
    both.restart()
    # the target goes with the last
    assert both.outcome({"volume_id": ID, "state": "absent"})["changed"]
    assert ID not in (both.saved() if both.kind == "lio" else "".join(os.listdir(both.tgtd.folder)))
    assert both.tgtd.accounts == {} and both.tgtd.targets == {} == both.library.kernel.targets


@pytest.mark.parametrize(
    "name",
    ["iqn.2004-10.com.example:KVM1", "IQN.2004-10.com.Example:kvm1", "eui.02004567A425678D", "naa.52004567BA64678D"],
)
def test_an_initiator_with_capitals_is_admitted_and_stays_beside_another(both, volume, name):
    """LIO has names in lower case only; tgt compares them with what the host sends."""
    first = several(volume, login(1, initiator=name))
    made = both.outcome(first)
    assert made["initiators"] == [name] and not both.outcome(first)["changed"]
    second = several(volume, login(2), keep=[name])
    assert both.outcome(second)["changes"] == ["initiators"] and not both.outcome(second)["changed"]
    has = both.library.kernel.targets[IQN].tpgs[0].acls if both.kind == "lio" else both.tgtd.targets[IQN]["acls"]
    assert {name.lower() if both.kind == "lio" else name, SECOND} <= set(has)
    both.restart()
    assert not both.outcome(several(volume, keep=[name, SECOND]))["changed"]
    assert both.outcome(several(volume, keep=[SECOND]))["changes"] == ["initiators"]
    with pytest.raises(InvalidInput, match="twice"):
        targets.export_of(several(volume, login(1, initiator=name), login(2, initiator=name.swapcase())))


def test_a_target_whose_prefix_has_capitals_goes(both, volume):
    prefix = "iqn.2010-10.Org.OpenStack:"
    assert both.outcome(several(volume, login(1)), prefix=prefix)["iqn"] == IQN
    assert not both.outcome(several(volume, login(1)), prefix=prefix)["changed"]
    assert both.outcome({"volume_id": ID, "state": "absent"}, prefix=prefix)["changed"]
    assert both.tgtd.targets == {} == both.library.kernel.targets and both.library.kernel.stores == {}
    assert not both.outcome({"volume_id": ID, "state": "absent"}, prefix=prefix)["changed"]


@pytest.mark.parametrize("going", [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)])
def test_whichever_goes_the_others_stay(both, volume, going):
    both.outcome(several(volume, login(3), login(1), login(2)))
    stay = [n for n in (1, 2, 3) if n not in going]
    both.outcome(several(volume, keep=[login(n)["initiator"] for n in stay]))
    assert both.logins() == {login(n)["initiator"]: pair(n) for n in stay}
    both.outcome(several(volume, *[login(n) for n in going], keep=[login(n)["initiator"] for n in stay]))
    assert both.logins() == {login(n)["initiator"]: pair(n) for n in (1, 2, 3)}


def test_who_is_to_be_kept_and_is_not_there_stays_out(both, volume):
    nothing = both.outcome(several(volume, keep=[ME]))
    assert not nothing["changed"] and both.tgtd.targets == {} == both.library.kernel.targets
    assert nothing["initiators"] == []
    assert both.outcome(several(volume, login(2), keep=[ME]))["initiators"] == [SECOND]
    assert both.logins() == {SECOND: pair(2)}


def test_with_and_without_credentials_do_not_go_together(both, volume):
    both.tgtd.strict = False
    both.outcome({"volume_id": ID, "path": volume, "initiators": [ME]})
    refused = both.do(several(volume, login(2), keep=[ME]))["outcomes"][ID]
    assert (
        refused["error"]["code"] == "ISCSITargetCreateFailed"
        and "only some of the initiators" in refused["error"]["message"]
    )
    assert not refused["changed"]
    both.outcome({"volume_id": ID, "path": volume, "initiators": [SECOND], "keep": [ME]})


def test_tgt_tells_whose_credentials_were_lost_and_leaves_the_initiator_in(tgtd, volume):
    targets.make_exports(tgtd.target(), [several(volume, login(1))])
    path = tgtd.folder / ("volume-%s.conf" % ID)
    path.unlink()
    second = several(volume, login(2), keep=[ME])
    outcome = targets.make_exports(tgtd.target(), [second])["outcomes"][ID]
    assert outcome["error"] is None and outcome["unsaved"] == [ME]
    assert tgtd.accounts == dict([pair(1), pair(2)]) and ME in tgtd.targets[IQN]["acls"]
    # nobody may come in with a name alone after the next start
    assert ME not in path.read_text() and tgt.parse_config(path.read_text())["logins"] == {SECOND: "user2"}
    assert not targets.make_exports(tgtd.target(), [second])["outcomes"][ID]["changed"]
    gone = targets.make_exports(tgtd.target(), [several(volume, keep=[SECOND])])["outcomes"][ID]
    assert gone["error"] is None and tgtd.accounts == dict([pair(2)])


def test_an_account_of_tgt_is_not_taken_from_another_target(tgtd, volume):
    targets.make_exports(tgtd.target(), [several(volume, login(1))])
    outcome = targets.make_exports(tgtd.target(), [several(volume, login(1), volume_id=OTHER_ID)])["outcomes"][OTHER_ID]
    assert outcome["error"]["code"] == "ISCSITargetCreateFailed" and "user1" in outcome["error"]["message"]
    assert list(tgtd.targets) == [IQN] and tgtd.accounts == dict([pair(1)])


def test_the_session_of_one_ends_and_the_other_s_goes_on(tgtd, volume):
    targets.make_exports(tgtd.target(), [several(volume, login(1), login(2))])
    tgtd.clients = {IQN: [(3, ME), (4, SECOND)]}
    targets.make_exports(tgtd.target(), [several(volume, login(3), keep=[SECOND])])
    assert tgtd.clients == {IQN: [(4, SECOND)]}


# ---- tgt ----------------------------------------------------------------------------------------------------------------


class FakeTgtd:
    """tgtd as tgtadm shows it; it knows every secret, and every command line."""

    def __init__(self):
        self.targets = {}
        self.accounts = {}
        self.argvs = []
        self.connected = True
        self.strict = False
        self.clients = {}

    def run(self, argv, timeout=None, check=True):
        self.argvs.append(list(argv))
        if not self.connected:
            return Completed(
                107, "", "tgtadm: failed to send request hdr to tgt daemon, Transport endpoint is not connected\n"
            )
        words = {argv[i][2:]: argv[i + 1] for i in range(1, len(argv) - 1) if argv[i].startswith("--")}
        try:
            answer = getattr(self, "%s_%s" % (words["mode"], words["op"]))(words)
        except KeyError as error:
            return Completed(22, "", "tgtadm: can't find the %s\n" % error)
        return Completed(0, answer or "", "")

    def by(self, words):
        return next(each for each in self.targets.values() if each["tid"] == int(words["tid"]))

    def target_update(self, words):
        self.by(words).setdefault("nop", []).append((words["name"], words["value"]))

    def target_new(self, words):
        assert int(words["tid"]) not in [each["tid"] for each in self.targets.values()]
        self.targets[words["targetname"]] = {
            "tid": int(words["tid"]),
            "luns": {0: "None"},
            "params": [],
            "accounts": [],
            "acls": [],
        }

    def target_delete(self, words):
        iqn = next(iqn for iqn, each in self.targets.items() if each["tid"] == int(words["tid"]))
        assert not self.clients.get(iqn)
        del self.targets[iqn]

    def target_bind(self, words):
        self.by(words)["acls"].append(words.get("initiator-name") or words["initiator-address"])
        self.look()

    def look(self):
        """The worst that there was: a gap between accounts ends tgtd, without any account whoever has a name gets in."""
        for each in self.targets.values():
            bound = [user for user in each["accounts"] if user]
            assert each["accounts"][: len(bound)] == bound, (
                "tgtd would find nobody behind the gap, and die of --op show"
            )
            if self.strict and not bound:
                assert set(each["acls"]) <= {"255.255.255.255"}, "let in without credentials"

    def target_unbind(self, words):
        self.by(words)["acls"].remove(words.get("initiator-name") or words["initiator-address"])

    def logicalunit_new(self, words):
        self.by(words)["luns"][int(words["lun"])] = words["backing-store"]

    def logicalunit_delete(self, words):
        del self.by(words)["luns"][int(words["lun"])]

    def logicalunit_update(self, words):
        self.by(words)["params"].append(words["params"])

    def account_bind(self, words):
        assert words["user"] in self.accounts
        slots = self.by(words)["accounts"]
        assert words["user"] not in slots
        if "" not in slots:
            slots.append("")
        slots[slots.index("")] = words["user"]

    def account_unbind(self, words):
        slots = self.by(words)["accounts"]
        slots[slots.index(words["user"])] = ""
        while slots and not slots[-1]:
            slots.pop()
        self.look()

    def account_delete(self, words):
        del self.accounts[words["user"]]
        for each in self.targets.values():
            assert words["user"] not in each["accounts"], "account delete unbinds, wherever it stands"

    def account_show(self, words):
        return "Account list:\n" + "".join("    %s\n" % user for user in self.accounts)

    def connection_delete(self, words):
        for clients in self.clients.values():
            clients[:] = [each for each in clients if each[0] != int(words["sid"])]

    def target_show(self, words):
        lines = []
        for iqn, each in self.targets.items():
            lines += ["Target %d: %s" % (each["tid"], iqn), "    System information:", "        Driver: iscsi"]
            lines += ["        State: ready", "    I_T nexus information:"]
            for number, name in self.clients.get(iqn, ()):
                lines += ["        I_T nexus: %d" % number, "            Initiator: %s alias: host" % name]
                lines += ["            Connection: 0", "                IP Address: 192.0.2.1"]
            lines += ["    LUN information:"]
            for lun, path in each["luns"].items():
                lines += [
                    "        LUN: %d" % lun,
                    "            Type: disk",
                    "            Backing store path: %s" % path,
                ]
                lines += ["            Backing store flags: "]
            lines += ["    Account information:"] + ["        " + user for user in each["accounts"]]
            lines += ["    ACL information:"] + ["        " + word for word in each["acls"]]
        return "\n".join(lines) + "\n"

    def carrier(self):
        def run(argv, secret):
            self.argvs.append(list(argv))
            user = argv[argv.index("--user") + 1]
            assert user not in self.accounts
            self.accounts[user] = secret

        return types.SimpleNamespace(run=run)


@pytest.fixture
def tgtd(tmp_path, monkeypatch):
    daemon = FakeTgtd()
    monkeypatch.setattr(tgt, "run", daemon.run)
    monkeypatch.setattr(tgt, "program", lambda name, package: name)
    folder = tmp_path / "conf.d"
    folder.mkdir()
    config = tmp_path / "targets.conf"
    config.write_text("# tgt\ninclude %s/*.conf\n" % folder)
    daemon.folder, daemon.config = folder, config
    daemon.target = lambda: tgt.TgtTarget(str(folder), str(config), daemon.carrier())
    return daemon


def test_tgt_exports_lun_1_to_the_initiator_alone_and_keeps_it_in_a_file_of_root(tgtd, volume):
    outcome = targets.make_exports(tgtd.target(), [wish(volume)], portals=[PORTAL])["outcomes"][ID]
    assert outcome["error"] is None and outcome["lun"] == 1
    assert outcome["provider_location"] == "%s,1 %s 1" % (PORTAL, IQN)
    live = tgtd.targets[IQN]
    assert (
        live["luns"][1] == volume and sorted(live["acls"]) == ["255.255.255.255", ME] and live["accounts"] == ["user1"]
    )
    assert dict(live["nop"]) == {"nop_interval": "5", "nop_count": "2"}  # or dead sessions stay
    assert tgtd.accounts == {"user1": SECRET}
    path = tgtd.folder / ("volume-%s.conf" % ID)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    for line in (
        "<target %s>" % IQN,
        "<backing-store %s>" % volume,
        "lun 1",
        "write-cache on",
        "initiator-name " + ME,
        "initiator-address 255.255.255.255",
    ):
        assert line in text
    assert "incominguser user1 %s" % SECRET in text
    assert os.listdir(tgtd.folder) == [path.name]
    assert not [argv for argv in tgtd.argvs if SECRET in " ".join(argv)]
    calls = len(tgtd.argvs)
    again = targets.make_exports(tgtd.target(), [wish(volume)], portals=[PORTAL])["outcomes"][ID]
    assert not again["changed"] and len(tgtd.argvs) == calls + 1


def test_the_identity_of_a_disk_of_tgt_is_the_volumes(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume)])
    plain = ID.replace("-", "")
    assert "scsi_id=%s,scsi_sn=%s" % (plain, plain) in tgtd.targets[IQN]["params"]
    assert "scsi_id " + plain in (tgtd.folder / ("volume-%s.conf" % ID)).read_text()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"chap_secret": "Another012345678"}, ["chap"]),
        ({"chap_user": "user2"}, ["chap"]),
        ({"chap_user": None, "chap_secret": None}, ["chap"]),
        ({"initiators": []}, ["initiators"]),
        ({"initiators": [ME, "iqn.2004-10.com.example:compute2"]}, ["initiators"]),
        ({"write_cache": False}, ["write_cache"]),
    ],
)
def test_tgt_changes_what_differs_and_forgets_the_old(tgtd, volume, changes, names):
    targets.make_exports(tgtd.target(), [wish(volume)])
    args = wish(volume, **changes)
    outcome = targets.make_exports(tgtd.target(), [args])["outcomes"][ID]
    assert outcome["error"] is None and outcome["changes"] == names
    export = targets.export_of(args)
    assert tgtd.accounts == dict({pair for pair in export.credentials.values() if pair})
    assert tgtd.targets[IQN]["accounts"] == list(export.users)
    assert set(tgtd.targets[IQN]["acls"]) == {*export.initiators, "255.255.255.255"}
    assert (tgtd.folder / ("volume-%s.conf" % ID)).read_text() == tgt.config_text(export)
    assert not targets.make_exports(tgtd.target(), [args])["outcomes"][ID]["changed"]


def test_without_initiators_tgt_lets_nobody_in(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume, initiators=[])])
    assert tgtd.targets[IQN]["acls"] == ["255.255.255.255"]


def test_another_path_replaces_the_lun(tgtd, volume, tmp_path):
    targets.make_exports(tgtd.target(), [wish(volume)])
    other = tmp_path / "other"
    other.write_bytes(b"o")
    outcome = targets.make_exports(tgtd.target(), [wish(str(other))])["outcomes"][ID]
    assert outcome["changes"] == ["path"] and tgtd.targets[IQN]["luns"][1] == str(other)


def test_who_may_no_longer_come_in_is_put_out(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume)])
    tgtd.clients = {IQN: [(3, ME)]}
    found = tgtd.target().read([targets.export_of(wish(volume))])[IQN]
    assert found.sessions == (ME,)
    assert targets.make_exports(tgtd.target(), [wish(volume, initiators=[])])["outcomes"][ID]["error"] is None
    assert tgtd.clients == {IQN: []}


def test_tgt_opens_a_volume_that_grew_again_when_nobody_is_logged_in_to_it(tgtd, volume):
    """Its initiators log in again by themselves; those of other targets are left alone."""
    other = volume + "-other"
    with open(other, "wb") as file:
        file.truncate(4096)
    targets.make_exports(tgtd.target(), [wish(volume), wish(other, volume_id=OTHER_ID, chap_user="user2")])
    tgtd.clients = {IQN: [(1, ME)]}
    before = {iqn: list(each["params"]) for iqn, each in tgtd.targets.items()}
    assert tgtd.target().look_again(volume) == [IQN]
    assert tgtd.clients == {IQN: []}
    assert tgtd.targets[IQN]["params"] == [*before[IQN], "online=0,path=%s,online=1" % volume]
    assert sum(each["params"] == before[iqn] for iqn, each in tgtd.targets.items()) == 1
    assert tgtd.target().look_again("/dev/vg/nobodys") == []


def test_where_no_tgtd_runs_nobody_has_to_look_again(tmp_path):
    assert tgt.grown("/dev/vg/one", str(tmp_path / "socket")) == []


def test_tgt_leaves_nothing(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume), wish(volume, volume_id=OTHER_ID, chap_user="user2")])
    assert [each["tid"] for each in tgtd.targets.values()] == [1, 2]
    tgtd.clients = {IQN: [(1, ME)]}
    refused = targets.make_exports(tgtd.target(), [{"volume_id": ID, "state": "absent"}])["outcomes"][ID]
    assert refused["error"]["code"] == "ISCSITargetRemoveFailed"
    gone = targets.make_exports(tgtd.target(), [{"volume_id": ID, "state": "absent", "force": True}])["outcomes"][ID]
    assert gone["changed"] and gone["error"] is None
    assert list(tgtd.accounts) == ["user2"] and len(tgtd.targets) == 1
    assert os.listdir(tgtd.folder) == ["volume-%s.conf" % OTHER_ID]


def test_after_a_restart_without_the_target_the_next_run_makes_it_again(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume)])
    tgtd.targets.clear()
    outcome = targets.make_exports(tgtd.target(), [wish(volume)])["outcomes"][ID]
    assert outcome["changed"] and outcome["error"] is None and IQN in tgtd.targets
    tgtd.targets.clear()
    assert targets.make_exports(tgtd.target(), [{"volume_id": ID, "state": "absent"}])["outcomes"][ID]["changed"]
    assert os.listdir(tgtd.folder) == [] and tgtd.accounts == {}


def test_a_run_that_was_ended_before_the_file_is_continued(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume)])
    (tgtd.folder / ("volume-%s.conf" % ID)).unlink()
    tgtd.accounts["user1"] = "of the run before"
    outcome = targets.make_exports(tgtd.target(), [wish(volume)])["outcomes"][ID]
    assert outcome["error"] is None and "chap" in outcome["changes"] and tgtd.accounts == {"user1": SECRET}


def test_a_file_that_others_may_read_is_put_right(tgtd, volume):
    targets.make_exports(tgtd.target(), [wish(volume)])
    path = tgtd.folder / ("volume-%s.conf" % ID)
    path.chmod(0o644)
    assert targets.make_exports(tgtd.target(), [wish(volume)])["outcomes"][ID]["changes"] == ["saved"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_tgt_does_not_read_is_told_before_a_target_is_made(tgtd, volume):
    tgtd.config.write_text("include /etc/tgt/other/*.conf\n")
    outcome = targets.make_exports(tgtd.target(), [wish(volume)])["outcomes"][ID]
    assert outcome["error"]["code"] == "ISCSITargetCreateFailed" and "include" in outcome["error"]["remedy"]
    assert tgtd.targets == {} and os.listdir(tgtd.folder) == []


def test_a_tgt_that_does_not_run_is_told_with_its_remedy(tgtd, volume):
    tgtd.connected = False
    with pytest.raises(CommandFailed) as raised:
        targets.make_exports(tgtd.target(), [wish(volume)])
    assert "Start the service tgt" in raised.value.remedy


def test_the_lowest_free_number_is_taken():
    assert [tgt.free_tid(taken) for taken in (set(), {1}, {2}, {1, 2, 4})] == [1, 2, 1, 3]


# A tgtadm that does what the real one does with its request, and writes down its arguments.
TGTADM = """
import os, socket, sys
open(sys.argv[1], "w").write(repr(sys.argv) + repr(dict(os.environ)))
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["TGT_IPC_SOCKET"] + ".0")
s.sendall(b"HEAD")
s.sendall(b"user=u,password=" + sys.argv[-1].encode() + b"\\0")
answer = s.recv(100)
sys.stderr.write(answer.decode())
sys.exit(0 if answer == b"success" else 22)
"""


@pytest.mark.parametrize("answer", [b"success", b"this account already exists"])
def test_a_secret_reaches_tgtd_and_no_command_line(tmp_path, answer):
    script, seen = tmp_path / "tgtadm.py", tmp_path / "seen"
    script.write_text(TGTADM)
    path = str(tmp_path / "s")
    got = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".0")
        listener.listen(1)

        def serve():
            client, _address = listener.accept()
            with client:
                data = b""
                while not data.endswith(b"\0"):
                    data += client.recv(100)
                got.append(data)
                client.sendall(answer)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        carrier = tgt.SecretCarrier(path, timeout=10)
        argv = [sys.executable, str(script), str(seen)]
        if answer == b"success":
            carrier.run(argv, SECRET)
        else:
            with pytest.raises(CommandFailed, match="already exists") as raised:
                carrier.run(argv, SECRET)
            assert SECRET not in str(raised.value)
        server.join(10)
    assert got == [b"HEADuser=u,password=%s\0" % SECRET.encode()]
    assert SECRET not in seen.read_text() and "--password" in seen.read_text()


def test_a_tgtadm_that_goes_its_own_way_is_an_error_at_once(tmp_path):
    begun = time.monotonic()
    with pytest.raises(CommandFailed, match="TGT_IPC_SOCKET"):
        tgt.SecretCarrier(str(tmp_path / "s"), timeout=60).run([sys.executable, "-c", ""], SECRET)
    assert time.monotonic() - begun < 30


# ---- LIO ----------------------------------------------------------------------------------------------------------------


class FakeLio(types.SimpleNamespace):
    """rtslib on a kernel in memory."""

    def __init__(self):
        kernel = self.kernel = types.SimpleNamespace(stores={}, targets={}, refuse="", sessions=set())

        class Store:
            def __init__(self, name, path, plugin, wwn, write_back=None):
                assert name not in kernel.stores
                self.name, self.path, self.plugin, self.wwn, self.write_back = name, path, plugin, wwn, write_back
                kernel.stores[name] = self

            def set_attribute(self, name, value):
                assert name == "emulate_write_cache"
                self.write_back = value == "1"

            def delete(self):
                del kernel.stores[self.name]

            def dump(self):
                data = {"name": self.name, "dev": self.path, "plugin": self.plugin, "wwn": self.wwn}
                return dict(data, write_back=self.write_back) if self.plugin == "fileio" else data

        class Acl:
            def __init__(self, tpg, name, mode="any"):
                name = name.lower()  # as rtslib and the kernel
                self.tpg, self.node_wwn, self.chap_userid, self.chap_password = tpg, name, "", ""
                self.mapped_luns = []
                tpg.acls[name] = self

            @property
            def session(self):
                return {"id": 1} if self.node_wwn in kernel.sessions else None

            def delete(self):
                del self.tpg.acls[self.node_wwn]

        class Portal:
            def __init__(self, tpg, ip_address, port):
                if kernel.refuse == ip_address:
                    raise OSError(98, "Address already in use")
                self.tpg, self.ip_address, self.port = tpg, ip_address, port
                tpg.network_portals.append(self)

            def delete(self):
                self.tpg.network_portals.remove(self)

        class Tpg:
            def __new__(cls, target, tag):
                if target.tpgs:
                    return target.tpgs[0]
                self = object.__new__(cls)
                self.attributes = {"generate_node_acls": "0", "authentication": "-1", "demo_mode_discovery": "1"}
                self.acls, self.luns, self.network_portals, self.enable = {}, [], [], False
                target.tpgs.append(self)
                return self

            def set_attribute(self, name, value):
                self.attributes[name] = value

            @property
            def node_acls(self):
                return list(self.acls.values())

            def dump(self):
                return {
                    "tag": 1,
                    "enable": self.enable,
                    "attributes": {key: int(value) for key, value in self.attributes.items()},
                    "luns": [
                        {"index": lun.lun, "storage_object": "/backstores/%s/%s" % (lun.store.plugin, lun.store.name)}
                        for lun in self.luns
                    ],
                    "portals": [{"ip_address": p.ip_address, "port": p.port} for p in self.network_portals],
                    "node_acls": [
                        {
                            "node_wwn": acl.node_wwn,
                            "chap_userid": acl.chap_userid,
                            "chap_password": acl.chap_password,
                            "mapped_luns": acl.mapped_luns,
                        }
                        for acl in self.node_acls
                    ],
                }

        class Target:
            def __new__(cls, fabric, wwn):
                wwn = wwn.lower()
                if wwn in kernel.targets:
                    return kernel.targets[wwn]
                self = object.__new__(cls)
                self.wwn, self.tpgs, self.fabric_module = wwn, [], fabric
                kernel.targets[wwn] = self
                return self

            def delete(self):
                del kernel.targets[self.wwn]

            def dump(self):
                return {"wwn": self.wwn, "tpgs": [tpg.dump() for tpg in self.tpgs], "fabric": "iscsi"}

        class Root:
            storage_objects = property(lambda self: list(kernel.stores.values()))
            targets = property(lambda self: list(kernel.targets.values()))

            def dump(self):
                return {
                    "storage_objects": [each.dump() for each in self.storage_objects],
                    "targets": [each.dump() for each in self.targets],
                }

        def lun(tpg, number, storage_object):
            made = types.SimpleNamespace(lun=number, store=storage_object)
            tpg.luns.append(made)
            return made

        def mapped(acl, number, tpg_lun):
            acl.mapped_luns.append({"index": number, "tpg_lun": tpg_lun, "write_protect": False})

        super().__init__(
            kernel=kernel,
            RTSRoot=Root,
            FabricModule=lambda name: types.SimpleNamespace(name=name),
            Target=Target,
            TPG=Tpg,
            LUN=lun,
            NodeACL=Acl,
            MappedLUN=mapped,
            NetworkPortal=Portal,
            BlockStorageObject=lambda name, path, wwn: Store(name, path, "block", wwn),
            FileIOStorageObject=lambda name, path, size, wwn, write_back: Store(name, path, "fileio", wwn, write_back),
        )


@pytest.fixture
def lio_host(tmp_path):
    library = FakeLio()
    library.save_file = tmp_path / "etc" / "saveconfig.json"
    library.make = lambda: lio.LioTarget(str(library.save_file), library)
    return library


def test_lio_exports_lun_0_to_the_initiator_alone(lio_host, volume):
    outcome = targets.make_exports(lio_host.make(), [wish(volume)], portals=[PORTAL])["outcomes"][ID]
    assert outcome["error"] is None and outcome["provider_location"] == "%s,1 %s 0" % (PORTAL, IQN)
    tpg = lio_host.kernel.targets[IQN].tpgs[0]
    acl = tpg.acls[ME]
    assert (acl.chap_userid, acl.chap_password) == ("user1", SECRET)
    assert acl.mapped_luns == [{"index": 0, "tpg_lun": 0, "write_protect": False}]
    assert tpg.enable and tpg.attributes == {
        "authentication": "1",
        "generate_node_acls": "0",
        "cache_dynamic_acls": "0",
        "demo_mode_discovery": "0",
        "demo_mode_write_protect": "1",
    }
    assert lio_host.kernel.stores[IQN].wwn == ID
    assert stat.S_IMODE(lio_host.save_file.stat().st_mode) == 0o600
    assert not targets.make_exports(lio_host.make(), [wish(volume)], portals=[PORTAL])["outcomes"][ID]["changed"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"chap_secret": "Another012345678"}, ["chap"]),
        ({"chap_user": None, "chap_secret": None}, ["attributes", "chap"]),
        ({"initiators": []}, ["initiators"]),
        ({"initiators": ["iqn.2004-10.com.example:compute2"]}, ["initiators"]),
        ({"initiators": [ME, "iqn.2004-10.com.example:compute2"]}, ["initiators"]),
        ({"write_cache": False}, ["write_cache"]),
    ],
)
def test_lio_changes_what_differs(lio_host, volume, changes, names):
    targets.make_exports(lio_host.make(), [wish(volume)])
    args = wish(volume, **changes)
    outcome = targets.make_exports(lio_host.make(), [args])["outcomes"][ID]
    assert outcome["error"] is None and outcome["changes"] == names
    export = targets.export_of(args)
    acls = lio_host.kernel.targets[IQN].tpgs[0].acls
    assert set(acls) == set(export.initiators)
    for name, acl in acls.items():
        assert (acl.chap_userid, acl.chap_password) == (export.credentials[name] or ("", ""))
    saved = json.loads(lio_host.save_file.read_text())
    assert lio.part_of(saved, IQN) == lio.part_of(lio_host.RTSRoot().dump(), IQN)
    assert not targets.make_exports(lio_host.make(), [args])["outcomes"][ID]["changed"]


def test_without_initiators_and_credentials_lio_still_asks_for_a_login(lio_host, volume):
    targets.make_exports(lio_host.make(), [wish(volume, initiators=[], chap_user=None, chap_secret=None)])
    assert lio_host.kernel.targets[IQN].tpgs[0].attributes["authentication"] == "1"


def test_lio_leaves_nothing_and_keeps_what_others_saved(lio_host, volume):
    lio_host.save_file.parent.mkdir()
    foreign = {"storage_objects": [{"name": "x"}], "targets": [{"wwn": "y"}], "fabric_modules": [{"name": "iscsi"}]}
    lio_host.save_file.write_text(json.dumps(foreign))
    targets.make_exports(lio_host.make(), [wish(volume)])
    saved = json.loads(lio_host.save_file.read_text())
    assert [len(saved[key]) for key in ("storage_objects", "targets", "fabric_modules")] == [2, 2, 1]
    lio_host.kernel.sessions = {ME}
    refused = targets.make_exports(lio_host.make(), [{"volume_id": ID, "state": "absent"}])["outcomes"][ID]
    assert refused["error"]["code"] == "ISCSITargetRemoveFailed" and ME in refused["error"]["message"]
    lio_host.kernel.sessions = set()
    targets.make_exports(lio_host.make(), [{"volume_id": ID, "state": "absent"}])
    assert lio_host.kernel.stores == {} == lio_host.kernel.targets
    assert json.loads(lio_host.save_file.read_text()) == foreign


def test_a_target_whose_store_is_gone_is_made_anew(lio_host, volume):
    targets.make_exports(lio_host.make(), [wish(volume)])
    lio_host.kernel.targets.clear()
    outcome = targets.make_exports(lio_host.make(), [wish(volume)])["outcomes"][ID]
    assert outcome["changed"] and outcome["error"] is None and IQN in lio_host.kernel.targets
    lio_host.kernel.targets.clear()
    lio_host.kernel.stores.clear()
    assert targets.make_exports(lio_host.make(), [{"volume_id": ID, "state": "absent"}])["outcomes"][ID]["changed"]
    assert json.loads(lio_host.save_file.read_text())["targets"] == []


def test_a_portal_that_another_service_has_is_told_and_leaves_nothing(lio_host, volume):
    lio_host.kernel.refuse = "192.0.2.10"
    error = targets.make_exports(lio_host.make(), [wish(volume)], portals=[PORTAL])["outcomes"][ID]["error"]
    assert error["code"] == "ISCSITargetCreateFailed" and PORTAL in error["message"] and "port" in error["remedy"]
    assert lio_host.kernel.stores == {} == lio_host.kernel.targets


def test_what_was_saved_but_is_no_json_is_not_written_over(lio_host, volume):
    lio_host.save_file.parent.mkdir()
    lio_host.save_file.write_text("{")
    with pytest.raises(CommandFailed, match="does not contain a configuration"):
        targets.make_exports(lio_host.make(), [wish(volume)])
    assert lio_host.save_file.read_text() == "{"


def test_an_ipv6_portal_is_the_same_portal_the_next_time(lio_host, volume):
    where = ["[2001:db8::1]:3260", PORTAL]
    targets.make_exports(lio_host.make(), [wish(volume)], portals=where)
    assert not targets.make_exports(lio_host.make(), [wish(volume)], portals=where)["outcomes"][ID]["changed"]
    fewer = targets.make_exports(lio_host.make(), [wish(volume)], portals=[PORTAL])["outcomes"][ID]
    assert fewer["changes"] == ["portals"]


def test_a_restore_that_changes_orders_and_aliases_is_no_change(lio_host, volume):
    args = wish(volume, initiators=[ME, "iqn.2004-10.com.example:compute2"])
    targets.make_exports(lio_host.make(), [args])
    saved = json.loads(lio_host.save_file.read_text())
    saved["targets"][0]["tpgs"][0]["node_acls"].reverse()
    saved["targets"][0]["tpgs"][0]["luns"][0]["alias"] = "other"
    lio_host.save_file.write_text(json.dumps(saved))
    assert not targets.make_exports(lio_host.make(), [args])["outcomes"][ID]["changed"]
    del saved["targets"][0]["tpgs"][0]["node_acls"][0]
    lio_host.save_file.write_text(json.dumps(saved))
    assert targets.make_exports(lio_host.make(), [args])["outcomes"][ID]["changes"] == ["saved"]


def test_the_role_starts_tgtd_with_the_settings_that_targets_get():
    path = pathlib.Path(__file__).resolve().parents[6] / "roles" / "storage_host" / "vars" / "main.yml"
    said = yaml.safe_load(path.read_text())["storage_host_tgtd_iscsi"]
    assert said == ",".join("%s=%s" % pair for pair in tgt.NOP)
