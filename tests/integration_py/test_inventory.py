# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of instances against real guests, whose network nobody reaches but their compute host."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import flow as flow_module
import pytest
import yaml

pytestmark = pytest.mark.usefixtures("lab")


@pytest.mark.long
def test_ansible_works_in_guests_behind_their_hosts(lab, tmp_path, monkeypatch):
    """The last command of the README's tour: boot, then ping what was booted, through the compute hosts."""
    monkeypatch.setenv("ANSIBLE_SHOW_CUSTOM_STATS", "true")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    flow = flow_module.Flow(lab, tmp_path, flow_module.build_guest_image("--ssh"))
    flow.variables["bootflow_keypairs"] = [{"name": "ops", "public_key": key.with_suffix(".pub").read_text().strip()}]
    entry = {"name": "web", "flavor": "tiny", "image": "guest", "networks": [{"network": "guests"}], "key_name": "ops"}
    (image,) = flow.variables["bootflow_images"]
    image["properties"] = {"hw_qemu_guest_agent": "yes"}
    try:
        booted = flow.boot(
            {**entry, "max_count": 2}, bootflow_wait_console="BOOTFLOW-GUEST-READY", bootflow_wait_agent=True
        )
        for run in (booted, flow.run("list")):  # what AWX hands to the next job of a workflow
            told = json.loads(run.output.partition("RUN: ")[2].partition("\n\n")[0])["bootflow_guests"]
            assert [(guest["name"], guest["vm_state"], len(guest["addresses"])) for guest in told] == [
                ("web-1", "active", 1),
                ("web-2", "active", 1),
            ]
        guests = tmp_path / "guests.bootflow.yml"
        guests.write_text(
            yaml.safe_dump(
                {
                    "plugin": "bootflow.compute.instances",
                    "ledger_url": flow.variables["bootflow_ledger_url"],
                    "via": "jump",
                    "compose": {
                        "ansible_user": "'root'",
                        "ansible_ssh_private_key_file": "'%s'" % key,
                        "ansible_python_interpreter": "'/usr/bin/python3'",
                        "ansible_ssh_extra_args": "'-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR'",
                    },
                }
            )
        )
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "ansible"),
                *("-i", lab.inventory, "-i", str(guests), "instances", "-m", "ansible.builtin.ping"),
                *("-e", '{"ansible_host_key_checking": false}'),
            ],
            env=flow.environment(ANSIBLE_TIMEOUT="60"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count('"ping": "pong"') == 2 and "web-1 | SUCCESS" in done.stdout, done.stdout
        assert "UNREACHABLE" not in done.stdout and "WARNING" not in done.stderr, done.stderr

        guests.write_text(yaml.safe_dump({**yaml.safe_load(guests.read_text()), "via": "agent", "compose": {}}))
        with _known_hosts_kept():
            for name in ("web-1", "web-2"):
                assert _name_by_the_agent(flow, lab, guests, name) == name
    finally:
        flow.delete("web-1", "web-2")


def test_a_folder_of_init_boots_and_works_in_guests_whose_host_keys_are_known(lab, tmp_path):
    """In one command, as docs/inventory.md has it. Nothing is asked and nothing ignored: a guest with another key is refused."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    flow = flow_module.Flow(lab, tmp_path, flow_module.build_guest_image("--ssh"))
    folder = tmp_path / "mine"
    # What a person with another image and another network changes in the catalogue.
    (image,) = flow.variables["bootflow_images"]
    given = {
        "bootflow_virt_type": "qemu",
        "bootflow_flavors": [{**flow_module.FLAVORS[0], "name": "small"}],
        "bootflow_images": [{**image, "name": "debian-13"}],
        "bootflow_networks": [{**flow_module.GUEST_NETWORK, "name": "nat"}],
        "bootflow_wait_console": "BOOTFLOW-GUEST-READY",
    }
    (tmp_path / "given.json").write_text(json.dumps(given))

    def run(program: str, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(Path(sys.executable).parent / program), *words],
            env=flow.environment(ANSIBLE_TIMEOUT="60", ANSIBLE_HOST_KEY_CHECKING="true"),
            cwd=folder if folder.exists() else tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    with_key = ("-e", "bootflow_init_public_key=%s.pub" % key)
    done = run("ansible-playbook", "bootflow.compute.init", "-e", "bootflow_init_dir=%s" % folder, *with_key)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(lab.inventory, folder / "hosts.yml")
    guests = folder / "guests.bootflow.yml"
    login = (
        "'root'\"\n  ansible_ssh_private_key_file: \"'%s'\"\n  ansible_python_interpreter: \"'/usr/bin/python3'" % key
    )
    assert "'debian'" in guests.read_text()
    guests.write_text(guests.read_text().replace("'debian'", login))
    more = ("-e", "@web.yml", "-e", "@%s" % (tmp_path / "given.json"))
    try:
        done = run("ansible-playbook", "site.yml", *more)
        assert done.returncode == 0, done.stdout + done.stderr
        for name in ("web-1", "web-2"):
            assert "%s calls itself %s" % (name, name) in done.stdout, done.stdout
        ping = run("ansible", "instances", "-m", "ansible.builtin.ping")
        assert ping.returncode == 0 and ping.stdout.count("pong") == 2, ping.stdout + ping.stderr
        other = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        ledger = sqlite3.connect(folder / "ledger.db")
        ledger.execute("UPDATE instances SET ssh_host_key = ? WHERE display_name = 'web-1'", (other,))
        ledger.commit()
        ledger.close()
        # A new connection: the one that Ansible keeps was let in before.
        anew = {"ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none", "ansible_ssh_retries": 0}
        refused = run("ansible", "instances", "-m", "ansible.builtin.ping", "-e", json.dumps(anew))
        said = refused.stdout + refused.stderr
        assert refused.returncode and said.count("pong") == 1, said
        assert "Host key verification failed" in said, said
    finally:
        run("ansible-playbook", "bootflow.compute.delete", *more, "-e", '{"bootflow_names": ["web-1", "web-2"]}')


@contextlib.contextmanager
def _known_hosts_kept() -> t.Iterator[None]:
    """libvirt has ssh add the hosts that it does not check."""
    known = Path("~/.ssh/known_hosts").expanduser()
    before = known.read_bytes() if known.exists() else None
    try:
        yield
    finally:
        if before is not None:
            known.write_bytes(before)
        elif known.exists():
            known.unlink()


def _name_by_the_agent(flow, lab, inventory: Path, guest: str) -> str:
    """The host name that a guest gives when it is asked through its agent, from here, with nothing but the inventory's variables.

    With what the connection community.libvirt.libvirt_qemu is given and the commands that it uses.
    """
    ways = inventory.parent / "ways.yml"
    words = "way: {{ ansible_connection }} {{ ansible_libvirt_uri }} {{ ansible_host }}"
    task = {"ansible.builtin.debug": {"msg": words}, "delegate_to": "localhost"}  # which connects to nothing
    ways.write_text(yaml.safe_dump([{"hosts": guest, "gather_facts": False, "tasks": [task]}]))
    told = _output(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", lab.inventory, "-i", str(inventory), str(ways)]
        + ["-e", '{"ansible_host_key_checking": false}'],
        env=flow.environment(),
        cwd=inventory.parent,
    )
    connection, uri, domain = re.findall(r'way: (\S+) (\S+) ([^"\s]+)', told)[0]
    assert connection == "community.libvirt.libvirt_qemu"
    assert uri.startswith("qemu+ssh://root@")

    def ask(execute: str, **arguments: object) -> dict:
        command = {"execute": execute, "arguments": arguments}
        return json.loads(_output(["virsh", "-c", uri, "qemu-agent-command", domain, json.dumps(command)]))["return"]

    process = ask("guest-exec", path="/bin/hostname", **{"capture-output": True})
    for _try in range(100):
        done = ask("guest-exec-status", pid=process["pid"])
        if done["exited"]:
            return base64.b64decode(done["out-data"]).decode().strip()
        time.sleep(0.1)
    raise AssertionError("the command in %s does not end: %s" % (guest, done))


def _output(command: list[str], **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
