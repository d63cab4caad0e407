# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing many rows with one statement, and several tables with one.

PostgreSQL accepts a column as an array, so a thousand rows are one round trip and one plan; sqlite runs a prepared statement
once per row, which costs next to nothing.

SQL: ``INSERT INTO ... SELECT ... FROM unnest(...)``, ``UPDATE ... FROM unnest(...)``, several of them as ``WITH ... AS (...)``; and as a condition
``column = ANY (CAST(... AS ...[]))``, on sqlite ``column IN (SELECT value FROM json_each(?))``.
Bench: `scripts/bench scheduling`, "1,000 instances over 10,000 hosts", "of one request of 30,000, compared with 30 of 1,000".
"""

from __future__ import annotations

import contextlib
import functools
import json
import typing as t

from ...core.optional import optional_import
from ..db.database_kind import DatabaseKind
from ..db.sqlalchemy_import import sa
from ..db.transaction import Part, Transaction

Rows = t.Sequence[t.Mapping[str, t.Any]]

UNTYPED = sa.types.NullType() if sa else None  # of a parameter: the database takes the type that it is cast to


def among(tx: Transaction, column: sa.Column[t.Any], values: t.Iterable[t.Any]) -> sa.ColumnElement[bool]:
    """``column`` is one of ``values``: one parameter for any number, so that the statement is compiled and planned once."""
    return _among(tx.database_kind, column, sa.bindparam(None, listed(tx, column, values), type_=UNTYPED, unique=True))


def among_named(database: DatabaseKind, column: sa.Column[t.Any], name: str) -> sa.ColumnElement[bool]:
    """The same for a statement that is made once: the parameter ``name`` gets the values by listed()."""
    return _among(database, column, sa.bindparam(name, type_=UNTYPED))


def listed(tx: Transaction, column: sa.Column[t.Any], values: t.Iterable[t.Any]) -> str:
    """Values for the parameter of among_named()."""
    listed_values = list(values)
    return _array_text(column.type, listed_values) if tx.database_kind.takes_arrays else json.dumps(listed_values)


def any_among(tx: Transaction, table: sa.Table, wanted: t.Mapping[str, t.Iterable[t.Any]]) -> sa.ColumnElement[bool]:
    """Return a condition: a row of ``table``, which has the key ``id``, has in one of these columns one of its values.

    Each column's index is used; for OR PostgreSQL would need bitmaps, which engine.PLANNER turns off.
    """
    these = table.alias("these")
    selects = [sa.select(these.c.id).where(among(tx, these.c[name], values)) for name, values in wanted.items()]
    return table.c.id.in_(sa.union_all(*selects))


def _among(
    database: DatabaseKind, column: sa.Column[t.Any], parameter: sa.BindParameter[t.Any]
) -> sa.ColumnElement[bool]:
    if database.takes_arrays:
        # The parameter has to be of the array's type itself: PostgreSQL would make an array of a text again for every row.
        kind = sa.String() if isinstance(column.type, sa.String) else column.type
        return column == sa.any_(sa.cast(parameter, _array_of(kind)))
    return column.in_(sa.select(sa.column("value")).select_from(sa.func.json_each(parameter)))


def each_named(name: str, kind: sa.types.TypeEngine[t.Any]) -> sa.ColumnElement[t.Any]:
    """PostgreSQL's: a row for each of the values that the parameter ``name`` gets by listed()."""
    return sa.func.unnest(sa.cast(sa.bindparam(name, type_=UNTYPED), _array_of(kind)), type_=kind)


def _array_of(kind: sa.types.TypeEngine[t.Any]) -> t.Any:
    return optional_import("sqlalchemy.dialects.postgresql").ARRAY(kind)


def json_list(database: DatabaseKind, expression: str) -> str:
    """SQL: the values of a column as one JSON list. Thousands of names cost less as one value than as rows."""
    return "%s(%s)" % (database.json_list, expression)


def texts(listed_: t.Any) -> list[str]:
    """Return the texts that json_list() was made of."""
    return json.loads(listed_) if isinstance(listed_, str) else listed_ or []


def insert(tx: Transaction, table: sa.Table, rows: Rows, if_new: bool = False) -> None:
    """Insert ``rows``, all with the same columns. Other columns get the database's default, not the table's.

    :arg if_new: leave out rows whose unique columns exist.
    """
    if not rows:
        return
    names = tuple(rows[0])
    if not tx.database_kind.takes_arrays:
        words = (" OR IGNORE" if if_new else "", table.name, ", ".join(names), ", ".join("?" * len(names)))
        _send_each(tx, "INSERT%s INTO %s (%s) VALUES (%s)" % words, table, names, rows)
        return
    tx.inserted[table.name] = tx.inserted.get(table.name, 0) + len(rows)
    if len(rows) == 1:  # separate values cost the driver less than as many arrays of one
        first = {n: column_values[0] for n, column_values in _values(table, names, rows).items()}
        _send(tx, Part(_insert_text(table, names, if_new, True), first))
        return
    _send(tx, Part(_insert_text(table, names, if_new, False), _columns(table, names, rows)))


@functools.cache
def _insert_text(table: sa.Table, names: tuple[str, ...], if_new: bool, one: bool) -> str:
    """PostgreSQL's, made once. :arg one: of a single row, not of a column's array each"""
    into = "INSERT INTO %s (%s)" % (table.name, ", ".join(names))
    conflict = " ON CONFLICT DO NOTHING" if if_new else ""
    if one:
        return "%s VALUES (%s)%s" % (into, ", ".join(_cast(table.c[n], _parameter(n)) for n in names), conflict)
    return "%s SELECT %s FROM unnest(%s) AS u(%s)%s" % (
        into,
        ", ".join(_cast(table.c[n], "u." + n) for n in names),
        ", ".join(_array(table.c[n]) for n in names),
        ", ".join(names),
        conflict,
    )


def update(tx: Transaction, table: sa.Table, key: str, rows: Rows, add: t.Collection[str] = ()) -> int:
    """Write ``rows`` (each with the column ``key``, and the same others) to the rows with that key.

    :arg add: columns whose value is added to the existing one instead of replacing it.
    Returns the number of written rows; 0 where together() sends them later.
    """
    if not rows:
        return 0
    names = tuple(n for n in rows[0] if n != key)
    if not tx.database_kind.takes_arrays:
        sets = ", ".join("%s = %s?" % (n, n + " + " if n in add else "") for n in names)
        return _send_each(tx, "UPDATE %s SET %s WHERE %s = ?" % (table.name, sets, key), table, (*names, key), rows)

    everything = (key, *names)
    one = len(rows) == 1  # which PostgreSQL parses and plans in half the time without a join
    text = _update_text(table, key, names, frozenset(add), one)
    if one:
        return _send(
            tx, Part(text, {n: column_values[0] for n, column_values in _values(table, everything, rows).items()})
        )
    return _send(tx, Part(text, _columns(table, everything, rows)))


@functools.cache
def _update_text(table: sa.Table, key: str, names: tuple[str, ...], add: frozenset[str], one: bool) -> str:
    """PostgreSQL's, made once. :arg one: of a single row"""

    def value(name: str) -> str:
        new = _cast(table.c[name], _parameter(name) if one else "u." + name)
        return "%s = %s" % (name, "t.%s + %s" % (name, new) if name in add else new)

    if one:
        words = (table.name, ", ".join(value(n) for n in names), key, _parameter(key))
        return "UPDATE %s AS t SET %s WHERE t.%s = %s" % words
    everything = (key, *names)
    return "UPDATE %s AS t SET %s FROM unnest(%s) AS u(%s) WHERE t.%s = u.%s" % (
        table.name,
        ", ".join(value(n) for n in names),
        ", ".join(_array(table.c[n]) for n in everything),
        ", ".join(everything),
        key,
        key,
    )


@contextlib.contextmanager
def together(tx: Transaction) -> t.Iterator[None]:
    """insert() and update() within are one statement on PostgreSQL, sent at the end: one round trip for several tables.

    Until then nothing reads what they write. They write no row twice, and need no order: references between their tables are checked at the end.
    """
    if not tx.database_kind.writes_several_tables or tx.parts is not None:
        yield
        return
    tx.parts = []
    try:
        yield
        parts = tx.parts
    finally:
        tx.parts = None
    if parts and tx.mark is not None:
        parts, tx.mark = [tx.mark, *parts], None
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
    return tx.send(part.text, part.values)


def _send_each(tx: Transaction, text: str, table: sa.Table, names: t.Sequence[str], rows: Rows) -> int:
    """Run a statement of sqlite for each row. Returns the number of written rows."""
    columns = _values(table, names, rows)
    parameters = list(zip(*(columns[n] for n in names)))
    return int(tx.connection.exec_driver_sql(text, parameters if len(parameters) > 1 else parameters[0]).rowcount)


def _parameter(name: str) -> str:
    """In the driver's form."""
    return "%%(%s)s" % name


def _is_json(column: sa.Column[t.Any]) -> bool:
    return isinstance(column.type, sa.JSON)


def _array(column: sa.Column[t.Any]) -> str:
    dialect = optional_import("sqlalchemy.dialects.postgresql").dialect()
    kind = "TEXT" if _is_json(column) else column.type.compile(dialect)
    return "CAST(%s AS %s[])" % (_parameter(column.name), kind)


def _cast(column: sa.Column[t.Any], expression: str) -> str:
    return "CAST(%s AS JSON)" % expression if _is_json(column) else expression


def _columns(table: sa.Table, names: t.Sequence[str], rows: Rows) -> dict[str, str]:
    """Each column as an array."""
    kinds = _kinds(table)
    return {n: _array_text(kinds[n], column_values) for n, column_values in _values(table, names, rows).items()}


@functools.cache
def _kinds(table: sa.Table) -> dict[str, t.Any]:
    """The type of each column."""
    return {c.name: c.type for c in table.c}


def _array_text(kind: t.Any, values: t.Sequence[t.Any]) -> str:
    """Values as PostgreSQL writes an array. The driver would look at each of them in Python, and escape it by an expression."""
    if isinstance(kind, (sa.Integer, sa.Float, sa.Boolean)):
        return "{%s}" % ",".join(
            map(str, values) if None not in values else ("NULL" if v is None else str(v) for v in values)
        )
    if values and None not in values:
        joined = _SEPARATOR.join(map(str, values))
        if joined.count(_SEPARATOR) == len(values) - 1:
            return '{"%s"}' % _escaped(joined).replace(_SEPARATOR, '","')
    return "{%s}" % ",".join("NULL" if v is None else '"%s"' % _escaped(str(v)) for v in values)


_SEPARATOR = "\x1f"  # hardly in a text: thousands of texts are escaped as one


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _values(table: sa.Table, names: t.Sequence[str], rows: Rows) -> dict[str, list[t.Any]]:
    values_by_name = {}
    documents = _documents(table)
    for name in names:
        values = [row[name] for row in rows]
        values_by_name[name] = _as_json(values, documents[name]) if name in documents else values
    return values_by_name


@functools.cache
def _documents(table: sa.Table) -> dict[str, bool]:
    """Each JSON column, and whether its None is NULL: asking a table for a column takes longer than a value."""
    return {c.name: bool(c.type.none_as_null) for c in table.c if isinstance(c.type, sa.JSON)}


def _as_json(values: t.Sequence[t.Any], nullable: bool) -> list[str | None]:
    """Many rows have the same object, which is written once."""
    texts_: dict[int, str | None] = {}
    encoded_values = []
    for value in values:
        if id(value) not in texts_:
            texts_[id(value)] = None if value is None and nullable else _encode(value)
        encoded_values.append(texts_[id(value)])
    return encoded_values


_encode = json.JSONEncoder().encode
