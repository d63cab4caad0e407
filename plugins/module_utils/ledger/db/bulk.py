# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing many rows with one statement.

PostgreSQL accepts a column as an array, so a thousand rows are one round trip and one plan; sqlite runs a prepared statement
once per row, which costs next to nothing.
"""

from __future__ import annotations

import json
import typing as t

from ...core.optional import optional_import
from .sqlalchemy_import import sa
from .transaction import Transaction

Rows = t.Sequence[t.Mapping[str, t.Any]]

_statements: dict[tuple[t.Any, ...], sa.Executable] = {}


def among(tx: Transaction, column: sa.Column[t.Any], values: t.Iterable[t.Any]) -> sa.ColumnElement[bool]:
    """``column`` is one of ``values``: one parameter for any number, so that the statement is compiled and planned once."""
    listed = list(values)
    if tx.dialect.name == "postgresql":
        array = optional_import("sqlalchemy.dialects.postgresql").ARRAY(column.type)
        return column == sa.any_(sa.bindparam(None, listed, type_=array, unique=True))
    parameter = sa.bindparam(None, json.dumps(listed), type_=sa.String, unique=True)
    return column.in_(sa.select(sa.column("value")).select_from(sa.func.json_each(parameter)))


def insert(tx: Transaction, table: sa.Table, rows: Rows) -> None:
    """Insert ``rows``, all with the same columns. Other columns get the database's default, not the table's."""
    if not rows:
        return
    names = tuple(rows[0])
    if tx.dialect.name != "postgresql":
        statement = _cached(
            ("sqlite insert", table.name, names),
            lambda: table.insert().values({n: sa.bindparam(n, type_=table.c[n].type) for n in names}),
        )
        tx.execute(statement, rows)
        return
    statement = _cached(
        ("insert", table.name, names),
        lambda: sa.text(
            "INSERT INTO %s (%s) SELECT %s FROM unnest(%s) AS u(%s)"
            % (
                table.name,
                ", ".join(names),
                ", ".join(_cast(table.c[n], "u." + n) for n in names),
                ", ".join(_array(tx, table.c[n]) for n in names),
                ", ".join(names),
            )
        ),
    )
    tx.execute(statement, _columns(table, names, rows))


def update(tx: Transaction, table: sa.Table, key: str, rows: Rows, add: t.Collection[str] = ()) -> int:
    """Write ``rows`` (each with the column ``key``, and the same others) to the rows with that key.

    :arg add: columns whose value is added to the existing one instead of replacing it.
    Returns the number of written rows.
    """
    if not rows:
        return 0
    names = tuple(n for n in rows[0] if n != key)
    if tx.dialect.name != "postgresql":
        statement = _cached(
            ("sqlite update", table.name, key, names, tuple(sorted(add))), lambda: _update_one(table, key, names, add)
        )
        return int(tx.execute(statement, [{"b_" + n: v for n, v in row.items()} for row in rows]).rowcount)

    def value(name: str) -> str:
        new = _cast(table.c[name], "u." + name)
        return "%s = %s" % (name, "t.%s + %s" % (name, new) if name in add else new)

    everything = (key, *names)
    statement = _cached(
        ("update", table.name, key, names, tuple(sorted(add))),
        lambda: sa.text(
            "UPDATE %s AS t SET %s FROM unnest(%s) AS u(%s) WHERE t.%s = u.%s"
            % (
                table.name,
                ", ".join(value(n) for n in names),
                ", ".join(_array(tx, table.c[n]) for n in everything),
                ", ".join(everything),
                key,
                key,
            )
        ),
    )
    return int(tx.execute(statement, _columns(table, everything, rows)).rowcount)


def _update_one(table: sa.Table, key: str, names: t.Sequence[str], add: t.Collection[str]) -> sa.Update:
    def bound(name: str) -> sa.ColumnElement[t.Any]:
        parameter = sa.bindparam("b_" + name, type_=table.c[name].type)
        return table.c[name] + parameter if name in add else parameter

    where = table.c[key] == sa.bindparam("b_" + key, type_=table.c[key].type)
    return table.update().where(where).values({n: bound(n) for n in names})


def _cached(key: tuple[t.Any, ...], make: t.Callable[[], sa.Executable]) -> sa.Executable:
    if key not in _statements:
        _statements[key] = make()
    return _statements[key]


def _is_json(column: sa.Column[t.Any]) -> bool:
    return isinstance(column.type, sa.JSON)


def _array(tx: Transaction, column: sa.Column[t.Any]) -> str:
    kind = "TEXT" if _is_json(column) else column.type.compile(tx.dialect)
    return "CAST(:%s AS %s[])" % (column.name, kind)


def _cast(column: sa.Column[t.Any], expression: str) -> str:
    return "CAST(%s AS JSON)" % expression if _is_json(column) else expression


def _columns(table: sa.Table, names: t.Sequence[str], rows: Rows) -> dict[str, list[t.Any]]:
    found = {}
    for name in names:
        values = [row[name] for row in rows]
        kind = table.c[name].type
        if isinstance(kind, sa.JSON):
            nullable = kind.none_as_null
            values = [None if v is None and nullable else json.dumps(v) for v in values]
        found[name] = values
    return found
