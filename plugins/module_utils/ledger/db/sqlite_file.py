# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of an sqlite ledger: accessible to its owner only, on a local disk, in a writable folder.

An existing file with a mode wider than 0600 is narrowed with a warning if it belongs to this user (or we are root), and
rejected otherwise. Several users of one ledger need PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t

from ...core import errors

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
        if create and not os.path.exists(path):
            _make_folder(folder)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        elif not os.path.exists(path):
            raise errors.LedgerMissing(url=url)
    except OSError as e:
        raise errors.LedgerError(url=url, reason="%s: %s" % (e.strerror, e.filename), remedy=FOLDER_REMEDY) from e
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise errors.LedgerError(
            url=url, reason="the path is not a regular file", remedy="Name a file in bootflow_ledger_url."
        )
    if not (_writable(path) and _writable(folder)):
        raise errors.LedgerError(url=url, reason="%s or its folder is read-only" % path, remedy=FOLDER_REMEDY)
    return _narrow(url, path)


def _make_folder(folder: str, mode: int = 0o700) -> None:
    """Create the folder for its owner alone, and its missing parents so that nobody else may write to them."""
    if os.path.isdir(folder):
        return
    if os.path.dirname(folder) != folder:
        _make_folder(os.path.dirname(folder), 0o755)
    with contextlib.suppress(FileExistsError):  # another process was faster
        os.mkdir(folder, mode)


def _narrow(url: str, path: str) -> list[str]:
    warnings = []
    for name in (path, path + "-wal", path + "-shm"):
        try:
            facts = os.stat(name)
        except OSError:
            continue
        mode = stat.S_IMODE(facts.st_mode)
        if not mode & 0o077:
            continue
        try:
            if os.geteuid() not in (facts.st_uid, 0):
                raise PermissionError
            os.chmod(name, mode & 0o700)
        except OSError:
            raise errors.LedgerError(
                url=url,
                reason="%s is open to others (mode %04o) and belongs to another user" % (name, mode),
                remedy="Let its owner chmod 600 it; for several users put the ledger into PostgreSQL.",
            ) from None
        warnings.append("%s was open to others (mode %04o); it is %04o now." % (name, mode, mode & 0o700))
    return warnings


def _writable(path: str) -> bool:
    # For root, os.access only reads the permission bits; statvfs shows a read-only mount.
    return os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY


def refuse_network(url: str, path: str) -> None:
    """Raise LedgerError if ``path`` is on a file system shared between machines."""
    found = file_system(path, MOUNTINFO)
    if found is None:
        return
    kind, mount = found
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
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as f:
            lines = f.read().splitlines()
    except OSError:
        return
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) > 4 and after:
            yield after.split(" ")[0], re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
