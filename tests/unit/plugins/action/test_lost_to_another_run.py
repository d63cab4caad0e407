# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that another one has robbed of an instance, by a delete or because its lease was over: nothing runs that should not, and nothing is lost."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import (
    boot_build,
    instance_move,
    instance_operation,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, cold_life, confirm
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, history, instances, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import LEASE_SECONDS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.cleaning import clean_host
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import time_limits
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    leave_report,
    results_of,
    run_stage,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from .test_boot_build import Boot
from .test_evacuate import Evacuating, force_down
from .test_rebuild import GIB, row_of

LONG = 10_000.0  # seconds, longer than any lease


class Hosts(Evacuating):
    """Hosts that say what they did, in order; another run does its part before the module ``meanwhile[0]`` answers."""

    def __init__(self, world: World):
        super().__init__(world)
        self.did: list[tuple[str, str]] = []  # (module, uuid)
        self.meanwhile: tuple[str, t.Callable[[], None]] | None = None
        self.image_size = GIB

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if self.meanwhile is not None and self.meanwhile[0] == name:
            theirs, self.meanwhile = self.meanwhile[1], None
            theirs()
        self.did += [(name, i["uuid"]) for key in ("instances", "domains") for i in arguments.get(key) or ()]
        return super().answer(host, name, arguments)


@pytest.fixture
def hosts(world: World) -> Hosts:
    """web on h1; h2 is free."""
    world.report("h1", memory=1)
    world.boot("web")
    world.report("h2", memory=1)
    return Hosts(world)


def deletes(world: World, soft: bool = False, ends: bool = True) -> t.Callable[[], None]:
    """Another run deletes the instance, whose hosts have nothing of it any more. :arg ends: and it has written that"""

    def theirs() -> None:
        with world.ledger.write() as tx:
            begun = delete.begin(tx.for_run(world.context("d")), Selection(names=["web"]), soft=soft)
            uuids = [r.uuid for r in begun.rows]
        for host in begun.hosts if ends else ():
            world.removed(host, uuids)
        if soft:
            off = delete.Outcome(states.SHUTDOWN)
            with world.ledger.write() as tx:
                delete.removed(
                    tx.for_run(world.context("d")), {}, {}, powered_off={r.uuid: off for r in begun.soft_deleted}
                )
        elif ends:
            assert world.finish() == (["web"], [])

    return theirs


@pytest.mark.parametrize(
    ("operation", "options"),
    [("rebuild", {}), ("reboot", {"reboot_type": "HARD"}), ("reboot", {"reboot_type": "SOFT"})],
)
def test_the_guest_of_an_instance_that_is_deleted_meanwhile_does_not_stay(
    hosts: Hosts, operation: str, options: dict[str, str]
) -> None:
    world = hosts.world
    uuid = row_of(world, "web").uuid
    hosts.deaf = {uuid}  # to be asked to restart
    hosts.meanwhile = ("domain", deletes(world))
    done = hosts.play(operation, names=["web"], **options)
    assert done["failed_items"][0]["error"]["code"] in ("InstanceNotFound", "UnexpectedDeletingTaskStateError")
    assert hosts.did[-2:] == [("domain", uuid), ("instance_cleanup", uuid)], (
        "what was started after the delete is removed"
    )
    assert not world.claims() and not world.addresses() and not world.cleanups()


def test_a_guest_that_cannot_be_removed_then_is_owed_by_its_host(hosts: Hosts) -> None:
    world = hosts.world
    uuid = row_of(world, "web").uuid
    hosts.fails = {"instance_cleanup": uuid}
    hosts.meanwhile = ("domain", deletes(world))
    assert hosts.play("reboot", names=["web"], reboot_type="HARD")["failed"]
    assert world.cleanups() == {(uuid, "h1")}


def test_a_guest_that_is_soft_deleted_meanwhile_is_off(hosts: Hosts) -> None:
    world = hosts.world
    uuid = row_of(world, "web").uuid
    hosts.meanwhile = ("domain", deletes(world, soft=True))
    assert hosts.play("reboot", names=["web"], reboot_type="HARD")["failed"]
    assert [(s, a["uuid"], a["shutdown_timeout"]) for _h, s, a in hosts.asked] == [("shutdown", uuid, 0.0)]
    assert ("instance_cleanup", uuid) not in hosts.did and world.state(uuid) == ("soft-delete", None, "h1")


@pytest.mark.parametrize("operation", ["reboot", "start", "resume"])
def test_a_guest_that_is_soft_deleted_while_its_host_starts_it_is_off(hosts: Hosts, operation: str) -> None:
    """A host that waits for a guest to shut down sees the power off, and starts it again."""
    world = hosts.world
    uuid = row_of(world, "web").uuid
    before = {"reboot": "active", "start": "stopped", "resume": "suspended"}[operation]
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=before))
    hosts.meanwhile = ("domain_power", deletes(world, soft=True))
    assert hosts.play(operation, names=["web"])["failed"]
    host_work = [(s, a["uuid"], a["shutdown_timeout"]) for _h, s, a in hosts.asked]
    assert host_work[-1] == ("shutdown", uuid, 0.0) and len(host_work) == 2
    assert world.state(uuid) == ("soft-delete", None, "h1")


def test_a_guest_that_was_deleted_while_it_was_waited_for_is_not_started(hosts: Hosts) -> None:
    world = hosts.world
    hosts.deaf = {row_of(world, "web").uuid}
    hosts.meanwhile = ("domain_power", deletes(world, ends=False))
    assert hosts.play("reboot", names=["web"])["failed_items"]
    assert "domain" not in {name for name, _uuid in hosts.did}


def settles(world: World, host: str = "h1", power_state: int = states.RUNNING) -> None:
    """A report of the host, long after the lease of all runs that are there."""
    world.time += LONG
    with world.ledger.write() as tx:
        uuid = next(r.uuid for r in instances.select_live(tx.for_run(world.context("z")), names=["web"]))
        settled = recovery.settle_operations(tx.for_run(world.context("z")), host, {uuid: power_state}, world.time)
    assert settled.keys() == {uuid}


@pytest.mark.parametrize("operation", ["stop", "pause", "rebuild", "reboot"])
def test_a_run_that_was_believed_dead_leaves_alone_what_it_has_lost(hosts: Hosts, operation: str) -> None:
    world = hosts.world
    hosts.task("localhost", operation, "begin", names=["web"])
    settles(world)
    before = row_of(world, "web")
    hosts.task("h1", operation, "work")
    assert hosts.did == [] and hosts.asked == []
    done = hosts.task("localhost", operation, "finish")
    assert [i["error"]["code"] for i in done["failed_items"]] == ["UnexpectedTaskStateError"]
    after = row_of(world, "web")
    assert (after.vm_state, after.task_state, after.power_state) == (before.vm_state, None, before.power_state)


def test_a_rebuild_whose_image_took_longer_than_its_lease(hosts: Hosts) -> None:
    hosts.meanwhile = ("instance_disks", lambda: settles(hosts.world))
    assert hosts.play("rebuild", names=["web"])["failed_items"]
    assert not hosts.removed and row_of(hosts.world, "web").vm_state == states.ERROR


# --- a run that stands still in the middle of a task ------------------------------------------------------------------------


def stands_still(monkeypatch: pytest.MonkeyPatch, world: World, module: str, theirs: t.Callable[[], None]) -> None:
    """The run stands still after its task has read the ledger, right before ``module`` goes to the host; others do ``theirs`` meanwhile."""
    limit_of = time_limits.limit_of

    def limit(action: t.Any, name: str, arguments: t.Any) -> float:
        if name == module:
            theirs()
        return limit_of(action, name, arguments)

    monkeypatch.setattr(time_limits, "limit_of", limit)


@pytest.mark.parametrize(
    ("operation", "module"),
    [("stop", "domain_power"), ("reboot", "domain"), ("rebuild", "domain_power"), ("rebuild", "instance_cleanup")],
)
def test_nothing_goes_to_a_host_that_another_run_may_have_taken_over_meanwhile(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, operation: str, module: str
) -> None:
    world = hosts.world
    kind = "instance_build" if module == "domain" else module
    stands_still(monkeypatch, world, kind, lambda: settles(world))
    options = {"reboot_type": "HARD"} if operation == "reboot" else {}
    done = hosts.play(operation, names=["web"], **options)
    before = ["shutdown"] if module == "instance_cleanup" else []
    assert [state for _host, state, _asked in hosts.asked] == before
    assert module not in {name for name, _uuid in hosts.did}
    assert done["failed_items"] and world.claims() == {(row_of(world, "web").uuid, "h1")}


def test_a_start_that_wakes_up_when_the_guest_went_to_another_host(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its domain is still defined on the former host, as the move is not confirmed: it would run twice."""
    world = hosts.world
    uuid = row_of(world, "web").uuid
    assert not hosts.play("stop", names=["web"]).get("failed_items")
    hosts.asked.clear()
    hosts.did.clear()

    def moves_away() -> None:
        settles(world, power_state=states.SHUTDOWN)
        wanted = cold.Wanted(Selection(names=["web"]), ("h1", "h2"), {"h1": "qcow2", "h2": "qcow2"})
        with world.ledger.write() as tx:
            assert not cold.begin(tx.for_run(world.context("m")), wanted, world.fleet, world.options()).failed
        with world.ledger.write() as tx:
            cold_life.switch(tx.for_run(world.context("m")), [uuid])

    stands_still(monkeypatch, world, "domain_power", moves_away)
    done = hosts.play("start", names=["web"])
    assert hosts.asked == [] and hosts.did == []
    assert done["failed_items"] and world.state(uuid)[2] == "h2"


def test_a_cleanup_that_wakes_up_when_the_instance_has_come_back(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be removed is known by no lease: any run may do it, and the instance may return then."""
    world = hosts.world

    def comes_back() -> None:
        world.time += 100.0

    with world.ledger.write() as tx:
        due = cleanups.Due("h2", row_of(world, "web").uuid, "web", "it was there")
        cleanups.add(tx.for_run(world.context("z")), due)
    stands_still(monkeypatch, world, "instance_cleanup", comes_back)
    ports = WorldPorts(world, "r", lambda name, arguments: hosts.answer("h2", name, arguments))
    variables = {"hostvars": hosts.hostvars, "groups": {}, "inventory_hostname": "h2", **hosts.hostvars["h2"]}
    action = action_of(instance_operation, ports, variables, operation="start")
    problems = clean_host(action, [{"uuid": row_of(world, "web").uuid, "name": "web"}]).problems
    assert hosts.did == [] and [e.code for e in problems.values()] == ["LeaseOver"]


def test_a_run_of_many_short_tasks_keeps_its_lease(hosts: Hosts) -> None:
    """None of them is long enough to renew it while it works, all of them are longer than a lease."""
    world = hosts.world
    hosts.task("localhost", "stop", "begin", names=["web"])
    for _task in range(4):
        world.time += 0.9 * LEASE_SECONDS / 2
        hosts.task("h2", "stop", "work")
    with world.ledger.read() as tx:
        run = row_of(world, "web").run_id
        assert not runs.dead_among(tx.for_run(world.context("z")), [run])
    hosts.task("h1", "stop", "work")
    assert not hosts.task("localhost", "stop", "finish").get("failed_items")
    assert row_of(world, "web").vm_state == states.STOPPED


# --- moves --------------------------------------------------------------------------------------------------------------


class Moves(Hosts):
    def move(self, host: str, operation: str, phase: str, **options: t.Any) -> dict[str, t.Any]:
        ports = WorldPorts(self.world, "m", lambda name, arguments: self.answer(host, name, arguments))
        groups = {"bootflow_compute": ["h1", "h2"], "all": ["h1", "h2"]}
        variables = {"hostvars": self.hostvars, "groups": groups, "inventory_hostname": host, **self.hostvars[host]}
        action = action_of(instance_move, ports, variables, operation=operation, phase=phase, **options)
        return run_stage(action)

    def leave(self, **results: dict[str, t.Any]) -> None:
        """Leave results of stages of the controller."""
        for stage, result in results.items():
            results_of(WorldPorts(self.world, "m"), "instance_move").leave(stage, "localhost", result)


@pytest.fixture
def moved(world: World) -> Moves:
    """web went from h1 to h2, by a run ``m``, and waits to be confirmed."""
    world.report("h1", memory=1)
    uuid = world.boot("web")
    world.report("h2", memory=1)
    wanted = cold.Wanted(Selection(names=["web"]), ("h1", "h2"), {"h1": "qcow2", "h2": "qcow2"})
    with world.ledger.write() as tx:
        assert not cold.begin(tx.for_run(world.context("m")), wanted, world.fleet, world.options()).failed
    with world.ledger.write() as tx:
        cold_life.switch(tx.for_run(world.context("m")), [uuid])
    moves = Moves(world)
    leave_report(WorldPorts(world, "m"), "h1", {"reported": True})
    return moves


def confirms(world: World) -> None:
    with world.ledger.write() as tx:
        confirm.confirm(tx.for_run(world.context("c")), Selection(names=["web"]))


def item(world: World) -> dict[str, t.Any]:
    row = row_of(world, "web")
    return {
        "uuid": row.uuid, "name": "web", "domain": row.domain_name, "source": "h1", "destination": "h2", "runs": True,
        "disks": {"sizes": {}, "made": [], "left_behind": []}, "files": True, "details": {}, "vm_state": "active", "disk_changes": [],
        "made_for": "m-1",
    }  # fmt: skip


def test_a_move_that_wakes_up_when_it_is_confirmed_takes_nothing_from_the_only_host_with_the_disks(
    moved: Moves,
) -> None:
    world = moved.world
    its = item(world)
    settles(world, "h2")
    confirms(world)
    assert world.state(its["uuid"]) == ("active", None, "h2")
    switched = {"to_settle": [its["uuid"]], "switched": [its["uuid"]], "lost": [], "problems": {}}
    moved.leave(begin={"instances": [its]}, switch=switched)
    settled = moved.move("h2", "migrate", "settle")
    assert moved.did == [] and moved.removed == []
    assert not settled["outcomes"][its["uuid"]]["cleaned"]


def test_a_revert_that_wakes_up_when_the_move_is_confirmed(moved: Moves) -> None:
    world = moved.world
    with world.ledger.write() as tx:
        done = cold_life.finish(
            tx.for_run(world.context("m")),
            cold_life.MIGRATE,
            {row_of(world, "web").uuid: cold_life.Result(states.RUNNING)},
        )
        assert not done
    begun = moved.move("localhost", "revert_resize", "begin", names=["web"])
    moved.move("localhost", "revert_resize", "switch")
    settles(world, "h2")
    confirms(world)
    moved.move("h2", "revert_resize", "settle")
    assert moved.did == [] and moved.removed == []
    back = moved.move("localhost", "revert_resize", "back")
    assert not back["start"] and not back["reconnect"]
    failed = moved.move("localhost", "revert_resize", "finish")
    assert failed["failed_items"] and world.state(begun["instances"][0]["uuid"]) == ("active", None, "h2")


def test_a_revert_that_nobody_disturbs_cleans_the_new_host_and_starts_the_guest_on_the_former_one(moved: Moves) -> None:
    """What is left alone of others is done with its own."""
    world = moved.world
    uuid = row_of(world, "web").uuid
    with world.ledger.write() as tx:
        assert not cold_life.finish(
            tx.for_run(world.context("m")), cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING)}
        )
    moved.move("localhost", "revert_resize", "begin", names=["web"])
    moved.move("localhost", "revert_resize", "switch")
    settled = moved.move("h2", "revert_resize", "settle")
    assert moved.did == [("instance_cleanup", uuid)] and settled["outcomes"][uuid]["cleaned"]
    moved.move("localhost", "revert_resize", "back")
    moved.move("h1", "revert_resize", "return")
    assert [(host, state, a["uuid"]) for host, state, a in moved.asked] == [("h1", "running", uuid)]
    assert "failed" not in moved.move("localhost", "revert_resize", "finish")
    assert world.state(uuid) == ("active", None, "h1") and world.claims() == {(uuid, "h1")} and not world.cleanups()


@pytest.mark.parametrize("dies", [False, True])
def test_a_guest_that_comes_back_does_not_have_a_volume_that_was_detached_meanwhile(moved: Moves, dies: bool) -> None:
    """The definition on its former host has it still, and the volume may be another guest's there by now."""
    world = moved.world
    uuid = row_of(world, "web").uuid
    with world.ledger.write() as tx:
        assert not cold_life.finish(
            tx.for_run(world.context("m")), cold_life.MIGRATE, {uuid: cold_life.Result(states.RUNNING)}
        )
    world.time += 10
    with world.ledger.write() as tx:
        history.start_actions(tx.for_run(world.context("v")), [uuid], "detach_volume", "req", "default", "ann")
    world.time += 10
    moved.move("localhost", "revert_resize", "begin", names=["web"])
    moved.move("localhost", "revert_resize", "switch")
    moved.move("h2", "revert_resize", "settle")
    moved.move("localhost", "revert_resize", "back")
    if dies:
        settles(world, "h1", power_state=states.SHUTDOWN)
        assert not moved.play("start", names=["web"]).get("failed_items")
    else:
        moved.move("h1", "revert_resize", "return")
        assert "failed" not in moved.move("localhost", "revert_resize", "finish")
    assert moved.did == [("instance_cleanup", uuid), ("domain", uuid)], "it is defined again, and not started as it was"
    assert moved.asked == [] and world.state(uuid) == ("active", None, "h1")


def test_a_move_whose_instance_is_deleted_leaves_nothing_on_its_new_host(moved: Moves) -> None:
    world = moved.world
    its = item(world)
    switched = {"to_settle": [its["uuid"]], "switched": [its["uuid"]], "lost": [], "problems": {}}
    moved.leave(begin={"instances": [its]}, switch=switched)
    moved.meanwhile = ("domain", deletes(world))
    moved.move("h2", "migrate", "settle")
    assert moved.did[-1] == ("instance_cleanup", its["uuid"]) and not world.cleanups() and not world.claims()


def test_an_evacuation_whose_instance_is_deleted(hosts: Hosts) -> None:
    world = hosts.world
    uuid = row_of(world, "web").uuid
    force_down(world)
    hosts.meanwhile = ("domain", deletes(world))
    assert hosts.evacuate(names=["web"])["failed"]
    assert hosts.did[-1] == ("instance_cleanup", uuid) and not world.cleanups() and not world.claims()


# --- boot ---------------------------------------------------------------------------------------------------------------


def test_a_build_that_ends_when_another_run_has_made_it_active_there(world: World) -> None:
    boot = Boot(world, count=1)
    (host,) = boot.schedule(2)
    (uuid,) = boot.uuids

    def slow(arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        boot.answers.clear()
        world.time += LONG
        with world.ledger.write() as tx:
            tx.execute(
                tables.instances.update().values(
                    vm_state=states.ACTIVE, task_state=None, run_id="run-z", launched_at=1.0
                )
            )
        return {"outcomes": {d["uuid"]: {"power_state": states.RUNNING, "error": None} for d in arguments["domains"]}}

    boot.answers["domain"] = slow
    boot.task(boot_build, host)
    assert "instance_cleanup" not in boot.modules and world.state(uuid) == ("active", None, host)
    assert not world.cleanups()


@pytest.mark.parametrize("taken", [True, False])
def test_builds_that_were_handed_over_before_the_run_stood_still(world: World, taken: bool) -> None:
    """What another run has finished meanwhile is left alone; what nobody has taken over is built."""
    boot = Boot(world, count=1)
    (host,) = boot.schedule(2)
    (uuid,) = boot.uuids
    world.time += LONG
    if taken:
        with world.ledger.write() as tx:
            values = {"vm_state": states.ACTIVE, "task_state": None, "run_id": "run-z", "launched_at": 1.0}
            tx.execute(tables.instances.update().values(**values))
    boot.task(boot_build, host)
    assert ("domain" in boot.modules) is not taken
    assert world.state(uuid)[0] == states.ACTIVE and "instance_cleanup" not in boot.modules and not world.cleanups()
