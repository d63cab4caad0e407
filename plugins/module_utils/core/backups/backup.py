# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup of an instance: its kinds and states, the names of its checkpoint and file, and when an increment is not possible.

A backup is full, or has what was written since its parent. Only a complete one is a parent.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

FULL, INCREMENTAL = "full", "incremental"
KINDS = (FULL, INCREMENTAL)

RUNNING = "running"  # a run writes it
COMPLETE = "complete"  # all bytes are on the disk
FAILED = "failed"  # its host may have something of it
DELETING = "deleting"  # its host is to remove it
STATES = (RUNNING, COMPLETE, FAILED, DELETING)
#: States in which the host is to remove what it has of a backup.
REMOVABLE = (FAILED, DELETING)

#: libvirt's names of checkpoints that backups of this collection make begin so.
PREFIX = "bootflow-"
MANIFEST = "manifest.json"
SUFFIX = ".qcow2"

# Why a backup is full.
ASKED = "bootflow_backup_full is set"
NO_PARENT = "the instance has no complete backup"
OTHER_HOST = "the last backup was made on host %s"
LONG_CHAIN = "%d backups need each other, and bootflow_backup_chain_length is %d"
OFF = "the guest does not run"
FORMAT = "the root disk has the format %s, in which QEMU keeps no bitmap"
NO_CHECKPOINT = "the last backup has no checkpoint: %s"
LOST_CHECKPOINT = "libvirt does not have checkpoint %s any more"
LOST_BITMAP = "the bitmap of the last backup is lost: QEMU was killed, its disk was full, or the disk was exchanged"
LOST_FILE = "the last backup is not usable: %s"

NEEDS_MISSING = "one that it needs is missing"
NEEDS_DAMAGED = "it needs backup %s, which is damaged: %s"


def checkpoint_name(backup_id: str) -> str:
    """Return libvirt's name of the checkpoint of a backup: no other backup has it, whatever became of the bitmaps."""
    return PREFIX + backup_id


def is_own(name: str) -> bool:
    """Whether a checkpoint of this name is of a backup of this collection."""
    return name.startswith(PREFIX)


def file_name(backup_id: str) -> str:
    """Return the name of the file of a backup in its folder."""
    return backup_id + SUFFIX


@dataclass(frozen=True)
class Backup:
    """A backup, as far as rules need it."""

    id: str
    parent_id: str | None
    kind: str
    state: str
    host: str
    created_at: float
    checkpoint: str = ""  # "": of a disk without a bitmap, or of a guest that was off
    reason: str = ""  # why it is full
    damage: str = ""  # what is wrong with its file, as its host found when it read the backup back


def chain_of(backup: Backup, by_id: t.Mapping[str, Backup]) -> list[Backup] | None:
    """Return the backup and all that it needs, the full one first; None: one of them is not there, not complete, or damaged."""
    chain = [backup]
    while chain[0].parent_id is not None:
        parent = by_id.get(chain[0].parent_id)
        if parent is None or parent in chain:
            return None
        chain.insert(0, parent)
    return chain if chain[0].kind == FULL and all(b.state == COMPLETE and not b.damage for b in chain) else None


def damage_of(backup: Backup, by_id: t.Mapping[str, Backup]) -> str:
    """Return what is wrong with the files that a backup needs, in words; "": nothing is known to be."""
    seen: set[str] = set()
    one: Backup | None = backup
    while one is not None and one.id not in seen:
        if one.damage:
            return one.damage if one.id == backup.id else NEEDS_DAMAGED % (one.id, one.damage)
        seen.add(one.id)
        one = by_id.get(one.parent_id or "")
    return ""


@dataclass(frozen=True)
class Choice:
    """The choice of the next backup of an instance, before its host is asked. ``chain``: of an increment, the full one first"""

    chain: tuple[Backup, ...] = ()
    reason: str = ""  # why it is full; "": an increment, if its host can make one

    @property
    def parent(self) -> Backup | None:
        return self.chain[-1] if self.chain else None


def newest_checkpointed(backups: t.Iterable[Backup]) -> Backup | None:
    """Return the newest complete backup with a checkpoint: what the guest wrote since is known, whatever backups were made without one."""
    able = [b for b in backups if b.state == COMPLETE and b.checkpoint]
    return max(able, key=lambda b: (b.created_at, b.id)) if able else None


def choose(backups: t.Sequence[Backup], host: str, asked_full: bool, chain_length: int) -> Choice:
    """Choose what the next backup of an instance is.

    :arg backups: of the instance, in any order. :arg host: on which the instance is. :arg chain_length: how many backups may need each other
    """
    if asked_full:
        return Choice(reason=ASKED)
    complete = sorted((b for b in backups if b.state == COMPLETE), key=lambda b: (b.created_at, b.id))
    if not complete:
        return Choice(reason=NO_PARENT)
    parent = newest_checkpointed(complete)
    if parent is None:
        return Choice(reason=NO_CHECKPOINT % complete[-1].reason)
    if parent.host != host:
        return Choice(reason=OTHER_HOST % parent.host)
    by_id = {b.id: b for b in backups}
    chain = chain_of(parent, by_id)
    if chain is None:
        return Choice(reason=LOST_FILE % (damage_of(parent, by_id) or NEEDS_MISSING))
    if len(chain) >= chain_length:
        return Choice(reason=LONG_CHAIN % (len(chain), chain_length))
    return Choice(tuple(chain))
