# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check names that become paths, and open folders that only root can exchange. All files of an instance are below <instances_path>/<uuid>."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import typing as t
import uuid as uuid_module

from ...core.disks.local import BASE
from ...core.errors import InvalidInput, UnsafeFolder

_DISK_NAME = re.compile(r"disk(\.[a-z0-9]{1,32}){0,3}\Z")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")

LOCKS = "locks"
SNAPSHOTS = "_snapshots"
PROBE = "_probe"

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40


def checked_instances_path(path: str) -> str:
    """Return ``path`` without a trailing slash.

    :raises InvalidInput: the path is not absolute, is the root directory, or contains "..".
    """
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidInput(reason="instances_path must be an absolute path, got %r" % path)
    path = os.path.normpath(path)
    if path in ("/", "//"):
        raise InvalidInput(reason="instances_path must not be the root directory")
    return path


def checked_uuid(value: str) -> str:
    """Return the canonical form of a UUID, which is safe as a file name.

    :raises InvalidInput: the value is not a UUID (36 characters, hexadecimal, with dashes).
    """
    try:
        canonical = str(uuid_module.UUID(value))
    except (ValueError, AttributeError, TypeError):
        canonical = ""
    if not canonical or str(value).lower() != canonical:
        raise InvalidInput(reason="%r is not a UUID" % (value,))
    return canonical


def checked_id(value: str, what: str = "id") -> str:
    """Return an id (UUID or plain word) that is safe as a file name.

    :raises InvalidInput: the value has characters other than letters, digits, "_" and "-", or more than 128.
    """
    if not isinstance(value, str) or not _ID.match(value):
        raise InvalidInput(reason="%s must consist of letters, digits, _ and -, got %r" % (what, value))
    return value


def checked_disk_name(value: str) -> str:
    """Return a disk's file name: ``disk``, ``disk.eph0``, ``disk.swap``, ``disk.config``...

    :raises InvalidInput: the name does not have that form, or is ``disk.info``, the record of the directory.
    """
    if not isinstance(value, str) or not _DISK_NAME.match(value) or value == "disk.info":
        raise InvalidInput(reason="disk name must have the form disk.word, got %r" % (value,))
    return value


def instance_dir(instances_path: str, uuid: str) -> str:
    """Return <instances_path>/<uuid>. Raises InvalidInput for an invalid UUID."""
    return os.path.join(checked_instances_path(instances_path), checked_uuid(uuid))


def base_dir(instances_path: str) -> str:
    """Return <instances_path>/_base, where verified images are kept."""
    return os.path.join(checked_instances_path(instances_path), BASE)


def snapshots_dir(instances_path: str) -> str:
    """Return <instances_path>/_snapshots, where images of instances are made."""
    return os.path.join(checked_instances_path(instances_path), SNAPSHOTS)


def make_dirs(path: str, mode: int = 0o711) -> None:
    """Create ``path`` and its parents where they are missing, all with ``mode``, whatever the umask is.

    By default others may pass through (QEMU runs as another user) but not list them.
    :raises UnsafeFolder: another user could replace the folder or one above it.
    """
    os.close(_open_folder(path, mode))


@contextlib.contextmanager
def own_folder(path: str, mode: int = 0o711) -> t.Iterator[int]:
    """Yield a descriptor of ``path``, made as by make_dirs(), to open files relative to it.

    :raises UnsafeFolder: another user could replace the folder, or put files into it.
    """
    fd = _open_folder(path, mode)
    try:
        _check_owner(os.fstat(fd), path, sticky=False)
        yield fd
    finally:
        os.close(fd)


def _open_folder(path: str, mode: int) -> int:
    """Step by step, so that what was checked is what is opened. A link is followed where its owner is root or we."""
    fd, at = os.open("/", _FOLDER), "/"
    steps = os.path.abspath(path).split("/")[::-1]
    links = 0
    try:
        while steps:
            name = steps.pop()
            if name in ("", "."):
                continue
            at = os.path.join(at, name)
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(name, mode, dir_fd=fd)
                    os.chmod(name, mode, dir_fd=fd)
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            _check_owner(status, at)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = os.readlink(name, dir_fd=fd)
                steps += target.split("/")[::-1]
                at = os.path.dirname(at)
                name = "/" if target.startswith("/") else "."
                at = "/" if name == "/" else at
            fd, above = os.open(name, _FOLDER, dir_fd=fd), fd
            os.close(above)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_owner(status: os.stat_result, path: str, sticky: bool = True) -> None:
    """Check the owner. :arg sticky: others may create files in it, as in /tmp, where they cannot replace ours."""
    if status.st_uid not in (0, os.geteuid()):
        reason = "it belongs to user %d" % status.st_uid
    elif stat.S_ISLNK(status.st_mode) or (sticky and status.st_mode & stat.S_ISVTX):
        return
    elif status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != 0):
        reason = "others may write to it (mode %04o)" % stat.S_IMODE(status.st_mode)
    else:
        return
    raise UnsafeFolder(path=path, host=os.uname().nodename, reason=reason)
