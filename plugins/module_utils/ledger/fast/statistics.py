# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Statistics of PostgreSQL's planner for tables that have just grown.

Autovacuum looks at a database once a minute. A fleet that is filled in that time would be planned for as if its tables were
nearly empty: they are read from end to end for each thousand of rows, and boots get slower with every batch.

SQL: ``SELECT relname FROM pg_class ...`` and ``ANALYZE (SKIP_LOCKED) ...``, after a COMMIT that inserted many rows.
Bench: `scripts/bench fleet`, "the last batches compared with the first".
"""

from __future__ import annotations

import typing as t

from ..db.transaction import Transaction

MANY = 500  # rows that a transaction inserted into a table, from which on it is looked at

# Tables twice as large as when they were analyzed or vacuumed last. Who does not own a table may not analyze it.
_GROWN = """
SELECT relname FROM pg_class
WHERE oid = ANY (SELECT to_regclass(name) FROM unnest(CAST(%(tables)s AS TEXT[])) AS name)
AND pg_relation_size(oid) > 2 * CAST(relpages AS BIGINT) * CAST(current_setting('block_size') AS BIGINT)
AND pg_has_role(relowner, 'MEMBER')
"""


def large(inserted: t.Mapping[str, int]) -> list[str]:
    """The tables into which a transaction inserted many rows. :arg inserted: rows by table"""
    return sorted(table for table, rows in inserted.items() if rows >= MANY)


def refresh(tx: Transaction, tables: t.Sequence[str]) -> list[str]:
    """Have PostgreSQL analyze those ``tables`` that have grown to twice their size. Returns them.

    One that another session analyzes or vacuums is left to it.
    """
    grown = sorted(name for (name,) in tx.fetch(_GROWN, {"tables": list(tables)}))
    if grown:
        tx.send("ANALYZE (SKIP_LOCKED) " + ", ".join(grown))
    return grown
