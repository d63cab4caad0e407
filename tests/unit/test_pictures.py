# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pictures of the documents: they follow from the tables and from the recording, and need neither scripts nor a network."""

from __future__ import annotations

import importlib.util
import json
import re
import types
import typing as t
from pathlib import Path

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import EVENTS, PROGRESS
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.names import ISCSI_PORT

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
PICTURES = sorted(IMAGES.glob("*.svg"))


def script(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / (name + ".py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawings() -> types.ModuleType:
    return script("drawings")


@pytest.fixture(scope="module")
def recording() -> types.ModuleType:
    return script("recording")


def test_the_drawings_are_those_of_the_tables(drawings: types.ModuleType) -> None:
    assert [str(path) for path, text in drawings.files().items() if path.read_text() != text] == [], (
        "run scripts/drawings.py"
    )


def test_the_picture_is_the_one_of_the_recording(recording: types.ModuleType) -> None:
    assert (IMAGES / "demo.svg").read_text() == recording.picture((IMAGES / "demo.cast").read_text()), (
        "run scripts/recording.py"
    )


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_one_for_all_readers(path: Path) -> None:
    text = path.read_text()
    top = etree.fromstring(text.encode())
    name = "{http://www.w3.org/2000/svg}"
    assert [child.tag for child in top[:2]] == [name + "title", name + "desc"]
    assert top.get("role") == "img" and top.get("aria-labelledby") == "title desc"
    assert "prefers-color-scheme: dark" in text
    assert "animation" not in text or "prefers-reduced-motion: reduce" in text
    links = re.findall(r"(?:href|src)=\"([^\"]*)\"|url\\(([^)]*)\\)", text)
    assert "<script" not in text and [link for link in links if not "".join(link).startswith("#")] == []
    assert len(text) < 200_000


def test_the_recording_names_neither_folders_nor_people() -> None:
    head, *lines = (IMAGES / "demo.cast").read_text().splitlines()
    assert json.loads(head)["version"] == 2
    printed = "".join(json.loads(line)[2] for line in lines)
    assert set(re.findall(r"(?<![\w.~])/(\w+)/", printed)) <= {"var", "run", "etc"}
    assert "web-1 | SUCCESS" in printed and "web-2 | SUCCESS" in printed


def test_what_is_recorded_has_other_names(recording: types.ModuleType) -> None:
    names = {"/home/anna/clone": "~/bootflow", "/home/anna": "~", "anna-laptop": "kvm1"}
    text = recording.without("/home/anna/clone/.venv /home/anna/.cache on anna-laptop", names)
    assert text == "~/bootflow/.venv ~/.cache on kvm1"


def test_a_recording_becomes_screens(recording: types.ModuleType) -> None:
    """A long wait is shortened, quick lines come together, and advice at the end is left out."""
    events = [(0.0, "\x1b[1m$ one\x1b[0m\r\n"), (0.01, "<two>\r\n"), (60.0, "three\r\n"), (60.5, "\r\nLook closer\r\n")]
    lines = [{"version": 2, "width": 20, "height": 4, "title": "A title"}, *([at, "o", text] for at, text in events)]
    cast = "\n".join(map(json.dumps, lines)) + "\n"
    (quick, first), (last, second) = recording.screens(cast)
    assert quick == pytest.approx(recording.LONGEST, abs=0.02) and last == recording.AT_THE_END
    assert first[0] == (recording.Piece(0, "$ one", "bold"),)
    assert [line[0].text for line in second if line] == ["$ one", "<two>", "three"]
    svg = recording.picture(cast)
    assert "&lt;two&gt;" in svg and '<desc id="desc">A terminal. $ one.</desc>' in svg


def test_every_state_of_an_instance_that_lasts_is_drawn(drawings: types.ModuleType) -> None:
    drawn = {state for pair in drawings.of_instances() for state in pair}
    assert drawn == {drawings.OUT, *states.VM_STATES} - {states.DELETED}


@pytest.mark.parametrize("kind", moves.TYPES)
def test_every_move_begins_and_ends(drawings: types.ModuleType, kind: str) -> None:
    edges: t.Mapping[tuple[str, str], t.Any] = drawings.of_moves(kind)
    assert {after for before, after in edges if before == drawings.OUT} <= set(moves.OPEN)
    assert {before for before, after in edges if after == drawings.OUT} <= set(moves.ENDED)
    assert {before for before, _after in edges} == {after for _before, after in edges}, "a dead end"


def test_the_drawings_of_an_attachment_are_of_its_events(drawings: types.ModuleType) -> None:
    known = {event.name for event in EVENTS}
    for part in ("attach_status", "export", "connection"):
        edges = drawings.of_attachments(part)
        assert {name for names in edges.values() for name in names} <= known
        assert ("[*]", "reserved" if part == "attach_status" else "none") in edges
    assert {state for pair in drawings.of_attachments("export") for state in pair} == {"[*]", *PROGRESS}


def test_the_overview_has_the_ports_of_the_code(drawings: types.ModuleType) -> None:
    assert ">TCP %d<" % ISCSI_PORT in drawings.overview()
    (row,) = re.findall(
        r"^\| `bootflow_copy_ports` \|[^|]*\| `([\d-]+)`", (ROOT / "docs" / "variables.md").read_text(), re.M
    )
    assert ">TCP %s<" % row.replace("-", "\u2013") in drawings.overview()
