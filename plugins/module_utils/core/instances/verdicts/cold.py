# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fate of an instance in a resize, a cold migration, or the revert of one.

The stages in which hosts answer: ``depart`` (source), ``arrive`` and ``settle`` (destination), ``return`` (source). A revert has the last two only.
Until the disks have arrived the instance is on its source. A failure before that leaves it there; a failure afterwards brings it back, if the
destination has nothing of it. A destination that may run the guest keeps the instance: no other host may start it.
source: Nova's ComputeManager.resize_instance, finish_resize, revert_resize and finish_revert_resize
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ... import errors
from .. import states
from .answer import Answer, error_of, guest_of, is_silence
from .ending import Ending

IF_LOST = "If %s is lost, make sure that it is off and force it down: the same command then brings the instance back without that host."


@dataclass(frozen=True)
class Move:
    """The answer of ``begin`` for an instance."""

    source: str
    destination: str
    runs: bool  # its guest runs when all is done
    reverts: bool = False
    forced_down: bool = False  # its destination is

    @property
    def on_one_host(self) -> bool:
        """Whether the instance is resized on its own host."""
        return self.source == self.destination


class Arrival(t.NamedTuple):
    """Knowledge of an instance before it goes to its destination."""

    reached: bool  # the destination may have something of it
    error: t.Mapping[str, t.Any] | None  # why it does not go there


def arrival(departed: Answer, arrived: Answer) -> Arrival:
    """Return whether the disks have arrived."""
    if departed.get("error"):
        return Arrival(False, departed["error"])
    return Arrival(True, arrived.get("error") or None)


@dataclass(frozen=True)
class Verdict:
    """The host where an instance stays, when its destination has answered."""

    error: t.Mapping[str, t.Any] | None = None  # why the move, or its revert, failed
    cleaned: bool = True  # the destination has nothing of it
    over: bool = False  # it is on its destination
    stays: bool = False  # it stays there
    power_state: int = states.NOSTATE
    #: why the destination did not answer, where the instance goes back without it
    ignored_error: t.Mapping[str, t.Any] | None = None

    @property
    def comes_back(self) -> bool:
        return self.over and not self.stays


def settled(move: Move, switched: bool, reached: bool, error: t.Mapping[str, t.Any] | None, answer: Answer) -> Verdict:
    """Return where the instance stays.

    :arg switched: its disks had arrived, and it went to its destination. :arg reached: see Arrival. :arg error: why it did not go there
    :arg answer: of the destination, in the stage ``settle``
    """
    if not reached:
        answer = {"cleaned": True}
    error = error or answer.get("error") or None
    cleaned, over = bool(answer.get("cleaned")), switched or move.reverts
    ignored_error = None
    if move.reverts and error and not cleaned and not move.on_one_host and _is_silent(error):
        if move.forced_down:
            ignored_error, error = error, None
        else:
            problem = errors.from_dict(error)
            problem.remedy = " ".join((problem.remedy, IF_LOST % move.destination))
            error = problem.as_dict()
    fails = move.reverts or bool(error)
    stays = over and ignored_error is None and not (fails and cleaned)
    return Verdict(error, cleaned, over, stays, int(answer.get("power_state") or states.NOSTATE), ignored_error)


def _is_silent(error: t.Mapping[str, t.Any]) -> bool:
    """Whether the host did not answer. A host that answers that it failed may run the guest, and so may one that answers nonsense."""
    problem = errors.from_dict(error)
    return isinstance(problem, errors.HostUnreachable) and not isinstance(problem, errors.InvalidAnswer)


def starts_at_source(move: Move, came_back: bool, was_off: bool, taken_over: bool) -> bool:
    """Whether the source starts the guest of an instance that is there.

    :arg came_back: it was on its destination. :arg taken_over: another run has it
    :arg was_off: this run did not shut its guest down, which may run on a destination that refused it
    """
    return move.runs and not taken_over and (came_back or not was_off)


def ending(verdict: Verdict, returned: Answer, starts: bool, restores: bool) -> Ending:
    """Return what came of an instance.

    :arg returned: the answer of the source in the stage ``return``. :arg starts: it was to start the guest
    :arg restores: it was to give the instance back the disks from before a resize on this host
    """
    error = errors.from_dict(verdict.error) if verdict.error else None
    if verdict.stays:
        return Ending(verdict.power_state, error, verdict.cleaned)
    cleaned, problem = verdict.cleaned, error_of(returned)
    answer, why = returned, problem
    if not starts:  # its guest is off, whether the source says so or not
        answer = {"power_state": states.SHUTDOWN, **({} if is_silence(returned) else returned)}
        why = error_of(answer)
    power_state, domain_missing = guest_of(answer, why)
    error = error or why
    if restores:
        cleaned, error = problem is None, error or problem
    return Ending(power_state, error, cleaned, domain_missing)


def vm_state(before: str, on_destination: bool, end: Ending) -> str:
    """Return the vm_state in which the instance is left. :arg before: the one with which it set out"""
    return states.RESIZED if on_destination else vm_state_at_source(before, end.power_state, end.domain_missing)


def vm_state_at_source(before: str, power_state: int, domain_missing: bool) -> str:
    """Return the vm_state of an instance that did not move, or came back. :arg domain_missing: its host has no domain of it"""
    if domain_missing:
        return states.ERROR
    known = power_state != states.NOSTATE  # else the next report tells
    return states.STOPPED if known and power_state != states.RUNNING else before
