# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs that ended left half done of volumes: creations end in error, deletions and extensions are this run's now.

Volumes of builds are their builds' matter.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.volumes import states
from ...ledger.compute import instances
from ...ledger.context import Context
from ...ledger.db import bulk
from ...ledger.db.sqlalchemy_import import sa
from ...ledger.schema.tables import instances as instances_table
from ...ledger.schema.tables import runs as runs_table
from ...ledger.schema.tables import volume_snapshots
from ...ledger.schema.tables import volumes as volumes_table
from ...ledger.schema.volume_tables import SNAPSHOTS_AT_WORK
from ...ledger.storage import volumes
from ..attachments import changes
from ..volumes import schedule

MAKING = (states.CREATING, states.DOWNLOADING)
GOING_ON = (states.DELETING, states.EXTENDING)  # one host's work: whoever works there next does it


@dataclass
class Left:
    """Rows of what is to be given back."""

    attachments: list[t.Any] = field(default_factory=list)
    volumes: list[t.Any] = field(default_factory=list)
    snapshots: list[t.Any] = field(default_factory=list)

    @property
    def volume_ids(self) -> set[str]:
        found = {r.volume_id for r in self.attachments} | {r.volume_id for r in self.snapshots}
        return found | {r.id for r in self.volumes}

    def __bool__(self) -> bool:
        return bool(self.attachments or self.volumes or self.snapshots)


def ended(conn: t.Any, run_ids: t.Iterable[str], context: Context) -> set[str]:
    """Those of the runs whose lease is out, or that nobody knows."""
    wanted = {r for r in run_ids if r and r != context.run.id}
    c = runs_table.c
    mine = bulk.among(conn, c.id, sorted(wanted))
    alive = set(conn.execute(sa.select(c.id).where(mine, c.lease_until > context.now)).scalars()) if wanted else set()
    return wanted - alive


def left(
    conn: t.Any,
    context: Context,
    which: t.Callable[[t.Any, t.Iterable[str], Context], set[str]] = ended,
    instance_uuids: t.Collection[str] = (),
) -> Left:
    """What is to be given back.

    :arg which: gives those of some runs that ended; runs.dead_among() looks at their processes, too.
    :arg instance_uuids: builds that end now: their volumes count as nobody's.
    """
    c = volumes_table.c
    query = sa.select(volumes_table).where(
        c.deleted == volumes.LIVE, c.status.in_(MAKING + GOING_ON), c.run_id.is_not(None), c.run_id != context.run.id
    )
    rows = list(conn.execute(query.order_by(c.id)))
    s = volume_snapshots.c
    snapshots = list(
        conn.execute(
            sa.select(volume_snapshots).where(
                sa.text(SNAPSHOTS_AT_WORK), s.run_id.is_not(None), s.run_id != context.run.id
            )
        )
    )
    cables = changes.begun_by_others(conn, context)
    over = which(conn, {r.run_id for r in [*rows, *snapshots, *cables]}, context)
    waited_for = _waited_for(conn, {r.instance_uuid for r in rows if r.instance_uuid} - set(instance_uuids))
    return Left(
        attachments=[r for r in cables if r.run_id in over],
        volumes=[r for r in rows if r.run_id in over and not (r.status in MAKING and r.instance_uuid in waited_for)],
        snapshots=[r for r in snapshots if r.run_id in over],
    )


def _waited_for(conn: t.Any, uuids: t.Collection[str]) -> set[str]:
    """Those of the instances that live."""
    c = instances_table.c
    mine = bulk.among(conn, c.uuid, sorted(uuids))
    return set(conn.execute(sa.select(c.uuid).where(mine, c.deleted == instances.LIVE)).scalars()) if uuids else set()


def give_back(conn: t.Any, found: Left, context: Context) -> None:
    """Give it back. The volumes' rows are locked, and are read again: what changed since is left alone."""
    changes.give_back(conn, found.attachments, context)
    before = {r.id: r for r in found.volumes}
    rows = [
        r
        for r in (volumes.select(conn, ids=sorted(before)) if before else ())
        if (r.status, r.run_id) == (before[r.id].status, before[r.id].run_id)
    ]
    _adopt(conn, volumes_table, [r.id for r in rows], context)
    making = [r for r in rows if r.status in MAKING]
    schedule.end_in_error(conn, making, {r.id: died_error(r) for r in making}, context)
    _adopt(conn, volume_snapshots, [r.id for r in found.snapshots], context)


def _adopt(conn: t.Any, table: t.Any, ids: t.Sequence[str], context: Context) -> None:
    if ids:
        mine = bulk.among(conn, table.c.id, list(ids))
        conn.execute(table.update().where(mine).values(run_id=context.run.id, updated_at=context.now))


def died_error(row: t.Any) -> errors.BootflowError:
    """The fault of a volume whose run is gone."""
    return errors.VolumeBackendAPIException(
        data="run %s died while it made volume %s" % (row.run_id, row.name or row.id),
        remedy="Ask for the same volume again: it is made anew.",
    )
