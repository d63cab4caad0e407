# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests with volumes go to another host and back, with all that they have written; faults in the middle, and dead runs."""

from __future__ import annotations

import time

import pytest
from flow import FLAVORS
from test_boot_from_volume import READY, existing, on_volume, root
from volume_flow import VolumeFlow

# It counts its boots on each of its volumes, where the image has nothing.
COUNTING = """#!/bin/sh
for disk in /sys/block/vd*; do
    [ "$(cat "$disk/size")" -ge 2097152 ] || continue
    name=${disk##*/}
    n=$(dd if=/dev/$name bs=1048576 skip=900 count=1 2>/dev/null | head -c 16 | tr -dc 0-9)
    n=$((${n:-0} + 1))
    printf '%-16s' $n | dd of=/dev/$name bs=1048576 seek=900 conv=notrunc 2>/dev/null
    sync
    echo "BOOTS of $(cat "$disk/serial")=$n="
done
"""
INITIATORS = (
    "ls -d /sys/kernel/config/target/iscsi/*%(id)s/tpgt_1/acls/* 2>/dev/null; "
    "sed -n 's/^ *initiator-name/acls/p' /etc/tgt/conf.d/*%(id)s* 2>/dev/null; true"
)


def admitted(volumes: VolumeFlow, volume: str) -> list[str]:
    """The initiators that the storage host lets in to a volume."""
    return sorted(
        line.replace("/", " ").split()[-1]
        for line in volumes.storage.sh(INITIATORS % {"id": volume}).split("\n")
        if line
    )


def operate(volumes: VolumeFlow, playbook: str, *options: str, expect: int = 0, **variables) -> str:
    done = volumes.run(playbook, *options, bootflow_names=["db"], **variables)
    assert done.returncode == expect, done.output
    return done.output


def is_on(volumes: VolumeFlow, host: str, boots: int) -> None:
    """The guest runs on ``host`` and nowhere else, has counted so many boots on all of its volumes, and only ``host`` is let in to them."""
    row = volumes.instances()["db"]
    assert row["host"] == host
    for volume in volumes.attached_to(row):
        volumes.until_console(row, "BOOTS of %s=%d=" % (volume[:20], boots))
    for each in volumes.lab.hosts:
        said = each.run("sh", "-c", "virsh -q -c qemu:///system domstate %s 2>/dev/null || true" % row["uuid"]).stdout
        assert (said.strip() == "running") == (each.name == host), (each.name, said)
        secrets = each.run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout.strip()
        assert bool(secrets) == (each.name == host), "secrets on %s: %s" % (each.name, secrets)
    rows = volumes.query("SELECT * FROM volume_attachments WHERE deleted = ''")
    for each in rows:
        found = (each["attached_host"], each["attach_status"], each["export"], each["connection"], each["run_id"])
        assert found == (host, "attached", "done", "done", None)
        assert admitted(volumes, each["volume_id"]) == [each["initiator"]]
    assert {v["status"] for v in volumes.volumes()} == {"in-use"}
    volumes.check_ledger()


def wanted() -> dict:
    data = {**existing("data"), "boot_index": None}
    return on_volume("db", root(volume_type="thin"), data, user_data=COUNTING)


def booted(volumes: VolumeFlow) -> tuple[str, str]:
    """A guest on a volume of tgt, with another one of LIO. Returns its host, and the other host."""
    volumes.create({"name": "data", "size": 1, "volume_type": "thick"})
    volumes.boot(wanted(), **READY)
    source = volumes.instances()["db"]["host"]
    (other,) = {h.name for h in volumes.lab.hosts} - {source}
    is_on(volumes, source, 1)
    return source, other


def gone(volumes: VolumeFlow) -> None:
    volumes.delete("db")
    volumes.remove("data")
    assert volumes.residue() == {}


def test_a_guest_takes_its_volumes_to_another_host(volumes: VolumeFlow) -> None:
    """It boots from a volume of tgt and has one of LIO."""
    _source, other = booted(volumes)
    told = operate(volumes, "migrate", "-vvv", "--diff")
    assert volumes.instances()["db"]["vm_state"] == "resized" and volumes.secrets_in(told) == []
    is_on(volumes, other, 2)
    gone(volumes)


@pytest.mark.long
def test_back_again_and_a_run_that_dies(volumes: VolumeFlow) -> None:
    """What guests wrote stays written; what a dead run left without a connection the next start connects."""
    source, other = booted(volumes)
    operate(volumes, "migrate")
    is_on(volumes, other, 2)
    operate(volumes, "revert_resize")
    assert volumes.instances()["db"]["vm_state"] == "active"
    is_on(volumes, source, 3)

    process = volumes.start("migrate", {"bootflow_names": ["db"]})
    try:
        volumes.wait_for("SELECT 1 FROM volume_attachments WHERE deleted = '' AND connection = 'none'", 180, process)
    finally:
        volumes.kill(process)
    audited = volumes.run("audit")
    assert audited.returncode == 0, audited.output
    row = volumes.instances()["db"]
    if row["vm_state"] == "resized":  # the run had come so far
        operate(volumes, "revert_resize")
    else:
        assert row["vm_state"] == "stopped", dict(row)
        operate(volumes, "start")
    is_on(volumes, source, 4)
    gone(volumes)


GROWN = {"name": "grown", "vcpus": 2, "memory_mb": 256, "root_gb": 1, "swap": 32}


@pytest.mark.long
def test_resized_where_it_is(volumes: VolumeFlow) -> None:
    """It boots from a volume: its own host takes the new flavor, is killed in it, gives it back, keeps it; the volumes come back each time."""
    source, other = booted(volumes)
    done = volumes.run("host", bootflow_host=[other], bootflow_host_state="disabled")
    assert done.returncode == 0, done.output
    flavors = [*FLAVORS, GROWN]
    how = {
        "bootflow_resize_flavor": "grown", "bootflow_allow_resize_to_same_host": True, "bootflow_flavors": flavors,
    }  # fmt: skip
    operate(volumes, "resize", **how)
    row = volumes.instances()["db"]
    assert (row["vm_state"], row["memory_mb"]) == ("resized", 256)
    is_on(volumes, source, 2)
    volumes.until_console(row, "bytes=%d " % (32 * 1024**2))  # its swap
    assert len(volumes.query("SELECT 1 FROM claims")) == 2
    operate(volumes, "revert_resize")
    row = volumes.instances()["db"]
    assert (row["vm_state"], row["memory_mb"]) == ("active", 192)
    is_on(volumes, source, 3)

    for moment in ("resize_migrating", "resize_finish"):
        process = volumes.start("resize", {"bootflow_names": ["db"], **how})
        try:
            volumes.wait_for("SELECT 1 FROM instances WHERE task_state = '%s'" % moment, 180, process)
        finally:
            volumes.kill(process)
        time.sleep(10)  # what still works on the host ends
        audited = volumes.run("audit")
        assert audited.returncode == 0, audited.output
        row = volumes.instances()["db"]
        assert row["task_state"] is None, audited.output
        if row["vm_state"] == "resized":
            operate(volumes, "revert_resize")
        elif row["vm_state"] == "stopped":
            operate(volumes, "start")
        row = volumes.instances()["db"]
        assert (row["vm_state"], row["memory_mb"]) == ("active", 192)
        volumes.run("heartbeat")
        assert len(volumes.query("SELECT 1 FROM claims")) == 1 and not volumes.query("SELECT 1 FROM cleanups")
        folder = volumes.lab.host(source).run("ls", "/var/lib/bootflow/instances/%s" % row["uuid"]).stdout
        assert "resize" not in folder
    operate(volumes, "resize", **how)
    operate(volumes, "confirm_resize")
    row = volumes.instances()["db"]
    assert (row["vm_state"], row["memory_mb"], row["host"]) == ("active", 256, source)
    assert len(volumes.query("SELECT 1 FROM claims")) == 1
    assert all(r["connection"] == "done" for r in volumes.query("SELECT * FROM volume_attachments WHERE deleted = ''"))
    volumes.check_ledger()
    volumes.run("host", bootflow_host=[other], bootflow_host_state="enabled")
    gone(volumes)


@pytest.mark.long
def test_swap_is_all_that_its_hosts_have_of_it(volumes: VolumeFlow) -> None:
    """It boots from a volume, and has no config drive: nothing is copied, and its swap is made on the new host."""
    more = {"bootflow_flavors": [*FLAVORS, GROWN], "bootflow_force_config_drive": False}
    wants = on_volume("db", root(volume_type="thin"), flavor="grown", config_drive=False)
    volumes.boot(wants, **READY, **more)
    row = volumes.instances()["db"]
    source, folder = row["host"], "/var/lib/bootflow/instances/%s" % row["uuid"]
    assert not row["config_drive"]
    operate(volumes, "migrate", **more)
    row = volumes.instances()["db"]
    assert row["host"] != source and row["vm_state"] == "resized"
    there = volumes.lab.host(row["host"])
    assert "disk.swap" in there.run("ls", folder).stdout.split()
    assert there.run("virsh", "-q", "-c", "qemu:///system", "domstate", row["uuid"]).stdout.strip() == "running"
    volumes.until_console(row, "bytes=%d " % (32 * 1024**2))
    operate(volumes, "confirm_resize", **more)
    volumes.check_ledger()
    volumes.delete("db")
    assert volumes.residue() == {}


@pytest.mark.long
def test_a_host_that_is_not_as_dead_as_it_seems(volumes: VolumeFlow) -> None:
    """It is forced down, and its guest still runs: the storage host cuts it off before the new host gets the volumes."""
    source, other = booted(volumes)
    former = volumes.instances()["db"]
    assert volumes.run("heartbeat").returncode == 0
    down = {"bootflow_host": [source], "bootflow_host_state": "forced_down"}
    assert volumes.run("host", **down).returncode == 0
    operate(volumes, "evacuate", bootflow_instances=[wanted()])
    row = volumes.instances()["db"]
    assert (row["host"], row["vm_state"], row["uuid"]) == (other, "active", former["uuid"])
    for volume in volumes.attached_to(row):
        volumes.until_console(row, "BOOTS of %s=2=" % volume[:20])
    there = volumes.lab.host(source)
    said = there.run("virsh", "-c", "qemu:///system", "domstate", row["uuid"]).stdout.strip()
    assert said in ("running", "paused"), "it lost its disks, and nothing else"

    assert volumes.run("host", **{**down, "bootflow_host_state": "up"}).returncode == 0
    audited = volumes.run("audit")
    assert audited.returncode == 0, audited.output
    is_on(volumes, other, 2)
    gone(volumes)


@pytest.mark.long
def test_back_from_a_host_that_is_not_as_dead_as_it_seems(volumes: VolumeFlow) -> None:
    """The new host is forced down before the move is decided, and its guest still runs: it is cut off before the former host has the volumes again."""
    source, other = booted(volumes)
    operate(volumes, "migrate")
    is_on(volumes, other, 2)
    down = {"bootflow_host": [other], "bootflow_host_state": "forced_down"}
    assert volumes.run("host", **down).returncode == 0
    operate(volumes, "revert_resize")
    row = volumes.instances()["db"]
    assert (row["host"], row["vm_state"]) == (source, "active")
    for volume in volumes.attached_to(row):
        volumes.until_console(row, "BOOTS of %s=3=" % volume[:20])
    for each in volumes.query("SELECT * FROM volume_attachments WHERE deleted = ''"):
        assert admitted(volumes, each["volume_id"]) == [each["initiator"]]

    assert volumes.run("host", **{**down, "bootflow_host_state": "up"}).returncode == 0
    audited = volumes.run("audit")
    assert audited.returncode == 0, audited.output
    is_on(volumes, source, 3)
    gone(volumes)
