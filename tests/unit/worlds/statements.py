# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SQL statements that something costs."""

from __future__ import annotations

import contextlib
import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction


@contextlib.contextmanager
def counted(ledger: t.Any) -> t.Iterator[list[tuple[str, t.Any]]]:
    """The statements that are sent to the database meanwhile, with their parameters; many rows at once are one."""
    found: list[tuple[str, t.Any]] = []

    def note(_conn: t.Any, _cursor: t.Any, statement: str, parameters: t.Any, _context: t.Any, _many: bool) -> None:
        found.append((" ".join(statement.split()), parameters))

    def sent(tx: Transaction, text: str, values: t.Any, binary: bool) -> t.Any:
        if tx.connection.engine is ledger.engine:
            found.append((" ".join(text.split()), values))
        return by_driver(tx, text, values, binary)

    by_driver = Transaction._sent
    sa.event.listen(ledger.engine, "before_cursor_execute", note)
    Transaction._sent = sent  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Transaction._sent = by_driver  # type: ignore[method-assign]
        sa.event.remove(ledger.engine, "before_cursor_execute", note)
