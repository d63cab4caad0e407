# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of a boot on a host as the playbook runs them, with modules that answer: what each reads, and hands to its module."""

from __future__ import annotations

import base64
import dataclasses
import json
import types
import typing as t

from ansible_collections.bootflow.compute.plugins.action import boot_build
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import read_settings
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, build_in_parts
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, World, request

CATALOGUE = [
    {"name": "other", "disk_format": "raw", "checksum": "1" * 64, "path": "/images/other"},
    {
        "name": IMAGE.name,
        "id": IMAGE.id,
        "disk_format": "qcow2",
        "checksum": IMAGE.checksum,
        "url": IMAGE.url.replace("//", "//someone:image%2Dsecret@"),
        "headers": {"X-Key": "image-secret-2"},
    },
]


class Host:
    """Runs stages on host h1. ``given``: what its modules were given, by their names."""

    def __init__(self, world: World):
        self.world = world
        self.given: dict[str, t.Any] = {}
        self.variables: dict[str, t.Any] = {}

    def __call__(self, **options: t.Any) -> dict[str, t.Any]:
        action: t.Any = boot_build.ActionModule.__new__(boot_build.ActionModule)
        assert set(options) <= set(action.ARGUMENTS)
        action.options = {"ledger_url": self.world.url, **read_settings(action.ARGUMENTS, options, lambda _name: None)}
        action._task = types.SimpleNamespace(check_mode=False)
        action._display = types.SimpleNamespace(warning=print, vvv=lambda text, **_host: print(text))
        action._connection = types.SimpleNamespace(transport="ssh")
        action.task_vars = {"inventory_hostname": "h1", "hostvars": {"h1": {}}}
        action.variable = self.variables.get
        action.context = self.world.context
        action.open_ledger = lambda: self.world.ledger.for_run(self.world.context())
        action.run_module = self.answer
        action.probe = set
        action.ports = WorldPorts(self.world, "a")
        return t.cast("dict[str, t.Any]", action.act())

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "instance_build":
            return build_in_parts(self.run_module, arguments)
        return self.run_module(name, arguments)

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.given[name] = arguments
        (items,) = (arguments[key] for key in ("networks", "drives", "domains", "instances") if key in arguments)
        running = {"power_state": power_states.RUNNING}
        return {"outcomes": {item.get("uuid") or item["name"]: running for item in items}}


def test_a_boot_through_its_stages(world: World) -> None:
    """The stages after accept read the images, and of the request the entries of their own instances: another that is not valid
    any more does no harm."""
    world.report("h1")
    one, two = world.accept(request("web", 2, config_drive=True)).created
    world.schedule()
    host = Host(world)
    entries = [
        {"name": "broken", "user_data_base64": "%"},
        {
            "name": "web",
            "count": 2,
            "user_data": "#cloud-config\n",
            "injected_files": [{"path": "/etc/motd", "contents": base64.b64encode(b"hello").decode()}],
            "admin_password": "given",
        },
    ]
    result = host(images=CATALOGUE, instances=entries)
    assert sorted(b["uuid"] for b in result["builds"]) == sorted((one, two)), result
    (given,) = host.given["instance_disks"]["images"]
    login = given["url"], given["url_username"], given["url_password"], json.loads(given["headers"])
    assert login == (IMAGE.url, "someone", "image-secret", {"X-Key": "image-secret-2"}), "those of the catalogue"
    assert host.given["instance_disks"]["image_max_gb"] == 1024
    assert {world.row(u).vm_state for u in (one, two)} == {"active"}
    for drive in host.given["config_drive"]["drives"]:
        files = unpack_files(drive["files"])
        assert files["openstack/latest/user_data"] == b"#cloud-config\n"
        assert b"hello" in files.values()
        assert b"chpasswd" in files["openstack/latest/vendor_data.json"] and b"given" not in b"".join(files.values())


def test_the_agent_is_waited_for_where_the_image_has_it(world: World) -> None:
    world.report("h1")
    with_agent = dataclasses.replace(IMAGE, properties={"hw_qemu_guest_agent": "yes"})
    world.accept(request("talks", image=with_agent), request("silent"))
    world.schedule()
    host = Host(world)
    host.variables = {"bootflow_wait_agent": True, "bootflow_wait_guest_timeout": 7}
    assert len(host(images=CATALOGUE, instances=[{"name": "talks"}, {"name": "silent"}])["builds"]) == 2
    waits = {"guest_agent" in d["xml"]: d.get("wait_agent") for d in host.given["domain"]["domains"]}
    assert waits == {True: 7, False: None}


def test_a_boot_that_waits_for_its_guests(world: World) -> None:
    """The first address or a port of it, and cloud-init: by the agent where the image has one, else by the console."""
    world.report("h1")
    with_agent = dataclasses.replace(IMAGE, properties={"hw_qemu_guest_agent": "yes"})
    world.accept(request("talks", image=with_agent), request("silent"))
    world.schedule()
    host = Host(world)
    host.variables = {"bootflow_wait_port": 22, "bootflow_wait_cloud_init": True, "bootflow_wait_guest_timeout": 7}
    assert len(host(images=CATALOGUE, instances=[{"name": "talks"}, {"name": "silent"}])["builds"]) == 2
    for wanted in host.given["domain"]["domains"]:
        address = wanted["wait_address"]
        assert address["mac_address"] in wanted["xml"] and (address["port"], address["timeout"]) == (22, 7)
        cloud_init = wanted["wait_cloud_init"]
        assert (cloud_init["agent"], cloud_init["timeout"]) == ("guest_agent" in wanted["xml"], 7)
        assert cloud_init["log"] in wanted["xml"]


def test_secrets_that_are_not_valid_any_more_fail_their_own_build_only(world: World) -> None:
    world.report("h1")
    world.accept(request("good", config_drive=True), request("bad", config_drive=True))
    world.schedule()
    host = Host(world)
    result = host(images=CATALOGUE, instances=[{"name": "good"}, {"name": "bad", "user_data_base64": "%"}])
    assert [b["name"] for b in result["builds"]] == ["good"]
    assert [(b["name"], b["error"]["code"]) for b in result["failed_builds"]] == [("bad", "InvalidRequest")]


def test_the_traceback_of_an_unexpected_error_is_in_the_journal(world: World) -> None:
    """As Nova's instance_action_events.traceback; who boots gets a line without it, and values are in neither."""
    world.report("h1")
    (uuid,) = world.accept(request("web", 1)).created
    world.schedule()
    host = Host(world)

    def broken(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        secret = "s3cret"
        if name == "instance_disks":
            raise KeyError("disks of %d letters" % len(secret))
        return Host.run_module(host, name, arguments)

    host.run_module = broken  # type: ignore[method-assign]
    (failed,) = host(images=CATALOGUE, instances=[{"name": "web"}])["failed_builds"]
    assert failed["error"]["message"] == "KeyError: 'disks of 6 letters'" and ", in broken" not in str(failed)
    with world.ledger.read() as tx:
        told = [e["details"] for e in history.events_of(tx, uuid) if e["result"] == history.ERROR]
    assert told[0].startswith("KeyError: 'disks of 6 letters'\n") and ", in broken" in told[0]
    assert "len(secret)" in told[0] and "s3cret" not in told[0]
    assert ", in broken" not in world.fault(uuid).message
