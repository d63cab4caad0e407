# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where racers meet: a ledger and a folder for what they leave, the race itself, and what is looked at after it."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import sqlalchemy as sa
from postgres import PostgresServer
from race_laws import violations
from racers import Racer, read_journals, report

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables


class Place:
    """A ledger for one test, and a folder for what the racers leave."""

    def __init__(self, url: str, folder: pathlib.Path, server: PostgresServer | None, name: str):
        self.url = url
        self.folder = folder
        self.server = server
        self.name = name
        self.hosts: dict[str, t.Any] = {}
        with self.open(check_revision=False, create=True) as ledger:
            ledger.migrate()

    def open(self, **how: t.Any) -> t.Any:
        return contextlib.closing(database.open_ledger(self.url, **how))

    def report(self, count: int, memory_mb: int, **facts: t.Any) -> None:
        self.hosts = {"h%d" % n: {"memory_mb": memory_mb, "facts": facts} for n in range(count)}
        with self.open() as ledger:
            for host, what in self.hosts.items():
                report(ledger, host, **what)

    def race(
        self, work: str, processes: int, meanwhile: t.Callable[[], None] | None = None, most: float = 300, **plan: t.Any
    ) -> dict[str, t.Any]:
        """Run the track to its end; what crashed there fails the test."""
        plan = {
            "url": self.url, "folder": str(self.folder), "work": work, "processes": processes, "hosts": self.hosts,
            "seed": 7, "most": most, "least": 0, "forced": 0.0, **plan,
        }  # fmt: skip
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan))
        here = pathlib.Path(__file__).resolve().parent
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *(p for p in sys.path if p)])}
        with open(self.folder / "out", "wb") as out:
            track = subprocess.Popen(
                [sys.executable, str(here / "race_track.py"), str(path)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True,
            )  # fmt: skip
            try:
                if meanwhile is not None:
                    meanwhile()
                code = track.wait(most + 150)
            finally:
                try:
                    os.killpg(track.pid, signal.SIGKILL)  # the racers are in its session
                except ProcessLookupError:
                    pass
                track.wait()
        crashes = self.folder / "crashes"
        assert not crashes.exists(), crashes.read_text()[:6000]
        assert code == 0, (self.folder / "out").read_text()[-4000:]
        result = json.loads((self.folder / "result.json").read_text())
        assert result["stuck"] == []
        return t.cast("dict[str, t.Any]", result)

    def told(self) -> tuple[dict[str, tuple[str, str]], collections.Counter[str]]:
        return read_journals(self.folder)

    def read(self, query: t.Any) -> list[t.Any]:
        with self.open() as ledger, ledger.read() as tx:
            return list(tx.execute(query))

    def laws(self) -> None:
        with self.open() as ledger:
            assert ledger.inspect(violations) == []

    def deadlocks(self) -> int:
        """How often this database ended a transaction because of a ring; asked until the server has counted all."""
        assert self.server is not None
        with self.server.connect() as conn:
            time.sleep(1.2)  # sessions hand in their counts once a second, or when they end
            row = conn.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [self.name]).fetchone()
        return int(row[0])


def say(what: str, kind: str, result: t.Mapping[str, t.Any], told: t.Mapping[str, int], **more: t.Any) -> None:
    figures = {
        "claims": told["claimed"],
        "claims/s": round(told["claimed"] / result["seconds"]),
        "refused": told["refused"],
        "lost": told["lost"],
        **{k: v for k, v in result.items() if v and k != "stuck"},
        "seconds": round(result["seconds"], 1),
        **more,
    }
    print("\n%s, %s: %s" % (what, kind, ", ".join("%s %s" % i for i in figures.items())))


def nothing_lost(place: Place, last: t.Mapping[str, tuple[str, str]]) -> None:
    """Who was told of a claim last has it; who was told that it is back has none."""
    c, n = tables.claims.c, tables.compute_nodes.c
    rows = place.read(sa.select(c.instance_uuid, n.host).join(tables.compute_nodes, n.id == c.compute_node_id))
    held = {(r.instance_uuid, r.host) for r in rows}
    claimed = {u for u, _h in held}
    lost = [u for u, (event, host) in last.items() if event == "claimed" and (u, host) not in held]
    kept = [u for u, (event, _host) in last.items() if event == "released" and u in claimed]
    assert (lost, kept) == ([], [])
    assert sum(event == "released" for event, _host in last.values()) > 100


def everything_goes(place: Place) -> None:
    """A last run deletes all that is left, of the dead ones too: nothing of them stays on the books."""
    racer = Racer(place.url, place.folder, "last", 0)
    try:
        racer.ledger.transact(_leases_end)
        for _turn in range(3):
            racer.bury()
        for host in place.hosts:
            racer.clean(host)
        racer.bury()
    finally:
        racer.close()
    place.laws()
    for table in (tables.claims, tables.device_claims, tables.ports, tables.ip_allocations, tables.cleanups):
        assert place.read(sa.select(table)) == [], table.name
    for node in place.read(sa.select(tables.compute_nodes)):
        assert (node.memory_mb_used, node.local_gb_used, node.vcpus_used) == (0, 0, node.reserved_vcpus)
    alive = tables.instances.c.deleted == ""
    assert place.read(sa.select(tables.instances.c.uuid).where(alive)) == []


def _leases_end(tx: Transaction) -> None:
    tx.execute(tables.runs.update().where(tables.runs.c.controller.like("far-%")).values(lease_until=0.0))
