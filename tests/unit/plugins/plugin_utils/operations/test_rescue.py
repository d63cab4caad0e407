# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rescues on a host whose modules answer as the real ones: what each gets, in which order, and what a failure undoes."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.action import instance_operation
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_images import image_data
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Begun
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations import rescue
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import image_upload
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, from_image, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, request

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])

SUM = "sha256:" + "1" * 64
IMAGES = [
    {"name": "cirros", "id": IMAGE.id, "checksum": "0" * 64, "disk_format": "qcow2", "url": IMAGE.url},
    {"name": "helper", "checksum": SUM, "disk_format": "qcow2", "path": "/srv/helper.qcow2", "min_disk": 1,
     "properties": {"os_admin_user": "helper"}},
    {"name": "large", "checksum": SUM, "disk_format": "qcow2", "path": "/srv/large.qcow2", "min_disk": 40},
    {"name": "cd", "checksum": SUM, "disk_format": "iso", "path": "/srv/cd.iso", "min_disk": 1},
    {"name": "efi", "checksum": SUM, "disk_format": "qcow2", "path": "/srv/efi.qcow2", "min_disk": 1,
     "properties": {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}},
]  # fmt: skip


class Host:
    """h1 with one guest; with ``volume`` its root disk is a volume."""

    def __init__(
        self,
        world: BootWorld,
        volume: bool = False,
        check_mode: bool = False,
        image: Image = IMAGE,
        uefi: bool = True,
        **options: t.Any,
    ):
        facts = {"hypervisor_hostname": "h1", "memory_mb": 9 * 1024, "local_gb": 4000, "vcpus": 500, "uefi": uefi}
        with world.ledger.write() as tx:
            facts.update(initiator="iqn.test:h1", qemu_iscsi=True)
            nodes.record_report(tx.for_run(world.context()), "h1", facts, {})
        world.store()
        wanted = request("web", config_drive=True, image=image)
        if volume:
            wanted = volume_request("web", from_image(), config_drive=True)
        (self.uuid,) = world.boot_of(wanted)
        self.calls: list[tuple[str, dict[str, t.Any]]] = []
        self.fails: dict[str, errors.BootflowError] = {}  # module -> the error of its item
        self.there = False  # the image
        self.world = world
        ports = WorldPorts(world, "o", self.answer)
        variables = {"bootflow_images": IMAGES, "inventory_hostname": "h1", "hostvars": {"h1": {}, "localhost": {}}}
        self.action = action_of(instance_operation, ports, variables, check_mode, operation="rescue", **options)

    def answer(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        state = ":" + arguments["state"] if name == "domain_rescue" else ""
        self.calls.append((name + state, dict(arguments)))
        good = {"error": None, "changed": True}
        if name == "iscsi_initiator":
            path = {"path": "/dev/disk/by-path/x", "size": 1}
            return {"outcomes": {c["volume_id"]: {**good, **path} for c in arguments["connections"]}}
        if name == "instance_disks" and not (self.there or arguments["fetch"]):
            pending = {i["uuid"]: {**good, "pending": [i["disks"][0]["image_id"]]} for i in arguments["instances"]}
            return {"outcomes": pending, "missing_images": []}
        items = next(arguments[n] for n in ("domains", "drives", "instances", "networks") if arguments.get(n))
        outcome = {**good, "power_state": 1} if name in ("domain", "domain_rescue") else {**good}
        if name + state == "domain_rescue:saved":
            outcome["ran"] = True
        if name + state in self.fails:
            outcome = {"changed": False, "error": self.fails[name + state].as_dict()}
        return {"outcomes": {i.get("uuid") or i["name"]: outcome for i in items}}

    @property
    def items(self) -> list[dict[str, t.Any]]:
        """The item that the stage begin makes of the instance."""
        with self.world.ledger.read() as tx:
            (row,) = instances.select_live(tx, uuids=[self.uuid])
        asked = self.action.options["rescue_image_ref"]
        image = rescue.flow.image_of(row, rescue._images(self.action), asked)
        return [{"uuid": self.uuid, "rescue_image": image_data(image)}]

    def names(self) -> list[str]:
        return [name for name, _arguments in self.calls]

    def given(self, name: str) -> dict[str, t.Any]:
        return next(arguments for called, arguments in self.calls if called == name)

    def rescue(self) -> tuple[dict[str, t.Any], dict[str, str]]:
        outcomes, problems = rescue.rescue(self.action, self.items)
        return outcomes, {u: e.code for u, e in problems.items()}

    def check(self) -> None:
        with self.world.ledger.write() as tx:
            rescue.check(self.action, tx, Begun(instances.select_live(tx, uuids=[self.uuid], lock=False)))


def disks_of(domain: dict[str, t.Any]) -> list[tuple[str, str]]:
    """(target, file or serial) of each disk."""
    return [
        (d.find("target").get("dev"), (d.find("source").get("file") or "").rpartition("/")[2] or d.findtext("serial"))
        for d in etree.fromstring(domain["xml"]).iter("disk")
    ]


def test_the_definition_is_kept_before_anything_is_made(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.there = True
    outcomes, problems = host.rescue()
    assert problems == {} and outcomes[host.uuid]["power_state"] == 1
    assert host.names() == ["domain_rescue:saved", "virtual_network", "instance_disks", "config_drive", "domain"]
    assert host.given("instance_disks")["instances"] == [
        {
            "uuid": host.uuid,
            "disks": [
                {
                    "name": "disk.rescue",
                    "kind": "image",
                    "backend": "qcow2",
                    "image_id": IMAGE.id,
                    "size_gb": 0,
                    "max_size_gb": 1,
                }
            ],
        }
    ]
    (domain,) = host.given("domain")["domains"]
    assert domain["shutdown_timeout"] == 60.0, "the guest is asked before it loses its power"
    assert domain["restart"] and disks_of(domain) == [
        ("vda", "disk.rescue"),
        ("vdb", "disk"),
        ("hda", "disk.config.rescue"),
    ]
    (kept,) = host.given("domain_rescue:saved")["domains"]
    assert [name for _dev, name in disks_of(kept)] == ["disk", "disk.config"]


def test_the_drive_tells_the_password_of_the_rescue_only(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.there = True
    host.rescue()
    (drive,) = host.given("config_drive")["drives"]
    files = unpack_files(drive["files"])
    told = json.loads(files["openstack/latest/meta_data.json"])
    assert told["admin_pass"] == rescue.password_of(host.action, host.uuid) and drive["path"].endswith(
        "/disk.config.rescue"
    )
    assert not any(name.endswith("user_data") for name in files)
    assert json.loads(files["ec2/latest/meta-data.json"])["block-device-mapping"]["root"] == "/dev/vda"
    assert "ephemeral0" not in json.loads(files["ec2/latest/meta-data.json"])["block-device-mapping"]


def test_a_given_password_is_set_by_the_user_of_the_rescue_image(bworld: BootWorld, monkeypatch: t.Any) -> None:
    host = Host(bworld, rescue_image_ref="helper", rescue_password="s3cret-s3cret")
    host.there = True
    host.rescue()
    (drive,) = host.given("config_drive")["drives"]
    files = unpack_files(drive["files"])
    assert b"s3cret-s3cret" not in b"".join(files.values())
    assert b"helper" in files["openstack/latest/vendor_data.json"]


def test_a_volume_as_root_disk_is_connected_first_and_second_in_the_guest(bworld: BootWorld) -> None:
    host = Host(bworld, volume=True, rescue_image_ref="helper")
    host.there = True
    (attachment,) = bworld.live_attachments()
    assert host.rescue()[1] == {}
    assert host.names()[:2] == ["iscsi_initiator", "domain_rescue:saved"]
    (domain,) = host.given("domain")["domains"]
    assert disks_of(domain)[:2] == [("vda", "disk.rescue"), ("vdb", attachment.volume_id)]
    assert host.given("instance_disks")["instances"][0]["disks"][0]["max_size_gb"] == 5


@pytest.mark.parametrize("backend", ["qcow2", "raw", "lvm", "qcow2_on_lvm"])
def test_it_is_a_file_in_the_folder_with_every_backend(bworld: BootWorld, backend: str) -> None:
    """The guest's own disks stay where their backend has them."""
    host = Host(bworld)
    host.there = True
    host.action.task_vars.update(bootflow_disk_backend=backend, bootflow_disk_volume_group="vg")
    assert host.rescue()[1] == {}
    (wanted,) = host.given("instance_disks")["instances"][0]["disks"]
    assert wanted["backend"] == ("raw" if backend == "raw" else "qcow2")
    (domain,) = host.given("domain")["domains"]
    first, second, *_drive = etree.fromstring(domain["xml"]).iter("disk")
    assert first.find("source").get("file").endswith("/%s/disk.rescue" % host.uuid)
    assert first.find("driver").get("type") == wanted["backend"]
    own = {"lvm": "/dev/vg/%s_disk" % host.uuid, "qcow2_on_lvm": "/%s/disk/disk" % host.uuid}
    place = second.find("source").get("file") or second.find("source").get("dev")
    assert place.endswith(own.get(backend, "/%s/disk" % host.uuid))


def test_an_iso_is_a_cdrom_behind_the_guests_own_names(bworld: BootWorld) -> None:
    host = Host(bworld, rescue_image_ref="cd")
    host.there = True
    assert host.rescue()[1] == {}
    (domain,) = host.given("domain")["domains"]
    assert disks_of(domain) == [("vda", "disk"), ("hda", "disk.rescue"), ("hdb", "disk.config.rescue")]
    root = etree.fromstring(domain["xml"])
    assert [b.get("dev") for b in root.iterfind("os/boot")] == ["cdrom"], "the first CD-ROM is that of the rescue"


def test_an_iso_is_on_a_bus_that_the_machine_has(bworld: BootWorld) -> None:
    host = Host(bworld, rescue_image_ref="cd")
    host.there = True
    with bworld.ledger.write() as tx:
        tx.execute(tables.instances.update().values(machine_type="q35"))
    assert host.rescue()[1] == {}
    (domain,) = host.given("domain")["domains"]
    buses = {
        d.find("target").get("dev"): d.find("target").get("bus") for d in etree.fromstring(domain["xml"]).iter("disk")
    }
    assert buses == {"vda": "virtio", "sda": "sata", "sdb": "scsi"}


EFI = dataclasses.replace(IMAGE, properties={"hw_firmware_type": "uefi", "hw_machine_type": "q35"})


def firmware_of(domain: dict[str, t.Any]) -> tuple[str | None, str | None, str]:
    """(firmware, name of the file of its variables, machine type)"""
    os = etree.fromstring(domain["xml"]).find("os")
    return os.get("firmware"), (os.findtext("nvram") or "").rpartition("/")[2] or None, os.find("type").get("machine")


@pytest.mark.parametrize(
    ("image", "options", "own", "of_rescue"),
    [
        (EFI, {"rescue_image_ref": "helper"}, ("efi", "disk.nvram", "q35"), (None, None, "pc")),
        (IMAGE, {"rescue_image_ref": "efi"}, (None, None, "pc"), ("efi", "disk.nvram.rescue", "q35")),
        (EFI, {"rescue_image_ref": "efi"}, ("efi", "disk.nvram", "q35"), ("efi", "disk.nvram.rescue", "q35")),
        (EFI, {"rescue_image_ref": "cd"}, ("efi", "disk.nvram", "q35"), ("efi", "disk.nvram.rescue", "q35")),
    ],
)
def test_firmware_and_machine_are_those_of_the_rescue_image(
    bworld: BootWorld, image: Image, options: dict[str, t.Any], own: t.Any, of_rescue: t.Any
) -> None:
    """As in Nova. No rescue has the guest's own UEFI variables."""
    host = Host(bworld, image=image, **options)
    host.there = True
    assert host.rescue()[1] == {}
    (domain,) = host.given("domain")["domains"]
    (kept,) = host.given("domain_rescue:saved")["domains"]
    assert (firmware_of(kept), firmware_of(domain)) == (own, of_rescue)


@pytest.mark.parametrize(("name", "machine"), [(None, "pc-q35-7.2"), ("cirros", "pc-q35-7.2"), ("helper", "pc")])
def test_a_guest_in_its_own_image_keeps_the_machine_that_it_was_booted_with(
    bworld: BootWorld, name: str | None, machine: str
) -> None:
    host = Host(bworld, **({"rescue_image_ref": name} if name else {}))
    host.there = True
    with bworld.ledger.write() as tx:
        tx.execute(tables.instances.update().values(machine_type="pc-q35-7.2"))
    assert host.rescue()[1] == {}
    assert firmware_of(host.given("domain")["domains"][0])[2] == machine


def test_a_firmware_that_the_host_lacks_leaves_the_guest_alone(bworld: BootWorld) -> None:
    host = Host(bworld, rescue_image_ref="efi", uefi=False)
    assert host.rescue() == ({}, {host.uuid: "HostLacksHardware"}) and host.names() == []


def test_an_image_that_the_host_lacks_comes_to_it(bworld: BootWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(bworld, rescue_image_ref="helper")
    copied: list[str] = []
    monkeypatch.setattr(image_upload, "upload", lambda _action, image: copied.append(image.name) or "/tmp/helper")
    monkeypatch.setattr(image_upload, "remove_uploads", lambda _action: copied.append("removed"))
    assert host.rescue()[1] == {} and copied == ["helper", "removed"]
    (_first, second) = [a for n, a in host.calls if n == "instance_disks"]
    assert second["fetch"] and list(second["uploads"].values()) == ["/tmp/helper"]


def test_an_image_that_is_not_on_the_controller(bworld: BootWorld) -> None:
    host = Host(bworld, rescue_image_ref="helper")
    assert host.rescue()[1] == {host.uuid: "ImageUnacceptable"}
    assert "domain" not in host.names() and host.names()[-1] == "domain_rescue:restored"


@pytest.mark.parametrize("module", ["instance_disks", "config_drive", "domain", "virtual_network"])
def test_what_fails_is_undone(bworld: BootWorld, module: str) -> None:
    host = Host(bworld)
    host.there = True
    host.fails[module] = errors.FlavorDiskSmallerThanImage(flavor_size=1, image_size=2)
    outcomes, problems = rescue.rescue(host.action, host.items)
    assert outcomes == {} and problems[host.uuid].code == "FlavorDiskSmallerThanImage"
    if module == "instance_disks":
        assert "bootflow_rescue_image_ref" in problems[host.uuid].remedy
        assert "domain" not in host.names()
    assert host.names()[-1] == "domain_rescue:restored"
    (back,) = host.given("domain_rescue:restored")["domains"]
    assert back["start"], "it ran before"


def test_an_undo_that_fails_is_told(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.there = True
    host.fails = {
        "domain": errors.LibvirtError(reason="one"),
        "domain_rescue:restored": errors.LibvirtError(reason="two"),
    }
    _outcomes, problems = rescue.rescue(host.action, host.items)
    assert "one" in problems[host.uuid].message and "two" in problems[host.uuid].remedy
    assert "HARD" in problems[host.uuid].remedy


def test_a_definition_that_cannot_be_kept_ends_it(bworld: BootWorld) -> None:
    host = Host(bworld)
    host.fails["domain_rescue:saved"] = errors.DiskFull(host="h1", path="/", reason="full")
    assert host.rescue() == ({}, {host.uuid: "DiskFull"}) and host.names() == ["domain_rescue:saved"]


def test_check_mode_undoes_nothing_and_copies_nothing(bworld: BootWorld) -> None:
    host = Host(bworld, check_mode=True, rescue_image_ref="helper")
    before = bworld.everything()
    outcomes, problems = host.rescue()
    assert problems == {} and outcomes[host.uuid]["changed"] and bworld.everything() == before
    assert host.names() == ["domain_rescue:saved", "virtual_network", "instance_disks"]


@pytest.mark.parametrize(
    ("volume", "options", "code"),
    [
        (False, {}, None),
        (False, {"rescue_image_ref": "helper"}, None),
        (False, {"rescue_image_ref": IMAGE.id}, None),
        (False, {"rescue_image_ref": "helpr"}, "ImageNotFound"),
        (False, {"rescue_image_ref": "large"}, "FlavorDiskSmallerThanMinDisk"),
        (True, {"rescue_image_ref": "helper"}, None),
        (True, {"rescue_image_ref": "large"}, "FlavorDiskSmallerThanMinDisk"),
    ],
)
def test_images_are_checked_before_a_host_is_contacted(
    bworld: BootWorld, volume: bool, options: dict[str, t.Any], code: str | None
) -> None:
    host = Host(bworld, volume, **options)
    if code is None:
        host.check()
    else:
        with pytest.raises(errors.BootflowError) as raised:
            host.check()
        assert raised.value.code == code and raised.value.remedy
    assert host.calls == []


def test_an_instance_on_a_volume_has_to_be_given_an_image(bworld: BootWorld) -> None:
    host = Host(bworld, volume=True)
    with pytest.raises(errors.InstanceNotRescuable, match="the instance has no image") as raised:
        host.check()
    assert raised.value.status == 400 and "bootflow_rescue_image_ref" in raised.value.remedy
    assert host.names() == []


def test_a_password_that_nobody_would_tell_the_guest(bworld: BootWorld) -> None:
    host = Host(bworld, rescue_password="s3cret-s3cret")
    with bworld.ledger.write() as tx:
        tx.execute(tables.instances.update().values(config_drive=False))
    with pytest.raises(errors.InstanceNotRescuable, match="no config drive"):
        host.check()


def test_the_end_of_a_rescue(bworld: BootWorld) -> None:
    host = Host(bworld, volume=True)
    outcomes, problems = rescue.unrescue(host.action, [host.uuid])
    assert host.names() == ["iscsi_initiator", "domain_rescue:restored"] and problems == {}
    assert outcomes[host.uuid]["power_state"] == 1
    host.fails["domain_rescue:restored"] = errors.LibvirtError(reason="no")
    assert rescue.unrescue(host.action, [host.uuid])[1][host.uuid].code == "LibvirtError"
