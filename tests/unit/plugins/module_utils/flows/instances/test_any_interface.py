# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random histories of interfaces that several runs attach and detach while others reboot the guest and move it, with hosts that refuse, keep silent and
runs that die: no guest ever has an interface whose addresses could be given to another one.
"""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import (
    NamedInterface,
    WantedInterface,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import interfaces
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.histories import run_histories
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network

HOSTS = ("h1", "h2")
OTHER = network(2, addresses=3)
#: What a host does with interfaces, and whether it says so.
DOES, REFUSES, SILENT, SILENTLY_DOES = "does", "refuses", "silent", "silently does"
ANSWERS = (DOES, DOES, DOES, DOES, REFUSES, SILENT, SILENTLY_DOES)


@dataclass
class Work:
    """A run in the middle of something."""

    what: str  # attach, detach, define (a hard reboot), move, live
    run: str
    host: str = ""
    ids: tuple[str, ...] = ()
    new: frozenset[str] = frozenset()
    loaded: frozenset[str] | None = (
        None  # what a definition is made of; of an attach what it gives to the guest, once that is read
    )


@dataclass
class Guest:
    """What a host has of the instance: the interfaces of its guest and of its definition."""

    ids: set[str] = field(default_factory=set)


class Histories(RuleBasedStateMachine):
    open: t.Callable[[], World]

    @initialize()
    def start(self) -> None:
        self.world = type(self).open()
        self.world.know(OTHER)
        for host in HOSTS:
            self.world.report(host)
        self.uuid = self.world.boot("web")
        self.guests = {str(self.world.row(self.uuid).host): Guest(set(self.its_ports()))}
        self.works: list[Work] = []
        self.owed: set[str] = set()  # former hosts that are to be cleaned of the instance
        self.number = 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.the_same_again_comes_to_its_end()
            finally:
                self.world.ledger.close()

    def its_ports(self) -> list[str]:
        with self.world.ledger.read() as tx:
            (build,) = builds.load(tx, instances.select_live(tx, uuids=[self.uuid]))
        return [port.id for port, _network in build.ports]

    def write(self, work: Work, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        with self.world.ledger.write() as tx:
            return function(tx.for_run(self.world.context(work.run)), *arguments)

    def new_run(self) -> str:
        self.number += 1
        return "r%d" % self.number

    # --- interfaces ---------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 2))
    def begin_attach(self, count: int) -> None:
        run = self.new_run()
        entries = [WantedInterface("interfaces[%d]" % n, "web", NetworkRequest(network=OTHER.id)) for n in range(count)]
        with contextlib.suppress(errors.InvalidRequest):
            begun = self.write(Work("", run), interfaces.begin_attach, entries, self.world.networks, None, HOSTS, {})
            self._begun("attach", run, begun)

    @rule(which=st.sampled_from(["net-1", "net-2"]))
    def begin_detach(self, which: str) -> None:
        run = self.new_run()
        with self.world.ledger.read() as tx:
            its = [p.id for p, n in ports.ports_of(tx, [self.uuid])[self.uuid] if n.name == which]
            leaving = bool(ports.ports_of(tx, [self.uuid], leaving=True)[self.uuid])
        entry = NamedInterface("interfaces[0]", "web", network=which)
        if len(its) > 1 and not leaving:
            entry = NamedInterface("interfaces[0]", "web", port_id=its[0])
        with contextlib.suppress(errors.InvalidRequest):
            begun = self.write(Work("", run), interfaces.begin_detach, [entry], self.world.networks, None, HOSTS)
            self._begun("detach", run, begun)

    def _begun(self, what: str, run: str, begun: interfaces.Begun) -> None:
        if begun.interfaces:
            ids = tuple(each.port.id for each in begun.interfaces)
            self.works.append(Work(what, run, str(begun.interfaces[0].row.host), ids, frozenset(begun.new)))

    def _on_host(self, work: Work, attaches: bool, ids: t.Collection[str], answer: str) -> bool:
        """Whether the host says that it did it."""
        guest = self.guests.get(work.host)
        if answer in (DOES, SILENTLY_DOES) and guest is not None:
            guest.ids = guest.ids | set(ids) if attaches else guest.ids - set(ids)
        if attaches and guest is None:
            return False
        return answer == DOES

    @rule(which=st.integers(0, 9), answer=st.sampled_from(ANSWERS), undo=st.sampled_from(ANSWERS))
    def work_on_interfaces(self, which: int, answer: str, undo: str) -> None:
        """As the action instance_interface does it on its host."""
        mine = [w for w in self.works if w.what in ("attach", "detach")]
        if not mine:
            return
        work = mine[which % len(mine)]
        if work.what == "attach" and work.loaded is None:  # others may come between this and what the host does
            with self.world.ledger.read() as tx:
                rows = [r for r in instances.select_live(tx, uuids=[self.uuid]) if r.host == work.host]
                work.loaded = frozenset(p.id for b in builds.load(tx, rows) for p, _n in b.ports)
            return
        self.works.remove(work)
        if work.what == "detach":
            if self._on_host(work, False, work.ids, answer):
                self.write(work, interfaces.free_addresses, list(work.ids), work.host)
            elif answer == REFUSES:
                self.write(work, interfaces.keep_attached, list(work.ids))
            return
        there = work.loaded or frozenset()
        done = self._on_host(work, True, there & set(work.ids), answer)
        with self.world.ledger.read() as tx:
            late = interfaces.find_detached(tx, sorted(there & set(work.ids)))
        self._on_host(work, False, late, DOES)
        if not done or not there >= set(work.ids):
            taken = self.write(work, interfaces.to_detach, sorted(work.new), work.host)
            done = self._on_host(work, False, taken, undo)
            gone = self.write(work, interfaces.free_addresses, sorted(taken), work.host) if done else set()
            self.write(work, interfaces.keep_attached, sorted(taken - gone))

    # --- what else goes on --------------------------------------------------------------------------------------------

    def _take(self, work: Work, task_state: str) -> bool:
        """Take the instance into a task, as the other operations do, if it is in none."""
        with self.world.ledger.write() as tx:
            (row,) = instances.select_live(tx, uuids=[self.uuid], lock=True)
            if row.task_state is not None:
                return False
            instances.write(tx, [self.uuid], task_state=task_state, run_id="run-" + work.run)
        work.host = str(row.host)
        return True

    @rule(what=st.sampled_from(["define", "move", "live"]))
    def begin_another(self, what: str) -> None:
        work = Work(what, self.new_run())
        if self.owed and what != "define":  # it never goes to a host that is still to be cleaned of it
            return
        if self._take(
            work, {"define": states.REBOOTING_HARD, "move": states.RESIZE_MIGRATING, "live": states.MIGRATING}[what]
        ):
            work.loaded = frozenset(self.its_ports())
            self.works.append(work)

    @rule(which=st.integers(0, 9), works=st.booleans())
    def end_another(self, which: int, works: bool) -> None:
        mine = [w for w in self.works if w.what not in ("attach", "detach")]
        if not mine:
            return
        work = mine[which % len(mine)]
        self.works.remove(work)
        host = work.host
        if works and work.what == "define":
            self.guests[host] = Guest(set(work.loaded or ()))
        elif works:
            guest = self.guests.pop(host)
            (host,) = set(HOSTS) - {host}
            # A guest that moves while it runs takes what it has along; any other is defined anew.
            self.guests[host] = Guest(set(guest.ids) if work.what == "live" else set(work.loaded or ()))
        self.owed |= {work.host} - {host}
        with self.world.ledger.write() as tx:
            instances.write(tx, [self.uuid], task_state=None, host=host, node=host)
            ports.bind_each(tx, {self.uuid: host})
            if work.what == "live" and host != work.host:
                ports.follow_leaving(tx, self.uuid, work.host, host)

    @rule()
    def a_former_host_is_cleaned(self) -> None:
        if self.owed:
            host = self.owed.pop()
            with self.world.ledger.write() as tx:
                ports.release_on(tx, {(host, self.uuid)})

    @rule(what=st.sampled_from(["define", "move", "live"]))
    def another_is_quick(self, what: str) -> None:
        """It begins and ends between two steps of what else goes on."""
        before = len(self.works)
        self.begin_another(what)
        if len(self.works) > before:
            self.end_another([w for w in self.works if w.what not in ("attach", "detach")].index(self.works[-1]), True)

    @rule(which=st.integers(0, 9), dies=st.sampled_from([True, False, False]))
    def a_run_dies(self, which: int, dies: bool) -> None:
        mine = [w for w in self.works if w.what in ("attach", "detach")]
        if mine and dies:
            self.works.remove(mine[which % len(mine)])

    # --- the laws -----------------------------------------------------------------------------------------------------

    @invariant()
    def what_guests_have_is_theirs(self) -> None:
        if not hasattr(self, "world"):
            return
        taken = {row.id: row.instance_uuid for row in self.world.rows(tables.ports)}
        for host, guest in self.guests.items():
            assert {taken.get(key) for key in guest.ids} <= {self.uuid}, (host, guest.ids, taken)

    def the_same_again_comes_to_its_end(self) -> None:
        """When nothing else goes on any more, what is leaving leaves."""
        while any(w.what not in ("attach", "detach") for w in self.works):
            self.end_another(0, True)
        with self.world.ledger.read() as tx:
            leaving = [p.id for p, _n in ports.ports_of(tx, [self.uuid], leaving=True)[self.uuid]]
        work = Work("", self.new_run())
        for key in leaving:
            entry = NamedInterface("interfaces[0]", "web", port_id=key)
            begun = self.write(work, interfaces.begin_detach, [entry], self.world.networks, None, HOSTS)
            work.host = str(begun.interfaces[0].row.host)
            self._on_host(work, False, [key], DOES)
            assert self.write(work, interfaces.free_addresses, [key], work.host) == {key}
        (guest,) = self.guests.values()
        assert guest.ids <= set(self.its_ports())
        assert len(self.world.rows(tables.ports)) == len(self.its_ports())


@pytest.mark.hypothesis
@pytest.mark.parametrize(("kind", "count"), [("memory", 60), ("postgresql", 3)])
def test_any_history_of_interfaces(kind: str, count: int, request: pytest.FixtureRequest) -> None:
    class Here(Histories):
        @staticmethod
        def open() -> World:
            return World(request.getfixturevalue("postgres").emptied() if kind == "postgresql" else MEMORY)

    run_histories(Here, count)
