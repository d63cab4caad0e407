# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operations on instances: what may begin, what came of it, and what a run leaves that dies in between."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as core_audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Operation, Outcome
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import (
    BY_TASK_STATE,
    OPERATIONS,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import dead_runs
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database, purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

STOP, START = OPERATIONS["stop"], OPERATIONS["start"]
HOSTS = tuple("h%d" % n for n in range(1, 30))
POWER = {
    "stop": states.SHUTDOWN,
    "start": states.RUNNING,
    "pause": states.POWER_PAUSED,
    "unpause": states.RUNNING,
    "suspend": states.SHUTDOWN,  # its memory is in a file: libvirt does not run it
    "resume": states.RUNNING,
    "soft_reboot": states.RUNNING,
    "hard_reboot": states.RUNNING,
    "trigger_crash_dump": states.RUNNING,
}
FIRST = {"start": "stop", "unpause": "pause", "resume": "suspend"}  # what makes the state in which it may begin


def begin(
    world: World, name: str | Operation = "stop", run: str = "o", hosts: t.Collection[str] = HOSTS, **which: t.Any
) -> operation.Begun:
    its = OPERATIONS[name] if isinstance(name, str) else name
    context = {k: which.pop(k) for k in ("notify_on_state_change",) if k in which}
    with world.ledger.write() as tx:
        return operation.begin(tx.for_run(world.context(run, **context)), its, operation.Selection(**which), hosts)


def finish(world: World, outcomes: t.Mapping[str, t.Any], name: str = "stop", run: str = "o") -> dict[str, t.Any]:
    """:arg outcomes: uuid -> an error, or None where it went well."""
    told = {u: Outcome(POWER[name]) if e is None else Outcome(error=e) for u, e in outcomes.items()}
    with world.ledger.write() as tx:
        return operation.finish(tx.for_run(world.context(run)), OPERATIONS[name], told)


def do(world: World, name: str = "stop", run: str = "o", **which: t.Any) -> list[str]:
    uuids = [r.uuid for r in begin(world, name, run, **which).rows]
    assert finish(world, dict.fromkeys(uuids), name, run) == {}
    return uuids


def put(world: World, uuid: str, **values: t.Any) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == uuid).values(**values))


def journal(world: World, uuid: str, name: str) -> tuple[list[t.Any], list[t.Any]]:
    actions = world.rows(tables.instance_actions, tables.instance_actions.c.instance_uuid == uuid)
    events = world.rows(tables.instance_action_events, tables.instance_action_events.c.instance_uuid == uuid)
    return (
        [(a.message, a.finish_time) for a in actions if a.action == getattr(OPERATIONS.get(name), "called", name)],
        [(e.host, e.result, e.details) for e in events if e.event == name],
    )


def told(world: World, uuid: str, kind: str) -> list[str]:
    found = world.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)
    return [n.event_type for n in found if kind in n.event_type]


def settle(
    world: World,
    host: str,
    run: str = "s",
    ago: float = 0.0,
    rescued: t.Collection[str] | None = None,
    at_work: t.Collection[str] = (),
    **power: int,
) -> dict[str, str]:
    world.time += 1
    with world.ledger.write() as tx:
        mine = tx.for_run(world.context(run))
        return recovery.settle_operations(mine, host, dict(power), world.time - ago, rescued, at_work=at_work)


def test_notifications_say_where_the_instance_is(world: World) -> None:
    """They said nothing."""
    world.report("h1")
    uuid = world.boot("web")
    do(world, names=["web"])
    found = world.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)
    assert [(n.event_type, n.payload) for n in found if "power_off" in n.event_type] == [
        ("compute.instance.power_off.start", {"host": "h1"}),
        ("compute.instance.power_off.end", {"host": "h1"}),
    ]


# --- the life of one ------------------------------------------------------------------------------------------------


def test_stop_and_start(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", project="p")
    used = world.used("h1")
    begun = begin(world, names=["web"])
    assert [r.uuid for r in begun.rows] == [uuid] and not begun.unchanged
    assert world.state(uuid) == (states.ACTIVE, states.POWERING_OFF, "h1")
    assert journal(world, uuid, "stop") == ([(None, None)], [("h1", None, None)])
    world.time += 5
    assert finish(world, {uuid: None}) == {}
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.power_state, row.host) == (states.STOPPED, None, states.SHUTDOWN, "h1")
    assert journal(world, uuid, "stop") == ([(None, world.time)], [("h1", "Success", None)])
    assert told(world, uuid, "power_") == ["compute.instance.power_off.start", "compute.instance.power_off.end"]
    action = world.rows(tables.instance_actions)[-1]
    assert (action.project, action.request_id, action.user_name) == ("p", "req-o", "ann")
    assert do(world, "start", names=["web"]) == [uuid]
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.power_state) == (states.ACTIVE, None, states.RUNNING)
    assert told(world, uuid, "power_on") == ["compute.instance.power_on.start", "compute.instance.power_on.end"]
    assert world.used("h1") == used, "a stopped instance keeps its claim"


def test_a_soft_deleted_instance_keeps_no_other_of_its_host_or_project_from_an_operation(world: World) -> None:
    world.report("h1")
    gone, web = world.boot("gone", project="p"), world.boot("web", project="p")
    put(world, gone, vm_state=states.SOFT_DELETED, power_state=states.SHUTDOWN)
    with world.ledger.write() as tx:
        begun = operation.begin(tx.for_run(world.context("o")), STOP, operation.Selection(hosts=["h1"]), HOSTS)
    assert [r.uuid for r in begun.rows] == [web] and finish(world, {web: None}) == {}
    assert do(world, "start", project="p", everything=True) == [web]
    for named in ({"names": ["gone", "web"]}, {"uuids": [gone]}, {"reservations": [world.row(gone).reservation_id]}):
        with pytest.raises(errors.InstanceInvalidState, match="soft-delete"):
            begin(world, project="p", **named)
    assert [r.uuid for r in begin(world, "restore", project="p", everything=True).rows] == [gone]


@pytest.mark.parametrize(
    ("name", "during", "vm_state"),
    [
        ("pause", states.PAUSING, states.PAUSED),
        ("unpause", states.UNPAUSING, states.ACTIVE),
        ("suspend", states.SUSPENDING, states.SUSPENDED),
        ("resume", states.RESUMING, states.ACTIVE),
    ],
)
def test_pause_and_suspend_and_back(world: World, name: str, during: str, vm_state: str) -> None:
    world.report("h1")
    uuid = world.boot("web")
    used = world.used("h1")
    if name in FIRST:
        do(world, FIRST[name], names=["web"])
    assert [r.uuid for r in begin(world, name, names=["web"]).rows] == [uuid]
    assert world.row(uuid).task_state == during
    assert finish(world, {uuid: None}, name) == {}
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.power_state) == (vm_state, None, POWER[name])
    assert journal(world, uuid, name) == ([(None, world.time)], [("h1", "Success", None)])
    assert told(world, uuid, ".%s." % name) == ["compute.instance.%s.start" % name, "compute.instance.%s.end" % name]
    assert world.used("h1") == used, "it keeps its claim"
    assert [r.uuid for r in begin(world, name, names=["web"]).unchanged] == [uuid], "nothing twice"


def test_what_is_so_already_is_left_alone(world: World) -> None:
    world.report("h1")
    one, two = world.boot("one"), world.boot("two")
    do(world, names=["one"])
    before = world.everything()
    begun = begin(world, names=["one"])
    assert (begun.rows, [r.uuid for r in begun.unchanged]) == ([], [one])
    assert world.everything() == before
    begun = begin(world, names=["one", "two"])
    assert ([r.uuid for r in begun.rows], [r.uuid for r in begun.unchanged]) == ([two], [one])


def test_a_failure_leaves_the_instance_as_it_was_and_its_neighbour_alone(world: World) -> None:
    world.report("h1")
    world.report("h2")
    uuids = world.accept(request("web", 3)).created
    for host in {p.host for p in world.schedule().placed.values()}:
        world.build(host)
    begin(world, names=["web-1", "web-2", "web-3"])
    away = errors.HostUnreachable(host=world.row(uuids[0]).host, reason="no route")
    failed = finish(world, {uuids[0]: away, uuids[1]: None, uuids[2]: errors.LibvirtError(reason="\0odd")})
    assert {u: e.code for u, e in failed.items()} == {uuids[0]: "HostUnreachable", uuids[2]: "LibvirtError"}
    assert [world.state(u)[:2] for u in uuids] == [
        (states.ACTIVE, None), (states.STOPPED, None), (states.ACTIVE, None),
    ]  # fmt: skip
    assert (world.fault(uuids[0]).error_code, world.fault(uuids[0]).host) == ("HostUnreachable", away.details["host"])
    actions, events = journal(world, uuids[0], "stop")
    assert actions == [("Error", world.time)] and events == [(away.details["host"], "Error", away.message)]
    assert told(world, uuids[0], "power_") == ["compute.instance.power_off.start", "compute.instance.power_off.error"]
    assert not world.rows(tables.instance_faults, tables.instance_faults.c.instance_uuid == uuids[1])
    assert do(world, names=["web-1"]) == [uuids[0]]  # again


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, a in states.ACTIONS.items() if a.during])
def test_every_action_begins_by_its_rule(world: World, name: str) -> None:
    """Of each vm_state and some task_states: what states.check_action says, or it is done already."""
    its = Operation(name, "x")
    world.report("h1")
    uuid = world.boot("web")
    known = states.ACTIONS[name]
    for vm_state in (v for v in states.VM_STATES if v != states.DELETED):
        for task_state in (None, states.REBOOTING, states.MIGRATING, known.during):
            with world.ledger.rehearse() as tx:
                values = {
                    "vm_state": vm_state,
                    "task_state": task_state,
                    "run_id": "run-z",
                    "power_state": states.NOSTATE,
                }
                tx.execute(tables.instances.update().values(**values))
                try:
                    begun = operation.begin(
                        tx.for_run(world.context("o")), its, operation.Selection(uuids=[uuid]), HOSTS
                    )
                    answer = "unchanged" if begun.unchanged else "begun"
                except errors.BootflowError as e:
                    answer = e.code
            expected = "begun"
            try:
                # run-z is unknown, so dead: what it left in the same operation is gone on with
                states.check_action(name, vm_state, None if its.is_begun(task_state) else task_state)
            except errors.BootflowError as e:
                expected = e.code
            if task_state is None and its.is_done(vm_state):
                expected = "unchanged"
            assert answer == expected, (vm_state, task_state)


@pytest.mark.parametrize(
    ("values", "name", "code", "text"),
    [
        ({"vm_state": states.PAUSED}, "stop", "InstanceInvalidState", "Cannot 'stop' instance %s while it is in vm_state paused"),
        ({"task_state": states.REBOOTING, "run_id": ""}, "stop", "InstanceInvalidState", "Cannot 'stop' instance %s while it is in task_state rebooting"),
        ({"launched_at": None}, "stop", "InstanceInvalidState", "Instance %s is in an invalid state for 'stop'"),
        ({"vm_state": states.BUILDING}, "start", "InstanceInvalidState", "Cannot 'start' instance %s while it is in vm_state building"),
        ({"host": "gone"}, "stop", "ComputeHostNotFound", "gone"),
        ({"host": None, "vm_state": states.ERROR}, "stop", "ComputeHostNotFound", "(none) of instance %s"),
    ],
)  # fmt: skip
def test_a_refusal_touches_nothing(world: World, values: dict[str, t.Any], name: str, code: str, text: str) -> None:
    world.report("h1")
    uuid, other = world.boot("web"), world.boot("other")
    put(world, uuid, **values)
    before = world.everything()
    with pytest.raises(errors.BootflowError) as caught:
        begin(world, name, names=["web"])
    assert caught.value.code == code and caught.value.remedy
    assert (text % uuid if "%" in text else text) in caught.value.message
    with pytest.raises(errors.BootflowError):
        begin(world, name, uuids=[uuid, other])
    assert world.everything() == before
    put(world, uuid, vm_state=states.ACTIVE, task_state=None, host="h1", launched_at=1.0)


def test_several_refusals_are_told_at_once(world: World) -> None:
    world.report("h1", memory=9)
    uuids = [world.boot("web-%d" % n) for n in range(7)]
    for uuid in uuids:
        put(world, uuid, vm_state=states.PAUSED)
    with pytest.raises(errors.InstanceInvalidState) as caught:
        begin(world, uuids=uuids)
    assert caught.value.message.count("Cannot 'stop'") == 5 and "and 2 more" in caught.value.message
    assert caught.value.status == 409
    for uuid in uuids:
        put(world, uuid, vm_state=states.ACTIVE)


def test_selecting(world: World) -> None:
    world.report("h1", memory=9)
    a = world.boot("a", project="p")
    b = world.boot("b", project="q")
    world.report("h2", memory=50)
    c = world.boot("c", project="q")
    host = world.row(c).host
    reservation = world.row(a).reservation_id
    cases: list[tuple[dict[str, t.Any], list[str]]] = [
        ({"names": ["a", "c"]}, [a, c]),
        ({"uuids": [b]}, [b]),
        ({"reservations": [reservation]}, [a]),
        ({"hosts": [host]}, [u for u in (a, b, c) if world.row(u).host == host]),
        ({"hosts": [host], "project": "p"}, [u for u in (a,) if world.row(u).host == host]),
        ({"project": "q", "everything": True}, [b, c]),
        ({"names": ["c"], "project": "q"}, [c]),
    ]
    for which, expected in cases:
        with world.ledger.rehearse() as tx:
            begun = operation.begin(tx.for_run(world.context("o")), STOP, operation.Selection(**which), HOSTS)
        assert sorted(r.uuid for r in begun.rows) == sorted(expected), which
    for nothing in ({}, {"project": "q"}, {"everything": True}):
        with pytest.raises(errors.InvalidInput, match="no instance is selected"):
            begin(world, **nothing)
    for unknown in ({"names": ["a", "nobody"]}, {"uuids": [a, "nobody"]}, {"names": ["nobody"], "project": "p"}):
        with pytest.raises(errors.InstanceNotFound, match="nobody"):
            begin(world, **unknown)
    with pytest.raises(errors.InstanceNotFound, match="Instance a could") as other:
        begin(world, names=["a", "c"], reservations=[world.row(c).reservation_id])
    assert "Did you mean" not in other.value.remedy and "other conditions" in other.value.remedy
    elsewhere: tuple[tuple[dict[str, t.Any], str], ...] = (
        ({"names": ["a", "c"], "project": "q"}, "a is in project p: set bootflow_project."),
        ({"uuids": [b, c], "project": "p"}, "%s are in project q: set bootflow_project." % ", ".join(sorted((b, c)))),
        ({"reservations": [reservation], "project": "q"}, "%s is in project p: set bootflow_project." % reservation),
        ({"names": ["a"], "project": "r"}, "a is in project p: set bootflow_project."),
        ({"names": ["b"], "uuids": [a], "project": "r"}, "%s is in project p; b is in project q: set bootflow_project." % a),
    )  # fmt: skip
    for which, remedy in elsewhere:
        with pytest.raises(errors.InstanceNotFound) as other:
            begin(world, **which)
        said, end = other.value.remedy.rsplit(": ", 1)
        assert (sorted(said.split("; ")), end) == (sorted(remedy.split(": ")[0].split("; ")), "set bootflow_project.")
    with world.ledger.rehearse() as tx:
        ours = tx.for_run(world.context("o"))
        with pytest.raises(errors.ComputeHostNotFound, match="h99") as caught:
            operation.begin(ours, STOP, operation.Selection(hosts=["h1", "h99"]), HOSTS)
        assert "has: h1, h2" in caught.value.remedy
        unreported = operation.begin(ours, STOP, operation.Selection(hosts=["h3"]), HOSTS)
        assert unreported.rows == [], "the inventory has it, and it has not reported yet"
    twin = world.boot("a", project="q")
    with pytest.raises(errors.InvalidInput, match="a is in the projects p, q"):
        begin(world, names=["a"])
    assert [r.uuid for r in begin(world, names=["a"], project="q").rows] == [twin]


def test_all_of_a_project_that_nobody_knows(world: World) -> None:
    """A mistyped project is an error; one that has no instance any more is none."""
    world.report("h1")
    everything: dict[str, t.Any] = {"everything": True}
    with pytest.raises(errors.ProjectNotFound, match="Project stagging could not be found.") as caught:
        begin(world, project="stagging", **everything)
    assert "is empty" in caught.value.remedy
    uuid = world.boot("web", project="staging")
    before = world.everything()
    with pytest.raises(errors.ProjectNotFound) as caught:
        begin(world, project="stagging", **everything)
    assert "Did you mean staging?" in caught.value.remedy and "knows has: staging." in caught.value.remedy
    with world.ledger.write() as tx, pytest.raises(errors.ProjectNotFound):
        delete.begin(tx.for_run(world.context("o")), operation.Selection(project="stagging", everything=True))
    assert world.everything() == before
    assert world.delete(project="stagging", **everything).rows == [], "with bootflow_missing_ok"
    world.delete(project="staging", **everything)
    world.removed("h1", [uuid])
    world.finish()
    assert begin(world, project="staging", **everything).rows == []
    purge.purge(world.ledger, world.time + 1.0)
    with pytest.raises(errors.ProjectNotFound):
        begin(world, project="staging", **everything)
    assert world.delete(project="staging", **everything).rows == [], "with bootflow_missing_ok"


@pytest.mark.parametrize("name", ["stop", "delete"])
def test_an_instance_that_another_user_locked(world: World, name: str) -> None:
    world.report("h1")
    uuid = world.boot("web")

    def attempt() -> None:
        if name == "stop":
            begin(world, names=["web"])
        else:
            world.delete(names=["web"])

    put(world, uuid, locked_by="bob")
    before = world.everything()
    with pytest.raises(errors.InstanceIsLocked, match="Instance %s is locked" % uuid):
        attempt()
    assert world.everything() == before
    put(world, uuid, locked_by="ann")  # who runs this
    attempt()
    assert world.state(uuid)[1] == {"stop": states.POWERING_OFF, "delete": states.DELETING}[name]


@pytest.mark.parametrize(
    ("name", "vm_state", "power_state"),
    [
        ("stop", states.STOPPED, states.RUNNING),
        ("stop", states.STOPPED, states.POWER_PAUSED),
        ("start", states.ACTIVE, states.SHUTDOWN),
        ("pause", states.PAUSED, states.RUNNING),
        ("unpause", states.ACTIVE, states.POWER_PAUSED),
        ("suspend", states.SUSPENDED, states.RUNNING),
    ],
)
def test_what_somebody_else_did_with_the_guest_is_undone(
    world: World, name: str, vm_state: str, power_state: int
) -> None:
    """The ledger has the instance as asked, its host reported another power state."""
    world.report("h1")
    uuid = world.boot("web")
    put(world, uuid, vm_state=vm_state, power_state=power_state)
    with world.ledger.read() as tx:
        ours = tx.for_run(world.context("o"))
        asked = operation.hosts_to_ask(ours, OPERATIONS[name], operation.Selection(names=["web"]), HOSTS)
    assert asked == {"h1"}
    with world.ledger.write() as tx:
        first = operation.begin(
            tx.for_run(world.context("o")), OPERATIONS[name], operation.Selection(names=["web"]), HOSTS, ask=True
        )
    assert (first.ask, first.rows, first.unchanged) == ({"h1"}, [], []), "nothing is begun before it has reported"
    assert world.state(uuid)[:2] == (vm_state, None)
    assert [r.uuid for r in begin(world, name, names=["web"]).rows] == [uuid]
    assert world.state(uuid)[:2] == (vm_state, states.ACTIONS[name].during)
    assert finish(world, {uuid: errors.LibvirtError(reason="x")}, name)[uuid].code == "LibvirtError"
    assert world.state(uuid)[:2] == (vm_state, None), "as it was"
    begin(world, name, names=["web"])
    assert finish(world, {uuid: None}, name) == {}
    assert (world.state(uuid)[:2], world.row(uuid).power_state) == ((vm_state, None), POWER[name])
    assert [r.uuid for r in begin(world, name, names=["web"]).unchanged] == [uuid]


def test_what_is_refused_has_the_names_of_the_instances_and_what_to_do_with_each(world: World) -> None:
    world.report("h1", memory=9)
    off, alike, paused, _runs = (world.boot(name) for name in ("off", "alike", "paused", "runs"))
    for uuid, vm_state in ((off, states.STOPPED), (alike, states.STOPPED), (paused, states.PAUSED)):
        put(world, uuid, vm_state=vm_state)
    with pytest.raises(errors.InstanceInvalidState) as caught:
        begin(world, "suspend", names=["off", "alike", "paused", "runs"])
    assert all(uuid in caught.value.message for uuid in (off, alike, paused))
    told = caught.value.remedy.split(" Run ")
    assert {"off", "alike"} <= set(told[0].partition(":")[0].split(", ")) and "paused: Allowed" in caught.value.remedy
    assert "bootflow.compute.start first." in caught.value.remedy
    assert "bootflow.compute.unpause first." in caught.value.remedy
    put(world, off, locked_by="bob", locked_reason="why")
    with pytest.raises(errors.InstanceIsLocked) as locked:
        begin(world, "start", names=["off"])
    assert locked.value.remedy.startswith("off: User bob locked it: why.")


# --- two runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["stop", "start"])
def test_another_live_run_makes_it_busy(world: World, second: str) -> None:
    world.report("h1")
    uuid = world.boot("web")
    if second == "start":
        do(world, names=["web"])
        begin(world, "start", "o", names=["web"])
    else:
        begin(world, "stop", "o", names=["web"])
    before = world.everything()
    with pytest.raises(errors.InstanceBusy) as caught:
        begin(world, second, "other", names=["web"])
    assert "run-o" in caught.value.message and caught.value.status == 409
    assert world.everything() == before
    assert finish(world, {uuid: None}, second) == {}


def test_of_two_runs_at_once_one_wins(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    answers: list[str] = []
    start = threading.Barrier(4)

    def one(run: str) -> None:
        ledger = database.open_ledger(world.url)
        try:
            start.wait()
            selection = operation.Selection(uuids=[uuid])
            ledger.for_run(world.context(run)).transact(operation.begin, STOP, selection, HOSTS)
            answers.append("begun")
        except errors.BootflowError as e:
            answers.append(e.code)
        finally:
            ledger.close()

    threads = [threading.Thread(target=one, args=("r%d" % n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["InstanceBusy"] * 3 + ["begun"]
    assert len(journal(world, uuid, "stop")[0]) == 1


def test_deleted_while_it_stops(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, names=["web"])
    world.delete(names=["web"])
    failed = finish(world, {uuid: None})
    assert {u: e.code for u, e in failed.items()} == {uuid: "UnexpectedDeletingTaskStateError"}
    assert world.state(uuid)[:2] == (states.ACTIVE, states.DELETING)
    world.removed("h1", [uuid])
    world.finish()
    assert finish(world, {uuid: None})[uuid].code == "InstanceNotFound"


# --- a run that dies ------------------------------------------------------------------------------------------------


def test_the_same_again_goes_on_with_what_a_dead_run_left(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, run="dead", names=["web"])
    with pytest.raises(errors.InstanceBusy):
        begin(world, names=["web"])
    world.time += 601
    assert [r.uuid for r in begin(world, names=["web"]).rows] == [uuid]
    assert finish(world, {uuid: None}, run="dead")[uuid].code == "UnexpectedTaskStateError", "it came late"
    assert world.state(uuid)[:2] == (states.ACTIVE, states.POWERING_OFF)
    assert finish(world, {uuid: None}) == {}
    actions, events = journal(world, uuid, "stop")
    assert [m for m, _end in actions] in ([None], ["Error"]) and len(events) == 2
    assert world.state(uuid)[:2] == (states.STOPPED, None)


def test_another_operation_waits_for_what_a_dead_run_left(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    put(world, uuid, vm_state=states.STOPPED, task_state=states.POWERING_OFF, run_id="run-dead")
    with pytest.raises(errors.InstanceInvalidState, match="task_state powering-off") as caught:
        begin(world, "start", names=["web"])
    assert "audit" in caught.value.remedy
    put(world, uuid, task_state=states.POWERING_OFF, vm_state=states.ACTIVE)
    settle(world, "h1", **{uuid: states.SHUTDOWN})
    assert do(world, "start", names=["web"]) == [uuid]


SETTLED = [
    ("stop", states.SHUTDOWN, states.STOPPED, True),
    ("stop", states.CRASHED, states.STOPPED, True),
    ("stop", states.RUNNING, states.ACTIVE, False),
    ("stop", None, states.ACTIVE, False),
    ("start", states.RUNNING, states.ACTIVE, True),
    ("start", states.SHUTDOWN, states.STOPPED, False),
    ("start", states.POWER_PAUSED, states.STOPPED, False),
    ("pause", states.POWER_PAUSED, states.PAUSED, True),
    ("pause", states.RUNNING, states.ACTIVE, False),
    ("unpause", states.RUNNING, states.ACTIVE, True),
    ("unpause", states.POWER_PAUSED, states.PAUSED, False),
    ("suspend", states.SHUTDOWN, states.SUSPENDED, True),
    ("suspend", states.RUNNING, states.ACTIVE, False),
    ("resume", states.RUNNING, states.ACTIVE, True),
    ("resume", states.SHUTDOWN, states.SUSPENDED, False),
    ("soft_reboot", states.RUNNING, states.ACTIVE, False),  # nothing tells whether it did
    ("soft_reboot", states.SHUTDOWN, states.STOPPED, False),
    ("hard_reboot", states.RUNNING, states.ACTIVE, False),
    ("hard_reboot", states.CRASHED, states.STOPPED, False),
    ("hard_reboot", None, states.ACTIVE, False),
]


@pytest.mark.parametrize(("name", "power_state", "vm_state", "done"), SETTLED)
@pytest.mark.parametrize("by", ["report", "audit"])
def test_a_half_done_operation_is_what_the_host_reports(
    world: World, name: str, power_state: int | None, vm_state: str, done: bool, by: str
) -> None:
    world.report("h1")
    uuid = world.boot("web")
    if name in FIRST:
        do(world, FIRST[name], names=["web"])
    begin(world, name, "dead", names=["web"])
    guests = {} if power_state is None else {uuid: power_state}
    if by == "report":
        assert settle(world, "h1", **guests) == {}, "the run is alive"
        assert hosts_to_ask(world) == set()
        world.time += 601
        assert hosts_to_ask(world) == {"h1"}
        assert settle(world, "h1", ago=700, **guests) == {}, "the answer is older than what was begun"
        assert settle(world, "h2", **guests) == {}
        assert settle(world, "h1", **guests) == {uuid: vm_state}
        assert settle(world, "h1", **guests) == {} and hosts_to_ask(world) == set()
    else:
        world.time += 601
        finding = audit(world, guests)
        assert (finding.new, finding.action) == (vm_state, core_audit.SETTLE)
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.power_state) == (vm_state, None, power_state or states.NOSTATE)
    actions, events = journal(world, uuid, name)
    assert [m for m, _end in actions] == [None if done else "Error"] and actions[0][1] is not None
    assert events[-1][1] == ("Success" if done else "Error")
    assert told(world, uuid, OPERATIONS[name].notification)[-1].endswith(".end" if done else ".error")
    assert finish(world, {uuid: None}, name, "dead")[uuid].code == "UnexpectedTaskStateError", "it came late"


@pytest.mark.parametrize(
    ("before", "power_state", "vm_state", "done"),
    [
        (states.STOPPED, states.RUNNING, states.ACTIVE, True),
        (states.STOPPED, states.SHUTDOWN, states.STOPPED, False),
        (states.SUSPENDED, states.SHUTDOWN, states.SUSPENDED, False),
        (states.PAUSED, states.SHUTDOWN, states.STOPPED, False),
        (states.PAUSED, states.POWER_PAUSED, states.PAUSED, False),
        (states.ERROR, states.SHUTDOWN, states.ERROR, False),
        (states.ERROR, states.RUNNING, states.ACTIVE, True),
    ],
)
def test_a_hard_reboot_that_a_dead_run_left(
    world: World, before: str, power_state: int, vm_state: str, done: bool
) -> None:
    world.report("h1")
    uuid = world.boot("web")
    put(world, uuid, vm_state=before)
    begin(world, "hard_reboot", "dead", names=["web"])
    world.time += 601
    assert settle(world, "h1", **{uuid: power_state}) == {uuid: vm_state}
    assert journal(world, uuid, "hard_reboot")[1][-1][1] == ("Success" if done else "Error")
    put(world, uuid, vm_state=states.ACTIVE)


def test_while_libvirt_writes_its_memory_a_suspend_is_not_over(world: World) -> None:
    """The guest is paused until then. What is settled too early would be active, and off a moment later."""
    world.report("h1")
    uuid = world.boot("web")
    begin(world, "suspend", "dead", names=["web"])
    world.time += 601
    before = world.everything()
    assert settle(world, "h1", **{uuid: states.POWER_PAUSED}) == {} and hosts_to_ask(world) == {"h1"}
    finding = audit(world, {uuid: states.POWER_PAUSED})
    assert finding.action == core_audit.WAIT and "memory" in finding.remedy
    assert world.everything() == before
    assert settle(world, "h1", **{uuid: states.SHUTDOWN}) == {uuid: states.SUSPENDED}


@pytest.mark.parametrize(
    ("name", "rescued", "power_state", "vm_state", "done"),
    [
        ("rescue", False, states.RUNNING, states.ACTIVE, False),  # it is its own guest that runs
        ("rescue", False, None, states.ACTIVE, False),
        ("rescue", True, states.RUNNING, states.RESCUED, True),
        ("rescue", True, states.SHUTDOWN, states.RESCUED, False),
        ("unrescue", True, states.RUNNING, states.RESCUED, False),
        ("unrescue", True, states.SHUTDOWN, states.RESCUED, False),
        ("unrescue", False, states.RUNNING, states.ACTIVE, True),
        ("unrescue", False, states.SHUTDOWN, states.STOPPED, False),
        ("unrescue", False, None, states.RESCUED, False),
    ],
)
@pytest.mark.parametrize("by", ["report", "audit"])
def test_a_half_done_rescue_is_what_the_domain_is(
    world: World, name: str, rescued: bool, power_state: int | None, vm_state: str, done: bool, by: str
) -> None:
    world.report("h1")
    uuid = world.boot("web")
    put(world, uuid, vm_state=states.ACTIVE if name == "rescue" else states.RESCUED)
    begin(world, name, "dead", names=["web"])
    world.time += 601
    guests = {} if power_state is None else {uuid: power_state}
    its = [uuid] if rescued else []
    if by == "report":
        assert settle(world, "h1", **guests) == {} and hosts_to_ask(world) == {"h1"}, "power states do not tell it"
        assert settle(world, "h1", rescued=its, **guests) == {uuid: vm_state}
    else:
        finding = audit(world, guests, rescued=its)
        assert (finding.new, finding.action) == (vm_state, core_audit.SETTLE)
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.power_state) == (vm_state, None, power_state or states.NOSTATE)
    assert journal(world, uuid, name)[1][-1][1] == ("Success" if done else "Error")
    put(world, uuid, vm_state=states.ACTIVE)


@pytest.mark.parametrize("name", ["rescue", "stop"])
def test_what_a_dead_run_left_waits_until_its_module_has_ended(world: World, name: str) -> None:
    """The guest is not what it will be: a rescue was settled as active, and its guest booted the rescue a moment later."""
    world.report("h1")
    uuid = world.boot("web")
    begin(world, name, "dead", names=["web"])
    world.time += 601
    before = world.everything()
    assert settle(world, "h1", rescued=(), at_work=[uuid], **{uuid: states.RUNNING}) == {}
    finding = audit(world, {uuid: states.RUNNING}, at_work=[uuid])
    assert finding.action == core_audit.WAIT and "still works on the guest" in finding.remedy
    assert world.everything() == before and hosts_to_ask(world) == {"h1"}
    other = audit(world, {uuid: states.RUNNING}, at_work=["2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"])
    assert (other.action, other.new) == (core_audit.SETTLE, states.ACTIVE)


def hosts_to_ask(world: World) -> set[str]:
    with world.ledger.read() as tx:
        return dead_runs.hosts_to_ask(tx.for_run(world.context("s")))


def audit(
    world: World,
    guests: t.Mapping[str, int] | None,
    run: str = "audit",
    rescued: t.Collection[str] = (),
    at_work: t.Collection[str] = (),
) -> core_audit.Finding:
    """One audit of h1, which shows these guests (None: it does not answer). Returns what it found of operations."""
    world.time += 1
    domains = [host_evidence.Domain(u, "web", 1024, True, p, rescued=u in rescued) for u, p in (guests or {}).items()]
    snapshot = host_evidence.Snapshot("h1", "h1", world.time, domains, at_work=at_work)
    evidence = host_evidence.Evidence(
        snapshots={} if guests is None else {"h1": snapshot}, unreachable={"h1": "no route"} if guests is None else {}
    )
    with world.ledger.read() as tx:
        planned = recovery_audit.plan(tx.for_run(world.context(run)), evidence)
    with world.ledger.write() as tx:
        recovery_audit.repair(tx.for_run(world.context(run)), planned, evidence)
    (finding,) = [f for f in planned if f.kind == core_audit.DEAD_OPERATION]
    return finding


def test_an_audit_waits_for_a_host_that_does_not_answer(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, run="dead", names=["web"])
    world.time += 601
    finding = audit(world, None)
    assert (finding.action, finding.changes) == (core_audit.WAIT, False) and finding.remedy
    assert world.state(uuid)[:2] == (states.ACTIVE, states.POWERING_OFF)


def test_an_audit_leaves_a_live_run_alone(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, names=["web"])
    with pytest.raises(ValueError, match="unpack"):
        audit(world, {uuid: states.SHUTDOWN})
    assert finish(world, {uuid: None}) == {}


def test_every_operation_can_be_settled() -> None:
    """Whatever task_state a dead run leaves, its operation is known by it, and a power state tells whether it is done."""
    with_task_state = {o for o in OPERATIONS.values() if o.rule.during is not None}
    assert (
        set(BY_TASK_STATE.values()) == with_task_state == set(OPERATIONS.values()) - {OPERATIONS["trigger_crash_dump"]}
    )
    for its in with_task_state:
        assert its.rule.result is None or its.rule.result in states.POWER_STATES_OF


# --- many -------------------------------------------------------------------------------------------------------------


def test_the_statements_do_not_grow_with_hosts_and_instances(world: World) -> None:
    counts = []
    for hosts in (1, 6):
        for number in range(hosts):
            world.report("h%d" % (number + 1 if hosts == 1 else number + 10), memory=4)
        uuids = world.accept(request("web%d" % hosts, hosts * 3)).created
        for host in {p.host for p in world.schedule().placed.values()}:
            world.build(host)
        with counted(world.ledger) as found:
            begun = begin(world, run="a", uuids=uuids, notify_on_state_change="vm_and_task_state")
            assert len({r.host for r in begun.rows}) >= hosts // 2
            outcomes: dict[str, t.Any] = dict.fromkeys(uuids)
            outcomes[uuids[0]] = errors.RemoteError(reason="one")
            outcomes.update({u: errors.RemoteError(reason="of %s" % u) for u in uuids[1::3]})
            finish(world, outcomes, run="a")
        counts.append(len(found))
    assert counts[0] == counts[1], counts


# --- reboots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("soft_reboot", ["rebooting", "reboot_pending", "reboot_started"]),
        ("hard_reboot", ["rebooting_hard", "reboot_pending_hard", "reboot_started_hard"]),
    ],
)
def test_the_task_states_of_a_reboot(world: World, name: str, passed: list[str]) -> None:
    world.report("h1")
    uuid = world.boot("web")
    notices = len(world.rows(tables.notifications))
    begin(world, name, names=["web"], notify_on_state_change="vm_and_task_state")
    assert world.state(uuid) == (states.ACTIVE, passed[-1], "h1")
    payloads = [n.payload for n in world.rows(tables.notifications)[notices:] if n.event_type.endswith(".update")]
    assert [p["new_task_state"] for p in payloads] == passed
    assert [p["old_task_state"] for p in payloads] == [None, *passed[:-1]]
    assert finish(world, {uuid: None}, name) == {}
    assert journal(world, uuid, name) == ([(None, world.time)], [("h1", "Success", None)])
    assert [a.action for a in world.rows(tables.instance_actions)][-1] == "reboot"
    assert told(world, uuid, "reboot") == ["compute.instance.reboot.start", "compute.instance.reboot.end"]


def test_a_hard_reboot_takes_the_place_of_what_a_live_run_does(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, "soft_reboot", "slow", names=["web"])
    with pytest.raises(errors.InstanceBusy):
        begin(world, "soft_reboot", names=["web"])
    assert [r.uuid for r in begin(world, "hard_reboot", names=["web"]).rows] == [uuid]
    with pytest.raises(errors.InstanceBusy):
        begin(world, "hard_reboot", "third", names=["web"])
    lost = finish(world, {uuid: None}, "soft_reboot", "slow")
    assert lost[uuid].code == "UnexpectedTaskStateError" and "reboot_started_hard" in lost[uuid].message
    assert world.state(uuid)[1] == states.REBOOT_STARTED_HARD
    assert finish(world, {uuid: None}, "hard_reboot") == {}
    assert sorted(m or "" for m, _end in journal(world, uuid, "hard_reboot")[0]) == ["", "Error"]
    assert journal(world, uuid, "soft_reboot")[1][0][1] == "Error"
    assert journal(world, uuid, "hard_reboot")[1] == [("h1", "Success", None)]


def test_a_hard_reboot_ends_in_the_journal_what_a_dead_run_left(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    begin(world, "suspend", "dead", names=["web"])
    world.time += 601
    begin(world, "hard_reboot", names=["web"])
    assert journal(world, uuid, "suspend") == ([("Error", world.time)], [("h1", "Error", "reboot took its place")])
    assert journal(world, uuid, "hard_reboot") == ([(None, None)], [("h1", None, None)])
    assert finish(world, {uuid: None}, "hard_reboot") == {}
    assert world.state(uuid)[:2] == (states.ACTIVE, None)


@pytest.mark.parametrize("soft", [False, True])
def test_a_deletion_ends_in_the_journal_what_a_dead_run_left(world: World, soft: bool) -> None:
    its = delete.SOFT_DELETE if soft else delete.DELETE
    world.report("h1")
    uuid = world.boot("web")
    begin(world, "suspend", "dead", names=["web"])
    world.time += 601
    for run in ("d", "e"):
        with world.ledger.write() as tx:
            delete.begin(tx.for_run(world.context(run)), operation.Selection(names=["web"]), soft=soft)
        ended = [("h1", "Error", "%s took its place" % its.called)]
        assert journal(world, uuid, "suspend") == ([("Error", world.time if run == "d" else world.time - 601)], ended)
        world.time += 601
    own = [a for a in world.rows(tables.instance_actions) if a.action == its.action]
    assert [(a.message, a.finish_time) for a in own] == [(None, None)], "the second goes on with it"


@pytest.mark.parametrize("vm_state", [states.ACTIVE, states.PAUSED, states.ERROR])
def test_a_crash_dump_changes_nothing_but_the_journal(world: World, vm_state: str) -> None:
    """Nova's has no task_state either: others may run beside it."""
    world.report("h1")
    uuid = world.boot("web")
    put(world, uuid, vm_state=vm_state)
    row = world.row(uuid)
    begin(world, "trigger_crash_dump", names=["web"])
    begin(world, "trigger_crash_dump", "other", names=["web"])
    assert finish(world, {uuid: None}, "trigger_crash_dump") == {}
    assert (
        finish(world, {uuid: errors.LibvirtError(reason="no")}, "trigger_crash_dump", "other")[uuid].code
        == "LibvirtError"
    )
    assert world.row(uuid) == row
    actions, _events = journal(world, uuid, "trigger_crash_dump")
    assert sorted(m or "" for m, _end in actions) == ["", "Error"] and all(end for _message, end in actions)
    kinds = [n.rpartition(".")[2] for n in told(world, uuid, "trigger_crash_dump")]
    assert kinds == ["start", "start", "end", "error"]
    put(world, uuid, vm_state=states.ACTIVE)
