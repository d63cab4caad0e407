# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Columns of compute_nodes that the database generates when it writes a row, with the data that the scheduler reads of every compute node.

A boot reads all rows. The database looks up, converts and appends each value by itself: three of each row take PostgreSQL half of the time that
all of them take, and sqlite a quarter. The numbers are as wide in every row, so that all of them together are an array. sqlite has no functions
for bytes: its integers are hexadecimal digits, and its other numbers are texts.

The fields of HostState and their columns decide what is packed. A ledger has the text of VERSION next to its revisions, and an upgrade generates
the columns again where it is another one: a revision only adds the column of a new field.
"""

from __future__ import annotations

import hashlib
import typing as t

from ...core.scheduler.host_state import COLUMNS
from ..db.database_kind import kind_of
from ..db.sqlalchemy_import import sa
from .tables import compute_nodes

SEPARATOR = "\x1f"  # of texts: hardly in one
NULL = -(2**31)  # for an integer that is NULL
NAMES = ("host", "node", "availability_zone")
#: Columns that are not fields of HostState, and that a boot compares or follows.
_OTHERS = ("reserved_memory_mb", "reserved_disk_gb", "reserved_vcpus", "profile_id", "disabled_reason")
#: Name -> an expression that is true or false.
_ANSWERS = {
    "disabled_by_inventory": "disabled",
    "disabled": "(disabled OR service_disabled)",
    "down": "(forced_down OR unreachable_reason IS NOT NULL)",
    "with_devices": "(has_pci OR has_disks)",
    "with_reason": "(disabled_reason <> '')",
}
_PACKED = tuple(dict.fromkeys([*COLUMNS.values(), *_OTHERS]))
_COLUMNS = {column.name: column for column in compute_nodes.c}  # none where SQLAlchemy is missing


def _columns_of(kind: type[t.Any]) -> list[sa.Column[t.Any]]:
    return [_COLUMNS[name] for name in _PACKED if name in _COLUMNS and isinstance(_COLUMNS[name].type, kind)]


INTEGERS = [column.name for column in _columns_of(sa.Integer)]
REALS = [column.name for column in _columns_of(sa.Float)]
TRUTHS = [column.name for column in _columns_of(sa.Boolean)]
TEXTS = tuple(
    column.name for column in _columns_of(sa.String) if column.name not in NAMES
)  # most boots need none of them
NULLABLE = frozenset(name for name in (*INTEGERS, *REALS) if compute_nodes.c[name].nullable)
RATIOS = [name for name in REALS if name not in NULLABLE]  # many hosts have the same values
TIMES = [name for name in REALS if name in NULLABLE]  # each host has its own values

_strangers = set(_PACKED) - {*INTEGERS, *REALS, *TRUTHS, *TEXTS, *NAMES}
_strangers |= {name for name in (*TRUTHS, *TEXTS, *NAMES) if compute_nodes.c[name].nullable}
if _strangers and _COLUMNS:
    raise TypeError(
        "the scheduler reads integers, reals, and texts and truth values that are not NULL: %s is none"
        % ", ".join(sorted(_strangers))
    )

_INTEGERS = {name: "coalesce(%s, %d)" % (name, NULL) if name in NULLABLE else name for name in INTEGERS}
_BOOLEANS = {**{name: name for name in TRUTHS}, **_ANSWERS}

#: A row of packed_numbers as numpy has it.
DTYPE = [
    *((name, ">i4") for name in _INTEGERS),
    *((name, ">f8") for name in REALS),
    *((name, "?") for name in _BOOLEANS),
]
POSTGRESQL = {
    "packed_numbers": "BYTEA GENERATED ALWAYS AS (%s) STORED"
    % " || ".join(
        [
            *("int4send(%s)" % value for value in _INTEGERS.values()),
            *(
                "float8send(coalesce(%s, 'NaN'))" % name if name in NULLABLE else "float8send(%s)" % name
                for name in REALS
            ),
            *("boolsend(%s)" % value for value in _BOOLEANS.values()),
        ]
    ),
    "packed_names": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || chr(31) || ".join(NAMES),
    "packed_texts": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || chr(31) || ".join(TEXTS),
}

#: A row of packed_integers as numpy has it.
SQLITE_DTYPE = [*((name, ">i4") for name in _INTEGERS), *((name, "?") for name in _BOOLEANS)]
# sqlite keeps any value in any column. NULL, where a row has one that is not an integer of four bytes: such rows are read as they are.
_ARE_INTEGERS = "%s = '%s' AND min(%s) >= %d AND max(%s) < %d" % (
    " || ".join("typeof(%s)" % value for value in _INTEGERS.values()),
    "integer" * len(_INTEGERS),
    ", ".join(_INTEGERS.values()),
    NULL,
    ", ".join(_INTEGERS.values()),
    -NULL,
)
_DIGITS = [*("%s & 4294967295" % value for value in _INTEGERS.values()), *("%s <> 0" % v for v in _BOOLEANS.values())]
SQLITE = {
    "packed_integers": "CASE WHEN %s THEN printf('%s', %s) END"
    % (_ARE_INTEGERS, "%08x" * len(_INTEGERS) + "%02x" * len(_BOOLEANS), ", ".join(_DIGITS)),
    "packed_ratios": " || ',' || ".join("quote(%s)" % name for name in RATIOS),
    "packed_times": " || ',' || ".join(
        "CASE WHEN %s IS NULL THEN 'nan' ELSE quote(%s) END" % (name, name) for name in TIMES
    ),
}

#: Names the form of the generated columns, among the revisions of a ledger.
VERSION = "packed-" + hashlib.sha256(repr((POSTGRESQL, SQLITE)).encode()).hexdigest()[:8]


def generate(op: t.Any) -> None:
    """Have the database generate these columns of all rows, in the place of columns of another version.

    :arg op: Alembic's operations. The columns are none of SQLAlchemy's: nothing else reads or writes them.
    """
    connection = op.get_bind()
    old = [c["name"] for c in sa.inspect(connection).get_columns(compute_nodes.name) if c["name"].startswith("packed_")]
    if kind_of(connection).alters_tables:
        changes = ["DROP COLUMN %s" % name for name in old] + [
            "ADD COLUMN %s %s" % column for column in POSTGRESQL.items()
        ]
        op.execute(sa.text("ALTER TABLE %s %s" % (compute_nodes.name, ", ".join(changes))))
        return
    # sqlite makes such columns only with their table.
    with op.batch_alter_table(compute_nodes.name, recreate="always") as batch:
        for name in old:
            batch.drop_column(name)
        for name, value in SQLITE.items():
            batch.add_column(sa.Column(name, sa.Text(), sa.Computed(value, persisted=True)))
