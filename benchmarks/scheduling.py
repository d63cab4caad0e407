# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scheduling and claiming beside the bare database work, in one run and with durable commits for both.

bare    what the machine and the database need for the same: reading the numbers of all hosts with the driver alone, and one
        statement that takes the memory, disk and vCPUs from the rows which ours took them from
ours    ledger.compute.fleet.read + core select_destinations + ledger.compute.claims.claim in one transaction: the host rows read
        fresh, all default filters and weighers, the claims tested under lock and written
parts   the same with pinned CPUs, with PCI devices, with the explanation of every host: shown beside a plain request
boot    the whole scheduling step of a boot: with it the waiting instances read and locked, where they went written to
        them and to their history
accept  a request of 1,000 in a network of a /8, before and after one of 30,000, and one of 30,000 beside it

Rounds of both alternate; the fastest of each counts. The boots a second are those of 8 processes for 3 seconds, each booting
one instance after the other as the tasks of a playbook do on the controller (validate, accept, leases and stale hosts,
configure, schedule and claim), beside pgbench with 8 clients and a conditional UPDATE + INSERT, and beside the 25 a second of
the first measurement. Written with --json: {name, n, ours, limit, unit, ratio, bound, within}; a rate has to be at least its
bound of the limit, everything else at most.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import typing as t
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import sqlalchemy as sa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from postgres import PostgresServer  # noqa: E402

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.dedicated import DedicatedRequest  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.constraints import numa_constraints  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import (  # noqa: E402
    Selection,
    select_destinations,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, schedule  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (  # noqa: E402
    before_boot,
    claims,
    fleet,
    nodes,
    profiles,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import bulk  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments  # noqa: E402

FLAVOR: dict[str, t.Any] = {"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}
PROJECT = "bench"
# Of a host, as the inventory has them where it says nothing
SETTINGS: dict[str, t.Any] = {
    "ram_allocation_ratio": 1.5,
    "disk_allocation_ratio": 1.0,
    "cpu_allocation_ratio": 16.0,
    "reserved_memory_mb": 512,
    "reserved_disk_gb": 0,
    "reserved_vcpus": 0,
    "disabled": False,
    "disabled_reason": "",
}
PROCESSES = 8
FIRST_RATE = 25.0  # boots a second, as first measured
LARGE = 30_000  # instances in one request
SECONDS = 3.0
# What is to be known of hosts, as any program would read it
READ = (
    *(n for n in fleet.COLUMNS if n != "down"),
    *("service_disabled", "forced_down", "unreachable_reason"),
)


class Database:
    """A ledger of the bench, and a connection of the bare driver to the same."""

    def __init__(self, kind: str, url: str, connect: t.Callable[[], t.Any]):
        self.kind = kind
        self.url = url
        self.ledger = database.open_ledger(url, create=True, check_revision=False)
        self.ledger.migrate()
        self.connect = connect
        self.bare = connect()
        self.hosts: list[str] = []
        self.uuids: list[str] = []

    def fill(self, hosts: int, instances: int) -> None:
        """Hosts like those of a fleet of a few kinds of machines, partly full, and instances that wait for one."""
        rng = random.Random(5)
        now = time.time()
        self.hosts = ["compute-%06d" % i for i in range(hosts)]
        with self.ledger.write() as tx:
            facts = {
                "hypervisor_hostname": "x",
                "memory_mb": 1,
                "local_gb": 1,
                "vcpus": 1,
                "cpu_info": {"arch": "x86_64", "model": "EPYC", "features": ["f%d" % i for i in range(120)]},
                "supported_instances": [["x86_64", "kvm", "hvm"], ["i686", "kvm", "hvm"]],
            }
            nodes.record_report(tx.for_run(context()), "template", facts, {})
            c = tables.compute_nodes.c
            profile = tx.execute(sa.select(c.profile_id)).scalar_one()
            tx.execute(tables.node_facts.delete())
            tx.execute(tables.compute_nodes.delete())
            rows = []
            for host in self.hosts:
                memory = rng.choice((128, 256, 512)) * 1024
                rows.append(
                    {
                        "host": host,
                        "node": host,
                        "host_uuid": "",
                        "memory_mb": memory,
                        "memory_mb_used": 512,
                        "reserved_memory_mb": 512,
                        "local_gb": 8000,
                        "local_gb_used": 0,
                        "reserved_disk_gb": 0,
                        "vcpus": 128,
                        "vcpus_used": 0,
                        "reserved_vcpus": 0,
                        "disk_available_least": rng.randrange(5000, 8000),
                        "ram_allocation_ratio": 1.5,
                        "disk_allocation_ratio": 1.0,
                        "cpu_allocation_ratio": 16.0,
                        "availability_zone": rng.choice(("nova", "az1", "az2")),
                        "disabled": False,
                        "disabled_reason": "",
                        "hypervisor_type": "QEMU",
                        "hypervisor_version": 7002022,
                        "num_instances": 0,
                        "failed_builds": 0,
                        "created_at": now,
                        "reported_at": now,
                        "profile_id": profile,
                    }
                )
            bulk.insert(tx, tables.compute_nodes, rows)
            tx.execute(
                tables.reservations.insert().values(
                    id="r-bench", project=PROJECT, user_name="bench", request_id="req", created_at=now
                )
            )
            spec = {
                "flavor": {**FLAVOR, "extra_specs": {}, "flavorid": "", "disabled": False},
                "image": {
                    "id": "i",
                    "name": "image",
                    "disk_format": "qcow2",
                    "size": 1 << 30,
                    "min_disk": 0,
                    "virtual_size": None,
                    "properties": {"hw_architecture": "x86_64"},
                },
                "networks": [],
                "has_volumes": False,
                "availability_zone": None,
                "forced_host": None,
                "forced_node": None,
                "scheduler_hints": {},
                "metadata": {},
            }
            tx.execute(
                tables.request_specs.insert().values(reservation_id="r-bench", spec_version="1.1", digest={}, spec=spec)
            )
            spec_id = tx.execute(sa.select(tables.request_specs.c.id)).scalar_one()
            self.uuids = ["00000000-0000-4000-8000-%012d" % i for i in range(instances)]
            bulk.insert(
                tx,
                tables.instances,
                [
                    {
                        "uuid": u,
                        "reservation_id": "r-bench",
                        "request_spec_id": spec_id,
                        "project": PROJECT,
                        "user_name": "bench",
                        "display_name": "vm-%d" % i,
                        "hostname": "vm-%d" % i,
                        "domain_name": "vm-%d" % i,
                        "launch_index": i,
                        "vm_state": "building",
                        "task_state": "scheduling",
                        "power_state": 0,
                        "memory_mb": 1024,
                        "vcpus": 1,
                        "root_gb": 1,
                        "ephemeral_gb": 0,
                        "swap_mb": 0,
                        "config_drive": True,
                        "run_id": "bench",
                        "created_at": now,
                        "updated_at": now,
                        "deleted": "",
                    }
                    for i, u in enumerate(self.uuids)
                ],
            )
        self.tidy()

    def equip(self) -> None:
        """Two NUMA cells of 32 CPUs in every host, and four network cards in every tenth."""
        cells = [
            {
                "id": n,
                "memory_mb": 65536,
                "cpus": list(range(32 * n, 32 * n + 32)),
                "siblings": [[c, c + 1] for c in range(32 * n, 32 * n + 32, 2)],
                "pages": [{"size_kb": 4, "total": 16777216}],
            }
            for n in (0, 1)
        ]
        cards = [
            {"address": "0000:%02x:00.0" % n, "vendor_id": "8086", "product_id": "10fb", "numa_node": n % 2}
            for n in range(1, 5)
        ]
        c = tables.compute_nodes.c
        with self.ledger.write() as tx:
            tx.execute(tables.compute_nodes.update().values(numa_profile_id=profiles.profile_id(tx, {"cells": cells})))
            chosen = [r.id for r in tx.execute(sa.select(c.id).order_by(c.id))][::10]
            bulk.update(tx, tables.compute_nodes, "id", [{"id": n, "has_pci": True} for n in chosen])
            facts = {"pci_passthrough_devices": cards}
            bulk.insert(tx, tables.node_facts, [{"compute_node_id": n, "facts": facts} for n in chosen])
        self.tidy()

    def reset(self) -> None:
        """As if nothing had been placed."""
        with self.ledger.write() as tx:
            tx.execute(tables.device_claims.delete())
            tx.execute(tables.claims.delete())
            tx.execute(tables.instance_action_events.delete())
            tx.execute(
                tables.instances.update()
                .where(tables.instances.c.host.is_not(None))
                .values(host=None, node=None, task_state="scheduling", retry=sa.null(), limits=sa.null())
            )
            c = tables.compute_nodes.c
            tx.execute(
                tables.compute_nodes.update()
                .where(c.num_instances != 0)
                .values(memory_mb_used=512, local_gb_used=0, vcpus_used=0, num_instances=0)
            )

    def tidy(self) -> None:
        """What the database does in its own time, done now: it belongs to neither side."""
        if self.kind == "postgresql":
            with self.connect() as conn:
                conn.execute("VACUUM ANALYZE")
        else:
            self.bare.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.bare.close()
        self.ledger.close()


def options() -> SchedulerOptions:
    return SchedulerOptions(now=time.time(), service_down_time=900.0)


def context() -> Context:
    identity = this_run.RunIdentity("bench", "bench", "", "", 1, 1, "bench")
    return Context(run=identity, request_id="req")


# --- what is measured ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What is asked for."""

    name: str = "plain"
    numa: t.Any = None
    pci: tuple[PciRequest, ...] = ()
    explain: bool = False

    def spec(self, uuids: t.Sequence[str]) -> RequestSpec:
        return RequestSpec(
            instance_uuids=uuids,
            flavor=Flavor(**FLAVOR),
            image_properties={"hw_architecture": "x86_64"},
            numa_topology=self.numa,
            pci_requests=self.pci,
        )

    @property
    def needs(self) -> fleet.Needs:
        return fleet.Needs(numa=self.numa is not None, devices=bool(self.pci))


PLAIN = Kind()
PINNED = Kind("pinned", numa=numa_constraints(Flavor(**{**FLAVOR, "extra_specs": {"hw:cpu_policy": "dedicated"}}), {}))
DEVICE = Kind("with a PCI device", pci=(PciRequest(1, ({"vendor_id": "8086", "product_id": "10fb"},), "nic"),))
WHY = Kind("explained", explain=True)


def ours(
    database_: Database, uuids: t.Sequence[str], chosen: list[Selection] | None = None, kind: Kind = PLAIN
) -> float:
    spec = kind.spec(uuids)
    dedicated = DedicatedRequest.from_spec(spec)
    resources = ResourceRequest(memory_mb=1024, disk_gb=1, vcpus=1)
    started = time.perf_counter()
    with database_.ledger.write() as tx:
        hosts = fleet.read(tx, database_.hosts, needs=kind.needs)
        selections = select_destinations(hosts, spec, replace(options(), explain=kind.explain))
        requests = [
            claims.ClaimRequest(s.instance_uuid, resources, candidates, dedicated)
            for s, candidates in zip(selections, claims.candidates_of(selections))
        ]
        outcome = claims.claim(tx.for_run(context()), requests)
    seconds = time.perf_counter() - started
    if any(isinstance(o, errors.BootflowError) for o in outcome.values()) or len(outcome) != len(uuids):
        raise SystemExit("a claim was refused on an idle fleet")
    if chosen is not None:
        chosen[:] = selections
    return seconds


def boot(database_: Database) -> float:
    mine = context()
    started = time.perf_counter()
    with database_.ledger.write() as tx:
        result = schedule.schedule(
            tx.for_run(mine), lambda c, needs: fleet.read(c, database_.hosts, needs=needs), options()
        )
    seconds = time.perf_counter() - started
    if len(result.placed) != len(database_.uuids):
        raise SystemExit("not everything was placed: %d of %d" % (len(result.placed), len(database_.uuids)))
    return seconds


def bare(database_: Database, selections: t.Sequence[Selection]) -> float:
    """Read the numbers of the hosts, and take the same from the same rows with one statement."""
    counts: dict[str, int] = {}
    for selection in selections:
        counts[selection.host] = counts.get(selection.host, 0) + 1
    read = "SELECT %s FROM compute_nodes" % ", ".join(READ)
    tx = database_.bare
    started = time.perf_counter()
    if database_.kind == "postgresql":
        with tx.transaction():
            rows = tx.execute(read).fetchall()
            done = tx.execute(
                "UPDATE compute_nodes AS n SET memory_mb_used = memory_mb_used + 1024 * u.c, local_gb_used = local_gb_used + u.c,"
                " vcpus_used = vcpus_used + u.c, num_instances = num_instances + u.c FROM unnest(%s::text[], %s::int[]) AS u(h, c)"
                " WHERE n.host = u.h AND memory_mb_used + 1024 * u.c <= memory_mb * ram_allocation_ratio",
                (list(counts), list(counts.values())),
            ).rowcount
    else:
        tx.execute("BEGIN IMMEDIATE")
        rows = tx.execute(read).fetchall()
        done = tx.execute(
            "UPDATE compute_nodes SET memory_mb_used = memory_mb_used + 1024 * u.value, local_gb_used = local_gb_used + u.value,"
            " vcpus_used = vcpus_used + u.value, num_instances = num_instances + u.value FROM json_each(?) AS u"
            " WHERE host = u.key AND memory_mb_used + 1024 * u.value <= memory_mb * ram_allocation_ratio",
            (json.dumps(counts),),
        ).rowcount
        tx.execute("COMMIT")
    seconds = time.perf_counter() - started
    if len(rows) != len(database_.hosts) or done != len(counts):
        raise SystemExit("the bare work did not do the same: %d rows, %d of %d" % (len(rows), done, len(counts)))
    return seconds


def side_by_side(database_: Database, uuids: t.Sequence[str], rounds: int, kind: Kind = PLAIN) -> tuple[float, float]:
    """Seconds of ours and of the bare work: the fastest of ``rounds`` of each, in turn."""
    chosen: list[Selection] = []
    mine, limit = [], []
    for _round in range(rounds):
        gc.collect()
        mine.append(ours(database_, uuids, chosen, kind))
        database_.reset()
        limit.append(bare(database_, chosen))
        database_.reset()
        database_.tidy()
    return min(mine), min(limit)


# --- boots a second ------------------------------------------------------------------------------------------------------


def one_boot(ledger: database.Ledger, hosts: t.Mapping[str, str], name: str, mine: Context) -> bool:
    """One instance by the path of a playbook run on the controller, up to the stages. Whether it was placed.

    :arg hosts: with their zones.
    """
    requests = parse_requests(
        [{"name": name, "flavor": FLAVOR["name"], "image": "image"}],
        parse_catalogue(
            [{k: v for k, v in FLAVOR.items() if k not in ("ephemeral_gb", "swap")}],
            [
                {
                    "name": "image",
                    "disk_format": "qcow2",
                    "url": "https://example.org/image",
                    "checksum": "sha256:" + "0" * 64,
                }
            ],
            [],
            [],
        ),
        RequestOptions(default_project=mine.run.id),
    )
    ledger, names = ledger.for_run(mine), list(hosts)

    def write(tx: Transaction) -> tuple[accept.Accepted, list[str], bool]:
        accepted = accept.accept(tx, requests, accept.AcceptOptions())
        before = before_boot.look(tx, 300.0)
        return accepted, before.ask(names), before.left_work

    accepted, _stale, due = ledger.transact(write, collisions=3)
    if due:
        ledger.transact(leases.expire)
    of_zones = {zone: {**SETTINGS, "availability_zone": zone} for zone in set(hosts.values())}
    configurations = {h: of_zones[zone] for h, zone in hosts.items()}

    def place(tx: Transaction) -> schedule.Scheduled:
        result = schedule.schedule(
            tx, lambda tx, needs: fleet.read(tx, hosts, needs=needs, configurations=configurations), options()
        )
        if result.with_attachments:
            attachments.instances_to_bind(tx)
        return result

    return set(ledger.transact(place).placed) == set(accepted.created)


def racer(url: str, hosts: dict[str, str], number: int, barrier: t.Any, results: t.Any) -> None:
    """Boots single instances, each with a run of its own, until the time is out."""
    ledger = database.open_ledger(url)
    done = 0

    def boot_next() -> bool:
        run = "run-%d-%d" % (number, done)
        return one_boot(
            ledger, hosts, run, Context(run=this_run.RunIdentity(run, "bench", "", "", 1, 1, "bench"), request_id=run)
        )

    boot_next()
    barrier.wait()
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        done += 1
        if not boot_next():
            raise SystemExit("not placed on an idle fleet")
    results.put(done)
    ledger.close()


def boots_a_second(database_: Database) -> float:
    method = multiprocessing.get_context("spawn")
    with database_.ledger.read() as tx:
        hosts = nodes.zones(tx)
    barrier, results = method.Barrier(PROCESSES + 1), method.Queue()
    workers = [method.Process(target=racer, args=(database_.url, hosts, i, barrier, results)) for i in range(PROCESSES)]
    for worker in workers:
        worker.start()
    barrier.wait(120)
    total = sum(results.get(timeout=60) for _worker in workers)
    for worker in workers:
        worker.join()
    with database_.ledger.read() as tx:
        wrong = tx.execute(
            sa.text(
                "SELECT count(*) FROM compute_nodes n WHERE memory_mb_used <> 512 + coalesce("
                "(SELECT sum(memory_mb) FROM claims WHERE compute_node_id = n.id), 0)"
                " OR memory_mb_used > memory_mb * ram_allocation_ratio"
            )
        ).scalar()
    if wrong:
        raise SystemExit("%d nodes do not add up" % wrong)
    return total / SECONDS


def pgbench(server: PostgresServer, database_: Database, name: str) -> float:
    """Transactions a second of one conditional UPDATE and one INSERT each."""
    with database_.connect() as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS bare_claims (id serial PRIMARY KEY, node int, memory_mb int)")
        low, high = conn.execute("SELECT min(id), max(id) FROM compute_nodes").fetchone()
    script = Path(server.folder) / "bare.sql"
    script.write_text(
        "\\set n random(%d, %d)\nBEGIN;\n"
        "UPDATE compute_nodes SET memory_mb_used = memory_mb_used + 1, local_gb_used = local_gb_used + 0, vcpus_used = vcpus_used + 0"
        " WHERE id = :n AND memory_mb_used + 1 <= memory_mb * ram_allocation_ratio;\n"
        "INSERT INTO bare_claims (node, memory_mb) VALUES (:n, 1);\nCOMMIT;\n" % (low, high)
    )
    program = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))[-1]
    command = [str(program), "-n", "-h", server.folder, "-U", "postgres", "-c", str(PROCESSES), "-j", "2"]
    command += ["-T", str(int(SECONDS)), "-f", str(script), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    if found is None:
        raise SystemExit("pgbench said nothing of tps: %s" % done.stdout)
    with database_.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().values(memory_mb_used=512))
    return float(found.group(1))


# --- the table -----------------------------------------------------------------------------------------------------------


class Table:
    def __init__(self) -> None:
        self.rows: list[dict[str, t.Any]] = []

    def add(self, name: str, n: int, mine: float, limit: float, unit: str, bound: float | None) -> None:
        """The ratio may be at most ``bound``, that of a rate has to be at least that. Without a bound it is shown, not judged."""
        ratio = mine / limit if limit else math.nan
        is_rate = unit.endswith("/s")
        within = None if bound is None else (ratio >= bound if is_rate else ratio <= bound)
        self.rows.append(
            {
                "name": name,
                "n": n,
                "ours": round(mine, 6),
                "limit": round(limit, 6),
                "unit": unit,
                "ratio": round(ratio, 3),
                "bound": bound,
                "within": within,
            }
        )
        word = "" if within is None else ("ok" if within else "MISSED")
        sign = "" if bound is None else "%s %.4g" % (">=" if is_rate else "<=", bound)
        factor = 1000.0 if unit == "s" else 1.0
        shown = "ms" if unit == "s" else unit
        print(
            "%-66s %8d %11.1f %11.1f %-9s %7.2f %8s %s"
            % (name, n, mine * factor, limit * factor, shown, ratio, sign, word),
            flush=True,
        )


def heading() -> None:
    print("%-66s %8s %11s %11s %-9s %7s %8s" % ("work", "n", "ours", "limit", "unit", "ratio", "bound"), flush=True)


def postgresql(server: PostgresServer) -> tuple[Database, str]:
    name = server.create()
    return (
        Database(
            "postgresql",
            server.url(name),
            lambda: psycopg.connect(host=server.folder, user="postgres", dbname=name, autocommit=True),
        ),
        name,
    )


def sqlite(folder: str, name: str) -> Database:
    path = os.path.join(folder, name + ".db")

    def connect() -> t.Any:
        tx = sqlite3.connect(path, isolation_level=None, timeout=60)
        tx.execute("PRAGMA synchronous=FULL")
        return tx

    return Database("sqlite", path, connect)


def measure(table: Table, server: PostgresServer, folder: str, rounds: int, large: int) -> None:
    heading()
    for kind in ("postgresql", "sqlite"):
        base = postgresql(server)[0] if kind == "postgresql" else sqlite(folder, "main")
        base.fill(10_000, 1000)
        mine, limit = side_by_side(base, base.uuids, rounds)
        table.add("%s: 1,000 instances over 10,000 hosts" % kind, 1000, mine, limit, "s", 2.5)
        one, bare_one = side_by_side(base, base.uuids[:1], rounds * 2)
        table.add("%s: one instance over 10,000 hosts, all read fresh" % kind, 1, one, bare_one, "s", 1.5)
        whole = []
        for _round in range(rounds):
            whole.append(boot(base))
            base.reset()
            base.tidy()
        table.add("%s: the whole scheduling step of a boot of 1,000" % kind, 1000, min(whole), limit, "s", 4.0)
        if kind == "postgresql":
            with_parts(table, base, rounds)
        base.close()
    base, name = postgresql(server)
    base.fill(1000, 1)
    bare_rate = pgbench(server, base, name)
    rate = boots_a_second(base)
    name = "postgresql: boots of one by %d processes, 1,000 hosts" % PROCESSES
    table.add(name + ", beside pgbench", PROCESSES, rate, bare_rate, "boots/s", 0.05)
    table.add(name + ", beside the first ones", PROCESSES, rate, FIRST_RATE, "boots/s", 10.0)
    base.close()
    for kind in ("postgresql", "sqlite"):
        base = postgresql(server)[0] if kind == "postgresql" else sqlite(folder, "requests")
        base.fill(10_000, 1)
        sizes_of_requests(table, base, rounds)
        base.close()
    growth(table, folder, rounds, large)


def with_parts(table: Table, base: Database, rounds: int) -> None:
    """What NUMA, PCI and explanations cost beside a plain request; told, not judged."""
    plain = side_by_side(base, base.uuids, rounds)[0]
    one = side_by_side(base, base.uuids[:1], rounds)[0]
    base.equip()
    for kind in (PINNED, DEVICE):
        cost = side_by_side(base, base.uuids, rounds, kind)[0]
        table.add("1,000 instances %s, beside plain ones" % kind.name, 1000, cost, plain, "s", None)
    cost = side_by_side(base, base.uuids[:1], rounds, WHY)[0]
    table.add("one instance %s for all 10,000 hosts, beside one without" % WHY.name, 1, cost, one, "s", None)


def accepted_and_scheduled(base: Database, name: str, count: int) -> tuple[float, float]:
    """Seconds of accepting ``count`` instances in a network of a /8, and of scheduling them."""
    mine = Context(run=this_run.RunIdentity(name, "bench", "", "", 1, 1, "bench"), request_id=name)
    image = {
        "name": "image",
        "disk_format": "qcow2",
        "url": "https://example.org/image",
        "checksum": "sha256:" + "0" * 64,
    }
    flavor = {k: v for k, v in FLAVOR.items() if k not in ("ephemeral_gb", "swap")}
    catalogue = parse_catalogue([flavor], [image], [{"name": "large", "subnets": [{"cidr": "10.0.0.0/8"}]}], [])
    entry = {"name": name, "flavor": FLAVOR["name"], "image": "image", "count": count, "networks": ["large"]}
    requests = parse_requests([entry], catalogue, RequestOptions(default_project=PROJECT, max_count=count))
    networks = {n.id: n for n in catalogue.networks.values()}
    ledger = base.ledger.for_run(mine)
    gc.collect()
    started = time.perf_counter()
    ledger.transact(accept.accept, requests, accept.AcceptOptions(networks=networks), collisions=3)
    between = time.perf_counter()
    done = ledger.transact(schedule.schedule, lambda tx, needs: fleet.read(tx, base.hosts, needs=needs), options())
    ended = time.perf_counter()
    if len(done.placed) != count:
        raise SystemExit("not everything was placed: %d of %d" % (len(done.placed), count))
    base.tidy()
    return between - started, ended - between


def sizes_of_requests(table: Table, base: Database, rounds: int) -> None:
    """A large request costs what as many small ones cost, and what is there already costs nothing."""
    few = [accepted_and_scheduled(base, "few%d" % number, 1000) for number in range(rounds)]
    many = accepted_and_scheduled(base, "many", LARGE)
    later = [accepted_and_scheduled(base, "later%d" % number, 1000) for number in range(rounds)]
    for step, index in (("accept", 0), ("schedule", 1)):
        first = min(f[index] for f in few)
        name = "%s: %s of one request of 30,000, compared with 30 of 1,000" % (base.kind, step)
        table.add(name, LARGE, many[index], first * LARGE / 1000, "s", 1.3)
        name = "%s: %s of 1,000 in a /8 with 30,000 more there, beside before" % (base.kind, step)
        table.add(name, 1000, min(f[index] for f in later), first, "s", 1.3)


def growth(table: Table, folder: str, rounds: int, large: int) -> None:
    """From 1,000 hosts to many, on sqlite: linear in hosts, and many instances hardly dearer than one.

    Ten times the hosts may take ten times as long, or as much more as the bare work takes (memory is slower when there is
    more of it). A thousand instances may take three times as long as one, or twice as much more as the bare work takes.
    """
    times: dict[int, float] = {}
    limits: dict[int, float] = {}
    hosts = 1000
    while hosts <= large:
        base = sqlite(folder, "hosts-%d" % hosts)
        base.fill(hosts, 1000)
        times[hosts], limits[hosts] = side_by_side(base, base.uuids[:1], rounds)
        if hosts == large:
            many, bare_many = side_by_side(base, base.uuids, rounds)
        base.close()
        if hosts > 1000:
            factor = times[hosts] / times[hosts // 10]
            bare_factor = max(limits[hosts] / limits[hosts // 10], 10.0)
            table.add("growth of one: %d hosts to %d" % (hosts // 10, hosts), hosts, factor, bare_factor, "x", 1.25)
        hosts *= 10
    table.add(
        "%d hosts: 1,000 instances beside one" % large,
        1000,
        many,
        times[large],
        "s",
        max(3.0, 2 * bare_many / limits[large]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the fastest counts")
    parser.add_argument("--hosts", type=int, default=100_000, help="the largest fleet of the growth rows")
    arguments = parser.parse_args()
    table = Table()
    server = PostgresServer()
    server.settings.update(fsync="on", full_page_writes="on", synchronous_commit="on")
    with tempfile.TemporaryDirectory(prefix="bf-bench-", dir="/var/tmp") as folder:
        server.start()
        try:
            measure(table, server, folder, arguments.rounds, arguments.hosts)
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
