# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts' answers for an audit of volumes: logical volumes, targets, and the compute hosts' sessions and secrets."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

VOLUME, SNAPSHOT = "volume", "snapshot"


@dataclass(frozen=True)
class LogicalVolume:
    """A logical volume with our tags."""

    kind: str  # volume, snapshot
    id: str
    name: str
    size: int = 0  # bytes
    open: bool = False
    origin: str = ""  # of a snapshot: the name of its logical volume


@dataclass(frozen=True)
class Backend:
    """``error``: why the backend is not ready; ``volumes`` is empty then. ``group``: backends with the same value share a
    volume group, whose logical volumes are each reported once. ``others``: id of another ledger -> how many it has there.
    """

    pool_host: str  # host@backend#pool
    volumes: t.Sequence[LogicalVolume] = ()
    error: str = ""
    remedy: str = ""
    group: str = ""
    others: t.Mapping[str, t.Mapping[str, t.Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    iqn: str
    volume_id: str
    kind: str  # lio, tgt
    prefix: str
    path: str = ""
    sessions: t.Sequence[str] = ()  # initiators that are logged in
    running: bool = True  # initiators find it
    ours: bool = True


@dataclass(frozen=True)
class Unread:
    """Targets with this prefix that could not be read."""

    kind: str
    prefix: str
    error: str
    remedy: str = ""


@dataclass(frozen=True)
class StorageSnapshot:
    """A storage host's answer, of ``began_at`` (seconds since the epoch) or later."""

    host: str
    began_at: float
    backends: t.Sequence[Backend] = ()
    targets: t.Sequence[Target] = ()
    unread: t.Sequence[Unread] = ()
    prefixes: t.Collection[str] = ()  # of the targets that the request named


@dataclass(frozen=True)
class Session:
    """A target that a compute host is logged in to, or has a record of."""

    iqn: str
    volume_id: str
    session: bool = True
    luns: t.Sequence[int] = ()
    portals: t.Sequence[str] = ()
    in_use: t.Sequence[str] = ()  # why its disks must not be removed


@dataclass(frozen=True)
class Secret:
    """One of our secrets in libvirt."""

    iqn: str
    volume_id: str


@dataclass(frozen=True)
class CableSnapshot:
    """A compute host's answer about its sessions and secrets."""

    host: str
    began_at: float
    sessions: t.Sequence[Session] = ()
    secrets: t.Sequence[Secret] = ()
    error: str = ""
    remedy: str = ""
    #: Its hostname and libvirt's UUID, the same of a machine with two names; without a UUID it is not known.
    machine: t.Tuple[str, str] = ("", "")


@dataclass(frozen=True)
class StorageEvidence:
    storage: t.Mapping[str, StorageSnapshot] = field(default_factory=dict)
    unreachable: t.Mapping[str, str] = field(default_factory=dict)  # storage host -> why it did not answer
    compute: t.Mapping[str, CableSnapshot] = field(default_factory=dict)
    off: t.Collection[str] = ()  # UUIDs of defined guests that are not running
