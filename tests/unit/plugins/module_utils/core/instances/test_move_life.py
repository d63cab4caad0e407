# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a move's life: its laws, its ends, and what it refuses."""

from __future__ import annotations

import itertools
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import MigrationConflict, from_dict
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import move_life, moves
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.move_life import (
    AT_HOME,
    CLEAN,
    EVENTS,
    HOSTS,
    LAWS,
    OWES,
    Event,
    Rule,
    State,
)

SUBSETS = [frozenset(s) for n in range(3) for s in itertools.combinations(sorted(HOSTS), n)]
ALL_STATES = [State(*parts) for parts in itertools.product(moves.STATUSES, sorted(HOSTS), SUBSETS, SUBSETS)]
PLACES = [State(status, where, HOSTS) for status in ("", *moves.STATUSES) for where in sorted(HOSTS)]


class Step(t.NamedTuple):
    """An event of a move of this type, and the states before and after."""

    migration_type: str
    before: State
    event: Event
    clean: bool
    after: State


def steps_of(migration_type: str) -> list[Step]:
    """All steps that the table leads to, the nearest first."""
    known, todo, found = {AT_HOME}, [AT_HOME], []
    while todo:
        state = todo.pop(0)
        for event, clean in itertools.product(EVENTS, (True, False)):
            rule = event.rule_for(state, migration_type)
            if rule is None or (clean and CLEAN not in rule.other):
                continue
            after = event.after(state, migration_type, clean)
            found.append(Step(migration_type, state, event, clean, after))
            if after not in known:
                known.add(after)
                todo.append(after)
    return found


STEPS = {migration_type: steps_of(migration_type) for migration_type in moves.TYPES}
ALL_STEPS = [step for steps in STEPS.values() for step in steps]
REACHABLE = {kind: {step.after for step in steps} for kind, steps in STEPS.items()}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("migration_type", moves.TYPES)
def test_every_state_that_can_be_reached_keeps_the_law(migration_type: str, law: str) -> None:
    assert [state for state in REACHABLE[migration_type] if not LAWS[law](state)] == []


@pytest.mark.parametrize("law", LAWS)
def test_each_law_forbids_what_no_other_does(law: str) -> None:
    others = [other for name, other in LAWS.items() if name != law]
    assert [s for s in ALL_STATES if not LAWS[law](s) and all(other(s) for other in others)]


def test_a_claim_ends_only_where_a_host_is_known_to_be_clean() -> None:
    for step in ALL_STEPS:
        ended = step.before.claims - step.after.claims
        assert not ended or (step.clean and ended == HOSTS - {step.after.where}), step
        assert step.clean or step.before.cleanups - {step.after.where} <= step.after.cleanups, step


def test_a_host_that_is_to_be_cleaned_gets_the_instance_only_by_coming_back() -> None:
    """The flow asks the cleanup whether it has begun."""
    found = {s.event.name for s in ALL_STEPS if s.before.cleanups - s.after.cleanups}
    assert found == {"brought_back"}


def test_every_status_can_be_reached_but_one_of_nova() -> None:
    """Nova has it between the end of the scheduling and the claim, which are one transaction here."""
    found = {state.status for states in REACHABLE.values() for state in states}
    assert set(moves.STATUSES) - found == {moves.PRE_MIGRATING}


def test_an_ended_move_admits_nothing_and_any_other_can_end_at_once() -> None:
    for kind, states in REACHABLE.items():
        for state in states:
            admitted = {event.name for event in EVENTS if event.rule_for(state, kind) is not None}
            assert admitted == set() if state.status in moves.ENDED else "deleted" in admitted, (kind, state)


def test_a_move_begins_in_one_way() -> None:
    for kind in moves.TYPES:
        assert [e.name for e in EVENTS if e.rule_for(AT_HOME, kind) is not None] == ["begun"]
    assert len({e.name for e in EVENTS}) == len(EVENTS)


def test_the_status_alone_tells_the_next_one() -> None:
    """The row of a move does not say where its instance is, and its status is written by one statement."""
    for kind, event, state in itertools.product(moves.TYPES, EVENTS, PLACES):
        rule = event.rule_for(state, kind)
        assert rule is None or event.statuses(kind)[state.status] == rule.status, (kind, event.name, state)
        if rule is None and state in REACHABLE[kind]:
            other = state._replace(where=move_life.OTHER[state.where])
            assert state.status not in event.statuses(kind) or event.rule_for(other, kind) is not None


#: type -> event -> the statuses that admit it, and the one that follows.
COLD: dict[str, str] = {
    "begun": "- migrating",
    "switched": "migrating post-migrating",
    "arrived": "post-migrating finished",
    "failed": "migrating,reverting error",
    "brought_back": "post-migrating,reverting reverting",
    "revert_begun": "finished,reverting reverting",
    "revert_failed": "reverting finished",
    "reverted": "reverting reverted",
    "confirmed": "finished confirmed",
    "deleted": "finished confirmed; migrating,post-migrating,reverting error",
}
ADMITTED: dict[str, dict[str, str]] = {
    "resize": COLD,
    "migration": COLD,
    "evacuation": {
        "begun": "- accepted",
        "arrived": "accepted done",
        "failed": "accepted failed",
        "brought_back": "accepted failed",
        "deleted": "accepted error",
    },
    "live-migration": {
        "begun": "- preparing",
        "leaving": "preparing,running running",
        "switched": "preparing,running post-migrating",
        "arrived": "post-migrating completed",
        "failed": "preparing,running error",
        "aborted": "preparing,running cancelled",
        "deleted": "preparing,running,post-migrating error",
    },
}


def pairs(text: str) -> dict[str, str]:
    """status -> the next one"""
    found = {}
    for part in filter(None, text.split("; ")):
        before, after = part.split()
        found.update(dict.fromkeys(before.replace("-", "", before == "-").split(","), after))
    return found


@pytest.mark.parametrize("migration_type", moves.TYPES)
@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.name)
def test_what_is_admitted_and_what_is_refused(event: Event, migration_type: str) -> None:
    admitted = pairs(ADMITTED[migration_type].get(event.name, ""))
    assert event.statuses(migration_type) == admitted
    for state in PLACES:
        rule = event.rule_for(state, migration_type)
        if rule is not None:
            assert event.after(state, migration_type).status == admitted[state.status]
            continue
        with pytest.raises(MigrationConflict):
            event.after(state, migration_type)


def test_every_rule_is_needed() -> None:
    """No rule is dead: for each type there is a state that can be reached and in which the rule decides."""
    used = {(step.migration_type, step.event.rule_for(step.before, step.migration_type)) for step in ALL_STEPS}
    assert [
        (event.name, kind, rule)
        for event in EVENTS
        for rule in event.rules
        for kind in rule.types
        if (kind, rule) not in used
    ] == []


def test_every_outcome_for_the_other_host_is_reached() -> None:
    for event in EVENTS:
        for rule in event.rules:
            found = {
                s.clean for s in ALL_STEPS if s.event is event and s.event.rule_for(s.before, s.migration_type) is rule
            }
            assert found == ({True, False} if {CLEAN, OWES} <= set(rule.other) else {False})


def test_the_conflict_names_migration_status_and_event() -> None:
    error = move_life.CONFIRMED.conflict(moves.REVERTING, 7, "u-1")
    assert str(error.message) == ("Migration 7 of instance u-1 is reverting, which does not admit the event confirmed.")
    assert error.status == 409 and from_dict(error.as_dict()).code == "MigrationConflict"


# --- the documentation ----------------------------------------------------------------------------------------------------

DOCUMENT = pathlib.Path(__file__).resolve().parents[6] / "docs" / "ledger.md"
TITLES = ("event", "meaning", "type", "status", "instance on", "other host", "volumes")


def line_of(rule: Rule) -> tuple[str, ...]:
    types = "resize, migration" if rule.types == move_life.COLD else ", ".join(rule.types)
    status = "to %s" % rule.status if rule.statuses == ("",) else ", ".join(rule.statuses)
    if rule.statuses not in (("",), (rule.status,)):
        status += " to %s" % rule.status
    where = " to ".join(filter(None, (rule.at or "either", rule.to)))
    other = " or ".join(rule.other) or "as it is"
    if rule.only_made:
        other = other.replace(OWES, "%s (of what it made for the move)" % OWES)
    return types, status, where, other, rule.volumes


def test_the_documented_table_is_the_table() -> None:
    rows = [TITLES, ("---",) * len(TITLES)]
    for event in EVENTS:
        for index, rule in enumerate(event.rules):
            rows.append((*(("`%s`" % event.name, event.meaning) if index == 0 else ("", "")), *line_of(rule)))
    table = "".join("| %s |\n" % " | ".join(row) for row in rows)
    text = DOCUMENT.read_text()
    assert table in text, table
    for law in LAWS:
        assert "- %s\n" % law in text


def test_every_open_status_is_that_of_a_run_at_work_or_of_a_move_that_waits() -> None:
    """Only Nova's pre-migrating is the status of no move here. A move that has ended fits no state of a run at work."""
    at_work = {status for statuses in move_life.AT_WORK.values() for status in statuses}
    assert at_work | {moves.FINISHED} == set(moves.OPEN) - {moves.PRE_MIGRATING}


@pytest.mark.parametrize("key", move_life.AT_WORK)
def test_a_run_at_work_leaves_what_the_table_leads_to(key: tuple[str, str, str]) -> None:
    migration_type, _task_state, where = key
    reached = {(state.status, state.where) for state in REACHABLE[migration_type]}
    assert {(status, where) for status in move_life.AT_WORK[key]} <= reached
    assert move_life.open_statuses(migration_type, "active", key[1], where) == move_life.AT_WORK[key]


def test_what_waits_to_be_confirmed_is_on_its_destination() -> None:
    def waits(*where: str) -> tuple[str, ...]:
        return move_life.open_statuses(*where)

    assert waits(moves.RESIZE, "resized", None, move_life.DESTINATION) == (moves.FINISHED,)
    assert waits(moves.RESIZE, "resized", None, move_life.SOURCE) == ()
    assert waits(moves.RESIZE, "active", None, move_life.DESTINATION) == ()
    assert waits(moves.LIVE_MIGRATION, "resized", None, move_life.DESTINATION) == ()
