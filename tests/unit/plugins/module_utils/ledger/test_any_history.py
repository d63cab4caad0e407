# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A random history against a model in plain Python: whatever happens in whatever order, the books are right."""

from __future__ import annotations

import pathlib
import shutil
import typing as t
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors, states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import cleanups, tables

from .world import STAGES, World, network, request

HOSTS = ("h1", "h2", "h3")
ROOM = {"h1": 2, "h2": 2, "h3": 1}
ADDRESSES = 6
NAMES = ("a", "b", "c", "d")
FAILURES: dict[str, tuple[errors.BootflowError, dict[str, t.Any]]] = {
    "elsewhere": (errors.RemoteError(reason="x"), {}),
    "abort": (errors.ImageError(reason="x"), {}),
    "left": (errors.RemoteError(reason="x"), {"cleaned": False, "cleanup_reason": "busy"}),
    "away": (errors.HostUnreachable(host="h", reason="x"), {"cleaned": False, "unreachable": True}),
}


@dataclass
class Instance:
    """What the model knows of an instance."""

    uuid: str
    run: str
    state: str = "scheduling"  # scheduling, placed, the stages, active, error, deleting
    host: str | None = None
    address: bool = True
    attempts: int = 0
    tried: set[str] = field(default_factory=set)


class History(RuleBasedStateMachine):
    """The model: instances by name, and what hosts still have to be rid of (uuid -> hosts, with an address held or not)."""

    url: t.Callable[[], str]

    @initialize()
    def start(self) -> None:
        self.world = World(type(self).url(), [network(1, addresses=ADDRESSES)])
        self.live: dict[str, Instance] = {}
        self.remains: dict[tuple[str, str], bool] = {}
        self.down: set[str] = set()
        self.runs = 0
        for host in HOSTS:
            self.world.report(host, memory=ROOM[host])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.ledger.close()

    # --- the model's arithmetic ------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        return "r%d" % self.runs

    def claims(self) -> set[tuple[str, str]]:
        return {(i.uuid, i.host) for i in self.live.values() if i.host is not None} | set(self.remains)

    def addresses(self) -> int:
        return sum(i.address for i in self.live.values()) + sum(self.remains.values())

    def room(self, host: str) -> int:
        return ROOM[host] - sum(h == host for _u, h in self.claims())

    def mine(self, state: str, host: str | None = None) -> list[Instance]:
        return [
            i for i in self.live.values() if i.run == self.run and i.state == state and (host is None or i.host == host)
        ]

    # --- what happens ----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def boot(self, name: str) -> None:
        known = self.live.get(name)
        if known is None and self.addresses() >= ADDRESSES:
            assert [r["code"] for r in self.world.refusals(request(name), run=self.run)] == ["NoMoreFixedIps"]
            return
        if known is not None and known.state == "deleting":
            code = "InstanceInvalidState"
            assert [r["code"] for r in self.world.refusals(request(name), run=self.run)] == [code]
            return
        accepted = self.world.accept(request(name), run=self.run)
        if known is None:
            self.live[name] = Instance(accepted.created[0], self.run)
        elif known.state == "active":
            assert accepted.unchanged == [known.uuid]
        else:
            assert accepted.resumed == [known.uuid]
            known.run = self.run
            if known.state == "error":
                known.attempts, known.tried = 0, set()
            known.state = "placed" if known.host is not None else "scheduling"

    @rule()
    def schedule(self) -> None:
        waiting = {i.uuid: i for i in self.mine("scheduling")}
        result = self.world.schedule(self.run)
        assert set(result.placed) | set(result.failed) == set(waiting) and not result.waiting
        for uuid, selection in result.placed.items():
            instance = waiting[uuid]
            assert self.open_to(instance, selection.host) and instance.attempts < 3
            instance.state, instance.host, instance.attempts = "placed", selection.host, instance.attempts + 1
            instance.tried.add(selection.host)
        assert all(self.room(host) >= 0 for host in HOSTS)
        for uuid in result.failed:
            instance = waiting[uuid]
            full = not any(self.open_to(instance, h) and self.room(h) > 0 for h in HOSTS)
            assert full or instance.attempts >= 3
            instance.state, instance.address = "error", False

    def open_to(self, instance: Instance, host: str) -> bool:
        return host not in self.down and host not in instance.tried and (instance.uuid, host) not in self.remains

    @rule(
        host=st.sampled_from(HOSTS),
        stage=st.sampled_from(range(3)),
        end=st.sampled_from(["done", "done", "killed", *FAILURES]),
    )
    def work(self, host: str, stage: int, end: str) -> None:
        ready = self.mine(("placed", "networking", "block_device_mapping")[stage], host)
        builds, failed = self.world.begin(STAGES[stage], host, self.run)
        without = [i for i in ready if not i.address] if stage == 0 else []
        free = ADDRESSES - self.addresses()
        assert len(failed) == max(0, len(without) - free)
        assert {b.uuid for b in builds} | set(failed) == {i.uuid for i in ready}
        for instance in ready:
            instance.state = STAGES[stage].name
            instance.address = instance.uuid not in failed
            if instance.uuid in failed:
                assert (
                    self.world.fail(host, instance.uuid, failed[instance.uuid].error, self.run, event="networking")
                    == "error"
                )
                instance.state, instance.host = "error", None
        good = [i for i in ready if i.uuid not in failed]
        if end == "done" and stage < 2:
            assert self.world.done(STAGES[stage], [i.uuid for i in good], self.run) == []
        elif end == "done":
            active, lost = self.world.spawned(host, [i.uuid for i in good], self.run)
            assert set(active) == {i.uuid for i in good} and lost == []
            for instance in good:
                instance.state = "active"
        elif end != "killed":
            for instance in good:
                self.fails(instance, host, STAGES[stage].name, end)

    def fails(self, instance: Instance, host: str, event: str, end: str) -> None:
        error, how = FAILURES[end]
        outcome = self.world.fail(host, instance.uuid, error, self.run, event=event, **how)
        assert outcome == ("rescheduled" if end in ("elsewhere", "away") else "error")
        instance.state = "scheduling" if outcome == "rescheduled" else "error"
        if end in ("left", "away"):
            self.remains[instance.uuid, host] = instance.address
        if end == "away":
            self.down.add(host)
        instance.host, instance.address = None, False

    @rule()
    def kill(self) -> None:
        """The run is gone and its lease runs out."""
        self.runs += 1
        self.world.time += 601

    @rule(host=st.sampled_from(HOSTS), clean=st.booleans())
    def report(self, host: str, clean: bool) -> None:
        if clean:
            with self.world.ledger.write() as conn:
                cleanups.done(conn, host, [c.instance_uuid for c in cleanups.of_host(conn, host)])
            self.remains = {k: v for k, v in self.remains.items() if k[1] != host}
        self.world.report(host, memory=ROOM[host])
        self.down.discard(host)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        found = self.world.delete(run=self.run, names=[name])
        instance = self.live.get(name)
        if instance is None:
            assert found.rows == []
            return
        hosts = {h for u, h in self.claims() if u == instance.uuid}
        assert set(found.hosts) == hosts
        instance.state, instance.run = "deleting", self.run

    @precondition(lambda self: any(i.state == "deleting" for i in self.live.values()))
    @rule(host=st.sampled_from(HOSTS))
    def removed(self, host: str) -> None:
        todo = [i["uuid"] for i in self.world.of_host(host, self.run)]
        here = {i.uuid: i for i in self.mine("deleting", host)}
        assert set(todo) == set(here) | {u for u, h in self.remains if h == host}
        self.world.removed(host, todo, self.run)
        self.remains = {k: v for k, v in self.remains.items() if k[1] != host}
        for instance in here.values():
            instance.host, instance.address = None, False

    @precondition(lambda self: any(i.state == "deleting" for i in self.live.values()))
    @rule(force=st.booleans())
    def finish(self, force: bool) -> None:
        gone, left = self.world.finish(self.run, force)
        mine = {n: i for n, i in self.live.items() if i.state == "deleting" and i.run == self.run}
        blocked = {n for n, i in mine.items() if any(u == i.uuid for u, _h in self.claims())}
        assert set(gone) == set(mine) - (set() if force else blocked)
        assert {v["name"] for v in left} == set(mine) - set(gone)
        for name in gone:
            instance = self.live.pop(name)
            if instance.host is not None:
                self.remains[instance.uuid, instance.host] = instance.address

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        with world.ledger.read() as conn:
            world.check(conn)
        assert world.claims() == self.claims()
        assert {h: world.used(h)[3] for h in HOSTS} == {h: ROOM[h] - self.room(h) for h in HOSTS}
        assert len(world.addresses()) == self.addresses() <= ADDRESSES
        assert world.cleanups() == set(self.remains)
        rows = {r.display_name: r for r in world.rows(tables.instances, tables.instances.c.deleted == "")}
        assert set(rows) == set(self.live)
        for name, instance in self.live.items():
            row = rows[name]
            assert (row.uuid, row.host, row.run_id) == (instance.uuid, instance.host, "run-" + instance.run)
            assert _state(row) == instance.state


def _state(row: t.Any) -> str:
    if row.task_state is None:
        return {states.ACTIVE: "active", states.ERROR: "error", states.BUILDING: "placed"}[row.vm_state]
    return str(row.task_state)


def test_any_history(kind: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> None:
    numbers = iter(range(10**6))

    class Here(History):
        @staticmethod
        def url() -> str:
            if kind == "postgresql":
                return t.cast(str, request.getfixturevalue("postgres").emptied())
            template = request.getfixturevalue("sqlite_template")
            return "sqlite:///%s" % shutil.copy(template, tmp_path / ("%d.db" % next(numbers)))

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
