# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role storage_host and the module storage_backend: from empty disks to backends, and what they refuse."""

from __future__ import annotations

import re

import pytest
from storage_host import GIB, MIB, new_id

pytestmark = pytest.mark.long

GROUPS = ("role-thick", "role-thin")
# A partition table with one partition.
PARTITION = (
    "printf '\\200\\0\\001\\001\\203\\376\\377\\377\\077\\0\\0\\0\\0\\020\\0\\0' | dd of=%s bs=1 seek=446 conv=notrunc status=none;"
    " printf '\\125\\252' | dd of=%s bs=1 seek=510 conv=notrunc status=none; udevadm settle"
)


@pytest.fixture(autouse=True)
def no_groups(storage):
    """No volume group and nothing on the disks before and after."""
    clean = "umount /run/used; " + "".join("vgremove -q -y -f %s; " % group for group in (*GROUPS, "other-vg"))
    clean += "".join("wipefs -q -a -f %s; " % storage.vm.disk(disk) for disk in ("pv5", "pv6", "pv7"))
    storage.sh(clean, check=False)
    yield
    storage.sh(clean, check=False)


def backends(storage, more=()):
    """As bootflow_storage_backends has them, with fields that only the scheduler reads."""
    thick = {"name": "disk", "volume_group": "role-thick", "devices": [storage.vm.disk("pv5")], "medium": "hdd"}
    thin = {"name": "flash", "volume_group": "role-thin", "provisioning": "thin", "volume_clear": "discard"}
    return [thick, dict(thin, devices=[storage.vm.disk(disk) for disk in ("pv6", *more)])]


def made_of(storage, *more):
    keys = ("name", "volume_group", "provisioning", "devices")
    return [{key: value for key, value in backend.items() if key in keys} for backend in backends(storage, more)]


def prepare(storage, wanted):
    """How many tasks changed something."""
    done = storage.ansible(
        "bootflow.compute.prepare",
        "--limit",
        storage.vm.name,
        bootflow_storage_backends=wanted,
        bootflow_conversion_dir="/var/lib/role/conversion",
    )
    assert done.returncode == 0, storage.output
    found = re.search(r"ok=(\d+) +changed=(\d+) +unreachable=0 +failed=0", storage.output)
    return int(found.group(2))


def test_the_playbook_makes_the_backends_once(storage):
    storage.sh("targetctl clear; rm -rf /var/lib/role /etc/rtslib-fb-target/saveconfig.json")
    assert prepare(storage, backends(storage)) > 0
    assert storage.sh("vgs --noheadings --units b --nosuffix -o vg_size role-thick").split() == [str(GIB - 4 * MIB)]
    pool = storage.lvs("role-thin")["role-thin-pool"]
    assert (pool["lv_when_full"], pool["zero"]) == ("error", "zero")
    assert 0.94 * GIB < int(pool["lv_size"]) < 0.96 * GIB
    assert storage.sh("stat -c %a /var/lib/role /var/lib/role/conversion").split() == ["711", "711"]
    assert (
        storage.sh("mountpoint /sys/kernel/config; ls -d /sys/module/iscsi_target_mod").split()[-1]
        == "/sys/module/iscsi_target_mod"
    )
    assert prepare(storage, backends(storage)) == 0


def test_tgt_is_started_with_its_exports(storage):
    """Where nobody manages services the role does what tgt's service would."""
    wanted = [dict(backends(storage)[0], target="tgt")]
    volume, iqn = new_id(), "iqn.2010-10.org.openstack:volume-"
    show = "tgtadm --lld iscsi --mode target --op show"
    storage.sh("pkill -KILL tgtd; rm -f /etc/tgt/conf.d/*", check=False)
    assert prepare(storage, wanted) > 0
    storage.sh("lvcreate -q -y -n one -L 32m role-thick")
    portals = ["%s:3260" % storage.vm.address]
    chap = {"chap_user": "User4567890123456789", "chap_secret": "FirstSecret67890"}
    export = {"volume_id": volume, "path": "/dev/role-thick/one", "initiators": ["iqn.2026-01.lab.test:x"], **chap}
    made = storage.module("iscsi_target", {"target": "tgt", "portals": portals, "exports": [export]})
    assert made["outcomes"][volume]["error"] is None
    storage.sh("pkill -KILL tgtd; sleep 1")
    assert iqn not in storage.sh(show, check=False)
    assert prepare(storage, wanted) > 0
    restored = storage.sh(show).partition(iqn + volume)[2]
    # Else a dead host is logged in for half an hour.
    assert "Nop interval: 5" in restored and "Nop count: 2" in restored
    assert prepare(storage, wanted) == 0
    gone = {"volume_id": volume, "state": "absent"}
    assert storage.module("iscsi_target", {"target": "tgt", "portals": portals, "exports": [gone]})["changed"]
    storage.sh("pkill -KILL tgtd", check=False)


def test_devices_with_something_on_them_are_refused_before_any_is_written(storage):
    disk = {number: storage.vm.disk("pv%d" % number) for number in (5, 6, 7)}
    used = "other-vg"

    def made(wanted=None, **options):
        return storage.module("storage_backend", {"backends": wanted or made_of(storage), **options})

    def refused(code, *words, **options):
        result = made(**options)
        assert result["error_code"] == code, result
        assert all(word in result["msg"] for word in words), result["msg"]
        assert not set(storage.sh("vgs --noheadings -o vg_name").split()) & set(GROUPS)

    storage.sh("mkfs.ext4 -q %s" % disk[6])
    refused("Conflict", disk[6], "ext4")
    storage.sh("mkdir -p /run/used && mount %s /run/used" % disk[6])
    refused("Conflict", disk[6], "in use", wipe_devices=True)
    storage.sh("umount /run/used; wipefs -q -a %s" % disk[6])
    storage.sh(PARTITION % (disk[6], disk[6]))
    refused("Conflict", disk[6], "dos")
    storage.sh("wipefs -q -a %s; vgcreate -q %s %s" % (disk[6], used, disk[6]))
    refused("Conflict", disk[6], "volume group " + used)
    storage.sh("lvcreate -q -y -an -l 1 --addtag bootflow %s" % used)
    refused("Conflict", disk[6], "bootflow volumes", wipe_devices=True)
    storage.sh("vgremove -q -y -f %s; vgcreate -q %s %s" % (used, used, disk[6]))
    refused("InvalidInput", "/dev/nowhere", wanted=[dict(made_of(storage)[0], devices=["/dev/nowhere"])])
    refused("InvalidInput", "two volume groups", wanted=[dict(each, devices=[disk[5]]) for each in made_of(storage)])
    refused("DriverNotInitialized", "role-thick", wanted=[dict(made_of(storage)[0], devices=[])])

    # Said to be wiped, it is; and what is there is left as it is, or grows.
    planned = storage.module("storage_backend", {"backends": made_of(storage), "wipe_devices": True}, check=True)
    assert planned["changed"] and used in storage.sh("vgs --noheadings -o vg_name")
    first = made(wipe_devices=True)
    assert (planned["backends"], planned["diff"]) == (first["backends"], first["diff"])
    assert first["backends"]["flash"]["actions"] == ["volume_group", "thin_pool"]
    assert used in str(first["diff"]["before"]["flash"]["content"])
    assert used not in storage.sh("vgs --noheadings -o vg_name")
    assert not made()["changed"] and not made(made_of(storage)[:1], wipe_devices=True)["changed"]
    pool = storage.lvs("role-thin")["role-thin-pool"]
    assert (pool["lv_when_full"], pool["zero"]) == ("error", "zero")
    before = int(pool["lv_size"])
    storage.sh("lvchange -an role-thin/role-thin-pool")
    more = made(made_of(storage, "pv7"))
    assert more["backends"]["flash"]["actions"] == ["devices", "thin_pool_active", "thin_pool_size"]
    assert int(storage.lvs("role-thin")["role-thin-pool"]["lv_size"]) - before > 0.94 * (GIB - 8 * MIB)
    assert not made(made_of(storage, "pv7"))["changed"]
