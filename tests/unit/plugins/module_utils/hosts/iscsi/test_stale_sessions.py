# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import compute
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import MissingLibrary
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.names import attachment_secret
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.qemu_connection import secret_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import initiator, stale_sessions
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import secrets

from . import test_initiator
from .test_initiator import ID, IQN, OTHER_ID, PORTALS

PREFIX = "iqn.2010-10.org.openstack:"
OTHER = PREFIX + "volume-" + OTHER_ID
FOREIGN = "iqn.2004-10.com.example:disk1"
# The fixture of a host with sessions
host = test_initiator.host


class Libvirt:
    def __init__(self, *iqns):
        self.iqns = iqns

    def listAllSecrets(self, flags):
        return [
            types.SimpleNamespace(usageType=lambda: 3, usageID=lambda i=iqn: i, UUIDString=lambda i=iqn: secret_uuid(i))
            for iqn in self.iqns
        ]


@pytest.fixture(autouse=True)
def libvirt(monkeypatch):
    fake = types.SimpleNamespace(VIR_SECRET_USAGE_TYPE_ISCSI=3, libvirtError=KeyError)
    monkeypatch.setattr(secrets, "libvirt", fake)
    monkeypatch.setattr(secrets, "libvirt_errors", contextlib.nullcontext)


def told(machine, known=(), connection=None):
    found = stale_sessions.iscsi_ends(connection or Libvirt(), [PREFIX], known, machine.initiator())
    compute.ISCSI(found, "iscsi")
    return found


def test_sessions_and_records_that_nobody_named(host):
    host.one()
    host.one(volume_id=OTHER_ID, iqn=OTHER)
    host.one(volume_id="11111111-2222-4333-8444-555555555555", iqn=FOREIGN)
    number = next(n for n, (_where, iqn) in host.sessions.items() if iqn == OTHER)
    del host.sessions[number]  # its record is left
    found = told(host)
    assert found["error"] is None
    assert found["sessions"] == [
        {
            "iqn": IQN,
            "volume_id": ID,
            "session": True,
            "luns": [1],
            "portals": PORTALS[:1],
            "in_use": [],
        },
        {
            "iqn": OTHER,
            "volume_id": OTHER_ID,
            "session": False,
            "luns": [],
            "portals": PORTALS[:1],
            "in_use": [],
        },
    ]
    assert [s["iqn"] for s in told(host, known=[IQN])["sessions"]] == [OTHER]
    (host.nodes / OTHER / "192.0.2.10,3260").unlink()
    assert told(host, known=[IQN])["sessions"] == [], "an empty folder is no record"


def test_a_guest_that_shares_a_volume_has_a_secret_of_its_own(host):
    attachment = "11111111-2222-4333-8444-555555555555"
    secret = attachment_secret(IQN, attachment)
    found = told(host, connection=Libvirt(secret, OTHER, FOREIGN))
    assert found["secrets"] == [{"iqn": secret, "volume_id": ID}, {"iqn": OTHER, "volume_id": OTHER_ID}]
    assert told(host, known=[IQN, OTHER], connection=Libvirt(secret, OTHER))["secrets"] == []


def test_what_is_told_is_enough_to_end_it(host):
    host.one()
    (end,) = told(host)["sessions"]
    wish = {"volume_id": end["volume_id"], "iqn": end["iqn"], "lun": end["luns"][0], "portals": end["portals"]}
    outcome = host.make({**wish, "state": "disconnected"})["outcomes"][ID]
    assert outcome["error"] is None and outcome["changes"] == ["disk", "session", "record"]
    assert host.sessions == {} and told(host)["sessions"] == []


def test_a_disk_that_is_in_use_is_told_so(host):
    host.one()
    (host.proc / "self" / "mountinfo").write_text("1 0 8:0 / /srv rw - ext4 /dev/sda rw\n")
    (end,) = told(host)["sessions"]
    assert end["in_use"] == ["sda is mounted at /srv"]


def test_secrets_that_nobody_named(host):
    found = told(host, known=[OTHER], connection=Libvirt(IQN, OTHER, FOREIGN))
    assert (found["secrets"], found["error"]) == ([{"iqn": IQN, "volume_id": ID}], None)


def test_a_host_without_iscsiadm_has_no_session(host, monkeypatch):
    def program(name, package):
        raise MissingLibrary(name=name, package=package, where="host")

    monkeypatch.setattr(initiator, "program", program)
    assert told(host) == {"sessions": [], "secrets": [], "error": None}


def test_what_cannot_be_read_fails_nothing(host, monkeypatch):
    host.sessions[1] = (PORTALS[0], IQN)
    monkeypatch.setattr(initiator, "run", lambda *args, **how: initiator.Completed(1, "", "iscsid is gone"))
    found = told(host)
    assert found["error"]["code"] == "CommandFailed" and "iscsid is gone" in found["error"]["message"]
