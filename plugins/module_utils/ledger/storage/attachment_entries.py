# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entering attachments of volumes that boots make: nobody else knows these volumes yet, so there is nothing to check."""

from __future__ import annotations

import typing as t
import uuid as uuid_module

from ...core.volumes import states
from ..context import Context
from ..schema.tables import volume_attachments
from ..schema.volume_tables import NOTHING
from . import volume_history


class Entry(t.NamedTuple):
    """A volume in creating, and the instance that it is made for."""

    volume_id: str
    instance_uuid: str
    mountpoint: str | None
    delete_on_termination: bool


def enter(conn: t.Any, entries: t.Sequence[Entry], context: Context) -> list[str]:
    """Keep these volumes for their instances. Returns the attachments' ids, in order; they become attaching when made."""
    if not entries:
        return []
    now = context.now
    rows = [
        {
            "id": str(uuid_module.UUID(int=context.rng.getrandbits(128), version=4)),
            "volume_id": entry.volume_id,
            "instance_uuid": entry.instance_uuid,
            "attach_status": states.RESERVED,
            "attach_mode": "rw",
            "mountpoint": entry.mountpoint,
            "delete_on_termination": entry.delete_on_termination,
            "export": NOTHING,
            "connection": NOTHING,
            "rescan": False,
            "run_id": context.run.id,
            "created_at": now,
            "deleted": "",
        }
        for entry in entries
    ]
    conn.execute(volume_attachments.insert(), rows)
    told = [(entry.volume_id, {"instance_uuid": entry.instance_uuid}) for entry in entries]
    volume_history.notify_each(conn, told, "volume.attach.start", now)
    return [str(row["id"]) for row in rows]
