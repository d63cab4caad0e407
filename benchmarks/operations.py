# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop and start 50 guests on the three lab hosts, and a sync of power states.

Stop and start: ours beside a playbook with community.libvirt.virt in a loop, and beside a loop of virsh over SSH with a warm connection, on
the same guests in turn. The guest is a boot sector that halts and knows nothing of ACPI, so all three take its power at once (ours with
bootflow_shutdown_timeout 0): what is compared is the control plane, not how fast fifty guests shut down. libvirt's own time for the same
work, which differs by seconds from one time to the next, is measured after each run and taken off it; the figure is the median of the
rounds. Nothing of ours is left out: ledger, journal, notifications, and the hosts' answers that are checked.

Sync: each host has so many shut-off domains, and the ledger as many instances there. Beside a playbook that only runs a module on each host.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
import uuid
from pathlib import Path

import boot
from boot import CACHE, PLAYBOOK, timed

import lab as lab_module

BOUNDS = {"virt": 5.0, "virsh": 1.5}  # at least so many times faster; at most so many times slower
LIBVIRT = ("virsh", "-q", "-c", "qemu:///system")

VIRT = """
- hosts: bootflow_compute
  gather_facts: false
  tasks:
    - name: Stop
      community.libvirt.virt: {name: "{{ item }}", state: destroyed}
      loop: "{{ guests[inventory_hostname] }}"
    - name: Start
      community.libvirt.virt: {name: "{{ item }}", state: running}
      loop: "{{ guests[inventory_hostname] }}"
"""
PING = """
- hosts: bootflow_compute
  gather_facts: false
  tasks:
    - ansible.builtin.ping:
"""

# What libvirt alone takes to stop all domains and to start them again, so many at a time.
LIBVIRT_ALONE = """
import concurrent.futures, sys, libvirt
conn = libvirt.open("qemu:///system")
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[1])) as pool:
    domains = conn.listAllDomains()
    list(pool.map(lambda d: d.destroy(), domains))
    list(pool.map(lambda d: d.create(), domains))
"""
# Defines domains that do not run, of these UUIDs.
DEFINE = """
import json, sys, libvirt
conn = libvirt.open("qemu:///system")
text = "<domain type='qemu'><name>s-%s</name><uuid>%s</uuid><memory>1024</memory><os><type arch='x86_64'>hvm</type></os></domain>"
for uuid in json.load(sys.stdin):
    conn.defineXML(text % (uuid, uuid))
"""
UNDEFINE = """
import libvirt
for domain in libvirt.open("qemu:///system").listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE):
    domain.undefine()
"""


class Bench(boot.Bench):
    def stop_and_start(self) -> float:
        """The playbooks stop and start."""
        variables = self.folder / "ours.json"
        more = ("-e", '{"bootflow_project": "default", "bootflow_all": true, "bootflow_shutdown_timeout": 0}')
        return self.play("stop", variables, *more)[0] + self.play("start", variables, *more)[0]

    def virt(self) -> float:
        """A plain playbook."""
        guests = {host.name: host.run(*LIBVIRT, "list", "--all", "--name").stdout.split() for host in self.lab.hosts}
        (self.folder / "virt.yml").write_text(VIRT)
        variables = ("-e", json.dumps({"guests": guests}))
        argv = [PLAYBOOK, "-i", self.lab.inventory, str(self.folder / "virt.yml"), *variables]
        return timed(argv, env=self.environment)[0]

    def virsh(self) -> float:
        """A loop of ssh over the guests."""
        options = ["-i", self.lab.private_key, "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
        options += ["-o", "IdentitiesOnly=yes", "-o", "ControlPath=%s/%%h" % self.folder]
        options += [
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=%s/ssh/known_hosts" % self.lab.directory,
        ]
        guests = [
            ("root@%s" % host.address, name)
            for host in self.lab.hosts
            for name in host.run(*LIBVIRT, "list", "--all", "--name").stdout.split()
        ]
        places = sorted({place for place, _name in guests})
        for place in places:
            timed(["ssh", *options, place, "true"])  # the connection is warm
        started = time.monotonic()
        for command in ("destroy", "start"):
            for place, name in guests:
                timed(["ssh", *options, place, *LIBVIRT, command, name])
        seconds = time.monotonic() - started
        for place in places:
            subprocess.run(["ssh", *options, "-O", "exit", place], capture_output=True, check=False)
        return seconds

    def libvirt_alone(self, workers: int, together: bool) -> float:
        """:arg together: all hosts at the same time."""
        started = time.monotonic()
        running = []
        for host in self.lab.hosts:
            running.append(subprocess.Popen(host.command("/usr/bin/python3", "-c", LIBVIRT_ALONE, str(workers))))
            if not together:
                running[-1].wait()
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit("libvirt could not stop and start the domains")
        return time.monotonic() - started

    # --- power sync -----------------------------------------------------------------------------------------------------

    def fill(self, count: int) -> None:
        """So many more instances on each host, stopped, and their domains: rows like those of one that was booted."""
        connection = sqlite3.connect(self.folder / "ledger.db", timeout=60)
        connection.row_factory = sqlite3.Row
        template = dict(connection.execute("SELECT * FROM instances WHERE deleted = '' LIMIT 1").fetchone())
        template.pop("id", None)
        for host in self.lab.hosts:
            uuids = [str(uuid.uuid4()) for _number in range(count)]
            rows = [
                {
                    **template,
                    "uuid": each,
                    "display_name": "s-%s" % each,
                    "host": host.name,
                    "vm_state": "stopped",
                    "power_state": 4,
                }
                for each in uuids
            ]
            names = sorted(template.keys() | {"uuid"})
            marks = ", ".join(":" + name for name in names)
            connection.executemany("INSERT INTO instances (%s) VALUES (%s)" % (", ".join(names), marks), rows)
            argv = host.command("/usr/bin/python3", "-c", DEFINE)
            subprocess.run(argv, input=json.dumps(uuids), text=True, check=True)
        connection.commit()
        connection.close()

    def sync(self, instances: int) -> float:
        seconds, output = self.play("power_sync", self.folder / "ours.json")
        if "Power sync of %d instances on 3 hosts" % instances not in output:
            raise SystemExit("the sync did not compare %d instances:\n%s" % (instances, output[-2000:]))
        return seconds

    def ping(self) -> float:
        (self.folder / "ping.yml").write_text(PING)
        return timed([PLAYBOOK, "-i", self.lab.inventory, str(self.folder / "ping.yml")], env=self.environment)[0]


def of_guests(bench: Bench, count: int, rounds: int) -> list[dict[str, t.Any]]:
    """Alternating, and the median of the rounds."""
    bench.ours(count)
    bench.check(count)
    found: dict[str, list[float]] = {}

    def keep(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)
        bench.check(count)

    for number in range(1, rounds + 1):
        print("stop and start of %d guests, round %d" % (count, number), flush=True)
        keep("ours", bench.stop_and_start())
        keep("ours alone", bench.libvirt_alone(workers=8, together=True))
        keep("virt", bench.virt())
        keep("virt alone", bench.libvirt_alone(workers=1, together=True))
        keep("virsh", bench.virsh())
        keep("virsh alone", bench.libvirt_alone(workers=1, together=False))
    bench.end_ours()
    own = {name: boot.without(found[name], found[name + " alone"]) for name in ("ours", "virt", "virsh")}
    median = {name: statistics.median(each) for name, each in found.items()}
    rows = []
    for name, bound in BOUNDS.items():
        ratio = own["virt"] / own["ours"] if name == "virt" else own["ours"] / own["virsh"]
        within = ratio >= bound if name == "virt" else ratio <= bound
        row = {"name": "operations", "beside": name, "n": count, "ours": own["ours"], "limit": own[name]}
        totals = {"ours_total": median["ours"], "limit_total": median[name]}
        alone = {"qemu_ours": median["ours alone"], "qemu_limit": median[name + " alone"]}
        rows.append({**row, **totals, **alone, "unit": "s", "ratio": ratio, "bound": bound, "within": within})
    return rows


def of_syncs(bench: Bench, count: int, rounds: int) -> dict[str, t.Any]:
    bench.clean()
    bench.ours(3)
    print("power sync of %d instances a host" % count, flush=True)
    few = min(bench.sync(3) for _round in range(rounds))
    bench.fill(count)
    everything = 3 + 3 * count
    many = min(bench.sync(everything) for _round in range(rounds))
    ping = min(bench.ping() for _round in range(rounds))
    for host in bench.lab.hosts:
        host.run("/usr/bin/python3", "-c", UNDEFINE, timeout=300)
    bench.clean()
    return {"name": "power_sync", "n": count, "ours": many, "few": few, "limit": ping, "unit": "s"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--count", type=int, default=50, help="guests (default: 50; 0: none)")
    parser.add_argument("--rows", type=int, default=1000, help="instances a host for the sync (default: 1000; 0: none)")
    parser.add_argument("--rounds", type=int, default=5, help="measure so often (default: 5)")
    arguments = parser.parse_args()
    lab = lab_module.Lab(str(CACHE / "lab-bench"))
    print("making three lab hosts", flush=True)
    lab.up(3)
    try:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            bench = Bench(lab, Path(folder))
            bench.warm_up()
            bench.clean()
            rows = of_guests(bench, arguments.count, arguments.rounds) if arguments.count else []
            sync = of_syncs(bench, arguments.rows, arguments.rounds) if arguments.rows else None
    finally:
        lab.down()
    if rows:
        show_guests(rows)
    if sync is not None:
        show_sync(sync)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([*rows, *([sync] if sync else [])], indent=1) + "\n")
    return 0 if all(r["within"] for r in rows) else 1


def show_guests(rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    print("\nstop and start of %d guests on three hosts, libvirt's own time taken off" % rows[0]["n"])
    head = ("beside", "ours s", "its s", "ratio", "bound", "ours in all (libvirt) s", "its in all (libvirt) s")
    print("%8s  %8s  %8s  %7s  %14s  %24s  %24s" % head)
    for r in rows:
        bound = "%s %gx %s" % (">=" if r["beside"] == "virt" else "<=", r["bound"], "ok" if r["within"] else "MISSED")
        in_all = ["%.1f (%.1f)" % (r[which + "_total"], r["qemu_" + which]) for which in ("ours", "limit")]
        its = (r["beside"], r["ours"], r["limit"], r["ratio"], bound, *in_all)
        print("%8s  %8.2f  %8.2f  %6.2fx  %14s  %24s  %24s" % its)


def show_sync(sync: t.Mapping[str, t.Any]) -> None:
    print("\npower sync of %d instances on each of three hosts" % sync["n"])
    ratio = sync["ours"] / sync["limit"]
    print("    nothing differs: %.2f s, %.2fx of a playbook with ping (%.2f s)" % (sync["ours"], ratio, sync["limit"]))
    print("    with 1 instance a host: %.2f s" % sync["few"])


if __name__ == "__main__":
    sys.exit(main())
