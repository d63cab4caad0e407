# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real iSCSI: the modules iscsi_target (LIO and tgt) and iscsi_initiator on the lab's storage host, and QEMU's initiator.

The storage host logs in to its own portal with the kernel's initiator; qemu-img and qemu-io (package qemu-block-extra) come
in from a compute host of the lab.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import private_libvirt
import pytest
from storage_host import MIB, new_id, noise, sha256

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import secrets

QEMU = "iqn.2026-01.lab.test:qemu"
PREFIX = "iqn.2010-10.org.openstack:volume-"

# Stands before the real program in the PATH and writes down how it was called.
WITNESS = '#!/bin/sh\necho "$0 $*" >>/run/argv\nexec /usr/sbin/${0##*/} "$@"\n'
SERVICES = {
    "lio": {
        "start": "modprobe target_core_mod; modprobe iscsi_target_mod; modprobe target_core_iblock; modprobe target_core_file",
        "restart": "targetctl clear && targetctl restore",
        "stop": "targetctl clear",
        "left": "find /sys/kernel/config/target -name '*volume-*'; cat /etc/rtslib-fb-target/saveconfig.json",
        "secrets": "/etc/rtslib-fb-target/saveconfig.json",
    },
    "tgt": {
        "start": "tgtd; sleep 1",
        "restart": "tgt-admin --update ALL -c /dev/null -f; tgtadm --op delete --mode system; sleep 1; tgtd; sleep 1;"
        " tgt-admin -e",
        "stop": "tgt-admin --update ALL -c /dev/null -f; tgtadm --op delete --mode system",
        "left": "tgtadm --lld iscsi --mode target --op show; tgtadm --lld iscsi --mode account --op show; ls -A /etc/tgt/conf.d",
        "secrets": "/etc/tgt/conf.d/*.conf",
    },
}


@pytest.fixture(scope="module", autouse=True)
def exported(storage):
    """A logical volume to export, the kernel's initiator, and witnesses before the programs that are called."""
    witness = storage.folder / "witness"
    witness.write_text(WITNESS)
    storage.vm.put(witness, "/usr/local/sbin/tgtadm")
    storage.sh(
        "chmod 755 /usr/local/sbin/tgtadm; cp /usr/local/sbin/tgtadm /usr/local/sbin/iscsiadm;"
        " [ -x /usr/sbin/iscsiadm ] || ln -s $(PATH=/sbin:/usr/bin:/bin command -v iscsiadm) /usr/sbin/iscsiadm;"
        " modprobe iscsi_tcp; pgrep iscsid >/dev/null || iscsid; vgcreate -q vg %s; lvcreate -q -y -n one -L 32m vg"
        % storage.vm.disk("pv4")
    )
    yield
    storage.sh("rm /usr/local/sbin/tgtadm /usr/local/sbin/iscsiadm; vgremove -q -y -f vg", check=False)


def initiator_of(storage):
    return storage.sh("cat /etc/iscsi/initiatorname.iscsi").split("InitiatorName=")[1].split()[0]


def qemu(storage, program, wish, *words):
    """qemu-img or qemu-io of a compute host of the lab on the volume, with the secret in a file."""
    path = storage.folder / "secret"
    path.write_text(wish["chap_secret"])
    options = "driver=iscsi,transport=tcp,portal=%s,target=%s%s,lun=%d,user=%s,password-secret=s,initiator-name=%s" % (
        storage.vm.portal,
        PREFIX,
        wish["volume_id"],
        wish["lun"],
        wish["chap_user"],
        wish.get("name", QEMU),
    )
    argv = [program] + list(words[:-1]) + ["--object", "secret,id=s,file=%s" % path, "--image-opts"]
    if program == "qemu-io":
        options = "driver=raw," + options.replace("driver=", "file.driver=", 1).replace(",", ",file.")
        argv += ["-c", words[-1]]
    command = storage.vm.lab.hosts[0].command(*argv, options)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.always
@pytest.mark.parametrize("target", ["tgt", "lio"])
def test_a_volume_from_export_to_nothing(storage, target):
    service = SERVICES[target]
    lun = {"tgt": 1, "lio": 0}[target]
    item_id, portal = new_id(), storage.vm.portal
    chap = {"chap_user": "User4567890123456789", "chap_secret": "FirstSecret67890"}
    other = {"chap_user": "Other567890123456789", "chap_secret": "OtherSecret67890"}
    wish = dict(chap, volume_id=item_id, path="/dev/vg/one", initiators=[initiator_of(storage), QEMU])
    link = dict(chap, volume_id=item_id, iqn=PREFIX + item_id, lun=lun, portals=[portal])
    storage.sh("rm -f /run/argv; " + service["start"])

    def export(**changes):
        return "iscsi_target", {"target": target, "portals": [portal], "exports": [dict(wish, **changes)]}

    def connect(**changes):
        return "iscsi_initiator", {"connections": [dict(link, **changes)], "scan_tries": 2}

    def outcome(result):
        return result["outcomes"][item_id]

    # Export, refused login, login.
    made, again, wrong, connected = storage.play(
        export(), export(), connect(chap_secret=other["chap_secret"]), connect()
    )
    assert outcome(made)["changed"] and not outcome(made)["error"], made
    assert outcome(made)["provider_location"] == "%s,1 %s%s %d" % (portal, PREFIX, item_id, lun)
    assert not again["changed"]
    assert outcome(wrong)["error"]["code"] == "FailedISCSITargetPortalLogin"
    assert not outcome(connected)["error"], connected
    path = outcome(connected)["path"]
    assert path == "/dev/disk/by-path/ip-%s-iscsi-%s%s-lun-%d" % (portal, PREFIX, item_id, lun)
    assert outcome(connected)["serial"].replace("-", "") == item_id.replace("-", "")
    assert "tcp: [" in storage.sh("iscsiadm -m session") and PREFIX + item_id in storage.sh("iscsiadm -m session")
    for secret in (chap["chap_secret"], other["chap_secret"]):
        assert secret not in storage.output and secret not in json.dumps([made, again, wrong, connected])
    modes = storage.sh(
        "stat -c '%%a %%U' %s $(find /etc/iscsi/nodes /var/lib/iscsi/nodes -type f 2>/dev/null)" % service["secrets"]
    ).split("\n")
    assert {line for line in modes if line} == {"600 root"}

    # The disk is the volume, and is not taken away while it is used.
    storage.sh("printf bootflow | dd of=%s bs=512 count=1 conv=sync,fsync oflag=direct status=none" % path)
    assert storage.sh("dd if=/dev/vg/one bs=512 count=1 iflag=direct status=none | head -c 8") == "bootflow"
    storage.sh("(sleep 100 <%s >/dev/null 2>&1 & echo $! >/run/holder)" % path)
    held, in_use = storage.module(*connect(state="disconnected")), storage.module(*export(state="absent"))
    assert outcome(held)["error"]["code"] == "VolumePathNotRemoved" and "sleep" in outcome(held)["error"]["message"]
    assert outcome(in_use)["error"]["code"] == "ISCSITargetRemoveFailed"
    storage.sh("kill $(cat /run/holder)")
    same, gone = storage.module(*connect()), storage.module(*connect(state="disconnected"))
    assert not same["changed"] and outcome(gone)["changes"] == ["disk", "session", "record"]
    assert storage.sh(
        "ls /dev/disk/by-path | grep iscsi; iscsiadm -m session; find /etc/iscsi/nodes /var/lib/iscsi/nodes -type f 2>/dev/null",
        check=False,
    ) in ("iscsiadm: No active sessions.\n",)

    # QEMU's initiator, also after a restart of the service; who is not named does not come in.
    volume = dict(chap, volume_id=item_id, lun=lun)
    storage.sh(service["restart"])
    info = qemu(storage, "qemu-img", volume, "info", "--output=json", "")
    assert info.returncode == 0 and json.loads(info.stdout)["virtual-size"] == 32 * MIB, info.stderr
    read = qemu(storage, "qemu-io", volume, "read -P 0x62 0 1")
    assert read.returncode == 0 and "Pattern verification failed" not in read.stdout, read.stdout + read.stderr
    for intruder in (dict(volume, chap_secret=other["chap_secret"]), dict(volume, name=QEMU + "2")):
        assert qemu(storage, "qemu-img", intruder, "info", "--output=json", "").returncode != 0

    # Other credentials, and the end.
    kept, changed = storage.module(*export()), storage.module(*export(**other))
    assert not kept["changed"] and outcome(changed)["changes"] == ["chap"]
    assert qemu(storage, "qemu-img", volume, "info", "").returncode != 0
    assert qemu(storage, "qemu-img", dict(volume, **other), "info", "").returncode == 0
    removed, nothing = storage.module(*export(state="absent")), storage.module(*export(state="absent"))
    assert outcome(removed)["changed"] and not outcome(removed)["error"] and not nothing["changed"]
    left = storage.sh(service["left"])
    assert item_id not in left and "User" not in left and "Other" not in left
    # Nothing of ours calls a program with a secret; at tgt's start tgt-admin does, for it knows no other way.
    called = [line for line in storage.sh("cat /run/argv").splitlines() if "Secret67890" in line]
    assert [line for line in called if not (target == "tgt" and "tgtadm -C 0 " in line)] == []
    storage.sh(service["stop"], check=False)


# Writes to a disk until it is told to stop, and tells when that did not go well.
WRITER = (
    "rm -f /run/io-*; (n=0; while [ ! -e /run/io-stop ]; do"
    " dd if=/dev/zero of=%s bs=4k count=1 seek=8 oflag=direct status=none 2>>/run/io-failed || { echo $n >>/run/io-failed; break; };"
    " n=$((n + 1)); echo $n >/run/io-count; sleep 0.1; done; rm /run/io-stop) >/dev/null 2>&1 &"
)


@pytest.mark.long
@pytest.mark.parametrize("target", ["tgt", "lio"])
def test_two_initiators_of_one_volume(storage, target):
    """Each with credentials that the other's run does not know; what happens to one is not felt by the other."""
    service, portal, item_id = SERVICES[target], storage.vm.portal, new_id()
    lun = {"tgt": 1, "lio": 0}[target]
    kernel = initiator_of(storage)
    first = {"chap_user": "First567890123456789", "chap_secret": "FirstSecret67890"}
    second = {"chap_user": "Second67890123456789", "chap_secret": "SecondSecret7890"}
    anew = {"chap_user": "Anew4567890123456789", "chap_secret": "AnewSecret567890"}
    wish = {"volume_id": item_id, "path": "/dev/vg/one"}
    link = dict(first, volume_id=item_id, iqn=PREFIX + item_id, lun=lun, portals=[portal])
    storage.sh(service["start"])

    def export(*logins, keep=(), check=False, **more):
        listed = [dict(chap, initiator=name) for name, chap in logins]
        wanted = dict(wish, logins=listed, keep=list(keep), **more)
        result = storage.module("iscsi_target", {"target": target, "portals": [portal], "exports": [wanted]}, check)
        assert "Secret" not in json.dumps(result)
        outcome = result["outcomes"][item_id]
        assert outcome["error"] is None and outcome["unsaved"] == [], outcome
        return outcome["changes"]

    def connect(**changes):
        outcome = storage.module("iscsi_initiator", {"connections": [dict(link, **changes)], "scan_tries": 2})
        return outcome["outcomes"][item_id]

    def gets_in(chap, name=QEMU):
        volume = dict(chap, volume_id=item_id, lun=lun, name=name)
        return qemu(storage, "qemu-img", volume, "info", "").returncode == 0

    def writes():
        """Since the last look, without any error."""
        failed = storage.sh("rm -f /run/io-count; cat /run/io-failed 2>/dev/null", check=False)
        assert failed == "", failed
        storage.sh("for i in $(seq 300); do [ -e /run/io-count ] && exit 0; sleep 0.1; done; exit 1")

    assert export((kernel, first)) == ["target"]
    path = connect()["path"]
    storage.sh(WRITER % path)
    writes()
    assert export((QEMU, second), keep=[kernel], check=True) == ["initiators"] and not gets_in(second)
    assert export((QEMU, second), keep=[kernel]) == ["initiators"]
    assert export((QEMU, second), keep=[kernel]) == [] and gets_in(second) and not gets_in(anew)
    # tgt's accounts are the target's, not an initiator's.
    assert gets_in(first) == (target == "tgt")
    writes()
    assert export((QEMU, anew), keep=[kernel]) == ["chap"] and gets_in(anew) and not gets_in(second)
    writes()
    assert export(keep=[kernel]) == ["initiators"] and not gets_in(anew)
    writes()
    assert export((QEMU, second), keep=[kernel]) == ["initiators"] and gets_in(second)
    storage.sh("touch /run/io-stop; while [ -e /run/io-stop ]; do sleep 0.1; done")

    # Both come back with the service, each with its own.
    assert connect(state="disconnected")["error"] is None
    storage.sh(service["restart"])
    assert export((QEMU, second), keep=[kernel]) == [] and gets_in(second)
    assert connect(chap_secret=second["chap_secret"])["error"]["code"] == "FailedISCSITargetPortalLogin"
    assert connect()["error"] is None
    # Another guest of the first one's host has the same disk, whatever this run knows.
    shared = connect(shared=True, chap_user=None, chap_secret=None)
    assert (shared["changed"], shared["path"], shared["error"]) == (False, path, None)
    assert connect(state="disconnected")["error"] is None

    # The first goes, the second stays; the target goes with the last.
    assert export(keep=[QEMU]) == ["initiators"] and gets_in(second) and not gets_in(first, kernel)
    assert connect()["error"]["code"] == "FailedISCSITargetPortalLogin"
    storage.sh(service["restart"])
    assert export(keep=[QEMU]) == [] and gets_in(second)
    gone = storage.module("iscsi_target", {"target": target, "exports": [{"volume_id": item_id, "state": "absent"}]})[
        "outcomes"
    ][item_id]
    assert gone["changed"] and not gone["error"]
    left = storage.sh(service["left"])
    assert item_id not in left and not any(chap["chap_user"] in left for chap in (first, second, anew))
    storage.sh(service["stop"], check=False)


@pytest.mark.long
def test_a_target_that_answers_no_command_does_not_hold_the_run(storage):
    service, portal, volume_id = SERVICES["tgt"], storage.vm.portal, new_id()
    wish = {"volume_id": volume_id, "path": "/dev/vg/one", "initiators": [initiator_of(storage)]}
    link = {"volume_id": volume_id, "iqn": PREFIX + volume_id, "lun": 1, "portals": [portal]}
    storage.sh(service["start"])
    storage.module("iscsi_target", {"target": "tgt", "portals": [portal], "exports": [wish]})

    def connection(state):
        return storage.module("iscsi_initiator", {"connections": [dict(link, state=state)]})["outcomes"][volume_id]

    assert connection("connected")["error"] is None
    storage.sh("pkill -STOP tgtd")
    try:
        error = connection("rescanned")["error"]
        held = storage.sh("for p in $(pgrep -x tee); do sed -n 's/^State:.//p' /proc/$p/status; done")
    finally:
        storage.sh("pkill -CONT tgtd")
    assert error["code"] == "WaitTimeout" and "/device/rescan" in error["message"], error
    assert held == "D (disk sleep)\n", held
    # The host goes on: the disk can be taken away, and be had again.
    for state in ("disconnected", "connected", "rescanned", "disconnected"):
        assert connection(state)["error"] is None, state
    storage.module("iscsi_target", {"target": "tgt", "exports": [{"volume_id": volume_id, "state": "absent"}]})
    storage.sh(service["stop"], check=False)


def test_an_initiator_reads_what_was_written_below_its_target(storage):
    """LIO reads the device itself: what is only in the host's page cache is not there for it."""
    service, portal, volume_id = SERVICES["lio"], storage.vm.portal, new_id()
    first, second, third = (noise(2 * MIB, seed) for seed in (20, 21, 22))
    images = [storage.put_image(name, data, "qcow2") for name, data in (("first", first), ("second", second))]
    cached = storage.put_image("third", third, "raw")["path_on_host"]
    backend = {"volume_group": "vg", "provisioning": "thick"}

    def write(image):
        wanted = [{"id": volume_id, "size_gb": 1, "image_id": image["id"]}]
        outcome = storage.volumes(backend, wanted, images=images)["outcomes"][volume_id]
        assert not outcome["error"], outcome
        return outcome

    path = write(images[0])["path"]
    storage.sh(service["start"])
    wish = {"volume_id": volume_id, "path": path, "initiators": [initiator_of(storage)]}
    link = {"volume_id": volume_id, "iqn": PREFIX + volume_id, "lun": 0, "portals": [portal]}
    target = {"target": "lio", "portals": [portal]}
    try:
        storage.module("iscsi_target", dict(target, exports=[wish]))
        connected = storage.module("iscsi_initiator", {"connections": [link]})["outcomes"][volume_id]
        assert connected["error"] is None, connected
        assert storage.sha256(connected["path"], 2 * MIB) == sha256(first)
        # The trap: qemu-img as it comes leaves the new blocks in the page cache.
        storage.sh("qemu-img convert -n -f raw -O raw %s %s" % (cached, path))
        assert storage.sha256(connected["path"], 2 * MIB) == sha256(first)
        # A killed run's volume is begun anew, here while it is exported.
        storage.sh("lvchange -q --addtag bootflow.incomplete " + path)
        assert write(images[1])["action"] == "redo"
        assert storage.sha256(connected["path"], 2 * MIB) == sha256(second)
    finally:
        storage.module("iscsi_initiator", {"connections": [dict(link, state="disconnected")]})
        storage.module("iscsi_target", dict(target, exports=[{"volume_id": volume_id, "state": "absent"}]))
        storage.sh(service["stop"], check=False)


SECRETS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import libvirt
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import secrets
connection, iqn = libvirt.open("qemu:///system"), sys.argv[2]
done = [secrets.set_secret(connection, iqn, "Secret0123456789")["changed"] for _time in range(2)]
text = secrets.find_secret(connection, iqn).XMLDesc(0)
done += [secrets.set_secret(connection, iqn, "Secret0123456789", ephemeral=False)["changed"]]
done += [secrets.remove_secret(connection, iqn)["changed"] for _time in range(2)]
print(json.dumps([done, text, len(connection.listAllSecrets())]))
"""


def test_libvirt_takes_a_secret_and_forgets_it(tmp_path):
    tree = Path(secrets.__file__).parents[6]
    with private_libvirt.PrivateLibvirt(tmp_path) as host:
        done, text, left = json.loads(host.run("/usr/bin/python3", "-c", SECRETS, str(tree), PREFIX + "x"))
    assert done == [True, False, True, True, False] and left == 0
    assert "private='yes'" in text and "Secret0123456789" not in text
