# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that is the controller, too, of a user who is not root: the roles of hosts do not take the folder of its ledger.

The tasks of the roles run in a mount namespace with a /var/lib of its own, until the first that would change something.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="root gives files to others")]

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLES = {
    "compute_host": ("Let QEMU pass through the directory of the ledger to the instances", {}),
    "storage_host": (
        "Create the directory for fetched images",
        {"bootflow_storage_backends": [{"name": "disk"}], "bootflow_conversion_dir": "/var/lib/bootflow/conversion"},
    ),
}
NOBODY = 65534
# Owner, group and mode of the folder -> whether it is refused.
FOLDERS = {
    "root's own": (0, 0, 0o711, False),
    "open for others": (0, 0, 0o755, False),
    "of another group that may not write": (0, NOBODY, 0o750, False),
    "of a controller's group": (0, NOBODY, 0o770, True),
    "a controller's": (NOBODY, NOBODY, 0o700, True),
    "of a user that the host does not know, without a ledger": (54321, 54321, 0o711, True),
}


def play(role: str, folder: pathlib.Path, more: dict[str, object] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the role's tasks up to the one that gives the folder to root, without those of packages. :arg folder: becomes /var/lib"""
    last, variables = ROLES[role]
    tasks = yaml.safe_load((ROOT / "roles" / role / "tasks" / "main.yml").read_text())
    end = next(number for number, task in enumerate(tasks) if task["name"] == last)
    wanted = [t for t in tasks[: end + 1] if "ledger_folder" in str(t) or t["name"] == last]
    part = folder.parent / "roles" / role
    part.mkdir(parents=True)
    for name in ("defaults", "vars"):
        (part / name).symlink_to(ROOT / "roles" / role / name)
    (part / "tasks").mkdir()
    (part / "tasks" / "main.yml").write_text(yaml.safe_dump(wanted))
    check = ROOT / "roles" / role / "tasks" / "ledger_folder.yml"
    (part / "tasks" / "ledger_folder.yml").write_text(check.read_text())
    (folder.parent / "play.yml").write_text(
        json.dumps([{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": [role]}])
    )
    given = {"ansible_become": False, "ansible_python_interpreter": sys.executable, **variables, **(more or {})}
    argv = ["ansible-playbook", "-i", "localhost,", str(folder.parent / "play.yml"), "-e", json.dumps(given)]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /var/lib && shift && exec "$@"', "sh", str(folder), *argv],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def var_lib(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "lib"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("role", "kind"),
    [*(("compute_host", kind) for kind in FOLDERS), ("storage_host", "root's own"), ("storage_host", "a controller's")],
)
def test_the_folder_of_another_users_ledger_stays_its_own(role: str, kind: str, var_lib: pathlib.Path) -> None:
    uid, gid, mode, refused = FOLDERS[kind]
    own = var_lib / "bootflow"
    own.mkdir()
    if "without" not in kind:
        (own / "ledger.db").write_bytes(b"rows")
        os.chown(own / "ledger.db", uid, gid)
    os.chown(own, uid, gid)
    own.chmod(mode)
    done = play(role, var_lib)
    output, found = " ".join(done.stdout.split()), own.stat()
    assert (done.returncode != 0) == refused, output
    if refused:
        assert "/var/lib/bootflow on localhost belongs to" in output and "Remedy:" in output, output
        assert "bootflow_ledger_url: sqlite:////home/USER" in output and "changed=0" in output
        assert "Undefined" not in output and "undefined" not in output
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (uid, gid, mode)
    else:
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, 0, 0o711)


def test_a_host_without_a_ledger_gets_its_folder(var_lib: pathlib.Path) -> None:
    done = play("compute_host", var_lib)
    assert done.returncode == 0 and (var_lib / "bootflow").stat().st_mode & 0o777 == 0o711, done.stdout


@pytest.mark.parametrize(
    ("role", "more"),
    [
        ("compute_host", {"bootflow_instances_path": "/var/lib/guests"}),
        ("storage_host", {"bootflow_conversion_dir": "/var/lib/guests/images"}),
    ],
)
def test_a_ledger_beside_what_the_host_has_elsewhere(role: str, more: dict[str, object], var_lib: pathlib.Path) -> None:
    own = var_lib / "bootflow"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    done = play(role, var_lib, more)
    assert done.returncode == 0 and own.stat().st_uid == NOBODY, done.stdout


@pytest.mark.parametrize("role", ROLES)
def test_it_is_asked_before_anything_is_changed(role: str) -> None:
    tasks = yaml.safe_load((ROOT / "roles" / role / "tasks" / "main.yml").read_text())
    before = tasks[: next(number for number, task in enumerate(tasks) if "ledger_folder" in str(task))]
    assert {module for task in before for module in task if module.startswith("ansible.builtin.")} <= {
        "ansible.builtin.assert",
        "ansible.builtin.include_tasks",
    }
