#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the drawings of the documents: docs/images/overview.svg, and the states of instances, moves and attachments, as Mermaid in the pages that have a
place for them, from the tables in plugins/module_utils/core. With --check nothing is written: files that differ are named.
"""

from __future__ import annotations

import importlib
import re
import sys
import typing as t
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "plugins" / "module_utils"))


def core(name: str) -> t.Any:  # core is no package of the collection here
    return importlib.import_module("core." + name)


states, move_life, moves = core("instances.states"), core("instances.move_life"), core("instances.moves")
attachment = core("volumes.attachment")

# --- the overview ---

#: Ports of other software, which can be changed there.
SSH, POSTGRESQL = 22, 5432
WIDTH, HEIGHT = 860, 404
STYLE = """\
.page { fill: #ffffff; stroke: #d0d7de; }
text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #1f2328; }
.name { font-weight: 600; font-size: 15px; }
.port { fill: #0550ae; font-weight: 600; }
.box { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5; }
.maybe { stroke-dasharray: 5 4; }
.line { fill: none; stroke: #0550ae; stroke-width: 1.8; marker-end: url(#head); }
#head path { fill: #0550ae; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #30363d; }
  text { fill: #e6edf3; }
  .port { fill: #79c0ff; }
  .box { fill: #161b22; stroke: #8b949e; }
  .line { stroke: #79c0ff; }
  #head path { fill: #79c0ff; }
}
"""
#: (x, y, width, height, class, lines): a box, its name first
BOXES = (
    (30, 60, 190, 130, "box", ("Controller", "ansible-playbook", "the ledger, one sqlite", "file, or in PostgreSQL")),
    (30, 280, 190, 80, "box maybe", ("PostgreSQL", "a ledger that several", "controllers share")),
    (390, 60, 180, 110, "box", ("Compute host", "libvirt, QEMU, guests", "local disks")),
    (390, 260, 180, 110, "box", ("Compute host", "libvirt, QEMU, guests", "local disks")),
    (680, 60, 150, 110, "box maybe", ("Storage host", "LVM volumes,", "iSCSI targets")),
    (680, 260, 150, 110, "box maybe", ("Ceph", "volumes, or disks", "of guests")),
)


def overview() -> str:
    """The controller, the ledger, the hosts, and the ports at which they are reached."""
    copies = next(
        s.default for _title, _above, all_ in core("settings.table").SECTIONS for s in all_ if s.name == "copy_ports"
    )
    iscsi, ceph = core("volumes.names").ISCSI_PORT, core("volumes.rbd_names").MONITOR_PORT
    vxlan = core("networks.underlay").PORT
    lines = (  # from, to, what is written beside it
        ("M220 105 H384", (302, 97, "middle"), ["SSH, TCP %d" % SSH]),
        ("M220 150 H256 V315 H384", (302, 307, "middle"), ["SSH, TCP %d" % SSH]),
        ("M125 60 V32 H755 V54", (440, 24, "middle"), ["SSH, TCP %d" % SSH]),
        ("M125 190 V274", (133, 237, "start"), ["TCP %d" % POSTGRESQL]),
        ("M480 170 V254", (470, 199, "end"), ["TCP %s" % copies.replace("-", "\u2013"), "disks and guests that move,", "large images"]),
        ("M480 260 V176", (490, 208, "start"), ["UDP %d" % vxlan, "VXLAN"]),
        ("M570 95 H674", (622, 87, "middle"), ["TCP %d" % iscsi]),
        ("M570 285 H600 V145 H674", (608, 162, "start"), ["TCP %d" % iscsi]),
        ("M570 340 H674", (622, 332, "middle"), ["TCP %d" % ceph]),
        ("M570 145 H586 V312 H674", (622, 304, "middle"), ["TCP %d" % ceph]),
    )  # fmt: skip
    described = (
        "A controller runs ansible-playbook and has the ledger, one sqlite file, or reaches a PostgreSQL at TCP port %d."
        " It reaches each compute host and storage host by SSH, TCP port %d."
        " Compute hosts reach each other at TCP ports %s for disks and guests that move and for large images,"
        " and at UDP port %d for VXLAN networks."
        " They reach the iSCSI targets of storage hosts at TCP port %d, and the monitors of Ceph at TCP port %d."
    ) % (POSTGRESQL, SSH, copies, vxlan, iscsi, ceph)
    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">\n'
        % (
            *(WIDTH, HEIGHT),
            *(WIDTH, HEIGHT),
        )
    )
    text += '<title id="title">Controller, ledger, hosts and ports</title>\n<desc id="desc">%s</desc>\n' % escape(
        described
    )
    text += "<style>\n%s</style>\n" % STYLE
    text += '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="7" refY="4" orient="auto" markerUnits="userSpaceOnUse">'
    text += '<path d="M0 0 L9 4 L0 8 z"/></marker></defs>\n'
    text += '<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>\n' % (WIDTH - 1, HEIGHT - 1)
    for x, y, width, height, look, (name, *more) in BOXES:
        text += '<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>\n' % (look, x, y, width, height)
        text += '<text class="name" x="%d" y="%d">%s</text>\n' % (x + 14, y + 28, name)
        text += "".join(
            '<text x="%d" y="%d">%s</text>\n' % (x + 14, y + 52 + 20 * n, line) for n, line in enumerate(more)
        )
    for path, (x, y, anchor), words in lines:
        text += '<path class="line" d="%s"/>\n' % path
        for number, line in enumerate(words):
            look = ' class="port"' if re.search(r"(TCP|UDP) \d", line) else ""
            text += '<text%s x="%d" y="%d" text-anchor="%s">%s</text>\n' % (look, x, y + 17 * number, anchor, line)
    return (
        text
        + '<text x="30" y="386">Dashed: only where you have it. Nothing runs on the controller between two playbooks.</text>\n</svg>\n'
    )


# --- states ---

OUT = "[*]"  # Mermaid's begin and end
#: What the table of actions leaves to the action: how a build ends, and a move that waits.
DECIDED = {
    (OUT, states.BUILDING): ["boot"],
    (states.BUILDING, states.ACTIVE): ["built"],
    (states.BUILDING, states.ERROR): ["no host, or failed"],
    (states.RESIZED, states.ACTIVE): ["confirm_resize", "revert_resize"],
    (states.RESIZED, states.STOPPED): ["confirm_resize", "revert_resize"],
}
Edges = t.Dict[t.Tuple[str, str], t.List[str]]  # (state, next state) -> the events that lead there


def of_instances() -> Edges:
    """The vm_states, and the actions that change them; without the ones that may begin in any state, which would be a line from each."""
    edges: Edges = {pair: list(names) for pair, names in DECIDED.items()}
    for name, action in states.ACTIONS.items():
        for state in sorted(action.vm_states or ()):
            if action.result is not None and action.result != state:
                edges.setdefault((state, action.result), []).append(name)
    return edges


def of_moves(migration_type: str) -> Edges:
    """The statuses of a move of this type, and the events that change them."""
    edges: Edges = {}
    for event in move_life.EVENTS:
        for status, after in event.statuses(migration_type).items():
            if status != after:
                edges.setdefault((status or OUT, after), []).append(event.name)
    for status in sorted({after for _before, after in edges} & set(moves.ENDED)):
        edges[status, OUT] = [""]
    return edges


def of_attachments(part: str) -> Edges:
    """One column of the state of an attachment, and the events that change it: in all states that the table leads to."""
    edges: Edges = {}
    seen: set[t.Any] = {None}
    waiting: list[t.Any] = [None]
    while waiting:
        state = waiting.pop(0)
        for event in attachment.EVENTS:
            if event.admits(state):
                after = event.after(state)
                before, next_ = (OUT if state is None else getattr(state, part)), getattr(after, part)
                if before != next_ and event.name not in edges.setdefault((before, next_), []):
                    edges[before, next_].append(event.name)
                if event.last:
                    ended = edges.setdefault((next_, OUT), [])
                    ended.extend([event.name] if event.name not in ended else [])
                elif after not in seen:
                    seen.add(after)
                    waiting.append(after)
    return edges


def mermaid(title: str, description: str, edges: Edges) -> str:
    """The edges as a state diagram of Mermaid, which GitHub draws."""
    text = "```mermaid\nstateDiagram-v2\n    direction LR\n    accTitle: %s\n    accDescr: %s\n" % (title, description)
    named = sorted({state for pair in edges for state in pair} - {OUT})
    text += "".join('    state "%s" as %s\n' % (state, plain(state)) for state in named)
    for (before, after), events in edges.items():
        label = ", ".join(filter(None, events))
        text += "    %s --> %s%s\n" % (plain(before), plain(after), ": " + label if label else "")
    return text + "```\n"


def plain(state: str) -> str:
    """The state as a name of Mermaid, which may be no word of its language."""
    return state if state == OUT else "s_" + re.sub(r"\W", "_", state)


def drawings() -> dict[str, tuple[Path, str]]:
    """The name of a drawing -> the page that has it, and the drawing."""
    found = {
        "states of instances": (
            DOCS / "operations.md",
            mermaid("States of instances", "The vm_states of an instance, and the operations that lead from one to another.", of_instances()),
        )
    }  # fmt: skip
    for kind, words in (
        (moves.RESIZE, "resize or cold migration"),
        (moves.LIVE_MIGRATION, "live migration"),
        (moves.EVACUATION, "evacuation"),
    ):
        text = mermaid(
            "The life of a move: %s" % words,
            "The statuses of the move, and the events between them, as in the table below.",
            of_moves(kind),
        )
        found["life of a move: %s" % words] = (DOCS / "ledger.md", text)
    for part in attachment.State._fields:
        text = mermaid(
            "The life of an attachment: %s" % part,
            "The values of the column %s, and the events between them, as in the table below." % part,
            of_attachments(part),
        )
        found["life of an attachment: %s" % part] = (DOCS / "volumes.md", text)
    return found


def files() -> dict[Path, str]:
    """File -> the text that it has to have. :raises ValueError: a page has no place for a drawing"""
    found = {DOCS / "images" / "overview.svg": overview()}
    for name, (page, drawing) in drawings().items():
        text = found.get(page) or page.read_text()
        begin, end = "<!-- scripts/drawings.py: %s -->\n" % name, "<!-- end of the drawing -->"
        before, place, rest = text.partition(begin)
        if not place or end not in rest:
            raise ValueError("%s has no place for the drawing: %s%s" % (page.name, begin, end))
        found[page] = before + begin + drawing + end + rest.partition(end)[2]
    return found


if __name__ == "__main__":
    different = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    for path, text in different.items():
        print(path.relative_to(ROOT))
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
    sys.exit(bool(different) and sys.argv[1:] == ["--check"])
