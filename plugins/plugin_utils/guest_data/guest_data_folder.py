# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A folder of the controller with user data and injected files: mode 0700, a file of mode 0600 for each text, named by its SHA-256."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.address import is_server_url, normalise_url, sqlite_path
from ...module_utils.ledger.db.sqlite_file import make_folder
from ...module_utils.ledger.db.transaction import Transaction
from . import private_folder
from .kept_guest_data import NAME, KeptGuestData, names_of, texts_by_name

SYSTEM = "/var/lib/bootflow"  # root's own folder for what lasts
BESIDE = "user-data"  # the folder next to an sqlite ledger
_LOCK = ".lock"
_WAIT = 10.0  # seconds for other runs, which hold the lock for as long as they write


class GuestDataFolder(KeptGuestData):
    """See the module."""

    def __init__(self, folder: str):
        self.folder = folder
        self.place = "the folder %s of this controller" % folder

    def keep(self, guest_secrets: t.Iterable[GuestSecrets]) -> None:
        """Keep user data and injected files of ``guest_secrets``. :raises InvalidInput: the folder cannot be written, or is not private."""
        texts = texts_by_name(guest_secrets)
        if not texts:
            return
        try:
            if self.folder.startswith(SYSTEM + "/"):
                make_folder(SYSTEM)  # which a compute host on this machine has for its instances, too
            folder = private_folder.make(self.folder)
            with _locked(folder):
                for name, text in texts.items():
                    if not os.path.exists(os.path.join(folder, name)):
                        handle, partial = tempfile.mkstemp(prefix=".", dir=folder)  # 0600
                        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                            stream.write(text)
                        os.replace(partial, os.path.join(folder, name))
        except (private_folder.NotPrivate, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise errors.InvalidInput(
                message="User data and injected files are not kept in %s: %s" % (self.folder, reason),
                remedy="Set bootflow_user_data_dir to a folder of this user that no other user may write to, or bootflow_keep_user_data to false:"
                " rebuild and evacuate need the file that booted an instance then.",
            ) from None

    def texts_of(self, names: t.Collection[str], tx: Transaction | None) -> dict[str, str]:
        texts = {name: self._text(name) for name in names}
        return {name: text for name, text in texts.items() if text is not None}

    def _text(self, name: str) -> str | None:
        try:
            folder = os.path.realpath(self.folder)
            private_folder.check(folder)
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as stream:
                return stream.read()
        except (private_folder.NotPrivate, OSError, UnicodeDecodeError):
            return None

    def forget(self, ledger: Ledger, uuids: t.Sequence[str]) -> int:
        if not uuids or not os.path.isdir(self.folder):
            return 0
        if not names_of(ledger.inspect(instances.digests, uuids)):
            return 0
        folder = os.path.realpath(self.folder)
        with _locked(folder):  # what is booted meanwhile is kept after this
            used = names_of(ledger.inspect(instances.digests))
            unused = [name for name in os.listdir(folder) if NAME.fullmatch(name) and name not in used]
            for name in unused:
                os.unlink(os.path.join(folder, name))
        return len(unused)


def default_folder(ledger_url: str) -> str | None:
    """Return the folder next to an sqlite ledger. PostgreSQL is on another machine, and has several controllers: a folder of this user on this one.

    None: the ledger is in memory.
    """
    url = normalise_url(ledger_url)
    ledger = sqlite_path(url)
    if ledger is not None:
        return os.path.join(os.path.dirname(os.path.abspath(ledger)), BESIDE)
    return os.path.join(_folder_of_user(), BESIDE) if is_server_url(url) else None


def _folder_of_user() -> str:
    """Root's is that of the default ledger; for others see the XDG Base Directory Specification."""
    if os.geteuid() == 0:
        return SYSTEM
    state = os.environ.get("XDG_STATE_HOME") or ""
    return os.path.join(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"), "bootflow")


@contextlib.contextmanager
def _locked(folder: str) -> t.Iterator[None]:
    """No other process of this controller writes or removes anything here in the block. :raises TimeoutError: one does for too long."""
    handle = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        end = time.monotonic() + _WAIT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(110, "another run holds it") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)
