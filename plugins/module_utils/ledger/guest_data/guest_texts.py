# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and injected files of live instances. The texts may be encrypted, of which nothing is known here."""

from __future__ import annotations

import typing as t

from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.guest_data_tables import guest_texts


class TextRow:
    """A row of guest_texts."""

    sha256: str
    key_id: str
    contents: str


def read(tx: Transaction, names: t.Collection[str]) -> list[TextRow]:
    """Return the texts of these names (SHA-256), as far as they are kept."""
    c = guest_texts.c
    return list(tx.rows(sa.select(guest_texts).where(bulk.among(tx, c.sha256, sorted(names))), TextRow))


def with_other_key(tx: Transaction, key_id: str) -> list[TextRow]:
    """Return the texts that another key than ``key_id`` encrypts, or none."""
    query = sa.select(guest_texts).where(guest_texts.c.key_id != key_id).order_by(guest_texts.c.sha256)
    return list(tx.rows(query, TextRow))


def write(tx: Transaction, key_id: str, texts: t.Mapping[str, str]) -> None:
    """Write texts (SHA-256 -> contents) that this key encrypts, in place of what has these names."""
    c = guest_texts.c
    for name in sorted(texts):
        values = {"key_id": key_id, "contents": texts[name]}
        if not insert_new(tx, guest_texts, sha256=name, **values):
            tx.execute(guest_texts.update().where(c.sha256 == name).values(**values))


def remove(tx: Transaction, names: t.Collection[str]) -> int:
    """Remove texts. Returns the number of texts that were there."""
    query = guest_texts.delete().where(bulk.among(tx, guest_texts.c.sha256, sorted(names)))
    return int(tx.execute(query).rowcount)


def all_names(tx: Transaction) -> set[str]:
    """Return the names of all texts."""
    return set(tx.execute(sa.select(guest_texts.c.sha256)).scalars())
