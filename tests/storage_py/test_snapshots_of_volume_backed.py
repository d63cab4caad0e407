# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances whose roots are volumes: LVM on the storage host, guests on the lab's hosts."""

from __future__ import annotations

import json
import typing as t

from test_boot_from_volume import READY, on_volume, root
from volume_flow import GROUPS, VolumeFlow

# Each start tells the label of the root disk and of the other one, and then writes others.
MARKER = r"""#!/bin/sh
label() { dd if=$1 bs=1 skip=43 count=11 2>/dev/null | tr -d ' \000'; }
mark() { printf '%-11s' $2 | dd of=$1 bs=1 seek=43 conv=notrunc,fsync 2>/dev/null; }
root=$(label /dev/vda1) data=$(label /dev/vdb)
echo "labels were $root and $data" >/dev/console
[ "$root" = FIRST ] && next=SECOND || next=FIRST
mark /dev/vda1 $next; mark /dev/vdb $next
echo "labels are $next" >/dev/console
"""
DATA = {
    "source_type": "blank",
    "destination_type": "volume",
    "volume_size": 1,
    "volume_type": "thin",
    "delete_on_termination": True,
}


def operate(volumes: VolumeFlow, playbook: str, expect: int = 0, **variables: t.Any) -> str:
    done = volumes.run(playbook, **{"bootflow_" + name: value for name, value in variables.items()})
    assert done.returncode == expect, done.output
    return done.output


def logical_volumes(volumes: VolumeFlow) -> list[str]:
    """The volumes and the snapshots on the storage host."""
    found = [name for group in GROUPS.values() for name in volumes.storage.lvs(group)]
    return sorted(name for name in found if name.startswith(("volume-", "_snapshot-")))


def test_an_image_of_it_boots_with_the_content_of_all_of_its_volumes(volumes: VolumeFlow) -> None:
    here = volumes.folder / "here"
    here.mkdir(mode=0o755)
    volumes.variables["bootflow_image_stores"] = [{"name": "here", "path": str(here)}]
    volumes.boot(on_volume("db", root(volume_type="thin"), DATA, user_data=MARKER), **READY)
    row = volumes.instances()["db"]
    volumes.until_console(row, "labels are FIRST")
    before = logical_volumes(volumes)

    done = operate(volumes, "snapshot", names=["db"], snapshot_name="snap")
    (image,) = volumes.query("SELECT * FROM images WHERE deleted = ''")
    assert image["id"] in done and (image["status"], image["size"]) == ("active", 0) and list(here.iterdir()) == []
    made = volumes.query("SELECT * FROM volume_snapshots WHERE deleted = ''")
    assert len(made) == 2 and {s["status"] for s in made} == {"available"}
    mapped = json.loads(json.loads(image["properties"])["block_device_mapping"])
    assert {device["snapshot_id"] for device in mapped} == {s["id"] for s in made}
    assert len(logical_volumes(volumes)) == len(before) + 2
    assert "changed=0" in operate(volumes, "snapshot", names=["db"], snapshot_name="snap")

    operate(volumes, "reboot", names=["db"], reboot_type="HARD")
    volumes.until_console(row, "labels are SECOND")
    copy = on_volume("copy", user_data=MARKER)
    volumes.boot({**copy, "image": "snap"}, **READY)
    booted = volumes.instances()["copy"]
    volumes.until_console(booted, "labels are SECOND")
    assert "labels were FIRST and FIRST" in volumes.console(booted["host"], booted["uuid"])
    assert len(volumes.attached_to(booted)) == 2

    volumes.delete("copy", "db")
    operate(volumes, "image_delete", image_names=["snap"])
    assert volumes.query("SELECT 1 FROM images WHERE deleted = ''") == []
    kept = volumes.query("SELECT name, volume_id FROM volume_snapshots WHERE deleted = ''")
    assert len(kept) == 2, "they stay, as in Nova"
    absent = [{"name": s["name"], "volume": s["volume_id"], "state": "absent"} for s in kept]
    operate(volumes, "volume_snapshot", snapshots=absent)
    operate(volumes, "volume_delete", volume_ids=[v["id"] for v in volumes.volumes()])
    assert volumes.residue() == {}
