# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that instances get and lose while they live: begun here, done by the hosts, finished here.

What is begun is journaled with its attachment (volume_events), so that the end can be told whatever happened in between.
source: rows C33-C35; semantics 3 (attach/detach volume), 11; Nova's compute API attach_volume and detach_volume (Queens)
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..core import errors, states
from ..core.block_devices import PlannedDisk, attached_disk, planned_disk
from ..core.disk_names import default_bus, free_name
from ..core.model import BlockDevice, Flavor
from ..core.request.formats import to_boolean
from ..core.request.problems import Problems
from ..core.volumes import attach_rules
from ..core.volumes import states as volume_states
from ..core.volumes.places import extract_host
from . import (
    attachment_reservations,
    attachments,
    bulk,
    claims,
    history,
    instances,
    nodes,
    runs,
    volume_history,
    volumes,
)
from .context import Context
from .libraries import sa
from .tables import block_device_mappings, compute_nodes, volume_attachments, volume_events
from .tables import volumes as volumes_table
from .volume_tables import BEGUN, DONE, NOTHING

ATTACH, DETACH = "attach_volume", "detach_volume"  # events, and Nova's actions
FIELDS = ("instance", "volume", "device", "mode", "delete_on_termination", "disk_bus", "tag")

Ends = t.Callable[[str, t.Mapping[str, t.Any]], attachments.HostEnd]  # host, facts of its node

_a = volume_attachments.c
_ON_THE_WAY = (volume_states.RESERVED, volume_states.ATTACHING, volume_states.ERROR_ATTACHING)
# What a config drive may be called on its host (disk, or CD-ROM on IDE, SATA or SCSI): kept free.
_CONFIG_DRIVE_NAMES = ("vdz", "hda", "sda")


@dataclass
class Begun:
    """``rows``: attachments that are on their way; ``unchanged``: volumes (names) that are as asked."""

    rows: list[t.Any] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    storage_hosts: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # compute hosts


@dataclass
class _Wish:
    path: str
    volume: t.Any  # its row
    guest: t.Any  # the instance's row with its spec; None: a detach that does not say
    mode: str = "rw"
    delete_on_termination: bool = False
    device: str | None = None
    disk_bus: str | None = None
    tag: str | None = None
    disk: PlannedDisk | None = None


# --- attaching --------------------------------------------------------------------------------------------------------


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
    new: list[_Wish] = []
    read = _read(conn, wishes, project, True, refusals)
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
    _take(conn, again, context)
    ids += [a.id for a in again]
    moving = {a.instance_uuid for a in attachments.by_ids(conn, ids).values()}
    known = {uuid: ends(where[0], nodes.node_facts(conn, *where)) for uuid, where in hosts.items() if uuid in moving}
    attachments.place(conn, known, context)
    return _begin(conn, begun, ids, ATTACH, context)


def _check_attach(conn: t.Any, wish: _Wish, there: t.Sequence[t.Any], cross_az_attach: bool, context: Context) -> None:
    _check_locked(conn, wish.volume, there, context)
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


def _as_asked(row: t.Any, wish: _Wish, context: Context, conn: t.Any) -> bool:
    """Whether the guest has it already; False: it is on its way, left by a run that is dead or this one's.

    :raises InvalidVolume: it has it in another way than asked. :raises VolumeLocked: another run is attaching it.
    """
    _check_locked(conn, wish.volume, [row], context)
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

    def disk(self, wish: _Wish) -> PlannedDisk:
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


def _attach(conn: t.Any, wish: _Wish, cross_az_attach: bool, context: Context) -> str:
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
    rows = _mine(conn, host, context, _a.attach_status == volume_states.ATTACHING, _a.export == DONE)
    return [r for r in rows if r.instance_uuid in _settled(conn, rows)]


def attach_failed(conn: t.Any, failures: t.Mapping[str, errors.BootflowError], context: Context) -> None:
    """These could not be attached: the volumes are given back, each when its export has ended. {attachment id: why}"""
    rows = attachments.locked_by_ids(conn, failures, context)
    for row in rows:
        volume_history.add_fault(conn, row.volume_id, failures[row.id], row.attached_host, context.now)
    _give_back(conn, [r for r in rows if r.attach_status in _ON_THE_WAY], context)


def _give_back(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    attachments.forget(conn, rows)
    attachments.end_idle(conn, [r.id for r in rows], context)


def finish_attach(conn: t.Any, context: Context) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """What became of all that this run began: (attached, left with their errors). What was not attached is given back."""

    def attached(row: t.Any) -> bool:
        return bool(row.deleted == attachments.LIVE and row.attach_status == volume_states.ATTACHED)

    done, left, rows = _finish(conn, ATTACH, attached, context)
    waiting = [r for r in rows if r.deleted == attachments.LIVE and r.attach_status in _ON_THE_WAY]
    _give_back(conn, waiting, context)
    attachments.leave_rows_to_others(conn, [r.id for r in rows if not attached(r)])
    return done, left


# --- detaching --------------------------------------------------------------------------------------------------------


def begin_detach(
    conn: t.Any, wishes: t.Sequence[t.Mapping[str, t.Any]], project: str | None, context: Context
) -> Begun:
    """Mark the volumes as detaching; what a dead run left half attached or half detached goes with them.

    :arg wishes: bootflow_attachments; ``instance`` is needed where a volume has several.
    :raises InvalidRequest: all that is wrong with all of them, with paths attachments[i]; nothing is written then.
    """
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    refusals = Problems()
    begun = Begun()
    chosen: list[t.Any] = []
    read = _read(conn, wishes, project, False, refusals)
    there = attachments.of_volumes(conn, [w.volume.id for w in read])
    guests = {
        r.uuid: r
        for r in instances.select_live(conn, uuids=sorted({a.instance_uuid for g in there.values() for a in g}))
    }
    disks = instances.disks_of(conn, sorted(guests))
    swaps = []
    for wish in read:
        with refusals.collect(wish.path):
            mine = there.get(wish.volume.id, [])
            if wish.guest is not None:
                mine = [a for a in mine if a.instance_uuid == wish.guest.uuid]
            if not mine:
                begun.unchanged.append(wish.volume.name or wish.volume.id)
                continue
            row, transition = _check_detach(conn, wish, mine, guests, disks, context)
            chosen.append(row)
            swaps.append((wish.volume, transition))
    refusals.raise_if_any()
    for volume, transition in swaps:
        if transition is not None:
            volumes.swap(conn, [volume.id], transition.expected, context.now, **transition.values)
    _take(conn, chosen, context)
    _give_back(conn, [r for r in chosen if r.attach_status in _ON_THE_WAY], context)
    return _begin(conn, begun, [r.id for r in chosen], DETACH, context)


def _check_detach(
    conn: t.Any,
    wish: _Wish,
    mine: t.Sequence[t.Any],
    guests: t.Mapping[str, t.Any],
    disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    context: Context,
) -> tuple[t.Any, volume_states.Transition | None]:
    _check_locked(conn, wish.volume, mine, context)
    volume = volumes.to_volume(wish.volume)
    row = mine[0]
    transition = None
    if len(mine) > 1 or (row.attach_status == volume_states.ATTACHED and volume.status != volume_states.DETACHING):
        found = attach_rules.check_detach(
            volume,
            volumes.attachments_of(conn, [volume.id]).get(volume.id, []),
            wish.guest.uuid if wish.guest is not None else None,
        )
        transition = volume_states.check_begin_detaching(volume)
        row = next(a for a in mine if a.id == found.id)
    guest = guests.get(row.instance_uuid)
    if guest is None:
        return row, transition  # its instance is gone, by force: nobody misses it
    root = [d for d in disks[guest.uuid] if d.get("volume_id") == volume.id and d.get("boot_index") == 0]
    if root:
        raise errors.CannotDetachRootVolume()
    states.check_action(
        DETACH,
        guest.vm_state,
        guest.task_state,
        launched=guest.launched_at is not None,
        instance_uuid=guest.uuid,
    )
    return row, transition


def to_detach(conn: t.Any, host: str, context: Context) -> list[t.Any]:
    """Attachments of this run that ``host`` is to take from its guests and to disconnect; not those of its builds."""
    rows = _mine(
        conn,
        host,
        context,
        sa.or_(
            _a.attach_status == volume_states.ATTACHED,
            sa.and_(_a.attach_status == volume_states.DETACHED, _a.connection != NOTHING),
        ),
    )
    return [r for r in rows if r.instance_uuid in _settled(conn, rows)]


def detach_failed(conn: t.Any, failures: t.Mapping[str, errors.BootflowError], context: Context) -> None:
    """These could not be taken away: they are in use as before. {attachment id: why}"""
    rows = attachments.locked_by_ids(conn, failures, context)
    for row in rows:
        volume_history.add_fault(conn, row.volume_id, failures[row.id], row.attached_host, context.now)
    _roll_back(conn, [r for r in rows if r.attach_status == volume_states.ATTACHED], context)


def _roll_back(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    transition = volume_states.roll_detaching()
    ids = sorted({r.volume_id for r in rows})
    if ids:
        volumes.swap(conn, ids, transition.expected, context.now, **transition.values)
    attachments.leave_rows_to_others(conn, [r.id for r in rows])


def finish_detach(conn: t.Any, context: Context) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """What became of all that this run began: (detached, left with their errors). What no host was asked about is in use."""
    done, left, rows = _finish(conn, DETACH, lambda row: row.deleted != attachments.LIVE, context)
    live = [r for r in rows if r.deleted == attachments.LIVE]
    _roll_back(conn, [r for r in live if r.attach_status == volume_states.ATTACHED], context)
    attachments.leave_rows_to_others(conn, [r.id for r in live])
    return done, left


def begun_by_others(conn: t.Any, context: Context) -> list[t.Any]:
    """Attachments that other runs began to make or to undo for instances that live on: dead runs' or live ones'."""
    query = sa.select(volume_attachments).where(
        _a.deleted == attachments.LIVE, _a.run_id.is_not(None), _a.run_id != context.run.id
    )
    rows = list(conn.execute(query.order_by(_a.volume_id, _a.id)))
    settled = _settled(conn, rows)
    return [r for r in rows if r.instance_uuid in settled]


def give_back(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """Half attached volumes of runs that ended are given back, half detached ones are in use as before."""
    before = {r.id: r.run_id for r in rows}
    if not before:
        return
    locked = [r for r in attachments.locked_by_ids(conn, before) if r.run_id == before[r.id]]
    _take(conn, locked, context)
    _give_back(conn, [r for r in locked if r.attach_status in _ON_THE_WAY], context)
    _roll_back(conn, [r for r in locked if r.attach_status == volume_states.ATTACHED], context)
    attachments.leave_rows_to_others(conn, [r.id for r in locked])


# --- extended ---------------------------------------------------------------------------------------------------------


def to_rescan(conn: t.Any, host: str, context: Context) -> list[t.Any]:
    """Attachments on ``host`` whose volumes grew: it has to look again, whichever run made them grow."""
    conditions = (_a.deleted == attachments.LIVE, _a.attached_host == host, _a.rescan.is_(True))
    attached = _a.attach_status == volume_states.ATTACHED
    return list(conn.execute(sa.select(volume_attachments).where(attached, *conditions).order_by(_a.id)))


def rescanned(conn: t.Any, ids: t.Sequence[str], context: Context) -> None:
    """The host and its guest see the new size."""
    conn.execute(volume_attachments.update().where(bulk.among(conn, _a.id, list(ids))).values(rescan=False))


# --- parts ------------------------------------------------------------------------------------------------------------


def _read(
    conn: t.Any,
    wishes: t.Sequence[t.Mapping[str, t.Any]],
    project: str | None,
    attaching: bool,
    refusals: Problems,
) -> list[_Wish]:
    """The wishes with the rows of what they name, which are locked: instances by uuid, then volumes by id."""
    sound: list[tuple[str, t.Mapping[str, t.Any]]] = []
    for index, wish in enumerate(wishes):
        path = "attachments[%d]" % index
        with refusals.collect(path):
            _check_form(wish, attaching)
            sound.append((path, wish))
    guests = _guests(conn, [str(w["instance"]) for _p, w in sound if w.get("instance")], project)
    words = list(dict.fromkeys(str(w["volume"]) for _p, w in sound))
    found, _missing = volumes.find(conn, words, project)
    rows = {r.id: r for r in volumes.select(conn, ids=sorted({r.id for r in found.values()}), lock=True)}
    read: list[_Wish] = []
    seen: set[tuple[str, str]] = set()
    for path, wish in sound:
        guest, volume = None, None
        with refusals.collect(path + ".instance"):
            guest = _guest(guests, wish.get("instance"))
        with refusals.collect(path + ".volume"):
            named = found.get(str(wish["volume"]))
            volume = rows.get(named.id) if named is not None else None
            if volume is None:
                raise errors.VolumeNotFound(volume_id=wish["volume"], remedy="volume_list shows which there are.")
        if volume is None or (guest is None and wish.get("instance")):
            continue
        key = (volume.id, "" if guest is None or not volume.multiattach else guest.uuid)
        if key in seen:
            again = errors.InvalidInput(reason="volume %s is named twice" % wish["volume"], remedy="Name it once.")
            refusals.add(path + ".volume", again)
            continue
        seen.add(key)
        read.append(
            _Wish(
                path=path,
                volume=volume,
                guest=guest,
                mode=str(wish.get("mode") or "rw"),
                delete_on_termination=to_boolean(wish.get("delete_on_termination") or False),
                device=wish.get("device"),
                disk_bus=wish.get("disk_bus"),
                tag=wish.get("tag"),
            )
        )
    return read


def _check_form(wish: t.Any, attaching: bool) -> None:
    if not isinstance(wish, t.Mapping):
        raise errors.InvalidInput(reason="an attachment is a mapping", remedy="Give instance and volume.")
    unknown = sorted(set(wish) - set(FIELDS))
    if unknown:
        raise errors.InvalidInput(
            reason="unknown field %s of an attachment" % ", ".join(map(ascii, unknown)),
            remedy="Known: %s." % ", ".join(FIELDS),
        )
    for name in ("instance", "volume") if attaching else ("volume",):
        if not wish.get(name):
            raise errors.InvalidInput(reason="%s is missing" % name, remedy="Name it, or give its UUID.")
    for name in ("instance", "volume", "device", "mode", "disk_bus", "tag"):
        if wish.get(name) is not None and not isinstance(wish[name], str):
            raise errors.InvalidInput(reason="%s must be a text" % name)
    mode = wish.get("mode") or "rw"
    if mode not in attach_rules.MODES:
        raise errors.InvalidVolumeAttachMode(mode=mode, volume_id=wish["volume"], remedy="It is rw or ro.")
    try:
        to_boolean(wish.get("delete_on_termination") or False)
    except ValueError as e:
        raise errors.InvalidInput(reason="delete_on_termination %s" % e) from None


def _guests(conn: t.Any, words: t.Sequence[str], project: str | None) -> dict[str, list[t.Any]]:
    """Word -> instances of that uuid or name."""
    wanted = sorted(set(words))
    if not wanted:
        return {}
    rows = instances.select_live(conn, names=wanted, project=project)
    rows += instances.select_live(conn, uuids=wanted, project=project)
    locked = instances.select_live(conn, uuids=sorted({r.uuid for r in rows}), lock=True)
    found: dict[str, list[t.Any]] = {}
    for row in locked:
        for word in {row.uuid, row.display_name} & set(wanted):
            found.setdefault(word, []).append(row)
    return found


def _guest(guests: t.Mapping[str, t.Sequence[t.Any]], word: t.Any) -> t.Any:
    if not word:
        return None
    found = guests.get(str(word), ())
    if not found:
        raise errors.InstanceNotFound(instance_id=word)
    if len(found) > 1:
        raise errors.InvalidInput(
            reason="%s is in the projects %s" % (word, ", ".join(sorted(r.project for r in found))),
            remedy="Say which with bootflow_project, or give the UUID.",
        )
    return found[0]


def _check_locked(conn: t.Any, volume: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """:raises VolumeLocked: a live run other than this works on one of these attachments."""
    owners = {r.run_id for r in rows if r.run_id and r.run_id != context.run.id}
    alive = owners - runs.dead_among(conn, owners, context.run, context.now)
    for row in rows:
        if row.run_id in alive:
            told = runs.locked_error(conn, volume.name or volume.id, row.run_id)
            raise errors.VolumeLocked(**told.details)


def _take(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """These are this run's now. An export is made anew: its credentials died with the run that set them."""
    ids = [r.id for r in rows]
    if not ids:
        return
    mine = bulk.among(conn, _a.id, ids)
    conn.execute(volume_attachments.update().where(mine).values(run_id=context.run.id))
    half = sa.and_(mine, _a.attach_status.in_(_ON_THE_WAY))
    conn.execute(volume_attachments.update().where(half).values(attach_status=volume_states.ATTACHING))
    conn.execute(volume_attachments.update().where(half, _a.export == DONE).values(export=BEGUN))


def _begin(conn: t.Any, begun: Begun, ids: t.Sequence[str], event: str, context: Context) -> Begun:
    """Journal what is begun, and which hosts have a part in it."""
    begun.rows = [r for r in _any(conn, ids) if r.id in set(ids)]
    volume_ids = sorted({r.volume_id for r in begun.rows})
    places = {v.id: v.place for v in volumes.select(conn, ids=volume_ids)} if volume_ids else {}
    begun.hosts = sorted({r.attached_host for r in begun.rows if r.attached_host})
    begun.storage_hosts = sorted({extract_host(p, "host") for p in places.values() if p})
    for row in begun.rows:
        conn.execute(
            volume_events.insert().values(
                volume_id=row.volume_id,
                event=event,
                host=row.attached_host,
                request_id=context.request_id,
                user_name=context.actor,
                start_time=context.now,
                details=row.id,
            )
        )
    guests = {r.instance_uuid for r in begun.rows}
    rows = instances.select_live(conn, uuids=sorted(guests)) if guests else []
    for project in sorted({r.project for r in rows}):
        mine = [r.uuid for r in rows if r.project == project]
        history.start_actions(conn, mine, event, context.request_id, project, context.actor, context.now)
    return begun


def _finish(
    conn: t.Any, event: str, is_done: t.Callable[[t.Any], bool], context: Context
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]], list[t.Any]]:
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    e = volume_events.c
    mine = (e.event == event, e.request_id == context.request_id, e.finish_time.is_(None))
    events = {r.details: r for r in conn.execute(sa.select(volume_events).where(*mine).order_by(e.id))}
    rows = _any(conn, sorted(events))
    attachments.locked_by_ids(conn, [r.id for r in rows])
    rows = _any(conn, sorted(events))
    c = volumes_table.c
    ids = sorted({r.volume_id for r in rows})
    names = dict(conn.execute(sa.select(c.id, c.name).where(bulk.among(conn, c.id, ids))).all()) if ids else {}
    uuids = sorted({r.instance_uuid for r in rows})
    guests = {r.uuid: r.display_name for r in instances.select_live(conn, uuids=uuids)} if uuids else {}
    faults = volume_history.last_faults(conn, ids) if ids else {}
    done, left = [], []
    for row in rows:
        begun = events[row.id]
        told: dict[str, t.Any] = {
            "volume": names.get(row.volume_id) or row.volume_id,
            "volume_id": row.volume_id,
            "instance": guests.get(row.instance_uuid, row.instance_uuid),
            "instance_uuid": row.instance_uuid,
            "device": row.mountpoint,
            "host": row.attached_host,
        }
        fault = faults.get(row.volume_id)
        good = is_done(row)
        if good:
            done.append(told)
        else:
            recent = fault is not None and fault["created_at"] >= begun.start_time
            left.append({**told, "error": fault if recent else None})
        result = volume_history.SUCCESS if good else volume_history.ERROR
        conn.execute(
            volume_events.update().where(e.id == begun.id).values(finish_time=context.now, result=result, details=None)
        )
        message = None if good else "Error"
        history.finish_actions(conn, [row.instance_uuid], event, context.now, message)
    return done, left, rows


def _mine(conn: t.Any, host: str, context: Context, *conditions: t.Any) -> list[t.Any]:
    query = sa.select(volume_attachments).where(
        _a.deleted == attachments.LIVE, _a.attached_host == host, _a.run_id == context.run.id, *conditions
    )
    return list(conn.execute(query.order_by(_a.instance_uuid, _a.id)))


def _settled(conn: t.Any, rows: t.Sequence[t.Any]) -> set[str]:
    """Those of the instances that are neither being built nor deleted, nor ended in ERROR while they were built."""
    uuids = sorted({r.instance_uuid for r in rows})
    living = instances.select_live(conn, uuids=uuids) if uuids else []
    return {
        r.uuid for r in living if r.vm_state not in (states.BUILDING, states.ERROR) and r.task_state != states.DELETING
    }


def _any(conn: t.Any, ids: t.Sequence[str]) -> list[t.Any]:
    """Attachments, over or not."""
    if not ids:
        return []
    query = sa.select(volume_attachments).where(bulk.among(conn, _a.id, sorted(set(ids)))).order_by(_a.id)
    return list(conn.execute(query))
