# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts common to many nodes (CPU, supported guests, NUMA cells), stored once under the digest of their content."""

from __future__ import annotations

import functools
import hashlib
import json
import typing as t

from ..db.database_kind import DatabaseKind
from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..fast.compiled_statement import CompiledStatement
from ..schema.tables import node_profiles


def profile_id(tx: Transaction, content: t.Mapping[str, t.Any]) -> int:
    """The id of the row with this content (plain JSON), created if it is new."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    c = node_profiles.c
    query = sa.select(c.id).where(c.digest == digest)
    row_id = tx.execute(query).scalar()
    if row_id is None:
        insert_new(tx, node_profiles, digest=digest, profile=content)
        row_id = tx.execute(query).scalar_one()
    return int(row_id)


def load(tx: Transaction, ids: t.Iterable[int | None]) -> dict[int, dict[str, t.Any]]:
    """id -> content."""
    named = bulk.listed(tx, node_profiles.c.id, sorted({i for i in ids if i is not None}))
    return dict(map(tuple, _query(tx.database_kind).tuples(tx, {"ids": named})))


@functools.cache
def _query(database: DatabaseKind) -> CompiledStatement:
    c = node_profiles.c
    return CompiledStatement(sa.select(c.id, c.profile).where(bulk.among_named(database, c.id, "ids")))
