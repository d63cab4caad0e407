# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attaching volumes to instances: begun here, done by the hosts, finished here.

source: Nova's compute API attach_volume (Queens)
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.disks.block_devices import PlannedDisk, attached_disk, planned_disk
from ...core.disks.disk_names import default_bus, free_name
from ...core.model import BlockDevice, Flavor
from ...core.reading.problems import Problems
from ...core.volumes import attach_rules
from ...core.volumes import states as volume_states
from ...core.volumes.attachment import DONE, ON_THE_WAY
from ...ledger.compute import claims, instances, nodes, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments, volume_history, volumes
from ...ledger.storage.attachments import Attachment
from .. import entry
from . import changes, life, requests
from .changes import Begun
from .life import Connectors
from .requests import AttachmentRequest

ATTACH = "attach_volume"  # event, and Nova's action

# Names reserved for a config drive (disk, or CD-ROM on IDE, SATA or SCSI).
_CONFIG_DRIVE_NAMES = ("vdz", "hda", "sda")


def begin_attach(
    tx: Transaction,
    entries: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    connectors: Connectors,
    cross_az_attach: bool,
) -> Begun:
    """Reserve the volumes for their instances, and resume attachments that a dead run left on the way.

    :arg entries: bootflow_attachments. :arg connectors: called for the hosts of these instances only.
    :raises InvalidRequest: all errors of all entries, with paths attachments[i]; nothing is written then.
    """
    runs.renew(tx)
    refusals = Problems()
    begun = Begun()
    again: list[Attachment] = []
    new: list[AttachmentRequest] = []
    read = requests.read(tx, entries, project, True, refusals)
    there = attachments.of_volumes(tx, [r.volume.id for r in read])
    names = _Names(tx, [r.instance for r in read])
    for request in read:
        with refusals.collect(request.path):
            mine = [a for a in there.get(request.volume.id, ()) if a.instance_uuid == request.instance.uuid]
            current = next((a for a in mine if a.attach_status != volume_states.DETACHED), None)
            if current is not None and _as_requested(current, request, tx):
                begun.unchanged.append(request.volume.name or request.volume.id)
            elif current is not None:
                again.append(current)
            else:
                _check_attach(tx, request, there.get(request.volume.id, ()), cross_az_attach)
                request.disk = names.disk(request)
                new.append(request)
    refusals.raise_if_any()
    hosts = {r.instance.uuid: (r.instance.host, r.instance.node) for r in read}
    ids = [_attach(tx, request, cross_az_attach) for request in new]
    changes.resume(tx, again)
    ids += [a.id for a in again]
    moving = {a.instance_uuid for a in attachments.select(tx, ids=ids)}
    places = {u: t.cast("tuple[str, str]", where) for u, where in hosts.items() if u in moving}
    known = {u: connectors(where[0], nodes.node_facts(tx, *where)) for u, where in places.items()}
    life.bind_hosts(tx, known)
    return changes.begin(tx, begun, ids, ATTACH)


def _check_attach(
    tx: Transaction, request: AttachmentRequest, there: t.Sequence[Attachment], cross_az_attach: bool
) -> None:
    attachments.check_not_locked(tx, request.volume, there)
    entry.check(tx, ATTACH, request.instance)
    attach_rules.check_attach_to_instance(
        volumes.to_volume(request.volume),
        request.instance.uuid,
        volumes.attachments_of(tx, [request.volume.id]).get(request.volume.id, []),
        nodes.zone_of(tx, request.instance.host, request.instance.node),
        cross_az_attach,
        request.mode,
    )


def _as_requested(row: Attachment, request: AttachmentRequest, tx: Transaction) -> bool:
    """Whether the guest already has the volume; False: it is on the way, left by a dead run or by this one.

    :raises InvalidVolume: attached with another device or mode. :raises VolumeLocked: another run is attaching it.
    """
    attachments.check_not_locked(tx, request.volume, [row])
    requested = {"device": request.device and "/dev/" + request.device.replace("/dev/", "", 1), "mode": request.mode}
    has = {"device": row.mountpoint if request.device else None, "mode": row.attach_mode}
    if requested != has:
        raise errors.InvalidVolume(
            reason="volume %s already attached" % request.volume.id,
            remedy="The volume is attached to this instance as %s, %s: detach it first."
            % (row.mountpoint, row.attach_mode),
        )
    return bool(row.attach_status == volume_states.ATTACHED)


class _Names:
    """Free names of disks in a guest."""

    def __init__(self, tx: Transaction, guests: t.Sequence[Instance]):
        uuids = sorted({g.uuid for g in guests})
        self.disks = instances.disks_of(tx, uuids)
        self.allocations = claims.allocations_of(tx, uuids)
        self.taken: dict[str, set[str]] = {}

    def disk(self, request: AttachmentRequest) -> PlannedDisk:
        guest = request.instance
        properties = (guest.spec["image"] or {}).get("properties") or {}
        if guest.uuid not in self.taken:
            self.taken[guest.uuid] = self._taken(guest, properties)
        taken = self.taken[guest.uuid]
        bdm = BlockDevice(
            source_type="volume",
            destination_type="volume",
            uuid=request.volume.id,
            volume_size=request.volume.size,
            device_name=request.device,
            disk_bus=request.disk_bus,
            delete_on_termination=request.delete_on_termination,
            tag=request.tag,
        )
        disk = attached_disk(Flavor(**guest.spec["flavor"]), bdm, taken, properties)
        taken.add(disk.dev)
        return disk

    def _taken(self, guest: Instance, properties: t.Mapping[str, t.Any]) -> set[str]:
        """The names of the guest's disks, including those assigned when its domain is written, which thus stay the same."""
        found = {planned_disk(d).dev for d in self.disks[guest.uuid]}
        for _disk in (self.allocations.get(guest.uuid) or {}).get("disks") or ():
            found.add(free_name(default_bus("disk", properties), found))
        return found | set(_CONFIG_DRIVE_NAMES if guest.config_drive else ())


def _attach(tx: Transaction, request: AttachmentRequest, cross_az_attach: bool) -> str:
    disk = t.cast(PlannedDisk, request.disk)
    instances.add_disk(tx, request.instance.uuid, disk.device_name, disk.as_dict())
    return life.reserve(
        tx,
        request.volume,
        request.instance.uuid,
        disk.device_name,
        mode=request.mode,
        delete_on_termination=request.delete_on_termination,
        instance_zone=nodes.zone_of(tx, request.instance.host, request.instance.node),
        cross_az_attach=cross_az_attach,
    )


def to_attach(tx: Transaction, host: str) -> list[Attachment]:
    """Attachments of this run for compute host ``host`` to connect and attach; without those of its builds."""
    return [r for r in changes.of_host(tx, host, volume_states.ATTACHING) if r.export == DONE]


def attach_failed(tx: Transaction, failures: t.Mapping[str, errors.BootflowError]) -> None:
    """Enter failures: each attachment ends when its target is gone. {attachment id: why}"""
    rows = attachments.select(tx, ids=failures, run_id=tx.run.id, lock=True)
    for row in rows:
        volume_history.add_fault(tx, row.volume_id, failures[row.id], row.attached_host)
    life.end_alone(tx, [r for r in rows if r.attach_status in ON_THE_WAY])


def finish_attach(tx: Transaction) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """The results of this run: (attached, not attached with their errors). The latter attachments end."""

    def attached(row: Attachment) -> bool:
        return row.state is not None and row.attach_status == volume_states.ATTACHED

    done, left, rows = changes.finish(tx, ATTACH, attached)
    waiting = [r for r in rows if r.state is not None and r.attach_status in ON_THE_WAY]
    life.end_alone(tx, waiting)
    attachments.release_ownership(tx, [r.id for r in rows if not attached(r)])
    return done, left
