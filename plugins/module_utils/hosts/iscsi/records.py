# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of iscsiadm for a target at a portal.

iscsiadm accepts a CHAP secret only on its command line. It stores its settings in one file per node and portal, with mode
0600 and lines ``name = value``. Therefore iscsiadm creates the record, and the secret is written into that file under
iscsiadm's own lock.

source: open-iscsi's README
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
import typing as t

from ...core.errors import InvalidInput, WaitTimeout
from ...core.volumes.names import ChapCredentials, portal, split_portal
from ..os.files import write_file
from ..os.paths import make_dirs

NODE_FOLDERS = ("/etc/iscsi/nodes", "/var/lib/iscsi/nodes")
DATABASE_LOCK = "/run/lock/iscsi/lock"


def with_settings(text: str, settings: t.Mapping[str, str | None]) -> str:
    """Return the record of a node with these values; None removes a setting."""
    lines = [line for line in text.splitlines() if line.partition(" = ")[0].strip() not in settings]
    added = ["%s = %s" % (name, value) for name, value in settings.items() if value is not None]
    end = lines.index("# END RECORD") if "# END RECORD" in lines else len(lines)
    return "\n".join(lines[:end] + added + lines[end:]) + "\n"


def settings_of(text: str) -> dict[str, str]:
    """Return the values in the record of a node."""
    pairs = (line.partition(" = ") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def login_settings(chap: ChapCredentials | None) -> dict[str, str | None]:
    """Return the settings of a record for the login, and for its start with the host."""
    return {
        "node.startup": "automatic",
        "node.session.auth.authmethod": "CHAP" if chap else "None",
        "node.session.auth.username": chap.user if chap else None,
        "node.session.auth.password": chap.secret if chap else None,
    }


def make_lock_folder(path: str = DATABASE_LOCK) -> None:
    """Make the folder of iscsiadm's lock. Of two iscsiadm that both find none after a start of the host, one fails with exit code 6: its
    mkdir() tells that the folder exists.
    """
    make_dirs(os.path.dirname(path), 0o700)


@contextlib.contextmanager
def database_lock(path: str = DATABASE_LOCK, timeout: float = 30.0) -> t.Iterator[None]:
    """Hold iscsiadm's lock of its records: a hard link to its file."""
    make_lock_folder(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    deadline = time.monotonic() + timeout
    while True:
        try:
            os.link(path, path + ".write")
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    what="release of iscsiadm's lock %s.write" % path, seconds=int(timeout), host=""
                ) from None
            time.sleep(0.05)
    try:
        yield
    finally:
        os.unlink(path + ".write")


class NodeRecords:
    """The records of this host. The arguments are for tests."""

    def __init__(self, folders: t.Sequence[str] = NODE_FOLDERS, lock: str = DATABASE_LOCK) -> None:
        self.folders = tuple(folders)
        self.lock = lock

    # ---- looking -------------------------------------------------------------------------------------------------------

    def targets(self) -> set[str]:
        """Return the targets with a record."""
        return {
            name for folder in self.folders if os.path.isdir(folder) for name in os.listdir(folder) if name[:1] != "."
        }

    def portals(self, iqn: str, portals: t.Iterable[str] = ()) -> list[str]:
        """Return these portals of a target, and all others with a record, which discovery may have added."""
        all_portals = list(portals)
        for folder in self.folders:
            for path in sorted(glob.glob(os.path.join(glob.escape(os.path.join(folder, iqn)), "*"))):
                words = os.path.basename(path).split(",")
                with contextlib.suppress(InvalidInput, ValueError, IndexError):
                    where = portal(words[0], int(words[1]))
                    if where not in all_portals:
                        all_portals.append(where)
        return all_portals

    def paths(self, iqn: str, where: str) -> list[str]:
        """Return the files or directories of the record of a node at a portal."""
        address, port = split_portal(where)
        record_paths: list[str] = []
        for folder in self.folders:
            base = os.path.join(glob.escape(os.path.join(folder, iqn)), glob.escape("%s,%d" % (address, port)))
            record_paths += glob.glob(base) + glob.glob(base + ",*")
        return record_paths

    def files(self, iqn: str, where: str) -> list[str]:
        """Return the files of the record of a node at a portal."""
        record_files: list[str] = []
        for path in self.paths(iqn, where):
            record_files.extend(
                [path] if os.path.isfile(path) else sorted(glob.glob(os.path.join(glob.escape(path), "*")))
            )
        return record_files

    def are_whole(self, iqn: str, where: str) -> bool:
        """Return whether there is no record or a valid one, not an empty file or directory as after a power failure."""
        files = self.files(iqn, where)
        whole = bool(files) and all(_settings_in(path).get("node.name") == iqn for path in files)
        return whole or not self.paths(iqn, where)

    def are_right(self, iqn: str, where: str, chap: ChapCredentials | None) -> bool:
        """Return whether there is a record with these credentials."""
        files = self.files(iqn, where)
        return bool(files) and all(_is_right(path, chap) for path in files)

    # ---- change --------------------------------------------------------------------------------------------------------

    def write(self, iqn: str, where: str, chap: ChapCredentials | None) -> None:
        """Write the credentials into the record."""
        for path in self.files(iqn, where):
            if not _is_right(path, chap):
                self._set(path, login_settings(chap))

    def _set(self, path: str, settings: t.Mapping[str, str | None]) -> None:
        with database_lock(self.lock):
            with open(path, encoding="utf-8") as file:
                text = with_settings(file.read(), settings)
            # Outside of the directories that iscsiadm reads as records, and on the same file system.
            folder = next(root for root in self.folders if path.startswith(root + "/"))
            write_file(path, text.encode(), 0o600, folder=os.path.dirname(folder))

    def clear(self, iqn: str, where: str) -> None:
        """Remove the rest of a record that iscsiadm has deleted or does not see."""
        remaining_paths = self.paths(iqn, where)
        if not remaining_paths:
            return
        with database_lock(self.lock):
            for path in remaining_paths:
                for file in self.files(iqn, where):
                    os.unlink(file)
                if os.path.isdir(path):
                    os.rmdir(path)
                with contextlib.suppress(OSError):  # the directory of the target is removed with its last record
                    os.rmdir(os.path.dirname(path))


def _settings_in(path: str) -> dict[str, str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return settings_of(file.read())


def _is_right(path: str, chap: ChapCredentials | None) -> bool:
    has = _settings_in(path)
    return all(has.get(name) == value for name, value in login_settings(chap).items())
