# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the day after the boot costs: the inventory of guests, playbooks with nothing to do, reports, audits and deletions of a whole fleet.

The hosts are simulated (tests/simulated_py), and their guests were booted there by the playbook boot; a ledger of sqlite and one of PostgreSQL.
Limits are measured in the same rounds: an empty playbook with the same inventory, a debug task on the same hosts with the same forks, and a script
inventory that prints the same guests with the same variables. Rounds of all works alternate; the fastest of each counts, the largest memory and the
lines of the last. Memory is that of all processes together (PSS) as looked at once a second, so that work of a second or less has none; server is
the processor time of PostgreSQL. With --before, another checkout of the collection works beside this one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/lab", "tests/simulated_py", "benchmarks")]

import run as fixed  # noqa: E402
from controller import Fleet, Usage  # noqa: E402
from postgres import PostgresServer  # noqa: E402
from simulated_host import SimulatedHost  # type: ignore[import-not-found]  # noqa: E402

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances  # noqa: E402

FORKS = 20
INVENTORY = str(Path(sys.executable).parent / "ansible-inventory")
ROLES = 10
GUESTS = {
    "plugin": "bootflow.compute.instances",
    "compose": {"ansible_user": "'debian'"},
    "keyed_groups": [{"key": "bootflow_instance.metadata.role", "prefix": "role"}],
}

#: work -> the limit beside which it is, the bound
WORKS: dict[str, tuple[str, float]] = {
    "inventory --host": ("script --host", 0.5),
    "inventory --list": ("script --list", 0.9),
    "list": ("empty", 2.5),
    "boot, nothing to do": ("empty", 4.0),
    "apply, nothing to do": ("empty", 6.0),
    "heartbeat": ("debug", 2.5),
    "audit": ("debug", 2.5),
    "power_sync": ("debug", 2.0),
    "delete, one on each host": ("debug", 2.5),
}
LIMITS = ("script --host", "script --list", "empty", "debug")
#: the others need the fleet as the request has it
LAST = "delete, one on each host"
PLAYBOOKS = {"list": "list", "boot, nothing to do": "boot", "apply, nothing to do": "apply", "heartbeat": "heartbeat"}
PLAYBOOKS.update({"audit": "audit", "power_sync": "power_sync"})


class DayTwo(Fleet):
    """A fleet whose instances run, as many on each host. :arg server: of PostgreSQL; None: sqlite"""

    def __init__(self, folder: Path, server: PostgresServer | None, hosts: int, count: int):
        url = "sqlite:///%s/ledger.db" % folder if server is None else server.url(server.create())
        models = folder / "hosts"
        models.mkdir()
        super().__init__(folder, url, hosts, simulated_folder=str(models), simulated_checked=False)
        self.server = server
        sizes = {name: fixed.FACTS[name] for name in ("memory_mb", "vcpus", "local_gb")}
        for name in self.names:
            with SimulatedHost(name, models, checked=False).state() as state:
                state["model"]["facts"].update(sizes, bridges=["br0"])
        entries = [
            {
                "name": "role%d" % number,
                "count": count // ROLES,
                "flavor": "small",
                "image": "debian",
                "networks": ["net"],
                "metadata": {"role": "role%d" % number},
            }
            for number in range(ROLES)
        ]
        group_vars = folder / "group_vars"
        (group_vars / "all.yml").rename(group_vars / "fleet.yml")
        (group_vars / "all").mkdir()
        (group_vars / "fleet.yml").rename(group_vars / "all" / "fleet.yml")
        (group_vars / "all" / "request.json").write_text(
            json.dumps({"bootflow_instances": entries, "bootflow_max_count": count})
        )
        (folder / "empty.yml").write_text(yaml.safe_dump(fixed.EMPTY))
        (folder / "guests.bootflow.yml").write_text(yaml.safe_dump({**GUESTS, "ledger_url": url}))
        self.run(FORKS, ("bootflow.compute.boot",))
        printed = self.run(FORKS, ("--list",), program=INVENTORY, inventory="guests.bootflow.yml").output
        (folder / "guests.json").write_text(printed[printed.index("{") :])
        script = folder / "guests.sh"
        script.write_text("#!/bin/sh\nexec cat '%s/guests.json'\n" % folder)
        script.chmod(0o755)
        self.guest = "role0-1"
        self.doomed = self._instances_by_host()

    def _instances_by_host(self) -> list[list[str]]:
        """Sets of UUIDs, in each an instance of each host that has so many."""
        ledger = database.open_ledger(self.url)
        by_host: dict[str, list[str]] = {}
        for row in ledger.inspect(instances.select_live):
            by_host.setdefault(str(row.host), []).append(row.uuid)
        ledger.close()
        return [list(uuids) for uuids in zip(*by_host.values())]

    def work(self, name: str, **environment: str) -> tuple[Usage, float]:
        """What the work or limit took, and the seconds of PostgreSQL's processor."""
        before = self._server_processor()
        kind, _space, option = name.partition(" ")
        if kind in ("inventory", "script"):
            source = "guests.sh" if kind == "script" else "guests.bootflow.yml"
            arguments = (option, self.guest) if option == "--host" else (option,)
            usage = self.run(FORKS, arguments, program=INVENTORY, inventory=source, **environment)
        elif name == LAST:
            (self.folder / "doomed.json").write_text(json.dumps({"bootflow_uuids": self.doomed.pop()}))
            usage = self.run(FORKS, ("bootflow.compute.delete", "-e", "@doomed.json"), **environment)
        else:
            playbook = "%s.yml" % name if name in LIMITS else "bootflow.compute.%s" % PLAYBOOKS[name]
            usage = self.run(FORKS, (playbook,), **environment)
        return usage, self._server_processor() - before

    def _server_processor(self) -> float:
        """Seconds of PostgreSQL, with its processes that have ended."""
        if self.server is None:
            return 0.0
        postmaster = Path(self.server.data, "postmaster.pid").read_text().split()[0]
        fields = Path("/proc", postmaster, "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Rounds:
    """What works took in all rounds, by work and by whose code it was: "" for this checkout."""

    def __init__(self, others: t.Mapping[str, Path]):
        self.others = others
        self.taken: dict[tuple[str, str], list[tuple[Usage, float]]] = {}

    def add(self, fleet: DayTwo, name: str) -> None:
        for whose in ("", *(self.others if name in WORKS else ())):
            environment = {}
            if whose:
                tree = str(self.others[whose])
                environment = {"PYTHONPATH": tree, "ANSIBLE_COLLECTIONS_PATH": tree}
            self.taken.setdefault((name, whose), []).append(fleet.work(name, **environment))

    def seconds(self, name: str, whose: str = "") -> float:
        return min(usage.seconds for usage, _server in self.taken[name, whose])

    def row(self, kind: str, name: str, hosts: int, count: int) -> dict[str, t.Any]:
        limit, bound = WORKS[name]
        usages = [usage for usage, _server in self.taken[name, ""]]
        ratio = self.seconds(name) / self.seconds(limit)
        row = {
            "name": "%s, beside %s (%s, %d instances on %d hosts)" % (name, limit, kind, count, hosts),
            "n": count,
            "ours": round(self.seconds(name), 3),
            "limit": round(self.seconds(limit), 3),
            "unit": "s",
            "ratio": round(ratio, 3),
            "bound": bound,
            "within": ratio <= bound,
            "processor": round(min(usage.processor for usage in usages), 3),
            "server": round(min(server for _usage, server in self.taken[name, ""]), 3),
            "megabytes": round(max(usage.megabytes for usage in usages)),
            "lines": usages[-1].output.count("\n"),
        }
        for whose in self.others:
            row[whose] = round(self.seconds(name, whose), 3)
            row["%s_processor" % whose] = round(min(usage.processor for usage, _s in self.taken[name, whose]), 3)
            row["%s_megabytes" % whose] = round(max(usage.megabytes for usage, _s in self.taken[name, whose]))
            row["%s_server" % whose] = round(min(server for _usage, server in self.taken[name, whose]), 3)
        return row


def print_row(row: t.Mapping[str, t.Any]) -> None:
    numbers = (row["ours"], row["limit"], row["ratio"], "<= %.4g" % row["bound"], "ok" if row["within"] else "MISSED")
    more = (row["processor"], row["server"], row["megabytes"], row["lines"])
    before = (row.get("before", ""), row.get("before_processor", ""))
    line = "%-88s %8.2f %8.2f %7.2f %7s %-6s %8.1f %8.2f %6d %6d %8s %8s"
    print(line % (row["name"], *numbers, *more, *before), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--hosts", type=int, default=100, help="compute hosts (default: 100)")
    parser.add_argument("--instances", type=int, default=1000, help="instances, at least %d (default: 1,000)" % ROLES)
    parser.add_argument("--rounds", type=int, default=1, help="rounds of which the fastest counts (default: 1)")
    parser.add_argument("--ledgers", default="sqlite,postgresql", help="kinds of ledgers (default: both)")
    parser.add_argument("--works", default="", help="only works whose names contain one of these words, by commas")
    parser.add_argument(
        "--before", metavar="FOLDER", help="another checkout of the collection, which works on the same fleet"
    )
    arguments = parser.parse_args()
    chosen = [w for w in WORKS if any(word.strip() in w for word in arguments.works.split(","))]
    limits = [limit for limit in LIMITS if limit in {WORKS[work][0] for work in chosen}]
    rows: list[dict[str, t.Any]] = []
    head = ("work", "ours s", "limit s", "ratio", "bound", "", "CPU s", "server s", "MiB", "lines", "before s", "CPU s")
    print("%-88s %8s %8s %7s %7s %-6s %8s %8s %6s %6s %8s %8s" % head, flush=True)
    with tempfile.TemporaryDirectory(prefix="bf-bench-", dir="/var/tmp") as folder, PostgresServer() as server:
        others = {}
        if arguments.before:
            others["before"] = Path(folder, "before")
            namespace = others["before"] / "ansible_collections" / "bootflow"
            namespace.mkdir(parents=True)
            (namespace / "compute").symlink_to(Path(arguments.before).resolve())
        Path(folder, "warm").mkdir()
        warm = DayTwo(Path(folder, "warm"), None, 2, 2 * ROLES)  # modules are packed, code is compiled
        for name in WORKS:
            Rounds(others).add(warm, name)
        for kind in arguments.ledgers.split(","):
            Path(folder, kind).mkdir()
            fleet = DayTwo(
                Path(folder, kind), server if kind == "postgresql" else None, arguments.hosts, arguments.instances
            )
            rounds = Rounds(others)
            for names in ([*limits, *(w for w in chosen if w != LAST)], [w for w in chosen if w == LAST]):
                for _round in range(arguments.rounds):
                    for name in names:
                        rounds.add(fleet, name)
            for name in chosen:
                rows.append(rounds.row(kind, name, arguments.hosts, arguments.instances))
                print_row(rows[-1])
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")
    missed = [row["name"] for row in rows if not row["within"]]
    for name in missed:
        print("missed: %s" % name, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
