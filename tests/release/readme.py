# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of README.md: what a person types, in which order, and what is printed."""

from __future__ import annotations

import json
import re
import shlex
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
URL = "https://github.com/bootflow/bootflow.compute"  # git takes the clone's repository for it (url.insteadOf)

# What is not run as it stands there.
INSTEAD = {"scripts/test": "scripts/test --help"}  # what runs these tests
# What the text says in words: "Then copy inventory/single".
COPY = "cp -r inventory/single my-inventory"


def blocks(language: str = "") -> list[str]:
    return [text for found, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S) if found == language]


def tour() -> t.Iterator[tuple[str, list[str]]]:
    """(command, lines that it prints) of the session in which lines begin with $."""
    (session,) = [block for block in blocks() if block.startswith("$ ")]
    for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip() not in ("", "...")]


def commands(having: str) -> list[str]:
    (block,) = [block for block in blocks() if having in block and not block.startswith("$ ")]
    return [INSTEAD.get(line, line) for line in block.splitlines()]


def files() -> dict[str, str]:
    """What the README has of files for the tour: name -> content."""
    (web,) = blocks("yaml")
    (configuration,) = blocks("ini")
    return {"web.yml": web, "ansible.cfg": configuration}


def script(instead: t.Mapping[str, str] | None = None, again: t.Sequence[str] = ()) -> str:
    """A script of bash that types the commands in an empty home; files() are in it.

    :arg instead: command -> another one. :arg again: commands that are typed twice.
    """
    lines = ["cd ~"]

    def typed(command: str) -> None:
        command = (instead or {}).get(command, command)
        lines.extend(["echo %s" % shlex.quote("\n$ " + command), command])

    for command in commands("git clone"):
        typed(command)
        if command in again:
            typed(command)
    # The demo's guests make room for those of the tour.
    (delete,) = [command for command, _shown in tour() if "compute.delete" in command]
    lines.extend([". .venv/bin/activate", delete + " >/dev/null", "deactivate"])
    for command in [*commands("scripts/test"), *commands("pip install"), COPY, *commands("compute.prepare")]:
        typed(command)
    lines.append("cp %s ." % " ".join("../" + name for name in files()))
    for command, _shown in tour():
        typed(command)
    return "\n".join(lines) + "\n"


def gitconfig(repository: str) -> str:
    """Git takes a repository for the one of the README."""
    return '[url "%s"]\n\tinsteadOf = %s\n[safe]\n\tdirectory = *\n' % (repository, URL)


def parts(text: str) -> dict[str, str]:
    """The output of the script: command -> the command and what it printed, the last time."""
    return {part.splitlines()[0]: part for part in re.split(r"^\$ ", text, flags=re.M)[1:]}


def squeezed(text: str) -> str:
    """Without spaces, and with one rule for what differs from run to run: UUIDs, times, addresses and rules of tables."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\b10(\.\d+){3}\b", "ADDRESS", text)
    text = re.sub(r"\b\d+ (s|min)\b", "AGE", text)
    return re.sub(r"-{2,}|\s+", "", text)


def check_tour(printed: t.Mapping[str, str]) -> None:
    """Each command of the tour prints what the README shows, and does what it says.

    :arg printed: of parts().
    """
    for command, shown in tour():
        for line in shown:
            assert squeezed(line) in squeezed(printed[command]), "%s does not print: %s" % (command, line)
    check, boot, ping, _apply, delete = [printed[command] for command, _shown in tour()]
    assert "host: kvm1" in check
    assert re.search(r"web-1 +active ", boot)
    assert "no hosts matched" not in check + boot + delete, "the README's ansible.cfg"
    assert json.loads(re.search(r"web-1 \| SUCCESS => ({.*?})", ping, re.S)[1])["ping"] == "pong"
    assert "Deleted: web-1, web-2" in delete
