# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders of the controller for secrets: only this user and root can exchange their content, under any umask."""

from __future__ import annotations

import os
import stat


class NotPrivate(Exception):
    """Another user could exchange what is in the folder. The text says why."""


def make(folder: str) -> str:
    """Make the folder for this user alone, with its missing parents, and return its real path.

    :raises NotPrivate: another user owns it or a folder above it, or may write there. :raises OSError: it cannot be made.
    """
    path = os.path.realpath(folder)
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    check(path, may_be_shared=bool(missing))
    for parent in reversed(missing):
        try:
            os.mkdir(parent, 0o700)
        except FileExistsError:  # another process was faster: whose it is shows below
            pass
    path = os.path.realpath(folder)
    check(path)
    return path


def check(path: str, may_be_shared: bool = False) -> None:
    """Check a folder and all above it. :arg path: a real one. :arg may_be_shared: a folder as /tmp is enough

    :raises NotPrivate: see make().
    """
    _check(path, may_be_shared)
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        _check(path, True)


def _check(path: str, may_be_shared: bool) -> None:
    """:arg may_be_shared: others may make files in it if they cannot rename the files of this user"""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "Not a directory", path)
    if status.st_uid not in (0, os.geteuid()):
        raise NotPrivate("%s belongs to another user (%d)" % (path, status.st_uid))
    if status.st_mode & 0o022 and not (may_be_shared and status.st_mode & stat.S_ISVTX):
        raise NotPrivate("other users may write to %s (mode %04o)" % (path, stat.S_IMODE(status.st_mode)))
