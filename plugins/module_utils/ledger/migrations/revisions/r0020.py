# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with several names stays one when its hostname changes and it restarts. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.sqlalchemy_import import sa

revision = "0020"


def upgrade(op: t.Any) -> None:
    op.add_column("compute_nodes", sa.Column("machine_id", sa.String(36)))
    op.add_column("compute_nodes", sa.Column("reported_boot_id", sa.String(64), nullable=False, server_default=""))
    op.execute("UPDATE compute_nodes SET reported_boot_id = boot_id")
    op.execute(
        "UPDATE compute_nodes SET machine_id = (SELECT CAST(MIN(o.id) AS VARCHAR(36)) FROM compute_nodes AS o WHERE o.node = compute_nodes.node"
        " AND o.host_uuid = compute_nodes.host_uuid AND o.has_other_name) WHERE has_other_name AND host_uuid <> ''"
    )
    op.drop_column("compute_nodes", "has_other_name")
