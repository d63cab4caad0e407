# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder by which modules and the controller speak with the process that receives an image: only root of this host can read it, or write there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import typing as t

from ...core.relay.talk import ENDED, relay_folder
from ..os.files import read_json, write_json
from ..os.paths import base_dir, checked_id, make_dirs


class Desk:
    """``feed``: a pipe for the image's bytes. ``tasks``: whom it asks. ``status``: how far it is."""

    def __init__(self, instances_path: str, image_id: str):
        self.folder = relay_folder(base_dir(instances_path), checked_id(image_id, "image id"))
        self.feed = os.path.join(self.folder, "feed")
        self._owner, self._end = os.path.join(self.folder, "owner"), os.path.join(self.folder, "end")
        self._tasks, self._status = os.path.join(self.folder, "tasks"), os.path.join(self.folder, "status")

    def make(self, token: str) -> None:
        """Make it, without what a killed run has left. :arg token: of the run"""
        self.remove()
        make_dirs(self.folder, 0o700)
        os.chmod(self.folder, 0o700)
        os.mkfifo(self.feed, 0o600)
        write_json(self._owner, {"sha256": _digest(token)}, 0o600)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def exists(self) -> bool:
        return os.path.isdir(self.folder)

    def is_of(self, token: str) -> bool:
        """Whether the process is of the run with this token."""
        owner = read_json(self._owner)
        return isinstance(owner, dict) and owner.get("sha256") == _digest(token)

    def end(self) -> None:
        """Have the process end, whose run is gone: another run takes over what it has."""
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(self._end, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def is_to_end(self) -> bool:
        return os.path.exists(self._end)

    def assign(self, tasks: t.Mapping[str, t.Any]) -> None:
        write_json(self._tasks, dict(tasks), 0o600)

    def tasks(self) -> dict[str, t.Any] | None:
        """Return what assign() wrote; None: nothing yet."""
        tasks = read_json(self._tasks)
        return tasks if isinstance(tasks, dict) else None

    def tell(self, status: t.Mapping[str, t.Any]) -> bool:
        """One line: the controller reads it with cat. Returns whether the file is written: the folder may be removed, or its file system full."""
        with contextlib.suppress(OSError):
            new = self._status + ".new"
            with open(new, "w", encoding="utf-8") as file:
                file.write(json.dumps(dict(status)) + "\n")
            os.rename(new, self._status)
            return True
        return False

    def status(self) -> dict[str, t.Any]:
        """Return what tell() wrote last; empty: nothing."""
        status = read_json(self._status)
        return status if isinstance(status, dict) else {}

    def has_ended(self) -> bool:
        """Whether the process has said how it ended."""
        return self.status().get("state") in ENDED


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
