# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""audit on real LVM, LIO and libvirt: what hosts have of volumes that nobody knows, and what they lack."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from flow import entry
from storage_host import BIN
from volume_flow import GROUPS, IQN, PORTS, VolumeFlow

EXPORTED, PLAIN, SNAPSHOT = ("%d%s" % (n, "1111111-1111-4111-8111-111111111111") for n in (1, 2, 3))
GROUP = GROUPS["thick"]
SECRET = "Secret0123456789"
MAKE = """
set -e
lvcreate -q -y -Wn -L 64M -n volume-{exported} --addtag bootflow --addtag bootflow.volume={exported} {group}
lvcreate -q -y -Wn -L 64M -n volume-{plain} --addtag bootflow --addtag bootflow.volume={plain} {group}
lvcreate -q -y -s -L 16M -n _snapshot-{snapshot} --addtag bootflow --addtag bootflow.snapshot={snapshot} {group}/volume-{plain}
lvcreate -q -y -Wn -L 64M -n somebodys {group}
lvremove -q -y {group}/volume-{lost}
"""


def kinds(output: str) -> list[str]:
    """Of the findings about volumes, in the audit's table."""
    return sorted(re.findall(r"^\S+ +((?:orphan|missing)_\w+) ", output, re.MULTILINE))


def on_compute1(volumes: VolumeFlow, module: str, args: dict) -> None:
    argv = [str(BIN / "ansible"), "-i", volumes.lab.inventory, "compute1", "-m", "bootflow.compute." + module]
    done = subprocess.run(
        [*argv, "-a", json.dumps(args)], capture_output=True, text=True, env=volumes.environment(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_nobody_knows_is_told_and_removed(volumes: VolumeFlow) -> None:
    volumes.create(
        {"name": "data", "size": 1, "volume_type": "thick"}, {"name": "lost", "size": 1, "volume_type": "thick"}
    )
    ids = {row["name"]: row["id"] for row in volumes.volumes()}
    first = volumes.run("audit")
    assert first.returncode == 0 and kinds(first.output) == [], first.output

    storage = volumes.storage
    storage.sh(MAKE.format(exported=EXPORTED, plain=PLAIN, snapshot=SNAPSHOT, group=GROUP, lost=ids["lost"]))
    wish = {
        "volume_id": EXPORTED,
        "path": "/dev/%s/volume-%s" % (GROUP, EXPORTED),
        "initiators": ["iqn.2026-01.lab.test:x"],
    }
    wish.update(chap_user="User4567890123456789", chap_secret=SECRET)
    portal = "%s:%d" % (storage.vm.address, PORTS["thick"])
    made = storage.module("iscsi_target", {"target": "lio", "portals": [portal], "exports": [wish]})
    assert made["outcomes"][EXPORTED]["error"] is None
    on_compute1(volumes, "iscsi_secret", {"secrets": [{"iqn": IQN + EXPORTED, "value": SECRET}]})
    before = set(storage.lvs(GROUP))

    told = volumes.run("audit")
    found = ["missing_volume", "orphan_secret", "orphan_target"] + 3 * ["orphan_volume"]
    assert told.returncode == 0 and kinds(told.output) == sorted(found), told.output
    assert "bootflow_audit_remove_orphans" in told.output and not re.search("changed=[1-9]", told.output)
    assert "somebodys" not in told.output and set(storage.lvs(GROUP)) == before
    assert volumes.exported() == {EXPORTED: "lio"}

    removed = volumes.run("audit", bootflow_audit_remove_orphans=True)
    assert removed.returncode == 0, removed.output
    assert set(storage.lvs(GROUP)) == {"somebodys", "volume-" + ids["data"]} and volumes.exported() == {}
    assert volumes.lab.hosts[0].run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout.strip() == ""
    assert {row["status"] for row in volumes.volumes()} == {"available"}

    again = volumes.run("audit", bootflow_audit_remove_orphans=True)
    assert kinds(again.output) == ["missing_volume"] and not re.search("changed=[1-9]", again.output), again.output
    storage.sh("lvremove -q -y %s/somebodys" % GROUP)
    volumes.remove("data", "lost")
    assert volumes.residue() == {}


def test_two_ledgers_on_one_storage_host_leave_each_other_alone(volumes: VolumeFlow, guest_image: Path) -> None:
    """Each has a guest with a volume of LIO and one of tgt, which is made from the image in its own cache."""
    folder = volumes.folder / "other"
    folder.mkdir()
    other = VolumeFlow(volumes.lab, folder, guest_image, volumes.storage)
    goes = {"destination_type": "volume", "volume_size": 1, "delete_on_termination": True}
    devices = [
        {"source_type": "image", "uuid": "guest", "boot_index": 0, "volume_type": "thin", **goes},
        {"source_type": "blank", "volume_type": "thick", **goes},
    ]
    wanted = entry("app", block_device_mapping=devices)
    del wanted["image"]
    for flow in (volumes, other):
        flow.boot(wanted)
    mine, theirs = ({row["id"] for row in flow.volumes()} for flow in (volumes, other))
    assert volumes.iqn != other.iqn and set(volumes.exported()) == mine | theirs and len(mine) == len(theirs) == 2
    images = sorted(name for name in volumes.storage.lvs(GROUPS["thin"]) if name.startswith("image-"))
    assert len(images) == 2 and images[0].rpartition("-")[2] == images[1].rpartition("-")[2]

    there = {kind: set(volumes.storage.lvs(group)) for kind, group in GROUPS.items()}
    for flow, neighbour in ((volumes, other), (other, volumes)):
        (ledger,) = neighbour.query("SELECT id FROM ledger_identity")
        audited = flow.run("audit", bootflow_audit_remove_orphans=True)
        assert audited.returncode == 0 and kinds(audited.output) == [], audited.output
        assert not re.search("changed=[1-9]", audited.output)
        assert "volumes of ledger " + ledger["id"] in audited.output
        assert "guests of ledger " + ledger["id"] in audited.output
    assert {kind: set(volumes.storage.lvs(group)) for kind, group in GROUPS.items()} == there

    volumes.delete("app")
    assert set(volumes.exported()) == theirs and volumes.volumes() == []
    left = {
        name[-36:] for group in GROUPS.values() for name in volumes.storage.lvs(group) if name.startswith("volume-")
    }
    assert left == theirs
    audited = other.run("audit", bootflow_audit_remove_orphans=True)
    assert kinds(audited.output) == [] and not re.search("changed=[1-9]", audited.output), audited.output
    other.delete("app")
    assert volumes.residue() == other.residue() == {}
