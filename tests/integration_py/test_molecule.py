# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""molecule tests a small role in a guest of the lab, with the scenario of docs/examples/molecule."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import flow as flow_module
import pytest
import yaml

pytestmark = [pytest.mark.usefixtures("lab"), pytest.mark.long]

EXAMPLE = flow_module.ROOT / "docs" / "examples" / "molecule"
ROLE = {
    "tasks/main.yml": [
        {"name": "Write", "ansible.builtin.copy": {"content": "by the role\n", "dest": "/tmp/role", "mode": "0644"}},
        {"name": "Look", "ansible.builtin.slurp": {"src": "/tmp/role"}},
    ],
    "meta/main.yml": {
        "galaxy_info": {"role_name": "writes", "namespace": "examples", "author": "x", "description": "x",
                        "license": "MIT", "min_ansible_version": "2.19"},
        "dependencies": [],
    },
}  # fmt: skip


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def test_molecule_tests_a_role_in_a_guest_and_leaves_nothing(lab, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    flow = flow_module.Flow(lab, tmp_path, flow_module.build_guest_image("--ssh"))
    flow.variables["bootflow_keypairs"] = [{"name": "me", "public_key": key.with_suffix(".pub").read_text().strip()}]
    flow.variables["bootflow_wait_console"] = "BOOTFLOW-GUEST-READY"
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    shutil.copy(lab.inventory, fleet / "hosts.yml")
    write(fleet / "group_vars" / "all.yml", flow.variables)
    role = tmp_path / "writes"
    for name, content in ROLE.items():
        write(role / name, content)
    scenario = role / "molecule" / "default"
    shutil.copytree(EXAMPLE, scenario)
    config = yaml.safe_load((scenario / "molecule.yml").read_text())
    (web,) = config["platforms"]
    web.update(user="root", identity_file=str(key))
    web["bootflow"].update(flavor="tiny", image="guest", networks=[{"network": "guests"}])
    environment = flow.environment(
        BOOTFLOW_INVENTORY=str(fleet / "hosts.yml"),
        MOLECULE_EPHEMERAL_DIRECTORY=str(tmp_path / "ephemeral"),
        ANSIBLE_TIMEOUT="60",
        PATH="%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" % Path(sys.executable).parent,
        NO_COLOR="1",
    )
    # The collection is where these tests have it, not where ansible-galaxy would install it.
    collections = environment["ANSIBLE_COLLECTIONS_PATH"]
    config["provisioner"]["env"] = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_TIMEOUT": "60"}
    config["prerun"] = False
    write(scenario / "molecule.yml", config)
    done = subprocess.run(
        [str(Path(sys.executable).parent / "molecule"), "test"],
        env=environment,
        cwd=role,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    try:
        assert done.returncode == 0, done.stdout[-12000:]
        rows = flow.query("SELECT project, display_name, launched_at, deleted FROM instances")
        assert [(row["display_name"], bool(row["launched_at"]), bool(row["deleted"])) for row in rows] == [
            ("web", True, True)
        ]
        assert rows[0]["project"].startswith("molecule-")
        assert flow.residue() == {}
    finally:
        for row in flow.query("SELECT DISTINCT project FROM instances WHERE deleted = ''"):
            flow.run("delete", bootflow_project=row["project"], bootflow_delete_all=True)
