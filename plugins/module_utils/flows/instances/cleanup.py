# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of what was left of instances on a host."""

from __future__ import annotations

import typing as t

from ...ledger.compute import cleanups
from ...ledger.db.transaction import Transaction
from ..attachments import life


def finish(tx: Transaction, host: str, uuids: t.Sequence[str]) -> None:
    """``host`` has nothing of these instances: their volumes, claims and addresses there are free."""
    life.host_cleaned(tx, host, uuids)  # before any node is locked
    cleanups.done(tx, host, uuids)
