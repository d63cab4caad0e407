# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A copy of an sqlite ledger while runs write to it.

VACUUM INTO reads one snapshot and blocks no writer. The copy gets its name only when it is complete and checked.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import typing as t

from ...core import errors
from . import sqlite_file
from .address import shown, sqlite_path


class Located(t.Protocol):
    """A ledger, as far as a copy needs it."""

    url: str


def backup(ledger: Located, destination: str) -> int:
    """Copy the ledger to the new file ``destination`` (0600). Returns its size in bytes.

    :raises InvalidInput: the ledger is not an sqlite file, or ``destination`` is relative, exists, or has no folder.
    :raises LedgerError: the copy could not be written, or is damaged.
    """
    source = check(ledger.url, destination)
    folder = os.path.dirname(destination)
    try:
        handle, partial = tempfile.mkstemp(prefix=".ledger-backup-", dir=folder)  # 0600
    except OSError as e:
        raise _failed(destination, e.strerror or str(e)) from e
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(source, timeout=60, isolation_level=None)) as connection:
            connection.execute("VACUUM INTO ?", (partial,))
        with contextlib.closing(sqlite3.connect(partial)) as connection:
            (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
        if answer != "ok":
            raise _failed(destination, "the copy is damaged: %s" % answer)
        _sync(partial)
        os.link(partial, destination)  # unlike a rename, fails if the file exists
        _sync(folder)
        return os.stat(destination).st_size
    except FileExistsError as e:
        raise _exists(destination) from e
    except (OSError, sqlite3.Error) as e:
        raise _failed(destination, str(e)) from e
    finally:
        for name in (partial, partial + "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(name)


def check(url: str, destination: str) -> str:
    """Raise InvalidInput unless ``destination`` can be a backup of the ledger at ``url``. Returns the ledger's file."""
    source = sqlite_path(url)
    if source is None:
        raise errors.InvalidInput(
            reason="%s is not an sqlite file" % shown(url),
            remedy="Back up PostgreSQL with its own tool: pg_dump --format=custom --file=ledger.dump DATABASE"
            " (docs/backup.md).",
        )
    if not os.path.isabs(destination):
        raise errors.InvalidInput(reason="dest is %r" % destination, remedy="Give an absolute path of a new file.")
    if os.path.lexists(destination):
        raise _exists(destination)
    if not os.path.isdir(os.path.dirname(destination)):
        raise errors.InvalidInput(
            reason="%s is not a directory" % os.path.dirname(destination),
            remedy="Create the directory, or name another dest.",
        )
    return source


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exists(destination: str) -> errors.InvalidInput:
    return errors.InvalidInput(
        reason="%s already exists" % destination, remedy="Name a new file: a backup never replaces one."
    )


def _failed(destination: str, reason: str) -> errors.LedgerError:
    remedy = "Free space where the backup goes, and run again." if "full" in reason or "space" in reason else None
    return errors.LedgerError(
        message="The backup %s could not be written: %s" % (destination, reason),
        remedy=remedy or sqlite_file.FOLDER_REMEDY.replace("bootflow_ledger_url", "the backup"),
    )
