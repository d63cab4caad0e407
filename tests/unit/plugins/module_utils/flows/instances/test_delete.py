# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request


@pytest.mark.parametrize("until", ["accepted", "scheduled", "networking", "block_device_mapping", "spawning", "active"])
@pytest.mark.parametrize("later", [0, 601])
def test_from_every_half_way_state(world: World, until: str, later: int) -> None:
    world.report("h1")
    uuid = world.boot("web", until, project="p")
    world.time += later  # the builder's lease is out, or not: a delete wins either way
    deleting = world.delete(names=["web"])
    hosts = [] if until == "accepted" else ["h1"]
    assert ([r.uuid for r in deleting.rows], deleting.hosts) == ([uuid], hosts)
    assert world.state(uuid)[1] == states.DELETING
    for host in hosts:
        assert world.finish()[1][0]["host"] == host  # not before the host is rid of it
        assert world.of_host(host) == [{"uuid": uuid, "name": world.row(uuid).domain_name}]
        world.removed(host, [uuid])
        assert world.of_host(host) == []
    assert world.finish() == (["web"], [])
    row = world.row(uuid)
    assert (row.vm_state, row.deleted, row.deleted_at, row.power_state) == (
        states.DELETED,
        uuid,
        world.time,
        states.NOSTATE,
    )
    assert (world.claims(), world.count(tables.ports), world.count(tables.block_device_mappings)) == (set(), 0, 0)
    assert world.used("h1") == (0, 0, 0, 0)
    action = next(a for a in world.rows(tables.instance_actions) if a.action == "delete")
    assert (action.project, action.request_id, action.finish_time) == ("p", "req-d", world.time)
    assert world.finish() == ([], [])


def test_a_failed_instance(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.fail("h1", uuid, errors.ImageError(reason="x"))
    assert world.delete(names=["web"]).hosts == []
    assert world.finish() == (["web"], [])


def test_a_failed_instance_with_remains(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.fail("h1", uuid, errors.RemoteError(reason="x"), cleaned=False)
    assert world.delete(names=["web"]).hosts == ["h1"]
    assert world.finish()[1][0]["host"] == "h1"
    assert [i["uuid"] for i in world.of_host("h1")] == [uuid]
    world.removed("h1", [uuid])
    assert world.finish() == (["web"], [])
    assert (world.claims(), world.addresses()) == (set(), [])


def plain_by_host(world: World, deleting: delete.Deleting) -> dict[str, list[dict[str, str]]]:
    with world.ledger.read() as tx:
        return delete.plain_by_host(tx.for_run(world.context("d")), deleting)


def test_what_a_host_has_to_remove_is_known_ahead_unless_a_cleanup_is_pending_there(world: World) -> None:
    world.report("h1")
    world.boot("web")
    world.boot("db")
    deleting = world.delete(names=["web"])
    assert plain_by_host(world, deleting) == {"h1": world.of_host("h1")} and len(world.of_host("h1")) == 1
    failed = world.boot("old", "spawning")
    world.fail("h1", failed, errors.RemoteError(reason="x"), cleaned=False)
    assert plain_by_host(world, deleting) == {} and len(world.of_host("h1")) == 2


def test_an_instance_on_two_hosts(world: World) -> None:
    world.report("h1", memory=9)
    world.report("h2", memory=2)
    uuid = world.boot("web", "spawning")
    world.fail("h1", uuid, errors.HostUnreachable(host="h1", reason="x"), cleaned=False, unreachable=True)
    world.schedule()
    world.build("h2")
    assert world.delete(names=["web"]).hosts == ["h1", "h2"]
    world.removed("h2", [uuid])
    assert world.claims() == {(uuid, "h1")} and len(world.addresses()) == 1
    assert world.finish()[1][0]["host"] == "h1"
    world.removed("h1", [uuid])
    assert world.finish() == (["web"], [])


def test_a_host_that_fails_keeps_the_instance(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.delete(names=["web"])
    with world.ledger.write() as tx:
        error = errors.HostUnreachable(host="h1", reason="no route")
        delete.removed(tx.for_run(world.context("d")), {"h1": []}, {uuid: ("h1", error)})
    gone, left = world.finish()
    assert gone == [] and left[0]["fault"]["code"] == "HostUnreachable"
    assert (left[0]["name"], left[0]["uuid"]) == ("web", uuid)
    assert world.state(uuid) == (states.ACTIVE, states.DELETING, "h1")
    assert world.claims() == {(uuid, "h1")}
    world.time += 601
    assert world.delete(run="e", names=["web"]).hosts == ["h1"]  # later, again
    world.removed("h1", [uuid], "e")
    assert world.finish("e") == (["web"], [])


@pytest.mark.parametrize("both", [False, True])
def test_by_force_the_host_is_cleaned_later(world: World, both: bool) -> None:
    world.report("h1", memory=9)
    world.report("h2", memory=2)
    uuid = world.boot("web", "spawning")
    world.fail("h1", uuid, errors.HostUnreachable(host="h1", reason="x"), cleaned=False, unreachable=True)
    world.schedule()
    world.build("h2")
    world.delete(names=["web"])
    if not both:
        world.removed("h2", [uuid])
    assert world.finish(force=True) == (["web"], [])
    hosts = ["h1", "h2"] if both else ["h1"]
    assert world.cleanups() == {(uuid, h) for h in hosts} == world.claims()
    assert len(world.addresses()) == len(hosts)
    assert world.boot("web", "accepted", run="b") != uuid  # the name is free
    for host in hosts:
        with world.ledger.write() as tx:
            cleanup.finish(tx, {host: [uuid]})
    assert (world.cleanups(), world.claims(), len(world.addresses())) == (set(), set(), 1)


def test_another_live_runs_delete_is_locked(world: World) -> None:
    world.report("h1")
    world.boot("web")
    world.delete(run="d", names=["web"])
    with pytest.raises(errors.InstanceBusy) as caught:
        world.delete(run="e", names=["web"])
    assert "run-d" in caught.value.message
    assert [r.display_name for r in world.delete(run="d", names=["web"]).rows] == ["web"]
    world.time += 601
    assert [r.display_name for r in world.delete(run="e", names=["web"]).rows] == ["web"]
    assert world.finish("d") == ([], [])
    assert world.of_host("h1", "d") == []


def test_selecting(world: World) -> None:
    first = world.accept(request("web", 2), request("db"))
    second = world.accept(request("web", 1, project="other"), request("x", project="other"), run="b")
    uuids = {r.display_name + "@" + r.project: r.uuid for r in world.rows(tables.instances)}
    cases: list[tuple[dict[str, t.Any], list[str]]] = [
        ({"names": ["web-1", "nothing"]}, ["web-1@default"]),
        ({"names": ["web"], "project": "default"}, []),
        ({"names": []}, []),
        ({"uuids": [uuids["db@default"]]}, ["db@default"]),
        ({"reservations": [second.reservation_id]}, ["web@other", "x@other"]),
        ({"reservations": [first.reservation_id], "names": ["db", "x"]}, ["db@default"]),
        ({"project": "other", "everything": True}, ["web@other", "x@other"]),
    ]
    for which, expected in cases:
        with world.ledger.rehearse() as tx:
            found = delete.begin(tx.for_run(world.context("d")), Selection(**which), missing_ok=True)
        assert sorted(r.uuid for r in found.rows) == sorted(uuids[e] for e in expected), which
    assert {r.task_state for r in world.rows(tables.instances)} == {states.SCHEDULING}


@pytest.mark.parametrize("which", [{}, {"project": "default"}, {"everything": True}])
def test_nothing_says_which(world: World, which: dict[str, t.Any]) -> None:
    world.boot("web", "accepted")
    with pytest.raises(errors.InvalidInput) as caught:
        world.delete(**which)
    assert caught.value.remedy


def test_a_host_is_also_rid_of_older_remains(world: World) -> None:
    world.report("h1")
    old = world.boot("old", "spawning")
    world.fail("h1", old, errors.RemoteError(reason="x"), cleaned=False)
    new = world.boot("new")
    world.delete(names=["new"])
    assert {i["uuid"] for i in world.of_host("h1")} == {old, new}
    world.removed("h1", [old, new])
    assert world.finish() == (["new"], [])
    assert world.cleanups() == world.claims() == set()
    assert world.state(old) == (states.ERROR, None, None)


def test_a_name_of_two_projects_is_not_guessed(world: World) -> None:
    world.report("h1")
    one, two = world.boot("web", project="one"), world.boot("web", project="two")
    before = world.everything()
    with pytest.raises(errors.InvalidInput, match="web is in the projects one, two"):
        world.delete(names=["web"])
    assert world.everything()["instances"] == before["instances"]
    assert [r.uuid for r in world.delete(names=["web"], project="two").rows] == [two]
    assert [r.uuid for r in world.delete(uuids=[one]).rows] == [one]


def test_what_came_of_many_hosts_takes_as_many_statements_as_of_one(world: World) -> None:
    counts = []
    for hosts in (1, 6):
        for number in range(hosts):
            world.report("h%d" % (number + 10 * hosts), memory=3)
        uuids = world.accept(request("web%d" % hosts, hosts * 3)).created
        for host in {p.host for p in world.schedule().placed.values()}:
            world.build(host)
        begun = world.delete(uuids=uuids)
        assert len(begun.hosts) >= hosts
        done = {host: [i["uuid"] for i in world.of_host(host)] for host in begun.hosts}
        failed = {part.pop(): (host, errors.RemoteError(reason="of " + host)) for host, part in done.items()}
        with counted(world.ledger) as statements, world.ledger.write() as tx:
            delete.removed(tx.for_run(world.context("d")), done, failed)
        counts.append(len(statements))
        assert {uuid for uuid, _host in world.claims()} & set(uuids) == set(failed)
        world.finish()
        assert {r.uuid: r.host for r in world.rows(tables.instances) if r.uuid in uuids and not r.deleted} == {
            uuid: host for uuid, (host, _error) in failed.items()
        }
        for host, part in {host: [uuid] for uuid, (host, _error) in failed.items()}.items():
            world.removed(host, part)
        assert len(world.finish()[0]) == len(failed) and not world.claims()
    assert counts[0] == counts[1], counts
