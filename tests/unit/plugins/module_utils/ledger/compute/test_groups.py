# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Server groups in the ledger: who is a member where, the late check under the group's lock, places, quota, changes."""

from __future__ import annotations

import collections
import threading
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.registry import DEFAULT_FILTERS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims, groups
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import asked, claim, node, release, waiting
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

ANTI_AFFINITY_VIOLATED = "Anti-affinity instance group policy was violated."
AFFINITY_VIOLATED = "Affinity instance group policy was violated."
WITHOUT_GROUPS = [f for f in DEFAULT_FILTERS if not f.startswith("ServerGroup")]


def group(policy: str, most: int = 1, name: str = "g", project: str = "default") -> ServerGroup:
    return ServerGroup(id="id-of-" + name, name=name, policy=policy, max_server_per_host=most, project=project)


def members(world: World, of: ServerGroup, count: int, name: str = "vm") -> list[str]:
    return waiting(world, count, name, server_group=of)


def hosts(world: World, count: int) -> list[str]:
    names = ["h%d" % n for n in range(1, count + 1)]
    for name in names:
        node(world, name)
    return names


def load(world: World, *ids: str) -> dict[str, ServerGroup]:
    with world.ledger.read() as tx:
        return groups.load(tx, ids)


def slots(world: World) -> list[tuple[int, int | None]]:
    return sorted(((r.compute_node_id, r.group_slot) for r in world.rows(tables.claims)), key=str)


# --- the late check ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "most", "wanted"),
    [
        ("anti-affinity", 1, ["h1", "h2", ANTI_AFFINITY_VIOLATED, ANTI_AFFINITY_VIOLATED, ANTI_AFFINITY_VIOLATED]),
        ("anti-affinity", 2, ["h1", "h1", "h2", "h2", ANTI_AFFINITY_VIOLATED]),
        ("anti-affinity", 5, ["h1"] * 5),
        ("affinity", 1, ["h1"] * 5),
        ("soft-anti-affinity", 1, ["h1"] * 5),
        ("soft-affinity", 1, ["h1"] * 5),
    ],
)
@pytest.mark.parametrize("together", [True, False], ids=["one transaction", "one each"])
def test_the_late_check(world: World, policy: str, most: int, wanted: list[str], together: bool) -> None:
    """All would go to h1, h2 is the alternate."""
    hosts(world, 2)
    of = group(policy, most)
    uuids = members(world, of, 5)
    requests = [asked(u, "h1", "h2", group=of) for u in uuids]
    found: dict[str, str] = {}
    for part in [requests] if together else [[r] for r in requests]:
        found.update(claim(world, *part))
    for uuid, text in zip(uuids, wanted):
        assert found[uuid] == text or text in found[uuid]
    if policy == "anti-affinity":
        filled = slots(world)
        assert len(set(filled)) == len(filled) and all(slot is not None and slot < most for _n, slot in filled)
    else:
        assert {slot for _n, slot in slots(world)} == {None}


def test_affinity_stays_where_the_first_went(world: World) -> None:
    hosts(world, 2)
    of = group("affinity")
    first, second, third = members(world, of, 3)
    claim(world, asked(first, "h2", group=of))
    found = claim(world, asked(second, "h1", group=of), asked(third, "h1", "h2", group=of))
    assert AFFINITY_VIOLATED in found[second] and found[third] == "h2"
    release(world, first, third)
    assert claim(world, asked(second, "h1", group=of)) == {second: "h1"}, "nobody holds the group to h2 any more"


def test_a_refusal_by_the_group_is_a_reschedule(world: World) -> None:
    hosts(world, 1)
    of = group("anti-affinity")
    first, second = members(world, of, 2)
    claim(world, asked(first, group=of))
    with world.ledger.write() as tx:
        outcome = claims.claim(tx.for_run(world.context()), [asked(second, group=of)])[second]
    assert isinstance(outcome, errors.RescheduledException)
    assert (world.used("h1")[3], world.claims()) == (1, {(first, "h1")})


def test_groups_do_not_meet(world: World) -> None:
    hosts(world, 1)
    a, b = group("anti-affinity", name="a"), group("anti-affinity", name="b")
    (first,), (second,), (third,) = members(world, a, 1, "x"), members(world, b, 1, "y"), waiting(world, 1, "z")
    found = claim(world, asked(first, group=a), asked(second, group=b), asked(third))
    assert set(found.values()) == {"h1"}


def test_a_place_that_is_given_back_is_taken_again(world: World) -> None:
    hosts(world, 1)
    of = group("anti-affinity", 3)
    uuids = members(world, of, 5)
    assert set(claim(world, *(asked(u, group=of) for u in uuids[:3])).values()) == {"h1"}
    release(world, uuids[1])
    found = claim(world, asked(uuids[3], group=of), asked(uuids[4], group=of))
    assert found[uuids[3]] == "h1" and ANTI_AFFINITY_VIOLATED in found[uuids[4]]
    assert [slot for _n, slot in slots(world)] == [0, 1, 2]


def test_the_database_itself_gives_a_place_once(world: World) -> None:
    hosts(world, 1)
    of = group("anti-affinity")
    first, second = members(world, of, 2)
    claim(world, asked(first, group=of))
    row = dict(world.rows(tables.claims)[0]._mapping)
    row.update(id=row["id"] + 1000, instance_uuid=second)
    with pytest.raises(sa.exc.IntegrityError), world.ledger.engine.begin() as tx:
        tx.execute(tables.claims.insert().values(**row))


# --- the scheduler with groups -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [None, WITHOUT_GROUPS], ids=["with filters", "late check alone"])
@pytest.mark.parametrize(
    ("policy", "most", "counts"),
    [("anti-affinity", 1, [1, 1, 1]), ("anti-affinity", 2, [2, 1]), ("affinity", 1, [3])],
)
def test_instances_of_one_request(
    world: World, policy: str, most: int, counts: list[int], filters: list[str] | None
) -> None:
    for number in range(4):
        world.report("h%d" % number, memory=10)
    uuids = members(world, group(policy, most), 3)
    placed: dict[str, str] = {}
    for _round in range(4):
        done = world.schedule(enabled_filters=filters, max_attempts=4)
        placed.update({u: s.host for u, s in done.placed.items()})
    assert set(placed) == set(uuids)
    found = sorted(collections.Counter(placed.values()).values(), reverse=True)
    assert max(found) <= most if policy == "anti-affinity" else found == counts


def test_more_members_than_hosts(world: World) -> None:
    world.report("h1", memory=10)
    world.report("h2", memory=10)
    of = group("anti-affinity")
    first = world.accept(request("a", 2, networks=(), server_group=of)).created
    assert len(world.schedule().placed) == 2
    third = world.accept(request("b", 1, networks=(), server_group=of)).created
    assert world.schedule().failed == third
    assert (world.fault(third[0]).error_code, world.state(third[0])[0]) == ("NoValidHost", states.ERROR)
    assert {u for u, _h in world.claims()} == set(first)


def test_remains_of_a_member_count(world: World) -> None:
    """A host that was not rid of a member has it still, for all that anybody knows."""
    for host in ("h1", "h2", "h3"):
        world.report(host, memory=10)
    of = group("anti-affinity")
    first = members(world, of, 1)[0]
    left = world.schedule().placed[first].host
    world.build(left, "spawning")
    assert world.fail(left, first, errors.RemoteError(reason="x"), cleaned=False, cleanup_reason="busy") == "error"
    (again,) = members(world, of, 1, "again")
    host = world.schedule().placed[again].host
    assert host != left
    (late,) = members(world, of, 1, "late")
    for where in (left, host):
        assert ANTI_AFFINITY_VIOLATED in claim(world, asked(late, where, group=of))[late]


def test_a_member_with_remains_elsewhere_is_on_both(world: World) -> None:
    """It builds on another host now; where it was is closed to the group until that host is clean."""
    for host in ("h1", "h2", "h3"):
        world.report(host, memory=10)
    of = group("anti-affinity")
    first, late = members(world, of, 2)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == late).values(run_id="run-z"))
    left = world.schedule().placed[first].host
    world.begin(builds.NETWORKING, left)
    how: dict[str, t.Any] = {"cleaned": False, "unreachable": True}
    assert (
        world.fail(left, first, errors.HostUnreachable(host=left, reason="x"), event="networking", **how)
        == "rescheduled"
    )
    now = world.schedule().placed[first].host
    assert now != left
    for where in (left, now):
        assert ANTI_AFFINITY_VIOLATED in claim(world, asked(late, where, group=of))[late]


# --- what the ledger knows of groups -----------------------------------------------------------------------------------


def test_load(world: World) -> None:
    hosts(world, 2)
    of = group("soft-affinity", name="soft")
    uuids = members(world, of, 4)
    claim(world, *(asked(u, h, group=of) for u, h in zip(uuids, ("h1", "h1", "h2"))))
    found = load(world, of.id, "not there")
    assert set(found) == {of.id}
    assert (found[of.id].name, found[of.id].policy, found[of.id].project) == ("soft", "soft-affinity", "default")
    assert found[of.id].members == frozenset(uuids)
    assert dict(found[of.id].host_counts) == {"h1": 2, "h2": 1} and found[of.id].hosts == {"h1", "h2"}


def test_a_group_changes_only_without_members(world: World) -> None:
    first = group("anti-affinity")
    (uuid,) = members(world, first, 1)
    for changed in (group("affinity"), group("anti-affinity", 2)):
        (refusal,) = world.refusals(request("other", networks=(), server_group=changed))
        assert (refusal["code"], refusal["path"]) == ("InvalidInput", "instances[0].scheduler_hints.group")
        assert "1 members" in refusal["message"] and "anti-affinity" in refusal["message"]
    assert load(world, first.id)[first.id].policy == "anti-affinity"
    world.delete(uuids=[uuid])
    world.finish()
    members(world, group("affinity"), 1)
    assert load(world, first.id)[first.id].policy == "affinity"


def test_the_row_goes_with_the_last_member(world: World) -> None:
    of = group("affinity")
    first, second = members(world, of, 2)
    world.delete(uuids=[first])
    world.finish()
    assert set(load(world, of.id)) == {of.id}
    world.delete(uuids=[second])
    world.finish()
    with world.ledger.write() as tx:
        groups.forget_unused(tx, [of.id])
    assert load(world, of.id) == {}


def test_the_quota_of_members(world: World) -> None:
    of = group("affinity")
    quotas = {"server_group_members": 3}
    wanted = request("a", 2, networks=(), server_group=of)
    assert len(world.accept(wanted, quotas=quotas).created) == 2
    (refusal,) = world.refusals(request("b", 2, networks=(), server_group=of), quotas=quotas)
    assert refusal["path"] == "instances[0].scheduler_hints.group" and world.count(tables.instances) == 2
    both = [request(n, networks=(), server_group=of) for n in ("c", "d")]
    assert [r["path"] for r in world.refusals(*both, quotas=quotas)] == ["instances[1].scheduler_hints.group"]
    unchecked = request("e", 2, networks=(), server_group=of, check_server_group_quota=False)
    assert len(world.accept(unchecked, quotas=quotas).created) == 2


def test_the_same_name_in_two_projects(world: World) -> None:
    one = group("affinity", name="g1")
    two = ServerGroup(id="other", name="g1", policy="anti-affinity", project="two")
    members(world, one, 1)
    waiting(world, 1, project="two", server_group=two)
    assert {g.policy for g in load(world, one.id, two.id).values()} == {"affinity", "anti-affinity"}


# --- against each other ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_group_is_not_forgotten_under_a_boot(world: World) -> None:
    """One transaction accepts a member while another deletes the last: whoever commits first, the member has its group.

    sqlite has one writer at a time.
    """
    of = group("anti-affinity")
    (old,) = members(world, of, 1, "old")
    world.delete(uuids=[old])
    finished = threading.Event()

    def finish() -> None:
        world.finish()
        finished.set()

    thread = threading.Thread(target=finish)
    with world.ledger.write() as tx:
        options = accept.AcceptOptions(networks=world.networks)
        wanted = request("new", networks=(), server_group=of)
        new = accept.accept(tx.for_run(world.context("b")), [wanted], options).created
        thread.start()
        finished.wait(1.0)  # it may wait for us, or be through
    thread.join(30)
    assert finished.is_set()
    found = load(world, of.id)
    assert set(found) == {of.id} and found[of.id].members == frozenset(new)


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_the_late_check_waits_for_whoever_has_the_group(world: World) -> None:
    """The hole that Nova leaves: two claims for one group, on different hosts' locks, at once."""
    hosts(world, 2)
    of = group("affinity")
    first, second = members(world, of, 2)
    found: dict[str, str] = {}
    with world.ledger.write() as tx:
        groups.load(tx, [of.id], lock=True)
        assert isinstance(
            claims.claim(tx.for_run(world.context()), [asked(first, "h1", group=of)])[first], claims.Candidate
        )
        tx.execute(
            tables.instances.update()
            .where(tables.instances.c.uuid == first)
            .values(host="h1", vm_state=states.ACTIVE, task_state=None)
        )
        thread = threading.Thread(target=lambda: found.update(claim(world, asked(second, "h2", group=of))))
        thread.start()
        thread.join(0.7)
        assert thread.is_alive(), "the other claim did not wait"
    thread.join(30)
    assert AFFINITY_VIOLATED in found[second]
