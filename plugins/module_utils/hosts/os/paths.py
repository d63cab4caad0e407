# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of names that become paths. All files of an instance are below <instances_path>/<uuid>."""

from __future__ import annotations

import os
import re
import uuid as uuid_module

from ...core.errors import InvalidInput

_DISK_NAME = re.compile(r"disk(\.[a-z0-9]{1,32}){0,3}\Z")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")

BASE = "_base"
LOCKS = "locks"
PROBE = "_probe"


def checked_instances_path(path: str) -> str:
    """``path`` without a trailing slash.

    :raises InvalidInput: the path is not absolute, is the root directory, or contains "..".
    """
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidInput(reason="instances_path must be an absolute path, got %r" % path)
    path = os.path.normpath(path)
    if path in ("/", "//"):
        raise InvalidInput(reason="instances_path must not be the root directory")
    return path


def checked_uuid(value: str) -> str:
    """The canonical form of a UUID, which is safe as a file name.

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
    """An id (UUID or plain word) that is safe as a file name.

    :raises InvalidInput: the value has characters other than letters, digits, "_" and "-", or more than 128.
    """
    if not isinstance(value, str) or not _ID.match(value):
        raise InvalidInput(reason="%s must consist of letters, digits, _ and -, got %r" % (what, value))
    return value


def checked_disk_name(value: str) -> str:
    """A disk's file name: ``disk``, ``disk.eph0``, ``disk.swap``, ``disk.config``...

    :raises InvalidInput: the name does not have that form, or is ``disk.info``, the record of the directory.
    """
    if not isinstance(value, str) or not _DISK_NAME.match(value) or value == "disk.info":
        raise InvalidInput(reason="disk name must have the form disk.word, got %r" % (value,))
    return value


def instance_dir(instances_path: str, uuid: str) -> str:
    """<instances_path>/<uuid>. Raises InvalidInput for an invalid UUID."""
    return os.path.join(checked_instances_path(instances_path), checked_uuid(uuid))


def base_dir(instances_path: str) -> str:
    """<instances_path>/_base, where verified images are kept."""
    return os.path.join(checked_instances_path(instances_path), BASE)


def make_dirs(path: str, mode: int = 0o711) -> None:
    """Create ``path`` and its parents where they are missing, all with ``mode``, whatever the umask is.

    By default others may pass through (QEMU runs as another user) but not list them.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent != path:
        make_dirs(parent or ".", mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return  # another process was faster
    os.chmod(path, mode)
