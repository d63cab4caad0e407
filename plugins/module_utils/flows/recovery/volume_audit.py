# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audit of volumes in the ledger: unfinished work of dead runs, and attachments and volumes that contradict each other."""

from __future__ import annotations

import typing as t

from ...core.audit import plan as audit
from ...core.audit.evidence import Evidence
from ...core.audit.plan import Finding
from ...core.volumes import reimage, states
from ...core.volumes.attachment import NONE
from ...ledger.compute import cleanups, runs
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volumes
from ..attachments import life, swaps
from ..volumes import dead_uploads
from ..volumes import reimage as reimages
from . import volume_leases

_ATTACHED = (states.ATTACHING, states.IN_USE, states.DETACHING)

_AGAIN = {False: "Request the same volume again.", True: "Rebuild its instance again."}


def plan(tx: Transaction, evidence: Evidence) -> list[Finding]:
    """The findings about volumes in the current ledger. Writes nothing."""
    findings = [
        *_left_half_done(tx),
        *half_swapped(tx),
        *_without_instances(tx),
        *_free(tx),
        *_due(tx, evidence.storage.storage),
    ]
    hosts = evidence.hosts
    return [f for f in findings if hosts is None or f.host in hosts]


def _left_half_done(tx: Transaction) -> t.Iterator[Finding]:
    leftovers = volume_leases.find_leftovers(tx, runs.dead_among)
    for row in leftovers.volumes:
        ends = row.status in (*volumes.BEING_CREATED, *reimage.UNDER_WAY)
        again = row.status in reimage.UNDER_WAY
        yield Finding(
            audit.VOLUME,
            volumes.host_of(row.pool_host) if row.pool_host else None,
            row.instance_uuid,
            "volume %s" % (row.name or row.id),
            row.status,
            _after(row) if ends else row.status,
            audit.END if ends else audit.FINISH,
            _AGAIN[again] if ends else "The next work on its storage host does the rest.",
            key=("volume", row.id, row.run_id),
        )
    for snapshot in leftovers.snapshots:
        yield Finding(
            audit.VOLUME,
            None,
            None,
            "snapshot %s" % (snapshot.name or snapshot.id),
            snapshot.status,
            snapshot.status,
            audit.FINISH,
            "The next work on its storage host does the rest.",
            key=("snapshot", snapshot.id, snapshot.run_id),
        )
    for row in dead_uploads.find_dead(tx):
        yield Finding(
            audit.VOLUME,
            volumes.host_of(row.pool_host) if row.pool_host else None,
            None,
            "volume %s" % (row.name or row.id),
            row.status,
            states.status_after_upload(row.attach_status),
            audit.END,
            "Its image is deleted: make it again.",
            key=("upload", row.id, row.run_id),
        )
    for attachment in leftovers.attachments:
        attached = attachment.attach_status == states.ATTACHED
        yield Finding(
            audit.ATTACHMENT,
            attachment.attached_host,
            attachment.instance_uuid,
            "volume %s" % attachment.volume_id,
            attachment.attach_status,
            states.ATTACHED if attached else states.DETACHED,
            audit.RELEASE,
            key=("attachment", attachment.id, attachment.run_id),
        )


def half_swapped(tx: Transaction) -> t.Iterator[Finding]:
    """Yield the swaps of dead runs whose guests may have either volume."""
    for pair in swaps.of_dead_runs(tx):
        if pair.may_have_begun:
            yield Finding(
                audit.ATTACHMENT,
                pair.old.attached_host,
                pair.old.instance_uuid,
                "volume %s" % pair.new.volume_id,
                pair.new.attach_status,
                None,
                audit.REPORT,
                swaps.under_way(pair).remedy,
                key=("swap", pair.new.id),
            )


def _after(row: volumes.VolumeRow) -> str:
    """The status of a volume after the end of its creation, or of its writing."""
    if row.status in reimage.UNDER_WAY:
        return reimage.status_after(row.previous_status, None, reimages.died_error(row))
    return states.ERROR


def _without_instances(tx: Transaction) -> t.Iterator[Finding]:
    """Attachments of deleted instances, or of instances that failed before they ran, that no run is ending."""
    to_clean = {(r.host, r.instance_uuid) for r in cleanups.rows(tx)}
    rows = attachments.without_instance(tx)
    alive = volumes.live_runs(tx, [r for r, _name in rows])
    for row, domain_name in rows:
        if row.run_id in alive:
            continue
        what = "volume %s" % row.volume_id
        ending = row.attach_status == states.DETACHED
        if row.connection != NONE and (row.attached_host, row.instance_uuid) not in to_clean:
            yield Finding(
                audit.ATTACHMENT,
                row.attached_host,
                row.instance_uuid,
                what,
                "connected",
                None,
                audit.CLEAN,
                "The host is cleaned when it reports the next time.",
                key=("clean", row.id, domain_name),
            )
        if not ending:
            yield Finding(
                audit.ATTACHMENT,
                row.attached_host,
                row.instance_uuid,
                what,
                row.attach_status,
                states.DETACHED,
                audit.RELEASE,
                key=("gone", row.id, row.run_id),
            )


def _due(tx: Transaction, answered: t.Container[str]) -> t.Iterator[Finding]:
    """Exports that wait for their storage host to end them, with the volumes that are deleted after that. :arg answered: storage hosts"""
    rows = attachments.left_to_unexport(tx)
    known = attachments.volumes_of(tx, rows)
    doomed = life.deleted_with(tx, {r.instance_uuid for r in rows}) if rows else {}
    for row in rows:
        name = known[row.volume_id].name if row.volume_id in known else ""
        yield Finding(
            audit.ATTACHMENT,
            row.storage_host,
            row.instance_uuid,
            "volume %s" % (name or row.volume_id),
            "exported",
            states.DELETED if (name or row.volume_id) in doomed.get(row.instance_uuid, ()) else None,
            audit.RELEASE if row.storage_host in answered else audit.WAIT,
            key=("due", row.id),
        )


def _free(tx: Transaction) -> t.Iterator[Finding]:
    """Yield volumes without an attachment whose status contradicts that, except volumes that a live audit holds (storage_audit.hold)."""
    rows = volumes.without_attachment(tx, _ATTACHED)
    alive = volumes.live_runs(tx, rows)
    for row in rows:
        if row.run_id in alive:
            continue
        yield Finding(
            audit.VOLUME,
            volumes.host_of(row.pool_host) if row.pool_host else None,
            None,
            "volume %s" % (row.name or row.id),
            row.status,
            states.AVAILABLE,
            audit.CORRECT,
            key=("free", row.id, row.status),
        )


def lock(
    tx: Transaction, planned: t.Sequence[Finding], instance_uuids: t.Iterable[str], more: t.Iterable[str] = ()
) -> None:
    """Lock the volumes of the findings, the volumes of these instances, and ``more``, all by id."""
    ids = {*more}
    ids |= {f.key[1] for f in planned if f.kind == audit.VOLUME and f.key[0] != "snapshot"}
    cables = [f.key[1] for f in planned if f.kind == audit.ATTACHMENT]
    ids |= attachments.volume_ids(tx, cables, instance_uuids)
    if ids:
        volumes.select(tx, ids=sorted(ids), lock=True)


def repair(tx: Transaction, findings: t.Sequence[Finding]) -> None:
    """Repair the findings. The volumes are locked."""
    todo = [f for f in findings if f.kind in (audit.VOLUME, audit.ATTACHMENT) and f.changes]
    if not todo:
        return
    keys = {f.key[:2] for f in todo}
    leftovers = volume_leases.find_leftovers(tx, runs.dead_among)
    volume_leases.expire(
        tx,
        volume_leases.Leftovers(
            attachments=[r for r in leftovers.attachments if ("attachment", r.id) in keys],
            volumes=[r for r in leftovers.volumes if ("volume", r.id) in keys],
            snapshots=[r for r in leftovers.snapshots if ("snapshot", r.id) in keys],
        ),
    )
    if any(f.key[0] == "upload" for f in todo):
        dead_uploads.end_dead(tx)
    for finding in todo:
        if finding.key[0] == "clean":
            reason = "volumes of the instance are still connected"
            cleanups.add(tx, cleanups.Due(str(finding.host), str(finding.instance), finding.key[2], reason))
    deleted_instances = sorted({str(f.instance) for f in todo if f.key[0] == "gone"})
    life.end_with_instances(tx, deleted_instances)
    life.release_instances(tx, deleted_instances)
    for finding in todo:
        if finding.key[0] == "free":
            volumes.swap(
                tx,
                [finding.key[1]],
                {"status": (finding.key[2],)},
                status=states.AVAILABLE,
                attach_status=states.DETACHED,
                run_id=None,
            )
