# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of the module compute_node_info."""

from __future__ import annotations

import re
import typing as t

from ..disks.whole_disks import MEDIA
from ..instances.moves import MOVING
from ..resources.pci.device import DEVICE_TYPES
from .guests import AT_WORK, BOOT_ID, power_state
from .shapes import (
    LARGEST,
    LARGEST_BIG,
    TEXT,
    Field,
    Fields,
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
_domain = record(
    {"uuid": uuid, "name": name, "power_state": power_state},
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

_network = record({"name": name}, {"active": flag, "autostart": flag})
_tunnel = record({"name": name, "vni": count, "mtu": count, "address": name, "peers": names})
_vlan = record({"name": name, "vlan": count, "interface": name, "mtu": count})
_TYPES = 64  # of networks, at most
_NETWORKS = 65536  # of a type, at most
# Of networks, what many nodes share: type -> name -> whether it is active.
NETWORKS: Shape = mapping(name, mapping(name, flag, most=_NETWORKS), most=_TYPES)

_PROFILE: Fields = {
    "cpu_info": Field(
        _cpu_info,
        "CPU of the host, with C(arch), C(model), C(vendor), C(features) and C(topology) (C(sockets), C(cores), C(threads), C(cells)).",
    ),
    "supported_instances": Field(
        items(items(text(), exactly=3)), "Supported guests, as lists of architecture, hypervisor type and VM mode."
    ),
    "stats": Field(
        mapping(name, text()),
        (
            "Capabilities that flavors can request by name, C(disk_backend) and, if set, C(disk_medium).",
            "C(disk_pool) is the pool of the disks, and C(disk_refusal) says why none can be made.",
            "With O(firewall_driver=nftables) C(firewall_driver), or why the host cannot filter ports as C(not_filtering).",
        ),
    ),
}
# What many nodes share: see ledger/compute/profiles.py.
PROFILE: Shape = record({}, _PROFILE)
NODE: Shape = record(
    {
        "hypervisor_hostname": Field(name, "Name of the host in libvirt."),
        "memory_mb": Field(count, "Memory of the host."),
        "local_gb": Field(
            count,
            (
                "Size of the file system that holds O(instances_path), of O(volume_group) or of O(disk_pool).",
                "With O(disk_backend=qcow2_on_lvm) the part of it that disks of guests can use, which excludes the overhead of their file systems.",
            ),
        ),
        "vcpus": Field(count, "Number of CPUs that are online."),
        "domains": Field(
            items(_domain, unique="uuid"),
            (
                "All domains, with C(uuid), C(name), C(power_state) (Nova's number), C(memory_mb), C(vcpus), and C(ours), whether this collection created it.",
                "One with the id of a ledger in its metadata has this as C(ledger), and C(disk_gb), the size of its local disks.",
            ),
        ),
    },
    {
        "host_uuid": Field(text(36), "UUID of the host in libvirt."),
        "boot_id": BOOT_ID,
        "at_work": Field(
            AT_WORK,
            "UUIDs of the guests that a module of this collection defines, starts or stops now. What is reported of them is not their last state.",
        ),
        "host_ip": Field(
            text(64, pattern=re.compile(r"[0-9a-fA-F:.]+")),
            "Address from which the host reaches others, as Nova's C(my_ip); empty without a default route.",
        ),
        "memory_mb_used": Field(count, "Memory that is neither free nor used for buffers or the page cache."),
        "local_gb_used": Field(count, "Used part of it."),
        "vcpus_used": Field(count, "Number of virtual CPUs of the running domains."),
        "disk_available_least": Field(
            maybe(whole(-LARGEST)),
            (
                "Free space minus the space by which the disks of all domains can still grow. May be negative.",
                "For a volume group, its free space.",
            ),
        ),
        "hypervisor_type": Field(text(64), "Kind of hypervisor."),
        "hypervisor_version": Field(count, "Version of the hypervisor as a number, 7002022 for 7.2.22."),
        "libvirt_version": Field(count, "Version of libvirt as a number."),
        **_PROFILE,
        "numa_topology": Field(
            maybe(_numa_topology),
            "NUMA cells, with C(id), C(memory_mb), C(cpus), C(siblings) and C(pages); null where libvirt reports none.",
        ),
        "pci_passthrough_devices": Field(
            PCI_DEVICES,
            (
                "PCI devices that match O(pci_device_spec), whether or not a guest uses them.",
                (
                    "Each has C(address), C(vendor_id), C(product_id), C(numa_node) (null if unknown), C(dev_type) (V(type-PCI), V(type-PF) or"
                    " V(type-VF)), C(parent_addr) (the physical function of a virtual one), C(tags), C(dev_id) and C(label)."
                ),
            ),
        ),
        "isolated_disks": Field(
            DISKS,
            (
                "The disks of O(isolated_disks), with C(path), C(size_gb), C(medium) (V(hdd), V(ssd) or V(nvme)), C(serial) and C(reason).",
                "A disk with a C(reason) is not available to guests.",
            ),
        ),
        "metrics": Field(
            mapping(name, number(-LARGEST_BIG, LARGEST_BIG)),
            (
                (
                    "Metrics of Nova's CPU monitor, C(cpu.frequency) in MHz, C(cpu.user.time), C(cpu.kernel.time), C(cpu.idle.time) and"
                    " C(cpu.iowait.time) in nanoseconds since the host started, the same with C(percent) for C(time), and C(cpu.percent) for all"
                    " but idle."
                ),
                "The percentages cover the time since the previous report.",
                "Empty if libvirt does not provide the numbers.",
            ),
        ),
        "emulators": Field(mapping(name, path), "Path of the emulator for each architecture."),
        "machine_types": Field(mapping(name, names), "Machine types for each architecture."),
        "uefi": Field(flag, "Whether a UEFI firmware for guests is installed."),
        "cpu_models": Field(items(text(255)), "Names of the CPU models that libvirt knows for guests of the host."),
        "unknown_cpu_flags": Field(items(text(255)), "Names of O(cpu_flags) that libvirt does not know."),
        "initiator": Field(
            maybe(text()),
            "Name of the iSCSI initiator of the host, from C(/etc/iscsi/initiatorname.iscsi); null if it has none.",
        ),
        "qemu_iscsi": Field(flag, "Whether QEMU can open iSCSI volumes itself (Debian's qemu-block-extra)."),
        "qemu_rbd": Field(flag, "Whether QEMU can open volumes of Ceph itself (Debian's qemu-block-extra)."),
        "networks": Field(
            mapping(name, items(_network, most=_NETWORKS, unique="name"), most=_TYPES),
            (
                "Networks that the host has, by the words of C(bootflow_networks), V(bridge) and V(network), with C(name) and C(active).",
                "Libvirt networks have C(autostart), too.",
                "V(vlan) and V(macvtap) have the physical networks of O(physical_interface_mappings), which are active if their interfaces are up.",
                "With O(vxlan_address), V(vxlan) has C(underlay), which is active if an interface has the address; otherwise it is empty.",
                "V(ovn) has the integration bridge of Open vSwitch, which is active while ovn-controller has a connection.",
                "A type whose networks could not be read is left out.",
            ),
        ),
        "vxlan_networks": Field(
            items(_tunnel, most=_NETWORKS, unique="name"),
            (
                "VXLAN networks that M(bootflow.compute.virtual_network) made on the host and did not remove, with C(name) (the bridge), C(vni),"
                " C(mtu), C(address) (of the host in the underlay) and C(peers) (of the other hosts)."
            ),
        ),
        "vlan_networks": Field(
            items(_vlan, most=_NETWORKS, unique="name"),
            (
                "VLAN networks that M(bootflow.compute.virtual_network) made on the host and did not remove, with C(name) (the bridge), C(vlan),"
                " C(interface) (of the physical network) and C(mtu)."
            ),
        ),
        "virt_type": Field(choice("kvm", "qemu"), "Virtualization type of guests, V(kvm) or V(qemu)."),
        "virt_type_reason": Field(message, "Reason for RV(compute_node.virt_type)."),
        "instance_folders": Field(
            items(uuid),
            "UUIDs that have a directory below O(instances_path), without instances of other ledgers than O(ledger_id).",
        ),
        "complete_guests": Field(
            items(uuid),
            (
                (
                    "UUIDs of the guests whose builds have ended here, or that have arrived here from other hosts, without instances of other"
                    " ledgers than O(ledger_id)."
                ),
                "Guests that were waited for and did not come up, and guests that are being removed, are left out.",
            ),
        ),
        "instance_volumes": Field(
            mapping(uuid, names),
            (
                "Names of the logical volumes in O(volume_group) that are tagged for an instance, by UUID of the instance.",
                "Items of other ledgers than O(ledger_id) are left out.",
            ),
            returned="with the disk backends lvm and qcow2_on_lvm",
        ),
        "running_domains": Field(count, "Number of running domains."),
        "guest_content": Field(
            items(message),
            (
                (
                    "Why the content of guests' disks can do harm on this host, as texts. Volume groups, arrays and the like that the host"
                    " activated from it, and the settings of udev and LVM that are missing (M(bootflow.compute.guest_content) writes them)."
                ),
                "Empty for a host without block devices of guests.",
            ),
        ),
    },
)

ISCSI: Shape = record(
    {
        "sessions": Field(
            items(_session),
            (
                (
                    "Targets that the host is logged in to or has a record of, with C(iqn), C(volume_id), C(session) (whether it is logged in),"
                    " C(luns), C(portals) and C(in_use), the reasons why their disks cannot be removed."
                ),
            ),
            returned="always",
        ),
        "secrets": Field(
            items(record({"iqn": name, "volume_id": name})),
            "Targets whose secret this collection defined in libvirt, with C(iqn) and C(volume_id).",
            returned="always",
        ),
    },
    {
        "error": Field(
            error,
            "Why these could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.",
            returned="always",
        )
    },
)

_reservation = record({"mac": name, "address": name, "complete": flag, "used": flag})
_networks: Shape = items(record({"name": name, "ours": flag, "reservations": items(_reservation)}), unique="name")
DHCP: Shape = record(
    {
        "networks": Field(
            _networks,
            (
                "All libvirt networks, with C(name), C(ours) (whether this collection defined it) and C(reservations).",
                (
                    "A reservation has C(mac), C(address), C(complete) (whether both the running and the persistent definition have it) and"
                    " C(used) (whether a domain of the host has the MAC address)."
                ),
            ),
            returned="always",
        )
    },
    {
        "error": Field(
            error,
            "Why these could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.",
            returned="always",
        ),
        "unplugged": items(record({"uuid": uuid, "device": name, "mac": name, "source": name, "bridge": text()})),
    },
)

ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "port_filters": (
        {
            "superseded": Field(
                flag, "Whether the host has filters of a later revision of the same ledger, which stay."
            ),
            "revision": Field(whole(), "Revision of the filters that the host has."),
            "present": Field(items(uuid), "IDs of the ports whose devices the host has at this moment."),
        },
        {},
    ),
    "compute_node_info": (
        {"compute_node": Field(NODE, "Facts of the host. Memory is in MiB, disk in GiB.")},
        {
            "iscsi": Field(
                ISCSI,
                "Sessions, records and secrets of targets that are not in O(known_targets).",
                returned="with O(iqn_prefixes)",
            ),
            "dhcp": Field(
                DHCP, "DHCP reservations of the libvirt networks of the host.", returned="with O(list_reservations)"
            ),
        },
    ),
}
