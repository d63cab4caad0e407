# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks under --limit and --tags, which AWX's fields Limit and Job Tags are: where they leave out what a playbook stands on, it fails in
words and does nothing. A playbook without an inventory, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from flow import ROOT, run_plainly

# Imported by others, and prepare, which does on each host what has to be done there: a limit without localhost is right.
IMPORTED = {
    "refresh",
    "boot_report",
    "round",
    "image_round",
    "live_again",
    "offload",
    "live_round",
    "volume_refresh",
    "volume_round",
    "operation",
    "service_tasks",
}
WITHOUT_LEDGER = {*IMPORTED, "prepare", "init"}
PLAYBOOKS = sorted({p.stem for p in (ROOT / "playbooks").glob("*.yml")} - WITHOUT_LEDGER)
INVENTORY = """
all:
  vars: {ansible_connection: local}
  children:
    bootflow_compute: {hosts: {h1: , h2: }}
    bootflow_storage: {hosts: {s1: {bootflow_storage_backends: [{name: lvm}]}}}
"""


def run(folder: Path, playbook: str, *options: str) -> tuple[int, str]:
    """A playbook of the collection, with an inventory and a ledger of its own. Returns its exit code and output."""
    (folder / "hosts.yml").write_text(INVENTORY)
    (folder / "hook.yml").write_text("- ansible.builtin.debug: {msg: the hook ran}\n")
    variables = {"bootflow_ledger_url": folder / "ledger.db", "bootflow_hook_create_instance_pre": folder / "hook.yml"}
    given = [part for name, value in variables.items() for part in ("-e", "%s=%s" % (name, value))]
    return run_plainly(folder, "bootflow.compute." + playbook, "-i", str(folder / "hosts.yml"), *given, *options)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_limit_without_localhost_fails_and_names_what_to_use(playbook: str, tmp_path: Path) -> None:
    """Ansible skips plays that the limit leaves out, and ends with 0."""
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


@pytest.mark.parametrize("playbook", [*PLAYBOOKS, "prepare"])
def test_tags_that_leave_out_all_tasks_are_refused(playbook: str, tmp_path: Path) -> None:
    """Ansible skips all tasks of these playbooks, which have no tags, and ends with 0."""
    code, output = run(tmp_path, playbook, "--tags", "db,web")
    assert code == 2, output
    assert "--tags db,web leaves out all tasks of bootflow.compute.%s" % playbook in output
    assert "failed=1" in output and "h2 " not in output and "the hook ran" not in output
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    "options, left_out",
    [
        (["--skip-tags", "untagged"], True),
        (["--tags", "tagged"], True),
        (["--tags", "always"], True),
        (["--skip-tags", "all"], True),
        (["--tags", "all"], False),
        (["--tags", "untagged,web"], False),
        (["--skip-tags", "web"], False),
    ],
)
def test_tags_are_judged_as_ansible_judges_them(options: list[str], left_out: bool, tmp_path: Path) -> None:
    code, output = run(tmp_path, "ledger", *options)
    assert (code, "leaves out all tasks" in output) == (2 if left_out else 0, left_out), output
    assert (tmp_path / "ledger.db").exists() != left_out


def test_a_playbook_of_the_user_may_leave_it_out_by_tags(tmp_path: Path) -> None:
    """--tags app of a site.yml: the boot in it is not begun, which a warning says, and the user's own tasks run."""
    (tmp_path / "site.yml").write_text(
        "- import_playbook: bootflow.compute.ledger\n  tags: [machines]\n"
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n  - ansible.builtin.debug: {msg: mine ran}\n    tags: [app]\n"
    )
    ledger = ["-e", "bootflow_ledger_url=%s" % (tmp_path / "ledger.db")]
    code, output = run_plainly(tmp_path, "site.yml", "-i", "localhost,", *ledger, "--tags", "app")
    assert code == 0 and "mine ran" in output and "--tags app leaves out a playbook of bootflow.compute" in output
    assert not (tmp_path / "ledger.db").exists()
    code, output = run_plainly(tmp_path, "site.yml", "-i", "localhost,", *ledger, "--tags", "machines")
    assert code == 0 and "mine ran" not in output and "leaves out" not in output
    assert (tmp_path / "ledger.db").exists()


#: Playbooks that run others with the inventory of a fleet, which a variable names, and do not open a ledger themselves.
WITH_OTHER_INVENTORY = {"molecule_create", "molecule_destroy"}


@pytest.mark.parametrize("playbook", sorted(set(PLAYBOOKS) - WITH_OTHER_INVENTORY))
def test_a_playbook_without_inventory_does_not_take_the_default_ledger(playbook: str, tmp_path: Path) -> None:
    code, output = run_plainly(tmp_path, "bootflow.compute." + playbook, "-e", "bootflow_operation=stop")
    assert code == 2, output
    assert "no inventory was read" in output and "sqlite:////var/lib/bootflow/ledger.db" in output and "-i" in output


def test_the_ledger_is_named(tmp_path: Path) -> None:
    ledger = "sqlite:///%s" % (tmp_path / "ledger.db")
    assert "Would create the ledger %s, revision " % ledger in run(tmp_path, "ledger", "--check")[1]
    assert "Created the ledger %s, revision " % ledger in run(tmp_path, "ledger")[1]
    assert "The ledger %s is at revision " % ledger in run(tmp_path, "ledger")[1]
    assert "No instances in the ledger %s." % ledger in run(tmp_path, "list")[1]
    assert (
        "Nothing is purged from the ledger %s" % ledger
        in run(tmp_path, "purge", "-e", "bootflow_history_retention_days=0")[1]
    )
    assert "Purged from the ledger %s" % ledger in run(tmp_path, "purge", "-e", "bootflow_history_retention_days=9")[1]
    copy = "bootflow_ledger_backup=%s" % (tmp_path / "copy.db")
    assert "Copied the ledger %s to " % ledger in run(tmp_path, "backup", "-e", copy)[1]
