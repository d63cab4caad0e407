# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Relay the live migration of a guest from this host: sockets for libvirt and QEMU, and behind them TLS to the gate of its new host.

The process is separate, so that a migration ends also when its run is dead: libvirt alone decides on which
of the two hosts the guest continues.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import typing as t

from ...core.errors import MigrationError
from ..copies.server import Place, connected, detach, opened
from ..copies.stream import Garbled, Stream, read_line, send_file, send_line
from .channels import CHANNELS, LIBVIRT, Sockets, accept, make_folder, pump, remove_folder

STARTS = 600.0  # seconds that a run may need in addition to its migrations
_IDLE = 30.0  # seconds without any connection after which it is not needed, when the process that started it is gone
BEAT = 20.0  # seconds after which it says again that its guest waits for others of its run

_held: list[int] = []  # ends of pipes: the processes see by them that this one has ended


def send_drive(place: Place, token: str, path: str) -> None:
    """Send a guest's config drive to its new host.

    :raises MigrationError: the new host has no room for it, or it did not arrive.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        with connected(place) as stream:
            send_line(stream, {"token": token, "drive": True, "size": size})
            refused = read_line(stream).get("refused")
            if refused:
                raise MigrationError(
                    reason="host %s refused the guest's config drive: %s" % (place.address, str(refused)[:500]),
                    remedy="The guest is still on its former host. Free space on the new one, or choose another with bootflow_live_migrate_host.",
                )
            send_file(stream, fd, size)
            read_line(stream)
    except (OSError, Garbled) as e:
        raise MigrationError(
            reason="host %s did not accept the guest's config drive: %s" % (place.address, e)
        ) from None
    finally:
        os.close(fd)


def start(sockets: Sockets, place: Place, token: str, owner: tuple[int, int], seconds: float) -> None:
    """Start the process that relays a guest's sockets to ``place``. It ends with the migration, at the latest after ``seconds``.

    :arg owner: user and group of QEMU, which reaches its own two sockets and can put none in their place: who came out of a guest must not
        come to the libvirt of another host.
    """
    remove_folder(sockets)
    me = os.geteuid()
    make_folder(sockets, me, owner[1], 0o710)
    owners = {channel: (me, os.getegid()) if channel == LIBVIRT else owner for channel in CHANNELS}
    listeners = {_listener(sockets.path(channel), owners[channel]): channel for channel in CHANNELS}
    reading, writing = os.pipe()
    _held.append(writing)
    if detach():
        for held in _held:
            os.close(held)
        try:
            _Relay(sockets, place, token, seconds, reading).run(listeners)
        finally:
            remove_folder(sockets)
            os._exit(0)
    os.close(reading)
    for listener in listeners:
        listener.close()


def end(sockets: Sockets) -> None:
    """End the relay after the migration: its sockets are gone, and the process ends when nothing goes through them any more."""
    remove_folder(sockets)


def _listener(path: str, owner: tuple[int, int]) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    os.chown(path, *owner)
    listener.listen(16)
    return listener


class _Relay:
    def __init__(self, sockets: Sockets, place: Place, token: str, seconds: float, starter: int):
        self.sockets = sockets
        self.place = place
        self.token = token
        self.deadline = time.monotonic() + seconds
        self.starter = starter
        self.idle_until = time.monotonic() + _IDLE
        self.threads: list[threading.Thread] = []
        self.beat_at = 0.0

    def _is_wanted(self) -> bool:
        """Return whether a connection may still come: guests of a run wait for each other."""
        if select.select([self.starter], [], [], 0)[0]:  # the end of the pipe
            return time.monotonic() < self.idle_until
        self.idle_until = time.monotonic() + _IDLE
        return os.path.isdir(self.sockets.folder)

    def _beat(self) -> None:
        """Say to the gate that the guest is still to come. A word that does not arrive is followed by the next."""
        if time.monotonic() >= self.beat_at + BEAT:
            self.beat_at = time.monotonic()
            threading.Thread(target=self._say_that_it_waits, daemon=True).start()

    def _say_that_it_waits(self) -> None:
        with contextlib.suppress(OSError, Garbled), connected(self.place) as stream:
            send_line(stream, {"token": self.token, "waits": True})
            read_line(stream)

    def run(self, listeners: t.Mapping[socket.socket, str]) -> None:
        while time.monotonic() < self.deadline and (self.threads or self._is_wanted()):
            accepted = accept(listeners, 0.5)
            if accepted is not None:
                thread = threading.Thread(target=self._relay, args=accepted, daemon=True)
                thread.start()
                self.threads.append(thread)
            self.threads = [thread for thread in self.threads if thread.is_alive()]
            if self.threads:
                self.idle_until = time.monotonic() + _IDLE
            elif self._is_wanted():
                self._beat()

    def _relay(self, channel: str, inside: socket.socket) -> None:
        with inside, contextlib.suppress(OSError, Garbled), opened(self.place) as secured:
            stream = t.cast(Stream, secured.makefile("rwb"))
            send_line(stream, {"token": self.token, "channel": channel})
            read_line(stream)
            pump(inside, secured)
