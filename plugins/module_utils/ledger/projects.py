# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The projects that the ledger knows: they have, or had, an instance, a volume or a server group."""

from __future__ import annotations

from ..core import errors
from ..core.reading.nearest import suggestion
from .db.sqlalchemy_import import sa
from .db.transaction import Transaction
from .schema.tables import instances, reservations, server_groups
from .schema.volume_tables import volumes

TABLES = (instances, reservations, server_groups, volumes)  # a deleted instance or volume is known until it is purged


def refuse_unknown(tx: Transaction, project: str) -> None:
    """:raises ProjectNotFound: the ledger has nothing of it, not even of what was deleted. The remedy has the nearest name."""
    known = set(tx.execute(sa.union(*(sa.select(table.c.project) for table in TABLES))).scalars())
    if project not in known:
        remedy = suggestion(project, known, "The list of projects that the ledger knows")
        raise errors.ProjectNotFound(project_id=project, remedy=remedy)
