# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boot from volume with real guests: LVM and targets on the storage host, guests on the lab's hosts, by QEMU's own initiator.

The kernel's initiator is in test_kernel_way.py. Each test ends with nothing left: no logical volume, target, secret, domain, row.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import recorder
from flow import entry
from volume_flow import GROUPS, VolumeFlow

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
# Tells each change of the guest's disks: virtio shows the first 20 characters of a serial.
WATCH = """#!/bin/sh
(
    while :; do
        now=$(for disk in /sys/block/vd*; do echo "${disk##*/}:$(cat "$disk/serial"):$(($(cat "$disk/size") * 512))"; done | tr '\\n' ' ')
        [ "$now" = "$before" ] || echo "DISKS $now." >/dev/console
        before=$now
        sleep 1
    done
) &
"""
GIB = 1024**3


def root(**fields) -> dict:
    """A volume made from the image, booted from, that goes with its instance."""
    return {
        "source_type": "image",
        "uuid": "guest",
        "destination_type": "volume",
        "volume_size": 1,
        "boot_index": 0,
        "delete_on_termination": True,
        **fields,
    }


def on_volume(name: str, *devices: dict, **fields) -> dict:
    """An entry without an image of its own."""
    wanted = entry(name, block_device_mapping=list(devices), **fields)
    del wanted["image"]
    return wanted


def existing(volume: str, **fields) -> dict:
    return {"source_type": "volume", "uuid": volume, "destination_type": "volume", "boot_index": 0, **fields}


@pytest.mark.parametrize("kind", ["thick", pytest.param("thin", marks=pytest.mark.long)])
def test_a_volume_is_made_on_the_way_and_goes_with_its_instance(
    volumes: VolumeFlow, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """thick is exported by LIO, thin by tgt."""
    for name, value in recorder.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    told = volumes.boot(
        on_volume("db", root(volume_type=kind), user_data=WATCH), options=("-vvv", "--diff"), **READY
    ).output
    row = volumes.instances()["db"]
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["attach_status"], volume["bootable"]) == ("in-use", "attached", 1)
    assert volume["pool_host"].startswith("storage1@%s#" % kind) and volumes.attached_to(row) == [volume["id"]]
    console = volumes.console(row["host"], row["uuid"])
    assert "BOOTFLOW-GUEST hostname=db " in console
    address = volumes.query(
        "SELECT ip_address FROM ip_allocations JOIN ports ON ports.id = port_id WHERE instance_uuid = ?", row["uuid"]
    )[0]["ip_address"]
    assert " address=%s/24 uuid=%s " % (address, row["uuid"]) in console
    assert "BOOTFLOW-GUEST-DISK name=vda bytes=%d label= serial=%s" % (GIB, volume["id"][:20]) in console
    assert sorted(volumes.exported()) == [volume["id"]]
    for text in (volumes.everything_written(), told, recorder.told(tmp_path)):
        assert volumes.secrets_in(text) == [], "CHAP users and secrets are nowhere but at the two ends"
    assert volumes.secrets_read_by_others() == ""
    listed = volumes.run("volume_list")
    assert listed.returncode == 0 and volume["id"] in listed.output and "db" in listed.output
    volumes.boot(on_volume("db", root(volume_type=kind), user_data=WATCH), **READY)
    assert [v["id"] for v in volumes.volumes()] == [volume["id"]], "booted already: nothing is made"
    volumes.delete("db")
    assert volumes.residue() == {}


@pytest.mark.long
def test_a_volume_of_ones_own(volumes: VolumeFlow) -> None:
    """Made first, booted from, kept when the instance goes, booted from again with what was written, deleted."""
    wanted = [{"name": "system", "size": 1, "image": "guest", "volume_type": "thin"}]
    volumes.create(*wanted)
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["bootable"]) == ("available", 1)
    volumes.boot(on_volume("first", existing("system")), **READY)
    (volume,) = volumes.volumes()
    assert volume["status"] == "in-use"
    refused = volumes.run("volume_delete", bootflow_volume_names=["system"])
    assert refused.returncode != 0 and "InvalidVolume" in refused.output and "detach" in refused.output
    second = volumes.run("boot", bootflow_instances=[on_volume("second", existing("system"))])
    assert second.returncode != 0 and "InvalidVolume" in second.output
    assert sorted(volumes.instances()) == ["first"]
    volumes.delete("first")
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["attach_status"]) == ("available", "detached") and volumes.exported() == {}
    volumes.boot(on_volume("second", existing(volume["id"])), **READY)
    volumes.delete("second")
    volumes.remove("system")
    assert volumes.residue() == {}


@pytest.mark.long
def test_rebuilt_guests_log_in_to_their_volumes_as_before(volumes: VolumeFlow) -> None:
    """Only the definition of the guest has the users of the logins, which an earlier run made."""
    volumes.create({"name": "data", "size": 1, "volume_type": "thin"})
    local = {"source_type": "image", "uuid": "guest", "destination_type": "local", "boot_index": 0}
    web = entry("web", block_device_mapping=[local, {**existing("data"), "boot_index": None}])
    volumes.boot(web, on_volume("db", root(volume_type="thick")), **READY)
    done = volumes.run("rebuild", bootflow_names=["web", "db"])
    assert done.returncode == 0 and "lost its power" not in done.output, done.output
    for row in volumes.instances().values():
        assert (row["vm_state"], row["task_state"]) == ("active", None)
        volumes.until_console(row, "BOOTFLOW-GUEST-READY")
    assert volumes.run("stop", bootflow_names=["web"]).returncode == 0
    assert volumes.run("rebuild", bootflow_names=["web"]).returncode == 0
    row = volumes.instances()["web"]
    assert (row["vm_state"], row["power_state"]) == ("stopped", 4)
    assert volumes.run("start", bootflow_names=["web"]).returncode == 0
    volumes.until_console(row, "BOOTFLOW-GUEST-READY")
    volumes.delete("web", "db")
    volumes.remove("data")
    assert volumes.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["thick", "thin"])
def test_a_root_volume_is_written_again_from_another_image(volumes: VolumeFlow, kind: str) -> None:
    """It keeps its id, and its snapshot. An image that does not come leaves the guest its disk."""
    (image,) = volumes.variables["bootflow_images"]
    bad = {**image, "name": "bad", "checksum": "sha256:" + "0" * 64}
    newer = {**image, "name": "newer", "properties": {"os_distro": "bootflow"}}
    volumes.variables["bootflow_images"] = [image, newer, bad]
    mark = "#!/bin/sh\necho MINE | dd of=/dev/vda bs=512 seek=2000000 count=1 conv=sync,notrunc 2>/dev/null\nsync\necho MARKED >/dev/console\n"
    wanted = on_volume("db", root(volume_type=kind), user_data=mark)
    volumes.boot(wanted, **READY)
    row, (before,) = volumes.instances()["db"], volumes.volumes()
    volumes.until_console(row, "MARKED")
    # The thick group has no room for another one.
    snapshots = [{"name": "monday", "volume": before["id"], "force": True}] if kind == "thin" else []
    if snapshots:
        assert volumes.run("volume_snapshot", bootflow_snapshots=snapshots).returncode == 0
    path = "/dev/%s/volume-%s" % (GROUPS[kind], before["id"])

    def at_mark() -> str:
        return volumes.storage.sh(
            "dd if=%s bs=512 skip=2000000 count=1 iflag=direct status=none | tr -d '\\0'" % path
        ).strip()

    assert at_mark() == "MINE"
    failed = volumes.run("rebuild", bootflow_names=["db"], bootflow_rebuild_image="bad")
    assert failed.returncode != 0 and "ImageChecksumMismatch" in failed.output, failed.output
    row, (volume,) = volumes.instances()["db"], volumes.volumes()
    assert (row["vm_state"], row["task_state"], row["power_state"], volume["status"]) == ("active", None, 1, "in-use")
    volumes.until_console(row, "BOOTFLOW-GUEST-READY")
    assert at_mark() == "MINE", "the guest has its disk again"

    done = volumes.run("rebuild", bootflow_names=["db"], bootflow_rebuild_image="newer")
    assert done.returncode == 0 and "image guest -> newer" in done.output, done.output
    row, (volume,) = volumes.instances()["db"], volumes.volumes()
    assert (row["vm_state"], row["task_state"], volume["status"]) == ("active", None, "in-use")
    assert (volume["id"], volume["size"], volume["volume_type"]) == (
        before["id"],
        before["size"],
        before["volume_type"],
    )
    assert '"newer"' in volume["image_metadata"] and volumes.attached_to(row) == [volume["id"]]
    volumes.until_console(row, "BOOTFLOW-GUEST-READY")
    tags = volumes.storage.lvs(GROUPS[kind])["volume-" + volume["id"]]["lv_tags"]
    assert "bootflow.source=image/%s" % volume["image_id"] in tags and "bootflow.incomplete" not in tags
    if snapshots:
        removed = volumes.run("volume_snapshot", bootflow_snapshots=[{**snapshots[0], "state": "absent"}])
        assert removed.returncode == 0, removed.output
    volumes.delete("db")
    assert volumes.residue() == {}


@pytest.mark.long
def test_a_rescue_has_the_volumes_behind_it(volumes: VolumeFlow) -> None:
    """The root disk is a volume, second in the guest of the rescue; the definition comes back to the letter."""
    volumes.boot(on_volume("db", root(volume_type="thin")), **READY)
    row, (volume,) = volumes.instances()["db"], volumes.volumes()
    host = volumes.lab.host(row["host"])

    def definition() -> str:
        argv = ("virsh", "-c", "qemu:///system", "dumpxml", "--inactive", "--security-info", row["uuid"])
        return host.run(*argv).stdout

    before = definition()
    refused = volumes.run("rescue", bootflow_names=["db"])
    assert refused.returncode != 0 and "InstanceNotRescuable" in refused.output, refused.output
    done = volumes.run("rescue", bootflow_names=["db"], bootflow_rescue_image_ref="guest")
    assert done.returncode == 0 and volumes.instances()["db"]["vm_state"] == "rescued", done.output
    end = time.monotonic() + 120
    while "BOOTFLOW-GUEST-READY" not in volumes.console(row["host"], row["uuid"]):
        assert time.monotonic() < end, volumes.console(row["host"], row["uuid"])
        time.sleep(0.5)
    console = volumes.console(row["host"], row["uuid"])
    assert "BOOTFLOW-GUEST-DISK name=vdb bytes=%d label= serial=%s" % (GIB, volume["id"][:20]) in console
    assert "serial=%s" % volume["id"][:20] not in console.partition("name=vda ")[2].partition("\n")[0]
    done = volumes.run("unrescue", bootflow_names=["db"])
    assert done.returncode == 0 and volumes.instances()["db"]["vm_state"] == "active", done.output
    assert definition() == before
    done = volumes.run("reboot", bootflow_names=["db"], bootflow_reboot_type="HARD")
    assert done.returncode == 0, "a run that does not know the secret of the volume: " + done.output
    volumes.delete("db")
    assert volumes.residue() == {}


@pytest.mark.long
def test_a_lost_domain_with_volumes_is_defined_again(volumes: VolumeFlow) -> None:
    """With the domain its host loses the user with whom QEMU logs in: the volume gets another one, once the ledger knows of the loss."""
    volumes.boot(on_volume("db", root()), **READY)
    row = volumes.instances()["db"]
    host = volumes.lab.host(row["host"])

    def lose() -> None:
        for verb in ("destroy", "undefine"):
            host.run("virsh", "-q", "-c", "qemu:///system", verb, row["uuid"])

    def reboot(expect: int) -> str:
        done = volumes.run("reboot", bootflow_names=["db"], bootflow_reboot_type="HARD")
        assert done.returncode == expect, done.output
        return done.output

    lose()
    assert "has lost the domain of instance" in reboot(2)
    assert volumes.run("heartbeat").returncode == 0
    reboot(0)
    assert volumes.instances()["db"]["vm_state"] == "active"
    reboot(0)
    end = time.monotonic() + 120
    while "BOOTFLOW-GUEST-READY" not in volumes.console(row["host"], row["uuid"]):
        assert time.monotonic() < end, volumes.console(row["host"], row["uuid"])
        time.sleep(0.5)
    volumes.delete("db")
    assert volumes.residue() == {}


@pytest.mark.long
def test_hot_attach_extend_and_detach(volumes: VolumeFlow) -> None:
    """On a running guest whose root is local; the guest sees the serial and the new size."""
    volumes.boot(entry("app", user_data=WATCH), **READY)
    row = volumes.instances()["app"]
    volumes.create({"name": "data", "size": 1, "volume_type": "thick"})
    attach = {"bootflow_attachments": [{"instance": "app", "volume": "data"}]}
    done = volumes.run("attach_volume", **attach)
    assert done.returncode == 0, done.output
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["attach_status"]) == ("in-use", "attached")
    serial = volume["id"][:20]
    volumes.until_console(row, ":%s:%d " % (serial, GIB))
    again = volumes.run("attach_volume", **attach)
    assert again.returncode == 0 and "changed=0" in again.output
    grown = volumes.run("volume_extend", bootflow_volumes=[{"name": "data", "size": 2}])
    assert grown.returncode == 0, grown.output
    volumes.until_console(row, ":%s:%d " % (serial, 2 * GIB))
    done = volumes.run("detach_volume", **attach)
    assert done.returncode == 0, done.output
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["size"]) == ("available", 2) and volumes.exported() == {}
    assert volumes.console(row["host"], row["uuid"]).rstrip().splitlines()[-1].count(serial) == 0
    again = volumes.run("detach_volume", **attach)
    assert again.returncode == 0 and "changed=0" in again.output
    volumes.delete("app")
    volumes.remove("data")
    assert volumes.residue() == {}


@pytest.mark.long
def test_root_data_and_local_disks_together(volumes: VolumeFlow) -> None:
    """Two guests; the second boot from the same image on thin takes no copy; blank volumes and a local ephemeral beside."""
    devices = [
        root(volume_type="thin"),
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "volume_type": "thick",
         "delete_on_termination": True},
        {"source_type": "blank", "destination_type": "local", "volume_size": 1},
    ]  # fmt: skip
    volumes.boot(on_volume("pair", *devices, flavor="full", max_count=2), **READY)
    rows = volumes.instances()
    assert sorted(rows) == ["pair-1", "pair-2"] and len(volumes.volumes()) == 4
    for row in rows.values():
        mine = {volume[:20] for volume in volumes.attached_to(row)}
        console = volumes.console(row["host"], row["uuid"])
        assert len(mine) == 2 and all("serial=%s" % serial in console for serial in mine)
    origins = {
        lv["origin"] for lv in volumes.storage.lvs(GROUPS["thin"]).values() if lv["lv_name"].startswith("volume-")
    }
    assert len(origins) == 1 and "" not in origins, "both are snapshots of the one converted image"
    volumes.delete(*rows)
    assert volumes.residue() == {}


@pytest.mark.long
def test_refusals_before_anything_is_touched(volumes: VolumeFlow) -> None:
    volumes.create({"name": "empty", "size": 1, "volume_type": "thick"})
    cases = [
        (on_volume("x", existing("nothere")), "InvalidBDMVolume"),
        (on_volume("x", existing("empty")), "not bootable"),
        (on_volume("x", root(volume_size=None)), "volume_size"),
        (on_volume("x", root(), root(boot_index=0)), "InvalidBDMBootSequence"),
        (on_volume("x", root(boot_index=1)), "InvalidBDMBootSequence"),
        (on_volume("x", root(volume_type="nosuch")), "VolumeTypeNotFound"),
        (on_volume("x", root(volume_size=2000)), "VolumeSizeExceedsAvailableQuota"),
    ]
    before = volumes.query("SELECT count(*) AS n FROM volumes")[0]["n"]
    for wanted, text in cases:
        done = volumes.run("boot", bootflow_instances=[wanted])
        assert done.returncode != 0 and text in done.output, (text, done.output)
        assert "Remedy" in done.output
    assert volumes.query("SELECT count(*) AS n FROM volumes")[0]["n"] == before and volumes.instances() == {}
    nowhere = volumes.run("boot", bootflow_instances=[on_volume("x", root(volume_size=500))])
    assert nowhere.returncode != 0 and "CapacityFilter" in nowhere.output, nowhere.output
    assert volumes.instances()["x"]["vm_state"] == "error"
    volumes.delete("x")
    volumes.remove("empty")
    assert volumes.residue() == {}


KILLS = [
    ("while the volume is made", "SELECT 1 FROM volumes WHERE status = 'downloading'"),
    ("while it is exported", "SELECT 1 FROM volume_attachments WHERE export = 'begun'"),
    ("while it is connected", "SELECT 1 FROM volume_attachments WHERE connection = 'begun'"),
    ("in spawning", "SELECT 1 FROM instance_action_events WHERE event = 'spawning'"),
]


@pytest.mark.long
@pytest.mark.parametrize(("point", "sql"), KILLS, ids=[p for p, _s in KILLS])
def test_killed_run(volumes: VolumeFlow, point: str, sql: str) -> None:
    """SIGKILL to the run: the next boot finishes with the same volume, or (in the middle) a delete leaves nothing."""
    wanted = on_volume("crash", root(volume_type="thick"))
    process = volumes.start("boot", {"bootflow_instances": [wanted]})
    try:
        volumes.wait_for(sql, 180, process)
    finally:
        volumes.kill(process)
    (volume,) = volumes.volumes()
    if point != "while it is exported":
        volumes.boot(wanted, **READY)
        (after,) = volumes.volumes()
        assert (after["id"], after["status"]) == (volume["id"], "in-use")
    volumes.delete("crash")
    assert volumes.residue() == {}


@pytest.mark.long
def test_a_portal_that_is_not_there(volumes: VolumeFlow) -> None:
    """The guest cannot reach its disk: the build fails, its volume is given back as Nova's table says; then it works."""
    volumes.create({"name": "system", "size": 1, "image": "guest", "volume_type": "thin"})
    wanted = on_volume("lost", existing("system"))
    with volumes.portal_unreachable():
        done = volumes.run("boot", bootflow_instances=[wanted], bootflow_max_attempts=1)
        assert done.returncode != 0
    assert volumes.instances()["lost"]["vm_state"] == "error"
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["attach_status"]) == ("available", "detached")
    assert volumes.exported() == {}
    volumes.boot(wanted, **READY)
    volumes.delete("lost")
    volumes.remove("system")
    assert volumes.residue() == {}


@pytest.mark.long
def test_the_storage_host_dies_in_the_middle(volumes: VolumeFlow) -> None:
    """Power lost while the image is copied: the volume cannot be made; when the host is back the same request goes on."""
    wanted = on_volume("db", root(volume_type="thick"))
    process = volumes.start("boot", {"bootflow_instances": [wanted]})
    try:
        volumes.wait_for("SELECT 1 FROM volumes WHERE status = 'downloading'", 180, process)
        time.sleep(1)
        volumes.storage.vm.crash()
        process.wait(timeout=300)
    finally:
        if process.poll() is None:
            volumes.kill(process)
        volumes.storage.vm.start(keep=True)
        volumes.storage_is_back()
    assert volumes.instances()["db"]["vm_state"] in ("building", "error")
    volumes.boot(wanted, **READY)
    volumes.delete("db")
    assert volumes.residue() == {}
