# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparison of this controller's clock with the clock of the database server, and so with the clocks of the other controllers.

Leases end, and reports of hosts are older or newer than what is written, by the clocks of all controllers of a ledger.
"""

from __future__ import annotations

import time
import typing as t

from .sqlalchemy_import import sa
from .transaction import Transaction

_SERVER = sa.text("SELECT extract(epoch FROM clock_timestamp())")


def ahead(tx: Transaction, clock: t.Callable[[], float] = time.time) -> float:
    """Return how many seconds the clock of this controller is ahead of the server's; negative: behind.

    0 where they agree, as far as the time that the answer takes lets one see, and of a file of this machine.
    """
    if not tx.database_kind.is_server:
        return 0.0
    before = clock()
    server = float(tx.execute(_SERVER).scalar_one())
    after = clock()
    return max(before - server, 0.0) + min(after - server, 0.0)
