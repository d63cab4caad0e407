# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One volume of several guests, on two hosts and twice on one of them: what each writes the others read."""

from __future__ import annotations

import re
import time

import pytest
from flow import entry
from volume_flow import PORTS, TGTD, VolumeFlow

pytestmark = pytest.mark.long

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
# Counts in a sector of its own, and tells what is in all of them.
SHARE = """#!/bin/sh
(
    n=0
    while :; do
        disk=
        for each in /sys/block/vd[b-y]; do
            [ -e "$each" ] && [ "$(cat "$each/size")" = 2097152 ] && disk=/dev/${each##*/}
        done
        if [ -n "$disk" ]; then
            n=$((n + 1))
            printf 'n%-510d\\n' $n | dd of=$disk bs=512 seek=SECTOR conv=notrunc 2>/dev/null
            sync
            echo 3 >/proc/sys/vm/drop_caches
            line=
            for sector in 0 1 2; do
                line="$line $sector:$(dd if=$disk bs=512 skip=$sector count=1 2>/dev/null | tr -d '\\0 \\n')"
            done
            echo "SEES$line ." >/dev/console
        fi
        sleep 1
    done
) &
"""
HOSTS = {"near": "compute1", "far": "compute2", "next": "compute1"}
SECTORS = {name: number for number, name in enumerate(HOSTS)}


class Guests:
    def __init__(self, volumes: VolumeFlow):
        self.volumes = volumes
        self.rows = volumes.instances()

    def sees(self, name: str, other: str) -> int:
        """The count of ``other`` that guest ``name`` told last."""
        row = self.rows[name]
        lines = re.findall(r"^SEES .*\.", self.volumes.console(row["host"], row["uuid"]), re.MULTILINE)
        found = re.search(r" %d:n(\d+)" % SECTORS[other], lines[-1]) if lines else None
        return int(found.group(1)) if found else 0

    def work(self, *names: str, timeout: float = 240) -> None:
        """Each of them goes on writing, and all of them read it."""
        before = {(name, other): self.sees(name, other) for name in names for other in names}
        end = time.monotonic() + timeout
        while late := [pair for pair in before if self.sees(*pair) <= before[pair] + 1]:
            consoles = [self.volumes.console(self.rows[n]["host"], self.rows[n]["uuid"])[-500:] for n in names]
            assert time.monotonic() < end, "%s: %s" % (late, consoles)
            time.sleep(1)


RESTART = {
    "thick": "targetctl clear && targetctl restore",
    "thin": "pkill -KILL tgtd; sleep 1; %s; tgt-admin -e",
}


@pytest.mark.parametrize("kind", ["thick", "thin"])
def test_guests_that_share_a_volume(volumes: VolumeFlow, kind: str) -> None:
    """thick is exported by LIO, thin by tgt."""
    volumes.create({"name": "shared", "size": 1, "volume_type": kind, "multiattach": True})
    (volume,) = volumes.volumes()
    wanted = [
        entry(name, availability_zone="nova:" + host, user_data=SHARE.replace("SECTOR", str(SECTORS[name])))
        for name, host in HOSTS.items()
    ]
    volumes.boot(*wanted, bootflow_allow_forced_host=True, **READY)
    guests = Guests(volumes)

    def change(playbook: str, *names: str) -> None:
        wishes = [{"instance": name, "volume": "shared"} for name in names]
        done = volumes.run(playbook, bootflow_attachments=wishes)
        assert done.returncode == 0, done.output

    change("attach_volume", "near")
    guests.work("near")
    change("attach_volume", "far", "next")
    guests.work("near", "far", "next")
    assert len(volumes.exported()) == 1
    row = guests.rows["near"]
    host = volumes.lab.host(row["host"])
    xml = host.run("virsh", "-c", "qemu:///system", "dumpxml", row["uuid"]).stdout
    assert xml.count("<shareable/>") == 1 and "cache='none'" in xml.partition("<shareable/>")[0].rpartition("<disk")[2]
    secrets = host.run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout.strip().splitlines()
    assert len(secrets) == 2, "two guests of this host log in, each with its own"
    assert volumes.secrets_in(volumes.everything_written()) == []
    again = volumes.run("attach_volume", bootflow_attachments=[{"instance": "near", "volume": "shared"}])
    assert again.returncode == 0 and "changed=0" in again.output
    refused = volumes.run("volume_delete", bootflow_volume_names=["shared"])
    assert refused.returncode != 0 and "InvalidVolume" in refused.output

    # What they log in with is kept for the next start of the service, whichever run made it.
    volumes.storage.sh(RESTART[kind].replace("%s", TGTD % (volumes.storage.vm.address, PORTS["thin"])))
    guests.work("near", "far", "next")

    change("detach_volume", "near")
    guests.work("far", "next")
    volumes.delete("next")
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["attach_status"]) == ("in-use", "attached")
    guests.work("far")
    change("attach_volume", "near")
    guests.work("near", "far")
    volumes.delete("far", "near")
    (volume,) = volumes.volumes()
    assert (volume["status"], volume["attach_status"]) == ("available", "detached") and volumes.exported() == {}
    volumes.remove("shared")
    assert volumes.residue() == {}
