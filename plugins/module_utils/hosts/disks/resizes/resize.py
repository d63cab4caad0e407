# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of one instance that is resized on its own host, whatever their store: copies, the exchange, and what ends it (resized.py)."""

from __future__ import annotations

import abc
import typing as t

from ..stores.disk_spec import DiskSpec
from ..stores.group import Group

Records = t.Mapping[str, t.Mapping[str, t.Any]]


class Resize(abc.ABC):
    """The disks of one instance. Each step can be killed anywhere and done again. ``group``: of the instance; without a name where it needs none"""

    def __init__(self, group: Group):
        self.group = group

    @abc.abstractmethod
    def place(self, folder: str) -> str:
        """Return the folder with the disks, where they can be read. :arg folder: of the instance

        :raises InvalidDiskInfo: what holds the disks does not exist.
        """

    @abc.abstractmethod
    def check(self, folder: str, records: Records, made: t.Sequence[DiskSpec]) -> int:
        """Check that the disks can be copied. Returns the bytes that copies take in the folder of the instance.

        :raises InvalidDiskInfo: a disk is missing, or not of a known format. :raises CommandFailed: a guest uses it.
        """

    @abc.abstractmethod
    def copy(
        self,
        folder: str,
        part: str,
        records: Records,
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec],
        needed: int,
    ) -> dict[str, t.Any]:
        """Copy the disks, not smaller than ``sizes`` (bytes, by name), and create ``made``. Returns the records of both.

        :arg part: the folder for copies that are files, and for the records. :arg needed: as check() returned
        :raises DiskFull: there is no room. :raises InvalidDiskInfo: a disk is missing. :raises VolumeIsBusy: a guest uses it.
        """

    @abc.abstractmethod
    def close(self, folder: str) -> None:
        """Unmount what holds the disks. :raises VolumeIsBusy: a disk is open."""

    @abc.abstractmethod
    def files_of(self, names: t.Collection[str]) -> t.Collection[str]:
        """Return the disks of ``names`` that may be files in the folder of the instance."""

    @abc.abstractmethod
    def swap_in(self, folder: str, dropped: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        """Make the copies outside of the folder the disks. :arg dropped: disks that the instance has no more. :arg records: of the copies"""

    @abc.abstractmethod
    def is_swapped_in(self, uuid: str, added: t.Collection[str]) -> bool:
        """Return whether roll_back() has something to do outside of the folder."""

    @abc.abstractmethod
    def roll_back(self, folder: str, added: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        """Do the opposite of swap_in(). :arg added: disks that the instance did not have. :arg records: of what it had"""

    @abc.abstractmethod
    def discard_copies(self, uuid: str) -> bool:
        """Remove the copies outside of the folder. Returns whether there were any. :raises VolumeIsBusy: one is open."""

    @abc.abstractmethod
    def commit(self, uuid: str) -> bool:
        """Remove what the instance had outside of the folder, and copies. Returns whether there was any. :raises VolumeIsBusy: one is open."""
