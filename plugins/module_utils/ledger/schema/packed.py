# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the scheduler reads of every compute node, in columns that the database makes when it writes a row.

A boot reads all rows. The database looks up, converts and appends each value by itself: three of each row take PostgreSQL half of the time that
all of them take, and sqlite a quarter. The numbers are as wide in every row, so that all of them together are an array. sqlite has no functions
for bytes: its integers are hexadecimal digits, and its other numbers are texts.
"""

from __future__ import annotations

import typing as t

from ..db.sqlalchemy_import import sa

SEPARATOR = "\x1f"  # of texts: hardly in one
NULL = -(2**31)  # for an integer that is NULL

_FORMS = {"int4send": ">i4", "float8send": ">f8", "boolsend": "?"}
#: Name -> the function that packs it, and its expression.
NUMBERS: dict[str, tuple[str, str]] = {
    "id": ("int4send", "id"),
    "memory_mb": ("int4send", "memory_mb"),
    "memory_mb_used": ("int4send", "memory_mb_used"),
    "reserved_memory_mb": ("int4send", "reserved_memory_mb"),
    "local_gb": ("int4send", "local_gb"),
    "local_gb_used": ("int4send", "local_gb_used"),
    "reserved_disk_gb": ("int4send", "reserved_disk_gb"),
    "vcpus": ("int4send", "vcpus"),
    "vcpus_used": ("int4send", "vcpus_used"),
    "reserved_vcpus": ("int4send", "reserved_vcpus"),
    "disk_available_least": ("int4send", "coalesce(disk_available_least, %d)" % NULL),
    "ram_allocation_ratio": ("float8send", "ram_allocation_ratio"),
    "disk_allocation_ratio": ("float8send", "disk_allocation_ratio"),
    "cpu_allocation_ratio": ("float8send", "cpu_allocation_ratio"),
    "disabled_by_inventory": ("boolsend", "disabled"),
    "disabled": ("boolsend", "(disabled OR service_disabled)"),
    "down": ("boolsend", "(forced_down OR unreachable_reason IS NOT NULL)"),
    "with_devices": ("boolsend", "(has_pci OR has_disks)"),
    "with_reason": ("boolsend", "(disabled_reason <> '')"),
    "hypervisor_version": ("int4send", "hypervisor_version"),
    "num_instances": ("int4send", "num_instances"),
    "failed_builds": ("int4send", "failed_builds"),
    "reported_at": ("float8send", "coalesce(reported_at, 'NaN')"),
    "profile_id": ("int4send", "coalesce(profile_id, %d)" % NULL),
}
#: of a row as numpy has it
DTYPE = [(name, _FORMS[function]) for name, (function, _value) in NUMBERS.items()]
NAMES = ("host", "node", "availability_zone")
TEXTS = ("host_ip", "hypervisor_type", "disabled_reason")  # of which most boots need none

POSTGRESQL = {
    "packed_numbers": "BYTEA GENERATED ALWAYS AS (%s) STORED"
    % " || ".join("%s(%s)" % packed for packed in NUMBERS.values()),
    "packed_names": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || chr(31) || ".join(NAMES),
    "packed_texts": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || chr(31) || ".join(TEXTS),
}

_INTEGERS = {name: value for name, (function, value) in NUMBERS.items() if function == "int4send"}
_BOOLEANS = {name: value for name, (function, value) in NUMBERS.items() if function == "boolsend"}
#: of a row's packed_integers as numpy has it
SQLITE_DTYPE = [*((name, ">i4") for name in _INTEGERS), *((name, "?") for name in _BOOLEANS)]
RATIOS = ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio")
# sqlite keeps any value in any column. NULL, where a row has one that is no integer of four bytes: such rows are read as they are.
_ARE_INTEGERS = "%s = '%s' AND min(%s) >= %d AND max(%s) < %d" % (
    " || ".join("typeof(%s)" % value for value in _INTEGERS.values()),
    "integer" * len(_INTEGERS),
    ", ".join(_INTEGERS.values()),
    NULL,
    ", ".join(_INTEGERS.values()),
    -NULL,
)
SQLITE = {
    "packed_integers": "TEXT GENERATED ALWAYS AS (CASE WHEN %s THEN printf('%s', %s) END) STORED"
    % (
        _ARE_INTEGERS,
        "%08x" * len(_INTEGERS) + "%02x" * len(_BOOLEANS),
        ", ".join(
            [*("%s & 4294967295" % value for value in _INTEGERS.values()), *("%s <> 0" % v for v in _BOOLEANS.values())]
        ),
    ),
    "packed_ratios": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || ',' || ".join("quote(%s)" % name for name in RATIOS),
    "packed_reported": "TEXT GENERATED ALWAYS AS (CASE WHEN reported_at IS NULL THEN 'nan' ELSE quote(reported_at) END) STORED",
}


def add_to(table: sa.Table) -> None:
    """Have these columns made with the table. They are none of SQLAlchemy's: nothing else reads or writes them."""

    def after_create(_table: sa.Table, connection: sa.Connection, **_how: t.Any) -> None:
        if connection.dialect.name == "postgresql":
            added = ", ".join("ADD COLUMN %s %s" % column for column in POSTGRESQL.items())
            connection.execute(sa.text("ALTER TABLE %s %s" % (table.name, added)))
            return
        # sqlite makes such columns only with their table.
        made = "SELECT sql FROM sqlite_master WHERE name = '%s'" % table.name
        columns, separator, constraints = connection.exec_driver_sql(made).scalar_one().partition(", \n\tCONSTRAINT ")
        added = "".join(", \n\t%s %s" % column for column in SQLITE.items())
        connection.exec_driver_sql("DROP TABLE %s" % table.name)
        connection.exec_driver_sql(columns + added + separator + constraints)

    sa.event.listen(table, "after_create", after_create)
