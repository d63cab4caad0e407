# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A random history of volumes: storage hosts that fail, are silent or late, runs that die, in whatever order.

The storage hosts are the model: what lies on them is what was really done. Whatever happens, nothing lies there that the
ledger does not know of, nothing is promised twice, quotas hold, and everything comes to an end.
"""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volumes
from ansible_collections.bootflow.compute.tests.unit.worlds.histories import run_histories
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

NAMES = ("a", "b", "c", "d")
SNAPSHOTS = ("x", "y")
HOSTS = ("s1", "s2")
ROOM = {"s1": 30, "s2": 24}
QUOTA = 60
BROKEN = errors.VolumeBackendAPIException(data="broken")
BAD_IMAGE = errors.ImageUnacceptable(image_id="i", reason="bad")
# All that may be wrong with a wish or deletion in some history; anything else is a bug.
REFUSALS = (errors.InvalidInput, errors.Conflict, errors.NotFound, errors.QuotaError, errors.NoValidBackend)


class Late(t.NamedTuple):
    """Work that a host was told of, and that nobody has done yet."""

    run: str
    host: str
    work: list[volume_work.BackendWork]


class VolumeHistory(RuleBasedStateMachine):
    open: t.Callable[[], VolumeWorld]

    @initialize(thin=st.booleans())
    def start(self, thin: bool) -> None:
        self.world = type(self).open()
        self.world.quotas = {"gigabytes": QUOTA, "volumes": -1, "snapshots": -1}
        self.runs = 0
        self.late: list[Late] = []
        for host in HOSTS:
            self.world.store(host, thin=thin and host == "s2", lvm=ROOM[host])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.ledger.close()

    @property
    def run(self) -> str:
        return "r%d" % self.runs

    def tried(self, function: t.Callable[..., t.Any], *arguments: t.Any, **named: t.Any) -> t.Any:
        """None where it was refused; then nothing was written."""
        before = self.world.everything()
        try:
            return function(*arguments, **named)
        except REFUSALS:
            assert self.world.everything() == before
            return None

    # --- wishes ----------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), size=st.sampled_from((4, 10, 15)), image=st.booleans())
    def wish(self, name: str, size: int, image: bool) -> None:
        entry = {"name": name, "size": size, **({"image": "cirros"} if image else {})}
        self.tried(self.world.request, entry, run=self.run)

    @rule(name=st.sampled_from(NAMES), source=st.sampled_from(NAMES + SNAPSHOTS))
    def copy(self, name: str, source: str) -> None:
        field = "snapshot_id" if source in SNAPSHOTS else "source_volid"
        self.tried(self.world.request, {"name": name, field: source}, run=self.run)

    @rule(name=st.sampled_from(NAMES), force=st.booleans(), cascade=st.booleans())
    def delete(self, name: str, force: bool, cascade: bool) -> None:
        self.tried(self.world.remove, name, run=self.run, force=force, cascade=cascade)

    @rule(name=st.sampled_from(NAMES), size=st.sampled_from((5, 12, 20)))
    def extend(self, name: str, size: int) -> None:
        self.tried(self.world.extend, name, size, run=self.run)

    @rule(name=st.sampled_from(SNAPSHOTS), volume=st.sampled_from(NAMES), state=st.sampled_from(("present", "absent")))
    def snapshot(self, name: str, volume: str, state: str) -> None:
        self.tried(self.world.snapshot, {"name": name, "volume": volume, "state": state}, run=self.run)

    # --- work ------------------------------------------------------------------------------------------------------

    @rule()
    def schedule(self) -> None:
        scheduled = self.world.choose(self.run)
        for volume_id in scheduled.placed:
            assert self.world.volume(volume_id).pool_host
        for error in scheduled.failed.values():
            assert isinstance(error, errors.NoValidBackend)

    @rule(
        host=st.sampled_from(HOSTS), end=st.sampled_from(("done", "done", "broken", "bad", "silent", "unheard", "late"))
    )
    def work(self, host: str, end: str) -> None:
        work = self.world.work_of(host, self.run)
        if not work:
            return
        if end == "late":
            self.late.append(Late(self.run, host, work))
            return
        self.does(Late(self.run, host, work), end)

    def does(self, told: Late, end: str) -> None:
        error = {"broken": BROKEN, "bad": BAD_IMAGE}.get(end)
        results = {}
        for one in told.work:
            fail = {one.volumes[0]["id"]: error} if error is not None else {}
            if end != "silent":
                results[one.backend] = self.world.storage[told.host].do(one, fail)
            if end in ("silent", "unheard"):
                away = errors.HostUnreachable(host=told.host, reason="x")
                results[one.backend] = volume_work.WorkResult(error=away)
        finished = self.world.worked(told.host, results, told.run)
        named = [*finished.done, *finished.failed, *finished.rescheduled, *finished.lost_items]
        assert len(named) == len(set(named))

    @rule(which=st.integers(0, 3), end=st.sampled_from(("done", "unheard", "broken")))
    def comes_late(self, which: int, end: str) -> None:
        """A module holds the locks of its volumes from beginning to end: what a later one did it has not undone."""
        if self.late:
            self.does(self.late.pop(which % len(self.late)), end)

    @rule(host=st.sampled_from(HOSTS))
    def report(self, host: str) -> None:
        self.world.reported(host)
        for row in self.world.rows(volume_tables.volumes, volume_tables.volumes.c.deleted == ""):
            if row.made and row.new_size is None and row.pool_host == "%s@lvm#lvm" % host:
                there = self.world.storage[host].there["lvm"].get(row.id)
                assert row.pending_gb == 0 or row.status == "error_extending" or there is None

    @rule()
    def kill(self) -> None:
        """The run is gone and its lease runs out: its workers may come late."""
        self.runs += 1
        self.world.time += 601

    @rule()
    def all_the_way(self) -> None:
        for _round in range(2):
            self.schedule()
            for host in HOSTS:
                self.work(host, "done")

    # --- the laws --------------------------------------------------------------------------------------------------

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        with world.ledger.read() as tx:
            world.check(tx)
            used = volumes.usage(tx, "default")
            assert used["gigabytes"] <= QUOTA
            live = volumes.select(tx)
            assert len({r.name for r in live}) == len(live)
            alive = volumes.live_runs(tx.for_run(world.context("nobody")), live)
            for row in live:
                if row.status in volumes.BUSY:  # somebody works on it, or it can be taken over
                    known = row.run_id and (
                        row.run_id in alive or runs.dead_among(tx.for_run(world.context("nobody")), [row.run_id])
                    )
                    assert known
                if row.status == "available":
                    host = world.storage[row.pool_host.partition("@")[0]]
                    assert host.there["lvm"].get(row.id) is not None, "%s is not there" % row.name

    def come_to_an_end(self) -> None:
        """Whatever happened, a run that is not disturbed deletes all of it, and nothing is left anywhere."""
        while self.late:
            self.does(self.late.pop(), "done")
        self.kill()
        world = self.world
        for host in HOSTS:
            world.reported(host)
        for name in SNAPSHOTS:
            world.snapshot({"name": name, "state": "absent"}, run=self.run) if self.deletable(name) else None
        for _round in range(2):
            for name in NAMES:
                self.tried(world.remove, name, run=self.run, cascade=True)
            for host in HOSTS:
                self.work(host, "done")
        assert world.rows(volume_tables.volumes, volume_tables.volumes.c.deleted == "") == []
        assert world.pending_cleanups() == set()
        assert [world.storage[h].there["lvm"] for h in HOSTS] == [{}, {}]
        assert {p.free_capacity_gb for p in world.pools().values()} == set(map(float, ROOM.values()))

    def deletable(self, name: str) -> bool:
        sources = {r.snapshot_id for r in self.world.rows(volume_tables.volumes, volume_tables.volumes.c.deleted == "")}
        c = volume_tables.volume_snapshots.c
        rows = self.world.rows(volume_tables.volume_snapshots, c.deleted == "", c.name == name)
        return all(r.id not in sources for r in rows)


class Ending(VolumeHistory):
    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.come_to_an_end()
        finally:
            super().teardown()


@pytest.mark.hypothesis
@pytest.mark.parametrize(("kind", "count"), [("memory", 10), ("postgresql", 1)])
def test_any_history_of_volumes(kind: str, count: int, request: pytest.FixtureRequest) -> None:
    class Here(Ending):
        @staticmethod
        def open() -> VolumeWorld:
            if kind == "postgresql":
                return VolumeWorld(request.getfixturevalue("postgres").emptied())
            return VolumeWorld(MEMORY)

    run_histories(Here, count)
