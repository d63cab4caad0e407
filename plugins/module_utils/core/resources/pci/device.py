# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A PCI device that may be given to guests."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

STANDARD = "type-PCI"
PF = "type-PF"  # the physical function of an SR-IOV card
VF = "type-VF"  # one of its virtual functions
DEVICE_TYPES = (STANDARD, PF, VF)


@dataclass(frozen=True)
class PciDevice:
    """One function of a device. ``address`` is ``dddd:bb:ss.f`` (the domain has up to eight digits), the ids are four lower-case hex digits.

    ``tags`` come from the entry of the host's pci_device_spec that admitted the device.
    """

    address: str
    vendor_id: str
    product_id: str
    numa_node: t.Optional[int] = None  # None: not reported
    dev_type: str = STANDARD
    parent_addr: t.Optional[str] = None  # of a VF: the address of its PF
    tags: t.Mapping[str, t.Optional[str]] = field(default_factory=dict)

    def __hash__(self) -> int:
        # Thousands of devices are compared by host, and nearly all differ in their address.
        return hash(self.address)

    def as_dict(self) -> dict[str, t.Any]:
        """Plain data, for facts and the ledger."""
        return {
            "address": self.address,
            "vendor_id": self.vendor_id,
            "product_id": self.product_id,
            "numa_node": self.numa_node,
            "dev_type": self.dev_type,
            "parent_addr": self.parent_addr,
            "tags": dict(self.tags),
        }

    @classmethod
    def from_dict(cls, data: t.Mapping[str, t.Any]) -> PciDevice:
        """The device; unknown keys (dev_id, label) are ignored."""
        numa_node = data.get("numa_node")
        return cls(
            address=str(data["address"]),
            vendor_id=str(data["vendor_id"]),
            product_id=str(data["product_id"]),
            numa_node=None if numa_node is None else int(numa_node),
            dev_type=str(data.get("dev_type") or STANDARD),
            parent_addr=data.get("parent_addr") or None,
            tags=dict(data.get("tags") or {}),
        )
