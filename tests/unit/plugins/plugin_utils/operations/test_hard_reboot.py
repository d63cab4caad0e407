# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A hard reboot of a guest with volumes: they are there before it loses its power, and the new domain has them."""

from __future__ import annotations

import typing as t

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.action import instance_operation
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import hard_reboot
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import attached_volumes
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, from_image, volume_request

BROKEN = errors.ISCSITargetAttachFailed(volume_id="v").as_dict()


class Host:
    def __init__(self, world: BootWorld, check_mode: bool = False):
        facts = {"hypervisor_hostname": "h1", "memory_mb": 9 * 1024, "local_gb": 4000, "vcpus": 500}
        with world.ledger.write() as tx:
            facts.update(initiator="iqn.test:h1", qemu_iscsi=True)
            nodes.record_report(tx.for_run(world.context()), "h1", facts, {})
        world.store()
        (self.uuid,) = world.boot_of(volume_request("web", from_image()))
        (self.attachment,) = world.live_attachments()
        self.calls: list[tuple[str, dict[str, t.Any]]] = []
        self.login: dict[str, t.Any] | None = None  # the error of a login
        self.name = ""  # that the domain gets
        ports = WorldPorts(world, "o", self.answer)
        self.action = action_of(
            instance_operation, ports, {"inventory_hostname": "h1", "hostvars": {"h1": {}}}, check_mode,
            operation="reboot",
        )  # fmt: skip

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.calls.append((name, dict(arguments)))
        if name == "iscsi_initiator":
            path = {"path": "/dev/disk/by-path/x", "size": 1}
            outcome = {"error": self.login, **({} if self.login else path)}
            return {"outcomes": {c["volume_id"]: outcome for c in arguments["connections"]}}
        items = arguments["networks"] if name == "virtual_network" else arguments["domains"]
        good = {"error": None, "changed": True, "power_state": 1, **({"name": self.name} if self.name else {})}
        return {"outcomes": {i.get("uuid") or i["name"]: good for i in items}}


def test_the_volumes_come_first_and_are_in_the_domain(bworld: BootWorld) -> None:
    host = Host(bworld)
    outcomes, problems = hard_reboot.reboot(host.action, [host.uuid])
    assert [name for name, _arguments in host.calls] == ["iscsi_initiator", "virtual_network", "domain"]
    (connection,) = host.calls[0][1]["connections"]
    assert (connection["volume_id"], connection["state"]) == (host.attachment.volume_id, "connected")
    (domain,) = host.calls[2][1]["domains"]
    disks = {d.findtext("serial"): d.find("source").get("dev") for d in etree.fromstring(domain["xml"]).iter("disk")}
    assert domain["restart"] and disks[host.attachment.volume_id] == host.attachment.device_path
    assert problems == {} and outcomes[host.uuid]["power_state"] == 1


@pytest.mark.parametrize(("kept", "machine"), [("pc", "pc"), (None, "q35")])
def test_a_guest_keeps_its_machine_type(bworld: BootWorld, kept: str | None, machine: str) -> None:
    host = Host(bworld)
    host.action.task_vars["bootflow_machine_type"] = "q35"
    with bworld.ledger.write() as tx:
        tx.execute(tables.instances.update().values(machine_type=kept))
    hard_reboot.reboot(host.action, [host.uuid])
    (domain,) = host.calls[2][1]["domains"]
    assert etree.fromstring(domain["xml"]).find("os/type").get("machine") == machine


def test_a_guest_whose_volumes_are_not_there_keeps_its_power(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.login = BROKEN
    outcomes, problems = hard_reboot.reboot(host.action, [host.uuid])
    assert outcomes == {} and [name for name, _arguments in host.calls] == ["iscsi_initiator"]
    assert problems[host.uuid].code == "ISCSITargetAttachFailed"


def test_check_mode_logs_in_nowhere(bworld: BootWorld) -> None:
    host = Host(bworld, check_mode=True)
    before = bworld.everything()
    outcomes, problems = hard_reboot.reboot(host.action, [host.uuid])
    assert [name for name, _arguments in host.calls] == ["virtual_network", "domain"]
    assert problems == {} and outcomes[host.uuid]["changed"] and bworld.everything() == before


def test_what_was_deleted_meanwhile_and_a_domain_with_another_name(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.name = "web-elsewhere"
    gone = "00000000-0000-4000-8000-000000000000"
    outcomes, problems = hard_reboot.reboot(host.action, [host.uuid, gone])
    assert {u: e.code for u, e in problems.items()} == {gone: "InstanceNotFound"} and set(outcomes) == {host.uuid}
    assert bworld.row(host.uuid).domain_name == "web-elsewhere"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_host_that_does_not_answer(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.answer = lambda name, arguments: {"unreachable": True, "failed": True, "msg": "no route"}  # type: ignore[method-assign]
    host.action.ports.modules = host.answer
    _outcomes, problems = hard_reboot.reboot(host.action, [host.uuid])
    assert problems[host.uuid].code == "HostUnreachable"


# --- what others do with its volumes ---------------------------------------------------------------------------------------

HALF = {
    "reserved": {"export": "none", "iqn": None, "lun": None},
    "exported": {"export": "done"},
    "to_end": {"attach_status": "detached", "export": "ending"},
}


def with_another(host: Host, world: BootWorld, how: str, connector: str) -> str:
    """Another volume, which run ``o2`` began to attach. Returns its id."""
    volume = world.make("data", size=2)
    world.attach({"instance": "web", "volume": "data"}, run="o2")
    world.export(run="o2")
    mine = volume_tables.volume_attachments.c.volume_id == volume
    with world.ledger.write() as tx:
        tx.execute(volume_tables.volume_attachments.update().values(connector=connector))
        tx.execute(volume_tables.volume_attachments.update().where(mine).values(HALF[how]))
        if how == "to_end":
            tx.execute(
                tables.block_device_mappings.delete().where(tables.block_device_mappings.c.device_name == "/dev/vdb")
            )
    return volume


@pytest.mark.parametrize("connector", ["kernel", "qemu"])
@pytest.mark.parametrize("how", HALF)
def test_what_a_dead_run_left_half_attached_is_not_the_guests(bworld: BootWorld, how: str, connector: str) -> None:
    """The guest would lose its power, and not start again."""
    host = Host(bworld)
    volume = with_another(host, bworld, how, connector)
    bworld.time += 10_000
    outcomes, problems = hard_reboot.reboot(host.action, [host.uuid])
    assert problems == {} and outcomes[host.uuid]["power_state"] == 1
    logins = [c["volume_id"] for name, a in host.calls if name == "iscsi_initiator" for c in a["connections"]]
    assert logins == ([host.attachment.volume_id] if connector == "kernel" else [])
    (domain,) = host.calls[-1][1]["domains"]
    assert volume not in domain["xml"] and host.attachment.volume_id in domain["xml"]


@pytest.mark.parametrize("connector", ["kernel", "qemu"])
def test_a_guest_that_another_run_attaches_a_volume_to_keeps_its_power(bworld: BootWorld, connector: str) -> None:
    host = Host(bworld)
    with_another(host, bworld, "exported", connector)
    outcomes, problems = hard_reboot.reboot(host.action, [host.uuid])
    assert outcomes == {} and problems[host.uuid].code == "VolumeLocked" and host.calls == []


def test_a_target_that_is_to_go_keeps_nobody(bworld: BootWorld) -> None:
    """Whoever removes it: the guest has nothing of the volume."""
    host = Host(bworld)
    with_another(host, bworld, "to_end", "kernel")
    assert hard_reboot.reboot(host.action, [host.uuid])[1] == {}


def test_a_start_does_not_log_in_to_what_the_guest_does_not_have(bworld: BootWorld) -> None:
    host = Host(bworld)
    volume = with_another(host, bworld, "to_end", "kernel")
    with bworld.ledger.read() as tx:
        found = attached_volumes.load(tx, [host.uuid])[host.uuid]
    assert {a.volume_id for a in found} == {volume, host.attachment.volume_id}
    assert attached_volumes.reconnect(host.action, found) == {}
    assert [c["volume_id"] for c in host.calls[0][1]["connections"]] == [host.attachment.volume_id]
