# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lease of a run is kept while its task works on a host."""

from __future__ import annotations

import contextlib
import threading
import typing as t
from dataclasses import replace

from ...module_utils.core import errors
from ...module_utils.ledger import database
from ...module_utils.ledger.compute import runs
from ...module_utils.ledger.db.transaction import Transaction
from .ledger_action import LedgerAction


@contextlib.contextmanager
def lease_kept(action: LedgerAction) -> t.Iterator[None]:
    """Renew the run's lease while a long step works, however long an image takes to come, and check it before each module (check_lease()).

    Many short tasks, one after the other, may take longer than a lease, too: where half of it is over, it is renewed at once.
    """
    if action.check_mode:  # it owns nothing
        yield
        return
    context = action.context()
    over = threading.Event()

    def renew() -> None:
        ledger = database.open_ledger(action.options["ledger_url"], check_revision=False)
        try:
            # Without its lease: what this thread reads says nothing of what the task knows.
            at = ledger.for_run(replace(context, lease=None)).transact(_renew)
        finally:
            ledger.close()
        action.lease.renewed(at)

    def keep() -> None:
        while not over.wait(context.lease_seconds / 4):
            with contextlib.suppress(errors.BootflowError):  # the next one tries again; a lease outlasts three misses
                renew()

    if action.lease.remaining_seconds(context.now) < context.lease_seconds / 2:
        with contextlib.suppress(errors.BootflowError):
            renew()
    if action.lease.read_at is None:
        action.lease.looked(context.now)
    thread = threading.Thread(target=keep, daemon=True, name="bootflow-lease")
    thread.start()
    action.leases_kept += 1
    try:
        yield
    finally:
        action.leases_kept -= 1
        over.set()
        thread.join()


def _renew(tx: Transaction) -> float:
    runs.renew(tx)
    return tx.now
