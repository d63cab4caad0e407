# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger's own id, which marks what hosts have of it."""

from __future__ import annotations

from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from .tables import ledger_identity


def ledger_id(tx: Transaction) -> str:
    """The UUID that was drawn when the ledger was made."""
    return str(tx.execute(sa.select(ledger_identity.c.id)).scalar_one())
