# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Databases with the ledger's tables: a file, one in memory, and those of a PostgreSQL server."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import psycopg
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab"))

from postgres import PostgresServer  # noqa: E402

MEMORY = "sqlite://"
DIALECTS: dict[str, t.Any] = {}
COMPILED: dict[t.Any, t.Any] = {}


class LedgerServer(PostgresServer):
    """With a migrated database that the tests empty and use again."""

    def start(self) -> None:
        super().start()
        self.migrated = self.url(self.create())
        migrate(self.migrated)

    def emptied(self) -> str:
        """The URL of the migrated database, without rows but its id: much cheaper than a database for each test."""
        with psycopg.connect(self.migrated) as conn:
            for table in reversed(tables.metadata.sorted_tables):
                if table is not tables.ledger_identity:
                    conn.execute("DELETE FROM %s" % table.name)
        return self.migrated


def migrate(url: str) -> None:
    ledger = database.open_ledger(url, create=True, check_revision=False)
    with ledger.write() as tx:
        runner.upgrade(tx)
    ledger.close()


def open_in_tests(url: str) -> database.Ledger:
    """The migrated ledger at ``url``; at MEMORY a new one without rows, many times faster than a file.

    All ledgers of a process share a dialect, so that it compiles each statement once. sqlite leaves it to the kernel when
    to write to the disk: only a power cut could show the difference.
    """
    ledger = database.memory_ledger() if url == MEMORY else database.open_ledger(url, check_revision=False)
    engine = ledger.engine
    engine.dialect = DIALECTS.setdefault(engine.dialect.name, engine.dialect)
    engine.update_execution_options(compiled_cache=COMPILED)
    if not ledger.is_server:
        sa.event.listen(engine, "connect", lambda connection, _record: connection.execute("PRAGMA synchronous=OFF"))
    return ledger
