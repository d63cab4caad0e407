# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way into a host for guests that come running: for those of one run only, and only as long as they come.

A process of its own connects whoever shows the token of a guest to libvirt's socket, and to those that QEMU opens for this guest. It also
takes the guest's config drive, which no disk of libvirt's is.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import threading
import time
import typing as t
from dataclasses import dataclass

from ..copies.server import Server
from ..copies.stream import Garbled, Stream, receive_file, send_line
from .channels import CHANNELS, LIBVIRT, Sockets, pump, remove_folder

LARGEST_DRIVE = 512 * 1024**2
_SERVED = 15.0  # seconds that it stays when all guests were there
_WAITING = 1800.0  # seconds that it waits for the next one


@dataclass(frozen=True)
class Guest:
    """A guest that may come."""

    token: str
    sockets: Sockets
    drive: str = ""  # path of its config drive; empty: it has none


class Gate(Server):
    """Lets the guests in."""

    def __init__(self, guests: t.Sequence[Guest], libvirt_socket: str, stop: str, seconds: float):
        super().__init__(stop, seconds)
        self.guests = guests
        self.libvirt_socket = libvirt_socket
        self.lock = threading.Lock()
        self.opened = 0  # connections
        self.used_at = time.monotonic()
        self.served: set[str] = set()  # tokens of guests that have come, or failed to

    def goes_on(self) -> bool:
        if self.opened:
            return True
        patience = _SERVED if len(self.served) == len(self.guests) else _WAITING
        return time.monotonic() < self.used_at + patience

    @contextlib.contextmanager
    def _used(self) -> t.Iterator[None]:
        with self.lock:
            self.opened += 1
        try:
            yield
        finally:
            with self.lock:
                self.opened -= 1
                self.used_at = time.monotonic()

    def answer(self, asked: t.Mapping[str, t.Any], stream: Stream, connection: ssl.SSLSocket) -> bool:
        token = str(asked.get("token") or "").encode()
        guest = next((g for g in self.guests if hmac.compare_digest(token, g.token.encode())), None)
        if guest is None:
            return False
        if asked.get("drive"):
            _take_drive(guest, asked, stream)
            return True
        channel = str(asked.get("channel"))
        if channel not in CHANNELS:
            return False
        path = self.libvirt_socket if channel == LIBVIRT else guest.sockets.path(channel)
        with self._used(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as inside:
            inside.connect(path)
            send_line(stream, {})
            pump(inside, connection)
            if channel == LIBVIRT:  # this connection is there as long as the migration
                self.served.add(guest.token)
        return False

    def run(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        try:
            super().run(listener, context)
        finally:
            for guest in self.guests:
                remove_folder(guest.sockets)


def _take_drive(guest: Guest, asked: t.Mapping[str, t.Any], stream: Stream) -> None:
    size = asked.get("size")
    if not guest.drive or not isinstance(size, int) or not 0 < size <= LARGEST_DRIVE:
        raise Garbled("not the config drive of a guest that comes")
    send_line(stream, {})
    part = guest.drive + ".part"
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        receive_file(stream, fd, size)
    finally:
        os.close(fd)
    os.rename(part, guest.drive)
    send_line(stream, {})
