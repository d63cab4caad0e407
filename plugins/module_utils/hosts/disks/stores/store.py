# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of a host with the local disks of guests, whatever their store: one class for each way to keep them."""

from __future__ import annotations

import abc
import typing as t

from ....core.disks.stores.store_type import StoreType
from ...images.images import BaseImage
from .disk_spec import DiskSpec
from .group import Group


class OpenDisk(t.NamedTuple):
    """A disk that is open for reading, without its base image. ``record``: its record in disk.info, for a new host"""

    name: str
    fd: int
    record: dict[str, t.Any]
    mounted: bool = False  # in a file system of the instance


class Store(abc.ABC):
    """The local disks of guests on this host in one type of store. ``group``: its volume group, without a name where it needs none"""

    def __init__(self, store_type: StoreType, group: Group):
        self.type = store_type
        self.group = group

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

    @abc.abstractmethod
    def make_readable(self, folder: str, name: str, record: t.Mapping[str, t.Any]) -> None:
        """Activate and mount what a disk is on, of an instance whose guest is off. The path is that of ``type.source()``.

        :arg folder: of the instance. :arg name: of the record there
        :raises InvalidDiskInfo: the disk is missing. :raises VolumeIsBusy: something has it open.
        """

    @abc.abstractmethod
    def opened(
        self, folder: str, name: str, record: t.Mapping[str, t.Any], left_behind: t.Collection[str]
    ) -> t.Iterator[OpenDisk]:
        """Open the disks that a record describes, of an instance whose guest is off. A layer over a base image is made a disk without one, and no name of that
        remains.

        :arg folder: of the instance. :arg name: of the record there. :arg left_behind: disks that stay behind
        :raises InvalidDiskInfo: a disk is missing, or not of a known format.
        :raises CommandFailed, VolumeIsBusy: a guest uses it. :raises DiskFull: there is no room for a disk without its base image.
        """

    @abc.abstractmethod
    def make_replacement(self, folder: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> None:
        """Make a disk of an image that is to replace the one of its name, which stays as it is. The replacement of a killed run is made again.

        :arg folder: of the instance. :arg bases: image id -> image in the cache
        :raises FlavorDiskSmallerThanImage, DiskFull, CommandFailed, InvalidInput, VolumeIsBusy: as named.
        """

    @abc.abstractmethod
    def take_replacement(self, folder: str, name: str) -> None:
        """Replace a disk, with its record. The guest is off. drop_replacement() removes what is left.

        :arg folder: of the instance. :arg name: of the disk
        :raises InvalidDiskInfo: there is no replacement. :raises VolumeIsBusy: something has the disk open.
        """

    @abc.abstractmethod
    def drop_replacement(self, folder: str, name: str) -> bool:
        """Remove the replacement of a disk, and what the disk was before. Returns whether there was any. An exchange that was interrupted is undone.

        :arg folder: of the instance. :arg name: of the disk
        :raises VolumeIsBusy: something has it open. :raises CommandFailed: it was not cleared.
        """
