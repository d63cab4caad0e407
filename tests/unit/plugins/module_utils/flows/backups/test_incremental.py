# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups in the ledger: records before any byte, ends of all kinds, deaths, deletion, images of backups."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.backups.restores import read_restores
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.backups import (
    deletion,
    in_place,
    incremental,
    restore,
    verification,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import host_images
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.backups import backup_views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import backup_tables, image_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

BACKUP = OPERATIONS["incremental_backup"]
STORES = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}], ["h1"])


def begin(
    world: World, run: str = "o", full: bool = False, length: int = 30, hosts: t.Sequence[str] = ("h1",)
) -> incremental.Plans:
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        return incremental.begin(of_run, BACKUP, Selection(names=["web"]), list(hosts), full, length)[1]


def answer(planned: incremental.Planned, **more: t.Any) -> dict[str, t.Any]:
    """What a host answers that did what was planned."""
    parent = planned.choice.parent
    return {
        "kind": "full" if parent is None else "incremental",
        "parent_id": None if parent is None else parent.id,
        "reason": planned.choice.reason,
        "folder": "/b/u",
        "file": planned.id + ".qcow2",
        "size": 9,
        "virtual_size": 1024,
        "checksum": "ab" * 32,
        "checkpoint": "bootflow-" + planned.id,
        "checkpoint_xml": "<domaincheckpoint/>",
        "removed": [r.id for r in planned.remnants],
        "error": None,
        **more,
    }


def finish(world: World, plans: incremental.Plans, run: str = "o", **more: t.Any) -> dict[str, t.Any]:
    answers = {u: answer(p, **more) for u, p in plans.items()}
    outcomes = {u: Outcome(states.RUNNING, a["error"]) for u, a in answers.items()}
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context(run))
        failed = operation.finish(of_run, BACKUP, outcomes)
        return {**failed, **incremental.finish(of_run, {u: p.id for u, p in plans.items()}, answers, failed)}


def back_up(world: World, **options: t.Any) -> str:
    """Make a backup. Returns its id."""
    world.time += 1
    plans = begin(world, **options)
    assert finish(world, plans) == {}
    return next(iter(plans.values())).id


def rows(world: World) -> dict[str, t.Any]:
    """Id -> row of backups that are not deleted."""
    return {r.id: r for r in world.rows(backup_tables.instance_backups) if r.deleted == ""}


@pytest.fixture
def web(world: World) -> str:
    world.report("h1")
    return world.boot("web")


def test_increments_follow_on_the_first_one(world: World, web: str) -> None:
    world.time += 1
    plans = begin(world)
    assert plans[web].choice.reason == "the instance has no complete backup"
    assert world.state(web)[:2] == ("active", "image_snapshot")
    assert [(r.kind, r.state, r.host) for r in rows(world).values()] == [("full", "running", "h1")]
    assert finish(world, plans) == {} and world.state(web)[:2] == ("active", None)
    first = plans[web].id
    second = back_up(world)
    assert rows(world)[second].parent_id == first and rows(world)[second].kind == "incremental"
    world.time += 1
    third = begin(world)[web]
    assert [r.id for r in third.chain] == [first, second] and third.kept_checkpoint == "bootflow-" + second
    assert rows(world)[third.id].parent_id == second, "it needs its parent from its begin on"


def test_a_host_that_cannot_make_an_increment_has_the_last_word(world: World, web: str) -> None:
    back_up(world)
    world.time += 1
    plans = begin(world)
    assert finish(world, plans, kind="full", parent_id=None, reason="the bitmap is lost") == {}
    row = rows(world)[plans[web].id]
    assert (row.kind, row.parent_id, row.reason) == ("full", None, "the bitmap is lost")


def test_a_failure_leaves_nothing_if_its_host_says_so(world: World, web: str) -> None:
    first = back_up(world)
    world.time += 1
    plans = begin(world)
    error = errors.DiskFull(host="h1", path="/b", reason="full")
    assert list(finish(world, plans, error=error, left=False)) == [web]
    assert list(rows(world)) == [first]


def test_what_a_silent_host_may_have_is_removed_by_the_next_backup(world: World, web: str) -> None:
    world.time += 1
    plans = begin(world)
    finish(world, plans, error=errors.HostUnreachable(host="h1", reason="silent"))
    failed = plans[web].id
    assert rows(world)[failed].state == "failed" and "silent" in rows(world)[failed].fault
    world.time += 1
    plans = begin(world)
    assert [r.id for r in plans[web].remnants] == [failed] and plans[web].choice.parent is None
    finish(world, plans)
    assert list(rows(world)) == [plans[web].id]


def test_the_backup_of_a_dead_run_failed(world: World, web: str) -> None:
    first = back_up(world)
    world.time += 1
    dead = begin(world, run="dead")[web].id
    world.time += 10_000
    with world.ledger.write() as tx:
        settled = recovery.settle_operations(tx.for_run(world.context("o")), "h1", {web: states.RUNNING}, world.time)
    assert settled == {web: "active"} and world.state(web)[:2] == ("active", None)
    assert rows(world)[dead].state == "failed" and "died" in rows(world)[dead].fault
    world.time += 1
    planned = begin(world)[web]
    assert planned.choice.parent is not None and planned.choice.parent.id == first
    assert [r.id for r in planned.remnants] == [dead]


def test_a_late_worker_writes_nothing(world: World, web: str) -> None:
    plans = begin(world, run="dead")
    world.time += 10_000
    other = begin(world, run="o")
    failures = finish(world, plans, run="dead")
    assert web in failures and rows(world)[plans[web].id].state == "failed"
    assert finish(world, other) == {} and rows(world)[other[web].id].state == "complete"


def test_retention_deletes_whole_chains(world: World, web: str) -> None:
    first, second, third = back_up(world), back_up(world), back_up(world, full=True)
    world.time += 1
    with world.ledger.write() as tx:
        chosen = deletion.begin(tx.for_run(world.context("d")), names=["web"], keep=1)
    assert [r.id for r in chosen] == [second, first]
    assert {rows(world)[i].state for i in (first, second)} == {"deleting"}
    with world.ledger.write() as tx:
        deletion.finish(tx.for_run(world.context("d")), [second])
    assert sorted(rows(world)) == sorted([first, third])
    with world.ledger.write() as tx:
        again = deletion.begin(tx.for_run(world.context("e")), names=["web"], keep=1)
    assert [r.id for r in again] == [first], "what a host did not remove is removed by the next one"


def test_deletion_refuses_what_would_break_a_chain(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    before = world.rows(backup_tables.instance_backups)
    wrong: list[tuple[dict[str, t.Any], type[errors.BootflowError]]] = [
        ({"ids": [first]}, errors.BackupInUse),
        ({"ids": ["99999999-0000-4000-8000-000000000001"]}, errors.BackupNotFound),
        ({"names": ["web"]}, errors.InvalidInput),
        ({"keep": 0}, errors.InvalidInput),
        ({"ids": [second], "keep": 1}, errors.InvalidInput),
    ]
    for options, kind in wrong:
        with pytest.raises(kind), world.ledger.write() as tx:
            deletion.begin(tx.for_run(world.context("d")), **options)
    assert world.rows(backup_tables.instance_backups) == before
    with world.ledger.write() as tx:
        chosen = deletion.begin(tx.for_run(world.context("d")), ids=[first, second])
    assert [r.id for r in chosen] == [second, first]


def test_an_image_of_a_backup_is_one_of_the_instance(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    entries = read_restores([{"name": "back", "instance": "web"}, {"name": "older", "backup": first}], STORES)
    with world.ledger.write() as tx:
        begun = restore.begin(tx.for_run(world.context("r")), entries, None, ())
    newest, older = begun.made
    assert newest.row.id == second and [r.id for r in newest.chain] == [first, second]
    assert [r.id for r in older.chain] == [first]
    done = {"size": 5, "checksum": "cd" * 32, "disk_format": "qcow2", "error": None}
    ids = {"nfs": {r.image.id: r.image.id for r in begun.made}}
    fault = errors.BackupDamaged(backup_id=first, reason="gone")
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("r"))
        failures = host_images.finish_stores(of_run, ids, {newest.image.id: done}, {older.image.id: fault})
    assert list(failures) == [older.image.id]
    images = {r.name: r for r in world.rows(image_tables.images) if r.deleted == ""}
    assert list(images) == ["back"] and images["back"].status == "active" and images["back"].instance_uuid == web
    assert images["back"].properties["incremental_backup_id"] == second
    with world.ledger.write() as tx:
        again = restore.begin(tx.for_run(world.context("r")), entries[:1], None, ())
    assert again.made == [] and [r.image.name for r in again.unchanged] == ["back"]
    with pytest.raises(errors.InvalidRequest, match="BackupNotFound|could not be found"), world.ledger.write() as tx:
        missing = read_restores([{"name": "x", "instance": "db"}], STORES)
        restore.begin(tx.for_run(world.context("r")), missing, None, ())


def test_deleted_backups_are_purged_and_others_stay(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("d"))
        deletion.begin(of_run, ids=[second])
        deletion.finish(of_run, [second])
    world.time += 1000
    with world.ledger.write() as tx:
        assert purge.plan(tx, world.time)["instance_backups"] == 1
    assert purge.purge(world.ledger, world.time)["instance_backups"] == 1
    assert [r.id for r in world.rows(backup_tables.instance_backups)] == [first]
    with world.ledger.write() as tx:
        (view,) = backup_views.views(tx, names=["web"])
    assert view["id"] == first and view["path"] == "/b/u/%s.qcow2" % first


def test_a_damaged_backup_is_not_restored_and_has_the_next_one_be_full(world: World, web: str) -> None:
    first, second, third = back_up(world), back_up(world), back_up(world)

    def verify(damage: dict[str, str]) -> list[str]:
        with world.ledger.write() as tx:
            return verification.finish(tx.for_run(world.context("v")), damage)

    with world.ledger.read() as tx:
        wanted = verification.select(tx, ids=[second])
        assert [w.row.id for w in wanted] == [first, second], "what it needs is read before it"
        assert [w.needs for w in wanted] == [(), (first + ".qcow2",)]
        assert [w.row.id for w in verification.select(tx)] == [first, second, third]
        with pytest.raises(errors.BackupNotFound):
            verification.select(tx, ids=["99999999-0000-4000-8000-000000000001"])
    assert verify({first: "", second: "another content", "gone": "gone"}) == [second]
    row = rows(world)[second]
    assert (row.state, row.damage, row.verified_at) == ("complete", "another content", world.time)
    with world.ledger.write() as tx:
        views = {v["id"]: v for v in backup_views.views(tx, ids=[first, third])}
    assert views[first]["damage"] == "" and views[first]["verified_at"] is not None
    assert views[third]["verified_at"] is None and second in views[third]["damage"]
    for backup_id in (second, third):
        entries = read_restores([{"name": "back", "backup": backup_id}], STORES)
        with pytest.raises(errors.InvalidRequest, match="another content"), world.ledger.write() as tx:
            restore.begin(tx.for_run(world.context("r")), entries, None, ())
    world.time += 1
    plans = begin(world)
    assert plans[web].choice.parent is None and "another content" in plans[web].choice.reason
    finish(world, plans, run="o", error=errors.DiskFull(host="h1", path="/b", reason="full"), left=False)
    assert verify({second: ""}) == [], "it was put back as it was"
    world.time += 1
    planned = begin(world)[web]
    assert planned.choice.parent is not None and planned.choice.parent.id == third


def test_what_is_deleted_while_it_is_read_is_not_called_damaged(world: World, web: str) -> None:
    first = back_up(world)
    with world.ledger.write() as tx:
        deletion.begin(tx.for_run(world.context("d")), names=["web"], keep=0)
    with world.ledger.write() as tx:
        assert verification.finish(tx.for_run(world.context("v")), {first: "No such file or directory"}) == []
    assert rows(world)[first].damage == ""


REVERT = OPERATIONS["revert"]


def go_back(world: World, word: str) -> in_place.GoingBack:
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("g"))
        begun, chosen = in_place.begin(of_run, REVERT, Selection(names=["web"]), ["h1"], word)
    return chosen[begun.rows[0].uuid]


def test_an_instance_goes_back_to_its_newest_backup_or_a_named_one(world: World, web: str) -> None:
    first, second = back_up(world), back_up(world)
    back = go_back(world, "newest")
    assert [r.id for r in back.chain] == [first, second] and second in back.image.name
    assert world.state(web)[:2] == ("active", REVERT.during)
    with world.ledger.write() as tx:
        operation.finish(tx.for_run(world.context("g")), REVERT, {web: Outcome(states.RUNNING, None)})
    named = go_back(world, first.upper())
    assert [r.id for r in named.chain] == [first] and named.image.id != back.image.id


def test_what_an_instance_cannot_go_back_to_is_refused_before_anything_is_touched(world: World, web: str) -> None:
    with pytest.raises(errors.BackupNotFound):
        go_back(world, "newest")
    first, second = back_up(world), back_up(world)
    with pytest.raises(errors.BackupNotFound):
        go_back(world, "99999999-0000-4000-8000-000000000001")
    with world.ledger.write() as tx:
        verification.finish(tx.for_run(world.context("v")), {first: "gone"})
    with pytest.raises(errors.BackupDamaged, match="gone"):
        go_back(world, second)
    table = backup_tables.instance_backups

    def change(**values: t.Any) -> None:
        with world.ledger.write() as tx:
            tx.execute(table.update().values(damage="", **values))

    change(virtual_size=10**15)
    with pytest.raises(errors.FlavorDiskSmallerThanImage):
        go_back(world, second)
    change(virtual_size=1024, host="h2")
    with pytest.raises(errors.InvalidInput, match="on host h2, and the instance on h1"):
        go_back(world, second)
    assert world.state(web)[:2] == ("active", None)
