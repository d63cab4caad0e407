# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random operations of two runs, which fail and die anywhere, against a model: an instance without a task is what its guest is."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reset_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.histories import run_histories
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

NAMES = ("a", "b")
RUNNING, PAUSED, OFF = states.RUNNING, states.POWER_PAUSED, states.SHUTDOWN
#: operation -> the vm_states in which it begins, the guest in the middle of it, and at its end
TABLE: dict[str, tuple[str, int | None, int]] = {
    "stop": ("active error", None, OFF),
    "start": ("stopped", None, RUNNING),
    "pause": ("active", None, PAUSED),
    "unpause": ("paused", None, RUNNING),
    "suspend": ("active", PAUSED, OFF),
    "resume": ("suspended", None, RUNNING),
    "soft_reboot": ("active", OFF, RUNNING),
    "hard_reboot": ("active stopped paused suspended error", OFF, RUNNING),
    "rescue": ("active stopped error", None, RUNNING),
    "unrescue": ("rescued", OFF, RUNNING),
    "rebuild": ("active stopped error", OFF, RUNNING),
    "soft_delete": ("active stopped paused suspended error rescued soft-delete", None, OFF),
    "restore": ("soft-delete", None, RUNNING),
    "set_admin_password": ("active", None, RUNNING),
}
REBOOTS = ("soft_reboot", "hard_reboot")
#: What a hard reboot takes the place of.
TAKEN = ("soft_reboot", "pause", "unpause", "suspend", "resume")
#: What begins again where it has the instance already: a reboot, and what has no state of its own.
AGAIN = (*REBOOTS, "rebuild", "set_admin_password")
#: Of the others: active; of a rebuild: what it was, but no error.
RESULT = {
    "stop": "stopped",
    "pause": "paused",
    "suspend": "suspended",
    "rescue": "rescued",
    "soft_delete": "soft-delete",
}
GUEST = {"active": RUNNING, "paused": PAUSED, "stopped": OFF, "suspended": OFF, "rescued": RUNNING, "soft-delete": OFF}


@dataclass
class Instance:
    uuid: str
    vm_state: str = "active"
    power: int = RUNNING  # of the guest
    task: str | None = None
    run: str = ""  # that began the task
    middle: bool = False  # the guest is in the middle of it
    rescued: bool = False  # the domain is that of a rescue

    @property
    def end(self) -> int:
        """The guest when its task is done."""
        stays_off = self.task == "rebuild" and self.vm_state == "stopped"
        return OFF if stays_off else TABLE[str(self.task)][2]

    @property
    def result(self) -> str:
        """The vm_state when its task is done."""
        stays_off = self.task == "rebuild" and self.vm_state == "stopped"
        return "stopped" if stays_off else RESULT.get(str(self.task), "active")

    @property
    def is_done(self) -> bool:
        """Whether the guest is what its task makes of it."""
        other_domain = (self.task, self.rescued) in (("rescue", False), ("unrescue", True))
        return self.power == self.end and not self.middle and not other_domain


class Histories(RuleBasedStateMachine):
    open: t.Callable[[], World]

    @initialize()
    def start(self) -> None:
        self.world = type(self).open()
        self.world.report("h1")
        self.known = {name: Instance(self.world.boot(name)) for name in NAMES}
        self.age = 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.ledger.close()

    def alive(self, run: str) -> bool:
        return run in (self.run(0), self.run(1))

    def run(self, which: int) -> str:
        return "%s%d" % ("xy"[which], self.age)

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES), what=st.sampled_from(sorted(TABLE)))
    def begin(self, which: int, name: str, what: str) -> None:
        one, run = self.known[name], self.run(which)
        # It takes the place of anything, whose guest is left in the middle then: the next sync of power states sees to that.
        if what == "soft_delete" and one.task not in (None, what):
            return
        with self.world.ledger.write() as tx:
            try:
                begun = operation.begin(
                    tx.for_run(self.world.context(run)), OPERATIONS[what], Selection(names=[name]), ["h1"]
                )
                answer = "unchanged" if begun.unchanged else "begun"
            except errors.BootflowError as e:
                answer = e.code
        assert answer == self.expected(one, run, what)
        if answer == "begun":
            if (
                one.middle and one.task != what
            ):  # a save that is taken over comes to its end, or the guest is off anyway
                one.power = OFF
            one.middle = one.middle and one.task == what
            one.task, one.run = what, run

    def expected(self, one: Instance, run: str, what: str) -> str:
        busy = one.task is not None and one.run != run and self.alive(one.run)
        fits = one.vm_state in TABLE[what][0].split()
        if one.task is None:
            if what not in AGAIN and one.vm_state == RESULT.get(what, "active"):
                return "unchanged"
            return "begun" if fits else "InstanceInvalidState"
        if one.task == what:
            return "InstanceBusy" if busy else "begun"
        if what == "hard_reboot" and one.task in TAKEN:
            return "begun"
        return "InstanceBusy" if fits and busy else "InstanceInvalidState"

    @rule(name=st.sampled_from(NAMES), whole=st.booleans())
    def work(self, name: str, whole: bool) -> None:
        """The host does it, or only a part of it."""
        one = self.known[name]
        if one.task is not None:
            middle = TABLE[one.task][1]
            if whole:
                one.power, one.middle = one.end, False
            elif middle is not None:
                one.power, one.middle = middle, True
            if one.task == "rescue":
                one.rescued = one.rescued or whole
            elif one.task == "unrescue":
                one.rescued = False

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES), fails=st.booleans())
    def finish(self, which: int, name: str, fails: bool) -> None:
        one, run = self.known[name], self.run(which)
        if one.task is None:
            return
        what = OPERATIONS[one.task]
        error = errors.LibvirtError(reason="x") if fails or not one.is_done else None
        if one.middle and one.task == "suspend":  # libvirt has answered: its save has ended
            one.power, one.middle, error = OFF, False, None
        elif error is not None and one.task not in (*REBOOTS, "unrescue", "rebuild"):  # what failed did nothing
            one.power, one.rescued = GUEST.get(one.vm_state, one.power), one.rescued and one.task != "rescue"
        vm_state = None  # what the host says of it
        if one.task == "rebuild":
            vm_state = one.result if error is None else "error"
        elif one.task == "unrescue" and one.rescued:
            vm_state = "rescued"
        outcome = Outcome(one.power, error, vm_state)
        with self.world.ledger.write() as tx:
            failed = operation.finish(tx.for_run(self.world.context(run)), what, {one.uuid: outcome})
        if one.run != run:
            assert failed[one.uuid].code == "UnexpectedTaskStateError"
            return
        assert bool(failed) == (error is not None)
        if error is None or vm_state is not None:
            one.vm_state = vm_state or one.result
        elif one.task in (*REBOOTS, "unrescue"):
            one.vm_state = "active" if one.power == RUNNING else "error"
        one.task, one.middle = None, False

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES), choice=st.integers(0, len(TABLE) - 1))
    def all_of_one(self, which: int, name: str, choice: int) -> None:
        """An operation that can begin, from its beginning to its end: it leads to the states in which others can begin."""
        able = [what for what in TABLE if self.expected(self.known[name], self.run(which), what) == "begun"]
        if able:
            self.begin(which, name, able[choice % len(able)])
            self.work(name, True)
            self.finish(which, name, False)

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES))
    def reset_state(self, which: int, name: str) -> None:
        one, run = self.known[name], self.run(which)
        with self.world.ledger.write() as tx:
            try:
                done = reset_state.reset(tx.for_run(self.world.context(run)), Selection(names=[name]), "error")
                answer = "unchanged" if done.unchanged else "reset"
            except errors.BootflowError as e:
                answer = e.code
        if one.task is not None and self.alive(one.run):
            assert answer == "InstanceBusy"
        elif one.task is None and one.vm_state == "error":
            assert answer == "unchanged"
        else:
            assert answer == "reset"
            if one.middle:  # as where another operation takes its place
                one.power, one.middle = OFF, False
            one.vm_state, one.task = "error", None

    @rule()
    def kill(self) -> None:
        """Both runs die, and their leases run out."""
        self.age += 1
        self.world.time += 601

    @rule()
    def report(self) -> None:
        """The host tells what there is, which settles what dead runs left."""
        self.world.time += 1
        powers = {one.uuid: one.power for one in self.known.values()}
        with self.world.ledger.write() as tx:
            rescued = [one.uuid for one in self.known.values() if one.rescued]
            ours = tx.for_run(self.world.context(self.run(0)))
            settled = recovery.settle_operations(ours, "h1", powers, self.world.time, rescued)
        for one in self.known.values():
            if (
                one.task is None and one.rescued and one.vm_state in ("active", "stopped", "error")
            ):  # whose rescue nobody heard of
                assert settled[one.uuid] == "rescued"
                one.vm_state = "rescued"
                continue
            saves = one.task == "suspend" and one.power == PAUSED
            if one.task is None or self.alive(one.run) or saves:
                assert one.uuid not in settled
                continue
            if one.task == "rebuild":  # nobody knows what is on its disks
                one.vm_state = "error"
            elif one.task == "rescue":
                one.vm_state = "rescued" if one.rescued else one.vm_state
            elif one.task == "unrescue":
                left = "active" if one.power == RUNNING else "stopped"
                one.vm_state = "rescued" if one.rescued else left
            elif one.power == GUEST[one.result]:
                one.vm_state = one.result
            elif one.task in REBOOTS and one.power == OFF and one.vm_state in ("active", "paused"):
                one.vm_state = "stopped"
            assert settled[one.uuid] == one.vm_state
            one.task, one.middle = None, False

    @invariant()
    def the_ledger_has_what_the_model_has(self) -> None:
        if not hasattr(self, "known"):
            return
        rows = {r.display_name: r for r in self.world.rows(tables.instances)}
        for name, one in self.known.items():
            row = rows[name]
            during = None if one.task is None else OPERATIONS[one.task].during
            assert (row.vm_state, row.task_state) == (one.vm_state, during)
            # One that is stopped while nobody knows of its rescue stays off when a report tells of that.
            stays_off = one.rescued and one.power == OFF
            if one.task is None and one.vm_state != "error" and not stays_off:
                assert GUEST[one.vm_state] == one.power, "the guest is what the instance is"

    @invariant()
    def the_journal_is_closed_where_nothing_is_at_work(self) -> None:
        if not hasattr(self, "known"):
            return
        idle = {one.uuid for one in self.known.values() if one.task is None}
        for table in (tables.instance_actions, tables.instance_action_events):
            assert not [r for r in self.world.rows(table) if r.instance_uuid in idle and r.finish_time is None]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("kind", "count"), [("memory", 30), ("postgresql", 3)])
def test_any_operation(kind: str, count: int, request: pytest.FixtureRequest) -> None:
    class Here(Histories):
        @staticmethod
        def open() -> World:
            return World(request.getfixturevalue("postgres").emptied() if kind == "postgresql" else MEMORY)

    run_histories(Here, count)
