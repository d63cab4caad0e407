# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What if: what it says fits is what boots, the hosts it has a place for are those that can be lost, and it writes nothing."""

from __future__ import annotations

import collections
import random
import typing as t
from dataclasses import asdict

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.base import Filter
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import (
    DEFAULT_FILTERS,
    make_filters,
    user_classes,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, schedule, whatif
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, nodes, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import (
    A_DISK,
    A_GPU,
    CARD,
    DISKS,
    cells,
    node,
    pinned,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, World, request

LARGE = Flavor(name="large", memory_mb=3072, vcpus=2, root_gb=3, swap=512)
WITH_HINTS = [*DEFAULT_FILTERS, "SameHostFilter", "DifferentHostFilter"]


def ask(world: World, *requests: t.Any, limit: int | None = None, named: bool = True, **options: t.Any) -> t.Any:
    """All in a transaction that can not write, with nothing changed at the end."""
    before = world.everything()
    found = world.ledger.inspect(
        whatif.ask, requests, world.fleet, world.options(explain=True, **options), limit, named
    )
    assert world.everything() == before
    return found


def ask_one(world: World, asked: t.Any, **how: t.Any) -> whatif.Answer:
    (answer,) = ask(world, asked, **how)
    return answer


def lose(world: World, *hosts: str, **options: t.Any) -> dict[str, dict[str, t.Any]]:
    before = world.everything()
    found = world.ledger.inspect(whatif.lose, world.fleet, world.options(**options), hosts or None)
    assert world.everything() == before
    return {f["host"]: f for f in found}


def group(policy: str = "anti-affinity", most: int = 1) -> ServerGroup:
    return ServerGroup(id="id-of-g", name="g", policy=policy, max_server_per_host=most, project="default")


def counts(places: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, int]:
    return {p["host"]: p["count"] for p in places}


def booted(world: World, asked: t.Any, most: int = 100) -> dict[str, int]:
    """host -> how many really boot there, one after the other, until one finds no host."""
    found: collections.Counter[str] = collections.Counter()
    for number in range(most):
        one = request("more-%d" % number, flavor=asked.flavor, networks=(), **_wishes(asked))
        (uuid,) = world.accept(one).created
        placed = world.schedule(explain=False).placed
        if uuid not in placed:
            return dict(found)
        found[placed[uuid].host] += 1
    raise AssertionError("no end")


def _wishes(asked: t.Any) -> dict[str, t.Any]:
    names = ("server_group", "numa_topology", "pci_requests", "whole_disks", "availability_zone")
    return {n: getattr(asked, n) for n in names if getattr(asked, n)}


# --- how many more ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_what_it_says_fits_is_what_boots(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(1, 4):
        world.report("h%d" % number, memory=rng.randrange(1, 9))
    for number in range(rng.randrange(4)):
        world.accept(request("old-%d" % number, flavor=rng.choice((SMALL, LARGE)), networks=()))
        world.schedule()
    asked = request("x", flavor=rng.choice((SMALL, LARGE)), networks=())
    answer = ask_one(world, asked)
    found = booted(world, asked)
    assert (answer.total, counts(answer.by_host)) == (sum(found.values()), found)


@pytest.mark.parametrize(
    "wishes",
    [
        {"server_group": group()},
        {"server_group": group("anti-affinity", 2)},
        {"numa_topology": pinned()},
        {"pci_requests": (A_GPU,)},
        {"whole_disks": (A_DISK,)},
    ],
    ids=["anti-affinity", "two on a host", "NUMA", "PCI", "whole disks"],
)
def test_wishes_that_are_no_numbers(world: World, wishes: dict[str, t.Any]) -> None:
    for host in ("h1", "h2"):
        node(world, host, memory_mb=8192, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    world.accept(request("there", networks=(), **wishes))
    world.schedule()
    asked = request("x", networks=(), **wishes)
    filters = [*DEFAULT_FILTERS, "WholeDiskFilter", "NUMATopologyFilter", "PciPassthroughFilter"]
    answer = ask_one(world, asked, enabled_filters=list(dict.fromkeys(filters)))
    found = booted(world, asked)
    assert (answer.total, counts(answer.by_host)) == (sum(found.values()), found) and found


def test_affinity_fills_one_host(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=5)
    answer = ask_one(world, request("x", server_group=group("affinity")))
    assert counts(answer.by_host) == {"h2": 5}
    world.accept(request("there", server_group=group("affinity")))
    world.schedule()
    assert counts(ask_one(world, request("x", server_group=group("affinity"))).by_host) == {"h2": 4}


def test_entries_are_asked_one_after_the_other(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=2)
    a, b, c, d = ask(world, request("a", 2), request("b", 4), request("c", 3), request("d", 1))
    assert [(x.count, x.total, x.fits, x.remaining_count) for x in (a, b, c, d)] == [
        (2, 5, True, 3),
        (4, 3, False, 3),  # a boot places an entry whole or not at all
        (3, 3, True, 0),
        (1, 0, False, 0),
    ]
    assert [sum(counts(x.placed).values()) for x in (a, b, c, d)] == [2, 0, 3, 0]
    really = collections.Counter(p.host for p in _boot(world, request("a", 2), request("b", 4), request("c", 3)))
    assert collections.Counter(counts(a.placed)) + collections.Counter(counts(c.placed)) == really


def _boot(world: World, *requests: t.Any) -> list[t.Any]:
    world.accept(*requests)
    return list(world.schedule().placed.values())


def test_members_placed_before_count_for_the_next_entry(world: World) -> None:
    for host in ("h1", "h2", "h3"):
        world.report(host)
    a, b = ask(world, request("a", 2, server_group=group()), request("b", 1, server_group=group()))
    assert (a.total, a.remaining_count, b.total) == (3, 1, 1)
    assert not set(counts(a.placed)) & set(counts(b.placed))


def test_what_is_there_needs_no_place(world: World) -> None:
    world.report("h1", memory=4)
    world.accept(request("web", 3))
    world.schedule()
    answer = ask_one(world, request("web", 3))
    assert (answer.count, answer.existing_count, answer.total, answer.fits) == (0, 3, 1, True)
    answer = ask_one(world, request("web", 5))
    assert (answer.count, answer.existing_count, answer.fits) == (2, 3, False)
    other = ask_one(world, request("web", 3, project="other"))
    assert (other.count, other.existing_count) == (3, 0)
    assert ask_one(world, request("web", 3), named=False).count == 3


def test_what_has_no_host_needs_one(world: World) -> None:
    world.report("h1", memory=1)
    world.accept(request("web", 2))
    assert world.schedule().failed
    answer = ask_one(world, request("web", 2))
    assert (answer.count, answer.existing_count) == (2, 0)


def test_what_stops_the_next_one(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=2, disabled=True, disabled_reason="new fans")
    stopped = ask_one(world, request("x", flavor=Flavor(name="odd", memory_mb=2048, vcpus=1))).stopped_by
    assert stopped is not None
    assert [(f["name"], f["start"], f["end"]) for f in stopped["filters"] if f["start"] != f["end"]] == [
        ("ComputeFilter", 2, 1),
        ("RamFilter", 1, 0),
    ]
    miss = stopped["decision"]["nearest_miss"]
    assert (miss["host"], miss["missing"][0]["filter"], miss["missing"][0]["missing"]) == ("h1", "RamFilter", 1024)
    assert miss["smallest_change"]["changes"][0]["fits_at"] == 1024
    rejected = {h["host"]: h["rejected_by"] for h in stopped["decision"]["hosts"]}
    assert rejected["h1"]["filter"] == "RamFilter" and "new fans" in rejected["h2"]["reason"]


def test_a_limit_ends_the_count(world: World) -> None:
    world.report("h1", memory=9)
    answer = ask_one(world, request("x"), limit=4)
    assert (answer.total, answer.stopped_by) == (4, None)
    with pytest.raises(errors.InvalidInput) as caught:
        ask_one(world, request("x"), enabled_filters=["ComputeFilter"])
    assert "limit" in (caught.value.remedy or "")
    assert ask_one(world, request("x"), enabled_filters=["ComputeFilter"], limit=7).total == 7


def test_a_host_that_was_silent_too_long_is_down(world: World) -> None:
    world.report("h1")
    world.time += 1000
    world.report("h2", memory=2)
    options = world.options(explain=True)
    options.service_down_time = 900
    (answer,) = world.ledger.inspect(whatif.ask, [request("x")], world.fleet, options)
    assert counts(answer.by_host) == {"h2": 2}


def test_hints_name_instances(world: World) -> None:
    world.report("h1")
    world.report("h2", memory=2)
    world.boot("first", until="scheduled")  # on h1: it has more room
    host = world.rows(tables.instances)[0].host
    same = ask_one(world, request("x", scheduler_hints={"same_host": ["first"]}), enabled_filters=WITH_HINTS)
    assert list(counts(same.by_host)) == [host]
    other = ask_one(world, request("x", scheduler_hints={"different_host": ["first"]}), enabled_filters=WITH_HINTS)
    assert set(counts(other.by_host)) == {"h1", "h2"} - {host}
    with pytest.raises(errors.InvalidRequest) as caught:
        ask(world, request("y"), request("x", scheduler_hints={"same_host": ["nobody"]}))
    (error,) = caught.value.errors
    assert (error["path"], error["code"]) == ("instances[1].scheduler_hints", "InstanceNotFound")


def test_a_group_that_changed_under_its_members_is_refused_as_in_a_boot(world: World) -> None:
    world.report("h1")
    uuid = world.boot("first", until="scheduled", server_group=group())
    changed = request("x", server_group=group("soft-anti-affinity"))
    with pytest.raises(errors.InvalidRequest) as caught:
        ask(world, changed)
    assert caught.value.errors == world.refusals(changed)
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    world.finish()
    assert ask_one(world, changed).fits


# --- N+1 --------------------------------------------------------------------------------------------------------------


def test_instances_of_a_request_are_asked_together(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=2)
    world.accept(request("a", 3), request("b", flavor=LARGE))
    world.schedule()
    with world.ledger.read() as tx:
        found = whatif.loads(tx)
        only = whatif.loads(tx, ["h1", "nobody"])
    living = {r.uuid: r for r in world.rows(tables.instances) if r.host is not None}
    assert found.names == {u: r.display_name for u, r in living.items()}
    for host, specs in found.by_host.items():
        assert sorted(u for s in specs for u in s.instance_uuids) == sorted(
            u for u, r in living.items() if r.host == host
        )
        assert len(specs) == len({living[s.instance_uuids[0]].request_spec_id for s in specs})
        assert all(s.flavor.memory_mb == living[u].memory_mb for s in specs for u in s.instance_uuids)
    assert only.by_host == {"h1": found.by_host["h1"]}


def test_what_is_leaving_or_nowhere_needs_no_place(world: World) -> None:
    world.report("h1", memory=3)
    kept = world.boot("kept")
    leaving = world.boot("leaving")
    world.delete(uuids=[leaving])
    gone = world.boot("gone")
    world.delete(uuids=[gone], run="e")
    world.removed("h1", [gone], run="e")
    world.finish(run="e")
    world.accept(request("waiting"))
    with world.ledger.read() as tx:
        assert list(whatif.loads(tx).names) == [kept]


def test_the_number_of_queries_does_not_grow(world: World) -> None:
    def queries() -> int:
        with counted(world.ledger) as seen:
            world.ledger.inspect(whatif.lose, world.fleet, world.options())
            world.ledger.inspect(whatif.ask, [request("x", 2)], world.fleet, world.options())
            world.ledger.for_run(world.context()).inspect(whatif.facts, ["h%d" % n for n in range(20)], 900.0)
        return len(seen)

    world.report("h0", memory=2)
    world.boot("web", until="scheduled", server_group=group("soft-affinity"))
    few = queries()
    for number in range(1, 20):
        world.report("h%d" % number, memory=2)
        world.accept(request("more-%d" % number, server_group=group("soft-affinity") if number < 9 else None))
    world.schedule()
    assert queries() == few


def test_room_elsewhere_or_not(world: World) -> None:
    world.report("h1", memory=4)
    world.report("h2", memory=3)
    world.accept(request("a", 3))
    world.schedule()
    by_host = collections.Counter(r.host for r in world.rows(tables.instances))
    found = lose(world)
    for host, other in (("h1", "h2"), ("h2", "h1")):
        free = {"h1": 4, "h2": 3}[other] - by_host[other]
        assert len(found[host]["moved"]) == min(by_host[host], free)
        assert len(found[host]["stuck"]) == by_host[host] - min(by_host[host], free)
        assert found[host]["fits"] is (by_host[host] <= free)
        assert {m["host"] for m in found[host]["moved"]} <= {other}
    told = [*found["h1"]["moved"], *found["h1"]["stuck"], *found["h2"]["moved"], *found["h2"]["stuck"]]
    assert {i["instance_uuid"]: i["name"] for i in told} == {
        r.uuid: r.display_name for r in world.rows(tables.instances)
    }
    assert list(lose(world, "h2")) == ["h2"]


def test_a_stuck_instance_has_its_reasons(world: World) -> None:
    world.report("h1", memory=4)
    world.boot("big", until="scheduled", flavor=LARGE)
    world.report("h2", memory=2)
    (stuck,) = lose(world)["h1"]["stuck"]
    assert stuck["name"] == "big"
    assert [f["name"] for f in stuck["filters"] if f["start"] != f["end"]] == ["RamFilter"]
    assert "RamFilter" in stuck["reason"]


def test_groups_hold_on_the_others(world: World) -> None:
    world.report("h1")
    world.report("h2")
    world.accept(request("a", 2, server_group=group()))
    world.schedule()
    assert not lose(world)["h1"]["fits"], "the other member is on the only other host"
    world.report("h3")
    assert [m["host"] for m in lose(world)["h1"]["moved"]] == ["h3"]


def test_lost_hosts_are_really_survived(world: World) -> None:
    """Who is said to have room elsewhere has: booted anew with the host disabled, all find one."""
    rng = random.Random(5)
    for number in range(1, 4):
        world.report("h%d" % number, memory=rng.randrange(4, 8))
    for number in range(7):
        world.accept(request("a%d" % number, flavor=SMALL))
        world.schedule()
    found = lose(world)
    assert {f["fits"] for f in found.values()} == {True}
    lost = "h1"
    rows = [r for r in world.rows(tables.instances) if r.host == lost]
    with world.ledger.write() as tx:
        service_state.set_state(tx, [lost], "forced_down")
    placed = _boot(world, *(request("again-%s" % r.display_name, flavor=SMALL) for r in rows))
    assert collections.Counter(p.host for p in placed) == collections.Counter(m["host"] for m in found[lost]["moved"])
    assert len(placed) == len(rows)


# --- the hosts as they would be ---------------------------------------------------------------------------------------


SETTINGS: dict[str, tuple[t.Any, ...]] = {
    "ram_allocation_ratio": (1.0, 2.5),
    "disk_allocation_ratio": (1.0, 0.5),
    "cpu_allocation_ratio": (16.0, 2.0),
    "reserved_memory_mb": (0, 700),
    "reserved_disk_gb": (0, 5),
    "reserved_vcpus": (0, 2),
    "availability_zone": ("nova", "rack-a"),
    "disabled": (False, True),
    "disabled_reason": ("", "new fans"),
}


@pytest.mark.parametrize("seed", range(6))
def test_settings_of_today_count_as_if_they_were_entered(world: World, seed: int) -> None:
    rng = random.Random(seed)
    hosts = ["h1", "h2", "h3"]
    for host in hosts:
        world.report(host, **{k: rng.choice(v) for k, v in SETTINGS.items()})
    world.boot("web", until="accepted")
    world.schedule()
    if rng.random() < 0.5:
        with world.ledger.write() as tx:
            service_state.set_state(tx, ["h2"], "disabled", "by hand")
    settings = {h: {k: rng.choice(v) for k, v in SETTINGS.items()} for h in hosts[:2]}
    before = world.everything()

    def now(tx: Transaction) -> Fleet:
        return whatif.as_configured(tx, fleet.read(tx, hosts), settings)

    def entered(tx: Transaction) -> Fleet:
        nodes.configure(tx, settings)
        return fleet.read(tx, hosts)

    found = [asdict(h) for h in world.ledger.inspect(now).hosts]
    assert world.everything() == before
    wanted = [asdict(h) for h in world.ledger.rehearsal(lambda tx: list(entered(tx).hosts))]
    assert found == wanted


def test_a_fleet_as_configured_is_left_alone(world: World) -> None:
    world.report("h1", **{k: v[0] for k, v in SETTINGS.items()})
    with world.ledger.read() as tx:
        there = fleet.read(tx, ["h1", "never"])
        same = {h: {k: v[0] for k, v in SETTINGS.items()} for h in ("h1", "never")}
        assert whatif.as_configured(tx, there, same) is there


def test_who_is_down_is_who_the_filter_turns_down(world: World) -> None:
    world.report("old")
    world.time += 901
    for host in ("fresh", "forced", "silent", "disabled"):
        world.report(host)
    with world.ledger.write() as tx:
        service_state.set_state(tx, ["forced"], "forced_down", "smoke")
        service_state.set_state(tx, ["disabled"], "disabled", "fans")
        nodes.record_unreachable(tx, "silent", "no route")
    hosts = ["never", "old", "fresh", "forced", "silent", "disabled"]
    found = world.ledger.for_run(world.context()).inspect(whatif.facts, hosts, 900.0)
    assert found.oldest == 901
    assert found.down == [
        {"host": "never", "reason": "the host never reported"},
        {"host": "old", "reason": "last report 901 s ago, more than 900 s"},
        {"host": "forced", "reason": "forced down: smoke"},
        {"host": "silent", "reason": "no answer: no route"},
    ]
    with world.ledger.read() as tx:
        there = fleet.read(tx, [h for h in hosts if h != "disabled"])
        options = world.options()
        options.service_down_time = 900
        passes = _compute_filter(options).evaluate(
            there, schedule.request_spec(accept.stored_spec(request("x"), (), {}), [], None, "p"), there.all_rows()
        )
    names = there.values("host")
    assert {names[i] for i, ok in enumerate(passes.mask) if not ok} == {d["host"] for d in found.down}
    assert world.ledger.for_run(world.context()).inspect(whatif.facts, [], 900.0) == whatif.Facts(None, [])


def _compute_filter(options: t.Any) -> Filter:
    options.enabled_filters = ["ComputeFilter"]
    return make_filters(options, user_classes(options))[0]
