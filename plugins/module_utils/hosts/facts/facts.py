# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The resources and usage of a compute node, in the fields of Nova's get_available_resource."""

from __future__ import annotations

import contextlib
import glob
import os
import socket
import typing as t
from functools import partial
from xml.sax.saxutils import escape, quoteattr

from ...core.adopt.description import made_by
from ...core.disks.local import POOL_STAT
from ...core.disks.rescue import is_rescue
from ...core.disks.stores.registry import DEFAULT
from ...core.errors import BootflowError, InvalidInput
from ...core.guest.domain.element import parse, to_text
from ...core.guest.domain.metadata import NovaInstanceConfig
from ...core.guest.domain.namespaces import NOVA_NAMESPACE
from ...core.guest.names import cpu_flag_name
from ...core.instances.move_mark import is_complete
from ...core.instances.power_states import power_state_of
from ...core.volumes.connectors.registry import CONNECTOR_TYPES
from ...core.volumes.disk_pool import DiskPool
from ...core.volumes.names import check_initiator
from ..bridges.made_bridges import recorded
from ..bridges.tunnels import Tunnel
from ..bridges.vlans import Vlan
from ..copies.other_disks import other_disks
from ..disks.stores.registry import store_of
from ..disks.whole.devices import isolated_disks
from ..firewall.facts import filtering_facts
from ..libvirt.connection import libvirt, libvirt_errors
from ..libvirt.domains import definitions_of, ledger_of_domain
from ..libvirt.network_types.network_type import NO_UPLINKS, Uplinks
from ..libvirt.network_types.registry import found_networks
from ..libvirt.qemu_user import other_user
from ..live.state import moving_of
from ..os import guest_rules
from ..os.boots import boot_id
from ..os.locks import guests_at_work
from ..os.ownership import is_of_another, ledger_of_folder, made_for
from ..os.paths import checked_instances_path, checked_uuid
from .metrics import cpu_metrics
from .pci import pci_passthrough_devices
from .virt_probe import Verdict, working_virt_type

INITIATOR_FILE = "/etc/iscsi/initiatorname.iscsi"
# QEMU has block drivers with external libraries in separate files; distributions install them in these directories.
QEMU_MODULES = (
    "/usr/lib/*/qemu/block-iscsi.so",
    "/usr/lib/qemu/block-iscsi.so",
    "/usr/lib64/qemu/block-iscsi.so",
    "/usr/lib64/qemu-kvm/block-iscsi.so",
)

#: Our names of libvirt's architectures that differ. source: Nova's canonical architecture names
_CANONICAL_ARCH = {"i386": "i686", "i486": "i686", "i586": "i686", "amd64": "x86_64", "arm64": "aarch64"}


def compute_node(
    connection: t.Any,
    instances_path: str,
    virt_type: str = "auto",
    arch: str = "",
    write_cache: bool = True,
    pci_device_spec: t.Any = (),
    isolated_disk_paths: t.Sequence[str] = (),
    disk_backend: str = DEFAULT,
    volume_group: str = "",
    disk_medium: str = "",
    ledger_id: str = "",
    volume_attach: str = "",
    cpu_flags: t.Sequence[str] = (),
    volumes: t.Mapping[str, t.Mapping[str, str]] | None = None,
    filters_ports: bool = False,
    uplinks: Uplinks = NO_UPLINKS,
    disk_pool: DiskPool | None = None,
) -> dict[str, t.Any]:
    """Return the facts of this host for the scheduler and the XML of guests.

    :arg virt_type: auto (probed), kvm or qemu.
    :arg arch: architecture of future guests; "" for that of the host.
    :arg write_cache: store the result of the probe and the CPU times below instances_path.
    :arg pci_device_spec: PCI devices that guests may use, in the format of Nova's passthrough_whitelist.
    :arg isolated_disk_paths: physical disks that can be given to guests as a whole.
    :arg disk_backend: storage of the local disks of guests; where it needs a volume group, the sizes are the sizes of ``volume_group``,
        and where it needs a pool, the sizes of ``disk_pool``. With a pool that takes no instance the stats have ``disk_refusal``, the reason.
    :arg ledger_id: folders and logical volumes of other ledgers are not reported; their domains are, with their ledger.
    :arg volume_attach: how guests of this host get volumes, one of CONNECTOR_TYPES; "": not known, and nothing is reported of it.
    :arg cpu_flags: CPU features that guests are to have or not to have, such as ``+pcid``; flags unknown to libvirt are reported.
    :arg volumes: also list the disks of guests that are not the instances'; uuid -> id of a volume that it has -> where this host has it.
    :arg disk_medium: medium of the local disks as configured: hdd, ssd, nvme.
    :arg filters_ports: this host is to filter the ports of its guests: whether it can is reported.
    :arg uplinks: where the host has its networks over hosts.
    :raises InvalidInput: an entry of pci_device_spec is not valid, or the volume group is not set.
    :raises DriverNotInitialized: the volume group does not exist.
    :raises HypervisorUnavailable: libvirt is not running, or virt_type is kvm and libvirt does not offer it, or QEMU's user may not open /dev/kvm.
    """
    instances_path = checked_instances_path(instances_path)
    working = guests_at_work()  # and again after their states: that of a guest in between is not taken for its last
    # Before the domains: a guest that is built meanwhile is at work, and not one without a domain.
    marks = {uuid: made_for(os.path.join(instances_path, uuid)) for uuid in instance_folders(instances_path, ledger_id)}
    with libvirt_errors():
        capabilities = parse(connection.getCapabilities())
        domains = list_domains(connection)
        host_cpu = cpu_info(connection, capabilities)
        guests = guest_support(capabilities)
        arch = _canonical(arch) or host_cpu["arch"]
        emulator = guests["emulators"].get(arch, "")
        kvm_listed = "kvm" in guests["domain_types"].get(arch, ())
        user = other_user(capabilities)
        verdict = working_virt_type(virt_type, emulator, arch, instances_path, kvm_listed, write_cache, user)
        node: dict[str, t.Any] = {
            "hypervisor_hostname": connection.getHostname(),
            "host_uuid": capabilities.findtext("host/uuid") or "",
            "host_ip": host_ip(),
            "boot_id": boot_id(),
            "vcpus": online_cpus(connection),
            "memory_mb": int(connection.getInfo()[1]),
            "memory_mb_used": memory_used_mb(),
            "hypervisor_type": connection.getType(),
            "hypervisor_version": connection.getVersion(),
            "libvirt_version": connection.getLibVersion(),
            "cpu_info": host_cpu,
            "numa_topology": numa_topology(capabilities),
            "supported_instances": [
                row for row in guests["supported_instances"] if verdict.virt_type == "kvm" or row[1] != "kvm"
            ],
            "pci_passthrough_devices": pci_passthrough_devices(connection, pci_device_spec),
            "isolated_disks": isolated_disks(
                isolated_disk_paths, block_devices_of(domains) if isolated_disk_paths else {}
            ),
            "metrics": cpu_metrics(connection, instances_path, write_cache),
            "emulators": guests["emulators"],
            "machine_types": guests["machine_types"],
            **guest_capabilities(connection, emulator, arch, verdict),
            "unknown_cpu_flags": unknown_cpu_flags(connection, arch, cpu_flags),
            "initiator": initiator_name(),
            "qemu_iscsi": qemu_opens_iscsi(),
            "qemu_rbd": qemu_opens_rbd(),
            "networks": network_facts(connection, uplinks),
            "vxlan_networks": vxlan_facts(),
            "vlan_networks": vlan_facts(),
        }
        store = store_of(disk_backend, volume_group, ledger_id, disk_pool)
        sizes = store.facts(instances_path, partial(overcommitted_bytes, domains))
        refusal = {"disk_refusal": str(sizes.pop("disk_refusal"))[:255]} if sizes.get("disk_refusal") else {}
        node.update(sizes)
        medium = {"disk_medium": disk_medium} if disk_medium else {}
        shared = {POOL_STAT: disk_pool.place[:255]} if disk_pool is not None and store.type.is_shared else {}
        node["stats"] = {"disk_backend": disk_backend, **medium, **shared, **refusal}
        if filters_ports:
            node["stats"].update(filtering_facts())
        node["vcpus_used"] = vcpus_used(domains)
    logs_in = bool(volume_attach) and CONNECTOR_TYPES[volume_attach].host_logs_in
    connects = (logs_in and bool(node["initiator"])) or bool(isolated_disk_paths)
    node["guest_content"] = guest_rules.exposed(connects) if connects or store.type.needs_group else []
    if node["guest_content"]:
        node["stats"]["guest_content"] = "; ".join(node["guest_content"])[:255]
    if virt_type == "auto" and verdict.virt_type == "qemu":
        node["stats"]["emulated"] = verdict.reason[:255]
    node["virt_type"] = verdict.virt_type
    node["virt_type_reason"] = verdict.reason
    node["domains"] = domain_facts(domains)
    if volumes is not None:
        _add_other_disks(node["domains"], domains, instances_path, volumes)
    node["at_work"] = sorted(working | guests_at_work())
    node["instance_folders"] = instance_folders(instances_path, ledger_id)
    node["complete_guests"] = complete_guests(marks, node["domains"], ledger_id)
    node["running_domains"] = sum(1 for d in domains if d["active"])
    return node


def host_ip() -> str:
    """Return the address from which this host reaches others: IPv4, else IPv6, else empty. source: Nova's my_ip

    Connecting a datagram socket sends nothing: the kernel only looks the route up. The addresses are of documentation.
    """
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
    return ""


def network_facts(connection: t.Any, uplinks: Uplinks = NO_UPLINKS) -> dict[str, list[dict[str, t.Any]]]:
    """Return type -> the networks of the host, with name, active and, where they have that setting, autostart."""
    return {
        kind: [{key: value for key, value in network._asdict().items() if value is not None} for network in networks]
        for kind, networks in found_networks(connection, uplinks).items()
    }


def vxlan_facts() -> list[dict[str, t.Any]]:
    """Return the VXLAN networks that the collection made on this host, with name, vni, mtu, address and peers."""
    return [
        {
            "name": tunnel.bridge,
            "vni": tunnel.vni,
            "mtu": tunnel.mtu,
            "address": tunnel.address,
            "peers": list(tunnel.peers),
        }
        for tunnel in recorded(Tunnel)
    ]


def vlan_facts() -> list[dict[str, t.Any]]:
    """Return the VLAN networks that the collection made on this host, with name, vlan, interface and mtu."""
    return [
        {"name": vlan.bridge, "vlan": vlan.vlan, "interface": vlan.interface, "mtu": vlan.mtu}
        for vlan in recorded(Vlan)
    ]


def _canonical(arch: str) -> str:
    return _CANONICAL_ARCH.get(arch, arch)


def online_cpus(connection: t.Any) -> int:
    """Return the number of the host's CPUs that are online."""
    try:
        return int(connection.getCPUMap(0)[2])
    except libvirt.libvirtError:
        return int(connection.getInfo()[2])


def memory_used_mb(meminfo: str = "/proc/meminfo") -> int:
    """Return the memory in MB that is neither free nor buffers nor page cache, as Nova counts.

    Relative to the kernel's own total: that of libvirt, the sum of the NUMA cells, lacks hot-plugged memory.
    """
    values = {}
    with open(meminfo, encoding="ascii") as file:
        for line in file:
            name, _colon, rest = line.partition(":")
            values[name] = int(rest.split()[0])
    available = values.get("MemFree", 0) + values.get("Buffers", 0) + values.get("Cached", 0)
    return max(0, values.get("MemTotal", 0) - available) // 1024


def list_domains(connection: t.Any) -> list[dict[str, t.Any]]:
    """List all domains of the host, except domains that disappear meanwhile."""
    rows = []
    for domain in connection.listAllDomains(0):
        try:
            state = domain.info()[0]
            rows.append(
                {
                    "uuid": domain.UUIDString(),
                    "name": domain.name(),
                    "power_state": power_state_of(state),
                    "active": bool(domain.isActive()),
                    "domain": domain,
                }
            )
        except libvirt.libvirtError:
            continue
    return sorted(rows, key=lambda row: str(row["name"]))


def domain_facts(domains: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return uuid, name, power_state, memory_mb and vcpus of each domain; whether this collection created it (``ours``), and for which ledger.

    disk_gb is the size of its local disks according to our metadata, ``rescued`` is there (true) if it is the domain of a rescue, ``moving`` if its
    guest migrates, or went on elsewhere.
    """
    facts = []
    for row in domains:
        try:
            xml = parse(row["domain"].XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
            _state, most, _now, cpus, _time = row["domain"].info()
            moving = moving_of(row["domain"])
        except libvirt.libvirtError:
            continue
        facts.append(
            {
                "uuid": row["uuid"],
                "name": row["name"],
                "power_state": row["power_state"],
                "memory_mb": int(most) // 1024,
                "vcpus": int(cpus),
                "ours": made_by_us(xml),
                **_owner(xml),
                **({"rescued": True} if is_rescue(xml, row["uuid"]) else {}),
                **({"moving": moving} if moving else {}),
            }
        )
    return facts


def _add_other_disks(
    facts: t.Iterable[dict[str, t.Any]],
    domains: t.Iterable[t.Mapping[str, t.Any]],
    instances_path: str,
    volumes: t.Mapping[str, t.Mapping[str, str]],
) -> None:
    """Enter as ``other_disks`` what guests of ours write to and is not the instance's, as "vda: /path"."""
    known = {row["uuid"]: row["domain"] for row in domains}
    for fact in facts:
        if fact["ours"]:
            with contextlib.suppress(BootflowError, libvirt.libvirtError):
                definitions = definitions_of(known[fact["uuid"]])
                paths_by_target = other_disks(
                    definitions, os.path.join(instances_path, fact["uuid"]), volumes.get(fact["uuid"])
                )
                if paths_by_target:
                    fact["other_disks"] = [
                        "%s: %s" % target_and_path for target_and_path in sorted(paths_by_target.items())
                    ]


def made_by_us(xml: t.Any) -> bool:
    """Return whether the XML has the metadata of an instance and our name as its creator; Nova's own guests have the metadata too."""
    return made_by(xml) == "bootflow"


def _owner(xml: t.Any) -> dict[str, t.Any]:
    """Return the ledger in the metadata, if it has one, and the size of the guest's local disks."""
    try:
        ledger_id = checked_uuid(ledger_of_domain(xml))
    except InvalidInput:
        return {}
    nova = NovaInstanceConfig.from_xml(xml.find("metadata/{%s}instance" % NOVA_NAMESPACE)) if made_by_us(xml) else None
    if nova is None or nova.flavor is None:
        return {"ledger": ledger_id}
    local = nova.flavor.disk if nova.root_type == "image" else 0
    return {"ledger": ledger_id, "disk_gb": local + nova.flavor.ephemeral}


def instance_folders(instances_path: str, ledger_id: str = "") -> list[str]:
    """Return the UUIDs with a directory below ``instances_path``, without instances of other ledgers."""
    try:
        names = os.listdir(instances_path)
    except OSError:
        return []
    uuids = []
    for name in names:
        with contextlib.suppress(InvalidInput):  # the image cache, locks, and items of others
            uuid = checked_uuid(name)
            if not is_of_another(ledger_of_folder(os.path.join(instances_path, uuid)), ledger_id):
                uuids.append(uuid)
    return sorted(uuids)


def complete_guests(
    marks: t.Mapping[str, str], domains: t.Iterable[t.Mapping[str, t.Any]], ledger_id: str = ""
) -> list[str]:
    """Return the UUIDs of the guests that are built here, or have arrived here, even if their domains are gone.

    :arg marks: of the instances' folders. :arg domains: as in domain_facts(); domains of others, and of other ledgers, do not count
    """
    own_domains = {d["uuid"] for d in domains if d["ours"] and not is_of_another(d.get("ledger") or "", ledger_id)}
    return sorted(uuid for uuid in {*marks, *own_domains} if is_complete(marks.get(uuid, ""), uuid in own_domains))


def vcpus_used(domains: t.Iterable[t.Mapping[str, t.Any]]) -> int:
    """Return the virtual CPUs of the running domains."""
    total = 0
    for row in domains:
        if row["active"]:
            with contextlib.suppress(libvirt.libvirtError):
                total += int(row["domain"].info()[3])
    return total


def overcommitted_bytes(domains: t.Iterable[t.Mapping[str, t.Any]]) -> int:
    """Return the bytes by which the files of the domains can still grow: virtual minus allocated size.

    The virtual size comes from libvirt, which uses the format in the definition of the domain and does not probe the disk.
    """
    total = 0
    for row in domains:
        domain = row["domain"]
        try:
            xml = parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        except libvirt.libvirtError:
            continue
        for source in xml.iterfind("devices/disk[@type='file']/source[@file]"):
            if source.getparent().get("device", "disk") == "disk":
                with contextlib.suppress(libvirt.libvirtError, OSError):
                    capacity = int(domain.blockInfo(source.get("file"), 0)[0])
                    total += capacity - os.stat(source.get("file")).st_blocks * 512
    return total


def block_devices_of(domains: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, t.Mapping[str, t.Any]]:
    """Return the real path of each block device that is a disk of a domain, now or at its next start -> the domain, as in list_domains()."""
    domain_of_device: dict[str, t.Mapping[str, t.Any]] = {}
    for row in domains:
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            try:
                xml = parse(row["domain"].XMLDesc(flags))
            except libvirt.libvirtError:
                continue
            for source in xml.iterfind("devices/disk[@type='block']/source[@dev]"):
                domain_of_device.setdefault(os.path.realpath(source.get("dev")), row)
    return domain_of_device


def cpu_info(connection: t.Any, capabilities: t.Any) -> dict[str, t.Any]:
    """Return arch, model, vendor, features (all, sorted), topology {sockets, cores, threads, cells} and maxphysaddr of the host's CPU."""
    cpu = capabilities.find("host/cpu")
    topology = cpu.find("topology") if cpu.find("topology") is not None else {}
    features = {feature.get("name") for feature in cpu.iterfind("feature")}
    features |= _model_features(connection, cpu)
    return {
        "arch": _canonical(cpu.findtext("arch") or ""),
        "model": cpu.findtext("model") or "",
        "vendor": cpu.findtext("vendor") or "",
        "features": sorted(str(name) for name in features if name),
        "topology": {
            **{name: int(topology.get(name, 1)) for name in ("sockets", "cores", "threads")},
            "cells": max(1, len(capabilities.findall("host/topology/cells/cell"))),
        },
        **_physical_address_bits(cpu),
    }


def _physical_address_bits(cpu: t.Any) -> dict[str, t.Any]:
    """Return ``maxphysaddr`` with its mode and bits, as in Nova; nothing where libvirt (before 8.7) does not know it."""
    element = cpu.find("maxphysaddr")
    if element is None:
        return {}
    bits = {"bits": int(element.get("bits"))} if element.get("bits") else {}
    return {"maxphysaddr": {"mode": element.get("mode") or "", **bits}}


def _model_features(connection: t.Any, cpu: t.Any) -> set[str]:
    """Return the features that the CPU model implies; capabilities list only additional ones."""
    if cpu.find("model") is None:
        return set()
    try:
        expanded = connection.baselineCPU([to_text(cpu)], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
    except libvirt.libvirtError:
        return set()
    return {str(f.get("name")) for f in parse(expanded).iterfind("feature") if f.get("policy") != "disable"}


def guest_support(capabilities: t.Any) -> dict[str, t.Any]:
    """Return from the capabilities' guests: supported_instances [[arch, hv_type, vm_mode]], and per architecture the emulator,
    the machine types (aliases and their targets) and the domain types."""
    result: dict[str, t.Any] = {"supported_instances": [], "emulators": {}, "machine_types": {}, "domain_types": {}}
    for guest in capabilities.iterfind("guest"):
        arch_element = guest.find("arch")
        arch = _canonical(arch_element.get("name"))
        vm_mode = guest.findtext("os_type") or "hvm"
        kinds = [domain.get("type") for domain in arch_element.iterfind("domain")]
        for kind in kinds:
            if [arch, kind, vm_mode] not in result["supported_instances"]:
                result["supported_instances"].append([arch, kind, vm_mode])
        result["domain_types"].setdefault(arch, kinds)
        result["emulators"].setdefault(arch, arch_element.findtext("emulator") or "")
        names = result["machine_types"].setdefault(arch, [])
        for machine in arch_element.iterfind("machine"):
            for name in (machine.text, machine.get("canonical")):
                if name and name not in names:
                    names.append(name)
    return result


def numa_topology(capabilities: t.Any) -> dict[str, t.Any] | None:
    """Return the NUMA cells of the host; None if libvirt reports none. Memory in MB, pages in kB."""
    cells = []
    for cell in capabilities.iterfind("host/topology/cells/cell"):
        cpus, siblings = [], []
        for cpu in cell.iterfind("cpus/cpu"):
            cpus.append(int(cpu.get("id")))
            group = parse_cpu_list(cpu.get("siblings") or cpu.get("id"))
            if group not in siblings:
                siblings.append(group)
        cells.append(
            {
                "id": int(cell.get("id")),
                "memory_mb": int(cell.findtext("memory") or 0) // 1024,
                "cpus": sorted(cpus),
                "siblings": siblings,
                "pages": [
                    {"size_kb": int(page.get("size")), "total": int(page.text or 0)} for page in cell.iterfind("pages")
                ],
            }
        )
    return {"cells": cells} if cells else None


def parse_cpu_list(text: str) -> list[int]:
    """Parse "0-2,5" as [0, 1, 2, 5]."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    return sorted(numbers)


def guest_capabilities(connection: t.Any, emulator: str, arch: str, verdict: Verdict) -> dict[str, t.Any]:
    """Return libvirt's offer to the guests: ``uefi``, whether it finds such a firmware, and ``cpu_models``, the names of all CPU models, also
    models that the host's CPU does not have: with extra flags some run. Both are empty where libvirt does not answer.
    """
    try:
        capabilities = parse(
            connection.getDomainCapabilities(emulator or None, arch or None, None, verdict.virt_type, 0)
        )
    except libvirt.libvirtError:
        return {"uefi": False, "cpu_models": []}
    models = capabilities.iterfind("cpu/mode[@name='custom']/model")
    return {
        "uefi": any(value.text == "efi" for value in capabilities.iterfind("os/enum[@name='firmware']/value")),
        "cpu_models": sorted({str(model.text) for model in models if model.text}),
    }


def unknown_cpu_flags(connection: t.Any, arch: str, flags: t.Iterable[str]) -> list[str]:
    """Return the names of ``flags`` that libvirt knows of no CPU of ``arch``: no guest with them starts."""
    unknown = []
    for name in sorted({cpu_flag_name(flag) for flag in flags}):
        cpu = "<cpu><arch>%s</arch><model>qemu64</model><feature name=%s/></cpu>" % (escape(arch), quoteattr(name))
        try:
            connection.baselineCPU([cpu], 0)
        except libvirt.libvirtError as error:
            if "nknown CPU feature" in str(error):
                unknown.append(name)
    return unknown


def initiator_name(path: str = INITIATOR_FILE) -> str | None:
    """Return the name with which the kernel's initiator logs in; None if the host has none (yet). source: initiatorname.iscsi(5)"""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return None
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == "InitiatorName":
            try:
                return check_initiator(value.strip())
            except InvalidInput:
                return None
    return None


def qemu_opens_iscsi(patterns: t.Sequence[str] = QEMU_MODULES) -> bool:
    """Return whether QEMU's iSCSI driver is installed. QEMU lists it among its formats even if it is not."""
    return any(glob.glob(pattern) for pattern in patterns)


def qemu_opens_rbd(patterns: t.Sequence[str] = QEMU_MODULES) -> bool:
    """Return whether QEMU's driver of Ceph is installed."""
    return qemu_opens_iscsi([pattern.replace("block-iscsi", "block-rbd") for pattern in patterns])
