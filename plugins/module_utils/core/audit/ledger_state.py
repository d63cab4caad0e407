# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the ledger that the audit compares with the answers of hosts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..instances import states

Amounts = t.Tuple[int, int, int]  # memory in MB, disk in GB, vCPUs


@dataclass(frozen=True)
class Node:
    id: int
    host: str
    node: str
    columns: t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Instance:
    uuid: str
    name: str
    host: t.Optional[str]
    node: t.Optional[str]
    vm_state: str
    task_state: t.Optional[str]
    deleted: bool
    touched_at: float  # last written, or deleted
    wanted: Amounts  # the amounts of its claim
    run: str = ""
    run_dead: bool = False
    operation: str = ""  # of a run at work or dead (stop, start, ...)
    over: bool = False  # a move of it is open, and it is on its new host
    goes_to: str = ""  # the other host of its live migration
    in_ledger: bool = False  # of a build: the ledger has all that it has when it is built

    @property
    def comes_back(self) -> bool:
        """Whether it is being unshelved: its new host, which is claimed, builds it."""
        return self.task_state == states.UNSHELVING

    @property
    def busy(self) -> bool:
        """Whether an action is under way, or the instance is on two hosts until a resize is confirmed."""
        return self.vm_state in (states.BUILDING, states.RESIZED) or self.task_state is not None


@dataclass(frozen=True)
class Claim:
    id: int
    instance: str
    node_id: int
    amounts: Amounts
    of_move: bool = False  # on the other host of a move, or on its own for a resize there
    open: bool = False  # and the move is not decided


@dataclass(frozen=True)
class Move:
    """A move whose status contradicts the state of its instance."""

    id: int
    instance: str
    status: str
    statuses: tuple[str, ...]  # statuses that the state of the instance admits, the last one in any state of the hosts


@dataclass(frozen=True)
class Device:
    """A device without a claim."""

    id: int
    instance: str
    node_id: int
    kind: str
    device: str


@dataclass(frozen=True)
class Port:
    """A port of a deleted instance, or kept until a host is cleaned, or one that a guest is losing."""

    id: str
    instance: str
    host: t.Optional[str]
    held: bool
    addresses: t.Sequence[str] = ()
    leaving: bool = False  # a run began to detach it


@dataclass(frozen=True)
class Cleanup:
    host: str
    instance: str
    name: str
    reason: str = ""
    of_a_part: bool = False  # the instance is there and stays
    unfinished: bool = False  # of a dead build: nothing is removed if it has ended there


@dataclass(frozen=True)
class Group:
    """A server group without members."""

    id: str
    name: str
    project: str


@dataclass(frozen=True)
class Ledger:
    id: str = ""
    nodes: t.Sequence[Node] = ()
    instances: t.Mapping[str, Instance] = field(
        default_factory=dict
    )  # live ones, and deleted ones that are still referred to
    moves: t.Sequence[Move] = ()
    claims: t.Sequence[Claim] = ()
    devices: t.Sequence[Device] = ()
    ports: t.Sequence[Port] = ()
    lost_addresses: t.Sequence[t.Tuple[int, str]] = ()  # (id, address) without a port
    cleanups: t.Sequence[Cleanup] = ()
    groups: t.Sequence[Group] = ()
    # UUID -> what the DHCP servers of its host have to reserve: network, mac, address, name
    reservations: t.Mapping[str, t.Sequence[t.Mapping[str, str]]] = field(default_factory=dict)
