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

try:
    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion, Version
except ImportError:  # an interpreter without ansible-core, which depends on it
    try:
        from pip._vendor.packaging.requirements import Requirement
        from pip._vendor.packaging.version import InvalidVersion, Version
    except ImportError:
        sys.exit("%s has neither the library packaging nor pip: install python3-packaging" % sys.executable)


def of_debian(version):
    """The version of a library in the version of its package: without epoch, revision and what Debian adds (+ds1)."""
    upstream = version.rpartition(":")[2].rpartition("-")[0] or version.rpartition(":")[2]
    upstream = re.sub(r"\+.*", "", upstream).replace("~", "")
    try:
        return Version(upstream)
    except InvalidVersion:
        numbers = re.match(r"\d+(?:\.\d+)*", upstream)
        return Version(numbers[0] if numbers else "0")


def is_met(requirement):
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


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


def main(lines):
    wanted = {line: Requirement(line) for line in lines}
    missing = [
        line for line, each in wanted.items() if (each.marker is None or each.marker.evaluate()) and not is_met(each)
    ]
    answer = {"missing": missing, "refused": pip_refuses(), "packages": [], "too_old": []}
    if missing and answer["refused"]:
        of_package = {"python3-" + wanted[line].name.lower(): wanted[line] for line in missing}
        found = candidates(list(of_package))
        answer["packages"] = list(of_package)
        answer["too_old"] = [
            "%s %s" % (package, found.get(package, "(not available)"))
            for package, each in of_package.items()
            if package not in found or not each.specifier.contains(of_debian(found[package]), prereleases=True)
        ]
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
