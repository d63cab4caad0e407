# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A build whose run is dead, and whose guest is built on its host: the instance is active, or keeps what it has. Any other ends, and its host is cleaned."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, power_states, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.dead_builds import Seen
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import dead_builds, leases, power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery.dead_builds import Settled
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, history, ports, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import UNTIL, World, request

LONG = 1e6
BUILT = Seen(True, power_states.RUNNING, "web")


def expire(world: World, run: str = "other", asked: t.Collection[str] = ("h1",)) -> leases.Expired:
    with world.ledger.write() as tx:
        return leases.expire(tx.for_run(world.context(run)), asked)


def settle(world: World, seen: t.Mapping[str, Seen], run: str = "other", asked_at: float = 0.0) -> Settled:
    """The report of h1, which was asked just now."""
    with world.ledger.write() as tx:
        return dead_builds.settle_builds(tx.for_run(world.context(run)), "h1", seen, asked_at or world.time)


def check(world: World) -> None:
    with world.ledger.read() as tx:
        world.check(tx)


def events(world: World, uuid: str) -> list[tuple[str, str | None]]:
    with world.ledger.read() as tx:
        return [(e["event"], e["result"]) for e in history.events_of(tx, uuid)]


@pytest.mark.parametrize("until", [*UNTIL])
@pytest.mark.parametrize("power_state", [power_states.RUNNING, power_states.SHUTDOWN])
def test_a_guest_that_is_built_is_adopted(world: World, until: str, power_state: int) -> None:
    """Whatever the ledger knew of its build: a backup is older."""
    world.report("h1")
    uuid = world.boot("web", until, run="dead")
    before = (world.claims(), world.addresses(uuid), world.used("h1"))
    world.time += LONG
    assert expire(world) == leases.Expired([], ["h1"]), "its host knows more"
    assert world.state(uuid)[0] == states.BUILDING
    settled = settle(world, {uuid: Seen(True, power_state, "web-2")})
    assert settled.vm_states == {uuid: states.ACTIVE} and settled.adopted == {uuid: "web"}
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.host) == (states.ACTIVE, None, "h1")
    assert (row.power_state, row.domain_name, row.launched_at) == (power_state, "web-2", world.time)
    assert (world.claims(), world.addresses(uuid), world.used("h1")) == before and not world.cleanups()
    assert {result for _event, result in events(world, uuid)} == {"Success"}
    (action,) = world.rows(tables.instance_actions)
    assert action.finish_time is not None and action.message is None
    assert expire(world, "third") == leases.Expired([], [])
    assert world.accept(request("web"), run="again").unchanged == [uuid]
    check(world)
    world.time += 60.0
    with world.ledger.write() as tx:  # and follows its guest from now on
        power_sync.sync(
            tx.for_run(world.context()), {"h1": power_sync.Report(world.time, {uuid: power_states.SHUTDOWN})}
        )
    assert world.state(uuid)[0] == states.STOPPED


@pytest.mark.parametrize("until", [*UNTIL])
@pytest.mark.parametrize("seen", [Seen(), Seen(False, power_states.RUNNING), Seen(False, power_states.SHUTDOWN)])
def test_a_guest_that_is_not_built_is_cleaned(world: World, until: str, seen: Seen) -> None:
    """One that was started, and was still waited for, too."""
    world.report("h1")
    uuid = world.boot("web", until, run="dead")
    world.time += LONG
    expire(world)
    assert settle(world, {uuid: seen}).vm_states == {uuid: states.ERROR}
    assert world.state(uuid) == (states.ERROR, None, None) and "run-dead died" in world.fault(uuid).message
    assert world.cleanups() == world.claims() == {(uuid, "h1")}
    check(world)
    with world.ledger.write() as tx:
        cleanup.finish(tx, {"h1": [uuid]})
    assert not world.claims() and not world.addresses(uuid)
    assert world.accept(request("web"), run="again").resumed == [uuid]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen(True), "h1 has its disks, and no domain of it"),
        (Seen(True, power_states.SHUTDOWN, "web", moves.LEFT), "its guest has left h1"),
    ],
)
def test_what_cannot_be_active_is_kept_in_error(world: World, seen: Seen, words: str) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="dead")
    before = (world.claims(), world.addresses(uuid), world.used("h1"))
    world.time += LONG
    assert settle(world, {uuid: seen}).kept_builds == {uuid: "web"}
    assert world.state(uuid) == (states.ERROR, None, "h1") and words in world.fault(uuid).message
    assert world.fault(uuid).remedy
    assert (world.claims(), world.addresses(uuid), world.used("h1")) == before and not world.cleanups()
    check(world)
    assert expire(world, "third") == leases.Expired([], [])
    assert world.accept(request("web"), run="again").unchanged == [uuid], "it is not built a second time"
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    assert world.finish() == (["web"], []) and not world.claims() and not world.addresses()


@pytest.mark.parametrize("moving", ["", moves.ENDED_HERE, moves.FAILED_HERE])
def test_a_guest_whose_addresses_the_ledger_does_not_have_is_kept(world: World, moving: str) -> None:
    """Also one that is off: it has not left its host."""
    world.report("h1")
    uuid = world.boot("web", "scheduled", run="dead")
    with world.ledger.write() as tx:  # as of a build that was to begin again on its next host
        ports.release(tx, [uuid])
    world.time += LONG
    seen = Seen(True, power_states.SHUTDOWN, "web", moving) if moving else BUILT
    assert settle(world, {uuid: seen}).kept_builds == {uuid: "web"}
    assert "does not have all of its volumes and addresses" in world.fault(uuid).message


@pytest.mark.parametrize("seen", [Seen(True, 1, at_work=True), Seen(at_work=True), Seen(True, 1, moving=moves.LEAVES)])
def test_what_goes_on_is_waited_for(world: World, seen: Seen) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="dead")
    world.time += LONG
    before = world.everything()
    assert not settle(world, {uuid: seen}).vm_states
    assert world.everything() == before
    assert settle(world, {uuid: BUILT}).adopted


@pytest.mark.parametrize("seen", [Seen(), BUILT])
def test_a_live_run_loses_nothing(world: World, seen: Seen) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="slow")
    for _each in range(3):
        world.time += 500.0
        with world.ledger.write() as tx:
            runs.renew(tx.for_run(world.context("slow")))
        before = world.everything()
        assert expire(world) == leases.Expired([], []) and not settle(world, {uuid: seen}).vm_states
        assert world.everything() == before
    assert world.spawned("h1", [uuid], "slow") == ([uuid], [])


def test_a_report_that_is_older_than_the_build_says_nothing(world: World) -> None:
    world.report("h1")
    asked_at = world.time
    world.time += 1.0
    uuid = world.boot("web", "spawning", run="dead")
    world.time += LONG
    assert not settle(world, {uuid: Seen()}, asked_at=asked_at).vm_states
    assert settle(world, {uuid: Seen()}).ended


def test_a_boot_that_took_the_build_over_goes_on_with_it(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="dead")
    world.time += LONG
    assert world.accept(request("web"), run="again").resumed == [uuid]
    world.time += 1.0
    assert expire(world) == leases.Expired([], []) and not settle(world, {uuid: Seen()}).vm_states
    world.build("h1", run="again")
    assert world.state(uuid) == (states.ACTIVE, None, "h1")


@pytest.mark.parametrize("seen", [BUILT, Seen(True)])
def test_the_late_worker_of_a_run_that_was_believed_dead_removes_nothing(world: World, seen: Seen) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="slow")
    world.time += LONG
    settle(world, {uuid: seen})
    before = world.everything()
    assert world.spawned("h1", [uuid], "slow") == ([], [uuid])
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("slow"))
        assert (
            not cleanup.left_behind(of_run, uuid, "h1", "it was taken over")
            and not cleanup.lost_on(of_run, "h1", [uuid]).domains_to_remove
        )
    after = world.everything()
    assert {n: rows for n, rows in after.items() if rows != before[n]}.keys() <= {"instance_action_events"}


# --- the host is not asked, or does not answer -------------------------------------------------------------------------------


def silent(world: World, run: str = "other") -> None:
    with world.ledger.write() as tx:
        leases.host_is_silent(tx.for_run(world.context(run)), "h1", "no route")


def conditions(world: World, uuid: str) -> cleanups.Condition:
    with world.ledger.read() as tx:
        return cleanups.conditions(tx, "h1", [uuid])[uuid]


@pytest.mark.parametrize("asked", [True, False])
def test_what_a_silent_host_has_built_is_not_removed_when_it_answers(world: World, asked: bool) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="dead")
    world.time += LONG
    if asked:
        assert expire(world).to_ask == ["h1"]
        silent(world)
        (node,) = world.rows(tables.compute_nodes)
        assert node.unreachable_reason == "no route"
    else:
        assert expire(world, asked=()) == leases.Expired(["h1"], [])
    assert world.state(uuid) == (states.ERROR, None, None) and "run-dead died" in world.fault(uuid).message
    assert world.cleanups() == world.claims() == {(uuid, "h1")}
    check(world)
    due = conditions(world, uuid)
    assert due.unfinished and not due.made_for and due.due_at == world.time
    world.time += 60.0
    assert not settle(world, {uuid: BUILT}).vm_states


@pytest.mark.parametrize("how", ["deleting", "deleted", "booted"])
def test_what_a_person_ends_is_removed(world: World, how: str) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="dead")
    world.time += LONG
    expire(world, asked=())
    if how != "booted":
        world.delete(uuids=[uuid])
        if how == "deleted":
            world.finish(force=True)
            assert world.rows(tables.instances)[0].deleted
    else:
        assert world.accept(request("web"), run="again").resumed == [uuid]
    assert not conditions(world, uuid).unfinished


def test_a_live_run_s_own_failure_is_cleaned_as_before(world: World) -> None:
    world.report("h1"), world.report("h2")
    uuid = world.boot("web", "spawning")
    host = world.row(uuid).host
    world.fail(host, uuid, errors.RemoteError(reason="x"), cleaned=False, cleanup_reason="y", unreachable=True)
    with world.ledger.read() as tx:
        assert not cleanups.conditions(tx, host, [uuid])[uuid].unfinished


# --- volumes -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def golden(bworld: BootWorld) -> BootWorld:
    """A host, and a volume "golden" that can be booted from."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("golden", image="cirros")
    return bworld


def boot(world: BootWorld, until: str) -> str:
    return world.boot_of(volume_request("web", device("volume", "golden", 0)), until=until, run="dead")[0]


@pytest.mark.parametrize("until", ["block_device_mapping", "spawning"])
def test_the_volumes_of_a_guest_that_is_built_are_in_use(golden: BootWorld, until: str) -> None:
    uuid = boot(golden, until)
    assert golden.ends("golden") == ("attaching", "done", "done")
    golden.time += LONG
    expire(golden)
    assert settle(golden, {uuid: BUILT}).adopted
    assert golden.state(uuid) == (states.ACTIVE, None, "h1")
    assert golden.ends("golden") == ("attached", "done", "done") and golden.status("golden") == "in-use"
    assert golden.attachment("golden").run_id is None and golden.volume("golden").run_id is None
    golden.time += LONG
    before = golden.everything()
    expire(golden, "third")
    assert golden.everything() == before
    check(golden)


@pytest.mark.parametrize("until", ["exported", "networking"])
def test_a_guest_whose_volumes_the_ledger_does_not_have_connected_is_kept(golden: BootWorld, until: str) -> None:
    uuid = boot(golden, until)
    golden.time += LONG
    assert settle(golden, {uuid: BUILT}).kept_builds
    assert golden.state(uuid) == (states.ERROR, None, "h1")
    held = (golden.ends("golden"), golden.status("golden"))
    golden.time += LONG
    expire(golden, "third")
    golden.storage_round("third")
    assert (golden.ends("golden"), golden.status("golden")) == held, "the guest may use it"
    check(golden)


@pytest.mark.parametrize("until", ["exported", "spawning"])
def test_the_volumes_of_a_guest_that_is_not_built_go_back(golden: BootWorld, until: str) -> None:
    uuid = boot(golden, until)
    golden.time += LONG
    expire(golden)
    assert settle(golden, {}).ended == {uuid: "web"}
    with golden.ledger.write() as tx:
        golden.connections.clear()
        cleanup.finish(tx, {"h1": [uuid]})
    golden.storage_round("other")
    assert (golden.status("golden"), golden.live_attachments()) == ("available", [])
