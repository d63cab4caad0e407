# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances on the three lab hosts, into a store that all hosts have.

"cold" and "live" are the playbook `snapshot` of one instance that is off, and that runs; its disk is a full qcow2 file on a base. "convert" is `qemu-img
convert` of the same disk on the same host, which is all that has to be done. The playbook with an image that is there already is "nothing": what Ansible
and the ledger cost. The bound is 1.3 times the conversion and a second, beside that. "ten" is one playbook for ten instances on three hosts, beside one
playbook for each of them. Two instances boot from the image on one host, which keeps one copy of it. "incremental" is a backup of a guest that has
written to 5 % of its disk, in pieces all over it, beside a full one: bytes, and seconds without those of the playbook in check mode.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import boot
from boot import CACHE

import lab as lab_module

FACTOR, FIXED = 1.3, 1.0  # times the conversion, and seconds
CHANGED, OF_FULL = 20, 0.1  # every twentieth MiB; the bound of an increment's bytes, as a part of a full backup's
INSTANCES = "/var/lib/bootflow/instances"

# Fills a disk behind its boot sector, which the guest needs, and converts it.
FILL = "set -e; head -c 16M /dev/urandom >{own}/pattern; qemu-io -f qcow2 -c 'write -q -s {own}/pattern 1M {size}M' {disk}; rm {own}/pattern"
CONVERT = (
    "set -e; qemu-img convert -f qcow2 -O qcow2 {disk} {own}/converted; stat -c %s {own}/converted; rm {own}/converted"
)

# Writes one MiB of each {step} by the QEMU of a guest that runs.
CHANGE = (
    "set -e; for number in $(seq 1 {step} {megabytes}); do virsh -q -c qemu:///system qemu-monitor-command {uuid} --hmp"
    ' "qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend \\"write -q -P {pattern} ${{number}}M 1M\\""; done'
)


class Bench(boot.Bench):
    def __init__(self, lab: lab_module.Lab, folder: Path):
        super().__init__(lab, folder)
        self.store = folder / "images"
        self.store.mkdir()
        self.number = 0  # of images

    def play(self, name: str, variables: Path, *options: str) -> tuple[float, str]:
        stores = [{"name": "shared", "path": str(self.store), "kind": "shared"}]
        return super().play(name, variables, "-e", json.dumps({"bootflow_image_stores": stores}), *options)

    def operate(self, name: str, *options: str, **more: t.Any) -> float:
        """Run a playbook of ours, with instances by their names."""
        variables = json.dumps({"bootflow_" + word: value for word, value in more.items()})
        return self.play(name, self.folder / "ours.json", "-e", variables, *options)[0]

    def disks(self) -> dict[str, tuple[lab_module.Host, str]]:
        """instance name -> its host and its root disk."""
        hosts = {host.name: host for host in self.lab.hosts}
        with contextlib.closing(sqlite3.connect(self.folder / "ledger.db", timeout=60)) as ledger:
            rows = ledger.execute("SELECT display_name, host, uuid FROM instances WHERE deleted = ''").fetchall()
        return {name: (hosts[host], "%s/%s/disk" % (INSTANCES, uuid)) for name, host, uuid in rows}

    def fill(self, megabytes: int) -> None:
        for host, disk in self.disks().values():
            host.run("sh", "-c", FILL.format(own=INSTANCES, disk=disk, size=megabytes - 1), timeout=600)

    def convert(self, name: str) -> tuple[float, int]:
        """Returns seconds, and the size of the file."""
        host, disk = self.disks()[name]
        began = time.monotonic()
        size = host.run("sh", "-c", CONVERT.format(own=INSTANCES, disk=disk), timeout=600).stdout
        return time.monotonic() - began, int(size)

    def snapshot(self, names: t.Sequence[str]) -> float:
        """Make images of instances."""
        self.number += 1
        return self.operate("snapshot", names=list(names), snapshot_name="%%(name)s-%d" % self.number)

    def nothing(self, names: t.Sequence[str]) -> float:
        """The same again."""
        return self.operate("snapshot", names=list(names), snapshot_name="%%(name)s-%d" % self.number)

    def remove(self, names: t.Sequence[str]) -> None:
        self.operate("image_delete", image_names=["%s-%d" % (name, self.number) for name in names])

    def named(self, count: int) -> list[str]:
        return ["ours-%d" % self.booted] if count == 1 else ["ours-%d-%d" % (self.booted, n + 1) for n in range(count)]


def of_one(bench: Bench, megabytes: int, rounds: int) -> list[dict[str, t.Any]]:
    """An instance that is off, and that runs."""
    bench.ours(1)
    (name,) = names = bench.named(1)
    bench.operate("stop", names=names, shutdown_timeout=0)
    bench.fill(megabytes)
    found: dict[str, list[float]] = {}
    for kind in ("cold", "live"):
        for number in range(1, rounds + 1):
            print("%s, round %d" % (kind, number), flush=True)
            if kind == "live":
                bench.operate("stop", names=names, shutdown_timeout=0)  # nothing else reads a disk that is in use
            found.setdefault(kind + " convert", []).append(bench.convert(name)[0])
            if kind == "live":
                bench.operate("start", names=names)
            found.setdefault(kind, []).append(bench.snapshot(names))
            found.setdefault(kind + " nothing", []).append(bench.nothing(names))
            bench.remove(names)
    bench.end_ours()
    median = {key: statistics.median(each) for key, each in found.items()}
    rows = []
    for kind in ("cold", "live"):
        own = max(statistics.median(a - b for a, b in zip(found[kind], found[kind + " nothing"])), 0.001)
        limit = median[kind + " convert"]
        row = {"name": kind, "megabytes": megabytes, "ours": own, "limit": limit, "ratio": own / limit, "unit": "s"}
        bound = FACTOR * limit + FIXED
        rows.append({**row, "ours_total": median[kind], "bound_seconds": bound, "within": own <= bound})
    return rows


def of_ten(bench: Bench, megabytes: int, count: int) -> dict[str, t.Any]:
    bench.clean()
    bench.ours(count)
    names = bench.named(count)
    bench.operate("stop", names=names, shutdown_timeout=0)
    bench.fill(megabytes)
    print("%d at once" % count, flush=True)
    together = bench.snapshot(names)
    bench.remove(names)
    print("%d one by one" % count, flush=True)
    single = 0.0
    for name in names:
        single += bench.snapshot([name])
        bench.remove([name])
    bench.end_ours()
    row = {"name": "ten", "n": count, "megabytes": megabytes, "ours": together, "limit": single, "unit": "s"}
    return {**row, "ratio": single / together}


def of_boots(bench: Bench, megabytes: int) -> dict[str, t.Any]:
    """Two boots from an image: how often its host has the image's content."""
    bench.clean()
    bench.ours(1)
    names = bench.named(1)
    bench.operate("stop", names=names, shutdown_timeout=0)
    bench.fill(megabytes)
    bench.snapshot(names)
    (host,) = {host.name for host, _disk in bench.disks().values()}
    image = "%s-%d" % (names[0], bench.number)
    seconds = []
    for number in (1, 2):
        entry = {"name": "copy-%d" % number, "flavor": "halt", "image": image, "networks": [{"network": "default"}]}
        entry["availability_zone"] = "nova:%s" % host
        seconds.append(bench.operate("boot", instances=[entry], allow_forced_host=True))
    place = next(h for h in bench.lab.hosts if h.name == host)
    kept = int(place.run("sh", "-c", "du -cm %s/_base | tail -1 | cut -f1" % INSTANCES).stdout)
    size = int(place.run("sh", "-c", "du -cm %s | tail -1 | cut -f1" % bench.store).stdout)
    bench.end_ours()
    bench.operate("image_delete", image_names=[image])
    row = {"name": "boots", "ours": seconds[1], "limit": seconds[0], "unit": "s", "base_mb": kept, "image_mb": size}
    return {**row, "ratio": kept / size, "bound": 1.1, "within": kept <= 1.1 * size + 4}


def of_backups(bench: Bench, megabytes: int, rounds: int) -> dict[str, t.Any]:
    """A full backup, then an increment of 5 %, of a guest that runs."""
    bench.clean()
    bench.ours(1)
    (name,) = names = bench.named(1)
    bench.operate("stop", names=names, shutdown_timeout=0)
    bench.fill(megabytes)
    bench.operate("start", names=names)
    host, disk = bench.disks()[name]
    found: dict[str, list[float]] = {"full": [], "incremental": [], "full nothing": [], "incremental nothing": []}
    for number in range(1, rounds + 1):
        print("backups, round %d" % number, flush=True)
        for kind in ("full", "incremental"):
            if kind == "incremental":
                values = {"step": CHANGED, "megabytes": megabytes - 1, "uuid": disk.split("/")[-2], "pattern": number}
                host.run("sh", "-c", CHANGE.format(**values), timeout=600)
            more = {"names": names, "backup_full": kind == "full"}
            found[kind + " nothing"].append(bench.operate("incremental_backup", "--check", **more))
            found[kind].append(bench.operate("incremental_backup", **more))
    with contextlib.closing(sqlite3.connect(bench.folder / "ledger.db", timeout=60)) as ledger:
        query = "SELECT kind, size FROM instance_backups WHERE deleted = '' AND state = 'complete'"
        sizes: dict[str, list[int]] = {}
        for kind, size in ledger.execute(query):
            sizes.setdefault(kind, []).append(size)
    bench.end_ours()
    bench.operate("incremental_backup_delete", names=names, backup_keep=0)
    seconds = {
        kind: max(statistics.median(a - b for a, b in zip(found[kind], found[kind + " nothing"])), 0.001)
        for kind in ("full", "incremental")
    }
    assert [len(sizes[kind]) for kind in ("full", "incremental")] == [rounds, rounds], sizes
    ours, limit = (statistics.median(sizes[kind]) / 1024**2 for kind in ("incremental", "full"))
    row = {
        "name": "incremental",
        "megabytes": megabytes,
        "ours": ours,
        "limit": limit,
        "unit": "MiB",
        "seconds": seconds,
    }
    return {**row, "ratio": ours / limit, "bound": OF_FULL, "within": ours <= OF_FULL * limit}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the disk (default: 1024)")
    parser.add_argument("--count", type=int, default=10, help="instances at once, of a quarter of that (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="measure so often and take the median (default: 3)")
    arguments = parser.parse_args()
    lab = lab_module.Lab(str(CACHE / "lab-bench"))
    print("making three lab hosts", flush=True)
    lab.up(3)
    try:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            Path(folder).chmod(0o755)
            bench = Bench(lab, Path(folder))
            bench.warm_up()
            bench.clean()
            rows = of_one(bench, arguments.megabytes, arguments.rounds)
            rows.append(of_backups(bench, arguments.megabytes, arguments.rounds))
            rows.append(of_boots(bench, arguments.megabytes))
            rows.append(of_ten(bench, arguments.megabytes // 4, arguments.count))
            bench.clean()
    finally:
        lab.down()
    show(rows)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row.get("within", True) for row in rows) else 1


def show(rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    print()
    for row in rows:
        verdict = "" if "within" not in row else "ok" if row["within"] else "MISSED"
        if row["name"] in ("cold", "live"):
            head = "%s snapshot of %d MiB: %.2f s (%.2f s with Ansible and the ledger)"
            print(head % (row["name"], row["megabytes"], row["ours"], row["ours_total"]))
            print("    qemu-img convert %.2f s: %.2fx" % (row["limit"], row["ratio"]))
            print("    bound: %gx and %g s, %.2f s: %s" % (FACTOR, FIXED, row["bound_seconds"], verdict))
        elif row["name"] == "incremental":
            head = "an increment of 5 %% of %d MiB: %.1f MiB in %.2f s; a full backup %.1f MiB in %.2f s"
            of = row["seconds"]
            print(head % (row["megabytes"], row["ours"], of["incremental"], row["limit"], of["full"]))
            print("    %.3f of it, bound %g: %s" % (row["ratio"], OF_FULL, verdict))
        elif row["name"] == "boots":
            print("two boots from a snapshot: %.1f s, %.1f s" % (row["limit"], row["ours"]))
            head = "    the host keeps %d MiB of an image of %d MiB: %.2fx, bound 1.1x: %s"
            print(head % (row["base_mb"], row["image_mb"], row["ratio"], verdict))
        else:
            head = "%d at once on three hosts, %d MiB each: %.1f s; one by one %.1f s: %.1f times as long"
            print(head % (row["n"], row["megabytes"], row["ours"], row["limit"], row["ratio"]))


if __name__ == "__main__":
    sys.exit(main())
