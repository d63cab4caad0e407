# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scripts run on Debian 12 and on Debian 13: they ask the suite for names that differ, and have none of one suite."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

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


@pytest.mark.slow
def test_an_older_copy_of_the_collection_at_home_is_not_the_one_that_runs(tmp_path):
    """Ansible takes ~/.ansible/collections before the virtual environment; the clone's own is installed in that."""
    clone, home, venv = tmp_path / "clone", tmp_path / "home", tmp_path / "venv"
    older = home / ".ansible" / "collections" / "ansible_collections" / "bootflow" / "compute"
    for folder, said in ((clone, "of the clone"), (older, "an older one")):
        play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": said}}]}
        (folder / "playbooks").mkdir(parents=True)
        (folder / "playbooks" / "where.yml").write_text(json.dumps([play]))
        galaxy = {
            "namespace": "bootflow",
            "name": "compute",
            "version": "0.0.1",
            "readme": "README.md",
            "authors": [""],
        }
        (folder / "galaxy.yml").write_text(json.dumps(galaxy))
        (folder / "README.md").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    for name in ("ansible-galaxy", "ansible-playbook"):
        (venv / "bin" / name).symlink_to(pathlib.Path(sys.executable).parent / name)
    command = '. "$1" && ROOT=$2 && cd "$2" && install_collection && exec ansible-playbook -i localhost, bootflow.compute.where'
    argv = ["bash", "-euo", "pipefail", "-c", command, "bash", str(ROOT / "scripts" / "lib.sh"), str(clone)]
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "BOOTFLOW_VENV": str(venv)}
    env["BOOTFLOW_CACHE"] = str(tmp_path / "cache")
    for times in ("it is installed", "it is there already"):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "of the clone" in done.stdout and "an older one" not in done.stdout, times


def test_the_demo_runs_its_playbooks_after_that():
    """Nothing of Ansible's is run before the copy that it takes is named."""
    lines = (ROOT / "scripts" / "demo").read_text().splitlines()
    installed = lines.index("install_collection")
    begin = [number for number, line in enumerate(lines) if re.match(r" *play [a-z]", line)]
    assert begin and min(begin) > installed
