# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands that people copy from the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "roles").glob("*/README.md")])
COMMAND = re.compile(r"^(?:[$] )?(?:\w+=\S+ )*(ansible(?:-playbook|-inventory)? .*)$", re.MULTILINE)
BLOCK = re.compile(r"^```(?:\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(document: Path) -> list[str]:
    blocks = "\n".join(BLOCK.findall(document.read_text())).replace("\\\n", " ")
    return COMMAND.findall(blocks)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.relative_to(ROOT).as_posix())
def test_every_command_names_the_inventory(document: Path) -> None:
    """Without it a playbook works on the default ledger, or on none."""
    assert [c for c in commands(document) if " -i " not in c and " $I " not in c] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.relative_to(ROOT).as_posix())
def test_every_playbook_of_a_command_exists(document: Path) -> None:
    named = {
        n
        for c in commands(document)
        for n in re.findall(r"bootflow[.]compute[.](\w+)", c)
        if c.startswith("ansible-playbook")
    }
    assert {n for n in named if not (ROOT / "playbooks" / (n + ".yml")).exists()} == set()
