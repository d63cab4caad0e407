# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root disks that go back to snapshots, on real hosts: what the guest wrote since is gone, all else of the instance stays."""

from __future__ import annotations

import json
import re

import pytest
from flow import Flow, entry
from test_operations import READY, guest, operate, states_of, ticks, virsh, wait_ready
from test_rescue import definition
from test_snapshots import WRITER, Stores, number, raw

FOLDER = "/var/lib/bootflow/instances/"


@pytest.fixture
def stores(flow: Flow) -> Stores:
    return Stores(flow)


def revert(flow: Flow, name: str, image: str, expect: int = 0, options: tuple[str, ...] = ()) -> str:
    return operate(flow, "revert", name, expect=expect, options=options, bootflow_revert_image=image)


def written(flow: Flow, stores: Stores, name: str) -> int:
    """The number that the guest wrote last to its disk. The guest is off."""
    row = flow.instances()[name]
    copy = stores.shared / "copy"
    disk = "%s%s/disk" % (FOLDER, row["uuid"])
    flow.lab.host(row["host"]).run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", disk, str(copy))
    found = number(copy)
    copy.unlink()
    return found


def left(flow: Flow, name: str) -> str:
    row = flow.instances()[name]
    return flow.lab.host(row["host"]).run("sh", "-c", "ls -A %s%s | grep revert || true" % (FOLDER, row["uuid"])).stdout


def bases(flow: Flow, name: str) -> tuple[str, str, str]:
    """Base images of the root disk: by its header, by the definition of its guest, and that QEMU has opened ("": the guest is off)."""
    row = flow.instances()[name]
    host, disk = flow.lab.host(row["host"]), "%s%s/disk" % (FOLDER, row["uuid"])
    header = json.loads(host.run("qemu-img", "info", "-U", "--output=json", disk).stdout)["backing-filename"]
    named = re.findall(r"'(\S+/_base/\S+)'", definition(flow, name))
    opened = ""
    if guest(flow, name) == "running":
        argv = ("virsh", "-c", "qemu:///system", "qemu-monitor-command", row["uuid"], "--hmp", "info block")
        (opened,) = re.findall(r"Backing file: +(\S+)", host.run(*argv).stdout)
    assert len(named) == 1
    return header, named[0], opened


def without_base(text: str) -> str:
    return re.sub(r"/_base/[^']+", "/_base/", text)


def test_the_disk_is_what_it_was_at_the_time_of_the_snapshot(flow: Flow, stores: Stores) -> None:
    flow.boot(entry("web", user_data=WRITER), **READY)
    wait_ready(flow, "web", "tick 2")
    stores.take("web", "snap", store="shared")
    then = number(raw(stores.file("snap"), flow.folder))
    wait_ready(flow, "web", "tick %d" % (ticks(flow, "web")[-1] + 3))
    operate(flow, "stop", "web")
    before, row, now = definition(flow, "web"), flow.instances()["web"], written(flow, stores, "web")
    assert now > then > 0
    assert "Would revert" in revert(flow, "web", "snap", options=("--check", "--diff"))
    assert written(flow, stores, "web") == now and definition(flow, "web") == before
    old_base = bases(flow, "web")[0]

    revert(flow, "web", "snap")
    assert states_of(flow) == {("stopped", None)} and written(flow, stores, "web") == then
    assert left(flow, "web") == "" and without_base(definition(flow, "web")) == without_base(before)
    base = bases(flow, "web")[0]
    assert base != old_base and bases(flow, "web") == (base, base, "")
    operate(flow, "start", "web")
    life = virsh(flow, "web", "domid")
    revert(flow, "web", "snap")
    assert states_of(flow) == {("active", None)} and guest(flow, "web") == "running"
    assert virsh(flow, "web", "domid") != life and left(flow, "web") == ""
    assert bases(flow, "web") == (base, base, base), "QEMU has the base of the snapshot below the disk"
    assert without_base(definition(flow, "web")) == without_base(before)
    kept = ("uuid", "host", "request_spec_id")
    assert [flow.instances()["web"][name] for name in kept] == [row[name] for name in kept]
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_what_other_programs_left_is_named_and_refused(flow: Flow, stores: Stores) -> None:
    flow.boot(entry("web"), **READY)
    stores.take("web", "snap")
    row = flow.instances()["web"]
    host, life = flow.lab.host(row["host"]), virsh(flow, "web", "domid")
    of = ("virsh", "-c", "qemu:///system")
    host.run(*of, "snapshot-create-as", row["uuid"], "own")
    refused = revert(flow, "web", "snap", expect=2)
    assert "GuestHasSnapshots" in refused and "virsh snapshot-delete" in " ".join(refused.split())
    host.run(*of, "snapshot-delete", row["uuid"], "own")
    overlay = "vda,file=%s%s/disk.other" % (FOLDER, row["uuid"])
    host.run(*of, "snapshot-create-as", row["uuid"], "other", "--disk-only", "--diskspec", overlay)
    assert "GuestDisksDiffer" in revert(flow, "web", "snap", expect=2)
    assert guest(flow, "web") == "running" and virsh(flow, "web", "domid") == life and left(flow, "web") == ""
    assert states_of(flow) == {("active", None)}
    host.run(*of, *"blockcommit --active --shallow --pivot --wait".split(), row["uuid"], "vda")
    host.run(*of, "snapshot-delete", row["uuid"], "other", "--metadata")
    revert(flow, "web", "snap")
    assert guest(flow, "web") == "running"
    flow.delete("web")
