# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a report as plain data: what its pictures and tables show.

Times are seconds since the epoch, memory is MiB, disk GiB.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

#: resource -> (heading, unit)
RESOURCES = {"memory_mb": ("Memory", "MiB"), "vcpus": ("vCPUs", ""), "disk_gb": ("Disk", "GiB")}

Amounts = t.Mapping[str, int]  # resource -> amount


@dataclass(frozen=True)
class Claim:
    """A claim of an instance on a node. ``moving``: the claim of a move that is not decided."""

    uuid: str
    name: str
    project: str
    state: str
    amounts: Amounts
    moving: bool = False


@dataclass(frozen=True)
class Room:
    """A resource of a node: what it has, the part that it reserves, and how often the rest is given out."""

    total: int
    used: int  # reserved, claimed, and used otherwise
    reserved: int
    ratio: float

    @property
    def capacity(self) -> int:
        """All that may be in use, over-committed by the ratio."""
        return int(self.total * self.ratio)

    @property
    def free(self) -> int:
        """The amount that instances can still claim; less than 0 on a host that has given out too much."""
        return self.capacity - self.used


@dataclass(frozen=True)
class Host:
    """A compute node. ``problems``: sentences, as the playbook hosts lists them."""

    host: str
    node: str
    zone: str
    up: bool
    state_known: bool
    enabled: bool
    reason: str  # why it is disabled
    reported_at: float | None
    instances: int
    rooms: t.Mapping[str, Room]
    claims: t.Sequence[Claim] = ()
    problems: t.Sequence[str] = ()


@dataclass(frozen=True)
class Loss:
    """The loss of a host. ``moved``: the number of its instances that would find another host. ``stuck``: (name, reason) of each without another host."""

    host: str
    moved: int
    stuck: t.Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Fit:
    """How many more instances of a flavor fit. ``total`` is None if that cannot be said; ``reason`` says why, or what stops the next one."""

    flavor: str
    amounts: Amounts
    total: int | None
    hosts: int  # with room for one or more
    reason: str


@dataclass(frozen=True)
class Span:
    """A step in the journal of an instance. ``result``: Success or Error; None: it has not ended."""

    uuid: str
    stage: str
    host: str | None
    begin: float
    end: float | None
    result: str | None
    details: str = ""


@dataclass(frozen=True)
class Work:
    """An action of a run on one instance, with its steps."""

    uuid: str
    name: str
    project: str
    action: str
    begin: float
    end: float | None
    failed: bool
    spans: t.Sequence[Span] = ()


@dataclass(frozen=True)
class Run:
    """The actions of one run. ``total``: their number; ``works`` has the ones that are drawn."""

    request_id: str
    user: str
    begin: float
    end: float | None  # None: something has not ended
    total: int
    failed: int
    works: t.Sequence[Work] = ()


@dataclass(frozen=True)
class Rejection:
    """The hosts that one filter rejected first, and the host among them that lacks least."""

    filter: str
    hosts: int
    nearest: str
    reason: str
    missing: str = ""  # what the nearest host lacked, in words; empty: no numbers were compared


@dataclass(frozen=True)
class Refusal:
    """Instances in ERROR for the same reason. ``rejections`` is empty where the ledger has only the message."""

    names: t.Sequence[str]
    total: int  # instances, also the ones that are not named
    code: str
    message: str
    remedy: str
    newest: float
    hosts: int = 0
    rejections: t.Sequence[Rejection] = ()
    nearest: str = ""
    change: str = ""


@dataclass(frozen=True)
class Day:
    """The fleet on one day (UTC): resource -> capacity and what was in use."""

    day: str
    hosts: int
    instances: int
    capacity: Amounts
    used: Amounts


@dataclass(frozen=True)
class Place:
    """The place of an instance in a plan."""

    uuid: str
    name: str
    project: str
    flavor: str
    host: str
    node: str
    amounts: Amounts
    addresses: t.Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """A plan that holds places. ``state``: of plan_states.STATES. ``since``: when it was used, discarded or expired, or will expire."""

    id: str
    kind: str
    state: str
    since: float
    actor: str
    created: float
    places: t.Sequence[Place]


@dataclass(frozen=True)
class Report:
    """All figures of a report. ``losses`` is None if N+1 was not asked, ``plan`` if no file of a plan was named."""

    moment: float
    ledger: str
    hosts: t.Sequence[Host]
    losses: t.Sequence[Loss] | None = None
    run: Run | None = None
    refusals: t.Sequence[Refusal] = ()
    days: t.Sequence[Day] = ()
    fits: t.Sequence[Fit] = ()
    plan: Plan | None = None
    limit: int = 200  # hosts, instances of a run and claims of a host that are drawn
