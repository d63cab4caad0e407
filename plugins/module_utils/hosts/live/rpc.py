# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limit the calls of the source host to this host's libvirt to the calls of its guest's migration.

libvirt's socket gives every client full control of the host. The other host speaks to it through a Filter, which reads each call and passes on only
the calls that libvirt makes itself in a migration from peer to peer (version 3 of its protocol), with values that are this guest's.
source: libvirt's src/rpc/virnetprotocol.x and src/remote/remote_protocol.x
"""

from __future__ import annotations

import os
import struct
import typing as t

from ...core.errors import BootflowError
from ...core.guest.arriving import Arriving, check_cookie, check_definition, parse_strictly
from .channels import DISKS, MEMORY, Refused, Sockets

LONGEST = 4 * 1024**2  # bytes of a message; a definition has some thousand
_HEADER = struct.Struct(">IIIiiIi")  # length with itself, program, version, procedure, type, serial, status
_REMOTE, _KEEPALIVE = 0x20008086, 0x6B656570  # programs
_CALL, _REPLY, _MESSAGE, _ERROR = 0, 1, 2, 1
_URI = b"qemu:///system"
_MOST_CALLS = 10000  # of one connection, without signs of life: of these a long migration has any number

# Procedures.
_OPEN, _CLOSE, _SUPPORTS_FEATURE, _AUTH_LIST = 1, 2, 60, 66
_PREPARE, _FINISH = 303, 306  # domain_migrate_prepare3_params, domain_migrate_finish3_params
_WATCH_CLOSE, _IGNORE_CLOSE = 360, 361  # connect_register_close_callback and its end
_PING, _PONG = 1, 2  # of the program for signs of life

# VIR_MIGRATE_ LIVE, PEER2PEER, PERSIST_DEST, PAUSED, NON_SHARED_DISK, UNSAFE, ABORT_ON_ERROR, AUTO_CONVERGE, POSTCOPY
_FLAGS = 1 | 2 | 8 | 32 | 64 | 512 | 4096 | 8192 | 32768
_PEER2PEER = 2
_STRING = 7
_SIZES: t.Mapping[int, int] = {1: 4, 2: 4, 3: 8, 4: 8, 5: 8, 6: 4}  # type of a parameter -> bytes of its value
_XML, _COOKIE_SIZE = "destination_xml", 1024**2


class _Reader:
    """A message in XDR. :raises Refused: it is too short."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise Refused("a message is too short")
        self.at += size
        return part

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def opaque(self) -> bytes:
        size = self.number()
        value = self.take(size)
        if any(self.take(-size % 4)):
            raise Refused("a message is padded with something")
        return value

    def text(self) -> str:
        try:
            return self.opaque().decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("a message has a text in another encoding than UTF-8") from None

    def end(self) -> None:
        if self.at != len(self.data):
            raise Refused("a message is too long")


class _Whole:
    """Whether messages that come in pieces are whole."""

    def __init__(self) -> None:
        self.head = b""
        self.rest = 0

    def add(self, data: bytes) -> None:
        while data:
            if not self.rest:
                self.head, data = self.head + data[: 4 - len(self.head)], data[4 - len(self.head) :]
                if len(self.head) < 4:
                    return
                self.rest, self.head = max(int.from_bytes(self.head, "big") - 4, 0), b""
            data, self.rest = data[self.rest :], self.rest - min(self.rest, len(data))

    def is_whole(self) -> bool:
        return not self.rest and not self.head


class Filter:
    """A Guard of the messages from the other host."""

    def __init__(self, guest: Arriving, sockets: Sockets):
        self.guest = guest
        self.sockets = sockets
        self.waiting = bytearray()
        self.calls = 0
        self.refused = bytearray()  # the answers to calls that did not pass
        self.prepared = False
        self.answered = _Whole()

    def outwards(self, data: bytes) -> bytes:
        """Return all data of this host's libvirt: its answers pass."""
        self.answered.add(data)
        return data

    def answers(self) -> bytes:
        """Return the answers to refused calls, which the libvirt of the other host shows."""
        if not self.answered.is_whole():
            return b""
        answers = bytes(self.refused)
        self.refused.clear()
        return answers

    def inwards(self, data: bytes) -> bytes:
        """Return the messages of ``data``, and of what came before, that are whole and may pass. A call that may not is answered.

        :raises Refused: a message that libvirt would not send.
        """
        self.waiting += data
        passed = b""
        while len(self.waiting) >= 4:
            size = int.from_bytes(self.waiting[:4], "big")
            if not _HEADER.size <= size <= LONGEST:
                raise Refused("a message has %d bytes" % size)
            if len(self.waiting) < size:
                break
            message = bytes(self.waiting[:size])
            del self.waiting[:size]
            answer = self._refusal(message)
            self.refused += answer
            passed += message if not answer else b""
        return passed

    def _refusal(self, message: bytes) -> bytes:
        """Return the answer to a call that may not pass; b"" for a message that may."""
        _size, program, version, procedure, kind, serial, status = _HEADER.unpack_from(message)
        if version != 1 or status != 0:
            raise Refused("a message of another version")
        body = _Reader(message[_HEADER.size :])
        if (program, kind) == (_KEEPALIVE, _MESSAGE) and procedure in (_PING, _PONG):
            body.end()
            return b""
        self.calls += 1
        if self.calls > _MOST_CALLS:
            raise Refused("too many messages")
        if kind != _CALL:
            raise Refused("a message of another kind than a call")
        check = _CALLS.get(procedure)
        if program != _REMOTE or check is None:
            reason = "procedure %d of program %#x is not part of a migration" % (procedure, program)
            return _error(program, procedure, serial, reason)
        try:
            check(self, body)
            body.end()
        except Exception as error:  # also of what is not foreseen nothing passes
            reason = error.message if isinstance(error, BootflowError) else "%s: %s" % (type(error).__name__, error)
            return _error(program, procedure, serial, reason)
        return b""

    # --- each call

    def _nothing(self, body: _Reader) -> None:
        """Check that the call has no values."""

    def _supports_feature(self, body: _Reader) -> None:
        body.number()

    def _open(self, body: _Reader) -> None:
        if body.number() != 1 or body.opaque() != _URI or body.number() != 0:
            raise Refused("it opens another hypervisor than %s" % _URI.decode())

    def _prepare(self, body: _Reader) -> None:
        """Check the call that prepares the guest: its definition, where its memory and disks go, and a cookie."""
        if self.prepared:
            raise Refused("the guest has already arrived")
        given = self._parameters(body)
        if _XML not in given:
            raise Refused("the guest arrives without a definition")
        if given.get("migrate_uri") != ["unix://%s" % self.sockets.path(MEMORY)]:
            raise Refused("the guest's memory goes to another socket")
        self._cookie_and_flags(body)
        self.prepared = True

    def _finish(self, body: _Reader) -> None:
        """Check the call that ends the migration: the guest is here, or was given up (``cancelled``)."""
        if not self.prepared:
            raise Refused("the guest has not arrived yet")
        self._parameters(body)
        self._cookie_and_flags(body)
        if body.number() not in (0, 1):
            raise Refused("cancelled is neither 0 nor 1")

    def _cookie_and_flags(self, body: _Reader) -> None:
        cookie = body.opaque()
        if len(cookie) > _COOKIE_SIZE:
            raise Refused("a cookie of %d bytes" % len(cookie))
        if cookie:
            if not cookie.endswith(b"\0"):
                raise Refused("a cookie that does not end")
            check_cookie(_decoded(cookie[:-1]), self.guest)
        flags = body.number()
        if flags & ~_FLAGS or not flags & _PEER2PEER:
            raise Refused("the flags %#x" % flags)

    def _parameters(self, body: _Reader) -> dict[str, list[t.Any]]:
        """Return libvirt's typed parameters, by name."""
        given: dict[str, list[t.Any]] = {}
        count = body.number()
        if count > 1000:
            raise Refused("%d parameters" % count)
        for _number in range(count):
            name, kind = body.text(), body.number()
            value: t.Any = body.text() if kind == _STRING else body.take(_SIZES.get(kind, LONGEST))
            given.setdefault(name, []).append(value)
        for name, values in given.items():
            if name not in _PARAMETERS or (len(values) > 1 and name != "migrate_disks"):
                raise Refused("the parameter %s" % name)
        for text in given.get(_XML, ()):
            check_definition(parse_strictly(_text(text), self.guest), self.guest)
        for name, channel in (("migrate_uri", MEMORY), ("disks_uri", DISKS)):
            if any(uri != "unix://%s" % self.sockets.path(channel) for uri in given.get(name, ())):
                raise Refused("%s names another socket" % name)
        if any(name != self.guest.name for name in given.get("destination_name", ())):
            raise Refused("the guest gets another name")
        if any(not isinstance(disk, str) or not disk.isalnum() for disk in given.get("migrate_disks", ())):
            raise Refused("a disk is copied that has no name")
        return given


_PARAMETERS = frozenset((_XML, "migrate_uri", "disks_uri", "migrate_disks", "destination_name", "bandwidth"))
_CALLS: t.Mapping[int, t.Callable[[Filter, _Reader], None]] = {
    _AUTH_LIST: Filter._nothing,
    _OPEN: Filter._open,
    _CLOSE: Filter._nothing,
    _SUPPORTS_FEATURE: Filter._supports_feature,
    _WATCH_CLOSE: Filter._nothing,
    _IGNORE_CLOSE: Filter._nothing,
    _PREPARE: Filter._prepare,
    _FINISH: Filter._finish,
}


def _text(value: t.Any) -> str:
    if not isinstance(value, str):
        raise Refused("a definition without text")
    return value


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("a cookie in another encoding than UTF-8") from None


def _error(program: int, procedure: int, serial: int, reason: str) -> bytes:
    """Return the answer to a call that failed: libvirt on the other host shows ``reason``."""
    reason = "host %s refuses: %s" % (os.uname().nodename, reason)

    def text(value: str) -> bytes:
        data = value.encode("utf-8", "replace")[:4096]
        return struct.pack(">II", 1, len(data)) + data + bytes(-len(data) % 4)

    denied, qemu, is_error = 88, 10, 2  # VIR_ERR_ACCESS_DENIED, VIR_FROM_QEMU, VIR_ERR_ERROR
    body = struct.pack(">ii", denied, qemu) + text(reason) + struct.pack(">iI", is_error, 0)
    body += text("%s") + struct.pack(">II", 0, 0) + struct.pack(">iiI", 0, 0, 0)
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, program, 1, procedure, _REPLY, serial, _ERROR) + body
