# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices of this host with content that guests wrote, and the devices that the host itself made of that content.

udev activates whatever it recognises on a new disk: volume groups of LVM, arrays of md, bcache. On the disk of a guest that is the guest's
business. See guest_rules for what prevents it; this file finds what happened in spite of that, and undoes it.

source: the kernel's sysfs
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import typing as t
from dataclasses import dataclass

from ...core.errors import CommandFailed, WaitTimeout
from .command import program, run
from .files import read_text
from .sysfs import write_sysfs

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TARGET = re.compile(r"volume-(%s)\Z" % _UUID, re.IGNORECASE)
#: Logical volumes that guests write: volumes, their snapshots and images, and local disks. source: lvm_tags; core.disks.local
_LOGICAL_VOLUME = re.compile(
    r"(?:(?:volume|_snapshot|clone-snap)-%s|image-[0-9a-f-]{40,}|%s_disk(?:\.[a-z0-9.]+)?)\Z" % (_UUID, _UUID)
)
_SESSION = re.compile(r"/session(\d+)/")
#: Beginnings of the UUIDs of device mapper devices.
_MULTIPATH, _PARTITION = "mpath-", "part"
_KINDS = (("LVM-", "LVM"), ("CRYPT-", "dm-crypt"), (_PARTITION, "kpartx"), (_MULTIPATH, "multipath"))


@dataclass(frozen=True)
class Holder:
    """A block device that this host made of the content of others. ``name``: of the kernel; ``label``: for people."""

    name: str
    kind: str
    label: str


class Blocks:
    """The block devices of this host. The arguments are for tests."""

    def __init__(self, sys: str = "/sys") -> None:
        self.sys = sys

    def _path(self, name: str, *parts: str) -> str:
        return os.path.join(self.sys, "class/block", name, *parts)

    def _read(self, name: str, *parts: str) -> str:
        return read_text(self._path(name, *parts))

    def _listed(self, name: str, what: str) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(os.listdir(self._path(name, what)))
        return []

    # ---- disks of guests -----------------------------------------------------------------------------------------------

    def of_guests(self, local: bool = True) -> dict[str, str]:
        """Return the kernel name of each block device that a guest writes -> what it is. Includes partitions and the maps of multipathd and kpartx.

        :arg local: also logical volumes of this host.
        """
        device_texts = {**self._of_targets(), **(self._of_groups() if local else {})}
        waiting = list(device_texts)
        while waiting:
            name = waiting.pop()
            for related in [
                *self.partitions(name),
                *(h for h in self._listed(name, "holders") if self._is_plain_map(h)),
            ]:
                if related not in device_texts:
                    device_texts[related] = device_texts[name]
                    waiting.append(related)
        return device_texts

    def _of_targets(self) -> dict[str, str]:
        """Return the disks of iSCSI sessions with targets of volumes, ours or Cinder's."""
        volumes = {}
        for path in glob.glob(os.path.join(self.sys, "class/iscsi_session/session*/targetname")):
            target = _TARGET.search(read_text(path))
            if target:
                volumes[os.path.basename(os.path.dirname(path))[len("session") :]] = target.group(1).lower()
        device_texts = {}
        for path in glob.glob(self._path("*", "device")) if volumes else ():
            session = _SESSION.search(os.path.realpath(path) + "/")
            if session and session.group(1) in volumes:
                device_texts[os.path.basename(os.path.dirname(path))] = "volume %s" % volumes[session.group(1)]
        return device_texts

    def _of_groups(self) -> dict[str, str]:
        """Return the logical volumes that guests write."""
        device_texts = {}
        for path in glob.glob(self._path("dm-*", "dm", "name")):
            name = path.split("/")[-3]
            if self._read(name, "dm", "uuid").startswith("LVM-"):
                vg, lv = split_dm_name(read_text(path))
                if _LOGICAL_VOLUME.match(lv):
                    device_texts[name] = "logical volume %s/%s" % (vg, lv)
        return device_texts

    def partitions(self, name: str) -> list[str]:
        """Return the partitions that the kernel found on a disk."""
        return sorted(path.split("/")[-2] for path in glob.glob(self._path(name, "*", "partition")))

    # ---- what the host made of them ------------------------------------------------------------------------------------

    def _is_plain_map(self, name: str) -> bool:
        """Return whether it is a map with the same content: of multipathd, or of a partition."""
        return self._read(name, "dm", "uuid").startswith((_MULTIPATH, _PARTITION))

    def holder(self, name: str) -> Holder:
        uuid = self._read(name, "dm", "uuid")
        label = self._read(name, "dm", "name")
        kinds = [kind for start, kind in _KINDS if uuid.startswith(start)]
        if uuid.startswith("LVM-"):
            label = "%s/%s" % split_dm_name(label)
        if not kinds:
            kinds = [kind for kind in ("md", "bcache") if name.startswith(kind)] + [
                "device mapper" if uuid else "other"
            ]
        return Holder(name, kinds[0], label or name)

    def holders(self, names: t.Iterable[str]) -> list[Holder]:
        """Return the devices over these ones, the topmost first; without maps of multipathd, which belong to a connection."""
        order: list[str] = []
        below: set[str] = set()

        def visit(name: str) -> None:
            if name in below:
                return
            below.add(name)
            for upper in [*self._listed(name, "holders"), *self.partitions(name)]:
                visit(upper)
            order.append(name)

        start = list(names)
        for name in start:
            visit(name)
        ours = {*start, *(part for name in start for part in self.partitions(name))}
        upper_devices = [self.holder(name) for name in order if name not in ours and not self._is_partition(name)]
        return [holder for holder in upper_devices if holder.kind != "multipath"]

    def _is_partition(self, name: str) -> bool:
        return os.path.exists(self._path(name, "partition"))

    def activated(self) -> list[str]:
        """List the devices that this host activated on guests' disks, one text each: none of them is of use to it.

        Partitions are left out, as they activate nothing.
        """
        texts = []
        for name, what in sorted(self.of_guests().items()):
            for upper in self._listed(name, "holders"):
                holder = self.holder(upper)
                if holder.kind not in ("kpartx", "multipath"):
                    texts.append("%s %s on %s" % (holder.kind, holder.label, what))
        return sorted(set(texts))

    # ---- release -------------------------------------------------------------------------------------------------------

    def release(self, names: t.Sequence[str]) -> list[str]:
        """Deactivate what this host made of the content of these devices, unless it is in use; what was deactivated.

        The content does not change. The kernel refuses where something is mounted or open.
        """
        done = []
        for name in names:
            for device in [name, *self.partitions(name)]:
                self._stop_bcache(device)
        for holder in self.holders(names):
            with contextlib.suppress(CommandFailed, WaitTimeout, FileNotFoundError):
                self._stop(holder)
                done.append("%s %s" % (holder.kind, holder.label))
        if done:
            udevadm = shutil.which("udevadm")
            if udevadm:
                run([udevadm, "settle", "--timeout=10"], timeout=20, check=False)
        return done

    def _stop(self, holder: Holder) -> None:
        if self._read(holder.name, "dm", "name"):
            argv = [program("dmsetup", "dmsetup"), "remove", "--retry", self._read(holder.name, "dm", "name")]
            run(argv, timeout=60)
        elif holder.kind == "md":
            write_sysfs(self._path(holder.name, "md", "array_state"), "clear")
        elif holder.kind == "bcache":
            write_sysfs(self._path(holder.name, "bcache", "stop"), "1")
        else:
            raise CommandFailed(cmd="release", rc=1, stderr="%s is of an unknown kind" % holder.label)

    def _stop_bcache(self, name: str) -> None:
        """Stop a registered device of bcache without its counterpart, which has no holder and is in use nevertheless."""
        for attribute in ("stop", "set/stop"):
            path = self._path(name, "bcache", attribute)
            if os.path.exists(path) and not self._listed(name, "holders"):
                with contextlib.suppress(CommandFailed, WaitTimeout, FileNotFoundError):
                    write_sysfs(path, "1")


def split_dm_name(name: str) -> tuple[str, str]:
    """Return (volume group, logical volume) in the name that LVM gives a device mapper device; it doubles the hyphens of both.

    A layer of a volume, which LVM alone uses, has a third part: "" for its logical volume.
    """
    words = name.replace("--", "\0").split("-")
    vg, lv = (word.replace("\0", "-") for word in (words if len(words) == 2 else [words[0], ""]))
    return vg, lv


def release_paths(paths: t.Iterable[str], blocks: Blocks | None = None) -> list[str]:
    """Call Blocks.release() for devices by their paths; missing devices are left out."""
    blocks = blocks or Blocks()
    return blocks.release([os.path.basename(os.path.realpath(path)) for path in paths if os.path.exists(path)])
