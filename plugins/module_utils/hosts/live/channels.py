# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carry data between the UNIX sockets of a live migration, which have the same paths on both hosts, and a TLS connection.

On the host that a guest leaves, libvirt and QEMU connect to them, and relay.py listens; on its new host gate.py connects to libvirt's own
socket, and to the sockets that QEMU opens there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import socket
import ssl
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import InvalidInput

#: What libvirt says to its like, the guest's memory, and its disks (NBD).
LIBVIRT, MEMORY, DISKS = "libvirt", "memory", "disks"
CHANNELS = (LIBVIRT, MEMORY, DISKS)

# libvirt's rules for AppArmor let a guest's QEMU open sockets with names like these in folders of this one, and no others.
_ROOT = "/run/libvirt"
_FOLDER = "bf"
_ENDING = ".tunnelmigrate.dest."
_LONGEST = 107  # bytes of a socket's path
_CHUNK = 256 * 1024
_FULL = 1024**2  # bytes that wait for the other side
_PATIENCE = 60.0  # seconds that a side may be silent once the other has ended


@dataclass(frozen=True)
class Sockets:
    """Where the sockets of a migration are."""

    folder: str
    name: str  # of the domain

    def path(self, channel: str) -> str:
        """Return the socket of one of CHANNELS."""
        return os.path.join(self.folder, channel[0]) + _ENDING + self.name


def sockets_of(token: str, domain: str) -> Sockets:
    """Return the sockets of the migration with ``token``: the name of their folder is secret.

    :raises InvalidInput: the name of the domain cannot be in a socket's path.
    """
    if "/" in domain:
        raise InvalidInput(
            reason="the domain name %r has a slash in it, so it cannot be part of a socket's path" % domain
        )
    named = hashlib.sha256(("sockets of %s" % token).encode()).hexdigest()[:10]
    sockets = Sockets(os.path.join(_ROOT, _FOLDER + named), domain)
    surplus = len(os.fsencode(sockets.path(MEMORY))) - _LONGEST
    if surplus > 0:
        raise InvalidInput(
            reason="the domain name %s is %d bytes too long for the path of a socket that a confined QEMU may open"
            % (domain, surplus),
            remedy="Migrate the guest while it is off: bootflow.compute.migrate.",
        )
    return sockets


def make_folder(sockets: Sockets, user: int, group: int, mode: int = 0o700) -> None:
    """Make the folder. By default only QEMU (``user``, which may be another one than root) and root may use it."""
    os.makedirs(_ROOT, 0o755, exist_ok=True)
    os.mkdir(sockets.folder, 0o700)
    os.chown(sockets.folder, user, group)
    os.chmod(sockets.folder, mode)


def remove_folder(sockets: Sockets) -> None:
    """Remove the folder with what is in it."""
    shutil.rmtree(sockets.folder, ignore_errors=True)


@dataclass
class _Way:
    """One direction: what came from ``source`` and is not yet with ``target``."""

    source: socket.socket
    target: socket.socket
    waiting: bytearray
    passes: t.Callable[[bytes], bytes] | None = None  # what of it may pass
    ended: bool = False  # the source has sent all
    over: bool = False  # and the target has it

    def step(self) -> bool:
        """Receive and send what is possible now. Returns whether something was."""
        moved = False
        if not self.ended and len(self.waiting) < _FULL:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                data = self.source.recv(_CHUNK)
                self.ended = not data
                self.waiting += data if self.passes is None else self.passes(data)
                moved = True
        if self.waiting:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                del self.waiting[: self.target.send(self.waiting)]
                moved = True
        if self.ended and not self.waiting and not self.over:
            self.over = True
            # Of the connection below TLS: the other end reads what was sent, and then its end.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.target, socket.SHUT_WR)
        return moved


class Refused(Exception):
    """The data may not pass, and nothing after it."""


class Guard(t.Protocol):
    """A filter of the data between the two sides."""

    def inwards(self, data: bytes) -> bytes:
        """Return the permitted part of the data that came by TLS. :raises Refused: the data is forbidden, and nothing passes after it."""

    def outwards(self, data: bytes) -> bytes:
        """Return the permitted part of the data that came from this host."""

    def answers(self) -> bytes:
        """Return the answer to refused data: once, and never in the middle of another answer."""


def pump(plain: socket.socket, secured: socket.socket, guard: Guard | None = None) -> None:
    """Pass on what comes from either side until both have ended, or one fails.

    One thread does both directions: TLS of one connection is not for two.

    :arg guard: without one all passes
    """
    plain.setblocking(False)
    secured.setblocking(False)
    ways = (
        _Way(plain, secured, bytearray(), None if guard is None else guard.outwards),
        _Way(secured, plain, bytearray(), None if guard is None else guard.inwards),
    )
    silent_since = time.monotonic()
    with contextlib.suppress(OSError, Refused):
        while not all(way.over for way in ways):
            moved = ways[0].step() | ways[1].step()  # both, whatever the first one did
            if guard is not None:
                ways[0].waiting += guard.answers()
            if moved:
                silent_since = time.monotonic()
                continue
            if any(way.over for way in ways) and time.monotonic() - silent_since > _PATIENCE:
                return
            readers = [w.source for w in ways if not w.ended and len(w.waiting) < _FULL]
            select.select(readers, [w.target for w in ways if w.waiting], [], 1.0)


def accept(listeners: t.Mapping[socket.socket, str], seconds: float) -> tuple[str, socket.socket] | None:
    """Return the channel and the connection of the next client within ``seconds``; None without one."""
    for listener in select.select(list(listeners), [], [], seconds)[0]:
        connection, _peer = listener.accept()
        return listeners[listener], connection
    return None
