# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compute end of attachments: on a real ledger, with modules that answer as the real ones do."""

from __future__ import annotations

import json
import types

import pytest
import sqlalchemy as sa
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_devices import PlannedDisk
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.metadata import config_drive_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.hosts import HOST
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.qemu_connection import secret_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot.builds import Build
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds import domain_builder
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import attached_volumes
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.attached_volumes import Attached
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes.volume_secrets import chap_of

LEDGER = "1ed9e000-0000-4000-8000-000000000001"
GUEST = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2c01"
OTHER_GUEST = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2c02"
PORTAL = "192.0.2.10:3260"
INITIATOR = "iqn.1993-08.org.debian:01:5f7a1c2b3d4e"
FACTS = {"initiator": INITIATOR, "qemu_iscsi": True}
NOW = 1_700_000_000.0


def volume_id(number):
    return "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d%02x" % number


def attachment_id(number, guest=GUEST):
    return "a77ac000-0000-4000-8000-0000000%s%03x" % (guest[-2:], number)


def iqn(number):
    return "iqn.2010-10.org.openstack:volume-" + volume_id(number)


def path(number):
    return "/dev/disk/by-path/ip-%s-iscsi-%s-lun-1" % (PORTAL, iqn(number))


def row(number=1, connector="kernel", **more):
    return types.SimpleNamespace(
        **{
            "id": attachment_id(number),
            "volume_id": volume_id(number),
            "instance_uuid": GUEST,
            "attach_mode": "rw",
            "mountpoint": "/dev/vd%s" % "abcdef"[number],
            "connector": connector,
            "initiator": INITIATOR,
            "iqn": iqn(number),
            "lun": 1,
            "portals": [PORTAL],
            "device_path": path(number) if connector == "kernel" else None,
            "connection": "done",
            **more,
        }
    )


def attached(number=1, connector="kernel", multiattach=False, **more):
    return Attached(row(number, connector, **more), types.SimpleNamespace(multiattach=multiattach, size=1))


# --- the host -----------------------------------------------------------------------------------------------------------


def test_for_whom_a_volume_is_exported():
    hostvars = {
        "kvm1": {},
        "kvm 1/Æ.example.org": {"bootflow_volume_attach": "qemu"},
        "wrong": {"bootflow_volume_attach": "nfs"},
    }
    connector = attached_volumes.connectors_of(hostvars, ["kvm1", "kvm 1/Æ.example.org"])
    assert connector("kvm1", FACTS) == attachments.Connector("kvm1", INITIATOR, "kernel")
    end = connector("kvm 1/Æ.example.org", {"initiator": None})
    assert end.initiator == "iqn.2026-01.compute.bootflow:kvm-1-.example.org-d23e194a" and end.kind == "qemu"
    with pytest.raises(errors.Conflict, match="Host kvm9 got one of the instances while this run began"):
        connector("kvm9", FACTS)
    with pytest.raises(errors.InvalidInput, match="bootflow_volume_attach must be one of kernel, qemu, got 'nfs'"):
        attached_volumes.connectors_of(hostvars, ["wrong"])


def test_where_a_host_has_a_volume():
    assert attached_volumes.source_of(row()) == path(1)
    assert attached_volumes.source_of(row(connector="qemu")) == iqn(1) + "/1"
    assert attached_volumes.source_of(row(device_path=None)) == ""
    assert attached_volumes.source_of(row(connector="qemu", iqn=None, lun=None)) == ""


@pytest.mark.parametrize(
    "connector, facts, words",
    [
        ("kernel", {"initiator": None, "qemu_iscsi": True}, "Host kvm1 has no iSCSI initiator"),
        ("qemu", {"initiator": INITIATOR, "qemu_iscsi": False}, "Host kvm1 has no iSCSI driver of QEMU"),
    ],
)
def test_a_host_that_cannot(connector, facts, words):
    with pytest.raises(errors.HostLacksHardware, match=words) as caught:
        attached_volumes.check_host("kvm1", connector, facts)
    assert caught.value.retryable and "bootflow_volume_attach: " in caught.value.remedy
    attached_volumes.check_host("kvm1", {"kernel": "qemu", "qemu": "kernel"}[connector], facts)


# --- as a guest's disk --------------------------------------------------------------------------------------------------


def disk(number=0, **more):
    name = "/dev/vd%s" % "abcdef"[number]
    values = {"name": name, "kind": "volume", "device_name": name, "disk_bus": "virtio", "backend": "volume"}
    return {**values, **({"boot_index": 0} if number == 0 else {}), **more}


def build(*disks, image=None, **more):
    flavor = {"name": "tiny", "vcpus": 1, "memory_mb": 256, "root_gb": 1}
    values = {
        "uuid": GUEST,
        "machine_type": None,
        "domain_name": "web-" + GUEST,
        "display_name": "web",
        "hostname": "web",
        "project": "default",
        "user_name": "ann",
        "host": "kvm1",
        "node": "kvm1",
        "memory_mb": 256,
        "vcpus": 1,
        "config_drive": True,
        "created_at": NOW,
        "availability_zone": "nova",
        "launch_index": 0,
        "reservation_id": "r-1",
        "ssh_host_key": None,
        "spec": {"flavor": flavor, "image": image, "key_name": None, "key_data": None, "metadata": {}},
        **more,
    }
    facts = {"virt_type": "qemu", "cpu_info": {"arch": "x86_64"}}
    return Build(row=types.SimpleNamespace(**values), disks=list(disks), ports=[], facts=facts)


def domain(*disks, volumes=(), **more):
    settings = HOST.read(more)
    xml = domain_builder.domain_xml(build(*disks), settings, volumes)
    schema = etree.RelaxNG(etree.parse("/usr/share/libvirt/schemas/domain.rng"))
    tree = etree.fromstring(xml.encode())
    assert schema.validate(tree), schema.error_log
    return tree


def test_a_root_volume_by_the_kernel():
    volume = attached(0)
    tree = domain(disk(0, volume_id=volume_id(0)), volumes=[volume])
    found = tree.find("devices/disk")
    assert found.get("type") == "block" and found.find("source").attrib == {"dev": path(0)}
    assert dict(found.find("driver").attrib) == {"name": "qemu", "type": "raw", "cache": "none", "io": "native"}
    assert found.findtext("serial") == volume_id(0) and dict(found.find("target").attrib) == {
        "dev": "vda",
        "bus": "virtio",
    }
    assert found.find("readonly") is None and found.find("shareable") is None
    assert tree.find("os/boot").get("dev") == "hd"  # libvirt starts the first disk


def test_a_root_volume_by_qemu():
    volume = attached(0, "qemu")
    tree = domain(disk(0), volumes=[volume])  # of a volume that had no UUID when it was planned: found by its place
    found = tree.find("devices/disk")
    assert found.get("type") == "network" and found.findtext("serial") == volume_id(0)
    source = found.find("source")
    assert dict(source.attrib) == {"protocol": "iscsi", "name": iqn(0) + "/1"}
    assert dict(source.find("host").attrib) == {"name": "192.0.2.10", "port": "3260"}
    assert source.find("initiator/iqn").get("name") == INITIATOR
    assert found.find("auth").get("username") == chap_of(volume.volume_id, volume.row.initiator).user
    assert dict(found.find("auth/secret").attrib) == {"type": "iscsi", "uuid": secret_uuid(iqn(0))}
    assert dict(found.find("driver").attrib) == {"name": "qemu", "type": "raw", "cache": "none"}
    assert chap_of(volume.volume_id, volume.row.initiator).secret not in etree.tostring(tree).decode()


def test_modes_and_sharing():
    tree = domain(
        disk(0, volume_id=volume_id(0)),
        disk(1, volume_id=volume_id(1)),
        volumes=[attached(0), attached(1, attach_mode="ro", multiattach=True)],
    )
    first, second = tree.findall("devices/disk")[:2]
    assert first.find("readonly") is None and second.find("readonly") is not None
    assert first.find("shareable") is None and second.find("shareable") is not None
    assert [d.findtext("serial") for d in (first, second)] == [volume_id(0), volume_id(1)]


def test_a_plan_before_anything_is_exported():
    planned = disk(0, volume_id=volume_id(0))
    for volumes in ((), [attached(0, device_path=None, iqn=None)], [attached(0, "qemu", iqn=None)]):
        found = domain(planned, volumes=volumes).find("devices/disk")
        assert volume_id(0) in found.find("source").get("dev")


def test_the_xml_of_one_volume_for_a_guest_that_is_there():
    scsi = {"disk_bus": "scsi", "device_name": "/dev/sdb", "volume_id": volume_id(1)}
    build_ = build(disk(0, volume_id=volume_id(0)), disk(1, **scsi))
    volumes = [attached(0), attached(1, mountpoint="/dev/sdb")]
    xml = domain_builder.volume_xml(build_, HOST.read({}), volumes, volumes[1])
    tree = etree.fromstring(xml)
    assert tree.tag == "disk" and tree.findtext("serial") == volume_id(1)
    assert tree.find("target").get("dev") == "sdb"
    assert tree.find("address") is None and tree.find("boot") is None
    with pytest.raises(errors.VolumeAttachmentNotFound):
        domain_builder.volume_xml(build_, HOST.read({}), volumes[:1], attached(3))


def test_tags_in_the_metadata():
    local = {"name": "disk", "kind": "image", "device_name": "/dev/vda", "disk_bus": "virtio", "tag": None}
    build_ = build(
        local,
        disk(1, tag="database", volume_id=volume_id(1)),
        disk(2, volume_id=volume_id(2)),
        {
            **local,
            "name": "disk.eph0",
            "kind": "ephemeral",
            "device_name": "/dev/sdb",
            "disk_bus": "scsi",
            "tag": "scratch",
        },
    )
    volume = {"type": "disk", "name": "vdb", "bus": "pci", "address": "0000:03:00.0"}
    scratch = {"type": "disk", "name": "sdb", "bus": "scsi"}
    places = [{"type": "disk", "name": "vda"}, scratch, volume, {"type": "nic", "mac": "fa:16:3e:00:00:01"}]
    assert list(domain_builder.tagged_devices(build_, [attached(1), attached(2)], places)) == [
        {**scratch, "serial": None, "tags": ["scratch"]},
        {**volume, "serial": volume_id(1), "tags": ["database"]},
    ]
    md = domain_builder.instance_metadata(build_, HOST.read({}), None, "", [attached(1), attached(2)], places)
    files = config_drive_files(md)
    assert volume_id(1).encode() in files["openstack/latest/meta_data.json"]


def test_ec2_metadata_names_the_disks_of_the_build():
    local = {"disk_bus": "virtio", "tag": None, "boot_index": None}
    build_ = build(
        {**local, "name": "disk", "kind": "image", "device_name": "/dev/vda", "boot_index": 0},
        {**local, "name": "disk.eph0", "kind": "ephemeral", "device_name": "/dev/vdb"},
        {**local, "name": "disk.swap", "kind": "swap", "device_name": "/dev/vdc"},
        disk(3, volume_id=volume_id(3)),
    )
    files = config_drive_files(domain_builder.instance_metadata(build_, HOST.read({}), None, "", [attached(3)]))
    assert json.loads(files["ec2/latest/meta-data.json"])["block-device-mapping"] == {
        "ami": "vda",
        "root": "/dev/vda",
        "ephemeral0": "/dev/vdb",
        "swap": "/dev/vdc",
        "ebs0": "/dev/vdd",
    }


# --- connecting ---------------------------------------------------------------------------------------------------------


class Host:
    """A compute host as an action sees it. Its modules remember what they were told, and fail as they are told."""

    def ledger_id(self):
        return LEDGER

    def __init__(self):
        self.task_vars = {"inventory_hostname": "kvm1"}
        self.calls = []
        self.fails = {}
        self.size = 1024**3

    def variable(self, _name, default=None):
        return default

    def run_module(self, name, arguments):
        self.calls.append((name, arguments))
        if name in self.fails:
            raise self.fails[name]
        items = arguments.get("connections") or arguments.get("secrets")
        key = "volume_id" if name == "iscsi_initiator" else "iqn"
        outcomes = {}
        for item in items:
            error = self.fails.get(item[key])
            outcomes[item[key]] = {"changed": True, "error": error.as_dict() if error else None}
            if name == "iscsi_initiator" and item["state"] == "connected":
                outcomes[item[key]]["path"] = "/dev/disk/by-path/" + item[key]
            if name == "iscsi_initiator" and item["state"] == "rescanned":
                outcomes[item[key]]["size"] = self.size
        return {"outcomes": outcomes}


@pytest.fixture
def ledger(tmp_path):
    ledger = database.open_ledger(str(tmp_path / "ledger.db"), create=True, check_revision=False)
    with ledger.write() as tx:
        runner.upgrade(tx)
    yield ledger
    ledger.close()


def context(run="a"):
    identity = this_run.RunIdentity("run-" + run, "controller", "boot", "", 1, 1, "ann")
    return Context(run=identity, request_id="req-" + run, clock=lambda: NOW)


def enter(ledger, number, connector="kernel", guest=GUEST, connection="none", **more):
    """A volume that is exported to kvm1 for run a."""
    volume = {
        "id": volume_id(number),
        "project": "default",
        "size": 1,
        "status": "attaching",
        "multiattach": more.pop("multiattach", False),
        "made": True,
        "spec": {},
        "meta": {},
        "image_metadata": {},
        "created_at": NOW,
        "updated_at": NOW,
    }
    values = {
        "id": attachment_id(number, guest),
        "volume_id": volume_id(number),
        "instance_uuid": guest,
        "attach_status": "attaching",
        "mountpoint": "/dev/vdb",
        "attached_host": "kvm1",
        "storage_host": "storage1",
        "connector": connector,
        "initiator": INITIATOR,
        "export": "done",
        "connection": connection,
        "iqn": iqn(number),
        "lun": 1,
        "portals": [PORTAL],
        "run_id": "run-a",
        "created_at": NOW,
        **more,
    }
    with ledger.write() as tx:
        if not tx.execute(
            sa.select(volume_tables.volumes.c.id).where(volume_tables.volumes.c.id == volume_id(number))
        ).first():
            tx.execute(volume_tables.volumes.insert().values(**volume))
        tx.execute(volume_tables.volume_attachments.insert().values(**values))


def found(ledger, *guests):
    known = ledger.inspect(attached_volumes.load, list(guests or (GUEST,)))
    return [a for group in known.values() for a in group]


def state(ledger, number, guest=GUEST):
    with ledger.read() as tx:
        table = volume_tables.volume_attachments
        got = tx.execute(sa.select(table).where(table.c.id == attachment_id(number, guest))).one()
    return got.connection, got.export, got.device_path


def test_connecting_by_either_connector(ledger):
    enter(ledger, 1)
    enter(ledger, 2, "qemu")
    host = Host()
    assert attached_volumes.connect(host, ledger.for_run(context()), found(ledger), FACTS) == {}
    (name, arguments), (secret_name, secret_arguments) = host.calls
    assert name == "iscsi_initiator" and secret_name == "iscsi_secret"
    chap = chap_of(volume_id(1), INITIATOR)
    assert arguments["connections"] == [
        {
            "volume_id": volume_id(1),
            "state": "connected",
            "iqn": iqn(1),
            "lun": 1,
            "portals": [PORTAL],
            "chap_user": chap.user,
            "chap_secret": chap.secret,
        }
    ]
    assert secret_arguments["secrets"] == [
        {"iqn": iqn(2), "state": "present", "value": chap_of(volume_id(2), INITIATOR).secret}
    ]
    assert state(ledger, 1) == ("done", "done", "/dev/disk/by-path/" + volume_id(1))
    assert state(ledger, 2) == ("done", "done", None)


def test_one_that_fails_fails_no_other_and_is_remembered(ledger):
    enter(ledger, 1)
    enter(ledger, 2)
    host = Host()
    host.fails[volume_id(1)] = errors.FailedISCSITargetPortalLogin()
    problems = attached_volumes.connect(host, ledger.for_run(context()), found(ledger), FACTS)
    assert {k: p.code for k, p in problems.items()} == {attachment_id(1): "FailedISCSITargetPortalLogin"}
    assert state(ledger, 1)[0] == "begun"  # something may be there
    assert state(ledger, 2)[0] == "done"


def test_a_host_that_does_not_answer(ledger):
    enter(ledger, 1)
    enter(ledger, 2, "qemu")
    host = Host()
    host.fails["iscsi_initiator"] = errors.HostUnreachable(host="kvm1", reason="no route")
    problems = attached_volumes.connect(host, ledger.for_run(context()), found(ledger), FACTS)
    assert {k: p.code for k, p in problems.items()} == {attachment_id(1): "HostUnreachable"}
    assert state(ledger, 1)[0] == "begun" and state(ledger, 2)[0] == "done"


def test_what_is_not_to_be_connected_is_not(ledger):
    enter(ledger, 1, export="begun")
    enter(ledger, 2, run_id="run-b")
    enter(ledger, 3, "qemu")
    host = Host()
    facts = {**FACTS, "qemu_iscsi": False}
    problems = attached_volumes.connect(host, ledger.for_run(context()), found(ledger), facts)
    assert host.calls == []
    assert {k: p.code for k, p in problems.items()} == {
        attachment_id(1): "InvalidVolume",
        attachment_id(2): "InvalidVolume",
        attachment_id(3): "HostLacksHardware",
    }
    assert [state(ledger, n)[0] for n in (1, 2, 3)] == ["none"] * 3


def test_disconnecting(ledger):
    enter(ledger, 1, connection="done")
    enter(ledger, 2, "qemu", connection="begun")
    enter(ledger, 3, connection="done")
    enter(ledger, 4, connection="none")
    host = Host()
    host.fails[volume_id(3)] = errors.VolumePathNotRemoved(message="/dev/sdc is in use: open in qemu")
    problems = attached_volumes.disconnect(host, ledger.for_run(context()), found(ledger), ())
    assert {k: p.code for k, p in problems.items()} == {attachment_id(3): "VolumePathNotRemoved"}
    (_name, arguments), (_secret_name, secret_arguments) = host.calls
    assert [(c["volume_id"], c["state"]) for c in arguments["connections"]] == [
        (volume_id(1), "disconnected"),
        (volume_id(3), "disconnected"),
    ]
    assert all("chap_secret" not in c for c in arguments["connections"])
    assert secret_arguments["secrets"] == [{"iqn": iqn(2), "state": "absent"}]
    assert [state(ledger, n)[:2] for n in (1, 2, 4)] == [("none", "ending")] * 3
    assert state(ledger, 3)[:2] == ("done", "done")  # a target that is in use stays


def test_a_volume_of_two_guests_stays_for_the_second(ledger):
    enter(ledger, 1, connection="done", multiattach=True)
    enter(ledger, 1, guest=OTHER_GUEST, connection="done")
    host = Host()
    shared = ledger.inspect(attachments.shared_on, "kvm1", [volume_id(1)], [GUEST])
    assert shared == {volume_id(1)}
    assert attached_volumes.disconnect(host, ledger.for_run(context()), found(ledger), shared) == {}
    assert host.calls == [] and state(ledger, 1)[0] == "none" and state(ledger, 1, OTHER_GUEST)[0] == "done"
    assert ledger.inspect(attachments.shared_on, "kvm1", [volume_id(1)], [OTHER_GUEST]) == set()


def test_the_second_guest_of_a_host_uses_the_session_of_the_first(ledger):
    enter(ledger, 1, connection="done", multiattach=True, attach_status="attached", run_id=None)
    enter(ledger, 1, guest=OTHER_GUEST)
    enter(ledger, 2, guest=OTHER_GUEST)
    host = Host()
    assert attached_volumes.connect(host, ledger.for_run(context()), found(ledger, OTHER_GUEST), FACTS) == {}
    ((_name, arguments),) = host.calls
    first, second = sorted(arguments["connections"], key=lambda c: c["volume_id"])
    assert first["volume_id"] == volume_id(1) and first["shared"] is True and "chap_secret" not in first
    assert "shared" not in second and second["chap_user"] == chap_of(volume_id(2), INITIATOR).user
    assert state(ledger, 1, OTHER_GUEST)[2] == "/dev/disk/by-path/" + volume_id(1)


def test_two_guests_of_a_host_that_get_a_volume_at_once_log_in_once(ledger):
    enter(ledger, 1, multiattach=True)
    enter(ledger, 1, guest=OTHER_GUEST)
    host = Host()
    assert attached_volumes.connect(host, ledger.for_run(context()), found(ledger, GUEST, OTHER_GUEST), FACTS) == {}
    ((_name, arguments),) = host.calls
    (wish,) = arguments["connections"]
    assert wish["chap_user"] == chap_of(volume_id(1), INITIATOR).user and "shared" not in wish
    assert state(ledger, 1)[0] == state(ledger, 1, OTHER_GUEST)[0] == "done"


def test_qemu_logs_in_for_each_guest_by_itself(ledger):
    guests = (GUEST, OTHER_GUEST)
    ids = [attachment_id(1, guest) for guest in guests]
    initiators = ["iqn.2026-01.compute.bootflow:" + i for i in ids]
    for guest, initiator in zip(guests, initiators):
        enter(ledger, 1, "qemu", guest=guest, multiattach=True, initiator=initiator)
    host = Host()
    assert attached_volumes.connect(host, ledger.for_run(context()), found(ledger, *guests), FACTS) == {}
    ((name, arguments),) = host.calls
    chaps = [chap_of(volume_id(1), initiator) for initiator in initiators]
    secrets = {"%s:%s" % (iqn(1), i): chap.secret for i, chap in zip(ids, chaps)}
    assert name == "iscsi_secret" and {e["iqn"]: e["value"] for e in arguments["secrets"]} == secrets
    for each, chap in zip(found(ledger, *guests), chaps):
        disk = attached_volumes.guest_disk(PlannedDisk("v", "volume", "/dev/vdb", "virtio"), each)
        assert disk.connection["auth"]["username"] == chap.user
        assert disk.connection["auth"]["secret_uuid"] == secret_uuid("%s:%s" % (iqn(1), each.id))
        assert disk.connection["initiator"] == each.row.initiator and disk.shareable
    # each takes its own away, whoever else has the volume there
    shared = ledger.inspect(attachments.shared_on, "kvm1", [volume_id(1)], [GUEST])
    assert shared == set()
    host.calls.clear()
    assert attached_volumes.disconnect(host, ledger.for_run(context()), found(ledger), {volume_id(1)}) == {}
    assert host.calls[0][1]["secrets"] == [{"iqn": "%s:%s" % (iqn(1), ids[0]), "state": "absent"}]


def test_a_host_logs_in_again_with_the_credentials_of_its_records(ledger):
    enter(ledger, 1, connection="done")
    enter(ledger, 2, "qemu", connection="done")
    host = Host()
    assert attached_volumes.reconnect(host, found(ledger)) == {}
    ((name, arguments),) = host.calls
    (connection,) = arguments["connections"]
    assert name == "iscsi_initiator" and connection["volume_id"] == volume_id(1)
    assert connection["state"] == "connected" and connection["shared"] and "chap_secret" not in connection
    host.fails[volume_id(1)] = errors.VolumeDeviceNotFound(device="/dev/x")
    assert {p.code for p in attached_volumes.reconnect(host, found(ledger)).values()} == {"VolumeDeviceNotFound"}
    host.fails["iscsi_initiator"] = errors.HostUnreachable(host="kvm1", reason="no route")
    assert list(attached_volumes.reconnect(host, found(ledger))) == [attachment_id(1)]
    assert attached_volumes.reconnect(host, []) == {}


def test_looking_again_is_for_the_kernel(ledger):
    enter(ledger, 1, connection="done")
    enter(ledger, 2, "qemu", connection="done")
    host = Host()
    assert attached_volumes.rescan(host, found(ledger)) == {}
    ((name, arguments),) = host.calls
    assert name == "iscsi_initiator" and [c["state"] for c in arguments["connections"]] == ["rescanned"]
    host.size -= 512
    (problem,) = attached_volumes.rescan(host, found(ledger)).values()
    assert "%d bytes" % host.size in problem.message and problem.remedy
    host.fails[volume_id(1)] = errors.VolumeDeviceNotFound(device="/dev/x")
    assert [p.code for p in attached_volumes.rescan(host, found(ledger)).values()] == ["VolumeDeviceNotFound"]
