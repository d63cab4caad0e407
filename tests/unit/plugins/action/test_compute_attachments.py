# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action compute_attachments and a host's cleaning, on real ledgers, with a host whose modules answer as the real ones do."""

from __future__ import annotations

import typing as t

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.action import audit, compute_attachments
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Operation
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_history
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import cleaning
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

WISH = {"instance": "web", "volume": "data"}
KEPT = errors.DeviceDetachFailed(device="/dev/vdb", reason="the guest keeps it")
BUSY = errors.VolumePathNotRemoved(message="/dev/sdb is in use")


class Host:
    """Compute host h1: its guests have ``disks``, it is logged in to ``volumes``; ``fails``: state -> error."""

    def __init__(self, world: BootWorld, run: str = "v"):
        self.world = world
        self.ports = WorldPorts(world, run, self.run_module)
        self.volumes: dict[str, dict[str, t.Any]] = {}
        self.disks: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.fails: dict[str, errors.BootflowError] = {}
        self.calls: list[str] = []
        self.away = False
        self.broken = ""  # the module whose next call ends unexpectedly

    def action(self) -> t.Any:
        return action_of(compute_attachments, self.ports, {"inventory_hostname": "h1", "hostvars": {"h1": {}}})

    def act(self) -> t.Any:
        return self.action().act()

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if self.away:
            return {"unreachable": True, "msg": "no route"}
        if name == self.broken:
            self.broken = ""
            raise KeyError("lun")
        one = getattr(self, "_" + name)
        items = arguments.get("connections") or arguments.get("disks") or arguments.get("instances")
        outcomes = {}
        for item in items or ():
            self.calls.append(item.get("state") or name)
            error = self.fails.get(item.get("state", name))
            key = item.get("id") or item.get("volume_id") or item.get("uuid")
            outcomes[key] = {"error": error.as_dict() if error else None, **({} if error else one(item))}
        return {"outcomes": outcomes}

    def _iscsi_initiator(self, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        volume = item["volume_id"]
        if item["state"] == "disconnected":
            assert volume not in self.disks, "a disk that a guest has is never taken away"
            self.volumes.pop(volume, None)
            self.world.connections.discard(("h1", volume))
            return {}
        assert "iqn.test:h1" in self.world.initiators[volume]
        self.volumes[volume] = dict(item)
        self.world.connections.add(("h1", volume))
        return {"path": "/dev/disk/by-path/" + volume, "size": 3 * 1024**3}

    def _domain_disk(self, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        volume = item["serial"]
        if item["state"] == "attached":
            disk = etree.fromstring(item["xml"])
            assert disk.find("source").get("dev") == "/dev/disk/by-path/" + volume
            self.disks[volume] = disk.find("target").get("dev")
        elif item["state"] == "detached":
            if self.disks.pop(volume, None):
                assert item["source"] == "/dev/disk/by-path/" + volume, "no other disk is detached for it"
        else:
            assert volume in self.disks
            self.sizes[volume] = item["size"]
        return {}

    def _instance_cleanup(self, _item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.disks.clear()
        return {}


@pytest.fixture
def pair(bworld: BootWorld) -> BootWorld:
    """An instance "web" that runs on h1, whose initiator has a name, and a volume "data"."""
    facts = {"hypervisor_hostname": "h1", "memory_mb": 9 * 1024, "local_gb": 4000, "vcpus": 500}
    with bworld.ledger.write() as tx:
        nodes.record_report(
            tx.for_run(bworld.context()), "h1", {**facts, "initiator": "iqn.test:h1", "qemu_iscsi": True}, {}
        )
    bworld.store()
    bworld.make("data", size=2)
    bworld.boot_of(volume_request("web", image=IMAGE))
    return bworld


def begun(world: BootWorld) -> str:
    """The volume's id; it is reserved and exported."""
    world.attach(WISH, run="v")
    world.storage_round("v")
    return str(world.volume("data").id)


def leaving(world: BootWorld, host: Host) -> str:
    """The volume's id; the guest has it, and it is to go."""
    volume = begun(world)
    assert host.act()["attached"] == [volume]
    world.detach({"volume": "data"}, run="v")
    host.calls.clear()
    return volume


def finish(world: BootWorld, its: Operation) -> list[str | None]:
    """As the playbooks: undo, the storage hosts once more, then the report. The codes of what is left."""
    with world.ledger.write() as tx:
        volume_attach.abandon_attach(tx.for_run(world.context("v")))
    world.storage_round("v")
    with world.ledger.write() as tx:
        _done, left = volume_attach.finish(tx.for_run(world.context("v")), its)
    return [(each["error"] or {}).get("code") for each in left]


def test_into_the_guest_and_out_again(pair: BootWorld) -> None:
    host = Host(pair)
    assert host.act() == {
        "changed": False,
        "attached": [],
        "detached": [],
        "extended": [],
        "swapped": [],
        "problems": {},
    }
    volume = leaving(pair, host)
    assert host.disks == {volume: "vdb"} and pair.attachment("data").device_path == "/dev/disk/by-path/" + volume
    wish = host.volumes[volume]
    assert (wish["lun"], wish["portals"]) == (0, ["192.0.2.1:3260"]) and len(wish["chap_secret"]) >= 16
    assert not host.act()["attached"] and host.calls == ["detached", "disconnected"]
    assert (host.disks, host.volumes) == ({}, {})
    assert finish(pair, volume_attach.DETACH) == [] and pair.status("data") == "available"


def test_a_guest_that_has_another_disk_in_place_of_it_keeps_it(pair: BootWorld) -> None:
    host = Host(pair)
    volume = leaving(pair, host)
    host.fails["detached"] = errors.GuestDisksDiffer(
        instance_uuid="x", host="h1", domain="web", target="vdb", path="/x"
    )
    assert host.act()["problems"][volume]["code"] == "GuestDisksDiffer" and host.calls == ["detached"]
    assert finish(pair, volume_attach.DETACH) == ["GuestDisksDiffer"] and pair.status("data") == "in-use"


def test_the_audit_tells_a_host_which_volumes_its_guests_have(pair: BootWorld) -> None:
    volume = begun(pair)
    Host(pair).act()
    told: list[t.Mapping[str, t.Any]] = []

    def answer(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == "compute_node_info"
        told.append(arguments)
        return {"unreachable": True, "msg": "no route"}

    variables: dict[str, t.Any] = {"inventory_hostname": "h1", "groups": {"bootflow_compute": ["h1"]}}
    variables["hostvars"] = {"h1": {}, "localhost": {}}
    ports = WorldPorts(pair, "v", answer)
    run_stage(action_of(audit, ports, {**variables, "inventory_hostname": "localhost"}, phase="begin"))
    assert not run_stage(action_of(audit, ports, variables, phase="inspect"))["inspected"]
    uuid = pair.attachment("data").instance_uuid
    assert told[0]["list_other_disks"] and told[0]["volumes"] == {uuid: {volume: "/dev/disk/by-path/" + volume}}


def test_a_guest_that_does_not_take_it(pair: BootWorld) -> None:
    volume = begun(pair)
    host = Host(pair)
    host.fails["attached"] = errors.DevicePathInUse(path="/dev/vdb")
    answer = host.act()
    assert answer["problems"][volume]["code"] == "DevicePathInUse" and not answer["changed"]
    assert host.calls == ["connected", "attached", "detached", "disconnected"] and host.volumes == {}
    assert finish(pair, volume_attach.ATTACH) == ["DevicePathInUse"]
    assert pair.status("data") == "available" and pair.live_attachments() == []


def test_a_target_that_is_not_made(pair: BootWorld) -> None:
    pair.attach(WISH, run="v")
    pair.storage_round("v", fail_export=errors.ISCSITargetCreateFailed(volume_id="x"))
    host = Host(pair)
    assert not host.act()["changed"] and host.calls == []
    assert finish(pair, volume_attach.ATTACH) == ["ISCSITargetCreateFailed"]
    assert pair.status("data") == "available" and pair.live_attachments() == []


def test_a_host_that_was_not_asked(pair: BootWorld) -> None:
    volume = begun(pair)
    assert finish(pair, volume_attach.ATTACH) == [None]
    assert pair.status("data") == "available" and pair.initiators[volume] == ()


def test_leftovers_of_a_run_that_lives_are_its_own(pair: BootWorld) -> None:
    volume = begun(pair)
    host = Host(pair)
    host.away = True
    host.act()
    with pair.ledger.write() as tx:
        assert volume_attach.adopt_stale_detachments(tx.for_run(pair.context("w")), [volume]) == []
        assert [
            r.volume_id for r in volume_attach.adopt_stale_detachments(tx.for_run(pair.context("v")), [volume])
        ] == [volume]


def test_a_host_that_is_not_let_in(pair: BootWorld) -> None:
    begun(pair)
    host = Host(pair)
    host.fails["connected"] = errors.FailedISCSITargetPortalLogin()
    host.act()
    assert "attached" not in host.calls and host.volumes == {}
    assert finish(pair, volume_attach.ATTACH) == ["FailedISCSITargetPortalLogin"]
    assert pair.status("data") == "available"


def test_a_host_that_goes_away(pair: BootWorld) -> None:
    volume = begun(pair)
    host = Host(pair)
    host.away = True
    assert host.act()["problems"][volume]["code"] == "HostUnreachable"
    assert any("still has attachment" in text for text in host.ports.warnings)
    assert finish(pair, volume_attach.ATTACH) == ["HostUnreachable"]
    # Nobody knows whether it is connected: the target stays until somebody does.
    assert pair.ends("data")[1:] == ("done", "begun") and pair.initiators[volume] == ("iqn.test:h1",)
    host.away = False
    # The same again: first it is cleaned, by a run of its own.
    again = Host(pair, "w")
    with pair.ledger.write() as tx:
        assert volume_attach.adopt_stale_detachments(tx.for_run(pair.context("w")), ["other"]) == []
        (row,) = volume_attach.adopt_stale_detachments(tx.for_run(pair.context("w")), ["data"])
    assert (row.attached_host, row.storage_host) == ("h1", "s1")
    again.act()
    assert again.calls == ["detached", "disconnected"]
    pair.storage_round("w")
    assert pair.status("data") == "available" and pair.initiators[volume] == ()
    pair.attach(WISH, run="w")
    pair.storage_round("w")
    assert again.act()["attached"] == [volume]


@pytest.mark.parametrize("state, error", [("detached", KEPT), ("disconnected", BUSY)])
def test_what_is_not_given_up_is_in_use(pair: BootWorld, state: str, error: errors.BootflowError) -> None:
    host = Host(pair)
    volume = leaving(pair, host)
    host.fails[state] = error
    answer = host.act()
    assert answer["problems"][volume]["code"] == error.code and volume in host.volumes
    assert finish(pair, volume_attach.DETACH) == [error.code]
    assert pair.status("data") == "in-use" and pair.ends("data") == ("attached", "done", "done")
    host.fails.clear()
    pair.detach({"volume": "data"}, run="v")
    assert host.act()["detached"] == [volume] and finish(pair, volume_attach.DETACH) == []


def test_a_volume_that_grew(pair: BootWorld) -> None:
    volume = begun(pair)
    host = Host(pair)
    host.act()
    host.calls.clear()
    with pair.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().where(volume_tables.volumes.c.id == volume).values(size=3))
        tx.execute(volume_tables.volume_attachments.update().values(rescan=True))
    host.fails["rescanned"] = errors.VolumeDeviceNotFound(device="/dev/x")
    assert host.act()["problems"][volume]["code"] == "VolumeDeviceNotFound" and host.sizes == {}
    host.fails.clear()
    assert host.act()["extended"] == [volume]
    assert host.sizes == {volume: 3 * 1024**3} and host.calls[-2:] == ["rescanned", "resized"]
    assert not host.act()["changed"]


def test_a_host_is_rid_of_an_instance_with_its_volumes(pair: BootWorld) -> None:
    volume = begun(pair)
    host = Host(pair)
    host.act()
    host.calls.clear()
    uuid = str(pair.attachment("data").instance_uuid)
    pair.delete("v", uuids=[uuid])
    host.fails["instance_cleanup"] = errors.LibvirtError(reason="it would not end")
    assert cleaning.clean_host(host.action(), [{"uuid": uuid}]).problems[uuid].code == "LibvirtError"
    assert host.calls == ["instance_cleanup"]  # nothing is taken from below a guest that may run
    host.fails = {"disconnected": BUSY}
    assert cleaning.clean_host(host.action(), [{"uuid": uuid}]).problems[uuid].code == "VolumePathNotRemoved"
    assert pair.ends("data")[1:] == ("done", "done") and volume in host.volumes
    host.fails = {}
    assert cleaning.clean_host(host.action(), [{"uuid": uuid}]).problems == {}
    assert host.volumes == {} and pair.ends("data")[1:] == ("ending", "none")
    pair.removed("h1", [uuid], "v")
    pair.storage_round("v")
    assert pair.status("data") == "available"
    assert pair.finish("v")[1] == []


def test_nothing_of_another_instance_is_touched(pair: BootWorld) -> None:
    pair.make("root", size=1)
    with pair.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().where(volume_tables.volumes.c.name == "root").values(bootable=True))
    pair.boot_of(volume_request("db", device("volume", pair.volume("root").id, 0)), run="b")
    begun(pair)
    host = Host(pair)
    host.act()
    uuid = str(pair.attachment("data").instance_uuid)
    pair.delete("v", uuids=[uuid])
    host.calls.clear()
    assert cleaning.clean_host(host.action(), [{"uuid": uuid}]).problems == {}
    assert host.calls == ["instance_cleanup", "disconnected"]
    assert pair.ends("root") == ("attached", "done", "done")


@pytest.mark.parametrize("module", ["iscsi_initiator", "domain_disk"])
@pytest.mark.parametrize("operation", [volume_attach.ATTACH, volume_attach.DETACH], ids=lambda o: o.name)
def test_the_traceback_of_an_unexpected_error_is_in_the_journal(
    pair: BootWorld, operation: Operation, module: str
) -> None:
    """A step that ended unexpectedly failed the task and left nothing in the ledger."""
    host = Host(pair)
    volume = begun(pair) if operation is volume_attach.ATTACH else leaving(pair, host)
    host.broken = module
    answer = host.act()
    assert answer["problems"][volume]["message"] == "KeyError: 'lun'"
    assert ", in run_module" not in str([answer, host.ports.warnings])
    assert finish(pair, operation) == ["RemoteError"]
    with pair.ledger.read() as tx:
        events = volume_history.events_of(tx, [volume])[volume]
    (event,) = [e for e in events if e["event"] == operation.name and e["result"] == "Error"]
    assert event["host"] == "h1" and event["details"].startswith("KeyError: 'lun'\n  File ")
    assert ", in run_module" in event["details"]
    assert pair.status("data") == ("available" if operation is volume_attach.ATTACH else "in-use")
    assert bool(host.volumes) == (operation is volume_attach.DETACH), "what was begun is undone"


def test_an_export_that_ends_unexpectedly_is_in_the_journal_of_the_attachment(pair: BootWorld) -> None:
    pair.attach(WISH, run="v")
    broken = errors.RemoteError(reason="KeyError: 'portals'", traceback='  File "x.py", line 7, in exports\n')
    pair.storage_round("v", fail_export=broken)
    assert finish(pair, volume_attach.ATTACH) == ["RemoteError"]
    volume = str(pair.volume("data").id)
    with pair.ledger.read() as tx:
        events = volume_history.events_of(tx, [volume])[volume]
    (event,) = [e for e in events if e["result"] == "Error"]
    assert event["event"] == "attach_volume"
    assert event["details"] == "KeyError: 'portals'\n  File \"x.py\", line 7, in exports\n"
