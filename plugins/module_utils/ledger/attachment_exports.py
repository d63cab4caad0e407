# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The storage host's end of attachments: what it has to export, and what it has to stop exporting. source: row C33

That a target may be there is written before it is made, and it goes only after the compute host is rid of it: where
``connection`` is not none, ``export`` is not none either.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..core import errors
from ..core.volumes import places, states
from . import attachment_reservations, attachments, bulk, runs, volume_history
from .attachment_rows import live, locked, volumes_of, write
from .context import Context
from .libraries import sa
from .tables import storage_backends, volume_attachments
from .volume_tables import BEGUN, DONE, ENDING, NOTHING

_a = volume_attachments.c


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
    attachment_reservations.made(conn, [volume.id for _row, volume in found], context)
    write(conn, [row.id for row, _v in found], export=BEGUN, storage_host=host)
    return _exports(conn, found, and_itself=True)


def _wanted_exports(conn: t.Any, context: Context, lock: bool = False) -> list[tuple[t.Any, t.Any]]:
    """(attachment, volume) that are to be exported for this run: the volume is made, and it is known for whom."""
    read = locked if lock else live
    rows = read(
        conn,
        _a.run_id == context.run.id,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING)),
        _a.export.in_((NOTHING, BEGUN)),
        _a.attached_host.is_not(None),
        _a.initiator.is_not(None),
    )
    known = volumes_of(conn, rows)
    usable = (states.AVAILABLE, states.ATTACHING, states.IN_USE)
    found = [(r, known[r.volume_id]) for r in rows if r.volume_id in known]
    return [(r, v) for r, v in found if v.place and v.made and v.status in usable]


def exported(
    conn: t.Any, host: str, results: t.Mapping[str, t.Mapping[str, t.Any] | errors.BootflowError], context: Context
) -> None:
    """How exporting went: {attachment_id: {"iqn", "lun", "portals"}, or the error}."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = {r.id: r for r in locked(conn, bulk.among(conn, _a.id, sorted(results)))}
    for attachment_id, result in results.items():
        row = rows.get(attachment_id)
        if row is None or row.run_id != context.run.id or row.export != BEGUN:
            continue  # it was to end meanwhile: its target goes with that
        if isinstance(result, errors.BootflowError):
            write(conn, [row.id], attach_status=states.ERROR_ATTACHING)
            volume_history.add_fault(conn, row.volume_id, result, host, context.now)
            continue
        portals = [str(p) for p in result.get("portals") or ()]
        write(conn, [row.id], export=DONE, iqn=result["iqn"], lun=result["lun"], portals=portals)


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
    write(conn, [r.id for r in mine], run_id=context.run.id)
    known = volumes_of(conn, mine)
    return _exports(conn, [(r, known[r.volume_id]) for r in mine if r.volume_id in known], and_itself=False)


def _ending(conn: t.Any, host: str | None = None, lock: bool = False) -> list[t.Any]:
    conditions = [_a.export == ENDING, _a.connection == NOTHING, _a.storage_host.is_not(None)]
    if host is not None:
        conditions.append(_a.storage_host == host)
    return (locked if lock else live)(conn, *conditions)


def _ours_or_nobodys(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> list[t.Any]:
    dead = runs.dead_among(conn, {r.run_id for r in rows if r.run_id}, context.run, context.now)
    return [r for r in rows if r.run_id is None or r.run_id == context.run.id or r.run_id in dead]


def unexported(conn: t.Any, host: str, results: t.Mapping[str, errors.BootflowError | None], context: Context) -> None:
    """How it went: {attachment_id: None, or the error}. Attachments that are to end have ended with it."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = {r.id: r for r in locked(conn, bulk.among(conn, _a.id, sorted(results)))}
    over = []
    for attachment_id, error in results.items():
        row = rows.get(attachment_id)
        if row is None or row.export != ENDING or row.run_id != context.run.id:
            continue
        if error is not None:
            volume_history.add_fault(conn, row.volume_id, error, host, context.now)
            continue
        write(conn, [row.id], export=NOTHING, iqn=None, lun=None, portals=None)
        if row.attach_status == states.DETACHED:
            over.append(row)
    attachments.end_rows(conn, over, context)


def _exports(conn: t.Any, found: t.Sequence[tuple[t.Any, t.Any]], and_itself: bool) -> list[Export]:
    if not found:
        return []
    backends = {b.place: b for b in conn.execute(sa.select(storage_backends))}
    of_volume: dict[str, list[t.Any]] = {}
    for other in live(
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
