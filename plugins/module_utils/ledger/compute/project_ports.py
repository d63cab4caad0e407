# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that projects made: they exist before instances and after them. ports.py has their addresses, and binds and unbinds them."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.reading.setting import canonical
from ...core.times import utc
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..networks import security_groups
from ..schema.tables import instances, ip_allocations, ports
from .ports import PortRow

Found = t.Dict[t.Tuple[str, t.Optional[str]], PortRow]


def find(tx: Transaction, named: t.Iterable[tuple[str, str | None]], lock: bool = False) -> Found:
    """Return the ports by (name or id, project). An id finds the ports of all projects, a name the ports of the project; for None, the only port of
    this name.

    :arg lock: wait for other transactions that change them.
    :raises InvalidInput: several projects have a port of the name.
    """
    pairs = list(dict.fromkeys(named))
    if not pairs:
        return {}
    rows = _rows(tx, [word for word, _project in pairs], {project for _word, project in pairs}, lock)
    by_id = {row.id: row for row in rows}
    rows_by_pair: Found = {}
    for word, project in pairs:
        row = by_id.get(canonical(word))
        namesakes = [r for r in rows if r.name == word and project in (None, r.project)]
        if row is not None:
            rows_by_pair[word, project] = row
        elif len(namesakes) > 1:
            raise errors.InvalidInput(
                message="%d projects have a port %s" % (len(namesakes), word),
                remedy="Name it by its id, or set bootflow_project.",
            )
        elif namesakes:
            rows_by_pair[word, project] = namesakes[0]
    return rows_by_pair


def _rows(
    tx: Transaction, words: t.Sequence[str], projects: t.Collection[str | None], lock: bool = False
) -> list[PortRow]:
    these = ports.alias("these")
    named = [bulk.among(tx, these.c.name, words)]
    if None not in projects:
        named.append(bulk.among(tx, these.c.project, sorted(map(str, projects))))
    ids = sa.select(these.c.id).where(bulk.among(tx, these.c.id, [canonical(word) for word in words]))
    query = sa.select(ports).where(ports.c.id.in_(sa.union_all(ids, sa.select(these.c.id).where(*named))))
    query = query.order_by(ports.c.id)
    return tx.rows(query.with_for_update() if lock else query, PortRow)


def write(tx: Transaction, port_id: str, **values: t.Any) -> None:
    """Change columns of a port."""
    tx.execute(ports.update().where(ports.c.id == port_id).values(**values))


def addresses(tx: Transaction, ids: t.Collection[str]) -> dict[str, list[tuple[int, str, str]]]:
    """Return port id -> its addresses in order: (id of the allocation, id of the subnet, address)."""
    c = ip_allocations.c
    addresses_by_port: dict[str, list[tuple[int, str, str]]] = {key: [] for key in ids}
    if not addresses_by_port:
        return {}
    query = sa.select(c.id, c.port_id, c.subnet_id, c.ip_address).where(bulk.among(tx, c.port_id, sorted(ids)))
    for row in tx.execute(query.order_by(c.id)):
        addresses_by_port[row.port_id].append((row.id, row.subnet_id, row.ip_address))
    return addresses_by_port


def views(tx: Transaction, words: t.Sequence[str] | None = None, project: str | None = None) -> list[dict[str, t.Any]]:
    """Return all ports, or the ports with these names or ids, as plain data.

    :arg project: only its ports, and ports of its instances.
    """
    p, i = ports.c, instances.c
    query = sa.select(ports, i.display_name, i.project.label("instance_project"))
    query = query.select_from(ports.outerjoin(instances, i.uuid == p.instance_uuid))
    if words is not None:
        ids = [row.id for row in _rows(tx, words, {None})]
        query = query.where(bulk.among(tx, p.id, ids))
    if project is not None:
        query = query.where(sa.or_(p.project == project, i.project == project))
    rows = tx.execute(query.order_by(p.created_at, p.id)).all()
    ids = [row.id for row in rows]
    fixed, groups = addresses(tx, ids), security_groups.groups_of_ports(tx, ids)
    return [_view(row, fixed[row.id], groups[row.id]) for row in rows]


def _view(row: t.Any, fixed: t.Sequence[tuple[int, str, str]], groups: t.Sequence[str]) -> dict[str, t.Any]:
    return {
        "id": row.id,
        "name": row.name,
        "project": row.project or row.instance_project,
        "network_id": row.network_id,
        "mac_address": row.mac_address,
        "fixed_ips": [{"subnet_id": subnet, "ip_address": address} for _id, subnet, address in fixed],
        "tags": list(row.tags or ()),
        "security_groups": list(groups),
        "allowed_address_pairs": [dict(pair) for pair in row.allowed_address_pairs or ()],
        "port_security_enabled": bool(row.port_security_enabled),
        "preserve_on_delete": bool(row.preserve_on_delete),
        "instance_uuid": row.instance_uuid,
        "instance": row.display_name,
        "host": row.host,
        "tag": row.tag,
        "created_at": utc(row.created_at),
    }
