# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that write to their volumes while they go to another host running; hosts that cannot have the volumes, and dead runs."""

from __future__ import annotations

import time

import pytest
from test_boot_from_volume import READY, existing, on_volume, root
from test_live_migration import SLOW, keep_console, said, ticks, wait_ticks
from test_moves_with_volumes import admitted, operate
from volume_flow import GROUPS, VolumeFlow

pytestmark = pytest.mark.long

# It counts seconds in its memory, and writes each into a block of its own of all its volumes, where the image has nothing.
FIRST = 1843200  # blocks of 512 bytes
WRITING = (
    """#!/bin/sh
(i=0; while :; do
    i=$((i + 1))
    for disk in /sys/block/vd*; do
        [ "$(cat "$disk/size")" -ge 2097152 ] || continue
        printf '%%-512s' "second $i" | dd of=/dev/${disk##*/} bs=512 seek=$((%d + i)) conv=notrunc,fsync 2>/dev/null ||
            echo "FAILED to write $i to ${disk##*/}" >/dev/console
    done
    echo tick $i >/dev/console
    sleep 1
done) &
"""
    % FIRST
)


def booted(volumes: VolumeFlow) -> tuple[str, str]:
    """A guest on a volume of tgt, with another one of LIO that several may have. Returns its host, and the other host."""
    volumes.create({"name": "data", "size": 1, "volume_type": "thick", "multiattach": True})
    data = {**existing("data"), "boot_index": None}
    volumes.boot(on_volume("db", root(volume_type="thin"), data, user_data=WRITING), **READY)
    row = volumes.instances()["db"]
    (other,) = {h.name for h in volumes.lab.hosts} - {row["host"]}
    assert len(volumes.attached_to(row)) == 2
    wait_ticks(volumes, "db", 6)
    keep_console(volumes, "db")
    return row["host"], other


def is_on(volumes: VolumeFlow, host: str, counted: list[int]) -> None:
    """The guest runs on ``host`` and nowhere else; it wrote each second that it counted to all of its volumes, and only ``host`` is let in."""
    row = volumes.instances()["db"]
    assert (row["host"], row["vm_state"], row["task_state"]) == (host, "active", None)
    for each in volumes.lab.hosts:
        state = each.run("sh", "-c", "virsh -q -c qemu:///system domstate %s 2>/dev/null || true" % row["uuid"]).stdout
        assert (state.strip() == "running") == (each.name == host), (each.name, state)
        secrets = each.run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout.strip()
        assert bool(secrets) == (each.name == host), "secrets on %s: %s" % (each.name, secrets)
    rows = volumes.query("SELECT * FROM volume_attachments WHERE deleted = ''")
    assert len(rows) == 2
    for each in rows:
        found = (each["attached_host"], each["attach_status"], each["export"], each["connection"], each["run_id"])
        assert found == (host, "attached", "done", "done", None) and each["beside"] == ""
        assert admitted(volumes, each["volume_id"]) == [each["initiator"]]
    assert {v["status"] for v in volumes.volumes()} == {"in-use"}
    assert not volumes.query("SELECT 1 FROM cleanups") and len(volumes.query("SELECT 1 FROM claims")) == 1
    assert counted == list(range(5, len(counted) + 5)), counted
    for volume in volumes.volumes():
        written = on_storage(volumes, volume)
        missing = [n for n in counted if "second %d " % n not in written]
        assert not missing, "volume %s lacks %s" % (volume["name"], missing)
    volumes.check_ledger()


def on_storage(volumes: VolumeFlow, volume) -> str:
    """What the storage host has of it, past all caches."""
    path = "/dev/%s/volume-%s" % (GROUPS[volume["volume_type"]], volume["id"])
    return volumes.storage.sh(
        "dd if=%s bs=512 skip=%d count=2048 iflag=direct 2>/dev/null | tr -s '\\000 ' ' ' | sed 's/second/\\nsecond/g'"
        % (path, FIRST)
    )


def console_of(volumes: VolumeFlow, source: str) -> str:
    row = volumes.instances()["db"]
    return said(volumes, "db", source) if row["host"] != source else volumes.console(source, row["uuid"])


def counted_by(volumes: VolumeFlow, source: str) -> list[int]:
    text = console_of(volumes, source)
    assert "FAILED to write" not in text, text[-2000:]
    return ticks(text)


def gone(volumes: VolumeFlow) -> None:
    volumes.delete("db")
    volumes.remove("data")
    assert volumes.residue() == {}


def test_a_guest_writes_on_while_it_goes(volumes: VolumeFlow) -> None:
    """There by live_migrate, and back by drain."""
    source, other = booted(volumes)
    before = {r["id"] for r in volumes.query("SELECT id FROM volume_attachments WHERE deleted = ''")}
    planned = operate(volumes, "live_migrate", "--check", "--diff")
    assert "Would live_migrate" in planned
    is_on(volumes, source, counted_by(volumes, source))
    told = operate(volumes, "live_migrate", "-vvv", "--diff")
    assert volumes.secrets_in(told) == [] and volumes.secrets_in(volumes.everything_written()) == []
    wait_ticks(volumes, "db")
    is_on(volumes, other, counted_by(volumes, source))
    assert not before & {r["id"] for r in volumes.query("SELECT id FROM volume_attachments WHERE deleted = ''")}

    keep_console(volumes, "db")
    drained = volumes.run("drain", bootflow_drain_host=other)
    assert drained.returncode == 0 and "1 to live_migrate" in drained.output, drained.output
    row = volumes.instances()["db"]
    assert row["host"] == source
    wait_ticks(volumes, "db")
    again = ticks(said(volumes, "db", other))
    assert again == list(range(again[0], again[0] + len(again))), again
    is_on(volumes, source, list(range(5, again[-1] + 1)))
    assert volumes.run("host", bootflow_host=[other], bootflow_host_state="enabled").returncode == 0
    audited = volumes.run("audit")
    assert audited.returncode == 0, audited.output
    gone(volumes)


def test_a_new_host_that_cannot_have_the_volumes(volumes: VolumeFlow) -> None:
    """It does not reach the storage host; then the storage host itself does not answer. The guest writes on where it was."""
    source, other = booted(volumes)
    there = volumes.lab.host(other)
    there.run("ip", "route", "add", "blackhole", volumes.storage.vm.address)
    try:
        told = operate(volumes, "live_migrate", expect=2)
    finally:
        there.run("ip", "route", "delete", "blackhole", volumes.storage.vm.address)
    assert "MigrationError" in told and "The guest is still on its former host" in told, told
    wait_ticks(volumes, "db")
    is_on(volumes, source, counted_by(volumes, source))

    unreachable = operate(volumes, "live_migrate", expect=2, bootflow_volume_attach="kernel")
    assert "HostLacksHardware" in unreachable, unreachable
    wait_ticks(volumes, "db")
    is_on(volumes, source, counted_by(volumes, source))
    gone(volumes)


@pytest.mark.parametrize(
    "when",
    [
        "SELECT 1 FROM volume_attachments WHERE beside != '' AND deleted = ''",
        "SELECT 1 FROM volume_attachments WHERE beside != '' AND deleted = '' AND export = 'done'",
        "SELECT 1 FROM volume_attachments WHERE beside != '' AND deleted = '' AND connection = 'done'",
        "SELECT 1 FROM migrations WHERE status = 'running'",
        "SELECT 1 FROM migrations WHERE status = 'post-migrating'",
        "SELECT 1 FROM volume_attachments WHERE beside != '' AND deleted = '' AND export = 'ending'",
    ],
    ids=["begun", "exported", "connected", "running", "over", "cleaned"],
)
def test_a_run_that_is_killed(volumes: VolumeFlow, when: str) -> None:
    source, other = booted(volumes)
    process = volumes.start("live_migrate", {"bootflow_names": ["db"], **SLOW})
    try:
        volumes.wait_for(when, 240, process)
    finally:
        volumes.kill(process)
    end = time.monotonic() + 300
    while volumes.instances()["db"]["task_state"] is not None:
        assert time.monotonic() < end
        volumes.run("audit")
        time.sleep(2)
    assert volumes.run("heartbeat").returncode == 0
    audited = volumes.run("audit")
    assert audited.returncode == 0, audited.output
    row = volumes.instances()["db"]
    assert row["host"] in (source, other)
    wait_ticks(volumes, "db")
    is_on(volumes, row["host"], counted_by(volumes, source))
    gone(volumes)
