# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""multipathd's maps over the disks of one volume, one disk for each portal.

As it is shipped multipathd makes no map of what it has never seen (find_multipaths strict), so it is told that this is a
multipath, and to look at the disks again.

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
    """multipathd of this host. The arguments are there for tests.

    :arg wait: seconds to wait for a map to appear, as in os-brick.
    :arg resize_wait: seconds to try to resize a map, as in os-brick (MULTIPATHD_RESIZE_TIMEOUT).
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
        """Whether multipathd answers."""
        try:
            done = self._multipathd("show", "status")
        except MissingLibrary:
            return False
        # Older ones tell it with exit code 0. One that is busy for long says "timeout".
        silent = done.stdout.startswith("error receiving packet")
        return (done.rc == 0 and not silent) or done.stdout.strip() == "timeout"

    # ---- make ----------------------------------------------------------------------------------------------------------

    def make(self, names: t.Sequence[str]) -> str:
        """The map over these disks, made when it is not there, and ready; "" when multipathd makes none.

        :arg names: the kernel's names of all disks of one volume.
        :raises VolumeDeviceNotFound: it has a disk that is another volume's.
        """
        if not self.devices.map_of(names):
            progress.mark_changed()
            self._multipath("-a", os.path.join(self.devices.dev, names[0]))
        for name in names:
            if not self.devices.map_of([name]):
                progress.mark_changed()
                self._multipathd("add", "path", name)
        for _time in self._tries(self.wait):
            found = self.devices.map_of(names)
            if found and self._is_ready(found):
                self._check_members(found, names)
                return found
        return ""

    def _is_ready(self, name: str) -> bool:
        """udev made its link, and one of its paths can be used."""
        self.devices.settle()
        return os.path.exists(self.devices.map_path(name)) and self._multipath("-C", name).rc == 0

    def _check_members(self, name: str, names: t.Sequence[str]) -> None:
        """multipathd goes by what disks say of themselves; two targets may say the same of two volumes."""
        strange = [each for each in self.devices.members(name) if each not in names]
        if strange:
            raise VolumeDeviceNotFound(
                message="multipathd has merged %s, which do not belong to this volume, into one map with %s"
                % (" ".join(strange), " ".join(names)),
                remedy="Two targets offer disks with the same WWID. Change the identity of one of them.",
            )

    # ---- extend --------------------------------------------------------------------------------------------------------

    def resize(self, name: str, size: int) -> None:
        """Give a map the size that its disks have by now.

        :arg size: bytes.
        :raises CommandFailed: multipathd did not.
        """
        done = Completed(0, "", "")
        for attempt, _time in enumerate(self._tries(self.resize_wait)):
            if self.devices.size(name) == size:
                return
            if attempt == 1:
                # It may have lost sight of the map. While it is at this, it answers "timeout".
                self._multipathd("reconfigure")
            done = self._multipathd("resize", "map", self.devices.map_name(name))
        if self.devices.size(name) != size:
            raise CommandFailed(
                cmd="multipathd resize map", rc=done.rc, stderr=(done.stdout + done.stderr).strip()[-500:]
            )

    # ---- remove --------------------------------------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Write what is in a map's cache, and take the map away.

        :raises VolumePathNotRemoved: it is still there.
        """
        path, uuid = self.devices.map_path(name), self.devices.map_uuid(name)
        run([program("blockdev", "util-linux"), "--flushbufs", path], timeout=300)
        # Who looked at it a moment ago, such as udev, may still have it open.
        for _time in range(3):
            done = self._multipath("-f", self.devices.map_name(name), timeout=300)
            self.devices.settle()
            if self.devices.map_uuid(name) != uuid:
                break
            self.sleep(2)
        else:
            raise VolumePathNotRemoved(
                message="multipath -f did not remove %s: %s" % (path, (done.stdout + done.stderr).strip()[-500:]),
                remedy="Find what has the map open: lsblk, dmsetup ls --tree.",
            )
        # A volume has a WWID of its own: the file of those that are known would grow for ever.
        self._multipath("-w", uuid[len(MAP) :])

    def forget(self, names: t.Sequence[str]) -> None:
        """Wait until multipathd has seen that these disks are gone: another disk may be given the name of one at once."""
        if not self.runs():
            return
        left = list(names)
        for _time in self._tries(5):
            shown = self._multipathd("show", "paths", "raw", "format", "%d").stdout.split()
            left = [name for name in names if name in shown]
            if not left:
                return
        for name in left:
            self._multipathd("del", "path", name)

    # ---- programs ------------------------------------------------------------------------------------------------------

    def _tries(self, seconds: float) -> t.Iterator[None]:
        """Now, and again with growing pauses until they make that many seconds."""
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
