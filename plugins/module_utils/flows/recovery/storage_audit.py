# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit of storage hosts, and of the compute hosts' iSCSI sessions and secrets, in the ledger: reading and repairing.

Unowned logical volumes become pending cleanups, which the next work on their host removes. The audit itself removes targets,
sessions and secrets; meanwhile it holds their volumes, so that they cannot be attached.
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass, field

from ...core.audit import plan as audit
from ...core.audit import storage
from ...core.audit.evidence import Evidence
from ...core.audit.plan import Finding
from ...core.audit.storage import Cable, Item, StorageLedger
from ...core.audit.storage_evidence import SNAPSHOT, VOLUME
from ...core.volumes import states
from ...core.volumes.attachment import DONE
from ...core.volumes.drivers.registry import driver_of
from ...core.volumes.names import IQN_PREFIX, ledger_prefix
from ...ledger.compute import instances, runs
from ...ledger.db.transaction import Transaction
from ...ledger.schema.identity import ledger_id
from ...ledger.storage import attachments, backends, pending_cleanups, snapshots, volumes
from ...ledger.storage.attachments import Attachment
from ...ledger.storage.pending_cleanups import PendingCleanup
from ...ledger.storage.snapshots import SnapshotPlace
from ...ledger.storage.volumes import LIVE, VolumePlace

#: The side of a host: the storage host that exports a volume, or the compute host that it is attached to.
STORAGE, COMPUTE = "storage_host", "attached_host"


@dataclass
class Ends:
    """Sessions, secrets and targets of a host without an attachment, to be removed: core.audit.storage has their fields."""

    sessions: list[dict[str, t.Any]] = field(default_factory=list)
    secrets: list[dict[str, t.Any]] = field(default_factory=list)
    targets: list[dict[str, t.Any]] = field(default_factory=list)

    as_dict = asdict


_PART = {audit.ORPHAN_SESSION: "sessions", audit.ORPHAN_SECRET: "secrets", audit.ORPHAN_TARGET: "targets"}


# --- reading ------------------------------------------------------------------------------------------------------------


def plan(tx: Transaction, evidence: Evidence) -> list[Finding]:
    """The findings about volumes on hosts, superfluous or missing. Writes nothing."""
    seen = evidence.storage
    if not (seen.storage or seen.compute or seen.unreachable):
        return []
    ledger = _survey(tx, evidence)
    return storage.plan(ledger, seen, evidence.remove_orphans, evidence.hosts)


def iqn_prefixes(tx: Transaction) -> list[str]:
    """Return the prefixes of targets' names, of all backends that ever reported: of this ledger's, and of backends of no ledger."""
    prefixes = {IQN_PREFIX, *(str(r.configuration.get("iqn_prefix") or IQN_PREFIX) for r in backends.rows_of(tx))}
    return sorted({*prefixes, *(ledger_prefix(prefix, ledger_id(tx)) for prefix in prefixes)})


def targets_of(tx: Transaction, host: str) -> set[tuple[str, str]]:
    """(kind of target, prefix) of the backends that ``host`` ever had."""
    rows = [r for r in backends.rows_of(tx, host) if driver_of(r.configuration).has_portals]
    return {(r.configuration.get("target") or "lio", r.configuration.get("iqn_prefix") or IQN_PREFIX) for r in rows}


def known_targets(tx: Transaction) -> dict[str, list[str]]:
    """Compute host -> the targets that its attachments are connected to."""
    targets: dict[str, list[str]] = {}
    for row in attachments.select(tx, connected=True):
        if row.attached_host and row.iqn:
            targets.setdefault(row.attached_host, []).append(row.iqn)
    return {host: sorted(iqns) for host, iqns in targets.items()}


def _survey(tx: Transaction, evidence: Evidence) -> StorageLedger:
    seen, pool_hosts = _seen(evidence)
    of_volumes = volumes.located(tx, seen, pool_hosts)
    of_snapshots = snapshots.located(tx, seen, [r.id for r in of_volumes if r.pool_host in pool_hosts])
    cables = attachments.of_volumes_or_hosts(tx, seen, evidence.storage.storage)
    # Attached volumes that no host has are needed too: a run may work on them.
    of_volumes += volumes.located(tx, {c.volume_id for c in cables} - {r.id for r in of_volumes})
    live_runs = volumes.live_runs(tx, [*of_volumes, *of_snapshots, *cables])
    items = {(VOLUME, r.id): _item(VOLUME, r, live_runs, r.made) for r in of_volumes}
    items.update({(SNAPSHOT, r.id): _item(SNAPSHOT, r, live_runs) for r in of_snapshots})
    return StorageLedger(
        items=items,
        cables=_as_cables(tx, cables, live_runs),
        cleanups=pending_cleanups.items(tx),
        errors={b.pool_host: b.error["message"] if b.error else None for b in backends.rows_of(tx)},
    )


def _seen(evidence: Evidence) -> tuple[set[str], set[str]]:
    """(ids of what hosts have, pools that were read)"""
    answers = evidence.storage
    ids: set[str] = set()
    pool_hosts: set[str] = set()
    for snapshot in answers.storage.values():
        ids.update(target.volume_id for target in snapshot.targets)
        for backend in snapshot.backends:
            ids.update(lv.id for lv in backend.volumes)
            if not backend.error:
                pool_hosts.add(backend.pool_host)
    for cables in answers.compute.values():
        ids.update(session.volume_id for session in cables.sessions)
        ids.update(secret.volume_id for secret in cables.secrets)
    return ids, pool_hosts


def _item(kind: str, row: VolumePlace | SnapshotPlace, alive: t.Collection[str], made: bool = True) -> Item:
    # A snapshot keeps the run that made it; an available volume may belong to a run that will attach it.
    busy = kind == VOLUME or row.status in snapshots.BUSY
    return Item(
        kind=kind,
        id=row.id,
        name=row.name or "",
        pool_host=row.pool_host,
        status=row.status,
        touched_at=row.updated_at if row.deleted_at is None else row.deleted_at,
        deleted=row.deleted != LIVE,
        made=made,
        worked_on=busy and row.run_id in alive and row.deleted == LIVE,
    )


def _as_cables(tx: Transaction, rows: t.Sequence[Attachment], alive: t.Collection[str]) -> list[Cable]:
    disks = instances.disks_of(tx, sorted({r.instance_uuid for r in rows}))
    roots = {
        (u, d.get("volume_id")) for u, block_devices in disks.items() for d in block_devices if d.get("boot_index") == 0
    }
    return [_cable(r, alive, (r.instance_uuid, r.volume_id) in roots) for r in rows]


def _cable(row: Attachment, alive: t.Collection[str], root: bool) -> Cable:
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


def volumes_to_lock(tx: Transaction, planned: t.Sequence[Finding]) -> set[str]:
    """Ids of the findings' volumes; a snapshot counts as its volume."""
    ids: set[str] = set()
    of_snapshots: set[str] = set()
    for finding in planned:
        if finding.kind == audit.ORPHAN_VOLUME:
            _pool_host, kind, item_id = finding.key
            (ids if kind == VOLUME else of_snapshots).add(item_id)
        elif finding.kind in _PART:
            ids.add(finding.key["volume_id"])
    return ids | set(snapshots.volume_ids(tx, of_snapshots).values())


def lock(tx: Transaction, planned: t.Sequence[Finding]) -> None:
    """Lock the backends with logical volumes to remove; the volumes are already locked."""
    pool_hosts = {f.key[0] for f in planned if f.kind == audit.ORPHAN_VOLUME}
    if pool_hosts:
        backends.lock(tx, pool_hosts)


def repair(tx: Transaction, findings: t.Sequence[Finding]) -> dict[str, Ends]:
    """Turn unowned logical volumes into pending cleanups. Returns host -> everything else to remove from it."""
    todo = [f for f in findings if f.changes]
    orphans = [f.key for f in todo if f.kind == audit.ORPHAN_VOLUME]
    volume_of_snapshot = snapshots.volume_ids(
        tx, {item_id for _pool_host, kind, item_id in orphans if kind == SNAPSHOT}
    )
    reason = "an orphan that audit found"
    cleanups = [
        PendingCleanup(pool_host, i, reason, 0, kind, volume_of_snapshot.get(i)) for pool_host, kind, i in orphans
    ]
    pending_cleanups.add(tx, cleanups)
    ends: dict[str, Ends] = {}
    for finding in todo:
        if finding.kind in _PART:
            getattr(ends.setdefault(str(finding.host), Ends()), _PART[finding.kind]).append(dict(finding.key))
    return ends


# --- removing -----------------------------------------------------------------------------------------------------------


def hold(tx: Transaction, host: str, side: str, ends: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Hold the ``ends`` that still have no attachment, and return them. Until release() their volumes cannot be attached.

    :arg side: STORAGE or COMPUTE, the side of ``host``.
    """
    runs.renew(tx)
    ids = sorted({str(e["volume_id"]) for e in ends})
    rows = {r.id: r for r in volumes.select(tx, ids=ids, lock=True)}
    alive = volumes.live_runs(tx, rows.values())
    busy_ids = {i for i, row in rows.items() if row.run_id in alive}
    # An attachment without a host may still be bound to this one.
    volume_attachments = attachments.select(tx, volume_ids=ids)
    busy_ids.update(r.volume_id for r in volume_attachments if getattr(r, side) in (host, None))
    free = [dict(e) for e in ends if e["volume_id"] not in busy_ids]
    volumes.swap(
        tx,
        sorted({str(e["volume_id"]) for e in free}),
        {"status": (states.AVAILABLE,)},
        status=states.DETACHING,
        run_id=tx.run.id,
    )
    return free


def release(tx: Transaction) -> list[str]:
    """Release the volumes that this run held, so that they can be attached again. Returns their ids."""
    ids = [r.id for r in volumes.without_attachment(tx, (states.DETACHING,), tx.run.id)]
    freed = volumes.swap(tx, ids, {"status": (states.DETACHING,)}, status=states.AVAILABLE, run_id=None)
    return sorted(freed)
