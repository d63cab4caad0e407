# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a guest finds its devices, which libvirt decides when it defines the domain. source: Nova's _prepare_device_bus"""

from __future__ import annotations

import typing as t

from .domain.element import parse

_DISK_BUSES = ("scsi", "ide", "usb")  # of disks that have no PCI address of their own


def device_places(xml: str) -> list[dict[str, str]]:
    """Disks (``name``: vda) and interfaces (``mac``) of a defined domain, in its order, each with ``type``, ``bus`` and ``address``.

    Without a bus that Nova names both are missing.

    :raises InvalidInput: the text is not XML.
    """
    devices = parse(xml).find("devices")
    places = []
    for node in () if devices is None else devices:
        target, mac = node.find("target"), node.find("mac")
        if node.tag == "disk" and target is not None:
            place = {"type": "disk", "name": str(target.get("dev"))}
            if target.get("bus") in _DISK_BUSES:
                place["bus"] = str(target.get("bus"))
        elif node.tag == "interface" and mac is not None:
            place = {"type": "nic", "mac": str(mac.get("address")).lower()}
        else:
            continue
        address = node.find("address")
        if address is not None and address.get("type") == "pci":
            place.update(bus="pci", address=_pci_address(address))
        places.append(place)
    return places


def _pci_address(node: t.Any) -> str:
    domain, bus, slot, function = (int(node.get(name), 16) for name in ("domain", "bus", "slot", "function"))
    return "%04x:%02x:%02x.%x" % (domain, bus, slot, function)
