# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds out whether a COMMIT without an answer was done: a row that each worker writes with its transactions on PostgreSQL.

A worker (one thread of one process on one open ledger) has one row with the number of its last transaction. If the
connection breaks during a commit, the next attempt first writes the same number: this waits until the old session has
ended, and shows whether the number already exists. PostgreSQL's pg_xact_status() would need no row, but a crashed server
reuses lost transaction numbers, and would then answer for another transaction.

The answer holds across a failover with synchronous replication. Who asks locks the row that exists, so that the asking
transaction has something to commit: its own COMMIT waits until the standby has all that was written before, the commit in
doubt too. If the server is lost meanwhile, the next one is asked again.
"""

from __future__ import annotations

import os
import threading
import time
import typing as t
import uuid

from .sqlalchemy_import import sa
from .transaction import Part, Transaction

KEEP_SECONDS = 7 * 86400.0

# Not in tables.metadata: it belongs to the database layer, like the table of revisions.
metadata = sa.MetaData()
table = sa.Table(
    "ledger_commits",
    metadata,
    sa.Column("worker", sa.String(36), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)

_WRITE = (
    "INSERT INTO ledger_commits AS c (worker, number, at) SELECT %%(worker)s, %%(number)s, %%(at)s %s"
    " ON CONFLICT (worker) DO UPDATE SET number = excluded.number, at = excluded.at WHERE c.number < excluded.number"
)
_SIGN = _WRITE % "WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
_SIGN_AGAIN = _WRITE % ""


class Worker(threading.local):
    """This thread's identity and count; a forked child gets another identity."""

    pid = 0
    number = 0
    id = ""

    def next(self) -> tuple[str, int]:
        if self.pid != os.getpid():
            self.pid, self.number, self.id = os.getpid(), 0, str(uuid.uuid4())
        self.number += 1
        return self.id, self.number


def begin(tx: Transaction, mark: tuple[str, int]) -> None:
    """The first writes that bulk.together() sends in this transaction write the mark too, which saves a message."""
    tx.mark = Part(_SIGN_AGAIN, _values(mark))


def sign(tx: Transaction, mark: tuple[str, int]) -> bool:
    """Write the mark if the transaction wrote anything and it is not written; returns whether the transaction has a mark.

    In a message before that of the COMMIT, which may arrive late: who asks meanwhile has to find the row, and wait for it.
    """
    return tx.mark is None or _write(tx, mark, _SIGN)


def sign_again(tx: Transaction, mark: tuple[str, int]) -> bool:
    """Write the mark of a transaction whose COMMIT got no answer; False: the mark exists, so the COMMIT was done."""
    return _write(tx, mark, _SIGN_AGAIN)


def _write(tx: Transaction, mark: tuple[str, int], text: str) -> bool:
    return bool(tx.send(text, _values(mark)))


def _values(mark: tuple[str, int]) -> dict[str, t.Any]:
    return {"worker": mark[0], "number": mark[1], "at": time.time()}


def any_old(tx: Transaction) -> bool:
    """Whether forget_old() has something to do."""
    return tx.execute(sa.select(table.c.worker).where(table.c.at < tx.now - KEEP_SECONDS).limit(1)).first() is not None


def forget_old(tx: Transaction) -> int:
    """Remove the rows of workers that ended long ago. Returns their number."""
    return int(tx.execute(table.delete().where(table.c.at < tx.now - KEEP_SECONDS)).rowcount)
