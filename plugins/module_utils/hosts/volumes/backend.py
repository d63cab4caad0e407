# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of one LVM backend, checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.disks.logical_volumes import checked_lvm_name
from ...core.errors import InvalidInput
from ...core.volumes.names import CLEARS, DISCARD, ZERO
from ..images.fetch import UNLIMITED, FetchLimits
from .image_cache import Limits
from .volume_images import checked_temp_dir


@dataclass(frozen=True)
class Backend:
    """A backend and its settings. ``pool`` is "" for thick volumes."""

    vg: str
    pool: str = ""
    clear: str = ZERO
    clear_size: int = 0  # bytes; 0: all
    temp_dir: str = "/var/lib/bootflow/conversion"
    verify: bool = True
    image_cache: bool = True  # thin only
    cache_limits: Limits = field(default_factory=Limits)
    allow_unverified: bool = False
    fetch_limits: FetchLimits = UNLIMITED
    workers: int = 4
    check_mode: bool = False
    ledger_id: str = ""

    def checked(self) -> Backend:
        """Check the backend. :raises InvalidInput: a name is not valid for LVM, or a setting has an invalid value."""
        checked_lvm_name(self.vg, "volume group")
        if self.pool:
            checked_lvm_name(self.pool, "thin pool")
        if self.clear not in CLEARS or self.clear_size < 0:
            raise InvalidInput(
                reason="volume_clear must be one of %s with a size of 0 bytes or more, got %r with %d bytes"
                % (", ".join(CLEARS), self.clear, self.clear_size)
            )
        if self.cache_limits.max_gb < 0 or self.cache_limits.max_count < 0:
            raise InvalidInput(
                reason="limits of the image cache must be 0 (no limit) or more, got %d GiB and %d images"
                % (self.cache_limits.max_gb, self.cache_limits.max_count)
            )
        if self.clear == DISCARD and not self.pool:
            raise InvalidInput(
                reason="volume_clear discard does not clear thick volumes: many devices return the old data afterwards",
                remedy="Set volume_clear to zero, shred or none.",
            )
        checked_temp_dir(self.temp_dir)
        return self
