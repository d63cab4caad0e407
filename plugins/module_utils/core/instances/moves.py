# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of instances between hosts: their statuses, and which flavor an instance may get.

source: Nova's Migration object, compute.api.API.resize, and the libvirt driver's migrate_disk_and_power_off
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..amounts import GIB
from ..errors import CannotResizeDisk, CannotResizeToSameFlavor
from . import power_states

if t.TYPE_CHECKING:
    from ..model import Flavor

RESIZE, MIGRATION, EVACUATION, LIVE_MIGRATION = "resize", "migration", "evacuation", "live-migration"
TYPES = (RESIZE, MIGRATION, EVACUATION, LIVE_MIGRATION)

# --- statuses, under Nova's names ---
ACCEPTED = "accepted"
PRE_MIGRATING = "pre-migrating"
PREPARING = "preparing"
MIGRATING = "migrating"
RUNNING = "running"
POST_MIGRATING = "post-migrating"
FINISHED = "finished"  # resized: waits to be confirmed or reverted
REVERTING = "reverting"
CONFIRMED = "confirmed"
REVERTED = "reverted"
COMPLETED = "completed"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
ERROR = "error"

#: The move is under way, or waits to be confirmed: both hosts are claimed.
OPEN = (ACCEPTED, PRE_MIGRATING, PREPARING, MIGRATING, RUNNING, POST_MIGRATING, FINISHED, REVERTING)
ENDED = (CONFIRMED, REVERTED, COMPLETED, DONE, FAILED, CANCELLED, ERROR)
STATUSES = OPEN + ENDED

# --- where a guest is whose live migration was not watched to its end ------------------------------------------------------

#: libvirt's report on a guest, in addition to its power state: it is on its way from here, or to here; it continues elsewhere. Of one that is off:
#: it ran here to its end, or it failed here. libvirt forgets the last three when it restarts.
LEAVES, COMES, LEFT, ENDED_HERE, FAILED_HERE = "leaves", "comes", "left", "ended", "failed"
MOVING = (LEAVES, COMES, LEFT, ENDED_HERE, FAILED_HERE)


@dataclass(frozen=True)
class Seen:
    """A guest as a host reported it; of one that the host does not have, without a power state."""

    power_state: int | None = None
    moving: str = ""  # of MOVING

    @property
    def goes_on(self) -> bool:
        """Whether the guest is here, and nowhere else."""
        return self.power_state in (power_states.RUNNING, power_states.POWER_PAUSED) and not self.moving


def migration_completed(source: Seen | None, destination: Seen | None) -> bool | None:
    """Whether the migration of a guest completed; None: it is not known yet.

    libvirt never lets it run on both. Where a guest is off on both hosts, and its former host has forgotten why, the definition tells: libvirt keeps
    it on the new host only once all of the guest has arrived there, and no host had one before. What the guest wrote since then is there.

    :arg source: None: that host has not reported.
    """
    if destination is not None and destination.goes_on:
        return True
    if source is None or source.moving == LEAVES:
        return None
    if source.moving == LEFT:
        return True
    if source.goes_on:
        return False
    if destination is None or destination.moving == COMES:
        return None
    arrived = destination.power_state is not None and destination.moving != FAILED_HERE
    return arrived and source.moving != ENDED_HERE


def check_flavor(
    old: t.Mapping[str, t.Any], new: Flavor, volume_backed: bool, image_gb: int = 0, ephemerals_gb: int = 0
) -> None:
    """Check whether an instance may be resized. Its swap may be of any size: it is made again.

    :arg old: its flavor, as its request has it. :arg volume_backed: its root disk is a volume, which has its own size.
    :arg image_gb: what its root disk has become with a flavor whose root_gb is 0. :arg ephemerals_gb: of its ephemeral disks together
    :raises CannotResizeToSameFlavor, CannotResizeDisk: it may not.
    """
    if old["name"] == new.name and all(old[name] == getattr(new, name) for name in _SIZES):
        raise CannotResizeToSameFlavor()
    if not volume_backed:
        _check_root(int(old["root_gb"]), new.root_gb, image_gb)
    before = ephemerals_gb or int(old["ephemeral_gb"])
    if new.ephemeral_gb < before:
        reason = "the flavor has %d GiB of ephemeral disk, the instance %d GiB" % (new.ephemeral_gb, before)
        raise CannotResizeDisk(reason=reason)


_SIZES = ("memory_mb", "vcpus", "root_gb", "ephemeral_gb", "swap", "extra_specs")


def _check_root(before: int, after: int, image_gb: int) -> None:
    if before == 0 and after > 0:
        before = image_gb
    if after == 0 and before > 0:
        raise CannotResizeDisk(reason="Resize to zero disk flavor is not allowed.")  # Nova's words
    if after < before:
        raise CannotResizeDisk(reason="the flavor has a root disk of %d GiB, the instance %d GiB" % (after, before))


# --- live migration -------------------------------------------------------------------------------------------------------

LEAST_GB = 2


def data_gb(memory_mb: int, disk_sizes: t.Iterable[int]) -> float:
    """Return the amount that a live migration copies, in GiB: memory and disks, each at least LEAST_GB. source: Nova's _live_migration_data_gb

    :arg disk_sizes: in bytes
    """
    parts = [memory_mb / 1024, *(size / GIB for size in disk_sizes)]
    return float(sum(max(LEAST_GB, part) for part in parts))
