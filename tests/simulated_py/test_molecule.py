# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks molecule_create and molecule_destroy, run as molecule runs them, with a fleet of simulated hosts."""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml
from flow import PLAYBOOK
from simulated_site import Site

PLATFORM = {"flavor": "small", "image": "debian", "networks": [{"network": "lan"}]}


class Job:
    """A job of molecule: its folder, and its variables of the environment."""

    def __init__(self, site: Site, folder: Path):
        self.site, self.folder = site, folder
        self.inventory = folder / "inventory" / "ansible_inventory.yml"
        self.instance_config = folder / "instance_config.yml"
        self.inventory.parent.mkdir(parents=True)
        fleet = site.arguments("list", {})
        self.fleet = Path(fleet[fleet.index("-i") + 1])
        variables = {**site.variables, "bootflow_hosts": sorted(site.hosts)}
        (self.fleet.parent / "group_vars").mkdir(exist_ok=True)
        (self.fleet.parent / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables))

    def run(self, playbook: str, platforms: t.Any, *options: str, **environment: str) -> tuple[int, str]:
        names = [p["name"] for p in platforms if isinstance(p, dict) and isinstance(p.get("name"), str)]
        # A guest of the model answers as the controller does, on which commands run.
        hosts = {name: {"ansible_connection": "local"} for name in names}
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        (self.folder / "molecule.yml").write_text(yaml.safe_dump({"platforms": platforms}))
        done = subprocess.run(
            [PLAYBOOK, "bootflow.compute.%s" % playbook, "-i", str(self.inventory.parent), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
            env={
                **self.site.environment(),
                "BOOTFLOW_INVENTORY": str(self.fleet),
                "MOLECULE_FILE": str(self.folder / "molecule.yml"),
                "MOLECULE_EPHEMERAL_DIRECTORY": str(self.folder),
                "MOLECULE_INSTANCE_CONFIG": str(self.instance_config),
                "MOLECULE_INVENTORY_FILE": str(self.inventory),
                "MOLECULE_PROJECT_DIRECTORY": str(self.folder),
                **environment,
            },
        )
        return done.returncode, done.stdout


@pytest.fixture
def job(site: Site, tmp_path: Path) -> Job:
    return Job(site, tmp_path / "job")


def projects(site: Site) -> dict[tuple[str, str], str]:
    rows = site.query("SELECT project, display_name, vm_state FROM instances WHERE deleted = ''")
    return {(row["project"], row["display_name"]): row["vm_state"] for row in rows}


def test_platforms_are_booted_reached_and_deleted(site: Site, job: Job) -> None:
    platforms = [
        {"name": "web", "groups": ["webs"], "bootflow": PLATFORM, "user": "debian"},
        {"name": "db", "bootflow": PLATFORM, "identity_file": "/keys/db", "port": 2222},
    ]
    code, output = job.run("molecule_create", platforms)
    assert code == 0, output
    (project,) = {project for project, _name in projects(site)}
    assert project.startswith("molecule-") and set(projects(site).values()) == {"active"}
    config = {entry.pop("instance"): entry for entry in yaml.safe_load(job.instance_config.read_text())}
    assert config["web"]["user"] == "debian" and config["web"]["port"] == 22
    assert config["db"]["identity_file"] == "/keys/db" and config["db"]["port"] == 2222
    hosts = yaml.safe_load((job.inventory.parent / "molecule_guests.yml").read_text())["molecule_guests"]["hosts"]
    addresses = {a for host in site.hosts.values() for a in host.reservations.values()}
    assert {hosts["web"]["ansible_host"], hosts["db"]["ansible_host"]} == addresses
    host = {row["display_name"]: row["host"] for row in site.instances().values()}["web"]
    assert "ProxyCommand=ssh" in hosts["web"]["ansible_ssh_common_args"]
    assert hosts["web"]["ansible_ssh_common_args"].endswith("-W [%%h]:%%p %s'" % host)
    code, output = job.run("molecule_create", platforms)
    assert code == 0 and "Nothing to do: 2 instances already match the request." in output, output
    code, output = job.run("molecule_destroy", platforms)
    assert code == 0, output
    assert site.residue() == {} and not job.instance_config.exists()
    assert sorted(path.name for path in job.inventory.parent.iterdir()) == ["ansible_inventory.yml"]
    code, output = job.run("molecule_destroy", platforms)
    assert code == 0, output


def test_jobs_are_kept_apart(site: Site, job: Job, tmp_path: Path) -> None:
    other = Job(site, tmp_path / "other")
    platforms = [{"name": "web", "bootflow": PLATFORM}]
    for one in (job, other):
        code, output = one.run("molecule_create", platforms)
        assert code == 0, output
    assert len(projects(site)) == 2 and {name for _project, name in projects(site)} == {"web"}
    assert job.run("molecule_destroy", platforms)[0] == 0
    assert len(projects(site)) == 1
    assert other.run("molecule_destroy", platforms)[0] == 0 and site.residue() == {}


def test_a_job_that_has_a_name_is_destroyed_from_another_folder(site: Site, job: Job, tmp_path: Path) -> None:
    platforms = [{"name": "web", "bootflow": PLATFORM}]
    assert job.run("molecule_create", platforms, BOOTFLOW_MOLECULE_RUN="ci-42")[0] == 0
    assert list(projects(site)) == [("molecule-ci-42", "web")]
    other = Job(site, tmp_path / "other")
    assert other.run("molecule_destroy", platforms, BOOTFLOW_MOLECULE_RUN="ci-42")[0] == 0
    assert site.residue() == {}


def test_a_plan_boots_nothing(site: Site, job: Job) -> None:
    code, output = job.run("molecule_create", [{"name": "web", "bootflow": PLATFORM}], "--check")
    assert code == 0 and "Plan (nothing is touched):" in output and "web (flavor small)" in output, output
    assert site.left_on_hosts() == {} and not site.ledger_path.exists() and not job.instance_config.exists()


def test_a_boot_that_fails_says_why_and_destroy_removes_the_rest(site: Site, job: Job) -> None:
    platforms = [{"name": "web", "bootflow": PLATFORM}, {"name": "big", "bootflow": {**PLATFORM, "flavor": "huge"}}]
    code, output = job.run("molecule_create", platforms)
    assert code == 2 and "NoValidHost" in output and "FleetRunFailed" in output, output
    assert job.run("molecule_destroy", platforms)[0] == 0
    assert site.residue() == {}


def test_bad_input_touches_nothing(site: Site, job: Job) -> None:
    long = "a" * 64
    platforms: list[t.Any] = [
        {"name": "web"},
        {"name": "web", "bootflow": {"image": "debian"}},
        {"name": "db", "bootflow": {"flavor": "small"}},
        {"name": long, "bootflow": PLATFORM},
        {"name": "both", "bootflow": {**PLATFORM, "count": 2}},
    ]
    code, output = job.run("molecule_create", platforms)
    assert code == 2, output
    text = " ".join(output.replace("\\n", " ").split())
    for expected in (
        "platform web has no mapping bootflow",
        "platform web has no flavor",
        "platform db has no image",
        "has 64 characters, and a hostname at most 63",
        "platform both has bootflow.count",
    ):
        assert expected in text, output
    code, output = job.run("molecule_create", [{"name": "web", "bootflow": PLATFORM}], BOOTFLOW_INVENTORY="")
    assert code == 2 and "no inventory of a fleet is named" in output, output
    code, output = job.run("molecule_create", [{"name": "web", "bootflow": PLATFORM}], BOOTFLOW_INVENTORY="/none.yml")
    assert code == 2 and "the inventory of the fleet /none.yml does not exist" in output, output
    code, output = job.run("molecule_destroy", [{"name": "web", "bootflow": PLATFORM}], MOLECULE_FILE="")
    assert code == 2 and "MOLECULE_FILE is not set: molecule does not run this playbook" in output, output
    assert not site.ledger_path.exists()
