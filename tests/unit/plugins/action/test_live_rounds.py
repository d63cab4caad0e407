# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rounds of a live migration whose new hosts refuse guests. That hosts do their parts is shown by the lab."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_live_migrate as live
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import live_life
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, results_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_instance_operation import filtered
from .test_moves import Fleet

HOSTS = ("h1", "h2", "h3")
CPU = errors.InvalidCPUInfo(reason="x").as_dict()
LIBVIRT = errors.LibvirtError(reason="x").as_dict()


class Rounds(Fleet):
    """Guests on h1; ``refuses`` has what hosts say of each guest."""

    def begin(self, names: t.Sequence[str] = ("web",), **options: t.Any) -> dict[str, t.Any]:
        return self.stage(live, "begin", names=list(names), **options)

    def play(self, refuses: t.Mapping[str, t.Any], cleaned: bool = True, **options: t.Any) -> dict[str, t.Any]:
        """A round: the guests that are not refused go over. Returns what ``switch`` said."""
        begun = results_of(WorldPorts(self.world, "o"), "instance_live_migrate").begun()
        items = begun["instances"]
        said = {"attempt": begun["attempt"]}

        def tell(phase: str, end: str, answer: t.Callable[[t.Any], dict[str, t.Any]]) -> None:
            for host in {i[end] for i in items}:
                mine = {i["uuid"]: answer(i) for i in items if i[end] == host}
                self.leave(live, {"phase": phase, "outcomes": mine, **said}, host)

        tell("look", "source", lambda i: {"guest": {}, "error": None})
        tell("prepare", "destination", lambda i: {"error": refuses.get(i["destination"])})
        over = [i["uuid"] for i in items if not refuses.get(i["destination"])]
        if over:
            ledger = self.world.ledger
            with ledger.write() as tx:
                live_life.mark_running(tx.for_run(self.world.context("o")), over)
        stats = {"seconds": 1.0, "downtime": 0.1, "transferred": 5 << 20, "power_state": states.RUNNING}
        tell("migrate", "source", lambda i: {**stats, "error": None})
        switched = self.stage(live, "switch", **options)
        here = {"power_state": states.RUNNING}
        tell("settle", "destination", lambda i: here if i["uuid"] in over else {"cleaned": cleaned})
        tell("clean", "source", lambda i: {"cleaned": True} if i["uuid"] in over else here)
        return switched

    def again(self, **options: t.Any) -> dict[str, t.Any]:
        return self.stage(live, "again", **options)


@pytest.fixture
def fleet(world: World) -> Rounds:
    """h1, where web and db are, and h2 and h3."""
    world.report("h1")
    for name in ("web", "db"):
        world.boot(name)
    for host in HOSTS[1:]:
        world.report(host)
    return Rounds(world, HOSTS)


def statuses(world: World) -> list[str]:
    return [r.status for r in sorted(world.rows(tables.migrations), key=lambda r: r.id)]


def test_the_next_host_is_tried(fleet: Rounds) -> None:
    (item,) = fleet.begin()["instances"]
    first, uuid = item["destination"], item["uuid"]
    (second,) = set(HOSTS) - {"h1", first}
    assert fleet.play({first: CPU})["refused"] == [uuid]
    again = fleet.again()
    (item,) = again["instances"]
    assert (item["destination"], again["destinations"], again["attempt"]) == (second, [second], 2)
    assert fleet.shown[-1] == "live_migrate: web: host %s refused the guest (InvalidCPUInfo). Trying %s." % (
        first,
        second,
    )
    # What hosts said in the first round is no answer in the second.
    stale = fleet.stage(live, "switch")
    assert stale["problems"][uuid]["code"] == "HostUnreachable" and not stale["over"] + stale["refused"]


def test_it_goes_over_to_the_next_host(fleet: Rounds) -> None:
    (item,) = fleet.begin()["instances"]
    first, uuid = item["destination"], item["uuid"]
    fleet.play({first: CPU})
    (item,) = fleet.again()["instances"]
    assert fleet.play({first: CPU})["over"] == [uuid]
    done = fleet.stage(live, "finish")
    (shown,) = done["instances"]
    assert (shown["host"], shown["error"], shown["seconds"]) == (item["destination"], None, 1.0) and done["changed"]
    assert statuses(fleet.world) == [moves.ERROR, moves.COMPLETED]
    assert fleet.world.row(uuid).host == item["destination"] and fleet.world.row(uuid).task_state is None


def test_where_all_refuse_each_reason_is_told(fleet: Rounds) -> None:
    refuses = {"h2": CPU, "h3": errors.DestinationHypervisorTooOld().as_dict()}
    (item,) = fleet.begin()["instances"]
    order = [item["destination"]]
    fleet.play(refuses)
    order.append(fleet.again()["instances"][0]["destination"])
    assert fleet.play(refuses)["refused"] == [item["uuid"]]
    assert fleet.again()["instances"] == []
    assert fleet.play(refuses)["refused"] == []
    done = fleet.stage(live, "finish")
    (failed,) = done["failed_items"]
    assert failed["error"]["code"] == refuses[order[1]]["code"] and failed["host"] == "h1"
    assert [(t["host"], t["code"]) for t in failed["tried"]] == [(h, refuses[h]["code"]) for h in order]
    for host in order:
        assert "on %s: %s: " % (host, refuses[host]["code"]) in done["msg"]
    assert statuses(fleet.world) == [moves.ERROR, moves.ERROR]
    assert {host for uuid, host in fleet.world.claims() if uuid == item["uuid"]} == {"h1"}
    assert fleet.world.state(item["uuid"])[:2] == ("active", None)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"to_host": "h2"}, CPU), ({"max_attempts": 1}, CPU), ({}, LIBVIRT)],
    ids=["named", "one attempt", "not the host's"],
)
def test_the_refusal_is_the_answer(fleet: Rounds, options: dict[str, t.Any], error: dict[str, t.Any]) -> None:
    (item,) = fleet.begin(**options)["instances"]
    assert fleet.play({item["destination"]: error}, **options)["refused"] == []
    (failed,) = fleet.stage(live, "finish", **options)["failed_items"]
    assert failed["error"]["code"] == error["code"] and failed["tried"] == [] and statuses(fleet.world) == [moves.ERROR]


def test_who_was_not_refused_goes_once(fleet: Rounds) -> None:
    """And is free when others are tried again."""
    items = {i["name"]: i for i in fleet.begin(["web", "db"])["instances"]}
    refusing = items["web"]["destination"]
    refused = [i["uuid"] for i in items.values() if i["destination"] == refusing]
    assert sorted(fleet.play({refusing: CPU})["refused"]) == sorted(refused)
    again = fleet.again()
    assert sorted(i["uuid"] for i in again["instances"]) == sorted(refused)
    for item in items.values():
        state = fleet.world.row(item["uuid"])
        assert state.task_state == ("migrating" if item["uuid"] in refused else None)
    fleet.play({refusing: CPU})
    done = fleet.stage(live, "finish")
    assert sorted(i["name"] for i in done["instances"]) == ["db", "web"]
    assert not [i for i in done["instances"] if i["error"]] and len(statuses(fleet.world)) == 2 + len(refused)


def test_a_guest_whose_host_may_keep_its_volumes_is_not_tried_again(fleet: Rounds) -> None:
    """A claim and a cleanup wait on the host that did not say that it is clean; another one has the guest meanwhile."""
    (item,) = fleet.begin()["instances"]
    first, uuid = item["destination"], item["uuid"]
    fleet.play({first: CPU}, cleaned=False)
    results = results_of(WorldPorts(fleet.world, "o"), "instance_live_migrate")
    begun = results.begun()
    results.leave("begin", "localhost", {**begun, "instances": [{**begun["instances"][0], "volumes": True}]})
    assert fleet.again()["instances"] == []
    assert fleet.world.state(uuid)[:2] == ("active", None) and (uuid, first) in fleet.world.cleanups()


def failed(error: errors.BootflowError) -> dict[str, t.Any]:
    """The answer of a module that failed."""
    fields = error.as_dict()
    return {"failed": True, "error_code": fields.pop("code"), "msg": fields.pop("message"), **fields}


class Filtering(Rounds):
    """Hosts that filter ports, unless ``fails``. Nothing lets a guest in."""

    fails = False

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.asked.append(name)
        if name == "virtual_network":
            return {"outcomes": {n["name"]: {"changed": False, "error": None} for n in arguments["networks"]}}
        if name == "port_filters" and self.fails:
            return failed(errors.HostCannotFilter(host="h2", reason="x"))
        if name == "port_filters":
            return filtered(arguments)
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("fails", [False, True])
def test_a_host_filters_before_it_lets_a_guest_in(fleet: Rounds, fails: bool) -> None:
    hosts = Filtering(fleet.world, HOSTS)
    hosts.fails = fails
    for variables in hosts.hostvars.values():
        variables["bootflow_firewall_driver"] = "nftables"
    (item,) = hosts.begin()["instances"]
    guest = {"volumes": [], "disks": []}
    hosts.leave(
        live, {"phase": "look", "outcomes": {item["uuid"]: {"guest": guest, "error": None}}, "attempt": 1}, "h1"
    )
    prepared = hosts.stage(live, "prepare", item["destination"])
    error = prepared["outcomes"][item["uuid"]]["error"]
    assert hosts.asked[-2:] == (["virtual_network", "port_filters"] if fails else ["port_filters", "domain_migration"])
    assert (error["code"] == "HostCannotFilter") is fails, error
