# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lease of a run is kept while its task works on a host."""

from __future__ import annotations

import contextlib
import threading
import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import runs
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


@contextlib.contextmanager
def lease_kept(action: LedgerAction) -> t.Iterator[None]:
    """Renew the run's lease while a long step works, however long an image takes to come."""
    context = action.context()
    over = threading.Event()

    def renew() -> None:
        while not over.wait(context.lease_seconds / 4):
            with contextlib.suppress(errors.BootflowError):  # the next one tries again; a lease outlasts three misses
                ledger = database.open_ledger(action.options["ledger_url"], check_revision=False)
                try:
                    ledger.for_run(context).transact(runs.renew)
                finally:
                    ledger.close()

    thread = threading.Thread(target=renew, daemon=True, name="bootflow-lease")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
