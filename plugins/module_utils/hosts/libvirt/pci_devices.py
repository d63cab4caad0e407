# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host's PCI devices of a guest that is suspended: taken from it before its memory is saved, given back when it goes on.

QEMU cannot save what is in such a device. The definition of the guest keeps them, and says afterwards which are missing.
source: Nova's libvirt driver (_detach_pci_devices, _attach_pci_devices)
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ...core.errors import BootflowError, PciDeviceDetachFailed
from ...core.guest.domain.element import parse, to_text
from ..os.batch import progress
from .connection import libvirt, libvirt_errors

POLL = 0.2  # seconds
ASK_AGAIN = 10.0  # seconds after which a guest is asked again for a device

_PARTS = ("domain", "bus", "slot", "function")


def detach(domain: t.Any, seconds: float) -> None:
    """Take all of its host's PCI devices from a running guest. One that keeps one gets the others back.

    :raises PciDeviceDetachFailed: the guest did not release one within ``seconds``.
    :raises LibvirtError, HypervisorUnavailable: libvirt refuses, or is gone.
    """
    devices = _devices(_xml(domain))
    if not devices:
        return
    progress.mark_changed()
    try:
        for address, device in devices.items():
            _detach(domain, address, device, seconds)
    except BootflowError:
        with contextlib.suppress(BootflowError):
            attach_missing(domain)
        raise


def _detach(domain: t.Any, address: str, device: str, seconds: float) -> None:
    with libvirt_errors():
        domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    asked = time.monotonic()
    deadline = asked + seconds
    while address in _devices(_xml(domain)):
        now = time.monotonic()
        if now >= deadline:
            raise PciDeviceDetachFailed(dev=address, reason="timeout")
        if now - asked >= ASK_AGAIN:
            asked = now
            with contextlib.suppress(libvirt.libvirtError):  # it is about to release it
                domain.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        time.sleep(min(POLL, max(0.0, deadline - now)))


def attach_missing(domain: t.Any) -> bool:
    """Give a running guest the PCI devices of its definition that it lacks. Returns whether there were any.

    :raises LibvirtError, HypervisorUnavailable: libvirt refuses, or is gone.
    """
    defined = _devices(_xml(domain, libvirt.VIR_DOMAIN_XML_INACTIVE))
    attached_devices = _devices(_xml(domain)) if defined else {}
    missing = [device for address, device in defined.items() if address not in attached_devices]
    for device in missing:
        progress.mark_changed()
        with libvirt_errors():
            domain.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    return bool(missing)


def _xml(domain: t.Any, flags: int = 0) -> str:
    with libvirt_errors():
        return str(domain.XMLDesc(flags))


def _devices(xml: str) -> dict[str, str]:
    """Return address on the host -> the device's XML, in their order, also of the devices of ports (``interface``)."""
    if "hostdev" not in xml:
        return {}
    root = parse(xml)
    elements = [*root.iterfind("devices/hostdev[@type='pci']"), *root.iterfind("devices/interface[@type='hostdev']")]
    places = [(device.find("source/address"), device) for device in elements]
    return {_address(place): to_text(device) for place, device in places if place is not None}


def _address(place: t.Any) -> str:
    """Return the address as "0000:0a:00.1"."""
    domain, bus, slot, function = (int(place.get(part) or "0", 16) for part in _PARTS)
    return "%04x:%02x:%02x.%x" % (domain, bus, slot, function)
