# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let guests that live-migrate into this host: only the guests of one run, and only while they migrate.

A separate process connects a client with the token of a guest to the sockets that QEMU opens for this guest, and to libvirt's for the calls
of this guest's migration alone (rpc.py): the other host may have been taken over. It also takes the guest's config drive, which no disk of libvirt's is.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
import threading
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import DiskFull
from ...core.guest.arriving import Arriving
from ..copies.server import Server
from ..copies.stream import Garbled, Stream, receive_file, send_line
from ..os.room import check_room
from .channels import CHANNELS, LIBVIRT, Sockets, pump, remove_folder
from .rpc import Filter

LARGEST_DRIVE = 512 * 1024**2
_SERVED = 15.0  # seconds that it stays when all guests were there
_SILENT = 90.0  # seconds without a word of a relay after which the others do not come: see relay.BEAT
_LOOK = 2.0  # seconds between two looks at the folders of the guests


@dataclass(frozen=True)
class Guest:
    """A guest that may come."""

    token: str
    sockets: Sockets
    arriving: Arriving  # what it may be and use here; without its folder it cannot come any more


class Gate(Server):
    """Lets the guests in. Whoever waits to come says so now and then; without a word for long it ends."""

    def __init__(
        self, guests: t.Sequence[Guest], libvirt_socket: str, stop: str, seconds: float, patience: float = 600.0
    ):
        """Prepare the gate. :arg patience: seconds that it waits for the first word, while other hosts are prepared."""
        super().__init__(stop, seconds)
        self.guests = guests
        self.libvirt_socket = libvirt_socket
        self.lock = threading.Lock()
        self.opened = 0  # connections
        self.used_at = time.monotonic()
        self.patience = patience
        self.looked_at = 0.0
        self.served: set[str] = set()  # tokens of guests that have arrived, or failed to

    def goes_on(self) -> bool:
        if self.opened:
            return True
        now = time.monotonic()
        if now >= self.looked_at + _LOOK:
            self.looked_at = now
            if not any(os.path.isdir(guest.arriving.folder) for guest in self.guests if guest.token not in self.served):
                self.patience = min(self.patience, _SERVED)  # they have arrived, or this host was cleaned of them
        return now < self.used_at + self.patience

    @contextlib.contextmanager
    def _used(self) -> t.Iterator[None]:
        with self.lock:
            self.opened += 1
        try:
            yield
        finally:
            with self.lock:
                self.opened -= 1
                self._was_used()

    def _was_used(self) -> None:
        self.patience = _SILENT
        self.used_at = time.monotonic()

    def tokens(self) -> list[str]:
        return [guest.token for guest in self.guests]

    def answer(self, asked: t.Mapping[str, t.Any], stream: Stream, connection: ssl.SSLSocket) -> bool:
        token = str(asked.get("token") or "").encode()
        guest = next((g for g in self.guests if hmac.compare_digest(token, g.token.encode())), None)
        if guest is None:
            return False
        if asked.get("drive"):
            with self._used():
                _take_drive(guest, asked, stream)
            return True
        if asked.get("waits"):
            self._was_used()
            send_line(stream, {})
            return False
        channel = str(asked.get("channel"))
        if channel not in CHANNELS:
            return False
        path = self.libvirt_socket if channel == LIBVIRT else guest.sockets.path(channel)
        with self._used(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as inside:
            inside.connect(path)
            if channel != LIBVIRT and _user_of(inside) != os.stat(guest.sockets.folder).st_uid:
                return False  # another socket is in the place of QEMU's: who came out of a guest could put it there
            send_line(stream, {})
            pump(inside, connection, Filter(guest.arriving, guest.sockets) if channel == LIBVIRT else None)
            if channel == LIBVIRT:  # this connection is there as long as the migration
                self.served.add(guest.token)
        return False

    def run(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        try:
            super().run(listener, context)
        finally:
            for guest in self.guests:
                remove_folder(guest.sockets)


def _user_of(connection: socket.socket) -> int:
    """Return the user whose process listens at the other end."""
    size = struct.calcsize("3i")
    _pid, user, _group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(user)


def _take_drive(guest: Guest, asked: t.Mapping[str, t.Any], stream: Stream) -> None:
    """Write the config drive. Without room for it, say so before any of it comes."""
    size = asked.get("size")
    drive = guest.arriving.drive
    if not drive or not isinstance(size, int) or not 0 < size <= LARGEST_DRIVE:
        raise Garbled("not the config drive of an arriving guest")
    try:
        check_room(os.path.dirname(drive), size)
    except DiskFull as e:
        send_line(stream, {"refused": e.message})
        return
    send_line(stream, {})
    part = drive + ".part"
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        receive_file(stream, fd, size)
    finally:
        os.close(fd)
    os.rename(part, drive)
    send_line(stream, {})
