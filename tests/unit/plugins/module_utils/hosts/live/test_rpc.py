# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the present host of a guest may ask the libvirt of its new host for: this guest's migration, with what the ledger gives it there."""

from __future__ import annotations

import dataclasses
import socket
import struct
import threading
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import arriving
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.arriving import Arriving, LocalDisk
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import channels, rpc

U, OTHER = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11", "7e3a4e8c-5f0b-4c6f-9c39-2f7f3b7a2b11"
NAME = "web-" + U
FOLDER = "/i/" + U
VOLUME = "0f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a12"
VOLUME_XML = "<disk type='block'><source dev='/dev/disk/by-path/here'/></disk>"
SOCKETS = channels.Sockets("/run/libvirt/bf-x", NAME)
LIMITS: dict[str, t.Any] = {
    "ledger_id": "me", "memory_mb": 192, "vcpus": 1, "vnc_listen": "127.0.0.1", "rng_dev_path": "/dev/urandom",
    "interfaces": {"fa:16:3e:41:e5:f8": {"type": "network", "network": "bf-guests", "bridge": None, "dev": "tapcaaff8f8-df", "bandwidth": {}}},
}  # fmt: skip
GUEST = Arriving(
    uuid=U,
    name=NAME,
    folder=FOLDER,
    disks={"vda": LocalDisk(FOLDER + "/disk", "qcow2"), "vdb": LocalDisk("/dev/vg/x_disk", "raw", True, 512)},
    emulators=["/usr/bin/qemu-system-x86_64"],
    drive=FOLDER + "/disk.config",
    limits=LIMITS,
    volumes={VOLUME: VOLUME_XML},
)
# As libvirt 9 sends it.
DOMAIN = """<domain type='qemu'>
  <name>{n}</name>
  <uuid>{u}</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>web</nova:name></nova:instance>
    <bootflow:owner xmlns:bootflow="urn:bootflow:compute:owner:1" ledger="me"/>
  </metadata>
  <memory unit='KiB'>196608</memory>
  <currentMemory unit='KiB'>196608</currentMemory>
  <vcpu placement='static'>1</vcpu>
  <resource><partition>/machine</partition></resource>
  <sysinfo type='smbios'><system><entry name='manufacturer'>bootflow.compute</entry></system></sysinfo>
  <os firmware='efi'><type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
    <firmware><feature enabled='no' name='secure-boot'/></firmware>
    <loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>{f}/disk.nvram</nvram>
    <boot dev='hd'/><smbios mode='sysinfo'/></os>
  <features><acpi/><apic/></features>
  <cpu mode='custom' match='exact' check='none'><model fallback='forbid'>qemu64</model></cpu>
  <clock offset='utc'><timer name='pit' tickpolicy='delay'/></clock>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='writeback'/><source file='{f}/disk'/><target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/></disk>
    <disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>
      <source dev='/dev/vg/x_disk' index='2'><slices><slice type='storage' offset='0' size='512'/></slices></source><target dev='vdb' bus='virtio'/></disk>
    <disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/><source dev='/dev/disk/by-path/here' index='3'/>
      <backingStore/><target dev='vdc' bus='virtio'/><serial>{v}</serial></disk>
    <disk type='file' device='cdrom'><driver name='qemu' type='raw' cache='writeback'/><source file='{f}/disk.config'/><target dev='hda' bus='ide'/>
      <readonly/><address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>
    <controller type='pci' index='1' model='pcie-root-port'><model name='pcie-root-port'/><target chassis='1' port='0x10'/></controller>
    <interface type='network'><mac address='fa:16:3e:41:e5:f8'/><source network='bf-guests'/><target dev='tapcaaff8f8-df'/><model type='virtio'/></interface>
    <serial type='pty'><log file='{f}/console.log' append='off'/><target type='isa-serial' port='0'><model name='isa-serial'/></target></serial>
    <console type='pty'><log file='{f}/console.log' append='off'/><target type='serial' port='0'/></console>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <input type='mouse' bus='ps2'/>
    <graphics type='vnc' port='-1' autoport='yes' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/></graphics>
    <audio id='1' type='none'/>
    <video><model type='virtio' heads='1' primary='yes'/></video>
    <memballoon model='virtio'><stats period='10'/></memballoon>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
  <seclabel type='dynamic' model='apparmor' relabel='yes'><label>libvirt-{u}</label><imagelabel>libvirt-{u}</imagelabel></seclabel>
</domain>""".format(n=NAME, u=U, f=FOLDER, v=VOLUME)  # fmt: skip
COOKIE = (
    "<qemu-migration><name>%s</name><uuid>%s</uuid><hostname>h</hostname><hostuuid>%s</hostuuid><feature name='lockstate'/>"
    "<nbd><disk target='vda' capacity='1'/></nbd>%%s</qemu-migration>" % (NAME, U, OTHER)
)


def test_a_definition_of_libvirts_is_accepted() -> None:
    arriving.check_definition(parse(DOMAIN), GUEST)
    arriving.check_cookie(COOKIE % DOMAIN, GUEST)
    arriving.check_cookie(COOKIE % "", GUEST)


DISK = "<source file='%s/disk'/>" % FOLDER
WRONG: list[tuple[str, str, str]] = [
    # what is replaced, by what, a word of the answer
    (NAME + "</name>", "other</name>", "another guest"),
    (U + "</uuid>", OTHER + "</uuid>", "another guest"),
    ("<name>", "<name>%s</name><name>" % NAME, "another guest"),
    ("ledger=\"me\"", "ledger=\"you\"", "another ledger"),
    (">196608</memory>", ">1966080</memory>", "more memory"),
    ("unit='KiB'>196608</memory>", "unit='GiB'>196608</memory>", "more memory"),
    (">qemu64</model>", ">qemu64</model><numa><cell id='0' memory='999999999' unit='KiB'/></numa>", "more memory"),
    ("<vcpu placement='static'>1<", "<vcpu placement='static'>64<", "more CPUs"),
    ("<resource>", "<maxMemory slots='1' unit='KiB'>1</maxMemory><resource>", "maxMemory"),
    ("<resource>", "<cputune><vcpupin vcpu='0' cpuset='3'/></cputune><resource>", "pins its CPUs"),
    ("<resource>", "<cputune><shares>200000</shares></cputune><resource>", "more shares"),
    ("<resource>", "<cputune><vcpusched vcpus='0' scheduler='fifo' priority='99'/></cputune><resource>", "real time"),
    ("<resource>", "<memoryBacking><locked/></memoryBacking><resource>", "locked"),
    ("<resource>", "<memoryBacking><source type='file'/></memoryBacking><resource>", "memoryBacking/source"),
    ("<resource>", "<numatune><memory mode='strict' nodeset='0'/></numatune><resource>", "other cells"),
    ("/machine<", "/system.slice<", "control group"),
    ("type='smbios'>", "type='fwcfg'>", "sysinfo"),
    ("<entry name='manufacturer'>", "<entry name='opt/x' file='/etc/shadow'>", "attribute file"),
    ("<boot dev='hd'/>", "<kernel>/boot/vmlinuz</kernel>", "os/kernel"),
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/etc/shadow", "boots /etc/shadow"),
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/../../etc/shadow", "boots"),
    ("<loader readonly='yes'", "<loader readonly='no'", "boots"),
    ("/usr/share/OVMF/OVMF_VARS_4M.fd", "/etc/shadow", "takes the variables"),
    (FOLDER + "/disk.nvram", "/var/lib/libvirt/qemu/nvram/" + NAME + "_VARS.fd", "firmware's variables"),
    (FOLDER + "/disk.nvram", "%s/../%s/disk.nvram" % (FOLDER, OTHER), "firmware's variables"),
    ("mode='sysinfo'", "mode='host'", "firmware data of the host"),
    ("<on_crash>destroy", "<on_crash>coredump-destroy", "on_crash"),
    ("<features>", "<features><x><y>/etc/shadow</y></x>", "names /etc/shadow"),
    ("<features>", "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'/><features>", "element"),
    ("<features>", "<cpu><q:x xmlns:q='urn:x'/></cpu><features>", "unknown element"),
    ("type='dynamic'", "type='none'", "security label"),
    ("relabel='yes'", "relabel='no'", "security label"),
    ("<emulator>/usr/bin/qemu-system-x86_64", "<emulator>/usr/bin/perl", "not an emulator"),
    (DISK, "<source file='/etc/shadow'/>", "has as disk vda"),
    (DISK, "<source file='/i/%s/disk'/>" % OTHER, "has as disk vda"),
    (DISK, "<source file='%s/../x'/>" % FOLDER, "has as disk vda"),
    (DISK, DISK + DISK, "twice"),
    (DISK, DISK + "<backingStore type='file'><source file='/etc/shadow'/></backingStore>", "a base below"),
    (DISK, DISK + "<mirror file='/etc/x'/>", "devices/disk/mirror"),
    ("name='qemu' type='qcow2'", "name='qemu' type='raw'", "has as disk vda"),
    ("<source dev='/dev/vg/x_disk' index='2'>", "<source dev='/dev/sda' index='2'>", "has as disk vdb"),
    ("size='512'", "size='1024'", "more than its path"),
    ("type='raw' cache='none' io='native'/>\n", "type='qcow2' cache='none' io='native'/>\n", "has as disk vdb"),
    ("/dev/disk/by-path/here", "/dev/sda", "another source of volume"),
    (VOLUME, OTHER, "is not connected"),
    ("<target dev='vda'", "<target dev='vdz'", "does not have"),
    ("<disk type='file' device='disk'>", "<disk type='dir' device='disk'>", "has as disk vda"),
    ("<disk type='file' device='disk'>", "<disk type='file' device='disk' rawio='yes'>", "attribute rawio"),
    ("<disk type='file' device='disk'>", "<disk type='file' device='disk' sgio='unfiltered'>", "attribute sgio"),
    ("<devices>", "<devices><filesystem type='mount'><source dir='/'/><target dir='x'/></filesystem>", "filesystem"),
    ("<devices>", "<devices><hostdev mode='subsystem' type='pci'/>", "hostdev"),
    ("<devices>", "<devices><shmem name='x'/>", "shmem"),
    ("<devices>", "<devices/><devices>", "exactly one list of devices"),
    ("<source network='bf-guests'/>", "<source network='others'/>", "has interface"),
    ("<interface type='network'>", "<interface type='bridge'>", "has interface"),
    ("fa:16:3e:41:e5:f8", "fa:16:3e:41:e5:f9", "ledger does not have"),
    ("tapcaaff8f8-df", "eth0", "as eth0"),
    ("<model type='virtio'/></interface>", "<script path='/x'/></interface>", "interface/script"),
    ("<model type='virtio'/></interface>", "<backend tap='/dev/x'/></interface>", "interface/backend"),
    ("<serial type='pty'>", "<serial type='file'><source path='/etc/x'/>", "type file"),
    ("<serial type='pty'>", "<serial type='pty'><source path='/dev/sda'/>", "at /dev/sda"),
    ("console.log", "../x.log", "writes the log"),
    ("<channel type='unix'>", "<channel type='unix'><source mode='bind' path='/etc/x'/>", "channel/source"),
    ("<input type='mouse' bus='ps2'/>", "<input type='evdev'><source dev='/dev/input/event0'/></input>", "input/source"),
    ("listen='127.0.0.1'", "listen='0.0.0.0'", "another address"),
    ("autoport='yes'", "autoport='no'", "port of libvirt's"),
    ("<graphics type='vnc'", "<graphics type='spice'", "than VNC"),
    ("<audio id='1' type='none'/>", "<audio id='1' type='file' path='/etc/x'/>", "attribute path"),
    ("heads='1'", "heads='1'><acceleration rendernode='/dev/x'/></model><model", "acceleration"),
    ("<memballoon model='virtio'>", "<watchdog model='i6300esb' action='dump'/><memballoon model='virtio'>", "dump"),
    (">/dev/urandom<", ">/etc/shadow<", "random numbers"),
    ("<backend model='random'>/dev/urandom</backend>", "<backend model='egd' type='tcp'/>", "attribute type"),
    ("<domain type='qemu'>", "<!DOCTYPE x SYSTEM 'file:///etc/shadow'><domain type='qemu'>", "document type"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "by", "word"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_another_definition_is_refused(found: str, by: str, word: str) -> None:
    assert found in DOMAIN
    changed = DOMAIN.replace(found, by)
    with pytest.raises(errors.MigrationPreCheckError, match=word):
        arriving.check_definition(arriving.parse_strictly(changed, GUEST), GUEST)
    with pytest.raises(errors.MigrationPreCheckError):
        arriving.check_cookie(COOKIE % changed, GUEST)


def test_a_disk_in_a_pool_is_the_one_that_this_host_reaches() -> None:
    auth = "<auth username='nova'><secret type='ceph' uuid='%s'/></auth>" % OTHER
    source = "<source protocol='rbd' name='vms/x_disk'><host name='192.0.2.21' port='6789'/></source>"
    here = "<disk type='network'>%s%s</disk>" % (source, auth)
    guest = dataclasses.replace(GUEST, disks={**GUEST.disks, "vdb": LocalDisk("", "raw", shared=here)})
    driver = "<driver name='qemu' type='raw' cache='none'/>"
    before = DOMAIN[DOMAIN.index("<disk type='block' device='disk'>") : DOMAIN.index("<target dev='vdb'")]
    comes = DOMAIN.replace(before, "<disk type='network' device='disk'>" + driver + source + auth)
    arriving.check_definition(parse(comes), guest)
    for found, by in (
        ("vms/x_disk", "vms/y_disk"),
        ("192.0.2.21", "192.0.2.99"),
        ("username='nova'", "username='admin'"),
        (auth, ""),
        ("type='raw' cache='none'/><source protocol", "type='qcow2' cache='none'/><source protocol"),
    ):
        assert found in comes
        with pytest.raises(errors.MigrationPreCheckError, match="has another source of disk vdb"):
            arriving.check_definition(parse(comes.replace(found, by)), guest)


def test_limits_of_a_flavor() -> None:
    """A host that drops them takes what others have."""
    more = {"cpu_quota": 20000, "cpu_period": 100000, "cpu_shares": 2048, "iotune": {"total_iops_sec": 100}}
    guest = dataclasses.replace(GUEST, limits={**LIMITS, **more})
    quota = "<cputune><shares>2048</shares><period>100000</period><quota>20000</quota></cputune><resource>"
    limited = DOMAIN.replace("<resource>", quota)
    for disk in (DISK, "<target dev='vdb' bus='virtio'/>"):
        limited = limited.replace(disk, disk + "<iotune><total_iops_sec>100</total_iops_sec></iotune>")
    arriving.check_definition(parse(limited), guest)
    for found, by, word in (
        ("<quota>20000</quota>", "", "quota"),
        (">20000<", ">200000<", "quota"),
        (">100<", ">1000<", "limits of disk"),
        (DISK + "<iotune><total_iops_sec>100</total_iops_sec></iotune>", DISK, "limits of disk"),
        ("2048", "4096", "shares"),
    ):
        with pytest.raises(errors.MigrationPreCheckError, match=word):
            arriving.check_definition(parse(limited.replace(found, by)), guest)


@pytest.mark.parametrize(
    "cookie",
    [
        COOKIE.replace(U, OTHER),
        COOKIE.replace(NAME, "other"),
        COOKIE.replace("<nbd>", "<lockstate driver='sanlock'><leases>x</leases></lockstate><nbd>"),
        COOKIE.replace("<nbd>", "<nbd><x>/etc/shadow</x>"),
        COOKIE.replace("<uuid>%s</uuid>" % U, ""),
        "<x>%s</x>",
        COOKIE.replace("%s", "%s<domain type='qemu'/>"),
    ],
)
def test_another_cookie_is_refused(cookie: str) -> None:
    with pytest.raises(errors.MigrationPreCheckError):
        arriving.check_cookie(cookie % DOMAIN, GUEST)


# --- the calls


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def call(procedure: int, body: bytes = b"", serial: int = 7, program: int = 0x20008086, kind: int = 0) -> bytes:
    return struct.pack(">IIIiiIi", 28 + len(body), program, 1, procedure, kind, serial, 0) + body


def typed(values: t.Sequence[tuple[str, t.Any]]) -> bytes:
    parts = [struct.pack(">I", len(values))]
    for name, value in values:
        parts.append(text(name))
        number = isinstance(value, int)
        parts.append(struct.pack(">IQ", 4, value) if number else struct.pack(">I", 7) + text(value))
    return b"".join(parts)


URIS = [("migrate_uri", "unix://" + SOCKETS.path("memory")), ("disks_uri", "unix://" + SOCKETS.path("disks"))]
PREPARE = [("destination_xml", DOMAIN), *URIS, ("migrate_disks", "vda"), ("migrate_disks", "vdb"), ("bandwidth", 8)]


def prepare(values: t.Any = None, cookie: str = COOKIE % "", flags: int = 0x4B, procedure: int = 303) -> bytes:
    body = typed(PREPARE if values is None else values) + text(cookie.encode() + b"\0") + struct.pack(">I", flags)
    return call(procedure, body + (struct.pack(">I", 0) if procedure == 306 else b""))


OPEN = call(1, struct.pack(">I", 1) + text("qemu:///system") + struct.pack(">I", 0))
BEGIN = call(66) + call(60, struct.pack(">i", 10)) + OPEN + call(360)
ALIVE = call(1, serial=0, program=0x6B656570, kind=2)


def test_a_migration_passes() -> None:
    whole = BEGIN + prepare() + ALIVE + prepare([*PREPARE, ("destination_name", NAME)], COOKIE % DOMAIN, 0x4B, 306)
    whole += call(361) + call(2)
    made = rpc.Filter(GUEST, SOCKETS)
    assert made.inwards(whole) == whole
    made, passed = rpc.Filter(GUEST, SOCKETS), b""
    for at in range(0, len(whole), 11):  # in pieces
        passed += made.inwards(whole[at : at + 11])
    assert passed == whole


def test_a_migration_may_take_days() -> None:
    """libvirt gives a sign of life every few seconds."""
    made = rpc.Filter(GUEST, SOCKETS)
    assert made.inwards(BEGIN + prepare()) and all(made.inwards(ALIVE * 100) for _again in range(1000))
    with pytest.raises(rpc.Refused):
        for _again in range(rpc._MOST_CALLS):
            made.inwards(call(360))


def changed(*values: tuple[str, t.Any]) -> list[tuple[str, t.Any]]:
    return [p for p in PREPARE if p[0] not in {v[0] for v in values}] + list(values)


BAD = {
    "list_all_domains": call(273, struct.pack(">iI", 1, 0)),
    "domain_lookup_by_uuid": call(24, bytes(16)),
    "domain_lookup_by_name": call(23, text(NAME)),
    "domain_destroy": call(12, text("other") + bytes(20)),
    "define": call(350, text(DOMAIN) + struct.pack(">I", 0)),
    "create": call(10, text(DOMAIN) + struct.pack(">I", 0)),
    "pool": call(77, text("<pool/>") + struct.pack(">I", 0)),
    "capabilities": call(7),
    "prepare of version 3 without parameters": call(213, b""),
    "tunnel": call(304, b""),
    "offline": prepare(flags=0x4B | 1024),
    "tunnelled": prepare(flags=0x4B | 4),
    "not from peer to peer": prepare(flags=1),
    "another program": call(1, program=0x20008087),
    "a stream": call(303, prepare()[28:], kind=3),
    "a call with files": call(303, prepare()[28:], kind=4),
    "an answer": call(66, kind=1),
    "open": call(1, struct.pack(">I", 1) + text("lxc:///system") + struct.pack(">I", 0)),
    "open by default": call(1, struct.pack(">II", 0, 0)),
    "more than the call": call(360, b"more"),
    "short": call(303, b"\0\0"),
    "huge": struct.pack(">I", 64 * 1024**2),
    "tiny": struct.pack(">I", 3),
    "no definition": prepare([p for p in PREPARE if p[0] != "destination_xml"]),
    "two definitions": prepare([*PREPARE, ("destination_xml", DOMAIN)]),
    "a number as definition": prepare(changed(("destination_xml", 1))),
    "another file": prepare(changed(("destination_xml", DOMAIN.replace(FOLDER + "/disk'", "/etc/shadow'")))),
    "memory elsewhere": prepare(changed(("migrate_uri", "unix:///run/libvirt/libvirt-sock"))),
    "memory by TCP": prepare(changed(("migrate_uri", "tcp://0.0.0.0:1"))),
    "no memory": prepare([p for p in PREPARE if p[0] != "migrate_uri"]),
    "disks elsewhere": prepare(changed(("disks_uri", "unix:///etc/x"))),
    "another name": prepare(changed(("destination_name", "other"))),
    "another parameter": prepare([*PREPARE, ("listen_address", "0.0.0.0")]),
    "a cookie": prepare(cookie=(COOKIE % "").replace(U, OTHER)),
    "finish first": prepare([], COOKIE % DOMAIN, 0x4B, 306),
    "prepare twice": prepare() + prepare(),
    "finish with another definition": prepare() + prepare([], COOKIE % DOMAIN.replace(DISK, ""), 0x4B, 306),
    "finish with another uuid": prepare() + prepare([], COOKIE % DOMAIN.replace(U + "</u", OTHER + "</u"), 0x4B, 306),
}


#: Nothing can be answered to these.
ENDS = {"a stream", "a call with files", "an answer", "huge", "tiny"}


@pytest.mark.parametrize("what", sorted(BAD))
def test_another_call_is_refused(what: str) -> None:
    made = rpc.Filter(GUEST, SOCKETS)
    assert made.inwards(BEGIN) == BEGIN and not made.answers()
    if what in ENDS:
        with pytest.raises(channels.Refused):
            made.inwards(BAD[what])
        return
    assert made.inwards(BAD[what]) in (b"", prepare()), "the first of two may pass"
    answer = made.answers()
    assert struct.unpack_from(">I", answer) == (len(answer),) and b"refuses: " in answer and not made.answers()


def test_the_answer_to_a_refused_call() -> None:
    """Nothing of it reaches libvirt, and the other host's libvirt shows why. It does not come in the middle of another answer."""
    (inside, of_libvirt), (outside, of_host) = socket.socketpair(), socket.socketpair()
    work = threading.Thread(target=channels.pump, args=(inside, outside, rpc.Filter(GUEST, SOCKETS)), daemon=True)
    work.start()
    for each in (of_libvirt, of_host):
        each.settimeout(10)
    of_host.sendall(BEGIN)
    got = b""
    while len(got) < len(BEGIN):
        got += of_libvirt.recv(65536)
    assert got == BEGIN
    other = call(60, b"x" * 100, kind=1)
    of_libvirt.sendall(other[:3])
    assert of_host.recv(65536) == other[:3]
    of_host.sendall(call(24, bytes(16), serial=9) + ALIVE)
    assert of_libvirt.recv(65536) == ALIVE
    of_libvirt.sendall(other[3:50])
    assert of_host.recv(65536) == other[3:50]
    of_libvirt.sendall(other[50:])
    answer = b""
    while b"migration" not in answer:
        answer += of_host.recv(65536)
    assert answer.startswith(other[50:])
    answer = answer[len(other) - 50 :]
    assert struct.unpack_from(">IIIiiIi", answer) == (len(answer), 0x20008086, 1, 24, 1, 9, 1)
    assert b"procedure 24 of program 0x20008086 is not part of a migration" in answer
    of_host.close()
    work.join(10)
    inside.close()
    assert of_libvirt.recv(65536) == b""
    for each in (of_libvirt, outside):
        each.close()
