# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of instances that leave this host, offered once to their new hosts.

A process of its own serves them by TLS, with a key that is made for it and never leaves this host. Who fetches an instance's disks shows
a token that the controller made for this move. The process, and with it key, tokens and copies, ends when all was fetched, when it is told to, or when its
time is over.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import select
import socket
import ssl
import tempfile
import threading
import time
import typing as t
from dataclasses import dataclass, field

from ...core.disks.rescue import DISK as RESCUE
from ...core.errors import InvalidDiskInfo, InvalidInput, RemoteError
from ..disks.file_disks import records_of
from ..images.images import QEMU_IMG_PACKAGE, convert
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import remove_files
from ..os.locks import LOCK_ROOT, host_lock
from ..os.paths import checked_disk_name, instance_dir, own_folder
from .stream import Garbled, Stream, read_line, send_file, send_line

#: What goes along beside the recorded disks.
CONFIG_DRIVE = "disk.config"
HERE = "127.0.0.1"
_FLAT = ".move"  # a disk without its base image, until it is opened
_FOLDER_FORMATS = ("qcow2", "raw")
_PATIENCE = 60.0  # seconds that the other side may be silent
_MOST_AT_ONCE = 64  # connections


@dataclass
class Offer:
    """The open files of an instance, by name: (descriptor, size in bytes)."""

    token: str
    files: dict[str, tuple[int, int]] = field(default_factory=dict)


def prepare(instances_path: str, uuid: str, token: str) -> tuple[Offer, list[dict[str, t.Any]]]:
    """Open the disks of an instance whose guest is off. A layer over a base image is made a disk of its own, which no name remains of.

    Returns them, and for the new host {name, size, allocated, record}: bytes, and the disk's record in disk.info; None for a config drive.

    :raises InvalidDiskInfo: a disk is missing, or not a file of a known format.
    :raises CommandFailed: a guest uses it. :raises DiskFull: there is no room for a disk without its base image.
    """
    folder = instance_dir(instances_path, uuid)
    offer, described = Offer(token), []
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        for name, record in sorted(records_of(folder).items()):
            if name == RESCUE:  # what a killed run left of it
                continue
            path = os.path.join(folder, checked_disk_name(name))
            if record.get("format") not in _FOLDER_FORMATS or not os.path.isfile(path) or os.path.islink(path):
                raise InvalidDiskInfo(reason="%s is not a disk that can be copied to another host" % path)
            run([program("qemu-img", QEMU_IMG_PACKAGE), "info", "-f", record["format"], path], timeout=60.0)  # locks it
            flat = path + _FLAT if record.get("base") and record["format"] == "qcow2" else ""
            if flat:
                progress.mark_changed()
                remove_files(flat)
            try:
                if flat:
                    convert(path, "qcow2", flat, "qcow2")
                described.append({**_add(offer, name, flat or path), "record": {**record, "base": ""}})
            finally:
                remove_files(flat) if flat else None
        drive = os.path.join(folder, CONFIG_DRIVE)
        if os.path.isfile(drive) and not os.path.islink(drive):
            described.append({**_add(offer, CONFIG_DRIVE, drive), "record": None})
    if not described:
        raise InvalidDiskInfo(reason="folder %s has no disks" % folder)
    return offer, described


def _add(offer: Offer, name: str, path: str) -> dict[str, t.Any]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    offer.files[name] = (fd, found.st_size)
    return {"name": name, "size": found.st_size, "allocated": found.st_blocks * 512}


@dataclass(frozen=True)
class Place:
    """Where a server listens, and how it is known."""

    address: str
    port: int
    fingerprint: str  # SHA-256 of its certificate


def serve(offers: t.Sequence[Offer], ports: tuple[int, int], stop: str, seconds: float) -> Place:
    """Start the process that serves ``offers`` at all addresses of this host, and return where it is found on this host.

    :arg ports: the first of these that is free. :arg stop: the token that ends it. :arg seconds: after which it ends by itself
    :raises RemoteError: no port is free. :raises MissingLibrary: openssl is not installed.
    """
    context, fingerprint = _identity()
    listener = _listen(ports)
    place = Place(HERE, listener.getsockname()[1], fingerprint)
    if _detach():
        status = 1
        try:
            _Server(listener, context, offers, stop, time.monotonic() + seconds).run()
            status = 0
        finally:
            os._exit(status)
    listener.close()
    return place


def _identity() -> tuple[ssl.SSLContext, str]:
    """A server's context with a new key, and the fingerprint of its certificate. No file of either remains."""
    with own_folder(LOCK_ROOT, 0o700), tempfile.TemporaryDirectory(dir=LOCK_ROOT) as folder:
        key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=bootflow"]
        openssl = program("openssl", "openssl")
        run([openssl, "req", "-x509", *kind, "-days", "2", "-keyout", key, "-out", certificate], timeout=60.0)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        with open(certificate, encoding="ascii") as file:
            return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest()


def _listen(ports: tuple[int, int]) -> socket.socket:
    first, last = ports
    if not 0 < first <= last < 65536:
        raise InvalidInput(reason="ports %d-%d are not a range of ports" % ports)
    for port in range(first, last + 1):
        with contextlib.suppress(OSError, ValueError):  # no IPv6, or the port is taken
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_MOST_AT_ONCE, dualstack_ipv6=True)
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), backlog=_MOST_AT_ONCE)
    raise RemoteError(
        reason="none of the ports %d-%d is free on %s" % (first, last, os.uname().nodename),
        remedy="Set bootflow_copy_ports to a range with free ports.",
    )


def _detach() -> bool:
    """Go on as a process that nobody waits for. Returns whether this is it: it never returns to the module's work."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    return True


class _Server:
    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        offers: t.Sequence[Offer],
        stop: str,
        deadline: float,
    ):
        self.listener = listener
        self.context = context
        self.offers = list(offers)
        self.stop = stop
        self.deadline = deadline
        self.over = threading.Event()
        self.places = threading.Semaphore(_MOST_AT_ONCE)

    def run(self) -> None:
        while self.offers and not self.over.is_set() and time.monotonic() < self.deadline:
            if select.select([self.listener], [], [], 0.5)[0]:
                connection, _peer = self.listener.accept()
                if self.places.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
                else:
                    connection.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE)
        try:
            with contextlib.suppress(OSError, Garbled, ValueError):
                with self.context.wrap_socket(connection, server_side=True) as secured:
                    stream = t.cast(Stream, secured.makefile("rwb"))
                    while self._answer(stream):
                        pass
        finally:
            connection.close()
            self.places.release()

    def _answer(self, stream: Stream) -> bool:
        """Answer one request. Returns whether another may follow."""
        asked = read_line(stream)
        token = str(asked.get("token") or "")
        if hmac.compare_digest(token.encode(), self.stop.encode()):
            self.over.set()
            send_line(stream, {})
            return False
        offer = next((o for o in self.offers if hmac.compare_digest(token.encode(), o.token.encode())), None)
        if offer is None:
            return False
        if asked.get("done"):
            send_line(stream, {})
            self.offers.remove(offer)
            return False
        fd, size = offer.files[str(asked.get("file"))] if str(asked.get("file")) in offer.files else (-1, 0)
        if fd < 0:
            return False
        send_line(stream, {"size": size})
        send_file(stream, fd, size)
        return True
