# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a listener says, and what it may not say."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import lifecycle
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.lifecycle import Event, Said
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_sync import EVENTS

UUID = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01"


def read(**words: t.Any) -> Said | None:
    return lifecycle.read("h1", lifecycle.MARK + json.dumps(words))


# virDomainEventType, detail, job -> Nova's name, from LibvirtDriver's Host._event_lifecycle_callback; None: nothing follows.
NAMED = [
    ((0, 0, -1), None),  # defined
    ((1, 0, -1), None),  # undefined
    ((2, 0, -1), "Started"),
    ((3, 0, -1), "Paused"),
    ((3, 1, 3), "Migration completed"),
    ((3, 1, 4), "Paused"),  # the migration failed
    ((3, 1, -1), "Paused"),
    ((3, 7, -1), "Postcopy started"),
    ((4, 0, -1), "Resumed"),
    ((5, 0, -1), "Stopped"),
    ((5, 5, -1), "Stopped"),  # QEMU ended
    ((6, 0, -1), None),  # it was asked to shut down
    ((7, 0, -1), "Suspended"),
    ((8, 0, -1), "Crashed"),
    ((99, 0, -1), None),
]


@pytest.mark.parametrize(("numbers", "name"), NAMED)
def test_events_have_novas_names(numbers: tuple[int, int, int], name: str | None) -> None:
    said = read(event=list(numbers), uuid=UUID.upper())
    assert said == (None if name is None else Said(event=Event(UUID, name)))
    assert name is None or name in EVENTS


def test_the_other_lines() -> None:
    assert read(listening=True) == Said(listening=True)
    assert read(alive=True) is None
    assert read(error="no\x1b[2J libvirt") == Said(error="no\\x1b[2J libvirt")
    answer = read(answer=3, states={UUID: 5})
    assert answer is not None and (answer.answer, answer.power_states) == (3, {UUID: 4})
    assert read(answer=4, states={}) == Said(answer=4, power_states={}), "none of them is there any more"
    assert lifecycle.read("h1", "Last login: yesterday") is None and lifecycle.read("h1", "") is None


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ({"event": [5, 0, -1]}, "uuid"),
        ({"event": [5, 0], "uuid": UUID}, "event"),
        ({"event": [5, 0, "x"], "uuid": UUID}, "event[2]"),
        ({"event": [5, 0, -1], "uuid": "web"}, "uuid"),
        ({"answer": 1}, "states"),
        ({"answer": 1, "states": {UUID: "on"}}, "states." + UUID),
        ({"answer": 1, "states": {"web": 1}}, "states"),
        ({"error": 5}, "error"),
        ([], ""),
    ],
)
def test_nonsense_is_an_invalid_answer(words: t.Any, path: str) -> None:
    with pytest.raises(errors.InvalidAnswer) as found:
        lifecycle.read("h1", lifecycle.MARK + json.dumps(words))
    assert found.value.details["path"].startswith(path) and found.value.details["host"] == "h1"


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "nothing"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(errors.InvalidAnswer):
        lifecycle.read("h1", lifecycle.MARK + text)
