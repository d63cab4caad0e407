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
    (tmp_path / "plays.yml").write_text(
        yaml.safe_dump([p if "import_playbook" in p else {**LOCAL, **p} for p in plays])
    )
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


def test_plays_of_others_are_as_they_are_by_default_also_without_hosts(tmp_path: pathlib.Path) -> None:
    usual = play(tmp_path, PLAYS, "ansible.builtin.default")
    assert usual.count("skipping: no hosts matched") == 2
    assert play(tmp_path, PLAYS) == usual


def test_a_play_of_guests_that_are_not_there_says_so(tmp_path: pathlib.Path, options: list[str]) -> None:
    """As after a boot without meta: refresh_inventory. The plays of the collection that were not needed stay hidden."""
    plays: list[dict[str, object]] = [
        {"import_playbook": "bootflow.compute.boot"},
        {"name": "Work in the guests", "hosts": "instances", "tasks": [DEBUG]},
    ]
    shown = play(tmp_path, plays, "bootflow.compute.concise", *options, "-e", '{"bootflow_instances": []}')
    assert "[WARNING]: Could not match supplied host pattern, ignoring: instances" in shown, shown
    (banner,) = [line for line in shown.splitlines() if line.startswith("PLAY [")]
    assert banner.startswith("PLAY [Work in the guests]") and shown.count("skipping: no hosts matched") == 1
    assert banner + "\nskipping: no hosts matched" in shown and "PLAY RECAP" in shown


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


@pytest.fixture
def options(tmp_path: pathlib.Path) -> list[str]:
    """An inventory with a compute host that is not there, and a ledger of its own."""
    (tmp_path / "hosts.yml").write_text(
        "bootflow_compute: {hosts: {h1: {ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh}}}\n"
    )
    return ["-i", "hosts.yml", "-e", "bootflow_ledger_url=%s" % (tmp_path / "ledger.db")]


def test_of_the_collections_playbooks_only_what_they_say_is_shown(tmp_path: pathlib.Path, options: list[str]) -> None:
    ledger: list[dict[str, object]] = [{"import_playbook": "bootflow.compute.ledger"}]
    (line,) = play(tmp_path, ledger, "bootflow.compute.concise", *options).splitlines()
    assert line.startswith("Created the ledger sqlite:////")
    assert "PLAY [" in play(tmp_path, ledger, "bootflow.compute.concise", "-v", *options)
    hosts: list[dict[str, object]] = [{"import_playbook": "bootflow.compute.hosts"}]
    lines = play(tmp_path, hosts, "bootflow.compute.concise", *options).splitlines()
    assert lines[0].startswith("HOST ") and lines[2].startswith("h1 ") and "PLAY" not in "\n".join(lines)


def test_the_users_own_plays_are_shown_whole(tmp_path: pathlib.Path, options: list[str]) -> None:
    """Before and after playbooks of the collection; also a hook, which a play of the collection includes."""
    (tmp_path / "hook.yml").write_text(yaml.safe_dump([{"name": "Mine", "ansible.builtin.debug": {"msg": "the hook"}}]))
    plays: list[dict[str, object]] = [
        {"name": "Before", "hosts": "localhost", "tasks": [DEBUG]},
        {"import_playbook": "bootflow.compute.list"},
        {"name": "Nobody", "hosts": "all:!all", "tasks": [DEBUG]},
        {"name": "After", "hosts": "localhost", "tasks": [DEBUG, {"bootflow.compute.instance_info": {}}]},
        {"import_playbook": "bootflow.compute.boot"},
    ]
    hook = ["-e", "bootflow_hook_create_instance_pre=%s" % (tmp_path / "hook.yml")]
    shown = play(tmp_path, plays, "bootflow.compute.concise", *options, *hook)
    for each in (
        "PLAY [Before]",
        "PLAY [After]",
        "TASK [Say it]",
        "TASK [bootflow.compute.instance_info]",
        "PLAY RECAP",
    ):
        assert each in shown, shown
    assert "TASK [Mine]" in shown and "the hook" in shown
    assert shown.count("PLAY [") == 3 and "Read the ledger" not in shown
    assert "PLAY [Nobody]" in shown and shown.count("skipping: no hosts matched") == 1


def test_a_step_on_hosts_is_one_line_and_a_failure_one_paragraph(tmp_path: pathlib.Path, options: list[str]) -> None:
    heartbeat: list[dict[str, object]] = [{"import_playbook": "bootflow.compute.heartbeat"}]
    lines = play(tmp_path, heartbeat, "bootflow.compute.concise", *options).splitlines()
    assert "Ask for the facts of the host: bootflow_compute" in lines
    assert "TASK" not in "\n".join(lines) and "{" not in "\n".join(lines)
