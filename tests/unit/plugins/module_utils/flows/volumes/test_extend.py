# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import exports, life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import extend
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import (
    attachments,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

PLACE = "s1@lvm#lvm"


@pytest.fixture
def vw(vworld: VolumeWorld) -> VolumeWorld:
    vworld.store("s1", lvm=100)
    return vworld


def refused(vw: VolumeWorld, name: str, size: t.Any, **how: t.Any) -> str:
    before = vw.everything()
    with pytest.raises(errors.InvalidRequest) as error:
        vw.extend(name, size, **how)
    assert vw.everything() == before
    (only,) = error.value.errors
    return "%s %s" % (only["path"], only["code"])


def test_a_volume_grows(vw: VolumeWorld) -> None:
    volume_id = vw.make("v", 10)
    begun = vw.extend("v", "30")
    assert [r.id for r in begun.rows] == [volume_id] and begun.hosts == ["s1"] and begun.compute_hosts == []
    row = vw.volume("v")
    assert (row.status, row.size, row.new_size, row.pending_gb, row.run_id) == ("extending", 10, 30, 20, "run-a")
    pool = vw.pools()[PLACE]
    assert (pool.free_capacity_gb, pool.allocated_capacity_gb) == (70, 30)
    (work,) = vw.work_of()
    assert work.volumes == [
        {"id": volume_id, "kind": "volume", "project": "default", "state": "extended", "size_gb": 30}
    ]
    assert vw.worked("s1", {"lvm": vw.storage["s1"].do(work)}).done == [volume_id]
    row = vw.volume("v")
    assert (row.status, row.size, row.new_size, row.pending_gb, row.previous_status) == ("available", 30, None, 0, None)
    assert vw.pools()[PLACE].free_capacity_gb == 70
    assert vw.extend("v", 30).unchanged == [volume_id] and vw.extend(volume_id, 30).unchanged == [volume_id]
    assert vw.notified(volume_id)[-2:] == ["volume.resize.start", "volume.resize.end"]


def test_what_is_refused(vw: VolumeWorld) -> None:
    vw.make("v", 10)
    assert refused(vw, "none", 20) == "volumes[0] VolumeNotFound"
    assert refused(vw, "v", 9) == "volumes[0] InvalidInput"
    assert refused(vw, "v", "much") == "volumes[0] InvalidInput"
    assert refused(vw, "v", 101) == "volumes[0].size NoValidBackend"
    vw.quotas = {"gigabytes": 15}
    assert refused(vw, "v", 16) == "quotas VolumeSizeExceedsAvailableQuota"
    vw.quotas = {"per_volume_gigabytes": 15, "gigabytes": -1}
    assert refused(vw, "v", 16) == "volumes[0].size VolumeSizeExceedsLimit"
    vw.quotas = {"gigabytes": 15}
    assert vw.extend("v", 15).rows
    assert refused(vw, "v", 16, run="b") == "volumes[0] VolumeLocked"
    vw.work()
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(status="maintenance"))
    assert refused(vw, "v", 16) == "volumes[0] InvalidVolume"
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(status="available"))


def test_room_is_taken_once_for_all_of_a_request(vw: VolumeWorld) -> None:
    vw.make("a", 10)
    vw.make("b", 10)
    wishes = [{"volume": "a", "size": 50}, {"volume": "b", "size": 60}]
    with vw.ledger.write() as tx, pytest.raises(errors.InvalidRequest) as error:
        extend.begin(tx.for_run(vw.context()), wishes, vw.settings(), vw.volume_options())
    assert [(e["path"], e["code"]) for e in error.value.errors] == [("volumes[1].size", "NoValidBackend")]
    with vw.ledger.write() as tx, pytest.raises(errors.InvalidRequest, match="named twice"):
        extend.begin(tx.for_run(vw.context()), wishes[:1] * 2, vw.settings(), vw.volume_options())


def test_a_disabled_backend_extends_what_it_has_and_a_silent_one_does_not(vw: VolumeWorld) -> None:
    vw.make("v", 10)
    vw.reported("s1", disabled=True)
    assert vw.extend("v", 20).rows
    vw.silent()
    assert vw.status("v") == "error_extending"
    assert vw.pools()[PLACE].free_capacity_gb == 80  # it may have been done
    assert refused(vw, "v", 30) == "volumes[0].size NoValidBackend"


@pytest.mark.parametrize("end", ["failed", "silent", "killed"])
def test_an_extension_that_did_not_end_well_is_asked_for_again(vw: VolumeWorld, end: str) -> None:
    volume_id = vw.make("v", 10)
    vw.extend("v", 60)
    if end == "failed":
        assert list(vw.work(v=errors.VolumeBackendAPIException(data="x")).failed) == [volume_id]
        assert (vw.volume("v").pending_gb, vw.volume("v").new_size) == (0, None)
    elif end == "silent":
        vw.silent()
        vw.reported("s1")
    else:
        vw.work_of()
        vw.time += 601
    begun = vw.extend("v", 60, run="b")
    assert [r.id for r in begun.rows] == [volume_id]
    assert vw.volume("v").pending_gb == 50
    assert vw.work(run="b").done == [volume_id]
    row = vw.volume("v")
    assert (row.status, row.size, row.pending_gb) == ("available", 60, 0)


def test_a_volume_in_use_grows_and_its_host_is_told(vw: VolumeWorld) -> None:
    vw.report("h1")
    guest = vw.boot("guest", networks=())
    volume_id = vw.make("v", 10)
    with vw.ledger.write() as tx:
        life.reserve(tx.for_run(vw.context()), vw.volume("v"), guest, "/dev/vdb")
        life.bind_hosts(tx.for_run(vw.context()), {guest: attachments.Connector("h1", "iqn.2001-04.org:x")})
        (export,) = exports.to_export(tx.for_run(vw.context()), "s1")
        target = {"iqn": "iqn.2010-10.org.openstack:x", "lun": 1, "portals": ["192.0.2.1:3260"]}
        exports.exported(tx.for_run(vw.context()), "s1", {export.attachment_id: target})
        life.connecting(tx.for_run(vw.context()), [export.attachment_id])
        life.connected(tx.for_run(vw.context()), {export.attachment_id: "/dev/sdb"})
        life.attached(tx.for_run(vw.context()), [export.attachment_id])
    assert vw.status("v") == "in-use"
    begun = vw.extend("v", 20)
    assert begun.compute_hosts == ["h1"]
    assert vw.work().done == [volume_id]
    row = vw.volume("v")
    assert (row.status, row.attach_status, row.size) == ("in-use", "attached", 20)
    assert [a.rescan for a in vw.rows(volume_tables.volume_attachments)] == [True]
    # It is as large as asked, and its host is still to look: it may not have been able to.
    again = vw.extend("v", 20)
    assert again.unchanged == [volume_id] and again.hosts == [] and again.compute_hosts == ["h1"]
    with vw.ledger.write() as tx:
        tx.execute(volume_tables.volume_attachments.update().values(rescan=False))
    assert vw.extend("v", 20).compute_hosts == []
    assert [a["host"] for a in vw.shown("v")["attached_to"]] == ["h1"]
    assert [a["instance"] for a in vw.shown("v")["attached_to"]] == ["guest"]
    assert vw.shown("v")["attached_to"][0]["device"] == "/dev/vdb"
    # the instance ends while it grows again
    vw.extend("v", 30)
    with vw.ledger.write() as tx:
        life.disconnected(tx.for_run(vw.context("d")), [export.attachment_id])
        exports.to_unexport(tx.for_run(vw.context("d")), "s1")
        exports.unexported(tx.for_run(vw.context("d")), "s1", {export.attachment_id: None})
    vw.work()
    row = vw.volume("v")
    assert (row.status, row.attach_status, row.size) == ("available", "detached", 30)


@pytest.mark.parametrize("thin", [False, True])
def test_a_thick_volume_in_use_with_snapshots_is_refused_before_anything_begins(
    vworld: VolumeWorld, thin: bool
) -> None:
    """LVM does not extend it: it ended in error_extending, in which it cannot be detached."""
    vworld.store("s1", thin=thin, lvm=100)
    volume_id = vworld.make("v", 10)
    vworld.snapshot({"name": "monday", "volume": "v"})
    vworld.work()

    def set_status(status: str, attach_status: str) -> None:
        with vworld.ledger.write() as tx:
            values = {"status": status, "attach_status": attach_status}
            tx.execute(volume_tables.volumes.update().values(**values))

    set_status("in-use", "attached")
    if thin:
        assert [r.id for r in vworld.extend("v", 20).rows] == [volume_id]
        return
    assert refused(vworld, "v", 20) == "volumes[0].size InvalidVolume"
    set_status("available", "detached")
    assert [r.id for r in vworld.extend("v", 20).rows] == [volume_id]
