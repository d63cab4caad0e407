# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains that other software defined: what they are, and the mark of the ledger that has them.

The mark is metadata of the domain, which touches no device: libvirt changes it in the definition and in the running guest.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from xml.sax.saxutils import quoteattr

from ...core.adopt.description import describe, made_by
from ...core.errors import BootflowError, Conflict, InstanceNotFound
from ...core.guest.domain.element import parse
from ...core.guest.domain.namespaces import OWNER_NAMESPACE
from ...core.instances.power_states import power_state_of
from ..libvirt.connection import libvirt, libvirt_errors
from ..libvirt.domains import ledger_of_domain
from ..libvirt.running import find_domain
from ..os.batch import progress
from ..os.locks import guest_lock
from ..os.paths import checked_uuid

PREFIX = "bootflow"  # of the namespace in the XML
ARP_TABLE = "/proc/net/arp"
MOST_NAME = 255
MOST_ADDRESSES = 64  # of an interface
_LOCAL = ("127.", "169.254.", "fe80:", "::1")  # beginnings of addresses that no subnet has


def foreign_domains(
    connection: t.Any, names: t.Collection[str] | None = None, instances_path: str = "", volume_group: str = ""
) -> list[dict[str, t.Any]]:
    """Return the descriptions of the domains that this collection did not make, with what libvirt says of them besides. See core.adopt.description.

    To it are added {power_state, persistent, saved, snapshots, jobs: [words]}, of each disk ``size`` in bytes and whether it is ``local``: a file on
    the file system of ``instances_path``, or a logical volume of ``volume_group``; and of each interface its ``addresses``, as far as they are known.
    A domain whose XML cannot be described has {uuid, name, error} instead.

    :arg names: UUIDs and names of domains; None: of all. With them, domains that this collection made are returned, too.
    """
    with libvirt_errors():
        domains = connection.listAllDomains(0)
    descriptions = []
    for domain in domains:
        try:
            uuid, name = domain.UUIDString(), domain.name()
            if names is None or uuid in names or name in names:
                description = _described(domain, uuid, name, instances_path, volume_group)
                if names is not None or description.get("made_by") != "bootflow":
                    descriptions.append(description)
        except libvirt.libvirtError:
            continue  # it ended meanwhile
    return sorted(descriptions, key=lambda description: (description["name"], description["uuid"]))


def _described(domain: t.Any, uuid: str, name: str, instances_path: str, volume_group: str) -> dict[str, t.Any]:
    active = bool(domain.isActive())
    try:
        description = describe(domain.XMLDesc(0))
    except BootflowError as error:
        shown = "".join(c if c.isprintable() else "?" for c in name)[:MOST_NAME]
        return {"uuid": uuid, "name": shown, "error": error.as_dict()}
    known = _addresses(domain, description["agent"]) if active and description["interfaces"] else {}
    for disk in description["disks"]:
        disk["size"] = _size(domain, disk)
        disk["local"] = _is_local(disk, instances_path, volume_group)
    for interface in description["interfaces"]:
        interface["addresses"] = known.get(interface["mac"], [])[:MOST_ADDRESSES]
    return {
        **description,
        "power_state": power_state_of(domain.info()[0]),
        "persistent": bool(domain.isPersistent()),
        "saved": bool(domain.hasManagedSaveImage(0)),
        "snapshots": domain.snapshotNum(0),
        "jobs": _jobs(domain, description["disks"]) if active else [],
    }


def _size(domain: t.Any, disk: t.Mapping[str, t.Any]) -> int:
    """Return the virtual size in bytes; 0 where libvirt does not know it, as of a file that is missing."""
    with contextlib.suppress(libvirt.libvirtError):
        return int(domain.blockInfo(disk["target"] or disk["source"], 0)[0])
    return 0


def _is_local(disk: t.Mapping[str, t.Any], instances_path: str, volume_group: str) -> bool:
    if disk["type"] == "block" and volume_group:
        mapped = "/dev/mapper/%s-" % volume_group.replace("-", "--")
        return str(disk["source"]).startswith(("/dev/%s/" % volume_group, mapped))
    if disk["type"] != "file" or volume_group:
        return False
    with contextlib.suppress(OSError):
        return os.stat(disk["source"]).st_dev == os.stat(_existing(instances_path)).st_dev
    return False


def _existing(path: str) -> str:
    """Return the path, or the nearest folder above it that exists."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path.rstrip("/"))
    return path or "/"


def _jobs(domain: t.Any, disks: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return in words what is at work on the guest."""
    jobs = []
    with contextlib.suppress(libvirt.libvirtError):
        if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
            jobs.append("a job of libvirt (migration, backup or save)")
    for disk in disks:
        with contextlib.suppress(libvirt.libvirtError):
            if disk["target"] and domain.blockJobInfo(disk["target"], 0):
                jobs.append("a block job of disk %s" % disk["target"])
    return jobs


def _addresses(domain: t.Any, agent: bool) -> dict[str, list[str]]:
    """Return MAC address -> IP addresses: of the leases of libvirt's DHCP servers, else of the guest agent, else of the host's ARP table."""
    sources = [libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE]
    sources += [libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT] if agent else []
    known: dict[str, list[str]] = {}
    for source in sources:
        interfaces: dict[str, t.Any] = {}
        with contextlib.suppress(libvirt.libvirtError):
            interfaces = domain.interfaceAddresses(source, 0) or {}
        addresses_by_mac: dict[str, list[str]] = {}
        for interface in interfaces.values():
            texts = [str(entry["addr"]).partition("%")[0].lower() for entry in interface.get("addrs") or ()]
            addresses_by_mac.setdefault(str(interface.get("hwaddr") or "").lower(), []).extend(
                text for text in texts if not text.startswith(_LOCAL)
            )
        _add(known, addresses_by_mac)
    _add(known, arp_table())
    return known


def _add(known: dict[str, list[str]], addresses_by_mac: t.Mapping[str, list[str]]) -> None:
    """Add the addresses of interfaces of which none is known yet."""
    for mac, addresses in addresses_by_mac.items():
        if addresses and mac not in known:
            known[mac] = list(dict.fromkeys(addresses))


def arp_table(path: str = ARP_TABLE) -> dict[str, list[str]]:
    """Return MAC address -> IPv4 addresses, of the kernel's own table: ``virsh domifaddr --source arp`` failed in the lab ("wrong nlmsg len")."""
    known: dict[str, list[str]] = {}
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        for line in file.readlines()[1:]:
            words = line.split()
            if len(words) == 6 and words[2] != "0x0":  # else it did not answer
                known.setdefault(words[3].lower(), []).append(words[0])
    return known


def mark(connection: t.Any, uuid: str, ledger_id: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Write into the metadata of a domain that the ledger has it. Returns {changed}.

    :raises InstanceNotFound: the host has no such domain. :raises Conflict: it is another ledger's, or this collection made it.
    """
    return _set_mark(connection, uuid, ledger_id, "<owner ledger=%s adopted='yes'/>" % quoteattr(ledger_id), check_mode)


def unmark(connection: t.Any, uuid: str, ledger_id: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Remove the mark of the ledger from a domain; a domain that is gone has none. Returns {changed}. :raises Conflict: see mark()"""
    try:
        return _set_mark(connection, uuid, ledger_id, None, check_mode)
    except InstanceNotFound:
        return {"changed": False}


def _set_mark(connection: t.Any, uuid: str, ledger_id: str, element: str | None, check_mode: bool) -> dict[str, t.Any]:
    with contextlib.nullcontext() if check_mode else guest_lock(checked_uuid(uuid)):
        domain = find_domain(connection, uuid)
        if domain is None:
            raise InstanceNotFound(
                instance_id=uuid, remedy="The domain is gone from the host: bootflow.compute.audit shows that."
            )
        with libvirt_errors():
            active, persistent = bool(domain.isActive()), bool(domain.isPersistent())
            flags = [libvirt.VIR_DOMAIN_XML_INACTIVE] if persistent else []
            roots = [parse(domain.XMLDesc(flag)) for flag in (*flags, *((0,) if active else ()))]
        owners = {ledger_of_domain(root) for root in roots}
        if any(made_by(root) == "bootflow" for root in roots) or owners - {"", ledger_id}:
            raise Conflict(
                message="the domain of instance %s is another ledger's, or was made by this collection" % uuid,
                remedy="Nothing was changed. bootflow.compute.audit says whose it is.",
            )
        changed = owners != ({ledger_id} if element else {""})
        if changed and not check_mode:
            progress.mark_changed()
            affected = libvirt.VIR_DOMAIN_AFFECT_CONFIG if persistent else 0
            affected |= libvirt.VIR_DOMAIN_AFFECT_LIVE if active else 0
            kind, prefix = libvirt.VIR_DOMAIN_METADATA_ELEMENT, PREFIX if element else None
            with libvirt_errors():
                domain.setMetadata(kind, element, prefix, OWNER_NAMESPACE, affected)
    return {"changed": changed}
