# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of an sqlite ledger: only this user can access it, on a local disk, in a writable folder where
no other user can put another file in its place.

All of this is checked before anything is touched, also for root: a file or a link of another user
is rejected. A mode wider than 0600 is narrowed with a warning. Several users of one ledger need PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t

from ...core import errors
from .address import user_name

#: Room for deletes on a full disk: bytes, in a file next to the ledger.
RESERVE = 16 * 1024**2
RESERVED = "-reserve"
MOUNTINFO = "/proc/self/mountinfo"

# Shared between machines: WAL's index is shared memory of one machine, and the locks are often ineffective.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p acfs afs beegfs ceph cifs coda fakeowner fhgfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2"
    " prl_fs smb2 smb3 smbfs vboxsf vmhgfs virtiofs".split()
)
NETWORK_FUSE = frozenset(
    "ceph ceph-fuse glusterfs gcsfuse goofys grpcfuse juicefs mfs moosefs osxfs rclone s3fs sshfs vmhgfs-fuse"
    " davfs2 davfs".split()
)
FOLDER_REMEDY = "Put bootflow_ledger_url on a folder that this user may write, or correct its permissions."


def prepare(url: str, path: str, create: bool) -> list[str]:
    """Check that ``path`` can be the ledger's file, and create it (0600) with ``create``. Returns warnings.

    :raises LedgerError: the path is unusable, with the reason. :raises LedgerMissing: the file does not exist.
    """
    if not os.path.isabs(path):
        raise errors.LedgerError(
            url=url,
            reason="the path is relative",
            remedy="Give an absolute path: sqlite:////folder/ledger.db has four slashes.",
        )
    if os.path.isdir(path):
        raise errors.LedgerError(
            url=url, reason="the path is a folder", remedy="Name a file in it: %s." % os.path.join(path, "ledger.db")
        )
    refuse_network(url, path)
    folder = os.path.dirname(path)
    try:
        if os.path.lexists(path):
            wide = _checked_files(url, path)
            _check_folder(url, folder)
            return _narrow(wide)
        if not create:
            raise errors.LedgerMissing(url=url)
        make_folder(folder)
        _check_folder(url, folder)
        os.close(os.open(path, os.O_CREAT | os.O_NOFOLLOW | os.O_RDWR, 0o600))
    except OSError as e:
        raise errors.LedgerError(url=url, reason="%s: %s" % (e.strerror, e.filename), remedy=FOLDER_REMEDY) from e
    return []


def use_reserve(path: str) -> bool:
    """Remove the reserve of the ledger if its disk has less room than that. Returns whether it did."""
    full = _room(path) < RESERVE and os.path.exists(path + RESERVED)
    if full:
        os.unlink(path + RESERVED)
    return full


def keep_reserve(path: str) -> bool:
    """Make the reserve where it is missing and the disk has much more room than that. Returns whether it did."""
    if os.path.exists(path + RESERVED) or _room(path) < 4 * RESERVE:
        return False
    fd = os.open(path + RESERVED, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, RESERVE)
    except OSError:
        os.unlink(path + RESERVED)
        raise
    finally:
        os.close(fd)
    return True


def _room(path: str) -> int:
    file_system_stats = os.statvfs(os.path.dirname(path))
    return file_system_stats.f_bavail * file_system_stats.f_frsize


def make_folder(folder: str, mode: int = 0o711) -> None:
    """Create the folder and its missing parents, under any umask, so that no other user may write to them or list the folder.

    Others may pass through it: the default one is that of a compute host's instances, too, where QEMU is another user.
    """
    if os.path.isdir(folder):
        return
    if os.path.dirname(folder) != folder:
        make_folder(os.path.dirname(folder), 0o755)
    with contextlib.suppress(FileExistsError):  # another process was faster
        os.mkdir(folder, mode)
        os.chmod(folder, mode)


def _checked_files(url: str, path: str) -> dict[str, int]:
    """The modes of the ledger's files that are open to others."""
    wide = {}
    for name in (path, path + "-wal", path + "-shm", path + "-journal"):
        try:
            facts = os.lstat(name)
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(facts.st_mode):
            raise errors.LedgerError(
                url=url,
                reason="%s is a symbolic link" % name,
                remedy="Name the file itself in bootflow_ledger_url: %s." % os.path.realpath(path),
            )
        if not stat.S_ISREG(facts.st_mode):
            raise errors.LedgerError(
                url=url, reason="%s is not a regular file" % name, remedy="Name a file in bootflow_ledger_url."
            )
        mode = stat.S_IMODE(facts.st_mode)
        if name == path and not (_writable(path) and _writable(os.path.dirname(path))):
            raise errors.LedgerError(url=url, reason="%s or its folder is read-only" % path, remedy=FOLDER_REMEDY)
        if facts.st_uid != os.geteuid():
            raise errors.LedgerError(
                url=url,
                reason="%s belongs to %s (mode %04o)" % (name, user_name(facts.st_uid), mode),
                remedy="Work as that user, or name a file of your own; for several users put the ledger into PostgreSQL.",
            )
        if mode & 0o077:
            wide[name] = mode
    return wide


def _check_folder(url: str, folder: str) -> None:
    """Raise LedgerError if another user could exchange the content of the folder."""
    facts = os.stat(folder)
    others = stat.S_IWOTH
    if os.geteuid() == 0 and facts.st_gid != 0:  # a user may trust a group, root does not
        others |= stat.S_IWGRP
    if facts.st_uid not in (os.geteuid(), 0):
        reason = "its folder %s belongs to %s" % (folder, user_name(facts.st_uid))
    elif facts.st_mode & others:
        reason = "others may write to its folder %s (mode %04o)" % (folder, stat.S_IMODE(facts.st_mode))
    else:
        if not _writable(folder):
            raise errors.LedgerError(url=url, reason="%s is read-only" % folder, remedy=FOLDER_REMEDY)
        return
    raise errors.LedgerError(
        url=url,
        reason=reason,
        remedy="Put bootflow_ledger_url in a folder of this user's own that only this user may write (chmod 700).",
    )


def _narrow(wide: t.Mapping[str, int]) -> list[str]:
    for name, mode in wide.items():
        os.chmod(name, mode & 0o700)
    return ["%s was open to others (mode %04o); it is %04o now." % (n, mode, mode & 0o700) for n, mode in wide.items()]


def _writable(path: str) -> bool:
    # For root, os.access only reads the permission bits; statvfs shows a read-only mount.
    return os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY


def refuse_network(url: str, path: str) -> None:
    """Raise LedgerError if ``path`` is on a file system shared between machines."""
    mount_entry = file_system(path, MOUNTINFO)
    if mount_entry is None:
        return
    kind, mount = mount_entry
    if kind in NETWORK_FILE_SYSTEMS or (kind.startswith("fuse.") and kind[len("fuse.") :] in NETWORK_FUSE):
        raise errors.LedgerError(
            url=url,
            reason="%s is a network file system (%s), where sqlite's locks and its shared memory do not hold"
            % (mount, kind),
            remedy="Put bootflow_ledger_url on a disk of this machine, or use PostgreSQL.",
        )


def file_system(path: str, mountinfo: str = MOUNTINFO) -> tuple[str, str] | None:
    """(type, mount point) of the file system of ``path``, which need not exist; None if unknown."""
    real = os.path.realpath(path)
    if os.path.isdir(os.path.dirname(real)):
        os.stat(os.path.dirname(real))  # triggers an automount
    best: tuple[str, str] | None = None
    for kind, mount in _mounts(mountinfo):
        below = mount == "/" or real == mount or real.startswith(mount + "/")
        if below and (best is None or len(mount) >= len(best[1])):  # the last mount on a folder hides the others
            best = (kind, mount)
    return best


def _mounts(mountinfo: str) -> t.Iterator[tuple[str, str]]:
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) > 4 and after:
            yield after.split(" ")[0], re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
