# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of PCI devices: aliases, device specs, affinity."""

from __future__ import annotations

from .base import InvalidInput


class PciInvalidAlias(InvalidInput):
    msg_fmt = "Invalid PCI alias definition: %(reason)s"
    remedy = "Correct bootflow_pci_alias."


class PciRequestAliasNotDefined(InvalidInput):
    msg_fmt = "PCI alias %(alias)s is not defined"
    remedy = "Define it in bootflow_pci_alias."


class PciConfigInvalidWhitelist(InvalidInput):
    msg_fmt = "Invalid PCI devices Whitelist config: %(reason)s"
    remedy = "Correct bootflow_pci_device_spec of that host."


class PciDeviceWrongAddressFormat(InvalidInput):
    msg_fmt = "The PCI address %(address)s has an incorrect format."
    remedy = "Write domain:bus:slot.function (0000:0a:00.1), * for what may be anything, or a mapping of patterns."


class PciDeviceInvalidDeviceName(InvalidInput):
    msg_fmt = "Invalid PCI Whitelist: The PCI whitelist can specify devname or address, but not both"


class InvalidPCINUMAAffinity(InvalidInput):
    msg_fmt = "Invalid PCI NUMA affinity configured: %(policy)s"
    remedy = "Use one of required, legacy, preferred."


class ImagePCINUMAPolicyForbidden(InvalidInput):
    msg_fmt = (
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to override the "
        "'hw:pci_numa_affinity_policy' flavor extra spec."
    )
    remedy = "Take another image or flavor."
