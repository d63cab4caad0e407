# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A random history against a model in plain Python: whatever happens in whatever order, the books are right."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, field, replace

import pytest
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.histories import run_histories
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import A_GPU, CARD
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, STAGES, World, network, request

HOSTS = ("h1", "h2", "h3")
ROOM = {"h1": 3, "h2": 3, "h3": 2}  # in instances of the flavor SMALL
GPUS = {"h1": 2, "h2": 1, "h3": 0}
ADDRESSES = 6
NAMES = ("a", "b", "c", "d", "e")
GROUP = ServerGroup(id="apart", name="apart", policy="anti-affinity")
APART = ("a", "b", "c")  # members of it
WITH_GPU = ("c", "d")
GUESTS = ("active", "stopped")  # states in which an instance has a guest
FAILURES: dict[str, tuple[errors.BootflowError, dict[str, t.Any]]] = {
    "elsewhere": (errors.RemoteError(reason="x"), {}),
    "abort": (errors.ImageError(reason="x"), {}),
    "left": (errors.RemoteError(reason="x"), {"cleaned": False, "cleanup_reason": "busy"}),
    "away": (errors.HostUnreachable(host="h", reason="x"), {"cleaned": False, "unreachable": True}),
}


def asked(name: str) -> t.Any:
    """The entry of that name."""
    return request(
        name,
        server_group=GROUP if name in APART else None,
        pci_requests=(A_GPU,) if name in WITH_GPU else (),
    )


@dataclass
class Instance:
    """What the model knows of an instance."""

    name: str
    uuid: str
    run: str
    state: str = "scheduling"  # scheduling, placed, the stages, active, stopped, error, deleting
    host: str | None = None
    address: bool = True
    attempts: int = 0
    tried: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Held:
    """A claim as the model has it."""

    name: str
    uuid: str
    host: str


class History(RuleBasedStateMachine):
    """The model: instances by name, and what hosts still have to be rid of (the claim there -> an address is held or not)."""

    open: t.Callable[[], World]

    @initialize(names=st.lists(st.sampled_from(NAMES), unique=True))
    def start(self, names: list[str]) -> None:
        """Some run already: a history that begins with nothing rarely comes far."""
        self.world = type(self).open()
        self.live: dict[str, Instance] = {}
        self.leftovers: dict[Held, bool] = {}
        self.down: set[str] = set()
        self.disabled: set[str] = set()
        self.total = dict(ROOM)
        self.reserved = dict.fromkeys(HOSTS, 0)
        self.runs = 0
        self.told: dict[str, tuple[t.Any, t.Any]] = {}  # uuid -> vm_state and task_state, as notified
        self.heard = 0  # the last notification of these
        for host in HOSTS:
            self.reports(host)
        for name in names:
            self.guest(name)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.ledger.close()

    def reports(self, host: str) -> None:
        facts = {
            "hypervisor_hostname": host,
            "memory_mb": self.total[host] * 1024,
            "local_gb": 4000,
            "vcpus": 500,
            "pci_passthrough_devices": [d for d in CARD if d["dev_type"] == "type-PCI"][: GPUS[host]],
        }
        ratios = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}
        with self.world.ledger.write() as tx:
            nodes.record_report(tx.for_run(self.world.context()), host, facts, ratios)

    # --- the model's arithmetic ------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        return "r%d" % self.runs

    def held(self) -> list[Held]:
        found = list(self.leftovers)
        for one in self.live.values():
            if one.host is not None:
                found.append(Held(one.name, one.uuid, one.host))
        return found

    def addresses(self) -> int:
        return sum(i.address for i in self.live.values()) + sum(self.leftovers.values())

    def room(self, host: str) -> int:
        return self.total[host] - self.reserved[host] - sum(c.host == host for c in self.held())

    def gpus(self, host: str) -> int:
        return GPUS[host] - sum(c.host == host and c.name in WITH_GPU for c in self.held())

    def fits(self, instance: Instance, host: str) -> bool:
        """What the claim says: numbers, devices, the group."""
        there = {c.uuid for c in self.held() if c.host == host and c.name in APART} - {instance.uuid}
        return (
            self.room(host) >= 1
            and (instance.name not in WITH_GPU or self.gpus(host) > 0)
            and not (instance.name in APART and there)
        )

    def open_to(self, instance: Instance, host: str) -> bool:
        """What the filters say beside that."""
        return host not in self.down | self.disabled | instance.tried and (instance.uuid, host) not in {
            (c.uuid, c.host) for c in self.leftovers
        }

    def mine(self, state: str, host: str | None = None) -> list[Instance]:
        return [
            i for i in self.live.values() if i.run == self.run and i.state == state and (host is None or i.host == host)
        ]

    # --- booting ---------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def boot(self, name: str) -> None:
        known = self.live.get(name)
        if known is None and self.addresses() >= ADDRESSES:
            assert [r["code"] for r in self.world.refusals(asked(name), run=self.run)] == ["NoMoreFixedIps"]
            return
        if known is not None and known.state == "deleting":
            code = "InstanceInvalidState"
            assert [r["code"] for r in self.world.refusals(asked(name), run=self.run)] == [code]
            return
        accepted = self.world.accept(asked(name), run=self.run)
        if known is None:
            self.live[name] = Instance(name, accepted.created[0], self.run)
        elif known.state in GUESTS:
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
        assert set(result.placed) | set(result.failed) | set(result.waiting) == set(waiting)
        for uuid, selection in result.placed.items():
            instance = waiting[uuid]
            assert self.open_to(instance, selection.host) and instance.attempts < 3
            assert self.fits(instance, selection.host)
            instance.state, instance.host, instance.attempts = "placed", selection.host, instance.attempts + 1
            instance.tried.add(selection.host)
        for uuid in result.waiting:
            # Its entry met another entry of this round, or a host without what no filter looks at.
            instance = waiting[uuid]
            assert instance.name in APART or instance.name in WITH_GPU
            record = self.world.row(uuid).retry
            assert record["num_attempts"] == instance.attempts + 1
            instance.attempts, before = instance.attempts + 1, instance.tried
            instance.tried = {h for h, _node in record["hosts"]}
            assert instance.tried > before
            assert not any(self.open_to(replace(instance, tried=before), h) and self.fits(instance, h) for h in HOSTS)
        for uuid in result.failed:
            instance = waiting[uuid]
            full = not any(self.open_to(instance, h) and self.fits(instance, h) for h in HOSTS)
            assert full or instance.attempts >= 3
            instance.state, instance.address = "error", False

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
        for build in builds:
            assert len(build.allocation["pci"]) == (build.row.display_name in WITH_GPU)
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
        if end == "done":
            self.comes_through(host, stage, good)
        elif end != "killed":
            for instance in good:
                self.fails(instance, host, STAGES[stage].name, end)

    def comes_through(self, host: str, stage: int, good: list[Instance]) -> None:
        if stage < 2:
            assert self.world.done(STAGES[stage], [i.uuid for i in good], self.run) == []
            return
        active, lost = self.world.spawned(host, [i.uuid for i in good], self.run)
        assert set(active) == {i.uuid for i in good} and lost == []
        for instance in good:
            instance.state = "active"

    @rule()
    def all_the_way(self) -> None:
        """Everything of this run that has a host, and needs no address anew, becomes a guest."""
        for host in HOSTS:
            for stage in range(3):
                self.work(host, stage, "done")

    @rule(name=st.sampled_from(NAMES))
    def guest(self, name: str) -> None:
        self.boot(name)
        self.schedule()
        self.all_the_way()

    @rule(name=st.sampled_from(NAMES), end=st.sampled_from(sorted(FAILURES)))
    def breaks(self, name: str, end: str) -> None:
        """A build fails on its first host, and goes on where it is then."""
        self.boot(name)
        self.schedule()
        instance = self.live.get(name)
        if instance is not None and instance.state == "placed" and instance.host is not None:
            self.work(instance.host, 0, end)
            self.schedule()

    def fails(self, instance: Instance, host: str, event: str, end: str) -> None:
        error, how = FAILURES[end]
        outcome = self.world.fail(host, instance.uuid, error, self.run, event=event, **how)
        assert outcome == ("rescheduled" if end in ("elsewhere", "away") else "error")
        instance.state = "scheduling" if outcome == "rescheduled" else "error"
        if end in ("left", "away"):
            here = Held(instance.name, instance.uuid, host)
            self.leftovers[here] = instance.address
        if end == "away":
            self.down.add(host)
        instance.host, instance.address = None, False

    @rule()
    def kill(self) -> None:
        """The run is gone and its lease runs out: the next one takes over."""
        self.runs += 1
        self.world.time += 601

    @precondition(lambda self: any(i.state not in (*GUESTS, "error") for i in self.live.values()))
    @rule(name=st.sampled_from(NAMES))
    def a_live_run_is_not_robbed(self, name: str) -> None:
        """What another run works on, and whose lease is not out, is refused."""
        instance = self.live.get(name)
        with self.world.ledger.read() as tx:
            row = tx.execute(sa.select(tables.runs).where(tables.runs.c.id == "run-" + self.run)).first()
        alive = row is not None and row.lease_until > self.world.time
        if instance is None or instance.run != self.run or instance.state in (*GUESTS, "error") or not alive:
            return
        (refusal,) = self.world.refusals(asked(name), run="other")
        assert refusal["code"] == "InstanceBusy"

    # --- hosts -----------------------------------------------------------------------------------------------------

    @rule(host=st.sampled_from(HOSTS), clean=st.booleans(), more=st.integers(-1, 2))
    def report(self, host: str, clean: bool, more: int) -> None:
        """The host answers again, perhaps with less memory than it has given away."""
        if clean:
            with self.world.ledger.write() as tx:
                cleanup.finish(tx, {host: [c.instance_uuid for c in cleanups.of_host(tx, host)]})
            self.leftovers = {k: v for k, v in self.leftovers.items() if k.host != host}
        self.total[host] = max(ROOM[host] + more, 1)
        self.reports(host)
        self.down.discard(host)

    @rule(
        host=st.sampled_from(HOSTS),
        power=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([states.RUNNING, states.SHUTDOWN])),
    )
    def follow(self, host: str, power: dict[str, int]) -> None:
        """Guests were shut down and started by others."""
        self.world.time += 1
        guests = [i for i in self.live.values() if i.host == host and i.state in GUESTS]
        usual = {"active": states.RUNNING, "stopped": states.SHUTDOWN}
        found = {i.uuid: power.get(i.name, usual[i.state]) for i in guests}
        stop = power_sync.STOP
        with self.world.ledger.write() as tx:
            of_run = tx.for_run(self.world.context(self.run))
            synced = power_sync.settle_and_sync(of_run, {host: power_sync.Report(self.world.time, found)})
            off = {r.uuid: operation.Outcome(states.SHUTDOWN) for r in synced.to_stop}
            assert operation.finish(of_run, stop, off) == {}
        changed = [i for i in guests if found[i.uuid] != usual[i.state]]
        assert synced.stopped == {i.uuid for i in changed if i.state == "active"}
        assert set(off) == {i.uuid for i in changed if i.state == "stopped"}
        for instance in changed:
            instance.state, instance.run = "stopped", self.run

    @rule(host=st.sampled_from(HOSTS), disabled=st.booleans(), reserved=st.integers(0, 2))
    def configure(self, host: str, disabled: bool, reserved: int) -> None:
        with self.world.ledger.write() as tx:
            wanted = {"disabled": disabled, "reserved_memory_mb": reserved * 1024}
            changed = nodes.configure(tx, {host: wanted})
        before = (host in self.disabled, self.reserved[host])
        assert changed == ([host] if before != (disabled, reserved) else [])
        self.reserved[host] = reserved
        (self.disabled.add if disabled else self.disabled.discard)(host)

    @rule(spoiled=st.booleans())
    def audit(self, spoiled: bool) -> None:
        """Usage counted from the claims changes nothing, and mends what was written behind the ledger."""
        with self.world.ledger.write() as tx:
            ids = list(tx.execute(sa.select(tables.compute_nodes.c.id)).scalars())
            if spoiled:
                tx.execute(tables.compute_nodes.update().values(memory_mb_used=7, vcpus_used=-3, num_instances=99))
            nodes.lock(tx, ids)
            nodes.recount(tx, ids)

    # --- deleting --------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        instance = self.live.get(name)
        found = self.world.delete(run=self.run, names=[name])
        if instance is None:
            assert found.rows == []
            return
        assert set(found.hosts) == {c.host for c in self.held() if c.uuid == instance.uuid}
        instance.state, instance.run = "deleting", self.run

    @precondition(lambda self: any(i.state == "deleting" for i in self.live.values()))
    @rule(host=st.sampled_from(HOSTS))
    def removed(self, host: str) -> None:
        todo = [i["uuid"] for i in self.world.of_host(host, self.run)]
        here = {i.uuid: i for i in self.mine("deleting", host)}
        assert set(todo) == set(here) | {c.uuid for c in self.leftovers if c.host == host}
        self.world.removed(host, todo, self.run)
        self.leftovers = {k: v for k, v in self.leftovers.items() if k.host != host}
        for instance in here.values():
            instance.host, instance.address = None, False

    @precondition(lambda self: any(i.state == "deleting" for i in self.live.values()))
    @rule(force=st.booleans())
    def finish(self, force: bool) -> None:
        gone, left = self.world.finish(self.run, force)
        mine = {n: i for n, i in self.live.items() if i.state == "deleting" and i.run == self.run}
        blocked = {n for n, i in mine.items() if any(c.uuid == i.uuid for c in self.held())}
        assert set(gone) == set(mine) - (set() if force else blocked)
        assert {v["name"] for v in left} == set(mine) - set(gone)
        for name in gone:
            instance = self.live.pop(name)
            if instance.host is not None:
                here = Held(name, instance.uuid, instance.host)
                self.leftovers[here] = instance.address

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        with world.ledger.read() as tx:
            world.check(tx)
        assert len(world.addresses()) == self.addresses() <= ADDRESSES
        assert world.cleanups() == {(c.uuid, c.host) for c in self.leftovers}
        rows = {r.display_name: r for r in world.rows(tables.instances, tables.instances.c.deleted == "")}
        assert set(rows) == set(self.live)
        for name, instance in self.live.items():
            row = rows[name]
            assert (row.uuid, row.host, row.run_id) == (instance.uuid, instance.host, "run-" + instance.run)
            assert _state(row) == instance.state

    @invariant()
    def every_change_of_state_is_notified(self) -> None:
        """Each notification begins where the one before it ended, the first with nothing, and the last is in the row."""
        if not hasattr(self, "world"):
            return
        c = tables.notifications.c
        for one in self.world.rows(tables.notifications, c.id > self.heard):
            self.heard = max(self.heard, one.id)
            if one.event_type == "compute.instance.update":
                its = one.payload
                before = (its["old_state"], its["old_task_state"])
                assert before == self.told.get(one.instance_uuid, (None, None)), its
                # The first one is Nova's, from nothing to building without a task_state.
                task_state = its["new_task_state"] if one.instance_uuid in self.told else states.SCHEDULING
                self.told[one.instance_uuid] = (its["state"], task_state)
        assert self.told == {r.uuid: (r.vm_state, r.task_state) for r in self.world.rows(tables.instances)}

    @invariant()
    def nodes_hold_what_the_model_holds(self) -> None:
        if not hasattr(self, "world"):
            return
        held = self.held()
        node_rows = {r.id: r for r in self.world.rows(tables.compute_nodes)}
        rows = self.world.rows(tables.claims)
        found = [(r.instance_uuid, node_rows[r.compute_node_id].host, r.memory_mb) for r in rows]
        assert sorted(found) == sorted((c.uuid, c.host, SMALL.memory_mb) for c in held)
        for node in node_rows.values():
            here = [c for c in held if c.host == node.host]
            assert node.memory_mb == self.total[node.host] * 1024
            assert node.memory_mb_used == (self.reserved[node.host] + len(here)) * 1024
            assert node.num_instances == len({c.uuid for c in here})
        self.nothing_is_shared(held, node_rows)

    def nothing_is_shared(self, held: list[Held], node_rows: t.Mapping[int, t.Any]) -> None:
        """A device has one owner, and members of the group have a host each."""
        devices = self.world.rows(tables.device_claims)
        owners = [(d.instance_uuid, node_rows[d.compute_node_id].host) for d in devices]
        assert sorted(owners) == sorted((c.uuid, c.host) for c in held if c.name in WITH_GPU)
        assert len({(d.compute_node_id, d.device) for d in devices}) == len(devices)
        apart = collections.Counter(h for h, _u in {(c.host, c.uuid) for c in held if c.name in APART})
        assert all(n == 1 for n in apart.values()), apart


class ToldWorld(World):
    """All runs notify of vm_state and task_state."""

    def context(self, run: str = "a", **fields: t.Any) -> t.Any:
        return super().context(run, **{"notify_on_state_change": "vm_and_task_state", **fields})


def _state(row: t.Any) -> str:
    if row.task_state is None:
        return {states.ACTIVE: "active", states.STOPPED: "stopped", states.ERROR: "error", states.BUILDING: "placed"}[
            row.vm_state
        ]
    return str(row.task_state)


@pytest.mark.hypothesis
@pytest.mark.parametrize(("kind", "count"), [("memory", 40), ("postgresql", 5)])
def test_any_history(kind: str, count: int, request: pytest.FixtureRequest) -> None:
    class Here(History):
        @staticmethod
        def open() -> World:
            known = [network(1, addresses=ADDRESSES)]
            if kind == "postgresql":
                return ToldWorld(request.getfixturevalue("postgres").emptied(), known)
            return ToldWorld(MEMORY, known)

    run_histories(Here, count)
