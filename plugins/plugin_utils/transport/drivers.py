# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loads the driver of the ledger's database once, in Ansible's main process, instead of in each task that it forks.

psycopg takes a tenth of a second, of a boot with some ten tasks. Which database it is, only tasks know: the first one leaves it in
ANSIBLE_HOME for the next runs. What is wrong there costs time and nothing else, as a task loads what it needs and does not find.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ansible import constants

from ...module_utils.core.optional import optional_import
from ...module_utils.ledger.db.address import url_is_sqlite
from .packed_modules import write_whole

FILE = "bootflow-database"  # in ANSIBLE_HOME
SQLITE, POSTGRESQL = "sqlite", "postgresql"
LIBRARIES = {
    SQLITE: ("sqlalchemy.dialects.sqlite.pysqlite",),
    POSTGRESQL: ("sqlalchemy.dialects.postgresql.psycopg", "psycopg"),
}


def load() -> None:
    """Load what the last run needed; sqlite's, which is small, where there was none."""
    for name in LIBRARIES.get(_last(), LIBRARIES[SQLITE]):
        optional_import(name)


def remember(url: str) -> None:
    """Remember the driver of this run's ledger for the next run."""
    kind = SQLITE if url_is_sqlite(url) else POSTGRESQL
    if kind == (_last() or SQLITE):
        return
    with contextlib.suppress(OSError):
        write_whole(_path(), kind.encode() + b"\n")


def _last() -> str:
    try:
        return _path().read_text().strip()
    except (OSError, ValueError):
        return ""


def _path() -> Path:
    return Path(constants.config.get_config_value("ANSIBLE_HOME")) / FILE
