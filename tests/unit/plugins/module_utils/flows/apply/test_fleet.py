# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet that follows its file, on a real ledger: what the playbooks do between plan and report is done by the world."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.apply.plan import Plan
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import WantedInterface
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.apply import fleet
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.planned import BootVolumeOptions
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import (
    attach,
    interfaces,
    lock,
    operation,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import find
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations, reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, nodes, ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.instances import Instance
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, SMALL, World, network, request

POWER = {states.ACTIVE: states.RUNNING, states.STOPPED: states.SHUTDOWN, states.PAUSED: states.POWER_PAUSED}


def file(world: World, *requests: ServerRequest, **more: t.Any) -> fleet.File:
    options = accept.AcceptOptions(networks=world.networks, quotas=more.pop("quotas", {}))
    return fleet.File(requests, options, **more)


def planned(world: World, its: fleet.File, run: str = "a") -> Plan:
    before = world.everything()
    with world.ledger.for_run(world.context(run)).rehearse() as tx:
        found = fleet.rehearse(tx, its)
    assert world.everything() == before
    return found


def living(world: World) -> dict[str, Instance]:
    with world.ledger.read() as tx:
        return {r.display_name: r for r in instances.select_live(tx.for_run(world.context()))}


def apply(world: World, its: fleet.File, run: str = "a") -> Plan:
    """As playbooks/apply.yml does it. Returns the plan that was done."""
    plan = planned(world, its, run)

    def write(function: t.Callable[[Transaction], t.Any]) -> t.Any:
        with world.ledger.write() as tx:
            return function(tx.for_run(world.context(run)))

    operate(world, write(lambda tx: fleet.begin(tx, its)), run)
    gone = fleet.instances_to_delete(plan)
    if gone:
        for host in world.delete(run, uuids=gone).hosts:
            world.removed(host, [i["uuid"] for i in world.of_host(host, run)], run)
        world.finish(run)
    follows = dataclasses.replace(its.options, keep_built_instances=True)
    accepted = write(lambda tx: accept.accept(tx, its.requests, follows))
    assert {accepted.builds} <= {any(c.kind in ("boot", "replace") for c in plan.to_do)}
    if accepted.builds:
        for host in world.schedule(run).hosts:
            world.build(host, run=run)
    operate(world, write(lambda tx: fleet.begin(tx, its)), run)
    write(lambda tx: fleet.record(tx, its))
    return plan


def operate(world: World, begun: fleet.Begun, run: str) -> None:
    for name in ("start", "unpause", "resume", "reboot", "stop", "pause", "suspend"):
        uuids = begun.operations.get(name)
        if not uuids:
            continue
        its = find(name, "HARD")
        power = POWER.get(str(its.rule.result), states.SHUTDOWN)
        with world.ledger.write() as tx:
            operation.begin(tx.for_run(world.context(run)), its, Selection(uuids=uuids), {"h1", "h2"})
        with world.ledger.write() as tx:
            ended = operation.finish(tx.for_run(world.context(run)), its, dict.fromkeys(uuids, Outcome(power)))
        assert ended == {}


@pytest.fixture
def two_hosts(world: World) -> World:
    world.report("h1", memory=9)
    world.report("h2", memory=9)
    return world


def test_a_file_that_changes_and_changes_again(two_hosts: World) -> None:
    world = two_hosts
    web, db = request("web", 2), request("db", state="stopped", locked=True, locked_reason="mine")
    first = file(world, web, db)
    assert planned(world, first).lines() == [
        "+ db boot, then stop, then lock",
        "+ web-1 boot",
        "+ web-2 boot",
        "3 to boot; 0 as the file has them.",
    ]
    apply(world, first)
    rows = living(world)
    assert {n: r.vm_state for n, r in rows.items()} == {"db": "stopped", "web-1": "active", "web-2": "active"}
    assert (rows["db"].locked_by, rows["db"].locked_reason) == ("ann", "mine")
    assert planned(world, first).lines() == ["nothing to do; 3 as the file has them."]

    more = dataclasses.replace(web, min_count=3, max_count=3, metadata={"role": "web"}, state="paused")
    second = file(world, more, dataclasses.replace(db, locked=False, locked_reason="", state="running"))
    assert planned(world, second).lines() == [
        "~ db state stopped -> running: start",
        "~ db unlock",
        "~ web-1 metadata.role none -> web: the guest's config drive keeps the old one",
        "~ web-1 state running -> paused: pause",
        "~ web-2 metadata.role none -> web: the guest's config drive keeps the old one",
        "~ web-2 state running -> paused: pause",
        "+ web-3 boot, then pause",
        "1 to boot, 3 to change; 0 as the file has them.",
    ]
    apply(world, second, "b")
    after = living(world)
    assert {n: r.vm_state for n, r in after.items()} == {
        "db": "active",
        **dict.fromkeys(("web-1", "web-2", "web-3"), "paused"),
    }
    assert all(r.spec["metadata"] == {"role": "web"} for n, r in after.items() if n != "db")
    assert {n: after[n].uuid for n in rows} == {n: r.uuid for n, r in rows.items()}
    assert planned(world, second).to_do == []
    # boot has nothing to refuse now, beyond the fields that it does not read
    with world.ledger.rehearse() as tx:
        accepted = accept.accept(tx.for_run(world.context("c")), second.requests, second.options)
    assert len(accepted.unchanged) == 4 and not accepted.changed


@pytest.mark.parametrize(("low", "high"), [(1, 3), (2, 3), (1, 2)])
def test_counts_go_up_and_down(two_hosts: World, low: int, high: int) -> None:
    world = two_hosts
    few, many = file(world, request("web", low)), file(world, request("web", high))
    apply(world, few)
    apply(world, many, "b")
    assert len(living(world)) == high
    assert planned(world, many).to_do == []
    kept = planned(world, few)
    assert kept.to_do == [] and len(kept.kept_names) == high - low
    assert kept.lines()[0].startswith("= not in the file, kept without bootflow_prune: ")
    apply(world, dataclasses.replace(few, prune=True), "c")
    assert len(living(world)) == low and planned(world, few).lines()[0].startswith("nothing to do")


def test_one_of_several_becomes_that_of_an_entry_with_its_name(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web", 3)))
    before = living(world)
    both = file(world, request("web"), request("web-1"), prune=True)
    assert planned(world, both).lines() == [
        "+ web boot",
        "~ web-1 name web -> web-1: of its entry; the instance keeps its name",
        "- web-2: delete",
        "- web-3: delete",
        "1 to boot, 1 to change, 2 to delete; 0 as the file has them.",
    ]
    apply(world, both, "b")
    assert set(living(world)) == {"web", "web-1"} and living(world)["web-1"].uuid == before["web-1"].uuid
    assert planned(world, both).lines() == ["nothing to do; 2 as the file has them."]


def test_what_is_being_deleted_is_not_called_kept(two_hosts: World) -> None:
    """Whoever finds the run dead completes the deletion, with prune or without."""
    world = two_hosts
    apply(world, file(world, request("web"), request("old"), request("other")))
    world.delete("d", uuids=[living(world)["old"].uuid])
    rest = file(world, request("web"))
    plan = planned(world, rest)
    assert plan.to_do == [] and (plan.kept_names, plan.leaving) == (("other",), ("old",))
    assert plan.lines() == [
        "= not in the file, kept without bootflow_prune: other",
        "= not in the file, being deleted (bootflow.compute.delete ends it): old",
        "nothing to do, 1 not in the file, 1 being deleted; 1 as the file has it.",
    ]


@pytest.mark.parametrize("soft", [False, True])
def test_what_is_being_deleted_and_is_named_waits_and_keeps_no_other(two_hosts: World, soft: bool) -> None:
    """A prune whose host died, or one that can be restored: its name is taken."""
    world = two_hosts
    both = file(world, request("web", 2, state="running"), request("db"))
    apply(world, both)
    uuid = living(world)["web-2"].uuid
    world.delete("d", uuids=[uuid])
    if soft:
        with world.ledger.write() as tx:
            instances.write(tx.for_run(world.context("d")), [uuid], vm_state=states.SOFT_DELETED, task_state=None)
    world.time += 100_000  # the run is dead
    world.report("h1", memory=9)
    world.report("h2", memory=9)
    more = file(world, request("web", 3, state="running"), request("db", metadata={"a": "b"}), request("new"))
    plan = planned(world, more, "b")
    assert [(c.name, c.kind) for c in plan.to_do] == [("db", "live"), ("new", "boot"), ("web-3", "boot")]
    (waits,) = [c for c in plan.changes if not c.done]
    assert waits.later and waits.line().startswith("! web-2 is not booted: ")
    assert ("bootflow.compute.restore" if soft else "bootflow.compute.delete ends that") in waits.line()
    apply(world, more, "b")
    after = living(world)
    assert after["web-2"].uuid == uuid and {"new", "web-3"} <= set(after)
    assert planned(world, more, "b").to_do == [] and planned(world, more, "b").unfinished == [waits]


def test_a_lost_domain_is_one_whose_host_answers(two_hosts: World) -> None:
    world = two_hosts
    its = file(world, request("web", allow=("restart",)), request("db", state="running"))
    apply(world, its)
    row = living(world)["web"]

    def write(function: t.Callable[..., t.Any], *arguments: t.Any, **values: t.Any) -> None:
        with world.ledger.write() as tx:
            function(tx.for_run(world.context("s")), *arguments, **values)

    def asked() -> list[str]:
        with world.ledger.read() as tx:
            return fleet.hosts_to_ask(tx.for_run(world.context()), file(world, request("web")))

    assert asked() == []
    write(instances.write, [row.uuid], power_state=states.NOSTATE)
    assert asked() == [row.host], "it may be back"
    assert [c.steps for c in planned(world, its).to_do] == [("reboot",)]
    with world.ledger.write() as tx:
        nodes.record_unreachable(tx.for_run(world.context("s")), str(row.host), "it is down")
    assert planned(world, its).to_do == [], "nobody knows"


def test_what_is_rebuilt_out_of_error_comes_before_interfaces(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web"), request("db")))
    row = living(world)["web"]
    with world.ledger.write() as tx:
        instances.write(tx.for_run(world.context("s")), [row.uuid], vm_state=states.ERROR)
    other = dataclasses.replace(IMAGE, name="other", id="0e7a7fc4-6d5b-5a5e-9d3a-0a4c6e2f7b22")
    new = {"image": other, "allow": ("rebuild",), "networks": ("net-1", "net-1")}
    its = file(world, request("web", **new), request("db", **new))
    with world.ledger.write() as tx:
        begun = fleet.begin(tx.for_run(world.context("b")), its)
    assert begun.operations == {"rebuild_early": [row.uuid], "rebuild": [living(world)["db"].uuid]}
    assert {c.kind for c in planned(world, its, "b").to_do} == {"rebuild", "attach_interface"}


def test_never_more_than_prune_max(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web", 3), request("db")))
    rest = file(world, request("db"), prune=True, prune_max=2)
    with pytest.raises(errors.PruneRefused, match=r"3 instances .* \(2\): web-1, web-2, web-3"):
        planned(world, rest)
    apply(world, dataclasses.replace(rest, prune_max=3), "b")
    assert set(living(world)) == {"db"}
    apply(world, file(world, prune=True), "c")
    assert living(world) == {}, "an empty file is the truth too"


def test_what_is_pruned_makes_room_in_the_quota(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("old")))
    new = file(world, request("new"), quotas={"instances": 1})
    with pytest.raises(errors.InvalidRequest) as refused:
        planned(world, new)
    assert [e["code"] for e in refused.value.errors] == ["OverQuota"]
    apply(world, dataclasses.replace(new, prune=True), "b")
    assert set(living(world)) == {"new"}


def test_no_more_than_fit_the_quota_are_booted_and_the_rest_is_told(two_hosts: World) -> None:
    world = two_hosts
    some = file(world, dataclasses.replace(request("web", 3), min_count=1), quotas={"instances": 2})
    apply(world, some)
    assert len(living(world)) == 2
    again = planned(world, some)
    assert (
        again.to_do == []
        and again.lines()[0] == "! web-3 is not booted: no more than min_count of its entry fit the quota"
    )


def test_other_projects_are_left_alone(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web", project="one")))
    apply(world, file(world, request("web", project="two")), "b")
    plan = apply(world, file(world, request("db", project="two"), prune=True), "c")
    assert [c.line() for c in plan.changes] == ["+ db boot", "- web: delete"]
    with world.ledger.read() as tx:
        left = instances.select_live(tx.for_run(world.context()))
    assert {(r.project, r.display_name) for r in left} == {("one", "web"), ("two", "db")}


@pytest.mark.parametrize("until", [None, "claimed", "spawning", "error"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_what_never_ran_does_not_keep_the_names_of_another_count(
    two_hosts: World, until: str | None, before: int, after: int
) -> None:
    """web of one is web-1 of three. What is deleted for another definition was counted with the one name, and booted with the other."""
    world = two_hosts
    world.accept(request("web", before, flavor=dataclasses.replace(SMALL, name="other")), request("db"), run="l")
    if until == "error":
        with world.ledger.write() as tx:
            uuids = [r.uuid for r in living(world).values()]
            instances.write(tx.for_run(world.context("l")), uuids, vm_state=states.ERROR, task_state=None)
    for host in world.schedule("l").hosts if until in ("claimed", "spawning") else ():
        if until == "spawning":
            world.build(host, until=until, run="l")
    world.time += 100_000  # the run is dead
    world.report("h1", memory=9)
    world.report("h2", memory=9)
    its = file(world, request("web", after), request("db"), prune_max=0)
    plan = planned(world, its, "b")
    names = ["web"] if after == 1 else ["web-1", "web-2", "web-3"]
    assert {c.name for c in plan.to_do if c.kind in ("boot", "replace")} == {"db", *names}
    old = "web" if after == 3 else "web-1"
    assert "- %s: delete, it never ran, and the file has another definition now" % old in plan.lines()
    apply(world, its, "b")
    there = living(world)
    assert {there[n].vm_state for n in (*names, "db")} == {states.ACTIVE}
    assert planned(world, its, "b").unfinished == []


def test_an_instance_that_never_ran_gives_its_name_to_the_corrected_request(two_hosts: World) -> None:
    """It had a host, on which its build failed: boot itself replaces only what never had one."""
    world = two_hosts
    world.accept(request("web"))
    (selection,) = world.schedule().placed.values()
    (row,) = living(world).values()
    error = errors.ImageUnacceptable(image_id="x", reason="no disk")
    world.build(selection.host, until="spawning")
    world.fail(selection.host, row.uuid, error)
    (failed,) = living(world).values()
    assert failed.vm_state == states.ERROR and failed.launched_at is None
    corrected = request("web", flavor=dataclasses.replace(SMALL, name="other"))
    with pytest.raises(errors.InvalidRequest) as refused:
        world.accept(corrected, run="b")
    assert [e["code"] for e in refused.value.errors] == ["InstanceExists"]
    assert "bootflow.compute.apply" in refused.value.errors[0]["remedy"]
    plan = apply(world, file(world, corrected), "c")
    assert [c.line() for c in plan.changes] == [
        "+ web boot again: it never ran, and the file has another definition now"
    ]
    (new,) = living(world).values()
    assert new.uuid != failed.uuid and new.vm_state == states.ACTIVE and new.spec["flavor"]["name"] == "other"


@pytest.mark.parametrize(
    ("operations", "needed"),
    [(["rebuild"], "rebuild"), (["reboot"], "restart"), (["rebuild", "reboot"], "restart")],
)
def test_an_error_is_told_with_what_leads_out_of_it(two_hosts: World, operations: list[str], needed: str) -> None:
    """By the operation that failed last: what another one found does not replace the guest's disks."""
    world = two_hosts
    its = file(world, request("web"))
    apply(world, its)
    uuid = living(world)["web"].uuid
    for name in operations:
        operation_ = find(name, "HARD")
        failed = Outcome(error=errors.DiskFull(host="h1", path="/", reason="full"), vm_state=states.ERROR)
        with world.ledger.write() as tx:
            operation.begin(tx.for_run(world.context("b")), operation_, Selection(uuids=[uuid]), {"h1", "h2"})
        with world.ledger.write() as tx:
            operation.finish(tx.for_run(world.context("b")), operation_, {uuid: failed})
    assert living(world)["web"].vm_state == states.ERROR
    (change,) = planned(world, its).changes
    assert (change.done, change.needs, change.what) == (False, needed, "state error -> running")


def test_what_another_user_locked_is_told_and_stays(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web"), request("old")))
    _lock_as(world, "bob", "web", "old")
    plan = apply(world, file(world, request("web", metadata={"a": "b"}), prune=True), "b")
    assert plan.to_do == [] and len([c for c in plan.changes if "locked by bob" in c.how]) == 2
    assert set(living(world)) == {"web", "old"} and living(world)["web"].spec["metadata"] == {}


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"flavor": dataclasses.replace(SMALL, name="other")}, "! web boot again: locked by bob"),
        ({"description": "new"}, "! web boot: locked by bob"),
        ({"image": dataclasses.replace(IMAGE, checksum="sha256:" + "ab" * 32)}, "! web boot: locked by bob"),
    ],
)
def test_what_never_ran_and_another_user_locked_stays_and_keeps_no_other(
    two_hosts: World, placed: bool, change: dict[str, t.Any], line: str
) -> None:
    world = two_hosts
    world.accept(request("web"))
    (row,) = living(world).values()
    with world.ledger.write() as tx:
        host = "h1" if placed else None
        instances.write(tx, [row.uuid], vm_state=states.ERROR, task_state=None, run_id=None, host=host)
    _lock_as(world, "bob", "web")
    if not placed:  # one that has a host is not replaced by boot
        with pytest.raises(errors.InvalidRequest) as refused:
            world.accept(request("web", **change), run="b")
        assert [e["code"] for e in refused.value.errors] == ["InstanceIsLocked"]
    both = file(world, request("web", **change), request("db"))
    assert planned(world, both, "c").lines()[:2] == ["+ db boot", line]
    apply(world, both, "c")
    after = living(world)
    assert (after["web"].uuid, after["web"].vm_state) == (row.uuid, states.ERROR)
    assert after["db"].vm_state == states.ACTIVE


def _lock_as(world: World, user: str, *names: str) -> None:
    with world.ledger.write() as tx:
        other = dataclasses.replace(world.context("l").run, actor=user)
        ours = dataclasses.replace(world.context("l"), run=other)
        lock.lock(tx.for_run(ours), Selection(names=list(names), project="default"))


def test_what_another_run_works_on_is_told_and_keeps_no_other(two_hosts: World) -> None:
    """Of an operation on all of them it would keep all."""
    world = two_hosts
    apply(world, file(world, request("web", 2), request("old", 2)))
    rows = living(world)
    busy = [rows[n].uuid for n in ("web-1", "old-1")]
    with world.ledger.write() as tx:
        operation.begin(tx.for_run(world.context("l")), find("pause", "HARD"), Selection(uuids=busy[:1]), {"h1", "h2"})
    world.delete("l", uuids=busy[1:])
    its = file(world, request("web", 2, state="stopped", metadata={"a": "b"}), prune=True, moves=moves())
    plan = planned(world, its, "b")
    told = {(c.name, c.kind): c for c in plan.unfinished}
    assert [k for k, c in told.items() if c.later] == [("old-1", "delete"), ("web-1", "state")]
    assert (
        told["web-1", "state"]
        .line()
        .startswith("! web-1 state running -> stopped: Instance web-1 is being worked on by")
    )
    assert plan.totals() == "2 to change, 1 to delete, 2 to be tried again; 0 as the file has them."
    apply(world, its, "b")
    after = living(world)
    assert set(after) == {"web-1", "web-2", "old-1"} and after["web-2"].vm_state == states.STOPPED
    assert after["web-1"].task_state == states.PAUSING and after["web-1"].spec["metadata"] == {"a": "b"}
    world.time += 100_000  # the other run is dead: its deletion can be finished, its pause is a matter of the host
    plan = planned(world, its, "c")
    assert [c.kind for c in plan.to_do] == ["delete"] and [c.kind for c in plan.unfinished if c.later] == ["state"]
    gone = dataclasses.replace(its, moves=dataclasses.replace(moves(), known_hosts=()), prune=False)
    stranger = dataclasses.replace(gone, requests=[request("web", 2, state="running", metadata={"a": "b"})])
    (change,) = [c for c in planned(world, stranger, "c").unfinished if c.name == "web-2"]
    assert change.later and "inventory" in change.how


@pytest.mark.parametrize("until", ["claimed", "networking", "spawning"])
@pytest.mark.parametrize("as_the_file_has_it", [True, False])
def test_what_another_run_boots_is_told_and_keeps_no_other(
    two_hosts: World, as_the_file_has_it: bool, until: str
) -> None:
    """And what another run deletes that never ran, and the file does not have."""
    world = two_hosts
    world.accept(request("old"), request("web"), run="l")
    hosts = world.schedule("l").hosts
    for host in hosts if until != "claimed" else ():
        world.build(host, until=until, run="l")
    rows = living(world)
    world.delete("l", uuids=[rows["old"].uuid])
    web = request("web", **({} if as_the_file_has_it else {"flavor": dataclasses.replace(SMALL, name="other")}))
    its = file(world, web, request("db"), prune=True, moves=moves())
    plan = planned(world, its, "b")
    assert [(c.name, c.kind, c.later) for c in plan.changes if not c.done] == [
        ("old", "delete", True),
        ("web", "boot" if as_the_file_has_it else "replace", True),
    ]
    assert [line.partition(" by run ")[0] for line in plan.lines()] == [
        "+ db boot",
        "! old delete: Instance old is being worked on",
        "! web is not booted: Instance web is being worked on",
        "1 to boot, 2 to be tried again; 0 as the file has them.",
    ]
    apply(world, its, "b")
    after = living(world)
    assert after["db"].vm_state == states.ACTIVE
    assert (after["web"].uuid, after["web"].vm_state) == (rows["web"].uuid, states.BUILDING)
    assert after["web"].run_id == rows["web"].run_id
    world.time += 100_000  # the other run is dead
    apply(world, its, "c")
    after = living(world)
    assert {n: r.vm_state for n, r in after.items()} == dict.fromkeys(("db", "web"), states.ACTIVE)
    assert planned(world, its, "c").unfinished == []


def test_what_a_host_has_that_is_not_in_the_inventory_is_told_and_the_others_are_deleted(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web", 4)))
    rows = living(world)
    host = rows["web-1"].host
    strange = {n for n, r in rows.items() if r.host == host}
    its = file(world, prune=True, inventory=sorted({str(r.host) for r in rows.values()} - {host}))
    plan = planned(world, its, "b")
    assert {c.name for c in plan.to_do} == set(rows) - strange and {
        c.name for c in plan.unfinished if c.later
    } == strange
    (how,) = {c.how for c in plan.changes if c.later}
    assert str(host) in how and "inventory" in how and "bootflow_delete_force" in how
    by_force = planned(world, dataclasses.replace(its, inventory=None), "b")
    assert {c.name for c in by_force.to_do} == set(rows)
    apply(world, its, "b")
    assert set(living(world)) == strange


def test_fields_that_a_boot_refuses_change_live(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web", 2)))
    new = request("web", 2, access_ip_v4="192.0.2.7", disk_config="MANUAL", extra={"cost_centre": "7"})
    apply(world, file(world, new), "b")
    for row in living(world).values():
        assert row.spec["access_ip_v4"] == "192.0.2.7" and row.spec["extra"] == {"cost_centre": "7"}
        assert row.spec["disk_config"] == "MANUAL"
    assert planned(world, file(world, new)).to_do == []
    specs = {r.request_spec_id for r in world.rows(tables.instances, tables.instances.c.deleted == instances.LIVE)}
    assert len(specs) == 1, "they still share their request"


def test_a_hostname_of_the_file_is_that_of_the_instance(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web"), request("db", 2)))
    apply(world, file(world, request("web", hostname="shop"), request("db", 2)), "b")
    assert {n: r.hostname for n, r in living(world).items()} == {"web": "shop", "db-1": "db-1", "db-2": "db-2"}
    assert planned(world, file(world, request("web", hostname="shop"), request("db", 2))).to_do == []
    apply(world, file(world, request("web"), request("db", 2)), "c")
    assert living(world)["web"].hostname == "web"


def test_a_host_is_asked_that_has_not_said_whether_it_has_a_guest_whose_resize_waits(two_hosts: World) -> None:
    """Its run died in between. Without an answer of the host the resize is not confirmed, however often the file is applied."""
    world = two_hosts
    its = file(world, request("web"), request("db"), allow=["resize"], moves=moves())
    apply(world, its)
    row = living(world)["web"]

    def asked(**values: t.Any) -> list[str]:
        with world.ledger.for_run(world.context("b")).rehearse() as tx:
            instances.write(tx, [row.uuid], **values)
            return fleet.hosts_to_ask(tx, its)

    assert asked(vm_state=states.RESIZED, power_state=states.NOSTATE) == [row.host]
    assert asked(vm_state=states.RESIZED, power_state=states.RUNNING) == [], "it has said that"
    assert asked(vm_state=states.ACTIVE, power_state=states.RUNNING) == [], "nothing waits"


def moves(**more: t.Any) -> cold.Wanted:
    return cold.Wanted(Selection(), ("h1", "h2"), {"h1": "qcow2", "h2": "qcow2"}, **more)


def test_a_resize_that_cannot_be_is_told_and_keeps_no_other(two_hosts: World) -> None:
    world = two_hosts
    big, more = (dataclasses.replace(SMALL, name=n, memory_mb=2048, root_gb=g) for n, g in (("big", 5), ("more", 6)))
    apply(world, file(world, request("a"), request("b", flavor=big), request("c")))
    wanted = [request("a", flavor=big), request("b"), request("c", flavor=more)]
    its = file(world, *wanted, allow=["resize"], moves=moves())
    why = "Server disk was unable to be resized because: the flavor has a root disk of 1 GiB, the instance 5 GiB"
    assert planned(world, its).lines() == [
        "~ a flavor small -> big: resize, restarts the guest",
        "! b flavor big -> small: cannot be resized, %s" % why,
        "~ c flavor small -> more: resize, restarts the guest",
        "2 to change, 1 cannot be changed; 0 as the file has them.",
    ]
    rows = living(world)
    with world.ledger.for_run(world.context("b")).rehearse() as tx:
        begun = fleet.begin(tx, its)
        assert fleet.resizes(tx, its) == begun.flavors == {rows["a"].uuid: "big", rows["c"].uuid: "more"}
    assert sorted(begun.operations["resize"]) == sorted(begun.flavors)


def test_what_resizes_need_more_counts_for_the_quota(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("a")))
    big = dataclasses.replace(SMALL, name="big", memory_mb=2048)
    quotas = {"ram": 2047, "instances": -1, "cores": -1}
    its = file(world, request("a", flavor=big), allow=["resize"], moves=moves(quotas=quotas), quotas=quotas)
    with pytest.raises(errors.OverQuota):
        planned(world, its)
    quotas["ram"] = 2048 + 1023
    both = dataclasses.replace(its, requests=[*its.requests, request("b")])
    with pytest.raises(errors.InvalidRequest) as refused:
        planned(world, both)
    assert [e["code"] for e in refused.value.errors] == ["OverQuota"]
    quotas["ram"] += 1
    assert len(planned(world, both).to_do) == 2


def test_volumes_of_the_file_come_and_go(bworld: BootWorld) -> None:
    world = bworld
    world.report("h1", memory=9)
    world.store()
    data, logs = world.make("data", size=1), world.make("logs", size=1)
    world.boot_of(volume_request("web", image=IMAGE))
    wanted = volume_file(world, volume_request("web", device(uuid="data"), image=IMAGE))
    with world.ledger.write() as tx:
        begun = fleet.begin(tx.for_run(world.context("b")), wanted)
    (row,) = living(world).values()
    assert begun.attach == [{"instance": row.uuid, "volume": data}] and begun.detach == []
    world.attach(*begun.attach, run="b")
    assert [c.line() for c in planned(world, wanted, "b").to_do] == ["~ web attach volume data"], "it is on the way"
    finish_attach(world, "b")
    assert planned(world, wanted).to_do == []
    with world.ledger.write() as tx:
        fleet.record(tx.for_run(world.context("b")), wanted)
    assert [d["uuid"] for d in living(world)["web"].digest["block_device_mapping"]] == ["data"]

    world.attach({"instance": "web", "volume": "logs"}, run="c")
    finish_attach(world, "c")
    without = volume_file(world, volume_request("web", image=IMAGE))
    (change,) = planned(world, without).to_do
    assert (change.kind, change.volume["volume"]) == ("detach", data), "logs was never in the file"
    assert logs in {a.volume_id for a in world.live_attachments()}


def test_a_volume_of_what_is_pruned_is_free_for_what_is_booted(bworld: BootWorld) -> None:
    world = bworld
    world.report("h1", memory=9)
    world.store()
    world.make("data", size=1)
    world.boot_of(volume_request("old", device(uuid="data"), image=IMAGE))
    wanted = volume_file(world, volume_request("new", device(uuid="data"), image=IMAGE))
    with pytest.raises(errors.InvalidRequest):
        planned(world, wanted)
    plan = planned(world, dataclasses.replace(wanted, prune=True))
    assert [c.line() for c in plan.changes] == ["+ new boot", "- old: delete"]


def test_a_deletion_names_the_volumes_that_go_with_it(bworld: BootWorld) -> None:
    world = bworld
    world.report("h1", memory=9)
    world.store()
    for name in ("data", "logs", "kept"):
        world.make(name, size=1)
    mine = [device(uuid=n, delete_on_termination=n != "kept") for n in ("data", "logs", "kept")]
    world.boot_of(volume_request("old", *mine, image=IMAGE))
    plan = planned(world, dataclasses.replace(volume_file(world), prune=True))
    assert [c.line() for c in plan.changes] == ["- old: delete, and its volumes data, logs"]
    (row,) = living(world).values()
    assert world.delete("d", uuids=[row.uuid]).volumes == {row.uuid: ["data", "logs"]}


def test_a_volume_that_cannot_come_or_go_is_told_and_keeps_no_other(bworld: BootWorld) -> None:
    """It is another instance's, or at work, or named by two; one that another instance of the file gives up is free."""
    world = bworld
    world.report("h1", memory=9)
    world.store()
    for name in ("data", "logs", "slow", "given", "twice"):
        world.make(name, size=1)
    names = ("one", "two", "three", "other")
    world.boot_of(*(volume_request(n, image=IMAGE) for n in names))
    for guest, volume in (("other", "logs"), ("three", "given"), ("three", "slow")):
        world.attach({"instance": guest, "volume": volume}, run="b")
        finish_attach(world, "b")
    had = volume_file(world, volume_request("three", device(uuid="given"), device(uuid="slow"), image=IMAGE))
    with world.ledger.write() as tx:
        assert fleet.record(tx.for_run(world.context("b")), had)
    world.detach({"instance": "three", "volume": "slow"}, run="l")
    its = volume_file(
        world,
        volume_request("one", device(uuid="data"), device(uuid="twice"), image=IMAGE),
        volume_request("two", device(uuid="logs"), device(uuid="given"), device(uuid="twice"), image=IMAGE),
        volume_request("three", image=IMAGE),
    )
    plan = planned(world, its, "c")
    other = living(world)["other"].uuid
    assert sorted(c.line().partition(" by run ")[0] for c in plan.changes if not c.done) == [
        "! three detach volume slow: Volume slow is being worked on",
        "! two attach volume logs: Invalid volume: volume is already attached and multiple attachments are not enabled."
        " Volume %s is attached to %s: detach it there first." % (world.volume("logs").id, other),
        "! two attach volume twice: Invalid input received: volume twice is named twice",
    ]
    assert all(c.later for c in plan.changes if not c.done), "the playbook fails, and the next one tries them again"
    with world.ledger.write() as tx:
        begun = fleet.begin(tx.for_run(world.context("c")), its)
    ids = {n: world.volume(n).id for n in ("data", "given", "twice")}
    assert {a["volume"] for a in begun.attach} == set(ids.values())
    assert [d["volume"] for d in begun.detach] == [ids["given"]]
    world.detach(*begun.detach, run="c")
    finish_detach(world, "c")
    world.attach(*begun.attach, run="c")
    finish_attach(world, "c")
    assert planned(world, its, "c").to_do == []


def finish_attach(world: BootWorld, run: str) -> None:
    """What the hosts do."""
    world.storage_round(run)
    context = world.context(run)
    with world.ledger.read() as tx:
        rows = attach.to_attach(tx.for_run(context), "h1")
    world.connect("h1", [r.instance_uuid for r in rows], run)
    with world.ledger.write() as tx:
        life.attached(tx.for_run(context), [r.id for r in rows])
        done, left = attach.finish(tx.for_run(context), attach.ATTACH)
    assert done and not left


def finish_detach(world: BootWorld, run: str) -> None:
    context = world.context(run)
    with world.ledger.write() as tx:
        rows = attach.to_detach(tx.for_run(context), "h1")
        world.connections -= {("h1", r.volume_id) for r in rows}
        life.disconnected(tx.for_run(context), [r.id for r in rows])
    world.storage_round(run)
    with world.ledger.write() as tx:
        done, left = attach.finish(tx.for_run(context), attach.DETACH)
    assert done and not left


def test_a_config_drive_that_an_instance_has_is_no_difference(two_hosts: World) -> None:
    """Left out it follows from settings, and with user data it is implied."""
    world = two_hosts
    apply(world, file(world, request("web")))
    same = file(world, request("web", config_drive=True))
    assert planned(world, same).changes == ()
    apply(world, same, "b")
    assert living(world)["web"].digest["config_drive"] is True, "which boot compares"
    (change,) = planned(world, file(world, request("web", config_drive=False))).changes
    assert (change.kind, change.field) == ("never", "config_drive")
    assert change.what == "config_drive true -> false", "as YAML has them"


@pytest.mark.parametrize("what", ["reset_state", "lock"])
def test_what_no_host_has_a_part_in_does_not_bring_disks_back(two_hosts: World, what: str) -> None:
    """A run died in the middle of a rebuild: the disks may be missing, and no reboot leads out."""
    world = two_hosts
    its = file(world, request("web", allow=("restart", "rebuild")))
    apply(world, its)
    row = living(world)["web"]

    def write(function: t.Callable[..., t.Any], *arguments: t.Any, run: str = "b") -> None:
        with world.ledger.write() as tx:
            function(tx.for_run(world.context(run)), *arguments)

    write(operation.begin, find("rebuild", "HARD"), Selection(uuids=[row.uuid]), {"h1", "h2"}, run="r")
    world.time += 100_000
    if what == "reset_state":
        write(reset_state.reset, Selection(uuids=[row.uuid]), "error")
    else:
        write(operations.settle_operations, str(row.host), {}, world.time + 1)
        write(lock.lock, Selection(uuids=[row.uuid]))
    assert living(world)["web"].vm_state == states.ERROR
    assert [c.steps for c in planned(world, its).to_do] == [("rebuild",)]


def volume_file(world: BootWorld, *requests: ServerRequest) -> fleet.File:
    options = accept.AcceptOptions(networks=world.networks, volumes=BootVolumeOptions(world.settings(), True))
    return fleet.File(requests, options)


def test_a_volume_that_does_not_exist_is_refused_with_its_place(two_hosts: World) -> None:
    world = two_hosts
    apply(world, file(world, request("web")))
    wanted = file(world, request("web", block_device_mapping=(device(uuid="nothing"),)))
    with pytest.raises(errors.InvalidRequest) as refused:
        planned(world, wanted)
    assert [(e["path"], e["code"]) for e in refused.value.errors] == [
        ("instances[0].block_device_mapping", "VolumeNotFound")
    ]


# --- any two files ------------------------------------------------------------------------------------------------------

ENTRY = st.fixed_dictionaries(
    {"count": st.integers(1, 3)},
    optional={
        "state": st.sampled_from(["running", "stopped", "paused", "suspended"]),
        "locked": st.booleans(),
        "metadata": st.sampled_from([{}, {"role": "a"}, {"role": "b"}]),
        "description": st.sampled_from(["one", "two"]),
        "tags": st.sampled_from([("a",), ("a", "b")]),
        "flavor": st.sampled_from(
            [SMALL, dataclasses.replace(SMALL, name="other"), dataclasses.replace(SMALL, vcpus=2)]
        ),
    },
)
ENTRIES = st.dictionaries(st.sampled_from(["web", "db", "old"]), ENTRY, max_size=3)


@given(st.lists(st.tuples(ENTRIES, st.booleans()), min_size=2, max_size=3))
@settings(max_examples=examples(40), deadline=None)
def test_what_the_plan_says_is_what_is_done_and_then_nothing_is_left(
    files: list[tuple[dict[str, dict[str, t.Any]], bool]],
) -> None:
    world = World(MEMORY)
    world.report("h1", memory=64)
    world.report("h2", memory=64)
    for number, (entries, prune) in enumerate(files):
        requests = [request(name, **fields) for name, fields in entries.items()]
        its = file(world, *requests, prune=prune)
        before = living(world)
        told = planned(world, its)
        apply(world, its, "run%d" % number)
        after = living(world)
        booted = {c.name for c in told.to_do if c.kind in ("boot", "replace")}
        deleted = {c.name for c in told.to_do if c.kind == "delete"}
        changed = {c.name for c in told.to_do} - booted - deleted
        assert set(after) - set(before) == booted and set(before) - set(after) == deleted, told.lines()
        kept = {n: r for n, r in before.items() if n in after}
        assert {n for n, r in kept.items() if seen(r) != seen(after[n])} == changed, told.lines()
        assert all(after[n].uuid == r.uuid for n, r in kept.items())
        again = planned(world, its)
        assert again.to_do == [], (told.lines(), again.lines())
        assert [c for c in again.changes if not c.done] == [c for c in told.changes if not c.done]
        assert (again.kept_names, again.drift) == (told.kept_names, told.drift)
        if prune:
            assert len(after) == sum(fields["count"] for fields in entries.values())


def seen(row: Instance) -> tuple[t.Any, ...]:
    """What a file can change of it without leave."""
    return (row.vm_state, row.locked_by, row.spec["metadata"], row.spec["description"], row.spec["tags"])


def test_interfaces_follow_the_file(world: World) -> None:
    """A full network is told before anything is done; what is done once leaves nothing to do."""
    world.know(network(2, addresses=1))
    world.report("h1")
    two_nets = (network(1).id, network(2).id)
    web, db = (request(n) for n in ("web", "db"))
    apply(world, file(world, web, db))
    both = [request(n, networks=two_nets) for n in ("web", "db")]
    plan = planned(world, file(world, *both))
    assert [c.kind for c in plan.changes] == ["attach_interface"] * 2
    assert sorted((c.done, c.later) for c in plan.changes) == [(False, True), (True, False)]
    assert "No fixed IP addresses available for network: net-2" in "".join(plan.lines())

    one = file(world, both[0], db)
    with world.ledger.write() as tx:
        begun = fleet.begin(tx.for_run(world.context()), one)
    (asked,) = begun.attach_interfaces
    its = WantedInterface("", asked["instance"], NetworkRequest(network=asked["network"]))
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        interfaces.begin_attach(tx, [its], world.networks, None, ["h1"], {})
    half = planned(world, one, run="b")
    assert [(c.kind, c.done) for c in half.changes] == [("attach_interface", True)], "its run has died"
    with world.ledger.write() as tx:
        interfaces.finish(tx.for_run(world.context()), interfaces.ATTACH, {asked["instance"]: []})
    assert planned(world, one).changes == ()
    with world.ledger.write() as tx:
        assert fleet.record(tx.for_run(world.context()), one)
    assert tuple(n["network"] for n in living(world)["web"].digest["networks"]) == two_nets
    assert planned(world, one).changes == ()

    with world.ledger.write() as tx:
        begun = fleet.begin(tx.for_run(world.context()), file(world, web, db))
    (gone,) = begun.detach_interfaces
    ((port, _network),) = _ports_on(world, asked["instance"], network(2).id)
    assert gone == {"instance": asked["instance"], "port_id": port.id} and not begun.attach_interfaces
    plan = planned(world, file(world, web, both[1]))
    assert [(c.kind, c.name, c.done) for c in plan.changes] == [
        ("attach_interface", "db", True),
        ("detach_interface", "web", True),
    ], "what web loses first is free for db"


def test_an_interface_comes_before_what_is_booted(world: World) -> None:
    """Who is given the last address has it in the plan, too: the boot for which none is left is refused before anything is touched."""
    world.know(network(2, addresses=1))
    world.report("h1")
    apply(world, file(world, request("web")))
    web, db = request("web", networks=(network(1).id, network(2).id)), request("db", networks=(network(2).id,))
    with pytest.raises(errors.InvalidRequest) as refused:
        planned(world, file(world, web, db))
    assert "instances[1].networks: No fixed IP addresses available for network: net-2" in refused.value.message
    assert [c.done for c in planned(world, file(world, web)).changes] == [True]


def _ports_on(world: World, uuid: str, network_id: str) -> list[t.Any]:
    with world.ledger.read() as tx:
        return [(p, n) for p, n in ports.ports_of(tx, [uuid])[uuid] if n.id == network_id]


def test_two_interfaces_of_one_network_are_two(world: World) -> None:
    """What an instance has is not taken for the one that is missing; the network's last address is told to be gone."""
    world.know(network(2, addresses=2))
    world.report("h1")
    net = network(2).id
    apply(world, file(world, request("web", networks=(net,))))
    two = file(world, request("web", networks=(net, net)))
    assert [(c.kind, c.done) for c in planned(world, two).changes] == [("attach_interface", True)]
    for _time in range(2):
        _attach(world, two)
    uuid = living(world)["web"].uuid
    assert planned(world, two).changes == () and len(_ports_on(world, uuid, net)) == 2

    three = planned(world, file(world, request("web", networks=(net, net, net))))
    assert [(c.kind, c.done, c.later) for c in three.changes] == [("attach_interface", False, True)]
    assert "No fixed IP addresses available for network: net-2" in three.lines()[0]


def _attach(world: World, its: fleet.File) -> None:
    """As the playbook attaches the interfaces that are missing."""
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        begun = fleet.begin(tx, its).attach_interfaces
        wanted = [WantedInterface("", e["instance"], NetworkRequest(network=e["network"])) for e in begun]
        if wanted:
            found = interfaces.begin_attach(tx, wanted, world.networks, None, ["h1"], {}).interfaces
            interfaces.finish(tx, interfaces.ATTACH, {each.row.uuid: [] for each in found})


def test_an_interface_comes_to_a_guest_that_goes_on_first(two_hosts: World) -> None:
    """Suspended, an instance gets none; the playbook resumes it before."""
    world = two_hosts
    world.know(network(2))
    apply(world, file(world, request("web", state="suspended")))
    assert living(world)["web"].vm_state == states.SUSPENDED
    both = (network(1).id, network(2).id)
    told = planned(world, file(world, request("web", networks=both)))
    assert told.lines()[0] == "! web attach interface net-2: not while the instance is suspended"
    plan = planned(world, file(world, request("web", networks=both, state="running")))
    assert [(c.kind, c.done) for c in plan.changes] == [("attach_interface", True), ("state", True)]


def test_what_never_ran_and_cannot_be_deleted_keeps_no_other(two_hosts: World) -> None:
    """Its host is not in the inventory."""
    world = two_hosts
    world.accept(request("web", flavor=dataclasses.replace(SMALL, name="other")), run="l")
    (host,) = world.schedule("l").hosts
    world.build(host, until="spawning", run="l")
    world.time += 100_000  # the run is dead
    world.report("h1", memory=9)
    world.report("h2", memory=9)
    its = file(world, request("web"), request("db"), inventory=sorted({"h1", "h2"} - {host}))
    plan = planned(world, its, "b")
    assert [(c.name, c.kind, c.done, c.later) for c in plan.changes] == [
        ("db", "boot", True, False),
        ("web", "replace", False, True),
    ]
    apply(world, its, "b")
    assert living(world)["db"].vm_state == states.ACTIVE and living(world)["web"].vm_state == states.BUILDING
