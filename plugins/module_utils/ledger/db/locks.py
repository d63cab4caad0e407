# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks without a row, and the order of all locks.

The order is the same everywhere, so that runs never wait for each other in a circle: the run's own row, projects,
instances by uuid, volumes by id, subnets, server groups, storage backends by pool_host, compute nodes by id, images by id. Rows that
belong to one of these (claims, snapshots, attachments, pending cleanups) are written while it is locked. On sqlite a
writing transaction locks everything.
"""

from __future__ import annotations

import typing as t
import zlib

from ...core.optional import optional_import
from .sqlalchemy_import import sa
from .transaction import Transaction

# In their order; in the driver's form
_TAKE = "SELECT pg_advisory_xact_lock(key) FROM unnest(CAST(%(keys)s AS BIGINT[])) AS key"


def take_turns(tx: Transaction, kind: str, names: t.Iterable[str]) -> None:
    """Wait until no other transaction has one of these locks, and keep them until this one ends. The next statement waits.

    Two names may share a key: then they take turns, which is slower but correct.
    """
    if not tx.database_kind.locks_rows:
        return
    keys = sorted({zlib.crc32(("%s %s" % (kind, name)).encode()) for name in names})
    if keys:
        tx.later(_TAKE, {"keys": "{%s}" % ",".join(map(str, keys))})


def insert_new(tx: Transaction, table: sa.Table, **values: t.Any) -> bool:
    """Insert a row unless one with its unique columns exists, even if another transaction is just writing it."""
    insert = optional_import("sqlalchemy.dialects.%s" % tx.database_kind.name).insert
    statement = insert(table).values(**values).on_conflict_do_nothing()
    if tx.database_kind.counts_inserted_rows:
        return bool(tx.execute(statement).rowcount)
    return tx.execute(statement.returning(sa.literal(1))).first() is not None
