# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a move as a table: its states, and the events that lead from one to the next.

A state has four parts:

- ``status``: the column of migrations, under Nova's names
- ``where``: the host of the move that has the instance. No other host may start its guest.
- ``claims``: the hosts of the move that are claimed for the instance
- ``cleanups``: the hosts of the move that are to be cleaned of the instance. A cleanup that is done ends with the claim of its host, under any
  status; no event is needed for it.

Of a resize on the instance's own host both names mean that host: ``source`` is what the instance was before, ``destination`` what it becomes, and a
cleanup removes that part only.

The death of a run and the loss of a host are not in the table: the next report of a host, or a person, ends the move by the same events.

LAWS are true of every state that the table leads to.
source: Nova's ComputeManager: resize_instance, finish_resize, revert_resize, confirm_resize, live_migration and rebuild_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import MigrationConflict
from . import moves, states
from .moves import EVACUATION, LIVE_MIGRATION, MIGRATION, RESIZE

SOURCE, DESTINATION = "source", "destination"
HOSTS = frozenset((SOURCE, DESTINATION))
OTHER = {SOURCE: DESTINATION, DESTINATION: SOURCE}

COLD = (RESIZE, MIGRATION)
LIVE = (LIVE_MIGRATION,)
EVACUATE = (EVACUATION,)

#: What becomes of the host where the instance is not: it is claimed, too; it owes a cleanup, and stays claimed until that is done; it has nothing of
#: the instance, and its claim ends.
CLAIMED, OWES, CLEAN = "claimed", "owes a cleanup", "clean"

#: What becomes of the instance's volumes.
TAKEN = "taken by the run"
DOUBLED = "taken by the run, exported to the destination, too"
CUT_OFF = "taken by the run, exported to the source no longer"
CUT_OFF_WHERE_LOST = "exported no longer to a destination that owes a cleanup because it is lost"
TAKEN_OVER = "the destination's attachments are the guest's, the source's end"
GIVEN_UP = "the destination's attachments end; released by the run"
RELEASED = "released by the run"
KEPT = "as they are"
ENDED = "end with the instance, unless it is soft-deleted"


class State(t.NamedTuple):
    """The state of a move. See the module."""

    status: str
    where: str
    claims: frozenset[str]
    cleanups: frozenset[str] = frozenset()

    @property
    def is_decided(self) -> bool:
        """Whether the guest is where it stays, so that the other host is of no use for it."""
        return self.status in moves.ENDED or (self.status == moves.REVERTING and self.where == SOURCE)


#: Before an instance moves it is on its host, which is claimed.
AT_HOME = State("", SOURCE, frozenset((SOURCE,)))


@dataclass(frozen=True)
class Rule:
    """The states in which an event may happen to moves of these types, and what follows."""

    types: tuple[str, ...]
    statuses: tuple[str, ...]
    status: str  # the next one
    at: str = ""  # the host that has the instance; "": either
    to: str = ""  # the host that has it then; "": the same
    other: tuple[str, ...] = ()  # what may become of the other host; (): nothing
    only_made: bool = False  # a cleanup removes only what that host made for the move
    volumes: str = KEPT

    def admits(self, state: State, migration_type: str) -> bool:
        return migration_type in self.types and state.status in self.statuses and self.at in ("", state.where)


@dataclass(frozen=True)
class Event:
    """An event of a move: the first of ``rules`` that admits the state gives the next one."""

    name: str
    meaning: str
    rules: tuple[Rule, ...]

    def statuses(self, migration_type: str) -> dict[str, str]:
        """The statuses in which the event may happen to moves of this type -> the next status."""
        rules = [rule for rule in self.rules if migration_type in rule.types]
        return {status: rule.status for rule in reversed(rules) for status in rule.statuses}

    def rule_for(self, state: State, migration_type: str) -> Rule | None:
        """The rule that decides; None: the event cannot happen."""
        return next((rule for rule in self.rules if rule.admits(state, migration_type)), None)

    def after(self, state: State, migration_type: str, clean: bool = False) -> State:
        """The next state. :arg clean: the other host is known to have nothing of the instance

        :raises MigrationConflict: the event cannot happen in this state.
        """
        rule = self.rule_for(state, migration_type)
        if rule is None:
            raise self.conflict(state.status)
        where = rule.to or state.where
        claims, cleanups = state.claims | {where}, state.cleanups - {where}
        if clean and CLEAN in rule.other:
            claims -= {OTHER[where]}
        elif OWES in rule.other:
            cleanups |= {OTHER[where]}
        elif CLAIMED in rule.other:
            claims |= {OTHER[where]}
        return State(rule.status, where, claims, cleanups)

    def conflict(self, status: str, move_id: int = 0, instance_uuid: str = "") -> MigrationConflict:
        """The error of an event that the status does not admit."""
        return MigrationConflict(
            migration_id=move_id, instance_uuid=instance_uuid, state=status or "none", event=self.name
        )


#: The destination is known to have nothing of the instance, or may have something.
_EITHER = (CLEAN, OWES)
#: Of a live migration that has not switched.
_BEFORE = (moves.PREPARING, moves.RUNNING)

BEGUN = Event(
    "begun",
    "The destination is claimed. An evacuated instance is on it at once: its source host is lost, and owes a cleanup.",
    (
        Rule(COLD, ("",), moves.MIGRATING, at=SOURCE, other=(CLAIMED,), volumes=TAKEN),
        Rule(LIVE, ("",), moves.PREPARING, at=SOURCE, other=(CLAIMED,), volumes=DOUBLED),
        Rule(EVACUATE, ("",), moves.ACCEPTED, at=SOURCE, to=DESTINATION, other=(OWES,), volumes=CUT_OFF),
    ),
)
LEAVING = Event(
    "leaving",
    "The guest begins to move. Where it is then, only libvirt knows.",
    (Rule(LIVE, _BEFORE, moves.RUNNING, at=SOURCE),),
)
SWITCHED = Event(
    "switched",
    "The disks have arrived, or the guest has: the instance is on the destination.",
    (
        Rule(COLD, (moves.MIGRATING,), moves.POST_MIGRATING, at=SOURCE, to=DESTINATION),
        Rule(LIVE, _BEFORE, moves.POST_MIGRATING, at=SOURCE, to=DESTINATION, other=(OWES,), volumes=TAKEN_OVER),
    ),
)
ARRIVED = Event(
    "arrived",
    "The move is over, and the instance on the destination. A resize or cold migration waits to be confirmed or reverted, also where the host has not"
    " said whether the guest runs.",
    (
        Rule(COLD, (moves.POST_MIGRATING,), moves.FINISHED, at=DESTINATION, volumes=RELEASED),
        Rule(LIVE, (moves.POST_MIGRATING,), moves.COMPLETED, at=DESTINATION, volumes=RELEASED),
        Rule(EVACUATE, (moves.ACCEPTED,), moves.DONE, at=DESTINATION, volumes=RELEASED),
    ),
)
FAILED = Event(
    "failed",
    "The move is over, and the instance on the source: it never left, or was brought back. An evacuated instance is in error on the destination, as its"
    " guest may run there, or as the source is being cleaned.",
    (
        Rule(COLD, (moves.MIGRATING,), moves.ERROR, at=SOURCE, other=_EITHER, only_made=True, volumes=RELEASED),
        Rule(COLD, (moves.REVERTING,), moves.ERROR, at=SOURCE, volumes=RELEASED),
        Rule(LIVE, _BEFORE, moves.ERROR, at=SOURCE, other=_EITHER, only_made=True, volumes=GIVEN_UP),
        Rule(EVACUATE, (moves.ACCEPTED,), moves.FAILED, at=DESTINATION, volumes=RELEASED),
    ),
)
ABORTED = Event(
    "aborted",
    "A person or a time limit ended the migration, and the guest stays.",
    (Rule(LIVE, _BEFORE, moves.CANCELLED, at=SOURCE, other=_EITHER, only_made=True, volumes=GIVEN_UP),),
)
BROUGHT_BACK = Event(
    "brought_back",
    "The instance is on the source again: the destination has nothing of it, or is lost and is cleaned when it answers.",
    (
        Rule(
            COLD,
            (moves.POST_MIGRATING, moves.REVERTING),
            moves.REVERTING,
            at=DESTINATION,
            to=SOURCE,
            other=_EITHER,
            volumes=CUT_OFF_WHERE_LOST,
        ),
        Rule(
            EVACUATE,
            (moves.ACCEPTED,),
            moves.FAILED,
            at=DESTINATION,
            to=SOURCE,
            other=_EITHER,
            only_made=True,
            volumes=RELEASED,
        ),
    ),
)
REVERT_BEGUN = Event(
    "revert_begun",
    "A person wants the instance back on the source. The revert of a dead run continues, too.",
    (Rule(COLD, (moves.FINISHED, moves.REVERTING), moves.REVERTING, volumes=TAKEN),),
)
REVERT_FAILED = Event(
    "revert_failed",
    "The instance stays on the destination, and waits again.",
    (Rule(COLD, (moves.REVERTING,), moves.FINISHED, at=DESTINATION, volumes=RELEASED),),
)
REVERTED = Event(
    "reverted",
    "The revert is over, and the instance on the source.",
    (Rule(COLD, (moves.REVERTING,), moves.REVERTED, at=SOURCE, volumes=RELEASED),),
)
CONFIRMED = Event(
    "confirmed",
    "A person, or a time limit, confirms that the instance stays on the destination.",
    (Rule(COLD, (moves.FINISHED,), moves.CONFIRMED, at=DESTINATION, other=(OWES,)),),
)
DELETED = Event(
    "deleted",
    "The instance is deleted, or soft-deleted, before the move is decided.",
    (
        Rule(COLD, (moves.FINISHED,), moves.CONFIRMED, at=DESTINATION, other=(OWES,), volumes=ENDED),
        Rule(COLD, (moves.MIGRATING, moves.POST_MIGRATING, moves.REVERTING), moves.ERROR, other=(OWES,), volumes=ENDED),
        Rule(LIVE, (*_BEFORE, moves.POST_MIGRATING), moves.ERROR, other=(OWES,), volumes=ENDED),
        Rule(EVACUATE, (moves.ACCEPTED,), moves.ERROR, at=DESTINATION, other=(OWES,), volumes=ENDED),
    ),
)

EVENTS = (
    BEGUN, LEAVING, SWITCHED, ARRIVED, FAILED, ABORTED, BROUGHT_BACK, REVERT_BEGUN, REVERT_FAILED, REVERTED, CONFIRMED, DELETED,
)  # fmt: skip

#: Statuses that tell which host has the instance.
ON_SOURCE = (moves.MIGRATING, moves.PREPARING, moves.RUNNING, moves.REVERTED, moves.CANCELLED)
ON_DESTINATION = (moves.ACCEPTED, moves.POST_MIGRATING, moves.FINISHED, moves.CONFIRMED, moves.COMPLETED, moves.DONE)

#: (type, task_state, host that has the instance) -> the statuses of a move on which a run works. The ledger writes status, task_state and host in one
#: transaction, so only a change by hand makes them contradict each other. No event settles such a move.
AT_WORK: dict[tuple[str, str, str], tuple[str, ...]] = {
    **{(kind, states.RESIZE_MIGRATING, SOURCE): (moves.MIGRATING,) for kind in COLD},
    **{(kind, states.RESIZE_FINISH, DESTINATION): (moves.POST_MIGRATING,) for kind in COLD},
    **{(kind, states.RESIZE_REVERTING, host): (moves.REVERTING,) for kind in COLD for host in (SOURCE, DESTINATION)},
    (LIVE_MIGRATION, states.MIGRATING, SOURCE): _BEFORE,
    (LIVE_MIGRATION, states.MIGRATING, DESTINATION): (moves.POST_MIGRATING,),
    (EVACUATION, str(states.ACTIONS["evacuate"].at_work), DESTINATION): (moves.ACCEPTED,),
}


def open_statuses(migration_type: str, vm_state: str, task_state: str | None, where: str) -> tuple[str, ...]:
    """Return the statuses that an open move of an instance in this state may have; (): the move should have ended.

    :arg where: SOURCE or DESTINATION, the host of the move that has the instance
    """
    if (migration_type, task_state, where) in AT_WORK:
        return AT_WORK[migration_type, str(task_state), where]
    is_waiting = vm_state == states.RESIZED and task_state not in states.RESIZING
    return (moves.FINISHED,) if migration_type in COLD and is_waiting and where == DESTINATION else ()


def _may_start(state: State) -> list[str]:
    """The hosts that may start the guest."""
    return sorted({state.where} & state.claims - state.cleanups)


#: Sentence -> whether it is true of a state. The tests check every state that the table leads to.
LAWS: dict[str, t.Callable[[State], bool]] = {
    "Exactly one host may start the guest: the one that has the instance, is claimed for it, and is not to be cleaned of it.": lambda s: (
        len(_may_start(s)) == 1
    ),
    "A claim exists wherever something of the guest may be: on both hosts, until the move has ended or the instance is back.": lambda s: (
        s.is_decided or s.claims == HOSTS
    ),
    "An ended move owes nothing but cleanups: where the instance is not, nothing is claimed but what is to be cleaned.": lambda s: (
        not s.is_decided or s.claims - {s.where} <= s.cleanups
    ),
    "Until the move switches the instance is on the source, from then on it is on the destination, until it is brought back.": lambda s: (
        s.where
        not in [w for w, statuses in ((SOURCE, ON_DESTINATION), (DESTINATION, ON_SOURCE)) if s.status in statuses]
    ),
}
