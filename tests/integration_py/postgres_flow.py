# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks against the lab, with their ledger in PostgreSQL."""

from __future__ import annotations

import typing as t

import psycopg
from flow import Flow
from postgres import PostgresServer
from psycopg.rows import dict_row


class PostgresFlow(Flow):
    dsn = ""
    server: PostgresServer

    def query(self, sql: str, *arguments: t.Any) -> list[t.Any]:
        try:
            with psycopg.connect(self.dsn, row_factory=dict_row) as conn:
                return conn.execute(sql.replace("?", "%s"), arguments).fetchall()
        except psycopg.errors.UndefinedTable:
            return []

    def use(self, name: str) -> None:
        where = "%s?host=%s" % (name, self.server.folder)
        self.dsn = "postgresql://postgres@/" + where
        self.variables["bootflow_ledger_url"] = "postgresql://checked@/" + where
        self.variables["bootflow_user_data_dir"] = str(self.folder / "user-data")
