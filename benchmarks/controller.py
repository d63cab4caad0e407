# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts a controller can serve: a boot of an instance on each of 1,000 simulated hosts, with other forks and slices.

The hosts are not there: their connection (tests/simulated_py/connections/simulated.py) answers for the module that builds, at once or after the seconds
that a real host takes. What is left is the work of the controller: the whole playbook boot, Ansible's own share told by a
debug task on the same hosts with the same forks. Slices are playbooks that run at the same time on one ledger (PostgreSQL), each
with its part of the hosts and of the instances. Told, not judged: seconds, instances a second, processor time, and the memory
of all processes of Ansible together (PSS, their shared pages counted once).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lab"), str(ROOT / "benchmarks")]

import run as fixed  # noqa: E402
from postgres import PostgresServer  # noqa: E402

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context  # noqa: E402

#: forks, slices, seconds that a host works
VARIANTS = (
    (5, 1, 0.0),
    (20, 1, 0.0),
    (50, 1, 0.0),
    (10, 2, 0.0),
    (5, 4, 0.0),
    (5, 1, 1.0),
    (50, 1, 1.0),
    (100, 1, 1.0),
)


class Usage(t.NamedTuple):
    seconds: float
    processor: float
    megabytes: float
    output: str = ""  # of the last of its processes


class Fleet:
    """A folder with an inventory of simulated hosts, whose reports are in a ledger of their own.

    :arg simulated_options: more options of the connection
    """

    def __init__(self, folder: Path, url: str, hosts: int, **simulated_options: t.Any):
        self.folder = folder
        self.url = url
        self.names = ["compute%04d" % n for n in range(1, hosts + 1)]
        self.booted = 0
        simulated = {
            "ansible_connection": "simulated",
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
            **simulated_options,
        }
        variables = {
            "bootflow_ledger_url": self.url,
            "bootflow_facts_max_age": 1_000_000,
            "bootflow_service_down_time": 2_000_000,
            "bootflow_cpu_allocation_ratio": fixed.RATIOS["cpu_allocation_ratio"],
            "bootflow_ram_allocation_ratio": fixed.RATIOS["ram_allocation_ratio"],
            "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
            "bootflow_images": [
                {"name": "debian", "disk_format": "qcow2", "allow_unverified": True, "url": "http://i.example/d.qcow2"}
            ],
            "bootflow_networks": [
                {"name": "net", "type": "bridge", "source": "br0", "subnets": [{"cidr": "10.0.0.0/12"}]}
            ],
            "bootflow_print_table": False,
        }
        group = {"hosts": dict.fromkeys(self.names), "vars": simulated}
        (folder / "group_vars").mkdir()
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables))
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"bootflow_compute": group}}}))
        debug = {"name": "Debug", "hosts": "bootflow_compute", "gather_facts": False, "strategy": "free"}
        (folder / "debug.yml").write_text(yaml.safe_dump([{**debug, "tasks": [fixed.DEBUG]}]))
        ledger = database.open_ledger(self.url, create=True, check_revision=False)
        ledger.migrate()
        run = Context(run=this_run.identify(os.getpid(), "bench", "bench"), request_id="req-bench")
        with ledger.write() as tx:
            for name in self.names:
                nodes.record_report(tx.for_run(run), name, {"hypervisor_hostname": name, **fixed.FACTS}, fixed.RATIOS)
        ledger.close()

    def boot(self, forks: int, slices: int, seconds: float) -> Usage:
        """An instance for each host, by as many playbooks as there are slices."""
        runs = []
        for number in range(slices):
            self.booted += 1
            mine = self.names[number::slices]
            entry = {"name": "b%d" % self.booted, "count": len(mine), "flavor": "small", "image": "debian"}
            request = {"bootflow_instances": [{**entry, "networks": ["net"]}], "simulated_seconds": seconds}
            if slices > 1:
                request["bootflow_hosts"] = mine
            path = self.folder / ("request%d.json" % self.booted)
            path.write_text(json.dumps(request))
            runs.append(("bootflow.compute.boot", "-e", "@%s" % path.name))
        return self.run(forks, *runs)

    def debug(self, forks: int) -> Usage:
        return self.run(forks, ("debug.yml",))

    def run(
        self,
        forks: int,
        *runs: tuple[str, ...],
        program: str = fixed.PLAYBOOK,
        inventory: str = "hosts.yml",
        **more: str,
    ) -> Usage:
        """Run the ``program`` with the arguments of each of ``runs`` at the same time. :arg more: variables of the environment"""
        environment = {
            **os.environ,
            "ANSIBLE_FORKS": str(forks),
            "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "simulated_py" / "connections"),
            **more,
        }
        before, started = _processor(), time.monotonic()
        output = [(self.folder / ("out%d" % n)).open("w+") for n in range(len(runs))]
        processes = [
            subprocess.Popen([program, "-i", inventory, *run], cwd=self.folder, env=environment, stdout=out, stderr=out)
            for run, out in zip(runs, output)
        ]
        memory = Memory([p.pid for p in processes])
        try:
            codes = [process.wait(3600) for process in processes]
        finally:
            memory.end()
            for process in processes:
                process.kill()
        seconds = time.monotonic() - started
        for code, out in zip(codes, output):
            out.seek(0)
            text = out.read()
            out.close()
            if code:
                raise SystemExit("a playbook failed:\n%s" % text[-4000:])
        return Usage(seconds, _processor() - before, memory.most / 1024, text)


class Memory(threading.Thread):
    """Follows the memory of processes and their children. ``most`` is in KiB."""

    def __init__(self, roots: t.Sequence[int]):
        super().__init__(daemon=True)
        self.roots = roots
        self.most = 0
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(1.0):
            pending, total = list(self.roots), 0
            while pending:
                folder = Path("/proc/%d" % pending.pop())
                try:
                    found = (folder / "smaps_rollup").read_text().split("Pss:", 1)[1]
                    pending += map(int, (folder / "task" / folder.name / "children").read_text().split())
                except (OSError, IndexError):  # it has ended
                    continue
                total += int(found.split()[0])
            self.most = max(self.most, total)

    def end(self) -> None:
        self.ended.set()
        self.join()


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--hosts", type=int, default=1000, help="hosts, and instances of a boot (default: 1,000)")
    arguments = parser.parse_args()
    rows: list[dict[str, t.Any]] = []
    print(
        "%5s %6s %8s %10s %10s %8s %14s %12s %12s %8s"
        % (
            "forks",
            "slices",
            "host s",
            "boot s",
            "debug s",
            "ratio",
            "instances/s",
            "CPU ms/host",
            "debug CPU ms",
            "MiB",
        ),
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="bf-bench-", dir="/var/tmp") as folder, PostgresServer() as server:
        fleet = Fleet(Path(folder), server.url(server.create()), arguments.hosts)
        fleet.boot(20, 1, 0.0)  # modules are packed, statements planned
        for forks, slices, seconds in VARIANTS:
            debug, boot = fleet.debug(forks), fleet.boot(forks, slices, seconds)
            ratio = boot.seconds / debug.seconds
            name = "boot on %d simulated hosts, %d forks, %d slices, hosts work %g s" % (
                arguments.hosts,
                forks,
                slices,
                seconds,
            )
            rows.append(
                {
                    "name": name,
                    "n": arguments.hosts,
                    "ours": round(boot.seconds, 3),
                    "limit": round(debug.seconds, 3),
                    "unit": "s",
                    "ratio": round(ratio, 3),
                    "bound": None,
                    "within": None,
                    "processor": round(boot.processor, 3),
                    "megabytes": round(boot.megabytes),
                }
            )
            print(
                "%5d %6d %8.1f %10.1f %10.1f %8.2f %14.1f %12.1f %12.1f %8.0f"
                % (
                    forks,
                    slices,
                    seconds,
                    boot.seconds,
                    debug.seconds,
                    ratio,
                    arguments.hosts / boot.seconds,
                    1000 * boot.processor / arguments.hosts,
                    1000 * debug.processor / arguments.hosts,
                    boot.megabytes,
                ),
                flush=True,
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
