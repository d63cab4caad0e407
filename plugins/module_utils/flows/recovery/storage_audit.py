# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit of storage hosts, and of the compute hosts' ends, in the ledger: reading what the rules compare, and what goes.

Logical volumes that nobody knows become remains, which the next work on their host removes. Targets, sessions and secrets
are removed by the audit itself. While it does that, it holds their volumes: nobody can attach them.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core.audit import plan as audit
from ...core.audit import storage
from ...core.audit.plan import Evidence, Finding
from ...core.audit.storage import SNAPSHOT, VOLUME, Cable, Item, StorageLedger
from ...core.volumes import states
from ...core.volumes.names import IQN_PREFIX
from ...ledger.compute import instances, runs
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import storage_backends as backends_table
from ...ledger.schema.tables import volume_attachments, volume_snapshots
from ...ledger.schema.tables import volume_remains as remains_table
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.schema.volume_tables import DONE, NOTHING
from ...ledger.storage import backends, pending_cleanups, volumes
from ..volumes.work import SNAPSHOT_AT_WORK

LIVE = ""
#: Who else may come to have an end of a volume: the storage host that exports it, the compute host that it is attached to.
STORAGE, COMPUTE = "storage_host", "attached_host"

_a = volume_attachments.c


@dataclass
class Ends:
    """What a host is to be rid of that nobody has: see core.audit.storage for the fields of each."""

    sessions: list[dict[str, t.Any]] = field(default_factory=list)
    secrets: list[dict[str, t.Any]] = field(default_factory=list)
    targets: list[dict[str, t.Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, list[dict[str, t.Any]]]:
        return {"sessions": self.sessions, "secrets": self.secrets, "targets": self.targets}


# --- reading ------------------------------------------------------------------------------------------------------------


def plan(conn: t.Any, context: Context, evidence: Evidence) -> list[Finding]:
    """What hosts have of volumes, and should not, and the other way round. Writes nothing."""
    told = evidence.storage
    if not (told.storage or told.compute or told.unreachable):
        return []
    ledger = _survey(conn, context, evidence)
    return storage.plan(ledger, told, evidence.remove_orphans, evidence.hosts)


def iqn_prefixes(conn: t.Any) -> list[str]:
    """What the names of targets begin with, of all backends that ever reported."""
    configurations = conn.execute(sa.select(backends_table.c.configuration)).scalars()
    return sorted({IQN_PREFIX, *(str(c.get("iqn_prefix") or IQN_PREFIX) for c in configurations)})


def targets_of(conn: t.Any, host: str) -> set[tuple[str, str]]:
    """(kind of target, prefix) of the backends that ``host`` ever had."""
    rows = backends.rows_of(conn, host)
    return {(r.configuration.get("target") or "lio", r.configuration.get("iqn_prefix") or IQN_PREFIX) for r in rows}


def known_targets(conn: t.Any) -> dict[str, list[str]]:
    """Compute host -> the targets that its attachments are connected to."""
    found: dict[str, list[str]] = {}
    query = sa.select(_a.attached_host, _a.iqn).where(
        _a.deleted == LIVE, _a.connection != NOTHING, _a.attached_host.is_not(None), _a.iqn.is_not(None)
    )
    for host, iqn in conn.execute(query.order_by(_a.iqn)):
        found.setdefault(host, []).append(iqn)
    return found


def _survey(conn: t.Any, context: Context, evidence: Evidence) -> StorageLedger:
    seen, pool_hosts = _seen(evidence)
    volume_rows = _volumes(conn, seen, pool_hosts)
    snapshot_rows = _snapshots(conn, seen, [r.id for r in volume_rows if r.pool_host in pool_hosts])
    cables = _cables(conn, seen, evidence)
    # Attached volumes that no host has anything of are wanted, too: a run may be at work on them.
    more = {c.volume_id for c in cables} - {r.id for r in volume_rows}
    volume_rows += _volumes(conn, more, ())
    owners = {r.run_id for r in [*volume_rows, *snapshot_rows, *cables] if r.run_id and r.run_id != context.run.id}
    alive = owners - runs.dead_among(conn, owners, context.run, context.now)
    items = {(VOLUME, r.id): _item(VOLUME, r, alive) for r in volume_rows}
    items.update({(SNAPSHOT, r.id): _item(SNAPSHOT, r, alive) for r in snapshot_rows})
    return StorageLedger(
        items=items,
        cables=_as_cables(conn, cables, alive),
        remains={(r.pool_host, r.item_id) for r in conn.execute(sa.select(remains_table))},
        errors={b.pool_host: b.error["message"] if b.error else None for b in backends.rows_of(conn)},
    )


def _seen(evidence: Evidence) -> tuple[set[str], set[str]]:
    """(ids of what hosts have, pools that were read)"""
    told = evidence.storage
    ids: set[str] = set()
    pool_hosts: set[str] = set()
    for snapshot in told.storage.values():
        ids.update(target.volume_id for target in snapshot.targets)
        for backend in snapshot.backends:
            ids.update(lv.id for lv in backend.volumes)
            if not backend.error:
                pool_hosts.add(backend.pool_host)
    for cables in told.compute.values():
        ids.update(end.volume_id for end in (*cables.sessions, *cables.secrets))
    return ids, pool_hosts


def _volumes(conn: t.Any, ids: t.Collection[str], pool_hosts: t.Collection[str]) -> list[t.Any]:
    """Of these ids, deleted ones too, and the living ones in these pools."""
    c = volumes_table.c
    columns = (c.id, c.name, c.pool_host, c.status, c.made, c.updated_at, c.deleted_at, c.deleted, c.run_id)
    found = {r.id: r for r in conn.execute(sa.select(*columns).where(bulk.among(conn, c.id, sorted(ids))))}
    here = sa.select(*columns).where(c.deleted == LIVE, bulk.among(conn, c.pool_host, sorted(pool_hosts)))
    found.update({r.id: r for r in conn.execute(here)})
    return [found[i] for i in sorted(found)]


def _snapshots(conn: t.Any, ids: t.Collection[str], volume_ids: t.Sequence[str]) -> list[t.Any]:
    """Of these ids, deleted ones too, and the living ones of these volumes."""
    s, v = volume_snapshots.c, volumes_table.c
    columns = (s.id, s.name, s.volume_id, v.pool_host, s.status, s.updated_at, s.deleted_at, s.deleted, s.run_id)
    query = sa.select(*columns).join(volumes_table, v.id == s.volume_id)
    found = {r.id: r for r in conn.execute(query.where(bulk.among(conn, s.id, sorted(ids))))}
    here = query.where(s.deleted == LIVE, bulk.among(conn, s.volume_id, sorted(volume_ids)))
    found.update({r.id: r for r in conn.execute(here)})
    return [found[i] for i in sorted(found)]


def _cables(conn: t.Any, seen: t.Collection[str], evidence: Evidence) -> list[t.Any]:
    """Live attachments of these volumes, and those that the storage hosts export."""
    hosts = sorted(evidence.storage.storage)
    wanted = sa.or_(bulk.among(conn, _a.volume_id, sorted(seen)), bulk.among(conn, _a.storage_host, hosts))
    query = sa.select(volume_attachments).where(_a.deleted == LIVE, wanted)
    return list(conn.execute(query.order_by(_a.volume_id, _a.id)))


def _item(kind: str, row: t.Any, alive: t.Collection[str]) -> Item:
    # A snapshot keeps the run that made it; a volume that is available may have a run that is to attach it.
    busy = kind == VOLUME or row.status in SNAPSHOT_AT_WORK
    return Item(
        kind=kind,
        id=row.id,
        name=row.name or "",
        pool_host=row.pool_host,
        status=row.status,
        touched_at=row.updated_at if row.deleted_at is None else row.deleted_at,
        deleted=row.deleted != LIVE,
        made=bool(row.made) if kind == VOLUME else True,
        worked_on=busy and row.run_id in alive and row.deleted == LIVE,
    )


def _as_cables(conn: t.Any, rows: t.Sequence[t.Any], alive: t.Collection[str]) -> list[Cable]:
    disks = instances.disks_of(conn, sorted({r.instance_uuid for r in rows}))
    roots = {(u, d.get("volume_id")) for u, found in disks.items() for d in found if d.get("boot_index") == 0}
    return [_cable(r, alive, (r.instance_uuid, r.volume_id) in roots) for r in rows]


def _cable(row: t.Any, alive: t.Collection[str], root: bool) -> Cable:
    stands = row.export == DONE and row.attach_status == states.ATTACHED and row.run_id not in alive
    return Cable(
        id=row.id,
        volume_id=row.volume_id,
        instance=row.instance_uuid,
        storage_host=row.storage_host,
        attached_host=row.attached_host,
        iqn=row.iqn,
        stands=stands,
        since=max(row.created_at, row.attached_at or 0.0),
        root=root,
    )


# --- repairing ----------------------------------------------------------------------------------------------------------


def volumes_to_lock(conn: t.Any, planned: t.Sequence[Finding]) -> set[str]:
    """Ids of the volumes that the findings are about; a snapshot's volume stands for it."""
    ids: set[str] = set()
    snapshots = set()
    for f in planned:
        if f.kind == audit.ORPHAN_VOLUME:
            _pool_host, kind, item_id = f.key
            (ids if kind == VOLUME else snapshots).add(item_id)
        elif f.kind in (audit.ORPHAN_TARGET, audit.ORPHAN_SESSION, audit.ORPHAN_SECRET):
            ids.add(f.key["volume_id"])
    s = volume_snapshots.c
    query = sa.select(s.volume_id).where(bulk.among(conn, s.id, sorted(snapshots)))
    return ids | set(conn.execute(query).scalars())


def lock(conn: t.Any, planned: t.Sequence[Finding]) -> None:
    """Lock the backends that have logical volumes to go; the volumes are locked."""
    pool_hosts = {f.key[0] for f in planned if f.kind == audit.ORPHAN_VOLUME}
    if pool_hosts:
        backends.lock(conn, pool_hosts)


def repair(conn: t.Any, findings: t.Sequence[Finding], context: Context) -> dict[str, Ends]:
    """Logical volumes become remains. Returns host -> what it is to be rid of beside them."""
    todo = [f for f in findings if f.changes]
    of = _volume_of_snapshots(conn, [f for f in todo if f.kind == audit.ORPHAN_VOLUME])
    ends: dict[str, Ends] = {}
    for f in todo:
        if f.kind == audit.ORPHAN_VOLUME:
            pool_host, kind, item_id = f.key
            reason = "an orphan that audit found"
            pending_cleanups.add(conn, pool_host, item_id, reason, context.now, 0, kind, of.get(item_id))
        elif f.kind == audit.ORPHAN_SESSION:
            ends.setdefault(str(f.host), Ends()).sessions.append(dict(f.key))
        elif f.kind == audit.ORPHAN_SECRET:
            ends.setdefault(str(f.host), Ends()).secrets.append(dict(f.key))
        elif f.kind == audit.ORPHAN_TARGET:
            ends.setdefault(str(f.host), Ends()).targets.append(dict(f.key))
    return ends


def _volume_of_snapshots(conn: t.Any, findings: t.Sequence[Finding]) -> dict[str, str]:
    ids = sorted({f.key[2] for f in findings if f.key[1] == SNAPSHOT})
    s = volume_snapshots.c
    query = sa.select(s.id, s.volume_id).where(bulk.among(conn, s.id, ids))
    return {r.id: r.volume_id for r in conn.execute(query)} if ids else {}


# --- removing -----------------------------------------------------------------------------------------------------------


def hold(
    conn: t.Any, host: str, side: str, ends: t.Sequence[t.Mapping[str, t.Any]], context: Context
) -> list[dict[str, t.Any]]:
    """Those of ``ends`` that still are nobody's. Until release() nobody can attach their volumes.

    :arg side: STORAGE or COMPUTE, what ``host`` is to them.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    ids = sorted({str(e["volume_id"]) for e in ends})
    rows = {r.id: r for r in volumes.select(conn, ids=ids, lock=True)}
    alive = volumes.live_runs(conn, rows.values(), context)
    taken = {i for i, row in rows.items() if row.run_id in alive}
    query = sa.select(_a.volume_id, _a[side]).where(_a.deleted == LIVE, bulk.among(conn, _a.volume_id, ids))
    # An attachment that has no host yet may come to this one.
    taken.update(volume_id for volume_id, there in conn.execute(query) if there in (host, None))
    free = [dict(e) for e in ends if e["volume_id"] not in taken]
    volumes.swap(
        conn,
        sorted({str(e["volume_id"]) for e in free}),
        {"status": (states.AVAILABLE,)},
        context.now,
        status=states.DETACHING,
        run_id=context.run.id,
    )
    return free


def release(conn: t.Any, context: Context) -> list[str]:
    """The volumes that this run held can be attached again. Returns them."""
    c = volumes_table.c
    attached = sa.select(_a.id).where(_a.volume_id == c.id, _a.deleted == LIVE)
    mine = (c.deleted == LIVE, c.status == states.DETACHING, c.run_id == context.run.id, ~attached.exists())
    ids = list(conn.execute(sa.select(c.id).where(*mine)).scalars())
    freed = volumes.swap(conn, ids, {"status": (states.DETACHING,)}, context.now, status=states.AVAILABLE, run_id=None)
    return sorted(freed)
