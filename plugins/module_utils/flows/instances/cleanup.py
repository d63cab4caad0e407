# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a cleanup of instances on a host."""

from __future__ import annotations

import typing as t

from ...ledger.compute import cleanups
from ...ledger.db.transaction import Transaction
from ..attachments import life


def finish(tx: Transaction, host: str, uuids: t.Sequence[str]) -> None:
    """``host`` is clean of these instances: release their volumes, claims and addresses there."""
    life.host_cleaned(tx, host, uuids)  # before any node is locked
    cleanups.done(tx, host, uuids)
