# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attachments: a volume that an instance has, and what is still to be done at both ends of the cable.

An attachment's life: reserve (attachment_reservations) -> place (its instance got a host) -> exported (attachment_exports)
-> connecting -> connected -> attached; and back: disconnected -> unexported (attachment_exports), which gives the volume
back. ``attach_status`` detached in a live row says that it is to end, ``export`` ending that its target is to go. Nothing is
exported before it is known for whom, and no export ends while the compute host may still use it: where ``connection`` is not
none, ``export`` is not none either. What the instance and its compute host do to it is here.
source: Cinder's attachments and Nova's block devices (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes import names, states
from ...flows.volumes import delete
from ..compute import instances
from ..context import Context
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import block_device_mappings, compute_nodes, volume_attachments
from ..schema.tables import volumes as volumes_table
from ..schema.volume_tables import BEGUN, DONE, ENDING, NOTHING
from . import attachment_rows, volume_history, volumes
from .attachment_rows import live, locked, volumes_of, write

LIVE = attachment_rows.LIVE
KERNEL, QEMU = "kernel", "qemu"
WAYS = (KERNEL, QEMU)

_a = volume_attachments.c


@dataclass(frozen=True)
class HostEnd:
    """The compute host's end of its attachments.

    ``initiator``: the IQN of the host's initiator. ``way``: kernel (the host logs in) or qemu (QEMU does).
    """

    host: str  # the inventory's name
    initiator: str
    way: str = KERNEL


@dataclass
class Prospects:
    """What keeps instances from being built: see prospects()."""

    ready: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)


# --- reading --------------------------------------------------------------------------------------------------------


def of_instances(conn: t.Any, uuids: t.Iterable[str]) -> dict[str, list[t.Any]]:
    """uuid -> its live attachments (rows of volume_attachments), by mountpoint; instances without any are left out."""
    found: dict[str, list[t.Any]] = {}
    for row in live(conn, bulk.among(conn, _a.instance_uuid, sorted(set(uuids)))):
        found.setdefault(row.instance_uuid, []).append(row)
    for rows in found.values():
        rows.sort(key=lambda r: (len(r.mountpoint or ""), r.mountpoint or "", r.id))
    return found


def by_ids(conn: t.Any, ids: t.Iterable[str]) -> dict[str, t.Any]:
    """id -> its row, of live ones."""
    return {r.id: r for r in live(conn, bulk.among(conn, _a.id, sorted(set(ids))))}


def of_volumes(conn: t.Any, volume_ids: t.Iterable[str]) -> dict[str, list[t.Any]]:
    """volume id -> its live attachments."""
    found: dict[str, list[t.Any]] = {}
    for row in live(conn, bulk.among(conn, _a.volume_id, sorted(set(volume_ids)))):
        found.setdefault(row.volume_id, []).append(row)
    return found


def locked_by_ids(conn: t.Any, ids: t.Iterable[str], context: Context | None = None) -> list[t.Any]:
    """These attachments with their volumes locked. :arg context: only those of its run."""
    mine = [] if context is None else [_a.run_id == context.run.id]
    return locked(conn, bulk.among(conn, _a.id, sorted(set(ids))), *mine)


def lock(conn: t.Any, instance_uuids: t.Iterable[str]) -> None:
    """Lock the volumes of these instances, by id, until the transaction ends: whoever locks nodes later does it first."""
    locked(conn, bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))))


def connected_to(conn: t.Any, instance_uuid: str, host: str) -> bool:
    """Whether ``host`` may still use a volume of the instance."""
    mine = (_a.instance_uuid == instance_uuid, _a.attached_host == host, _a.connection != NOTHING)
    return bool(live(conn, *mine))


def zones_of(conn: t.Any, instance_uuids: t.Iterable[str]) -> dict[str, str]:
    """uuid -> the zone of its volumes, where one is on a backend already."""
    found: dict[str, str] = {}
    attached_to = of_instances(conn, instance_uuids)
    known = volumes_of(conn, [r for rows in attached_to.values() for r in rows])
    for uuid, rows in attached_to.items():
        placed = [known[r.volume_id] for r in rows if r.volume_id in known and known[r.volume_id].pool_host]
        if placed:
            found[uuid] = placed[0].availability_zone
    return found


def last_fault(conn: t.Any, volume_ids: t.Sequence[str]) -> dict[str, t.Any] | None:
    """The newest fault of these volumes as plain data, or None."""
    faults = volume_history.last_faults(conn, volume_ids) if volume_ids else {}
    return max(faults.values(), key=lambda f: f.get("created_at") or 0, default=None)


# --- to a host --------------------------------------------------------------------------------------------------------


def place(conn: t.Any, instance_uuids_to_host: t.Mapping[str, HostEnd], context: Context) -> None:
    """These instances got their hosts: for whom their volumes are to be exported is known, of those that this run attaches.

    What is still connected elsewhere stays as it is, and its instance is not ready.
    """
    rows = locked(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted(instance_uuids_to_host)),
        _a.run_id == context.run.id,
        _a.attach_status != states.DETACHED,
        _a.attach_status != states.ATTACHED,
    )
    known = volumes_of(conn, rows)
    placed, again = [], []
    for row in rows:
        end = instance_uuids_to_host[row.instance_uuid]
        initiator = _initiator(end, row, known.get(row.volume_id))
        if row.connection != NOTHING and row.attached_host != end.host:
            continue
        placed.append({"id": row.id, "attached_host": end.host, "initiator": initiator, "way": end.way})
        if row.export == DONE and row.initiator != initiator:
            again.append(row.id)
    bulk.update(conn, volume_attachments, "id", placed)
    write(conn, again, export=BEGUN)
    _into_zones(conn, rows, context.now)


def _initiator(end: HostEnd, row: t.Any, volume: t.Any) -> str:
    """The host's, whose one session serves all its guests; where QEMU logs in, each guest of a shared volume has its own."""
    if end.way == QEMU and volume is not None and volume.multiattach:
        return names.attachment_initiator(row.id)
    return end.initiator


def _into_zones(conn: t.Any, rows: t.Sequence[t.Any], now: float) -> None:
    """Volumes that are made for an instance are of its zone, without cross_az_attach. source: _get_volume_create_az_value"""
    guests = {r.uuid: r for r in instances.select_live(conn, uuids=sorted({r.instance_uuid for r in rows}))}
    known = volumes_of(conn, rows)
    zones = {r.host: r.availability_zone for r in conn.execute(sa.select(compute_nodes))}
    for row in rows:
        guest, volume = guests.get(row.instance_uuid), known.get(row.volume_id)
        if guest is None or volume is None or guest.spec.get("cross_az_attach", True):
            continue
        zone = zones.get(guest.host)
        if zone and volume.instance_uuid == guest.uuid and not volume.pool_host and volume.availability_zone != zone:
            spec = {**volume.spec, "availability_zone": zone}
            conn.execute(
                volumes_table.update()
                .where(volumes_table.c.id == volume.id)
                .values(availability_zone=zone, spec=spec, updated_at=now)
            )


def ready(conn: t.Any, instance_uuids: t.Iterable[str]) -> set[str]:
    """Those of the instances whose volumes are all made and exported; one without volumes is ready."""
    return prospects(conn, instance_uuids).ready


def prospects(conn: t.Any, instance_uuids: t.Iterable[str]) -> Prospects:
    """Which of these instances can be built, which wait for volumes, and which never can: each is in one of the three."""
    wanted = sorted(set(instance_uuids))
    found = Prospects()
    attachments = of_instances(conn, wanted)
    rows = [r for group in attachments.values() for r in group]
    known = volumes_of(conn, rows)
    for uuid in wanted:
        group = attachments.get(uuid, [])
        problems = [p for p in (_problem(r, known.get(r.volume_id)) for r in group) if p is not None]
        if problems:
            found.failed[uuid] = problems[0]
        elif all(_is_ready(r, known[r.volume_id]) for r in group):
            found.ready.add(uuid)
        else:
            found.waiting.add(uuid)
    return found


def _is_ready(row: t.Any, volume: t.Any) -> bool:
    return row.export == DONE and volume.status in (states.ATTACHING, states.IN_USE)


def _problem(row: t.Any, volume: t.Any) -> errors.BootflowError | None:
    """Why this volume will never come, or None."""
    if volume is None:
        return not_created(row.volume_id, states.DELETED)
    if row.attach_status == states.ERROR_ATTACHING:
        return errors.ISCSITargetAttachFailed(
            volume_id=row.volume_id, remedy="volume_list tells why its target could not be made."
        )
    if row.attach_status == states.DETACHED or volume.status in (states.ERROR, states.DELETING, states.ERROR_DELETING):
        return not_created(row.volume_id, volume.status)
    return None


def waits_for(conn: t.Any, uuid: str, seconds: float, attempts: int) -> errors.BootflowError:
    """The error of a build that waited in vain."""
    rows = of_instances(conn, [uuid])[uuid]
    known = volumes_of(conn, rows)
    late = next(r for r in rows if not _is_ready(r, known[r.volume_id]))
    return not_created(late.volume_id, known[late.volume_id].status, seconds, attempts)


def not_created(volume_id: str, status: str, seconds: float = 0, attempts: int = 1) -> errors.VolumeNotCreated:
    return errors.VolumeNotCreated(
        volume_id=volume_id,
        seconds=int(seconds),
        attempts=attempts,
        volume_status=status,
        remedy="volume_list tells what became of volume %s." % volume_id,
    )


# --- the compute host's end -------------------------------------------------------------------------------------------


def connecting(conn: t.Any, ids: t.Iterable[str], context: Context) -> set[str]:
    """The compute host begins to connect these. Returns those it may: not what was to end or got another run meanwhile."""
    rows = locked(
        conn,
        bulk.among(conn, _a.id, sorted(set(ids))),
        _a.run_id == context.run.id,
        _a.attach_status == states.ATTACHING,
        _a.export == DONE,
    )
    write(conn, [r.id for r in rows if r.connection != DONE], connection=BEGUN)
    return {r.id for r in rows}


def connected(conn: t.Any, paths: t.Mapping[str, str | None], context: Context) -> None:
    """These are connected: {id: device path of the host; None where QEMU connects itself}."""
    mine = live(conn, bulk.among(conn, _a.id, sorted(paths)), _a.run_id == context.run.id)
    rows = [{"id": r.id, "connection": DONE, "device_path": paths[r.id]} for r in mine]
    bulk.update(conn, volume_attachments, "id", rows)


def attached(conn: t.Any, ids: t.Iterable[str], context: Context) -> None:
    """The guests have these: attached, and the volumes in-use."""
    rows = locked(
        conn,
        bulk.among(conn, _a.id, sorted(set(ids))),
        _a.run_id == context.run.id,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING)),
    )
    if not rows:
        return
    write(
        conn,
        [r.id for r in rows],
        attach_status=states.ATTACHED,
        connection=DONE,
        attached_at=context.now,
        run_id=None,
    )
    volumes.swap(
        conn,
        sorted({r.volume_id for r in rows}),
        {"status": (states.ATTACHING, states.IN_USE)},
        context.now,
        status=states.IN_USE,
        attach_status=states.ATTACHED,
        run_id=None,
        instance_uuid=None,
    )
    told = [(r.volume_id, {"instance_uuid": r.instance_uuid, "mountpoint": r.mountpoint}) for r in rows]
    volume_history.notify_each(conn, told, "volume.attach.end", context.now)


def disconnected(conn: t.Any, ids: t.Iterable[str], context: Context) -> None:
    """The compute host is rid of these: their exports are to end, and with them those attachments that are to end."""
    rows = locked(conn, bulk.among(conn, _a.id, sorted(set(ids))))
    # What the guest had and this run takes from it while it lives; a volume is never deleted by that.
    taken = [r for r in rows if r.attach_status == states.ATTACHED and r.run_id == context.run.id]
    forget(conn, taken)
    _unplug(conn, rows)
    write(conn, [r.id for r in rows], run_id=context.run.id)
    over = {r.id for r in taken} | {r.id for r in rows if r.attach_status == states.DETACHED}
    end_rows(conn, [r for r in by_ids(conn, over).values() if r.export == NOTHING], context)


def forget(conn: t.Any, rows: t.Sequence[t.Any]) -> None:
    """These attachments are to end while their instances live on: the disks are theirs no more, and the volumes stay."""
    write(conn, [r.id for r in rows], attach_status=states.DETACHED, delete_on_termination=False)
    write(conn, [r.id for r in rows if r.connection == NOTHING and r.export != NOTHING], export=ENDING)
    c = block_device_mappings.c
    if rows:
        the_disk = (c.instance_uuid == sa.bindparam("b_uuid"), c.device_name == sa.bindparam("b_device"))
        pairs = [{"b_uuid": r.instance_uuid, "b_device": r.mountpoint} for r in rows]
        conn.execute(block_device_mappings.delete().where(*the_disk), pairs)


def host_clean(conn: t.Any, host: str, instance_uuids: t.Iterable[str]) -> None:
    """``host`` is rid of these instances, and of their volumes with them: exports for it are to end."""
    rows = locked(conn, bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))), _a.attached_host == host)
    _unplug(conn, [r for r in rows if r.attach_status != states.ATTACHED])


def _unplug(conn: t.Any, rows: t.Sequence[t.Any]) -> None:
    write(conn, [r.id for r in rows], connection=NOTHING, device_path=None, rescan=False)
    write(conn, [r.id for r in rows if r.export != NOTHING], export=ENDING)


def unplace(conn: t.Any, instance_uuids: t.Iterable[str]) -> None:
    """These builds go to another host: the reservation stays, the cleaned host's end is forgotten."""
    rows = locked(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))),
        _a.connection == NOTHING,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING, states.ERROR_ATTACHING)),
    )
    write(conn, [r.id for r in rows if r.export in (BEGUN, DONE)], export=ENDING)
    write(conn, [r.id for r in rows], attached_host=None, initiator=None, way=None)
    write(conn, [r.id for r in rows if r.attach_status == states.ERROR_ATTACHING], attach_status=states.ATTACHING)


# --- the end ------------------------------------------------------------------------------------------------------------


def let_go(conn: t.Any, instance_uuids: t.Iterable[str], context: Context) -> None:
    """These instances end: so do their attachments, each as soon as both of its ends are free of it.

    Volumes with delete_on_termination are deleted then, others become available. One that was made for a boot and never got
    as far as a backend goes, too: Nova would not have made it.
    """
    rows = locked(conn, bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))))
    if not rows:
        return
    write(conn, [r.id for r in rows], attach_status=states.DETACHED, run_id=context.run.id)
    idle = [r for r in rows if r.connection == NOTHING]
    write(conn, [r.id for r in idle if r.export != NOTHING], export=ENDING)
    volumes.swap(
        conn,
        sorted({r.volume_id for r in rows if r.attach_status == states.ATTACHED}),
        {"status": (states.IN_USE,), "multiattach": (False,)},
        context.now,
        status=states.DETACHING,
    )
    end_rows(conn, [r for r in idle if r.export == NOTHING], context)


def leave_to_others(conn: t.Any, instance_uuids: t.Iterable[str]) -> None:
    """What is left of these attachments is done by whoever works on their hosts next."""
    leave_rows_to_others(conn, [r.id for rows in of_instances(conn, instance_uuids).values() for r in rows])


def end_idle(conn: t.Any, ids: t.Iterable[str], context: Context) -> None:
    """Those of the attachments are over that are to end, and that neither end has anything of."""
    rows = locked(
        conn,
        bulk.among(conn, _a.id, sorted(set(ids))),
        _a.attach_status == states.DETACHED,
        _a.connection == NOTHING,
        _a.export == NOTHING,
    )
    end_rows(conn, rows, context)


def leave_rows_to_others(conn: t.Any, ids: t.Iterable[str]) -> None:
    """The same of single attachments."""
    write(conn, ids, run_id=None)  # one that is over has none


def end_rows(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """These attachments are over: their volumes are free, or go with their instance."""
    if not rows:
        return
    now = context.now
    over = [{"id": r.id, "deleted": r.id, "attach_status": states.DETACHED, "run_id": None} for r in rows]
    bulk.update(conn, volume_attachments, "id", over)
    known = volumes_of(conn, rows)
    ended = [(r, known[r.volume_id]) for r in rows if r.volume_id in known]
    told = [(v.id, {"instance_uuid": r.instance_uuid}) for r, v in ended]
    volume_history.notify_each(conn, told, "volume.detach.end", now)
    # Nobody waits for it any more; one that could not be made is tried again with its instance.
    freed = [v.id for r, v in ended if v.instance_uuid == r.instance_uuid and v.status != states.ERROR]
    if freed:
        mine = bulk.among(conn, volumes_table.c.id, sorted(set(freed)))
        conn.execute(volumes_table.update().where(mine).values(instance_uuid=None))
    others = of_volumes(conn, known)
    free: dict[str, list[str]] = {states.IN_USE: [], states.ATTACHING: [], states.AVAILABLE: []}
    for volume_id in sorted({v.id for _r, v in ended}):
        left = {r.attach_status for r in others.get(volume_id, ())} - {states.DETACHED}
        kept = states.ATTACHING if left else states.AVAILABLE
        free[states.IN_USE if states.ATTACHED in left else kept].append(volume_id)
    for status, ids in free.items():
        _release(conn, ids, status, now)  # before it is deleted: a volume that is attached cannot be
    nobodys = set(free[states.AVAILABLE])
    doomed = {v.id for r, v in ended if v.id in nobodys and (r.delete_on_termination or _never_placed(v))}
    if doomed:
        delete.mark(conn, sorted(doomed), context)


def _never_placed(volume: t.Any) -> bool:
    return bool(volume.instance_uuid) and volume.status == states.CREATING and not volume.pool_host


def _release(conn: t.Any, ids: t.Sequence[str], status: str, now: float) -> None:
    if not ids:
        return
    attach_status = states.ATTACHED if status == states.IN_USE else states.DETACHED
    busy = (states.RESERVED, states.ATTACHING, states.DETACHING, states.IN_USE)
    values: dict[str, t.Any] = {"attach_status": attach_status}
    if status == states.AVAILABLE:
        values["run_id"] = None
    volumes.swap(conn, ids, {"status": busy}, now, status=status, **values)
