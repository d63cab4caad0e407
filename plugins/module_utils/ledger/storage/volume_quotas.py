# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a project has of volumes and snapshots. It is counted, not kept: who writes holds the project's turn.

source: Cinder's quota engine (Queens)
"""

from __future__ import annotations

import typing as t

from ...core.volumes import quotas
from ..db.sqlalchemy_import import sa
from ..schema.tables import volume_snapshots, volumes


def usage(conn: t.Any, project: str, no_snapshot_gb_quota: bool = False) -> dict[str, int]:
    """{volumes, gigabytes, snapshots, and the same with _<type>}. A volume that grows has its new size already."""
    v, s = volumes.c, volume_snapshots.c
    size = sa.func.coalesce(v.new_size, v.size)
    found = []
    for kind, count, gigabytes in conn.execute(
        sa.select(v.volume_type, sa.func.count(), sa.func.sum(size))
        .where(v.project == project, v.deleted == "")
        .group_by(v.volume_type)
    ):
        found.append({**quotas.for_volume(int(gigabytes), kind), **_counted(quotas.VOLUMES, int(count), kind)})
    for kind, count, gigabytes in conn.execute(
        sa.select(s.volume_type, sa.func.count(), sa.func.sum(s.volume_size))
        .where(s.project == project, s.deleted == "")
        .group_by(s.volume_type)
    ):
        amounts = quotas.for_snapshot(int(gigabytes), kind, no_snapshot_gb_quota)
        found.append({**amounts, **_counted(quotas.SNAPSHOTS, int(count), kind)})
    return {quotas.VOLUMES: 0, quotas.GIGABYTES: 0, quotas.SNAPSHOTS: 0, **quotas.total(found)}


def _counted(what: str, count: int, kind: str | None) -> dict[str, int]:
    return {what: count, **({"%s_%s" % (what, kind): count} if kind else {})}
