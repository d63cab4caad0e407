# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports of hosts on instances that the ledger has on other hosts.

A ledger that was restored from a backup is older than its hosts: an instance may have moved since. Without this a start would make a second copy of
the guest, and a move would go to the host that has it. A row is written with each report, and is forgotten with the cleanup of its host.
"""

from __future__ import annotations

import typing as t

from ...core.instances import moves, states
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import cleanups, compute_nodes, instances, migrations, runs, sightings

if t.TYPE_CHECKING:
    Pairs = t.Collection[t.Tuple[str, str]]  # (host, instance's uuid)


class Sighting:
    """A row of sightings."""

    host: str  # the inventory's name
    instance_uuid: str
    power_state: int | None  # of the domain there; None: only a folder or logical volumes
    reported_at: float  # seconds since the epoch


def record(
    tx: Transaction,
    host: str,
    facts: t.Mapping[str, t.Any],
    asked_at: float,
    ledger_id: str,
    cleaned: t.Collection[str] = (),
) -> None:
    """Write what ``host`` has of instances that the ledger has elsewhere, in place of what it reported before.

    What moves from or to the host, or is to be cleaned from it, has its reason to be there, and so has what a live run builds. What moved or began to
    run after the host was asked is left out, too: the report is older.

    :arg facts: its report. :arg asked_at: when it was asked, in seconds since the epoch. :arg ledger_id: domains of other ledgers do not count.
    :arg cleaned: instances that it was cleaned of since.
    """
    seen: dict[str, int | None] = dict.fromkeys(
        (*facts.get("instance_folders", ()), *facts.get("instance_volumes", ()))
    )
    seen.update(
        {
            d["uuid"]: d["power_state"]
            for d in facts.get("domains") or ()
            if d.get("ledger", ledger_id) in ("", ledger_id)
        }
    )
    tx.execute(sightings.delete().where(sightings.c.host == host))
    for uuid in cleaned:
        seen.pop(uuid, None)
    if not seen:
        return
    i, m, c = instances.c, migrations.c, cleanups.c
    moved = sa.exists().where(
        m.instance_uuid == i.uuid,
        sa.or_(m.source_compute == host, m.dest_compute == host),
        sa.or_(m.updated_at >= asked_at, m.status.in_(moves.OPEN)),
    )
    query = sa.select(i.uuid).where(
        bulk.among(tx, i.uuid, sorted(seen)),
        i.deleted == "",
        sa.or_(i.host != host, sa.and_(_without_host(), i.updated_at < asked_at)),
        # A build whose run is dead may be one of a ledger that is older than its hosts, where the guest has gone from one to another since.
        sa.or_(i.vm_state != states.BUILDING, sa.exists().where(runs.c.id == i.run_id, runs.c.lease_until <= tx.now)),
        sa.or_(i.launched_at.is_(None), i.launched_at < asked_at),
        ~moved,
        ~sa.exists().where(c.host == host, c.instance_uuid == i.uuid),
    )
    misplaced_uuids = [str(uuid) for uuid in tx.execute(query).scalars()]
    values = [
        {"host": host, "instance_uuid": u, "power_state": seen[u], "reported_at": asked_at}
        for u in sorted(misplaced_uuids)
    ]
    bulk.insert(tx, sightings, values)


def _without_host() -> sa.ColumnElement[bool]:
    """The condition of instances that are shelved, and have left their hosts: no host has anything of them."""
    return sa.and_(instances.c.host.is_(None), instances.c.vm_state == states.SHELVED_OFFLOADED)


def elsewhere(tx: Transaction, uuids: t.Collection[str]) -> dict[str, list[Sighting]]:
    """uuid -> what hosts have of this instance that should have nothing of it, by host.

    Left out are hosts that are to be cleaned of it anyway, both ends of a move that is not decided, hosts that are forced down, and other names of
    the machine where the instance is.
    """
    if not uuids:
        return {}
    s, i, c, m = sightings.c, instances.c, cleanups.c, migrations.c
    home, other = compute_nodes.alias().c, compute_nodes.alias().c
    ends = sa.or_(m.source_compute == s.host, m.dest_compute == s.host)
    query = (
        sa.select(sightings)
        .join(instances, i.uuid == s.instance_uuid)
        .where(
            bulk.among(tx, s.instance_uuid, sorted(uuids)),
            i.deleted == "",
            sa.or_(i.host != s.host, _without_host()),
            ~sa.exists().where(c.host == s.host, c.instance_uuid == s.instance_uuid),
            ~sa.exists().where(m.instance_uuid == s.instance_uuid, ends, m.status.in_(moves.OPEN)),
            ~sa.exists().where(other.host == s.host, other.forced_down.is_(sa.true())),
            ~sa.exists().where(
                home.host == i.host,
                other.host == s.host,
                home.machine_id == other.machine_id,
            ),
        )
        .order_by(s.instance_uuid, s.host)
    )
    sightings_by_uuid: dict[str, list[Sighting]] = {}
    for row in tx.rows(query, Sighting):
        sightings_by_uuid.setdefault(row.instance_uuid, []).append(row)
    return sightings_by_uuid


def forget(tx: Transaction, cleaned: Pairs) -> None:
    """The hosts have nothing of these instances any more."""
    if not cleaned:
        return
    s = sightings.c
    rows = tx.execute(
        sa.select(s.host, s.instance_uuid).where(bulk.among(tx, s.instance_uuid, sorted({u for _h, u in cleaned})))
    )
    for host, uuid in [(r.host, r.instance_uuid) for r in rows if (r.host, r.instance_uuid) in cleaned]:
        tx.execute(sightings.delete().where(s.host == host, s.instance_uuid == uuid))


def forget_hosts(tx: Transaction, hosts: t.Collection[str]) -> None:
    """These hosts are no longer in the ledger."""
    tx.execute(sightings.delete().where(bulk.among(tx, sightings.c.host, sorted(hosts))))
