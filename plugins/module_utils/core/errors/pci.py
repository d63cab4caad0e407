# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of PCI devices: aliases, device specs, affinity."""

from __future__ import annotations

from .base import BootflowError, InvalidInput


class PciInvalidAlias(InvalidInput):
    """An entry of bootflow_pci_alias is malformed."""

    msg_fmt = "Invalid PCI alias definition: %(reason)s"
    remedy = "Correct bootflow_pci_alias."


class PciRequestAliasNotDefined(InvalidInput):
    """The flavor requests a PCI alias that bootflow_pci_alias does not define."""

    msg_fmt = "PCI alias %(alias)s is not defined"
    remedy = "Define it in bootflow_pci_alias."


class PciConfigInvalidWhitelist(InvalidInput):
    """An entry of bootflow_pci_device_spec is malformed."""

    msg_fmt = "Invalid PCI devices Whitelist config: %(reason)s"
    remedy = "Correct bootflow_pci_device_spec of that host."


class PciDeviceWrongAddressFormat(InvalidInput):
    """A PCI address is malformed."""

    msg_fmt = "The PCI address %(address)s has an incorrect format."
    remedy = "Write domain:bus:slot.function (0000:0a:00.1), * for what may be anything, or a mapping of patterns."


class PciDeviceInvalidDeviceName(InvalidInput):
    """An entry of bootflow_pci_device_spec has both devname and address."""

    msg_fmt = "Invalid PCI Whitelist: The PCI whitelist can specify devname or address, but not both"


class PciDeviceDetachFailed(BootflowError):
    """A guest that is to be suspended did not release a PCI device of its host (Nova)."""

    msg_fmt = "Failed to detach PCI device %(dev)s: %(reason)s"
    remedy = (
        "The guest runs on with its devices. Make sure that the guest takes part in hot-unplug (ACPI, PCIe) and does not use the device, and suspend"
        " again; or stop the instance."
    )


class InvalidPCINUMAAffinity(InvalidInput):
    """The PCI NUMA affinity policy is unknown."""

    msg_fmt = "Invalid PCI NUMA affinity configured: %(policy)s"
    remedy = "Use one of required, legacy, preferred."


class ImagePCINUMAPolicyForbidden(InvalidInput):
    """The image sets a PCI NUMA affinity policy that the flavor fixes."""

    msg_fmt = (
        "Image property 'hw_pci_numa_affinity_policy' is not permitted to override the "
        "'hw:pci_numa_affinity_policy' flavor extra spec."
    )
    remedy = "Choose another image or flavor."
