# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import uuid

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments.exports import Export
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.storage_exports import end_exports, make_exports
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.volume_secrets import chap_of

LEDGER = "1ed9e000-0000-4000-8000-000000000001"
LIO = {
    "volume_group": "vg1",
    "target": "lio",
    "iqn_prefix": "iqn.2010-10.org.openstack:",
    "portals": ["192.0.2.1:3260"],
}
PREFIX = LIO["iqn_prefix"] + "ledger-1ed9e000."
ONE, TWO, THREE = (str(uuid.UUID(int=n)) for n in (1, 2, 3))


class Action:
    """Where a host would answer: each call's arguments are kept, ``fails`` says what to answer of a volume."""

    def ledger_id(self):
        return LEDGER

    def __init__(self, fails=None, error=None):
        self.calls = []
        self.fails = fails or {}
        self.error = error
        self.lost = set()  # volumes whose targets are gone

    def run_module(self, name, arguments):
        assert name == "iscsi_target"
        self.calls.append(arguments)
        if self.error:
            raise self.error
        outcomes = {}
        for each in arguments["exports"]:
            volume_id = each["volume_id"]
            outcomes[volume_id] = {"error": None, "iqn": arguments["iqn_prefix"] + volume_id, "lun": 0, "portals": []}
            kept = [] if volume_id in self.lost else each.get("keep", [])
            outcomes[volume_id]["initiators"] = [login["initiator"] for login in each.get("logins", ())] + kept
            if volume_id in self.fails:
                outcomes[volume_id] = {"error": self.fails[volume_id].as_dict()}
        return {"outcomes": outcomes}


def export(volume_id, attachment="a1", keep=(), initiator="iqn.a", login=True, **configuration):
    """To be made."""
    every = tuple(sorted({initiator, *keep}))
    return Export(attachment, volume_id, "lvm", {**LIO, **configuration}, initiator, every, keep, login)


def ending(volume_id, attachment="a1", others=()):
    return Export(attachment, volume_id, "lvm", LIO, "iqn.a", others, others, False)


def login(volume_id, initiator="iqn.a"):
    chap = chap_of(volume_id, initiator)
    return {"initiator": initiator, "chap_user": chap.user, "chap_secret": chap.secret}


def test_a_target_keeps_the_name_that_it_has():
    """It may be from before ledgers had ids, or from before the backend's prefix was changed: its guests know it by its name."""
    action, old = Action(), "iqn.2001-01.old:"
    known = dataclasses.replace(export(ONE, "a1", ("iqn.b",)), iqn="%svolume-%s" % (old, ONE))
    make_exports(action, [known, export(TWO, "a2")])
    end_exports(action, [dataclasses.replace(ending(ONE), iqn=known.iqn), ending(TWO, "a2")])
    assert sorted((call["iqn_prefix"], call["exports"][0]["volume_id"]) for call in action.calls) == [
        (old, ONE), (old, ONE), (PREFIX, TWO), (PREFIX, TWO)
    ]  # fmt: skip


def test_a_target_has_the_credentials_of_its_attachment_and_lets_in_who_was_named():
    action = Action()
    found = make_exports(action, [export(ONE, "a1", ("iqn.b",))])
    (call,) = action.calls
    chap = chap_of(ONE, "iqn.a")
    assert call["exports"] == [
        {
            "volume_id": ONE,
            "state": "present",
            "path": "/dev/vg1/volume-" + ONE,
            "logins": [login(ONE)],
            "keep": ["iqn.b"],
        }
    ]
    assert (call["target"], call["portals"], call["iqn_prefix"]) == ("lio", LIO["portals"], PREFIX)
    assert found == {"a1": {"iqn": PREFIX + ONE, "lun": 0, "portals": LIO["portals"]}}
    assert chap.secret not in str(found)


def test_one_call_for_each_kind_of_target_and_each_volume_once_in_it():
    action = Action()
    found = make_exports(
        action,
        [
            export(ONE, "a1", ("iqn.b", "iqn.c")),
            export(TWO, "a2"),
            export(THREE, "a3", target="tgt"),
            export(ONE, "a4", ("iqn.a", "iqn.c"), "iqn.b"),
            export(ONE, "a5", ("iqn.b", "iqn.c")),  # a second guest of the first one's host
        ],
    )
    assert sorted(found) == ["a1", "a2", "a3", "a4", "a5"] and found["a1"] == found["a4"] == found["a5"]
    assert sorted((c["target"], [e["volume_id"] for e in c["exports"]]) for c in action.calls) == [
        ("lio", [ONE, TWO]),
        ("tgt", [THREE]),
    ]
    first = next(e for c in action.calls for e in c["exports"] if e["volume_id"] == ONE)
    assert (first["logins"], first["keep"]) == ([login(ONE), login(ONE, "iqn.b")], ["iqn.c"])


def test_a_host_that_is_logged_in_for_another_guest_keeps_its_credentials():
    action = Action()
    found = make_exports(action, [export(ONE, "a2", ("iqn.a", "iqn.b"), login=False)])
    assert [(e["logins"], e["keep"]) for e in action.calls[0]["exports"]] == [([], ["iqn.a", "iqn.b"])]
    assert found["a2"]["lun"] == 0
    action.lost = {ONE}
    lost = make_exports(action, [export(ONE, "a2", ("iqn.a", "iqn.b"), login=False), export(ONE, "a3", (), "iqn.c")])
    assert lost["a2"].code == "ISCSITargetNotFoundForVolume" and lost["a3"]["lun"] == 0


def test_what_fails_fails_alone_and_a_host_that_is_away_fails_all():
    refused = errors.ISCSITargetCreateFailed(message="no")
    found = make_exports(Action({TWO: refused}), [export(ONE, "a1"), export(TWO, "a2")])
    assert found["a1"]["lun"] == 0 and found["a2"].code == "ISCSITargetCreateFailed"
    away = errors.HostUnreachable(host="s1", reason="gone")
    assert make_exports(Action(error=away), [export(ONE, "a1"), export(TWO, "a2")]) == {"a1": away, "a2": away}
    assert end_exports(Action(error=away), [ending(ONE)]) == {"a1": away}
    assert end_exports(Action({ONE: refused}), [ending(ONE, "a1", ("iqn.b",))])["a1"].code == refused.code


def test_a_backend_that_nobody_knows_any_more_is_an_error_of_its_own_exports():
    stranger = Export("a2", TWO, "old", {}, "iqn.a", ("iqn.a",))
    action = Action()
    found = make_exports(action, [export(ONE, "a1"), stranger])
    assert found["a1"]["lun"] == 0 and found["a2"].code == "DriverNotInitialized" and len(action.calls) == 1


def test_ending_an_export_needs_no_credentials_and_leaves_what_others_use():
    action = Action()
    ends = [ending(ONE), ending(ONE, "a3"), ending(TWO, "a2", ("iqn.b",))]
    assert end_exports(action, ends) == {"a1": None, "a2": None, "a3": None}
    path = "/dev/vg1/volume-" + TWO
    assert [c["exports"] for c in action.calls] == [
        [
            {"volume_id": ONE, "state": "absent"},
            {"volume_id": TWO, "state": "present", "path": path, "logins": [], "keep": ["iqn.b"]},
        ]
    ]
    assert make_exports(Action(), []) == {} and end_exports(Action(), []) == {}
