# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Networks that are a Linux bridge of this host. Bridges are never made, and never removed."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import typing as t

from ....core.errors import InvalidInput
from ....core.networks.on_hosts import ABSENT, HostNetwork
from ....core.networks.types.bridge import Bridge
from ..domain_waits import host_name
from .network_type import FoundNetwork, NetworkSpec, ServedNetwork, Uplinks, found_as_it_is

_SIOCETHTOOL, _ETHTOOL_GDRVINFO = 0x8946, 3


class HostBridge:
    """The bridges of this host."""

    kind = Bridge()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        name = spec.real_name
        self.kind.check_source(name)
        if not bridges_of([name]):
            raise HostNetwork(self.kind.name, name, spec.name).refusal(ABSENT, host_name())
        return found_as_it_is(spec, name)

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return iter(())

    def networks(self, connection: t.Any, uplinks: Uplinks) -> list[FoundNetwork]:
        return [FoundNetwork(name) for name in bridges_of(name for _index, name in socket.if_nameindex())]

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # the server of a bridge is not libvirt's


def bridges_of(names: t.Iterable[str]) -> list[str]:
    """Return the Linux bridges of our network namespace among these interfaces. /sys may show another namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return [name for name in names if _can_be_named(name) and _driver(sock, name) == b"bridge"]


def _can_be_named(name: str) -> bool:
    try:
        return bool(HostBridge.kind.check_source(name))
    except InvalidInput:
        return False


def _driver(sock: socket.socket, name: str) -> bytes:
    """Return the driver of an interface; empty where there is none."""
    answer = array.array("B", struct.pack("I", _ETHTOOL_GDRVINFO).ljust(256, b"\0"))
    request = struct.pack("16sP", name.encode("ascii"), answer.buffer_info()[0])
    try:
        fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, request.ljust(40, b"\0"))
    except OSError:
        return b""
    return answer.tobytes()[4:36].split(b"\0")[0]
