# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of instances, as ansible-inventory and ansible read it from a ledger."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import typing as t

import pytest
import yaml

from ansible_collections.bootflow.compute.plugins.inventory.instances import FIELDS
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.inventory_names import objection
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings import table
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network, subnet

pytestmark = pytest.mark.slow

COLLECTIONS = pathlib.Path(__file__).absolute().parents[6]  # as it is imported: the folder of ansible_collections

HERE = {"ansible_connection": "'local'", "ansible_python_interpreter": repr(sys.executable)}
TWO = network(2, subnet(2), subnet(3, cidr="fd00:3::/64", pool=("fd00:3::10", "fd00:3::99")))


ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")},
    "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    "ANSIBLE_NOCOLOR": "1",
    "LC_ALL": "C.UTF-8",
}
# As ansible-playbook reads inventories and the variables of a task; several in one process, which is 30 times quicker.
READ = """
import json, sys
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

init_plugin_loader()
answers = []
for sources in json.load(sys.stdin):
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=sources)
    manager = VariableManager(loader, inventory)
    hostvars = HostVars(inventory, manager, loader)
    hosts = {}
    for host in inventory.get_hosts():
        templar = Templar(loader, variables={**manager.get_vars(host=host), "hostvars": hostvars})
        hosts[host.name] = {name: templar.template(value) for name, value in host.vars.items()}
    groups = {name: [h.name for h in group.hosts] for name, group in inventory.groups.items()}
    answers.append({"hosts": hosts, "groups": groups})
print(json.dumps(answers))
"""


class Reader:
    """Ansible over files of the plugin, beside another inventory."""

    def __init__(self, folder: pathlib.Path, url: str):
        self.folder = folder
        self.url = url

    def files(self, name: str, hosts: t.Any, options: t.Mapping[str, t.Any]) -> list[str]:
        guests = self.folder / (name + ".bootflow.yml")
        content = {"plugin": "bootflow.compute.instances", "ledger_url": self.url, **options}
        guests.write_text(yaml.safe_dump(content))
        if hosts is None:
            return [str(guests)]
        others = self.folder / (name + ".yml")
        others.write_text(yaml.safe_dump({"compute": {"hosts": hosts}}))
        return [str(others), str(guests)]

    def process(self, *command: str, given: str = "", fails: bool = False) -> tuple[str, str]:
        environment = {**ENVIRONMENT, "ANSIBLE_HOME": str(self.folder / "home")}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr + done.stdout
        return done.stdout, " ".join(done.stderr.split())

    def inventory(
        self, *more: str, hosts: t.Any = None, fails: bool = False, **options: t.Any
    ) -> tuple[dict[str, t.Any], str]:
        """ansible-inventory, as a person runs it."""
        sources = [word for path in self.files("guests", hosts, options) for word in ("-i", path)]
        printed, told = self.process("ansible-inventory", *sources, "--list", *more, fails=fails)
        return json.loads(printed or "null"), told

    def read(self, *inventories: t.Mapping[str, t.Any], hosts: t.Any = None) -> list[dict[str, t.Any]]:
        """{hosts: name -> variables, their templates evaluated; groups}, of each."""
        sources = [
            self.files("guests-%d" % i, o.get("with", hosts), {k: v for k, v in o.items() if k != "with"})
            for i, o in enumerate(inventories)
        ]
        answers = json.loads(self.process(sys.executable, "-c", READ, given=json.dumps(sources))[0])
        assert len(answers) == len(inventories)
        return t.cast("list[dict[str, t.Any]]", answers)

    def names(self, *inventories: t.Mapping[str, t.Any]) -> list[set[str]]:
        return [set(answer["hosts"]) for answer in self.read(*inventories)]


SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def reader(world: World, tmp_path: pathlib.Path) -> Reader:
    return Reader(tmp_path, world.url)


def test_instances_are_hosts_in_groups_with_their_address(world: World, reader: Reader) -> None:
    world.know(TWO)
    world.report("h1", memory=9)
    evil = "{{ lookup('ansible.builtin.pipe', 'echo evaluated') }}"
    world.boot("web", metadata={"role": "front", "note": evil}, networks=("net-1", NetworkRequest(network="net-2")))
    world.boot("db", metadata={"role": "back"})
    world.boot("late", until="spawning")
    before = world.everything()

    options = {
        "keyed_groups": [{"key": "bootflow_instance.metadata.role", "prefix": "role"}],
        "groups": {"fronts": "bootflow_instance.metadata.role == 'front'"},
        "compose": {"ansible_user": "'debian'"},
        "strict": True,
    }
    found, warnings = reader.inventory(**options)
    assert set(found["instances"]["hosts"]) == {"web", "db"}
    assert found["role_front"]["hosts"] == found["fronts"]["hosts"] == ["web"] and found["role_back"]["hosts"] == ["db"]
    web = found["_meta"]["hostvars"]["web"]
    assert web["ansible_host"] == "10.0.1.10"
    assert web["bootflow_instance"]["host"] == "h1" and web["bootflow_instance"]["vm_state"] == "active"
    assert "WARNING" not in warnings
    addresses: list[dict[str, t.Any]] = [
        {"address_networks": ["net-2", "net-1"]},
        {"address_networks": ["net-2"], "ip_version": 6},
        {"ip_version": 6},
    ]
    first, *others = [answer["hosts"]["web"] for answer in reader.read(options, *addresses)]
    assert table.unknown(first) == {}
    assert first["ansible_user"] == "debian" and first["bootflow_instance"]["metadata"]["note"] == evil
    assert [web["ansible_host"] for web in others] == ["10.0.2.10", "fd00:3::10", "fd00:3::10"]
    printed, warnings = reader.inventory(ip_version=6)
    assert set(printed["_meta"]["hostvars"]) == {"web"}
    assert "Instances without an address to connect to are left out: db" in warnings
    assert world.everything() == before


@SQLITE
def test_a_few_fields_and_names(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    for name in ("web", "db", "old"):
        world.boot(name, metadata={"role": name})
    options = {"keyed_groups": [{"key": "bootflow_instance.metadata.role", "prefix": "role"}], "strict": True}
    whole, few = reader.read(options, {**options, "names": ["web", "db", "none"], "fields": ["metadata", "host"]})
    assert set(whole["hosts"]) == {"web", "db", "old"} and set(few["hosts"]) == {"web", "db"}
    assert set(whole["hosts"]["web"]["bootflow_instance"]) == set(FIELDS)
    assert few["hosts"]["web"]["bootflow_instance"] == {"host": "h1", "metadata": {"role": "web"}}
    assert few["hosts"]["web"]["ansible_host"] == whole["hosts"]["web"]["ansible_host"]
    assert few["groups"]["role_db"] == ["db"]
    _found, warnings = reader.inventory(fields=["metdata"], fails=True)
    assert "an instance has no field metdata" in warnings and "metadata" in warnings


@SQLITE
def test_one_host_of_ansible_inventory_reads_one_instance(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    for name in ("web", "db"):
        world.boot(name)
    sources = reader.files("guests", None, {"compose": {"others": "groups['instances'] | default([]) | length"}})
    listed = json.loads(reader.process("ansible-inventory", "-i", *sources, "--list")[0])["_meta"]["hostvars"]["web"]
    one = json.loads(reader.process("ansible-inventory", "-i", *sources, "--host", "web")[0])
    assert one["bootflow_instance"]["uuid"] == listed["bootflow_instance"]["uuid"]
    assert one["ansible_host"] == listed["ansible_host"]
    left_out = reader.files("guests", None, {"names": ["db"]})
    assert "web" in reader.process("ansible-inventory", "-i", *left_out, "--host", "web", fails=True)[1]


@SQLITE
def test_filters(world: World, reader: Reader) -> None:
    world.know(TWO)
    world.report("h1", memory=2)
    world.report("h2", memory=2)
    first = world.boot("a", metadata={"role": "x", "size": "3"})
    world.boot("b", metadata={"role": "y"}, networks=("net-2",))
    world.boot("c")
    host = world.row(first).host
    on_host = {r.display_name for r in world.rows(tables.instances) if r.host == host}
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "c").values(project="other"))
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "b").values(vm_state="stopped"))

    all_states = ["active", "stopped"]
    expected: list[tuple[dict[str, t.Any], set[str]]] = [
        ({}, {"a", "c"}),
        ({"vm_states": all_states}, {"a", "b", "c"}),
        ({"vm_states": ["stopped"], "projects": ["default"]}, {"b"}),
        ({"projects": ["other"]}, {"c"}),
        ({"projects": ["other", "none"]}, {"c"}),
        ({"metadata": {"role": None}}, {"a"}),
        ({"metadata": {"role": "x", "size": 3}}, {"a"}),
        ({"metadata": {"role": "z"}}, set()),
        ({"networks": ["net-2"], "vm_states": all_states}, {"b"}),
        ({"hosts": [host], "vm_states": all_states}, on_host),
        ({"hosts": ["elsewhere", "nowhere"]}, set()),
        ({"hostname": "uuid", "projects": ["default"]}, {first}),
        ({"hostname": "project_name"}, {"default.a", "other.c"}),
    ]
    assert reader.names(*(options for options, _names in expected)) == [names for _options, names in expected]


@SQLITE
def test_a_name_that_is_not_one_host_is_left_out(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    for name in ("web", "db", "localhost", "h1"):
        world.boot(name)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "web").values(project="other"))
    world.boot("web")
    hosts = {"h1": {"ansible_host": "198.51.100.7"}}
    found, warnings = reader.inventory(hosts=hosts)
    assert set(found["instances"]["hosts"]) == {"db"}
    assert found["_meta"]["hostvars"]["h1"] == {"ansible_host": "198.51.100.7"}
    assert "2 instances have the name web: left out. Set hostname to project_name or uuid" in warnings
    assert "The inventory has a host or group h1: left out" in warnings
    assert "The inventory has a host or group localhost: left out" in warnings
    assert len(reader.names({"hostname": "uuid"})[0]) == 5


@SQLITE
def test_a_guest_with_the_name_of_a_host_of_the_fleet_is_left_out(world: World, reader: Reader) -> None:
    """Whichever inventory is read first: what is meant for the host would be done in the guest."""
    world.report("h1", memory=9)
    for name in ("h1", "db"):
        world.boot(name)
    files = reader.files("guests", {"h1": {}}, {})
    sources = [word for path in reversed(files) for word in ("-i", path)]
    printed, warnings = reader.process("ansible-inventory", *sources, "--list")
    found = json.loads(printed)
    assert found["instances"]["hosts"] == ["db"] and "h1" not in found["_meta"]["hostvars"]
    assert "The inventory has a host or group h1: left out" in warnings
    (beside,) = reader.read({"compute_hosts": True})
    assert beside["groups"]["instances"] == ["db"]
    assert "bootflow_compute_host" in beside["hosts"]["h1"] and "bootflow_instance" not in beside["hosts"]["h1"]


EVIL = [
    *(
        "127.0.0.1",
        "::1",
        "[::1]",
        "LocalHost",
        "localhost.",
        "127.1",
        "0x7f000001",
        "2130706433",
        "::ffff:127.0.0.1",
        "fe80::1%eth0",
    ),
    *(
        "a:!b",
        "web[1:3]",
        "~.*",
        "*",
        "a,b",
        "!db",
        "&db",
        "@retry",
        "-e",
        "a b",
        "../x",
        "\uff4c\uff4fcalhost",
        "{{ 1 }}",
    ),
    *(
        "all",
        "ungrouped",
        "bootflow-compute",
        "Bootflow_Storage",
        "localhost.localdomain",
        "git.example.org",
        "instances",
    ),
    *("ip6-localhost", "10.0.0.5", "compute_hosts_up"),
]


@SQLITE
def test_no_instance_takes_the_place_of_a_machine(world: World, reader: Reader) -> None:
    """Names that Ansible or a resolver understands as another machine, a pattern or an option, whatever inventories the run has."""
    world.report("h1", memory=99)
    for name in ["db", "Wäscherei", *EVIL]:
        world.boot(name)
    found, warnings = reader.inventory()
    assert set(found["_meta"]["hostvars"]) == {"db", "Wäscherei"}
    for name in EVIL:
        assert name in warnings
    by_project, in_domain, by_uuid = reader.names(
        {"hostname": "project_name"}, {"domains": ["example.org"]}, {"hostname": "uuid"}
    )
    assert {
        n for n in by_project if n.startswith("default.") and not objection(n, [], n.partition(".")[2])
    } == by_project
    assert in_domain == {"db", "Wäscherei", "git.example.org"}
    assert len(by_uuid) == len(EVIL) + 2
    play = [
        {"hosts": "localhost", "gather_facts": False, "tasks": [{"debug": {"msg": "here: {{ ansible_connection }}"}}]}
    ]
    (reader.folder / "here.yml").write_text(yaml.safe_dump(play))
    printed, _warnings = reader.process(
        "ansible-playbook", "-i", str(reader.folder / "guests.bootflow.yml"), "here.yml"
    )
    assert "here: local" in printed


@SQLITE
@pytest.mark.parametrize("order", ["after", "before", "in a folder"])
def test_no_instance_takes_the_name_of_another_inventory(world: World, reader: Reader, order: str) -> None:
    """Of a host, a group, or a host's address, also of an inventory that Ansible reads later."""
    world.report("h1", memory=99)
    named = ("kvm7", "KVM-8", "vault", "front_ends", "jumpbox", "shared", "db")
    for name in named:
        world.boot(name)
    (reader.folder / "inventory").mkdir()
    others = reader.folder / ("inventory/hosts.yml" if order == "in a folder" else "hosts.yml")
    groups = {
        "front-ends": {"hosts": {"kvm7": {"ansible_host": "198.51.100.7"}, "kvm_8": {"ansible_host": "jumpbox"}}},
        "vault": {"vars": {"secret": "s3cret"}},
    }
    others.write_text(yaml.safe_dump(groups))
    (guests,) = reader.files("inventory/guests" if order == "in a folder" else "guests", None, {})
    (more,) = reader.files("zz", None, {"group": "shared", "projects": ["none"]})
    pair = {
        "after": [guests, str(others), more],
        "before": [str(others), more, guests],
        "in a folder": [str(reader.folder / "inventory"), more],
    }[order]
    sources = [word for path in pair for word in ("-i", path)]
    printed, warnings = reader.process("ansible-inventory", *sources, "--list")
    found = json.loads(printed)
    assert found["instances"]["hosts"] == ["db"]
    assert found["_meta"]["hostvars"]["kvm7"] == {"ansible_host": "198.51.100.7"}
    for name in named[:-1]:
        assert "The inventory has a host or group %s: left out" % name in warnings
    answers = json.loads(reader.process(sys.executable, "-c", READ, given=json.dumps([pair]))[0])
    assert answers[0]["groups"]["instances"] == ["db"], "a program without a command line"


@SQLITE
def test_metadata_opens_no_group_of_other_hosts(world: World, reader: Reader) -> None:
    world.report("h1", memory=99)
    roles = ["bootflow-compute", "bootflow_storage", "all", "prod", "kvm7", "h1", "localhost", "web", "vars"]
    for i, role in enumerate(roles):
        world.boot("guest-%d" % i, metadata={"role": role})
    hosts = {"prod": {"hosts": {"kvm7": {}}}, "vars": {"vars": {"a": 1}}}
    options = {
        "keyed_groups": [
            {"key": "bootflow_instance.metadata.role", "separator": "", "parent_group": "prod"},
            {"key": "bootflow_instance.metadata.role", "prefix": "role"},
        ],
        "groups": {"prod": "bootflow_instance.name == 'guest-7'"},
        "leading_separator": False,
    }
    for after in (False, True):
        files = reader.files("guests", {}, options)
        pathlib.Path(files[0]).write_text(yaml.safe_dump(hosts))
        sources = [word for path in sorted(files, reverse=after) for word in ("-i", path)]
        printed, warnings = reader.process("ansible-inventory", *sources, "--list")
        found = json.loads(printed)
        assert "bootflow_compute" not in found and "bootflow_storage" not in found and "h1" not in found
        assert sorted(found["prod"]["hosts"]) == ["guest-7", "kvm7"] and sorted(found["prod"]["children"]) == [
            "vars",
            "web",
        ]
        assert found["web"]["hosts"] == ["guest-7"] and found["vars"]["hosts"] == ["guest-8"]
        assert found["role_prod"]["hosts"] == ["guest-3"] and found["role_bootflow_compute"]["hosts"] == ["guest-0"]
        for role in ("bootflow_compute", "prod", "kvm7", "h1", "localhost", "all"):
            assert "into the group %s, which is not a group of instances" % role in warnings


@SQLITE
def test_via_the_compute_host(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    world.boot("web")
    far = {
        "ansible_host": "198.51.100.7",
        "ansible_port": 2222,
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": "{{ 'keys' }}/the key",
        "ansible_ssh_common_args": '-o UserKnownHostsFile="/known 100%"',
        "ansible_host_key_checking": False,
    }
    ways = [{"h9": {}}, {"h1": {"ansible_connection": "local"}}, {"h1": far}]
    answers = reader.read(*({"via": "jump", "with": hosts} for hosts in ways))
    unknown, local, jump = [shlex.split(a["hosts"]["web"]["ansible_ssh_common_args"]) for a in answers]
    assert unknown == ["-o", "ProxyCommand=ssh  -W [%h]:%p h1"] and local == []
    option, command = jump
    assert option == "-o" and command.startswith("ProxyCommand=")
    words = ["ssh", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/known 100%%", "-p", "2222"]
    words += ["-i", "keys/the key", "-l", "ops", "-W", "[%h]:%p", "198.51.100.7"]
    assert shlex.split(command[len("ProxyCommand=") :]) == words


@SQLITE
def test_ssh_accepts_the_host_key_that_the_guest_was_given(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    uuid = world.boot("web")
    world.boot("odd")
    world.boot("old")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA=="
    odd = "ssh-ed25519 x -o ProxyCommand=sh {{ 1 }}"
    with world.ledger.write() as tx:
        for name, value in (("web", key), ("odd", odd)):
            where = tables.instances.c.display_name == name
            tx.execute(tables.instances.update().where(where).values(ssh_host_key=value))
    direct, jump = reader.read({}, {"via": "jump", "with": {"h1": {}}})
    assert (
        "ansible_ssh_common_args" not in direct["hosts"]["old"]
        and "ansible_ssh_common_args" not in direct["hosts"]["odd"]
    )
    words = shlex.split(direct["hosts"]["web"]["ansible_ssh_common_args"])
    assert words[0::2] == ["-o"] * 6
    assert {
        "HostKeyAlias=" + uuid,
        "KnownHostsCommand=/bin/echo %s %s" % (uuid, key),
        "StrictHostKeyChecking=yes",
    } < set(words)
    through = shlex.split(jump["hosts"]["web"]["ansible_ssh_common_args"])
    assert through[:12] == words and through[13].startswith("ProxyCommand=ssh ")
    shown = subprocess.run(["ssh", "-G", *words, "192.0.2.1"], capture_output=True, text=True, check=True).stdout
    assert "hostkeyalias %s\n" % uuid in shown and "stricthostkeychecking true\n" in shown


@SQLITE
def test_via_the_agent(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    world.boot("web", networks=())
    far = {
        "ansible_port": 22,
        "bootflow_libvirt_uri": "qemu:///session?socket=/s",
        "ansible_ssh_private_key_file": "/a key",
    }
    ways = [{"ansible_connection": "local"}, {"ansible_user": "ops", "ansible_host": "fd00::7"}, far]
    answers = reader.read(*({"via": "agent", "with": {"h1": hosts}} for hosts in ways))
    assert [a["hosts"]["web"]["ansible_libvirt_uri"] for a in answers] == [
        "qemu:///system",
        "qemu+ssh://ops@[fd00::7]/system",
        "qemu+ssh://h1:22/session?socket=/s&keyfile=/a%20key",
    ]
    web = answers[0]["hosts"]["web"]
    assert web["ansible_connection"] == "community.libvirt.libvirt_qemu"
    assert web["ansible_host"] == web["bootflow_instance"]["domain_name"]


@SQLITE
def test_hosts_of_the_fleet_are_in_groups_by_state(vworld: VolumeWorld, tmp_path: pathlib.Path) -> None:
    vworld.store(lvm=100)
    hosts = {
        "compute_hosts": True,
        "storage_hosts": True,
        "service_down_time": 2e6,
        "groups": {"roomy": "bootflow_compute_host.memory_mb_free >= 4096"},
    }
    vworld.time = time.time()
    vworld.report("h1", memory=4)
    vworld.report("h2", memory=4, disabled=True)
    vworld.time -= 120
    vworld.reported("s1")
    vworld.report("h3", memory=1)
    late_too = {"compute_hosts": True, "storage_hosts": True, "service_down_time": 60}
    found, late = Reader(tmp_path, vworld.url).read(hosts, late_too)
    groups = found["groups"]
    assert groups["compute_hosts_up"] == ["h1", "h3"] and groups["compute_hosts_disabled"] == ["h2"]
    assert groups["roomy"] == ["h1", "h2"] and groups["storage_hosts_up"] == ["s1"]
    assert found["hosts"]["s1"]["bootflow_storage_host"]["backends"][0]["free_gb"] > 0
    assert late["groups"]["compute_hosts_down"] == ["h3"] and late["groups"]["storage_hosts_down"] == ["s1"]


@SQLITE
def test_the_cache_answers_without_the_ledger(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    world.boot("web")
    cache = {
        "cache": True,
        "cache_plugin": "ansible.builtin.jsonfile",
        "cache_connection": str(reader.folder / "cache"),
    }
    assert set(reader.inventory(**cache)[0]["instances"]["hosts"]) == {"web"}
    world.boot("db")
    assert set(reader.inventory(**cache)[0]["instances"]["hosts"]) == {"web"}
    assert set(reader.inventory("--flush-cache", **cache)[0]["instances"]["hosts"]) == {"web", "db"}


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_replica_is_read_in_place_of_the_ledger(world: World, reader: Reader) -> None:
    world.report("h1", memory=9)
    world.boot("web")
    away = "postgresql://postgres@/ledger?host=/nowhere"
    found, told = reader.inventory(ledger_url=away, ledger_read_url=world.url)
    assert set(found["instances"]["hosts"]) == {"web"} and "which may be behind" in told
    _printed, text = reader.inventory(ledger_url=away, fails=True, ledger_retry_timeout=0)
    assert "/nowhere" in text


def test_what_is_wrong_is_said(tmp_path: pathlib.Path) -> None:
    reader = Reader(tmp_path, "sqlite:///%s" % (tmp_path / "none.db"))
    found, warnings = reader.inventory()
    assert found["_meta"]["hostvars"] == {} and "No instances. " in warnings
    _printed, text = reader.inventory(fails=True, ledger_lock_timeout=-1)
    assert "Traceback" not in text and "ledger_lock_timeout" in text
    reader.url = "mysql://ledger"
    _printed, text = reader.inventory(fails=True)
    assert "Traceback" not in text and "mysql" in text
