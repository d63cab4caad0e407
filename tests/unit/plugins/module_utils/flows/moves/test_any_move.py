# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random moves, reverts, evacuations, deaths of runs and of hosts: never two running copies, never a guest without its disks."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.request import expand
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, operation, redefine
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
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    cleanups,
    fleet,
    instances,
    service_state,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.histories import run_histories
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, World, request

#: Two that an instance is resized from and to; a migration keeps it.
FLAVORS = [SMALL, dataclasses.replace(SMALL, name="wide", vcpus=2)]
HOSTS = ("h1", "h2", "h3")
NAMES = ("a", "b")
BROKEN = errors.RemoteError(reason="it broke")

names, hosts = st.sampled_from(NAMES), st.sampled_from(HOSTS)


@dataclass
class Trip:
    """What the run that is alive does with an instance."""

    kind: str  # move, revert, evacuate
    source: str
    dest: str
    runs: bool  # its guest runs when all is done
    at: str = "begun"
    flavor: str = ""  # after a move
    its: operation.Operation = cold_life.MIGRATE

    @property
    def stays(self) -> bool:
        return self.kind != "evacuate" and self.source == self.dest


@dataclass
class Host:
    guests: dict[str, bool] = field(
        default_factory=dict
    )  # uuid -> whether it runs; a guest that is defined has its disks
    dead: bool = False
    # uuid -> of whose flavor its disks and definition are; and what a resize here has beside them: (new or old, flavor)
    flavors: dict[str, str] = field(default_factory=dict)
    beside: dict[str, tuple[str, str]] = field(default_factory=dict)

    # What hosts.disks.resized does. A guest that is exchanged is undefined.

    def take(self, uuid: str) -> None:
        if self.beside.get(uuid, ("", ""))[0] == "new":
            assert not self.guests.pop(uuid, False), "a guest runs with the disks that are exchanged"
            self.flavors[uuid], self.beside[uuid] = self.beside[uuid][1], ("old", self.flavors[uuid])

    def settle(self, uuid: str) -> None:
        self.take(uuid)
        self.beside.pop(uuid, None)

    def undo(self, uuid: str) -> None:
        what, flavor = self.beside.get(uuid, ("", ""))
        if what == "new":
            del self.beside[uuid]
        elif what == "old":
            self.guests.pop(uuid, None)
            self.flavors[uuid], self.beside[uuid] = flavor, ("undone", flavor)

    def revert(self, uuid: str) -> None:
        self.undo(uuid)
        if self.beside.pop(uuid, None):
            self.guests.setdefault(uuid, False)

    def forget(self, uuid: str) -> None:
        for known in (self.guests, self.flavors, self.beside):
            known.pop(uuid, None)  # type: ignore[attr-defined]


class Histories(RuleBasedStateMachine):
    open: t.Callable[[], World]

    @initialize()
    def start(self) -> None:
        self.world = type(self).open()
        self.hosts = {h: Host() for h in HOSTS}
        for host in HOSTS:
            self.world.report(host, memory=4)
        self.uuids = {name: self.world.boot(name) for name in NAMES}
        for uuid in self.uuids.values():
            self.has(self.row(uuid).host, uuid, True)
        self.trips: dict[str, Trip] = {}
        self.descriptions: dict[str, str] = {}
        self.age = 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.ledger.close()

    def has(self, host: str, uuid: str, runs: bool) -> None:
        """It has the disks and the definition by the flavor that the ledger has now."""
        self.hosts[host].guests[uuid] = runs
        self.hosts[host].flavors[uuid] = self.flavor(uuid)

    def flavor(self, uuid: str) -> str:
        return str(FLAVORS[self.row(uuid).vcpus - 1].name)

    def row(self, uuid: str) -> t.Any:
        return self.world.row(uuid)

    def call(self, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        with self.world.ledger.write() as tx:
            result = function(tx.for_run(self.world.context("r%d" % self.age)), *arguments)
            self.world.check(tx)
            return result

    def idle(self, name: str) -> bool:
        return name not in self.trips

    # --- a cold migration ----------------------------------------------------------------------------------------------

    @rule(name=names, resizes=st.booleans(), here=st.booleans())
    def migrate(self, name: str, resizes: bool, here: bool) -> None:
        """:arg here: its own host is the best for a resize."""
        backends = dict.fromkeys(HOSTS, "qcow2")
        uuid = self.uuids[name]
        (flavor,) = [f for f in FLAVORS if f.name != self.flavor(uuid)] if resizes else [None]
        wanted = cold.Wanted(Selection(names=[name]), HOSTS, backends, flavor, same_host=here)
        at_home = {self.row(uuid).host} if here and resizes else set(HOSTS)

        def read(tx, needs):
            return fleet.read(tx, at_home, needs=needs)

        try:
            begun = self.call(cold.begin, wanted, read, self.world.options())
        except errors.BootflowError:
            return
        for m in begun.moving:
            assert (m.move.source_compute == m.move.dest_compute) <= (here and resizes)
            self.trips[name] = Trip("move", m.move.source_compute, m.move.dest_compute, m.runs)
            self.trips[name].its = wanted.operation
            self.trips[name].flavor = flavor.name if flavor is not None else self.flavor(uuid)

    @rule(name=names, fails=st.booleans())
    def depart(self, name: str, fails: bool) -> None:
        trip = self.trips.get(name)
        if trip is None or (trip.kind, trip.at) != ("move", "begun"):
            return
        if fails or self.hosts[trip.source].dead:
            self.end(name, trip.its, error=True)
        else:
            self.hosts[trip.source].guests[self.uuids[name]] = False
            trip.at = "departed"

    @rule(name=names, fails=st.booleans())
    def go_over(self, name: str, fails: bool) -> None:
        """The disks arrive, or a part of them, and the instance goes over."""
        trip, uuid = self.trips.get(name), self.uuids[name]
        if trip is None or trip.at != "departed":
            return
        if fails or self.hosts[trip.dest].dead:
            self.at_home(name, trip)
            self.end(name, trip.its, error=True)
            return
        if trip.stays:
            self.hosts[trip.dest].beside[uuid] = ("new", trip.flavor)
        else:
            self.hosts[trip.dest].guests[uuid] = False
            self.hosts[trip.dest].flavors[uuid] = trip.flavor
        moved = [m.uuid for m in self.call(cold_life.switch, [uuid])]
        assert moved == [uuid]
        trip.at = "over"

    @rule(name=names, fails=st.booleans())
    def arrive(self, name: str, fails: bool) -> None:
        trip, uuid = self.trips.get(name), self.uuids[name]
        if trip is None or trip.at != "over":
            return
        if not self.hosts[trip.dest].dead and trip.stays:
            self.hosts[trip.dest].take(uuid)
        if not fails and not self.hosts[trip.dest].dead:
            assert self.call(cold_life.arrivals_on, trip.dest, [uuid]) == [uuid]
            self.hosts[trip.dest].guests[uuid] = trip.runs
            self.end(name, trip.its)
            return
        if self.hosts[trip.dest].dead:  # what it has, nobody knows: the instance stays there
            self.end(name, trip.its, error=True, cleaned=False)
            return
        self.leave(trip, uuid)
        trip.at = "cleaned"

    @rule(name=names, resizes=st.booleans(), far=st.integers(1, 3), text=st.sampled_from(("one", "two")))
    def is_described_on_its_way(self, name: str, resizes: bool, far: int, text: str) -> None:
        """So far it goes without a fault, and then another run changes it in place."""
        self.migrate(name, resizes, False)
        for step in (self.depart, self.go_over, self.arrive)[:far]:
            step(name, False)
        self.is_described(name, text)

    @rule(name=names, far=st.integers(1, 3))
    def grows(self, name: str, far: int) -> None:
        """A resize where it is, so far without a fault."""
        self.migrate(name, True, True)
        for step in (self.depart, self.go_over, self.arrive)[:far]:
            step(name, False)

    @rule(name=names, exchanges=st.booleans())
    def dies_in_the_exchange(self, name: str, exchanges: bool) -> None:
        """The run is gone, and its host has exchanged the disks, or is about to."""
        trip = self.trips.get(name)
        if trip is not None and trip.at == "over" and trip.stays and not self.hosts[trip.dest].dead:
            if exchanges:
                self.hosts[trip.dest].take(self.uuids[name])
            self.kill()

    def leave(self, trip: Trip, uuid: str) -> None:
        """The new host has nothing of it."""
        if trip.stays:
            self.hosts[trip.dest].undo(uuid)
        else:
            self.hosts[trip.dest].forget(uuid)

    def at_home(self, name: str, trip: Trip) -> None:
        if trip.stays and not self.hosts[trip.source].dead:
            self.hosts[trip.source].revert(self.uuids[name])
        if trip.runs and not self.hosts[trip.source].dead:
            self.hosts[trip.source].guests[self.uuids[name]] = True

    def end(self, name: str, its: operation.Operation, error: bool = False, cleaned: bool = True) -> None:
        uuid = self.uuids[name]
        there = self.hosts[self.row(uuid).host]
        known = not there.dead
        power = states.RUNNING if there.guests.get(uuid) else states.SHUTDOWN
        result = cold_life.Result(power if known else states.NOSTATE, BROKEN if error else None, cleaned)
        self.call(cold_life.finish, its, {uuid: result})
        del self.trips[name]

    # --- decided --------------------------------------------------------------------------------------------------------

    @rule(name=names)
    def confirms(self, name: str) -> None:
        try:
            self.call(confirm.confirm, Selection(names=[name]))
        except errors.BootflowError:
            return

    @rule(name=names, fails=st.booleans())
    def revert(self, name: str, fails: bool) -> None:
        """One that goes on with a dead run's comes through: what that had removed, only a report tells."""
        uuid = self.uuids[name]
        goes_on = self.row(uuid).task_state == states.RESIZE_REVERTING
        if name in self.trips or (goes_on and self.hosts[self.row(uuid).host].dead):
            return
        fails = fails and not goes_on
        try:
            (m,) = self.call(revert.begin_revert, Selection(names=[name]), HOSTS).moving or [None]
        except errors.BootflowError:
            return
        if m is None:
            return
        self.trips[name] = Trip("revert", m.move.source_compute, m.move.dest_compute, m.runs)
        if fails or self.hosts[m.move.dest_compute].dead:
            self.end(name, cold_life.REVERT, error=True, cleaned=False)
            return
        self.leave(self.trips[name], uuid)
        self.trips[name].at = "cleaned"

    @rule(name=names)
    def come_back(self, name: str) -> None:
        trip = self.trips.get(name)
        if trip is None or trip.at != "cleaned":
            return
        assert self.call(cold_life.roll_back, [self.uuids[name]])
        its = cold_life.REVERT if trip.kind == "revert" else trip.its
        if trip.stays and self.hosts[trip.source].dead:
            self.end(name, its, error=True, cleaned=False)
            return
        self.at_home(name, trip)
        self.end(name, its, error=trip.kind == "move")

    # --- a host dies ----------------------------------------------------------------------------------------------------

    @rule(host=hosts)
    def dies(self, host: str) -> None:
        """Its power fails, and it is forced down."""
        if sum(h.dead for h in self.hosts.values()) == 2:
            return
        it = self.hosts[host]
        it.dead = True
        it.guests = dict.fromkeys(it.guests, False)
        self.call(service_state.set_state, [host], "forced_down")

    @rule(host=hosts)
    def comes_back(self, host: str) -> None:
        self.hosts[host].dead = False
        self.call(service_state.set_state, [host], "up")
        self.reports(host)

    @rule(name=names)
    def evacuates(self, name: str) -> None:
        try:
            begun = self.call(
                evacuate.begin, evacuate.Wanted(Selection(names=[name])), self.world.fleet, self.world.options()
            )
        except errors.BootflowError:
            return
        for row in begun.rows:
            self.trips[name] = Trip("evacuate", begun.sources[row.uuid], row.host, row.vm_state != states.STOPPED)

    @rule(name=names, fails=st.booleans(), cleaned=st.booleans(), starting=st.booleans())
    def builds(self, name: str, fails: bool, cleaned: bool, starting: bool) -> None:
        """A host that was to start the guest and neither tells what came of that nor is cleaned may run it."""
        trip, uuid = self.trips.get(name), self.uuids[name]
        if trip is None or trip.kind != "evacuate":
            return
        there = self.hosts[trip.dest]
        if fails or there.dead:
            cleaned = cleaned and not there.dead
            if not cleaned:
                self.has(trip.dest, uuid, starting and trip.runs and not there.dead)
            result = evacuate_life.Result(error=BROKEN, cleaned=cleaned, may_run=starting and not cleaned)
        else:
            self.has(trip.dest, uuid, trip.runs)
            result = evacuate_life.Result(states.RUNNING if trip.runs else states.SHUTDOWN)
        self.call(evacuate_life.finish, {uuid: result})
        del self.trips[name]

    @rule(name=names, fails=st.booleans(), starting=st.booleans())
    def loses_its_host(self, name: str, fails: bool, starting: bool) -> None:
        """The host dies, and the instance leaves it at once, perhaps for one that gives no answer; then the same is run again."""
        self.dies(self.row(self.uuids[name]).host)
        for each in (fails, False):
            self.evacuates(name)
            self.builds(name, each, False, starting)

    @rule(name=names, lost=st.booleans())
    def is_reset(self, name: str, lost: bool) -> None:
        """Perhaps its host is lost with the run that worked on it, and it leaves that then."""
        uuid = self.uuids[name]
        if lost:
            self.kill()
            self.dies(self.row(uuid).host)
        before, elsewhere = self.row(uuid), len(self.world.rows(tables.migrations))
        try:
            self.call(reset_state.reset, Selection(names=[name]), states.ERROR)
        except errors.BootflowError:
            assert self.row(uuid) == before and (
                name in self.trips or before.vm_state == states.RESIZED or before.task_state
            )
            return
        assert name not in self.trips and len(self.world.rows(tables.migrations)) == elsewhere
        row = self.row(uuid)
        assert (row.vm_state, row.task_state, row.host) == (states.ERROR, None, before.host)
        assert not [r for r in self.world.rows(tables.migrations) if r.instance_uuid == uuid and r.status in moves.OPEN]
        if lost:
            self.evacuates(name)
            self.builds(name, False, False, False)

    # --- what goes on beside -------------------------------------------------------------------------------------------

    @rule(name=names, what=st.sampled_from(("stop", "start")))
    def operates(self, name: str, what: str) -> None:
        uuid, row = self.uuids[name], self.row(self.uuids[name])
        try:
            begun = self.call(operation.begin, OPERATIONS[what], Selection(names=[name]), HOSTS)
        except errors.BootflowError:
            return
        if not begun.rows:
            return
        there = self.hosts[row.host]
        works = not there.dead and uuid in there.guests
        if works:
            there.guests[uuid] = what == "start"
        power = states.RUNNING if what == "start" else states.SHUTDOWN
        outcome = Outcome(power) if works else Outcome(error=BROKEN)
        self.call(operation.finish, OPERATIONS[what], {uuid: outcome})

    @rule(name=names, text=st.sampled_from(("one", "two")))
    def is_described(self, name: str, text: str) -> None:
        """Another run writes what can be changed in place, at any moment."""
        entry = request(name, description=text)

        def write(tx: Transaction) -> None:
            (row,) = instances.select_live(tx, uuids=[self.uuids[name]], lock=True)
            redefine.write(tx, [redefine.New(row, 0, entry, expand.request_digest(entry), ("description",))])

        self.call(write)
        self.descriptions[name] = text

    @rule()
    def kill(self) -> None:
        """The run dies wherever it is, and its lease runs out."""
        self.age += 1
        self.world.time += 601
        self.trips.clear()

    @rule(host=hosts)
    def reports(self, host: str) -> None:
        """A host that answers is cleaned first, and tells then what there is."""
        it = self.hosts[host]
        if it.dead:
            return
        self.clean(host)
        self.world.time += 1
        powers = {u: states.RUNNING if on else states.SHUTDOWN for u, on in it.guests.items()}
        self.call(recovery.settle_operations, host, powers, self.world.time)
        self.clean(host)

    @rule(host=hosts)
    def is_cleaned_by_a_run_that_dies(self, host: str) -> None:
        if not self.hosts[host].dead:
            self.clean(host, dies=True)

    def clean(self, host: str, dies: bool = False) -> None:
        due = [u for u, h in self.world.cleanups() if h == host]
        if due:
            parts = self.call(cleanups.begin, host, due)
            does = {None: Host.forget, "old": Host.settle, "new": Host.revert}
            for uuid in due:
                does[parts.get(uuid)](self.hosts[host], uuid)
            if not dies:
                self.call(cleanup.finish, {host: due}, cleanup.parts_on(host, parts))

    # --- the laws --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "trips"))
    @invariant()
    def it_is_described_as_was_written_last(self) -> None:
        with self.world.ledger.read() as tx:
            found = {r.display_name: r.digest["description"] for r in instances.select_live(tx)}
        assert {n: found[n] for n in self.descriptions} == self.descriptions

    @precondition(lambda self: hasattr(self, "trips"))
    @invariant()
    def a_guest_runs_once(self) -> None:
        for name, uuid in self.uuids.items():
            copies = [h for h, it in self.hosts.items() if it.guests.get(uuid)]
            assert len(copies) <= 1, "%s runs on %s" % (name, copies)

    @precondition(lambda self: hasattr(self, "trips"))
    @invariant()
    def an_instance_at_rest_is_where_its_disks_are(self) -> None:
        for uuid in self.uuids.values():
            row = self.row(uuid)
            there = self.hosts[row.host]
            if row.task_state is not None or row.vm_state == states.ERROR:
                continue
            if (uuid, row.host) not in self.world.cleanups():
                what = there.beside.get(uuid, ("", ""))[0]
                exchanged = (
                    row.vm_state == states.RESIZED and what != ""
                )  # and may not be defined yet, where a run died
                assert uuid in there.guests or exchanged, "%s on %s has no disks" % (row.display_name, row.host)
                assert what in (("", "new", "old") if row.vm_state == states.RESIZED else ("",)), what
                assert there.flavors[uuid] == self.flavor(uuid) or what == "new", "its guest is another one"

    @precondition(lambda self: hasattr(self, "trips"))
    @invariant()
    def what_is_elsewhere_is_removed_or_waits_to_be_decided(self) -> None:
        owed = self.world.cleanups()
        for uuid in self.uuids.values():
            row = self.row(uuid)
            elsewhere = {h for h, it in self.hosts.items() if uuid in it.guests and h != row.host}
            decided = row.task_state is None and row.vm_state != states.RESIZED
            assert not decided or all((uuid, h) in owed for h in elsewhere), "%s is left on %s" % (uuid, elsewhere)

    @precondition(lambda self: hasattr(self, "trips"))
    @invariant()
    def the_journal_is_closed_where_nothing_is_at_work(self) -> None:
        idle = {u for u in self.uuids.values() if self.row(u).task_state is None}
        for table in (tables.instance_actions, tables.instance_action_events):
            assert not [r for r in self.world.rows(table) if r.instance_uuid in idle and r.finish_time is None]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("kind", "count"), [("memory", 25), ("postgresql", 2)])
def test_any_move(kind: str, count: int, request: pytest.FixtureRequest) -> None:
    class Here(Histories):
        @staticmethod
        def open() -> World:
            return World(request.getfixturevalue("postgres").emptied() if kind == "postgresql" else MEMORY)

    run_histories(Here, count)
