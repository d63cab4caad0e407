# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The states that people give to compute hosts, and what follows from them."""

from __future__ import annotations

import typing as t

from ...ledger.compute import service_state
from ...ledger.db.transaction import Transaction
from ..attachments import life


def set_state(tx: Transaction, hosts: t.Sequence[str], state: str, reason: str) -> list[dict[str, t.Any]]:
    """Give these hosts a state. The volumes of instances that were deleted on hosts that are forced down become free.

    Returns and raises what ledger.compute.service_state.set_state() does.
    """
    if state == service_state.FORCED_DOWN:
        life.cut_off_ended(tx, hosts)
    return service_state.set_state(tx, hosts, state, reason)
