# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pending cleanups: leftovers of instances on hosts that could not be cleaned. A host is cleaned before it builds again.

Until then the claim and addresses there stay taken: an unseen guest may still be using them.
"""

from __future__ import annotations

import typing as t

from ...core.instances.states import DELETING, ERROR
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import cleanups, instances
from . import claims, ports, sightings

#: What is removed: all that the host has of the instance; or, where the instance was resized on its own host and stays there, what it was before,
#: or what it was to become.
ALL, OLD, NEW = "all", "old", "new"
#: In place of the mark of a move: what a build left whose run died. A guest whose build has ended on the host is not removed.
UNFINISHED = "unfinished"


class CleanupRow:
    """A row of cleanups: what is to be removed of an instance from a host."""

    id: int
    host: str  # the inventory's name
    instance_uuid: str
    domain_name: str  # libvirt's
    reason: str
    created_at: float  # seconds since the epoch
    part: str  # ALL, OLD or NEW
    begun_at: float | None  # seconds since the epoch; from then on the host may lack anything of this part
    made_for: str  # only what was made for this move is removed (core.instances.move_mark), or UNFINISHED; "": all


class Due(t.NamedTuple):
    """Parts of an instance to remove from a host, and why."""

    host: str
    instance_uuid: str
    domain_name: str
    reason: str
    part: str = ALL
    made_for: str = ""


def add(tx: Transaction, *due: Due) -> None:
    """Record pending cleanups. A pending cleanup of a part, or of what a move made, becomes a cleanup of all, if that is requested."""
    wanted: dict[tuple[str, str], Due] = {}
    for cleanup in due:
        pair = (cleanup.host, cleanup.instance_uuid)
        if pair not in wanted or _is_wider(cleanup, wanted[pair]):
            wanted[pair] = cleanup
    pending_by_pair = (
        {(r.host, r.instance_uuid): r for r in of_instances(tx, sorted({d.instance_uuid for d in due}))} if due else {}
    )
    values = {
        p: {**d._asdict(), "reason": d.reason[:2000], "created_at": tx.now, "begun_at": None} for p, d in wanted.items()
    }
    bulk.insert(tx, cleanups, [row for pair, row in values.items() if pair not in pending_by_pair])
    wider = [p for p in values if p in pending_by_pair and _is_wider(wanted[p], pending_by_pair[p])]
    bulk.update(tx, cleanups, "id", [{"id": pending_by_pair[p].id, **values[p]} for p in wider])


def _is_wider(wanted: Due, pending: Due | CleanupRow) -> bool:
    """Whether ``wanted`` removes more of the same instance from the same host than ``pending``."""
    return wanted.part == ALL and (pending.part != ALL or bool(pending.made_for and not wanted.made_for))


class Condition(t.NamedTuple):
    """Extent of a pending cleanup, as the module instance_cleanup has it."""

    made_for: str
    due_at: float  # seconds since the epoch
    unfinished: bool


def conditions(tx: Transaction, host: str, uuids: t.Sequence[str]) -> dict[str, Condition]:
    """uuid -> what is removed of the instance, by the pending cleanups of ``host``."""
    rows = [r for r in of_instances(tx, uuids) if r.host == host]
    unfinished = of_dead_builds(tx, rows)
    return {
        r.instance_uuid: Condition(
            "" if r.made_for == UNFINISHED else r.made_for, r.created_at, (host, r.instance_uuid) in unfinished
        )
        for r in rows
    }


def of_dead_builds(tx: Transaction, due: t.Collection[CleanupRow]) -> set[tuple[str, str]]:
    """Return the cleanups that keep a guest whose build has ended: the instance is what its dead build left, and it was not deleted or
    booted again. {(host, instance's uuid)}
    """
    due = [r for r in due if r.made_for == UNFINISHED]
    if not due:
        return set()
    i = instances.c
    live_instances = (bulk.among(tx, i.uuid, sorted({r.instance_uuid for r in due})), i.deleted == "")
    unlaunched = (i.vm_state == ERROR, i.task_state.is_(None), i.host.is_(None), i.launched_at.is_(None))
    uuids = set(tx.execute(sa.select(i.uuid).where(*live_instances, *unlaunched)).scalars())
    return {(r.host, r.instance_uuid) for r in due if r.instance_uuid in uuids}


def of_host(tx: Transaction, host: str) -> list[CleanupRow]:
    """The pending cleanups of ``host``, oldest first."""
    return tx.rows(sa.select(cleanups).where(cleanups.c.host == host).order_by(cleanups.c.id), CleanupRow)


def of_instances(tx: Transaction, uuids: t.Sequence[str]) -> list[CleanupRow]:
    """The pending cleanups of these instances, on any host."""
    condition = bulk.among(tx, cleanups.c.instance_uuid, uuids)
    return tx.rows(sa.select(cleanups).where(condition).order_by(cleanups.c.id), CleanupRow)


def rows(tx: Transaction) -> list[CleanupRow]:
    """All pending cleanups, oldest first."""
    return tx.rows(sa.select(cleanups).order_by(cleanups.c.id), CleanupRow)


def hosts(tx: Transaction) -> set[str]:
    """Hosts with pending cleanups."""
    return {r.host for r in tx.execute(sa.select(cleanups.c.host).distinct())}


def forget(tx: Transaction, due: CleanupRow) -> bool:
    """Drop the cleanup of instances that are the host's own again. Returns whether it can be dropped: no run has begun to clean the host."""
    c = cleanups.c
    return tx.execute(cleanups.delete().where(c.id == due.id, c.begun_at.is_(None))).rowcount == 1


def begin(tx: Transaction, host: str, uuids: t.Sequence[str]) -> dict[str, str]:
    """Mark ``host`` as being cleaned of these instances: none of them goes back there. Returns parts of of_a_part(), instance's uuid -> part."""
    due = [r.id for r in of_instances(tx, uuids) if r.host == host and r.begun_at is None]
    if due:
        tx.execute(cleanups.update().where(bulk.among(tx, cleanups.c.id, due)).values(begun_at=tx.now))
    return {uuid: part for (_host, uuid), part in of_a_part(tx, {(host, u) for u in uuids}).items()}


def of_a_part(tx: Transaction, pairs: t.Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the hosts that are cleaned of a part only (OLD, NEW): the instances are there, and stay. {(host, instance's uuid)}"""
    uuids = sorted({uuid for _host, uuid in pairs})
    due = [r for r in of_instances(tx, uuids) if r.part != ALL and (r.host, r.instance_uuid) in pairs] if uuids else []
    if not due:
        return {}
    i = instances.c
    live_instances = (bulk.among(tx, i.uuid, sorted({r.instance_uuid for r in due})), i.deleted == "")
    stays = {
        r.uuid for r in tx.execute(sa.select(i.uuid, i.task_state).where(*live_instances)) if r.task_state != DELETING
    }
    return {(r.host, r.instance_uuid): r.part for r in due if r.instance_uuid in stays}


def done(
    tx: Transaction, cleaned: t.Collection[tuple[str, str]], partly: t.Mapping[tuple[str, str], str] | None = None
) -> None:
    """Forget the cleanups that hosts have done, release claims and addresses. {(host, instance's uuid)}

    If a part was cleaned, only the claim of the move ends. If more is to be cleaned by now, that is still pending.

    :arg partly: instances that lost a part only, as begin() returned; an instance may be deleted or evacuated meanwhile.
    """
    parts = {**of_a_part(tx, cleaned), **(partly or {})}
    due = of_instances(tx, sorted({uuid for _host, uuid in cleaned})) if cleaned else []
    due = [r for r in due if (r.host, r.instance_uuid) in cleaned]
    more = {(r.host, r.instance_uuid) for r in due if r.part != parts.get((r.host, r.instance_uuid), r.part)}
    claims.release_on(tx, set(cleaned) - set(parts))
    claims.release_moves(tx, set(parts) - more)
    ids = [r.id for r in due if (r.host, r.instance_uuid) not in more]
    if ids:
        tx.execute(cleanups.delete().where(bulk.among(tx, cleanups.c.id, ids)))
    ports.release_on(tx, set(cleaned) - set(parts))
    # Nothing is left of what a move made; other parts of the instance on the host were not removed.
    sightings.forget(tx, {(r.host, r.instance_uuid) for r in due if r.made_for in ("", UNFINISHED)} - set(parts))
