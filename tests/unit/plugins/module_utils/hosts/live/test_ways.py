# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways of a guest between two hosts, by real sockets, TLS and processes of this machine; and its definition on its new host."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import server
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live import channels, gate, guests, relay, target

TOKEN, STOP = "t" * 64, "s" * 64
PORTS = (49280, 49399)
NAME = "web-2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
MINE = (os.geteuid(), os.getegid())
MIB = 1024**2

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


@pytest.fixture(name="there")
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> channels.Sockets:
    """The sockets on the new host. Those of the other host are below another root."""
    monkeypatch.setattr(server, "LOCK_ROOT", str(tmp_path / "run"))
    monkeypatch.setattr(channels, "_ROOT", str(tmp_path / "b"))
    there = channels.sockets_of(TOKEN, NAME)
    channels.make_folder(there, *MINE)
    return there


def opened_gate(there: channels.Sockets, tmp_path: Path) -> server.Place:
    made = gate.Gate([gate.Guest(TOKEN, there, str(tmp_path / "disk.config"))], str(tmp_path / "libvirt"), STOP, 60)
    return server.started(made, PORTS)


@needs_openssl
def test_what_goes_through(there: channels.Sockets, tmp_path: Path) -> None:
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(tmp_path / "a"), NAME)
    relay.start(here, place, TOKEN, MINE, 60)
    much = os.urandom(MIB) * 9
    ends = {channels.LIBVIRT: str(tmp_path / "libvirt")}
    ends.update({c: there.path(c) for c in (channels.MEMORY, channels.DISKS)})
    with contextlib.ExitStack() as stack:
        for channel, path in ends.items():
            stack.enter_context(answering(path, lambda data, c=channel: c.encode() + data))  # type: ignore[misc]
        for channel in channels.CHANNELS:
            assert asked(here.path(channel), much) == channel.encode() + much
            assert asked(here.path(channel), b"") == channel.encode()
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
def test_who_has_no_token_gets_nothing(there: channels.Sockets, tmp_path: Path) -> None:
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(tmp_path / "a"), NAME)
    relay.start(here, place, "another" * 9, MINE, 60)
    with answering(str(tmp_path / "libvirt"), lambda data: b"let in"):
        assert asked(here.path(channels.LIBVIRT), b"x") == b""
    relay.end(here)
    assert server.stop(place, STOP)


@needs_openssl
def test_they_end_by_themselves(there: channels.Sockets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate when its guests were there; the relay when its migration is over and who started it is gone."""
    monkeypatch.setattr(gate, "_SERVED", 0.5)
    monkeypatch.setattr(relay, "_IDLE", 0.5)
    place = opened_gate(there, tmp_path)
    here = channels.Sockets(str(tmp_path / "a"), NAME)
    starter = os.fork()
    if not starter:
        relay.start(here, place, TOKEN, MINE, 60)
        os._exit(0)
    os.waitpid(starter, 0)
    with answering(str(tmp_path / "libvirt"), lambda data: data):
        assert asked(here.path(channels.LIBVIRT), b"x") == b"x"
    wait_gone(here.folder)
    wait_gone(there.folder)
    assert not server.stop(place, STOP)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_qemu_does_not_reach_libvirt(tmp_path: Path) -> None:
    here = channels.Sockets(str(tmp_path / "a"), NAME)
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


def test_paths_of_sockets() -> None:
    sockets = channels.sockets_of(TOKEN, NAME)
    assert sockets.path(channels.DISKS).endswith("/d.tunnelmigrate.dest." + NAME)
    assert len({sockets.path(c) for c in channels.CHANNELS}) == 3
    assert max(len(channels.sockets_of(TOKEN, "x" * 200).path(c)) for c in channels.CHANNELS) < 108
    assert sockets.folder != channels.sockets_of("another", NAME).folder
    with pytest.raises(errors.InvalidInput):
        channels.sockets_of(TOKEN, "../x")


DOMAIN = """<domain><devices>
  <disk type='file' device='disk'><source file='/a/i/U/disk'/><backingStore type='file'><source file='/a/i/_base/x'/></backingStore><target dev='vda'/></disk>
  <disk type='file' device='cdrom'><source file='/a/i/U/disk.config'/><target dev='hda'/><readonly/></disk>
  <serial type='pty'><log file='/a/i/U/console.log' append='off'/></serial>
  <graphics type='vnc' port='5900' autoport='yes' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/></graphics>
</devices></domain>"""


def test_the_definition_on_the_new_host() -> None:
    found = parse(guests.definition_there(DOMAIN, "/a/i/U", "/b/U", "192.0.2.2"))
    assert [s.get("file") for s in found.iterfind("devices/disk/source")] == ["/b/U/disk", "/b/U/disk.config"]
    assert found.find("devices/serial/log").get("file") == "/b/U/console.log"
    assert not list(found.iter("backingStore"))
    assert found.find("devices/graphics").get("listen") == "192.0.2.2"
    assert found.find("devices/graphics/listen").get("address") == "192.0.2.2"
    same = parse(guests.definition_there(DOMAIN, "/a/i/U", "/a/i/U", ""))
    assert same.find("devices/graphics").get("listen") == "127.0.0.1"


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


def test_the_socket_of_libvirt(tmp_path: Path) -> None:
    (tmp_path / "sock").touch()
    assert target.libvirt_socket("qemu:///system?socket=%s/sock" % tmp_path) == str(tmp_path / "sock")
    with pytest.raises(errors.HypervisorUnavailable):
        target.libvirt_socket("qemu:///system?socket=%s/none" % tmp_path)
