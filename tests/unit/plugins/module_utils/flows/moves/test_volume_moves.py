# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of instances that move, in the ledger: one host at a time, whatever fails or dies, and connected again by the next start."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach, cleanup, operation, swap
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold,
    cold_life,
    confirm,
    evacuate,
    evacuate_life,
    revert,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, SMALL

HOSTS = ("h1", "h2")
BROKEN = errors.RemoteError(reason="it broke")


class Died(Exception):
    """The run."""


class Movers(BootWorld):
    """Guests with volumes move between two hosts, with a fault at a step: an error, or the death of the run."""

    moves = True

    def prepare(self) -> str:
        for host in HOSTS:
            self.report(host, memory=4)
        self.store()
        self.make("data", size=2)
        (uuid,) = self.boot_of(volume_request("web", from_image(), device("volume", self.volume("data").id)))
        self.guests = {uuid: self.row(uuid).host}  # where they run
        self.age, self.fault, self.step = 0, ("", -1), 0
        return uuid

    def ask(self, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        with self.ledger.write() as tx:
            result = function(tx.for_run(self.context(self.run)), *arguments)
            self.check(tx)
            return result

    @property
    def run(self) -> str:
        return "r%d" % self.age

    def fails(self) -> bool:
        """Whether the next step fails."""
        kind, at = self.fault
        self.step += 1
        if self.step != at:
            return False
        if kind == "dies":
            raise Died
        return kind == "fails"

    # --- the steps of playbooks/move.yml --------------------------------------------------------------------------------

    def ask_storage(self, hosts: t.Sequence[str]) -> None:
        for host in hosts:
            if self.fault[0] == "storage":  # it does not answer: its stage is not run at all
                continue
            self.unexport(host, self.run, BROKEN if self.fails() else None)
            self.export(host, self.run, BROKEN if self.fails() else None)

    def connected(self, uuid: str, host: str) -> bool:
        """The host connects what is exported to it. Returns whether it has all, and starts the guest."""
        with self.ledger.read() as tx:
            rows = moving.attachments_to_connect(tx.for_run(self.context(self.run)), host, [uuid])
        if any(r.export != "done" for r in rows) or self.fails():
            return False
        if rows:
            assert self.connect(host, [uuid], self.run) >= {r.id for r in rows}
        if self.fails():
            return False
        self.runs_there(uuid, host)
        return True

    def runs_there(self, uuid: str, host: str) -> None:
        with self.ledger.read() as tx:
            rows = [r for group in attachments.of_instances(tx, [uuid]).values() for r in group]
        assert {(r.attached_host, r.connection, r.export) for r in rows} == {(host, "done", "done")}
        assert {(host, r.volume_id) for r in rows} <= self.connections
        self.guests[uuid] = host

    def migrate(self, uuid: str) -> None:
        wanted = cold.Wanted(Selection(uuids=[uuid]), HOSTS, dict.fromkeys(HOSTS, "qcow2"))
        (m,) = self.ask(cold.begin, wanted, self.fleet, self.options()).moving
        source, dest = m.move.source_compute, m.move.dest_compute
        off = not self.fails()
        if off:
            self.guests.pop(uuid, None)
            self.fails()
            off = not self.fails()
            if off:
                self.leave(source, [uuid], self.run)
        over = off and not self.fails() and bool(self.ask(cold_life.switch, [uuid]))
        hosts, _lacking = self.ask(moving.rebind_to_current_host, [uuid], self.end)
        self.ask_storage(hosts)
        done = over and self.connected(uuid, dest)
        if over and not done:
            if self.fails():  # the new host does not answer: what it has, nobody knows
                self.ended(uuid, cold_life.MIGRATE, BROKEN, cleaned=False)
                return
            self.leave(dest, [uuid], self.run)
            assert self.ask(cold_life.roll_back, [uuid])
        if not done:
            self.at_home(uuid, source)
        self.ended(uuid, cold_life.MIGRATE, None if done else BROKEN)

    def at_home(self, uuid: str, source: str) -> None:
        hosts, lacking = self.ask(moving.rebind_to_current_host, [uuid], self.end)
        self.ask_storage(hosts)
        if uuid not in lacking:
            self.runs_there(uuid, source)
        else:
            self.connected(uuid, source)

    def revert(self, uuid: str) -> None:
        (m,) = self.ask(revert.begin_revert, Selection(uuids=[uuid]), HOSTS).moving
        source, dest = m.move.source_compute, m.move.dest_compute
        if self.fails():
            self.ended(uuid, cold_life.REVERT, BROKEN, cleaned=False)
            return
        self.guests.pop(uuid, None)
        self.leave(dest, [uuid], self.run)
        self.fails()
        assert self.ask(cold_life.roll_back, [uuid])
        self.at_home(uuid, source)
        self.ended(uuid, cold_life.REVERT, None)

    def evacuate(self, uuid: str) -> None:
        old = self.row(uuid).host
        self.down = [old]
        self.ask(service_state.set_state, [old], service_state.FORCED_DOWN)
        begun = self.ask(evacuate.begin, evacuate.Wanted(Selection(uuids=[uuid])), self.fleet, self.options())
        if begun.failed:
            return
        self.guests.pop(uuid, None)  # it may run still, which nobody hears of
        self.fails()
        new = self.row(uuid).host
        hosts, _lacking = self.ask(moving.rebind_to_current_host, [uuid], self.end)
        self.ask_storage(hosts)
        let_in = self.ask(moving.open_exports, [uuid])
        done = not let_in and self.connected(uuid, new)
        cleaned = done or not self.fails()
        if not done and cleaned:
            self.leave(new, [uuid], self.run)
        result = evacuate_life.Result(states.RUNNING) if done else evacuate_life.Result(error=BROKEN, cleaned=cleaned)
        self.ask(evacuate_life.finish, {uuid: result})
        self.fails()
        if let_in:
            self.ask(moving.restore_to_source_host, begun.volumes[uuid], self.end)

    def comes_back(self) -> None:
        """The host that was forced down answers again."""
        for host in self.down:
            self.ask(service_state.set_state, [host], service_state.UP)
        self.down = []
        self.all_report()

    def ended(self, uuid: str, its: operation.Operation, error: t.Any, cleaned: bool = True) -> None:
        power = states.RUNNING if self.guests.get(uuid) == self.row(uuid).host else states.SHUTDOWN
        self.ask(cold_life.finish, its, {uuid: cold_life.Result(power, error, cleaned)})

    # --- what goes on beside ----------------------------------------------------------------------------------------------

    def with_fault(self, step: t.Callable[[str], None], uuid: str, fault: tuple[str, int]) -> None:
        self.fault, self.step = fault, 0
        try:
            step(uuid)
        except Died:
            self.time += 100_000
        finally:
            self.fault = ("", -1)
            self.age += 1
        self.all_report()

    def all_report(self) -> None:
        for host in HOSTS * 2:  # what one tells can be a cleanup of another
            if host not in self.down:
                self.reports(host)

    def reports(self, host: str) -> None:
        self.age += 1
        due = [u for u, h in self.cleanups() if h == host]
        for uuid in due:
            if self.guests.get(uuid) == host:
                del self.guests[uuid]
            self.connections = {
                c for c in self.connections if c[0] != host
            }  # as plugin_utils.volumes.attached_volumes.forget()
            self.leave(host, [uuid], self.run)
        self.ask(cleanup.finish, {host: due})
        self.time += 1
        uuids = [r.uuid for r in self.rows(tables.instances) if r.host == host]
        powers = {u: states.RUNNING if self.guests.get(u) == host else states.SHUTDOWN for u in uuids}
        self.ask(recovery.settle_operations, host, powers, self.time)

    def start(self, uuid: str) -> None:
        """As the playbook start, or a hard reboot."""
        self.age += 1
        row = self.row(uuid)
        its = OPERATIONS["start" if row.vm_state == states.STOPPED else "hard_reboot"]
        begun = self.ask(operation.begin, its, Selection(uuids=[uuid]), HOSTS)
        assert begun.rows
        lacking = self.ask(moving.adopt_unconnected, {uuid: row.host}, self.end)
        self.ask_storage(self.ask(moving.storage_hosts))
        assert self.connected(uuid, row.host)
        self.ask(moving.release_moved, lacking)
        self.ask(operation.finish, its, {uuid: Outcome(states.RUNNING)})


@pytest.fixture(name="world")
def _movers(bworld: BootWorld) -> t.Iterator[Movers]:
    found = Movers(bworld.url)
    yield found
    found.ledger.close()


def well(world: Movers, uuid: str, host: str) -> None:
    assert world.guests == {uuid: host}
    assert {(r.attached_host, r.attach_status, r.export, r.connection, r.run_id) for r in world.live_attachments()} == {
        (host, "attached", "done", "done", None)
    }
    assert {v.status for v in world.rows(volume_tables.volumes)} == {"in-use"}
    assert set(world.initiators.values()) == {("iqn.test:" + host,)}


def test_volumes_go_along_and_come_back(world: Movers) -> None:
    uuid = world.prepare()
    source = world.guests[uuid]
    (other,) = set(HOSTS) - {source}
    world.asked.clear()
    world.migrate(uuid)
    well(world, uuid, other)
    assert world.state(uuid)[0] == "resized"
    assert [s for s, _v in world.asked] == ["absent", "absent", "present", "present"], "first the former target goes"
    world.age += 1
    world.revert(uuid)
    well(world, uuid, source)
    assert world.state(uuid)[0] == "active"


@pytest.mark.parametrize("kind", ["qemu", "kernel"])
def test_a_lost_domain_takes_the_users_of_its_logins_with_it(
    world: Movers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its target gets another one. With the kernel's initiator the host has them still."""
    monkeypatch.setattr(world, "end", lambda host, _facts: attachments.Connector(host, "iqn.test:" + host, kind))
    uuid = world.prepare()
    host = world.guests[uuid]
    world.age += 1
    assert world.ask(moving.adopt_unconnected, {uuid: host}, world.end) == []
    assert {r.connector for r in world.live_attachments()} == {kind}
    if kind == "qemu":
        world.connections = set()  # its QEMU is gone with it
    lacking = world.ask(moving.adopt_unconnected, {uuid: host}, world.end, [uuid])
    if kind == "kernel":
        assert lacking == []
        well(world, uuid, host)
        return
    assert lacking == [uuid]
    assert {(r.export, r.connection, r.run_id) for r in world.live_attachments()} == {
        ("begun", "none", "run-" + world.run)
    }
    world.ask_storage(world.ask(moving.storage_hosts))
    assert world.connected(uuid, host)
    world.ask(moving.release_moved, lacking)
    well(world, uuid, host)


@pytest.mark.parametrize("over", ["failed", "dead"])
def test_a_volume_whose_extension_did_not_end_goes_along(world: Movers, over: str) -> None:
    """No storage host exported it to the new host, nor to the former one again: the guest stayed off, and no start led out of that."""
    uuid = world.prepare()
    (other,) = set(HOSTS) - {world.guests[uuid]}
    world.extend("data", 5, run="x")
    if over == "failed":
        world.work(run="x", data=BROKEN)
    else:
        world.work_of(run="x")
        world.time += 3600
    status = world.status("data")
    world.migrate(uuid)
    assert world.guests == {uuid: other} and world.status("data") == status
    states_of = {(r.attached_host, r.attach_status, r.export, r.connection) for r in world.live_attachments()}
    assert states_of == {(other, "attached", "done", "done")}


def test_resized_on_its_own_host(world: Movers) -> None:
    """The host lets the volumes go, and gets them again with new credentials; so it does when the flavor goes back."""
    uuid = world.prepare()
    host = world.guests[uuid]
    with world.ledger.read() as tx:
        assert cold.instances.select_live(tx, uuids=[uuid])[0].spec["is_bfv"]
    large = dataclasses.replace(SMALL, name="large", memory_mb=2048, swap=64)
    wanted = cold.Wanted(Selection(uuids=[uuid]), HOSTS, dict.fromkeys(HOSTS, "qcow2"), large, same_host=True)

    def alone(tx: t.Any, needs: t.Any) -> t.Any:
        return fleet.read(tx, {host}, needs=needs)

    (m,) = world.ask(cold.begin, wanted, alone, world.options()).moving
    assert m.move.dest_compute == host
    world.guests.clear()
    world.leave(host, [uuid], world.run)
    world.ask(cold_life.switch, [uuid])
    world.at_home(uuid, host)
    world.ended(uuid, cold_life.RESIZE, None)
    well(world, uuid, host)
    assert world.state(uuid)[0] == "resized" and world.row(uuid).swap_mb == 64
    world.age += 1
    world.revert(uuid)
    well(world, uuid, host)
    assert world.state(uuid)[0] == "active" and world.row(uuid).swap_mb == 0


def test_a_dead_host_is_cut_off_before_another_gets_the_volumes(world: Movers) -> None:
    uuid = world.prepare()
    old = world.guests[uuid]
    (other,) = set(HOSTS) - {old}
    had = world.connections.copy()
    world.asked.clear()
    world.evacuate(uuid)
    assert [s for s, _v in world.asked] == ["absent", "absent", "present", "present"]
    assert not had & world.connections, "its sessions ended with the targets"
    well(world, uuid, other)
    world.comes_back()
    well(world, uuid, other)
    assert not world.cleanups()


def test_back_from_a_host_that_is_lost(world: Movers) -> None:
    """That one is cut off from the volumes before the former host gets them again."""
    uuid = world.prepare()
    source = world.guests[uuid]
    (lost,) = set(HOSTS) - {source}
    world.migrate(uuid)
    well(world, uuid, lost)
    world.age += 1
    had = world.connections.copy()
    world.down = [lost]
    world.ask(service_state.set_state, [lost], service_state.FORCED_DOWN)
    assert world.ask(revert.begin_revert, Selection(uuids=[uuid]), HOSTS).moving
    world.guests.pop(uuid)
    world.asked.clear()
    assert world.ask(cold_life.roll_back, [uuid], [uuid])
    world.at_home(uuid, source)
    world.ended(uuid, cold_life.REVERT, None)
    assert [s for s, _v in world.asked] == ["absent", "absent", "present", "present"]
    assert not had & world.connections
    well(world, uuid, source)
    world.comes_back()
    well(world, uuid, source)
    assert world.state(uuid) == ("active", None, source) and not world.cleanups()


def test_a_volume_whose_attaching_failed_with_the_host_keeps_no_instance_there(world: Movers) -> None:
    """The host died while it connected, so it cannot be disconnected; and it may have the volume."""
    uuid = world.prepare()
    old = world.guests[uuid]
    (other,) = set(HOSTS) - {old}
    world.make("more", size=1)
    more = world.volume("more").id
    world.attach({"instance": "web", "volume": "more"}, run="v")
    world.export(run="v")
    world.connect(old, [uuid], "v")
    with world.ledger.write() as tx:
        assert attach.abandon_attach(tx.for_run(world.context("v"))) == [more]
    with world.ledger.write() as tx:
        done, left = attach.finish(tx.for_run(world.context("v")), attach.ATTACH)
    assert not done and [v["volume"] for v in left] == ["more"]
    assert world.ends("more") == ("detached", "done", "done") and world.status("more") == "attaching"
    world.asked.clear()
    world.evacuate(uuid)
    assert ("absent", more) in world.asked and world.status("more") == "available"
    assert {h for h, _v in world.connections} == {other} and more not in {v for _h, v in world.connections}
    world.comes_back()
    assert world.guests == {uuid: other} and world.state(uuid) == ("active", None, other) and not world.cleanups()


def half_swap(world: Movers, begun: bool) -> str:
    """A run that dies while its host exchanges "data" for "faster". Returns the id of the latter. :arg begun: the host is connected to it"""
    world.make("faster", size=3)
    wish = {"instance": "web", "old_volume": "data", "new_volume": "faster"}
    with world.ledger.write() as tx:
        swap.begin_swap(tx.for_run(world.context("v")), [wish], "default", world.end, world.cross_az_attach)
    world.export(run="v")
    if begun:
        with world.ledger.read() as tx:
            pairs, _stale = swap.to_swap(tx.for_run(world.context("v")), next(iter(world.guests.values())))
        world.connect_rows(pairs[0].old.attached_host, [p.new for p in pairs], "v")
    return str(world.volume("faster").id)


def dies(world: Movers, run: str) -> None:
    with world.ledger.write() as tx:
        tx.execute(tables.runs.update().where(tables.runs.c.id == world.context(run).run.id).values(lease_until=0))


def has_old(world: Movers, uuid: str, host: str) -> None:
    """The instance runs on the host with the volumes that it had, and the new one is free."""
    assert world.guests == {uuid: host}
    rows = world.live_attachments()
    assert {(r.attached_host, r.attach_status, r.export, r.connection, r.run_id) for r in rows} == {
        (host, "attached", "done", "done", None)
    }
    assert world.connections == {(host, r.volume_id) for r in rows}
    assert (world.status("data"), world.status("faster")) == ("in-use", "available")


@pytest.mark.parametrize("begun", [True, False])
def test_an_evacuation_ends_the_exchange_of_a_volume_on_the_lost_host(world: Movers, begun: bool) -> None:
    """The former volume stays the guest's. The new one may be ahead of it or have a part: nobody knows, and it is kept."""
    uuid = world.prepare()
    old, disks = world.guests[uuid], world.disks(uuid)
    (other,) = set(HOSTS) - {old}
    new = half_swap(world, begun)
    with pytest.raises(errors.SwapUnderWay):  # its run lives
        world.evacuate(uuid)
    dies(world, "v")
    world.asked.clear()
    world.evacuate(uuid)
    has_old(world, uuid, other)
    assert ("absent", new) in world.asked
    assert world.disks(uuid) == disks and {r.volume_id for r in attachments_of(world)} >= {world.volume("data").id}
    assert new not in {v for _h, v in world.connections}
    faults = [
        f.error_code for f in world.rows(volume_tables.volume_faults) if f.volume_id in (new, world.volume("data").id)
    ]
    assert faults == (["SwapCutShort"] * 2 if begun else [])
    world.comes_back()
    has_old(world, uuid, other)
    assert not world.cleanups()


def test_an_exchange_whose_instance_finds_no_host_stays_as_it_is(world: Movers) -> None:
    """Its host may come back, and tells then which volume the guest has."""
    uuid = world.prepare()
    half_swap(world, True)
    dies(world, "v")
    (other,) = set(HOSTS) - {world.guests[uuid]}
    world.ask(service_state.set_state, [other], service_state.FORCED_DOWN)
    world.evacuate(uuid)
    assert (world.status("data"), world.status("faster")) == ("detaching", "attaching")
    assert world.ends("faster") == ("attaching", "done", "done")


def test_where_the_storage_host_cannot_be_asked_all_stays(world: Movers) -> None:
    uuid = world.prepare()
    old = world.guests[uuid]
    before = [(r.attached_host, r.initiator, r.state) for r in attachments_of(world)]
    world.with_fault(world.evacuate, uuid, ("storage", 0))
    assert [(r.attached_host, r.initiator, r.state) for r in attachments_of(world)] == before
    assert world.row(uuid).host == old and world.state(uuid)[0] == "active"
    assert {h for h, _v in world.connections} == {old}
    world.age += 1
    world.evacuate(uuid)
    (other,) = set(HOSTS) - {old}
    well(world, uuid, other)


def test_a_volume_of_two_guests_lets_the_other_one_in_all_the_time(world: Movers) -> None:
    for host in HOSTS:
        world.report(host, memory=4)
    world.store()
    world.make("both", size=2, multiattach=True)
    both = world.volume("both").id
    world.age, world.fault, world.step, world.guests = 0, ("", -1), 0, {}
    one, two = (world.boot_of(volume_request(n, device("volume", both), image=IMAGE))[0] for n in ("one", "two"))
    places = {u: world.row(u).host for u in (one, two)}
    world.guests = dict(places)
    world.asked.clear()
    world.age += 1
    world.migrate(one)
    assert ("absent", both) not in world.asked
    hosts = {world.row(u).host for u in (one, two)}
    assert set(world.initiators[both]) == {"iqn.test:" + h for h in hosts}
    assert {h for h, v in world.connections if v == both} == hosts
    assert world.row(one).host != places[one] and world.state(one)[0] == "resized"


def test_a_volume_at_work_keeps_its_instance(world: Movers) -> None:
    uuid = world.prepare()
    world.make("more", size=1)
    world.attach({"instance": "web", "volume": "more"}, run="v")
    wanted = cold.Wanted(Selection(uuids=[uuid]), HOSTS, dict.fromkeys(HOSTS, "qcow2"))
    with pytest.raises(errors.InvalidVolume, match="is attaching"):
        world.ask(cold.begin, wanted, world.fleet, world.options())
    assert world.state(uuid)[0] == "active" and {r.run_id for r in attachments_of(world)} == {None, "run-v"}


def test_volumes_that_another_host_may_use_are_not_connected(world: Movers) -> None:
    uuid = world.prepare()
    (other,) = set(HOSTS) - {world.guests[uuid]}
    world.migrate(uuid)
    (problem,) = world.ask(moving.refusals, {uuid: "h9"}).values()
    assert "is still connected to host %s" % other in problem.message
    assert world.ask(moving.refusals, {uuid: "h9"}, [other]) == {} == world.ask(moving.refusals, {uuid: other})


def attachments_of(world: Movers) -> list[t.Any]:
    with world.ledger.read() as tx:
        return sorted(attachments.select(tx), key=lambda r: str(r.id))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["migrate", "revert", "confirm", "evacuate"]),
            st.sampled_from(["fails", "dies"]),
            st.integers(0, 14),
        ),
        max_size=6,
    )
)
def test_whatever_fails_or_dies(history: list[tuple[str, str, int]]) -> None:
    world = Movers(MEMORY)
    try:
        uuid = world.prepare()
        for what, kind, at in history:
            row = world.row(uuid)
            if what == "confirm" and row.vm_state == states.RESIZED:
                world.age += 1
                world.ask(confirm.confirm, Selection(uuids=[uuid]))
                world.all_report()
            elif what == "revert" and row.vm_state == states.RESIZED:
                world.with_fault(world.revert, uuid, (kind, at))
            elif what == "migrate" and row.vm_state in (states.ACTIVE, states.STOPPED):
                world.with_fault(world.migrate, uuid, (kind, at))
            elif what == "evacuate" and row.vm_state in (states.ACTIVE, states.STOPPED):
                world.with_fault(world.evacuate, uuid, (kind, at))
                world.comes_back()
            row = world.row(uuid)
            assert row.task_state is None
            if world.guests.get(uuid) != row.host and row.vm_state == states.RESIZED:
                world.age += 1
                world.revert(uuid)
                world.all_report()
            elif world.guests.get(uuid) != row.host:
                world.start(uuid)
            well(world, uuid, world.row(uuid).host)
    finally:
        world.ledger.close()


def test_a_storage_host_that_no_play_reaches(world: Movers) -> None:
    """Nobody can export a volume to another host: the guest is left where it runs, not shut down to come back."""
    uuid = world.prepare()
    host, chosen = world.guests[uuid], Selection(uuids=[uuid])
    unreached = pytest.raises(
        errors.MoveNotSupported, match="its volume [0-9a-f-]{36} is on storage host s1, which is not in the inventory"
    )

    def wanted(*inventory: str) -> cold.Wanted:
        return cold.Wanted(chosen, HOSTS, dict.fromkeys(HOSTS, "qcow2"), inventory=inventory)

    with unreached:
        world.ask(cold.begin, wanted(*HOSTS), world.fleet, world.options())
    assert world.state(uuid) == ("active", None, host)
    world.migrate(uuid)
    with unreached:
        world.ask(lambda tx: revert.begin_revert(tx, chosen, HOSTS, inventory=HOSTS))
    assert world.state(uuid)[:2] == ("resized", None)
    world.age += 1
    world.revert(uuid)
    world.ask(service_state.set_state, [host], service_state.FORCED_DOWN)
    with unreached:
        world.ask(evacuate.begin, evacuate.Wanted(chosen, inventory=HOSTS), world.fleet, world.options())
    assert world.row(uuid).host == host
