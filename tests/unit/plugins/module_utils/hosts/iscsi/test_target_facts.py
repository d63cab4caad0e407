# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import CommandFailed
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import names
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import target as targets
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import target_lio as lio
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi import target_tgt as tgt
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_facts import (
    targets_facts,
    targets_there,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import Completed

from .test_target import ID, IQN, ME, OTHER_ID, SECRET, FakeLio, wish

PREFIX = "iqn.2010-10.org.openstack:"
OTHER = PREFIX + "volume-" + OTHER_ID
FOREIGN = "iqn.2004-10.com.example:disk1"

# What tgtadm of tgt 1.0.85 prints; the second target is of Cinder, the third of a person.
TGTADM = """Target 1: %s
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
        I_T nexus: 3
            Initiator: %s alias: compute1
            Connection: 0
                IP Address: 192.0.2.20
    LUN information:
        LUN: 0
            Type: controller
            SCSI ID: IET     00010000
            SCSI SN: beaf10
            Size: 0 MB, Block size: 1
            Online: Yes
            Backing store type: null
            Backing store path: None
            Backing store flags:
        LUN: 1
            Type: disk
            SCSI ID: %s
            SCSI SN: %s
            Size: 1074 MB, Block size: 512
            Online: Yes
            Backing store type: rdwr
            Backing store path: /dev/vg/volume-%s
            Backing store flags:
    Account information:
        user1
    ACL information:
        255.255.255.255
        %s
Target 2: %s
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
    LUN information:
        LUN: 0
            Type: controller
            SCSI ID: IET     00020000
            Backing store path: None
        LUN: 1
            Type: disk
            SCSI ID: IET     00020001
            Backing store path: /dev/cinder/volume-%s
    Account information:
    ACL information:
        ALL
Target 3: %s
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
    LUN information:
    Account information:
    ACL information:
""" % (IQN, ME, ID.replace("-", ""), ID.replace("-", ""), ID, ME, OTHER, OTHER_ID, FOREIGN)


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "LOCK_ROOT", str(tmp_path / "run"))


@pytest.fixture
def volume(tmp_path):
    path = tmp_path / "volume"
    path.write_bytes(b"v" * 4096)
    return str(path)


@pytest.fixture
def tgtd(tmp_path, monkeypatch):
    """A tgtd that says TGTADM, and the folder of its files."""
    monkeypatch.setattr(tgt, "program", lambda name, package: name)
    monkeypatch.setattr(tgt, "run", lambda argv, timeout=None, check=True: Completed(0, TGTADM, ""))
    folder = tmp_path / "conf.d"
    folder.mkdir()
    return folder


def test_the_targets_of_tgt_and_whose_they_are(tgtd):
    assert targets_there(tgt.TgtTarget(str(tgtd)), PREFIX) == [
        {
            "iqn": IQN,
            "volume_id": ID,
            "path": "/dev/vg/volume-" + ID,
            "sessions": [ME],
            "running": True,
            "ours": True,  # by its identity: no file was written yet
        },
        {
            "iqn": OTHER,
            "volume_id": OTHER_ID,
            "path": "/dev/cinder/volume-" + OTHER_ID,
            "sessions": [],
            "running": True,
            "ours": False,
        },
    ]
    assert targets_there(tgt.TgtTarget(str(tgtd)), "iqn.2026-01.org.example:") == []


def test_what_only_a_file_of_tgt_knows_is_there_and_does_not_run(tgtd, monkeypatch):
    monkeypatch.setattr(tgt, "run", lambda argv, timeout=None, check=True: Completed(0, "", ""))
    export = targets.export_of(wish("/dev/vg/volume-" + ID))
    (tgtd / ("volume-%s.conf" % ID)).write_text(tgt.config_text(export))
    (tgtd / ("volume-%s.conf" % OTHER_ID)).write_text("<target %s>\n    backing-store /dev/x\n</target>\n" % OTHER)
    (tgtd / "mine.conf").write_text("<target %s>\n</target>\n" % FOREIGN)
    found = targets_there(tgt.TgtTarget(str(tgtd)), PREFIX)
    assert [(f["iqn"], f["running"], f["ours"]) for f in found] == [(IQN, False, True), (OTHER, False, False)]
    assert SECRET not in json.dumps(found)


def test_targets_of_another_ledger_are_not_listed(tmp_path, volume):
    """Their names have its id; those of no ledger are listed for each."""
    made = lio.LioTarget(str(tmp_path / "saveconfig.json"), FakeLio())
    ledger, another = "1ed9e000-0000-4000-8000-000000000001", "5ec0d000-0000-4000-8000-000000000002"
    own = names.ledger_prefix(PREFIX, ledger)
    assert own == PREFIX + "ledger-1ed9e000."
    targets.make_exports(made, [wish(volume)], own)
    targets.make_exports(made, [{**wish(volume), "volume_id": OTHER_ID}], PREFIX)
    seen = {who: {f["iqn"] for f in targets_there(made, PREFIX, who)} for who in (ledger, another, "")}
    assert seen == {ledger: {own + "volume-" + ID, OTHER}, another: {OTHER}, "": {OTHER}}


def test_the_targets_of_lio_and_whose_they_are(tmp_path, volume):
    library = FakeLio()
    file = tmp_path / "saveconfig.json"
    made = lio.LioTarget(str(file), library)
    targets.make_exports(made, [wish(volume)])
    # As Cinder's rtstool makes one, and a person.
    for name in (OTHER, FOREIGN):
        store = library.BlockStorageObject(name, "/dev/cinder/x", "made up by the kernel")
        target = library.Target(library.FabricModule("iscsi"), name)
        library.LUN(library.TPG(target, 1), 0, storage_object=store)
    library.kernel.sessions.add(ME)
    found = targets_there(lio.LioTarget(str(file), library), PREFIX)
    assert [(f["iqn"], f["path"], f["sessions"], f["running"], f["ours"]) for f in found] == [
        (IQN, volume, [ME], True, True),
        (OTHER, "/dev/cinder/x", [], True, False),
    ]
    assert SECRET not in json.dumps(found)


def test_what_lio_lost_and_only_its_file_has_does_not_run(tmp_path, volume):
    library = FakeLio()
    file = tmp_path / "saveconfig.json"
    targets.make_exports(lio.LioTarget(str(file), library), [wish(volume)])
    library.kernel.targets.clear()
    library.kernel.stores.clear()
    (found,) = targets_there(lio.LioTarget(str(file), library), PREFIX)
    assert (found["iqn"], found["running"], found["ours"]) == (IQN, False, True)
    # One that lost its disk, as a restore leaves it when the volume group was late.
    library.Target(library.FabricModule("iscsi"), IQN)
    (found,) = targets_there(lio.LioTarget(str(file), library), PREFIX)
    assert (found["running"], found["ours"]) == (False, True)


def test_one_kind_that_cannot_be_read_does_not_fail_the_other(tmp_path, volume):
    library = FakeLio()
    made = lio.LioTarget(str(tmp_path / "saveconfig.json"), library)
    targets.make_exports(made, [wish(volume)])

    def down():
        raise CommandFailed(cmd="tgtadm", rc=107, stderr="not connected", remedy="Start the service tgt.")

    asked = [{"target": kind, "iqn_prefix": PREFIX} for kind in ("tgt", "lio")]
    first, second = targets_facts(asked, kinds={"lio": lambda: made, "tgt": down})
    assert (first["target"], first["exports"], first["error"]["remedy"]) == ("tgt", [], "Start the service tgt.")
    assert (second["target"], second["iqn_prefix"], second["error"]) == ("lio", PREFIX, None)
    assert [e["iqn"] for e in second["exports"]] == [IQN]
    answer.check("storage_backend_info", "s1", {"backends": {}, "targets": [first, second]})
