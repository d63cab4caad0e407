# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning and the end of an unshelve. An instance that is still on its host starts there; one without a host gets one, as in a boot.

source: Nova's API.unshelve, ComputeTaskManager.unshelve_instance and ComputeManager._unshelve_instance
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.images import life
from ...core.images.image import StoredImage
from ...core.images.resolve import LedgerImages
from ...core.images.shelving import Destination, Wish
from ...core.instances import states
from ...core.request.catalogue_images import image_data
from ...core.request.guest_data import GuestSecrets
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import history, instances, nodes, requests, shelved
from ...ledger.compute.claims import BUILD, Candidate
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.images import images
from ...ledger.storage import attachments
from ..attachments import life as attachment_life
from ..attachments import moving
from ..instances import operation as engine
from ..instances import shelved as life_of_shelved
from ..instances.operation import Begun, Selection
from ..instances.operations import OPERATIONS
from ..instances.rebuild import check_guest_data, check_same_guest_data
from .moving_instance import relocate
from .place import Mover, ReadFleet, claim

UNSHELVE = OPERATIONS["unshelve"]

ImageData = t.Dict[str, t.Any]  # of an image, as a request stores it


@dataclass(frozen=True)
class Wanted:
    """The unshelves that a run asks for."""

    selection: Selection
    known_hosts: t.Collection[str]
    wish: Wish = Wish()
    images: LedgerImages = field(default_factory=LedgerImages)
    secrets_of: t.Callable[[str, str], GuestSecrets | None] = lambda project, name: None  # as of a rebuild
    stored_secrets_of: t.Callable[[Transaction, t.Mapping[str, t.Any]], GuestSecrets | None] = lambda tx, digest: (
        None
    )  # as of a rebuild
    kept_in: str | None = None  # as of a rebuild
    inventory: t.Collection[str] | None = None  # hosts that plays reach, the storage hosts among them; None: any host


@dataclass
class Unshelving:
    """The unshelves that a run has begun."""

    begun: Begun
    #: uuid -> the image that its root disk is made from, of instances that get a host; None: its root is a volume
    images: dict[str, ImageData | None] = field(default_factory=dict)


def needs_host(tx: Transaction, selection: Selection) -> bool:
    """Whether a selected instance has no host. Nothing is locked."""
    rows = engine.select(tx, selection, lock=False, operation=UNSHELVE)
    return any(r.vm_state == states.SHELVED_OFFLOADED for r in rows)


def begin(tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions) -> Unshelving:
    """Begin to unshelve the selected instances: all of them, or with an error none.

    :raises BootflowError: see flows.instances.operation.begin(); UnshelveInstanceInvalidState, UnshelveHostNotInAZ, UnshelveException,
        ImageNotReadable, GuestDataRequired, GuestDataDiffers, InvalidVolume; NoValidHost: there is no host for one of them.
    """
    rows = engine.select(tx, wanted.selection, operation=UNSHELVE)
    engine.refuse_unknown(tx, rows, wanted.selection, wanted.known_hosts)
    if wanted.wish.host is not None and wanted.wish.host not in wanted.known_hosts:
        raise errors.ComputeHostNotFound(host=wanted.wish.host)
    offloaded = {r.uuid: r for r in rows if r.vm_state == states.SHELVED_OFFLOADED}
    destinations, made_of = _check(tx, wanted, rows, offloaded)
    if offloaded:
        attachments.lock(tx, offloaded)  # before any node is
    _take_back(tx, list(offloaded.values()))
    begun = engine.enter(tx, UNSHELVE, [r for r in rows if r.uuid not in offloaded], wanted.known_hosts)
    begun.rows += engine.enter(tx, UNSHELVE, list(offloaded.values())).rows
    _place(tx, offloaded, destinations, read_fleet, options)
    begun.rows = instances.select_live(tx, uuids=[r.uuid for r in begun.rows]) if begun.rows else []
    history.start_events_on(tx, {r.uuid: r.host for r in begun.rows}, UNSHELVE.name)
    return Unshelving(begun, made_of)


def _check(
    tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance], offloaded: t.Mapping[str, Instance]
) -> tuple[dict[str, Destination], dict[str, ImageData | None]]:
    """Return where instances without a host may come back, and the images of their root disks. :raises BootflowError: see begin()"""
    zones = nodes.zones(tx) if wanted.wish.host is not None else {}
    kept_rows = shelved.of_instances(tx, offloaded)
    ids = sorted({k.image_id for k in kept_rows.values() if k.image_id is not None})
    stored = {i.id: i for i in images.stored(tx, images.select(tx, ids=ids))} if ids else {}
    refused_volumes = (
        moving.refusals(tx, dict.fromkeys(offloaded), nodes.forced_down(tx), wanted.inventory) if offloaded else {}
    )
    destinations: dict[str, Destination] = {}
    made_of: dict[str, ImageData | None] = {}
    refused: list[errors.BootflowError] = []
    for row in rows:
        if row.vm_state not in (states.SHELVED, states.SHELVED_OFFLOADED):
            continue
        try:
            pinned = row.spec["availability_zone"]
            destinations[row.uuid] = wanted.wish.of_instance(row.uuid, row.vm_state, pinned, zones.get)
            if row.uuid not in offloaded:
                continue
            if row.uuid in refused_volumes:
                raise refused_volumes[row.uuid]
            kept_row = kept_rows.get(row.uuid)
            made_of[row.uuid] = _image_of(row, None if kept_row is None else kept_row.image_id, stored, wanted.images)
            secrets = wanted.secrets_of(row.project, row.display_name)
            if secrets is not None:
                check_same_guest_data(row, secrets)
            elif row.config_drive:
                check_guest_data(row, wanted.stored_secrets_of(tx, row.digest), wanted.kept_in)
        except errors.BootflowError as e:
            e.details[engine.WHOSE] = row.display_name
            refused.append(e)
    engine.refuse(refused)
    return destinations, made_of


def _image_of(
    row: Instance, image_id: str | None, stored: t.Mapping[str, StoredImage], ledger_images: LedgerImages
) -> ImageData | None:
    """Return the image that a root disk is made from; None: the root is a volume.

    :raises UnshelveException: it is gone. :raises ImageNotReadable: no host gets it.
    """
    if row.spec.get("is_bfv"):
        return None
    image = stored.get(image_id or "")
    if image is None or image.status != life.ACTIVE:
        raise errors.UnshelveException(
            instance_id=row.uuid,
            reason="Unshelve attempted but the image %s cannot be found." % (image_id or "(none)"),
            remedy="Nothing of the root disk is left: delete the instance, and boot it again.",
        )
    return image_data(ledger_images.as_image(image))


def _take_back(tx: Transaction, rows: t.Sequence[Instance]) -> None:
    """Take instances from the hosts where a dead run began to build them, which owe cleanups then. They get other hosts."""
    dead = engine.dead_runs(tx, rows)
    of_dead = [r for r in rows if instances.is_placed(r) and UNSHELVE.is_begun(r.task_state) and r.run_id in dead]
    life_of_shelved.leave_hosts(tx, of_dead, unclean=[r.uuid for r in of_dead])
    for row in of_dead:
        row.host = row.node = None  # type: ignore[assignment]


def _place(
    tx: Transaction,
    rows: t.Mapping[str, Instance],
    destinations: t.Mapping[str, Destination],
    read_fleet: ReadFleet,
    options: SchedulerOptions,
) -> None:
    """Claim hosts for instances without one, and put them there. :raises BootflowError: there is none for one of them"""
    if not rows:
        return
    zones = {u: destinations[u].zone for u in rows}
    movers = [
        Mover(t.cast(PlacedInstance, row), {**row.spec, "availability_zone": zones[uuid]}, only=destinations[uuid].host)
        for uuid, row in rows.items()
    ]
    moving.cut_off(tx, rows)  # from hosts that are forced down: with any other connection it is refused
    attachment_life.unbind_lost(tx, rows)
    moving.adopt(tx, rows)
    hosts = claim(tx, movers, read_fleet, options, kind=BUILD)
    refused = {u: h for u, h in hosts.items() if isinstance(h, errors.BootflowError)}
    for uuid, error in refused.items():
        error.details[engine.WHOSE] = rows[uuid].display_name
    engine.refuse(list(refused.values()))
    placed = {u: h for u, h in hosts.items() if isinstance(h, Candidate)}
    relocate(tx, [(u, h.host, h.node, dict(h.limits)) for u, h in sorted(placed.items())])
    _pin(tx, [r for u, r in rows.items() if zones[u] != r.spec["availability_zone"]], zones)


def _pin(tx: Transaction, rows: t.Sequence[Instance], zones: t.Mapping[str, str | None]) -> None:
    """Write the availability zones that bind instances from now on. Instances that shared a request share the new one."""
    together: dict[tuple[int, str | None], list[Instance]] = {}
    for row in rows:
        together.setdefault((row.request_spec_id, zones[row.uuid]), []).append(row)
    ids = requests.new_ids(tx, len(together)) if together else ()
    for ((_former, zone), members), spec_id in zip(together.items(), ids):
        first = members[0]
        entry = requests.Entry(spec_id, first.digest, {**first.spec, "availability_zone": zone})
        requests.add_specs(tx, first.reservation_id, [entry])
        uuids = [r.uuid for r in members]
        instances.write(tx, uuids, request_spec_id=spec_id, availability_zone=zone)


# --- finish -------------------------------------------------------------------------------------------------------------


def finish(tx: Transaction, started: t.Collection[str], built: t.Collection[str], failed: t.Mapping[str, bool]) -> None:
    """Write what became of instances, where their states are written.

    :arg started: they are not shelved any more. :arg built: the ones of them that got a host.
    :arg failed: uuid -> whether the host has nothing of it: it has no host again, and a host that has something owes a cleanup
    """
    instances.write(tx, sorted(built), launched_at=tx.now)
    rows = (
        [r for r in instances.select_live(tx, uuids=sorted(failed), lock=True) if instances.is_placed(r)]
        if failed
        else []
    )
    rows = [r for r in rows if (r.vm_state, r.task_state, r.run_id) == (states.SHELVED_OFFLOADED, None, tx.run.id)]
    life_of_shelved.leave_hosts(tx, rows, unclean=[r.uuid for r in rows if not failed[r.uuid]])
    life_of_shelved.end(tx, started)
