# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answers of hosts that the audit compares with the ledger."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..instances import dead_builds, states
from .storage_evidence import StorageEvidence


@dataclass(frozen=True)
class Domain:
    uuid: str
    name: str
    memory_mb: int = 0
    ours: bool = False  # the XML has our metadata
    power_state: int = states.NOSTATE
    ledger: str = ""  # the id in its metadata
    vcpus: int = 0
    disk_gb: int = 0
    rescued: bool = False  # it is the domain of a rescue
    moving: str = ""  # one of core.instances.moves.MOVING
    other_disks: t.Sequence[str] = ()  # what the guest writes to and is not the instance's, as "vda: /path"

    @classmethod
    def from_fact(cls, fact: t.Mapping[str, t.Any]) -> Domain:
        """As a host reports it."""
        amounts = {name: int(fact.get(name) or 0) for name in ("memory_mb", "vcpus", "disk_gb")}
        return cls(
            fact["uuid"],
            fact["name"],
            ours=bool(fact.get("ours")),
            power_state=int(fact["power_state"]),
            ledger=fact.get("ledger") or "",
            rescued=bool(fact.get("rescued")),
            moving=fact.get("moving") or "",
            other_disks=tuple(fact.get("other_disks") or ()),
            **amounts,
        )


@dataclass(frozen=True)
class Reservation:
    mac: str
    address: str
    complete: bool  # the running and the persistent definition have it
    used: bool  # a domain of the host has the MAC address


@dataclass(frozen=True)
class DhcpNetwork:
    """A libvirt network and its reservations."""

    ours: bool  # this collection defined it
    reservations: t.Sequence[Reservation] = ()


@dataclass(frozen=True)
class Unplugged:
    """An interface of a running guest that is on no bridge."""

    uuid: str
    device: str  # on the host
    mac: str
    source: str  # libvirt network or bridge
    bridge: str  # "": the network is not active


@dataclass(frozen=True)
class Snapshot:
    """A host's answer, of ``began_at`` (seconds since the epoch) or later."""

    host: str
    node: str
    began_at: float
    domains: t.Sequence[Domain] = ()
    folders: t.Sequence[str] = ()  # UUIDs that have a folder below instances_path
    columns: t.Mapping[str, t.Any] = field(default_factory=dict)  # totals and settings, named as the ledger's columns
    volumes: t.Mapping[str, t.Sequence[str]] = field(default_factory=dict)  # UUID -> its disks that are logical volumes
    networks: t.Optional[t.Mapping[str, DhcpNetwork]] = None  # of libvirt, by name; None: they were not read
    unplugged: t.Sequence[Unplugged] = ()
    networks_error: t.Optional[t.Mapping[str, t.Any]] = None  # why not
    boot_id: str = ""  # of the start of the host, as the kernel names it; "": not known
    at_work: t.Collection[str] = ()  # UUIDs of the guests that a module works on, as one of a run that was killed
    complete: t.Collection[str] = ()  # UUIDs of the guests whose builds have ended here, or that have arrived here
    resumes: bool = True  # its guests run again after a restart: bootflow_resume_guests_state_on_host_boot
    machine: str = (
        ""  # libvirt's UUID of it; with ``node`` or ``boot_id`` it tells a machine that has two names in the inventory
    )

    @functools.cached_property
    def seen(self) -> dict[str, dead_builds.Seen]:
        """See core.instances.dead_builds.seen_in()."""
        domains = [
            {"uuid": d.uuid, "name": d.name, "power_state": d.power_state, "moving": d.moving} for d in self.domains
        ]
        return dead_builds.seen_in({"domains": domains, "complete_guests": self.complete, "at_work": self.at_work})


@dataclass(frozen=True)
class Evidence:
    """The answers of the hosts. A host in none of the fields was not asked: its differences wait."""

    snapshots: t.Mapping[str, Snapshot] = field(default_factory=dict)
    unreachable: t.Mapping[str, str] = field(default_factory=dict)  # host -> why it did not answer
    strangers: t.Collection[str] = ()  # in the ledger, not in the inventory
    hosts: t.Optional[t.Collection[str]] = None  # only differences on these; None: all
    remove_orphans: bool = False
    restarted: t.Collection[str] = ()  # hosts whose guests do not all run again yet as they did before a restart
    storage: StorageEvidence = field(default_factory=StorageEvidence)  # of volumes, see volumes.storage_audit


def guests_of_others(domains: t.Iterable[Domain], ledger_id: str) -> dict[str, dict[str, int]]:
    """Id of another ledger -> how many of the domains it has, and their memory, vCPUs and local disks."""
    guests_by_ledger: dict[str, dict[str, int]] = {}
    for domain in domains:
        if domain.ledger in ("", ledger_id):
            continue
        has = guests_by_ledger.setdefault(domain.ledger, {"guests": 0, "memory_mb": 0, "vcpus": 0, "disk_gb": 0})
        has["guests"] += 1
        for name in ("memory_mb", "vcpus", "disk_gb"):
            has[name] += getattr(domain, name)
    return dict(sorted(guests_by_ledger.items()))
