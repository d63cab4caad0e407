# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing many rows with one statement, and several tables with one.

PostgreSQL accepts a column as an array, so a thousand rows are one round trip and one plan; sqlite runs a prepared statement
once per row, which costs next to nothing.
"""

from __future__ import annotations

import contextlib
import json
import typing as t

from ...core.optional import optional_import
from .sqlalchemy_import import sa
from .transaction import Part, Transaction

Rows = t.Sequence[t.Mapping[str, t.Any]]

UNTYPED = sa.types.NullType() if sa else None  # of a parameter: the database takes the type that it is cast to
_statements: dict[tuple[t.Any, ...], sa.Executable] = {}


def among(tx: Transaction, column: sa.Column[t.Any], values: t.Iterable[t.Any]) -> sa.ColumnElement[bool]:
    """``column`` is one of ``values``: one parameter for any number, so that the statement is compiled and planned once."""
    return _among(tx.dialect.name, column, sa.bindparam(None, listed(tx, column, values), type_=UNTYPED, unique=True))


def among_named(dialect: str, column: sa.Column[t.Any], name: str) -> sa.ColumnElement[bool]:
    """The same for a statement that is made once: the parameter ``name`` gets the values by listed()."""
    return _among(dialect, column, sa.bindparam(name, type_=UNTYPED))


def listed(tx: Transaction, column: sa.Column[t.Any], values: t.Iterable[t.Any]) -> str:
    """Values for the parameter of among_named()."""
    found = list(values)
    return _array_text(column.type, found) if tx.dialect.name == "postgresql" else json.dumps(found)


def _among(dialect: str, column: sa.Column[t.Any], parameter: sa.BindParameter[t.Any]) -> sa.ColumnElement[bool]:
    if dialect == "postgresql":
        # The parameter has to be of the array's type itself: PostgreSQL would make an array of a text again for every row.
        kind = sa.String() if isinstance(column.type, sa.String) else column.type
        array = optional_import("sqlalchemy.dialects.postgresql").ARRAY(kind)
        return column == sa.any_(sa.cast(parameter, array))
    return column.in_(sa.select(sa.column("value")).select_from(sa.func.json_each(parameter)))


def insert(tx: Transaction, table: sa.Table, rows: Rows, if_new: bool = False) -> None:
    """Insert ``rows``, all with the same columns. Other columns get the database's default, not the table's.

    :arg if_new: leave out rows whose unique columns exist.
    """
    if not rows:
        return
    names = tuple(rows[0])
    if tx.dialect.name != "postgresql":
        statement = _cached(
            ("sqlite insert", table.name, names, if_new),
            lambda: (
                table.insert()
                .values({n: sa.bindparam(n, type_=table.c[n].type) for n in names})
                .prefix_with(*["OR IGNORE"] * if_new)
            ),
        )
        tx.execute(statement, rows)
        return
    into = "INSERT INTO %s (%s)" % (table.name, ", ".join(names))
    conflict = " ON CONFLICT DO NOTHING" if if_new else ""
    if len(rows) == 1:  # values of their own kind cost the driver less than as many arrays of one
        values = ", ".join(_cast(table.c[n], _parameter(n)) for n in names)
        _send(
            tx,
            Part(
                "%s VALUES (%s)%s" % (into, values, conflict),
                {n: its[0] for n, its in _values(table, names, rows).items()},
            ),
        )
        return
    text = "%s SELECT %s FROM unnest(%s) AS u(%s)%s" % (
        into,
        ", ".join(_cast(table.c[n], "u." + n) for n in names),
        ", ".join(_array(tx, table.c[n]) for n in names),
        ", ".join(names),
        conflict,
    )
    _send(tx, Part(text, _columns(table, names, rows)))


def update(tx: Transaction, table: sa.Table, key: str, rows: Rows, add: t.Collection[str] = ()) -> int:
    """Write ``rows`` (each with the column ``key``, and the same others) to the rows with that key.

    :arg add: columns whose value is added to the existing one instead of replacing it.
    Returns the number of written rows; 0 where together() sends them later.
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
    text = "UPDATE %s AS t SET %s FROM unnest(%s) AS u(%s) WHERE t.%s = u.%s" % (
        table.name,
        ", ".join(value(n) for n in names),
        ", ".join(_array(tx, table.c[n]) for n in everything),
        ", ".join(everything),
        key,
        key,
    )
    return _send(tx, Part(text, _columns(table, everything, rows)))


@contextlib.contextmanager
def together(tx: Transaction) -> t.Iterator[None]:
    """insert() and update() within are one statement on PostgreSQL, sent at the end: one round trip for several tables.

    Until then nothing reads what they write. They write no row twice, and need no order: references between their tables are checked at the end.
    """
    if tx.dialect.name != "postgresql" or tx.parts is not None:
        yield
        return
    tx.parts = []
    try:
        yield
        parts = tx.parts
    finally:
        tx.parts = None
    if len(parts) == 1:
        _send(tx, parts[0])
    elif parts:
        _send(tx, _joined(parts))


def _joined(parts: t.Sequence[Part]) -> Part:
    """One statement of several: all but the last are its common table expressions."""
    texts = [part.text.replace("%(", "%%(w%d_" % number) for number, part in enumerate(parts)]
    first = ", ".join("w%d AS (%s)" % (number, text) for number, text in enumerate(texts[:-1]))
    values = {"w%d_%s" % (number, n): v for number, part in enumerate(parts) for n, v in part.values.items()}
    return Part("WITH %s %s" % (first, texts[-1]), values)


def _send(tx: Transaction, part: Part) -> int:
    """The number of written rows."""
    if tx.parts is not None:
        tx.parts.append(part)
        return 0
    return int(tx.connection.exec_driver_sql(part.text, part.values).rowcount)


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


def _parameter(name: str) -> str:
    """In the driver's form."""
    return "%%(%s)s" % name


def _is_json(column: sa.Column[t.Any]) -> bool:
    return isinstance(column.type, sa.JSON)


def _array(tx: Transaction, column: sa.Column[t.Any]) -> str:
    kind = "TEXT" if _is_json(column) else column.type.compile(tx.dialect)
    return "CAST(%s AS %s[])" % (_parameter(column.name), kind)


def _cast(column: sa.Column[t.Any], expression: str) -> str:
    return "CAST(%s AS JSON)" % expression if _is_json(column) else expression


def _columns(table: sa.Table, names: t.Sequence[str], rows: Rows) -> dict[str, str]:
    """Each column as an array."""
    return {n: _array_text(table.c[n].type, its) for n, its in _values(table, names, rows).items()}


def _array_text(kind: t.Any, values: t.Sequence[t.Any]) -> str:
    """Values as PostgreSQL writes an array. The driver would look at each of them in Python, and escape it by an expression."""
    if isinstance(kind, (sa.Integer, sa.Float, sa.Boolean)):
        texts = map(str, values) if None not in values else ("NULL" if v is None else str(v) for v in values)
    else:
        texts = ("NULL" if v is None else '"%s"' % str(v).replace("\\", "\\\\").replace('"', '\\"') for v in values)
    return "{%s}" % ",".join(texts)


def _values(table: sa.Table, names: t.Sequence[str], rows: Rows) -> dict[str, list[t.Any]]:
    found = {}
    for name in names:
        values = [row[name] for row in rows]
        kind = table.c[name].type
        if isinstance(kind, sa.JSON):
            nullable = kind.none_as_null
            values = [None if v is None and nullable else json.dumps(v) for v in values]
        found[name] = values
    return found
