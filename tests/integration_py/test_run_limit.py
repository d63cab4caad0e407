# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks under --limit, and AWX's field Limit, which is the same: without localhost they fail in words and do nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from flow import PLAYBOOK, ROOT

# Imported by others, and prepare, which does on each host what has to be done there: a limit without localhost is right.
WITHOUT_LEDGER = {"refresh", "report", "round", "volume_refresh", "volume_round", "operation", "prepare"}
PLAYBOOKS = sorted({p.stem for p in (ROOT / "playbooks").glob("*.yml")} - WITHOUT_LEDGER)
INVENTORY = """
all:
  vars: {ansible_connection: local}
  children:
    bootflow_compute: {hosts: {h1: , h2: }}
    bootflow_storage: {hosts: {s1: {bootflow_storage_backends: [{name: lvm}]}}}
"""


def run(folder: Path, playbook: str, *options: str) -> tuple[int, str]:
    (folder / "hosts.yml").write_text(INVENTORY)
    (folder / "hook.yml").write_text("- ansible.builtin.debug: {msg: the hook ran}\n")
    variables = {"bootflow_ledger_url": folder / "ledger.db", "bootflow_hook_create_instance_pre": folder / "hook.yml"}
    done = subprocess.run(
        [
            PLAYBOOK,
            "bootflow.compute." + playbook,
            "-i",
            str(folder / "hosts.yml"),
            *(part for name, value in variables.items() for part in ("-e", "%s=%s" % (name, value))),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": os.environ["PYTHONPATH"].split(os.pathsep)[0],
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
        },
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_limit_without_localhost_fails_and_names_what_to_use(playbook: str, tmp_path: Path) -> None:
    """S15: Ansible skips plays that the limit leaves out, and ends with 0."""
    code, output = run(tmp_path, playbook, "--limit", "bootflow_compute")
    assert code == 2, output
    assert "the limit bootflow_compute leaves out localhost" in output
    assert "bootflow_compute,localhost" in output and "bootflow_hosts" in output
    assert "unreachable=0    failed=1" in output and "h2 " not in output, "one task, whatever the number of hosts"
    assert "the hook ran" not in output
    assert not (tmp_path / "ledger.db").exists()


def test_a_limit_with_localhost_reaches_its_hosts(tmp_path: Path) -> None:
    code, output = run(tmp_path, "heartbeat", "--limit", "localhost,h1")
    assert code == 0, output
    assert "ok: [h1]" in output and "[h2]" not in output and "[s1]" not in output


def test_without_a_limit_a_playbook_begins_on_localhost_alone(tmp_path: Path) -> None:
    code, output = run(tmp_path, "ledger")
    assert code == 0 and "[h1]" not in output, output
