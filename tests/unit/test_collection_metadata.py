# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lists that have to be kept in step by hand are in step."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return {
        re.sub(r"[-_.]+", "-", match[1]).lower(): match[2]
        for match in (re.match(r"([A-Za-z0-9_.-]+)(?:\[\w+\])?==(\S+)$", line) for line in lines)
        if match
    }


def test_action_group_has_every_module():
    modules = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py") if path.stem != "__init__")
    groups = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
    assert groups["bootflow"] == modules


def requirements(name):
    """Lines of the file, without comments and references to other files."""
    return [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith(("#", "-r "))]


def test_every_requirement_is_pinned_as_the_constraints_say():
    constraints = pins("constraints.txt")
    wanted = pins("requirements-dev.txt")
    assert len(wanted) == len(requirements("requirements-dev.txt")), "a line has no pinned version"
    assert wanted == {package: constraints.get(package) for package in wanted}


def test_every_requirement_has_a_least_version_and_the_tests_run_with_a_later_one():
    constraints = pins("constraints.txt")
    for line in requirements("requirements.txt"):
        name, least = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line).groups()
        numbers = [[int(n) for n in version.split(".")] for version in (least, constraints[name.lower()])]
        assert numbers[0] <= numbers[1], line


def test_one_list_of_requirements():
    """Pip, the execution environment and the role controller read the same file; its least version of ansible-core is the collection's."""
    environment = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text())
    assert environment["dependencies"]["python"] == "requirements.txt"
    role = yaml.safe_load((ROOT / "roles" / "controller" / "defaults" / "main.yml").read_text())
    assert "requirements.txt" in role["controller_requirements"]
    requires = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["requires_ansible"]
    assert requires == "".join(requirements("requirements.txt")[0].partition(">=")[1:])
    assert "ansible-core" in requirements("requirements.txt")[0]


def test_no_dependency_from_galaxy():
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text())["dependencies"] == {}


def test_one_function_starts_the_programs_of_hosts_and_one_those_that_listen_to_them():
    starts = re.compile(
        r"\bsubprocess\.(Popen|run|call|check_call|check_output)\(|\bos\.(system|popen|spawn\w*|posix_spawn)\("
    )
    found = [path for path in (ROOT / "plugins").rglob("*.py") if starts.search(path.read_text())]
    names = sorted(path.relative_to(ROOT / "plugins").as_posix() for path in found)
    # What listens on a host imports nothing of ours, and asks systemd itself; syncs.py starts ansible-playbook on the controller.
    assert names == [
        "module_utils/hosts/libvirt/listener.py",
        "module_utils/hosts/os/command.py",
        "plugin_utils/listening.py",
        "plugin_utils/syncs.py",
    ]
