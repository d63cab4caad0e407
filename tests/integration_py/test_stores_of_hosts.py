# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images whose only place is a directory of one real host: other hosts get them from there, by TLS, and nothing of them passes the controller."""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry, image_file
from test_operations import READY, operate, wait_ready
from test_rescue import disks

STORE = "/var/lib/bootflow-store"  # each lab host has its own /var/lib
BASE, OWN = "/var/lib/bootflow/instances/_base", "/var/lib/bootflow/instances/_snapshots"


@pytest.fixture
def store(flow: Flow) -> t.Iterator[str]:
    """A store of compute1 that is a directory of that host alone."""
    one = flow.lab.host("compute1")
    one.run("mkdir", "-p", STORE)
    flow.variables["bootflow_allow_forced_host"] = True
    flow.variables["bootflow_image_stores"] = [
        {"name": "of-one", "kind": "host", "host": "compute1", "path": STORE},
    ]
    yield STORE
    one.run("rm", "-rf", STORE)


def files(flow: Flow, host: str, folder: str) -> list[str]:
    return str(flow.lab.host(host).run("sh", "-c", "ls -A %s 2>/dev/null || true" % folder).stdout).split()


def on(host: str, **more: t.Any) -> dict[str, t.Any]:
    return dict(entry("on-" + host, availability_zone="nova:" + host, **more))


def test_an_image_of_a_store_of_one_host_boots_on_two_others(flow: Flow, store: str, guest_image: Path) -> None:
    source = image_file(guest_image)
    wanted = {"name": "stored", "url": "file://" + source["path"], "checksum": source["checksum"]}
    imported = flow.run("image_import", bootflow_image_imports=[{**wanted, "disk_format": "qcow2", "min_disk": 1}])
    assert imported.returncode == 0, imported.output
    ((image_id,),) = flow.query("SELECT id FROM images")
    assert files(flow, "compute1", STORE) == [image_id] and files(flow, "compute2", STORE) == []

    flow.boot(on("compute2", image="stored"), on("compute3", image="stored"), **READY)
    for name in ("on-compute2", "on-compute3"):
        wait_ready(flow, name)
        assert flow.instances()[name]["host"] == name.partition("-")[2]
    for host in ("compute2", "compute3"):
        made = [name for name in files(flow, host, BASE) if name.startswith(image_id)]
        assert sorted(Path(name).suffix for name in made) == [".json", ".raw"], "no half file is left"
    assert not [name for name in files(flow, "compute1", BASE) if name.startswith(image_id)]
    digest = flow.lab.host("compute1").run("sha256sum", "%s/%s" % (STORE, image_id)).stdout.split()[0]
    assert digest == hashlib.sha256(guest_image.read_bytes()).hexdigest()

    # A host that lacks it cannot get it while the store has no file of it; a host that has it is not affected.
    flow.lab.host("compute3").run("sh", "-c", "rm -f %s/%s*" % (BASE, image_id))
    flow.lab.host("compute1").run("mv", "%s/%s" % (STORE, image_id), STORE + "/away")
    failed = operate(flow, "rescue", "on-compute3", expect=2, bootflow_rescue_image_ref="stored")
    assert "ImageNotReadable" in failed and "no such file" in failed and image_id in failed
    operate(flow, "rebuild", "on-compute2", bootflow_rebuild_image="stored")
    flow.lab.host("compute1").run("mv", STORE + "/away", "%s/%s" % (STORE, image_id))
    operate(flow, "rescue", "on-compute3", bootflow_rescue_image_ref="stored")
    assert flow.instances()["on-compute3"]["vm_state"] == "rescued"
    flow.delete("on-compute2", "on-compute3")
    assert flow.residue() == {}
    assert flow.run("image_delete", bootflow_image_names=["stored"]).returncode == 0
    assert files(flow, "compute1", STORE) == []


# The label of the guest's root disk, from then on.
KEEP = "#!/bin/sh\nprintf 'KEPT       ' | dd of=/dev/vda1 bs=1 seek=43 conv=notrunc,fsync\n"


@pytest.mark.long
def test_a_snapshot_on_one_host_comes_to_the_store_of_another_and_boots_on_a_third(flow: Flow, store: str) -> None:
    flow.boot(on("compute2", user_data=KEEP), **READY)
    wait_ready(flow, "on-compute2")
    snapshot = {"bootflow_snapshot_name": "snap", "bootflow_snapshot_store": "of-one"}
    operate(flow, "snapshot", "on-compute2", **snapshot)
    ((image_id, status, size, checksum),) = flow.query("SELECT id, status, size, checksum FROM images")
    assert status == "active" and files(flow, "compute1", STORE) == [image_id]
    one = flow.lab.host("compute1")
    assert one.run("stat", "-c", "%s %a", "%s/%s" % (STORE, image_id)).stdout.split() == [str(size), "600"]
    assert one.run("sha256sum", "%s/%s" % (STORE, image_id)).stdout.split()[0] == checksum
    assert files(flow, "compute2", OWN) == [], "the host that made it has nothing of it"
    assert "nothing to do" in operate(flow, "snapshot", "on-compute2", **snapshot)

    flow.boot(on("compute3", image="snap"), **READY)
    assert disks(flow, "on-compute3")["vda1"] == "KEPT"

    # A store that is full leaves nothing of the next one, on neither host.
    one.fail("disk", STORE)
    snapshot["bootflow_snapshot_name"] = "next"
    assert "DiskFull" in operate(flow, "snapshot", "on-compute2", expect=2, **snapshot)
    one.restore()
    assert files(flow, "compute1", STORE) == [image_id] and files(flow, "compute2", OWN) == []
    assert [tuple(row) for row in flow.query("SELECT name FROM images WHERE deleted = ''")] == [("snap",)]
    flow.delete("on-compute2", "on-compute3")
    assert flow.residue() == {}
    assert flow.run("image_delete", bootflow_image_names=["snap"]).returncode == 0
    assert files(flow, "compute1", STORE) == []
