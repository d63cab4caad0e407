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

from ....core.errors import NetworkError
from ....core.networks.types.bridge import Bridge
from ..domain_waits import host_name
from .network_type import NetworkSpec, ServedNetwork, found_as_it_is

_SIOCETHTOOL, _ETHTOOL_GDRVINFO = 0x8946, 3


class HostBridge:
    """The bridges of this host."""

    kind = Bridge()

    def ensure(self, connection: t.Any, spec: NetworkSpec, check_mode: bool) -> dict[str, t.Any]:
        name = spec.real_name
        self.kind.check_source(name)
        if not _is_bridge(name):
            raise NetworkError(
                message="Linux bridge %s does not exist on %s" % (name, host_name()),
                remedy="Create bridge %s in the network configuration of the host, or correct the source of network %s."
                % (name, spec.name),
            )
        return found_as_it_is(spec, name)

    def purge(
        self, connection: t.Any, min_age: float, keep: t.Collection[str], check_mode: bool
    ) -> t.Iterator[dict[str, t.Any]]:
        return iter(())

    def report(self, connection: t.Any) -> list[ServedNetwork]:
        return []  # the server of a bridge is not libvirt's


def _is_bridge(name: str) -> bool:
    """Return whether ``name`` is a Linux bridge in our network namespace (/sys may show that of another namespace)."""
    answer = array.array("B", struct.pack("I", _ETHTOOL_GDRVINFO).ljust(256, b"\0"))
    request = struct.pack("16sP", name.encode("ascii"), answer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, request.ljust(40, b"\0"))
        except OSError:
            return False
    return answer.tobytes()[4:36].split(b"\0")[0] == b"bridge"
