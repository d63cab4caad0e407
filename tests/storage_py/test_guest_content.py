# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LVM on the volume of a guest: the host that is connected does not take it for its own, and gets rid of the disk in any case.

The storage host logs in to its own portal with the kernel's initiator, whose name has capitals; what the guest writes is written through that disk.
"""

from __future__ import annotations

import struct
import typing as t

import pytest
from storage_host import GIB, MIB, new_id

CHAP = {"chap_user": "User5678901234567890", "chap_secret": "Secret6789012345"}
BACKEND = {"volume_group": "own", "provisioning": "thick"}
IQN = "iqn.2010-10.org.openstack:volume-"
SETTINGS = "/etc/udev/rules.d/61-bootflow-guests.rules /etc/lvm/lvmlocal.conf /etc/lvm/devices/system.devices"
SPOKEN = "log { command_names = 1 }\nreport { prefixes = 1 binary_values_as_numeric = 1 list_item_separator = ';' }\n"
INITIATOR = "/etc/iscsi/initiatorname.iscsi"


class Host:
    """The host with a group of its own, and a volume that it exports and is connected to."""

    def __init__(self, storage: t.Any):
        self.storage, self.sh, self.id = storage, storage.sh, new_id()

    def volume(self, item_id: str, state: str = "present") -> dict[str, t.Any]:
        wanted = {"id": item_id, "size_gb": 1, "state": state}
        outcome = self.storage.volumes(BACKEND, [wanted])["outcomes"][item_id]
        assert outcome["error"] is None, outcome
        return outcome

    def export(self, state: str = "present") -> None:
        name = self.sh("sed -n s/^InitiatorName=//p %s" % INITIATOR).strip()
        wanted = {"volume_id": self.id, "path": "/dev/own/volume-" + self.id, "state": state, **CHAP}
        arguments = {"target": "lio", "portals": [self.storage.vm.portal], "exports": [dict(wanted, initiators=[name])]}
        outcome = self.storage.module("iscsi_target", arguments)["outcomes"][self.id]
        assert outcome["error"] is None, outcome

    def connect(self, state: str = "connected") -> str:
        link = dict(CHAP, volume_id=self.id, iqn=IQN + self.id, lun=0, portals=[self.storage.vm.portal], state=state)
        outcome = self.storage.module("iscsi_initiator", {"connections": [link], "scan_tries": 3})["outcomes"][self.id]
        assert outcome["error"] is None, outcome
        self.sh("udevadm settle; sleep 1; udevadm settle")
        return outcome["device"]

    def again(self) -> str:
        self.connect("disconnected")
        return self.connect()

    def active(self) -> str:
        return self.sh("dmsetup ls")


@pytest.fixture
def host(storage: t.Any) -> t.Iterator[Host]:
    found = Host(storage)
    kept = storage.sh("cat %s" % INITIATOR)
    storage.sh(
        "printf 'InitiatorName=iqn.2026-01.test.Lab:STORAGE1\\n' >%s; modprobe iscsi_tcp; pkill iscsid; sleep 1; iscsid;"
        " modprobe -a target_core_mod iscsi_target_mod target_core_iblock; vgcreate -q own %s"
        % (INITIATOR, storage.vm.disk("pv4"))
    )
    try:
        found.volume(found.id)
        found.export()
        yield found
    finally:
        storage.sh(
            "rm -f %s; udevadm control --reload; iscsiadm -m node --logout; iscsiadm -m node -o delete; targetctl clear;"
            " rm -f /etc/rtslib-fb-target/saveconfig.json /etc/target/saveconfig.json; dmsetup remove guest-root;"
            " vgremove -q -y -f own; pvremove -q -y %s; printf '%s' >%s; pkill iscsid; sleep 1; iscsid"
            % (SETTINGS, storage.vm.disk("pv4"), kept, INITIATOR),
            check=False,
        )


def test_the_content_of_a_volume_is_the_guests_alone(host: Host) -> None:
    disk = host.connect()
    make = "vgcreate {0} guest {1} && lvcreate {0} -y -n root -L 40m guest && vgchange {0} -a n guest"
    host.sh(make.format("--devices " + disk, disk))

    # A host that nobody prepared activates it; the disk goes nevertheless.
    disk = host.again()
    assert "guest-root" in host.active()
    host.sh("mkdir -p /run/guest; mke2fs -q /dev/guest/root && mount /dev/guest/root /run/guest")
    link = dict(
        CHAP, volume_id=host.id, iqn=IQN + host.id, lun=0, portals=[host.storage.vm.portal], state="disconnected"
    )
    used = host.storage.module("iscsi_initiator", {"connections": [link]})["outcomes"][host.id]
    assert used["error"]["code"] == "VolumePathNotRemoved" and "mounted at /run/guest" in used["error"]["message"]
    host.sh("umount /run/guest")
    disk = host.again()

    # A group with the name of the host's, whatever lvm.conf says of reports: ours are made and removed in ours.
    host.connect("disconnected")
    assert "guest-root" not in host.active()
    disk = host.connect()
    # vgrename refuses a name that is in /dev.
    host.sh(
        "dmsetup remove guest-root; vgcfgbackup -q --devices {0} -f /run/guest.vg guest;"
        " sed -i 's/^guest {{/own {{/' /run/guest.vg; vgcfgrestore -q -y --devices {0} -f /run/guest.vg own".format(
            disk
        )
    )
    disk = host.again()
    host.sh('printf "%s" >/etc/lvm/lvmlocal.conf' % SPOKEN)
    second = new_id()
    assert host.volume(second)["changed"] and not host.volume(second)["changed"]
    assert "volume-" + second in host.sh("ls /dev/own")
    assert host.volume(second, "absent")["changed"]

    # Prepared: nothing of it is seen or activated.
    checked = host.storage.module("guest_content", {}, check=True)
    made, same = host.storage.module("guest_content", {}), host.storage.module("guest_content", {})
    assert checked["changed"] and made["changed"] and not same["changed"] and made["exposed"] == [], made
    assert [each["before_header"] for each in checked["diff"]] == [each["before_header"] for each in made["diff"]]
    disk = host.again()
    host.sh(
        "vgrename --devices {0} $(vgs --config 'log/command_names=0 report/prefixes=0' --devices {0} --noheadings -o vg_uuid"
        " | tr -cd 'A-Za-z0-9-') guest".format(disk)
    )
    disk = host.again()
    assert "guest-root" not in host.active()
    assert host.sh("vgs --noheadings --config 'log/command_names=0 report/prefixes=0' -o vg_name").split() == ["own"]
    assert "ID_FS_TYPE=content_of_guest" in host.sh("udevadm info -q property %s" % disk)
    host.sh("vgs --config log/command_names=0 own; lvcreate -q -y -n theirs -L 4m own; lvremove -q -y own/theirs")

    host.connect("disconnected")
    host.export("absent")
    assert host.volume(host.id, "absent")["changed"]


def test_labels_of_guests_are_no_names_of_the_host(host: Host) -> None:
    """fstab finds a file system by links that udev makes of its label, UUID and partition: guests choose all of them."""
    disk = host.connect()
    uuid = "11111111-2222-4333-8444-555555555555"
    chosen = ["by-label/host-data", "by-uuid/" + uuid, "by-partuuid/b00710f0-01"]
    table = struct.pack("<I2xB3xB3xII64x", 0xB00710F0, 0, 0x83, 2048, 100000)[:70] + b"\x55\xaa"
    host.sh(
        "printf '%s' | dd of=%s bs=1 seek=440 conv=notrunc status=none; blockdev --rereadpt %s; udevadm settle;"
        " mke2fs -q -F -L host-data -U %s -E offset=1048576 %s 50000k"
        % ("".join("\\%03o" % byte for byte in table), disk, disk, uuid, disk)
    )

    def links() -> list[str]:
        host.again()
        return host.sh("cd /dev/disk; find . -type l").split()

    assert {"./" + name for name in chosen} <= set(links())
    host.storage.module("guest_content", {})
    for found in (host.sh("cd /dev/disk; find . -type l").split(), links()):  # of disks that are there, and of new ones
        by_path = [name for name in found if "-iscsi-" in name and host.id in name]
        assert len(by_path) >= 2, found  # the disk and its partition
        assert not [name for name in found if name.endswith(tuple(chosen))], found
    logical = host.sh("udevadm info -q symlink /dev/own/volume-" + host.id).split()
    assert "own/volume-" + host.id in logical and not [name for name in logical if "by-uuid" in name], logical


def test_what_the_storage_host_made_of_a_volume_does_not_keep_it(host: Host) -> None:
    """A host whose LVM looks into logical volumes, and a group in one: the volume is deleted."""
    host.export("absent")
    volume = "/dev/own/volume-" + host.id
    stacked = "--config devices/scan_lvs=1"
    host.sh("vgcreate -q {0} inner {1}; lvcreate -q {0} -y -n root -L 40m inner".format(stacked, volume))
    assert "inner-root" in host.active()
    assert host.volume(host.id, "absent")["changed"]
    assert "inner-root" not in host.active()


def test_room_is_where_lvm_allocates(host: Host) -> None:
    other = host.storage.vm.disk("pv5")
    host.sh("vgextend -q own %s; pvchange -q -x n %s" % (other, other))
    try:
        facts = host.storage.module("storage_backend_info", {"backends": [dict(BACKEND, name="own")]})["backends"][
            "own"
        ]
        assert facts["error"] is None and facts["free_capacity_gb"] == pytest.approx(
            (3 * GIB - 4 * MIB) / GIB, abs=0.01
        )
        wanted = [{"id": new_id(), "size_gb": 4}]
        (outcome,) = host.storage.volumes(BACKEND, wanted)["outcomes"].values()
        assert "are free" in outcome["error"]["message"]  # refused before LVM is asked
    finally:
        host.sh("vgreduce -q own %s; pvremove -q -y %s" % (other, other), check=False)
