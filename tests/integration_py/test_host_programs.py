# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From their second use on modules go to hosts as programs without Ansible's library, whatever the way to the host is.

scripts/test dependencies runs these tests with the oldest and the newest ansible-core, too.
"""

from __future__ import annotations

import shlex
import typing as t
from pathlib import Path

import pytest
from flow import Flow, entry

PROGRAM = "(without AnsiballZ)"
USER, PASSWORD, PORT = "deployer", "root-of-the-lab", 2222
SSHD = """
Port {port}
HostKey /etc/ssh/lab_host
AuthorizedKeysFile /etc/ssh/lab_keys
PidFile /run/sshd-users.pid
StrictModes no
UsePAM no
UseDNS no
AcceptEnv LC_*
"""  # and no sftp
PREPARED = """
set -e
useradd --create-home --home-dir /var/lib/{user} --shell /bin/sh {user}
chmod 700 /var/lib/{user}
echo '{user}:*' | chpasswd -e
echo 'root:{password}' | chpasswd
install -m 600 {ssh}/host_ed25519 /etc/ssh/lab_host
install -m 644 {ssh}/id_ed25519.pub /etc/ssh/lab_keys
echo {sshd} > /etc/ssh/lab_users
/usr/sbin/sshd -f /etc/ssh/lab_users
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def packed(flow: Flow, monkeypatch: pytest.MonkeyPatch, home: Path) -> Flow:
    """The modules of a report and a boot have been used before."""
    monkeypatch.setenv("ANSIBLE_HOME", str(home))
    if not any(home.iterdir()):
        flow.boot(entry("before"))
        flow.delete("before")
    return flow


@pytest.fixture
def users(lab) -> t.Iterator[dict[str, t.Any]]:
    """How to reach the hosts as a user who is not root, and becomes root with a password; there is no sftp for this user."""
    sshd = SSHD.format(port=PORT)
    ssh = Path(lab.private_key).parent
    script = PREPARED.format(user=USER, password=PASSWORD, ssh=ssh, sshd=shlex.quote(sshd))
    try:
        for host in lab.hosts:
            host.run("sh", "-c", script)
        yield {
            "ansible_user": USER,
            "ansible_port": PORT,
            "ansible_become": True,
            "ansible_become_method": "su",
            "ansible_become_password": PASSWORD,
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o SetEnv=LC_ALL=tlh_QX.UTF-8",
        }
    finally:
        for host in lab.hosts:
            host.run("sh", "-c", "kill $(cat /run/sshd-users.pid); userdel --force --remove %s; true" % USER)


@pytest.mark.parametrize("method", ["sftp", "scp", "piped"])
def test_each_way_of_copying_a_program_works(packed: Flow, method: str) -> None:
    """Without pipelining, which is Ansible's default, the program is a file on the host."""
    packed.run("ledger")
    done = packed.run("heartbeat", "-vvv", ansible_pipelining=False, ansible_ssh_transfer_method=method)
    assert done.returncode == 0 and "did not report" not in done.output, done.output
    assert done.output.count(PROGRAM) == 3, "one for each host"


def _ansible_files(flow: Flow) -> list[str]:
    """The folders that Ansible has on the hosts. Runs that other tests killed left some."""
    return [
        host.run("find", "/root/.ansible", "/var/lib/" + USER, "-name", "ansible-tmp-*").stdout
        for host in flow.lab.hosts
    ]


@pytest.mark.long
@pytest.mark.parametrize("pipelining", [True, False])
def test_a_user_who_becomes_root_boots(packed: Flow, users: dict[str, t.Any], pipelining: bool) -> None:
    """SSH hands a locale on that the hosts do not have. The image, which no host has, is the controller's file, and no copy of it stays.

    Nor does one that a killed run left days ago.
    """
    dead = "/var/lib/%s/.ansible/tmp/ansible-tmp-1/image-dead" % USER
    leave = 'mkdir -p "$(dirname {0})" && touch --date "3 days ago" {0} && chown -R {1} "/var/lib/{1}/.ansible"'
    for host in packed.lab.hosts:
        host.run("rm", "-rf", "/var/lib/bootflow/instances/_base")
        host.run("sh", "-c", leave.format(dead, USER))
    before = _ansible_files(packed)
    done = packed.boot(entry("web"), options=("-vvv",), ansible_pipelining=pipelining, **users)
    assert "instance_build goes to the host as a program" in done.output
    (instance,) = packed.instances().values()
    assert instance["vm_state"] == "active"
    assert "copying image guest" in done.output
    assert _ansible_files(packed) == before
    assert packed.lab.host(instance["host"]).run("test", "-e", dead, check=False).returncode == 1
    packed.delete("web", ansible_pipelining=pipelining, **users)
    assert not packed.residue()


def test_kept_files_that_are_damaged_are_made_again(packed: Flow, home: Path) -> None:
    """As by a power failure."""
    packed.run("ledger")
    kept = list(home.glob("bootflow-modules/*/*"))
    assert len(kept) >= 4  # more where other tests used more modules
    for path in kept:
        path.write_bytes(path.read_bytes()[:-1000])
    for programs in (0, 3):
        done = packed.run("heartbeat", "-vvv")
        assert done.returncode == 0 and "did not report" not in done.output, done.output
        assert done.output.count(PROGRAM) == programs
