# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bringing a ledger to this version's shape, and refusing what is not of it.

Each revision is a module of ledger.migrations with ``revision`` and ``upgrade(op)``; ``op`` is Alembic's operations
object. source: 001 section 8.5.20 (rows B86, B87)
"""

from __future__ import annotations

import importlib
import typing as t

from ..core import errors
from ..core.optional import optional_import
from .libraries import sa
from .locks import take_turns
from .tables import metadata

REVISIONS = ("0001",)
HEAD = REVISIONS[-1]
TABLE = "ledger_revision"


def current_revision(conn: t.Any) -> str | None:
    """The newest revision that was applied; None for an empty database."""
    if not sa.inspect(conn).has_table(TABLE):
        return None
    found = conn.execute(sa.text("SELECT max(revision) FROM %s" % TABLE)).scalar()
    return None if found is None else str(found)


def pending(conn: t.Any, url: str = "") -> list[str]:
    """The revisions that upgrade() would apply, oldest first; LedgerTooNew when the ledger knows more than this code."""
    current = current_revision(conn)
    if current is not None and current not in REVISIONS:
        raise errors.LedgerTooNew(url=url, revision=current, head=HEAD)
    if current is None:
        foreign = sorted(set(sa.inspect(conn).get_table_names()) & set(metadata.tables))
        if foreign:
            raise errors.LedgerError(
                url=url,
                reason="it is not a ledger, but has tables of such names (%s)" % ", ".join(foreign[:5]),
                remedy="Name another file or database in bootflow_ledger_url.",
            )
    return [r for r in REVISIONS if current is None or r > current]


def check_revision(conn: t.Any, url: str) -> None:
    """Raise LedgerTooNew or LedgerTooOld unless the ledger is exactly of this version."""
    missing = pending(conn, url)
    if missing:
        raise errors.LedgerTooOld(url=url, revision=current_revision(conn) or "none", head=HEAD)


def upgrade(conn: t.Any, url: str = "") -> list[str]:
    """Apply what is missing, inside the caller's transaction. Returns the revisions applied: none the second time."""
    take_turns(conn, "ledger", ["migrations"])
    todo = pending(conn, url)
    if not todo:
        return []
    context = optional_import("alembic.runtime.migration").MigrationContext.configure(conn)
    operations = optional_import("alembic.operations").Operations(context)
    if not sa.inspect(conn).has_table(TABLE):
        conn.execute(sa.text("CREATE TABLE %s (revision VARCHAR(16) PRIMARY KEY)" % TABLE))
    for revision in todo:
        importlib.import_module("%s.migrations.r%s" % (__package__, revision)).upgrade(operations)
        conn.execute(sa.text("INSERT INTO %s (revision) VALUES (:revision)" % TABLE), {"revision": revision})
    return todo
