# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action is its options, the names of its stages and a call: the work is in plugin_utils."""

from __future__ import annotations

import importlib
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.plugin_utils.run.stage_results import NEXT

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


#: What playbooks register for people and for other people's playbooks (docs), or pass to the playbooks that they import.
RESULTS = {
    "bootflow_admin_passwords", "bootflow_applied", "bootflow_audited", "bootflow_booted", "bootflow_confirmed",
    "bootflow_drained", "bootflow_history", "bootflow_hosts_listed", "bootflow_image_cache", "bootflow_listed", "bootflow_plans_listed",
    "bootflow_rebalanced", "bootflow_serviced", "bootflow_shown", "bootflow_volumes_listed", "bootflow_watched",
    "bootflow_whatif",
}  # fmt: skip
PASSED = {
    "bootflow_apply_followed", "bootflow_apply_resized", "bootflow_drain_begun", "bootflow_drain_moved",
    "bootflow_filtered",
}  # fmt: skip


def staged() -> dict[str, set[str]]:
    """Return the stages of actions that have them."""
    found = {}
    for path in actions():
        module = importlib.import_module(ACTIONS + path.stem)
        if hasattr(module, "STAGES"):
            found[path.stem] = set(module.STAGES)
    return found


def plays() -> t.Iterator[dict[str, t.Any]]:
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(path.read_text()) or ():
            if isinstance(play, dict):
                yield play


def tasks() -> t.Iterator[tuple[dict[str, t.Any], dict[str, t.Any]]]:
    """The tasks of the playbooks, each with its play."""
    for play in plays():
        for task in play.get("tasks") or ():
            yield play, task


@pytest.mark.parametrize(("name", "stages"), staged().items())
def test_playbooks_run_all_stages(name: str, stages: set[str]) -> None:
    word = "bootflow.compute." + name
    found = [(play, task, (task[word] or {}).get("phase", "begin")) for play, task in tasks() if word in task]
    assert {stage for _play, _task, stage in found} == stages
    for play, task, stage in found:
        on_controller = "localhost" in str(play["hosts"]) and "bootflow_next" not in str(play["hosts"])
        registered = task.get("register", "")
        assert on_controller or not registered, "%s: a later stage reads the result of %s in the folder of the run" % (
            name,
            stage,
        )
        assert registered in {"", "bootflow_next"} | RESULTS | PASSED, (name, stage)


def test_a_playbook_registers_which_hosts_come_next_and_final_results() -> None:
    found = {task["register"] for _play, task in tasks() if "register" in task}
    assert found == {"bootflow_next"} | RESULTS | PASSED


#: Parts of other playbooks, which register more after them.
PARTS = ("live_again", "live_round", "offload", "volume_refresh", "volume_round")


@pytest.mark.parametrize("playbook", sorted((ROOT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_the_last_result_of_a_playbook_names_no_hosts(playbook: Path) -> None:
    """One that is not needed has no hosts by the result of the one before."""
    tasks_of = [task for play in yaml.safe_load(playbook.read_text()) or () for task in play.get("tasks") or ()]
    last = [task for task in tasks_of if task.get("register") == "bootflow_next"][-1:]
    for task in last if playbook.stem not in PARTS else ():
        module = next(name for name in task if name.startswith("bootflow.compute."))
        assert module.endswith("_report") or task[module]["phase"] in ("finish", "report")


def test_hosts_of_the_next_play_are_named_in_one_form() -> None:
    names = "|".join(sorted({"bootflow_next"} | RESULTS | PASSED))
    result = r"hostvars\.localhost\.(?:%s)" % names
    current = (
        r"\((?P<result>%s)\.(\w+) if (?P=result)\.attempt \| default\(0\) == bootflow_round \| default\(1\) else \[\]\)"
        % result
    )
    form = re.compile(
        r"\{\{ (?:(?:%s|bootflow_live_round)\.(\w+)|%s) \| default\('all:!all', true\) \}\}" % (result, current)
    )
    for play in plays():
        hosts = str(play.get("hosts", ""))
        if "hostvars.localhost." in hosts and "'localhost' if" not in hosts:
            match = form.fullmatch(hosts)
            assert match and (match[1] or match[3]) in NEXT, hosts
