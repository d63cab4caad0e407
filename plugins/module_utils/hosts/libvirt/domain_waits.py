# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits after the start of a guest: for a pattern on its console, a responding address, its agent."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import InvalidInput, WaitTimeout
from ...core.optional import optional_import, require
from ..os.command import program, run
from .connection import libvirt

libvirt_qemu = optional_import("libvirt_qemu")

POLL = 0.2  # seconds
_TAIL = 64 * 1024  # characters kept for a match that spans two reads

Alive = t.Callable[[], None]


@dataclass(frozen=True)
class ConsoleWait:
    """A regular expression that must appear in the console's log file within ``timeout`` seconds."""

    pattern: re.Pattern[str]
    log: str
    timeout: float = 300.0
    appended: bool = False  # a start appends to the log instead of truncating it

    def mark(self) -> tuple[int, int]:
        """Return the current end of the log as (inode, bytes): output of an earlier run of the guest does not count."""
        try:
            status = os.stat(self.log)
        except OSError:
            return (0, 0)
        return (status.st_ino, status.st_size)


@dataclass(frozen=True)
class AddressWait:
    """An address that must respond within ``timeout`` seconds, to a ping or on a TCP port."""

    address: str
    timeout: float = 300.0
    port: int = 0


def host_name() -> str:
    """Return this host's name, for messages."""
    return socket.gethostname()


class _LogReader:
    """Reads a log that grows, is truncated at a start, and is replaced by rotation."""

    def __init__(self, path: str, mark: tuple[int, int] | None):
        self.path = path
        self.inode, self.offset = mark or (0, 0)

    def read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.offset:
                    self.inode, self.offset = status.st_ino, 0
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return b""
        self.offset += len(data)
        return data

    def text(self) -> str:
        """Return the new output with plain line ends, because a serial console writes carriage returns too."""
        return self.read().decode("utf-8", "replace").replace("\r", "")


def wait_for_console(wait: ConsoleWait, mark: tuple[int, int] | None, alive: Alive) -> str:
    """Return the first line of the log that matches.

    :arg mark: where to begin (None: at the beginning of the log, for a guest that was already running).
    :raises WaitTimeout: no line matched in time.
    """
    reader = _LogReader(wait.log, mark)
    text = ""
    deadline = time.monotonic() + wait.timeout
    while True:
        new = reader.text()
        if new:
            text = text[-_TAIL:] + new
            match = wait.pattern.search(text)
            # An incomplete last line is read again.
            if match:
                return _line_of(text + reader.text(), match)
        if time.monotonic() >= deadline:
            raise WaitTimeout(
                what="match of /%s/ on the console" % wait.pattern.pattern, seconds=int(wait.timeout), host=host_name()
            )
        alive()
        time.sleep(POLL)


def _line_of(text: str, match: re.Match[str]) -> str:
    begin = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[begin : end if end >= 0 else len(text)].strip("\r\n")


def checked_address(address: str) -> str:
    """Return the address. Raises InvalidInput if it is neither IPv4 nor IPv6."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise InvalidInput(reason="%r is not an IP address" % address) from None


def wait_for_address(wait: AddressWait, alive: Alive) -> None:
    """Wait until the address responds.

    :raises WaitTimeout: the address did not respond in time.
    """
    address = checked_address(wait.address)
    deadline = time.monotonic() + wait.timeout
    answers = _tcp_answers if wait.port else _ping_answers
    while not answers(address, wait.port):
        if time.monotonic() >= deadline:
            raise WaitTimeout(what="response of %s" % address, seconds=int(wait.timeout), host=host_name())
        alive()
        time.sleep(POLL)


def _ping_answers(address: str, port: int) -> bool:
    return (
        run([program("ping", "iputils-ping"), "-n", "-q", "-c", "1", "-W", "1", address], timeout=5.0, check=False).rc
        == 0
    )


def _tcp_answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def wait_for_agent(domain: t.Any, timeout: float, alive: Alive) -> None:
    """Wait until the QEMU guest agent responds.

    :raises WaitTimeout: the agent did not respond in time.
    """
    require(libvirt_qemu, "libvirt_qemu (Python)", "python3-libvirt", "host")
    ping = json.dumps({"execute": "guest-ping"})
    deadline = time.monotonic() + timeout
    while True:
        try:
            libvirt_qemu.qemuAgentCommand(domain, ping, 2, 0)
            return
        except libvirt.libvirtError:
            # Not connected yet, or not answering: both pass.
            pass
        if time.monotonic() >= deadline:
            raise WaitTimeout(what="response of the guest agent", seconds=int(timeout), host=host_name())
        alive()
        time.sleep(POLL)
