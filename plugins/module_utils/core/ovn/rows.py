# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of the northbound database, as they are wanted and as ``ovn-nbctl --format=json list`` prints them. source: ovn-nb(5), RFC 7047"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ..errors import NorthboundError

#: Of a value of external_ids: the ledger that the row is of, and what it is there.
LEDGER, ID = "bootflow:ledger", "bootflow:id"


class Table(t.NamedTuple):
    """A table of the database, as far as rows of the ledger need it.

    ``columns``: with values. ``members``: a column that is a set whose elements come and go one by one. ``references``: column -> the table that
    it names. ``key``: the column with the name of a row; "": rows have none, and external_ids tells. ``is_root``: a row is there without
    another that names it.
    """

    name: str
    columns: tuple[str, ...]
    members: tuple[str, ...] = ()
    references: t.Mapping[str, str] = {}
    key: str = "name"
    is_root: bool = True


SWITCH, PORT, GROUP = "Logical_Switch", "Logical_Switch_Port", "Port_Group"
ACL, DHCP, ADDRESSES = "ACL", "DHCP_Options", "Address_Set"
#: In the order in which rows are written.
TABLES: t.Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(DHCP, ("cidr", "options"), key=""),
        Table(ADDRESSES, ("name",), ("addresses",)),
        Table(PORT, ("name", "addresses", "port_security"), (), {"dhcpv4_options": DHCP}, is_root=False),
        Table(ACL, ("direction", "priority", "match", "action"), key="", is_root=False),
        Table(SWITCH, ("name",), (), {"ports": PORT}),
        Table(GROUP, ("name",), (), {"ports": PORT, "acls": ACL}),
    )
}

Value = t.Union[str, int, t.Tuple[str, ...], t.Mapping[str, str]]


@dataclass(frozen=True)
class Row:
    """A wanted row. ``key``: unique in its table. ``references``: column -> keys of rows of the table that the column names."""

    table: str
    key: str
    values: t.Mapping[str, Value]
    references: t.Mapping[str, t.Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundRow:
    """A row of the database. ``references``: column -> UUIDs."""

    uuid: str
    table: str
    values: t.Mapping[str, Value]
    references: t.Mapping[str, t.Collection[str]]

    @property
    def name(self) -> str:
        """The name of the row; "": its table has no names."""
        return str(self.values[TABLES[self.table].key]) if TABLES[self.table].key else ""

    @property
    def external_ids(self) -> t.Mapping[str, str]:
        return t.cast("t.Mapping[str, str]", self.values["external_ids"])


def listing(table: Table) -> list[str]:
    """Return the words of ovn-nbctl that print the rows of a table."""
    columns = ("_uuid", "external_ids", *table.columns, *table.members, *table.references)
    return ["--columns=" + ",".join(columns), "list", table.name]


def read_rows(text: str) -> list[FoundRow]:
    """Return the rows of all tables. :arg text: the JSON documents that ovn-nbctl printed, one for each of TABLES

    :raises NorthboundError: they are not that
    """
    decoder, rows, position = json.JSONDecoder(), [], 0
    try:
        for table in TABLES.values():
            document, position = decoder.raw_decode(
                text, position + len(text[position:]) - len(text[position:].lstrip())
            )
            rows += [_row_of(table, dict(zip(document["headings"], data))) for data in document["data"]]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise NorthboundError(
            reason="ovn-nbctl printed something else than the rows of table %s: %s" % (table.name, error),
            remedy="Compare the versions of ovn-nbctl on the controller and of the central node.",
        ) from None
    return rows


def _row_of(table: Table, data: t.Mapping[str, t.Any]) -> FoundRow:
    values = {column: _value(data[column]) for column in ("external_ids", *table.columns)}
    for column in (*table.columns, *table.members):
        if column in _SETS:
            values[column] = tuple(sorted(_elements(data[column])))
    if not isinstance(values["external_ids"], dict):
        raise TypeError("external_ids is %r" % (values["external_ids"],))
    references = {column: frozenset(_elements(data[column])) for column in table.references}
    return FoundRow(_elements(data["_uuid"])[0], table.name, values, references)


#: Columns that are sets, also where they have one element.
_SETS = frozenset(("addresses", "port_security"))


def _value(value: t.Any) -> t.Any:
    if isinstance(value, list) and value[0] == "map":
        return {str(key): str(item) for key, item in value[1]}
    return value


def _elements(value: t.Any) -> list[str]:
    """Return the elements of a set, which OVSDB writes without brackets where it has one."""
    if isinstance(value, list) and value[0] == "set":
        return [element for item in value[1] for element in _elements(item)]
    return [str(value[1] if isinstance(value, list) else value)]
