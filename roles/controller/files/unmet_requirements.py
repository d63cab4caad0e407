# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints as JSON which of the requirements in the arguments this interpreter lacks, and what may install them.

missing   requirements that are not installed, or too old
refused   whether pip would refuse to install for this interpreter (PEP 668: it belongs to the distribution)
packages  the distribution's packages for what is missing, if pip would refuse
too_old   those of them that the distribution does not have, or not in the least version
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig


def least(requirement):
    """(name, least version) of a line like ``psycopg[binary]>=3.1``."""
    name, version = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?(?:>=([\d.]+))?", requirement.replace(" ", "")).groups()
    return name, version or "0"


def key(version):
    """What compares versions: the numbers at their beginning, without an epoch of Debian."""
    return tuple(int(number) for number in re.match(r"(?:\d+:)?([\d.]*\d)", version)[1].split("."))


def is_met(requirement):
    name, version = least(requirement)
    try:
        return key(importlib.metadata.version(name)) >= key(version)
    except importlib.metadata.PackageNotFoundError:
        return False


def pip_refuses():
    in_environment = sys.prefix != sys.base_prefix
    return not in_environment and os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))


def candidates(packages):
    """package -> the version that apt would install; without apt none."""
    try:
        policy = subprocess.run(
            ["apt-cache", "policy", *packages], check=True, stdout=subprocess.PIPE, env=dict(os.environ, LC_ALL="C")
        ).stdout.decode()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return {}
    return dict(re.findall(r"^(\S+):\n.*\n  Candidate: (\d\S*)$", policy, re.M))


def main(requirements):
    missing = [requirement for requirement in requirements if not is_met(requirement)]
    answer = {"missing": missing, "refused": pip_refuses(), "packages": [], "too_old": []}
    if missing and answer["refused"]:
        wanted = {"python3-" + least(requirement)[0].lower(): requirement for requirement in missing}
        found = candidates(list(wanted))
        answer["packages"] = list(wanted)
        answer["too_old"] = [
            "%s %s" % (package, found.get(package, "(not available)"))
            for package, requirement in wanted.items()
            if package not in found or key(found[package]) < key(least(requirement)[1])
        ]
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
