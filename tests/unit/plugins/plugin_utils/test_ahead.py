# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible's main process loads while a worker works, each time in a process of its own that forks as Ansible does."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils import ahead

ACTION = "ansible_collections.bootflow.compute.plugins.action."


def loaded(script: str, tmp_path: Path) -> str:
    """The output of a script with ahead and fork(seconds): a child that works so long, and reports what it sees of the modules a, b, c.

    b wants c.
    """
    (tmp_path / "a.py").write_text("import time; time.sleep(0.2)")
    (tmp_path / "b.py").write_text(
        "from ansible_collections.bootflow.compute.plugins.plugin_utils import ahead; ahead.load('c')"
    )
    (tmp_path / "c.py").write_text("")
    begin = """
import os, sys, time
from ansible_collections.bootflow.compute.plugins.plugin_utils import ahead
def seen(): return "".join(sorted({"a", "b", "c"} & set(sys.modules))) or "-"
def fork(seconds):
    child = os.fork()
    if not child:
        time.sleep(seconds)
        os.write(1, b"child %s\\n" % seen().encode())
        os._exit(0)
    os.write(1, b"parent %s\\n" % seen().encode())
    os.waitpid(child, 0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", begin + script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert not done.stderr
    return done.stdout


def test_the_parent_loads_while_the_child_works(tmp_path: Path) -> None:
    output = loaded("ahead.load('a', 'nowhere', 'b'); fork(2); fork(2)", tmp_path)
    # What b wants in its turn waits for the next fork, and the first child has nothing of all this.
    assert output.splitlines() == ["parent ab", "child -", "parent abc", "child ab"]


def test_a_child_that_has_ended_is_not_kept_waiting(tmp_path: Path) -> None:
    output = loaded("ahead.load('a', 'b'); fork(0); fork(0)", tmp_path)
    assert sorted(output.splitlines()) == ["child -", "child a", "parent a", "parent a"], "b is dropped"


@pytest.mark.parametrize(
    ("played", "expected"),
    [
        (["bootflow.compute.boot"], ["boot_accept"]),
        (["bootflow.compute.stop"], ["instance_operation"]),
        (["bootflow.compute.delete", "other.yml"], ["instance_delete"]),
        (["bootflow.compute.ledger"], []),  # has no other action
        (["site.yml"], []),
        (["bootflow.compute.nothing"], []),
        (["other.collection.boot"], []),
        ([], []),
    ],
)
def test_the_action_after_the_ledger(played: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[str] = []
    monkeypatch.setattr(ahead, "context", types.SimpleNamespace(CLIARGS={"args": played}))
    monkeypatch.setattr(ahead, "_wanted", wanted)
    ahead.load_action_after_the_first()
    assert wanted == [ACTION + name for name in expected]
