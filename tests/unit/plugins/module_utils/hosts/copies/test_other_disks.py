# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which disks of a domain are not the instance's, and what becomes of them where the domain is defined anew."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import GuestDisksDiffer
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.other_disks import (
    keep_others,
    other_disks,
    refuse_to_restore,
    with_other_disks,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import write_records
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import running as libvirt_running
from ansible_collections.bootflow.compute.plugins.modules import domain_power

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
VOLUME = "11111111-2222-4333-8444-555555555555"


def disk(target: str, path: str, kind: str = "file", device: str = "disk", form: str = "qcow2", more: str = "") -> str:
    attribute = {"file": "file", "block": "dev", "network": "name"}[kind]
    return "<disk type='%s' device='%s'><driver name='qemu' type='%s'/><source %s='%s'/><target dev='%s'/>%s</disk>" % (
        kind,
        device,
        form,
        attribute,
        path,
        target,
        more,
    )


def domain(*disks: str) -> str:
    return "<domain><uuid>%s</uuid><devices>%s</devices></domain>" % (UUID, "".join(disks))


@pytest.fixture
def folder(tmp_path) -> str:
    path = tmp_path / UUID
    path.mkdir()
    write_records(str(path), {"disk": {"format": "qcow2"}, "disk.swap": {"format": "raw"}})
    return str(path)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ((), {}),
        ((disk("vdb", "{folder}/disk.swap"),), {}),
        ((disk("hda", "{folder}/disk.config", device="cdrom"), disk("vdz", "{folder}/disk.config", form="raw")), {}),
        ((disk("hda", "/srv/debian.iso", device="cdrom"),), {}),
        ((disk("fda", "/srv/drivers.img", device="floppy"),), {}),
        ((disk("vdb", "/dev/disk/by-path/x", "block", more="<serial>%s</serial>" % VOLUME),), {}),
        ((disk("sdb", "iqn.x/1", "network", device="lun", more="<alias name='ua-%s'/>" % VOLUME),), {}),
        ((disk("vdb", "/srv/data.qcow2"),), {"vdb": "/srv/data.qcow2"}),
        ((disk("vdb", "/srv/data.qcow2", more="<readonly/>"),), {}),
        ((disk("vdb", "/dev/vg/data", "block", form="raw"),), {"vdb": "/dev/vg/data"}),
        ((disk("vdb", "pool/image", "network", form="raw"),), {"vdb": "pool/image"}),
    ],
)
def test_disks_that_are_not_the_instances(folder: str, more: t.Sequence[str], found: dict[str, str]) -> None:
    xml = domain(disk("vda", folder + "/disk"), *(each.format(folder=folder) for each in more))
    assert other_disks([parse(xml)], folder) == found


@pytest.mark.parametrize("overlay", ["{folder}/disk.backup", "/srv/backup/web.overlay"])
@pytest.mark.parametrize("where", ["live", "inactive", "both"])
def test_a_guest_goes_on_with_the_overlay_that_it_wrote_to(folder: str, overlay: str, where: str) -> None:
    overlay = overlay.format(folder=folder)
    own, other = (domain(disk("vda", path), disk("vdb", folder + "/disk.swap")) for path in (folder + "/disk", overlay))
    running = domain(disk("vda", overlay, more="<alias name='virtio-disk0'/>")).replace(
        "<source ", "<source index='3' "
    )
    before = {"live": [running, own], "inactive": [other], "both": [running, other]}[where]
    text = with_other_disks(own, [parse(each) for each in before], UUID, "web", folder)
    assert [s.attrib for s in parse(text).iterfind("devices/disk/source")] == [
        {"file": overlay},
        {"file": folder + "/disk.swap"},
    ]
    assert other_disks([parse(own)], folder) == {}
    assert with_other_disks(own, [parse(own)], UUID, "web", folder) == own


def test_a_copy_on_a_device_is_taken_with_its_format(folder: str) -> None:
    own = domain(disk("vda", folder + "/disk"))
    there = domain(disk("vda", "/dev/vg/copy", "block", form="raw"))
    (found,) = parse(with_other_disks(own, [parse(there)], UUID, "web", folder)).iterfind("devices/disk")
    assert (found.get("type"), found.find("driver").get("type"), found.find("source").get("dev")) == (
        "block",
        "raw",
        "/dev/vg/copy",
    )


def test_a_disk_attached_by_hand_is_left_out(folder: str) -> None:
    own = domain(disk("vda", folder + "/disk"))
    there = domain(disk("vda", folder + "/disk"), disk("vdc", "/srv/data.qcow2"))
    assert "/srv/data" not in with_other_disks(own, [parse(there)], UUID, "web", folder)


def test_an_overlay_at_another_place_is_refused(folder: str) -> None:
    own, there = domain(disk("vda", folder + "/disk")), domain(disk("sda", "/srv/web.overlay"))
    with pytest.raises(GuestDisksDiffer, match="Disk sda .* is /srv/web.overlay"):
        with_other_disks(own, [parse(there)], UUID, "web", folder)


# --- volumes --------------------------------------------------------------------------------------------------------------

SERIAL = "<serial>%s</serial>" % VOLUME
BY_PATH = "/dev/disk/by-path/ip-192.0.2.1:3260-iscsi-iqn.2010-10.org.openstack:volume-%s-lun-1" % VOLUME
OWN = disk("vdb", BY_PATH, "block", form="raw", more=SERIAL)
# The volume is in the chain of a running guest still, and in that of its next start.
CHAIN = (
    "<backingStore type='block' index='1'><format type='raw'/><source dev='%s'/><backingStore/></backingStore>"
    % BY_PATH
)
OVERLAY = disk("vdb", "/srv/web.backup", more=CHAIN + SERIAL)
PIVOTED = disk("vdb", "/dev/vg/copy", "block", form="raw", more=SERIAL)
MIRROR = "<mirror type='block' job='copy' ready='yes'><format type='raw'/><source dev='/dev/vg/copy'/></mirror>"
MIRRORED = disk("vdb", BY_PATH, "block", form="raw", more=MIRROR + SERIAL)
MOVED = disk("vdb", BY_PATH.replace("192.0.2.1", "192.0.2.2"), "block", form="raw", more=SERIAL)
TO_COME = disk("vdb", "/dev/disk/by-path/(volume %s)" % VOLUME, "block", form="raw", more=SERIAL)
REPLACED = [(OVERLAY, "/srv/web.backup"), (PIVOTED, "/dev/vg/copy")]


class Guest:
    """A domain, as it runs and as it will start."""

    def __init__(self, live: str, inactive: str):
        self.live, self.inactive = live, inactive

    def name(self) -> str:
        return "web"

    def XMLDesc(self, flags: int) -> str:
        return self.inactive if flags & 2 else self.live

    def snapshotNum(self, _flags: int) -> int:
        return 0

    def jobStats(self, _flags: int = 0) -> dict[str, int]:
        return {"type": 0}

    def listAllCheckpoints(self, _flags: int) -> list[t.Any]:
        return []


@pytest.fixture
def libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2, VIR_DOMAIN_XML_SECURE=1, VIR_ERR_NO_DOMAIN=42)
    fake.libvirtError = OSError
    for module in (domains, libvirt_connection, facts, libvirt_running):
        monkeypatch.setattr(module, "libvirt", fake)


@pytest.mark.parametrize(("other", "path"), REPLACED)
@pytest.mark.parametrize("where", ["live", "inactive", "both"])
def test_a_hard_reboot_does_not_boot_a_volume_without_what_was_written_last(
    folder: str, other: str, path: str, where: str
) -> None:
    local = disk("vda", folder + "/disk")
    own, there = domain(local, OWN), domain(local, other)
    before = {"live": [there, own], "inactive": [there.replace(other, OWN), there], "both": [there, there]}[where]
    with pytest.raises(GuestDisksDiffer, match="Disk vdb of instance .* is %s" % path):
        with_other_disks(own, [parse(each) for each in before], UUID, "web", folder)


@pytest.mark.parametrize("other", [OWN, MIRRORED, MOVED])
def test_a_volume_that_is_the_same_is_defined_anew(folder: str, other: str) -> None:
    """Also where it is reached by another portal, or is being copied: the guest writes to it still."""
    local = disk("vda", folder + "/disk")
    own, there = domain(local, OWN), parse(domain(local, other))
    assert with_other_disks(own, [there], UUID, "web", folder) == own
    assert other_disks([there], folder, {VOLUME: BY_PATH}) == {}
    planned = domain(local, TO_COME)
    assert with_other_disks(planned, [there], UUID, "web", folder) == planned, "in check mode no host is connected"


def test_a_volume_that_the_ledger_has_not_is_no_disk_to_compare(folder: str) -> None:
    local = disk("vda", folder + "/disk")
    own, there = domain(local), parse(domain(local, PIVOTED))
    assert with_other_disks(own, [there], UUID, "web", folder) == own and other_disks([there], folder) == {}


@pytest.mark.parametrize(("other", "path"), REPLACED)
def test_a_rescue_has_the_volumes_that_the_guest_has(folder: str, other: str, path: str) -> None:
    rescue = domain(disk("vda", folder + "/disk.rescue"), disk("vdb", folder + "/disk"), OWN.replace("vdb", "vdc"))
    spec = domains.DomainSpec(UUID, "web", rescue)
    before = domain(disk("vda", folder + "/disk"), other)
    instances = folder[: -len(UUID) - 1]
    with pytest.raises(GuestDisksDiffer, match="Disk vdb of instance .* is %s" % path):
        keep_others(instances, spec, [parse(before)])
    assert keep_others(instances, spec, [parse(before.replace(other, OWN))]) == rescue


@pytest.mark.usefixtures("libvirt")
@pytest.mark.parametrize(("other", "path"), [*REPLACED, ("local", "/srv/root.backup")])
def test_the_end_of_a_rescue_loses_no_overlay(folder: str, other: str, path: str) -> None:
    write_records(folder, {"disk": {"format": "qcow2"}, "disk.rescue": {"format": "qcow2"}})
    drive = disk("hda", folder + "/disk.config", device="cdrom")
    own = domain(disk("vda", folder + "/disk"), OWN, drive)
    first, root = disk("vda", folder + "/disk.rescue"), disk("vdb", folder + "/disk")
    rescue = domain(first, root, OWN)
    refuse_to_restore(Guest(rescue, rescue), own, folder)
    by_hand = domain(first, root, OWN, disk("vdz", "/srv/data.qcow2"))
    refuse_to_restore(Guest(by_hand, by_hand), own, folder)
    replaced = rescue.replace(root, disk("vdb", path)) if other == "local" else rescue.replace(OWN, other)
    with pytest.raises(GuestDisksDiffer, match="is %s" % path):
        refuse_to_restore(Guest(replaced, replaced), own, folder)


@pytest.mark.usefixtures("libvirt")
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize(("other", "path"), REPLACED)
def test_a_guest_is_not_shut_down_for_a_move_or_a_rebuild_that_leaves_data_behind(
    folder: str, other: str, path: str, leaves: bool
) -> None:
    args = {"instances_path": folder[: -len(UUID) - 1], "state": "shutdown", **dict.fromkeys(domain_power.OF_EACH)}
    item = {"uuid": UUID, "leaves": leaves, "volumes": {VOLUME: BY_PATH}, "restored": False}
    check = domain_power.power_spec(args, item).check
    assert check is not None
    local = disk("vda", folder + "/disk")
    for good in (OWN, MOVED, MIRRORED):
        check(Guest(domain(local, good), domain(local, OWN)))
    with pytest.raises(GuestDisksDiffer, match="Disk vdb .* is %s" % path):
        check(Guest(domain(local, other), domain(local, other)))
    base = domain(disk("vda", "/srv/root.backup"), OWN)
    if leaves:
        with pytest.raises(GuestDisksDiffer, match="Disk vda"):
            check(Guest(base, base))
    else:
        check(Guest(base, base))  # a rebuild makes the local disks again


@pytest.mark.usefixtures("libvirt")
def test_a_report_lists_what_has_taken_the_place_of_volumes(folder: str) -> None:
    local, instances = disk("vda", folder + "/disk"), folder[: -len(UUID) - 1]
    for other, found in ((OVERLAY, ["vdb: /srv/web.backup"]), (PIVOTED, ["vdb: /dev/vg/copy"]), (OWN, None)):
        text = domain(local, other)
        fact: dict[str, t.Any] = {"uuid": UUID, "ours": True}
        of_host = [{"uuid": UUID, "domain": Guest(text, text)}]
        facts._add_other_disks([fact], of_host, instances, {UUID: {VOLUME: BY_PATH}})
        assert fact.get("other_disks") == found
