# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host does with the local disks of guests, whatever their store: one class for each way to keep them."""

from __future__ import annotations

import abc
import typing as t

from ....core.disks.stores.store_type import StoreType
from ...images.images import BaseImage
from .disk_spec import DiskSpec


class Store(abc.ABC):
    """The local disks of guests on this host in one type of store. ``group``: its volume group; "": it needs none"""

    def __init__(self, store_type: StoreType, group: str = "", ledger_id: str = ""):
        self.type = store_type
        self.group = group
        self.ledger_id = ledger_id

    @abc.abstractmethod
    def ensure(
        self, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
    ) -> dict[str, t.Any]:
        """Create the missing disks of one instance; {changed, disks: [{name, path, format, virtual_size}]}.

        :arg folder: of the instance. :arg bases: image id -> image in the cache.
        :raises InvalidDiskInfo: a disk exists that is not recorded, or is recorded as another kind of disk.
        :raises DriverNotInitialized: the volume group does not exist or is not usable.
        :raises FlavorDiskSmallerThanImage, DiskFull, CommandFailed, InvalidInput: as named.
        """

    @abc.abstractmethod
    def facts(self, instances_path: str, growth: t.Callable[[], int]) -> dict[str, t.Any]:
        """Return local_gb, local_gb_used and disk_available_least, in GiB rounded down; of a volume group instance_volumes too.

        :arg growth: the bytes by which files of the host's domains can still grow
        :raises DriverNotInitialized: the volume group does not exist or is not usable.
        """
