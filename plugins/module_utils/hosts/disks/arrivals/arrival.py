# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of one instance that come to this host from another one, whatever their store: by a copy, or with the guest while it runs."""

from __future__ import annotations

import abc
import typing as t

from ..stores.disk_spec import DiskSpec
from ..stores.group import Group

#: A disk as core.guest.arriving_disks.checked_disks() returns it.
Disk = t.Mapping[str, t.Any]
#: Writes what arrives to a descriptor, see copies.stream.receive_file(). Returns the SHA-256.
Write = t.Callable[..., str]


class Arrival(abc.ABC):
    """The disks of one store.

    ``folder``: of the instance on this host. ``sizes``: bytes that disks are to have at least, by name. ``made``: disks that are created here
    """

    #: Whether the disks take room of a volume group, and none of the file system with the folders of instances.
    in_group = False

    def __init__(
        self,
        folder: str,
        group: Group,
        disks: t.Sequence[Disk],
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec],
    ):
        self.folder = folder
        self.uuid = folder.rpartition("/")[2]
        self.group = group
        self.disks = disks
        self.sizes = sizes
        self.made = made

    @abc.abstractmethod
    def require_group(self) -> None:
        """Check that a volume group is given where one is needed. :raises InvalidInput: there is none."""

    @abc.abstractmethod
    def check_group(self) -> None:
        """Check the volume group where one is needed.

        :raises InvalidInput: none is given. :raises DriverNotInitialized: it does not exist or is not usable.
        """

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make what the disks need before they arrive. :raises DiskFull: there is no room."""

    @abc.abstractmethod
    def receive(self, name: str, disk: Disk, write: Write) -> tuple[int, str]:
        """Receive one disk, and let it grow. Returns its bytes, and the SHA-256 of what arrived.

        :raises ImageUnacceptable: the disk refers to other files. :raises InvalidDiskInfo: it has another size than its host said.
        """

    @abc.abstractmethod
    def create(self) -> None:
        """Create the disks that are made here."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Mark the disks as complete: all have arrived, and were compared."""

    @abc.abstractmethod
    def make_empty(self) -> dict[str, dict[str, t.Any]]:
        """Make complete, empty disks, to which libvirt copies the disks of a running guest.

        Returns of disks that are devices the guest's name -> {path, size}: the bytes that the guest sees where the device is larger, else 0.

        :raises DiskFull: there is no room.
        """
