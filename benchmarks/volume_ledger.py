# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What volumes cost the control plane, beside the same in another way, in one run; no storage host is asked.

The ledger has --volumes volumes in use with an attachment each, as many deleted ones, and 200 storage backends.

batch      volumes accepted, scheduled, begun, finished and deleted all together, beside one after the other
nothing    what each boot asks for although nobody has work for storage hosts (scheduling, hosts with work, what dead runs left,
           one host's begin), beside the same in a ledger without volumes
boot       200 instances with two volumes each accepted, beside 20 of them; 500 volumes accepted and scheduled, beside one by one
list       all volumes as plain data, beside a tenth of them
report     a storage host's report, beside the report of one without volumes

Rounds of both alternate; the fastest of each counts. Statements are told, too: many rows written at once are one.
Written with --json: {name, n, ours, limit, unit, ratio, bound, within, statements}.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import sqlite3
import sys
import tempfile
import time
import typing as t
import uuid
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from postgres import PostgresServer  # noqa: E402

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import (  # noqa: E402
    BlockDevice,
    Flavor,
    Image,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import create_request  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.catalogue import VolumeTypes  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import VolumeType  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.options import (  # noqa: E402
    VolumeSchedulerOptions,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.planned import BootVolumeOptions  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import volume_leases  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import accept as volume_accept  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import delete  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import schedule as volume_scheduling  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes.requests import VolumeSettings  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import runs  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction  # noqa: E402
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import (  # noqa: E402
    attachments,
    backends,
    volume_views,
)

GIB = 1024**3
HOSTS = 200
BATCH = 500
SINGLE = 25  # of them one after the other; their time is told as if they were as many
INSTANCES = 200
IMAGE = Image(
    name="cirros",
    id="0e7a7fc4-6d5b-5a5e-9d3a-0a4c6e2f7b11",
    disk_format="qcow2",
    checksum="0" * 64,
    url="https://example.org/cirros.qcow2",
)
SETTINGS = VolumeSettings(
    types=VolumeTypes([VolumeType("fast"), VolumeType("ssd", {"medium": "ssd"})]),
    image=lambda name: IMAGE,
    quotas={"volumes": -1, "gigabytes": -1, "snapshots": -1},
)
FLAVOR = Flavor(name="small", memory_mb=1024, vcpus=1, root_gb=1)


def context(run: str) -> Context:
    return Context(run=this_run.RunIdentity("run-" + run, "bench", "", "", 1, 1, "bench"), request_id="req-" + run)


def host_name(number: int) -> str:
    return "storage-%03d" % number


def pool_host(number: int) -> str:
    return backends.pool_host_of(host_name(number), "lvm", "lvm")


def configuration(number: int) -> dict[str, t.Any]:
    return {
        "name": "lvm",
        "volume_backend_name": "lvm",
        "availability_zone": "nova",
        "provisioning": "thin",
        "volume_group": "cinder-volumes",
        "medium": ("hdd", "ssd")[number % 2],
        "portals": ["192.0.2.1:3260"],
    }


def capacity() -> dict[str, t.Any]:
    return {
        "total_capacity_gb": 100_000.0,
        "free_capacity_gb": 80_000.0,
        "provisioned_capacity_gb": 1000.0,
        "thin_provisioning_support": True,
        "boot_id": "boot",
        "read_at": time.monotonic(),
    }


def options() -> VolumeSchedulerOptions:
    return VolumeSchedulerOptions(now=time.time(), service_down_time=86400.0)


OF_ENGINES: dict[t.Any, Database] = {}


def sent_by_driver(tx: Transaction, text: str, values: t.Any, binary: bool) -> t.Any:
    """What goes to PostgreSQL's driver without SQLAlchemy is counted as well."""
    if tx.connection.engine in OF_ENGINES:
        OF_ENGINES[tx.connection.engine].statements += 1
    return _sent(tx, text, values, binary)


_sent = Transaction._sent
Transaction._sent = sent_by_driver  # type: ignore[assignment,method-assign]


class Database:
    """A ledger of the bench, with a count of its statements."""

    def __init__(self, kind: str, url: str, connect: t.Callable[[], t.Any] | None = None):
        self.kind = kind
        self.connect = connect
        self.ledger = database.open_ledger(url, create=True, check_revision=False)
        self.ledger.migrate()
        self.statements = 0
        self.ids: list[str] = []
        self.number = 0
        sa.event.listen(self.ledger.engine, "before_cursor_execute", self._count)
        OF_ENGINES[self.ledger.engine] = self

    def _count(self, *_arguments: t.Any) -> None:
        self.statements += 1

    def fill(self, volumes: int) -> None:
        rng = random.Random(5)
        now = time.time()
        for number in range(HOSTS):
            self.report(number)
        self.ids = [new_id(rng) for _number in range(volumes)]
        with self.ledger.write() as tx:
            known = volume_accept.known_of(tx, [], SETTINGS)
            request = create_request.volume_request({"name": "old", "size": 10}, known, SETTINGS.options)
            spec = {**request.as_dict(), "image": None, "source_bootable": False, "source_image_metadata": {}}
            numbered = list(enumerate(self.ids))
            for first in range(0, volumes, 5000):
                self._enter(tx, numbered[first : first + 5000], spec, now, rng)
            runs.renew(tx.for_run(context("idle")))
        self.tidy()

    def _enter(self, tx: Transaction, chunk: t.Sequence[tuple[int, str]], spec: t.Any, now: float, rng: t.Any) -> None:
        rows = [
            {
                "id": volume_id,
                "project": "default",
                "user_name": "bench",
                "name": "old-%d" % number,
                "description": "",
                "size": 10,
                "status": "in-use",
                "attach_status": "attached",
                "bootable": False,
                "multiattach": False,
                "availability_zone": "nova",
                "pool_host": pool_host(number % HOSTS),
                "pending_gb": 0,
                "made": True,
                "spec": spec,
                "digest": {"size": 10},
                "meta": {},
                "image_metadata": {},
                "run_id": None,
                "created_at": now,
                "updated_at": now,
                "launched_at": now,
                "deleted": "",
            }
            for number, volume_id in chunk
        ]
        tx.execute(volume_tables.volumes.insert(), rows)
        cables = [
            {
                "id": new_id(rng),
                "volume_id": volume_id,
                "instance_uuid": new_id(rng),
                "attach_status": "attached",
                "attach_mode": "rw",
                "mountpoint": "/dev/vdb",
                "delete_on_termination": False,
                "attached_host": "compute-%d" % (number % 100),
                "connector": "kernel",
                "initiator": "iqn.1993-08.org.debian:%d" % (number % 100),
                "storage_host": host_name(number % HOSTS),
                "export": "done",
                "connection": "done",
                "rescan": False,
                "created_at": now,
                "attached_at": now,
                "deleted": "",
            }
            for number, volume_id in chunk
        ]
        tx.execute(volume_tables.volume_attachments.insert(), cables)
        gone = []
        for row in rows:
            volume_id = new_id(rng)
            over = {"status": "deleted", "attach_status": "detached", "made": False, "run_id": "run-old"}
            gone.append({**row, **over, "id": volume_id, "deleted": volume_id, "name": "gone"})
        tx.execute(volume_tables.volumes.insert(), gone)
        events = [
            {
                "volume_id": volume_id,
                "event": event,
                "host": "x",
                "request_id": "r",
                "user_name": "bench",
                "start_time": now,
                "finish_time": now,
                "result": "Success",
            }
            for _number, volume_id in chunk
            for event in ("schedule", "create")
        ]
        tx.execute(volume_tables.volume_events.insert(), events)

    def tidy(self) -> None:
        """What the database does in its own time, done now."""
        if self.connect is not None:
            with self.connect() as conn:
                conn.execute("VACUUM ANALYZE")
        else:
            with contextlib.closing(sqlite3.connect(self.ledger.address.url.removeprefix("sqlite:///"))) as conn:
                conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def new_run(self) -> Context:
        self.number += 1
        return context(str(self.number))

    def report(self, number: int, volumes: t.Sequence[dict[str, t.Any]] = ()) -> None:
        found = {**capacity(), "volumes": list(volumes)}
        report = backends.BackendReport("lvm", "lvm", configuration(number), found)
        with self.ledger.write() as tx:
            backends.record_report(tx.for_run(context("report")), host_name(number), [report])

    # --- what is measured ----------------------------------------------------------------------------------------------

    def life(self, names: t.Sequence[str]) -> None:
        """These volumes from being asked for until they are gone; every transaction as the actions begin them."""
        mine = self.new_run()
        entries = [{"name": n, "size": 5, **({"image_id": "cirros"} if i % 2 else {})} for i, n in enumerate(names)]
        with self.ledger.write() as tx:
            volume_accept.accept(tx.for_run(mine), entries, SETTINGS)
        with self.ledger.write() as tx:
            scheduled = volume_scheduling.schedule(tx.for_run(mine), options())
        if len(scheduled.placed) != len(names):
            raise SystemExit("not everything was placed: %d of %d" % (len(scheduled.placed), len(names)))
        self.work(scheduled.hosts, mine)
        with self.ledger.write() as tx:
            deleting = delete.begin(tx.for_run(mine), names=list(names), project="default")
        self.work(deleting.hosts, mine)
        with self.ledger.write() as tx:
            deleted, left = delete.finish(tx.for_run(mine))
        if len(deleted) != len(names) or left:
            raise SystemExit("not everything was deleted: %d of %d" % (len(deleted), len(names)))

    def work(self, hosts: t.Sequence[str], mine: Context) -> None:
        for host in hosts:
            with self.ledger.write() as tx:
                works = volume_work.begin(tx.for_run(mine), host)
            results = {}
            for work in works:
                outcomes = {v["id"]: {"changed": True, "error": None, "size": _size(v)} for v in work.volumes}
                results[work.backend] = volume_work.WorkResult(outcomes, capacity())
            with self.ledger.write() as tx:
                volume_work.finish(tx.for_run(mine), host, results)

    def nothing(self) -> None:
        """What a boot without volumes asks the ledger for."""
        mine = context("idle")
        with self.ledger.write() as tx:
            volume_scheduling.schedule(tx.for_run(mine), options())
        with self.ledger.read() as tx:
            volume_work.hosts_with_work(tx.for_run(mine))
            attachments.hosts_to_unexport(tx.for_run(mine))
            volume_leases.find_leftovers(tx.for_run(mine))
        with self.ledger.write() as tx:
            volume_work.begin(tx.for_run(mine), host_name(0))

    def accept(self, count: int) -> Context:
        """Instances with two volumes each, in one request for each."""
        mine = self.new_run()
        disks = (
            BlockDevice(source_type="image", destination_type="volume", uuid=IMAGE.id, boot_index=0, volume_size=5),
            BlockDevice(source_type="blank", destination_type="volume", volume_size=3),
        )
        requests = [
            ServerRequest(
                name="vm-%d-%d" % (self.number, i),
                flavor=FLAVOR,
                image=None,
                root_image=IMAGE,
                networks=(),
                block_device_mapping=disks,
            )
            for i in range(count)
        ]
        settings = accept.AcceptOptions(networks={}, quotas={}, volumes=BootVolumeOptions(SETTINGS))
        with self.ledger.write() as tx:
            accept.accept(tx.for_run(mine), requests, settings)
        return mine

    def schedule(self, count: int) -> None:
        mine = self.new_run()
        entries = [{"name": "s-%d-%d" % (self.number, i), "size": 1} for i in range(count)]
        with self.ledger.write() as tx:
            volume_accept.accept(tx.for_run(mine), entries, SETTINGS)
        with self.ledger.write() as tx:
            volume_scheduling.schedule(tx.for_run(mine), options())

    def shown(self, count: int) -> None:
        with self.ledger.read() as tx:
            found = volume_views.volumes(tx, ids=self.ids[:count])
        if len(found) != count:
            raise SystemExit("%d volumes were listed" % len(found))


def new_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _size(element: t.Mapping[str, t.Any]) -> int:
    return 0 if element["state"] == volume_work.ABSENT else int(element["size_gb"]) * GIB


# --- the table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    seconds: float
    statements: int


def cost(database_: Database, work: t.Callable[[], t.Any]) -> Cost:
    gc.collect()
    before = database_.statements
    started = time.perf_counter()
    work()
    return Cost(time.perf_counter() - started, database_.statements - before)


def side_by_side(
    rounds: int,
    mine: tuple[Database, t.Callable[[], t.Any]],
    limit: tuple[Database, t.Callable[[], t.Any]],
) -> tuple[Cost, Cost]:
    """The fastest of ``rounds`` of each, in turn, after one that does not count."""
    found: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(rounds + 1):
        for costs, (where, work) in zip(found, (mine, limit)):
            one = cost(where, work)
            if number:
                costs.append(one)
    first, second = (min(costs, key=lambda c: c.seconds) for costs in found)
    return first, second


class Table:
    def __init__(self) -> None:
        self.rows: list[dict[str, t.Any]] = []
        print(
            "%-62s %6s %10s %10s %7s %8s %22s" % ("work", "n", "ours ms", "limit ms", "ratio", "bound", "statements"),
            flush=True,
        )

    def add(self, name: str, n: int, costs: tuple[Cost, Cost], bound: float | None, times: float = 1.0) -> None:
        """:arg times: what the limit is of that amount. Without a bound it is told, not judged."""
        ours, limit = costs
        beside = limit.seconds * times
        ratio = ours.seconds / beside
        within = None if bound is None else ratio <= bound
        statements: list[t.Any] = [ours.statements, round(limit.statements * times)]
        self.rows.append(
            {
                "name": name,
                "n": n,
                "ours": round(ours.seconds, 6),
                "limit": round(beside, 6),
                "unit": "s",
                "ratio": round(ratio, 4),
                "bound": bound,
                "within": within,
                "statements": statements,
            }
        )
        word = "" if within is None else ("ok" if within else "MISSED")
        print(
            "%-62s %6d %10.1f %10.1f %7.3f %8s %10d %10d %s"
            % (
                name,
                n,
                ours.seconds * 1000,
                beside * 1000,
                ratio,
                "" if bound is None else "<= %.4g" % bound,
                *statements,
                word,
            ),
            flush=True,
        )


def measure(table: Table, kind: str, full: Database, empty: Database, volumes: int, rounds: int) -> None:
    def one_by_one() -> None:
        for number in range(SINGLE):
            full.life(["one-%d" % number])

    names = ["many-%d" % number for number in range(BATCH)]
    costs = side_by_side(rounds, (full, lambda: full.life(names)), (full, one_by_one))
    table.add("%s: volumes made and deleted, beside one by one" % kind, BATCH, costs, 0.7, BATCH / SINGLE)
    full.tidy()
    costs = side_by_side(rounds * 4, (full, full.nothing), (empty, empty.nothing))
    table.add("%s: nothing to do, beside a ledger without volumes" % kind, volumes, costs, 3.0)
    costs = side_by_side(rounds, (full, lambda: full.accept(INSTANCES)), (full, lambda: full.accept(INSTANCES // 10)))
    table.add("%s: boots with two volumes accepted, beside a tenth" % kind, INSTANCES, costs, 1.25, 10)
    costs = side_by_side(rounds, (full, lambda: full.schedule(BATCH)), (full, lambda: full.schedule(1)))
    table.add("%s: volumes accepted and scheduled, beside one by one" % kind, BATCH, costs, 0.25, BATCH)
    costs = side_by_side(rounds, (full, lambda: full.shown(volumes)), (full, lambda: full.shown(volumes // 10)))
    table.add("%s: volumes listed, beside a tenth" % kind, volumes, costs, 1.5, 10)
    there = [{"id": i, "size": 10 * GIB} for i in full.ids[7::HOSTS]]
    costs = side_by_side(rounds * 4, (full, lambda: full.report(7, there)), (empty, lambda: empty.report(7)))
    table.add("%s: report of a storage host, beside one without volumes" % kind, len(there), costs, 3.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the fastest counts")
    parser.add_argument("--volumes", type=int, default=20_000, help="volumes that the ledger has already")
    arguments = parser.parse_args()
    table = Table()
    server = PostgresServer()
    server.settings.update(fsync="on", full_page_writes="on", synchronous_commit="on")

    def postgresql() -> Database:
        name = server.create()
        connection: dict[str, t.Any] = {"host": server.folder, "user": "postgres", "dbname": name, "autocommit": True}
        return Database("postgresql", server.url(name), lambda: psycopg.connect(**connection))

    with tempfile.TemporaryDirectory(prefix="bf-bench-", dir="/var/tmp") as folder:

        def sqlite(name: str) -> Database:
            return Database("sqlite", "%s/%s.db" % (folder, name))

        server.start()
        try:
            for kind in ("postgresql", "sqlite"):
                full = postgresql() if kind == "postgresql" else sqlite("full")
                empty = postgresql() if kind == "postgresql" else sqlite("empty")
                full.fill(arguments.volumes)
                empty.fill(0)
                measure(table, kind, full, empty, arguments.volumes, arguments.rounds)
                full.ledger.close()
                empty.ledger.close()
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
