# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances: an image's record before any byte is written, and what becomes of it with the end of the operation.

An image whose snapshot failed is deleted at once, whoever notices: the run itself, a later snapshot, or the report of the instance's host.
source: Nova's API.snapshot, ComputeManager._snapshot_instance and delete_image_on_error
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.images import life, snapshots
from ...core.images.image import StoredImage
from ...core.images.snapshots import SnapshotRequest
from ...core.instances import quotas
from ...core.instances.operation_outcomes import Item
from ...ledger.compute import history, instances
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ..images import dead_images, host_images
from ..volumes.requests import VolumeSettings
from . import operation as engine
from . import volume_backed
from .operation import Begun, Operation, Selection

Images = t.Dict[str, StoredImage]  # by the uuids of instances


def begin(
    tx: Transaction,
    operation: Operation,
    selection: Selection,
    known_hosts: t.Collection[str],
    request: SnapshotRequest,
    limits: t.Mapping[str, t.Any] | None = None,
    volume_settings: VolumeSettings | None = None,
) -> tuple[Begun, Images]:
    """Begin the operation, and make an image for each instance that has none of the name. Returns also the images, existing ones included.

    An image of the name whose bytes did not arrive, or that a dead run has left, is replaced.

    :arg limits: bootflow_quotas. :arg volume_settings: of snapshots of volumes; None: no instance whose root is a volume is accepted by ``request``
    :raises MetadataLimitExceeded: a project may not give so many properties.
    :raises BootflowError: see flows.instances.operation.begin() and volume_backed.begin(); ImageExists, ImageInUse, QemuGuestAgentNotEnabled:
        of all instances that cannot begin. Nothing is written then.
    """
    if volume_settings is not None:
        volume_backed.wait_for_turn(tx, engine.select(tx, selection, lock=False))
    rows = engine.select(tx, selection, operation=operation)
    engine.refuse_unknown(tx, rows, selection, known_hosts)
    request.check_count(len(rows))
    for project in sorted({r.project for r in rows}):
        request.check_quota(quotas.limits_of(limits, project))
    wanted, existing = _wanted(tx, rows, request)
    begun = engine.enter(tx, operation, [r for r in rows if r.uuid not in existing], known_hosts)
    begun.unchanged += [r for r in rows if r.uuid in existing]
    history.start_events_on(tx, {r.uuid: r.host for r in begun.rows}, operation.name)
    dead_images.end_dead(tx)
    of_volumes = [r for r in begun.rows if volume_backed.is_volume_backed(r)]
    if of_volumes:
        if volume_settings is None:
            raise TypeError("snapshots of volumes need their settings")
        wanted.update(volume_backed.begin(tx, of_volumes, wanted, volume_settings))
    uuids = {r.uuid for r in of_volumes}
    images.create(tx, [image for uuid, image in wanted.items() if uuid in uuids])
    for uuid in sorted(uuids):
        images.own(tx, wanted[uuid].id)
    host_images.enter(tx, [(image, request.store.name) for uuid, image in wanted.items() if uuid not in uuids])
    return begun, {**wanted, **existing}


def _wanted(tx: Transaction, rows: t.Sequence[Instance], request: SnapshotRequest) -> tuple[Images, Images]:
    """Return the images to make and the ones that are there. Images that are to be replaced are deleted.


    :raises BootflowError: see begin()
    """
    refused: list[errors.BootflowError] = []
    wanted: Images = {}
    existing: Images = {}
    replaced: list[StoredImage] = []
    projects = sorted({r.project for r in rows})
    for project in projects:
        images.lock_names(tx, project, {request.name_of(r.display_name) for r in rows if r.project == project})
    for project in projects:
        of_project = [r for r in rows if r.project == project]
        names = {request.name_of(r.display_name) for r in of_project}
        by_name = host_images.named(tx, project, names, refused)
        for row in of_project:
            try:
                if volume_backed.is_volume_backed(row):
                    request.check_volume_backed(row.display_name, row.uuid, row.vm_state)
                snapshots.quiesce_of(row.display_name, properties_of(row), row.vm_state)
                image = request.image_of(tx.new_id(), row.display_name, row.uuid, project, tx.actor, row.spec)
                active = [i for i in by_name.get(image.name, ()) if i.status == life.ACTIVE]
                same = request.existing_of(active, row.display_name, row.uuid)
                if same is not None:
                    existing[row.uuid] = same
                else:
                    wanted[row.uuid] = image
            except errors.BootflowError as e:
                e.details[engine.WHOSE] = row.display_name
                refused.append(e)
        names = {wanted[r.uuid].name for r in of_project if r.uuid in wanted}
        replaced += [i for name in names for i in by_name.get(name, ()) if i.status != life.ACTIVE]
    engine.refuse(refused)
    for image in replaced:
        dead_images.delete_unfinished(tx, image, "Another snapshot has its name.")
    return wanted, existing


def properties_of(row: Instance) -> t.Mapping[str, t.Any]:
    """Return the properties of an instance's own image."""
    return t.cast("t.Mapping[str, t.Any]", (row.spec["image"] or {}).get("properties") or {})


def finish(
    tx: Transaction,
    image_ids: t.Mapping[str, str],
    answers: t.Mapping[str, Item],
    failed: t.Mapping[str, errors.BootflowError],
    store: str,
) -> dict[str, errors.BootflowError]:
    """Write what became of the images of an operation that this run ends. Returns see host_images.finish().

    :arg image_ids: by the uuids of instances. :arg failed: also instances that were deleted meanwhile
    """
    of_instances = [row.id for row in images.select(tx, instance_uuids=image_ids)]
    failures = host_images.finish(tx, image_ids, answers, failed, store, of_instances)
    history.add_faults(tx, failures, instances.hosts_of(tx, failures))
    return failures


def note_of(image: StoredImage) -> str:
    """Return the note of an instance in the table of the operation."""
    return "image %s %s" % (image.name, image.id)
