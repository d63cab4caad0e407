# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The server that writes is lost, again and again: what was confirmed is there, once, and everybody goes on."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import typing as t
import urllib.request

import pytest
import sqlalchemy as sa
from patroni_cluster import PASSWORD, Cluster
from race_place import Place, everything_goes, nothing_lost, say
from racers import Racer

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import commits
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.address import LedgerAddress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

KILLS = 5
PROCESSES = 16


@pytest.fixture
def place(cluster: Cluster) -> t.Iterator[Place]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ledger-race-", dir="/tmp"))
    try:
        yield Place(cluster.url(), folder, None, "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- who counts --------------------------------------------------------------------------------------------------------


def make_probe(tx: Transaction) -> None:
    tx.execute(sa.text("DROP TABLE IF EXISTS probe"))
    tx.execute(sa.text("CREATE TABLE probe (who INTEGER, number INTEGER)"))


def add(tx: Transaction, who: int, number: int) -> int:
    """Not repeatable by itself: two of it are two rows."""
    tx.execute(sa.text("INSERT INTO probe VALUES (:w, :n)"), {"w": who, "n": number})
    return number


def rows(tx: Transaction) -> list[tuple[int, int]]:
    return sorted((r.who, r.number) for r in tx.execute(sa.text("SELECT who, number FROM probe")))


class Counters:
    """Threads that add one row after the other, each once they were told of the one before."""

    def __init__(self, url: str, threads: int = 4):
        self.ledger = database.open_ledger(LedgerAddress(url=url, retry_timeout=120), check_revision=False)
        self.ledger.transact(make_probe)
        self.told = [0] * threads
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._count, args=(who,)) for who in range(threads)]

    def _count(self, who: int) -> None:
        try:
            while not self._over.is_set():
                self.told[who] = self.ledger.transact(add, who, self.told[who] + 1)
                time.sleep(0.005)
        except BaseException as e:
            self.failed.append(e)

    def __enter__(self) -> Counters:
        for thread in self._threads:
            thread.start()
        return self

    def go_on(self, cluster: Cluster) -> None:
        """Until everybody was told of ten more rows."""
        before = list(self.told)

        def all_did() -> bool:
            return bool(self.failed) or all(now >= then + 10 for then, now in zip(before, self.told))

        cluster.wait_for("rows of everybody", all_did)

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(180)
        if error[0] is None:
            assert self.failed == []
            assert self.ledger.inspect(rows) == [(w, n) for w, most in enumerate(self.told) for n in range(1, most + 1)]
        self.ledger.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often a commit without an answer was asked for, and what was found."""
    found: collections.Counter[str] = collections.Counter()
    sign_again = commits.sign_again

    def spied(tx: Transaction, mark: tuple[str, int]) -> bool:
        missing = sign_again(tx, mark)
        found["repeated" if missing else "found done"] += 1
        return missing

    monkeypatch.setattr(commits, "sign_again", spied)
    return found


# --- the primary is lost -----------------------------------------------------------------------------------------------


def test_the_primary_is_killed_in_the_middle_of_racing_boots(
    cluster: Cluster, place: Place, asked: collections.Counter[str]
) -> None:
    place.report(6, 44 * 64)
    kills: list[int] = []

    def claims_more(count: int) -> None:
        crashes, wanted = place.folder / "crashes", len(claims(place)) + count

        def enough() -> bool:
            assert not crashes.exists(), crashes.read_text()[:6000]
            return len(claims(place)) >= wanted

        cluster.wait_for("%d more claims" % count, enough)

    def kill() -> None:
        with Counters(cluster.url()):
            for _each in range(KILLS):
                cluster.wait_until_whole()
                claims_more(100)
                primary = cluster.machines[t.cast(str, cluster.primary())]
                kills.append(time.monotonic_ns())
                primary.power_off()
                cluster.wait_for_another_primary(primary.name)
                claims_more(50)
                primary.start()
            cluster.wait_until_whole()
            claims_more(100)
        (place.folder / "stop").touch()

    result = place.race(
        "crowd", PROCESSES, meanwhile=kill, most=1500, keeps=12, again=3, batch=6, look_every=1.0, report_every=1.0,
        patience=180, networks=(0, 1, 2),
    )  # fmt: skip
    place.laws()
    last, told = place.told()
    nothing_lost(place, last)
    assert len(kills) == KILLS and result["observations"] >= KILLS and result["reports"] >= KILLS
    everything_goes(place)
    pauses = " ".join("%.1f" % pause for pause in pauses_after(kills, claims(place)))
    say("failover", "%d processes" % PROCESSES, result, told, failovers=len(kills), pauses=pauses + " s", **asked)


def claims(place: Place) -> list[int]:
    """When (monotonic, ns) somebody was told of a claim."""
    lines = (line for path in place.folder.glob("*.journal") for line in path.read_text().split("\n")[:-1])
    return sorted(json.loads(line)[0] for line in lines if '"claimed"' in line)


def pauses_after(kills: t.Sequence[int], told: t.Sequence[int]) -> list[float]:
    """Of each kill, the longest time (s) until the next in which nobody was told of a claim."""
    found = []
    for kill, until in zip(kills, [*kills[1:], told[-1]]):
        between = [kill, *(stamp for stamp in told if kill < stamp <= until)]
        found.append(max(b - a for a, b in zip(between, between[1:])) / 1e9)
    return found


def test_a_commit_that_the_standby_has_not_is_not_taken_for_done(
    cluster: Cluster, asked: collections.Counter[str]
) -> None:
    """Its session is ended while it waits for the standby: then the primary shows it as done, and is lost."""
    first, second = (cluster.machines[name] for name in (cluster.primary() or "", cluster.standby()))
    with second.connect() as conn:
        (receiver,) = conn.execute("SELECT pid FROM pg_stat_wal_receiver").fetchone()
    ledger = database.open_ledger(LedgerAddress(url=cluster.url(), retry_timeout=120), check_revision=False)
    ledger.transact(make_probe)
    told: list[int] = []
    work = threading.Thread(target=lambda: told.append(ledger.transact(add, 1, 1)))
    os.kill(receiver, signal.SIGSTOP)  # the standby follows no more, and nobody has noticed
    try:
        work.start()
        with first.connect("bootflow") as conn:
            (worker,) = waits_for_the_standby(cluster, conn, ())
            assert conn.execute("SELECT count(*) FROM probe").fetchone() == (0,)
            conn.execute("SELECT pg_terminate_backend(%s)", [worker])
            waits_for_the_standby(cluster, conn, (worker,))  # who asks is not told before the standby has it, either
            assert conn.execute("SELECT count(*) FROM probe").fetchone() == (1,)
        assert told == [] and asked == {"found done": 1}
        first.power_off()
    finally:
        os.kill(receiver, signal.SIGKILL)  # with what it has received and not written
    work.join(180)
    assert told == [1] and asked == {"found done": 1, "repeated": 1}
    assert ledger.inspect(rows) == [(1, 1)]
    ledger.close()


def waits_for_the_standby(cluster: Cluster, conn: t.Any, but: t.Sequence[int]) -> list[int]:
    """The ledger's sessions whose COMMIT waits for the standby."""
    found: list[int] = []

    def looked() -> bool:
        query = "SELECT pid FROM pg_stat_activity WHERE usename = 'bootflow' AND wait_event = 'SyncRep'"
        found[:] = [pid for (pid,) in conn.execute(query) if pid not in but]
        return bool(found)

    cluster.wait_for("a commit that waits for the standby", looked, 30)
    return found


def test_a_server_that_crashes_alone(cluster: Cluster) -> None:
    """Its Patroni is there, and hands over at once."""
    primary = cluster.machines[cluster.primary() or ""]
    with Counters(cluster.url()) as counters:
        counters.go_on(cluster)
        begun = time.monotonic()
        for pid in primary.server_processes():
            with contextlib.suppress(ProcessLookupError):  # some end by themselves meanwhile
                os.kill(pid, signal.SIGKILL)
        cluster.wait_for_another_primary(primary.name)
        counters.go_on(cluster)
        seconds = time.monotonic() - begun
    print("\na crash of PostgreSQL alone: everybody goes on after %.1f s" % seconds)


def test_a_switchover_behind_haproxy(cluster: Cluster, asked: collections.Counter[str]) -> None:
    first, second = cluster.primary() or "", cluster.standby()
    url = cluster.proxy()
    cluster.wait_for("HAProxy to find the primary", lambda: answers(url), 30)
    with Counters(url) as counters:
        counters.go_on(cluster)
        order = json.dumps({"leader": first, "candidate": second}).encode()
        where = "http://%s:8008/switchover" % cluster.addresses[first]
        with urllib.request.urlopen(urllib.request.Request(where, order, method="POST"), timeout=60) as answer:
            assert answer.status == 200
        cluster.wait_for("the other primary", lambda: cluster.primary() == second)
        counters.go_on(cluster)
    print("\nswitchover behind HAProxy: rows %d, %s" % (sum(counters.told), dict(asked)))


def answers(url: str) -> bool:
    try:
        with sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).connect():
            return True
    except sa.exc.OperationalError:
        return False


# --- reading -----------------------------------------------------------------------------------------------------------


def test_a_list_while_there_is_no_primary(cluster: Cluster, place: Place) -> None:
    place.report(1, 4 * 64)
    racer = Racer(place.url, place.folder, "reader", 0)
    racer.accept("kept", networks=("net-1",))
    racer.schedule()
    racer.close()
    primary = cluster.machines[cluster.primary() or ""]
    read_url = cluster.url("prefer-standby", (cluster.standby(), primary.name))
    primary.power_off()
    found = list_instances(place, {"bootflow_ledger_url": place.url, "bootflow_ledger_read_url": read_url})
    assert "kept" in found and "which may be behind" in found and "The ledger itself is read" not in found
    cluster.wait_for_another_primary(primary.name)
    found = list_instances(place, {"bootflow_ledger_url": place.url, "bootflow_ledger_read_url": read_url})
    assert "kept" in found and "which may be behind" not in found  # of the new primary: there is no standby
    read_url = read_url.replace("prefer-standby", "standby")
    found = list_instances(place, {"bootflow_ledger_url": place.url, "bootflow_ledger_read_url": read_url})
    assert "kept" in found and "The ledger itself is read" in found
    assert place.read(sa.select(tables.instances.c.display_name).where(tables.instances.c.deleted == "")) == [("kept",)]


def list_instances(place: Place, variables: t.Mapping[str, str]) -> str:
    """What the playbook list prints, as one line."""
    path = place.folder / "variables.json"
    path.write_text(json.dumps(variables))
    command = ["ansible-playbook", "-i", "localhost,", "bootflow.compute.list", "-e", "@%s" % path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())
