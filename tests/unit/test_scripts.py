# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scripts run on Debian 12 and on Debian 13: they ask the suite for names that differ, and have none of one suite."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: A release of Python or of a library in the name of a package or folder: python3.11-minimal, libssl3, libglib2.0-0t64, liburing2.
OF_ONE_SUITE = re.compile(r"\bpython3\.\d+|\blib[a-z]+[\d.]*\d(?:-\d+)?(?:t64)?(?=[\s)\"'\\]|$)")
BY_ALL = {"libc6"}  # of the name of the ABI, which does not change


@pytest.mark.parametrize("script", ["build-guest-image", "build-storage-image", "demo", "lib.sh", "on-debian", "test"])
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


DEB822 = """Types: deb
URIs: http://mirror.test/debian
Suites: %(suite)s %(suite)s-updates
Components: main

Types: deb
URIs: http://mirror.test/debian-security
Suites: %(suite)s-security
Components: main
"""
LINES = (
    "deb http://mirror.test/debian/ %(suite)s main\ndeb http://mirror.test/debian-security %(suite)s-security main\n"
)
OTHERS = {
    "sources.list.d/cloud.list": "deb http://packages.test/apt cloud-sdk-bookworm main\ndeb http://packages.test/x trixie main\n"
}
STAND_IN = """#!/bin/sh
for file; do case $file in *.list | *.sources) cat "$file" ;; esac; done >"$SEEN"
exit 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["bookworm", "trixie"])
@pytest.mark.parametrize(
    "own, files, text",
    [
        ("bookworm", {"sources.list.d/debian.sources": DEB822 % {"suite": "bookworm"}}, DEB822),
        ("trixie", {"sources.list.d/debian.sources": DEB822 % {"suite": "trixie"}}, DEB822),
        ("bookworm", {"sources.list": LINES % {"suite": "bookworm"}}, LINES),
        ("trixie", {"sources.list.d/a.list": LINES % {"suite": "trixie"}}, LINES),
        ("trixie", {"sources.list.d/%s.list" % n: LINES % {"suite": n} for n in ("bookworm", "trixie")}, LINES),
        ("noble", {"sources.list": "deb http://mirror.test/ubuntu noble main\n"}, None),
    ],
)
def test_an_image_is_of_the_wanted_suite_from_the_machine_s_own_mirror(tmp_path, wanted, own, files, text):
    """SUITE: the machine's own sources, with the suite's name where none has it; not those of others than Debian."""
    for name, content in {**files, **OTHERS}.items():
        path = tmp_path / "apt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "os-release").write_text("VERSION_CODENAME=%s\n" % own)
    (tmp_path / "bin").mkdir()
    for name, content in {"mmdebstrap": STAND_IN, "dpkg": "#!/bin/sh\necho amd64\n"}.items():
        (tmp_path / "bin" / name).write_text(content)
        (tmp_path / "bin" / name).chmod(0o755)
    command = 'mount --bind "$1/apt" /etc/apt && mount --bind "$1/os-release" /etc/os-release && exec "$2" "$1/cache"'
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command, "bash", str(tmp_path), str(ROOT / "scripts" / "build-storage-image")],
        env={
            **os.environ,
            "PATH": "%s:%s" % (tmp_path / "bin", os.environ["PATH"]),
            "SEEN": str(tmp_path / "seen"),
            "SUITE": wanted,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    if text is None:
        assert "no file of /etc/apt names Debian's %s" % wanted in done.stderr
        return
    seen = (tmp_path / "seen").read_text()
    assert text % {"suite": wanted} in seen and "packages.test" not in seen and "mirror.test/ubuntu" not in seen, (
        done.stderr
    )
