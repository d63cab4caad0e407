# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Upgrading a ledger to this version, and rejecting others.

Each revision is a module of ledger.migrations with ``revision`` and ``upgrade(op)``; ``op`` is Alembic's operations
object. The first sentence of its docstring is its description in a plan. An upgrade is one transaction on both
databases: if it is killed, the ledger stays unchanged.
"""

from __future__ import annotations

import importlib
import os
import re
import typing as t

from ...core import errors
from ...core.optional import optional_import
from ..db import commits
from ..db.locks import take_turns
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..schema.base import metadata

# Each file r<revision>.py beside this one is a revision.
REVISIONS = tuple(
    sorted(m[1] for m in map(re.compile(r"r(\d{4})\.py").fullmatch, os.listdir(os.path.dirname(__file__))) if m)
)
HEAD = REVISIONS[-1]
TABLE = "ledger_revision"


def current_revision(tx: Transaction) -> str | None:
    """The newest applied revision; None for an empty database."""
    return max(_applied(tx), default=None)


def pending(tx: Transaction, url: str = "") -> list[str]:
    """The revisions that upgrade() would apply, oldest first.

    :raises LedgerTooNew: the ledger is newer than this code.
    :raises LedgerError: not a ledger, or an incomplete one.
    """
    applied = _applied(tx)
    unknown = sorted(set(applied) - set(REVISIONS))
    if unknown:
        raise errors.LedgerTooNew(url=url, revision=unknown[-1], head=HEAD)
    if not applied:
        foreign = sorted(set(sa.inspect(tx.connection).get_table_names()) & set(metadata.tables))
        if foreign:
            raise errors.LedgerError(
                url=url,
                reason="the database is not a ledger, but has tables with a ledger's names (%s)"
                % ", ".join(foreign[:5]),
                remedy="Name another file or database in bootflow_ledger_url.",
            )
    gaps = [r for r in REVISIONS if r not in applied and applied and r < max(applied)]
    if gaps:
        raise _half(url, "revision %s" % ", ".join(gaps))
    return [r for r in REVISIONS if r not in applied]


def plan(tx: Transaction, url: str = "") -> list[dict[str, str]]:
    """pending() with descriptions: [{revision, description}]."""
    return [{"revision": r, "description": description(r)} for r in pending(tx, url)]


def description(revision: str) -> str:
    """The first sentence of the revision's docstring."""
    text = " ".join((_module(revision).__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".")


def check_revision(tx: Transaction, url: str) -> None:
    """Raise LedgerTooNew or LedgerTooOld unless the ledger is exactly of this version."""
    missing = pending(tx, url)
    if missing:
        raise errors.LedgerTooOld(url=url, revision=current_revision(tx) or "none", head=HEAD)


def check_complete(tx: Transaction, url: str = "") -> bool:
    """Raise LedgerError if a ledger of the newest revision lacks a table, after a partial restore or a manual change.

    Returns whether it has the tables beside the ledger's own, too: upgrade() makes those that are missing.
    """
    there = set(sa.inspect(tx.connection).get_table_names())
    missing = sorted(set(metadata.tables) - there)
    if missing and current_revision(tx) == HEAD:
        raise _half(url, "table %s" % ", ".join(missing))
    return there.issuperset(commits.metadata.tables)


def upgrade(tx: Transaction, url: str = "", to: str | None = None) -> list[str]:
    """Apply missing revisions in the caller's transaction. Returns the applied revisions: none the second time.

    :arg to: stop at this revision.
    """
    take_turns(tx, "ledger", ["migrations"])
    todo = [r for r in pending(tx, url) if to is None or r <= to]
    if todo and current_revision(tx) is None:
        tx.execute(sa.text("CREATE TABLE %s (revision VARCHAR(16) PRIMARY KEY)" % TABLE))
    commits.metadata.create_all(tx.connection, checkfirst=True)
    if not todo:
        return []
    context = optional_import("alembic.runtime.migration").MigrationContext.configure(tx.connection)
    operations = optional_import("alembic.operations").Operations(context)
    for revision in todo:
        _module(revision).upgrade(operations)
        tx.execute(sa.text("INSERT INTO %s (revision) VALUES (:revision)" % TABLE), {"revision": revision})
    return todo


def _applied(tx: Transaction) -> list[str]:
    if not sa.inspect(tx.connection).has_table(TABLE):
        return []
    return [str(r) for r in tx.execute(sa.text("SELECT revision FROM %s" % TABLE)).scalars()]


def _module(revision: str) -> t.Any:
    return importlib.import_module("%s.r%s" % (__package__, revision))


def _half(url: str, what: str) -> errors.LedgerError:
    return errors.LedgerError(
        url=url,
        reason="the migration is incomplete: %s is missing" % what,
        remedy="Restore a backup (docs/ledger.md); nothing was changed.",
    )
