# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reserving volumes for instances: for new ones, for half-built ones that another run takes over, and once more."""

from __future__ import annotations

import typing as t
import uuid as uuid_module

from ...core import errors
from ...core.volumes import attach_rules, pool_hosts, states
from ..context import Context
from ..db import bulk
from ..db.sqlalchemy_import import sa
from ..schema.tables import cleanups, volume_attachments
from ..schema.tables import volumes as volumes_table
from ..schema.volume_tables import BEGUN, DONE, NOTHING
from . import volume_history, volumes
from .attachment_rows import LIVE, ON_THE_WAY, check_locked, live, locked, write

_a = volume_attachments.c


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

    One with multiattach may be in use, and be kept for several instances by one run.

    :raises InvalidVolume: it is not available, attached to it already, reserved for another, or in another zone.
    :raises InvalidVolumeAttachMode: no such mode, or it may only be read.
    :raises VolumeLocked: another run works on another attachment of it.
    """
    there = volumes.attachments_of(conn, [volume_row.id]).get(volume_row.id, [])
    making = volume_row.instance_uuid == instance_uuid and volume_row.status in (states.CREATING, states.DOWNLOADING)
    if not making:
        _check_not_reserved(volume_row, there, instance_uuid)
        together = check_others(conn, volume_row, instance_uuid, context)
        transition = attach_rules.check_attach_to_instance(
            volumes.to_volume(volume_row), instance_uuid, there, instance_zone, cross_az_attach, mode, together
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
            storage_host=pool_hosts.extract_host(volume_row.pool_host, "host") if volume_row.pool_host else None,
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


def check_others(conn: t.Any, volume_row: t.Any, instance_uuid: str, context: Context) -> bool:
    """Whether all that is on its way to a volume with multiattach is this run's.

    Credentials of attachments are known to their run alone, and a host's session may serve several of them: so there is one
    run at a time. source: Cinder's _attachment_reserve ("contention issues with shared connections")

    :raises VolumeLocked: another run works on one of its attachments.
    :raises InvalidVolume: it is still being taken from the same instance.
    """
    if not volume_row.multiattach:
        return False
    rows = live(conn, _a.volume_id == volume_row.id)
    check_locked(conn, volume_row, rows, context)
    if any(r.instance_uuid == instance_uuid and r.attach_status == states.DETACHED for r in rows):
        raise errors.InvalidVolume(
            reason="volume %s already attached" % volume_row.id,
            remedy="It is still being taken from instance %s: wait until that is done." % instance_uuid,
        )
    return all(r.run_id == context.run.id for r in rows if r.attach_status in ON_THE_WAY)


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
    mine = bulk.among(conn, _a.volume_id, sorted(set(volume_ids)))
    rows = locked(conn, mine, _a.attach_status == states.RESERVED)
    ids = sorted({r.volume_id for r in rows})
    if ids:
        moved = volumes.swap(conn, ids, {"status": (states.AVAILABLE,)}, context.now, status=states.ATTACHING)
        write(conn, [r.id for r in rows if r.volume_id in moved], attach_status=states.ATTACHING)


def take_over(conn: t.Any, instance_uuids: t.Sequence[str], context: Context) -> None:
    """Attachments of half-built instances are this run's now, and so are their volumes that are on their way.

    Their exports are made anew: the credentials that a dead run set died with it.
    """
    rows = locked(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted(set(instance_uuids))),
        _a.attach_status.not_in((states.ATTACHED, states.DETACHED)),
    )
    write(conn, [r.id for r in rows], run_id=context.run.id)
    write(conn, [r.id for r in rows if r.export == DONE], export=BEGUN)
    write(conn, [r.id for r in rows if r.attach_status == states.ERROR_ATTACHING], attach_status=states.ATTACHING)
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
    write(
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
    due = {(r.host, r.instance_uuid) for r in conn.execute(sa.select(cleanups.c.host, cleanups.c.instance_uuid))}
    if not due:
        return []
    rows = live(
        conn,
        bulk.among(conn, _a.instance_uuid, sorted({uuid for _host, uuid in due})),
        _a.connection != NOTHING,
        _a.attach_status == states.DETACHED,
    )
    return sorted({r.attached_host for r in rows if (r.attached_host, r.instance_uuid) in due})
