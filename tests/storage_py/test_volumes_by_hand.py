# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/volumes-by-hand.md does what it says: its YAML blocks are run, by Ansible, in the lab."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml
from lxml import etree
from storage_host import GIB, MIB, ROOT, sha256

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "volumes-by-hand.md"
IMAGE = "/root/bootflow-guest.qcow2"
SCHEMA = "/usr/share/libvirt/schemas/domain.rng"  # what virt-xml-validate reads


def blocks() -> list:
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def plays() -> dict[str, dict]:
    return {play["name"]: play for block in blocks() if isinstance(block, list) for play in block}


def values() -> list[dict]:
    return [block for block in blocks() if isinstance(block, dict)]


@pytest.fixture
def by_hand(storage, lab, guest_image):
    """Runs plays of the page by their names, with the page's values but for what the lab has otherwise."""
    host = lab.hosts[0]
    initiator = storage.sh("cat /etc/iscsi/initiatorname.iscsi").split("InitiatorName=")[1].split()[0]
    ours = {
        "storage_host": storage.vm.name,
        "compute_host": storage.vm.name,
        "portal": storage.vm.portal,
        "image_url": "file://" + IMAGE,
        "image_sha256": sha256(guest_image.read_bytes()),
        "initiators": [initiator],
        "chap_secret": "0123456789abcdef",
        "virt_type": "qemu",
        "memory_kib": 192 * 1024,
        "console_pattern": "BOOTFLOW-GUEST-READY",
    }
    kernel, domain, qemu = values()
    storage.vm.put(guest_image, IMAGE)
    storage.sh(
        "vgcreate -q cinder-volumes %s; modprobe iscsi_tcp; pgrep iscsid >/dev/null || iscsid" % storage.vm.disk("pv4")
    )

    def run(*names: str, with_qemu: bool = False, **more) -> dict:
        path = storage.folder / "by-hand.yml"
        path.write_text(json.dumps([plays()[name] for name in names]))
        told = {**kernel, **domain, **(qemu if with_qemu else {}), **ours, **more}
        done = storage.ansible(str(path), "-i", lab.inventory, "-v", **told)
        assert done.returncode == 0, storage.output
        assert ours["chap_secret"] not in storage.output
        return told

    yield run
    host.run("virsh", "-c", "qemu:///system", "destroy", "bootfromvolume", check=False)
    host.run("virsh", "-c", "qemu:///system", "undefine", "bootfromvolume", check=False)
    storage.sh(
        "targetctl clear; vgremove -q -y -f cinder-volumes; rm -f /etc/rtslib-fb-target/saveconfig.json", check=False
    )


def test_every_block_of_the_page_is_run_here():
    assert [name.partition(".")[0] for name in plays()][:7] == ["1", "2", "3", "4", "5", "6", "7"]
    assert len(plays()) == 11 and len(values()) == 3


def test_the_seven_steps_and_the_way_back(storage, lab, guest_image, by_hand, tmp_path):
    host = lab.hosts[0]
    names = list(plays())
    told = by_hand(*names[:5])
    volume, iqn = told["volume_id"], "iqn.2010-10.org.openstack:volume-" + told["volume_id"]
    path = "/dev/disk/by-path/ip-%s-iscsi-%s-lun-0" % (told["portal"], iqn)
    assert "tcp: [" in storage.sh("iscsiadm -m session") and "%s,1 %s" % (told["portal"], iqn) in storage.sh(
        "iscsiadm -m session"
    )
    assert storage.sh("blockdev --getsize64 " + path).split() == [str(2 * GIB)]
    assert '"size": %d' % (2 * GIB) in storage.output and volume in storage.output  # step 3
    raw = tmp_path / "image.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(guest_image), str(raw)], check=True)
    assert storage.sha256(path, 16 * MIB) == sha256(raw.read_bytes()[: 16 * MIB])

    # Step 6 where libvirt is; the path is the one of the storage host.
    by_hand(
        names[5],
        compute_host=host.name,
        disk_xml=values()[1]["disk_xml"].replace("hostvars[compute_host].disk_path", repr(path)),
    )
    xml = host.run("virsh", "-c", "qemu:///system", "dumpxml", "bootfromvolume").stdout
    etree.RelaxNG(etree.parse(SCHEMA)).assertValid(etree.fromstring(xml))
    for word in ("<source dev='%s'" % path, "<serial>%s</serial>" % volume, "cache='none'", "listen='127.0.0.1'"):
        assert word in xml

    # Step 7 with QEMU's initiator on a compute host, which is another.
    by_hand("Disconnect the compute host")
    qemu = {"compute_host": host.name, "initiators": ["iqn.2026-01.test.lab:" + host.name]}
    by_hand(names[3], names[7], names[6], with_qemu=True, **qemu)
    console = host.run("cat", "/var/log/libvirt/bootfromvolume.console").stdout
    assert "name=vda bytes=%d" % (2 * GIB) in console and "serial=" + volume[:20] in console

    by_hand("Remove the domain", **qemu)
    by_hand("End the export, and delete the volume")
    assert storage.sh("lvs --noheadings cinder-volumes").split() == []
    assert iqn not in storage.sh(
        "find /sys/kernel/config/target /etc/iscsi/nodes /var/lib/iscsi/nodes; cat /etc/rtslib-fb-target/saveconfig.json"
    )
    assert "bootfromvolume" not in host.run("virsh", "-c", "qemu:///system", "list", "--all").stdout
