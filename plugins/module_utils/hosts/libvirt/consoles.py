# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the output of guests on their serial consoles, and find their displays."""

from __future__ import annotations

import os
import stat
import typing as t

from ...core.errors import InstanceNotFound
from ...core.guest.domain.element import parse
from ..os.paths import checked_uuid
from .connection import libvirt_errors
from .domains import log_path_of
from .running import find_domain, power_state

MOST = 1024 * 1024  # bytes that are read of a console


def read_console(connection: t.Any, uuid: str, lines: int) -> dict[str, t.Any]:
    """Return {console: its last lines, vnc: {listen, port} or None, power_state}

    :raises InstanceNotFound: the host has no such domain.
    :raises LibvirtError, HypervisorUnavailable: libvirt does not tell.
    """
    domain = find_domain(connection, checked_uuid(uuid))
    if domain is None:
        raise InstanceNotFound(
            instance_id=uuid, remedy="The domain is gone from the host: bootflow.compute.audit shows that."
        )
    with libvirt_errors():
        xml = domain.XMLDesc(0)
    return {"console": last_lines(log_path_of(xml), lines), "vnc": vnc_of(xml), "power_state": power_state(domain)}


def last_lines(path: str, lines: int) -> list[str]:
    """Return the last lines of a log, and of the file that was it before virtlogd rotated it. Empty without a log."""
    data = b""
    for name in (path, path + ".0"):
        if path and data.count(b"\n") <= lines:
            data = _tail(name, MOST - len(data)) + data
    text = data.decode("utf-8", "replace").replace("\r", "").replace("\0", "")
    log_lines = text.removesuffix("\n").split("\n") if text else []
    return log_lines[-lines:]


def _tail(path: str, most: int) -> bytes:
    """Return the end of the file, at most ``most`` bytes; empty if there is none."""
    try:
        # What a guest's program writes: no link is followed, and nothing is waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        file.seek(max(0, status.st_size - most))
        return file.read(most)


def vnc_of(xml: str) -> dict[str, t.Any] | None:
    """Return where the VNC display of a running domain is: {listen, port}; None without one."""
    for graphics in parse(xml).iterfind("devices/graphics[@type='vnc']"):
        port = int(graphics.get("port") or -1)
        if port > 0:
            listens = [listen.get("address") for listen in graphics.iterfind("listen")]
            return {"listen": graphics.get("listen") or next(filter(None, listens), "127.0.0.1"), "port": port}
    return None
