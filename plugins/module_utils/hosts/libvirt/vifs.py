# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting until a guest's interfaces are plugged in: the guest's CPUs stay stopped until then.

Nova waits for Neutron's network-vif-plugged; here no agent tells, so the host itself is asked whether each interface of the
started domain is there and up.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
import typing as t

from ...core.errors import VirtualInterfaceCreateException
from ...core.optional import optional_import
from .connection import libvirt_errors

if t.TYPE_CHECKING:
    from lxml import etree
else:
    etree = optional_import("lxml.etree")

SIOCGIFFLAGS = 0x8913
IFF_UP = 1
POLL = 0.05  # seconds


def devices_of(domain: t.Any) -> list[str]:
    """The host's ends of the interfaces of an active domain, as libvirt named them."""
    with libvirt_errors():
        live = etree.fromstring(domain.XMLDesc(0).encode())
    return [str(target.get("dev")) for target in live.iterfind("devices/interface/target[@dev]")]


def is_plugged(device: str) -> bool:
    """Whether the host has this interface in our network namespace, and it is up (/sys may show another namespace's)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFFLAGS, struct.pack("16sH14x", device.encode()[:15], 0))
        except OSError:
            return False
    return bool(struct.unpack_from("16sH", answer)[1] & IFF_UP)


def wait_plugged(domain: t.Any, timeout: float, fatal: bool) -> list[str]:
    """Wait up to ``timeout`` seconds for every interface. Returns those that are missing, when that is not ``fatal``.

    :raises VirtualInterfaceCreateException: fatal, and some are missing.
    """
    missing = devices_of(domain)
    end = time.monotonic() + timeout
    while True:
        missing = [device for device in missing if not is_plugged(device)]
        if not missing or time.monotonic() >= end:
            break
        time.sleep(POLL)
    if missing and fatal:
        raise VirtualInterfaceCreateException(
            reason="interfaces %s were not plugged in after %g s" % (", ".join(missing), timeout),
            remedy="Check the bridge or libvirt network on that host, or set bootflow_vif_plugging_is_fatal: false.",
        )
    return missing
