# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages of operations: their tables have the states of the code, and their lists are short."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.states import ACTIONS, VM_STATES
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "operations",
    "power",
    "rescue-and-rebuild",
    "snapshots",
    "incremental-backups",
    "shelve",
    "resize-and-migrate",
    "live-migration",
    "recovery",
)
WITH_TABLES = (*PAGES, "networks", "service-a-host")
#: Title of a column -> the action in the code, where it has another name.
NAMES = {
    "`reboot`": "soft_reboot",
    "`reboot` with `bootflow_reboot_type: HARD`": "hard_reboot",
    "`live_migration_abort`": "live_migrate_abort",
    "`live_migration_force_complete`": "live_migrate_force_complete",
}
#: Playbooks that are no action of the code.
OTHERS = {"console", "lock", "unlock", "reclaim", "drain", "power_sync", "watch"}
#: Actions without a playbook of their own; attach_volume, detach_volume and swap_volume are described in docs/volumes.md.
WITHOUT = {"soft_delete", "attach_volume", "detach_volume", "swap_volume", "update_instance_metadata"}
WITHOUT |= {"release"}  # docs/adopt.md
WITHOUT |= {"snapshot_volume_backed"}  # a snapshot of an instance whose root is a volume
DIALECT = r"\b(those (that|who)|went over|goes over|leads? out|lets? go|is told|same again|anew|whoever|see that)\b"

Column = t.Dict[str, str]


def columns() -> dict[str, Column]:
    """Action -> title of a row -> its cell, of each table whose rows are facts about playbooks."""
    found: dict[str, Column] = {}
    for page in WITH_TABLES:
        text = (DOCS / (page + ".md")).read_text()
        for head, rows in re.findall(r"^\| \| (`.*) \|\n\|[ -|]*\|\n((?:\|.*\n)+)", text, re.MULTILINE):
            titles = head.split(" | ")
            cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows.splitlines()]
            for number, title in enumerate(titles):
                name = NAMES.get(title, title.strip("`"))
                assert name not in found, "%s is in two tables" % name
                found[name] = {row[0]: row[number + 1] for row in cells}
    return found


def states(cell: str) -> set[str]:
    return set(re.findall(r"`([\w-]+)`", cell)) & set(VM_STATES)


def test_each_playbook_has_a_column() -> None:
    assert set(columns()) == {*ACTIONS, *OTHERS} - WITHOUT
    assert {o.name for o in OPERATIONS.values()} <= set(ACTIONS)


@pytest.mark.parametrize("name", sorted(set(ACTIONS) - WITHOUT))
def test_the_states_of_a_table_are_those_of_the_code(name: str) -> None:
    column, rule = columns()[name], ACTIONS[name]
    assert states(column["vm_state before"]) == set(rule.vm_states or ())
    assert column["vm_state before"].startswith("any") == (rule.vm_states is None)
    if rule.result is not None:
        assert rule.result in states(column["vm_state after"])
    for row in ("options", "errors", "on failure"):
        assert row in column, row
    every = {rule.during, *rule.then, *rule.later} - {None}
    named = set(re.findall(r"`(\w+)`", column.get("task_states", "") + column.get("task_state", "")))
    assert named <= every | {"resize_migrated"}


@pytest.mark.parametrize("page", PAGES)
def test_a_list_has_at_most_ten_short_sentences(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (DOCS / (page + ".md")).read_text(), flags=re.MULTILINE | re.DOTALL)
    length, problems = 0, []
    for line in [*text.splitlines(), "end"]:
        if line.startswith("- "):
            length += 1
            if len(line[2:].split()) > 30:
                problems.append("over 30 words: " + line)
            if re.search(r"[.!?] ", line):
                problems.append("several sentences: " + line)
        elif line.strip():
            problems += ["more than ten before: " + line] if length > 10 else []
            length = 0
    assert problems == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_plain_words(page: str) -> None:
    assert [found.group() for found in re.finditer(DIALECT, (DOCS / (page + ".md")).read_text(), re.IGNORECASE)] == []
