# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are logical volumes, or on one, go from one volume group to another, with real LVM: whole, compared, larger, or not at all."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest
from storage_host import MODULES, StorageHost, new_id

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer

pytestmark = pytest.mark.long

# One machine is both hosts, each with a folder and a volume group of its own.
SCRIPT = """
import hashlib, json, os, subprocess, sys
sys.path.insert(0, %(modules)r)
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import receiver, sender, server
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import local_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import records_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import Clearing, Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.removal import remove_volumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm

MIB = 1024**2
uuid, ledger, backend = %(uuid)r, %(ledger)r, %(backend)r
old, new = "/var/lib/moved/old", "/var/lib/moved/new"
limits = {"disk.eph0": 64 * MIB, "disk.swap": 16 * MIB}
specs = [
    DiskSpec("disk.eph0", "ephemeral", 64 * MIB, backend, fs="ext4"),
    DiskSpec("disk.swap", "swap", 16 * MIB, backend),
]


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def digest(path, size):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(size)).hexdigest()


def state(vg):
    group = lvm.read_group(vg, ledger)
    return {n: [lv.size // MIB, sorted(lv.tags)] for n, lv in group.lvs.items()}


def fetched(offer, files, place, sizes, made=()):
    local = Group(%(new_group)r, ledger, Clearing())
    return receiver.fetch_instance(new, ledger, uuid, place, offer.token, files, sizes, local, made, limits=limits)


made = local_disks.ensure_disks(old, uuid, specs, {}, volume_group=%(old_group)r, ledger_id=ledger)
disks = {d["name"]: d["path"] for d in made["disks"]}
if backend == "lvm":
    with open(disks["disk.eph0"], "r+b") as file:
        file.seek(20 * MIB)
        file.write(b"what the guest wrote" * 1000)
        os.fsync(file.fileno())
else:
    run("qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 20M 1M", disks["disk.eph0"])
# The new volume group has had another guest, whose data was not cleared.
run("lvcreate", "-q", "-y", "-n", "former", "-L", "200M", %(new_group)r)
run("sh", "-c", "head -c 200M /dev/urandom >/dev/%%s/former && sync && lvremove -q -y %%s/former" %% ((%(new_group)r,) * 2))
told = {"disks": disks}
swap = DiskSpec("disk.swap", "swap", 24 * MIB, backend)
for attempt in ("broken", "whole"):
    offer, files = sender.prepare(old, uuid, "t" * 64, ["disk.swap"] if attempt == "whole" else [])
    told["files"] = files
    place = sender.serve([offer], (49216, 49279), "s" * 64, 120.0)
    for fd, _size in offer.files.values():  # as a module's, which ends here
        os.close(fd)
    try:
        if attempt == "broken":
            wrong = [dict(f, size=f["size"] + 512) if f["name"] == "disk.swap" else f for f in files]
            try:
                fetched(offer, wrong, place, {})
            except BootflowError as e:
                told["broken"] = [e.code, state(%(new_group)r), os.listdir(new), run("sh", "-c", "cat /etc/fstab")]
        else:
            told["whole"] = fetched(offer, files, place, {"disk.eph0": 96 * MIB}, [swap])
    finally:
        server.stop(place, "s" * 64)
told["there"] = state(%(new_group)r)
told["records"] = records_of(os.path.join(new, uuid))
again = local_disks.ensure_disks(
    new, uuid, [DiskSpec("disk.eph0", "ephemeral", 96 * MIB, backend, fs="ext4"), swap], {},
    volume_group=%(new_group)r, ledger_id=ledger)
told["again"] = again
there = {d["name"]: d["path"] for d in again["disks"]}
if backend == "lvm":
    told["same"] = digest(disks["disk.eph0"], 64 * MIB) == digest(there["disk.eph0"], 64 * MIB)
    with open(there["disk.swap"], "rb") as file:
        told["swap"] = b"SWAPSPACE2" in file.read(4096)
    with open(there["disk.eph0"], "rb") as file:
        file.seek(64 * MIB)
        told["rest"] = set(file.read()) == {0}
else:
    run("qemu-io", "-r", "-f", "qcow2", "-c", "read -P 0x5a 20M 1M", there["disk.eph0"])
    told["info"] = json.loads(run("qemu-img", "info", "--output=json", there["disk.eph0"]))["virtual-size"] // MIB
    told["fstab"] = run("cat", "/etc/fstab")
    run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", there["disk.swap"], "/var/lib/moved/flat")
    with open("/var/lib/moved/flat", "rb") as file:
        told["swap"] = b"SWAPSPACE2" in file.read(4096)
for path, group in ((old, %(old_group)r), (new, %(new_group)r)):
    folder = os.path.join(path, uuid)
    remove_volumes(folder, uuid, Group(group, ledger, Clearing()))
told["left"] = [state(%(old_group)r), state(%(new_group)r), run("cat", "/etc/fstab")]
print("TOLD " + json.dumps(told))
"""


@pytest.fixture(scope="module")
def groups(storage: StorageHost):
    """Two volume groups on empty disks, and the program that makes certificates, which the image lacks."""
    program = shutil.which("openssl")
    assert program
    storage.vm.put(program, "/usr/local/bin/openssl")
    storage.sh("chmod 755 /usr/local/bin/openssl; mkdir -p /usr/lib/ssl; touch /usr/lib/ssl/openssl.cnf /etc/fstab")
    found = {"moved-old": storage.vm.disk("pv5"), "moved-new": storage.vm.disk("pv6")}
    for group, device in found.items():
        storage.sh("vgcreate -q %s %s" % (group, device))
    yield found
    for group, device in found.items():
        storage.sh("vgremove -q -y -f %s; wipefs -q -a %s" % (group, device), check=False)


@pytest.mark.parametrize("backend", ["lvm", "qcow2_on_lvm"])
def test_disks_go_to_another_volume_group(storage: StorageHost, groups: dict[str, str], backend: str) -> None:
    uuid, ledger = new_id(), new_id()
    values = {
        "modules": MODULES,
        "uuid": uuid,
        "ledger": ledger,
        "backend": backend,
        "old_group": "moved-old",
        "new_group": "moved-new",
    }
    storage.sh("rm -rf /var/lib/moved; mkdir -p /var/lib/moved/old /var/lib/moved/new")
    said = storage.sh("PATH=/usr/local/bin:$PATH python3 -c %s 2>&1" % shlex.quote(SCRIPT % values), check=False)
    (line,) = [each for each in said.splitlines() if each.startswith("TOLD ")] or [said]
    told = json.loads(line.removeprefix("TOLD "))
    outcome = {"changed": False, "error": None, "files": told["files"]}
    answer.check("instance_disks_offer", "storage1", {"outcomes": {uuid: outcome}, "port": 1, "fingerprint": "f"})
    code, lvs, folders, fstab = told["broken"]
    assert (code, lvs, folders) == ("DiskCopyFailed", {}, ["locks"]) and "/new/" not in fstab, told["broken"]
    names = {"lvm": [uuid + "_disk.eph0", uuid + "_disk.swap"], "qcow2_on_lvm": [uuid + "_disk"]}[backend]
    assert sorted(told["there"]) == names
    for _size, tags in told["there"].values():
        assert "bootflow" in tags and "bootflow.instance=%s" % uuid in tags and "bootflow.ledger=%s" % ledger in tags
        assert "bootflow.incomplete" not in tags
    assert told["again"]["changed"] is False, "all of it is as this host would have made it"
    assert told["swap"], "made anew"
    if backend == "lvm":
        assert told["same"] and told["rest"]
        assert [told["there"][uuid + "_" + n][0] for n in ("disk.eph0", "disk.swap")] == [96, 24]
        assert {r["volume_group"] for r in told["records"].values()} == {"moved-new"}
    else:
        assert told["info"] == 96 and "/var/lib/moved/new/%s/disk" % uuid in told["fstab"]
    assert told["left"][:2] == [{}, {}] and uuid not in told["left"][2]
