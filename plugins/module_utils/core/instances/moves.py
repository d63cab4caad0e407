# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of instances between hosts: their statuses, and which flavor an instance may get.

source: Nova's Migration object, compute.api.API.resize, and the libvirt driver's migrate_disk_and_power_off
"""

from __future__ import annotations

import typing as t

from ..errors import CannotResizeDisk, CannotResizeToSameFlavor, MoveNotSupported
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


def check_flavor(old: t.Mapping[str, t.Any], new: Flavor, volume_backed: bool, uuid: str, image_gb: int = 0) -> None:
    """Check whether an instance may be resized.

    :arg old: its flavor, as its request has it. :arg volume_backed: its root disk is a volume, which has a size of its own.
    :arg image_gb: what its root disk has become with a flavor whose root_gb is 0.
    :raises CannotResizeToSameFlavor, CannotResizeDisk, MoveNotSupported: it may not.
    """
    if old["name"] == new.name and all(old[name] == getattr(new, name) for name in _SIZES):
        raise CannotResizeToSameFlavor()
    if not volume_backed:
        _check_root(int(old["root_gb"]), new.root_gb, image_gb)
    for name, what, unit in (("ephemeral_gb", "ephemeral disk", "GB"), ("swap", "swap", "MB")):
        before, after = int(old[name]), int(getattr(new, name))
        if after < before:
            raise CannotResizeDisk(reason="the flavor has %d %s of %s, the instance %d" % (after, unit, what, before))
        if after > before:
            raise MoveNotSupported(
                instance_uuid=uuid,
                reason="the flavor %s has %d %s of %s, the instance %d, and only root disks grow"
                % (new.name, after, unit, what, before),
                remedy="Choose a flavor with the same ephemeral disk and swap.",
            )


_SIZES = ("memory_mb", "vcpus", "root_gb", "ephemeral_gb", "swap", "extra_specs")


def _check_root(before: int, after: int, image_gb: int) -> None:
    if before == 0 and after > 0:
        before = image_gb
    if after == 0 and before > 0:
        raise CannotResizeDisk(reason="Resize to zero disk flavor is not allowed.")  # Nova's words
    if after < before:
        raise CannotResizeDisk(reason="the flavor has a root disk of %d GB, the instance %d GB" % (after, before))
