# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and injected files of instances: a guest that is made again needs them, and the digests of instances have their SHA-256 only.

They are in a folder of the controller, or in the ledger, by bootflow_user_data_store. A reader compares each text with its SHA-256.
"""

from __future__ import annotations

import re
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.model import InjectedFile
from ...module_utils.core.request.expand import guest_data_digest
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction

NAME = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sha256:"


class KeptGuestData:
    """Nothing is kept, and nothing is there. Subclasses have a place."""

    place: str | None = None  # in words, for people
    is_in_ledger = False

    def keep(self, guest_secrets: t.Iterable[GuestSecrets]) -> None:
        """Keep user data and injected files of ``guest_secrets``. :raises BootflowError: that failed."""

    def keep_or_warn(self, action: LedgerAction, guest_secrets: t.Iterable[GuestSecrets]) -> None:
        """Call keep(). A failure is a warning, and does not stop the build of any guest."""
        try:
            self.keep(guest_secrets)
        except errors.BootflowError as e:
            action._display.warning(e.paragraph)

    def read_secrets(self, digest: t.Mapping[str, t.Any], tx: Transaction | None = None) -> GuestSecrets | None:
        """Return the secrets that an instance with this digest was booted with; None if it had none, or not all are here.

        :arg tx: the open transaction of the caller; None: it has none.
        :raises BootflowError: what is kept cannot be read, which another setting would cure.
        """
        user_data, files = digest.get("user_data"), digest.get("injected_files") or {}
        if not (user_data or files):
            return None
        names = {user_data, *files.values()} - {None, ""}
        if not all(_is_digest(n) for n in names):
            return None
        texts = {n: text for n, text in self.texts_of({_name(n) for n in names}, tx).items() if sha256_of(text) == n}
        if {_name(n) for n in names} - set(texts):
            return None
        contents = {path: texts[_name(name)] for path, name in files.items()}
        injected = tuple(InjectedFile(path=p, contents=c) for p, c in contents.items())
        return GuestSecrets(texts[_name(user_data)] if user_data else None, injected)

    def texts_of(self, names: t.Collection[str], tx: Transaction | None) -> dict[str, str]:
        """Return the texts of these names (SHA-256) that are here. The caller compares them with their names."""
        return {}

    def forget(self, ledger: Ledger, uuids: t.Sequence[str]) -> int:
        """Remove what no instance has any more, after these were deleted. Returns the number of texts.

        :raises OSError: the folder cannot be written, or another run holds it for too long.
        """
        return 0


def texts_by_name(guest_secrets: t.Iterable[GuestSecrets]) -> dict[str, str]:
    """SHA-256 -> text, of all user data and injected files."""
    texts: dict[str, str] = {}
    for secrets in guest_secrets:
        user_data = [secrets.user_data] if secrets.user_data is not None else []
        texts.update({sha256_of(text): text for text in (*user_data, *(f.contents for f in secrets.injected_files))})
    return texts


def names_of(digests: t.Iterable[t.Mapping[str, t.Any]]) -> set[str]:
    """Return the names of the texts that these digests mean."""
    names = {digest.get("user_data") for digest in digests if digest.get("user_data")}
    names |= {name for digest in digests for name in (digest.get("injected_files") or {}).values()}
    return {_name(str(n)) for n in names}


def sha256_of(text: str) -> str:
    return _name(str(guest_data_digest(text, ())["user_data"]))


def _is_digest(name: t.Any) -> bool:
    return isinstance(name, str) and name.startswith(_PREFIX) and NAME.fullmatch(_name(name)) is not None


def _name(digest: str) -> str:
    return digest[len(_PREFIX) :]
