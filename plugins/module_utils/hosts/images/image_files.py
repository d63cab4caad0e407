# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image files of this host that are read in place, because they cannot change between check and copy.

Such a file is a regular file on a file system of this host's kernel (on another machine, or in a FUSE program, it could
change unnoticed) that only the user of this run (root) owns and may write. A read lease is held on it from before it is
hashed: the kernel grants none while a process has the file open for writing, and breaks it when a process opens the file
for writing later, which is checked before a volume counts as complete. The file is only accessed through the descriptor
that holds the lease, so another file under its name is not read. Every other file is copied first, like downloads.

This detects every process that opens the file for writing, truncates it, or maps it (also by a hard link, through the kernel's NFS
server, or as a loop device), before or after. A writer waits up to fs.lease-break-time, and a broken lease is never restored, so
that it is noticed at the next check, the last of which follows the comparison of the volume. It does not detect root
writing to the block device below the file system, or mounting one that others created. To detect these
as well, leave ``verify`` on: for a raw image the sha256 of the volume's content is compared with the catalogue's.

The sha256 of such a file is cached in /run/bootflow until the host restarts, with the file's inode, size and times
(the change time cannot be set back); while these match, the file is not hashed again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import stat
import time
import typing as t

from ..os.files import read_json, write_json
from ..os.paths import make_dirs
from .fetch import CHUNK, Progress

REMEMBERED = "/run/bootflow/images"
#: Nanoseconds. A file that changed this recently may change again with the same time, because the kernel's clock has steps.
_SETTLED = 2 * 10**9
#: Excluded are overlay (its layers may be on another machine and change below it) and zfs (a rollback changes open
#: files without breaking leases).
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")


class SteadyFile:
    """An open image file under a read lease."""

    def __init__(self, fd: int, status: os.stat_result):
        self._fd = fd
        self._status = status

    @property
    def path(self) -> str:
        """Return a path to this file, whatever has its name now; also valid for programs of this run."""
        return "/proc/%d/fd/%d" % (os.getpid(), self._fd)

    @property
    def size(self) -> int:
        return self._status.st_size

    def is_steady(self) -> bool:
        """Return whether no process opened the file for writing since it was opened."""
        try:
            return fcntl.fcntl(self._fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        except OSError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remembered_sha256(self) -> str:
        """Return the cached hash since the start of this host; "" if there is none or the file changed."""
        known = read_json(self._memory())
        return str(known["sha256"]) if isinstance(known, dict) and known == self._mark(known.get("sha256", "")) else ""

    def hash(self, on_progress: Progress) -> str:
        """Return the sha256 of the whole file; cached."""
        digest = hashlib.sha256()
        done = 0
        buffer = bytearray(CHUNK)
        with memoryview(buffer) as view:
            while True:
                got = os.preadv(self._fd, [buffer], done)
                if got <= 0:
                    break
                digest.update(view[:got])
                done += got
                on_progress(done, self.size)
        sha256 = digest.hexdigest()
        if done == self.size and self.is_steady() and time.time_ns() - self._status.st_ctime_ns > _SETTLED:
            with contextlib.suppress(OSError):
                make_dirs(REMEMBERED, 0o700)
                write_json(self._memory(), self._mark(sha256), 0o600)
        return sha256

    def _memory(self) -> str:
        return os.path.join(REMEMBERED, "%x-%d.json" % (self._status.st_dev, self._status.st_ino))

    def _mark(self, sha256: t.Any) -> dict[str, t.Any]:
        status = self._status
        return {
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "ctime_ns": status.st_ctime_ns,
            "sha256": sha256,
        }


def steady_file(path: str) -> SteadyFile | None:
    """Return the file, open and under a lease; None if it does not exist or others could change it."""
    if not path.startswith("/") or "\0" in path:
        return None
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        ours = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISREG(status.st_mode) and ours and _file_system(fd) in _LOCAL:
            # The signal of a broken lease ends a process unless it is ignored.
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            # Its state now that it cannot change.
            return SteadyFile(fd, os.fstat(fd))
    except OSError:
        pass  # a file system without leases, or a process writes to it
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _file_system(fd: int) -> str:
    """Return the type of the file system of the open file; "" if the kernel does not report it."""
    mount = ""
    with open("/proc/self/fdinfo/%d" % fd, encoding="ascii") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                mount = line.split()[1]
    # Fields: mount id, parent, ..., any number of options, "-", type, ...; source: proc(5)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split()
            if words[0] == mount and "-" in words[6:]:
                return words[words.index("-", 6) + 1]
    return ""
