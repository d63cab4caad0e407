# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import build_outcome, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import failure
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import STAGES, World, network, request

ELSEWHERE = errors.RemoteError(reason="qemu died")
NOWHERE = errors.ImageError(reason="the image is broken")
AWAY = errors.HostUnreachable(host="h1", reason="no route")


def clean(world: World, host: str) -> None:
    with world.ledger.write() as tx:
        cleanup.finish(tx, {host: [c.instance_uuid for c in cleanups.of_host(tx, host)]})


@pytest.mark.parametrize("until", ["networking", "block_device_mapping", "spawning"])
def test_rescheduled(world: World, until: str) -> None:
    world.report("h1", memory=9)
    world.report("h2", memory=2)
    uuid = world.boot("web", until)
    neighbour_claims = world.claims() - {(uuid, "h1")}
    assert world.fail("h1", uuid, ELSEWHERE, event=until) == "rescheduled"
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.host, row.node, row.run_id) == (
        states.BUILDING,
        states.SCHEDULING,
        None,
        None,
        "run-a",
    )
    assert (row.retry["num_attempts"], row.retry["hosts"], row.retry["exc_reason"]) == (
        1,
        [["h1", "h1"]],
        ELSEWHERE.message,
    )
    assert world.claims() == neighbour_claims
    assert world.addresses(uuid) == [] and world.cleanups() == set()
    fault = world.fault(uuid)
    assert (fault.error_code, fault.host, fault.details) == ("RemoteError", "h1", "rescheduled")
    with world.ledger.read() as tx:
        last = history.events_of(tx, uuid)[-1]
    assert (last["event"], last["result"], last["details"]) == (until, "Error", ELSEWHERE.message)
    assert [a.finish_time for a in world.rows(tables.instance_actions)] == [None]
    assert world.schedule().placed[uuid].host == "h2"
    world.build("h2")
    assert world.state(uuid) == (states.ACTIVE, None, "h2")
    assert len(world.addresses(uuid)) == 1


def test_aborted(world: World) -> None:
    world.report("h1")
    world.report("h2")
    uuid = world.boot("web", "spawning")
    host = world.row(uuid).host
    assert world.fail(host, uuid, NOWHERE) == "error"
    assert world.state(uuid) == (states.ERROR, None, None)
    assert (world.claims(), world.addresses(), world.cleanups()) == (set(), [], set())
    assert world.fault(uuid).error_code == "ImageError"
    (action,) = world.rows(tables.instance_actions)
    assert (action.message, action.finish_time) == ("Error", world.time)
    assert "compute.instance.create.error" in [n.event_type for n in world.rows(tables.notifications)]


def test_without_a_retry_record_nothing_is_rescheduled(world: World) -> None:
    world.max_attempts = 1
    world.report("h1")
    uuid = world.boot("web", "spawning")
    assert world.fail("h1", uuid, ELSEWHERE) == "error"
    assert world.state(uuid)[0] == states.ERROR


def test_at_most_max_attempts_hosts(world: World) -> None:
    for number in range(5):
        world.report("h%d" % number)
    uuid = world.boot("web", "accepted")
    tried = []
    for _round in range(3):
        host = world.schedule().placed[uuid].host
        tried.append(host)
        world.build(host, "spawning")
        assert world.fail(host, uuid, ELSEWHERE) == "rescheduled"
    assert len(set(tried)) == 3
    assert world.schedule().failed == [uuid]
    assert world.fault(uuid).error_code == "MaxRetriesExceeded"
    assert ELSEWHERE.message in world.fault(uuid).message


def test_neighbours_go_on(world: World) -> None:
    world.report("h1", memory=9)
    good, bad, worse = world.accept(request("web", 3)).created
    world.schedule()
    world.build("h1", "spawning")
    with world.ledger.write() as tx:
        found = {bad: failure.Failed(ELSEWHERE), worse: failure.Failed(NOWHERE)}
        outcomes = failure.fail_builds(tx.for_run(world.context()), "h1", "spawning", found)
    assert outcomes == {bad: "rescheduled", worse: "error"}
    assert world.spawned("h1", [good]) == ([good], [])
    assert world.claims() == {(good, "h1")} and len(world.addresses()) == 1


def test_what_is_left_on_a_host_keeps_claim_and_address(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    address = world.addresses(uuid)
    assert world.fail("h1", uuid, ELSEWHERE, cleaned=False, cleanup_reason="undefine failed") == "error"
    assert world.state(uuid) == (states.ERROR, None, None)
    assert "Could not clean up failed build, not rescheduling." in world.fault(uuid).message
    assert world.fault(uuid).details == ELSEWHERE.message
    assert (world.cleanups(), world.claims(), world.addresses()) == ({(uuid, "h1")}, {(uuid, "h1")}, address)
    (left,) = world.rows(tables.cleanups)
    assert (left.domain_name, left.reason) == (world.row(uuid).domain_name, "undefine failed")
    clean(world, "h1")
    assert (world.cleanups(), world.claims(), world.addresses()) == (set(), set(), [])
    clean(world, "h1")


def test_an_unreachable_host_is_left_and_the_build_goes_elsewhere(world: World) -> None:
    world.report("h1", memory=9)
    world.report("h2", memory=2)
    uuid = world.boot("web", "spawning")
    first = world.addresses(uuid)
    assert world.fail("h1", uuid, AWAY, cleaned=False, cleanup_reason="no route", unreachable=True) == "rescheduled"
    with world.ledger.read() as tx:
        assert [s.host for s in world.hosts(tx) if s.forced_down] == ["h1"]
        assert cleanups.hosts(tx) == {"h1"}
    assert world.schedule().placed[uuid].host == "h2"
    world.build("h2")
    assert world.claims() == {(uuid, "h1"), (uuid, "h2")}
    assert len(world.addresses(uuid)) == 2  # the one on h1 may still be in use there
    world.report("h1")
    clean(world, "h1")
    assert world.claims() == {(uuid, "h2")}
    assert world.addresses(uuid) != first and len(world.addresses(uuid)) == 1
    assert world.state(uuid) == (states.ACTIVE, None, "h2")


def test_a_build_does_not_go_to_another_name_of_the_machine_that_is_still_to_be_cleaned(world: World) -> None:
    """The clean-up under the first name removed it."""
    world.report("h1", memory=9, node="same", host_uuid="m")
    world.report("h2", memory=4, node="same", host_uuid="m")
    world.report("h3", memory=2)
    uuid = world.boot("web", "spawning")
    assert world.fail("h1", uuid, AWAY, cleaned=False, unreachable=True) == "rescheduled"
    assert world.schedule().placed[uuid].host == "h3"


def test_a_wished_address_that_may_be_in_use_stops_the_build(world: World) -> None:
    world.report("h1", memory=9)
    world.report("h2", memory=2)
    uuid = world.boot("web", "spawning", networks=(NetworkRequest(network="net-1", fixed_ip="10.0.1.77"),))
    assert world.fail("h1", uuid, AWAY, cleaned=False, unreachable=True) == "rescheduled"
    world.schedule()
    builds, failed = world.begin(STAGES[0], "h2")
    assert builds == [] and failed[uuid].error.code == "FixedIpAlreadyInUse"
    assert world.fail("h2", uuid, failed[uuid].error, event="networking") == "error"
    assert world.claims() == {(uuid, "h1")} and world.addresses() == ["10.0.1.77"]


def test_no_address_left_for_a_rescheduled_build(world: World) -> None:
    world.know(network(2, addresses=1), network(3))
    world.report("h1", memory=9)
    world.report("h2", memory=2)
    uuid = world.boot("web", "spawning", networks=("net-3", "net-2"))
    world.fail("h1", uuid, ELSEWHERE)
    thief = world.boot("thief", "accepted", run="b", networks=("net-2",))
    world.schedule()
    builds, failed = world.begin(STAGES[0], "h2")
    assert builds == [] and failed[uuid].error.code == "NoMoreFixedIps"
    assert world.addresses() == ["10.0.2.10"] == world.addresses(thief)
    assert failed[uuid].preparing == build_outcome.PREPARING_NETWORKS
    assert world.fail("h2", uuid, failed[uuid].error, event="networking") == "error"
    assert "not rescheduling" in world.fault(uuid).message


@pytest.mark.parametrize(
    ("preparing", "outcome", "said"),
    [
        (None, "rescheduled", "broken"),
        (
            build_outcome.PREPARING_NETWORKS,
            "error",
            "Failed to allocate the network(s) with error broken, not rescheduling.",
        ),
        (build_outcome.PREPARING_BLOCK_DEVICES, "error", "Failure prepping block device. broken"),
    ],
)
def test_what_fails_while_it_is_prepared_fails_on_every_host(
    world: World, preparing: str | None, outcome: str, said: str
) -> None:
    """Ports and volumes are not the host's; what the host itself does is tried on another one."""
    world.report("h1", memory=9)
    uuid = world.boot("web", "spawning")
    assert world.fail("h1", uuid, errors.RemoteError(reason="broken"), preparing=preparing) == outcome
    assert (world.fault(uuid).message, world.fault(uuid).error_code) == (said, "RemoteError")


def test_remains_close_the_host_to_the_same_instance(world: World) -> None:
    """Its cleanup would take the new build with it, and it still has its claim there."""
    world.report("h1", memory=9)
    uuid = world.boot("web", "spawning")
    other = world.boot("other", "accepted", run="b")
    assert world.fail("h1", uuid, ELSEWHERE, cleaned=False) == "error"
    assert world.accept(request("web"), run="b").resumed == [uuid]
    assert world.schedule("b").failed == [uuid]
    assert world.state(other)[2] == "h1"
    world.report("h2", memory=2)
    world.accept(request("web"), run="b")
    assert world.schedule("b").placed[uuid].host == "h2"
    world.fail("h2", uuid, ELSEWHERE, "b", event="networking")
    clean(world, "h1")
    assert world.schedule("b").placed[uuid].host == "h1"


def test_gone_while_it_failed(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.delete(names=["web"])
    assert world.fail("h1", uuid, ELSEWHERE) == "gone"
    assert world.state(uuid) == (states.BUILDING, states.DELETING, "h1")
    assert world.claims() == {(uuid, "h1")} and len(world.addresses()) == 1  # the delete gives them back
    assert world.fail("h1", "00000000-0000-4000-8000-000000000000", ELSEWHERE) == "gone"


def test_what_a_late_worker_leaves_after_the_delete_is_remembered(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.delete(names=["web"])
    world.removed("h1", [uuid])
    world.finish()
    assert world.fail("h1", uuid, ELSEWHERE, cleaned=False, cleanup_reason="busy") == "gone"
    assert world.cleanups() == {(uuid, "h1")}
    assert world.claims() == set()


def test_what_a_late_worker_leaves_where_the_next_run_builds_is_that_runs(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.time += 601
    world.accept(request("web"), run="b")
    assert world.fail("h1", uuid, ELSEWHERE, cleaned=False) == "gone"
    assert world.cleanups() == set()  # it would take the living build with it


def test_words_that_a_database_would_not_take(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    error = errors.RemoteError(reason="console said \0 and \udc80")
    assert world.fail("h1", uuid, error) == "rescheduled"
    assert world.fault(uuid).message.endswith("console said  and ?")


def test_faults_are_counted_on_the_host(world: World) -> None:
    world.report("h1", memory=9)
    for name in ("a", "b"):
        world.fail("h1", world.boot(name, "spawning"), NOWHERE)
    assert world.rows(tables.compute_nodes)[0].failed_builds == 2


def test_an_error_of_any_kind_has_one_of_three_outcomes(world: World) -> None:
    kinds: list[t.Any] = [
        (errors.NoMoreFixedIps(net="n"), "error"),
        (errors.InstanceNotFound(instance_id="x"), "error"),
        (errors.HypervisorUnavailable(host="h1", reason="down"), "rescheduled"),
        (errors.ComputeResourcesUnavailable(reason="full"), "rescheduled"),
        (errors.BuildAbortException(message="no"), "error"),
    ]
    world.report("h1", memory=9)
    for number, (error, outcome) in enumerate(kinds):
        uuid = world.boot("web%d" % number, "spawning")
        assert world.fail("h1", uuid, error) == outcome
        assert world.state(uuid)[0] == {"error": states.ERROR, "rescheduled": states.BUILDING}[outcome]
        assert (uuid, "h1") not in world.claims()
        world.delete(names=["web%d" % number])
        world.finish()
