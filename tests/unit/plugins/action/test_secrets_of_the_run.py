# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stages leave their results in files of the run. No secret is in one of them: each stage reads it in the request, or derives it from the run's secret."""

from __future__ import annotations

import base64
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import (
    attach_volume,
    boot_accept,
    boot_build,
    boot_passwords,
    boot_report,
    boot_schedule,
    compute_attachments,
    compute_report,
    instance_move,
    instance_operation,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds import handover
from ansible_collections.bootflow.compute.plugins.plugin_utils.run import stage_results
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node

IMAGE = {
    "name": "tiny",
    "disk_format": "qcow2",
    "allow_unverified": True,
    "url": "http://x.example/tiny.qcow2",
    "properties": {"hw_qemu_guest_agent": "yes", "os_admin_user": "debian"},
}
ADMIN, NEW, USER_DATA, FILE = "correct-horse-1", "battery-staple-2", "#cloud-config for s3cret-user-data", "s3cret-file"
ENTRY = {"flavor": "small", "image": "tiny", "networks": ["net"], "config_drive": True}
VOLUME = {"source_type": "blank", "destination_type": "volume", "volume_size": 2}
VARIABLES: dict[str, t.Any] = {
    "ansible_host": "192.0.2.1",
    "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
    "bootflow_images": [IMAGE],
    "bootflow_networks": [{"name": "net", "type": "bridge", "source": "br0", "subnets": [{"cidr": "192.0.2.0/24"}]}],
    "bootflow_instances": [
        {
            "name": "given",
            **ENTRY,
            "admin_password": ADMIN,
            "user_data": USER_DATA,
            "injected_files": [{"path": "/etc/key", "contents": base64.b64encode(FILE.encode()).decode()}],
        },
        {"name": "generated", **ENTRY, "block_device_mapping": [VOLUME]},
    ],
}
FACTS = {"hypervisor_hostname": "h1", "memory_mb": 8192, "local_gb": 100, "vcpus": 100, "domains": []}
#: Arguments of modules that are secret.
SECRET = {"chap_secret", "token", "stop_token", "password", "admin_password"}


class Site:
    """A run on two compute hosts, and all that it writes to files of the run."""

    def __init__(self, world: BootWorld, patched: pytest.MonkeyPatch):
        self.world = world
        self.written: list[tuple[str, str]] = []  # name and text of each file
        self.given: dict[str, set[str]] = {}  # secret arguments of modules, by their names
        self.tasks = 0
        write_whole = stage_results.write_whole

        def noted(path: pathlib.Path, text: str) -> None:
            self.written.append((path.name, text))
            write_whole(path, text)

        for module in (stage_results, handover):
            patched.setattr(module, "write_whole", noted)

    def task(self, module: t.Any, host: str = "localhost", **options: t.Any) -> dict[str, t.Any]:
        backends = {"bootflow_storage_backends": [{"name": "lvm"}], "bootflow_storage_ip": "192.0.2.1"}
        hostvars = {"localhost": VARIABLES, "h1": VARIABLES, "h2": VARIABLES, "s1": {**VARIABLES, **backends}}
        groups = {"all": list(hostvars), "bootflow_compute": ["h1", "h2"], "bootflow_storage": ["s1"]}
        variables = {**hostvars[host], "inventory_hostname": host, "groups": groups, "hostvars": hostvars}
        action = action_of(module, WorldPorts(self.world, "a", self.answer), variables, **options)
        action._connection = type("Ssh", (), {"transport": "ssh"})
        self.tasks += 1
        return t.cast("dict[str, t.Any]", action.act())

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.note(arguments)
        if name == "compute_node_info":
            return {"compute_node": FACTS}
        good = {
            "changed": True,
            "error": None,
            "power_state": power_states.RUNNING,
            "path": "/dev/x",
            "size": 2 * 1024**3,
        }
        items = [i for value in arguments.values() if isinstance(value, list) for i in value if isinstance(i, dict)]
        keys = [i.get(k) for i in items for k in ("id", "uuid", "volume_id", "name") if i.get(k)]
        images = {i["id"]: {**good, "virtual_size": 2**20} for i in arguments.get("images") or ()}
        return {"outcomes": dict.fromkeys(keys, good), "image_outcomes": images, "missing_images": [], "seconds": 1.0}

    def note(self, value: t.Any) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                if name in SECRET and each:
                    self.given.setdefault(name, set()).add(str(each))
                self.note(each)
        elif isinstance(value, list):
            for each in value:
                self.note(each)

    def boot(self) -> dict[str, str]:
        """Returns the passwords of the guests by their names."""
        self.task(boot_accept)
        self.task(boot_schedule)
        self.world.storage_round("a")
        for host in ("h1", "h2"):
            self.task(boot_build, host)
        self.task(boot_schedule, phase="refresh", round=2)
        report = self.task(boot_report)
        assert not report.get("failed"), report
        found = self.task(boot_passwords)["admin_passwords"].values()
        return {each["name"]: each["password"] for each in found}

    def operate(self, operation: str, **options: t.Any) -> None:
        begun = self.task(
            instance_operation, operation=operation, phase="begin", names=["given", "generated"], **options
        )
        for host in begun["compute"]:
            self.task(instance_operation, host, operation=operation, phase="work", **options)
        done = self.task(instance_operation, operation=operation, phase="finish", **options)
        assert done["changed"] and not done.get("failed"), done


@pytest.fixture
def site(bworld: BootWorld, monkeypatch: pytest.MonkeyPatch) -> Site:
    bworld.moves = True
    bworld.store()
    bworld.make("data", size=2)
    for host in ("h1", "h2"):
        node(bworld, host, memory_mb=8192, initiator="iqn.test:" + host, qemu_iscsi=True)
    return Site(bworld, monkeypatch)


def test_no_file_of_the_run_has_a_secret(site: Site, tmp_path: pathlib.Path) -> None:
    passwords = site.boot()
    assert passwords["given"] == ADMIN and len(passwords["generated"]) > 8
    folder = tmp_path / "passwords"
    site.operate("rescue", admin_password_dir=str(folder))
    rescue = {path.read_text().strip() for path in folder.iterdir()}
    site.operate("unrescue")
    site.operate("set_admin_password", admin_password=NEW)
    wanted = [{"instance": "given", "volume": "data"}]
    site.task(attach_volume, phase="begin", attachments=wanted)
    site.world.storage_round("a")
    for host in ("h1", "h2"):
        site.task(compute_attachments, host)
    done = site.task(attach_volume, phase="finish", attachments=wanted)
    assert done["changed"], done
    site.task(compute_report, "h1")
    moving = {"operation": "migrate", "names": ["generated"]}
    begun = site.task(instance_move, phase="begin", **moving)
    site.task(instance_move, begun["sources"][0], phase="depart", operation="migrate")
    secrets = {ADMIN, NEW, USER_DATA, FILE, base64.b64encode(FILE.encode()).decode(), *passwords.values(), *rescue}
    assert {"chap_secret", "password", "stop_token", "token"} <= site.given.keys(), "the modules got secrets"
    secrets.update(*site.given.values())
    stages = {name.rpartition(".result")[0].rpartition(".")[0] for name, _text in site.written}
    assert {
        "boot_accept.accept",
        "instance_operation.work",
        "compute_attachments.work",
        "instance_move.depart",
    } <= stages
    left = [(path.name, path.read_text()) for path in WorldPorts(site.world, "a").folder().iterdir()]
    found = {(name, secret) for name, text in site.written + left for secret in secrets if secret in text}
    assert not found
