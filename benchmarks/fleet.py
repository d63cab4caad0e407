# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet that fills up: 6,100 hosts, one network of a /8, batches of 1,000 instances from request to ACTIVE, on PostgreSQL.

A batch is what the tasks of a boot do on the controller: validate, accept, leases and stale hosts, compare settings, schedule and
claim, take the builds of all hosts into their first stage, hand them over, collect the outcomes, report. The hosts answer at
once: what is measured is the ledger. As many processes as the machine has cores boot side by side, each in a project of its
own; the rate is that of all. Nomad placed two million containers on 6,100 hosts at 1,500 a second on average (its C2M test).

One request of many instances is measured beside one of 1,000 on a ledger that is empty again, and the bytes that an instance
costs in the database and in its log (WAL) are told.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import sys
import time
import typing as t
from pathlib import Path

import sqlalchemy as sa

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lab"), str(ROOT / "benchmarks")]

import scheduling as bench  # noqa: E402
from postgres import PostgresServer  # noqa: E402

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states, states  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds, schedule  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (  # noqa: E402
    before_boot,
    fleet,
    instances,
    nodes,
    views,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction  # noqa: E402
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds.handover import from_text, to_text  # noqa: E402

HOSTS = 6100
BATCH = 1000
RATE = 1500.0  # instances a second
STEPS = ("accept", "schedule", "begin", "hand over", "collect", "report")
NETWORK = {"name": "net", "subnets": [{"name": "v4", "cidr": "10.0.0.0/8"}]}
IMAGE = {
    "name": "image",
    "disk_format": "qcow2",
    "url": "https://example.org/image",
    "checksum": "sha256:" + "0" * 64,
}


def catalogue() -> t.Any:
    flavor = {k: v for k, v in bench.FLAVOR.items() if k not in ("ephemeral_gb", "swap")}
    return parse_catalogue([flavor], [IMAGE], [NETWORK], [])


def batch(ledger: database.Ledger, hosts: t.Mapping[str, str], name: str, count: int) -> dict[str, float]:
    """One boot of ``count`` instances. Returns the seconds of its steps. :arg hosts: with their zones"""
    identity = this_run.RunIdentity("run-" + name, "bench", "", "", 1, 1, "bench")
    mine = ledger.for_run(Context(run=identity, request_id="req-" + name))
    seconds: dict[str, float] = {}

    def timed(step: str, work: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        started = time.perf_counter()
        result = work(*arguments)
        seconds[step] = time.perf_counter() - started
        return result

    def accepting() -> accept.Accepted:
        entry = {"name": name, "flavor": "small", "image": "image", "networks": ["net"], "count": count}
        known = catalogue()
        by_name = {n.name: n for n in known.networks.values()}
        by_name.update({n.id: n for n in known.networks.values()})
        options = RequestOptions(default_project="p-%d" % os.getpid(), max_count=100_000)
        requests = parse_requests([entry], known, options)

        def write(tx: Transaction) -> tuple[accept.Accepted, bool]:
            taken = accept.accept(tx, requests, accept.AcceptOptions(networks=by_name))
            before = before_boot.look(tx, 300.0)
            before.ask(list(hosts))
            return taken, before.left_work

        found, due = mine.transact(write, collisions=3)
        if due:
            mine.transact(leases.expire)
        return found

    def scheduling() -> schedule.Scheduled:
        of_zones = {zone: {**bench.SETTINGS, "availability_zone": zone} for zone in set(hosts.values())}
        configurations = {h: of_zones[zone] for h, zone in hosts.items()}

        def write(tx: Transaction) -> schedule.Scheduled:
            if nodes.differing(tx, configurations):
                raise SystemExit("the settings of the fleet have changed")
            options = SchedulerOptions(now=time.time(), service_down_time=9e9)
            return schedule.schedule(tx, lambda tx, needs: fleet.read(tx, hosts, needs=needs), options)

        return mine.transact(write)

    def reporting(tx: Transaction) -> list[dict[str, t.Any]]:
        schedule.give_up(tx, 3)
        return views.instance_views(tx, instances.select_live(tx, uuids=accepted.created))

    accepted = timed("accept", accepting)
    scheduled = timed("schedule", scheduling)
    begun, _waiting = timed("begin", mine.transact, builds.begin_each, scheduled.hosts)
    made: dict[tuple[str, t.Any], str] = {}

    def handing_over() -> list[t.Any]:
        with database.no_garbage_sought():  # as handover.give() has it; each host takes its own
            return [b for its in begun.values() for b in from_text(to_text(its, made))]

    given = timed("hand over", handing_over)
    ended = [builds.Ended(b.uuid, b.row.host, power_states.RUNNING) for b in given]
    timed("collect", mine.transact, builds.ended_elsewhere, ended)
    shown = timed("report", mine.transact, reporting)
    if sum(v["vm_state"] == states.ACTIVE for v in shown) != count:
        raise SystemExit("not every instance of %s is active" % name)
    return seconds


def racer(url: str, hosts: dict[str, str], number: int, batches: int, barrier: t.Any, results: t.Any) -> None:
    """Boots one batch after the other. Sends (when it ended, seconds of its steps) of each."""
    ledger = database.open_ledger(url)
    gc.freeze()  # as plugins/__init__.py has it in a run of Ansible
    barrier.wait()
    for each in range(batches):
        seconds = batch(ledger, hosts, "b%d-%d" % (number, each), BATCH)
        results.put((time.time(), seconds))
    ledger.close()


def zones_of(database_: bench.Database) -> dict[str, str]:
    with database_.ledger.read() as tx:
        return nodes.zones(tx)


def size_of(database_: bench.Database) -> tuple[int, int]:
    """Bytes of the database, and of WAL written since the server began."""
    with database_.ledger.read() as tx:
        size = tx.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
        wal = tx.execute(sa.text("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")).scalar_one()
    return int(size), int(wal)


def fill(table: bench.Table, database_: bench.Database, total: int, processes: int) -> None:
    method = multiprocessing.get_context("spawn")
    barrier, results = method.Barrier(processes + 1), method.Queue()
    each = total // BATCH // processes
    arguments = (database_.url, zones_of(database_))
    workers = [method.Process(target=racer, args=(*arguments, i, each, barrier, results)) for i in range(processes)]
    size, wal = size_of(database_)
    for worker in workers:
        worker.start()
    barrier.wait(120)
    started = time.time()
    found: list[tuple[float, dict[str, float]]] = []
    for number in range(each * processes):
        found.append(results.get(timeout=600))
        if number % 20 == 19:
            print("  %7d instances after %5.0f s" % ((number + 1) * BATCH, time.time() - started), flush=True)
    seconds = max(end for end, _steps in found) - started
    for worker in workers:
        worker.join()
    instances_ = each * processes * BATCH
    tenth = max(len(found) // 10, 1)
    first, last = found[:tenth], found[-tenth:]
    for step in STEPS:
        median = [statistics.median(steps[step] for _end, steps in part) for part in (first, last)]
        print(
            "  %-10s %6.0f ms a batch at first, %6.0f ms at last" % (step, 1000 * median[0], 1000 * median[1]),
            flush=True,
        )
    at_first, at_last = (statistics.median(sum(steps.values()) for _end, steps in part) for part in (first, last))
    table.add("instances a second from request to ACTIVE", instances_, instances_ / seconds, RATE, "inst/s", 1.0)
    table.add("the last batches compared with the first", instances_, at_last, at_first, "s", 1.3)
    size_after, wal_after = size_of(database_)
    table.add(
        "database for an instance, beside 4.7 kB", instances_, (size_after - size) / instances_ / 1000, 4.7, "kB", None
    )
    table.add("WAL for an instance, beside 16 kB", instances_, (wal_after - wal) / instances_ / 1000, 16.0, "kB", None)


def linear(table: bench.Table, server: PostgresServer, large: int) -> None:
    """One request of many, beside one of a batch, each on a ledger without instances."""
    each: dict[int, float] = {}
    for count in (BATCH, large):
        base, _name = bench.postgresql(server)
        base.fill(HOSTS, 0)
        hosts = zones_of(base)
        batch(base.ledger, hosts, "warm", 1)
        best = min(
            sum(batch(base.ledger, hosts, "one-%d" % n, count).values()) for n in range(3 if count == BATCH else 1)
        )
        each[count] = best / count
        base.close()
    table.add(
        "one request of %d beside one of %d, an instance" % (large, BATCH), large, each[large], each[BATCH], "s", 1.3
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--instances", type=int, default=200_000, help="to fill the fleet with (default: 200,000)")
    parser.add_argument("--large", type=int, default=30_000, help="instances of the large request (default: 30,000)")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="default: one for each core"
    )
    arguments = parser.parse_args()
    table = bench.Table()
    server = PostgresServer()
    server.settings.update(fsync="on", full_page_writes="on", synchronous_commit="on")
    server.start()
    try:
        bench.heading()
        base, _name = bench.postgresql(server)
        base.fill(HOSTS, 0)
        fill(table, base, arguments.instances, arguments.processes)
        base.close()
        linear(table, server, arguments.large)
    finally:
        server.stop()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(table.rows, indent=2) + "\n")
    missed = [r["name"] for r in table.rows if r["within"] is False]
    for name in missed:
        print("missed: %s" % name, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
