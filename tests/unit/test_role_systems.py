# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which systems the roles of hosts take. Ansible itself finds out what a host is, from files of real distributions in a mount namespace."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
OS_RELEASE = """NAME="%(name)s"
VERSION_ID="%(version)s"
VERSION="%(version)s"
ID="%(id)s"
ID_LIKE="%(like)s"
PRETTY_NAME="%(name)s %(version)s"
"""
#: NAME, ID, ID_LIKE, version; the line of /etc/redhat-release
EL = "rhel centos fedora"
REFUSED = {
    "Rocky 9.6": ("Rocky Linux", "rocky", EL, "9.6", "Rocky Linux release 9.6 (Blue Onyx)"),
    "AlmaLinux 10.0": ("AlmaLinux", "almalinux", EL, "10.0", "AlmaLinux release 10.0 (Purple Lion)"),
    "CentOS 10": ("CentOS Stream", "centos", "rhel fedora", "10", "CentOS Stream release 10 (Coughlan)"),
    "RedHat 9.6": ("Red Hat Enterprise Linux", "rhel", "fedora", "9.6", "Red Hat Enterprise Linux release 9.6 (Plow)"),
    "Fedora 42": ("Fedora Linux", "fedora", "", "42", "Fedora release 42 (Adams)"),
    "Archlinux": ("Arch Linux", "arch", "", "", None),
}
TAKEN = {
    "Debian 12": ("Debian GNU/Linux", "debian", "", "12", None),
    "Debian 13": ("Debian GNU/Linux", "debian", "", "13", None),
    "Ubuntu 24.04": ("Ubuntu", "ubuntu", "debian", "24.04", None),
    "Ubuntu 26.04": ("Ubuntu", "ubuntu", "debian", "26.04", None),
}
ROLES = {"compute_host": "libvirt-daemon-system", "storage_host": "lvm2"}


def play(
    role: str,
    system: tuple[str, str, str, str, str | None],
    folder: pathlib.Path,
    path: str = "",
    part: str = "system.yml",
) -> subprocess.CompletedProcess[str]:
    """Run the role, or a copy of it, on a machine with the files of this system, until it would look for packages."""
    name, identifier, like, version, redhat = system
    etc = folder / "etc"
    etc.mkdir()
    (etc / "os-release").write_text(OS_RELEASE % {"name": name, "id": identifier, "like": like, "version": version})
    if redhat is not None:
        (etc / "redhat-release").write_text(redhat + "\n")
    if identifier == "debian":
        (etc / "debian_version").write_text(version + ".1\n")
    for file in ("passwd", "group", "nsswitch.conf"):
        (etc / file).write_text(pathlib.Path("/etc", file).read_text())
    packages = "%s_family_packages" % role
    tasks = [
        {
            "ansible.builtin.include_role": {
                "name": path or "bootflow.compute.%s" % role,
                "tasks_from": part,
                "rolespec_validate": False,
                "public": True,
            }
        },
        {"ansible.builtin.debug": {"msg": "{{ %s | join(' ') }}" % packages}},
    ]
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}])
    )
    argv = ["ansible-playbook", "-i", "localhost,", str(folder / "play.yml")]
    argv += ["-e", json.dumps({"ansible_python_interpreter": sys.executable})]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /etc && shift && exec "$@"', "sh", str(etc), *argv],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("system", REFUSED)
def test_other_systems_are_refused_in_words(role: str, system: str, tmp_path: pathlib.Path) -> None:
    done = play(role, REFUSED[system], tmp_path)
    output = " ".join(done.stdout.split())
    assert done.returncode == 2, output
    assert "localhost runs %s" % system in output, output
    assert (
        "The role %s supports Debian and Ubuntu. Enterprise Linux" % role in output
        and "Remedy: Use Debian 13" in output
    )
    assert "changed=0" in output


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("system", TAKEN)
def test_debian_and_ubuntu_are_one_family(role: str, system: str, tmp_path: pathlib.Path) -> None:
    done = play(role, TAKEN[system], tmp_path)
    assert done.returncode == 0 and ROLES[role] in done.stdout, done.stdout


@pytest.mark.parametrize("role", ROLES)
def test_each_variable_of_a_family_is_read(role: str) -> None:
    """So that the file of another family can have the same names."""
    folder = ROOT / "roles" / role
    names = yaml.safe_load((folder / "vars" / "debian.yml").read_text())
    text = "".join(path.read_text() for path in files_for_all_families(role))
    assert names and all(name.startswith("%s_family_" % role) and name in text for name in names)
    read = set(re.findall(r"\b%s_family_\w+" % role, text)) - {"%s_family_file" % role, "%s_family_tasks" % role}
    assert read == set(names), "and it has each that is read"


@pytest.mark.parametrize("role", ROLES)
def test_only_the_files_of_a_family_name_what_differs(role: str) -> None:
    """A second family adds a file of variables and one that installs packages, and changes none."""
    folder = ROOT / "roles" / role
    families = {path.stem for path in (folder / "vars").glob("*.yml")} - {"main"}
    assert families == {path.stem.partition("_")[2] for path in (folder / "tasks").glob("install_*.yml")} == {"debian"}
    packages = yaml.safe_load((folder / "vars" / "debian.yml").read_text())["%s_family_packages" % role]
    words = ["dpkg", r"\bapt\b", "policy_rc_d", "start-stop-daemon", "/sbin/", "/etc/tgt", "/etc/iscsi", r"\.service\b"]
    words += [r"\b%s\b" % package for package in packages if "-" in package]
    for path in files_for_all_families(role):
        # The first says what to install by hand on another system. Units name the services of all families.
        if path.name != "system.yml" and path.suffix not in (".service", ".conf"):
            lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
            text = "\n".join(lines).replace("systemd-udev-settle.service", "").replace("bootflow-firewall.service", "")
            assert not [word for word in words if re.search(word, text)], path


def test_a_second_family_is_taken_by_its_files_alone(tmp_path: pathlib.Path) -> None:
    """In a copy of the role."""
    copy = tmp_path / "roles" / "compute_host"
    shutil.copytree(ROOT / "roles" / "compute_host", copy)
    names = yaml.safe_load((copy / "vars" / "debian.yml").read_text())
    (copy / "vars" / "redhat.yml").write_text(yaml.safe_dump({**names, "compute_host_family_packages": ["qemu-kvm"]}))
    tasks = [{"ansible.builtin.debug": {"msg": "dnf installs {{ compute_host_wanted_packages | join(' ') }}"}}]
    (copy / "tasks" / "install_redhat.yml").write_text(yaml.safe_dump(tasks))
    main = yaml.safe_load((copy / "tasks" / "main.yml").read_text())
    installs = [number for number, task in enumerate(main) if "compute_host_family_tasks" in str(task)]
    (copy / "tasks" / "main.yml").write_text(yaml.safe_dump(main[: installs[0] + 1]))
    done = play("compute_host", REFUSED["Rocky 9.6"], tmp_path, path=str(copy), part="main.yml")
    assert done.returncode == 0 and "dnf installs qemu-kvm" in done.stdout, done.stdout


def files_for_all_families(role: str) -> list[pathlib.Path]:
    folder = ROOT / "roles" / role
    found = [p for kind in ("tasks", "handlers", "templates", "files") for p in (folder / kind).glob("*")]
    return [*(p for p in found if not p.name.startswith("install_")), folder / "vars" / "main.yml"]
