# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PCI devices of the host that guests may use, read from libvirt or else from the kernel."""

from __future__ import annotations

import os
import re
import typing as t

from ...core.errors import PciConfigInvalidWhitelist, PciDeviceWrongAddressFormat
from ...core.guest.domain.element import parse
from ...core.resources.pci.device import PF, STANDARD, VF, PciDevice
from ...core.resources.pci.spec import admitted, parse_device_specs, split_address
from ..libvirt.connection import libvirt
from ..os.files import read_text


class Sysfs:
    """The PCI devices below ``root`` in sysfs."""

    def __init__(self, root: str = "/sys"):
        self.root = root

    def _device(self, address: str, *names: str) -> str:
        return os.path.join(self.root, "bus/pci/devices", address, *names)

    def function_of_interface(self, name: str) -> tuple[str | None, bool]:
        """Return the PCI address of a network interface (None without one), and whether it is a PF."""
        if os.path.basename(name) != name:
            return None, False
        target = os.path.basename(os.path.realpath(os.path.join(self.root, "class/net", name, "device")))
        try:
            split_address(target)
        except (PciDeviceWrongAddressFormat, PciConfigInvalidWhitelist):
            return None, False  # the interface does not exist or is not a PCI device
        return target, self.is_physical_function(target)

    def is_physical_function(self, address: str) -> bool:
        return (_read_int(self._device(address, "sriov_totalvfs")) or 0) > 0

    def devices(self) -> list[PciDevice]:
        """Return all PCI devices, by address."""
        try:
            addresses = sorted(os.listdir(os.path.join(self.root, "bus/pci/devices")))
        except OSError:
            return []
        devices = []
        for address in addresses:
            if not _ADDRESS_NAME.match(address):
                continue  # of a kernel that names others here
            vendor, product = [_read_int(self._device(address, name)) for name in ("vendor", "device")]
            if vendor is None or product is None:
                continue  # it was unplugged meanwhile
            physical = self._device(address, "physfn")
            parent = os.path.basename(os.path.realpath(physical)) if os.path.islink(physical) else None
            kind = VF if parent else (PF if self.is_physical_function(address) else STANDARD)
            devices.append(
                _device(address, vendor, product, _read_int(self._device(address, "numa_node")), kind, parent)
            )
        return devices


_ADDRESS_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")


def _read_int(path: str) -> int | None:
    try:
        return int(read_text(path), 0)
    except ValueError:
        return None


def _device(address: str, vendor: int, product: int, numa_node: int | None, kind: str, parent: str | None) -> PciDevice:
    return PciDevice(
        address=address,
        vendor_id="%04x" % vendor,
        product_id="%04x" % product,
        # -1 is the kernel's value for "not known".
        numa_node=numa_node if numa_node is not None and numa_node >= 0 else None,
        dev_type=kind,
        parent_addr=parent,
    )


def device_of_xml(xml: str) -> PciDevice | None:
    """Return the device of libvirt's node device XML; None if it is not on the PCI bus, or has no ids."""
    node = parse(xml)
    pci = node.find("capability[@type='pci']")
    if pci is None:
        return None
    parent_address = pci.find("capability[@type='phys_function']/address")
    parent = None
    kind = STANDARD
    if pci.find("capability[@type='virt_functions']") is not None:
        kind = PF
    elif parent_address is not None:
        kind, parent = VF, _address([parent_address.get(name) for name in _ADDRESS])
    numa, vendor, product = pci.find("numa"), pci.find("vendor"), pci.find("product")
    if vendor is None or product is None or not vendor.get("id") or not product.get("id"):
        return None
    return _device(
        _address([pci.findtext(name) for name in _ADDRESS]),
        int(vendor.get("id"), 0),
        int(product.get("id"), 0),
        int(numa.get("node")) if numa is not None else None,
        kind,
        parent,
    )


_ADDRESS = ("domain", "bus", "slot", "function")


def _address(parts: t.Sequence[t.Any]) -> str:
    return "%04x:%02x:%02x.%x" % tuple(int(str(part or 0), 0) for part in parts)


def _devices_of_libvirt(connection: t.Any) -> list[PciDevice]:
    """Return the devices that libvirt reports; empty if it has no driver for node devices."""
    try:
        nodes = connection.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV)
    except libvirt.libvirtError:
        return []
    devices = []
    for node in nodes:
        try:
            device = device_of_xml(node.XMLDesc(0))
        except libvirt.libvirtError:
            continue  # it was unplugged meanwhile
        if device is not None:
            devices.append(device)
    return devices


def pci_passthrough_devices(connection: t.Any, entries: t.Any, sysfs: Sysfs | None = None) -> list[dict[str, t.Any]]:
    """Return the devices that match pci_device_spec, by address, with Nova's ``dev_id`` and ``label``. Without entries none.

    :raises PciConfigInvalidWhitelist, PciDeviceWrongAddressFormat, PciDeviceInvalidDeviceName: an entry is not valid.
    """
    if not entries:
        return []
    sysfs = sysfs or Sysfs()
    specs = parse_device_specs(entries, sysfs)
    devices = admitted(_devices_of_libvirt(connection) or sysfs.devices(), specs)
    return [
        dict(
            device.as_dict(),
            dev_id="pci_" + device.address.replace(":", "_").replace(".", "_"),
            label="label_%s_%s" % (device.vendor_id, device.product_id),
        )
        for device in devices
    ]
