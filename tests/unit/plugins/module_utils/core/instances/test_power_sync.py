# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of power sync, row by row against one that was written from Nova's code (nova/compute/manager.py)."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import POWER_STATES
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_sync import (
    EVENTS,
    Decision,
    Known,
    decide,
    decide_event,
)

# NOSTATE, RUNNING, PAUSED, SHUTDOWN, CRASHED, SUSPENDED in Nova's numbers.
NUMBERS = (0, 1, 3, 4, 6, 7)
# vm_state: what is done in each of them. "." nothing; "!" Nova only warns; "s" compute_api.stop; "f" compute_api.force_stop;
# "d" stop, or compute_api.delete with shutdown_terminate.
NOVA = """
active             !  .  !  d  d  s
building           .  .  .  .  .  .
paused             .  .  .  f  f  .
suspended          .  .  .  .  .  .
stopped            .  f  f  .  .  f
rescued            .  .  .  .  .  .
resized            .  .  .  .  .  .
soft-delete        .  !  !  .  !  !
deleted            .  !  !  .  !  !
error              .  .  .  .  .  .
shelved            .  .  .  .  .  .
shelved_offloaded  .  .  .  .  .  .
"""
ROWS = {line.split()[0]: line.split()[1:] for line in NOVA.strip().splitlines()}
CASES = [(vm, number, does) for vm, row in ROWS.items() for number, does in zip(NUMBERS, row)]
DOES = {".": (None, None), "!": (None, None), "s": ("stop", "stop"), "f": ("force_stop",) * 2, "d": ("stop", "delete")}

WORDS = {
    ("active", 0): "Instance is unexpectedly not found. Ignore.",
    ("active", 3): "Instance is paused unexpectedly. Ignore.",
    ("active", 4): "Instance shutdown by itself. Calling the stop API.",
    ("active", 6): "Instance shutdown by itself. Calling the stop API.",
    ("active", 7): "Instance is suspended unexpectedly. Calling the stop API.",
    ("stopped", 1): "Instance is not stopped. Calling the stop API.",
    ("stopped", 3): "Instance is not stopped. Calling the stop API.",
    ("stopped", 7): "Instance is not stopped. Calling the stop API.",
    ("paused", 4): "Paused instance shutdown by itself. Calling the stop API.",
    ("paused", 6): "Paused instance shutdown by itself. Calling the stop API.",
    **{(vm, n): "Instance is not (soft-)deleted." for vm in ("soft-delete", "deleted") for n in (1, 3, 6, 7)},
}


@pytest.mark.parametrize("power_state", [2, 99, -1, None, "4"])
def test_what_is_no_power_state_is_refused(power_state: t.Any) -> None:
    """It would be written."""
    with pytest.raises(InvalidInput, match="unknown power_state") as refused:
        decide(Known("h1", states.ACTIVE, None, 1), "h1", power_state)
    assert "4 (SHUTDOWN)" in refused.value.remedy
    assert decide_event(Known("h1", states.ACTIVE, None, 1), "h1", "Stopped", power_state) == Decision()


def test_the_table_has_every_state() -> None:
    assert set(ROWS) == set(states.VM_STATES) and set(NUMBERS) == set(POWER_STATES)
    assert all(len(row) == len(NUMBERS) for row in ROWS.values())
    assert {(vm, n) for vm, n, does in CASES if does != "."} == set(WORDS)


@pytest.mark.parametrize("vm_state, reported, does", CASES)
@pytest.mark.parametrize("before", NUMBERS)
def test_what_follows(vm_state: str, reported: int, does: str, before: int) -> None:
    written = None if before == reported else reported
    for terminate in (False, True):
        known = Known("h1", vm_state, None, before, terminate)
        words = WORDS.get((vm_state, reported), "")
        assert decide(known, "h1", reported) == Decision(written, DOES[does][terminate], words, False)


@pytest.mark.parametrize("vm_state, reported, _does", CASES)
def test_what_moved_or_is_worked_on_is_left_alone(vm_state: str, reported: int, _does: str) -> None:
    for host in ("h2", None):
        moved = decide(Known(host, vm_state, "powering-off", 1), "h1", reported)
        assert moved.reason.endswith("has moved from host h1 to host %s" % host), "asked before the task"
        assert (moved.power_state, moved.action, moved.skipped) == (None, None, True)
    for task_state in states.TASK_STATES:
        busy = decide(Known("h1", vm_state, task_state, 1), "h1", reported)
        assert busy.reason == "During sync_power_state the instance has a pending task (%s). Skip." % task_state
        assert (busy.power_state, busy.action, busy.skipped) == (None, None, True)


# From Nova's handle_lifecycle_event; the crash is ours.
TOLD = {
    "Crashed": 6,
    "Started": 1, "Stopped": 4, "Paused": 3, "Resumed": 1, "Suspended": 7, "Postcopy started": 3, "Migration completed": 3,
}  # fmt: skip


@pytest.mark.parametrize("event", sorted(TOLD))
@pytest.mark.parametrize("vm_state", states.VM_STATES)
def test_an_event_is_what_the_guest_still_is_or_nothing(event: str, vm_state: str) -> None:
    assert EVENTS == TOLD
    known = Known("h1", vm_state, None, 0)
    for now in NUMBERS:
        on_time = TOLD[event] == now
        assert decide_event(known, "h1", event, now) == (decide(known, "h1", now) if on_time else Decision())


def test_an_unknown_event_is_ignored() -> None:
    assert decide_event(Known("h1", "active", None, 1), "h1", "Defined", 6) == Decision()
