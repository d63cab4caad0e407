# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The difference between the rows that are wanted and the rows that are there, as one transaction of ovn-nbctl.

Rows of others are left alone. Ports, ACLs and members are added and taken one by one, so that two runs that write at the same time do not take
back what the other one added.
"""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from .rows import ID, LEDGER, PORT, TABLES, FoundRow, Row, Value

#: New ports in one transaction: raft holds elections while it is busy with a large one.
MOST_PORTS = 1000


@dataclass
class Difference:
    """``commands``: of one transaction. ``is_last``: afterwards the rows are as they are wanted. ``created``, ``changed``, ``removed``: table -> rows."""

    commands: list[list[str]] = field(default_factory=list)
    is_last: bool = True
    created: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def arguments(self) -> list[str]:
        """The commands as arguments of ovn-nbctl, with -- between them."""
        return [word for command in self.commands for word in ("--", *command)][1:]


def difference(
    wanted: t.Sequence[Row], rows: t.Sequence[FoundRow], ledger_id: str, most: int = MOST_PORTS
) -> Difference:
    """Return what makes the found rows the wanted ones. :arg most: new ports; the others are left to the next transaction"""
    return _Comparison(wanted, rows, ledger_id, most).compare()


class _Comparison:
    def __init__(self, wanted: t.Sequence[Row], rows: t.Sequence[FoundRow], ledger_id: str, most: int):
        self.result = Difference()
        self.existing: dict[tuple[str, str], FoundRow] = {}
        self.surplus: list[FoundRow] = []
        names = {(row.table, row.key) for row in wanted}
        for row_there in rows:
            key = self._key_of(row_there, names, ledger_id)
            if key is None:
                continue
            if key not in names or key in self.existing:
                self.surplus.append(row_there)
            else:
                self.existing[key] = row_there
        new_ports = [row.key for row in wanted if row.table == PORT and (PORT, row.key) not in self.existing]
        later = {(PORT, key) for key in new_ports[most:]}
        self.result.is_last = not later
        self.wanted = [row for row in wanted if (row.table, row.key) not in later]
        self.later = later
        self.new = {
            (row.table, row.key): "@new%d" % number
            for number, row in enumerate(self.wanted)
            if (row.table, row.key) not in self.existing
        }
        #: UUIDs of rows of this ledger: references to other rows are left alone.
        self.own = {row.uuid for row in (*self.existing.values(), *self.surplus)}

    @staticmethod
    def _key_of(row: FoundRow, names: t.Collection[tuple[str, str]], ledger_id: str) -> tuple[str, str] | None:
        """Return the key of a row of this ledger; None: it is another's. A row that lost its external_ids is found by its name."""
        if row.name and (row.table, row.name) in names:
            return row.table, row.name
        if row.external_ids.get(LEDGER) != ledger_id:
            return None
        return row.table, row.name or row.external_ids.get(ID, "")

    def compare(self) -> Difference:
        for row in self.wanted:
            key = (row.table, row.key)
            if key in self.existing:
                self._change(row, self.existing[key])
            else:
                self._create(row)
        for leftover in self.surplus:
            self._remove(leftover)
        return self.result

    def _create(self, row: Row) -> None:
        table = TABLES[row.table]
        self.result.created[row.table] += 1
        columns = ["%s=%s" % (column, _text(row.values[column])) for column in (*table.columns, "external_ids")]
        name = self.new[row.table, row.key]
        self.result.commands.append(["--id=" + name, "create", row.table, *columns])
        # Sets follow in separate words, as one word cannot have more than 128 KiB. All rows with sets have names.
        for column in table.members:
            members = t.cast("t.Tuple[str, ...]", row.values[column])
            self._add(row.table, row.key, column, list(map(json.dumps, members)))
        for column in table.references:
            self._add(row.table, row.key, column, self._named(row, column))

    def _change(self, row: Row, existing: FoundRow) -> None:
        table = TABLES[row.table]
        before = len(self.result.commands)
        columns = [
            "%s=%s" % (column, _text(row.values[column]))
            for column in table.columns
            if row.values[column] != existing.values[column]
        ]
        ids = t.cast("t.Mapping[str, str]", row.values["external_ids"])
        columns += [
            "external_ids:%s=%s" % (json.dumps(k), json.dumps(v))
            for k, v in ids.items()
            if existing.external_ids.get(k) != v
        ]
        if columns:
            self.result.commands.append(["set", row.table, existing.uuid, *columns])
        for column in table.members:
            wanted, had = (set(t.cast("t.Tuple[str, ...]", values[column])) for values in (row.values, existing.values))
            self._take(row.table, existing.uuid, column, [json.dumps(value) for value in sorted(had - wanted)])
            self._add(row.table, existing.uuid, column, [json.dumps(value) for value in sorted(wanted - had)])
        for column in table.references:
            named, has = self._named(row, column), existing.references[column]
            self._take(row.table, existing.uuid, column, sorted((set(has) & self.own) - set(named)))
            self._add(row.table, existing.uuid, column, [name for name in named if name not in has])
        self.result.changed[row.table] += len(self.result.commands) > before

    def _named(self, row: Row, column: str) -> list[str]:
        """Return the rows that a wanted row names: UUIDs, or names within the transaction."""
        table = TABLES[row.table].references[column]
        keys = [(table, key) for key in row.references.get(column, ()) if (table, key) not in self.later]
        return [self.new.get(key) or self.existing[key].uuid for key in keys]

    def _add(self, table: str, row: str, column: str, values: t.Sequence[str]) -> None:
        if values:
            self.result.commands.append(["add", table, row, column, *values])

    def _take(self, table: str, row: str, column: str, values: t.Sequence[str]) -> None:
        if values:
            self.result.commands.append(["remove", table, row, column, *values])

    def _remove(self, row: FoundRow) -> None:
        self.result.removed[row.table] += 1
        if TABLES[row.table].is_root:
            self.result.commands.append(["destroy", row.table, row.uuid])
        # The rows that stay have lost their references to it, and the database removes a row that no other one names.


def _text(value: Value) -> str:
    """Return a value in the words of ovn-nbctl."""
    if isinstance(value, t.Mapping):
        return "{%s}" % ",".join("%s=%s" % (json.dumps(k), json.dumps(v)) for k, v in sorted(value.items()))
    if isinstance(value, tuple):
        return "[%s]" % ",".join(map(json.dumps, value))
    return json.dumps(value)
