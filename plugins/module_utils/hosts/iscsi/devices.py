# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SCSI disks of iSCSI sessions in sysfs: lookup, users, and removal from the kernel.

source: the kernel's sysfs; os-brick's linuxscsi (Queens)
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import time
import typing as t

from ...core.errors import CommandFailed, VolumePathNotRemoved
from ..os.command import program, run
from ..os.files import read_text
from ..os.guest_content import Blocks
from ..os.sysfs import write_sysfs

_ADDRESS = re.compile(r"\d+:\d+:\d+:(\d+)/block\Z")
_HOST = re.compile(r"/host(\d+)/")

#: Prefix of the device mapper UUID of multipathd's maps; the WWID follows.
MAP = "mpath-"


class Devices:
    """The disks of this host. ``sys``, ``proc`` and ``dev`` are other directories in tests."""

    def __init__(self, sys: str = "/sys", proc: str = "/proc", dev: str = "/dev", timeout: float = 30.0) -> None:
        self.sys = sys
        self.proc = proc
        self.dev = dev
        self.timeout = timeout

    # ---- what there is -------------------------------------------------------------------------------------------------

    def disks_of_session(self, number: int, lun: int | None = None) -> list[str]:
        """Return the kernel names of the disks of a session, of one LUN or of all."""
        folders = self._folders(number)
        return [name for at, folder in folders if lun in (None, at) for name in sorted(os.listdir(folder))]

    def luns_of_session(self, number: int) -> list[int]:
        """Return the LUNs of a session that are disks, without the controller that some targets have."""
        return sorted(lun for lun, _folder in self._folders(number))

    def _folders(self, number: int) -> list[tuple[int, str]]:
        """Return (LUN, folder of its disk) of a session."""
        pattern = os.path.join(self.sys, "class/iscsi_session/session%d/device/target*/*:*:*:*/block" % number)
        matches = [(_ADDRESS.search(folder), folder) for folder in sorted(glob.glob(pattern))]
        return [(int(address.group(1)), folder) for address, folder in matches if address]

    def _block(self, name: str, *parts: str) -> str:
        return os.path.join(self.sys, "block", name, *parts)

    def size(self, name: str) -> int:
        """Return the size in bytes; 0 if the disk does not exist."""
        text = read_text(self._block(name, "size"))
        return int(text) * 512 if text.isdigit() else 0

    def serial(self, name: str) -> str:
        """Return the unit serial number (VPD page 80h); "" without one."""
        try:
            with open(self._block(name, "device", "vpd_pg80"), "rb") as file:
                page = file.read()
        except OSError:
            return ""
        return page[4 : 4 + int.from_bytes(page[2:4], "big")].decode("ascii", "replace").strip("\0 ")

    def map_of(self, names: t.Sequence[str]) -> str:
        """Return the kernel name, dm-N, of multipathd's map over one of these disks; "" without one."""
        for name in names:
            for holder in self._holders(name):
                if self.map_uuid(holder).startswith(MAP):
                    return holder
        return ""

    def map_uuid(self, name: str) -> str:
        """Return mpath-WWID of a map dm-N; "" if it does not exist."""
        return read_text(self._block(name, "dm", "uuid"))

    def map_name(self, name: str) -> str:
        """Return the name of a map dm-N in multipathd: its WWID, or a configured alias."""
        return read_text(self._block(name, "dm", "name"))

    def map_path(self, name: str) -> str:
        """Return the link to a map dm-N with its WWID, because with user_friendly_names mpatha may become another volume."""
        by_id = os.path.join(self.dev, "disk/by-id/dm-uuid-" + self.map_uuid(name))
        return by_id if os.path.exists(by_id) else os.path.join(self.dev, "mapper", self.map_name(name))

    def members(self, name: str) -> list[str]:
        """Return the disks of a map dm-N, without disks that are being removed from the kernel."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(disk for disk in os.listdir(self._block(name, "slaves")) if os.path.exists(self._block(disk)))
        return []

    def is_logged_in(self, number: int) -> bool:
        """Return whether the connection of a session is up; otherwise the kernel keeps reconnecting."""
        path = os.path.join(self.sys, "class/iscsi_session/session%d/state" % number)
        return read_text(path) in ("LOGGED_IN", "")

    def _holders(self, name: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self._block(name, "holders")))
        return []

    def _partitions(self, name: str) -> list[str]:
        return [os.path.basename(os.path.dirname(path)) for path in glob.glob(self._block(name, "*", "partition"))]

    # ---- who uses it ---------------------------------------------------------------------------------------------------

    def users(self, names: t.Sequence[str], held: bool = True) -> list[str]:
        """Return why these disks cannot be removed, one text per reason: mounted, swap, held by another device, open in a process.

        The multipath map over them is not a reason itself; its users are.

        :arg held: false: neither is any other device over them, which release() would deactivate; its users are.
        """
        looked_at: list[str] = []
        reasons: list[str] = []
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            if name in looked_at:
                continue
            looked_at.append(name)
            for part in [name] + self._partitions(name):
                for holder in self._holders(part):
                    waiting.append(holder)
                    if held and not self.map_uuid(holder).startswith((MAP, "part")):
                        label = self.map_name(holder) or holder
                        reasons.append("%s is part of %s" % (part, label))
        nodes = {}
        for name in looked_at:
            for part in [name] + self._partitions(name):
                number = read_text(os.path.join(self._block(name), part if part != name else "", "dev"))
                if number:
                    nodes[number] = part
        return reasons + self._mounts(nodes) + self._openers(nodes)

    def _mounts(self, nodes: t.Mapping[str, str]) -> list[str]:
        reasons = []
        for line in read_text(os.path.join(self.proc, "self/mountinfo")).splitlines():
            words = line.split(" ")
            if len(words) > 4 and words[2] in nodes:
                reasons.append("%s is mounted at %s" % (nodes[words[2]], words[4]))
        for line in read_text(os.path.join(self.proc, "swaps")).splitlines()[1:]:
            name = os.path.basename(os.path.realpath(line.split(" ")[0].split("\t")[0]))
            if name in nodes.values():
                reasons.append("%s is used as swap" % name)
        return reasons

    def _openers(self, nodes: t.Mapping[str, str]) -> list[str]:
        """Return the processes that have a node of one of these devices open, except udev, which scans new disks for a moment."""
        reasons = set()
        for link in glob.iglob(os.path.join(self.proc, "[0-9]*/fd/*")):
            try:
                target = os.readlink(link)
                if not target.startswith(self.dev + "/"):
                    continue
                device = os.stat(link).st_rdev
            except OSError:
                continue
            name = nodes.get("%d:%d" % (os.major(device), os.minor(device)))
            pid = link[len(self.proc) :].strip("/").split("/")[0]
            program_name = read_text(os.path.join(self.proc, pid, "comm"))
            if name and program_name not in ("systemd-udevd", "(udev-worker)", "multipathd"):
                reasons.add("%s is open in %s (process %s)" % (name, program_name, pid))
        return sorted(reasons)

    def release(self, names: t.Sequence[str]) -> None:
        """Deactivate what this host made of the content of these disks (groups of LVM, arrays of md), unless it is in use."""
        Blocks(self.sys).release(names)

    # ---- change --------------------------------------------------------------------------------------------------------

    def wait_for_udev(self) -> None:
        """Wait until udev has created its links."""
        udevadm = shutil.which("udevadm")
        if udevadm:
            run([udevadm, "settle", "--timeout=10"], timeout=20, check=False)

    def scan(self, number: int, lun: int) -> None:
        """Make the kernel scan a session for one LUN only, so that a volume that is being removed does not come back.

        :raises WaitTimeout: the target does not respond.
        """
        match = _HOST.search(os.path.realpath(os.path.join(self.sys, "class/iscsi_session/session%d" % number)) + "/")
        if match:
            path = os.path.join(self.sys, "class/scsi_host/host%s/scan" % match.group(1))
            with contextlib.suppress(FileNotFoundError, CommandFailed):
                write_sysfs(path, "- - %d" % lun)

    def rescan(self, name: str) -> None:
        """Make the kernel read the size of a disk. :raises WaitTimeout: the target does not respond."""
        write_sysfs(self._block(name, "device", "rescan"), "1")

    def flush(self, names: t.Sequence[str]) -> None:
        """Flush the caches of these disks."""
        for name in names:
            run([program("blockdev", "util-linux"), "--flushbufs", os.path.join(self.dev, name)], timeout=300)

    def delete(self, names: t.Sequence[str]) -> None:
        """Remove these disks from the kernel.

        :raises WaitTimeout: the kernel is not done because the target does not respond.
        :raises VolumePathNotRemoved: a disk still exists after the timeout.
        """
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                write_sysfs(self._block(name, "device", "delete"), "1", timeout=300)
        deadline = time.monotonic() + self.timeout
        for name in names:
            while os.path.exists(self._block(name)):
                if time.monotonic() > deadline:
                    raise VolumePathNotRemoved(volume_path=os.path.join(self.dev, name))
                time.sleep(0.05)
        self.wait_for_udev()
