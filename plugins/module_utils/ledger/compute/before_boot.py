# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads all that a boot looks at before it schedules, in one statement: each part is a separate function as well.

It is here and not in ``ledger/fast``, as it is made of conditions of nodes and runs.
"""

from __future__ import annotations

import functools
import typing as t

from ..db.database_kind import DatabaseKind
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..fast.compiled_statement import CompiledStatement
from . import nodes, runs


class Before(t.NamedTuple):
    to_clean: set[str]  # hosts, see cleanups.hosts()
    fresh: set[str]  # hosts whose report is recent, see nodes.stale_hosts()
    left_work: bool  # see runs.LEFT_WORK

    def ask(self, hosts: t.Sequence[str]) -> list[str]:
        """The hosts out of ``hosts`` that should report before anything is scheduled."""
        stale = [h for h in hosts if h not in self.fresh]
        if not self.to_clean:
            return stale
        return stale + [h for h in hosts if h in self.to_clean and h in self.fresh]


def look(tx: Transaction, max_age: float) -> Before:
    """:arg max_age: of a recent report, in seconds."""
    values = {"since": tx.now - max_age, "run": tx.run.id, "now": tx.now}
    ((to_clean, fresh, left_work),) = _query(tx.database_kind).tuples(tx, values)
    return Before(set(bulk.texts(to_clean)), set(bulk.texts(fresh)), bool(left_work))


@functools.cache
def _query(database: DatabaseKind) -> CompiledStatement:
    hosts = bulk.json_list(database, "host")
    return CompiledStatement(
        sa.text(
            "SELECT (SELECT %s FROM cleanups), (SELECT %s FROM compute_nodes WHERE %s), %s"
            % (hosts, hosts, nodes.RECENT, runs.LEFT_WORK)
        )
    )
