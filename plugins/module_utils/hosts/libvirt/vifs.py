# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waits until the interfaces of a guest are plugged in; the CPUs of the guest stay stopped until then.

Nova waits for Neutron's network-vif-plugged; without an agent we check on the host whether each interface of the
started domain exists and is up.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
import typing as t
from xml.etree import ElementTree  # lxml takes longer to load than all else that a start needs

from ...core.errors import VirtualInterfaceCreateException
from ..open_vswitch import bridges
from .connection import libvirt_errors

SIOCGIFFLAGS = 0x8913
IFF_UP = 1
POLL = 0.05  # seconds
_MACVTAP = "direct"  # also of an interface in a libvirt network of the forward mode bridge, of a running guest


def devices_of(domain: t.Any) -> list[str]:
    """Return the host interfaces of an active domain that something plugs in, as named by libvirt."""
    return _devices(domain, lambda interface_type: interface_type != _MACVTAP)


def macvtap_devices_of(domain: t.Any) -> list[str]:
    """Return the macvtap devices of an active domain. libvirt turns them on when the CPUs of the guest start, and nothing plugs them in."""
    return _devices(domain, lambda interface_type: interface_type == _MACVTAP)


def logical_devices_of(domain: t.Any) -> set[str]:
    """Return the devices of an active domain that are in Open vSwitch: they are plugged in when ovn-controller has their flows."""
    with libvirt_errors():
        live = ElementTree.fromstring(domain.XMLDesc(0))
    ports = [i for i in live.iterfind("devices/interface") if i.find("virtualport[@type='openvswitch']") is not None]
    return {str(target.get("dev")) for i in ports for target in i.iterfind("target[@dev]")}


def _devices(domain: t.Any, has_type: t.Callable[[str | None], bool]) -> list[str]:
    with libvirt_errors():
        live = ElementTree.fromstring(domain.XMLDesc(0))
    interfaces = [i for i in live.iterfind("devices/interface") if has_type(i.get("type"))]
    return [str(target.get("dev")) for i in interfaces for target in i.iterfind("target[@dev]")]


def is_plugged(device: str) -> bool:
    """Return whether this interface exists in our network namespace and is up (/sys may show that of another namespace)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFFLAGS, struct.pack("16sH14x", device.encode()[:15], 0))
        except OSError:
            return False
    return bool(struct.unpack_from("16sH", answer)[1] & IFF_UP)


def wait_plugged(domain: t.Any, timeout: float, fatal: bool, devices: t.Optional[t.Sequence[str]] = None) -> list[str]:
    """Wait up to ``timeout`` seconds for every interface. Returns the missing ones if that is not ``fatal``.

    :arg devices: devices of the host; None: all of the domain.
    :raises VirtualInterfaceCreateException: interfaces are missing, and that is fatal; or the guest has ended.
    :raises InstanceNotFound: the guest is gone.
    """
    missing = devices_of(domain) if devices is None else list(devices)
    logical = logical_devices_of(domain)
    end = time.monotonic() + timeout
    while True:
        missing = [d for d in missing if not (is_plugged(d) and (d not in logical or bridges.is_installed(d)))]
        if not missing or time.monotonic() >= end:
            break
        with libvirt_errors():
            active = domain.isActive()
        if not active:  # nothing plugs in the interfaces of a guest that was deleted meanwhile
            raise VirtualInterfaceCreateException(
                reason="the guest ended before interfaces %s were plugged in" % ", ".join(missing),
                remedy="Run the same command again, unless the instance was deleted or stopped.",
            )
        time.sleep(POLL)
    if missing and fatal:
        raise VirtualInterfaceCreateException(
            reason="interfaces %s were not plugged in after %g s" % (", ".join(missing), timeout),
            remedy="Check the bridge or libvirt network on that host (of OVN: ovn-controller), or set bootflow_vif_plugging_is_fatal: false.",
        )
    return missing
