# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and injected files of instances, kept on the controller: a guest that is made again needs them, and the ledger has their SHA-256 only.

Each text is a file of mode 0600 in a folder of mode 0700, named by its SHA-256. A reader compares the text with the name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.model import InjectedFile
from ...module_utils.core.request.expand import guest_data_digest
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.core.settings.run import GUEST_DATA
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.address import as_address, is_server_url, normalise_url, sqlite_path
from ...module_utils.ledger.db.sqlite_file import make_folder
from ..run.ledger_action import LedgerAction, read_settings
from . import private_folder

SYSTEM = "/var/lib/bootflow"  # root's own folder for what lasts
BESIDE = "user-data"  # the folder next to an sqlite ledger
_LOCK = ".lock"
_WAIT = 10.0  # seconds for other runs, which hold the lock for as long as they write
_NAME = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sha256:"


def of_action(action: LedgerAction) -> KeptGuestData:
    """The folder of this run's settings for its ledger: several ledgers may have their folders in one place."""
    values = read_settings(GUEST_DATA.options(), {}, action.variable)
    if not values["keep_user_data"]:
        return KeptGuestData(None)
    folder = values["user_data_dir"] or _default_folder(as_address(action.options["ledger_url"]).url)
    return KeptGuestData(None if folder is None else os.path.join(folder, action.ledger_id()))


def _default_folder(ledger_url: str) -> str | None:
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


class KeptGuestData:
    """The folder; without one nothing is kept, and nothing is found."""

    def __init__(self, folder: str | None):
        self.folder = folder

    def keep(self, guest_secrets: t.Iterable[GuestSecrets]) -> None:
        """Keep user data and injected files of ``guest_secrets``. :raises InvalidInput: the folder cannot be written, or is not private."""
        texts = {name: text for secrets in guest_secrets for name, text in _texts(secrets).items()}
        if self.folder is None or not texts:
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

    def keep_or_warn(self, action: LedgerAction, guest_secrets: t.Iterable[GuestSecrets]) -> None:
        """Call keep(). A failure is a warning, and does not stop the build of any guest."""
        try:
            self.keep(guest_secrets)
        except errors.InvalidInput as error:
            action._display.warning(error.paragraph)

    def read_secrets(self, digest: t.Mapping[str, t.Any]) -> GuestSecrets | None:
        """Return the secrets that an instance with this digest was booted with; None if it had none, or not all are here."""
        user_data, files = digest.get("user_data"), digest.get("injected_files") or {}
        if not (user_data or files):
            return None
        text = self._text(user_data) if user_data else None
        contents = {path: self._text(name) for path, name in files.items()}
        if (user_data and text is None) or None in contents.values():
            return None
        return GuestSecrets(text, tuple(InjectedFile(path=p, contents=c) for p, c in contents.items() if c is not None))

    def _text(self, digest: str) -> str | None:
        name = digest[len(_PREFIX) :]
        if self.folder is None or not _NAME.fullmatch(name):
            return None
        try:
            folder = os.path.realpath(self.folder)
            private_folder.check(folder)
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as stream:
                text = stream.read()
        except (private_folder.NotPrivate, OSError, UnicodeDecodeError):
            return None
        return text if _sha256(text) == name else None

    def forget(self, ledger: Ledger, uuids: t.Sequence[str]) -> int:
        """Remove what no instance has any more, after these were deleted. Returns the number of files.

        :raises OSError: the folder cannot be written, or another run holds it for too long.
        """
        if self.folder is None or not uuids or not os.path.isdir(self.folder):
            return 0
        if not _names(ledger.inspect(instances.digests, uuids)):
            return 0
        folder = os.path.realpath(self.folder)
        with _locked(folder):  # what is booted meanwhile is kept after this
            used = _names(ledger.inspect(instances.digests))
            unused = [name for name in os.listdir(folder) if _NAME.fullmatch(name) and name not in used]
            for name in unused:
                os.unlink(os.path.join(folder, name))
        return len(unused)


def _texts(secrets: GuestSecrets) -> dict[str, str]:
    """Name of the file -> text."""
    texts = [
        *([secrets.user_data] if secrets.user_data is not None else []),
        *(f.contents for f in secrets.injected_files),
    ]
    return {_sha256(text): text for text in texts}


def _names(digests: t.Iterable[t.Mapping[str, t.Any]]) -> set[str]:
    """The names of the files that these digests mean."""
    names = {digest.get("user_data") for digest in digests if digest.get("user_data")}
    names |= {name for digest in digests for name in (digest.get("injected_files") or {}).values()}
    return {str(name)[len(_PREFIX) :] for name in names}


def _sha256(text: str) -> str:
    return str(guest_data_digest(text, ())["user_data"])[len(_PREFIX) :]


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
