# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of guests that migrate while they run, in the ledger: two hosts for a time, one in the end, whatever fails or dies."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import migration_attachments, moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold,
    confirm,
    drain,
    live,
    live_life,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases, volume_audit, volume_leases
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Connector
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

from .test_volume_moves import BROKEN, HOSTS, Movers, attachments_of, well

BACKENDS = dict.fromkeys(HOSTS, "qcow2")


class LiveMovers(Movers):
    """Guests with volumes go from host to host while they run."""

    migrates_live = True

    def prepare(self) -> str:
        self.travels: dict[str, tuple[str, str]] = {}  # guests that libvirt sends: whence and where to
        self.left: dict[str, str] = {}  # guests that went on: the host that has the definition still
        self.without: set[str] = set()  # hosts that cannot connect to volumes
        self.dead: set[str] = set()  # hosts that were forced down
        self.runs_on = True  # no guest is to end
        return super().prepare()

    def begin_live(self, *uuids: str) -> live.Begun:
        wanted = live.Wanted(Selection(uuids=list(uuids)), HOSTS, BACKENDS)
        return t.cast(live.Begun, self.ask(live.begin, wanted, self.fleet, self.options(), self.connector))

    def connector(self, host: str, facts: t.Any) -> Connector:
        if host in self.without:
            raise errors.HostLacksHardware(host=host, model="iSCSI initiator", reason="none")
        return self.end(host, facts)

    def come(self, host: str, uuids: t.Collection[str]) -> set[str]:
        """The new host connects to what is exported to it. Returns the instances of which it has all."""
        with self.ledger.read() as tx:
            rows = migration_attachments.on_destination(tx.for_run(self.context(self.run)), host, uuids)
        lacking = {r.instance_uuid for r in rows if r.export != "done"}
        done = self.connect_rows(host, [r for r in rows if r.export == "done"], self.run)
        assert done == {r.id for r in rows if r.export == "done"}
        return set(uuids) - lacking

    def live_migrate(self, *uuids: str) -> None:
        """The steps of playbooks/live_migrate.yml."""
        begun = self.begin_live(*uuids)
        ends = {m.uuid: (m.move.source_compute, m.move.dest_compute) for m in begun.moving}
        problems = dict.fromkeys(ends, BROKEN) if self.fails() else {}
        self.ask_storage(self.ask(moving.storage_hosts))
        ready: set[str] = set()
        reached: set[str] = set()
        for host in HOSTS:
            mine = [u for u, (_source, to) in ends.items() if to == host and u not in problems]
            reached |= set(mine)
            if mine and not self.fails():
                ready |= self.come(host, mine)
                ready = set() if self.fails() else ready
        went = self.ask(live_life.mark_running, sorted(ready))
        for uuid in went:
            self.travels[uuid] = ends[uuid]
        unknown = set(went) if self.fails() else set()  # the former host does not answer
        if not unknown and not self.fails():
            for uuid in went:
                self.arrives(uuid)
        else:
            for uuid in set(went) - unknown:
                del self.travels[uuid]
        over = [u for u in went if u in self.left]
        stay = sorted(set(ends) - set(over) - unknown)
        self.ask(live_life.switch, over, stay)
        results = {u: live_life.Result(states.RUNNING) for u in over}
        for uuid in stay:
            cleaned = uuid not in reached or not self.fails()
            if cleaned:
                self.leave(ends[uuid][1], [uuid], self.run)
            results[uuid] = live_life.Result(states.RUNNING, BROKEN, cleaned)
        for uuid in over:
            if not self.fails():
                self.cleaned_of(ends[uuid][0], uuid)
        self.ask_storage(self.ask(attachments.storage_hosts, sorted(ends)))
        self.fails()
        self.ask(live_life.finish, results)
        if unknown:  # the lease of the run is over some time
            self.time += 100_000

    def arrives(self, uuid: str) -> None:
        """libvirt has it on its new host, with its volumes, and nowhere else."""
        source, host = self.travels.pop(uuid)
        assert self.guests[uuid] == source
        with self.ledger.read() as tx:
            its = attachments.select(tx, instance_uuids=[uuid], attached_host=host, connected=True)
        own = {r.volume_id for r in attachments_of(self) if r.instance_uuid == uuid}
        assert {r.volume_id for r in its if r.export == "done"} == own, "a guest without its volumes"
        assert {(host, v) for v in own} <= self.connections
        self.guests[uuid] = host
        self.left[uuid] = source

    def cleaned_of(self, host: str, uuid: str) -> None:
        self.leave(host, [uuid], self.run)
        self.left.pop(uuid, None)
        self.ask(cleanup.finish, {host: [uuid]})

    def reports(self, host: str) -> None:
        self.age += 1
        for uuid in [u for u, h in self.cleanups() if h == host]:
            if self.guests.get(uuid) == host:
                assert self.row(uuid).host != host and not self.runs_on, "a guest that runs would be removed"
                del self.guests[uuid]
            if host in self.dead:  # as plugin_utils.volumes.attached_volumes.forget()
                self.connections = {c for c in self.connections if c[0] != host}
            self.cleaned_of(host, uuid)
        self.time += 1
        its = [r.uuid for r in self.rows(tables.instances) if r.host == host]
        powers = dict.fromkeys(its, states.SHUTDOWN)
        powers.update({u: states.RUNNING for u, h in self.guests.items() if h == host})
        powers.update({u: states.SHUTDOWN for u, h in self.left.items() if h == host})
        said = {u: moves.LEFT for u, h in self.left.items() if h == host}
        said.update({u: moves.LEAVES for u, (h, _to) in self.travels.items() if h == host})
        for uuid, (_source, to) in self.travels.items():
            if to == host:
                powers[uuid], said[uuid] = states.POWER_PAUSED, moves.COMES
        self.ask(recovery.settle_operations, host, powers, self.time, None, False, said)

    def all_report(self) -> None:
        """And any run that works on storage ends what is to end there; leases of dead runs are over."""
        self.ask(leases.expire)
        super().all_report()
        self.age += 1
        self.ask_storage(self.ask(attachments.hosts_to_unexport))
        self.time += 100_000


@pytest.fixture(name="world")
def _movers(bworld: BootWorld) -> t.Iterator[LiveMovers]:
    found = LiveMovers(bworld.url)
    yield found
    found.ledger.close()


def test_volumes_go_along_while_the_guest_runs(world: LiveMovers) -> None:
    uuid = world.prepare()
    source = world.guests[uuid]
    (other,) = set(HOSTS) - {source}
    before = {r.volume_id: r for r in attachments_of(world)}
    begun = world.begin_live(uuid)
    assert begun.with_volumes == {uuid} and not begun.failed
    rows = attachments_of(world)
    assert {(r.attached_host, r.attach_status, bool(r.beside)) for r in rows} == {
        (source, "attached", False), (other, "attaching", True)
    }  # fmt: skip
    world.ask_storage(world.ask(moving.storage_hosts))
    assert {len(names) for names in world.initiators.values()} == {2}
    assert world.come(other, [uuid]) == {uuid}
    assert world.connections == {(h, v) for h in HOSTS for v in before}
    world.ask(live_life.mark_running, [uuid])
    world.travels[uuid] = (source, other)
    world.arrives(uuid)
    world.ask(live_life.switch, [uuid])
    own = [r for r in attachments_of(world) if not r.beside]
    assert {r.attached_host for r in own} == {other} and not {r.id for r in own} & {r.id for r in before.values()}
    assert {(r.mountpoint, r.volume_id, r.delete_on_termination) for r in own} == {
        (r.mountpoint, r.volume_id, r.delete_on_termination) for r in before.values()
    }
    world.cleaned_of(source, uuid)
    world.ask_storage(world.ask(attachments.storage_hosts, [uuid]))
    world.ask(live_life.finish, {uuid: live_life.Result(states.RUNNING)})
    well(world, uuid, other)
    assert world.state(uuid) == ("active", None, other) and len(world.disks(uuid)) == 2
    assert {r.rescan for r in attachments_of(world)} == {False}
    world.age += 1
    world.live_migrate(uuid)
    well(world, uuid, source)


@pytest.mark.parametrize("step", range(1, 8))
def test_where_it_fails_the_guest_keeps_its_volumes(world: LiveMovers, step: int) -> None:
    uuid = world.prepare()
    home = world.guests[uuid]
    before = [(r.id, r.attached_host, r.initiator, r.state) for r in attachments_of(world)]
    world.with_fault(world.live_migrate, uuid, ("fails", step))
    if world.travels:  # the former host did not answer, and libvirt goes on
        assert world.state(uuid)[1] == "migrating" and {h for h, _v in world.connections} == set(HOSTS)
        del world.travels[uuid]
        world.all_report()
    assert world.state(uuid) == ("active", None, world.guests[uuid])
    well(world, uuid, world.guests[uuid])
    if world.guests[uuid] == home:
        assert [(r.id, r.attached_host, r.initiator, r.state) for r in attachments_of(world)] == before


def test_a_refused_guest_takes_its_volumes_to_another_host(world: LiveMovers) -> None:
    """The host that refused it has let go of them before the next one connects; no storage host lets it in any more."""
    uuid = world.prepare()
    home = world.guests[uuid]
    world.report("h3")
    hosts = (*HOSTS, "h3")
    wanted = live.Wanted(Selection(uuids=[uuid]), hosts, dict.fromkeys(hosts, "qcow2"))
    (moving_on,) = world.ask(live.begin, wanted, world.fleet, world.options(), world.connector).moving
    first = moving_on.move.dest_compute
    (second,) = set(hosts) - {home, first}
    world.ask_storage(world.ask(moving.storage_hosts))
    assert world.come(first, [uuid]) == {uuid}
    world.ask(live_life.switch, [], [uuid])
    world.leave(first, [uuid], world.run)
    world.ask_storage(world.ask(attachments.storage_hosts, [uuid]))

    refused = {uuid: live.Refusal(live_life.Result(states.RUNNING, errors.InvalidCPUInfo(reason="x")), {first})}
    begun = world.ask(live.retry_elsewhere, wanted, refused, world.fleet, world.options(), world.connector)
    assert [m.move.dest_compute for m in begun.moving] == [second] and begun.with_volumes == {uuid}
    assert {(r.attached_host, bool(r.beside)) for r in attachments_of(world)} == {(home, False), (second, True)}
    world.ask_storage(world.ask(moving.storage_hosts))
    assert world.come(second, [uuid]) == {uuid} and {h for h, _v in world.connections} == {home, second}
    assert world.ask(live_life.mark_running, [uuid]) == [uuid]
    world.travels[uuid] = (home, second)
    world.arrives(uuid)
    world.ask(live_life.switch, [uuid])
    world.cleaned_of(home, uuid)
    world.ask_storage(world.ask(attachments.storage_hosts, [uuid]))
    world.ask(live_life.finish, {uuid: live_life.Result(states.RUNNING)})
    well(world, uuid, second)


def test_a_host_that_cannot_have_volumes(world: LiveMovers) -> None:
    uuid = world.prepare()
    before = [r._replace(run_id=None) for r in attachments_of(world)]
    (other,) = set(HOSTS) - {world.guests[uuid]}
    world.without = {other}
    begun = world.begin_live(uuid)
    assert [e.code for e in begun.failed.values()] == ["HostLacksHardware"] and not begun.moving
    assert attachments_of(world) == before and world.state(uuid)[:2] == ("active", None)
    assert world.claims() == {(uuid, world.guests[uuid])} and not world.cleanups()


def test_what_is_refused(world: LiveMovers) -> None:
    uuid = world.prepare()
    with world.ledger.write() as tx:
        a = volume_tables.volume_attachments
        tx.execute(a.update().values(connection="none", export="none"))
    with pytest.raises(errors.InvalidVolume, match="is not connected since a fault"):
        world.begin_live(uuid)
    with world.ledger.write() as tx:
        tx.execute(a.update().values(connection="done", export="done"))
    world.make("more", size=1)
    world.attach({"instance": "web", "volume": "more"}, run="v")
    with pytest.raises(errors.BootflowError):
        world.begin_live(uuid)
    assert not [r for r in attachments_of(world) if r.beside]


def test_others_leave_volumes_alone_that_migrate(world: LiveMovers) -> None:
    """Another run detaches nothing of it, expires nothing of it while it lives, and no attachment is bound to the former host."""
    uuid = world.prepare()
    source = world.guests[uuid]
    world.begin_live(uuid)
    with pytest.raises(errors.BootflowError):
        world.detach({"instance": "web", "volume": "data"}, run="v")
    world.ask_storage(world.ask(moving.storage_hosts))
    world.place(world.run)
    (other,) = set(HOSTS) - {source}
    assert {r.attached_host for r in attachments_of(world) if r.beside} == {other}
    world.come(other, [uuid])
    before = attachments_of(world)
    world.time += 100_000  # the run is dead, and no host has said anything yet
    world.age += 1
    world.ask(leases.expire)
    world.ask(
        lambda tx: volume_leases.expire(tx, volume_leases.find_leftovers(tx, lambda _tx, ids: {i for i in ids if i}))
    )
    found = list(world.ask(volume_audit.plan, host_evidence.Evidence(snapshots={})))
    assert not [f for f in found if f.changes and f.new == "detached"]
    mine = {r.id: (r.attached_host, r.state, r.beside) for r in attachments_of(world)}
    assert mine == {r.id: (r.attached_host, r.state, r.beside) for r in before}
    assert len(world.disks(uuid)) == 2
    world.all_report()
    well(world, uuid, source)


def test_a_former_host_that_is_not_clean_yet(world: LiveMovers) -> None:
    """The volume is there and is detached, attached and told as if that host were clean; whoever cleans it ends the rest."""
    uuid = world.prepare()
    source = world.guests[uuid]
    world.with_fault(world.live_migrate, uuid, ("none", 0))
    world.age += 1
    begun = world.begin_live(uuid)
    (m,) = begun.moving
    world.ask_storage(world.ask(moving.storage_hosts))
    world.come(m.move.dest_compute, [uuid])
    world.time += 100_000
    world.age += 1
    again = world.attach({"instance": "web", "volume": "data"}, run=world.run)
    assert again.unchanged == ["data"] and not again.rows, "the one on the second host is not what is asked for"
    world.travels[uuid] = (m.move.source_compute, m.move.dest_compute)
    world.arrives(uuid)
    world.reports(m.move.dest_compute)
    assert world.state(uuid) == ("active", None, source) and len(attachments_of(world)) == 4
    assert world.shown("data")["instance_uuids"] == [uuid]
    world.age += 1
    world.time += 100_000
    found = world.detach({"instance": "web", "volume": "data"}, run=world.run)
    (row,) = found.rows
    assert (row.attached_host, row.beside) == (source, "") and found.hosts == [source]


def test_it_is_deleted_with_its_second_attachments(world: LiveMovers) -> None:
    uuid = world.prepare()
    (other,) = set(HOSTS) - {world.guests[uuid]}
    world.begin_live(uuid)
    world.ask_storage(world.ask(moving.storage_hosts))
    world.come(other, [uuid])
    world.time += 100_000
    world.delete("d", uuids=[uuid])
    world.guests.clear()
    for host in HOSTS:
        world.leave(host, [uuid], "d")
        world.removed(host, [r["uuid"] for r in world.of_host(host, "d")], "d")
    world.storage_round("d")
    world.finish("d")
    assert not world.live_attachments() and world.status("data") == "available"
    assert set(world.initiators.values()) == {()} and not world.connections


def test_a_volume_that_grows_meanwhile_is_read_again(world: LiveMovers) -> None:
    uuid = world.prepare()
    source = world.guests[uuid]
    (other,) = set(HOSTS) - {source}
    world.begin_live(uuid)
    world.ask_storage(world.ask(moving.storage_hosts))
    world.come(other, [uuid])
    world.ask(attachments.mark_grown, [world.volume("data").id])
    world.ask(live_life.mark_running, [uuid])
    world.travels[uuid] = (source, other)
    world.arrives(uuid)
    world.ask(live_life.switch, [uuid])
    with world.ledger.read() as tx:
        assert [r.volume_id for r in attachments.to_rescan(tx, other)] == [world.volume("data").id]
        assert attachments.to_rescan(tx, source) == []


def test_two_guests_of_one_volume_pass_each_other(world: LiveMovers) -> None:
    """Each host is logged in for one of them; then for both, and in the end for the other one."""
    for host in HOSTS:
        world.report(host, memory=4)
    world.store()
    world.make("both", size=2, multiattach=True)
    both = world.volume("both").id
    world.age, world.fault, world.step, world.guests = 0, ("", -1), 0, {}
    world.travels, world.left, world.without, world.dead, world.runs_on = {}, {}, set(), set(), True
    uuids = [world.boot_of(volume_request(n, device("volume", both), image=IMAGE))[0] for n in ("one", "two", "three")]
    world.guests = {u: world.row(u).host for u in uuids}
    before = dict(world.guests)
    assert set(before.values()) == set(HOSTS)
    world.age += 1
    world.live_migrate(*uuids)
    assert all(world.guests[u] != before[u] and world.row(u).host == world.guests[u] for u in uuids)
    rows = attachments_of(world)
    assert {(r.instance_uuid, r.attached_host, r.state[1:], r.beside, r.run_id) for r in rows} == {
        (u, world.guests[u], ("done", "done"), "", None) for u in uuids
    }
    assert set(world.initiators[both]) == {"iqn.test:" + h for h in HOSTS}
    assert world.connections == {(h, both) for h in HOSTS}


def test_a_drained_host_sends_guests_with_volumes_while_they_run(world: LiveMovers) -> None:
    uuid = world.prepare()
    home = world.guests[uuid]
    chosen = Selection(hosts=[home])
    wanted = cold.Wanted(chosen, HOSTS, BACKENDS)
    found = world.ask(drain.begin, home, wanted, live.Wanted(chosen, HOSTS, BACKENDS))
    assert [r.uuid for r in found.live] == [uuid] and not found.leaves and not found.stays


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["live_migrate", "live_migrate", "migrate", "revert", "confirm", "evacuate"]),
            st.sampled_from(["fails", "dies", "storage"]),
            st.integers(0, 14),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_whatever_fails_or_dies(history: list[tuple[str, str, int, bool]]) -> None:
    """Beside other moves, and whether the guest arrives that goes on when its run is dead."""
    world = LiveMovers(MEMORY)
    try:
        uuid = world.prepare()
        for what, kind, at, arrives in history:
            row = world.row(uuid)
            world.runs_on = what == "live_migrate"
            if what == "live_migrate" and row.vm_state == states.ACTIVE:
                world.with_fault(world.live_migrate, uuid, (kind, at))
                if world.travels:
                    assert world.state(uuid)[1] == "migrating", "nothing is decided"
                    if arrives:
                        world.arrives(uuid)
                    world.travels.clear()
                    world.all_report()
                assert world.state(uuid) == ("active", None, world.guests[uuid])
            elif what == "confirm" and row.vm_state == states.RESIZED:
                world.age += 1
                world.ask(confirm.confirm, Selection(uuids=[uuid]))
                world.all_report()
            elif what == "revert" and row.vm_state == states.RESIZED:
                world.with_fault(world.revert, uuid, (kind, at))
            elif what == "migrate" and row.vm_state in (states.ACTIVE, states.STOPPED):
                world.with_fault(world.migrate, uuid, (kind, at))
            elif what == "evacuate" and row.vm_state in (states.ACTIVE, states.STOPPED):
                world.dead = {row.host}
                world.with_fault(world.evacuate, uuid, (kind, at))
                world.comes_back()
                world.dead = set()
            world.runs_on = False
            row = world.row(uuid)
            assert row.task_state is None
            if world.guests.get(uuid) != row.host and row.vm_state == states.RESIZED:
                world.age += 1
                world.revert(uuid)
                world.all_report()
            elif world.guests.get(uuid) != row.host:
                world.start(uuid)
            host = world.row(uuid).host
            well(world, uuid, host)
            assert world.connections == {(host, r.volume_id) for r in attachments_of(world)}
            assert len(world.disks(uuid)) == 2 and not world.cleanups()
            if world.row(uuid).vm_state != states.RESIZED:
                assert world.claims() == {(uuid, host)}
    finally:
        world.ledger.close()


def test_a_guest_whose_storage_host_no_play_reaches_stays_on_a_drained_host(world: LiveMovers) -> None:
    uuid = world.prepare()
    home, chosen = world.guests[uuid], Selection(uuids=[uuid])
    running = live.Wanted(chosen, HOSTS, BACKENDS, inventory=HOSTS)
    with pytest.raises(errors.MoveNotSupported, match="on storage host s1, which is not in the inventory"):
        world.ask(live.begin, running, world.fleet, world.options(), world.end)
    found = world.ask(drain.begin, home, cold.Wanted(chosen, HOSTS, BACKENDS, inventory=HOSTS), running)
    assert [type(e) for e in found.stays.values()] == [errors.MoveNotSupported]
    assert not found.live and not found.leaves
    running = live.Wanted(chosen, HOSTS, BACKENDS, inventory=[*HOSTS, "s1"])
    assert [r.uuid for r in world.ask(drain.begin, home, cold.Wanted(chosen, HOSTS, BACKENDS), running).live] == [uuid]
