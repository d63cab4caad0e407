# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import delete
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE


@pytest.fixture
def bw(bworld: BootWorld) -> BootWorld:
    """A host with the instance "web" on it, which has the volume "data" of s1; "free" has the snapshot "monday"."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("data", size=10)
    bworld.make("free", size=3)
    bworld.snapshot({"name": "monday", "volume": "free"})
    bworld.work()
    disk = device("volume", uuid=bworld.volume("data").id, boot_index=1)
    bworld.boot_of(volume_request("web", disk, image=IMAGE))
    return bworld


def forget(bw: BootWorld, *names: str, run: str = "u", known: t.Collection[str] = ("h1",), **how: t.Any) -> t.Any:
    with bw.ledger.write() as tx:
        return delete.unmanage(tx.for_run(bw.context(run)), known, names=list(names) or None, project="default", **how)


def test_its_rows_and_quota_are_free_and_nobody_is_asked(bw: BootWorld) -> None:
    volume_id = bw.volume("free").id
    with pytest.raises(errors.InvalidVolume):
        forget(bw, "free")  # it has a snapshot
    begun = forget(bw, "free", cascade=True)
    assert (begun.hosts, begun.rows) == ([], [])
    assert begun.without_host == [{"id": volume_id, "name": "free", "pool_host": "s1@lvm#lvm"}]
    assert [s.deleted != "" for s in bw.rows(volume_tables.volume_snapshots)] == [True]
    with bw.ledger.write() as tx:
        deleted, left = delete.finish(tx.for_run(bw.context("u")))
    assert [d["id"] for d in deleted] == [volume_id] and left == []
    assert bw.storage["s1"].there["lvm"].pop(volume_id) == 3  # where it was, until somebody takes it away
    bw.storage["s1"].there["lvm"] = {bw.volume("data").id: 10}
    bw.make("free", size=3)


def test_what_a_guest_has_is_refused_until_the_guest_is_gone(bw: BootWorld) -> None:
    for how in ({}, {"force": True}, {"cascade": True}):
        with pytest.raises(errors.InvalidVolume, match="attached"):
            forget(bw, "data", **how)
    (uuid,) = [r.uuid for r in bw.rows(tables.instances)]
    found = bw.delete("d", uuids=[uuid])
    bw.disconnect("h1", [uuid], "d")
    bw.removed("h1", [r["uuid"] for r in bw.of_host("h1", "d")], "d")
    bw.finish("d")
    assert found.hosts == ["h1"]
    assert bw.ends("data") == ("detached", "ending", "none")
    with pytest.raises(errors.BootflowError):
        forget(bw, "data", run="d", known=("h1", "s1"))  # s1 is there, and exports it still
    volume_id = bw.volume("data").id
    begun = forget(bw, "data", run="d")
    assert [g["name"] for g in begun.without_host] == ["data"]
    assert bw.live_attachments() == []
    del bw.storage["s1"].there["lvm"][volume_id]


def test_something_has_to_say_which(bw: BootWorld) -> None:
    before = bw.everything()
    with pytest.raises(errors.InvalidInput, match="no volumes are selected"):
        forget(bw)
    assert bw.everything() == before
