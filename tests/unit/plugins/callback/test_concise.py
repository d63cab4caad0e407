# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-playbook prints with the callback concise, beside what it prints by default."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

COLLECTIONS = pathlib.Path(__file__).absolute().parents[6]  # as it is imported: the folder of ansible_collections
DEBUG = {"name": "Say it", "ansible.builtin.debug": {"msg": "said"}}
LOCAL = {"connection": "local", "gather_facts": False}


def play(
    tmp_path: pathlib.Path, plays: list[dict[str, object]], callback: str = "bootflow.compute.concise", *options: str
) -> str:
    (tmp_path / "plays.yml").write_text(yaml.safe_dump([{**LOCAL, **p} for p in plays]))
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_STDOUT_CALLBACK": callback,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    argv = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "plays.yml", *options]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


PLAYS: list[dict[str, object]] = [
    {"name": "First", "hosts": "localhost", "tasks": [DEBUG]},
    {"name": "Not needed", "hosts": "all:!all", "tasks": [DEBUG]},
    {"name": "Free", "hosts": "localhost", "strategy": "ansible.builtin.free", "tasks": [DEBUG]},
    {"name": "Not needed either", "hosts": "all:!all", "strategy": "ansible.builtin.free", "tasks": [DEBUG]},
    {
        "name": "Handlers only",
        "hosts": "localhost",
        "tasks": [{**DEBUG, "changed_when": True, "notify": "Heard"}],
        "handlers": [{"name": "Heard", "ansible.builtin.debug": {"msg": "heard"}}],
    },
]


def test_plays_without_hosts_are_not_there(tmp_path: pathlib.Path) -> None:
    usual = play(tmp_path, PLAYS, "ansible.builtin.default")
    assert usual.count("skipping: no hosts matched") == 2
    blocks = [b for b in usual.split("\n\n") if "no hosts matched" not in b]
    assert play(tmp_path, PLAYS) == "\n\n".join(blocks), "everything else is as it is by default"
    assert play(tmp_path, PLAYS, "bootflow.compute.concise", "-v").count("skipping: no hosts matched") == 2


@pytest.mark.parametrize("ignored", [False, True])
def test_an_error_is_one_paragraph(tmp_path: pathlib.Path, ignored: bool) -> None:
    task = {"bootflow.compute.instance_info": {"names": ["web"], "ledger_url": "mysql://db.example/ledger"}}
    plays: list[dict[str, object]] = [
        {"name": "Fails", "hosts": "localhost", "tasks": [{**task, "ignore_errors": ignored, "register": "it"}, DEBUG]}
    ]
    shown = play(tmp_path, plays)
    (error,) = [b for b in shown.split("\n\n") if "fatal: [localhost]: " in b]
    lines = error.splitlines()
    assert lines[0].startswith("TASK [bootflow.compute.instance_info]")
    assert lines[1].startswith("fatal: [localhost]: LedgerError: The ledger") and "mysql" in lines[1]
    assert "Remedy: " in error and "{" not in error and "Origin:" not in shown
    assert ("...ignoring" in error) == ignored == ("said" in shown)
    assert '"error_code"' in play(tmp_path, plays, "bootflow.compute.concise", "-v")


def test_other_errors_are_as_they_are_by_default(tmp_path: pathlib.Path) -> None:
    plays: list[dict[str, object]] = [{"hosts": "localhost", "tasks": [{"ansible.builtin.fail": {"msg": "no"}}]}]
    assert play(tmp_path, plays) == play(tmp_path, plays, "ansible.builtin.default")
