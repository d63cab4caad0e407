# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import schedule
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    claims,
    fleet,
    history,
    instances,
    nodes,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import setting_kinds
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, SMALL, STAGES, World, at, request


def test_placed_claimed_and_bound_in_one_transaction(world: World) -> None:
    world.report("h1", reserved_memory_mb=512, reserved_disk_gb=2, reserved_vcpus=1)
    flavor = Flavor(name="f", memory_mb=2048, vcpus=2, root_gb=3, ephemeral_gb=1, swap=512)
    uuid = world.accept(request("web", flavor=flavor)).created[0]
    result = world.schedule()
    assert (set(result.placed), result.hosts, result.waiting, result.failed) == ({uuid}, ["h1"], [], [])
    row = world.row(uuid)
    assert (row.host, row.node, row.launched_on, row.task_state, row.scheduled_at) == (
        "h1",
        "h1",
        "h1",
        None,
        world.time,
    )
    assert row.limits == {"memory_mb": 4096, "disk_gb": 4000, "vcpu": 8000}
    assert (row.retry["num_attempts"], row.retry["hosts"]) == (1, [["h1", "h1"]])
    assert world.used("h1") == (512 + 2048, 2 + 4, 1 + 2, 1)  # swap is not in the claim
    assert [p.host for p in world.rows(tables.ports)] == ["h1"]
    with world.ledger.read() as tx:
        assert [(e["event"], e["host"], e["result"]) for e in history.events_of(tx, uuid)] == [
            ("schedule", "h1", "Success")
        ]
        assert not instances.waits_for_host(tx, "run-a")


def test_without_retries_the_record_is_null(world: World) -> None:
    world.report("h1")
    uuid = world.accept(request("web")).created[0]
    world.schedule(max_attempts=1)
    with world.ledger.read() as tx:
        query = tables.instances.select().where(tables.instances.c.retry.is_(None), tables.instances.c.uuid == uuid)
        assert tx.execute(query).first() is not None


def test_the_last_place_is_given_and_not_one_more(world: World) -> None:
    world.report("h1", memory=3)
    world.accept(request("a", 3))
    assert len(world.schedule().placed) == 3
    assert world.used("h1")[0] == 3 * 1024
    world.accept(request("b"))
    result = world.schedule()
    assert (result.placed, len(result.failed)) == ({}, 1)
    fault = world.fault(result.failed[0])
    assert fault.error_code == "NoValidHost" and "RamFilter" in fault.message
    assert world.state(result.failed[0]) == (states.ERROR, None, None)


def test_an_entry_is_placed_whole_or_not_at_all(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=1)
    accepted = world.accept(request("good", 2), request("big", 3), request("last", 2))
    result = world.schedule()
    names = {world.row(u).display_name for u in result.placed}
    assert names == {"good-1", "good-2", "last-1", "last-2"}
    assert {world.row(u).display_name for u in result.failed} == {"big-1", "big-2", "big-3"}
    for uuid in result.failed:
        assert world.state(uuid) == (states.ERROR, None, None)
        assert world.addresses(uuid) == []
    assert [a.message for a in world.rows(tables.instance_actions) if a.finish_time] == ["Error"] * 3
    assert world.claims() == {(u, result.placed[u].host) for u in accepted.created if u in result.placed}


def test_only_this_runs_instances_are_placed(world: World) -> None:
    world.report("h1")
    mine = world.boot("mine", "accepted", run="a")
    other = world.boot("other", "accepted", run="b")
    assert set(world.schedule("a").placed) == {mine}
    assert world.state(other) == (states.BUILDING, states.SCHEDULING, None)


def _stale_schedule(world: World, uuid: str, stale: list[t.Any], **options: t.Any) -> schedule.Scheduled:
    with world.ledger.write() as tx:
        return schedule.schedule(tx.for_run(world.context()), lambda *_asked: Fleet(stale), world.options(**options))


def _stale(world: World) -> list[t.Any]:
    with world.ledger.read() as tx:
        return world.hosts(tx)


def test_a_refused_claim_goes_to_an_alternate(world: World) -> None:
    world.report("h1", memory=2)
    world.report("h2", memory=1)
    stale = _stale(world)
    world.boot("fast", "scheduled", run="b", flavor=Flavor(name="two", memory_mb=2048, vcpus=1, root_gb=1))
    assert world.used("h1")[0] == 2048
    uuid = world.boot("late", "accepted")
    result = _stale_schedule(world, uuid, stale)
    assert (result.placed[uuid].host, result.waiting) == ("h2", [])
    assert (world.row(uuid).host, world.row(uuid).launched_on, world.row(uuid).limits["memory_mb"]) == (
        "h2",
        "h2",
        1024,
    )
    assert world.row(uuid).retry["hosts"] == [["h2", "h2"]]


def test_refused_everywhere_waits_for_the_next_round(world: World) -> None:
    world.report("h1", memory=1)
    stale = _stale(world)
    world.boot("fast", "scheduled", run="b")
    uuid = world.boot("late", "accepted")
    result = _stale_schedule(world, uuid, stale)
    assert (result.placed, result.waiting, result.failed) == ({}, [uuid], [])
    row = world.row(uuid)
    assert (row.task_state, row.host, row.retry["hosts"]) == (states.SCHEDULING, None, [["h1", "h1"]])
    assert "Free memory 0.00 MB < requested 1024 MB" in row.retry["exc_reason"]
    assert world.fault(uuid).error_code == "ComputeResourcesUnavailable"
    (told,) = [n for n in world.rows(tables.notifications) if n.instance_uuid == uuid]
    assert (told.event_type, told.payload["host"]) == ("compute.instance.create.error", "h1")
    assert told.payload["fault"]["code"] == "ComputeResourcesUnavailable"
    assert world.addresses(uuid)  # kept: it goes on
    result = world.schedule()
    assert result.failed == [uuid] and world.fault(uuid).error_code == "NoValidHost"


def test_a_refused_claim_without_retries_is_the_end(world: World) -> None:
    world.report("h1", memory=1)
    stale = _stale(world)
    world.boot("fast", "scheduled", run="b")
    uuid = world.boot("late", "accepted")
    result = _stale_schedule(world, uuid, stale, max_attempts=1)
    assert (result.placed, result.waiting, result.failed) == ({}, [], [uuid])
    told = [n.event_type for n in world.rows(tables.notifications) if n.instance_uuid == uuid]
    assert told == ["compute.instance.create.error"]
    assert world.state(uuid) == (states.ERROR, None, None)
    assert world.addresses(uuid) == []


def test_the_claims_log_names_what_was_tried_and_why_not(world: World) -> None:
    world.report("h1", memory=2)
    world.report("h2", memory=1)
    stale = _stale(world)
    world.boot("fast", "scheduled", run="b", flavor=Flavor(name="two", memory_mb=2048, vcpus=1, root_gb=1))
    uuid = world.boot("late", "accepted")
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context())
        log = schedule.schedule(of_run, lambda *_asked: Fleet(stale), world.options(), log_claims=True).log
    assert all(line.startswith("[instance: %s] " % uuid) for line in log)
    lines = [line.partition("] ")[2] for line in log]
    assert lines[:3] == [
        "Attempting claim on node h1: memory 1024 MB, disk 1 GB, vcpus 1 CPU",
        "Total memory: 2048 MB, used: 2048.00 MB",
        "memory limit: 2048.00 MB, free: 0.00 MB",
    ]
    assert [line for line in lines if " on node " in line][1:] == [
        "Claim unsuccessful on node h1: Insufficient compute resources: Free memory 0.00 MB < requested 1024 MB.",
        "Attempting claim on node h2: memory 1024 MB, disk 1 GB, vcpus 1 CPU",
        "Claim successful on node h2",
    ]
    world.boot("quiet", "accepted")
    assert world.schedule().log == []


def test_a_host_that_is_set_before_the_claim_is_warned_of(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "accepted")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(host="gone", node="gone"))
    result = world.schedule()
    assert result.warnings == [
        "web: the ledger had a host before the claim, gone. The instance gets the host of its claim."
    ]
    assert result.placed[uuid].host == world.row(uuid).host == "h1"
    world.boot("other", "accepted")
    assert world.schedule().warnings == []


@pytest.mark.parametrize("version", ["99.0", "2.0", "1.3", "1.10", "new"])
def test_a_request_that_a_newer_version_accepted_is_refused(world: World, version: str) -> None:
    world.report("h1")
    uuid = world.boot("web", "accepted")
    _store_version(world, version)
    with pytest.raises(errors.RequestTooNew, match="of web is stored in version %s, " % version) as caught:
        world.schedule()
    assert "Upgrade" in caught.value.remedy and world.claims() == set()
    assert world.state(uuid) == (states.BUILDING, states.SCHEDULING, None)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_of_an_older_version_is_read(world: World, version: str) -> None:
    world.report("h1")
    uuid = world.boot("web", "accepted")
    _store_version(world, version)
    assert set(world.schedule().placed) == {uuid}


def _store_version(world: World, version: str) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.request_specs.update().values(spec_version=version))


def test_what_still_waits_after_the_last_round_ends(world: World) -> None:
    uuid = world.boot("web", "accepted")
    with world.ledger.write() as tx:
        assert schedule.give_up(tx.for_run(world.context()), 3) == [uuid]
    assert world.state(uuid) == (states.ERROR, None, None)
    assert "no round left" in world.fault(uuid).message


def test_claims_name_every_reason(world: World) -> None:
    world.report("h1", memory=1)
    uuid = world.boot("web", "accepted")
    candidate = claims.Candidate("h1", "h1", {"memory_mb": 1024, "disk_gb": 0, "vcpu": 1})
    asked = claims.ClaimRequest(uuid, ResourceRequest(memory_mb=2048, disk_gb=1, vcpus=2), [candidate])
    with world.ledger.write() as tx:
        refusal = claims.claim(tx.for_run(world.context()), [asked])[uuid]
        unknown = claims.claim(
            tx.for_run(world.context()), [dataclasses.replace(asked, candidates=[claims.Candidate("gone", "gone", {})])]
        )[uuid]
    assert isinstance(refusal, errors.ComputeResourcesUnavailable)
    for text in (
        "Free memory 1024.00 MB < requested 2048 MB",
        "Free disk 0.00 GB < requested 1 GB",
        "Free vcpu 1.00 VCPU < requested 2 VCPU",
    ):
        assert text in refusal.message
    assert (
        isinstance(unknown, errors.ComputeResourcesUnavailable) and "no longer exists in the ledger" in unknown.message
    )
    assert world.claims() == set()


def test_requests_of_one_call_see_each_other(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=1)
    uuids = world.accept(request("web", 5)).created
    limits = {"h1": {"memory_mb": 3072}, "h2": {"memory_mb": 1024}}
    places = [claims.Candidate(h, h, limits[h]) for h in ("h1", "h2")]
    with world.ledger.write() as tx:
        taken = claims.claim(
            tx.for_run(world.context()), [claims.ClaimRequest(u, ResourceRequest(1024, 1, 1), places) for u in uuids]
        )
        found = [t.host if isinstance(t, claims.Candidate) else None for t in (taken[u] for u in uuids)]
        assert found == ["h1", "h1", "h1", "h2", None]
        assert claims.release_on(tx, {("h1", uuid) for uuid in uuids}) == 3
        assert claims.release_on(tx, {("h1", uuid) for uuid in uuids}) == 0
        assert claims.release(tx, uuids) == 1
        assert claims.release(tx, uuids) == 0


def test_usage_that_goes_down_is_taken_even_over_capacity(world: World) -> None:
    world.report("h1", memory=4)
    uuids = world.accept(request("web", 4)).created
    world.schedule()
    world.report("h1", memory=1, reserved_memory_mb=512)
    assert world.used("h1")[0] == 4096 + 512
    world.build("h1")
    world.delete(uuids=uuids[:1])
    world.removed("h1", uuids[:1])
    world.finish()
    assert world.used("h1")[0] == 3072 + 512


# --- nodes ---------------------------------------------------------------------------------------------------------


def test_a_second_report_updates_the_row(world: World) -> None:
    first = world.report("h1", memory=4, availability_zone="east", disabled=True, disabled_reason="broken")
    world.time += 10
    assert world.report("h1", memory=5) == first
    row = world.rows(tables.compute_nodes)[0]
    assert (row.memory_mb, row.reported_at, row.created_at, row.availability_zone) == (
        5120,
        world.time,
        world.time - 10,
        "east",
    )
    assert world.report("h1", node="h1-other") != first


def test_configuration_is_brought_in_where_it_differs(world: World) -> None:
    world.report("h1")
    world.report("h2")
    with world.ledger.write() as tx:
        wanted = {"h1": {"reserved_memory_mb": 1024, "disabled": True}, "h2": {"reserved_memory_mb": 0}, "unknown": {}}
        assert nodes.configure(tx, wanted) == ["h1"]
        assert nodes.configure(tx, wanted) == []
    assert world.used("h1")[0] == 1024
    (state, _h2) = _stale(world)
    assert (state.host, state.disabled, state.memory_mb_used) == ("h1", True, 1024)


def test_many_kinds_of_settings_are_compared_by_the_database(world: World) -> None:
    """One statement where nothing differs; what differs is found whichever kind its host has."""
    kinds = setting_kinds.KINDS + 5
    wanted = {"h%02d" % n: {"reserved_vcpus": n % kinds, "availability_zone": "nova"} for n in range(2 * kinds)}
    for host, settings in wanted.items():
        world.report(host, **settings)
    world.report("h00", node="second", **wanted["h00"])
    world.report("stranger", reserved_vcpus=99)
    few = {host: its for host, its in wanted.items() if its["reserved_vcpus"] < 3}
    with world.ledger.write() as tx:
        assert nodes.differing(tx, wanted) == [] == nodes.differing(tx, {})
        with counted(world.ledger) as statements:
            assert nodes.differing(tx, few) == []
        assert len(statements) == 1
        for its in (wanted, few, {}, {**few, "unknown": {"disabled": True}}):
            with counted(world.ledger) as alone:
                fleet.read(tx, list(wanted))
            with counted(world.ledger) as statements:
                assert len(fleet.read(tx, list(wanted), configurations=its)) == len(wanted) + 1
            at_once = len(its) < len(wanted)
            assert (len(statements) == len(alone)) == at_once
        for its in ({"h00": {"reserved_vcpus": 0}, "h01": {}}, {"h01": {}, "h02": {"reserved_vcpus": 2}}):
            fleet.read(tx, list(wanted), configurations=its)
        c = tables.compute_nodes.c
        for host, node in (("h00", "second"), ("h01", "h01"), ("h%02d" % (kinds - 1), "h%02d" % (kinds - 1))):
            where = (c.host == host, c.node == node)
            tx.execute(tables.compute_nodes.update().where(*where).values(reserved_vcpus=50))
            assert [(its[1], its[2]) for its in nodes.differing(tx, wanted)] == [
                (host, {"reserved_vcpus": wanted[host]["reserved_vcpus"]})
            ]
            for its in (wanted, {host: wanted[host], "h02": {}}):
                with pytest.raises(fleet.SettingsDiffer):
                    fleet.read(tx, ["h02"], configurations=its)
            assert nodes.configure(tx, wanted) == [host]
        only = {"h01": {"reserved_vcpus": 1}}
        assert nodes.differing(tx, only) == []
        assert nodes.configure(tx, {"h01": {"reserved_vcpus": 2}}) == ["h01"]


def test_which_hosts_are_asked_again(world: World) -> None:
    world.report("fresh")
    world.report("away")
    world.time -= 301
    world.report("old")
    world.time += 301
    with world.ledger.write() as tx:
        nodes.record_unreachable(tx, "away", "no route")
        assert nodes.stale_hosts(tx.for_run(world.context()), ["fresh", "old", "away", "new"], 300) == [
            "old",
            "away",
            "new",
        ]
        assert [s.host for s in world.hosts(tx) if s.forced_down] == ["away"]
        assert nodes.node_facts(tx, "fresh", "fresh")["vcpus"] == 500
        assert nodes.node_facts(tx, "new", "new") == {}
    world.report("away")
    assert not any(s.forced_down for s in _stale(world))


# --- compare and swap ----------------------------------------------------------------------------------------------


def test_swap_moves_only_what_is_as_expected(world: World) -> None:
    world.report("h1")
    uuids = world.accept(request("web", 3), run="a").created + [world.boot("other", "accepted", run="b")]
    with world.ledger.write() as tx:
        moved = instances.swap(at(tx, world.time + 5), uuids[:1], [states.SCHEDULING], task_state=states.NETWORKING)
        assert moved == set(uuids[:1])
    assert (world.row(uuids[0]).task_state, world.row(uuids[0]).updated_at) == (states.NETWORKING, world.time + 5)
    with world.ledger.write() as tx:
        moved = instances.swap(tx.for_run(world.context()), uuids, [states.SCHEDULING, None], "run-a", task_state=None)
    assert moved == {uuids[1], uuids[2]}
    assert [world.row(u).task_state for u in uuids] == [states.NETWORKING, None, None, states.SCHEDULING]
    with world.ledger.write() as tx:
        assert instances.swap(tx.for_run(world.context()), uuids, [None], task_state=states.SPAWNING) == {
            uuids[1],
            uuids[2],
        }
        assert instances.swap(tx.for_run(world.context()), [], [None], task_state=states.SPAWNING) == set()


def test_a_lost_swap_tells_why(world: World) -> None:
    uuid = world.boot("web", "accepted")

    def why() -> errors.BootflowError:
        with world.ledger.read() as tx:
            return instances.swap_errors(tx, [uuid], [states.SPAWNING, None])[uuid]

    assert why().code == "UnexpectedTaskStateError" and "scheduling" in why().message
    world.delete(uuids=[uuid])
    assert why().code == "UnexpectedDeletingTaskStateError"
    world.finish()
    assert why().code == "InstanceNotFound"
    with world.ledger.write() as tx:
        assert instances.swap(tx.for_run(world.context()), [uuid], [None], task_state=states.SPAWNING) == set()


@pytest.mark.parametrize(("setting", "number"), [("none", 0), ("vm_state", 1), ("vm_and_task_state", 2)])
def test_state_changes_are_notified_as_set(world: World, setting: str, number: int) -> None:
    uuid = world.boot("web", "accepted")
    with world.ledger.write() as tx:
        instances.swap(at(tx, 1.0), [uuid], [states.SCHEDULING], None, setting, task_state=states.NETWORKING)
        instances.swap(
            at(tx, 2.0),
            [uuid],
            [states.NETWORKING],
            None,
            setting,
            vm_state=states.ACTIVE,
            task_state=states.NETWORKING,
        )
    found = world.rows(tables.notifications, tables.notifications.c.event_type == "compute.instance.update")
    assert len(found) == number
    if number:
        assert (found[-1].payload["old_state"], found[-1].payload["state"]) == (states.BUILDING, states.ACTIVE)


def test_every_change_of_state_is_notified_from_the_request_to_the_end(world: World) -> None:
    """Scheduled, built and deleted; and never placed: what an update says was before is what the one before it said."""
    plain = world.context
    everything: dict[str, t.Any] = {"notify_on_state_change": "vm_and_task_state"}
    world.context = lambda run="a", **fields: plain(run, **{**everything, **fields})  # type: ignore[method-assign]
    world.report("h1", memory=1)
    built = world.boot("web")
    world.delete(uuids=[built])
    world.removed("h1", [built])
    world.finish()
    huge = world.accept(request("huge", flavor=dataclasses.replace(SMALL, memory_mb=9_000_000))).created[0]
    assert world.schedule().failed == [huge]

    def updates(uuid: str) -> list[tuple[str, str | None]]:
        state: tuple[str, str | None] = (states.BUILDING, states.SCHEDULING)
        found = []
        n = tables.notifications.c
        rows = world.rows(tables.notifications, n.instance_uuid == uuid, n.event_type == "compute.instance.update")
        assert (rows[0].payload["old_state"], rows[0].payload["state"]) == (None, states.BUILDING)
        for row in rows[1:]:
            assert (row.payload["old_state"], row.payload["old_task_state"]) == state
            state = (row.payload["state"], row.payload["new_task_state"])
            found.append(state)
        return found

    building = [
        (states.BUILDING, task) for task in (None, states.NETWORKING, states.BLOCK_DEVICE_MAPPING, states.SPAWNING)
    ]
    ended = [(states.ACTIVE, None), (states.ACTIVE, states.DELETING), (states.DELETED, None)]
    assert updates(built) == building + ended
    assert updates(huge) == [(states.ERROR, None)]
    n, e = tables.notifications.c, tables.instance_action_events.c
    told = world.rows(tables.notifications, n.event_type == "compute_task.build_instances")
    assert [(r.instance_uuid, r.payload["method"], r.payload["state"]) for r in told] == [
        (huge, "build_instances", "error")
    ]
    journal = world.rows(tables.instance_action_events, e.instance_uuid == huge)
    assert [(r.event, r.result) for r in journal] == [("schedule", "Error")] and "RamFilter" in journal[0].details


def test_only_known_states_are_stored(world: World) -> None:
    uuid = world.boot("web", "accepted")
    for values in ({"vm_state": "flying"}, {"task_state": "dreaming"}):
        with pytest.raises(errors.LedgerError), world.ledger.write() as tx:
            instances.swap(at(tx, 1.0), [uuid], [states.SCHEDULING], **values)
    assert world.state(uuid) == (states.BUILDING, states.SCHEDULING, None)


# --- stages --------------------------------------------------------------------------------------------------------


def test_a_build_goes_through_its_stages(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.power_state, row.launched_at) == (
        states.ACTIVE,
        None,
        power_states.RUNNING,
        world.time,
    )
    with world.ledger.read() as tx:
        journal = [(e["event"], e["result"]) for e in history.events_of(tx, uuid)]
    assert journal == [(e, "Success") for e in ("schedule", "networking", "block_device_mapping", "spawning")]
    (action,) = world.rows(tables.instance_actions)
    assert (action.finish_time, action.message) == (world.time, None)
    assert [n.event_type for n in world.rows(tables.notifications)] == [
        "compute.instance.create.start",
        "compute.instance.create.end",
    ]
    assert world.rows(tables.notifications)[-1].payload["message"] == "Success"


def test_a_stage_takes_only_what_is_ready_for_it(world: World) -> None:

    world.report("h1")
    world.report("h2", memory=1)
    uuid = world.boot("web", "scheduled")
    assert world.begin(STAGES[1], "h1") == ([], {})
    assert world.begin(STAGES[0], "h2") == ([], {})
    assert world.begin(STAGES[0], "h1", run="b") == ([], {})
    (build,), failed = world.begin(STAGES[0], "h1")
    assert (build.uuid, failed, build.resumed, build.facts["vcpus"]) == (uuid, {}, False, 500)
    assert build.network_info[0]["network"]["label"] == "net-1"
    assert build.disks[0]["device_name"] == "/dev/vda"
    assert world.begin(STAGES[0], "h1") == ([], {})


def test_a_success_forgets_the_hosts_failures(world: World) -> None:
    world.report("h1")
    uuid = world.boot("a", "spawning")
    world.fail("h1", uuid, errors.RemoteError(reason="x"))
    assert world.rows(tables.compute_nodes)[0].failed_builds == 1
    world.boot("b")
    assert world.rows(tables.compute_nodes)[0].failed_builds == 0


def test_a_guest_that_was_deleted_while_it_started(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.delete(names=["web"])
    assert world.spawned("h1", [uuid]) == ([], [uuid])
    assert world.state(uuid) == (states.BUILDING, states.DELETING, "h1")


def test_a_stage_that_lost_a_build_says_so(world: World) -> None:

    world.report("h1")
    uuid = world.boot("web", "networking")
    world.delete(names=["web"])
    assert world.done(STAGES[0], [uuid]) == [uuid]


def test_a_fault_says_what_is_missing_and_what_would_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.report("h1", memory=1)
    world.report("h2", memory=2)
    monkeypatch.setattr(schedule, "MOST_EXPLAINED", 4)  # two requests over two hosts
    wishes = [request("big-%d" % n, flavor=Flavor("big", memory_mb=4096, vcpus=1, root_gb=1)) for n in range(3)]
    web, *big = world.accept(request("web"), *wishes).created
    result = world.schedule(explain_failures=True)
    assert set(result.placed) == {web} and sorted(result.failed) == sorted(big)
    for uuid in big[:2]:
        fault = world.fault(uuid)
        assert (
            "RamFilter rejected 2 hosts, the nearest is h" in fault.message
            and "memory: needs 4096 MiB" in fault.message
        )
        assert "Nearest miss: h" in fault.message and "MiB of memory instead of 4096 would" in fault.remedy
    assert list(result.explanations) == big[:2]
    assert "start: 2, end: 0" in world.fault(big[2]).message


def test_a_root_disk_of_the_image_s_size_claims_what_it_can_become(world: World) -> None:
    """20 such guests were placed on a host with room for three."""
    world.report("h1", reserved_disk_gb=3990)  # of 4000
    flavor = Flavor(name="zero", memory_mb=64, vcpus=1)
    image = dataclasses.replace(IMAGE, min_disk=3)
    world.accept(*(request("web-%d" % n, flavor=flavor, image=image) for n in range(20)))
    result = world.schedule()
    assert len(result.placed) == 3
    assert world.used("h1")[1] == 3990 + 9
    assert {world.row(uuid).root_gb for uuid in result.placed} == {3}
