# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits after the start of a guest: for a pattern on its console, an address or a port that answers, its agent, the end of cloud-init."""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import json
import os
import re
import socket
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import CloudInitFailed, InvalidInput, WaitTimeout
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
    """An address that must respond within ``timeout`` seconds.

    ``port``: of TCP, which must accept a connection. 0: a ping must be answered, or ARP or ND by the interface with ``mac_address``.
    """

    address: str
    timeout: float = 300.0
    port: int = 0
    mac_address: str = ""


@dataclass(frozen=True)
class CloudInitWait:
    """The end of cloud-init within ``timeout`` seconds: by its result, which the guest agent reads (``agent``), or by its last line on ``console``.

    An agent may refuse to read files, as the ones of Fedora, Rocky and their like do by default: the console decides then.
    """

    timeout: float = 300.0
    agent: bool = False
    console: ConsoleWait | None = None


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
    while True:
        if _tcp_answers(address, wait.port) if wait.port else _is_there(address, wait.mac_address):
            return
        if time.monotonic() >= deadline:
            what = "connection to port %d of %s" % (wait.port, address) if wait.port else "response of %s" % address
            raise WaitTimeout(what=what, seconds=int(wait.timeout), host=host_name())
        alive()
        time.sleep(POLL)


def _is_there(address: str, mac_address: str) -> bool:
    """Return whether the guest answers a ping or, if it drops pings, the ARP or ND request before it."""
    ping = [program("ping", "iputils-ping"), "-n", "-q", "-c", "1", "-W", "1", address]
    return run(ping, timeout=5.0, check=False).rc == 0 or (bool(mac_address) and _is_neighbour(address, mac_address))


def _is_neighbour(address: str, mac_address: str) -> bool:
    done = run([program("ip", "iproute2"), "-json", "neighbour", "show", "to", address], timeout=5.0, check=False)
    try:
        neighbours = json.loads(done.stdout or "[]") if done.rc == 0 else []
    except ValueError:
        return False
    # Other states than REACHABLE may be of a guest that had the address before.
    return any(n.get("lladdr") == mac_address.lower() and "REACHABLE" in n.get("state", ()) for n in neighbours)


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
    _ask_agent(domain, lambda ask: ask("guest-ping"), "response of the guest agent", timeout, alive)


_RESULT = "/run/cloud-init/result.json"  # cloud-init renames it when its last stage has ended
_MOST_RESULT = 64 * 1024  # bytes
#: The default of cloud-init's final_message.
CLOUD_INIT_FINISHED = re.compile(r"[Cc]loud-init v\. \S+ finished at ")


def wait_for_cloud_init(domain: t.Any, wait: CloudInitWait, mark: tuple[int, int] | None, alive: Alive) -> None:
    """Wait until cloud-init has finished in the guest.

    :arg mark: see wait_for_console()
    :raises CloudInitFailed: the guest agent has its result, which names errors.
    :raises WaitTimeout: it did not finish in time.
    """
    if not wait.agent:
        if wait.console is None:
            raise InvalidInput(reason="cloud-init's end can be seen neither by a guest agent nor on a console")
        wait_for_console(wait.console, mark, alive)
        return
    result: dict[str, t.Any] = {}

    begin = time.monotonic()

    def read(ask: Ask) -> None:
        result.update(_result_of_cloud_init(ask))

    try:
        _ask_agent(domain, read, "end of cloud-init (%s in the guest, by its agent)" % _RESULT, wait.timeout, alive)
    except _AgentRefuses:
        if wait.console is None:
            raise InvalidInput(
                reason="the guest agent refuses to read files, and the guest has no console with a log"
            ) from None
        remaining = max(0.0, begin + wait.timeout - time.monotonic())
        wait_for_console(dataclasses.replace(wait.console, timeout=remaining), mark, alive)
    problems = [str(word) for word in result.get("errors") or ()]
    if problems:
        raise CloudInitFailed(reason="; ".join(problems)[:2000], host=host_name())


def _result_of_cloud_init(ask: Ask) -> dict[str, t.Any]:
    """Return the result, a dict with ``datasource`` and ``errors``. :raises libvirtError: the guest does not have it yet"""
    handle = ask("guest-file-open", path=_RESULT, mode="r")
    try:
        content = base64.b64decode(str(ask("guest-file-read", handle=handle, count=_MOST_RESULT)["buf-b64"]))
    finally:
        ask("guest-file-close", handle=handle)
    result = json.loads(content)
    first_version = result.get("v1") if isinstance(result, dict) else None
    return first_version if isinstance(first_version, dict) else {}


class _AgentRefuses(Exception):
    """The administrator of the guest has disabled a command of its agent."""


_REFUSED = re.compile("has been disabled|has not been found")


class Ask(t.Protocol):
    """Asks the guest agent one question."""

    def __call__(self, command: str, **arguments: t.Any) -> t.Any:
        """Return the answer. :raises libvirtError: the agent is not connected, does not answer, or refuses"""


def _ask_agent(domain: t.Any, question: t.Callable[[Ask], None], what: str, timeout: float, alive: Alive) -> None:
    """Call ``question`` until it ends without an error. :raises WaitTimeout: it did not in time; ``what`` names the awaited event"""
    require(libvirt_qemu, "libvirt_qemu (Python)", "python3-libvirt", "host")
    deadline = time.monotonic() + timeout

    def ask(command: str, **arguments: t.Any) -> t.Any:
        text = json.dumps({"execute": command, **({"arguments": arguments} if arguments else {})})
        try:
            return json.loads(libvirt_qemu.qemuAgentCommand(domain, text, 2, 0))["return"]
        except libvirt.libvirtError as error:
            if _REFUSED.search(str(error)):
                raise _AgentRefuses from None
            raise

    while True:
        try:
            question(ask)
            return
        except (libvirt.libvirtError, ValueError, KeyError, TypeError, RecursionError):
            # Not connected yet, not answering, or an answer that is not one of an agent: all may pass.
            pass
        if time.monotonic() >= deadline:
            raise WaitTimeout(what=what, seconds=int(timeout), host=host_name())
        alive()
        time.sleep(POLL)
