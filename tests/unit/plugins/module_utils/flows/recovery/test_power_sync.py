# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts report of their guests, in the ledger: power states, stops, and who else works on an instance meanwhile."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery.power_sync import (
    STOP,
    Noticed,
    Report,
    Synced,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

RUNNING, PAUSED, OFF, CRASHED = states.RUNNING, states.POWER_PAUSED, states.SHUTDOWN, states.CRASHED


def follow(world: World, run: str = "s", ago: float = 0.0, host: str = "h1", **guests: int) -> Synced:
    """The sync of a run after ``host`` said what it runs, asked so many seconds ago."""
    world.time += 1
    with world.ledger.write() as tx:
        return power_sync.settle_and_sync(tx.for_run(world.context(run)), {host: Report(world.time - ago, guests)})


def put(world: World, uuid: str, **values: t.Any) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == uuid).values(**values))


def end(world: World, uuid: str, error: errors.BootflowError | None = None, run: str = "s") -> dict[str, t.Any]:
    """What its host did of the operation stop."""
    with world.ledger.write() as tx:
        return operation.finish(tx.for_run(world.context(run)), STOP, {uuid: Outcome(OFF, error)})


def is_now(world: World, uuid: str) -> tuple[str, str | None, int]:
    row = world.row(uuid)
    return row.vm_state, row.task_state, row.power_state


def journal(world: World, uuid: str) -> tuple[list[t.Any], list[t.Any], list[str]]:
    """The actions, events and notifications of stops."""
    actions = world.rows(tables.instance_actions, tables.instance_actions.c.instance_uuid == uuid)
    events = world.rows(tables.instance_action_events, tables.instance_action_events.c.instance_uuid == uuid)
    told = world.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)
    return (
        [(a.message, a.request_id, a.user_name, a.finish_time is not None) for a in actions if a.action == "stop"],
        [(e.host, e.result) for e in events if e.event == "stop"],
        [n.event_type.removeprefix("compute.instance.") for n in told if "power_off" in n.event_type],
    )


@pytest.fixture
def web(world: World) -> str:
    """An active instance on h1."""
    world.report("h1")
    return world.boot("web")


def test_a_guest_that_shut_down_is_stopped(world: World, web: str) -> None:
    used = world.used("h1")
    synced = follow(world, **{web: OFF})
    (found,) = synced.differences
    assert (found.name, found.vm_state, found.power_state, found.reported) == ("web", "active", RUNNING, OFF)
    assert (found.action, found.reason) == ("stop", "Instance shutdown by itself. Calling the stop API.")
    assert synced.stopped == {web} and not synced.to_stop and synced.changed
    assert is_now(world, web) == (states.STOPPED, None, OFF) and world.used("h1") == used, "it keeps its claim"
    ended = ["power_off.start", "power_off.end"]
    assert journal(world, web) == ([(None, "req-s", "ann", True)], [("h1", "Success")], ended)
    before = world.everything()
    again = follow(world, **{web: OFF})
    assert not again.differences and not again.changed and world.everything() == before


def test_its_change_of_state_is_notified(world: World, web: str) -> None:
    world.time += 1
    context = world.context("s", notify_on_state_change="vm_and_task_state")
    with world.ledger.write() as tx:
        power_sync.settle_and_sync(tx.for_run(context), {"h1": Report(world.time, {web: OFF})})
    told = world.rows(tables.notifications, tables.notifications.c.event_type == "compute.instance.update")
    passed = [(n.payload["state"], n.payload["new_task_state"]) for n in told]
    assert passed == [("active", "powering-off"), ("stopped", None)]


def test_a_guest_that_runs_although_it_is_stopped(world: World, web: str) -> None:
    follow(world, **{web: OFF})
    synced = follow(world, **{web: RUNNING})
    assert [r.uuid for r in synced.to_stop] == [web] and not synced.stopped
    assert synced.differences[0].action == "force_stop"
    assert is_now(world, web) == (states.STOPPED, states.POWERING_OFF, RUNNING)
    assert end(world, web) == {} and is_now(world, web) == (states.STOPPED, None, OFF)
    assert journal(world, web)[1] == [("h1", "Success")] * 2


def test_a_stop_that_fails_is_tried_again_by_the_next_sync(world: World, web: str) -> None:
    follow(world, **{web: OFF})
    for _attempt in range(2):
        assert [r.uuid for r in follow(world, **{web: RUNNING}).to_stop] == [web]
        assert set(end(world, web, errors.LibvirtError(reason="no"))) == {web}
        assert is_now(world, web) == (states.STOPPED, None, RUNNING) and world.fault(web).error_code == "LibvirtError"
    assert follow(world, **{web: RUNNING}).to_stop and end(world, web) == {}
    assert [e[1] for e in journal(world, web)[1]] == ["Success", "Error", "Error", "Success"]


def test_a_run_that_dies_while_it_stops(world: World, web: str) -> None:
    follow(world, **{web: OFF})
    follow(world, "dead", **{web: RUNNING})
    assert not follow(world, **{web: RUNNING}).differences, "the run is alive"
    world.time += 601
    assert not follow(world, **{web: RUNNING}).to_stop, "it is settled first"
    assert is_now(world, web) == (states.STOPPED, None, RUNNING)
    assert [r.uuid for r in follow(world, **{web: RUNNING}).to_stop] == [web]
    world.time += 601
    follow(world, "later", **{web: OFF})
    assert is_now(world, web) == (states.STOPPED, None, OFF)
    assert [result for _host, result in journal(world, web)[1]] == ["Success", "Error", "Success"]
    assert end(world, web, run="dead")[web].code == "UnexpectedTaskStateError", "it came late"


ONLY_TOLD = [
    ("active", PAUSED, "Instance is paused unexpectedly. Ignore."),
    ("active", None, "Instance is unexpectedly not found. Ignore."),
    ("suspended", OFF, ""),
    ("error", OFF, ""),
]


@pytest.mark.parametrize(("vm_state", "power_state", "reason"), ONLY_TOLD)
def test_what_is_only_written(world: World, web: str, vm_state: str, power_state: int | None, reason: str) -> None:
    put(world, web, vm_state=vm_state)
    guests = {} if power_state is None else {web: power_state}
    synced = follow(world, **guests)
    assert [(f.action, f.reason) for f in synced.differences] == [(None, reason)] and synced.changed
    assert is_now(world, web) == (vm_state, None, power_state or states.NOSTATE) and journal(world, web)[0] == []
    again = follow(world, **guests)
    assert [f.reason for f in again.differences] == ([reason] if reason else []), "Nova warns at each sync"
    assert not again.changed


def test_a_paused_guest_that_is_off(world: World, web: str) -> None:
    put(world, web, vm_state=states.PAUSED, power_state=PAUSED)
    assert follow(world, **{web: OFF}).stopped == {web}
    assert is_now(world, web) == (states.STOPPED, None, OFF)


@pytest.mark.parametrize(("vm_state", "power_state"), [(states.ACTIVE, RUNNING), (states.PAUSED, PAUSED)])
def test_what_is_left_of_a_crashed_guest_is_taken_by_its_host(
    world: World, web: str, vm_state: str, power_state: int
) -> None:
    """As by Nova's stop: it ends in SHUTDOWN."""
    put(world, web, vm_state=vm_state, power_state=power_state)
    synced = follow(world, **{web: CRASHED})
    assert not synced.stopped and [r.uuid for r in synced.to_stop] == [web]
    assert end(world, web) == {} and is_now(world, web) == (states.STOPPED, None, OFF)


def test_a_guest_that_suspended_itself_is_stopped_by_its_host(world: World, web: str) -> None:
    assert [r.uuid for r in follow(world, **{web: states.POWER_SUSPENDED}).to_stop] == [web]
    assert end(world, web) == {} and is_now(world, web) == (states.STOPPED, None, OFF)


def test_a_lock_does_not_keep_it_from_the_sync(world: World, web: str) -> None:
    put(world, web, locked_by="bob")
    assert follow(world, **{web: OFF}).stopped == {web}
    assert world.row(web).locked_by == "bob"


# --- others at work -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_state", [states.POWERING_ON, states.DELETING, states.REBOOTING, states.SPAWNING])
def test_who_is_at_work_is_left_alone(world: World, web: str, task_state: str) -> None:
    world.time += 1
    with world.ledger.write() as tx:
        operation.begin(tx.for_run(world.context("o")), STOP, Selection(uuids=[web]), ("h1",))
    put(world, web, task_state=task_state)
    before = world.everything()
    assert not follow(world, **{web: OFF}).differences and world.everything() == before


def test_what_was_written_after_the_host_was_asked_is_left_alone(world: World, web: str) -> None:
    """The host said that it runs; then it was stopped."""
    follow(world, **{web: OFF})
    before = world.everything()
    assert not follow(world, ago=5, **{web: RUNNING}).differences and world.everything() == before


def test_an_instance_that_moved_meanwhile(world: World, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first reading and the lock."""
    world.report("h2")
    real = power_sync.instances.powers

    def moved(tx: t.Any, **which: t.Any) -> t.Any:
        if "uuids" in which:
            tx.execute(tables.instances.update().where(tables.instances.c.uuid == web).values(host="h2"))
        return real(tx, **which)

    monkeypatch.setattr(power_sync.instances, "powers", moved)
    assert not follow(world, **{web: OFF}).differences
    assert is_now(world, web) == (states.ACTIVE, None, RUNNING)
    put(world, web, host="h1")


def test_of_two_syncs_at_once_one_stops_it(world: World, web: str) -> None:
    follow(world, **{web: OFF})
    world.time += 1
    begun: list[int] = []
    start = threading.Barrier(4)

    def one(run: str) -> None:
        ledger = database.open_ledger(world.url)
        try:
            start.wait()
            reports = {"h1": Report(world.time, {web: RUNNING})}
            begun.append(len(ledger.for_run(world.context(run)).transact(power_sync.settle_and_sync, reports).to_stop))
        finally:
            ledger.close()

    threads = [threading.Thread(target=one, args=("r%d" % n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(begun) == [0, 0, 0, 1] and len(journal(world, web)[0]) == 2


# --- events ---------------------------------------------------------------------------------------------------------------


def notice(world: World, uuid: str, *events: str, now: int, ago: float = 0.0, host: str = "h1") -> Synced:
    """Events of a guest, whose host said afterwards what it is."""
    world.time += 1
    with world.ledger.write() as tx:
        its = Noticed(world.time - ago, {uuid: events}, {uuid: now} if now else {})
        return power_sync.follow_events(tx.for_run(world.context("w")), {host: its})


def test_an_event_stops_what_shut_itself_down(world: World, web: str) -> None:
    synced = notice(world, web, "Stopped", now=OFF)
    assert synced.stopped == {web} and synced.changed
    assert synced.differences[0].reason == "Instance shutdown by itself. Calling the stop API."
    assert is_now(world, web) == (states.STOPPED, None, OFF)
    ended = ["power_off.start", "power_off.end"]
    assert journal(world, web) == ([(None, "req-w", "ann", True)], [("h1", "Success")], ended)
    before = world.everything()
    assert not notice(world, web, "Stopped", now=OFF).changed
    assert {k: v for k, v in world.everything().items() if k != "runs"} == {
        k: v for k, v in before.items() if k != "runs"
    }


LATE = [
    (["Stopped"], RUNNING),  # it was started again
    (["Stopped"], states.NOSTATE),  # it is gone
    (["Stopped"], PAUSED),
    (["Started"], OFF),
    (["Defined"], OFF),
    (["Stopped", "Started"], CRASHED),
]


@pytest.mark.parametrize(("events", "now"), LATE)
def test_nothing_follows_from_an_event_that_comes_late(world: World, web: str, events: list[str], now: int) -> None:
    assert notice(world, web, *events, now=now) == Synced()
    assert is_now(world, web) == (states.ACTIVE, None, RUNNING)


def test_of_several_events_the_one_that_still_holds_counts(world: World, web: str) -> None:
    assert not notice(world, web, "Stopped", "Started", now=RUNNING).changed
    assert notice(world, web, "Stopped", "Started", "Stopped", now=OFF).stopped == {web}


def test_other_events_write_the_power_state(world: World, web: str) -> None:
    assert notice(world, web, "Paused", now=PAUSED).written == {web}
    assert is_now(world, web) == (states.ACTIVE, None, PAUSED)
    assert notice(world, web, "Resumed", now=RUNNING).written == {web}
    crashed = notice(world, web, "Crashed", now=CRASHED)
    assert not crashed.stopped and [f.action for f in crashed.differences] == ["stop"], "its host still has it"
    assert is_now(world, web) == (states.ACTIVE, None, CRASHED)


def test_an_event_takes_no_guests_power(world: World, web: str) -> None:
    follow(world, **{web: OFF})
    synced = notice(world, web, "Started", now=RUNNING)
    assert [(f.action, f.reason) for f in synced.differences] == [
        ("force_stop", "Instance is not stopped. Calling the stop API.")
    ]
    assert not synced.to_stop and is_now(world, web) == (states.STOPPED, None, RUNNING)
    assert [r.uuid for r in follow(world, **{web: RUNNING}).to_stop] == [web], "the next sync does"


def test_an_event_of_another_host_of_a_stranger_or_during_work_is_ignored(world: World, web: str) -> None:
    assert notice(world, web, "Stopped", now=OFF, host="h2") == Synced()
    assert notice(world, "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01", "Stopped", now=OFF) == Synced()
    put(world, web, task_state=states.REBOOTING)
    assert notice(world, web, "Stopped", now=OFF) == Synced(), "a reboot of ours"
    put(world, web, task_state=None)
    assert notice(world, web, "Stopped", now=OFF, ago=world.time) == Synced(), "written after its host was asked"
    assert notice(world, web, "Stopped", now=OFF).stopped == {web}


# --- many hosts -----------------------------------------------------------------------------------------------------------


def test_only_guests_that_are_off_are_stopped_by_a_report(world: World) -> None:
    """A boot, a heartbeat or a list that asks a host does not take a guest's power."""
    world.report("h1")
    off, on = world.boot("off"), world.boot("on")
    follow(world, **{off: RUNNING, on: OFF})
    world.time += 1
    with world.ledger.write() as tx:
        synced = power_sync.sync(tx.for_run(world.context("s")), {"h1": Report(world.time, {off: OFF, on: RUNNING})})
    assert (synced.stopped, synced.to_stop) == ({off}, []) and len(synced.differences) == 2
    assert is_now(world, off) == (states.STOPPED, None, OFF)
    assert is_now(world, on) == (states.STOPPED, None, RUNNING), "what the host says, and no more"
    assert [r.uuid for r in follow(world, **{off: OFF, on: RUNNING}).to_stop] == [on]


def test_numbers_that_differ(world: World, web: str) -> None:
    world.report("h2")
    world.time += 1
    reports = {"h1": Report(world.time, {web: RUNNING, "another": OFF}), "h2": Report(world.time, {})}
    with world.ledger.write() as tx:
        synced = power_sync.settle_and_sync(tx.for_run(world.context("s")), reports)
    assert (synced.counts, synced.compared, synced.changed) == ({"h1": (1, 2)}, 1, False)


def test_the_work_is_in_proportion_to_what_differs(world: World) -> None:
    """Whatever the number of hosts and instances: two statements where nothing differs, and the same number for one and for many."""
    hosts = ["h%d" % n for n in range(1, 6)]
    for host in hosts:
        world.report(host, memory=8)
    uuids = world.accept(request("web", 30)).created
    world.schedule()
    for host in hosts:
        world.build(host)
    on = {u: world.row(u).host for u in uuids}
    are_off: set[str] = set()

    def cost(off: t.Collection[str], hosts: t.Collection[str]) -> list[str]:
        world.time += 1
        are_off.update(off)
        guests = {u: OFF if u in are_off else RUNNING for u in uuids}
        reports = {h: Report(world.time, {u: p for u, p in guests.items() if on[u] == h}) for h in hosts}
        with world.ledger.write() as tx, counted(world.ledger) as found:
            synced = power_sync.settle_and_sync(tx.for_run(world.context("s")), reports)
        assert synced.stopped == set(off) and not synced.counts
        return [statement for statement, _parameters in found]

    assert len(cost([], hosts)) == len(cost([], hosts[:1])) == 2
    one, many = cost(uuids[:1], hosts), cost(uuids[1:21], hosts)
    assert len(one) == len(many), "\n".join(many)
