# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""multipathd's maps over the disks of one volume, one disk for each portal.

By default multipathd does not create maps of unknown disks (find_multipaths strict). Therefore the WWID is added, and
multipathd scans the disks again.

source: os-brick's linuxscsi (multipath_add_wwid, wait_for_mpath_device, multipath_resize_map, remove_connection); multipath-tools 0.9
"""

from __future__ import annotations

import os
import time
import typing as t

from ...core.errors import CommandFailed, MissingLibrary, VolumeDeviceNotFound, VolumePathNotRemoved
from ..os.batch import progress
from ..os.command import Completed, program, run
from .devices import MAP, Devices


class Multipath:
    """multipathd of this host. The arguments are for tests.

    :arg wait: seconds to wait for a map, as in os-brick.
    :arg resize_wait: seconds for attempts to resize a map, as in os-brick (MULTIPATHD_RESIZE_TIMEOUT).
    """

    def __init__(
        self,
        devices: Devices,
        sleep: t.Callable[[float], None] = time.sleep,
        wait: float = 10.0,
        resize_wait: float = 120.0,
    ) -> None:
        self.devices = devices
        self.sleep = sleep
        self.wait = wait
        self.resize_wait = resize_wait

    def runs(self) -> bool:
        """Return whether multipathd responds."""
        try:
            done = self._multipathd("show", "status")
        except MissingLibrary:
            return False
        # Older versions report it with exit code 0. A busy multipathd reports "timeout".
        silent = done.stdout.startswith("error receiving packet")
        return (done.rc == 0 and not silent) or done.stdout.strip() == "timeout"

    # ---- make ----------------------------------------------------------------------------------------------------------

    def make(self, names: t.Sequence[str]) -> str:
        """Return the map over these disks, created if needed, and ready; "" if multipathd does not create one.

        :arg names: the kernel names of all disks of one volume.
        :raises VolumeDeviceNotFound: the map has a disk of another volume.
        """
        if not self.devices.map_of(names):
            progress.mark_changed()
            self._multipath("-a", os.path.join(self.devices.dev, names[0]))
        for name in names:
            if not self.devices.map_of([name]):
                progress.mark_changed()
                self._multipathd("add", "path", name)
        for _time in self._tries(self.wait):
            map_name = self.devices.map_of(names)
            if map_name and self._is_ready(map_name):
                self._check_members(map_name, names)
                return map_name
        return ""

    def _is_ready(self, name: str) -> bool:
        """Return whether udev created the link and at least one path is usable."""
        self.devices.wait_for_udev()
        return os.path.exists(self.devices.map_path(name)) and self._multipath("-C", name).rc == 0

    def _check_members(self, name: str, names: t.Sequence[str]) -> None:
        """Check the disks of a map: multipathd trusts the identity of disks, and two targets may report the same one for two volumes."""
        strange = [member for member in self.devices.members(name) if member not in names]
        if strange:
            raise VolumeDeviceNotFound(
                message="multipathd has merged %s, which do not belong to this volume, into one map with %s"
                % (" ".join(strange), " ".join(names)),
                remedy="Two targets offer disks with the same WWID. Change the identity of one of them.",
            )

    # ---- extend --------------------------------------------------------------------------------------------------------

    def resize(self, name: str, size: int) -> None:
        """Resize a map to the current size of its disks.

        :arg size: bytes.
        :raises CommandFailed: multipathd did not resize it.
        """
        done = Completed(0, "", "")
        for attempt, _time in enumerate(self._tries(self.resize_wait)):
            if self.devices.size(name) == size:
                return
            if attempt == 1:
                # multipathd may have lost the map. While it is resizing, it reports "timeout".
                self._multipathd("reconfigure")
            done = self._multipathd("resize", "map", self.devices.map_name(name))
        if self.devices.size(name) != size:
            raise CommandFailed(
                cmd="multipathd resize map", rc=done.rc, stderr=(done.stdout + done.stderr).strip()[-500:]
            )

    # ---- remove --------------------------------------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Flush the cache of a map, and remove the map.

        :raises VolumePathNotRemoved: the map still exists.
        """
        path, uuid = self.devices.map_path(name), self.devices.map_uuid(name)
        run([program("blockdev", "util-linux"), "--flushbufs", path], timeout=300)
        # A scanner such as udev may still have it open.
        for _time in range(3):
            done = self._multipath("-f", self.devices.map_name(name), timeout=300)
            self.devices.wait_for_udev()
            if self.devices.map_uuid(name) != uuid:
                break
            self.sleep(2)
        else:
            raise VolumePathNotRemoved(
                message="multipath -f did not remove %s: %s" % (path, (done.stdout + done.stderr).strip()[-500:]),
                remedy="Find what has the map open: lsblk, dmsetup ls --tree.",
            )
        # Each volume has its own WWID, so the file of known WWIDs would grow forever.
        self._multipath("-w", uuid[len(MAP) :])

    def forget(self, names: t.Sequence[str]) -> None:
        """Wait until multipathd has noticed that these disks are gone, because a new disk may get one of the names immediately."""
        if not self.runs():
            return
        remaining = list(names)
        for _time in self._tries(5):
            shown = self._multipathd("show", "paths", "raw", "format", "%d").stdout.split()
            remaining = [name for name in names if name in shown]
            if not remaining:
                return
        for name in remaining:
            self._multipathd("del", "path", name)

    # ---- programs ------------------------------------------------------------------------------------------------------

    def _tries(self, seconds: float) -> t.Iterator[None]:
        """Yield immediately, and again with growing pauses up to that many seconds in total."""
        pause, slept = 0.1, 0.0
        while True:
            yield
            if slept >= seconds:
                return
            self.sleep(pause)
            slept += pause
            pause = min(pause * 1.5, 1.0)

    def _multipathd(self, *words: str) -> Completed:
        return run([program("multipathd", "multipath-tools"), *words], timeout=30, check=False)

    def _multipath(self, *words: str, timeout: float = 60) -> Completed:
        return run([program("multipath", "multipath-tools"), *words], timeout=timeout, check=False)
