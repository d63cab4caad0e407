# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action is its options, the names of its stages and a call: the work is in plugin_utils."""

from __future__ import annotations

import importlib
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTIONS = "ansible_collections.bootflow.compute.plugins.action."
LINES = 120


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def actions() -> list[Path]:
    return sorted(p for p in (ROOT / "plugins" / "action").glob("*.py") if p.stem != "__init__")


def test_an_action_is_short() -> None:
    assert len(actions()) > 40
    longer = {p.stem for p in actions() if lines(p) > LINES}
    assert longer == set(), "their work belongs in plugin_utils"


def staged() -> dict[str, dict[str, str]]:
    """Return the stages of actions that have them: stage -> the variable of its results."""
    found = {}
    for path in actions():
        module = importlib.import_module(ACTIONS + path.stem)
        if hasattr(module, "STAGES"):
            found[path.stem] = dict(module.STAGES)
    return found


def tasks(name: str) -> t.Iterator[dict[str, t.Any]]:
    """The tasks of playbooks that call an action."""
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(path.read_text()) or ():
            for task in (play.get("tasks") or ()) if isinstance(play, dict) else ():
                if "bootflow.compute." + name in task:
                    yield task


@pytest.mark.parametrize(("name", "stages"), staged().items())
def test_playbooks_register_the_results_of_stages_as_the_action_reads_them(name: str, stages: dict[str, str]) -> None:
    found: dict[str, set[str]] = {}
    for task in tasks(name):
        stage = (task["bootflow.compute." + name] or {}).get("phase", "begin")
        found.setdefault(stage, set()).add(task.get("register", ""))
    assert found == {stage: {variable} for stage, variable in stages.items()}
