# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A type of store for the local disks of guests: where their disks are, in which format, and which records disk.info has of them.

hosts/disks/stores does the work on a host. source: Nova's images_type
"""

from __future__ import annotations

import abc
import posixpath
import typing as t
from types import MappingProxyType

from ...errors import InvalidInput
from ..local import QCOW2
from ..logical_volumes import checked_lvm_name


class Source(t.NamedTuple):
    """Location of a disk for QEMU, and its format there. The fields are the same as in PlannedDisk.placed()."""

    path: str  # "" where QEMU reaches the disk by a protocol
    driver_format: str
    source: str = "file"
    connection: t.Mapping[str, t.Any] = MappingProxyType({})  # of source network, see PlannedDisk


class Pool(t.Protocol):
    """A pool that several hosts reach (core.volumes.disk_pool)."""

    @property
    def pool(self) -> str: ...

    def connection(self, uuid: str, disk: str) -> dict[str, t.Any]:
        """Return the ``connection`` of a guest's disk, see PlannedDisk. :arg disk: its name"""


class StoreType(abc.ABC):
    """A type of store. ``name``: its value of bootflow_disk_backend."""

    name: str
    #: The field ``format`` in the record of each disk.
    record_format: str
    #: Whether the store needs a volume group of the host.
    needs_group = False
    #: Whether the disk of an image is a layer over the base image of the host. If not, it is a copy.
    is_layered = False
    #: The format of the disk of a rescue, which is always a file in the folder of the instance.
    rescue_format = QCOW2
    #: Whether a disk is a logical volume.
    is_volume = False
    #: Whether a record of this format describes a file system of an instance, whose own records describe its disks.
    is_file_system = False
    #: Bytes that a disk may be larger than its flavor says: another host may have larger extents.
    rounding = 0
    #: The content of a disk on its way to another host, in a message.
    content = "%d bytes"

    #: Whether disks are where all hosts of one pool reach them. They stay there when their instance goes to another host.
    is_shared = False
    #: The connector by which QEMU opens the disks; "": they are the host's own.
    connector = ""

    @abc.abstractmethod
    def source(self, uuid: str, disk: str, folder: str, volume_group: str, pool: Pool | None = None) -> Source:
        """Return where a disk is. :arg disk: its name. :arg folder: the folder of the instance on its host. :arg pool: of a store that needs one"""

    def place(self, folder: str) -> str:
        """Return the folder of the disk.info that records the disks. :arg folder: of the instance"""
        return folder

    @abc.abstractmethod
    def has_length(self, sent: int, size: int) -> bool:
        """Return whether ``sent`` bytes can be the content of a disk of ``size`` bytes."""

    def checked_group(self, volume_group: str) -> str:
        """Return the volume group of a store that needs one; "" for other stores.

        :raises InvalidInput: the volume group is not set or has an invalid name.
        """
        if not self.needs_group:
            return ""
        if not volume_group:
            raise InvalidInput(
                reason="disk backend %s requires a volume group" % self.name,
                remedy="Set bootflow_disk_volume_group for the host.",
            )
        return checked_lvm_name(volume_group, "volume group")

    def require_pool(self, pool: Pool | None) -> None:
        """Check that a store that needs a pool has one. :raises InvalidInput: the settings of the pool are missing"""
        if self.is_shared and pool is None:
            raise InvalidInput(
                reason="disk backend %s requires a pool" % self.name,
                remedy="Set bootflow_disk_rbd_pool, _user, _monitors, _fsid and _key for the host.",
            )


class FilesType(StoreType):
    """A store whose disks are files in the folder of the instance."""

    def source(self, uuid: str, disk: str, folder: str, volume_group: str, pool: Pool | None = None) -> Source:
        return Source(posixpath.join(folder, disk), self.record_format)
