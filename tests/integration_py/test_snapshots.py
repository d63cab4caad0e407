# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances on real hosts: what is in them, what the guest notices of it, and what a run that dies leaves."""

from __future__ import annotations

import json
import re
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from flow import Flow, build_guest_image, entry, image_file
from test_operations import READY, guest, operate, states_of, ticks, virsh, wait_ready
from test_rescue import definition, disks

OWN = "/var/lib/bootflow/instances/_snapshots"
# The label of the guest's root disk becomes KEPT, and then a number that grows is written to the disk each second.
WRITER = r"""#!/bin/sh
mark() { printf '%-11s' "$1" | dd of=/dev/vda1 bs=1 seek=43 conv=notrunc,fsync 2>/dev/null; }
mark KEPT
(i=0; while :; do i=$((i+1)); printf '%08d' $i | dd of=/dev/vda bs=1 seek=1073741312 conv=notrunc,fsync 2>/dev/null
echo tick $i >/dev/console; sleep 1; done) &
"""
NUMBER = 1073741312  # the offset of that number


class Stores:
    """The stores of a flow: a directory of the controller, and one that all hosts have."""

    def __init__(self, flow: Flow):
        self.flow = flow
        self.here, self.shared = flow.folder / "here", flow.folder / "shared"
        for folder in (self.here, self.shared):
            folder.mkdir(mode=0o755)
        flow.variables["bootflow_image_stores"] = [
            {"name": "here", "path": str(self.here)},
            {"name": "shared", "path": str(self.shared), "kind": "shared"},
        ]

    def take(self, name: str, image: str, expect: int = 0, options: tuple[str, ...] = (), **more: t.Any) -> str:
        more = {"bootflow_snapshot_%s" % word: value for word, value in more.items()}
        return operate(
            self.flow, "snapshot", name, expect=expect, options=options, bootflow_snapshot_name=image, **more
        )

    def rows(self) -> dict[str, t.Any]:
        """name -> row of images that are not deleted."""
        return {row["name"]: row for row in self.flow.query("SELECT * FROM images WHERE deleted = ''")}

    def file(self, image: str) -> Path:
        """The file of an image, in whichever store."""
        image_id = self.rows()[image]["id"]
        (found,) = [f / image_id for f in (self.here, self.shared) if (f / image_id).exists()]
        return found

    def left(self) -> list[str]:
        """Files of unfinished images, on all hosts and in the stores."""
        known = {row["id"] for row in self.rows().values()}
        found = [str(p) for f in (self.here, self.shared) for p in f.iterdir() if p.name not in known]
        for host in self.flow.lab.hosts:
            found += host.run("sh", "-c", "ls -A %s 2>/dev/null || true" % OWN).stdout.split()
        return found


@pytest.fixture
def stores(flow: Flow) -> Stores:
    return Stores(flow)


def raw(image: Path, folder: Path) -> Path:
    """The content of an image."""
    target = folder / (image.name + ".raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(image), str(target)], check=True)
    return target


def number(content: Path) -> int:
    """The number that the guest wrote last."""
    with content.open("rb") as file:
        file.seek(NUMBER)
        return int(file.read(8) or b"0")


def jobs(flow: Flow, name: str) -> str:
    row = flow.instances()[name]
    argv = ("virsh", "-c", "qemu:///system", "blockjob", row["uuid"], "vda", "--info")
    return flow.lab.host(row["host"]).run(*argv, check=False).stdout.strip()


def test_an_image_of_a_running_guest_boots_another(flow: Flow, stores: Stores) -> None:
    flow.boot(entry("web", user_data=WRITER), **READY)
    wait_ready(flow, "web", "tick 2")
    before, life = definition(flow, "web"), virsh(flow, "web", "domid")
    planned = stores.take("web", "snap", options=("--check", "--diff"))
    assert "Would snapshot" in planned and stores.rows() == {} and stores.left() == []
    assert stores.take("web", "gone", expect=2, store="none").count("ImageStoreNotFound")

    begun = ticks(flow, "web")[-1]
    done = stores.take("web", "snap")
    assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    assert definition(flow, "web") == before and virsh(flow, "web", "domid") == life
    assert jobs(flow, "web") in ("", "No current block job for vda") and stores.left() == []
    row = stores.rows()["snap"]
    assert row["id"] in done and (row["status"], row["disk_format"]) == ("active", "qcow2")
    info = subprocess.run(["qemu-img", "info", str(stores.file("snap"))], stdout=subprocess.PIPE, text=True, check=True)
    assert "backing" not in info.stdout
    written = number(raw(stores.file("snap"), flow.folder))
    assert begun <= written <= ticks(flow, "web")[-1]
    wait_ready(flow, "web", "tick %d" % (ticks(flow, "web")[-1] + 2))
    seen = [tick for tick in ticks(flow, "web") if tick >= begun]
    assert seen == list(range(begun, seen[-1] + 1)), "the guest lost no second"

    flow.boot(entry("copy", image="snap"), **READY)
    assert disks(flow, "copy")["vda1"] == "KEPT"
    assert "nothing to do" in stores.take("web", "snap")
    flow.delete("web", "copy")
    assert flow.residue() == {}
    assert flow.run("image_delete", bootflow_image_names=["snap"]).returncode == 0
    assert stores.rows() == {} and list(stores.here.iterdir()) == []


def test_images_of_guests_that_do_not_run_have_the_bytes_of_the_disk(flow: Flow, stores: Stores) -> None:
    flow.boot(entry("web", user_data=WRITER), **READY)
    wait_ready(flow, "web", "tick 2")
    row = flow.instances()["web"]
    host, disk = flow.lab.host(row["host"]), "/var/lib/bootflow/instances/%s/disk" % row["uuid"]
    own = {"bootflow_snapshot_image_format": "raw", "bootflow_snapshot_compression": True}
    for state, back in (("pause", "unpause"), ("suspend", "resume"), ("stop", "start")):
        operate(flow, state, "web")
        before, was = definition(flow, "web"), states_of(flow)
        stores.take("web", state, store="shared")
        argv = ("qemu-img", "compare", "-U", "-f", "qcow2", "-F", "qcow2", disk, str(stores.file(state)))
        same = host.run(*argv, check=False)
        assert "identical" in same.stdout, (state, same.stdout, same.stderr)
        assert states_of(flow) == was and definition(flow, "web") == before and stores.left() == []
        assert stores.file(state).stat().st_mode & 0o777 == 0o644
        if state == "stop":
            flow.variables.update(own)
            stores.take("web", "raw", store="shared")
            (image,) = [r for n, r in stores.rows().items() if n == "raw"]
            assert image["disk_format"] == "raw" and json.loads(image["properties"])["image_type"] == "snapshot"
            argv = ("qemu-img", "compare", "-f", "qcow2", "-F", "raw", disk, str(stores.file("raw")))
            assert "identical" in host.run(*argv).stdout
            flow.variables["bootflow_snapshot_image_format"] = "qcow2"
            stores.take("web", "small")
            assert stores.file("small").stat().st_size < stores.file("stop").stat().st_size
            for name in ("first", "second", "third"):
                backup = {"bootflow_backup_name": name, "bootflow_backup_type": "daily", "bootflow_backup_rotation": 1}
                operate(flow, "create_backup", "web", **backup)
            kept = stores.rows()
            assert {"first", "second", "third"} & set(kept) == {"third"}
            stores.take("web", "last")  # removes the file of the second one
            assert {p.name for p in stores.here.iterdir()} == {
                stores.rows()[n]["id"] for n in ("small", "third", "last")
            }
        operate(flow, back, "web")
        wait_ready(flow, "web", "tick 2")
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_snapshot_that_is_killed(flow: Flow, stores: Stores, state: str) -> None:
    """At any moment: no job, no file and no image is left, and the guest is as before."""
    # Random bytes that take a while to copy.
    fill = "dd if=/dev/urandom of=/dev/vda bs=1M seek=200 count=300 conv=notrunc,fsync 2>/dev/null\necho filled\n"
    flow.boot(entry("web", user_data=WRITER + fill), **READY)
    wait_ready(flow, "web", "filled")
    if state == "stopped":
        operate(flow, "stop", "web")
    before, was = definition(flow, "web"), states_of(flow)
    for moment in (0.3, 1.0, 2.0, 3.0):
        process = flow.start("snapshot", {"bootflow_names": ["web"], "bootflow_snapshot_name": "snap"})
        flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'image_uploading'", 60, process)
        time.sleep(moment)
        flow.kill(process)
        deadline = time.monotonic() + 60
        while True:
            done = flow.run("audit").output
            if states_of(flow) == was:
                break
            assert "still works on the guest" in done and time.monotonic() < deadline, done
        assert stores.rows() == {} or stores.rows()["snap"]["status"] == "active"
        assert definition(flow, "web") == before
        if state == "running":
            assert guest(flow, "web") == "running" and jobs(flow, "web") in ("", "No current block job for vda")
    stores.take("web", "snap")
    assert stores.rows()["snap"]["status"] == "active" and stores.left() == []
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_what_other_programs_did_to_the_disk_is_seen(flow: Flow, stores: Stores) -> None:
    """A job of a backup program is left alone, and so is the overlay of an external snapshot."""
    flow.boot(entry("web", user_data=WRITER), **READY)
    row = flow.instances()["web"]
    host, folder = flow.lab.host(row["host"]), "/var/lib/bootflow/instances/%s" % row["uuid"]
    virsh_of = ("virsh", "-c", "qemu:///system")
    host.run(
        *virsh_of,
        "blockcopy",
        row["uuid"],
        "vda",
        folder + "/other.qcow2",
        "--format",
        "qcow2",
        "--transient-job",
        "--wait",
    )
    refused = stores.take("web", "snap", expect=2)
    assert (
        "has a job already" in " ".join(refused.split()) and "Ready" in jobs(flow, "web") or "100" in jobs(flow, "web")
    )
    host.run(*virsh_of, "blockjob", row["uuid"], "vda", "--abort")
    host.run("rm", folder + "/other.qcow2")
    assert stores.rows() == {} and stores.left() == [] and states_of(flow) == {("active", None)}
    host.run(
        *virsh_of,
        "snapshot-create-as",
        row["uuid"],
        "other",
        "--disk-only",
        "--diskspec",
        "vda,file=%s/disk.other" % folder,
    )
    refused = stores.take("web", "snap", expect=2)
    assert "GuestDisksDiffer" in refused and stores.rows() == {} and stores.left() == []
    assert guest(flow, "web") == "running"
    host.run(*virsh_of, *"blockcommit --active --shallow --pivot --wait".split(), row["uuid"], "vda")  # the remedy
    host.run(*virsh_of, "snapshot-delete", row["uuid"], "other", "--metadata")
    stores.take("web", "snap")
    flow.delete("web")


@pytest.mark.long
def test_the_agent_has_file_systems_stand_still(flow: Flow, stores: Stores) -> None:
    image = build_guest_image("--ssh")
    properties = {"hw_qemu_guest_agent": "yes", "os_require_quiesce": "yes"}
    flow.variables["bootflow_images"].append(
        {"name": "agent", **image_file(image), "disk_format": "qcow2", "properties": properties}
    )
    flow.boot(
        entry("web", image="agent"),
        entry("deaf", image="agent", user_data="#!/bin/sh\nrm /usr/sbin/qemu-ga\n"),
        **READY,
    )
    wait_ready(flow, "web", "BOOTFLOW-GUEST-AGENT")
    before = definition(flow, "web")
    done = stores.take("web", "still")
    assert re.search(r"image still", done) and stores.rows()["still"]["status"] == "active"
    assert definition(flow, "web") == before
    refused = stores.take("deaf", "never", expect=2)
    assert "InstanceQuiesceNotSupported" in refused and list(stores.rows()) == ["still"] and stores.left() == []
    assert jobs(flow, "deaf") in ("", "No current block job for vda")
    flow.delete("web", "deaf")
