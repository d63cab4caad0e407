# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of the module compute_node_info."""

from __future__ import annotations

import re
import typing as t

from ..disks.whole_disks import MEDIA
from ..instances import power_states
from ..instances.moves import MOVING
from ..resources.pci.device import DEVICE_TYPES
from .shapes import (
    LARGEST,
    LARGEST_BIG,
    TEXT,
    Misshapen,
    Shape,
    choice,
    count,
    error,
    flag,
    items,
    mapping,
    maybe,
    message,
    name,
    names,
    number,
    path,
    prose,
    record,
    size,
    text,
    uuid,
    whole,
)

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HEX = re.compile(r"[0-9a-f]{4}")

_cpus = items(count, most=65536, unique=".")
_numa_record = record(
    {
        "cells": items(
            record(
                {"id": count, "cpus": _cpus, "memory_mb": count},
                {
                    "siblings": items(_cpus),
                    "pages": items(record({"size_kb": whole(1), "total": size}), unique="size_kb"),
                },
            ),
            unique="id",
        )
    }
)


def _numa_topology(value: t.Any, where: str) -> None:
    """A CPU that two cells or two cores had would be given to two guests."""
    _numa_record(value, where)
    _once([cell["cpus"] for cell in value["cells"]], where + ".cells", "each CPU in one cell")
    for place, cell in enumerate(value["cells"]):
        _once(cell.get("siblings") or (), "%s.cells[%d].siblings" % (where, place), "each CPU in one core")


def _once(groups: t.Iterable[t.Sequence[int]], where: str, expects: str) -> None:
    seen: set[int] = set()
    for group in groups:
        if not seen.isdisjoint(group):
            raise Misshapen(where, expects, sorted(seen.intersection(group)))
        seen.update(group)


_pci_device = record(
    {
        "address": text(least=1, pattern=_PCI_ADDRESS),
        "vendor_id": text(least=4, pattern=_HEX),
        "product_id": text(least=4, pattern=_HEX),
    },
    {
        "numa_node": maybe(count),
        "dev_type": choice(*DEVICE_TYPES),
        "parent_addr": maybe(text(pattern=_PCI_ADDRESS)),
        "tags": mapping(name, maybe(text(TEXT))),
    },
)
PCI_DEVICES: Shape = items(_pci_device, unique="address")
_disk = record(
    {"path": text(least=1), "size_gb": count},
    {"medium": choice("", *MEDIA), "serial": text(TEXT), "reason": message, "domain": text()},
)
DISKS: Shape = items(_disk, unique="path")
_cpu_info = record(
    {},
    {
        "arch": text(64),
        "model": text(),
        "vendor": text(),
        "features": items(text()),
        "topology": record({}, dict.fromkeys(("sockets", "cores", "threads", "cells"), whole(1))),
        "maxphysaddr": maybe(record({}, {"bits": maybe(count), "mode": text()})),
    },
)
_power_state = choice(*power_states.POWER_STATES)
POWER_STATES: Shape = mapping(uuid, _power_state)
_domain = record(
    {"uuid": uuid, "name": name, "power_state": _power_state},
    {
        "memory_mb": maybe(count),
        "vcpus": maybe(count),
        "ours": flag,
        "ledger": uuid,
        "disk_gb": count,
        "rescued": flag,
        "other_disks": items(message),
        "moving": choice(*MOVING),
    },
)
_session = record(
    {
        "iqn": name,
        "volume_id": name,
        "session": flag,
        "luns": items(count),
        "portals": names,
        "in_use": items(message),
    }
)

_PROFILE: dict[str, Shape] = {
    "cpu_info": _cpu_info,
    "supported_instances": items(items(text(), exactly=3)),
    "stats": mapping(name, text()),
}
# What many nodes share: see ledger/compute/profiles.py.
PROFILE: Shape = record({}, _PROFILE)
BOOT_ID: Shape = text(64)
AT_WORK: Shape = items(uuid)
NODE: Shape = record(
    {
        "hypervisor_hostname": name,
        "memory_mb": count,
        "local_gb": count,
        "vcpus": count,
        "domains": items(_domain, unique="uuid"),
    },
    {
        "host_uuid": text(36),
        "boot_id": BOOT_ID,
        "at_work": AT_WORK,
        "host_ip": text(64, pattern=re.compile(r"[0-9a-fA-F:.]+")),
        "memory_mb_used": count,
        "local_gb_used": count,
        "vcpus_used": count,
        "disk_available_least": maybe(whole(-LARGEST)),
        "hypervisor_type": text(64),
        "hypervisor_version": count,
        "libvirt_version": count,
        **_PROFILE,
        "numa_topology": maybe(_numa_topology),
        "pci_passthrough_devices": PCI_DEVICES,
        "isolated_disks": DISKS,
        "metrics": mapping(name, number(-LARGEST_BIG, LARGEST_BIG)),
        "emulators": mapping(name, path),
        "machine_types": mapping(name, names),
        "uefi": flag,
        "cpu_models": items(text(255)),
        "unknown_cpu_flags": items(text(255)),
        "initiator": maybe(text()),
        "qemu_iscsi": flag,
        "virt_type": choice("kvm", "qemu"),
        "virt_type_reason": message,
        "instance_folders": items(uuid),
        "complete_guests": items(uuid),
        "instance_volumes": mapping(uuid, names),
        "running_domains": count,
        "guest_content": items(message),
    },
)

ISCSI: Shape = record(
    {"sessions": items(_session), "secrets": items(record({"iqn": name, "volume_id": name}))}, {"error": error}
)

_reservation = record({"mac": name, "address": name, "complete": flag, "used": flag})
DHCP: Shape = record(
    {"networks": items(record({"name": name, "ours": flag, "reservations": items(_reservation)}), unique="name")},
    {
        "error": error,
        "unplugged": items(record({"uuid": uuid, "device": name, "mac": name, "source": name, "bridge": text()})),
    },
)

KEPT_UNUSED: Shape = items(record({"name": path, "error": record({"code": name, "message": prose})}))
UNUSED_IMAGES: Shape = items(record({"path": path, "size": size, "age": number(most=LARGEST_BIG)}))
