# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import multiprocessing
import random
import threading
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import VolumeRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.quotas import DEFAULTS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import accept as volume_accept
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import schedule
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

PLACE = "s1@lvm#lvm"


def accept(vworld: VolumeWorld, name: str, size: int = 10, run: str = "a", **fields: t.Any) -> str:
    return vworld.request({"name": name, "size": size, **fields}, run=run).created[0]


def test_the_best_backend_is_taken_from(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=50)
    vworld.store("s2", lvm=100)
    ids = [accept(vworld, name, 40) for name in "abc"]
    scheduled = vworld.choose()
    assert [scheduled.placed[i].host for i in ids] == ["s2@lvm#lvm", "s2@lvm#lvm", "s1@lvm#lvm"]
    assert scheduled.placed[ids[0]].alternates == ("s1@lvm#lvm",)
    assert scheduled.hosts == ["s1", "s2"] and not scheduled.failed
    row = vworld.volume("a")
    assert (row.pool_host, row.pending_gb, row.scheduled_at) == ("s2@lvm#lvm", 40, vworld.time)
    assert row.retry == {"num_attempts": 1, "backends": ["s2@lvm#lvm"]}
    assert vworld.events(ids[0]) == [("schedule", "s2", "Success")]
    pool = vworld.pools()["s2@lvm#lvm"]
    assert (pool.free_capacity_gb, pool.allocated_capacity_gb, pool.volume_count) == (20, 80, 2)
    assert pool.provisioned == 80
    assert vworld.choose().placed == {}  # once


def test_no_backend_is_an_error_with_the_counts_of_filters(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=10)
    good, bad = accept(vworld, "a-good", 10), accept(vworld, "bad", 1)
    scheduled = vworld.choose()
    assert list(scheduled.placed) == [good]
    error = scheduled.failed[bad]
    assert error.code == "NoValidBackend"
    assert error.details["filters"][-1] == {"name": "CapabilitiesFilter", "start": 0, "end": 0}
    assert {"name": "CapacityFilter", "start": 1, "end": 0} in error.details["filters"]
    row = vworld.volume("bad")
    assert (row.status, row.pool_host, row.pending_gb, row.run_id, row.made) == ("error", None, 0, None, False)
    assert vworld.notified(bad) == ["scheduler.create_volume"]
    (note,) = vworld.rows(volume_tables.volume_notifications)
    assert note.payload["state"] == "error" and note.payload["method"] == "create_volume"
    assert vworld.events(bad) == [("schedule", None, "Error")]
    shown = vworld.shown("bad")
    assert shown["fault"]["code"] == "NoValidBackend" and shown["tried"] == []


def test_a_plan_says_the_same_and_writes_nothing(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=10)
    accept(vworld, "b", 1)
    accept(vworld, "a", 10)
    before = vworld.everything()
    with vworld.ledger.read() as tx:
        plan = schedule.plan(tx.for_run(vworld.context()), vworld.volume_options(explain=True))
    assert vworld.everything() == before
    assert [(p["name"], p["size"], p["host"], (p["error"] or {}).get("code")) for p in plan] == [
        ("a", 10, PLACE, None),
        ("b", 1, None, "NoValidBackend"),
    ]
    assert all(p["decision"] for p in plan)
    scheduled = vworld.choose()
    assert {i: s.host for i, s in scheduled.placed.items()} == {p["volume_id"]: p["host"] for p in plan if p["host"]}


def test_thin_backends_promise_as_often_as_their_ratio_says(vworld: VolumeWorld) -> None:
    vworld.store("s1", thin=True, lvm=10, configuration={"max_over_subscription_ratio": 2.0})
    ids = [accept(vworld, "v%d" % n, 6) for n in range(4)]
    scheduled = vworld.choose()
    # (provisioned + 6) / 10 <= 2 three times; free 10 - 6 - 6 is negative for the third
    assert list(scheduled.placed) == ids[:2]
    assert list(scheduled.failed) == ids[2:]


def test_hints(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.store("s2", lvm=90)
    vworld.report("s2")
    vworld.boot("guest", networks=())
    options = {
        "enabled_filters": ["CapacityFilter", "SameBackendFilter", "DifferentBackendFilter", "InstanceLocalityFilter"]
    }
    vworld.make("first", 1)
    assert vworld.volume("first").pool_host == PLACE
    for name, hints, pool_host in (
        ("apart", {"different_host": ["first"]}, "s2@lvm#lvm"),
        ("with", {"same_host": "first"}, PLACE),
        ("local", {"local_to_instance": "guest"}, "s2@lvm#lvm"),
    ):
        accept(vworld, name, 1, scheduler_hints=hints)
        vworld.choose(**options)
        assert vworld.volume(name).pool_host == pool_host
    accept(vworld, "lost", 1, scheduler_hints={"local_to_instance": "6b1d4a44-0000-4000-8000-000000000001"})
    (error,) = vworld.choose(**options).failed.values()
    assert isinstance(error, errors.InstanceNotFound)


def test_volumes_of_a_boot_are_placed_when_its_host_is_known(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.report("h1")
    guest = vworld.boot("guest", until="accepted", networks=())
    with vworld.ledger.write() as tx:
        limits = dict.fromkeys(DEFAULTS, -1)
        (volume_id,) = volume_accept.add(
            tx.for_run(vworld.context()), [("", VolumeRequest(size=1), None)], limits, guest
        )
    assert not vworld.choose().placed
    vworld.schedule()
    assert list(vworld.choose().placed) == [volume_id]


def test_old_reports_do_not_count(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.time += 61
    accept(vworld, "v")
    (error,) = vworld.choose(service_down_time=60).failed.values()
    assert "s1@lvm#lvm (has not reported for 61 s)" in error.message


def test_another_run_s_volumes_are_not_placed(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    accept(vworld, "v", run="a")
    scheduled = vworld.choose("b")
    assert not scheduled.placed and scheduled.hosts == []
    assert vworld.choose("a").hosts == ["s1"]


def test_what_is_being_removed_is_not_placed_there_meanwhile(vworld: VolumeWorld) -> None:
    """Its removal would take what is made there, too: it waits for the next round."""
    vworld.store("s1", lvm=100)
    volume_id = accept(vworld, "v")
    vworld.choose()
    assert vworld.silent().rescheduled == [volume_id]
    vworld.reported("s1")
    (work,) = vworld.work_of("s1", run="b")  # another run is at it
    assert work.volumes == [{"id": volume_id, "kind": "volume", "state": "absent"}]
    scheduled = vworld.choose()
    assert scheduled.waiting == [volume_id] and not scheduled.placed and not scheduled.failed
    assert vworld.worked("s1", {"lvm": vworld.storage["s1"].do(work)}, run="b").done == [volume_id]
    assert list(vworld.choose().placed) == [volume_id]


def test_what_was_not_made_after_the_last_round_ends_in_error(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.max_attempts = 2
    ids = [accept(vworld, name) for name in ("placed", "tried")]
    vworld.choose()
    for _attempt in range(2):
        vworld.work(
            tried=errors.VolumeBackendAPIException(data="busy"), placed=errors.VolumeBackendAPIException(data="x")
        )
        vworld.choose() if not _attempt else None
    assert [vworld.status(i) for i in ids] == ["creating", "creating"]
    third = accept(vworld, "third")
    vworld.choose(max_attempts=9)
    with vworld.ledger.write() as tx:
        given_up = schedule.give_up(tx.for_run(vworld.context()), vworld.volume_options())
    assert sorted(given_up) == sorted([*ids, third])
    faults = {i: vworld.shown(i)["fault"] for i in given_up}
    assert "the host was not asked" in faults[third]["message"]
    assert vworld.volume(third).pool_host == PLACE  # something may be there
    assert [vworld.volume(i).run_id for i in given_up] == [None] * 3


def test_attempts_are_counted_and_told(vworld: VolumeWorld) -> None:
    """Three backends that fail, then the error that says so."""
    for name in ("s1", "s2", "s3"):
        vworld.store(name, lvm=100)
    volume_id = accept(vworld, "v")
    hosts = []
    for _round in range(3):
        (selection,) = vworld.choose().placed.values()
        hosts.append(selection.host.partition("@")[0])
        failed = vworld.work(hosts[-1], v=errors.VolumeBackendAPIException(data="broken %s" % hosts[-1]))
        assert failed.rescheduled == [volume_id]
    assert sorted(hosts) == ["s1", "s2", "s3"]  # none twice
    (error,) = vworld.choose().failed.values()
    assert "Exceeded max scheduling attempts 3 for volume %s" % volume_id in error.message
    shown = vworld.shown("v")
    assert [a["host"] for a in shown["tried"]] == hosts
    assert shown["fault"]["code"] == "NoValidBackend"


def test_plan_and_fault_say_what_would_have_been_enough(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=20)
    volumes = [accept(vworld, name, 15) for name in "abc"]
    enough = "for both volumes without a backend, 25 GiB of disk more free on %s would have been enough" % PLACE
    with vworld.ledger.read() as tx:
        plan = schedule.plan(tx.for_run(vworld.context()), vworld.volume_options(explain=True))
    near = [p["decision"]["nearest_miss"] for p in plan if p["error"]]
    assert [n["smallest_change"]["text"] for n in near] == [enough] * 2
    assert sorted(vworld.choose().placed) == volumes[:1]
    assert vworld.shown("c")["fault"]["remedy"].startswith("Smallest change: %s." % enough)
    vworld.store("s1", lvm=20 + 25)
    more = [accept(vworld, name, 15, run="b") for name in "def"]
    assert sorted(vworld.choose("b").placed) == sorted(more[:2])


# --- at the same time ------------------------------------------------------------------------------------------------------


def race(vworld: VolumeWorld, work: t.Callable[[VolumeWorld, int], t.Any], processes: int = 6) -> list[t.Any]:
    vworld.ledger.close()  # a connection must not be shared with a child
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(processes), fork.Queue()

    def child(number: int) -> None:
        mine = VolumeWorld(vworld.url)
        mine.storage, mine.rng = vworld.storage, random.Random(number)
        try:
            barrier.wait(60)
            answers.put((number, work(mine, number)))
        except BaseException as e:
            answers.put((number, "crashed: %s: %s" % (type(e).__name__, e)))
        finally:
            mine.ledger.close()

    workers = [fork.Process(target=child, args=(n,)) for n in range(processes)]
    for worker in workers:
        worker.start()
    found = dict(answers.get(timeout=120) for _each in workers)
    for worker in workers:
        worker.join(60)
    assert not [a for a in found.values() if isinstance(a, str) and a.startswith("crashed")], found
    return [found[n] for n in range(processes)]


def test_the_last_gigabytes_are_given_once(vworld: VolumeWorld) -> None:
    """Six runs want 10 GB each of 25 + 15: three get them, three are told which filter let nothing through."""
    vworld.store("s1", lvm=25)
    vworld.store("s2", lvm=15)

    def work(mine: VolumeWorld, number: int) -> t.Any:
        run = "r%d" % number
        with mine.ledger.write() as tx:
            context = mine.context(run)
            volume_accept.accept(tx.for_run(context), [{"name": "v%d" % number, "size": 10}], mine.settings())
        scheduled = mine.ledger.for_run(mine.context(run)).transact(schedule.schedule, mine.volume_options())
        return [
            *(s.host for s in scheduled.placed.values()),
            *((e.code, e.details["filters"]) for e in scheduled.failed.values()),
        ]

    answers = [a for (a,) in race(vworld, work)]
    assert sorted(a for a in answers if isinstance(a, str)) == ["s1@lvm#lvm", "s1@lvm#lvm", "s2@lvm#lvm"]
    refusals = [a for a in answers if not isinstance(a, str)]
    assert len(refusals) == 3
    for code, filters in refusals:
        assert code == "NoValidBackend" and any(f["start"] and not f["end"] for f in filters)


def test_names_are_given_once_and_quotas_hold(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.quotas = {"gigabytes": 30, "volumes": -1}

    def work(mine: VolumeWorld, number: int) -> t.Any:
        mine.quotas = {"gigabytes": 30, "volumes": -1}
        found = []
        for name in ("shared", "own-%d" % number):
            try:
                mine.ledger.for_run(mine.context("r%d" % number)).transact(
                    volume_accept.accept, [{"name": name, "size": 10}], mine.settings()
                )
                found.append(name)
            except errors.InvalidRequest as e:
                found.append(e.errors[0]["code"])
        return found

    answers = race(vworld, work)
    shared = [a[0] for a in answers]
    assert shared.count("shared") == 1 and set(shared) <= {"shared", "VolumeLocked", "VolumeSizeExceedsAvailableQuota"}
    rows = vworld.rows(volume_tables.volumes)
    assert len(rows) == 3 and sum(r.size for r in rows) == 30
    assert len({r.name for r in rows}) == 3


@pytest.mark.parametrize("kind", ["sqlite"])
def test_two_connections_of_one_file(vworld: VolumeWorld, kind: str) -> None:
    """The second waits for the first to commit, and finds nothing left."""
    vworld.store("s1", lvm=10)
    accept(vworld, "a", run="a")
    accept(vworld, "b", run="b")
    other = VolumeWorld(vworld.url)
    answers: list[t.Any] = []
    with vworld.ledger.write() as tx:
        first = schedule.schedule(tx.for_run(vworld.context("a")), vworld.volume_options())
        waiting = threading.Thread(target=lambda: answers.append(other.choose("b")))
        waiting.start()
        waiting.join(0.5)
        assert not answers
    waiting.join(60)
    other.ledger.close()
    assert len(first.placed) == 1 and not answers[0].placed and len(answers[0].failed) == 1
