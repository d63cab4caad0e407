# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of live migrations compared with Ganeti's hbal, on the same fleets in one run.

hbal    `hbal -t FILE --ignore-dynu` until it finds nothing better, with instances on external storage, which go to any host
ours    core.rebalance.planning.make_plan with as many moves as hbal made, all default filters, N+1 kept at each step
fewer   the same until the fleet is as even as hbal made it, with as many moves as that takes

Both count memory, disk and vCPUs of hosts. hbal weighs vCPUs by physical CPUs, and ours by the allocation ratio: the multiplier of CPUWeigher is that
ratio here, so both mean the same. The results of both are scored twice: by our score, and by hbal, which reads the fleet as each plan leaves it. Fleets are
made from a seed. Ratios are ours to hbal's: at most 1.00 is as good or better. Then our plan of the largest fleet alone, which hbal does not end with.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.rebalance.plan_data import Aims, Guest, Plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.rebalance.planning import make_plan, score_of
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

RATIO = 4.0  # vCPUs of a physical CPU
MEMORY_MB, CPUS, DISK_GB = 131072, 32, 4000  # of a host
FLAVORS = [
    Flavor("f%d" % number, *sizes)
    for number, sizes in enumerate(
        [(2048, 1, 20), (4096, 2, 40), (8192, 4, 40), (16384, 4, 80), (16384, 8, 20), (32768, 8, 160)]
    )
]
OPTIONS = SchedulerOptions(now=1000.0, multipliers={"CPUWeigher": RATIO})
GROUP = "4f1c9a6e-0f5d-4a53-9d5b-6a5a2d3c8f10"
Places = t.Mapping[str, str]  # guest -> its host


class Hosts:
    """A fleet from a seed: some hosts are much fuller than others."""

    def __init__(self, hosts: int, guests: int, seed: int):
        rng = random.Random(seed)
        self.names = ["h%04d" % number for number in range(hosts)]
        use = {name: [0, 0, 0] for name in self.names}
        liked = [rng.random() ** 2 + 0.05 for _name in self.names]
        self.guests: list[Guest] = []
        while len(self.guests) < guests:
            flavor = rng.choice(FLAVORS)
            for name in rng.choices(self.names, liked, k=100):
                after = [a + b for a, b in zip(use[name], (flavor.memory_mb, flavor.vcpus, flavor.root_gb))]
                if all(a <= most for a, most in zip(after, (MEMORY_MB, CPUS * RATIO, DISK_GB))):
                    break
            else:
                break
            use[name] = after
            uuid = "u%06d" % len(self.guests)
            self.guests.append(Guest(uuid, uuid, name, name, RequestSpec([uuid], flavor)))
        self.start = {g.uuid: g.host for g in self.guests}

    def fleet(self, places: Places | None = None) -> Fleet:
        used = self._used(places or self.start)
        return Fleet(
            [
                HostState(
                    name,
                    name,
                    memory_mb=MEMORY_MB,
                    vcpus=CPUS,
                    local_gb=DISK_GB,
                    updated_at=1000.0,
                    memory_mb_used=used[name][0],
                    vcpus_used=used[name][1],
                    local_gb_used=used[name][2],
                    num_instances=used[name][3],
                    ram_allocation_ratio=1.0,
                    cpu_allocation_ratio=RATIO,
                    disk_allocation_ratio=1.0,
                )  # fmt: skip
                for name in self.names
            ]
        )

    def _used(self, places: Places) -> dict[str, list[int]]:
        used = {name: [0, 0, 0, 0] for name in self.names}
        for guest in self.guests:
            flavor = guest.spec.flavor
            for position, amount in enumerate((flavor.memory_mb, flavor.vcpus, flavor.root_gb, 1)):
                used[places[guest.uuid]][position] += amount
        return used

    def text(self, places: Places) -> str:
        """The fleet in hbal's format."""
        used = self._used(places)
        nodes = [
            (name, MEMORY_MB, 0, MEMORY_MB - used[name][0], 1024 * DISK_GB, 1024 * (DISK_GB - used[name][2]), CPUS)
            + ("N", GROUP, 1, "", "N", 0, 0, "1.0")
            for name in self.names
        ]
        instances = [
            (g.uuid, g.spec.flavor.memory_mb, 1024 * g.spec.flavor.root_gb, g.spec.flavor.vcpus, "running", "Y")
            + (places[g.uuid], "", "ext", "", 1)
            for g in self.guests
        ]
        sections = [
            ["default|%s|preferred||" % GROUP],
            *(["|".join(map(str, row)) for row in rows] for rows in (nodes, instances)),
        ]
        policy = "|128,1,1024,1,1,1|0,0,0,0,0,0;65536,64,1048576,16,8,64|ext|%s|32.0" % RATIO
        return "\n\n".join("\n".join(section) for section in sections) + "\n\n\n" + policy + "\n"

    def after(self, plan: Plan) -> Places:
        return {**self.start, **{s.uuid: s.destination for s in plan.steps}}

    def score(self, places: Places) -> float:
        return score_of(self.fleet(places), [], OPTIONS, Aims())

    def plan(self, **aims: t.Any) -> tuple[Plan, float]:
        begun = time.perf_counter()
        plan = make_plan(self.fleet, self.guests, OPTIONS, Aims(**aims))
        return plan, time.perf_counter() - begun


def hbal(folder: Path, text: str, *options: str) -> tuple[str, Places, float]:
    """What hbal prints of a fleet, where it leaves the instances, and its seconds."""
    path, saved = folder / "fleet", folder / "after"
    path.write_text(text)
    begun = time.perf_counter()
    done = subprocess.run(
        ["hbal", "-t", str(path), "-S", str(saved), "--ignore-dynu", *options],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    balanced = Path("%s.balanced" % saved)
    rows = balanced.read_text().split("\n\n")[2].splitlines() if balanced.exists() else []
    return done.stdout, {row.split("|")[0]: row.split("|")[6] for row in rows}, seconds


def hbal_score(folder: Path, text: str) -> float:
    """hbal's own score of a fleet."""
    printed = hbal(folder, text, "-l", "0")[0]
    match = re.search(r"(?:Initial (?:cluster )?score|score is|Cluster score)[^\d]*([\d.]+)", printed, re.IGNORECASE)
    if match is None:
        raise SystemExit("hbal printed no score:\n" + printed)
    return float(match.group(1))


def compare(folder: Path, hosts: int, guests: int, seed: int) -> list[dict[str, t.Any]]:
    """The rows of one fleet."""
    fleet = Hosts(hosts, guests, seed)
    _printed, places, seconds = hbal(folder, fleet.text(fleet.start), "-g", "1e-9", "--min-gain-limit", "0", "-e", "0")
    theirs = {
        "moves": sum(places[uuid] != host for uuid, host in fleet.start.items()),
        "score": fleet.score(places),
        "hbal's score": hbal_score(folder, fleet.text(places)),
        "seconds": seconds,
    }
    same, same_seconds = fleet.plan(moves=theirs["moves"])
    fewer, _seconds = fleet.plan(tolerance=theirs["score"])
    ours = {
        "moves": len(same.steps),
        "score": fleet.score(fleet.after(same)),
        "hbal's score": hbal_score(folder, fleet.text(fleet.after(same))),
        "seconds": same_seconds,
    }
    name = "%d hosts, %d instances, seed %d" % (hosts, len(fleet.guests), seed)
    rows = [row(name, what, ours[what], theirs[what]) for what in theirs]
    rows.append(row(name, "moves to hbal's score", len(fewer.steps), theirs["moves"]))
    if fewer.after > theirs["score"] + 1e-6 or (same.spare_after, fewer.spare_after) < (same.spare_before,) * 2:
        raise SystemExit("%s: not as even as hbal's, or below N+1" % name)
    return rows


def row(name: str, what: str, ours: float, theirs: float) -> dict[str, t.Any]:
    ratio = ours / theirs if theirs else float(ours > 0)
    print("%-38s %-22s %10.4g %10.4g %7.2f" % (name, what, ours, theirs, ratio), flush=True)
    return {"name": name, "what": what, "ours": ours, "hbal": theirs, "ratio": ratio, "within": ratio <= 1.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--seeds", type=int, default=3, help="fleets of each size")
    parser.add_argument("--largest", type=int, default=1000, help="hosts of the fleet that ours alone plans; 0: none")
    arguments = parser.parse_args()
    print("%-38s %-22s %10s %10s %7s" % ("fleet", "", "ours", "hbal", "ratio"))
    rows: list[dict[str, t.Any]] = []
    with tempfile.TemporaryDirectory(prefix="bf-bench-", dir="/var/tmp") as folder:
        for hosts, guests in ((10, 60), (20, 150), (40, 300)):
            for seed in range(1, arguments.seeds + 1):
                rows += compare(Path(folder), hosts, guests, seed)
    if arguments.largest:
        fleet = Hosts(arguments.largest, 10 * arguments.largest, 1)
        plan, seconds = fleet.plan(tolerance=3.0)
        print(
            "%d hosts, %d instances: %d moves, score %.2f to %.2f, %.1f s (ours alone)"
            % (arguments.largest, len(fleet.guests), len(plan.steps), plan.before, plan.after, seconds)
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")
    missed = ["%(name)s: %(what)s" % r for r in rows if not r["within"]]
    for name in missed:
        print("missed: %s" % name, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
