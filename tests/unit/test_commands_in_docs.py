# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands that people copy from the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

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
    needing = [c for c in commands(document) if "bootflow.compute.init" not in c and not c.startswith("ansible-galaxy")]
    assert [c for c in needing if " -i " not in c and " $I " not in c] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.relative_to(ROOT).as_posix())
def test_every_playbook_of_a_command_exists(document: Path) -> None:
    named = {
        n
        for c in commands(document)
        for n in re.findall(r"bootflow[.]compute[.](\w+)", c)
        if c.startswith("ansible-playbook")
    }
    assert {n for n in named if not (ROOT / "playbooks" / (n + ".yml")).exists()} == set()


def test_the_first_page_leads_to_every_other() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+[.]md)", text))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.relative_to(ROOT).as_posix())
def test_every_variable_of_a_command_exists(document: Path) -> None:
    known = set(re.findall(r"^\| `(bootflow_\w+)`", (ROOT / "docs" / "variables.md").read_text(), re.MULTILINE))
    named = {n for c in commands(document) for n in re.findall(r"\bbootflow_\w+(?=\W*[:=])", c)}
    assert named - known == set()


def test_each_variable_is_in_one_row() -> None:
    named = re.findall(r"^\| `(bootflow_\w+)`", (ROOT / "docs" / "variables.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(set(named))


@pytest.mark.parametrize("inventory", ["fleet", "single"])
def test_guests_of_a_sample_inventory_have_host_keys(inventory: str) -> None:
    """Without them ssh asks whether it may trust a guest, and the ping of README.md and docs/inventory.md fails."""
    text = (ROOT / "inventory" / inventory / "hosts.yml").read_text()
    assert yaml.safe_load(text)["all"]["children"]["bootflow_compute"]["vars"]["bootflow_ssh_host_keys"] is True


LINK = re.compile(r"\]\((https://github[.]com/bootflow/bootflow[.]compute/blob/main/)?([\w./-]*[.]md)?(?:#([\w-]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The fragments of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"],
    ids=lambda d: d.relative_to(ROOT).as_posix(),
)
def test_every_link_leads_to_a_heading(document: Path) -> None:
    broken = []
    for repository, path, anchor in LINK.findall(document.read_text()):
        target = (ROOT if repository else document.parent) / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append("%s#%s" % (path, anchor))
    assert broken == []
