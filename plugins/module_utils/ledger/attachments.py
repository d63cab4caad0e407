# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attachments: a volume that an instance has, and what is still to be done at both ends of the cable.

An attachment's life: reserve -> place (its instance got a host) -> exported -> connecting -> connected -> attached; and
back: disconnected -> unexported, which gives the volume back. ``attach_status`` detached in a live row says that it is
to end, ``export`` ending that its target is to go. Nothing is exported before it is known for whom, and no export ends
while the compute host may still use it: where ``connection`` is not none, ``export`` is not none either.
source: row C33; semantics 10, 11, 16; Cinder's attachments and Nova's block devices (Queens)
"""

from __future__ import annotations

import typing as t
import uuid as uuid_module
from dataclasses import dataclass, field

from ..core import errors
from ..core.volumes import attach_rules, places, states
from . import bulk, instances, runs, volume_deletion, volume_history, volumes
from .context import Context
from .libraries import sa
from .tables import block_device_mappings, cleanups, compute_nodes, storage_backends, volume_attachments
from .tables import volumes as volumes_table
from .volume_tables import BEGUN, DONE, ENDING, NOTHING

KERNEL, QEMU = "kernel", "qemu"
WAYS = (KERNEL, QEMU)
LIVE = ""  # value of the column `deleted` while an attachment lives

_a = volume_attachments.c


@dataclass(frozen=True)
class HostEnd:
    """The compute host's end of its attachments.

    ``initiator``: the IQN of the host's initiator. ``way``: kernel (the host logs in) or qemu (QEMU does).
    """

    host: str  # the inventory's name
    initiator: str
    way: str = KERNEL


@dataclass(frozen=True)
class Export:
    """One attachment's target on a storage host, that is to be made or to go.

    ``configuration`` is the backend's entry of the inventory as it last reported (volume_group, target, portals, iqn_prefix,
    ...). ``initiator`` is that of this attachment. ``initiators`` are all that the target has to let in afterwards, sorted:
    to_export: this one and those of the volume's other attachments; to_unexport: those of the others, and where there is
    none the target goes (state absent).
    """

    attachment_id: str
    volume_id: str
    backend: str  # its name
    configuration: t.Mapping[str, t.Any]
    initiator: str
    initiators: tuple[str, ...] = ()
    place: str = ""  # host@backend#pool
    instance_uuid: str = ""
    mode: str = "rw"


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
    for row in _live(conn, bulk.among(conn, _a.instance_uuid, sorted(set(uuids)))):
        found.setdefault(row.instance_uuid, []).append(row)
    for rows in found.values():
        rows.sort(key=lambda r: (len(r.mountpoint or ""), r.mountpoint or "", r.id))
    return found


def by_ids(conn: t.Any, ids: t.Iterable[str]) -> dict[str, t.Any]:
    """id -> its row, of live ones."""
    return {r.id: r for r in _live(conn, bulk.among(conn, _a.id, sorted(set(ids))))}


def of_volumes(conn: t.Any, volume_ids: t.Iterable[str]) -> dict[str, list[t.Any]]:
    """volume id -> its live attachments."""
    found: dict[str, list[t.Any]] = {}
    for row in _live(conn, bulk.among(conn, _a.volume_id, sorted(set(volume_ids)))):
        found.setdefault(row.volume_id, []).append(row)
    return found


def locked_by_ids(conn: t.Any, ids: t.Iterable[str], context: Context | None = None) -> list[t.Any]:
    """These attachments with their volumes locked. :arg context: only those of its run."""
    mine = [] if context is None else [_a.run_id == context.run.id]
    return _locked(conn, bulk.among(conn, _a.id, sorted(set(ids))), *mine)


def _live(conn: t.Any, *conditions: t.Any) -> list[t.Any]:
    query = sa.select(volume_attachments).where(_a.deleted == LIVE, *conditions).order_by(_a.volume_id, _a.id)
    return list(conn.execute(query))


def _locked(conn: t.Any, *conditions: t.Any) -> list[t.Any]:
    """The same with their volumes' rows locked, by id: whoever writes an attachment holds its volume."""
    ids = sorted({r.volume_id for r in _live(conn, *conditions)})
    if not ids:
        return []
    volumes.select(conn, ids=ids, lock=True)
    return _live(conn, *conditions)


def _volumes_of(conn: t.Any, rows: t.Iterable[t.Any]) -> dict[str, t.Any]:
    ids = sorted({r.volume_id for r in rows})
    return {v.id: v for v in volumes.select(conn, ids=ids)} if ids else {}


def _write(conn: t.Any, ids: t.Iterable[str], **values: t.Any) -> None:
    listed = sorted(set(ids))
    if listed:
        conn.execute(volume_attachments.update().where(bulk.among(conn, _a.id, listed)).values(**values))


def lock(conn: t.Any, instance_uuids: t.Iterable[str]) -> None:
    """Lock the volumes of these instances, by id, until the transaction ends: whoever locks nodes later does it first."""
    _locked(conn, bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))))


def connected_to(conn: t.Any, instance_uuid: str, host: str) -> bool:
    """Whether ``host`` may still use a volume of the instance."""
    mine = (_a.instance_uuid == instance_uuid, _a.attached_host == host, _a.connection != NOTHING)
    return bool(_live(conn, *mine))


def zones_of(conn: t.Any, instance_uuids: t.Iterable[str]) -> dict[str, str]:
    """uuid -> the zone of its volumes, where one is on a backend already."""
    found: dict[str, str] = {}
    attached_to = of_instances(conn, instance_uuids)
    known = _volumes_of(conn, [r for rows in attached_to.values() for r in rows])
    for uuid, rows in attached_to.items():
        placed = [known[r.volume_id] for r in rows if r.volume_id in known and known[r.volume_id].place]
        if placed:
            found[uuid] = placed[0].availability_zone
    return found


def last_fault(conn: t.Any, volume_ids: t.Sequence[str]) -> dict[str, t.Any] | None:
    """The newest fault of these volumes as plain data, or None."""
    faults = volume_history.last_faults(conn, volume_ids) if volume_ids else {}
    return max(faults.values(), key=lambda f: f.get("created_at") or 0, default=None)


# --- reserving --------------------------------------------------------------------------------------------------------


def reserve(
    conn: t.Any,
    volume_row: t.Any,
    instance_uuid: str,
    mountpoint: str | None,
    context: Context,
    mode: str = "rw",
    delete_on_termination: bool = False,
    instance_zone: str | None = None,
    cross_az_attach: bool = True,
) -> str:
    """Keep a volume for an instance. Returns the attachment's id.

    One that is still being made for this instance is kept too: it becomes attaching when it is there (made()).

    :raises InvalidVolume: it is not available, attached to it already, reserved for another, or in another zone.
    :raises InvalidVolumeAttachMode: no such mode, or it may only be read.
    """
    there = volumes.attachments_of(conn, [volume_row.id]).get(volume_row.id, [])
    making = volume_row.instance_uuid == instance_uuid and volume_row.status in (states.CREATING, states.DOWNLOADING)
    if not making:
        if not volume_row.multiattach:
            _check_not_reserved(volume_row, there, instance_uuid)
        transition = attach_rules.check_attach_to_instance(
            volumes.to_volume(volume_row), instance_uuid, there, instance_zone, cross_az_attach, mode
        )
        _swap_or_raise(conn, volume_row, transition, context)
    attachment_id = str(uuid_module.UUID(int=context.rng.getrandbits(128), version=4))
    conn.execute(
        volume_attachments.insert().values(
            id=attachment_id,
            volume_id=volume_row.id,
            instance_uuid=instance_uuid,
            attach_status=states.RESERVED if making else states.ATTACHING,
            attach_mode=mode,
            mountpoint=mountpoint,
            delete_on_termination=delete_on_termination,
            storage_host=places.extract_host(volume_row.place, "host") if volume_row.place else None,
            export=NOTHING,
            connection=NOTHING,
            rescan=False,
            run_id=context.run.id,
            created_at=context.now,
            deleted=LIVE,
        )
    )
    volume_history.notify(conn, [volume_row.id], "volume.attach.start", {"instance_uuid": instance_uuid}, context.now)
    return attachment_id


def _check_not_reserved(volume_row: t.Any, there: t.Sequence[t.Any], instance_uuid: str) -> None:
    """A volume that was made for an instance is available for a moment before it is attaching: it is that instance's."""
    for other in there:
        if other.instance_uuid != instance_uuid and other.attach_status == states.RESERVED:
            raise errors.InvalidVolume(
                reason="Volume status must be available to reserve, but the status is %s." % states.RESERVED,
                remedy="Volume %s is being made for instance %s." % (volume_row.id, other.instance_uuid),
            )


def _swap_or_raise(conn: t.Any, volume_row: t.Any, transition: states.Transition, context: Context) -> None:
    moved = volumes.swap(conn, [volume_row.id], transition.expected, context.now, **transition.values)
    if volume_row.id not in moved:
        raise errors.InvalidVolume(
            reason="Volume status must be available to reserve, but somebody else took volume %s." % volume_row.id,
            remedy="Take another volume, or wait until it is available.",
        )


def made(conn: t.Any, volume_ids: t.Sequence[str], context: Context) -> None:
    """Volumes that were made for a boot are there: from available to attaching where they are reserved."""
    for row in _locked(
        conn, bulk.among(conn, _a.volume_id, sorted(set(volume_ids))), _a.attach_status == states.RESERVED
    ):
        moved = volumes.swap(
            conn, [row.volume_id], {"status": (states.AVAILABLE,)}, context.now, status=states.ATTACHING
        )
        if moved:
            _write(conn, [row.id], attach_status=states.ATTACHING)


def take_over(conn: t.Any, instance_uuids: t.Sequence[str], context: Context) -> None:
    """Attachments of half-built instances are this run's now, and so are their volumes that are on their way.

    Their exports are made anew: the credentials that a dead run set died with it.
    """
    rows = _locked(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))),
        _a.attach_status.not_in((states.ATTACHED, states.DETACHED)),
    )
    _write(conn, [r.id for r in rows], run_id=context.run.id)
    _write(conn, [r.id for r in rows if r.export == DONE], export=BEGUN)
    _write(conn, [r.id for r in rows if r.attach_status == states.ERROR_ATTACHING], attach_status=states.ATTACHING)
    ids = sorted({r.volume_id for r in rows})
    if ids:
        conn.execute(
            volumes_table.update().where(bulk.among(conn, volumes_table.c.id, ids)).values(run_id=context.run.id)
        )


def revive(conn: t.Any, row: t.Any, context: Context) -> None:
    """An attachment that is to end, and whose instance is built again, is wanted again: what is exported goes first.

    :raises InvalidVolume: a host that could not be cleaned may still use it.
    """
    if row.connection != NOTHING:
        raise errors.InvalidVolume(
            reason="volume %s is still connected to host %s" % (row.volume_id, row.attached_host),
            remedy="Bring that host back: it is cleaned when it reports.",
        )
    busy = {"status": (states.DETACHING, states.ATTACHING), "multiattach": (False,)}
    volumes.swap(conn, [row.volume_id], busy, context.now, status=states.ATTACHING, run_id=context.run.id)
    _write(
        conn,
        [row.id],
        attach_status=states.ATTACHING,
        run_id=context.run.id,
        attached_host=None,
        initiator=None,
        way=None,
        attached_at=None,
    )


def hosts_to_clean_first(conn: t.Any) -> list[str]:
    """Hosts that could not be cleaned and may still use a volume that is to end: it cannot be reserved again before they are."""
    query = (
        sa.select(_a.attached_host)
        .join(cleanups, sa.and_(cleanups.c.host == _a.attached_host, cleanups.c.instance_uuid == _a.instance_uuid))
        .where(_a.deleted == LIVE, _a.connection != NOTHING, _a.attach_status == states.DETACHED)
    )
    return sorted(set(conn.execute(query).scalars()))


# --- to a host --------------------------------------------------------------------------------------------------------


def place(conn: t.Any, instance_uuids_to_host: t.Mapping[str, HostEnd], context: Context) -> None:
    """These instances got their hosts: for whom their volumes are to be exported is known, of those that this run attaches.

    What is still connected elsewhere stays as it is, and its instance is not ready.
    """
    rows = _locked(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted(instance_uuids_to_host)),
        _a.run_id == context.run.id,
        _a.attach_status != states.DETACHED,
        _a.attach_status != states.ATTACHED,
    )
    for row in rows:
        end = instance_uuids_to_host[row.instance_uuid]
        if row.connection != NOTHING and row.attached_host != end.host:
            continue
        values: dict[str, t.Any] = {"attached_host": end.host, "initiator": end.initiator, "way": end.way}
        if row.export == DONE and row.initiator != end.initiator:
            values["export"] = BEGUN
        _write(conn, [row.id], run_id=context.run.id, **values)
    _into_zones(conn, rows, context.now)


def _into_zones(conn: t.Any, rows: t.Sequence[t.Any], now: float) -> None:
    """Volumes that are made for an instance are of its zone, without cross_az_attach. source: _get_volume_create_az_value"""
    guests = {r.uuid: r for r in instances.select_live(conn, uuids=sorted({r.instance_uuid for r in rows}))}
    known = _volumes_of(conn, rows)
    zones = {r.host: r.availability_zone for r in conn.execute(sa.select(compute_nodes))}
    for row in rows:
        guest, volume = guests.get(row.instance_uuid), known.get(row.volume_id)
        if guest is None or volume is None or guest.spec.get("cross_az_attach", True):
            continue
        zone = zones.get(guest.host)
        if zone and volume.instance_uuid == guest.uuid and not volume.place and volume.availability_zone != zone:
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
    known = _volumes_of(conn, rows)
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
    known = _volumes_of(conn, rows)
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


# --- the storage host's end -------------------------------------------------------------------------------------------


def hosts_to_export(conn: t.Any, context: Context) -> set[str]:
    """Storage hosts that have to export a volume for this run."""
    return {places.extract_host(volume.place, "host") for _row, volume in _wanted_exports(conn, context)}


def to_export(conn: t.Any, host: str, context: Context) -> list[Export]:
    """What storage host ``host`` has to export for this run; that it may be there from now on is written first."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    found = [
        (row, volume)
        for row, volume in _wanted_exports(conn, context, lock=True)
        if places.extract_host(volume.place, "host") == host
    ]
    made(conn, [volume.id for _row, volume in found], context)
    _write(conn, [row.id for row, _v in found], export=BEGUN, storage_host=host)
    return _exports(conn, found, and_itself=True)


def _wanted_exports(conn: t.Any, context: Context, lock: bool = False) -> list[tuple[t.Any, t.Any]]:
    """(attachment, volume) that are to be exported for this run: the volume is made, and it is known for whom."""
    read = _locked if lock else _live
    rows = read(
        conn,
        _a.run_id == context.run.id,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING)),
        _a.export.in_((NOTHING, BEGUN)),
        _a.attached_host.is_not(None),
        _a.initiator.is_not(None),
    )
    known = _volumes_of(conn, rows)
    usable = (states.AVAILABLE, states.ATTACHING, states.IN_USE)
    found = [(r, known[r.volume_id]) for r in rows if r.volume_id in known]
    return [(r, v) for r, v in found if v.place and v.made and v.status in usable]


def exported(
    conn: t.Any, host: str, results: t.Mapping[str, t.Mapping[str, t.Any] | errors.BootflowError], context: Context
) -> None:
    """How exporting went: {attachment_id: {"iqn", "lun", "portals"}, or the error}."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = {r.id: r for r in _locked(conn, bulk.among(conn, _a.id, sorted(results)))}
    for attachment_id, result in results.items():
        row = rows.get(attachment_id)
        if row is None or row.run_id != context.run.id or row.export != BEGUN:
            continue  # it was to end meanwhile: its target goes with that
        if isinstance(result, errors.BootflowError):
            _write(conn, [row.id], attach_status=states.ERROR_ATTACHING)
            volume_history.add_fault(conn, row.volume_id, result, host, context.now)
            continue
        portals = [str(p) for p in result.get("portals") or ()]
        _write(conn, [row.id], export=DONE, iqn=result["iqn"], lun=result["lun"], portals=portals)


def hosts_to_unexport(conn: t.Any, context: Context | None = None) -> set[str]:
    """Storage hosts with targets that are to go, whose compute side is done.

    :arg context: leave out what a live run other than this one sees to.
    """
    rows = _ending(conn)
    if context is not None:
        rows = _ours_or_nobodys(conn, rows, context)
    return {r.storage_host for r in rows}


def to_unexport(conn: t.Any, host: str, context: Context) -> list[Export]:
    """What storage host ``host`` has to stop exporting: what this run, a dead one, or nobody sees to. It is this run's then."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    mine = _ours_or_nobodys(conn, _ending(conn, host, lock=True), context)
    _write(conn, [r.id for r in mine], run_id=context.run.id)
    known = _volumes_of(conn, mine)
    return _exports(conn, [(r, known[r.volume_id]) for r in mine if r.volume_id in known], and_itself=False)


def _ending(conn: t.Any, host: str | None = None, lock: bool = False) -> list[t.Any]:
    conditions = [_a.export == ENDING, _a.connection == NOTHING, _a.storage_host.is_not(None)]
    if host is not None:
        conditions.append(_a.storage_host == host)
    return (_locked if lock else _live)(conn, *conditions)


def _ours_or_nobodys(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> list[t.Any]:
    dead = runs.dead_among(conn, {r.run_id for r in rows if r.run_id}, context.run, context.now)
    return [r for r in rows if r.run_id is None or r.run_id == context.run.id or r.run_id in dead]


def unexported(conn: t.Any, host: str, results: t.Mapping[str, errors.BootflowError | None], context: Context) -> None:
    """How it went: {attachment_id: None, or the error}. Attachments that are to end have ended with it."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = {r.id: r for r in _locked(conn, bulk.among(conn, _a.id, sorted(results)))}
    over = []
    for attachment_id, error in results.items():
        row = rows.get(attachment_id)
        if row is None or row.export != ENDING or row.run_id != context.run.id:
            continue
        if error is not None:
            volume_history.add_fault(conn, row.volume_id, error, host, context.now)
            continue
        _write(conn, [row.id], export=NOTHING, iqn=None, lun=None, portals=None)
        if row.attach_status == states.DETACHED:
            over.append(row)
    _end(conn, over, context)


def _exports(conn: t.Any, found: t.Sequence[tuple[t.Any, t.Any]], and_itself: bool) -> list[Export]:
    if not found:
        return []
    backends = {b.place: b for b in conn.execute(sa.select(storage_backends))}
    of_volume: dict[str, list[t.Any]] = {}
    for other in _live(
        conn, bulk.among(conn, _a.volume_id, sorted({v.id for _r, v in found})), _a.export.in_((BEGUN, DONE))
    ):
        of_volume.setdefault(other.volume_id, []).append(other)
    result = []
    for row, volume in found:
        others = {o.initiator for o in of_volume.get(volume.id, ()) if o.id != row.id and o.initiator}
        backend = backends.get(volume.place)
        result.append(
            Export(
                attachment_id=row.id,
                volume_id=volume.id,
                backend=backend.backend if backend is not None else places.extract_host(volume.place).partition("@")[2],
                configuration=dict(backend.configuration) if backend is not None else {},
                initiator=row.initiator or "",
                initiators=tuple(sorted(others | ({row.initiator} if and_itself else set()))),
                place=volume.place,
                instance_uuid=row.instance_uuid,
                mode=row.attach_mode,
            )
        )
    return result


# --- the compute host's end -------------------------------------------------------------------------------------------


def connecting(conn: t.Any, ids: t.Iterable[str], context: Context) -> set[str]:
    """The compute host begins to connect these. Returns those it may: not what was to end or got another run meanwhile."""
    rows = _locked(
        conn,
        bulk.among(conn, _a.id, sorted(set(ids))),
        _a.run_id == context.run.id,
        _a.attach_status == states.ATTACHING,
        _a.export == DONE,
    )
    _write(conn, [r.id for r in rows if r.connection != DONE], connection=BEGUN)
    return {r.id for r in rows}


def connected(conn: t.Any, paths: t.Mapping[str, str | None], context: Context) -> None:
    """These are connected: {id: device path of the host; None where QEMU connects itself}."""
    for attachment_id, path in paths.items():
        mine = sa.and_(_a.id == attachment_id, _a.deleted == LIVE, _a.run_id == context.run.id)
        conn.execute(volume_attachments.update().where(mine).values(connection=DONE, device_path=path))


def attached(conn: t.Any, ids: t.Iterable[str], context: Context) -> None:
    """The guests have these: attached, and the volumes in-use."""
    rows = _locked(
        conn,
        bulk.among(conn, _a.id, sorted(set(ids))),
        _a.run_id == context.run.id,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING)),
    )
    if not rows:
        return
    _write(
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
    for row in rows:
        payload = {"instance_uuid": row.instance_uuid, "mountpoint": row.mountpoint}
        volume_history.notify(conn, [row.volume_id], "volume.attach.end", payload, context.now)


def disconnected(conn: t.Any, ids: t.Iterable[str], context: Context) -> None:
    """The compute host is rid of these: their exports are to end, and with them those attachments that are to end."""
    rows = _locked(conn, bulk.among(conn, _a.id, sorted(set(ids))))
    # What the guest had and this run takes from it while it lives; a volume is never deleted by that.
    taken = [r for r in rows if r.attach_status == states.ATTACHED and r.run_id == context.run.id]
    forget(conn, taken)
    _unplug(conn, rows)
    _write(conn, [r.id for r in rows], run_id=context.run.id)
    over = {r.id for r in taken} | {r.id for r in rows if r.attach_status == states.DETACHED}
    _end(conn, [r for r in by_ids(conn, over).values() if r.export == NOTHING], context)


def forget(conn: t.Any, rows: t.Sequence[t.Any]) -> None:
    """These attachments are to end while their instances live on: the disks are theirs no more, and the volumes stay."""
    _write(conn, [r.id for r in rows], attach_status=states.DETACHED, delete_on_termination=False)
    _write(conn, [r.id for r in rows if r.connection == NOTHING and r.export != NOTHING], export=ENDING)
    c = block_device_mappings.c
    for row in rows:
        conn.execute(
            block_device_mappings.delete().where(c.instance_uuid == row.instance_uuid, c.device_name == row.mountpoint)
        )


def host_clean(conn: t.Any, host: str, instance_uuids: t.Iterable[str]) -> None:
    """``host`` is rid of these instances, and of their volumes with them: exports for it are to end."""
    rows = _locked(conn, bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))), _a.attached_host == host)
    _unplug(conn, [r for r in rows if r.attach_status != states.ATTACHED])


def _unplug(conn: t.Any, rows: t.Sequence[t.Any]) -> None:
    _write(conn, [r.id for r in rows], connection=NOTHING, device_path=None, rescan=False)
    _write(conn, [r.id for r in rows if r.export != NOTHING], export=ENDING)


def unplace(conn: t.Any, instance_uuids: t.Iterable[str]) -> None:
    """These builds go to another host: the reservation stays, the cleaned host's end is forgotten."""
    rows = _locked(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))),
        _a.connection == NOTHING,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING, states.ERROR_ATTACHING)),
    )
    _write(conn, [r.id for r in rows if r.export in (BEGUN, DONE)], export=ENDING)
    _write(conn, [r.id for r in rows], attached_host=None, initiator=None, way=None)
    _write(conn, [r.id for r in rows if r.attach_status == states.ERROR_ATTACHING], attach_status=states.ATTACHING)


# --- the end ------------------------------------------------------------------------------------------------------------


def let_go(conn: t.Any, instance_uuids: t.Iterable[str], context: Context) -> None:
    """These instances end: so do their attachments, each as soon as both of its ends are free of it.

    Volumes with delete_on_termination are deleted then, others become available. One that was made for a boot and never got
    as far as a backend goes, too: Nova would not have made it.
    """
    rows = _locked(conn, bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))))
    if not rows:
        return
    _write(conn, [r.id for r in rows], attach_status=states.DETACHED, run_id=context.run.id)
    idle = [r for r in rows if r.connection == NOTHING]
    _write(conn, [r.id for r in idle if r.export != NOTHING], export=ENDING)
    volumes.swap(
        conn,
        sorted({r.volume_id for r in rows if r.attach_status == states.ATTACHED}),
        {"status": (states.IN_USE,), "multiattach": (False,)},
        context.now,
        status=states.DETACHING,
    )
    _end(conn, [r for r in idle if r.export == NOTHING], context)


def leave_to_others(conn: t.Any, instance_uuids: t.Iterable[str]) -> None:
    """What is left of these attachments is done by whoever works on their hosts next."""
    leave_rows_to_others(conn, [r.id for rows in of_instances(conn, instance_uuids).values() for r in rows])


def end_idle(conn: t.Any, ids: t.Iterable[str], context: Context) -> None:
    """Those of the attachments are over that are to end, and that neither end has anything of."""
    rows = _locked(
        conn,
        bulk.among(conn, _a.id, sorted(set(ids))),
        _a.attach_status == states.DETACHED,
        _a.connection == NOTHING,
        _a.export == NOTHING,
    )
    _end(conn, rows, context)


def leave_rows_to_others(conn: t.Any, ids: t.Iterable[str]) -> None:
    """The same of single attachments."""
    _write(conn, ids, run_id=None)  # one that is over has none


def _end(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> None:
    """These attachments are over: their volumes are free, or go with their instance."""
    now = context.now
    known = _volumes_of(conn, rows)
    doomed = []
    for row in rows:
        conn.execute(
            volume_attachments.update()
            .where(_a.id == row.id)
            .values(deleted=row.id, attach_status=states.DETACHED, run_id=None)
        )
        volume = known.get(row.volume_id)
        if volume is None:
            continue
        volume_history.notify(conn, [volume.id], "volume.detach.end", {"instance_uuid": row.instance_uuid}, now)
        if volume.instance_uuid == row.instance_uuid and volume.status != states.ERROR:
            # nobody waits for it any more; one that could not be made is tried again with its instance
            conn.execute(volumes_table.update().where(volumes_table.c.id == volume.id).values(instance_uuid=None))
        others = [r for r in _live(conn, _a.volume_id == volume.id) if r.attach_status != states.DETACHED]
        if others:
            in_use = any(r.attach_status == states.ATTACHED for r in others)
            _release(conn, volume, states.IN_USE if in_use else states.ATTACHING, now)
        elif row.delete_on_termination or _never_placed(volume):
            doomed.append(volume)
        else:
            _release(conn, volume, states.AVAILABLE, now)
    for volume in doomed:
        _release(conn, volume, states.AVAILABLE, now)  # a volume that is attached cannot be deleted
    if doomed:
        volume_deletion.mark(conn, sorted(v.id for v in doomed), context)


def _never_placed(volume: t.Any) -> bool:
    return bool(volume.instance_uuid) and volume.status == states.CREATING and not volume.place


def _release(conn: t.Any, volume: t.Any, status: str, now: float) -> None:
    attach_status = states.ATTACHED if status == states.IN_USE else states.DETACHED
    busy = (states.RESERVED, states.ATTACHING, states.DETACHING, states.IN_USE)
    values: dict[str, t.Any] = {"attach_status": attach_status}
    if status == states.AVAILABLE:
        values["run_id"] = None
    volumes.swap(conn, [volume.id], {"status": busy}, now, status=status, **values)
