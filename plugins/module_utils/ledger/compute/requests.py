# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accepted requests: a reservation is the request of one run, a request spec one of its entries as accepted."""

from __future__ import annotations

import functools
import typing as t

from ...core import errors
from ...core.resources.claims import Overhead
from ..db.database_kind import DatabaseKind
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..fast.compiled_statement import CompiledStatement
from ..schema.tables import request_specs, reservations

#: Of the documents that add_spec() writes. Minor versions add fields, which an older document leaves at their defaults.
SPEC_VERSION = "1.2"

FEW = 3  # entries: a request that changes nothing wastes as many ids

_NEXT_IDS = CompiledStatement(
    sa.text(
        "SELECT nextval(pg_get_serial_sequence('request_specs', 'id')) FROM generate_series(1, CAST(:count AS INTEGER))"
    )
)


class SpecRow:
    """Fields that specs() reads of request_specs: the entry as it was accepted, and fields that show whether a request is the same."""

    id: int
    spec_version: str
    spec: dict[str, t.Any]
    digest: dict[str, t.Any]


def add_reservation(tx: Transaction, reservation_id: str, project: str, user: str, request_id: str) -> None:
    row = {"id": reservation_id, "project": project, "user_name": user, "request_id": request_id, "created_at": tx.now}
    bulk.insert(tx, reservations, [row])


class Entry(t.NamedTuple):
    """An entry to be written by add_specs()."""

    id: int  # of new_ids()
    digest: t.Mapping[str, t.Any]
    spec: t.Mapping[str, t.Any]


def new_ids(tx: Transaction, count: int) -> list[int]:
    """Ids for new entries."""
    if tx.database_kind.has_sequences:
        return [int(key) for (key,) in _NEXT_IDS.tuples(tx, {"count": count})]
    last = int(tx.execute(sa.select(sa.func.coalesce(sa.func.max(request_specs.c.id), 0))).scalar_one())
    return list(range(last + 1, last + 1 + count))


class IdsAhead:
    """Ids for new entries, not all of which may be used: known after the next statement, and without a separate message if
    they are few. More are requested when it is known how many are needed."""

    def __init__(self, tx: Transaction, count: int):
        self.ids: list[int] = []
        if count <= FEW and tx.database_kind.has_sequences:
            _NEXT_IDS.later(tx, {"count": count}, lambda rows: self.ids.extend(int(key) for (key,) in rows))

    def take(self, tx: Transaction, count: int) -> list[int]:
        return self.ids[:count] if count <= len(self.ids) else new_ids(tx, count)


def add_specs(tx: Transaction, reservation_id: str, entries: t.Sequence[Entry]) -> None:
    """Enter entries of the reservation."""
    bulk.insert(
        tx,
        request_specs,
        [{"reservation_id": reservation_id, "spec_version": SPEC_VERSION, **entry._asdict()} for entry in entries],
    )


def specs(tx: Transaction, ids: t.Iterable[int]) -> dict[int, SpecRow]:
    """id -> row of request_specs with ``spec`` and ``digest``; each is read once, however many instances it has.

    :raises RequestTooNew: a newer version of the collection wrote one of them.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    parameters = {"ids": bulk.listed(tx, request_specs.c.id, wanted)}
    spec_rows = {r.id: r for r in _specs_query(tx.database_kind).rows(tx, SpecRow, parameters)}
    for row in spec_rows.values():
        if row.spec_version != SPEC_VERSION and not _is_known(row.spec_version):
            raise errors.RequestTooNew(
                name=row.digest.get("name") or row.id, version=row.spec_version, newest=SPEC_VERSION
            )
    return spec_rows


@functools.cache
def _specs_query(database: DatabaseKind) -> CompiledStatement:
    c = request_specs.c
    return CompiledStatement(
        sa.select(c.id, c.spec_version, c.spec, c.digest).where(bulk.among_named(database, c.id, "ids"))
    )


def networks(tx: Transaction, ids: t.Iterable[int]) -> dict[int, list[dict[str, t.Any]]]:
    """id -> the networks of the request, as the inventory had them when it was accepted."""
    c = request_specs.c
    query = sa.select(c.id, c.spec["network_definitions"].label("networks"))
    return {r.id: r.networks for r in tx.execute(query.where(bulk.among(tx, c.id, sorted(set(ids)))))}


def overheads(tx: Transaction, ids: t.Iterable[int]) -> dict[int, Overhead]:
    """id -> what the hypervisor needs for each instance of the request; requests that have none are left out."""
    c = request_specs.c
    stored = c.spec["overhead"]
    query = sa.select(c.id, stored.label("overhead")).where(bulk.among(tx, c.id, sorted(set(ids))))
    overhead_by_id = {r.id: Overhead(**(r.overhead or {})) for r in tx.execute(query)}
    return {key: overhead for key, overhead in overhead_by_id.items() if overhead != Overhead()}


def _is_known(version: str) -> bool:
    """source: Nova's object registry, which refuses an object of a later version (IncompatibleObjectVersion)"""
    try:
        major, minor = map(int, version.split("."))
    except ValueError:
        return False
    newest_major, newest_minor = map(int, SPEC_VERSION.split("."))
    return major == newest_major and minor <= newest_minor
