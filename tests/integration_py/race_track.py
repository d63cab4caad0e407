# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The track: a program that starts racers as processes, kills some, starts new ones, and watches the ledger all the while.

``python race_track.py plan.json``; it prints nothing, and leaves crashes, journals and result.json in the plan's folder.
It opens no ledger before the racers are forked, so that they share no connection.
"""

from __future__ import annotations

import collections
import json
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import threading
import time
import traceback
import typing as t

import sqlalchemy as sa
from race_laws import violations
from racers import NETWORKS, Racer, group, report

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import WholeDiskRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import (
    GuestCell,
    GuestNUMATopology,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import DEFAULT_FILTERS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

Plan = t.Mapping[str, t.Any]
WITHOUT_GROUPS = [f for f in DEFAULT_FILTERS if not f.startswith("ServerGroup")]


class Stop:
    """Says that the race is over, by a file: a lock in shared memory would stay taken when its holder is killed."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def set(self) -> None:
        self.path.touch()

    def is_set(self) -> bool:
        return self.path.exists()


class Track:
    """What all processes of a race share. Racers that may be killed take no lock here."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.url: str = plan["url"]
        self.folder = pathlib.Path(plan["folder"])
        fork = multiprocessing.get_context("fork")
        self.fork = fork
        self.stop = Stop(self.folder / "stop")
        self.barrier = fork.Barrier(plan["processes"])
        self.rounds = fork.Value("q", 0)
        self.observations = fork.Value("q", 0)
        self.reports = fork.Value("q", 0)

    def claims(self) -> int:
        """How many claims all racers together were told of."""
        return sum(p.read_bytes().count(b'"claimed"') for p in self.folder.glob("*.journal"))

    def meet(self) -> None:
        self.barrier.wait(self.plan.get("patience", 120))

    def crash(self) -> None:
        """Remember the exception that is being handled, and end the race."""
        if isinstance(sys.exc_info()[1], threading.BrokenBarrierError) and self.stop.is_set():
            return  # the others hear of it so
        with open(self.folder / "crashes", "a", encoding="utf-8") as f:
            f.write("%d: %s\n" % (os.getpid(), traceback.format_exc()))
        self.stop.set()
        self.barrier.abort()


# --- races in rounds: all start at once, one looks, all clean up -------------------------------------------------------


def rounds(
    track: Track, racer: Racer, number: int, boot: t.Callable[[int], None], check: t.Callable[[int], None]
) -> None:
    """boot(round) in all processes at once, check(round) in one of them when all are through, and everything goes again."""
    for turn in range(track.plan["rounds"]):
        track.meet()
        if track.stop.is_set():
            return
        boot(turn)
        track.meet()
        if number == 0:
            found = racer.ledger.inspect(violations)
            if found:
                raise AssertionError("; ".join(found))
            try:
                check(turn)
            except AssertionError as e:
                raise AssertionError("round %d: %s\n%s" % (turn, e, racer.ledger.inspect(faults))) from None
            with track.rounds.get_lock():
                track.rounds.value += 1
        track.meet()
        racer.remove(racer.ledger.inspect(own, racer))
        track.meet()
        if number == 0:
            left = racer.ledger.inspect(lambda tx: tx.execute(sa.select(tables.claims)).all())
            if left:
                raise AssertionError("left after the round: %s" % left)


def own(tx: Transaction, racer: Racer) -> list[str]:
    c = tables.instances.c
    return list(tx.execute(sa.select(c.uuid).where(c.deleted == "", c.run_id == racer.context.run.id)).scalars())


def faults(tx: Transaction) -> str:
    """Why who has no place has none, for the text of a failure."""
    c, f = tables.instances.c, tables.instance_faults.c
    query = sa.select(c.display_name, c.host, c.task_state, c.retry, f.message, f.host, f.details)
    query = query.join(tables.instance_faults, f.instance_uuid == c.uuid, isouter=True).where(c.deleted == "")
    return "\n".join(map(str, tx.execute(query.order_by(c.display_name, f.id)).all()))


def placed(racer: Racer) -> collections.Counter[str]:
    """host -> instances there."""

    def read(tx: Transaction) -> list[str]:
        c = tables.instances.c
        return list(tx.execute(sa.select(c.host).where(c.deleted == "", c.host.is_not(None))).scalars())

    return collections.Counter(racer.ledger.inspect(read))


def sure(uuids: list[str]) -> None:
    if not uuids:
        raise AssertionError("the request was refused")


def expect(found: t.Any, wanted: t.Any) -> None:
    if found != wanted:
        raise AssertionError("%s instead of %s" % (found, wanted))


def last_places(track: Track, racer: Racer, number: int) -> None:
    """4 hosts of 5 places, one wish in each process."""

    def boot(turn: int) -> None:
        sure(racer.accept("p%d-%d" % (number, turn), networks=("net-1",), project="p%d" % (number % 4)))
        racer.schedule(host_subset_size=1 + turn % 3)

    rounds(track, racer, number, boot, lambda turn: expect(placed(racer), dict.fromkeys(track.plan["hosts"], 5)))


def groups(track: Track, racer: Racer, number: int) -> None:
    """One group for all processes, another in each round: the filters see to it in every other round, the late check in all."""
    hosts = track.plan["hosts"]
    kinds = [
        ("anti-affinity", 1, dict.fromkeys(hosts, 1)),
        ("anti-affinity", 2, dict.fromkeys(hosts, 2)),
        ("affinity", 1, None),
        ("anti-affinity", 1, dict.fromkeys(hosts, 1)),
    ]

    def boot(turn: int) -> None:
        policy, most, _wanted = kinds[turn % 4]
        mine = group("g-%d" % turn, policy, most)
        sure(
            racer.accept(
                "p%d-%d" % (number, turn),
                networks=("net-1",),
                project="shared",
                server_group=mine,
                check_server_group_quota=False,
            )
        )
        track.meet()
        # Any host of the many that would do is drawn, so that affinity without its filter meets refusals.
        filters = WITHOUT_GROUPS if turn % 2 else None
        racer.schedule(enabled_filters=filters, host_subset_size=1 + turn % 5, max_attempts=12)

    def check(turn: int) -> None:
        _policy, _most, wanted = kinds[turn % 4]
        found = placed(racer)
        if wanted is None:
            if len(found) != 1 or next(iter(found.values())) != track.plan["processes"]:
                raise AssertionError("an affinity group is on %s" % found)
        else:
            expect(found, wanted)

    rounds(track, racer, number, boot, check)


def parts(track: Track, racer: Racer, number: int) -> None:
    """The last pinned CPUs (two hosts of 8), the last functions of a card, the last disks."""
    numa = GuestNUMATopology((GuestCell(id=0, cpus=frozenset({0, 1}), memory_mb=64, cpu_policy="dedicated"),))
    function = PciRequest(1, ({"vendor_id": "8086", "product_id": "10ca", "dev_type": "type-VF"},), "vf")
    card = PciRequest(1, ({"vendor_id": "8086", "product_id": "10c9", "dev_type": "type-PF"},), "pf")
    two = Flavor(name="two", memory_mb=64, vcpus=2, root_gb=1)
    kinds: list[tuple[dict[str, t.Any], int]] = [
        ({"numa_topology": numa, "flavor": two}, 8),  # 2 hosts x 2 cells x 4 CPUs, 2 for each
        ({"pci_requests": (function,)}, 8),  # 2 hosts x 4 functions
        ({"pci_requests": (card if number % 2 else function,)}, 0),  # a card goes as a whole, or function by function
        ({"whole_disks": (WholeDiskRequest(min_gb=100),)}, 6),  # 2 hosts x 3 disks
        ({"numa_topology": numa, "flavor": two, "pci_requests": (function,)}, 8),
    ]

    def boot(turn: int) -> None:
        fields, _wanted = kinds[turn % len(kinds)]
        sure(racer.accept("p%d-%d" % (number, turn), project="p%d" % (number % 4), **fields))
        track.meet()
        racer.schedule(host_subset_size=1 + turn % 2, max_attempts=6)

    def check(turn: int) -> None:
        _fields, wanted = kinds[turn % len(kinds)]
        found = sum(placed(racer).values())
        if wanted and found != wanted or not 2 <= found <= 8:
            raise AssertionError("%d were placed in round %d" % (found, turn))

    rounds(track, racer, number, boot, check)


# --- the long race: everything at once, racers are killed --------------------------------------------------------------


def crowd(track: Track, racer: Racer, number: int) -> None:
    """Batches come, go, fail and are left behind, until the race is over."""
    rng = racer.rng
    racer.bury()
    turn = 0
    while not track.stop.is_set():
        turn += 1
        batch(track, racer, number, turn)
        for _time in range(rng.randrange(track.plan["again"])):
            racer.again(rng.sample(sorted(racer.mine), len(racer.mine)), host_subset_size=rng.randint(1, 3))
        hosts = sorted(set(racer.mine.values()))
        what = rng.random()
        if hosts and what < 0.25:
            host = rng.choice(hosts)
            begun = racer.networking(host)
            if what < 0.12:
                racer.fail(host, rng.sample(begun, len(begun)), cleaned=what < 0.08)
                racer.schedule()
        elif hosts and what < 0.3:
            racer.up(rng.choice(hosts))
        elif what < 0.36:
            racer.bury()
        kept = rng.randrange(track.plan["keeps"]) if rng.random() < 0.9 else 0
        going = rng.sample(sorted(racer.mine), max(0, len(racer.mine) - kept))
        racer.remove(going, force=rng.random() < track.plan["forced"])
        if turn % 4 == 0:
            racer.remove([u for u in racer.ledger.inspect(own, racer) if u not in racer.mine])


def batch(track: Track, racer: Racer, number: int, turn: int) -> None:
    rng = racer.rng
    most = track.plan["batch"]
    count = rng.choice((1, rng.randint(2, most), rng.randint(most // 2, most)))
    project = "shared" if rng.random() < 0.3 else "p%d" % (number % 3)
    fields: dict[str, t.Any] = {}
    if rng.random() < 0.25:
        policy, most = rng.choice(
            (("anti-affinity", 1), ("anti-affinity", 3), ("affinity", 1), ("soft-anti-affinity", 1))
        )
        name = "%s-%d-%d" % (policy, most, rng.randrange(3))
        fields["server_group"] = group(name, policy, most, project)
        count = min(count, 3)
    networks = rng.sample(sorted(NETWORKS), rng.choice(track.plan["networks"]))
    racer.accept("%s-%d" % (racer.name, turn), count, networks, project=project, **fields)
    filters = WITHOUT_GROUPS if rng.random() < 0.1 else None
    racer.schedule(
        enabled_filters=filters,
        host_subset_size=rng.randint(1, 3),
        multipliers={"RAMWeigher": rng.choice((-1.0, -1.0, 1.0))},
    )


# --- beside the racers -------------------------------------------------------------------------------------------------


def observe(track: Track) -> None:
    """Look at the laws again and again, each time in one snapshot."""
    ledger = database.open_ledger(track.url)
    while not track.stop.is_set():
        found = ledger.inspect(violations)
        if found:
            raise AssertionError("; ".join(found[:20]))
        with track.observations.get_lock():
            track.observations.value += 1
        time.sleep(track.plan.get("look_every", 0.2))
    ledger.close()


def reports(track: Track) -> None:
    """Hosts report, are configured anew, are cleaned and counted again, all the while."""
    ledger = database.open_ledger(track.url)
    rng = random.Random(track.plan["seed"])
    hosts: t.Mapping[str, t.Any] = track.plan["hosts"]
    racer = Racer(track.url, track.folder, "reporter", track.plan["seed"])
    while not track.stop.is_set():
        for host in rng.sample(sorted(hosts), len(hosts)):
            racer.clean(host)
            report(ledger, host, **hosts[host])
            with track.reports.get_lock():
                track.reports.value += 1
        ledger.transact(nodes.configure, {h: {"reserved_vcpus": rng.randrange(5)} for h in hosts})
        ledger.transact(_recount, rng.sample(sorted(hosts), 2))
        time.sleep(track.plan.get("report_every", 0.3))
    racer.close()
    ledger.close()


def _recount(tx: Transaction, hosts: t.Sequence[str]) -> None:
    c = tables.compute_nodes.c
    ids = list(tx.execute(sa.select(c.id).where(c.host.in_(hosts))).scalars())
    nodes.lock(tx, ids)
    nodes.recount(tx, ids)


# --- the race ----------------------------------------------------------------------------------------------------------

WORKS: dict[str, t.Callable[[Track, Racer, int], None]] = {
    "last_places": last_places,
    "groups": groups,
    "parts": parts,
    "crowd": crowd,
}


def run(track: Track, number: int, generation: int) -> None:
    """A racer's process."""
    try:
        plan = track.plan
        # Of some only the lease tells that they are dead.
        lease = plan["lease"] if plan.get("lease") and number % 4 == 3 else None
        racer = Racer(track.url, track.folder, "r%d-%d" % (number, generation), plan["seed"], lease)
        WORKS[plan["work"]](track, racer, number)
        racer.close()
    except BaseException:
        track.crash()


def aside(track: Track, work: t.Callable[[Track], None]) -> None:
    try:
        work(track)
    except BaseException:
        track.crash()


def main(plan: Plan) -> None:
    track = Track(plan)
    rng = random.Random(plan["seed"])
    beside = [track.fork.Process(target=aside, args=(track, w)) for w in (observe, reports)[: plan.get("beside", 2)]]
    racers = {n: track.fork.Process(target=run, args=(track, n, 0)) for n in range(plan["processes"])}
    started = time.monotonic()
    for process in [*beside, *racers.values()]:
        process.start()
    kills = 0
    generations = dict.fromkeys(racers, 0)
    next_count = started
    next_kill = started + plan.get("first_kill", 1.0)
    while not track.stop.is_set() and any(r.is_alive() for r in racers.values()):
        now = time.monotonic()
        if now >= next_count:
            next_count = now + 2.0
            if plan.get("claims") and now - started >= plan["least"] and track.claims() >= plan["claims"]:
                break
        if now - started >= plan["most"]:
            break
        if plan.get("kill_every") and now >= next_kill:
            next_kill = now + rng.uniform(0.3, 1.7) * plan["kill_every"]
            number = rng.choice(sorted(racers))
            victim = racers[number]
            os.kill(t.cast(int, victim.pid), signal.SIGKILL)
            victim.join()
            kills += 1
            generations[number] += 1
            racers[number] = track.fork.Process(target=run, args=(track, number, generations[number]))
            racers[number].start()
        time.sleep(0.02)
    if plan["work"] == "crowd":
        track.stop.set()
    for process in racers.values():
        process.join(plan.get("patience", 120))
    seconds = time.monotonic() - started
    track.stop.set()
    for process in beside:
        process.join(60)
    result = {
        "seconds": seconds,
        "kills": kills,
        "rounds": track.rounds.value,
        "observations": track.observations.value,
        "reports": track.reports.value,
        "stuck": [p.pid for p in [*racers.values(), *beside] if p.is_alive()],
    }
    for process in [*racers.values(), *beside]:
        if process.is_alive():
            process.kill()
    (track.folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(json.loads(pathlib.Path(sys.argv[1]).read_text()))
