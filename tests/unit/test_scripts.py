# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scripts run on Debian 12 and on Debian 13: they ask the suite for names that differ, and have none of one suite."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: A release of Python or of a library in the name of a package or folder: python3.11-minimal, libssl3, libglib2.0-0t64, liburing2.
OF_ONE_SUITE = re.compile(r"\bpython3\.\d+|\blib[a-z]+[\d.]*\d(?:-\d+)?(?:t64)?(?=[\s)\"'\\]|$)")
BY_ALL = {"libc6"}  # of the name of the ABI, which does not change


@pytest.mark.parametrize("script", ["build-guest-image", "build-storage-image", "demo", "lib.sh"])
def test_a_script_names_nothing_that_only_one_suite_has(script):
    lines = (ROOT / "scripts" / script).read_text().splitlines()
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    assert set(OF_ONE_SUITE.findall(code)) - BY_ALL == set()


def test_the_packages_of_a_host_are_the_role_s():
    text = (ROOT / "roles" / "compute_host" / "vars" / "debian.yml").read_text()
    command = '. "$1"; printf "%s\\n" "${PACKAGES_HOST[@]}"'
    found = subprocess.run(
        ["bash", "-c", command, "bash", str(ROOT / "scripts" / "lib.sh")], check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == yaml.safe_load(text)["compute_host_family_packages"]
