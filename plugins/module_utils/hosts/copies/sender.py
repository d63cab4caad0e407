# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Offer the disks of instances that leave this host once to their new hosts.

A separate process serves them by TLS, with a key that is made for it and never leaves this host. Who fetches an instance's disks shows
a token that the controller made for this move. The process, and with it key, tokens and copies, ends when all was fetched, on a request to stop, when its
time is over, or when its run is gone and the disks are needed: their guest starts here, they are removed, or offered again.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import stat
import threading
import typing as t
from dataclasses import dataclass, field

from ...core.disks.rescue import DISK as RESCUE
from ...core.disks.stores.registry import is_shared
from ...core.errors import InvalidDiskInfo
from ...core.guest.nvram import NVRAM
from ..disks.stores.disk_info import records_of
from ..disks.stores.registry import store_of_record
from ..images.nvram import open_nvram
from ..os.locks import Offered, host_lock, take_back
from ..os.paths import instance_dir
from .server import Place, Server, started
from .stream import Stream, send_file, send_line

#: Sent in addition to the recorded disks.
CONFIG_DRIVE = "disk.config"


@dataclass
class Offer:
    """The open files of an instance, by name: (descriptor, size in bytes)."""

    uuid: str
    token: str
    files: dict[str, tuple[int, int]] = field(default_factory=dict)


def prepare(
    instances_path: str, uuid: str, token: str, skipped_names: t.Collection[str] = (), has_disks: bool = True
) -> tuple[Offer, list[dict[str, t.Any]]]:
    """Open the disks of an instance whose guest is off. A layer over a base image becomes a separate, unlinked disk.

    Returns them, and for the new host {name, size, allocated, record}: bytes, and the disk's record in disk.info; None for a config drive and an
    NVRAM. One that is in a file system of its instance, on a logical volume, is ``mounted``. One in a pool that both hosts reach has no size: it stays there.

    :arg skipped_names: disks that stay on this host: the instance does not have them there, or they are made again
    :arg has_disks: whether the instance has disks here, or a config drive. Without, it may have an NVRAM only, or nothing
    :raises InvalidDiskInfo: a disk is missing, or not a file or logical volume of a known format.
    :raises CommandFailed, VolumeIsBusy: a guest uses it. :raises DiskFull: there is no room for a disk without its base image.
    """
    folder = instance_dir(instances_path, uuid)
    offer, described = Offer(os.path.basename(folder), token), []
    with host_lock(instances_path, "instance-" + offer.uuid):
        take_back(offer.uuid)
        for name, record in sorted(records_of(folder).items()):
            if name == RESCUE or name in skipped_names:  # the first: what a killed run left of it
                continue
            if is_shared(record):  # the new host reaches it
                described.append({"name": name, "allocated": 0, "record": {**record, "base": ""}})
                continue
            for disk in store_of_record(record).opened(folder, name, record, skipped_names):
                description = {**_add(offer, disk.name, disk.fd), "record": disk.record}
                described.append({**description, "mounted": True} if disk.mounted else description)
        drive = os.path.join(folder, CONFIG_DRIVE)
        if os.path.isfile(drive) and not os.path.islink(drive):
            fd = os.open(drive, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            described.append({**_add(offer, CONFIG_DRIVE, fd), "record": None})
        nvram = None if NVRAM in skipped_names else open_nvram(folder)
        if nvram is not None:
            described.append({**_add(offer, NVRAM, nvram), "record": None})
    if not described and has_disks:
        raise InvalidDiskInfo(reason="folder %s has no disks" % folder)
    return offer, described


def _add(offer: Offer, name: str, fd: int) -> dict[str, t.Any]:
    block = stat.S_ISBLK(os.fstat(fd).st_mode)
    size = os.lseek(fd, 0, os.SEEK_END)
    offer.files[name] = (fd, size)
    return {"name": name, "size": size, "allocated": size if block else os.fstat(fd).st_blocks * 512}


def serve(offers: t.Sequence[Offer], ports: tuple[int, int], stop: str, seconds: float) -> Place:
    """Start the process that serves ``offers`` at all addresses of this host, and return where it is found on this host.

    :arg ports: the first of these that is free. :arg stop: the token that ends it. :arg seconds: after which it ends by itself
    :raises RemoteError: no port is free. :raises MissingLibrary: openssl is not installed.
    """
    offered = [_Served(offer) for offer in offers]
    try:
        place = started(_Offers(offered, stop, seconds), ports)
    except BaseException:
        for served_offer in offered:
            served_offer.lock.end()
        raise
    for served_offer in offered:
        served_offer.lock.leave()
    return place


class _Served:
    """An offer while it is served."""

    def __init__(self, offer: Offer):
        self.offer = offer
        self.lock = Offered(offer.uuid)
        self.connections: set[t.Any] = set()  # over which a file goes now

    def close(self) -> None:
        for fd, _size in self.offer.files.values():
            os.close(fd)
        self.lock.end()


class _Offers(Server):
    """Serves files until all of their instances were fetched, or are wanted back."""

    def __init__(self, offers: t.Sequence[_Served], stop: str, seconds: float):
        super().__init__(stop, seconds)
        self.offers = list(offers)
        self.left: list[_Served] = []  # disks with a file that is still sent
        self.lock = threading.Lock()

    def run(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        try:
            super().run(listener, context)
        finally:
            for served_offer in [*self.offers, *self.left]:
                served_offer.close()

    def goes_on(self) -> bool:
        with self.lock:
            for served_offer in [o for o in self.offers if o.lock.is_wanted_back()]:
                self._end(served_offer)
                for connection in served_offer.connections:
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(connection, socket.SHUT_RDWR)
            return bool(self.offers)

    def _end(self, served_offer: _Served) -> None:
        self.offers.remove(served_offer)
        if served_offer.connections:
            self.left.append(served_offer)
        else:
            served_offer.close()

    def tokens(self) -> list[str]:
        with self.lock:
            return [served_offer.offer.token for served_offer in self.offers]

    def answer(self, asked: t.Mapping[str, t.Any], stream: Stream, connection: t.Any) -> bool:
        token, name = str(asked.get("token") or ""), str(asked.get("file"))
        with self.lock:
            served_offer = next(
                (o for o in self.offers if hmac.compare_digest(token.encode(), o.offer.token.encode())), None
            )
            if served_offer is None or not (asked.get("done") or name in served_offer.offer.files):
                return False
            if not asked.get("done"):
                served_offer.connections.add(connection)
        if asked.get("done"):
            send_line(stream, {})
            with self.lock:
                if served_offer in self.offers:
                    self._end(served_offer)
            return False
        fd, size = served_offer.offer.files[name]
        try:
            send_line(stream, {"size": size})
            send_file(stream, fd, size)
        finally:
            with self.lock:
                served_offer.connections.discard(connection)
                if served_offer in self.left and not served_offer.connections:
                    self.left.remove(served_offer)
                    served_offer.close()
        return True
