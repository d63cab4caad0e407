# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict on domains that may become instances: what each becomes, or why it cannot, and what would make it adoptable.

Plain data in, plain data out. The domains of a run are judged in order, so that two of them never get one name, address or device.
"""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass, field

from ..instances import states
from ..instances.power_states import NOSTATE, POWER_PAUSED, POWER_STATES, RUNNING, SHUTDOWN
from ..networks.ipam import parse_ip, usable_range
from ..networks.network import Network
from ..networks.subnet import Subnet
from ..resources.numa.topology import DEDICATED, GuestCell, GuestNUMATopology, HostNUMATopology
from ..resources.pci.device import PciDevice

GIB = 1024**3
LONGEST_NAME = 255  # characters, of Nova
DISK_TYPES = ("file", "block", "network", "volume")

#: power_state of the guest -> vm_state of the instance. A guest in any other state is not adopted.
VM_STATES = {
    RUNNING: states.ACTIVE,
    POWER_PAUSED: states.PAUSED,
    SHUTDOWN: states.STOPPED,
}

ADOPT, ADOPTED, REFUSED = "adopt", "adopted", "refused"

#: Code of a refusal -> (what is so, what makes the domain adoptable).
REFUSALS: dict[str, tuple[str, str]] = {
    "unreadable": ("%s", "Correct the definition (virsh edit)."),
    "no_report": ("host %s has not reported yet", "Run bootflow.compute.heartbeat first."),
    "made_by_bootflow": (
        "this collection made the domain",
        "bootflow.compute.audit says what became of its instance. A domain of another ledger is that ledger's.",
    ),
    "made_by_nova": (
        "the domain is an instance of Nova",
        (
            "Remove it from Nova without its domain, then its metadata:"
            " virsh metadata DOMAIN --uri http://openstack.org/xmlns/libvirt/nova/1.1 --remove --config --live."
        ),
    ),
    "other_ledger": ("the domain belongs to the ledger %s", "Release it with that ledger: bootflow.compute.release."),
    "uuid_in_ledger": ("the ledger has its UUID for instance %s on %s", "Undefine the copy, or define it with another UUID."),
    "uuid_on_two_hosts": (
        "its UUID is on %s as well",
        "Find out which of the two has the guest's data, and undefine the other one or define it with another UUID.",
    ),
    "cleanup_due": ("host %s has to be cleaned of a deleted instance with its UUID", "Run bootflow.compute.audit first."),
    "name_invalid": (
        "%r is not a name for an instance: 1 to 255 printable characters, no space first or last",
        "Name it in bootflow_adopt_names.",
    ),
    "name_taken": ("the project %s has another instance %s", "Give it another name in bootflow_adopt_names."),
    "transient": ("the domain is transient: it is gone when its guest ends", "Define it: virsh dumpxml DOMAIN > FILE; virsh define FILE."),
    "power_state": ("the guest is %s", "Bring it into a state that a ledger keeps: running, paused or shut off."),
    "at_work": ("%s works on the guest", "Wait until that ends (virsh domjobinfo DOMAIN), and adopt it then."),
    "disk_type": ("disk %s is of type %s, which nothing here knows", "Give the guest a disk of type file, block, network or volume."),
    "whole_disk": (
        "disk %s is %s, which bootflow_isolated_disks gives to guests whole",
        "Take it out of bootflow_isolated_disks of the host, and run bootflow.compute.heartbeat.",
    ),
    "device": ("%s cannot be claimed", "Detach the device (virsh detach-device), or leave the domain out."),
    "pci_unknown": (
        "the host does not report its PCI device %s",
        "Add the device to bootflow_pci_device_spec of the host, and run bootflow.compute.heartbeat.",
    ),
    "pci_taken": ("PCI device %s is claimed for another instance", "Compare virsh dumpxml of both guests: only one of them can have the device."),
    "cpu_taken": ("CPU %d of the host is pinned for another instance", "Pin the guest to other CPUs (virsh vcpupin), or migrate the instance."),
    "network_unknown": (
        "interface %s is in %s %s, the source of none of bootflow_networks",
        "Add a network with this source to bootflow_networks, or set bootflow_adopt_other_interfaces: true, which adopts the guest without a port for it.",
    ),
    "mac_missing": ("an interface has no MAC address", "Give it one (virsh edit)."),
    "mac_taken": ("MAC address %s belongs to %s", "Give the interface another MAC address, or delete the port that has it."),
    "address_taken": (
        "address %s of network %s is in use: %s has it",
        "Give the guest another address, or delete the port that has it.",
    ),
    "machine_unknown": (
        "host %s does not know the machine type %s: the guest could not start again",
        "Give it a machine type that the host knows (virsh edit; virsh capabilities lists them).",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """Why a domain is not adoptable. ``code``: of REFUSALS"""

    code: str
    message: str
    remedy: str

    def as_dict(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


@dataclass(frozen=True)
class KnownInstance:
    """A live instance of the ledger."""

    name: str
    project: str
    host: str | None
    adopted: bool


@dataclass(frozen=True)
class Node:
    """The compute node of a host, as it reported last. Memory is MiB, disk GiB; amounts are (memory, disk, vCPUs)."""

    limits: tuple[float, float, float]  # total times ratio
    used: tuple[int, int, int]
    machine_types: t.Mapping[str, t.Collection[str]] = field(default_factory=dict)  # by architecture
    devices: t.Mapping[str, PciDevice] = field(default_factory=dict)  # by address: all that it reports
    free_devices: t.Collection[str] = ()  # addresses of the unclaimed ones
    numa: HostNUMATopology | None = None  # with the usage of all claims
    whole_disks: t.Collection[str] = ()  # paths of bootflow_isolated_disks


@dataclass(frozen=True)
class Known:
    """The ledger, as far as domains are judged by it."""

    ledger_id: str
    instances: t.Mapping[str, KnownInstance]  # by UUID
    names: t.Mapping[str, str]  # of the project: name -> UUID
    nodes: t.Mapping[str, Node]  # by host
    cleanups: t.Collection[tuple[str, str]] = ()  # (host, UUID)
    macs: t.Mapping[str, str] = field(default_factory=dict)  # MAC address -> its holder in words
    addresses: t.Mapping[tuple[str, str], str] = field(
        default_factory=dict
    )  # (subnet id, address) -> its holder in words


@dataclass(frozen=True)
class Wishes:
    """The options of an adoption. ``names``: UUIDs or names of domains -> names of instances"""

    project: str
    networks: t.Sequence[Network]
    names: t.Mapping[str, str] = field(default_factory=dict)
    other_interfaces: bool = False  # interfaces in none of the networks get no port


@dataclass(frozen=True)
class AdoptedPort:
    """An interface that gets a port. ``addresses``: (subnet, address)"""

    mac: str
    network: Network
    addresses: tuple[tuple[Subnet, str], ...] = ()


@dataclass
class Verdict:
    """The verdict on one domain. Memory is MiB, disk GiB."""

    host: str
    uuid: str
    domain: str
    name: str
    state: str = ADOPT
    vm_state: str = ""
    power_state: int = NOSTATE
    memory_mb: int = 0
    vcpus: int = 0
    disk_gb: int = 0
    disks: list[dict[str, t.Any]] = field(default_factory=list)
    ports: list[AdoptedPort] = field(default_factory=list)
    pci: list[PciDevice] = field(default_factory=list)
    numa: GuestNUMATopology | None = None
    reasons: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, code: str, *values: t.Any) -> None:
        """Note why the domain is not adoptable. :arg values: of the words of REFUSALS[code]"""
        words, remedy = REFUSALS[code]
        self.state = REFUSED
        self.reasons.append(Reason(code, words % values if values else words, remedy))


def judge(domains: t.Iterable[tuple[str, t.Mapping[str, t.Any]]], known: Known, wishes: Wishes) -> list[Verdict]:
    """Return the verdict on each domain, in order. :arg domains: (host, its description with what the host adds to it)"""
    listed = list(domains)
    hosts: dict[str, set[str]] = {}
    for host, domain in listed:
        hosts.setdefault(domain["uuid"], set()).add(host)
    book = _Book(known)
    return [_judge(host, domain, sorted(hosts[domain["uuid"]] - {host}), book, wishes) for host, domain in listed]


class _Book:
    """Names, addresses and resources that the ledger has given out, and that domains judged before have taken."""

    def __init__(self, known: Known):
        self.known = known
        self.names = dict(known.names)
        self.macs = dict(known.macs)
        self.addresses = dict(known.addresses)
        self.used = {host: list(node.used) for host, node in known.nodes.items()}
        self.devices = {host: set(node.free_devices) for host, node in known.nodes.items()}
        self.pinned: dict[str, set[int]] = {
            host: {cpu for cell in (node.numa.cells if node.numa else ()) for cpu in cell.pinned_cpus}
            for host, node in known.nodes.items()
        }

    def enter(self, verdict: Verdict) -> None:
        """Take what the verdict gives to the domain."""
        self.names[verdict.name] = verdict.uuid
        for port in verdict.ports:
            self.macs[port.mac] = "domain %s" % verdict.domain
            for subnet, address in port.addresses:
                self.addresses[subnet.id, address] = "domain %s" % verdict.domain
        self.devices[verdict.host] -= {device.address for device in verdict.pci}
        if verdict.numa is not None:
            self.pinned[verdict.host] |= {cpu for cell in verdict.numa.cells for cpu in cell.pinned_cpus}
        used, limits = self.used[verdict.host], self.known.nodes[verdict.host].limits
        for place, amount in enumerate((verdict.memory_mb, verdict.disk_gb, verdict.vcpus)):
            used[place] += amount
        beyond = [
            "%s by %d %s" % (noun, round(has - most), unit)
            for noun, unit, has, most in zip(("memory", "disk", "vCPUs"), ("MiB", "GiB", "vCPUs"), used, limits)
            if has > most
        ]
        if beyond:
            verdict.notes.append(
                "%s is beyond its limits: %s; it takes no new instances" % (verdict.host, ", ".join(beyond))
            )


def _judge(host: str, domain: t.Mapping[str, t.Any], others: t.Sequence[str], book: _Book, wishes: Wishes) -> Verdict:
    uuid, called = domain["uuid"], domain["name"]
    name = wishes.names.get(uuid) or wishes.names.get(called) or called
    verdict = Verdict(host, uuid, called, name)
    if domain.get("error"):
        verdict.refuse("unreadable", domain["error"]["message"])
        return verdict
    verdict.memory_mb, verdict.vcpus = domain["memory_mb"], domain["vcpus"]
    verdict.power_state, verdict.disks = domain["power_state"], [dict(disk) for disk in domain["disks"]]
    instance, known = book.known.instances.get(uuid), book.known
    if instance is not None and instance.adopted and instance.host == host and not others:
        verdict.state, verdict.name = ADOPTED, instance.name
        return verdict
    node = known.nodes.get(host)
    if node is None:
        verdict.refuse("no_report", host)
        return verdict
    _judge_owner(verdict, domain, others, known)
    _judge_name(verdict, book, wishes)
    _judge_state(verdict, domain, node)
    _judge_disks(verdict, node)
    _judge_devices(verdict, domain, node, book)
    _judge_interfaces(verdict, domain, book, wishes)
    if verdict.state == ADOPT:
        book.enter(verdict)
    return verdict


def _judge_owner(verdict: Verdict, domain: t.Mapping[str, t.Any], others: t.Sequence[str], known: Known) -> None:
    instance = known.instances.get(verdict.uuid)
    if domain["made_by"]:
        verdict.refuse("made_by_%s" % domain["made_by"])
    elif domain["ledger"] not in ("", known.ledger_id):
        verdict.refuse("other_ledger", domain["ledger"])
    if instance is not None:
        verdict.refuse("uuid_in_ledger", instance.name, instance.host or "no host")
    if others:
        verdict.refuse("uuid_on_two_hosts", ", ".join(others))
    if (verdict.host, verdict.uuid) in known.cleanups:
        verdict.refuse("cleanup_due", verdict.host)


def _judge_name(verdict: Verdict, book: _Book, wishes: Wishes) -> None:
    name = verdict.name
    if not 0 < len(name) <= LONGEST_NAME or name != name.strip() or not name.isprintable():
        verdict.refuse("name_invalid", name[:LONGEST_NAME])
    elif book.names.get(name, verdict.uuid) != verdict.uuid:
        verdict.refuse("name_taken", wishes.project, name)


def _judge_state(verdict: Verdict, domain: t.Mapping[str, t.Any], node: Node) -> None:
    if not domain["persistent"]:
        verdict.refuse("transient")
    for job in domain["jobs"]:
        verdict.refuse("at_work", job)
    power_state = domain["power_state"]
    if power_state not in VM_STATES:
        verdict.refuse("power_state", POWER_STATES.get(power_state, str(power_state)))
    else:
        saved = domain["saved"] and power_state == SHUTDOWN
        verdict.vm_state = states.SUSPENDED if saved else VM_STATES[power_state]
    if domain["snapshots"]:
        verdict.notes.append("%d snapshots of libvirt stay" % domain["snapshots"])
    machines = node.machine_types.get(domain["arch"])
    if machines and domain["machine"] and domain["machine"] not in machines:
        verdict.refuse("machine_unknown", verdict.host, domain["machine"])


def _judge_disks(verdict: Verdict, node: Node) -> None:
    size = 0
    for disk in verdict.disks:
        if disk["type"] not in DISK_TYPES:
            verdict.refuse("disk_type", disk["target"], disk["type"] or "unknown")
        elif disk["source"] and disk["source"] in node.whole_disks:
            verdict.refuse("whole_disk", disk["target"], disk["source"])
        elif disk["local"] and disk["device"] == "disk":
            size += disk["size"]
    verdict.disk_gb = -(-size // GIB)


def _judge_devices(verdict: Verdict, domain: t.Mapping[str, t.Any], node: Node, book: _Book) -> None:
    for device in domain["other_devices"]:
        verdict.refuse("device", device)
    for address in domain["pci"]:
        if address not in node.devices:
            verdict.refuse("pci_unknown", address)
        elif address not in book.devices[verdict.host]:
            verdict.refuse("pci_taken", address)
        else:
            verdict.pci.append(node.devices[address])
    if node.numa is None or not domain["pins"]:
        return
    pins = {cpu: host_cpu for cpu, host_cpu in domain["pins"] if cpu < verdict.vcpus}
    if len(pins) < verdict.vcpus or len(set(pins.values())) < len(pins):
        verdict.notes.append("its pins to CPUs of the host are not claimed: not every vCPU has a separate CPU")
        return
    pinned_cpus = sorted(set(pins.values()) & book.pinned[verdict.host])
    if pinned_cpus:
        verdict.refuse("cpu_taken", pinned_cpus[0])
        return
    verdict.numa = pinned_topology(pins, verdict.memory_mb, node.numa)
    if verdict.numa is None:
        verdict.notes.append("its pins to CPUs of the host are not claimed: the host does not report these CPUs")


def pinned_topology(pins: t.Mapping[int, int], memory_mb: int, host: HostNUMATopology) -> GuestNUMATopology | None:
    """Return the fitted topology of a guest with dedicated CPUs: one cell for each cell of the host that it uses; its memory is divided among them by
    the number of CPUs. None: the host lacks one of the CPUs.
    """
    cells: list[GuestCell] = []
    memory_left, cpus_left = memory_mb, len(pins)
    for host_cell in host.cells:
        pinning = {cpu: host_cpu for cpu, host_cpu in sorted(pins.items()) if host_cpu in host_cell.cpus}
        if pinning:
            share = memory_left * len(pinning) // cpus_left
            memory_left, cpus_left = memory_left - share, cpus_left - len(pinning)
            cpus = frozenset(pinning)
            cells.append(
                GuestCell(len(cells), cpus, share, cpu_policy=DEDICATED, pinning=pinning, host_cell=host_cell.id)
            )
    return GuestNUMATopology(tuple(cells)) if cells and cpus_left == 0 else None


def _judge_interfaces(verdict: Verdict, domain: t.Mapping[str, t.Any], book: _Book, wishes: Wishes) -> None:
    for interface in domain["interfaces"]:
        network = network_of(interface, wishes.networks)
        if network is None:
            if wishes.other_interfaces:
                verdict.notes.append("interface %s gets no port" % (interface["mac"] or interface["type"]))
            else:
                mac = interface["mac"] or "without a MAC address"
                verdict.refuse("network_unknown", mac, interface["type"], interface["source"] or "-")
            continue
        mac = interface["mac"]
        if not mac:
            verdict.refuse("mac_missing")
            continue
        if mac in book.macs or any(port.mac == mac for port in verdict.ports):
            verdict.refuse("mac_taken", mac, book.macs.get(mac, "another interface of the guest"))
            continue
        addresses = []
        for text in interface["addresses"]:
            subnet = subnet_of(text, network)
            if subnet is None:
                verdict.notes.append("address %s is in no subnet of %s: it is not reserved" % (text, network.name))
                continue
            address = str(ipaddress.ip_address(text))
            holder = book.addresses.get((subnet.id, address))
            if holder is not None:
                verdict.refuse("address_taken", address, network.name, holder)
            elif (subnet, address) not in addresses:
                addresses.append((subnet, address))
        if not interface["addresses"]:
            verdict.notes.append("the address of interface %s is not known" % mac)
        verdict.ports.append(AdoptedPort(mac, network, tuple(addresses)))


def network_of(interface: t.Mapping[str, t.Any], networks: t.Sequence[Network]) -> Network | None:
    """Return the network that an interface is in: its libvirt network, or its bridge, is the source of it. None: of none."""
    if not interface["source"]:
        return None
    for network in networks:
        plug = "network" if network.type == "network" else "bridge"
        if (plug, network.source) == (interface["type"], interface["source"]):
            return network
    return None


def subnet_of(address: str, network: Network) -> Subnet | None:
    """Return the subnet of the network that ports with this address are in; None for no such subnet."""
    parsed = parse_ip(address)
    for subnet in network.subnets if parsed is not None else ():
        first, last = usable_range(subnet.cidr)
        if parsed is not None and parsed.version == first.version and int(first) <= int(parsed) <= int(last):
            return subnet
    return None
