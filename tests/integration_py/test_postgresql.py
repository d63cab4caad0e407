# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole flow with its ledger in PostgreSQL: two runs at once for different entries, a failing host, delete."""

from __future__ import annotations

import typing as t

import psycopg
import pytest
from flow import Flow, entry
from postgres import PASSWORD, PostgresServer
from psycopg.rows import dict_row


class PostgresFlow(Flow):
    dsn = ""

    def query(self, sql: str, *arguments: t.Any) -> list[t.Any]:
        with psycopg.connect(self.dsn, row_factory=dict_row) as conn:
            try:
                return conn.execute(sql.replace("?", "%s"), arguments).fetchall()
            except psycopg.errors.UndefinedTable:
                return []


@pytest.fixture
def postgres_flow(flow: Flow, lab, guest_image, tmp_path) -> t.Iterator[PostgresFlow]:
    server = PostgresServer()
    try:
        server.start()
        name = server.create()
        with server.connect() as conn:
            conn.execute("ALTER DATABASE %s OWNER TO checked" % name)
        found = PostgresFlow(lab, tmp_path, guest_image)
        found.dsn = "postgresql://postgres@/%s?host=%s" % (name, server.folder)
        found.variables["bootflow_ledger_url"] = "postgresql://checked:%s@/%s?host=%s" % (PASSWORD, name, server.folder)
        yield found
    finally:
        server.stop()


def test_two_runs_share_a_ledger(postgres_flow: PostgresFlow) -> None:
    flow = postgres_flow
    flow.boot(entry("first"))
    flow.lab.host("compute2").fail("spawn")
    other = flow.start("boot", {"bootflow_instances": [entry("left", max_count=3)]})
    mine = flow.boot(entry("right", max_count=3), options=("-vvv",))
    assert other.wait(timeout=300) == 0, (flow.folder / "killed.log").read_text()[-3000:]
    rows = flow.instances()
    assert len(rows) == 7 and {r["vm_state"] for r in rows.values()} == {"active"}
    addresses = [r["ip_address"] for r in flow.query("SELECT ip_address FROM ip_allocations")]
    assert len(addresses) == len(set(addresses)) == 7
    assert not [n for n, r in rows.items() if n != "first" and r["host"] == "compute2"]
    flow.check_ledger()
    assert PASSWORD not in mine.output and PASSWORD not in (flow.folder / "killed.log").read_text()
    again = flow.boot(entry("right", max_count=3))
    assert "changed=0" in again.output
    flow.lab.host("compute2").restore()
    flow.delete(*rows)
    assert flow.residue() == {}
