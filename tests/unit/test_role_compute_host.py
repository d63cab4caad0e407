# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QEMU without confinement: only where no guest starts otherwise, and the administrator allows it.

The tasks of the role run in a mount namespace with an /etc/libvirt of its own, and programs that stand in for libvirt's: a guest
starts if the file ``works`` is there, or if qemu.conf lets QEMU run as root. What a file of ``once`` says is done once
instead of the command with the file's name.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from lxml import etree

pytestmark = pytest.mark.slow

STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >>%(calls)s
for word in $(ls %(once)s); do
    case "${0##*/} $*" in *"$word"*) instead=$(cat "%(once)s/$word"); rm "%(once)s/$word"; eval "$instead" ;; esac
done
case "${0##*/} $*" in
    start-stop-daemon*--status*) exit 0 ;;
    virsh*create*)
        cat "$(printf '%%s\n' "$@" | grep '^/')" >%(guest)s
        [ -e %(works)s ] || grep -q 'user = "root"' /etc/libvirt/qemu.conf || { echo "no cgroups" >&2; exit 1; } ;;
esac
"""
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(pathlib.Path(__file__).resolve().parents[2] / "roles/compute_host/vars/debian.yml")],
        "tasks": [
            {
                "ansible.builtin.include_role": {
                    "name": "bootflow.compute.compute_host",
                    "tasks_from": "{{ part }}",
                    "rolespec_validate": False,
                },
                "vars": {"ansible_become": False},
            }
        ],
    }
]
OWN = '# the host\'s own\nuser = "libvirt-qemu"\n'


class Host:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.works, self.calls, self.conf = folder / "works", folder / "calls", folder / "etc" / "qemu.conf"
        self.once = folder / "once"
        self.once.mkdir()
        self.instances = folder / "instances & more"
        self.instances.mkdir()
        (folder / "bin").mkdir()
        for name, mode in (("run", 0o755), ("run/lock", 0o1777), ("run/libvirt", 0o755)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        for name in ("virsh", "virtlogd", "libvirtd", "start-stop-daemon"):
            program = folder / "bin" / name
            places = {"calls": self.calls, "works": self.works, "once": self.once, "guest": folder / "guest.xml"}
            program.write_text(STAND_IN % places)
            program.chmod(0o755)
        self.conf.parent.mkdir()
        self.conf.write_text(OWN)
        (folder / "play.yml").write_text(json.dumps(PLAY))

    def role(self, part: str = "without_systemd.yml", **variables: object) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        command = 'mount --bind "$1/etc" /etc/libvirt && mount --bind "$1/run" /run && shift && exec "$@"'
        given = {**variables, "part": part, "ansible_python_interpreter": sys.executable}
        given["compute_host_instances_path"] = str(self.instances)
        play = ["ansible-playbook", "-i", "localhost,", str(self.folder / "play.yml"), "-e", json.dumps(given)]
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", command, "sh", str(self.folder), *play],
            env={**os.environ, "PATH": "%s:%s" % (self.folder / "bin", os.environ["PATH"])},
            capture_output=True,
            text=True,
            check=False,
        )

    def stopped(self) -> bool:
        return "--stop" in self.calls.read_text()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    os.makedirs("/etc/libvirt", exist_ok=True)
    return Host(tmp_path)


@pytest.mark.parametrize("allowed", [True, False])
def test_where_a_guest_starts_the_host_s_own_settings_stay(host: Host, allowed: bool) -> None:
    host.works.touch()
    done = host.role(compute_host_qemu_unconfined=allowed)
    assert done.returncode == 0, done.stdout
    assert host.conf.read_text() == OWN and not host.stopped() and "changed=0" in done.stdout


def test_without_leave_a_host_where_no_guest_starts_is_refused(host: Host) -> None:
    done = host.role()
    assert done.returncode != 0 and "no cgroups" in done.stdout
    assert "compute_host_qemu_unconfined: true" in done.stdout and host.conf.read_text() == OWN


def test_with_leave_it_is_done_by_name_and_taken_back(host: Host) -> None:
    done = host.role(compute_host_qemu_unconfined=True)
    assert done.returncode == 0, done.stdout
    assert "Write user root, security driver none, no cgroups and no namespaces to qemu.conf" in done.stdout
    assert host.stopped() and 'security_driver = "none"' in host.conf.read_text()
    again = host.role(compute_host_qemu_unconfined=True)
    assert again.returncode == 0 and "changed=0" in again.stdout and not host.stopped()
    host.works.touch()
    assert host.role().returncode == 0 and host.conf.read_text() == OWN and host.stopped()


def test_a_guest_that_does_not_start_once_changes_nothing(host: Host) -> None:
    host.works.touch()
    (host.once / "create").write_text("exit 1")
    done = host.role(compute_host_qemu_unconfined=True)
    assert done.returncode == 0, done.stdout
    assert host.conf.read_text() == OWN and not host.stopped() and "changed=0" in done.stdout
    assert host.calls.read_text().count("create") == 2


def test_daemons_that_another_run_starts(host: Host) -> None:
    host.works.touch()
    (host.once / "virtlogd.pid").write_text("exit 4")  # a file without a number yet
    (host.once / "libvirtd.pid").write_text("exit 3")
    (host.once / "--daemon").write_text("echo libvirtd: error: Unable to obtain pidfile. >&2; exit 1")
    done = host.role()
    assert done.returncode == 0, done.stdout


def test_the_guest_has_a_layer_in_the_directory_for_instances(host: Host) -> None:
    """A guest without a disk starts where none of an image does: QEMU may not pass to the directory, or not read the base image."""
    host.works.touch()
    done = host.role()
    assert done.returncode == 0, done.stdout
    disk = etree.parse(str(host.folder / "guest.xml")).find("devices/disk")
    layer, base = disk.find("source").get("file"), disk.find("backingStore/source").get("file")
    assert layer.startswith(str(host.instances) + "/") and layer.endswith("/disk")
    assert base.startswith(str(host.instances) + "/") and base.endswith(".raw")
    assert [path.name for path in host.instances.iterdir()] == ["_probe"] and not list(host.instances.rglob("try-*"))


def test_where_systemd_runs_a_host_without_a_guest_is_refused_in_words(host: Host) -> None:
    done = host.role("with_systemd.yml")
    assert done.returncode != 0 and "no cgroups" in done.stdout and "chmod o+x" in done.stdout
    host.works.touch()
    done = host.role("with_systemd.yml")
    assert done.returncode == 0 and "changed=0" in done.stdout, done.stdout
