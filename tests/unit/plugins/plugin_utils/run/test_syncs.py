# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""power_sync by the command line of the run that wants it, one after the other."""

from __future__ import annotations

import json
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.playbooks.syncs import Syncs, command

ARGV = ["/bin/ansible-playbook", "-i", "hosts.yml", "bootflow.compute.watch", "-e", "@web.yml", "--limit", "all"]
ONE = {"args": ("bootflow.compute.watch",)}
# Says for which hosts it runs, and ends when the file argv[1] is there.
SYNC = """
import os, sys, time
print("of", sys.argv[-1], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
sys.exit(int(open(sys.argv[1]).read()))
"""


def test_the_same_command_line_with_another_playbook() -> None:
    expected = [word.replace("watch", "power_sync") for word in ARGV]
    assert command(ARGV, {**ONE, "ask_pass": False, "vault_ids": ["web@file", "/prompt/file"]}) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"args": ()}, "which names no playbook"),
        ({"args": ("a.yml", "bootflow.compute.watch")}, "which names a.yml, bootflow.compute.watch"),
        ({"args": ("hosts.yml",)}, "which names hosts.yml"),
        ({**ONE, "become_ask_pass": True}, "could give a password"),
        ({**ONE, "ask_vault_pass": True}, "could give a password"),
        ({**ONE, "vault_ids": ["web@prompt"]}, "could give a password"),
    ],
)
def test_command_lines_that_cannot_be_run_again(options: t.Any, words: str) -> None:
    with pytest.raises(errors.InvalidInput, match=words):
        command([*ARGV, "-i", "hosts.yml"], options)


def ended(syncs: Syncs, wait: bool = False) -> t.Any:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done = syncs.look(wait)
        if done is not None:
            return done
        time.sleep(0.01)
    raise AssertionError("it goes on")


def test_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "ends"
    syncs = Syncs([sys.executable, "-c", SYNC, str(path)])
    assert syncs.look() is None and syncs.look(wait=True) is None, "nobody wants one"
    syncs.want(["h2", "h1"])
    assert syncs.look() is None
    syncs.want(["h3"])
    syncs.want(["h3", "h1"])
    assert syncs.look() is None, "one at a time"
    path.write_text("0")
    first = ended(syncs)
    assert (list(first.hosts), first.well) == (["h1", "h2"], True)
    assert json.loads(first.output.removeprefix("of ")) == {"bootflow_hosts": ["h1", "h2"]}
    second = ended(syncs)
    assert (list(second.hosts), second.well) == (["h1", "h3"], True), "what came meanwhile is in the next"
    path.write_text("2")
    syncs.want(["h1"])
    assert syncs.look() is None
    syncs.want(["h2"])
    assert not ended(syncs, wait=True).well
    assert syncs.look(wait=True) is None, "at the end no other begins"
