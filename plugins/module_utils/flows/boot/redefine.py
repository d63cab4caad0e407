# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of the request of instances that exist, written as another request has them. The instances of an entry share their request."""

from __future__ import annotations

import typing as t

from ...core.instances.request import ServerRequest
from ...core.request import expand
from ...core.request.hostname import instance_hostname
from ...ledger.compute import instances, requests
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction


class New(t.NamedTuple):
    """The fields of ``row`` that are to be as in another request."""

    row: Instance
    entry: int  # the number of the other request's entry
    request: ServerRequest
    digest: t.Mapping[str, t.Any]  # of it
    fields: tuple[str, ...]  # of the digest


def changeable(request: ServerRequest) -> dict[str, t.Any]:
    """Those fields of a stored request that can be changed."""
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
    """Write these fields: those of one request that become alike get one new request."""
    together: dict[tuple[int, int, tuple[str, ...]], list[New]] = {}
    for each in new:
        together.setdefault((each.row.request_spec_id, each.entry, each.fields), []).append(each)
    for members in together.values():
        row, _entry, request, digest, fields = members[0]
        values = changeable(request)
        spec = {**row.spec, **{f: values[f] for f in fields if f in values}}
        (spec_id,) = requests.new_ids(tx, 1)
        entry = requests.Entry(spec_id, {**row.digest, **{f: digest[f] for f in fields}}, spec)
        requests.add_specs(tx, row.reservation_id, [entry])
        instances.write(tx, [m.row.uuid for m in members], request_spec_id=spec_id, updated_at=tx.now)
        for m in members if "hostname" in fields else ():
            hostname = instance_hostname(request.name, m.row.display_name, m.row.uuid, request.hostname)
            instances.write(tx, [m.row.uuid], hostname=hostname)


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
