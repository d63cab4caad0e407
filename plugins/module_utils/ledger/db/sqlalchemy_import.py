# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The only import of the ledger's libraries, with stand-ins if they are not installed."""

from __future__ import annotations

import typing as t

from ...core.optional import installed, optional_import, require

__all__ = ["need_libraries", "sa"]

if t.TYPE_CHECKING:
    import sqlalchemy as sa
else:
    sa = optional_import("sqlalchemy")


def need_libraries(url: str) -> None:
    """Raise MissingLibrary for libraries that a ledger at ``url`` needs and the controller lacks."""
    require(sa, "SQLAlchemy", "'SQLAlchemy>=2.0'")
    require(installed("alembic"), "Alembic", "alembic")  # imported only by upgrades, as the import takes long
    if url.startswith("postgresql"):
        require(optional_import("psycopg"), "psycopg", "'psycopg[binary]'")
