# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning and the end of a shelve and of an offload. In between hosts shut guests down, make images, and remove guests and disks.

An image is active before anything is removed: a run that dies at any moment leaves either the disks of the instance or a whole image.
source: Nova's API.shelve, API.shelve_offload, ComputeManager._shelve_instance and _shelve_offload_instance
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.images import life, shelving
from ...core.images.shelving import ShelveRequest
from ...core.instances import states
from ...core.instances.operation_outcomes import Item
from ...ledger.compute import history, instances, nodes, shelved
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ..attachments import moving
from ..images import dead_images
from . import operation as engine
from . import shelved as life_of_shelved
from .operation import Begun, Selection
from .operations import OPERATIONS
from .snapshots import Images
from .volume_backed import is_volume_backed

SHELVE, OFFLOAD = OPERATIONS["shelve"], OPERATIONS["shelve_offload"]


def begin(
    tx: Transaction, selection: Selection, known_hosts: t.Collection[str], request_of: t.Callable[[], ShelveRequest]
) -> tuple[Begun, Images]:
    """Begin to shelve the selected instances: all of them, or with an error none. Returns also the images, of instances without a root volume.

    :arg request_of: returns the images of the run; called where an instance needs one
    :raises BootflowError: see flows.instances.operation.begin(); MoveNotSupported: of all instances that cannot be shelved.
    """
    rows = engine.select(tx, selection, operation=SHELVE)
    engine.refuse_unknown(tx, rows, selection, known_hosts)
    begun = engine.enter(tx, SHELVE, rows, known_hosts)
    history.start_events_on(tx, {r.uuid: r.host for r in begun.rows}, SHELVE.name)
    with_image = [r for r in begun.rows if not is_volume_backed(r)]
    request = request_of() if with_image else None
    refused: list[errors.BootflowError] = []
    for row in begun.rows:
        try:
            shelving.refuse_whole_disks(row.uuid, row.spec)
        except errors.BootflowError as e:
            e.details[engine.WHOSE] = row.display_name
            refused.append(e)
    engine.refuse(refused)
    dead_images.end_dead(tx)
    made: Images = {}
    if request is not None:
        for row in with_image:
            made[row.uuid] = request.image_of(tx.new_id(), row.display_name, row.uuid, row.project, tx.actor, row.spec)
        images.create(tx, list(made.values()))
        for image in made.values():
            images.apply(tx, image.id, life.UPLOAD_BEGUN, store=request.store.name)
    return begun, made


def finish(
    tx: Transaction,
    items: t.Mapping[str, Item],
    failed: t.Mapping[str, errors.BootflowError],
    without_image: t.Collection[str] = (),
) -> None:
    """Enter the instances that this run has shelved. Called where their states and images are written.

    :arg without_image: instances whose images were deleted meanwhile: their guests are off, and their disks are the only copy
    """
    instances.write(tx, sorted(set(without_image) - set(failed)), vm_state=states.STOPPED)
    done = {uuid: item for uuid, item in items.items() if uuid not in {*failed, *without_image}}
    ids = {uuid: item["image"]["id"] if item.get("image") else None for uuid, item in done.items()}
    shelved.add(tx, ids, {uuid: str(item["host"]) for uuid, item in done.items()})


# --- offload ------------------------------------------------------------------------------------------------------------


def begin_offload(
    tx: Transaction, rows: t.Sequence[Instance], known_hosts: t.Collection[str], alone: bool = False
) -> tuple[Begun, dict[str, errors.BootflowError]]:
    """Begin to take these locked instances from their hosts. Returns also why instances stay where they are: none but with ``alone``.

    To be called before any node is locked, as it locks volumes.

    :arg alone: of instances that are due. One that cannot begin does not stop the others, and a lock stops none, as in Nova, where a task of the host
        does this. An instance that is not shelved any more is left out.
    :raises BootflowError: see flows.instances.operation.begin(); MoveNotSupported, InvalidVolume, VolumeLocked; InstanceNotReady: nothing is left to
        build an instance from.
    """
    on_hosts = [r for r in rows if r.vm_state == states.SHELVED]
    kept_rows = shelved.of_instances(tx, [r.uuid for r in on_hosts])
    refused = moving.refusals(tx, {r.uuid: r.host for r in on_hosts}, nodes.forced_down(tx)) if on_hosts else {}
    ids = sorted({k.image_id for k in kept_rows.values() if k.image_id is not None})
    active = {r.id for r in images.select(tx, ids=ids, statuses=[life.ACTIVE])} if ids else set()
    for row in on_hosts:
        try:
            shelving.refuse_whole_disks(row.uuid, row.spec)
            if alone and row.host not in known_hosts:
                raise errors.ComputeHostNotFound(host=str(row.host), remedy="Put the host into the inventory.")
            kept_row = kept_rows.get(row.uuid)
            if kept_row is None or not (is_volume_backed(row) or kept_row.image_id in active):
                raise errors.InstanceNotReady(
                    message="Instance %s has no image that it could be built from" % row.uuid,
                    remedy="Its disks on %s are the only copy: run bootflow.compute.unshelve." % row.host,
                )
        except errors.BootflowError as e:
            refused.setdefault(row.uuid, e)
    for row in on_hosts:
        if row.uuid in refused:
            refused[row.uuid].details[engine.WHOSE] = row.display_name
    if alone:
        begun = Begun([r for r in on_hosts if r.uuid not in refused])
        engine.start(tx, OFFLOAD, begun.rows)
    else:
        engine.refuse(list(refused.values()))
        begun = engine.enter(tx, OFFLOAD, rows, known_hosts)
    # No other run ends, or begins to share, a session of the host meanwhile.
    moving.adopt(tx, [r.uuid for r in begun.rows])
    history.start_events_on(tx, {r.uuid: r.host for r in begun.rows}, OFFLOAD.name)
    return begun, refused


def due(tx: Transaction, seconds: int) -> list[Instance]:
    """Return the shelved instances that are to leave their hosts, locked. :arg seconds: bootflow_shelved_offload_time"""
    uuids = shelved.older_than(tx, None if seconds < 0 else float(seconds))
    rows = instances.select_live(tx, uuids=uuids, lock=True) if uuids else []
    dead = engine.dead_runs(tx, rows)
    return [r for r in rows if r.task_state is None or (OFFLOAD.is_begun(r.task_state) and r.run_id in dead)]


def leaving_lost_hosts(
    tx: Transaction, outcomes: t.Mapping[str, engine.Outcome], hosts: t.Mapping[str, str]
) -> tuple[dict[str, engine.Outcome], set[str]]:
    """Return the outcomes with success for instances that failed on hosts that are forced down, and these: such a host owes a cleanup.

    A host that refuses to remove an instance is not lost.

    :arg hosts: uuid -> the host of the instance
    """
    failed = {uuid for uuid, o in outcomes.items() if o.error is not None and not isinstance(o.error, errors.Conflict)}
    down = nodes.forced_down(tx) if failed else set()
    unclean = {uuid for uuid in failed if hosts[uuid] in down}
    return {u: engine.Outcome(states.SHUTDOWN) if u in unclean else o for u, o in outcomes.items()}, unclean


def finish_offload(
    tx: Transaction, outcomes: t.Mapping[str, engine.Outcome], hosts: t.Mapping[str, str]
) -> dict[str, errors.BootflowError]:
    """Write what came of the offloads of this run. Returns uuid -> why it failed. :arg hosts: uuid -> the host of the instance"""
    endings, unclean = leaving_lost_hosts(tx, outcomes, hosts)
    failed = engine.finish(tx, OFFLOAD, endings)
    leave_hosts(tx, endings, failed, unclean)
    return failed


def leave_hosts(
    tx: Transaction,
    uuids: t.Iterable[str],
    failed: t.Mapping[str, errors.BootflowError],
    unclean: t.Collection[str] = (),
) -> None:
    """Take instances that are offloaded now from their hosts. :arg failed: they stay. :arg unclean: their hosts may have something of them still"""
    done = sorted(set(uuids) - set(failed))
    rows = [r for r in instances.select_live(tx, uuids=done, lock=True) if instances.is_placed(r)] if done else []
    life_of_shelved.leave_hosts(tx, rows, unclean)
