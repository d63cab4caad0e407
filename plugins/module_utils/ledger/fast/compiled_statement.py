# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Statements that every boot runs, compiled once.

SQLAlchemy looks a statement up, prepares its parameters and describes its rows again each time, which on PostgreSQL takes longer
than the statement. These are compiled once and handed to the driver.

SQL: that of the statement as it was built, such as ``SELECT ... FROM instances WHERE uuid = ANY (CAST(%(some_uuid)s AS VARCHAR[]))``.
Bench: `scripts/bench scheduling`, "boots of one by".
"""

from __future__ import annotations

import collections
import typing as t

from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction

Row = t.TypeVar("Row")


class _Compiled(t.NamedTuple):
    text: str  # in the driver's form
    own: dict[str, t.Any]  # the values that the statement has itself
    make_row: t.Callable[[tuple[t.Any, ...]], t.Any]


class CompiledStatement:
    """A statement for one kind of database. Its parameters have values that the driver takes as they are, so no JSON and no IN with a list."""

    def __init__(self, statement: sa.Executable):
        self.statement = statement
        self._compiled: _Compiled | None = None

    def tuples(self, tx: Transaction, values: t.Mapping[str, t.Any]) -> list[t.Any]:
        """The rows, by position."""
        if not tx.database_kind.takes_driver_text:
            return list(tx.execute(self.statement, values))
        compiled = self._compiled or self._compile(tx)
        return tx.fetch(compiled.text, {**compiled.own, **values})

    def rows(self, tx: Transaction, kind: type[Row], values: t.Mapping[str, t.Any]) -> list[Row]:
        """The rows of a select by the names of their columns, which ``kind`` declares for mypy; see Transaction.rows()."""
        if not tx.database_kind.takes_driver_text:
            return tx.rows(self.statement, kind, dict(values))
        value_rows = self.tuples(tx, values)
        return list(map(t.cast(_Compiled, self._compiled).make_row, value_rows))

    def write(self, tx: Transaction, values: t.Mapping[str, t.Any]) -> int:
        """Run a statement without rows. Returns the number of rows that it wrote."""
        if not tx.database_kind.takes_driver_text:
            return int(tx.execute(self.statement, values).rowcount)
        compiled = self._compiled or self._compile(tx)
        return tx.send(compiled.text, {**compiled.own, **values})

    def later(
        self,
        tx: Transaction,
        values: t.Mapping[str, t.Any],
        take: t.Callable[[list[t.Any]], None] | None = None,
    ) -> None:
        """Run it before the next statement, see Transaction.later(); at once on sqlite. :arg take: is given its rows, by position"""
        if not tx.database_kind.joins_messages:
            result = tx.execute(self.statement, values)
            if take is not None:
                take(list(result))
            return
        compiled = self._compiled or self._compile(tx)
        tx.later(compiled.text, {**compiled.own, **values}, take)

    def _compile(self, tx: Transaction) -> _Compiled:
        made = t.cast(t.Any, self.statement).compile(dialect=tx.dialect)
        columns = getattr(self.statement, "selected_columns", ())
        row = collections.namedtuple("Row", [c.name for c in columns]) if columns else tuple
        self._compiled = _Compiled(str(made), dict(made.params), getattr(row, "_make", row))
        return self._compiled
