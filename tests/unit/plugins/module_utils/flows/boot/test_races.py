# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real processes at the same ledger: what there is is given once."""

from __future__ import annotations

import collections
import multiprocessing
import random
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import DEFAULT_FILTERS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import failure
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import (
    A_GPU,
    CARD,
    asked,
    cells,
    claim,
    node,
    pinned,
    pins,
    waiting,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import STAGES, World, network, request

pytestmark = pytest.mark.slow
PROCESSES = 8
Work = t.Callable[[World, int], t.List[str]]


def race(world: World, work: Work, processes: int = PROCESSES) -> list[list[str]]:
    """What ``work`` returned in each process; it starts in all of them at the same moment, each with a run of its own."""
    world.ledger.close()  # a connection must not be shared with a child
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(processes), fork.Queue()

    def child(number: int) -> None:
        mine = World(world.url, list(world.networks.values()))
        mine.rng = random.Random(number)
        try:
            barrier.wait(60)
            answers.put((number, work(mine, number)))
        except BaseException as e:
            answers.put((number, ["crashed: %s: %s" % (type(e).__name__, e)]))
        finally:
            mine.ledger.close()

    workers = [fork.Process(target=child, args=(n,)) for n in range(processes)]
    for worker in workers:
        worker.start()
    found = dict(answers.get(timeout=120) for _each in workers)
    for worker in workers:
        worker.join(60)
    crashed = [a for answer in found.values() for a in answer if a.startswith("crashed")]
    assert not crashed
    return [found[n] for n in range(processes)]


def told(world: World, *requests: t.Any, **how: t.Any) -> str:
    """created, unchanged, or the codes of the refusals."""
    try:
        accepted = world.accept(*requests, **how)
    except errors.InvalidRequest as e:
        return ",".join(r["code"] for r in e.errors)
    return "created" if accepted.created else "unchanged"


def test_the_last_places(world: World) -> None:
    """32 wishes for 4 hosts of 5 places, one of which reserves something: 20 win, 12 are told that there is no host."""
    for number in range(4):
        world.report("h%d" % number, memory=5 + number % 2, reserved_memory_mb=1024 * (number % 2))

    def work(mine: World, number: int) -> list[str]:
        run = "r%d" % number
        for turn in range(4):
            uuid = mine.boot("p%d-%d" % (number, turn), "accepted", run=run, networks=())
            while mine.state(uuid)[:2] == (states.BUILDING, states.SCHEDULING):
                mine.schedule(run)
        return ["done"]

    race(world, work)
    rows = world.rows(tables.instances)
    placed = {r.uuid: r.host for r in rows if r.host is not None}
    assert collections.Counter(placed.values()) == {"h%d" % n: 5 for n in range(4)}
    assert world.claims() == set(placed.items())
    assert [world.used("h%d" % n)[0] for n in range(4)] == [(5 + n % 2) * 1024 for n in range(4)]
    losers = [r.uuid for r in rows if r.host is None]
    assert len(losers) == 12
    assert {world.fault(u).error_code for u in losers} <= {"NoValidHost", "MaxRetriesExceeded"}
    assert {world.state(u)[0] for u in losers} == {states.ERROR}


def test_claims_and_releases(world: World) -> None:
    """Builds come and go on hosts that others use: usage is the sum of the claims whenever anybody looks."""
    for number in range(3):
        world.report("h%d" % number, memory=4)

    def work(mine: World, number: int) -> list[str]:
        run = "r%d" % number
        for turn in range(4):
            uuid = mine.boot("p%d-%d" % (number, turn), "accepted", run=run)
            mine.schedule(run)
            host = mine.state(uuid)[2]
            if host is not None:
                mine.begin(STAGES[0], host, run)
                if turn % 2:
                    mine.fail(host, uuid, errors.RemoteError(reason="x"), run, event="networking")
                mine.delete(run=run, uuids=[uuid])
                if mine.state(uuid)[2] is not None:
                    mine.removed(host, [uuid], run)
            else:
                mine.delete(run=run, uuids=[uuid])
            assert mine.finish(run)[1] == []
            with mine.ledger.read() as tx:
                mine.check(tx)
        return ["done"]

    race(world, work)
    assert [world.used("h%d" % n) for n in range(3)] == [(0, 0, 0, 0)] * 3
    assert (world.count(tables.ports), world.claims()) == (0, set())


def test_addresses(world: World) -> None:
    """40 instances in two networks of 25 addresses, asked for in both orders: none twice, none lost, no deadlock."""
    world.know(network(1, addresses=25), network(2, addresses=25))

    def work(mine: World, number: int) -> list[str]:
        order = ("net-1", "net-2") if number % 2 else ("net-2", "net-1")
        return [told(mine, request("p%d-%d" % (number, i), networks=order), run="r%d" % number) for i in range(5)]

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    assert answers == {"created": 25, "NoMoreFixedIps": 15}
    assert len(set(world.addresses())) == len(world.addresses()) == 50


def test_addresses_with_gaps(world: World) -> None:
    """8 runs boot and delete in a subnet full of gaps: no address twice, and all that is free is found."""
    world.know(network(1, addresses=60))
    world.rng = random.Random("none of theirs")
    world.accept(request("old", 50))
    world.delete(names=["old-%d" % n for n in range(1, 51, 2)])
    world.finish()

    def work(mine: World, number: int) -> list[str]:
        answers = []
        for turn in range(6):
            name = "p%d-%d" % (number, turn)
            wish = NetworkRequest(network="net-1", fixed_ip="10.0.1.%d" % (60 + number))
            answers.append(told(mine, request(name, networks=(wish if turn == 3 else "net-1",)), run="r%d" % number))
            if turn % 2:
                mine.delete(run="r%d" % number, names=[name])
                assert mine.finish("r%d" % number)[1] == []
        return answers

    answers = [answer for some in race(world, work) for answer in some]
    assert len(set(world.addresses())) == len(world.addresses()) == 25 + 8 * 3
    assert set(answers) <= {"created", "FixedIpAlreadyInUse"}
    left = 60 - len([a for a in world.addresses() if int(a.rpartition(".")[2]) < 70])
    assert told(world, request("rest", left)) == "created"
    assert told(world, request("one-more")) == "NoMoreFixedIps"


def test_one_wished_address(world: World) -> None:
    def work(mine: World, number: int) -> list[str]:
        wish = NetworkRequest(network="net-1", fixed_ip="10.0.1.99")
        return [told(mine, request("p%d" % number, project="p%d" % number, networks=(wish,)), run="r%d" % number)]

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    assert answers == {"created": 1, "FixedIpAlreadyInUse": PROCESSES - 1}


def test_one_port(world: World) -> None:
    """Two ports, asked for in both orders: one boot has both, and the others know that they are in use."""
    for name in ("one", "two"):
        world.make_port(name)

    def work(mine: World, number: int) -> list[str]:
        order = ("one", "two") if number % 2 else ("two", "one")
        wishes = tuple(NetworkRequest(port=port) for port in order)
        return [told(mine, request("p%d" % number, networks=wishes), run="r%d" % number)]

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    assert answers["created"] == 1 and set(answers) <= {"created", "PortInUse", "PortInUse,PortInUse"}
    assert len({row.instance_uuid for row in world.rows(tables.ports)}) == 1


def test_the_last_addresses_for_ports_and_boots(world: World) -> None:
    """Ports are made and deleted, and guests boot: none gets an address that another has."""
    world.know(network(1, addresses=20))

    def work(mine: World, number: int) -> list[str]:
        answers = []
        for turn in range(4):
            name = "p%d-%d" % (number, turn)
            if number % 2:
                answers.append(told(mine, request(name), run="r%d" % number))
                continue
            try:
                mine.make_port(name, mac_address="52:54:00:00:00:0%d" % turn if turn % 2 else None)
                answers.append("created")
            except errors.InvalidRequest as e:
                answers.append(e.errors[0]["code"])
        return answers

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    assert set(answers) <= {"created", "NoMoreFixedIps", "MacAddressInUse"} and answers["created"] == 20
    assert answers["MacAddressInUse"] <= 6 and len(set(world.addresses())) == 20


def test_one_name(world: World) -> None:
    def work(mine: World, number: int) -> list[str]:
        return [told(mine, request("web", 3), run="r%d" % number)]

    answers = [a for answer in race(world, work) for a in answer]
    assert sorted(answers) == ["InstanceBusy,InstanceBusy,InstanceBusy"] * (PROCESSES - 1) + ["created"]
    assert world.count(tables.instances) == 3


def test_one_quota(world: World) -> None:
    def work(mine: World, number: int) -> list[str]:
        return [
            told(mine, request("p%d-%d" % (number, i)), run="r%d" % number, quotas={"instances": 5}) for i in range(2)
        ]

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    assert answers == {"created": 5, "OverQuota": 2 * PROCESSES - 5}


def test_a_delete_against_a_schedule(world: World) -> None:
    """Whoever is first: nothing of a deleted instance stays, on the host's books either."""
    world.report("h1", memory=400)
    uuids = {
        n: [world.boot("p%d-%d" % (n, i), "accepted", run="r%d" % n) for i in range(6)] for n in range(0, PROCESSES, 2)
    }

    def work(mine: World, number: int) -> list[str]:
        if number % 2 == 0:
            for _turn in range(3):
                mine.schedule("r%d" % number)
            return ["scheduled"]
        for uuid in uuids[number - 1]:
            hosts = mine.delete(run="d%d" % number, uuids=[uuid]).hosts
            for host in hosts:
                mine.removed(host, [uuid], "d%d" % number)
            gone, left = mine.finish("d%d" % number)
            assert len(gone) == 1 and left == [], (gone, left)
        return ["deleted"]

    race(world, work)
    assert (world.claims(), world.addresses(), world.used("h1")) == (set(), [], (0, 0, 0, 0))


def test_failures_against_deletes_of_the_same_instances(world: World) -> None:
    """Locks are taken in one order: no deadlock, whoever wins."""
    world.report("h1", memory=400)
    uuids = world.accept(request("web", 12), run="b").created
    world.schedule("b")
    world.build("h1", "spawning", run="b")

    def work(mine: World, number: int) -> list[str]:
        if number == 0:
            half = {u: failure.Failed(errors.ImageError(reason="x")) for u in reversed(uuids)}
            with mine.ledger.write() as tx:
                failure.fail_builds(tx.for_run(mine.context("b")), "h1", "spawning", half)
            return ["failed"]
        chosen = uuids[:]
        random.Random(number).shuffle(chosen)
        try:
            mine.delete(run="d%d" % number, uuids=chosen)
        except errors.InstanceBusy:
            return ["locked"]
        mine.removed("h1", chosen, "d%d" % number)
        return ["deleted %d" % len(mine.finish("d%d" % number)[0])]

    answers = [a for answer in race(world, work) for a in answer]
    assert answers.count("deleted 12") == 1
    assert (world.claims(), world.addresses(), world.used("h1")) == (set(), [], (0, 0, 0, 0))


def test_first_reports_and_one_run_in_many_tasks(world: World) -> None:
    def work(mine: World, number: int) -> list[str]:
        mine.report("h1", memory=4)
        with mine.ledger.write() as tx:
            runs.renew(tx.for_run(mine.context("same")))
            nodes.record_unreachable(tx, "h%d" % number, "x")
        return ["done"]

    race(world, work)
    assert (world.count(tables.compute_nodes), world.count(tables.runs)) == (1, 1)


def test_the_last_cpus_and_devices(world: World) -> None:
    """8 processes, 4 pinned pairs of CPUs, 2 devices: none is given twice, and those who come late are told so."""
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD)
    limits = {"numa_topology": {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}}
    uuids = waiting(world, 2 * PROCESSES)

    def work(mine: World, number: int) -> list[str]:
        cpus = asked(uuids[2 * number], limits=limits, numa=pinned(2))
        device = asked(uuids[2 * number + 1], pci=(A_GPU,))
        requests = [cpus, device] if number % 2 else [device, cpus]
        return [claim(mine, one)[one.instance_uuid] for one in requests]

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    assert answers.pop("h1") == 4 + 2 and sum(answers.values()) == 2 * PROCESSES - 6
    holders = [r.instance_uuid for r in world.rows(tables.claims) if r.numa is not None]
    assert sorted(cpu for uuid in holders for cpu in pins(world, uuid)) == list(range(8))
    assert len(world.rows(tables.device_claims)) == 2


@pytest.mark.parametrize("policy", ["anti-affinity", "affinity"])
def test_members_of_one_group_at_once(world: World, policy: str) -> None:
    """Without the filters: the late check alone, under the group's lock."""
    of = ServerGroup(id="g", name="g", policy=policy)
    for number in range(4):
        world.report("h%d" % number, memory=50)
    filters = [f for f in DEFAULT_FILTERS if not f.startswith("ServerGroup")]

    def work(mine: World, number: int) -> list[str]:
        run = "r%d" % number
        mine.accept(request("m%d" % number, networks=(), server_group=of), run=run)
        for _round in range(6):
            done = mine.schedule(run, enabled_filters=filters, host_subset_size=4, max_attempts=8)
            if not done.waiting:
                break
        return ["placed"] * len(done.placed) + ["failed"] * len(done.failed)

    answers = collections.Counter(a for answer in race(world, work) for a in answer)
    hosts = collections.Counter(h for _u, h in world.claims())
    if policy == "anti-affinity":
        assert hosts == dict.fromkeys(("h0", "h1", "h2", "h3"), 1) and answers["failed"] == PROCESSES - 4
    else:
        assert list(hosts.values()) == [PROCESSES]


def test_counting_while_others_claim(world: World) -> None:
    """Reports, new settings and recounts lose no claim and count none twice."""
    world.report("h1", memory=400)

    def work(mine: World, number: int) -> list[str]:
        for turn in range(6):
            if number % 4 == 0:
                mine.report("h1", memory=400)
                with mine.ledger.write() as tx:
                    nodes.configure(tx, {"h1": {"reserved_memory_mb": turn * 7, "disabled": False}})
            else:
                uuid = mine.boot("p%d-%d" % (number, turn), "scheduled", run="r%d" % number, networks=())
                if turn % 2:
                    hosts = mine.delete(run="r%d" % number, uuids=[uuid]).hosts
                    mine.removed(hosts[0], [uuid], "r%d" % number)
                    mine.finish("r%d" % number)
            with mine.ledger.read() as tx:
                mine.check(tx)
        return ["done"]

    race(world, work)
    assert len(world.claims()) == (PROCESSES - PROCESSES // 4) * 3
