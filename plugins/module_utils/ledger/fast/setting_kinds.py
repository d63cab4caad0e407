# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds compute nodes with other settings than the inventory: compared by the database, with one value for many hosts of the same settings.

SQL: ``SELECT kind, json_agg(host) FROM (SELECT host, CASE WHEN (...) = (...) THEN 0 ... ELSE -1 END AS kind FROM compute_nodes) AS n GROUP BY kind``.
Bench: `scripts/bench scheduling`, "boots of one by".
"""

from __future__ import annotations

import functools
import itertools
import typing as t

from ..db.database_kind import DatabaseKind
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from . import bulk
from .compiled_statement import CompiledStatement

KINDS = 20  # of settings that the database compares; hosts with still others are read


def hosts_with_other_settings(
    tx: Transaction, configurations: t.Mapping[str, t.Mapping[str, t.Any]], names: t.Sequence[str]
) -> set[str]:
    """Return the hosts whose rows may have other settings than ``configurations`` (host -> settings): all that have, and the hosts beyond KINDS.

    :arg names: the columns of settings. Settings that a host lacks are not compared.
    """
    kinds = _kinds_of(configurations)
    if not kinds:
        return set()
    compared = [settings for settings, _hosts in kinds[:KINDS]]
    statement = _statement(tx.database_kind, _columns_of(compared, names), len(kinds) == 1)
    differing_hosts: set[str] = set()
    for kind, hosts in statement.tuples(tx, _values_of(compared, names)):
        differing_hosts.update(set(bulk.texts(hosts)) - kinds[kind][1] if kind >= 0 else bulk.texts(hosts))
    return differing_hosts & configurations.keys()


def _kinds_of(
    configurations: t.Mapping[str, t.Mapping[str, t.Any]],
) -> list[tuple[t.Mapping[str, t.Any], set[str]]]:
    """The different settings, each with its hosts. Hosts that share the object are not compared one by one."""
    ids = list(map(id, configurations.values()))
    objects = dict(zip(ids, configurations.values()))
    kinds: list[tuple[t.Mapping[str, t.Any], set[str]]] = []
    if len(objects) <= KINDS:
        members = {key: set(itertools.compress(configurations, map(key.__eq__, ids))) for key in objects}
    else:
        members = {key: set() for key in objects}
        for host, key in zip(configurations, ids):
            members[key].add(host)
    for key, wanted in objects.items():
        hosts = next((hosts_of_kind for settings, hosts_of_kind in kinds if settings == wanted), None)
        if hosts is None:
            kinds.append((wanted, members[key]))
        else:
            hosts |= members[key]
    return kinds


@functools.lru_cache(maxsize=64)
def _statement(database: DatabaseKind, kinds: tuple[tuple[str, ...], ...], only_others: bool) -> CompiledStatement:
    """Return (number of a kind of settings or -1, JSON list of the hosts that have it). :arg only_others: not hosts of the first kind."""
    where = " WHERE NOT (%s)" % _is_of_kind(0, kinds[0]) if only_others else ""
    return CompiledStatement(
        sa.text(
            "SELECT kind, %s FROM (SELECT host, %s AS kind FROM compute_nodes%s) AS n GROUP BY kind"
            % (bulk.json_list(database, "host"), _kind_of(kinds), where)
        )
    )


def _kind_of(kinds: t.Sequence[tuple[str, ...]]) -> str:
    """An expression: the number of the settings that a row has, or -1. :arg kinds: their columns."""
    cases = ("WHEN %s THEN %d" % (_is_of_kind(n, columns), n) for n, columns in enumerate(kinds))
    return "CASE %s ELSE -1 END" % " ".join(cases)


def _is_of_kind(number: int, columns: tuple[str, ...]) -> str:
    values = ", ".join(":k%d_%s" % (number, k) for k in columns)
    return "(%s) = (%s)" % (", ".join(columns), values) if columns else "1 = 1"


def _columns_of(kinds: t.Iterable[t.Mapping[str, t.Any]], names: t.Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(k for k in names if k in settings) for settings in kinds)


def _values_of(kinds: t.Iterable[t.Mapping[str, t.Any]], names: t.Sequence[str]) -> dict[str, t.Any]:
    return {"k%d_%s" % (n, k): settings[k] for n, settings in enumerate(kinds) for k in names if k in settings}
