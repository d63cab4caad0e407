# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A person with a freshly installed Debian server types the commands of README.md, and sees the guests, also the second time."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import machine as machine_module
import pytest
import readme
from machine import Machine

ROOT = Path(__file__).resolve().parents[2]
DEMO = "scripts/demo"
PROFILE = re.compile(r"libvirt-[0-9a-f-]{36} \(enforce\)")


@pytest.fixture(scope="module")
def printed(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """command -> what it printed."""
    folder = tmp_path_factory.mktemp("typed")
    bundle = folder / "repository.bundle"
    subprocess.run(["git", "-C", str(ROOT), "bundle", "create", "-q", str(bundle), "HEAD"], check=True)
    machine.put(bundle.read_bytes(), "/srv/repository.bundle")
    for name, content in {**readme.files(), ".gitconfig": readme.gitconfig("/srv/repository.bundle")}.items():
        machine.put(content.encode(), "/root/" + name)
    machine.put(readme.script(again=[DEMO]).encode(), "/root/script")
    ours = " ".join("%s=%s" % (k, shlex.quote(v)) for k, v in machine_module.environment().items())
    with open(folder / "output", "w+b") as output:
        done = machine.run("cd /root && env %s bash -e script" % ours, check=False, timeout=7200, output=output)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    sys.stdout.write(text)
    assert done.returncode == 0, text[-6000:] + machine.said()
    return {**readme.parts(text), "all": text}


def test_it_is_a_server_of_its_own(machine: Machine) -> None:
    assert machine.run("cat /proc/1/comm").stdout.strip() == "systemd"
    assert machine.run("cat /sys/module/apparmor/parameters/enabled").stdout.strip() == "Y"
    assert machine.run("command -v python3 virsh qemu-system-x86_64 ansible", check=False).stdout == ""


def test_the_readme_does_what_it_says(printed: dict[str, str]) -> None:
    readme.check_tour(printed)


def test_the_demo_boots_guests_and_changes_nothing_the_second_time(printed: dict[str, str]) -> None:
    parts = re.split(r"^\$ %s$" % re.escape(DEMO), printed["all"], flags=re.M)[1:]
    first, second = (part.partition("\n$ ")[0] for part in parts)  # up to the next command
    for text in (first, second):
        assert re.search(r"web-1 +active", text) and re.search(r"web-2 +active", text), text
        assert text.count('"ping": "pong"') == 2, text
    assert "Nothing was changed" not in first and "Nothing was changed" in second


# docs/first-day.md, with the demo's guest as an image of one's own: its user is root, and it runs emulated.
FIRST_DAY = r"""
. ~/bootflow/.venv/bin/activate
[ -e ~/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/id_ed25519
ansible-playbook bootflow.compute.init -e bootflow_init_dir=~/machines
cd ~/machines
mkdir -p /srv/images
cp /root/bootflow/.cache/guest/bootflow-guest-ssh.qcow2 /srv/images/mine.qcow2
cat >group_vars/all/mine.yml <<YAML
bootflow_images:
  - {name: mine, path: /srv/images/mine.qcow2, disk_format: qcow2, min_disk: 1, checksum: "sha256:$(sha256sum /srv/images/mine.qcow2 | cut -d' ' -f1)"}
bootflow_wait_console: BOOTFLOW-GUEST-READY
YAML
sed -i 's/debian-13/mine/' web.yml
sed -i "s|'debian'\"|'root'\"\n  ansible_python_interpreter: \"'/usr/bin/python3'\"|" guests.bootflow.yml
ansible-playbook bootflow.compute.prepare
ansible-playbook site.yml -e @web.yml
ansible-playbook bootflow.compute.list
ansible-playbook bootflow.compute.delete -e '{"bootflow_names": ["web-1", "web-2"]}'
"""


@pytest.mark.usefixtures("printed")
def test_a_folder_of_ones_own_with_an_image_of_ones_own(machine: Machine) -> None:
    """site.yml boots and works in the guests in one command."""
    machine.put(FIRST_DAY.encode(), "/root/first-day")
    said = machine.run("bash -ex /root/first-day", timeout=5400).stdout
    sys.stdout.write(said)
    listed = said.rpartition("+ ansible-playbook bootflow.compute.list")[2]
    for name in ("web-1", "web-2"):
        assert re.search(r"^%s +: ok=[1-9].* unreachable=0 +failed=0" % name, said, re.M), said
        assert re.search(r"^%s +active" % name, listed, re.M), said
    assert "Deleted: web-1, web-2" in said


@pytest.mark.usefixtures("printed")
def test_guests_are_confined_as_the_machine_has_it(machine: Machine) -> None:
    again = (
        "cd bootflow && . .venv/bin/activate && ansible-playbook bootflow.compute.boot -i inventory/single -e @web.yml"
    )
    machine.run("cp web.yml bootflow/ && " + again, timeout=1800)
    pids = machine.run("pidof qemu-system-x86_64").stdout.split()
    assert len(pids) == 2
    for pid in pids:
        assert PROFILE.fullmatch(machine.run("cat /proc/%s/attr/current" % pid).stdout.strip("\0\n"))
        assert machine.run("stat -c %%U /proc/%s" % pid).stdout.strip() == "libvirt-qemu"
    assert machine.run("systemctl --failed --no-legend --plain").stdout.strip() == ""
    denied = machine.run("journalctl -k -g 'apparmor=.DENIED' --no-pager -o cat || true").stdout
    assert "libvirt" not in denied, denied
