# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of ansible-playbook costs on the controller, whatever the hosts do: no host is contacted.

empty   a playbook of one debug task with the same inventory: Ansible itself
list    the playbook list, of 10 instances
nothing the playbook boot where all 10 instances of the request run already
boot    the plays of the playbook boot up to the claims: 10 new instances accepted, scheduled and claimed
check   the same with --check: the plan, with the explanation of the hosts and the domains
build   the task of a round that builds, on 100 hosts that have nothing to build, beside a debug task on them; both after the round's
        first task, which hands builds over to hosts

The hosts are a range in the inventory (compute[0001:5000]); their reports were entered into the ledger, sqlite, by the ledger's
own functions. Rounds of all alternate; the fastest of each counts. Times of day, of a whole ansible-playbook process; with --cpu its
processor time, for machines that others use. Written with --json: {name, n, ours, limit, unit, ratio, bound, within}.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import yaml

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

ROOT = Path(__file__).resolve().parents[1]
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")
INSTANCES = 10
LARGE = 5000
BUILDERS = 100
DEBUG = {"name": "Nothing", "ansible.builtin.debug": {"msg": "nothing"}}
EMPTY = [{"name": "Empty", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [DEBUG]}]
FACTS = {
    "memory_mb": 256 * 1024,
    "local_gb": 8000,
    "vcpus": 128,
    "cpu_info": {"arch": "x86_64", "model": "EPYC", "features": ["f%d" % i for i in range(120)]},
    "supported_instances": [["x86_64", "kvm", "hvm"], ["i686", "kvm", "hvm"]],
}
RATIOS = {"ram_allocation_ratio": 1.5, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}


def until_claimed() -> list[dict[str, t.Any]]:
    """The plays of the playbook boot before hosts build: what it imports is its rounds, which begin with the claims."""
    plays: list[dict[str, t.Any]] = []
    for play in yaml.safe_load((ROOT / "playbooks" / "boot.yml").read_text()):
        if "import_playbook" in play:
            return [*plays, {**a_round()[0], "vars": play["vars"]}]
        plays.append(play)
    raise AssertionError("the playbook boot has no round")


def a_round() -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", yaml.safe_load((ROOT / "playbooks" / "round.yml").read_text()))


class Controller:
    """A folder with an inventory of so many hosts, and a ledger that knows them."""

    def __init__(self, folder: Path, hosts: int, cpu: bool):
        self.folder = folder
        self.cpu = cpu
        self.names = ["compute%04d" % n for n in range(1, hosts + 1)]
        named = "compute[0001:%04d]" % hosts if hosts > 1 else self.names[0]
        variables = {
            "bootflow_ledger_url": "sqlite:///%s/ledger.db" % folder,
            "bootflow_facts_max_age": 1_000_000,
            "bootflow_service_down_time": 2_000_000,
            "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
            "bootflow_images": [
                {
                    "name": "debian",
                    "disk_format": "qcow2",
                    "allow_unverified": True,
                    "url": "http://images.example/debian.qcow2",
                }
            ],
            "bootflow_networks": [
                {"name": "net", "type": "bridge", "source": "br0", "subnets": [{"cidr": "10.0.0.0/16"}]}
            ],
            "bootflow_instances": [self.entry("web")],
        }
        (folder / "group_vars").mkdir(parents=True)
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables))
        inventory = {"all": {"children": {"bootflow_compute": {"hosts": {named: None}}}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (folder / "empty.yml").write_text(yaml.safe_dump(EMPTY))
        (folder / "until_claimed.yml").write_text(yaml.safe_dump(until_claimed(), sort_keys=False))
        on_hosts = {**a_round()[-1], "hosts": "bootflow_compute[0:%d]" % (BUILDERS - 1)}
        # A later round: its first task schedules nothing where nothing waits.
        begins = {**a_round()[0], "vars": {"bootflow_round": 2, "bootflow_round_needed": True}}
        (folder / "build.yml").write_text(yaml.safe_dump([begins, on_hosts]))
        (folder / "debug.yml").write_text(yaml.safe_dump([begins, {**on_hosts, "tasks": [DEBUG]}]))
        (folder / "begins.yml").write_text(yaml.safe_dump([begins]))
        (folder / "new.json").write_text(json.dumps({"bootflow_instances": [self.entry("new")]}))
        self._fill()

    @staticmethod
    def entry(name: str) -> dict[str, t.Any]:
        return {"name": name, "count": INSTANCES, "flavor": "small", "image": "debian", "networks": ["net"]}

    def _fill(self) -> None:
        """The hosts have reported, and the instances of the request run."""
        ledger = database.open_ledger("sqlite:///%s/ledger.db" % self.folder, create=True, check_revision=False)
        ledger.migrate()
        run = Context(run=this_run.identify(os.getpid(), "bench", "bench"), request_id="req-bench")
        with ledger.write() as tx:
            for name in self.names:
                nodes.record_report(tx.for_run(run), name, {"hypervisor_hostname": name, **FACTS}, RATIOS)
        self.run("until_claimed.yml")
        with ledger.write() as tx:
            tx.execute(tables.instances.update().values(vm_state=states.ACTIVE, task_state=None, power_state=1))
        ledger.close()
        shutil.copy(self.folder / "ledger.db", self.folder / "filled.db")

    def run(self, playbook: str, *options: str) -> float:
        """Seconds of ansible-playbook, with the ledger as it was filled."""
        if (self.folder / "filled.db").exists():
            for suffix in ("-wal", "-shm"):
                (self.folder / ("ledger.db" + suffix)).unlink(missing_ok=True)
            shutil.copy(self.folder / "filled.db", self.folder / "ledger.db")
        before, start = _processor(), time.monotonic()
        done = subprocess.run(
            [PLAYBOOK, "-i", "hosts.yml", playbook, *options],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = _processor() - before if self.cpu else time.monotonic() - start
        if done.returncode:
            raise SystemExit("%s failed:\n%s" % (playbook, done.stdout[-4000:]))
        return seconds

    def empty(self) -> float:
        return self.run("empty.yml")

    def list(self) -> float:
        return self.run("bootflow.compute.list")

    def nothing(self) -> float:
        return self.run("bootflow.compute.boot")

    def boot(self) -> float:
        return self.run("until_claimed.yml", "-e", "@new.json")

    def check(self) -> float:
        return self.run("until_claimed.yml", "-e", "@new.json", "--check", "--diff")

    def build(self) -> float:
        return self.run("build.yml")

    def debug(self) -> float:
        return self.run("debug.yml")

    def begins(self) -> float:
        return self.run("begins.yml")


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Table:
    def __init__(self) -> None:
        self.rows: list[dict[str, t.Any]] = []
        print("%-72s %6s %8s %8s %7s %8s" % ("work", "hosts", "ours s", "limit s", "ratio", "bound"), flush=True)

    def add(self, name: str, n: int, ours: float, limit: float, bound: float | None) -> None:
        """Without a bound it is told, not judged."""
        ratio = ours / limit
        within = None if bound is None else ratio <= bound
        self.rows.append(
            {
                "name": name,
                "n": n,
                "ours": round(ours, 4),
                "limit": round(limit, 4),
                "unit": "s",
                "ratio": round(ratio, 4),
                "bound": bound,
                "within": within,
            }
        )
        shown = ("", "") if bound is None else ("<= %.4g" % bound, "ok" if within else "MISSED")
        print("%-72s %6d %8.3f %8.3f %7.2f %8s %s" % (name, n, ours, limit, ratio, *shown), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the fastest counts")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of the time of day")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bf-bench-", dir="/var/tmp") as folder:
        one = Controller(Path(folder, "one"), 1, arguments.cpu)
        large = Controller(Path(folder, "large"), LARGE, arguments.cpu)
        works = {
            "empty": one.empty,
            "list": one.list,
            "nothing": one.nothing,
            "large empty": large.empty,
            "large list": large.list,
            "large nothing": large.nothing,
            "large boot": large.boot,
            "large check": large.check,
            "large build": large.build,
            "large debug": large.debug,
            "large begins": large.begins,
        }
        found: dict[str, list[float]] = {name: [] for name in works}
        for _round in range(arguments.rounds):
            for name, work in works.items():
                found[name].append(work())
    best = {name: min(seconds) for name, seconds in found.items()}
    table = Table()
    table.add("list, beside an empty playbook", 1, best["list"], best["empty"], 1.7)
    table.add("boot with nothing to do, beside an empty playbook", 1, best["nothing"], best["empty"], 2.5)
    table.add("an empty playbook, beside the same at 1 host", LARGE, best["large empty"], best["empty"], None)
    for name, words in (("list", "list"), ("nothing", "boot with nothing to do")):
        table.add("%s, beside the same at 1 host" % words, LARGE, best["large " + name], best[name], 1.5)
        grown = best["large " + name] - (best["large empty"] - best["empty"])
        table.add("%s, the same without what an empty playbook grows" % words, LARGE, grown, best[name], 1.5)
    table.add("boot of 10 until claimed, beside an empty playbook", LARGE, best["large boot"], best["large empty"], 3.0)
    own = [best["large " + name] - best["large empty"] for name in ("check", "boot")]
    table.add("--check of 10, beside accept and schedule (both without Ansible's own)", LARGE, own[0], own[1], 5.0)
    own = [(best["large " + name] - best["large begins"]) / BUILDERS for name in ("build", "debug")]
    table.add("build on a host with nothing to build, beside debug (a host)", BUILDERS, own[0], own[1], 2.0)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(table.rows, indent=2) + "\n")
    missed = [r["name"] for r in table.rows if r["within"] is False]
    for name in missed:
        print("missed: %s" % name, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
