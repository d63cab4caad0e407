# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that instances get while they live: begun here, done by the hosts, finished here.

source: Nova's compute API attach_volume (Queens)
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.disks.block_devices import PlannedDisk, attached_disk, planned_disk
from ...core.disks.disk_names import default_bus, free_name
from ...core.instances import states
from ...core.model import BlockDevice, Flavor
from ...core.reading.problems import Problems
from ...core.volumes import attach_rules
from ...core.volumes import states as volume_states
from ...ledger.compute import claims, instances, nodes, runs
from ...ledger.context import Context
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import block_device_mappings, compute_nodes, volume_attachments
from ...ledger.schema.volume_tables import DONE
from ...ledger.storage import attachment_reservations, attachments, volume_history, volumes
from ...ledger.storage.attachment_rows import ON_THE_WAY, check_locked
from . import changes, requests
from .changes import Begun
from .requests import Wish

ATTACH = "attach_volume"  # event, and Nova's action

Ends = t.Callable[[str, t.Mapping[str, t.Any]], attachments.HostEnd]  # host, facts of its node

_a = volume_attachments.c
# What a config drive may be called on its host (disk, or CD-ROM on IDE, SATA or SCSI): kept free.
_CONFIG_DRIVE_NAMES = ("vdz", "hda", "sda")


def begin_attach(
    conn: t.Any,
    wishes: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    ends: Ends,
    cross_az_attach: bool,
    context: Context,
) -> Begun:
    """Reserve the volumes for their instances; what a dead run left on its way goes on.

    :arg wishes: bootflow_attachments. :arg ends: gives the end of an instance's host; asked for the hosts needed only.
    :raises InvalidRequest: all that is wrong with all of them, with paths attachments[i]; nothing is written then.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    refusals = Problems()
    begun = Begun()
    again: list[t.Any] = []
    new: list[Wish] = []
    read = requests.read(conn, wishes, project, True, refusals)
    there = attachments.of_volumes(conn, [w.volume.id for w in read])
    names = _Names(conn, [w.guest for w in read])
    for wish in read:
        with refusals.collect(wish.path):
            mine = [a for a in there.get(wish.volume.id, ()) if a.instance_uuid == wish.guest.uuid]
            current = next((a for a in mine if a.attach_status != volume_states.DETACHED), None)
            if current is not None and _as_asked(current, wish, context, conn):
                begun.unchanged.append(wish.volume.name or wish.volume.id)
            elif current is not None:
                again.append(current)
            else:
                _check_attach(conn, wish, there.get(wish.volume.id, ()), cross_az_attach, context)
                wish.disk = names.disk(wish)
                new.append(wish)
    refusals.raise_if_any()
    hosts = {w.guest.uuid: (w.guest.host, w.guest.node) for w in read}
    ids = [_attach(conn, wish, cross_az_attach, context) for wish in new]
    changes.take(conn, again, context)
    ids += [a.id for a in again]
    moving = {a.instance_uuid for a in attachments.by_ids(conn, ids).values()}
    known = {uuid: ends(where[0], nodes.node_facts(conn, *where)) for uuid, where in hosts.items() if uuid in moving}
    attachments.place(conn, known, context)
    return changes.begin(conn, begun, ids, ATTACH, context)


def _check_attach(conn: t.Any, wish: Wish, there: t.Sequence[t.Any], cross_az_attach: bool, context: Context) -> None:
    check_locked(conn, wish.volume, there, context)
    states.check_action(
        ATTACH,
        wish.guest.vm_state,
        wish.guest.task_state,
        launched=wish.guest.launched_at is not None,
        instance_uuid=wish.guest.uuid,
    )
    attach_rules.check_attach_to_instance(
        volumes.to_volume(wish.volume),
        wish.guest.uuid,
        volumes.attachments_of(conn, [wish.volume.id]).get(wish.volume.id, []),
        _zone_of(conn, wish.guest),
        cross_az_attach,
        wish.mode,
    )


def _zone_of(conn: t.Any, guest: t.Any) -> str | None:
    c = compute_nodes.c
    query = sa.select(c.availability_zone).where(c.host == guest.host, c.node == guest.node)
    return t.cast("str | None", conn.execute(query).scalar())


def _as_asked(row: t.Any, wish: Wish, context: Context, conn: t.Any) -> bool:
    """Whether the guest has it already; False: it is on its way, left by a run that is dead or this one's.

    :raises InvalidVolume: it has it in another way than asked. :raises VolumeLocked: another run is attaching it.
    """
    check_locked(conn, wish.volume, [row], context)
    asked = {"device": wish.device and "/dev/" + wish.device.replace("/dev/", "", 1), "mode": wish.mode}
    has = {"device": row.mountpoint if wish.device else None, "mode": row.attach_mode}
    if asked != has:
        raise errors.InvalidVolume(
            reason="volume %s already attached" % wish.volume.id,
            remedy="It is attached to this instance as %s, %s: detach it first." % (row.mountpoint, row.attach_mode),
        )
    return bool(row.attach_status == volume_states.ATTACHED)


class _Names:
    """Gives out names of disks that a guest does not have yet."""

    def __init__(self, conn: t.Any, guests: t.Sequence[t.Any]):
        uuids = sorted({g.uuid for g in guests})
        self.disks = instances.disks_of(conn, uuids)
        self.parts = claims.parts_of(conn, uuids)
        self.taken: dict[str, set[str]] = {}

    def disk(self, wish: Wish) -> PlannedDisk:
        guest = wish.guest
        properties = (guest.spec["image"] or {}).get("properties") or {}
        if guest.uuid not in self.taken:
            self.taken[guest.uuid] = self._taken(guest, properties)
        taken = self.taken[guest.uuid]
        bdm = BlockDevice(
            source_type="volume",
            destination_type="volume",
            uuid=wish.volume.id,
            volume_size=wish.volume.size,
            device_name=wish.device,
            disk_bus=wish.disk_bus,
            delete_on_termination=wish.delete_on_termination,
            tag=wish.tag,
        )
        disk = attached_disk(Flavor(**guest.spec["flavor"]), bdm, taken, properties)
        taken.add(disk.dev)
        return disk

    def _taken(self, guest: t.Any, properties: t.Mapping[str, t.Any]) -> set[str]:
        """Its disks, and those that get their names from what is free when its domain is written: they keep them so."""
        found = {planned_disk(d).dev for d in self.disks[guest.uuid]}
        for _disk in (self.parts.get(guest.uuid) or {}).get("disks") or ():
            found.add(free_name(default_bus("disk", properties), found))
        return found | set(_CONFIG_DRIVE_NAMES if guest.config_drive else ())


def _attach(conn: t.Any, wish: Wish, cross_az_attach: bool, context: Context) -> str:
    disk = t.cast(PlannedDisk, wish.disk)
    c = block_device_mappings.c
    last = conn.execute(sa.select(sa.func.max(c.position)).where(c.instance_uuid == wish.guest.uuid)).scalar()
    conn.execute(
        block_device_mappings.insert().values(
            instance_uuid=wish.guest.uuid,
            position=0 if last is None else last + 1,
            device_name=disk.device_name,
            disk=disk.as_dict(),
        )
    )
    return attachment_reservations.reserve(
        conn,
        wish.volume,
        wish.guest.uuid,
        disk.device_name,
        context,
        mode=wish.mode,
        delete_on_termination=wish.delete_on_termination,
        instance_zone=_zone_of(conn, wish.guest),
        cross_az_attach=cross_az_attach,
    )


def to_attach(conn: t.Any, host: str, context: Context) -> list[t.Any]:
    """Attachments of this run that compute host ``host`` can connect and give to its guests; not those of its builds."""
    rows = changes.of_host(conn, host, context, _a.attach_status == volume_states.ATTACHING, _a.export == DONE)
    settled = changes.settled(conn, rows)
    return [r for r in rows if r.instance_uuid in settled]


def attach_failed(conn: t.Any, failures: t.Mapping[str, errors.BootflowError], context: Context) -> None:
    """These could not be attached: the volumes are given back, each when its export has ended. {attachment id: why}"""
    rows = attachments.locked_by_ids(conn, failures, context)
    for row in rows:
        volume_history.add_fault(conn, row.volume_id, failures[row.id], row.attached_host, context.now)
    changes.let_go(conn, [r for r in rows if r.attach_status in ON_THE_WAY], context)


def finish_attach(conn: t.Any, context: Context) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """What became of all that this run began: (attached, left with their errors). What was not attached is given back."""

    def attached(row: t.Any) -> bool:
        return bool(row.deleted == attachments.LIVE and row.attach_status == volume_states.ATTACHED)

    done, left, rows = changes.finish(conn, ATTACH, attached, context)
    waiting = [r for r in rows if r.deleted == attachments.LIVE and r.attach_status in ON_THE_WAY]
    changes.let_go(conn, waiting, context)
    attachments.leave_rows_to_others(conn, [r.id for r in rows if not attached(r)])
    return done, left
