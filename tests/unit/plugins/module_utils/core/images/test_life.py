# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of an image's life: its laws, its ends, and what it refuses."""

from __future__ import annotations

import itertools
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import ImageStatusConflict
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.life import EVENTS, LAWS, Event, State

Life = t.Optional[State]
ALL_STATES = [State(*parts) for parts in itertools.product(life.STATUSES, life.PROGRESS)]


def reachable() -> set[State]:
    found: set[Life] = {None}
    todo: list[Life] = [None]
    while todo:
        state = todo.pop()
        new: set[Life] = {e.after(state) for e in EVENTS if e.admits(state)} - found
        found |= new
        todo.extend(new)
    return {state for state in found if state is not None}


REACHABLE = reachable()


@pytest.mark.parametrize("law", LAWS)
def test_every_state_that_can_be_reached_keeps_the_law(law: str) -> None:
    assert [state for state in REACHABLE if not LAWS[law](state)] == []


@pytest.mark.parametrize("law", LAWS)
def test_each_law_forbids_what_no_other_does(law: str) -> None:
    others = [other for name, other in LAWS.items() if name != law]
    assert [s for s in ALL_STATES if not LAWS[law](s) and all(other(s) for other in others)]


def test_the_laws_and_the_table_admit_the_same_states() -> None:
    assert {state for state in ALL_STATES if all(law(state) for law in LAWS.values())} == REACHABLE


def test_every_rule_is_needed() -> None:
    for event in EVENTS:
        for index, rule in enumerate(event.rules):
            decides = [s for s in REACHABLE if rule.admits(s) and not any(r.admits(s) for r in event.rules[:index])]
            assert decides, (event.name, rule)


def test_every_image_can_be_deleted_and_leaves_nothing_in_its_store() -> None:
    for start in REACHABLE:
        state = start if start.status == life.DELETED else life.DELETE.after(start)
        if life.PLACE_REMOVED.admits(state):
            state = life.PLACE_REMOVED.after(state)
        assert state == State(life.DELETED), start


def test_a_deleted_image_never_lives_again() -> None:
    for state in (s for s in REACHABLE if s.status == life.DELETED):
        assert {e.name for e in EVENTS if e.admits(state)} <= {life.PLACE_REMOVED.name}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_what_the_table_does_not_admit_is_refused_and_named(event: Event) -> None:
    refused = [s for s in ALL_STATES if not event.admits(s)]
    assert refused
    for state in refused:
        with pytest.raises(ImageStatusConflict) as caught:
            event.after(state, "the-image")
        assert "the-image" in caught.value.message and event.name in caught.value.message
        assert caught.value.status == 409


# --- the documentation ----------------------------------------------------------------------------------------------------

DOCUMENT = pathlib.Path(__file__).resolve().parents[6] / "docs" / "images.md"


def lines_of(event: Event) -> t.Iterator[tuple[str, ...]]:
    if event.first is not None:
        yield ("`%s`" % event.name, event.meaning, *("to %s" % part for part in event.first))
    for index, rule in enumerate(event.rules):
        named = ("`%s`" % event.name, event.meaning) if index == 0 else ("", "")
        yield (*named, *(part_of(getattr(rule, name), rule.to.get(name)) for name in State._fields))


def part_of(admitted: tuple[str, ...], to: str | None) -> str:
    words = ", ".join(admitted)
    return words if to is None or admitted == (to,) else "%s to %s" % (words, to)


def test_the_documented_table_is_the_table() -> None:
    rows = [("event", "meaning", *State._fields), ("---",) * 4]
    rows += [line for event in EVENTS for line in lines_of(event)]
    table = "".join("| %s |\n" % " | ".join(row) for row in rows)
    text = DOCUMENT.read_text()
    assert table in text, table
    for law in LAWS:
        assert "- %s\n" % law in text
