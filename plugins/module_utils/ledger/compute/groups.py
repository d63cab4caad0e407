# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Server groups in the ledger: the inventory declares them, each used group has a row, and the row's lock is the group's.

Claims for members hold the row until they are written, so that two boots cannot both pass the late check (as they can
in Nova).
"""

from __future__ import annotations

import typing as t
from collections import defaultdict

from ...core import errors
from ...core.instances.server_groups import ServerGroup
from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import claims, compute_nodes, instances, server_groups


class GroupRow:
    """A row of server_groups, as it was declared when it was first used, or changed last."""

    id: str
    project: str
    name: str
    policy: str
    max_server_per_host: int  # of the policy anti-affinity
    created_at: float  # seconds since the epoch


def ensure(tx: Transaction, group: ServerGroup) -> None:
    """Enter the group of the inventory. The caller holds the project's turn.

    :raises InvalidInput: the policy changed while the group has members of the old one.
    """
    c = server_groups.c
    query = sa.select(server_groups).where(c.id == group.id).with_for_update()  # or an audit removes it meanwhile
    row = next(iter(tx.rows(query, GroupRow)), None)
    if row is None:
        insert_new(
            tx,
            server_groups,
            id=group.id,
            project=group.project,
            name=group.name,
            policy=group.policy,
            max_server_per_host=group.max_server_per_host,
            created_at=tx.now,
        )
        (row,) = tx.rows(query, GroupRow)
    if (row.policy, row.max_server_per_host) == (group.policy, group.max_server_per_host):
        return
    members = count_members(tx, [group.id])[group.id]
    if members:
        raise errors.InvalidInput(
            reason="server group %s has %d members under the policy %s (max_server_per_host %d), and cannot change to %s (%d)"
            % (
                group.name,
                members,
                row.policy,
                row.max_server_per_host,
                group.policy,
                group.max_server_per_host,
            ),
            remedy="Declare a group of another name, or delete its members first.",
        )
    tx.execute(
        server_groups.update()
        .where(c.id == group.id)
        .values(policy=group.policy, max_server_per_host=group.max_server_per_host)
    )


def count_members(tx: Transaction, ids: t.Iterable[str]) -> dict[str, int]:
    """group id -> number of its live instances."""
    counts = dict.fromkeys(ids, 0)
    if not counts:
        return {}
    c = instances.c
    members = (bulk.among(tx, c.server_group_id, sorted(counts)), c.deleted == "")
    query = sa.select(c.server_group_id, sa.func.count()).where(*members)
    return {**counts, **dict(tx.execute(query.group_by(c.server_group_id)).all())}


def load(tx: Transaction, ids: t.Iterable[str], lock: bool = False) -> dict[str, ServerGroup]:
    """id -> the group with its members and the hosts where they have claims.

    :arg lock: keep the groups to this transaction (after instances, before nodes).
    """
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    c, m = server_groups.c, instances.c
    query = sa.select(server_groups).where(bulk.among(tx, c.id, wanted)).order_by(c.id)
    rows = tx.rows(query.with_for_update() if lock else query, GroupRow)
    members: dict[str, set[str]] = defaultdict(set)
    live_members = (bulk.among(tx, m.server_group_id, wanted), m.deleted == "")
    for group, uuid in tx.execute(sa.select(m.server_group_id, m.uuid).where(*live_members)):
        members[group].add(uuid)
    places: dict[str, dict[str, int]] = defaultdict(dict)
    query = (
        sa.select(claims.c.server_group_id, compute_nodes.c.host, sa.func.count(claims.c.instance_uuid.distinct()))
        .join(compute_nodes, compute_nodes.c.id == claims.c.compute_node_id)
        .where(bulk.among(tx, claims.c.server_group_id, wanted))
        .group_by(claims.c.server_group_id, compute_nodes.c.host)
    )
    for group, host, count in tx.execute(query):
        places[group][host] = count
    return {
        r.id: ServerGroup(
            id=r.id,
            name=r.name,
            policy=r.policy,
            max_server_per_host=r.max_server_per_host,
            project=r.project,
            members=frozenset(members[r.id]),
            host_counts=places[r.id],
        )
        for r in rows
    }


def group_names(tx: Transaction, ids: t.Iterable[str]) -> dict[str, str]:
    """id -> name."""
    c = server_groups.c
    wanted = sorted(ids)
    if not wanted:
        return {}
    return dict(tx.execute(sa.select(c.id, c.name).where(bulk.among(tx, c.id, wanted))).all())


def without_members(tx: Transaction) -> list[tuple[str, str, str]]:
    """(id, name, project) of the groups without a live instance."""
    c = server_groups.c
    member = sa.select(instances.c.uuid).where(instances.c.server_group_id == c.id, instances.c.deleted == "")
    query = sa.select(c.id, c.name, c.project).where(~member.exists()).order_by(c.id)
    return [(r.id, r.name, r.project) for r in tx.execute(query)]


def forget_unused(tx: Transaction, ids: t.Iterable[str]) -> int:
    """Remove the rows of groups without members. Returns their number.

    The rows are locked before the members are counted: a boot that adds a member holds its group's row (ensure).
    """
    wanted = sorted(set(ids))
    c = server_groups.c
    tx.execute(sa.select(c.id).where(bulk.among(tx, c.id, wanted)).order_by(c.id).with_for_update()).all()
    empty = [g for g, count in count_members(tx, wanted).items() if not count]
    return int(tx.execute(server_groups.delete().where(bulk.among(tx, c.id, empty))).rowcount)
