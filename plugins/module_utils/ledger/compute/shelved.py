# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelved instances: their images, hosts and times. source: Nova's system_metadata shelved_at, shelved_image_id and shelved_host"""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import instances, shelved_instances

_s = shelved_instances.c


class ShelvedRow:
    """A row of shelved_instances: from the end of a shelve to the end of the unshelve, or the deletion of the instance."""

    instance_uuid: str
    image_id: str | None  # of its root disk; None: its root is a volume
    host: str  # where it was shelved
    shelved_at: float  # seconds since the epoch


def add(tx: Transaction, image_ids: t.Mapping[str, str | None], hosts: t.Mapping[str, str | None]) -> None:
    """Enter instances that are shelved now. :arg image_ids: uuid -> the image of its root disk, or None. :arg hosts: uuid -> its host"""
    forget(tx, image_ids)
    rows = [
        {"instance_uuid": uuid, "image_id": image_id, "host": hosts[uuid], "shelved_at": tx.now}
        for uuid, image_id in sorted(image_ids.items())
    ]
    bulk.insert(tx, shelved_instances, rows)


def of_instances(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, ShelvedRow]:
    """Return the rows of instances by UUID; an instance that is not shelved is left out."""
    wanted = sorted(set(uuids))
    if not wanted:
        return {}
    rows = tx.rows(sa.select(shelved_instances).where(bulk.among(tx, _s.instance_uuid, wanted)), ShelvedRow)
    return {r.instance_uuid: r for r in rows}


def older_than(tx: Transaction, seconds: float | None) -> list[str]:
    """Return the instances that have been shelved for so long (None: no time is enough) and are on their hosts still; any whose root is a volume."""
    c = instances.c
    is_due: sa.ColumnElement[bool] = _s.image_id.is_(None)
    if seconds is not None:
        is_due = sa.or_(is_due, _s.shelved_at <= tx.now - seconds)
    query = sa.select(c.uuid).join(shelved_instances, _s.instance_uuid == c.uuid)
    query = query.where(c.deleted == "", c.vm_state == states.SHELVED, is_due)
    return list(tx.execute(query.order_by(c.uuid)).scalars())


def forget(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Forget instances that are not shelved any more."""
    listed = sorted(set(uuids))
    if listed:
        tx.execute(shelved_instances.delete().where(bulk.among(tx, _s.instance_uuid, listed)))
