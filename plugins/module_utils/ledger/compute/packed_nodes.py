# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading all compute nodes of PostgreSQL: numbers as their bytes, so that none of them becomes an object, and names as one text."""

from __future__ import annotations

import functools
import operator
import typing as t

from ...core.scheduler.columns import np
from ..db.transaction import Transaction
from ..schema.packed import DTYPE, NAMES, NULL, SEPARATOR, TEXTS
from ..schema.tables import BUSY
from .nodes import CONFIGURATION, KINDS

BUSY_HOSTS = "SELECT host, count(*) AS n FROM instances WHERE %s AND host IS NOT NULL GROUP BY host" % BUSY
_NULLABLE = ("disk_available_least", "profile_id")  # integers
# Names and numbers apart cost both sides less than JSON. Only the profiles of CPUs are read: node_profiles has others, too.
_PACKED = (
    "SELECT rows.*, busy.*, profiles.* FROM (SELECT string_agg(packed_numbers, ''), string_agg(packed_names, chr(31)),"
    " string_agg(packed_texts, chr(31)) FROM compute_nodes) AS rows,"
    " (SELECT string_agg(host, chr(31)), string_agg(int4send(CAST(n AS INTEGER)), '') FROM (%s) AS b) AS busy,"
    " (SELECT json_object_agg(id, profile) FROM node_profiles WHERE id IN (SELECT profile_id FROM compute_nodes)) AS profiles"
    % BUSY_HOSTS
)
# In another form where a text has the separator in it
_LISTED = "SELECT %s FROM compute_nodes" % ", ".join(
    ["string_agg(packed_numbers, '')", *("json_agg(%s)" % name for name in (*NAMES, *TEXTS))]
)
# Settings of the inventory that have another name among the numbers
_OTHER_NAMES = {"disabled": "disabled_by_inventory"}


class Later(t.Sequence[str]):
    """A column of texts that most boots do not look at: it is made when somebody does."""

    def __init__(self, count: int, make: t.Callable[[], t.Sequence[str]]):
        self._count = count
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: t.Any) -> t.Any:
        return self._make()[index]

    def tolist(self) -> list[str]:
        return list(self._make())

    def picked(self, rows: t.Sequence[int]) -> Later:
        return Later(len(rows), lambda: [self._make()[i] for i in rows])


class Packed:
    """The rows of compute_nodes, in any order."""

    def __init__(self, tx: Transaction):
        numbers, names, texts, hosts, loads, profiles = tx.fetch(_PACKED, binary=True)[0]
        self.profiles: dict[int, dict[str, t.Any]] = {int(key): its for key, its in (profiles or {}).items()}
        (busy,), counts = _columns(hosts, 1), np.frombuffer(loads or b"", dtype=">i4").tolist()
        # host -> instances that load its disks
        self.busy: dict[str, int] = dict(zip(busy, counts) if len(busy) == len(counts) else tx.fetch(BUSY_HOSTS))
        self._numbers = np.frombuffer(numbers or b"", dtype=DTYPE)
        count = len(self)
        of_names = _columns(names, len(NAMES))
        # Also none of the other texts has a separator in it if there are as many as there should be.
        if any(len(column) != count for column in of_names) or _parts(texts) != count * len(TEXTS):
            self._read_lists(tx)
            return
        self.texts: dict[str, t.Any] = dict(zip(NAMES, of_names))
        made = functools.cache(lambda: _columns(texts, len(TEXTS)))
        for number, name in enumerate(TEXTS):
            self.texts[name] = Later(count, lambda number=number: made()[number])  # type: ignore[misc]

    def _read_lists(self, tx: Transaction) -> None:
        (numbers, *columns) = tx.fetch(_LISTED, binary=True)[0]
        self._numbers = np.frombuffer(numbers or b"", dtype=DTYPE)
        self.texts = {name: column or [] for name, column in zip((*NAMES, *TEXTS), columns)}

    def __len__(self) -> int:
        return len(self._numbers)

    def pick(self, rows: t.Sequence[int]) -> None:
        """Only these rows, in this order."""
        self._numbers = self._numbers[np.array(rows, dtype=np.int64)]
        get: t.Callable[[t.Any], t.Any] = (
            operator.itemgetter(*rows) if len(rows) > 1 else lambda c: [c[i] for i in rows]
        )
        self.texts = {
            name: column.picked(rows) if isinstance(column, Later) else list(get(column))
            for name, column in self.texts.items()
        }

    def column(self, name: str) -> t.Any:
        """A number of each row as an array, of None where it is NULL; or a text of each."""
        if name in self.texts:
            return self.texts[name]
        found = self._numbers[name]
        if found.dtype == np.bool_:
            return found
        if found.dtype == np.dtype(">f8"):
            found = found.astype(np.float64)
            missing = np.isnan(found) if name == "reported_at" else None
        else:
            found = found.astype(np.int64)
            missing = found == NULL if name in _NULLABLE else None
        if missing is not None and missing.any():
            return [None if none else value for value, none in zip(found.tolist(), missing)]
        return found

    @property
    def with_devices(self) -> bool:
        """Whether any host has devices or disks to hand out."""
        return bool(self._numbers["with_devices"].any())

    def has_settings(self, configurations: t.Mapping[str, t.Mapping[str, t.Any]]) -> bool:
        """Whether the row of each host in ``configurations`` surely has its settings; otherwise nodes.differing() finds out."""
        hosts = self.texts["host"]
        if len(hosts) == len(configurations) and hosts == list(configurations):
            wanted: list[t.Any] = list(configurations.values())
        else:
            wanted = list(map(configurations.get, hosts))
        ids = list(map(id, wanted))
        its = {key: wanted[ids.index(key)] for key in set(ids)}  # the different ones: many hosts share the object
        strangers = its.pop(id(None), its) is None
        if not its or len(its) > KINDS:
            return False
        return all(self._agrees(name, its, ids, strangers) for name in CONFIGURATION)

    def _agrees(
        self, name: str, its: t.Mapping[int, t.Mapping[str, t.Any]], ids: t.Sequence[int], strangers: bool
    ) -> bool:
        """Whether this setting of each row is that of its host's settings, if they have it.

        :arg ids: of the settings, by row. :arg strangers: whether some rows have none.
        """
        values = {key: one[name] for key, one in its.items() if name in one}
        if not values:
            return True
        if name == "disabled_reason" and not any(values.values()) and not self._numbers["with_reason"].any():
            return True  # which spares taking the texts apart
        if name in self.texts:
            wanted, column = list(map(values.get, ids)), list(self.texts[name])
            return wanted == column or all(w is None or w == its_own for w, its_own in zip(wanted, column))
        numbers = self._numbers[_OTHER_NAMES.get(name, name)]
        if not strangers and len(values) == len(its) and len(set(values.values())) == 1:
            return bool(np.all(numbers == next(iter(values.values()))))
        of_rows = np.array(ids)
        return all(np.all(numbers[of_rows == key] == value) for key, value in values.items())


def _parts(joined: str | None) -> int:
    return 0 if joined is None else joined.count(SEPARATOR) + 1


def _columns(joined: str | None, count: int) -> list[list[str]]:
    parts = [] if joined is None else joined.split(SEPARATOR)
    return [parts[number::count] for number in range(count)]
