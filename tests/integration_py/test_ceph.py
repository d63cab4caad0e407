# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes in a real Ceph, on real hosts: created, attached, grown, cloned, and what a cluster does that is full, hangs, or is used by others."""

from __future__ import annotations

import subprocess
import time
import typing as t
from pathlib import Path

import ceph_lab
import pytest
from ceph_flow import BACKEND, POOL, CephFlow
from conftest import _watched
from flow import entry
from test_operations import READY, operate, wait_ready

GIB = 1024**3


@pytest.fixture(scope="module")
def ceph(lab: t.Any, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[ceph_lab.CephLab, str]]:
    """A cluster that the lab's hosts reach, with a pool and its user's key."""
    made = ceph_lab.CephLab(tmp_path_factory.mktemp("ceph") / "cluster", lab.controller_address)
    try:
        made.start()
        made.pool(POOL)
        key = made.user(POOL)
        made.wait_for_figures(POOL)
        yield made, key
    finally:
        made.stop()


@pytest.fixture
def linux(lab: t.Any, guest_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]) -> t.Iterator[CephFlow]:
    """A new ledger and an empty pool; the flow's image "guest" is a Linux, which gives disks back."""
    flow = CephFlow(lab, tmp_path, guest_image, *ceph)
    yield from _watched(lab, flow)
    flow.clear()


@pytest.fixture
def rbd(
    lab: t.Any, still_image: Path, tmp_path: Path, ceph: tuple[ceph_lab.CephLab, str]
) -> t.Iterator[CephFlow]:
    """A new ledger and an empty pool; the flow's image "guest" is the still one."""
    flow = CephFlow(lab, tmp_path, still_image, *ceph)
    yield from _watched(lab, flow)
    flow.clear()
    assert not flow.key_files(), "keys are left on the storage host"


def on(host: str, name: str = "web", **more: t.Any) -> dict[str, t.Any]:
    return entry(name, availability_zone="nova:%s" % host, **more)


def attach(flow: CephFlow, volume: str, instance: str = "web") -> str:
    return flow.must("attach_volume", bootflow_attachments=[{"instance": instance, "volume": volume}])


def disks(flow: CephFlow, host: str, name: str) -> str:
    return flow.virsh(host, "dumpxml", flow.instances()[name]["uuid"])


def test_a_volume_is_created_attached_grown_detached_and_deleted(linux: CephFlow) -> None:
    rbd = linux
    rbd.create({"name": "data", "size": 1})
    assert rbd.size("data") == GIB
    rbd.boot(on("compute1"), **READY)
    wait_ready(rbd, "web")
    attach(rbd, "data")
    assert len(rbd.watchers("data")) == 1
    xml = disks(rbd, "compute1", "web")
    assert "protocol='rbd'" in xml and "%s/%s" % (POOL, rbd.image("data")) in xml and rbd.key not in xml
    assert len(rbd.secrets("compute1")) == 1 and not rbd.secrets("compute2")

    rbd.must("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
    uuid = rbd.instances()["web"]["uuid"]
    assert rbd.size("data") == 2 * GIB
    assert str(2 * GIB) in rbd.virsh("compute1", "domblkinfo", uuid, "vdb")

    rbd.must("detach_volume", bootflow_attachments=[{"volume": "data"}])
    assert rbd.watchers("data") == [] and rbd.secrets("compute1") == []
    rbd.must("volume_delete", bootflow_volume_names=["data"])
    assert rbd.ceph.images(POOL) == []
    assert rbd.key not in rbd.everything_written()
