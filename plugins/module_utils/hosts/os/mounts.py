# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts of this host according to the kernel."""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass

from ...core.errors import InvalidDiskInfo, InvalidInput, VolumeIsBusy
from .batch import progress
from .command import program, run

MOUNTINFO = "/proc/self/mountinfo"
FILE_SYSTEM = "ext4"
OPTIONS = ("nodev", "nosuid", "noexec", "noatime")
_PACKAGE = "mount"


@dataclass(frozen=True)
class Mount:
    """The mount point of a file system and its device, as st_rdev of os.stat()."""

    place: str
    device: int


def mounted(path: str = MOUNTINFO) -> list[Mount]:
    """Return all mounts that this process sees, in the order of mounting."""
    mounts = []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split(" ")
            major, minor = words[2].split(":")
            place = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), words[4])
            mounts.append(Mount(place, os.makedev(int(major), int(minor))))
    return mounts


def at(place: str) -> Mount | None:
    """Return the mount on the directory; the last one if there are several."""
    real = os.path.realpath(place)
    return next((entry for entry in reversed(mounted()) if entry.place == real), None)


def below(folder: str) -> list[Mount]:
    """Return the mounts inside the directory, the last first."""
    start = os.path.realpath(folder) + "/"
    return [entry for entry in reversed(mounted()) if entry.place.startswith(start)]


def device_number(device: str) -> int | None:
    """Return the number of a block device; None if it does not exist."""
    try:
        return os.stat(device).st_rdev
    except OSError:
        return None


def is_on(device: str, place: str) -> bool:
    """Return whether the device is mounted on the directory.

    :raises InvalidDiskInfo: another device is mounted.
    """
    top_mount = at(place)
    if top_mount is None:
        return False
    if top_mount.device != device_number(device):
        raise InvalidDiskInfo(reason="another file system is mounted on %s" % place, remedy="Unmount it first.")
    return True


def mount(device: str, place: str) -> None:
    """Mount our file system. Raises CommandFailed."""
    argv = [program("mount", _PACKAGE), "-t", FILE_SYSTEM, "-o", ",".join(OPTIONS), device, place]
    run(argv, timeout=300.0, path=place)


def unmount(place: str) -> None:
    """Unmount it. :raises VolumeIsBusy: a file in it is open."""
    progress.mark_changed()
    done = run([program("umount", _PACKAGE), place], timeout=300.0, check=False)
    if done.rc != 0:
        raise VolumeIsBusy(
            message="%s cannot be unmounted: %s" % (place, done.stderr.strip()[-500:]),
            remedy="Find what uses it (fuser -vm %s), stop that, and run the playbook again." % place,
        )


def ours_below(folder: str, devices: t.Iterable[str]) -> list[Mount]:
    """Return the mounts inside the directory, all of them from these devices.

    :raises InvalidInput: something else is mounted inside.
    """
    mounts, numbers = below(folder), {device_number(device) for device in devices}
    for entry in mounts:
        if entry.device not in numbers:
            raise InvalidInput(reason="%s is a mount point" % entry.place, remedy="Unmount it first.")
    return mounts
