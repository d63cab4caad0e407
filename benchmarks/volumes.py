# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes on LVM beside the bare commands, on the lab's storage host; ours is ansible-playbook with the module volume_lvm.

copy      an image of this size to a new volume, not read back, beside `qemu-img convert -n -t none` of it to an LV of the
          same kind that is there already
verified  the same read back from the device and compared with the image while it is written, as it is by default: beside
          the same bare convert, which compares nothing
checked   the first volume from a file, for which its sha256 is made (once for each file and start of the host): beside
          convert and sha256sum
verify    what reading back costs, beside qemu-img compare; sha256: what the sum costs, beside sha256sum
fixed     the fixed part of a call, which is taken off all of these: what the same call takes for an image of 1 MiB, less
          what the same commands take for that. Ansible's start, SSH, Python and LVM's commands are in it; what grows with
          the image is left
second    on thin, the second volume from the same image beside the first, nothing taken off. That it is a snapshot of the
          image's volume, and that the pool has no more data afterwards, is looked at
at once   20 volumes from a small image in one call beside 20 calls of one play, nothing taken off

Rounds of all alternate, with the page cache dropped before each; the fastest of each counts. That a volume holds the image is
looked at once for each kind, with qemu-img compare. Written with --json: {name, n, ours, limit, unit, ratio, bound,
within}, n in MiB of data or volumes. The machine is emulated: its sha256 and its comparisons are slow beside its disk,
which they are not on a real one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import typing as t
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

import storage_vm  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")
COPY_BOUND, AT_ONCE_BOUND = 1.15, 1.0
BY_HAND = {"copy": ("convert",), "verified": ("convert",), "checked": ("convert", "sha256sum")}
MANY = 20
GIB = storage_vm.GIB

PLAY = """
- hosts: bootflow_storage
  gather_facts: false
  tasks:
    - name: Volumes
      bootflow.compute.volume_lvm: "{{ common | combine(item) }}"
      loop: "{{ calls }}"
      loop_control: {label: ""}
      register: made
    - name: All of them are new
      ansible.builtin.assert:
        quiet: true
        that: made.results | map(attribute='outcomes') | map('dict2items') | flatten | map(attribute='value.action') | unique == ['create']
"""

# Pieces of data with holes of the same size between them.
MAKE_IMAGE = """
import os, subprocess, sys
path, size = sys.argv[1], int(sys.argv[2]) << 20
piece = min(16 << 20, size)
with open(path + ".raw", "wb") as file:
    for start in range(0, size, piece):
        file.seek(2 * start)
        for part in range(0, piece, 1 << 20):
            file.write(os.urandom(1 << 20))
    file.truncate(2 * size)
subprocess.check_call(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", path + ".raw", path])
"""

# Seconds of a command, as its shell has them.
TIMED = "TIMEFORMAT=%%R; { time %s >/dev/null 2>/run/said; } 2>&1 || { cat /run/said; exit 1; }"
DROP = "sync; echo 3 >/proc/sys/vm/drop_caches"


@dataclass(frozen=True)
class Kind:
    name: str
    vg: str
    disk: str
    pool: str = ""

    def options(self) -> dict[str, str]:
        return {"volume_group": self.vg, "provisioning": self.name}

    def create(self, name: str, size_gb: int) -> str:
        if self.pool:
            return "lvcreate -q -y -V %dG -n %s -T %s/%s" % (size_gb, name, self.vg, self.pool)
        return "lvcreate -q -y -Wy -L %dG -n %s %s" % (size_gb, name, self.vg)

    def clean(self) -> str:
        """Everything but the pool goes."""
        return (
            "lvs --noheadings -o vg_name,lv_name -S 'lv_name!=%s' %s | while read -r vg lv; do lvremove -q -y $vg/$lv; done"
            % (
                self.pool,
                self.vg,
            )
        )


THICK = Kind("thick", "cinder-volumes", "pv1")
THIN = Kind("thin", "thin-volumes", "pv2", "thin-volumes-pool")


@dataclass(frozen=True)
class Image:
    """A qcow2 on the storage host."""

    path: str
    mib: int  # of data
    checksum: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def virtual_size(self) -> int:
        return 2 * self.mib << 20

    @property
    def size_gb(self) -> int:
        return -(-self.virtual_size // GIB)

    def options(self) -> dict[str, str]:
        return {"id": self.id, "path_on_host": self.path, "checksum": self.checksum, "disk_format": "qcow2"}


def compare(image: Image, device: str) -> str:
    source = "driver=qcow2,file.driver=file,file.filename=%s" % image.path
    target = "driver=raw,size=%d,file.driver=host_device,file.cache.direct=on,file.filename=%s"
    return "qemu-img compare --image-opts %s %s" % (source, target % (image.virtual_size, device))


class Table:
    """Rows; told as they come."""

    def __init__(self) -> None:
        self.rows: list[dict[str, t.Any]] = []
        print("%-52s %6s %10s %10s %-4s %7s %6s" % ("", "n", "ours", "limit", "unit", "ratio", "bound"))

    def add(self, name: str, n: int, ours: float, limit: float | None, bound: float | None = None) -> None:
        ratio = ours / limit if limit else None
        row = {"name": name, "n": n, "ours": round(ours, 2), "limit": limit and round(limit, 2), "unit": "s"}
        row.update(ratio=ratio and round(ratio, 2), bound=bound)
        row["within"] = bound is None or (ratio is not None and ratio <= bound)
        self.rows.append(row)
        shown = ["" if value is None else "%.2f" % value for value in (ours, limit, ratio, bound)]
        mark = "" if row["within"] else "  missed"
        print(
            "%-52s %6d %10s %10s %-4s %7s %6s%s" % (name, n, shown[0], shown[1], "s", shown[2], shown[3], mark),
            flush=True,
        )


class Bench:
    def __init__(self, vm: storage_vm.StorageVM, folder: Path):
        self.vm = vm
        self.folder = folder
        self.inventory = vm.write_inventory(str(folder / "inventory.json"))
        (folder / "play.yml").write_text(PLAY)
        self.best: dict[tuple[str, ...], float] = defaultdict(lambda: math.inf)

    def sh(self, script: str, *argv: str) -> str:
        done = self.vm.run("bash", "-c", script, "bash", *argv, check=False, timeout=1800)
        if done.returncode:
            raise SystemExit("on the storage host, %s: %s" % (script, done.stdout[-2000:]))
        return done.stdout

    def prepare(self) -> None:
        for kind in (THICK, THIN):
            self.sh("vgcreate -q %s %s" % (kind.vg, self.vm.disk(kind.disk)))
            if kind.pool:
                self.sh("lvcreate -q -y --type thin-pool -l 95%%FREE -n %s %s" % (kind.pool, kind.vg))
        self.sh("mkdir -p -m 755 /srv/images")

    def make_image(self, name: str, mib: int) -> Image:
        path = "/srv/images/%s.qcow2" % name
        self.vm.run("python3", "-c", MAKE_IMAGE, path, str(mib), timeout=1800)
        return Image(path, mib, self.sh("rm %s.raw; sha256sum %s" % (path, path)).split()[0])

    # ---- one measurement ----------------------------------------------------------------------------------------------

    def by_hand(self, kind: Kind, image: Image) -> None:
        """The same with the commands themselves."""
        device = "/dev/%s/bare" % kind.vg
        self.sh("%s && %s" % (kind.clean(), kind.create("bare", image.size_gb)))
        commands = {
            "convert": "qemu-img convert -n -t none -f qcow2 -O raw %s %s" % (image.path, device),
            "compare": compare(image, device),
            "sha256sum": "sha256sum %s" % image.path,
        }
        for name, command in commands.items():
            seconds = float(self.sh("%s; %s" % (DROP, TIMED % command)).split()[-1])
            self._keep(seconds, kind.name, image.path, name)
        self.sh(kind.clean())

    def ours(self, what: str, kind: Kind, image: Image, **options: t.Any) -> str:
        """A volume of it in one call; its id."""
        item = str(uuid.uuid4())
        self._call(kind, image, [[item]], (kind.name, image.path, what), **options)
        return item

    def many(self, kind: Kind, image: Image, at_once: bool) -> None:
        self.sh(kind.clean())
        ids = [str(uuid.uuid4()) for _number in range(MANY)]
        calls = [ids] if at_once else [[item] for item in ids]
        self._call(kind, image, calls, (kind.name, image.path, "at once" if at_once else "one by one"))
        self.sh(kind.clean())

    def _call(self, kind: Kind, image: Image, calls: list[list[str]], name: tuple[str, ...], **options: t.Any) -> None:
        self.sh(DROP)
        variables = self.folder / "variables.json"
        volumes = [[{"id": item, "size_gb": image.size_gb, "image_id": image.id} for item in ids] for ids in calls]
        common = {**kind.options(), "images": [image.options()], **options}
        variables.write_text(json.dumps({"common": common, "calls": [{"volumes": batch} for batch in volumes]}))
        argv = [PLAYBOOK, "-i", self.inventory, str(self.folder / "play.yml"), "-e", "@%s" % variables]
        start = time.monotonic()
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode:
            raise SystemExit("%s failed:\n%s" % (" ".join(argv), done.stdout[-4000:]))
        self._keep(seconds, *name)

    def _keep(self, seconds: float, *name: str) -> None:
        self.best[name] = min(self.best[name], seconds)

    # ---- what is right ------------------------------------------------------------------------------------------------

    def check_content(self, kind: Kind, image: Image, item: str) -> None:
        self.sh(compare(image, "/dev/%s/volume-%s" % (kind.vg, item)))

    def pool_data(self) -> str:
        return self.sh("lvs --noheadings -o data_percent %s/%s" % (THIN.vg, THIN.pool)).strip()

    # ---- rounds -------------------------------------------------------------------------------------------------------

    def copies(self, kind: Kind, tiny: Image, image: Image, is_first: bool) -> None:
        for one in (tiny, image):
            self.by_hand(kind, one)
            self.sh("rm -rf /run/bootflow/images")
            item = self.ours("checked", kind, one)
            if is_first and one is image:
                self.check_content(kind, one, item)
            self.sh(kind.clean())
            self.ours("verified", kind, one)
            if kind is THIN and one is image:
                self.second(one)
            self.sh(kind.clean())
            self.ours("copy", kind, one, verify=False)
            self.sh(kind.clean())

    def second(self, image: Image) -> None:
        before = self.pool_data()
        item = self.ours("second", THIN, image)
        origin = self.sh("lvs --noheadings -o origin %s/volume-%s" % (THIN.vg, item)).strip()
        after = self.pool_data()
        if after != before or not origin.startswith("image-"):
            raise SystemExit("the second thin volume was copied: data %s %% -> %s %%" % (before, after))

    def report(self, table: Table, kind: Kind, tiny: Image, image: Image, small: Image) -> None:
        def best(one: Image, *names: str) -> float:
            return sum(self.best[kind.name, one.path, name] for name in names)

        n = image.mib
        fixed = {what: best(tiny, what) - best(tiny, *commands) for what, commands in BY_HAND.items()}
        ours = {what: best(image, what) - fixed[what] for what in BY_HAND}
        for what, commands in BY_HAND.items():
            name = "%s: %s, beside %s" % (kind.name, what, " + ".join(commands))
            table.add(name, n, ours[what], best(image, *commands), COPY_BOUND)
        for name, more, less, command in (
            ("verify", "verified", "copy", "compare"),
            ("sha256", "checked", "verified", "sha256sum"),
        ):
            cost = best(image, more) - best(image, less)
            table.add("%s: cost of %s, beside %s" % (kind.name, name, command), n, cost, best(image, command))
        table.add("%s: fixed part of a call" % kind.name, tiny.mib, fixed["verified"], None)
        if kind is THIN:
            table.add(
                "thin: second volume from the image, beside the first",
                n,
                best(image, "second"),
                best(image, "verified"),
                AT_ONCE_BOUND,
            )
        once, singly = best(small, "at once"), best(small, "one by one")
        table.add("%s: %d at once, beside one by one" % (kind.name, MANY), MANY, once, singly, AT_ONCE_BOUND)


def measure(bench: Bench, table: Table, arguments: argparse.Namespace) -> None:
    print("making images of %d and %d MiB" % (arguments.image_mib, arguments.small_mib), flush=True)
    bench.prepare()
    tiny, small, image = (
        bench.make_image(*one) for one in (("tiny", 1), ("small", arguments.small_mib), ("image", arguments.image_mib))
    )
    bench.ours("warm up", THICK, tiny)
    for number in range(1, arguments.rounds + 1):
        for kind in (THICK, THIN):
            print("round %d of %d: one %s volume" % (number, arguments.rounds, kind.name), flush=True)
            bench.copies(kind, tiny, image, number == 1)
            if number <= arguments.many_rounds:
                print("round %d of %d: %d %s volumes" % (number, arguments.many_rounds, MANY, kind.name), flush=True)
                for at_once in (True, False):
                    bench.many(kind, small, at_once)
    for kind in (THICK, THIN):
        bench.report(table, kind, tiny, image, small)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument(
        "--image-mib", type=int, default=512, help="MiB of data in the image, at most 1024 (default: 512)"
    )
    parser.add_argument(
        "--small-mib", type=int, default=8, help="MiB of data in the image of %d volumes (default: 8)" % MANY
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the fastest counts (default: 3)")
    parser.add_argument("--many-rounds", type=int, default=1, help="rounds with %d volumes (default: 1)" % MANY)
    arguments = parser.parse_args()
    if (
        not 16 <= arguments.image_mib <= 1024
        or arguments.image_mib % 16
        or not 0 < arguments.many_rounds <= arguments.rounds
    ):
        parser.error(
            "--image-mib is a multiple of 16 up to 1024; there are at least as many rounds as rounds with many"
        )
    # The files of the disks take only what is written to them.
    disks = {"pv1": (MANY + 4) * GIB, "pv2": (MANY + 4) * GIB}
    vm = storage_vm.StorageVM(str(CACHE / "storage-bench"), storage_vm.build_image(CACHE / "storage"), disks=disks)
    table = None
    try:
        print("starting a storage host", flush=True)
        vm.start()
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            table = Table()
            measure(Bench(vm, Path(folder)), table, arguments)
    finally:
        vm.remove()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(table.rows, indent=1) + "\n")
    missed = [row["name"] for row in table.rows if not row["within"]]
    for name in missed:
        print("missed: %s" % name, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
