# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common part of the ledger's tables: their collection, names of constraints, columns with listed values."""

from __future__ import annotations

import typing as t

from ..db.database_kind import kind_of
from ..db.sqlalchemy_import import sa

# Every constraint has a name, so that a later revision can change it on any database.
metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


def partial_index(name: str, *columns: str, where: str) -> sa.Index:
    """An index of the rows that meet the condition ``where``.

    SQLAlchemy loads the dialect of each database for which an index has a condition, used or not: it is added where it is created.
    """
    return sa.Index(name, *columns, info={"where": where})


def _add_conditions(_metadata: sa.MetaData, connection: sa.Connection, **_how: t.Any) -> None:
    for table in metadata.tables.values():
        for index in table.indexes:
            if "where" in index.info:
                index.dialect_kwargs["%s_where" % kind_of(connection).name] = sa.text(index.info["where"])


sa.event.listen(metadata, "before_create", _add_conditions)


def one_of(table: str, column: str, values: t.Iterable[str]) -> sa.CheckConstraint:
    """A constraint: the column is empty or has one of ``values``."""
    listed = ", ".join("'%s'" % v for v in sorted(values))
    return sa.CheckConstraint("%s IS NULL OR %s IN (%s)" % (column, column, listed), name="ck_%s_%s" % (table, column))
