# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that go from host to host: by real connections and real programs, between two folders of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import receiver, sender, server, stream
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.stream import send_line
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import local_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.arrivals import files as arriving_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import records_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import nvram
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
MIB = 1024**2
LIMITS = {"disk": 8 * MIB, "disk.swap": MIB}
TOKEN, STOP = "t" * 64, "s" * 64
PORTS = (49280, 49399)

needs_programs = pytest.mark.skipif(
    not (shutil.which("qemu-img") and shutil.which("openssl")), reason="needs qemu-img and openssl"
)


def qemu(*argv: str) -> str:
    return subprocess.run(["qemu-img", *argv], stdout=subprocess.PIPE, text=True, check=True).stdout


def file_of(size: int, *data: tuple[int, bytes]) -> t.Any:
    file = io.BytesIO() if size < 0 else open(os.memfd_create("disk"), "w+b")  # noqa: SIM115
    file.truncate(size)
    for offset, content in data:
        file.seek(offset)
        file.write(content)
    file.flush()
    return file


def sent(size: int, *data: tuple[int, bytes]) -> bytes:
    wire = io.BytesIO()
    with file_of(size, *data) as file:
        stream.send_file(t.cast(stream.Stream, wire), file.fileno(), size)
    return wire.getvalue()


def received(wire: bytes, size: int) -> bytes:
    with file_of(0) as file:
        stream.receive_file(t.cast(stream.Stream, io.BytesIO(wire)), file.fileno(), size)
        file.seek(0)
        return t.cast(bytes, file.read())


def test_holes_stay_holes() -> None:
    data = (3 * MIB + 7, b"in the middle"), (9 * MIB, b"x" * (2 * MIB)), (20 * MIB - 3, b"end")
    wire = sent(20 * MIB, *data)
    assert len(wire) < 6 * MIB
    with file_of(20 * MIB, *data) as file:
        file.seek(0)
        assert received(wire, 20 * MIB) == file.read()
    assert received(sent(0), 0) == b"" and received(sent(5 * MIB), 5 * MIB) == bytes(5 * MIB)


@pytest.mark.parametrize("position", [0, 11, 12, 100, -1, -40])
def test_what_is_changed_on_the_way_is_refused(position: int) -> None:
    wire = bytearray(sent(MIB, (10, b"secret" * 100)))
    wire[position] ^= 1
    with pytest.raises(stream.Garbled):
        received(bytes(wire), MIB)
    with pytest.raises(stream.Garbled):
        received(sent(MIB, (10, b"secret"))[:-5], MIB)
    with pytest.raises(stream.Garbled):
        received(sent(2 * MIB, (MIB + 10, b"beyond")), MIB)


def test_pieces_of_sectors_are_refused() -> None:
    """Somebody could send each byte by itself, and the receiver keeps the place of each piece."""
    for offset, length in ((1, 511), (512, 100)):
        with pytest.raises(stream.Garbled, match="sectors"):
            received(stream._FRAME.pack(offset, length) + bytes(length), MIB)
    assert received(sent(513, (512, b"x")), 513) == bytes(512) + b"x"


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The folders of two hosts; the first has an instance with a layer over an image, a raw disk, and a config drive."""
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    source, target = tmp_path / "source", tmp_path / "target"
    folder = source / UUID
    (source / "_base").mkdir(parents=True)
    target.mkdir()
    folder.mkdir()
    base = source / "_base" / "image"
    base.write_bytes(b"image " * 1000 + bytes(4 * MIB - 6000))
    qemu("create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(folder / "disk"), "8M")
    (folder / "disk.swap").write_bytes(b"swap".ljust(MIB, b"\0"))
    (folder / "disk.config").write_bytes(b"drive" * 100)
    records = {
        "disk": {"kind": "image", "format": "qcow2", "virtual_size": 8 * MIB, "image_id": "i", "base": "image"},
        "disk.swap": {"kind": "swap", "format": "raw", "virtual_size": MIB, "image_id": "", "base": ""},
        "disk.rescue": {"kind": "image", "format": "qcow2", "virtual_size": MIB, "image_id": "r", "base": "rescue"},
    }
    (folder / "disk.info").write_text(json.dumps(records))
    return str(source), str(target)


def offer(source: str) -> tuple[server.Place, list[dict[str, t.Any]]]:
    found, files = sender.prepare(source, UUID, TOKEN)
    return sender.serve([found], PORTS, STOP, 60.0), files


def fetch(target: str, place: server.Place, files: t.Any, token: str = TOKEN, **sizes: int) -> dict[str, t.Any]:
    return receiver.fetch_instance(target, "ledger", UUID, place, token, files, sizes, limits=LIMITS)


def wait_ended(place: server.Place) -> None:
    """It answers until its process looks whether there is something left to do, and that may be a moment later."""
    until = time.monotonic() + 30
    with contextlib.suppress(ConnectionRefusedError):
        while True:
            socket.create_connection((place.address, place.port), timeout=10).close()
            assert time.monotonic() < until, "it does not end"
            time.sleep(0.02)


@needs_programs
def test_nothing_remains_of_an_offer_that_is_killed(hosts: tuple[str, str], tmp_path: Path) -> None:
    """While a layer is made a disk of its own, which may be as large as the instance's claim."""
    source, _target = hosts
    tool = tmp_path / "bin" / "qemu-img"
    tool.parent.mkdir()
    there = "test $1 = info || { touch %s/begun; exec sleep 600; }" % tmp_path
    tool.write_text('#!/bin/sh\n%s\nexec %s "$@"\n' % (there, shutil.which("qemu-img")))
    tool.chmod(0o755)
    code = "from %s import prepare; prepare(%r, %r, 't')" % (sender.__name__, source, UUID)
    environment = {**os.environ, "PATH": "%s:%s" % (tool.parent, os.environ["PATH"])}
    module = subprocess.Popen([sys.executable, "-c", code], env=environment)
    end = time.monotonic() + 30
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < end and module.poll() is None
        time.sleep(0.02)
    (held,) = [
        p for p in Path("/proc", str(module.pid), "fd").iterdir() if str(p.readlink()).startswith(source + "/" + UUID)
    ]
    assert "(deleted)" in str(held.readlink()), "it is written beside the others"
    module.kill()
    module.wait()
    assert sorted(os.listdir(os.path.join(source, UUID))) == ["disk", "disk.config", "disk.info", "disk.swap"]


@needs_programs
def test_disks_arrive_and_grow(hosts: tuple[str, str]) -> None:
    source, target = hosts
    place, files = offer(source)
    assert sorted(os.listdir(os.path.join(source, UUID))) == ["disk", "disk.config", "disk.info", "disk.swap"]
    done = fetch(target, place, files, disk=16 * MIB)
    assert [(d["name"], d["size"]) for d in done["disks"]] == [
        ("disk", 16 * MIB),
        ("disk.swap", MIB),
        ("disk.config", 500),
    ]
    folder = Path(target, UUID)
    info = json.loads(qemu("info", "--output=json", str(folder / "disk")))
    assert (info["format"], info["virtual-size"], info.get("backing-filename")) == ("qcow2", 16 * MIB, None)
    qemu("convert", "-f", "qcow2", "-O", "raw", str(folder / "disk"), str(folder / "flat"))
    assert (folder / "flat").read_bytes().startswith(b"image " * 1000)
    assert (folder / "disk.swap").read_bytes().startswith(b"swap\0")
    records = json.loads((folder / "disk.info").read_text())
    assert records["disk"] == {
        "kind": "image", "format": "qcow2", "virtual_size": 16 * MIB, "image_id": "i", "base": "",
    }  # fmt: skip
    wait_ended(place)  # by itself, with the last instance
    with pytest.raises(errors.Conflict):
        fetch(target, place, files)
    former, _files = offer(source)
    again, files = offer(source)
    assert not server.stop(former, STOP), "it was of a run that is gone, and has ended"
    assert server.stop(again, STOP)
    wait_ended(again)
    assert not server.stop(again, STOP)


@needs_programs
@pytest.mark.parametrize("backend", ["qcow2", "raw"])
def test_disks_that_stay_and_disks_that_are_made(hosts: tuple[str, str], backend: str) -> None:
    source, target = hosts
    found, files = sender.prepare(source, UUID, TOKEN, ["disk.swap"])
    assert [f["name"] for f in files] == ["disk", "disk.config"]
    place = sender.serve([found], PORTS, STOP, 60.0)
    made = [
        DiskSpec("disk.eph0", "ephemeral", 4 * MIB, backend),
        DiskSpec("disk.swap", "swap", 2 * MIB, backend),
    ]
    receiver.fetch_instance(target, "ledger", UUID, place, TOKEN, files, {"disk": 0}, made=made, limits=LIMITS)
    folder = Path(target, UUID)
    assert records_of(str(folder))["disk.swap"] == {
        "kind": "swap", "format": backend, "virtual_size": 2 * MIB, "image_id": "", "base": "",
    }  # fmt: skip
    for name, label in (("disk.eph0", b"ephemeral0"), ("disk.swap", b"SWAPSPACE2")):
        flat = folder / name
        if backend == "qcow2":
            flat = folder / "flat"
            qemu("convert", "-f", "qcow2", "-O", "raw", str(folder / name), str(flat))
        assert label in flat.read_bytes()
    assert records_of(str(folder))["disk"]["virtual_size"] == 8 * MIB
    again = local_disks.ensure_disks(target, UUID, made, {}, ledger_id="ledger")
    assert again["changed"] is False, "as this host would have made them"


def test_nothing_to_be_fetched(hosts: tuple[str, str]) -> None:
    """An instance whose only local disk is its swap."""
    _source, target = hosts
    nowhere = server.Place("", 0, "")
    made = [DiskSpec("disk.swap", "swap", 2 * MIB, "raw")]
    assert receiver.fetch_instance(target, "ledger", UUID, nowhere, "", [], {}, made=made, limits=LIMITS)["changed"]
    assert b"SWAPSPACE2" in Path(target, UUID, "disk.swap").read_bytes()


@needs_programs
def test_a_disk_that_cannot_be_made(hosts: tuple[str, str]) -> None:
    """Nothing has arrived then, and the former host can offer all of it again."""
    source, target = hosts
    place, files = offer(source)
    try:
        made = [DiskSpec("disk.eph0", "ephemeral", 512, "raw", fs="ext4")]
        with pytest.raises(errors.CommandFailed, match="mkfs"):
            receiver.fetch_instance(target, "ledger", UUID, place, TOKEN, files, {}, made=made, limits=LIMITS)
        assert not os.path.exists(os.path.join(target, UUID))
        fetch(target, place, files)
    finally:
        server.stop(place, STOP)


@needs_programs
def test_a_disk_that_is_not_offered(hosts: tuple[str, str]) -> None:
    source, target = hosts
    place, files = offer(source)
    try:
        with pytest.raises(errors.InvalidDiskInfo, match="does not offer disk.eph0"):
            receiver.fetch_instance(
                target, "ledger", UUID, place, TOKEN, files, {"disk": 0, "disk.eph0": MIB}, limits=LIMITS
            )
        assert not os.path.exists(os.path.join(target, UUID))
    finally:
        server.stop(place, STOP)


@needs_programs
def test_who_is_refused(hosts: tuple[str, str]) -> None:
    source, target = hosts
    place, files = offer(source)
    try:
        other = dataclasses.replace(place, fingerprint="0" * 64)
        for wrong, token in ((other, TOKEN), (place, "u" * 64), (dataclasses.replace(place, port=1), TOKEN)):
            with pytest.raises(errors.DiskCopyFailed):
                fetch(target, wrong, files, token)
            assert os.listdir(target) in ([], ["locks"], ["_locks"]) or UUID not in os.listdir(target)
        bad = [{**files[0], "size": files[0]["size"] + 1}]
        with pytest.raises(errors.DiskCopyFailed, match="another size"):
            fetch(target, place, bad)
        with pytest.raises(errors.InvalidDiskInfo, match="which the ledger does not have"):
            fetch(target, place, [{**files[0], "name": "../disk"}])
        with pytest.raises(errors.DiskFull):
            fetch(target, place, [{**files[0], "allocated": 2**60}])
        assert UUID not in os.listdir(target)
        assert fetch(target, place, files)["changed"]
    finally:
        server.stop(place, STOP)


def silent(place: server.Place, number: int) -> list[socket.socket]:
    return [socket.create_connection((place.address, place.port), timeout=10) for _again in range(number)]


@needs_programs
def test_silent_connections_keep_nobody_out(hosts: tuple[str, str]) -> None:
    """More than the server takes, again and again while a host with a token fetches, and after a handshake."""
    source, target = hosts
    place, files = offer(source)
    stack = contextlib.ExitStack()
    try:
        for each in silent(place, 200):
            stack.callback(each.close)
        for _again in range(3):
            stack.enter_context(server.connected(place))  # has not shown a token
        begin = time.monotonic()
        with server.connected(place) as mine:
            stream.send_line(mine, {"token": TOKEN, "file": "disk.config"})
            assert stream.read_line(mine) == {"size": 500}
            for each in silent(place, 100):
                stack.callback(each.close)
            with open(os.memfd_create("x"), "w+b") as file:
                stream.receive_file(mine, file.fileno(), 500)
            stream.send_line(mine, {"token": TOKEN, "file": "disk.swap"})
            assert stream.read_line(mine) == {"size": MIB}, "it goes on"
        assert fetch(target, place, files)["changed"]
        assert time.monotonic() - begin < 30
    finally:
        stack.close()
        server.stop(place, STOP)


class Door(server.Server):
    """A server whose connections only say who they are."""

    def tokens(self) -> list[str]:
        return [TOKEN]

    def answer(self, asked: t.Any, stream: t.Any, connection: t.Any) -> bool:
        send_line(stream, {"here": True})
        return True


@contextlib.contextmanager
def opened_door() -> t.Iterator[tuple[Door, server.Place]]:
    context, fingerprint = server.identity()
    listener = server.listen(PORTS)
    door = Door(STOP, 60)
    running = threading.Thread(target=door.run, args=(listener, context), daemon=True)
    running.start()
    yield door, server.Place(server.HERE, listener.getsockname()[1], fingerprint)
    door.over.set()
    running.join(10)
    listener.close()


@needs_programs
def test_a_stranger_has_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that sends a byte now and then; one who has shown the token has all the time."""
    monkeypatch.setattr(server, "_STRANGER", 1.0)
    with opened_door() as (door, place):
        with server.connected(place) as known:
            stream.send_line(known, {"token": TOKEN})
            assert stream.read_line(known) == {"here": True}
            (slow,) = silent(place, 1)
            begin = time.monotonic()
            with contextlib.suppress(OSError), slow:
                for byte in b"\x16\x03\x01\x02" + bytes(100):
                    slow.sendall(bytes([byte]))
                    time.sleep(0.2)
            assert time.monotonic() - begin < 10
            assert len(door.connections) == 1
            stream.send_line(known, {"token": TOKEN})
            assert stream.read_line(known) == {"here": True}


@needs_programs
def test_a_stranger_who_speaks_tls_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection ends, and with it the thread that serves it."""
    monkeypatch.setattr(server, "_STRANGER", 1.0)
    with opened_door() as (door, place):
        threads, begin = threading.active_count(), time.monotonic()
        with contextlib.suppress(OSError, ValueError), server.connected(place) as slow:
            for _byte in range(100):
                slow.write(b" ")
                slow.flush()
                time.sleep(0.2)
        assert time.monotonic() - begin < 10
        while door.connections or threading.active_count() > threads:
            assert time.monotonic() - begin < 10, threading.enumerate()
            time.sleep(0.05)


@needs_programs
def test_how_many_connections_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one address, of all strangers, and of one token: the address with most gives way."""
    monkeypatch.setattr(server.Server, "most_of_token", 2)
    with opened_door() as (door, place):
        with contextlib.ExitStack() as stack:
            for each in silent(place, server._MOST_OF_ADDRESS + 20):
                stack.callback(each.close)
            until = time.monotonic() + 10
            while len(door.connections) != server._MOST_OF_ADDRESS:
                assert time.monotonic() < until, len(door.connections)
                time.sleep(0.05)
            known = [stack.enter_context(server.connected(place)) for _again in range(3)]
            for each in known[:2]:
                stream.send_line(each, {"token": TOKEN})
                assert stream.read_line(each) == {"here": True}
            stream.send_line(known[2], {"token": TOKEN})
            with pytest.raises(stream.Garbled):
                stream.read_line(known[2])


def test_what_is_one_address() -> None:
    assert server._source("::ffff:192.0.2.1") == server._source("192.0.2.1") == "192.0.2.1"
    assert server._source("2001:db8::1") == server._source("2001:db8::2:1") != server._source("2001:db8:0:1::1")
    assert server._source("fe80::1%eth0") == "fe80::/64"


@needs_programs
def test_a_disk_that_cannot_go(hosts: tuple[str, str]) -> None:
    source, _target = hosts
    os.unlink(os.path.join(source, UUID, "disk.swap"))
    with pytest.raises(errors.InvalidDiskInfo):
        sender.prepare(source, UUID, TOKEN)
    ports = (20400, 20401)  # no connection of another test begins here, as it may above 32768
    taken = [server.listen((port, port)) for port in ports]
    with pytest.raises(errors.RemoteError, match="none of the ports"):
        server.listen(ports)
    for listener in taken:
        listener.close()


def _with(files: t.Any, number: int, record: t.Any = None, **fields: t.Any) -> list[dict[str, t.Any]]:
    changed = {**files[number], **fields}
    if record is not None:
        changed["record"] = {**changed["record"], **record}
    return [*files[:number], changed, *files[number + 1 :]]


@needs_programs
def test_a_host_that_lies_about_its_disks(hosts: tuple[str, str]) -> None:
    """It may have been taken over: the ledger says which disks there are, and how large."""
    source, target = hosts
    place, files = offer(source)
    assert [f["name"] for f in files] == ["disk", "disk.swap", "disk.config"]
    lies = {
        "another disk": _with(files, 0, name="disk.eph0"),
        "a rescue disk": _with(files, 0, name="disk.rescue"),
        "a disk twice": [*files, files[0]],
        "too large": _with(files, 0, {"virtual_size": 100 * 2**40}),
        "too large a raw one": _with(files, 1, {"virtual_size": 2 * MIB}, size=2 * MIB),
        "another size than its file": _with(files, 1, {"virtual_size": MIB // 2}),
        "a file larger than its disk": _with(files, 0, size=2**40),
        "a number that is none": _with(files, 0, {"virtual_size": "8388608"}),
        "less than nothing": _with(files, 0, allocated=-1),
        "no record": _with(files, 0, name="disk") and [{**files[0], "record": None}, *files[1:]],
        "another format": _with(files, 0, {"format": "vmdk"}),
        "another kind": _with(files, 0, {"kind": "volume"}),
        "an image of another name": _with(files, 0, {"image_id": "../x"}),
        "a large config drive": _with(files, 2, size=2**40),
        "no list": {"disk": 1},
    }
    try:
        for what, described in lies.items():
            with pytest.raises((errors.InvalidDiskInfo, errors.InvalidInput)):
                receiver.fetch_instance(
                    target, "ledger", UUID, place, TOKEN, t.cast(t.Any, described), {}, limits=LIMITS
                )
            assert UUID not in os.listdir(target), what
        assert fetch(target, place, _with(files, 0, {"base": "image", "other": 1}))["changed"]
        assert set(records_of(os.path.join(target, UUID))["disk"]) == {
            "kind",
            "format",
            "virtual_size",
            "image_id",
            "base",
        }
        assert records_of(os.path.join(target, UUID))["disk"]["base"] == ""
    finally:
        server.stop(place, STOP)


VARIABLES = (bytes(16) + bytes(range(1, 25)) + b"_FVH").ljust(135168, b"\xff")


def _firmware(folder: Path, monkeypatch: pytest.MonkeyPatch, *sizes: int) -> None:
    """The host has firmware with so many bytes of variables."""
    folder.mkdir()
    for number, size in enumerate(sizes):
        template = folder / ("%d.fd" % number)
        template.write_bytes(bytes(size))
        mapping = {"device": "flash", "nvram-template": {"filename": str(template), "format": "raw"}}
        (folder / ("%d.json" % number)).write_text(json.dumps({"mapping": mapping}))
    (folder / "9.json").write_text("{")
    monkeypatch.setattr(nvram, "DESCRIPTIONS", (str(folder),))


@needs_programs
def test_uefi_variables_go_along(hosts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = hosts
    _firmware(tmp_path / "firmware", monkeypatch, 540672, len(VARIABLES))
    Path(source, UUID, "disk.nvram").write_bytes(VARIABLES)
    place, files = offer(source)
    assert [f["name"] for f in files] == ["disk", "disk.swap", "disk.config", "disk.nvram"]
    fetch(target, place, files)
    arrived = Path(target, UUID, "disk.nvram")
    assert arrived.read_bytes() == VARIABLES and arrived.stat().st_mode & 0o777 == 0o600
    assert "disk.nvram" not in records_of(os.path.join(target, UUID))
    _found, files = sender.prepare(source, UUID, TOKEN, ["disk.nvram"])
    assert "disk.nvram" not in [f["name"] for f in files]


@needs_programs
def test_uefi_variables_of_a_guest_without_disks(
    hosts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It boots from a volume, and has no config drive."""
    source, target = hosts
    _firmware(tmp_path / "firmware", monkeypatch, len(VARIABLES))
    folder = Path(source, UUID)
    for name in ("disk", "disk.swap", "disk.config", "disk.info"):
        (folder / name).unlink()
    assert sender.prepare(source, UUID, TOKEN, has_disks=False)[1] == []
    with pytest.raises(errors.InvalidDiskInfo):
        sender.prepare(source, UUID, TOKEN)
    (folder / "disk.nvram").write_bytes(VARIABLES)
    found, files = sender.prepare(source, UUID, TOKEN, has_disks=False)
    fetch(target, sender.serve([found], PORTS, STOP, 60.0), files)
    assert Path(target, UUID, "disk.nvram").read_bytes() == VARIABLES


@needs_programs
@pytest.mark.parametrize(
    ("content", "size", "error"),
    [
        (b"QFI\xfb" + VARIABLES[4:], 0, errors.InvalidDiskInfo),  # it could name a file of this host
        (VARIABLES[:4096], 0, errors.HostLacksHardware),  # no firmware here has so many
        (VARIABLES, 2**40, errors.InvalidDiskInfo),
        (VARIABLES, 4096, errors.DiskCopyFailed),  # another size than it offers
    ],
)
def test_uefi_variables_that_are_none(
    hosts: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    size: int,
    error: type[errors.BootflowError],
) -> None:
    source, target = hosts
    _firmware(tmp_path / "firmware", monkeypatch, len(VARIABLES))
    Path(source, UUID, "disk.nvram").write_bytes(content)
    place, files = offer(source)
    try:
        with pytest.raises(error):
            fetch(target, place, _with(files, 3, size=size) if size else files)
        assert UUID not in os.listdir(target)
        with pytest.raises(errors.InvalidDiskInfo):
            fetch(target, place, _with(files, 3, name="disk.nvram.rescue"))
    finally:
        server.stop(place, STOP)


@needs_programs
@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "empty"])
def test_something_else_with_the_name_of_uefi_variables(hosts: tuple[str, str], tmp_path: Path, kind: str) -> None:
    """It is neither followed nor left behind."""
    source, _target = hosts
    path = Path(source, UUID, "disk.nvram")
    (tmp_path / "secret").write_bytes(VARIABLES)
    makes: dict[str, t.Callable[[], t.Any]] = {
        "link": lambda: path.symlink_to(tmp_path / "secret"),
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "empty": path.touch,
    }
    makes[kind]()
    with pytest.raises(errors.InvalidDiskInfo, match="is not the NVRAM"):
        sender.prepare(source, UUID, TOKEN)


@needs_programs
def test_a_disk_that_is_larger_than_it_says(hosts: tuple[str, str]) -> None:
    """The header of the file counts, not what its host says of it."""
    source, target = hosts
    shutil.rmtree(os.path.join(source, "_base"))
    disk = os.path.join(source, UUID, "disk")
    os.unlink(disk)
    qemu("create", "-q", "-f", "qcow2", disk, "100T")
    records = Path(source, UUID, "disk.info")
    records.write_text(records.read_text().replace('"base": "image"', '"base": ""'))
    place, files = offer(source)
    assert files[0]["record"]["virtual_size"] == 8 * MIB
    try:
        with pytest.raises(errors.InvalidDiskInfo, match="disk disk of 8388608 bytes, which has 109951162777600"):
            fetch(target, place, files)
        assert UUID not in os.listdir(target)
    finally:
        server.stop(place, STOP)


@needs_programs
def test_a_disk_that_says_it_takes_no_room(hosts: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before more than announced is written, all that may still come has to fit."""
    source, target = hosts
    asked: list[int] = []

    def check_room(_folder: str, needed: int) -> None:
        asked.append(needed)
        if needed > 4096:
            raise errors.DiskFull(host="h", path="p", reason="full")

    for module in (receiver, arriving_files):
        monkeypatch.setattr(module, "check_room", check_room)
    place, files = offer(source)
    try:
        small = [{**f, "allocated": 0} for f in files]
        with pytest.raises(errors.DiskFull):
            fetch(target, place, small)
        assert asked == [0, files[0]["size"]] and UUID not in os.listdir(target)
        with pytest.raises(errors.DiskFull):  # of an unknown size
            receiver.fetch_instance(
                target, "ledger", UUID, place, TOKEN, small, {}, limits={"disk": 0, "disk.swap": MIB}
            )
        assert asked[2:] == [8 * MIB]
    finally:
        server.stop(place, STOP)


@needs_programs
def test_a_disk_that_names_a_file_of_the_new_host_is_refused(hosts: tuple[str, str]) -> None:
    """As one sent by a host that was taken over: it says that the layer is a disk of its own."""
    source, target = hosts
    records = Path(source, UUID, "disk.info")
    data = json.loads(records.read_text())
    data["disk"]["base"] = ""
    records.write_text(json.dumps(data))
    place, files = offer(source)
    try:
        with pytest.raises(errors.ImageUnacceptable, match="backed by"):
            fetch(target, place, files)
        assert UUID not in os.listdir(target)
    finally:
        server.stop(place, STOP)


def offering(code: str, *arguments: t.Any) -> subprocess.Popen[str]:
    """A module that offers the disks of an instance. It says where, waits for a line, and does not end by itself."""
    begin = "from %s import prepare, serve; from %s import answered; import sys, time\n" % (
        sender.__name__,
        server.__name__,
    )
    begin += "from %s import *\n" % locks.__name__
    begin += "import %s as locks; locks.LOCK_ROOT = sys.argv[1]\n" % locks.__name__
    argv = [sys.executable, "-c", begin + code, locks.LOCK_ROOT, *map(str, arguments)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


OFFERING = """
place = serve([prepare(sys.argv[2], sys.argv[3], "t" * 64)[0]], (49280, 49399), "s" * 64, 60.0)
print(place.port, place.fingerprint, flush=True)
sys.stdin.readline()
answered()
print("answered", flush=True)
time.sleep(600)
"""


@needs_programs
@pytest.mark.parametrize("killed", ["before its answer", "with its run", "after its answer"])
def test_an_offer_whose_module_is_killed(hosts: tuple[str, str], killed: str) -> None:
    source, _target = hosts
    module = offering(OFFERING, source, UUID)
    assert module.stdin is not None and module.stdout is not None
    port, fingerprint = module.stdout.readline().split()
    place = server.Place(server.HERE, int(port), fingerprint)
    if killed == "with its run":  # before the module has answered: it finds nobody
        module.stdout.close()
    if killed != "before its answer":
        module.stdin.write("\n")
        module.stdin.flush()
    if killed == "after its answer":
        assert module.stdout.readline() == "answered\n"
    else:
        time.sleep(0.5)
        module.kill()
    if killed == "after its answer":
        module.kill()
        module.wait()
        time.sleep(1)
        assert server.stop(place, STOP), "its run has the answer"
    wait_ended(place)
    module.kill()
    module.wait()
    module.stdin.close()
    module.stdout.close()
    assert not [n for n in os.listdir(os.path.join(locks.LOCK_ROOT, "locks")) if n.startswith("offer")]


@needs_programs
def test_disks_that_are_wanted_back(hosts: tuple[str, str]) -> None:
    """Of two instances one is removed, started or offered again, while a host that is slow fetches a disk of it: the other is still there."""
    source, target = hosts
    other = UUID[:-1] + "2"
    shutil.copytree(os.path.join(source, UUID), os.path.join(source, other))
    (found, files), (of_other, its_files) = sender.prepare(source, UUID, TOKEN), sender.prepare(source, other, "o" * 64)
    with open(os.path.join(source, UUID, "disk.swap"), "r+b") as disk:
        disk.write(os.urandom(64) * (64 * MIB // 64))
    found.files["disk.swap"] = (found.files["disk.swap"][0], 64 * MIB)
    place = sender.serve([found, of_other], PORTS, STOP, 60.0)
    for each in (found, of_other):
        for fd, _size in each.files.values():
            os.close(fd)
    with server.connected(place) as slow:
        stream.send_line(slow, {"token": TOKEN, "file": "disk.swap"})
        stream.read_line(slow)
        begin = time.monotonic()
        locks.take_back(UUID)
        assert time.monotonic() - begin < 30
        holders = [
            p for p in Path("/proc").glob("[0-9]*/fd/*") if str(_link(p)).startswith(os.path.join(source, UUID) + "/")
        ]
        assert holders == [], "nobody has its disks open"
    with pytest.raises(errors.DiskCopyFailed):
        fetch(target, place, files)
    receiver.fetch_instance(target, "ledger", other, place, "o" * 64, its_files, {}, limits=LIMITS)
    wait_ended(place)
    locks.take_back(UUID)
    locks.take_back(other)


def _link(path: Path) -> Path | None:
    with contextlib.suppress(OSError):
        return path.readlink()
    return None
