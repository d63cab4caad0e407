# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible's main process loads while a worker works, each time in a process of its own that forks as Ansible does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible import context

from ansible_collections.bootflow.compute.plugins.plugin_utils.startup import preload

ACTION = "ansible_collections.bootflow.compute.plugins.action."


def loaded(script: str, tmp_path: Path) -> str:
    """The output of a script with preload and fork(): a child that works until end() is called, by fork() at the latest.

    Both tell what they see of the modules a, b and c. b wants c.
    """
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b.py").write_text(
        "from ansible_collections.bootflow.compute.plugins.plugin_utils.startup import preload; preload.load('c')"
    )
    (tmp_path / "c.py").write_text("")
    (tmp_path / "ending.py").write_text(
        "import __main__, os; __main__.end(); os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"
    )
    begin = """
import os, sys
from ansible_collections.bootflow.compute.plugins.plugin_utils.startup import preload
def tell(who): os.write(1, b"%s %s\\n" % (who, "".join(n for n in "abc" if n in sys.modules).encode()))
def end(): os.write(told, b"end")
def fork():
    global told
    work, told = os.pipe()
    child = os.fork()
    if not child:
        os.read(work, 3)
        tell(b"child")
        os._exit(0)
    tell(b"parent")
    end()
    os.waitpid(child, 0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", begin + script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert not done.stderr
    return done.stdout


def test_the_parent_loads_while_the_child_works(tmp_path: Path) -> None:
    output = loaded("preload.load('a', 'nowhere', 'b'); fork(); fork()", tmp_path)
    # What b wants in its turn waits for the next fork, and the first child has nothing of all this.
    assert output.splitlines() == ["parent ab", "child ", "parent abc", "child ab"]


def test_a_child_that_has_ended_is_not_kept_waiting(tmp_path: Path) -> None:
    output = loaded("preload.load('a', 'ending', 'b'); fork(); fork()", tmp_path)
    assert output.splitlines() == ["child ", "parent a", "parent a", "child a"], "b is dropped"


def test_functions_are_called_too_and_their_errors_are_of_whoever_needs_it(tmp_path: Path) -> None:
    output = loaded("preload.load(lambda: 1 / 0, lambda: __import__('a'), 'b'); fork(); fork()", tmp_path)
    assert output.splitlines() == ["parent ab", "child ", "parent abc", "child ab"]


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
    monkeypatch.setattr(context, "CLIARGS", {"args": played})
    monkeypatch.setattr(preload, "_wanted", wanted)
    preload.load_action_after_the_first()
    assert wanted == [ACTION + name for name in expected]
