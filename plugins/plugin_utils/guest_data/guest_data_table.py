# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and injected files in the ledger: every controller has them. With keys of the operator they are encrypted there.

A key is a passphrase. scrypt makes of it, with the id of the ledger as salt, a key of Fernet (AES-128-CBC with HMAC-SHA-256), and 16 digits that
tell rows of one key from rows of another.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.optional import optional_import, require
from ...module_utils.core.request.guest_data import GuestSecrets
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.guest_data import guest_texts
from .kept_guest_data import KeptGuestData, names_of, sha256_of, texts_by_name

_CLEAR = ""  # key_id of rows that are not encrypted
_COST, _BLOCK, _LANES = 2**14, 8, 1  # of scrypt: 16 MiB, some 50 ms


class _Key(t.NamedTuple):
    id: str
    fernet: t.Any  # cryptography's Fernet


class GuestDataTable(KeptGuestData):
    """See the module."""

    place = "the ledger"
    is_in_ledger = True

    def __init__(self, open_ledger: t.Callable[[], Ledger], ledger_id: str, passphrases: t.Sequence[str]):
        """:arg passphrases: the first one encrypts, each of them decrypts. Without any, texts are in the ledger as they are."""
        self.open_ledger = open_ledger
        self._ledger_id = ledger_id
        self._passphrases = passphrases

    def keep(self, guest_secrets: t.Iterable[GuestSecrets]) -> None:
        """See KeptGuestData. Texts that are there with another key, or without one, are written again with the first key.

        A run without keys leaves encrypted texts as they are: it does not write clear text in their place.
        """
        texts = texts_by_name(guest_secrets)
        if texts:
            self.open_ledger().transact(self._write, texts)

    def _write(self, tx: Transaction, texts: t.Mapping[str, str]) -> None:
        key_id = self._keys[0].id if self._keys else _CLEAR
        former = {
            r.sha256: text for r in guest_texts.with_other_key(tx, key_id) if (text := self._opened(r)) is not None
        }
        present = {r.sha256 for r in guest_texts.read(tx, texts) if r.key_id == key_id or not self._keys}
        new = {**former, **{name: text for name, text in texts.items() if name not in present}}
        guest_texts.write(tx, key_id, {name: self._closed(text) for name, text in new.items()})

    def texts_of(self, names: t.Collection[str], tx: Transaction | None) -> dict[str, str]:
        """See KeptGuestData. :raises GuestDataLocked: no key of this run opens a text."""
        rows = guest_texts.read(tx, names) if tx is not None else self.open_ledger().inspect(guest_texts.read, names)
        texts = {r.sha256: self._opened(r) for r in rows}
        locked = sorted(name for name, text in texts.items() if text is None)
        if locked:
            raise errors.GuestDataLocked(which=locked[0][:12])
        return {name: text for name, text in texts.items() if text is not None}

    def forget(self, ledger: Ledger, uuids: t.Sequence[str]) -> int:
        return ledger.transact(_forget, uuids) if uuids else 0

    # --- keys -----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _keys(self) -> list[_Key]:
        return [_key(passphrase, self._ledger_id) for passphrase in self._passphrases]

    def _closed(self, text: str) -> str:
        return str(self._keys[0].fernet.encrypt(text.encode()).decode("ascii")) if self._keys else text

    def _opened(self, row: guest_texts.TextRow) -> str | None:
        """Return the text; None: no key opens it, or it is another one."""
        if row.key_id == _CLEAR:
            return row.contents
        key = next((k for k in self._keys if k.id == row.key_id), None)
        if key is None:
            return None
        try:
            text = str(key.fernet.decrypt(row.contents.encode()).decode())
        except (optional_import("cryptography.fernet").InvalidToken, UnicodeDecodeError):
            return None
        return text if sha256_of(text) == row.sha256 else None


@functools.lru_cache(maxsize=8)
def _key(passphrase: str, ledger_id: str) -> _Key:
    """:raises MissingLibrary: without cryptography, which ansible-core depends on."""
    fernet = optional_import("cryptography.fernet")
    require(fernet, "cryptography", "cryptography")
    derived = hashlib.scrypt(passphrase.encode(), salt=ledger_id.encode(), n=_COST, r=_BLOCK, p=_LANES, dklen=40)
    return _Key(derived[32:].hex(), fernet.Fernet(base64.urlsafe_b64encode(derived[:32])))


def _forget(tx: Transaction, uuids: t.Sequence[str]) -> int:
    """Remove the texts that only these instances had."""
    names = names_of(instances.digests(tx, uuids))
    return guest_texts.remove(tx, names - names_of(instances.digests(tx))) if names else 0
