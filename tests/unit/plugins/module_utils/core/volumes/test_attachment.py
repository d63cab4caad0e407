# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of an attachment's life: its laws, its ends, and what it refuses."""

from __future__ import annotations

import itertools
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import VolumeAttachmentConflict, from_dict
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import attachment, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import (
    EVENTS,
    LAWS,
    PROGRESS,
    Event,
    State,
)

Life = t.Optional[State]
ALL_STATES = [State(*parts) for parts in itertools.product(states.ATTACH_STATES, PROGRESS, PROGRESS)]


def after(event: Event, state: Life) -> Life:
    found = event.after(state)
    return None if event.last else found


def reachable() -> set[State]:
    found: set[Life] = {None}
    todo: list[Life] = [None]
    while todo:
        state = todo.pop()
        new = {after(e, state) for e in EVENTS if e.admits(state)} - found
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


def test_from_every_state_the_attachment_can_end() -> None:
    """By the events of a detachment alone: no host has to succeed in connecting first."""
    ending = (attachment.DETACH, attachment.DISCONNECTED, attachment.UNEXPORTED, attachment.END)
    for start in REACHABLE:
        state: Life = start
        for event in ending:
            if event.admits(state):
                state = after(event, state)
        assert state is None, start


def test_every_rule_is_needed() -> None:
    """No rule is dead: for each there is a state that can be reached and that no earlier rule of its event admits."""
    for event in EVENTS:
        for index, rule in enumerate(event.rules):
            decides = [s for s in REACHABLE if rule.admits(s) and not any(r.admits(s) for r in event.rules[:index])]
            assert decides, (event.name, rule)


def test_an_attachment_begins_and_ends_in_one_way_each() -> None:
    assert [e.name for e in EVENTS if e.admits(None)] == ["reserve"]
    assert [e.name for e in EVENTS if e.last] == ["end", "volume_deleted"]
    assert len({e.name for e in EVENTS}) == len(EVENTS)
    for event in EVENTS:
        if event.last:
            # Nothing is left anywhere, and the row that stays says so.
            assert {event.after(s) for s in REACHABLE if event.admits(s)} == {attachment.IDLE}


@given(st.data())
def test_any_sequence_of_events(data: st.DataObject) -> None:
    state: Life = None
    for event in data.draw(st.lists(st.sampled_from(EVENTS), max_size=60)):
        if not event.admits(state):
            with pytest.raises(VolumeAttachmentConflict):
                event.after(state, "a-1")
            continue
        state = after(event, state)
        if state is None:
            continue
        assert [law for law, holds in LAWS.items() if not holds(state)] == []


@given(st.sampled_from(EVENTS), st.sampled_from(ALL_STATES))
def test_an_event_says_everywhere_whether_it_is_admitted(event: Event, state: State) -> None:
    if event.admits(state):
        found = event.after(state)
        assert found.attach_status in states.ATTACH_STATES and {found.export, found.connection} <= set(PROGRESS)
    else:
        with pytest.raises(VolumeAttachmentConflict):
            event.after(state)


def test_the_conflict_names_attachment_state_and_event() -> None:
    with pytest.raises(VolumeAttachmentConflict) as caught:
        attachment.EXPORTED.after(State(states.ATTACHED, "done", "done"), "a-1")
    assert str(caught.value.message) == (
        "Attachment a-1 is attached (export done, connection done), which does not admit the event exported."
    )
    assert caught.value.status == 409 and from_dict(caught.value.as_dict()).code == "VolumeAttachmentConflict"
    with pytest.raises(VolumeAttachmentConflict, match="a-1 is ended"):
        attachment.DETACH.after(None, "a-1")


def test_a_target_goes_only_after_the_compute_host_has_disconnected() -> None:
    connected = [s for s in REACHABLE if s.connection != "none"]
    assert connected and not any(attachment.UNEXPORTED.admits(s) for s in connected)
    for state in connected:
        assert after(attachment.DETACH, state) == state._replace(attach_status=states.DETACHED)


# --- the documentation ----------------------------------------------------------------------------------------------------

DOCUMENT = pathlib.Path(__file__).resolve().parents[6] / "docs" / "volumes.md"


def lines_of(event: Event) -> t.Iterator[tuple[str, ...]]:
    """A line for each rule: event, meaning, and what it does to each part of the state."""
    if event.first is not None:
        yield ("`%s`" % event.name, event.meaning, *("to %s" % part for part in event.first))
    for index, rule in enumerate(event.rules):
        named = ("`%s`" % event.name, event.meaning) if index == 0 else ("", "")
        yield (*named, *(part_of(name, getattr(rule, name), rule.to.get(name)) for name in State._fields))


def part_of(name: str, admitted: tuple[str, ...], to: str | None) -> str:
    every = {getattr(state, name) for state in REACHABLE}
    words = "any" if not admitted or every <= set(admitted) else ", ".join(admitted)
    return words if to is None or admitted == (to,) else "%s to %s" % (words, to)


def test_the_documented_table_is_the_table() -> None:
    rows = [("event", "meaning", *State._fields), ("---",) * 5]
    rows += [line for event in EVENTS for line in lines_of(event)]
    table = "".join("| %s |\n" % " | ".join(row) for row in rows)
    text = DOCUMENT.read_text()
    assert table in text, table
    for law in LAWS:
        assert "- %s\n" % law in text
