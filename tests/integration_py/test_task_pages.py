# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of the pages by task (docs/index.md), typed in their order on a host of the lab: page after page, as a person would go on.

That host is the person's machine: its /etc, /var/lib and /run are private, and the person has a home of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import flow as flow_module
import pytest
from empty_hosts import empty
from flow import PLAYBOOK, ROOT, image_file

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUESTS = ("web-1", "web-2")
READY = "BOOTFLOW-GUEST-READY"

ONE_MACHINE = ("first-day", "log-in", "inventory", "replace-an-image", "backup", "upgrade", "uninstall")
A_FILE = ("apply",)
SEVERAL_HOSTS = ("several-hosts", "networks", "grow-a-disk", "service-a-host", "whatif", "audit")
# Pages whose commands are not typed here, and why.
ELSEWHERE = {
    "port-filters": "it needs a kernel that tracks connections on bridges: tests/confined_py/test_port_filters.py",
    "errors": "it has no commands",
    "ceph": "it needs a cluster: test_ceph.py",
    "operations": "test_operations.py and its neighbours run each playbook, whose instances have to be in another state each time",
    "power": "as operations: test_operations.py, test_power_sync.py, test_watch.py, test_soft_delete.py",
    "rescue-and-rebuild": "as operations: test_rescue.py, test_admin_password.py",
    "resize-and-migrate": "as operations: test_moves.py, test_resize_here.py, test_resized_disks.py; grow-a-disk types a resize",
    "live-migration": "as operations: test_live_migration.py; service-a-host migrates live",
    "rebalance": "as operations: tests/simulated_py/test_rebalance.py",
    "recovery": "as operations: test_evacuate.py, test_crash.py; service-a-host types an evacuation",
    "images": "it needs stores of images: tests/simulated_py/test_images.py, tests/unit/plugins/plugin_utils/images",
    "snapshots": "as operations, and it needs a store of images: test_snapshots.py, test_revert.py, test_stores_of_hosts.py",
    "incremental-backups": "as snapshots: test_incremental_backups.py",
    "shelve": "as snapshots: test_shelve.py",
    "ports": "its playbooks work on the ledger alone: tests/simulated_py/test_ports.py",
    "security-groups": "as port-filters; tests/simulated_py/test_security_groups.py and test_port_filters.py run its playbooks",
    "volumes": "it needs a storage host: tests/storage_py/test_volume_playbooks.py",
    "volumes-by-hand": "it needs a storage host: tests/storage_py/test_volumes_by_hand.py",
}
# Single commands that are typed in another form, and why.
INSTEAD = {
    # A folder of this machine.
    "bootflow_ledger_backup=/var/backups/": "bootflow_ledger_backup=~/",
    "install -m 600 /var/backups/": "install -m 600 ~/",
    "-i INVENTORY": "-i hosts.yml",
    "-i inventory/fleet": "-i hosts.yml",
    # A copy of the repository.
    "git+https://github.com/bootflow/bootflow.compute": "git+file://$HOME/.origin",
    # The flavor of another catalogue.
    "bootflow_whatif_flavor=m1.small": "bootflow_whatif_flavor=small",
}
NOT_TYPED = {
    "db.example.org": "it needs a PostgreSQL: tests/unit/plugins/module_utils/ledger/db/test_backup.py",
    "bootflow.compute,51acb29f": "its ledger is older: tests/unit/plugins/module_utils/ledger/migrations/test_migrations.py",
    "bootflow.compute.volume_extend": "it needs a storage host: tests/storage_py/test_volume_playbooks.py",
    "bootflow.compute.attach_interface": "it needs a second network: test_interfaces.py",
    "bootflow.compute.detach_interface": "it needs a second network: test_interfaces.py",
}


def commands(page: str) -> list[str]:
    """What a page has a person type; a block that begins with a space is a drawing."""
    found = []
    for language, block in BLOCK.findall((DOCS / (page + ".md")).read_text()):
        lines = block.splitlines()
        if language == "console":
            found += [line[2:] for line in lines if line.startswith("$ ")]
        elif language == "" and not block.startswith(" "):
            found += lines
    return found


def file_on(page: str, words: str) -> str:
    """The YAML of a page that has these words."""
    found = [block for language, block in BLOCK.findall((DOCS / (page + ".md")).read_text()) if language == "yaml"]
    (text,) = [block for block in found if words in block]
    return text


class Person:
    """Types commands on a host, in a home of their own."""

    def __init__(self, host: t.Any, home: Path, key: str):
        self.host, self.home = host, home
        (home / ".ssh").mkdir(mode=0o700)
        for name in ("id_ed25519", "id_ed25519.pub"):
            shutil.copy(key + name[len("id_ed25519") :], home / ".ssh" / name)
        (home / ".cwd").write_text("%s\n" % home)
        self.environment = {
            "HOME": str(home),
            "PATH": "%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" % Path(PLAYBOOK).parent,
            "ANSIBLE_COLLECTIONS_PATH": os.environ["PYTHONPATH"].split(os.pathsep)[0],
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_PRIVATE_KEY_FILE": str(home / ".ssh" / "id_ed25519"),  # ssh itself looks in root's home
        }

    def type(self, command: str, expect: int = 0) -> str:
        """What the command prints. The folder in which it ends is the next one's."""
        script = 'cd "$(cat ~/.cwd)"; %s\nstatus=$?; pwd >~/.cwd; exit $status' % command
        words = ["env", *("%s=%s" % pair for pair in self.environment.items()), "bash", "-c", script]
        done = subprocess.run(
            self.host.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == expect, "$ %s\n%s" % (command, done.stdout)
        return done.stdout

    def read(self, page: str, before: t.Mapping[str, t.Callable[[], object]] | None = None) -> dict[str, str]:
        """Type the commands of a page. :arg before: words of a command -> what a person does before it. Return {command: what it printed}."""
        printed: dict[str, str] = {}
        waiting = dict(before or {})
        for command in commands(page):
            for words in [w for w in waiting if w in command]:
                waiting.pop(words)()
            if any(words in command for words in NOT_TYPED):
                continue
            typed = command
            for words, others in INSTEAD.items():
                typed = typed.replace(words, others)
            printed[command] = self.type(typed)
        assert not waiting, "no command of %s has these words" % page
        return printed


def said(printed: t.Mapping[str, str], *words: str) -> str:
    """What the last command with these words printed."""
    return [text for command, text in printed.items() if all(word in command for word in words)][-1]


def repairs(audit: str) -> list[str]:
    """The lines of the audit's plan, without those of memory that a virtual machine got meanwhile, as CI's do."""
    if "nothing to repair" in audit:
        return []
    lines = audit.partition("----\n")[2].splitlines()
    return [line for line in lines if line and not re.search(r" host_facts .* memory_mb ", line)] if lines else [audit]


@pytest.fixture
def person(lab: t.Any) -> t.Iterator[Person]:
    """At compute1. The other hosts are kvm1 and kvm2, and this one is kvm3, by SSH with the lab's key."""
    here, *others = lab.hosts
    home = Path(tempfile.mkdtemp(prefix="bfpages-"))  # short: Ansible's sockets are below it
    names = dict(zip(("kvm1", "kvm2", "kvm3"), [*others, here]))
    key = (Path(lab.directory) / "ssh" / "host_ed25519.pub").read_text()
    before = here.run("cat", "/etc/hosts").stdout
    lines = "".join("%s %s\n" % (host.address, name) for name, host in names.items())
    known = "".join("%s,%s %s" % (name, host.address, key) for name, host in names.items())
    put(here, "/etc/hosts", before + lines)
    put(here, "/etc/ssh/ssh_known_hosts", known)
    made = Person(here, home, lab.private_key)
    try:
        yield made
    finally:
        put(here, "/etc/hosts", before)
        here.run("rm", "-f", "/etc/ssh/ssh_known_hosts")
        empty(lab)
        for host in lab.hosts:
            for verb in ("net-destroy", "net-undefine"):
                host.run("virsh", "-c", "qemu:///system", verb, "bootflow-nat", check=False)
        shutil.rmtree(home)


def put(host: t.Any, path: str, text: str) -> None:
    host.run("sh", "-c", 'printf "%%s" "$1" >%s' % path, "sh", text)


def insert(person: Person) -> None:
    """What differs from the reader's machine: its image is the lab's small guest, whose user is root, and guests run emulated."""
    folder = person.home / "machines"
    image = {**image_file(flow_module.build_guest_image("--ssh")), "disk_format": "qcow2", "min_disk": 1}
    variables = {
        "bootflow_images": [{**image, "name": name} for name in ("debian-12", "debian-13")],
        "bootflow_virt_type": "qemu",
        "bootflow_wait_console": READY,
    }
    (folder / "group_vars" / "all" / "lab.yml").write_text(json.dumps(variables))
    guests = folder / "guests.bootflow.yml"
    guests.write_text(
        guests.read_text().replace("'debian'\"", "'root'\"\n  ansible_python_interpreter: \"'/usr/bin/python3'\"")
    )


def take_inventory(person: Person) -> None:
    """The files of docs/inventory.md, with the ledger of the folder and the user of the lab's guest."""
    folder = person.home / "machines"
    (folder / "site.yml").write_text(file_on("inventory", "# site.yml"))
    guests = file_on("inventory", "# guests.bootflow.yml")
    guests = guests.replace("postgresql://bootflow@ledger.example.org/bootflow", "sqlite:///%s/ledger.db" % folder)
    guests = guests.replace("'debian'\"", "'root'\"\n  ansible_python_interpreter: \"'/usr/bin/python3'\"")
    (folder / "guests.bootflow.yml").write_text(guests)
    assert "ledger.example.org" not in guests and "'root'" in guests


def page_names() -> set[str]:
    table = (DOCS / "index.md").read_text().partition("## By task")[2].partition("\n## ")[0]
    return set(re.findall(r"\]\(([\w-]+)[.]md", table))


def test_each_page_by_task_is_typed_or_has_a_reason() -> None:
    assert page_names() == {*ONE_MACHINE, *A_FILE, *SEVERAL_HOSTS, *ELSEWHERE}
    typed = [command for page in (*ONE_MACHINE, *A_FILE, *SEVERAL_HOSTS) for command in commands(page)]
    for words in (*INSTEAD, *NOT_TYPED):
        assert any(words in command for command in typed), "%s stands in no page any more" % words
    assert commands("errors") == []


@pytest.mark.long
def test_a_first_day_on_one_machine_up_to_the_end_of_it(person: Person) -> None:
    first = person.read("first-day", {"bootflow.compute.prepare": lambda: insert(person)})
    assert "kvm1" in said(first, "heartbeat")
    assert "host: kvm1, addresses: 10.78.0.10" in said(first, "boot", "--check")
    assert all(re.search(r"^%s +active" % name, said(first, "list"), re.M) for name in GUESTS)
    assert said(first, "ansible.builtin.ping").count("pong") == 2
    assert READY in said(first, "console")
    assert "Deleted: web-1, web-2" in said(first, "delete")

    web = person.home / "machines" / "web.yml"
    web.write_text(web.read_text().replace("debian-13", "debian-12") + "    metadata: {role: web}\n")
    person.type("ansible-playbook bootflow.compute.boot -e @web.yml")
    login = person.read("log-in")
    assert said(login, "ansible.builtin.ping").count("pong") == 2
    assert READY in said(login, "console") and "10.78.0.10" in said(login, "show")

    take_inventory(person)
    worked = person.read("inventory")
    assert said(worked, "ansible.builtin.ping").count("pong") == 2
    assert all(re.search(r"^%s +: ok=1 .* failed=0" % name, said(worked, "site.yml"), re.M) for name in GUESTS)
    groups = person.type("ansible-inventory -i hosts.yml -i guests.bootflow.yml --graph role_web")
    assert all(name in groups for name in GUESTS), groups

    rebuilt = person.read("replace-an-image")
    assert "debian-13" in said(rebuilt, "rebuild", "--check")
    listed = person.type("ansible-playbook bootflow.compute.list")
    assert re.search(r"^web-1 .* debian-13 ", listed, re.M) and re.search(r"^web-2 .* debian-12 ", listed, re.M), listed

    restored = person.read("backup")
    assert repairs(said(restored, "audit")) == []
    (copy,) = person.home.glob("ledger-20*.db")
    copy.unlink()

    install(person)
    upgraded = person.read(
        "upgrade", {"git pull": lambda: person.type("cd ~/bootflow"), "ledger -i": lambda: person.type("cd ~/machines")}
    )
    assert (person.home / "ledger-before.db").exists()
    assert "0.9.0" in said(upgraded, "collection list")
    assert repairs(said(upgraded, "audit")) == []

    gone = person.read("uninstall", {"rm -r": lambda: person.type("cd")})
    assert "Deleted: web-1, web-2" in said(gone, "delete")
    assert sorted(p.name for p in person.home.iterdir() if not p.name.startswith(".")) == [
        "bootflow",
        "ledger-before.db",
    ]
    assert person.host.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--name").stdout.split() == []
    networks = person.host.run("virsh", "-q", "-c", "qemu:///system", "net-list", "--all", "--name").stdout.split()
    assert "bootflow-nat" not in networks
    names = person.host.run("find", "/etc", "/var/lib", "-path", "*bootflow*", "-prune", "-print").stdout.split()
    marked = person.host.run(
        "grep", "-rils", "bootflow", "/etc/lvm", "/etc/libvirt", "/etc/fstab", "/etc/tgt", check=False
    )
    assert names + marked.stdout.split() == []


@pytest.mark.long
def test_a_fleet_follows_the_file_of_the_page(person: Person) -> None:
    """docs/apply.md with its own fleet.yml, whose flavor "large" is another catalogue's."""
    person.type("ansible-playbook bootflow.compute.init -e bootflow_init_dir=~/machines")
    person.type("cd ~/machines")
    insert(person)
    person.type("ansible-playbook bootflow.compute.prepare -i hosts.yml")
    fleet = file_on("apply", "bootflow_instances:").replace("flavor: large", "flavor: small")
    (person.home / "machines" / "fleet.yml").write_text(fleet)
    applied = person.read("apply")
    planned = said(applied, "bootflow.compute.apply", "--check", "--diff")
    for name in ("web-1", "web-2", "web-3", "db"):
        assert "+ %s boot on kvm1" % name in planned, planned
    listed = person.type("ansible-playbook bootflow.compute.list -i hosts.yml")
    assert all(re.search(r"^web-%d +active .* RUNNING " % n, listed, re.M) for n in (1, 2, 3)), listed
    assert re.search(r"^db +stopped ", listed, re.M), listed
    again = person.type("ansible-playbook bootflow.compute.apply -i hosts.yml -e @fleet.yml")
    assert "nothing to do; 4 as the file has them." in again, again
    names = '{"bootflow_names": ["web-1", "web-2", "web-3", "db"]}'
    person.type("ansible-playbook bootflow.compute.delete -i hosts.yml -e %s" % shlex.quote(names))


def install(person: Person) -> None:
    """A clone with a virtual environment, and the collection beside them, as README.md has it."""
    # A copy of the repository stands for the publisher's: commits that come meanwhile are not pulled.
    person.type(
        "git config --global --add safe.directory '*'; git clone -q --bare %s ~/.origin" % shlex.quote(str(ROOT))
    )
    # The copy may be of a commit without a branch, as in scripts/on-debian.
    person.type("cd ~/.origin; git update-ref refs/heads/main HEAD; git symbolic-ref HEAD refs/heads/main; cd")
    person.type("git clone -q ~/.origin ~/bootflow")
    person.type("%s -m venv ~/bootflow-env" % shlex.quote(sys.executable))
    (site,) = (person.home / "bootflow-env").glob("lib/python*/site-packages")
    (ours,) = [path for path in sys.path if path.endswith("site-packages")]
    (site / "ours.pth").write_text(ours + "\n")  # what is installed already is not fetched again
    person.environment["PATH"] = "%s/bootflow-env/bin:%s" % (person.home, person.environment["PATH"])
    del person.environment["ANSIBLE_COLLECTIONS_PATH"]  # from here on the installed copy is the one that works
    person.type("ansible-galaxy collection install ~/bootflow")
    person.type("cd ~/machines")


@pytest.mark.long
def test_several_hosts_with_their_networks_disks_and_service(person: Person, lab: t.Any) -> None:
    began = person.read("several-hosts", {"ansible -i": lambda: insert(person)})
    assert said(began, "ansible.builtin.ping").count("pong") == 3
    assert set(re.findall(r"^(kvm\d) ", said(began, "bootflow.compute.hosts"), re.M)) == {"kvm1", "kvm2", "kvm3"}

    networks = person.read("networks")
    assert "br-guests" in said(networks, "bridge link")

    person.read("whatif")
    person.type(
        "ansible-playbook bootflow.compute.heartbeat"
    )  # the memory of a virtual machine may have grown meanwhile
    assert repairs(said(person.read("audit"), "bootflow.compute.audit", "--check")) == []

    grown = person.read("grow-a-disk")
    assert "medium" in said(grown, "resize", "--check")
    assert re.search(r"^web-1 +active .* medium ", person.type("ansible-playbook bootflow.compute.list"), re.M)

    def die() -> None:
        move = (
            "ansible-playbook bootflow.compute.live_migrate -e bootflow_names=web-1 -e bootflow_live_migrate_host=kvm1"
        )
        person.type(move)
        (kvm1, *_others) = lab.hosts[1:]
        kvm1.run("sh", "-c", "pkill -KILL qemu-system")
        kvm1.fail("network")

    def write_tasks() -> None:
        """Hosts of the lab cannot be restarted."""
        put(person.host, "/etc/bootflow-update.yml", "[{ansible.builtin.command: uptime}]")

    before = {"bootflow.compute.service": write_tasks, "bootflow_host_state=forced_down": die}
    serviced = person.read("service-a-host", before)
    assert "3 of 3 hosts done" in said(serviced, "bootflow.compute.service")
    assert "kvm1 is empty" in said(serviced, "drain"), said(serviced, "drain")
    listed = person.type("ansible-playbook bootflow.compute.list")
    assert re.search(r"^web-1 +active .* kvm[23] ", listed, re.M), listed
