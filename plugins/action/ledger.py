# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.ledger."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database, migrations_runner
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {"state": {"type": "str", "choices": ["migrated"], "default": "migrated"}}

    def act(self) -> dict[str, t.Any]:
        url = self.options["ledger_url"]
        shown = database.shown(database.normalise_url(url))
        if self.check_mode:
            try:
                ledger = database.open_ledger(url, check_revision=False)
            except errors.LedgerMissing:
                todo, before = list(migrations_runner.REVISIONS), None
            else:
                with ledger.read() as conn:
                    todo, before = migrations_runner.pending(conn, shown), migrations_runner.current_revision(conn)
        else:
            ledger = database.open_ledger(url, create=True, check_revision=False)
            with ledger.read() as conn:
                todo, before = migrations_runner.pending(conn, shown), migrations_runner.current_revision(conn)
            if todo:
                with ledger.write() as conn:
                    todo = migrations_runner.upgrade(conn, shown)
        after = todo[-1] if todo else before
        return {
            "changed": bool(todo),
            "ledger": shown,
            "revision": after,
            "applied": todo,
            "diff": {
                "before": "revision: %s\n" % before,
                "after": "revision: %s\n" % after,
                "before_header": shown,
                "after_header": shown,
            },
        }
