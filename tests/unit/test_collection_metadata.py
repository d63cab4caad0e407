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


def test_every_requirement_is_pinned_as_the_constraints_say():
    constraints = pins("constraints.txt")
    for name in ("requirements.txt", "requirements-dev.txt"):
        wanted = pins(name)
        lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith(("#", "-r "))]
        assert len(wanted) == len(lines), "%s has a line without a pinned version" % name
        assert wanted == {package: constraints.get(package) for package in wanted}


def test_execution_environment_names_what_the_controller_needs():
    ee = (ROOT / "meta" / "ee-requirements.txt").read_text().splitlines()
    names = {re.split(r"[\[>=<]", line)[0].lower() for line in ee if line and not line.startswith("#")}
    assert names == set(pins("requirements.txt")) - {"ansible-core"}


def test_no_dependency_from_galaxy():
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text())["dependencies"] == {}
