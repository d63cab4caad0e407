# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The differences between the databases of a ledger: one name for each, which is asked instead of the dialect."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from .sqlalchemy_import import sa


class DatabaseKind(t.NamedTuple):
    """Abilities of a kind of database. Hashable, so that a statement is built once for each kind."""

    name: str  # of SQLAlchemy's dialect; its options and its module begin and end with it
    is_server: (
        bool  # has a clock and a password; the answer to its COMMIT may be lost. sqlite is a file of this machine
    )
    locks_rows: bool  # and keys (advisory locks); a writing transaction of sqlite locks everything
    counts_inserted_rows: bool  # also where a conflict leaves rows out; otherwise RETURNING tells
    has_sequences: bool  # of ids, which are drawn before rows are inserted
    alters_tables: bool  # in place; sqlite makes a new table to change it
    has_byte_functions: bool  # so that numbers are packed as bytes; sqlite's are packed as hexadecimal digits
    takes_arrays: bool  # a column of values as one parameter; sqlite takes a list as JSON
    writes_several_tables: bool  # by one statement, in common table expressions
    takes_driver_text: bool  # compiled statements go to the driver itself, which saves more than they cost
    joins_messages: bool  # what needs no answer goes with the next statement
    plans_by_statistics: bool  # of tables, which may be old; sqlite plans by the indexes
    json_list: str  # function that makes a JSON list of a column


POSTGRESQL = DatabaseKind(
    name="postgresql",
    is_server=True,
    locks_rows=True,
    counts_inserted_rows=False,
    has_sequences=True,
    alters_tables=True,
    has_byte_functions=True,
    takes_arrays=True,
    writes_several_tables=True,
    takes_driver_text=True,
    joins_messages=True,
    plans_by_statistics=True,
    json_list="json_agg",
)
SQLITE = DatabaseKind(
    name="sqlite",
    is_server=False,
    locks_rows=False,
    counts_inserted_rows=True,
    has_sequences=False,
    alters_tables=False,
    has_byte_functions=False,
    takes_arrays=False,
    writes_several_tables=False,
    takes_driver_text=False,
    joins_messages=False,
    plans_by_statistics=False,
    json_list="json_group_array",
)
_KINDS = {kind.name: kind for kind in (POSTGRESQL, SQLITE)}


class _WithDialect(t.Protocol):
    @property
    def dialect(self) -> sa.Dialect: ...


def kind_of(bind: _WithDialect) -> DatabaseKind:
    """The kind of database behind an engine or a connection of SQLAlchemy.

    :raises KeyError: neither PostgreSQL nor sqlite, which normalise_url() refuses.
    """
    return _KINDS[bind.dialect.name]
