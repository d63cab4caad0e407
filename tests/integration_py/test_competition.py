# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many processes at one ledger, some of which are killed: nothing is given twice, nothing is lost, nobody waits in a ring."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
import threading
import typing as t

import psycopg
import pytest
import sqlalchemy as sa
from postgres import PostgresServer
from race_place import Place, everything_goes, nothing_lost, say

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

CARD = [
    {"address": "0000:81:00.0", "vendor_id": "8086", "product_id": "10c9", "dev_type": "type-PF"},
    *(
        {
            "address": "0000:81:10.%d" % n,
            "vendor_id": "8086",
            "product_id": "10ca",
            "dev_type": "type-VF",
            "parent_addr": "0000:81:00.0",
        }
        for n in range(4)
    ),
]
CELLS = {
    "cells": [
        {"id": n, "memory_mb": 4096, "cpus": list(range(4 * n, 4 * n + 4)), "siblings": [], "pages": []} for n in (0, 1)
    ]
}
DISKS = [{"path": "/dev/sd%s" % n, "size_gb": 100, "medium": "ssd"} for n in "bcd"]


@pytest.fixture(scope="module")
def postgres() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return t.cast(str, request.param)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> t.Iterator[Place]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ledger-race-", dir="/tmp"))
    name = ""
    server: PostgresServer | None = None
    try:
        if kind == "sqlite":
            url = "sqlite:///%s/ledger.db" % folder
        else:
            server = t.cast(PostgresServer, request.getfixturevalue("postgres"))
            name = server.create()
            url = server.url(name)
        yield Place(url, folder, server, name)
    finally:
        if server is not None and name:
            server.drop(name)
        shutil.rmtree(folder, ignore_errors=True)


# --- in rounds ---------------------------------------------------------------------------------------------------------


def test_32_processes_for_20_places(place: Place, kind: str) -> None:
    """Exactly the capacity is claimed in each round, and each of the others is told that there is no place."""
    rounds = 3 if kind == "sqlite" else 4
    place.report(4, 5 * 64)
    result = place.race("last_places", 32, rounds=rounds, beside=1)
    _last, told = place.told()
    assert (result["rounds"], told["claimed"], told["lost"]) == (rounds, 20 * rounds, 12 * rounds)
    # A writer has the whole sqlite file for itself, from the reading of the fleet to the claim: nobody is late there.
    assert told["refused"] > 0 or kind == "sqlite", "nobody met anybody: the test shows nothing"
    assert place.read(sa.select(tables.ports)) == []
    say("last places", kind, result, told)


def test_groups_under_competition(place: Place, kind: str) -> None:
    """12 processes boot members of one group at once: anti-affinity never shares a host, affinity never splits."""
    rounds = 12
    place.report(6, 16 * 64)
    result = place.race("groups", 12, rounds=rounds, beside=1)
    _last, told = place.told()
    assert result["rounds"] == rounds
    # Of each four rounds: 6, 12, 12 and 6 have a place.
    assert told["claimed"] == rounds // 4 * 36 and told["lost"] == rounds // 4 * 12
    assert told["refused"] > 0
    say("groups", kind, result, told)


def test_the_last_cpus_devices_and_disks(place: Place, kind: str) -> None:
    rounds = 8
    place.report(2, 64 * 64, numa_topology=CELLS, pci_passthrough_devices=CARD, isolated_disks=DISKS)
    result = place.race("parts", 12, rounds=rounds, beside=1, look_every=0.05)
    _last, told = place.told()
    assert result["rounds"] == rounds
    assert place.read(sa.select(tables.device_claims)) == []
    say("CPUs, devices and disks", kind, result, told)


# --- the long run ------------------------------------------------------------------------------------------------------

CLAIMS = int(os.environ.get("BOOTFLOW_RACE_CLAIMS", "5000"))


@pytest.mark.long
def test_a_long_run_with_kills(place: Place, kind: str) -> None:
    """No oversubscription at any moment, no address twice, no claim lost: while racers are killed and servers restart."""
    place.report(6, 44 * 64)
    restarts: list[str] = []
    over = threading.Event()

    def restart() -> None:
        for pause, mode in ((12, "fast"), (12, "immediate"), (15, "fast")):
            if place.server is None or over.wait(pause):
                return
            place.server.restart(mode)
            restarts.append(mode)

    thread = threading.Thread(target=restart)
    try:
        result = place.race(
            "crowd", 6, meanwhile=thread.start, most=400, claims=CLAIMS, least=45, kill_every=1.5, batch=80,
            keeps=40, again=9, lease=15, forced=0.03, networks=(0, 0, 1, 0, 2),
        )  # fmt: skip
    finally:
        over.set()
        if thread.ident is not None:
            thread.join(60)
    place.laws()
    last, told = place.told()
    nothing_lost(place, last)
    assert told["claimed"] >= CLAIMS, "%d claims in %d s" % (told["claimed"], result["seconds"])
    assert result["kills"] >= 20 and result["observations"] >= 50 and result["reports"] >= 6
    assert kind == "sqlite" or len(restarts) == 3
    everything_goes(place)
    say("long run", kind, result, told, restarts=len(restarts))


# --- no rings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_no_deadlock(place: Place, kind: str) -> None:
    """Instances, hosts, groups and subnets in any order by 16 processes: PostgreSQL never has to break a ring."""
    place.report(8, 16 * 64)
    before = place.deadlocks()
    result = place.race(
        "crowd",
        16,
        most=20,
        keeps=12,
        again=3,
        batch=12,
        forced=0.1,
        look_every=1.0,
        report_every=0.0,
        kill_every=2.0,
        lease=30,
        networks=(1, 2, 3),
    )
    assert place.deadlocks() == before
    assert place.server is not None
    assert "deadlock detected" not in pathlib.Path(place.server.folder, "log").read_text(errors="replace")
    place.laws()
    _last, told = place.told()
    assert told["claimed"] > 200
    say("deadlocks", kind, result, told, deadlocks=0)


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_deadlock_would_be_seen(kind: str, tmp_path: pathlib.Path) -> None:
    """The control: two transactions lock two nodes in opposite order, and the counter of the other test shows it."""
    server = PostgresServer()  # one of its own: the other test looks into its server's log
    try:
        server.start()
        name = server.create()
        place = Place(server.url(name), tmp_path, server, name)
        place.report(2, 64)
        before = place.deadlocks()
        meet = threading.Barrier(2)
        broken: list[BaseException] = []

        def lock(order: t.Sequence[str]) -> None:
            with psycopg.connect(server.url(name)) as conn:
                try:
                    for host in order:
                        conn.execute("SELECT id FROM compute_nodes WHERE host = %s FOR UPDATE", [host])
                        if host == order[0]:
                            meet.wait(10)
                except psycopg.errors.DeadlockDetected as e:
                    broken.append(e)
                    conn.rollback()

        threads = [threading.Thread(target=lock, args=(order,)) for order in (("h0", "h1"), ("h1", "h0"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(broken) == 1
        assert place.deadlocks() == before + 1
        assert "deadlock detected" in pathlib.Path(server.folder, "log").read_text(errors="replace")
        print("\nthe control: deadlocks 1")
    finally:
        server.stop()
