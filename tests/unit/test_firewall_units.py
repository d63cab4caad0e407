# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role compute_host does for the filters of ports: units that load them, and their removal with bootflow_firewall_driver: noop.

The tasks run in a network namespace of their own with an empty /var/lib, and nft is real.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROLE = pathlib.Path(__file__).resolve().parents[2] / "roles" / "compute_host"
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars" / "debian.yml")],
        "tasks": [
            {
                "ansible.builtin.include_role": {
                    "name": "bootflow.compute.compute_host",
                    "tasks_from": "no_firewall.yml",
                    "rolespec_validate": False,
                },
                "vars": {"ansible_become": False, "compute_host_with_systemd": False},
            }
        ],
    }
]
FOLDER = "/var/lib/bootflow-firewall"
FILTERED = (
    "mkdir %s && touch %s/port_filters.nft && nft add table bridge bootflow && nft add table inet bootflow && nft add table inet own"
    % (FOLDER, FOLDER)
)


def lines(unit: str) -> list[tuple[str, str]]:
    text = (ROLE / "files" / unit).read_text()
    return [(key, value) for key, found, value in (line.partition("=") for line in text.splitlines()) if found]


def words(unit: str, key: str) -> list[str]:
    return [word for name, value in lines(unit) if name == key for word in value.split()]


def test_filters_are_loaded_before_libvirt_listens() -> None:
    unit = "bootflow-firewall.service"
    before = words(unit, "Before")
    for daemon in ("libvirtd", "virtqemud"):
        assert {"%s.service" % daemon, "%s.socket" % daemon} <= set(before)
        assert "%s.service" % daemon in words(unit, "RequiredBy")
    # By default a service is after basic.target, and that is after all sockets. systemd would drop libvirt's socket from the start of the host.
    assert words(unit, "DefaultDependencies") == ["no"]
    assert words(unit, "RequiresMountsFor") == [FOLDER]
    after = words(unit, "After")
    assert {"sysinit.target", "nftables.service"} == set(after) and not set(after) & {"basic.target", "sockets.target"}


def test_the_service_that_flushes_all_tables_loads_the_filters() -> None:
    load = dict(lines("bootflow-firewall.service"))["ExecStart"]
    again = dict(lines("nftables-bootflow.conf"))
    assert set(again) == {"ExecStartPost", "ExecReload"}
    for command in again.values():
        assert command.endswith("exec %s'" % load)


def remove(tmp_path: pathlib.Path, prepare: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the tasks after ``prepare``. Returns the run, and the tables and files that are left."""
    play, left = tmp_path / "play.yml", tmp_path / "left"
    play.write_text(json.dumps(PLAY))
    script = 'mount -t tmpfs none /var/lib && %s && "$@" && { nft list tables; ls /var/lib; } >"%s"' % (prepare, left)
    variables = json.dumps({"ansible_python_interpreter": sys.executable})
    done = subprocess.run(
        ["unshare", "-m", "-n", "sh", "-c", script, "sh", "ansible-playbook", "-i", "localhost,", str(play), "-e", variables],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done, left.read_text()


@pytest.mark.slow
def test_noop_removes_the_filters_and_nothing_else(tmp_path: pathlib.Path) -> None:
    done, left = remove(tmp_path, FILTERED)
    assert "changed=2" in done.stdout and left == "table inet own\n"


@pytest.mark.slow
def test_noop_changes_nothing_where_nothing_was_filtered(tmp_path: pathlib.Path) -> None:
    done, left = remove(tmp_path, "nft add table inet own")
    assert "changed=0" in done.stdout and left == "table inet own\n"
