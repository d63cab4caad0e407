#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print one revision that makes all tables as they are now. Usage: scripts/first_revision.py NUMBER | ruff format -

Before the first release this revision replaces all others. After the release no revision changes, and this script goes.
"""

from __future__ import annotations

import re
import sys
import textwrap
import typing as t
from pathlib import Path

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".cache" / "tree"))
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.tables import metadata

HEAD = '''# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""First shape of the ledger. Frozen: later changes are new revisions."""

from __future__ import annotations

import typing as t
import uuid

from ...db.sqlalchemy_import import sa

revision = "%s"

# Names of keys, constraints and indexes of a single column.
NAMING = {
    "pk": "pk_%%(table_name)s",
    "fk": "fk_%%(table_name)s_%%(column_0_name)s",
    "uq": "uq_%%(table_name)s_%%(column_0_name)s",
    "ix": "ix_%%(table_name)s_%%(column_0_name)s",
}


def upgrade(op: t.Any) -> None:
    metadata = sa.MetaData(naming_convention=NAMING)
    for define in (%s):
        define(metadata)
    metadata.create_all(op.get_bind(), checkfirst=False)
    op.bulk_insert(metadata.tables["ledger_identity"], [{"id": str(uuid.uuid4())}])


def _partial_index(name: str, *columns: str, where: str) -> sa.Index:
    return sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _one_of(table: str, column: str, values: str) -> sa.CheckConstraint:
    """Make a constraint: the column is empty, or has one of the values."""
    listed = ", ".join("'%%s'" %% value for value in values.split())
    return sa.CheckConstraint("%%s IS NULL OR %%s IN (%%s)" %% (column, column, listed), name="ck_%%s_%%s" %% (table, column))
'''
CHOICES = re.compile(r"(\w+) IS NULL OR \1 IN \(('[^()]*')\)")
# Parts of the schema: a table is in the one that names it, or whose table it refers to.
PARTS = {
    "ledger": "ledger_identity runs projects reservations capacity_days cleanups notifications guest_texts",
    "hosts": "compute_nodes node_profiles services claims sightings",
    "requests": "request_specs server_groups",
    "instances": "instances migrations plans",
    "networks": "networks subnet_pools free_addresses ports security_groups",
    "images": "images",
    "volumes": "volumes storage_backends",
}


def text_of(value: str) -> str:
    lines = textwrap.wrap(value, 110, drop_whitespace=False)
    return "(%s)" % " ".join(map(repr, lines)) if len(lines) > 1 else repr(value)


def type_of(column: sa.Column[t.Any]) -> str:
    if isinstance(column.type, sa.String) and column.type.length:
        return "sa.String(%d)" % column.type.length
    written = "sa.%r" % column.type
    return written.removesuffix("()")


def default_of(column: sa.Column[t.Any]) -> str:
    value = t.cast("sa.DefaultClause", column.server_default).arg
    if isinstance(value, str):
        return '"%s"' % value
    return "sa.true()" if isinstance(value, sa.True_) else "sa.false()"


def key_of(key: sa.ForeignKeyConstraint, many: bool) -> str:
    targets = [element.target_fullname for element in key.elements]
    end = ', ondelete="%s"' % key.ondelete if key.ondelete else ""
    if not many:
        return 'sa.ForeignKey("%s"%s)' % (targets[0], end)
    return "sa.ForeignKeyConstraint(%r, %r%s)" % (key.column_keys, targets, end)


def column_lines(table: sa.Table) -> t.Iterator[str]:
    keys = {key.column_keys[0]: key for key in table.foreign_key_constraints if len(key.elements) == 1}
    for column in table.columns:
        parts = ['"%s"' % column.name, type_of(column)]
        if column.name in keys:
            parts.append(key_of(keys[column.name], many=False))
        if column.primary_key:
            parts.append("primary_key=True")
        elif not column.nullable:
            parts.append("nullable=False")
        if column.autoincrement is False:
            parts.append("autoincrement=False")
        if column.server_default is not None:
            parts.append("server_default=%s" % default_of(column))
        parts += ["%s=True" % option for option in ("unique", "index") if getattr(column, option)]
        yield "sa.Column(%s)," % ", ".join(parts)


def constraint_lines(table: sa.Table) -> t.Iterator[str]:
    for key in sorted(table.foreign_key_constraints, key=lambda k: list(k.column_keys)):
        if len(key.elements) > 1:
            yield key_of(key, many=True) + ","
    rest = [c for c in table.constraints if not isinstance(c, (sa.PrimaryKeyConstraint, sa.ForeignKeyConstraint))]
    for constraint in sorted(rest, key=lambda c: str(c.name)):
        if isinstance(constraint, sa.UniqueConstraint):
            names = [c.name for c in constraint.columns]
            if len(names) > 1:
                yield "sa.UniqueConstraint(%s, name=%r)," % (", ".join(map(repr, names)), str(constraint.name))
            continue
        text = str(t.cast("sa.CheckConstraint", constraint).sqltext)
        if (found := CHOICES.fullmatch(text)) and constraint.name == "ck_%s_%s" % (table.name, found[1]):
            values = text_of(found[2].replace("'", "").replace(",", ""))
            yield "_one_of(%r, %r, %s)," % (table.name, found[1], values)
        else:
            yield "sa.CheckConstraint(%s, name=%r)," % (text_of(text), str(constraint.name))
    for index in sorted(table.indexes, key=lambda i: str(i.name)):
        columns = [c.name for c in index.columns]
        if len(columns) == 1 and table.c[columns[0]].index:
            continue
        arguments = ", ".join(map(repr, [str(index.name), *columns]))
        if "where" in index.info:
            yield "_partial_index(%s, where=%s)," % (arguments, text_of(index.info["where"]))
        else:
            yield "sa.Index(%s%s)," % (arguments, ", unique=True" if index.unique else "")


def parts() -> dict[str, list[sa.Table]]:
    """Each part's tables, in an order in which they can be made."""
    named = {name: part for part, names in PARTS.items() for name in names.split()}
    found: dict[str, list[sa.Table]] = {part: [] for part in PARTS}
    for table in metadata.sorted_tables:
        referred = [key.column.table.name for key in table.foreign_keys if key.column.table is not table]
        prefixes = [part for name, part in named.items() if table.name.startswith(name.rstrip("s"))]
        near = [named[name] for name in referred if name in named]
        part = named.get(table.name) or next(iter([*prefixes, *reversed(near)]), "ledger")
        named[table.name] = part
        found[part].append(table)
    return found


def main() -> None:
    tables = parts()
    print(HEAD % (sys.argv[1], ", ".join("_" + part for part in tables)))
    for part, members in tables.items():
        print("\ndef _%s(metadata: sa.MetaData) -> None:" % part)
        for table in members:
            print('    sa.Table("%s", metadata,' % table.name)
            for line in (*column_lines(table), *constraint_lines(table)):
                print("        " + line)
            print("    )")


if __name__ == "__main__":
    main()
