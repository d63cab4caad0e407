# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Consequences of a guest's power state: changes of the ledger, and operations on the guest.

source: Nova's ComputeManager._query_driver_power_state_and_sync, _sync_instance_power_state and handle_lifecycle_event
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import InvalidInput
from . import states
from .power_states import CRASHED, NOSTATE, POWER_PAUSED, POWER_STATES, POWER_SUSPENDED, RUNNING, SHUTDOWN

STOP = "stop"  # the operation, with its own rules
FORCE_STOP = "force_stop"  # the same, with any vm_state
DELETE = "delete"
RESUME = "resume_state_on_host_boot"  # its guest is started again


@dataclass(frozen=True)
class Known:
    """The ledger's record of an instance."""

    host: str | None
    vm_state: str
    task_state: str | None
    power_state: int
    shutdown_terminate: bool = False  # it is deleted when it shuts down; no request sets it, and none of Nova's does


@dataclass(frozen=True)
class Decision:
    """Consequences of a power state. Without fields: nothing."""

    power_state: int | None = None  # to be written; None: the ledger has it
    action: str | None = None  # STOP, FORCE_STOP or DELETE
    reason: str = ""  # in Nova's words; empty: there is nothing to tell
    skipped: bool = False  # the instance is left alone, with any state of its guest


_SHUT_DOWN = "Instance shutdown by itself. Calling the stop API."
_SUSPENDED = "Instance is suspended unexpectedly. Calling the stop API."
_PAUSED = "Instance is paused unexpectedly. Ignore."
_NOT_FOUND = "Instance is unexpectedly not found. Ignore."
_NOT_STOPPED = "Instance is not stopped. Calling the stop API."
_PAUSED_SHUT_DOWN = "Paused instance shutdown by itself. Calling the stop API."
_NOT_DELETED = "Instance is not (soft-)deleted."
_RESTARTED = "The host restarted. Starting the guest again."  # ours
_HELD_BACK = "The host restarted, but is forced down. Set the host up, and the next sync starts the guest; or evacuate the instance."
_RUNS_ELSEWHERE = (
    "Host %s restarted, and the guest is off there; but %s reports that the guest runs on it, so the guest is not started a second time."
    " Find out which report is right: bootflow.compute.audit names both. If the report of %s is wrong, force that host down, and sync again."
)

#: What a host reports of a guest without power; NOSTATE where it has none.
OFF = (NOSTATE, SHUTDOWN, CRASHED)

Row = t.Dict[int, t.Tuple[t.Optional[str], str]]


def _in_others(expected: t.Collection[int], action: str | None, reason: str) -> Row:
    return {p: (action, reason) for p in POWER_STATES if p not in expected}


_DELETED = _in_others((NOSTATE, SHUTDOWN), None, _NOT_DELETED)

#: vm_state -> {power_state: (action, reason)}. Nothing is done in what is not listed.
TABLE: dict[str, Row] = {
    states.ACTIVE: {
        SHUTDOWN: (STOP, _SHUT_DOWN),
        CRASHED: (STOP, _SHUT_DOWN),
        POWER_SUSPENDED: (STOP, _SUSPENDED),
        POWER_PAUSED: (None, _PAUSED),  # something else may have paused it for a while: Nova's bug 1097806
        NOSTATE: (None, _NOT_FOUND),  # the hypervisor may just be starting
    },
    states.STOPPED: _in_others(OFF, FORCE_STOP, _NOT_STOPPED),
    states.PAUSED: {
        SHUTDOWN: (FORCE_STOP, _PAUSED_SHUT_DOWN),
        CRASHED: (FORCE_STOP, _PAUSED_SHUT_DOWN),
    },
    states.SOFT_DELETED: _DELETED,
    states.DELETED: _DELETED,
}


def decide(
    known: Known,
    host: str,
    power_state: int,
    restarted: bool = False,
    forced_down: bool = False,
    runs_on: str | None = None,
) -> Decision:
    """Decide what follows from ``power_state``, which ``host`` reports of the guest; NOSTATE where it has none.

    :arg restarted: the host has restarted, and its guests are to run again as they did: an active instance whose guest is off did not shut
        itself down. source: Nova's ComputeManager._resume_guests_state
    :arg forced_down: the host is. Its instances may be evacuated at any time, and none is to run there then.
    :arg runs_on: another host, where the guest has power: the ledger may be a restored one, from before the instance moved.
    :raises InvalidInput: there is no such power state.
    """
    if power_state not in POWER_STATES:
        known_ones = ", ".join("%d (%s)" % state_and_name for state_and_name in POWER_STATES.items())
        raise InvalidInput(reason="unknown power_state %r" % (power_state,), remedy="Known are: %s." % known_ones)
    if known.host != host:
        reason = "During the sync_power process the instance has moved from host %s to host %s" % (host, known.host)
        return Decision(reason=reason, skipped=True)
    if known.task_state is not None:
        reason = "During sync_power_state the instance has a pending task (%s). Skip." % known.task_state
        return Decision(reason=reason, skipped=True)
    action, reason = TABLE.get(known.vm_state, {}).get(power_state, (None, ""))
    if restarted and known.vm_state == states.ACTIVE and power_state in OFF:
        action, reason = (None, _HELD_BACK) if forced_down else (RESUME, _RESTARTED)
        if runs_on is not None:
            action, reason = None, _RUNS_ELSEWHERE % (host, runs_on, runs_on)
    if action == STOP and known.shutdown_terminate and power_state in (SHUTDOWN, CRASHED):
        action = DELETE
    return Decision(None if power_state == known.power_state else power_state, action, reason)


#: Lifecycle event of the hypervisor, by Nova's name -> the power_state that it tells of.
EVENTS: dict[str, int] = {
    "Started": RUNNING,
    "Stopped": SHUTDOWN,
    "Paused": POWER_PAUSED,
    "Resumed": RUNNING,
    "Suspended": POWER_SUSPENDED,
    "Crashed": CRASHED,  # ours: Nova has no such event
    "Postcopy started": POWER_PAUSED,
    "Migration completed": POWER_PAUSED,
}


def decide_event(known: Known, host: str, event: str, power_state: int) -> Decision:
    """The same for an event on ``host``. Nothing follows from an event that comes late.

    :arg power_state: of the guest now, asked after the event: when it is another than the event's, the event was late.
    """
    return decide(known, host, power_state) if EVENTS.get(event) == power_state else Decision()
