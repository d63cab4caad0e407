# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Databases with the ledger's tables: a file, and those of a PostgreSQL server."""

from __future__ import annotations

import pathlib
import sys

import psycopg

from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab"))

from postgres import PostgresServer  # noqa: E402


class LedgerServer(PostgresServer):
    """With a migrated database that the tests empty and use again."""

    def start(self) -> None:
        super().start()
        self.migrated = self.url(self.create())
        migrate(self.migrated)

    def emptied(self) -> str:
        """The URL of the migrated database, without rows: much cheaper than a database for each test."""
        with psycopg.connect(self.migrated) as conn:
            for table in reversed(tables.metadata.sorted_tables):
                conn.execute("DELETE FROM %s" % table.name)
        return self.migrated


def migrate(url: str) -> None:
    ledger = database.open_ledger(url, create=True, check_revision=False)
    with ledger.write() as conn:
        runner.upgrade(conn)
    ledger.close()
