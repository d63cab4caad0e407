# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The storage host's end of attachments: what it has to export, and what it has to stop exporting.

That a target may be there is written before it is made, and it goes only after the compute host is rid of it: where
``connection`` is not none, ``export`` is not none either.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.volumes import pool_hosts, states
from ..compute import runs
from ..context import Context
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import storage_backends, volume_attachments
from ..schema.tables import volumes as volumes_table
from ..schema.volume_tables import BEGUN, DONE, ENDING, NOTHING
from . import attachment_reservations, attachments, volume_history
from .attachment_rows import LIVE, ON_THE_WAY, live, locked, volumes_of, write

_a = volume_attachments.c


@dataclass(frozen=True)
class Export:
    """One attachment's target on a storage host, that is to be made or to go.

    ``configuration`` is the backend's entry of the inventory as it last reported (volume_group, target, portals, iqn_prefix,
    ...). ``initiator`` is that of this attachment. ``initiators`` are all that the target has to let in afterwards, sorted:
    to_export: this one and those of the volume's other attachments; to_unexport: those of the others, and where there is
    none the target goes (state absent). ``keep`` are those of them whose credentials stay: the others', and this one where
    ``login`` is false, for its host is logged in for another guest.
    """

    attachment_id: str
    volume_id: str
    backend: str  # its name
    configuration: t.Mapping[str, t.Any]
    initiator: str
    initiators: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    login: bool = True
    pool_host: str = ""  # host@backend#pool
    instance_uuid: str = ""
    mode: str = "rw"


def hosts_to_export(conn: t.Any, context: Context) -> set[str]:
    """Storage hosts that have to export a volume for this run."""
    v = volumes_table.c
    query = (
        sa.select(v.pool_host).join(volume_attachments, _a.volume_id == v.id).where(*_wanted(context), _exportable())
    )
    return {pool_hosts.extract_host(pool_host, "host") for pool_host in conn.execute(query.distinct()).scalars()}


def to_export(conn: t.Any, host: str, context: Context) -> list[Export]:
    """What storage host ``host`` has to export for this run; that it may be there from now on is written first."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    here = volumes_table.c.pool_host.startswith(host + "@", autoescape=True)
    mine = _a.volume_id.in_(sa.select(volumes_table.c.id).where(_exportable(), here))
    rows = locked(conn, *_wanted(context), mine)
    known = volumes_of(conn, rows)
    found = [(row, known[row.volume_id]) for row in rows]
    attachment_reservations.made(conn, [volume.id for _row, volume in found], context)
    write(conn, [row.id for row, _v in found], export=BEGUN, storage_host=host)
    return _exports(conn, found, and_itself=True)


def _wanted(context: Context) -> tuple[t.Any, ...]:
    """What has to hold of live attachments that are to be exported for this run: it is known for whom."""
    return (
        _a.deleted == LIVE,
        _a.run_id == context.run.id,
        _a.attach_status.in_((states.RESERVED, states.ATTACHING)),
        _a.export.in_((NOTHING, BEGUN)),
        _a.attached_host.is_not(None),
        _a.initiator.is_not(None),
    )


def _exportable() -> t.Any:
    """What has to hold of their volumes: they are made."""
    v = volumes_table.c
    usable = (states.AVAILABLE, states.ATTACHING, states.IN_USE)
    return sa.and_(v.deleted == LIVE, v.pool_host.is_not(None), v.made.is_(True), v.status.in_(usable))


def exported(
    conn: t.Any, host: str, results: t.Mapping[str, t.Mapping[str, t.Any] | errors.BootflowError], context: Context
) -> None:
    """How exporting went: {attachment_id: {"iqn", "lun", "portals"}, or the error}."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = {r.id: r for r in locked(conn, bulk.among(conn, _a.id, sorted(results)))}
    failed, done = [], []
    for attachment_id, result in results.items():
        row = rows.get(attachment_id)
        if row is None or row.run_id != context.run.id or row.export != BEGUN:
            continue  # it was to end meanwhile: its target goes with that
        if isinstance(result, errors.BootflowError):
            failed.append(row.id)
            volume_history.add_fault(conn, row.volume_id, result, host, context.now)
            continue
        portals = [str(p) for p in result.get("portals") or ()]
        done.append({"id": row.id, "export": DONE, "iqn": result["iqn"], "lun": result["lun"], "portals": portals})
    write(conn, failed, attach_status=states.ERROR_ATTACHING)
    bulk.update(conn, volume_attachments, "id", done)


def hosts_to_unexport(conn: t.Any, context: Context | None = None) -> set[str]:
    """Storage hosts with targets that are to go, whose compute side is done.

    :arg context: leave out what a live run other than this one sees to.
    """
    query = sa.select(_a.storage_host, _a.run_id).where(_a.deleted == LIVE, *_ending()).distinct()
    rows = list(conn.execute(query))
    if context is not None:
        rows = _ours_or_nobodys(conn, rows, context)
    return {r.storage_host for r in rows}


def to_unexport(conn: t.Any, host: str, context: Context) -> list[Export]:
    """What storage host ``host`` has to stop exporting: what this run, a dead one, or nobody sees to. It is this run's then."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    mine = _ours_or_nobodys(conn, locked(conn, _a.storage_host == host, *_ending()), context)
    write(conn, [r.id for r in mine], run_id=context.run.id)
    known = volumes_of(conn, mine)
    return _exports(conn, [(r, known[r.volume_id]) for r in mine if r.volume_id in known], and_itself=False)


def _ending() -> tuple[t.Any, ...]:
    """What has to hold of live attachments whose targets are to go."""
    return _a.export == ENDING, _a.connection == NOTHING, _a.storage_host.is_not(None)


def _ours_or_nobodys(conn: t.Any, rows: t.Sequence[t.Any], context: Context) -> list[t.Any]:
    dead = runs.dead_among(conn, {r.run_id for r in rows if r.run_id}, context.run, context.now)
    return [r for r in rows if r.run_id is None or r.run_id == context.run.id or r.run_id in dead]


def unexported(conn: t.Any, host: str, results: t.Mapping[str, errors.BootflowError | None], context: Context) -> None:
    """How it went: {attachment_id: None, or the error}. Attachments that are to end have ended with it."""
    runs.renew(conn, context.run, context.now, context.lease_seconds)
    rows = {r.id: r for r in locked(conn, bulk.among(conn, _a.id, sorted(results)))}
    over, gone = [], []
    for attachment_id, error in results.items():
        row = rows.get(attachment_id)
        if row is None or row.export != ENDING or row.run_id != context.run.id:
            continue
        if error is not None:
            volume_history.add_fault(conn, row.volume_id, error, host, context.now)
            continue
        gone.append(row.id)
        if row.attach_status == states.DETACHED:
            over.append(row)
    write(conn, gone, export=NOTHING, iqn=None, lun=None, portals=None)
    attachments.end_rows(conn, over, context)


def _exports(conn: t.Any, found: t.Sequence[tuple[t.Any, t.Any]], and_itself: bool) -> list[Export]:
    if not found:
        return []
    used = sorted({v.pool_host for _r, v in found})
    query = sa.select(storage_backends).where(bulk.among(conn, storage_backends.c.pool_host, used))
    backends = {b.pool_host: b for b in conn.execute(query)}
    of_volume: dict[str, list[t.Any]] = {}
    for other in live(
        conn, bulk.among(conn, _a.volume_id, sorted({v.id for _r, v in found})), _a.export.in_((BEGUN, DONE))
    ):
        of_volume.setdefault(other.volume_id, []).append(other)
    result = []
    for row, volume in found:
        there = [o for o in of_volume.get(volume.id, ()) if o.id != row.id and o.initiator]
        others = {o.initiator for o in there}
        own = {row.initiator} if and_itself else set()
        login = and_itself and not any(_serves(o, row) for o in there)
        backend = backends.get(volume.pool_host)
        result.append(
            Export(
                attachment_id=row.id,
                volume_id=volume.id,
                backend=backend.backend
                if backend is not None
                else pool_hosts.extract_host(volume.pool_host).partition("@")[2],
                configuration=dict(backend.configuration) if backend is not None else {},
                initiator=row.initiator or "",
                initiators=tuple(sorted(others | own)),
                keep=tuple(sorted(others - own if login else others)),
                login=login,
                pool_host=volume.pool_host,
                instance_uuid=row.instance_uuid,
                mode=row.attach_mode,
            )
        )
    return result


def _serves(other: t.Any, row: t.Any) -> bool:
    """Whether the host of ``row`` is logged in for ``other`` already, with credentials that this run does not know.

    What one run attaches to several guests of a host has the same credentials.
    """
    begun_together = other.run_id == row.run_id and other.attach_status in ON_THE_WAY
    return bool(other.initiator == row.initiator and other.connection != NOTHING and not begun_together)


def served(conn: t.Any, ids: t.Iterable[str]) -> set[str]:
    """Those of the attachments whose hosts are logged in for another guest already: that session is theirs, too."""
    rows = list(attachments.by_ids(conn, ids).values())
    if not rows:
        return set()
    others = live(conn, bulk.among(conn, _a.volume_id, sorted({r.volume_id for r in rows})), _a.connection != NOTHING)
    return {r.id for r in rows if any(o.id != r.id and o.volume_id == r.volume_id and _serves(o, r) for o in others)}
