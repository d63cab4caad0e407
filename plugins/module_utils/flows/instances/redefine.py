# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of the request of instances that exist, written as another request has them. The instances of an entry share their request."""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict

from ...core.instances.request import ServerRequest
from ...core.networks.network import Network
from ...core.request import expand
from ...core.request.hostname import instance_hostname
from ...ledger.compute import instances, ports, requests
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.compute.requests import SpecRow
from ...ledger.db.transaction import Transaction


class New(t.NamedTuple):
    """The fields of ``row`` that are to be as in another request."""

    row: Instance
    entry: int  # the number of the other request's entry
    request: ServerRequest
    digest: t.Mapping[str, t.Any]  # of it
    fields: tuple[str, ...]  # of the digest


def changeable(request: ServerRequest) -> dict[str, t.Any]:
    """Return the fields of a stored request that can be changed."""
    return {
        "metadata": dict(request.metadata),
        "description": request.description,
        "tags": list(request.tags),
        "disk_config": request.disk_config,
        "access_ip_v4": request.access_ip_v4,
        "access_ip_v6": request.access_ip_v6,
        "extra": dict(request.extra),
    }


def write(tx: Transaction, new: t.Iterable[New]) -> None:
    """Write these fields: instances of one request that become alike get one new request.

    An instance that moves, or waits to be confirmed, has two: both get the fields, so that it has them wherever it ends.
    """
    asked = list(new)
    moving = ledger_moves.open_of(tx, [wanted.row.uuid for wanted in asked])
    rewritten = _Rewritten(tx, asked, moving)
    together: dict[int, list[New]] = {}
    for wanted in asked:
        together.setdefault(rewritten.id_of(wanted, wanted.row.request_spec_id), []).append(wanted)
    for spec_id, members in together.items():
        instances.write(tx, [m.row.uuid for m in members], request_spec_id=spec_id, updated_at=tx.now)
        for member in members if "hostname" in members[0].fields else ():
            hostname = instance_hostname(
                member.request.name, member.row.display_name, member.row.uuid, member.request.hostname
            )
            instances.write(tx, [member.row.uuid], hostname=hostname)
    for wanted in asked:
        move = moving.get(wanted.row.uuid)
        if move is not None:
            ids = (move.old_request_spec_id, move.new_request_spec_id)
            ledger_moves.set_requests(tx, move.id, *(rewritten.id_of(wanted, i) for i in ids))


class _Rewritten:
    """The new requests in place of the requests that instances and their moves have, each made when it is first needed."""

    def __init__(self, tx: Transaction, asked: t.Sequence[New], moving: t.Mapping[str, MoveRow]):
        self.tx = tx
        self._ids: dict[tuple[int, int, tuple[str, ...]], int] = {}
        of_moves = {i for m in moving.values() for i in (m.old_request_spec_id, m.new_request_spec_id)}
        self._others = requests.specs(tx, of_moves - {wanted.row.request_spec_id for wanted in asked})
        self._own = {wanted.row.request_spec_id: wanted.row for wanted in asked}

    def id_of(self, wanted: New, spec_id: int) -> int:
        """The new request that has the fields of ``wanted``, and the rest of the request ``spec_id``."""
        key = (spec_id, wanted.entry, wanted.fields)
        if key not in self._ids:
            before = self._own.get(spec_id) or self._others[spec_id]
            values = changeable(wanted.request)
            self._ids[key] = _enter(self.tx, wanted.row.reservation_id, before, wanted.fields, wanted.digest, values)
        return self._ids[key]


def _enter(
    tx: Transaction,
    reservation_id: str,
    before: Instance | SpecRow,
    fields: t.Iterable[str],
    digest: t.Mapping[str, t.Any],
    spec: t.Mapping[str, t.Any],
) -> int:
    """A new request: ``before`` with these fields of ``digest`` and ``spec``. Returns its id."""
    (spec_id,) = requests.new_ids(tx, 1)
    entry = requests.Entry(
        spec_id,
        {**before.digest, **{f: digest[f] for f in fields}},
        {**before.spec, **{f: spec[f] for f in fields if f in spec}},
    )
    requests.add_specs(tx, reservation_id, [entry])
    return spec_id


def add_networks(tx: Transaction, row: Instance, networks: t.Iterable[Network]) -> None:
    """Let the request of the instance, which no other shares then, have these networks as they are defined now. Networks that its boot requested
    stay. A subnet that a definition lacks now stays, too, if ports have addresses of it; another one may have its range now.
    """
    used = ports.subnets_of(tx, row.uuid)
    defined = {n["id"]: n for n in row.spec["network_definitions"]}
    before = dict(defined)
    for network in networks:
        new = asdict(network)
        had = {s["id"]: s for s in (before.get(network.id) or {}).get("subnets", ())}
        missing_subnets = [s for key, s in had.items() if key in used and key not in {s["id"] for s in new["subnets"]}]
        defined[network.id] = {**new, "subnets": [*new["subnets"], *missing_subnets]}
    if json.dumps(defined, sort_keys=True) == json.dumps(before, sort_keys=True):
        return
    (spec_id,) = requests.new_ids(tx, 1)
    spec = {**row.spec, "network_definitions": list(defined.values())}
    requests.add_specs(tx, row.reservation_id, [requests.Entry(spec_id, row.digest, spec)])
    instances.write(tx, [row.uuid], request_spec_id=spec_id, updated_at=tx.now)


def as_before(tx: Transaction, row: Instance, former: SpecRow) -> int:
    """The id of the request that the instance had, with what was changed in place since: ``former`` itself where nothing was."""
    changed = [f for f in expand.IN_PLACE if row.digest.get(f) != former.digest.get(f)]
    return _enter(tx, row.reservation_id, former, changed, row.digest, row.spec) if changed else former.id


def in_place(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    digests: t.Sequence[t.Mapping[str, t.Any]],
    rows: t.Sequence[tuple[Instance, int]],
) -> list[dict[str, t.Any]]:
    """Write the fields of expand.IN_PLACE as requested. :arg rows: with the numbers of their entries

    Returns what changed: [{name, uuid, field, from, to}].
    """
    write(tx, [New(row, index, entries[index], digests[index], expand.IN_PLACE) for row, index in rows])
    return [
        {"name": row.display_name, "uuid": row.uuid, "field": f, "from": row.digest.get(f), "to": digests[index][f]}
        for row, index in rows
        for f in expand.changed_in_place(row.digest, digests[index])
    ]
