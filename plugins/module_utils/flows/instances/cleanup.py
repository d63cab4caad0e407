# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a cleanup of instances on a host."""

from __future__ import annotations

import typing as t

from ...ledger.compute import cleanups
from ...ledger.db.transaction import Transaction
from ..attachments import life


def finish(tx: Transaction, cleaned: t.Mapping[str, t.Collection[str]]) -> None:
    """The hosts have nothing of these instances: their volumes, claims and addresses there are free. {host: uuids}"""
    pairs = {(host, uuid) for host, uuids in cleaned.items() for uuid in uuids}
    life.hosts_cleaned(tx, pairs - set(cleanups.of_a_part(tx, pairs)))  # before any node is locked
    cleanups.done(tx, pairs)
