# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading all compute nodes: numbers as their bytes, so that none of them becomes an object, and names as one text.

SQL: ``SELECT string_agg(packed_numbers, '') ... FROM compute_nodes`` with the instances that load each host and the profiles of CPUs; on sqlite
``SELECT group_concat(packed_integers, '') ...``. schema/packed.py has the columns.
Bench: `scripts/bench scheduling`, "one instance over 10,000 hosts, all read fresh", "1,000 instances over 10,000 hosts".
"""

from __future__ import annotations

import functools
import operator
import typing as t

from ...core.plans.plan_states import PREFIX
from ...core.scheduler.columns import np
from ..db.transaction import Transaction
from ..schema.packed import DTYPE, NAMES, NULL, NULLABLE, RATIOS, SEPARATOR, SQLITE_DTYPE, TEXTS, TIMES
from ..schema.tables import BUSY
from .setting_kinds import KINDS

# Instances that a plan holds load nothing yet.
BUSY_HOSTS = (
    "SELECT host, count(*) AS n FROM instances WHERE %s AND host IS NOT NULL AND (run_id IS NULL OR substr(run_id, 1, %d) <> '%s')"
    " GROUP BY host" % (BUSY, len(PREFIX), PREFIX)
)
# Names and numbers apart cost both sides less than JSON. Only the profiles of CPUs are read: node_profiles has others, too. Few
# fleets have a machine with several names (nodes.other_names_of): count(machine_id) spares them a statement that reads those.
_PACKED = (
    "SELECT rows.*, busy.*, profiles.* FROM (SELECT string_agg(packed_numbers, ''), string_agg(packed_names, chr(31)),"
    " string_agg(packed_texts, chr(31)), count(machine_id) FROM compute_nodes) AS rows,"
    " (SELECT string_agg(host, chr(31)), string_agg(int4send(CAST(n AS INTEGER)), '') FROM (%s) AS b) AS busy,"
    " (SELECT json_object_agg(id, profile) FROM node_profiles WHERE id IN (SELECT profile_id FROM compute_nodes)) AS profiles"
    % BUSY_HOSTS
)
# In another form where a text has the separator in it
_LISTED = "SELECT %s FROM compute_nodes" % ", ".join(
    ["string_agg(packed_numbers, '')", *("json_agg(%s)" % name for name in (*NAMES, *TEXTS))]
)
_OF_SQLITE = (
    "SELECT count(*), count(machine_id), group_concat(packed_integers, ''), group_concat(packed_ratios, ';'), group_concat(packed_times), %s, %s"
    " FROM compute_nodes"
    % tuple("group_concat(%s, char(31))" % " || char(31) || ".join(names) for names in (NAMES, TEXTS))
)
# Settings of the inventory that have another name among the numbers
_OTHER_NAMES = {"disabled": "disabled_by_inventory"}


class Later(t.Sequence[str]):
    """A column of texts that most boots do not look at: it is made when it is first read."""

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


class Unpackable(Exception):
    """A row of sqlite has a number that is none, or a text with the separator in it."""


class Packed:
    """The rows of compute_nodes, in any order.

    :arg numbers: an array with the fields of DTYPE. :arg texts: NAMES and TEXTS -> that of each row.
    :arg busy: host -> instances that load its disks. :arg profiles: of CPUs, by id; None: they were not read.
    :arg named: rows with a machine_id.
    """

    def __init__(
        self,
        numbers: t.Any,
        texts: t.Mapping[str, t.Any],
        busy: t.Mapping[str, int],
        profiles: dict[int, dict[str, t.Any]] | None = None,
        named: int = 0,
    ):
        self._numbers = numbers
        self.texts = dict(texts)
        self.busy = dict(busy)
        self.profiles = profiles
        #: Whether any machine may have several names
        self.several_names = named > 0

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
        numbers = self._numbers[name]
        if numbers.dtype == np.bool_:
            return numbers
        if numbers.dtype == np.dtype(">f8"):
            numbers = numbers.astype(np.float64)
            missing = np.isnan(numbers) if name in NULLABLE else None
        else:
            numbers = numbers.astype(np.int64)
            missing = numbers == NULL if name in NULLABLE else None
        if missing is not None and missing.any():
            return [None if none else value for value, none in zip(numbers.tolist(), missing)]
        return numbers

    @property
    def with_devices(self) -> bool:
        """Whether any host has devices or disks to hand out."""
        return bool(self._numbers["with_devices"].any())

    def has_settings(self, configurations: t.Mapping[str, t.Mapping[str, t.Any]], names: t.Iterable[str]) -> bool:
        """Whether the row of each host in ``configurations`` surely has its settings; otherwise nodes.differing() finds out.

        :arg names: of the settings that are compared.
        """
        hosts = self.texts["host"]
        if len(hosts) == len(configurations) and hosts == list(configurations):
            wanted: list[t.Any] = list(configurations.values())
        else:
            wanted = list(map(configurations.get, hosts))
        ids = list(map(id, wanted))
        distinct_settings = {
            key: wanted[ids.index(key)] for key in set(ids)
        }  # the different ones: many hosts share the object
        strangers = distinct_settings.pop(id(None), distinct_settings) is None
        if not distinct_settings or len(distinct_settings) > KINDS:
            return False
        return all(self._agrees(name, distinct_settings, ids, strangers) for name in names)

    def _agrees(
        self, name: str, distinct_settings: t.Mapping[int, t.Mapping[str, t.Any]], ids: t.Sequence[int], strangers: bool
    ) -> bool:
        """Whether this setting of each row is that of its host's settings, if they have it.

        :arg ids: of the settings, by row. :arg strangers: whether some rows have none.
        """
        values = {key: one[name] for key, one in distinct_settings.items() if name in one}
        if not values:
            return True
        if name == "disabled_reason" and not any(values.values()) and not self._numbers["with_reason"].any():
            return True  # which spares taking the texts apart
        if name in self.texts:
            wanted, column = list(map(values.get, ids)), list(self.texts[name])
            return wanted == column or all(w is None or w == its_own for w, its_own in zip(wanted, column))
        numbers = self._numbers[_OTHER_NAMES.get(name, name)]
        if not strangers and len(values) == len(distinct_settings) and len(set(values.values())) == 1:
            return bool(np.all(numbers == next(iter(values.values()))))
        of_rows = np.array(ids)
        return all(np.all(numbers[of_rows == key] == value) for key, value in values.items())


def read(tx: Transaction) -> Packed:
    """All rows. :raises Unpackable: they have to be read one by one."""
    return _of_postgresql(tx) if tx.database_kind.has_byte_functions else _of_sqlite(tx)


def _of_postgresql(tx: Transaction) -> Packed:
    numbers, names, texts, named, hosts, loads, profiles = tx.fetch(_PACKED, binary=True)[0]
    (busy,), counts = _columns(hosts, 1), np.frombuffer(loads or b"", dtype=">i4").tolist()
    rows = np.frombuffer(numbers or b"", dtype=DTYPE)
    of_texts = _texts(names, texts, len(rows))
    if of_texts is None:
        (numbers, *columns) = tx.fetch(_LISTED, binary=True)[0]
        rows = np.frombuffer(numbers or b"", dtype=DTYPE)
        of_texts = {name: column or [] for name, column in zip((*NAMES, *TEXTS), columns)}
    return Packed(
        rows,
        of_texts,
        dict(zip(busy, counts) if len(busy) == len(counts) else tx.fetch(BUSY_HOSTS)),
        {int(key): profile for key, profile in (profiles or {}).items()},
        named,
    )


def _of_sqlite(tx: Transaction) -> Packed:
    busy = dict(map(tuple, tx.connection.exec_driver_sql(BUSY_HOSTS)))
    count, named, integers, ratios, times, names, texts = tx.connection.exec_driver_sql(_OF_SQLITE).one()
    of_texts = _texts(names, texts, count)
    packed = np.frombuffer(bytes.fromhex(integers or ""), dtype=SQLITE_DTYPE)
    if len(packed) != count or of_texts is None:
        raise Unpackable
    rows = np.empty(count, dtype=DTYPE)
    for name, _type in SQLITE_DTYPE:
        rows[name] = packed[name]
    try:
        _read_reals(rows, ratios or "", times or "")
    except ValueError:  # no number
        raise Unpackable from None
    return Packed(rows, of_texts, busy, named=named)


def _read_reals(rows: t.Any, ratios: str, times: str) -> None:
    """:arg ratios: the ratios of a row with "," between them, and ";" between rows. :arg times: the times of all rows with "," between them"""
    if not len(rows):
        return
    of_rows = ratios.split(";")
    kinds = {text: number for number, text in enumerate(dict.fromkeys(of_rows))}  # many hosts have the same
    values = np.array([[float(ratio) for ratio in text.split(",")] for text in kinds])
    of_kinds = values[list(map(kinds.__getitem__, of_rows))] if len(kinds) > 1 else values
    for number, name in enumerate(RATIOS):
        rows[name] = of_kinds[:, number]
    # A value that is not a number ends the reading: the 0 at the end is not reached then.
    moments = np.fromstring(times + ",0", sep=",", dtype=np.float64)[:-1].reshape(len(rows), len(TIMES))
    for number, name in enumerate(TIMES):
        rows[name] = moments[:, number]


def _texts(names: str | None, texts: str | None, count: int) -> dict[str, t.Any] | None:
    """Column -> its texts; None: one has the separator in it."""
    of_names = _columns(names, len(NAMES))
    # Also none of the other texts has a separator in it if there are as many as there should be.
    if any(len(column) != count for column in of_names) or _parts(texts) != count * len(TEXTS):
        return None
    made = functools.cache(lambda: _columns(texts, len(TEXTS)))
    columns: dict[str, t.Any] = dict(zip(NAMES, of_names))
    for number, name in enumerate(TEXTS):
        columns[name] = Later(count, lambda number=number: made()[number])  # type: ignore[misc]
    return columns


def _parts(joined: str | None) -> int:
    return 0 if joined is None else joined.count(SEPARATOR) + 1


def _columns(joined: str | None, count: int) -> list[list[str]]:
    parts = [] if joined is None else joined.split(SEPARATOR)
    return [parts[number::count] for number in range(count)]
