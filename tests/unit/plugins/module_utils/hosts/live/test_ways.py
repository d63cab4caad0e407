# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways of a guest between two hosts, by real sockets, TLS and processes of this machine; and its definition on its new host."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import socket
import ssl
import struct
import tempfile
import threading
import time
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.arriving import Arriving
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.names import domain_name, short_domain_names
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.qemu_connection import secret_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import server
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import write_records
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import (
    channels,
    gate,
    guests,
    migrate,
    relay,
    state,
    target,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import room
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import attached_volumes

TOKEN, STOP = "t" * 64, "s" * 64
PORTS = (49280, 49399)
U = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
NAME = "web-" + U
MINE = (os.geteuid(), os.getegid())
MIB = 1024**2
# Messages of libvirt's: a sign of life, and a question for a domain.
ALIVE = struct.pack(">IIIiiIi", 28, 0x6B656570, 1, 1, 2, 0, 0)
LOOKUP = struct.pack(">IIIiiIiI4s", 36, 0x20008086, 1, 23, 0, 1, 0, 3, b"web\0")

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")


@contextlib.contextmanager
def answering(path: str, answer: t.Callable[[bytes], bytes]) -> t.Iterator[None]:
    """A server that reads all that comes, and then answers."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _peer = listener.accept()
                with connection:
                    data = b""
                    while part := connection.recv(MIB):
                        data += part
                    connection.sendall(answer(data))

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        os.unlink(path)
        listener.close()


def asked(path: str, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(path)
        answer = b""
        with contextlib.suppress(ConnectionError):  # the other side may have hung up already
            connection.sendall(data)
            with contextlib.suppress(OSError):  # not connected any more
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(MIB):
                answer += part
        return answer


def wait_gone(path: str) -> None:
    end = time.monotonic() + 20
    while os.path.exists(path):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(name="short")
def _short() -> t.Iterator[Path]:
    """A folder for sockets, whose paths have few characters."""
    with tempfile.TemporaryDirectory(prefix="bf", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(name="there")
def _there(short: Path, monkeypatch: pytest.MonkeyPatch) -> channels.Sockets:
    """The sockets on the new host. Those of the other host are below another root."""
    monkeypatch.setattr(channels, "_ROOT", str(short / "b"))
    there = channels.sockets_of(TOKEN, NAME)
    channels.make_folder(there, *MINE)
    return there


def opened_gate(there: channels.Sockets, tmp_path: Path, patience: float = 60) -> server.Place:
    (tmp_path / "instance").mkdir()
    folder, drive = (str(tmp_path / name) for name in ("instance", "disk.config"))
    guest = gate.Guest(TOKEN, there, Arriving(U, NAME, folder, {}, [], drive))
    made = gate.Gate([guest], str(tmp_path / "libvirt"), STOP, 60, patience)
    return server.started(made, PORTS)


@needs_openssl
def test_a_config_drive_without_room_is_refused_in_words_before_any_of_it_comes(
    there: channels.Sockets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = tmp_path / "drive"
    with open(drive, "wb") as file:  # all but its first bytes is a hole: what it takes is what it may come to
        file.write(b"config")
        file.truncate(300 * MIB)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _folder: types.SimpleNamespace(free=200 * MIB))
    place = opened_gate(there, tmp_path)
    try:
        with pytest.raises(errors.MigrationError) as refused:
            relay.send_drive(place, TOKEN, str(drive))
        words = "No space left on %s at %s: the guest's disks need 300 MiB, and 200 MiB are free"
        assert words % (os.uname().nodename, tmp_path) in refused.value.message
        assert "Free space on the new one" in refused.value.remedy
        assert sorted(p.name for p in tmp_path.iterdir()) == ["drive", "instance"]
        with open(drive, "r+b") as file:
            file.truncate(100 * MIB)
        relay.send_drive(place, TOKEN, str(drive))
        assert (tmp_path / "disk.config").stat().st_size == 100 * MIB
    finally:
        server.stop(place, STOP)


@needs_openssl
@pytest.mark.parametrize("strict", [False, True])
def test_what_goes_through(
    there: channels.Sockets, tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    """:arg strict: as Python 3.13 makes contexts: the end of one direction without TLS's own word is an error, and ends both."""
    made = ssl.SSLContext.__new__

    def make_strict(*args: t.Any, **kwargs: t.Any) -> ssl.SSLContext:
        context = made(*args, **kwargs)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        return context

    if strict:
        monkeypatch.setattr(ssl.SSLContext, "__new__", make_strict)
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(short / "a"), NAME)
    relay.start(here, place, TOKEN, MINE, 60)
    much = os.urandom(MIB) * 9
    ends = {channels.LIBVIRT: str(tmp_path / "libvirt")}
    ends.update({c: there.path(c) for c in (channels.MEMORY, channels.DISKS)})
    with contextlib.ExitStack() as stack:
        for channel, path in ends.items():
            stack.enter_context(answering(path, lambda data, c=channel: c.encode() + data))  # type: ignore[misc]
        for channel in channels.CHANNELS:
            data = ALIVE * 9 if channel == channels.LIBVIRT else much
            assert asked(here.path(channel), data) == channel.encode() + data
            assert asked(here.path(channel), b"") == channel.encode()
        answer = asked(here.path(channels.LIBVIRT), ALIVE + LOOKUP + ALIVE)
        assert b"procedure 23 of program 0x20008086 is not part of a migration" in answer
        assert answer.endswith(channels.LIBVIRT.encode() + ALIVE * 2), "the call did not come to libvirt"
    assert asked(here.path(channels.MEMORY), b"x") == b"", "QEMU does not listen"

    drive = tmp_path / "drive"
    drive.write_bytes(b"config" * 1000)
    relay.send_drive(place, TOKEN, str(drive))
    assert (tmp_path / "disk.config").read_bytes() == drive.read_bytes()
    assert (tmp_path / "disk.config").stat().st_mode & 0o777 == 0o600
    with pytest.raises(errors.MigrationError):
        relay.send_drive(place, "another" * 9, str(drive))
    with pytest.raises(errors.MigrationError):
        relay.send_drive(server.Place(place.address, place.port, "0" * 64), TOKEN, str(drive))

    relay.end(here)
    assert server.stop(place, STOP)
    wait_gone(there.folder)
    assert not server.stop(place, STOP)


@needs_openssl
def test_who_has_no_token_gets_nothing(there: channels.Sockets, tmp_path: Path, short: Path) -> None:
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(short / "a"), NAME)
    relay.start(here, place, "another" * 9, MINE, 60)
    with answering(str(tmp_path / "libvirt"), lambda data: b"let in"):
        assert asked(here.path(channels.LIBVIRT), b"x") == b""
    relay.end(here)
    assert server.stop(place, STOP)


@needs_openssl
def test_they_end_by_themselves(
    there: channels.Sockets, tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate when its guests were there; the relay when its migration is over and who started it is gone."""
    monkeypatch.setattr(gate, "_SERVED", 0.5)
    monkeypatch.setattr(relay, "_IDLE", 0.5)
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(short / "a"), NAME)
    starter = os.fork()
    if not starter:
        relay.start(here, place, TOKEN, MINE, 60)
        os._exit(0)
    os.waitpid(starter, 0)
    with answering(str(tmp_path / "libvirt"), lambda data: data):
        assert asked(here.path(channels.LIBVIRT), ALIVE) == ALIVE
    wait_gone(here.folder)
    wait_gone(there.folder)
    assert not server.stop(place, STOP)


@needs_openssl
def test_a_host_that_is_gone_is_noticed(there: channels.Sockets, tmp_path: Path, monkeypatch: t.Any) -> None:
    """By both ends, with what is under way or without: a guest's disks are not held up until TCP gives up."""
    made: list[socket.socket] = []
    notice = server.notice_loss
    monkeypatch.setattr(server, "notice_loss", lambda connection: (made.append(connection), notice(connection)))
    context, fingerprint = server.identity()
    listener = server.listen(PORTS)
    its = server.Server(STOP, 20)
    running = threading.Thread(target=its.run, args=(listener, context), daemon=True)
    running.start()
    with server.opened(server.Place(server.HERE, listener.getsockname()[1], fingerprint)) as secured:
        assert secured.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
        assert secured.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert secured.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    assert len(made) == 2
    its.over.set()
    running.join(10)
    listener.close()


@needs_openssl
def test_a_gate_to_which_nobody_comes(there: channels.Sockets, tmp_path: Path) -> None:
    """Whose run was killed before it migrated anything."""
    begin = time.monotonic()
    place = opened_gate(there, tmp_path, patience=1.5)
    wait_gone(there.folder)
    assert 1.4 < time.monotonic() - begin < 15 and not server.stop(place, STOP)


@needs_openssl
def test_a_gate_waits_for_a_guest_that_waits(
    there: channels.Sockets, tmp_path: Path, short: Path, monkeypatch: t.Any
) -> None:
    """A guest that is not the first of its run; until the run is killed."""
    monkeypatch.setattr(gate, "_SILENT", 5.0)
    monkeypatch.setattr(relay, "BEAT", 0.5)
    monkeypatch.setattr(relay, "_IDLE", 0.5)
    place = opened_gate(there, tmp_path, patience=2.0)
    here = channels.Sockets(str(short / "a"), NAME)
    reading, writing = os.pipe()
    starter = os.fork()
    if not starter:
        relay.start(here, place, TOKEN, MINE, 60)
        os.close(writing)
        os.read(reading, 1)  # as long as its run lives
        os._exit(0)
    os.close(reading)
    time.sleep(9)
    assert os.path.exists(here.folder) and os.path.exists(there.folder)
    with answering(str(tmp_path / "libvirt"), lambda data: data):
        assert asked(here.path(channels.LIBVIRT), ALIVE) == ALIVE
    os.close(writing)
    os.waitpid(starter, 0)
    wait_gone(here.folder)
    wait_gone(there.folder)


@needs_openssl
def test_a_gate_of_guests_that_the_host_was_cleaned_of(
    there: channels.Sockets, tmp_path: Path, monkeypatch: t.Any
) -> None:
    monkeypatch.setattr(gate, "_SERVED", 0.5)
    monkeypatch.setattr(gate, "_LOOK", 0.1)
    opened_gate(there, tmp_path)
    time.sleep(2)
    assert os.path.exists(there.folder)
    (tmp_path / "instance").rmdir()
    wait_gone(there.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_qemu_does_not_reach_libvirt(short: Path) -> None:
    here = channels.Sockets(str(short / "a"), NAME)
    relay.start(here, server.Place("127.0.0.1", 1, "0" * 64), TOKEN, (64055, 64056), 60)
    folder = os.stat(here.folder)
    assert (folder.st_uid, folder.st_gid, folder.st_mode & 0o777) == (0, 64056, 0o710)
    found = {c: os.stat(here.path(c)) for c in channels.CHANNELS}
    assert {c: s.st_uid for c, s in found.items()} == {
        channels.LIBVIRT: 0,
        channels.MEMORY: 64055,
        channels.DISKS: 64055,
    }
    assert {s.st_mode & 0o777 for s in found.values()} == {0o600}
    relay.end(here)


@needs_openssl
def test_a_socket_of_another_user(there: channels.Sockets, tmp_path: Path, short: Path) -> None:
    """Who came out of a guest can put a link to another socket in the place of QEMU's. No other host comes through it."""
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(short / "a"), NAME)
    relay.start(here, place, TOKEN, MINE, 60)
    with answering(there.path(channels.MEMORY), lambda data: b"let in"):
        assert asked(here.path(channels.MEMORY), b"x") == b"let in"
        os.chown(there.folder, 64055, 64055)
        assert asked(here.path(channels.MEMORY), b"x") == b""
    relay.end(here)
    assert server.stop(place, STOP)


def test_paths_of_sockets() -> None:
    sockets = channels.sockets_of(TOKEN, NAME)
    assert sockets.path(channels.DISKS).endswith("/d.tunnelmigrate.dest." + NAME)
    assert len({sockets.path(c) for c in channels.CHANNELS}) == 3
    for display in ("x" * 255, "7" * 255, "a", ""):
        for name in (domain_name(display, U), *short_domain_names(display, U)):
            paths = [channels.sockets_of(TOKEN, name).path(c) for c in channels.CHANNELS]
            assert all(fnmatch.fnmatchcase(p, "/run/libvirt/?*/*.tunnelmigrate.dest." + name) for p in paths), (
                "AppArmor"
            )
            assert max(len(p) for p in paths) < 108
    with pytest.raises(errors.InvalidInput, match="3 bytes too long"):
        channels.sockets_of(TOKEN, "x" * 63)
    assert sockets.folder != channels.sockets_of("another", NAME).folder
    with pytest.raises(errors.InvalidInput):
        channels.sockets_of(TOKEN, "../x")


DOMAIN = """<domain><devices>
  <disk type='file' device='disk'><driver type='qcow2'/><source file='/a/i/U/disk'/>
  <backingStore type='file'><source file='/a/i/_base/x'/></backingStore><target dev='vda'/></disk>
  <disk type='file' device='cdrom'><source file='/a/i/U/disk.config'/><target dev='hda'/><readonly/></disk>
  <serial type='pty'><log file='/a/i/U/console.log' append='off'/></serial>
  <graphics type='vnc' port='5900' autoport='yes' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/></graphics>
</devices></domain>"""


def test_the_definition_on_the_new_host() -> None:
    found = parse(guests.definition_there(DOMAIN, "/a/i/U", "/b/U", "192.0.2.2"))
    assert [s.get("file") for s in found.iterfind("devices/disk/source")] == ["/b/U/disk", "/b/U/disk.config"]
    assert found.find("devices/serial/log").get("file") == "/b/U/console.log"
    (alone,) = found.iter("backingStore")
    assert not alone.attrib and not len(alone), "no disk on the new host is a layer"
    assert found.find("devices/graphics").get("listen") == "192.0.2.2"
    assert found.find("devices/graphics/listen").get("address") == "192.0.2.2"
    same = parse(guests.definition_there(DOMAIN, "/a/i/U", "/a/i/U", ""))
    assert same.find("devices/graphics").get("listen") == "127.0.0.1"


def test_security_labels_are_the_new_hosts() -> None:
    """libvirt wrote them when the guest started. A host with another security driver, or with another number of QEMU's user, refuses them."""
    labels = "<seclabel type='dynamic' model='apparmor' relabel='yes'><label>libvirt-U</label></seclabel>"
    labels += "<seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+64055</label></seclabel>"
    static = "<seclabel type='static' model='dac' relabel='yes'><label>1:1</label></seclabel>"
    xml = DOMAIN.replace("</devices>", "</devices>" + labels + static)
    found = parse(guests.definition_there(xml, "/a/i/U", "/b/U", ""))
    assert [label.get("type") for label in found.iterfind("seclabel")] == ["static"]


@pytest.mark.parametrize("path", ["/a/i/U/disk.nvram", "/var/lib/libvirt/qemu/nvram/web_VARS.fd"])
def test_uefi_variables_on_the_new_host(path: str) -> None:
    """They are in the folder of the instance, which is cleaned where the guest stays."""
    os_element = "<os><nvram template='/usr/share/T.fd'>%s</nvram></os>" % path
    found = parse(guests.definition_there(DOMAIN.replace("<devices>", os_element + "<devices>"), "/a/i/U", "/b/U", ""))
    assert found.findtext("os/nvram") == "/b/U/disk.nvram"


ON_LVM = """<domain><devices>
  <disk type='block' device='disk'><source dev='/dev/here/%s_disk'/><target dev='vda'/></disk>
  <disk type='block' device='disk'><source dev='/dev/here/%s_disk.swap'><slices><slice type='storage' offset='0' size='512'/></slices></source>
  <target dev='vdb'/></disk>
  <disk type='file' device='disk'><source file='/a/i/U/disk.config'/><target dev='vdc'/></disk>
</devices></domain>""" % (U, U)
DEVICES = {"vda": {"path": "/dev/there/x_disk", "size": 5 << 20}, "vdb": {"path": "/dev/there/x_disk.swap", "size": 0}}


def test_logical_volumes_on_the_new_host() -> None:
    """The guest sees no more of a larger one than it has now; of one that fits it sees all."""
    found = parse(guests.definition_there(ON_LVM, "/a/i/U", "/b/U", "", devices=DEVICES))
    vda, vdb, drive = [disk.find("source") for disk in found.iterfind("devices/disk")]
    assert (vda.get("dev"), vdb.get("dev")) == ("/dev/there/x_disk", "/dev/there/x_disk.swap")
    assert [dict(s.attrib) for s in vda.iterfind("slices/slice")] == [
        {"type": "storage", "offset": "0", "size": str(5 << 20)}
    ]
    assert not list(vdb) and drive.get("file") == "/b/U/disk.config"
    with pytest.raises(errors.MigrationPreCheckError, match="no logical volume for disk vdb"):
        guests.definition_there(ON_LVM, "/a/i/U", "/b/U", "", devices={"vda": DEVICES["vda"]})


PINNED = """<domain><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='1'/><emulatorpin cpuset='0-1'/></cputune>
<numatune><memory mode='strict' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/></numatune><devices/></domain>"""
PINS = {"vcpus": {"0": "6", "1": "7"}, "emulator": "6-7", "cells": {"0": "1"}, "memory": "1"}


def test_the_cpus_on_the_new_host() -> None:
    found = parse(guests.definition_there(PINNED, "/a", "/a", "", PINS))
    assert [(p.get("vcpu"), p.get("cpuset")) for p in found.iterfind("cputune/vcpupin")] == [("0", "6"), ("1", "7")]
    assert found.find("cputune/emulatorpin").get("cpuset") == "6-7"
    assert found.find("numatune/memory").get("nodeset") == "1" and found.find("numatune/memnode").get("nodeset") == "1"
    assert found.find("numatune/memory").get("mode") == "strict"
    with pytest.raises(errors.MigrationPreCheckError, match="no cputune/emulatorpin"):
        guests.definition_there(DOMAIN, "/a/i/U", "/b/U", "", PINS)


A, B = "7e3a4e8c-5f0b-4c6f-9c39-2f7f3b7a2b11", "0f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a12"
PATH = "/dev/disk/by-path/ip-192.0.2.1:3260-iscsi-iqn.2010-10.org.openstack:volume-%s-lun-0" % A
BY_KERNEL = """<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>
  <source dev='/dev/disk/by-path/there' index='2'/><backingStore/><target dev='vdb' bus='virtio'/><serial>%s</serial>
  <address type='pci' slot='0x07'/></disk>"""
BY_QEMU = """<disk type='network' device='lun'><driver name='qemu' type='raw' cache='none'/>
  <auth username='other'><secret type='iscsi' uuid='00000000-0000-4000-8000-000000000000'/></auth>
  <source protocol='iscsi' name='iqn.2010-10.org.openstack:volume-x/0'><host name='192.0.2.9' port='3260'/>
  <initiator><iqn name='iqn.there'/></initiator></source><target dev='sda' bus='scsi'/><alias name='ua-%s'/></disk>"""


def here(volume_id: str, connector: str) -> str:
    """What a new host says of a volume that it is connected to."""
    iqn = "iqn.2010-10.org.openstack:volume-" + volume_id
    values: dict[str, t.Any] = dict.fromkeys(attachments.Attachment._fields)
    values.update(
        id="2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11",
        volume_id=volume_id,
        attach_mode="rw",
        connector=connector,
        initiator="iqn.here",
        iqn=iqn,
        lun=0,
    )
    values.update(portals=["192.0.2.1:3260"], device_path=PATH if connector == "kernel" else None)
    return attached_volumes.disk_xml(attached_volumes.Attached(attachments.Attachment(**values), None))


@pytest.mark.parametrize("connector", ["kernel", "qemu"])
@pytest.mark.parametrize("before, volume_id", [(BY_KERNEL, A), (BY_QEMU, B)])
def test_volumes_are_where_the_new_host_has_them(connector: str, before: str, volume_id: str) -> None:
    """What the guest sees of them stays: the disk's name, serial, bus and address."""
    domain = DOMAIN.replace("<serial", before % volume_id + "<serial", 1)
    found = parse(
        guests.definition_there(domain, "/a/i/U", "/b/U", "", volumes={volume_id: here(volume_id, connector)})
    )
    (disk,) = [d for d in found.iterfind("devices/disk") if d.get("type") in ("block", "network")]
    was = parse(before % volume_id)
    for tag in ("target", "serial", "alias", "address"):
        assert [dict(e.attrib) for e in disk.findall(tag)] == [dict(e.attrib) for e in was.findall(tag)]
    assert disk.get("device") == was.get("device") and disk.findtext("serial") == was.findtext("serial")
    (source,) = disk.findall("source")
    driver = disk.find("driver")
    assert (driver.get("cache"), driver.get("type")) == ("none", "raw")
    if connector == "kernel":
        assert (disk.get("type"), dict(source.attrib), driver.get("io")) == ("block", {"dev": PATH}, "native")
        assert not disk.findall("auth")
    else:
        assert (disk.get("type"), source.get("protocol"), driver.get("io")) == ("network", "iscsi", None)
        assert source.find("initiator/iqn").get("name") == "iqn.here"
        assert source.find("host").get("name") == "192.0.2.1"
        (auth,) = disk.findall("auth")
        assert auth.find("secret").get("uuid") == secret_uuid("iqn.2010-10.org.openstack:volume-" + volume_id)
    with pytest.raises(errors.MigrationPreCheckError, match="is not connected on the new host"):
        guests.definition_there(domain, "/a/i/U", "/b/U", "", volumes={})


class Domain:
    """What libvirt says of a domain that runs, as far as it is asked."""

    def __init__(self, xml: str):
        self.xml = xml

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802
        return self.xml

    def name(self) -> str:
        return NAME

    def isPersistent(self) -> int:  # noqa: N802
        return 0

    def isActive(self) -> int:  # noqa: N802
        return 1

    def jobStats(self, _flags: int = 0) -> dict[str, int]:  # noqa: N802
        return {"type": 0}

    def snapshotNum(self, _flags: int) -> int:  # noqa: N802
        return 0

    def listAllCheckpoints(self, _flags: int) -> list[object]:  # noqa: N802
        return []

    def blockInfo(self, _target: str) -> tuple[int, int, int]:  # noqa: N802
        return 5 * 1024**3, 1024**2, 0


def described(
    monkeypatch: pytest.MonkeyPatch, instances_path: Path, uuid: str, xml: str, **more: t.Any
) -> dict[str, t.Any]:
    xml = xml.replace("<domain>", "<domain type='qemu'><os><type arch='x86_64' machine='q35'>hvm</type></os>")
    domain = Domain(xml)
    connection = type("Connection", (), {"getVersion": lambda _self: 1, "getLibVersion": lambda _self: 1})()
    monkeypatch.setattr(guests, "leaving", lambda _connection, _uuid: domain)
    monkeypatch.setattr(guests, "power_state", lambda _domain: 1)
    return guests.describe(connection, str(instances_path), uuid, **more)


def test_logical_volumes_that_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their records: no other block device is a disk of the guest's own."""
    folder = tmp_path / U
    (folder / "disk").mkdir(parents=True)
    lvm = {"format": "lvm", "base": "", "volume_group": "here", "virtual_size": 1}
    write_records(str(folder), {"disk": lvm, "disk.swap": lvm})
    xml = ON_LVM.replace("/a/i/U", str(folder))
    found = described(monkeypatch, tmp_path, U, xml)
    assert [(d["name"], d["target"], d["mounted"]) for d in found["disks"]] == [
        ("disk", "vda", False),
        ("disk.swap", "vdb", False),
    ]
    assert {d["record"]["virtual_size"] for d in found["disks"]} == {5 * 1024**3} and found["volumes"] == []
    assert found["drive_target"] == "vdc", "the guest can write to it"
    with pytest.raises(errors.GuestDisksDiffer, match="Disk vda of instance %s .* is /dev/sdb" % U):
        described(monkeypatch, tmp_path, U, xml.replace("/dev/here/%s_disk'" % U, "/dev/sdb'"))

    write_records(str(folder), {"disk": {"format": "qcow2_on_lvm", "volume_group": "here"}})
    write_records(str(folder / "disk"), {"disk": {"format": "qcow2", "base": "x"}})
    xml = DOMAIN.replace("/a/i/U/disk'", "%s/disk/disk'" % folder).replace("/a/i/U", str(folder))
    found = described(monkeypatch, tmp_path, U, xml)
    (disk,) = found["disks"]
    assert found["drive_target"] == "", "a CD-ROM"
    assert (disk["name"], disk["record"]["format"], disk["mounted"]) == ("disk", "qcow2", True)
    assert disk["record"]["base"] == ""


@pytest.mark.parametrize("cache, ok", [("none", True), ("directsync", True), ("writeback", False)])
def test_volumes_are_no_disks_to_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str, ok: bool) -> None:
    uuid = U
    folder = tmp_path / uuid
    folder.mkdir()
    write_records(str(folder), {"disk": {"format": "qcow2", "base": "x"}})
    volume = (BY_KERNEL % A).replace("cache='none'", "cache='%s'" % cache)
    xml = DOMAIN.replace("/a/i/U", str(folder)).replace("<serial", volume + BY_QEMU % B + "<serial", 1)
    if not ok:
        with pytest.raises(errors.MigrationPreCheckError, match="has the cache mode writeback"):
            described(monkeypatch, tmp_path, uuid, xml)
        return
    found = described(monkeypatch, tmp_path, uuid, xml)
    assert [d["target"] for d in found["disks"]] == ["vda"]
    assert found["volumes"] == [{"id": A, "target": "vdb"}, {"id": B, "target": "sda"}]
    where = {A: "/dev/disk/by-path/there", B: "iqn.2010-10.org.openstack:volume-x/0"}
    assert described(monkeypatch, tmp_path, uuid, xml, has=where) == found
    for volume_id, name in ((A, "vdb"), (B, "sda")):
        with pytest.raises(errors.GuestDisksDiffer, match="Disk %s of instance" % name):
            described(monkeypatch, tmp_path, uuid, xml, has={**where, volume_id: "/dev/disk/by-path/elsewhere"})


def test_the_socket_of_libvirt(tmp_path: Path) -> None:
    (tmp_path / "sock").touch()
    assert target.libvirt_socket("qemu:///system?socket=%s/sock" % tmp_path) == str(tmp_path / "sock")
    with pytest.raises(errors.HypervisorUnavailable):
        target.libvirt_socket("qemu:///system?socket=%s/none" % tmp_path)


class Seen:
    """One in a state of libvirt's, with its reason; ``job``: the operation of the job that goes on."""

    def __init__(self, state: int, reason: int, job: int = 0):
        self.found, self.job = (state, reason), job

    def state(self) -> tuple[int, int]:
        return self.found

    def jobInfo(self) -> list[int]:
        return [2 if self.job else 0]

    def jobStats(self, flags: int) -> dict[str, int]:
        return {"operation": self.job}


@pytest.mark.parametrize(
    ("domain", "stays"),
    [
        (Seen(1, 1), True),
        (Seen(3, 1), True),
        (Seen(1, 1, job=8), False),  # it leaves
        (Seen(5, 1), True),  # its system shut down
        (Seen(5, 2), True),  # it lost its power
        (Seen(5, 3), False),  # QEMU crashed: its memory may have been following it
        (Seen(5, 0), False),  # libvirt does not know any more
        (Seen(5, 4), False),  # it went over
        (None, False),
    ],
)
def test_whether_a_guest_has_stayed(monkeypatch: pytest.MonkeyPatch, domain: Seen | None, stays: bool) -> None:
    """Only then its new host is cleaned of its disks at once."""
    fake = types.SimpleNamespace(
        libvirtError=OSError, VIR_DOMAIN_SHUTOFF=5, VIR_DOMAIN_SHUTOFF_SHUTDOWN=1, VIR_DOMAIN_SHUTOFF_DESTROYED=2,
        VIR_DOMAIN_SHUTOFF_MIGRATED=4, VIR_DOMAIN_SHUTOFF_SAVED=5, VIR_DOMAIN_SHUTOFF_FAILED=6, VIR_DOMAIN_JOB_NONE=0,
        VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT=8, VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN=7, VIR_DOMAIN_PAUSED=3,
        VIR_DOMAIN_PAUSED_MIGRATION=2, VIR_DOMAIN_RUNNING=1, VIR_DOMAIN_RUNNING_POSTCOPY=10,
    )  # fmt: skip
    for module in (guests, state, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(guests, "find_domain", lambda _connection, _uuid: domain)
    assert guests.is_here(None, "u") is stays


def test_the_remedy_of_a_migration_that_failed() -> None:
    message = "internal error: unable to execute QEMU command 'migrate-set-capabilities': Postcopy is not supported"
    assert "vm.unprivileged_userfaultfd" in migrate.failed_migration(message).remedy
    assert migrate.failed_migration("internal error: process exited").remedy == errors.MigrationError.remedy
