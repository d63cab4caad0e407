# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.ledger."""

from __future__ import annotations

import time
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.run import MAINTENANCE, RUN
from ..module_utils.core.times import utc
from ..module_utils.ledger import capacity, purge
from ..module_utils.ledger.db import backup
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.startup import opening, preload

preload.load_action_after_the_first()


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "state": {
            "type": "str",
            "choices": ["migrated", "backup", "purged", "capacity_recorded"],
            "default": "migrated",
        },
        **MAINTENANCE.options(),
        **RUN.options("print_table"),
        "use_reserve": {"type": "bool", "default": False},
        "print_revision": {"type": "bool", "default": False},
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        result: dict[str, t.Any] = {"ledger": str(self.options["ledger_url"])}
        result.update(getattr(self, "_" + self.options["state"])())
        return result

    def _migrated(self) -> dict[str, t.Any]:
        return opening.opened(self, self.options["use_reserve"])

    def _backup(self) -> dict[str, t.Any]:
        dest = self.options["dest"]
        if not dest:
            raise errors.InvalidInput(
                reason="a backup needs dest", remedy="Name a new file with dest or bootflow_ledger_backup."
            )
        backup.check(self.options["ledger_url"].url, dest)
        ledger = self.open_ledger(check_revision=False)
        try:
            if self.check_mode:
                self._show(["Would copy the ledger %s to %s." % (self.options["ledger_url"], dest)])
                return {"changed": True, "dest": dest}
            size = backup.backup(ledger, dest)
            self._show(["Copied the ledger %s to %s, %d bytes." % (self.options["ledger_url"], dest, size)])
            return {"changed": True, "dest": dest, "size": size}
        finally:
            ledger.close()

    def _purged(self) -> dict[str, t.Any]:
        days = self.options["history_retention_days"]
        before = purge.cutoff(time.time(), days)
        if before is None:
            message = (
                "Nothing is purged from the ledger %s: bootflow_history_retention_days is 0, which keeps history for ever."
                % self.options["ledger_url"]
            )
            self._show([message])
            return {"changed": False, "purged": {}, "msg": message}
        ledger = self.open_ledger()
        try:
            counts = ledger.inspect(purge.plan, before) if self.check_mode else purge.purge(ledger, before)
        finally:
            ledger.close()
        did = "Would purge" if self.check_mode else "Purged"
        lines = ["%s from the ledger %s what is older than %s:" % (did, self.options["ledger_url"], utc(before))]
        lines += ["  %8d %s" % (count, name) for name, count in counts.items()] or ["  nothing"]
        self._show(lines)
        return {"changed": bool(counts), "purged": counts}

    def _capacity_recorded(self) -> dict[str, t.Any]:
        # Most heartbeats only read: the day has its row.
        ledger = self.rehearsal_ledger()
        try:
            if ledger.inspect(capacity.is_recorded):
                return {"changed": False}
            write = ledger.rehearsal if self.check_mode else ledger.transact
            return {"changed": write(capacity.record_day)}
        finally:
            ledger.close()

    def _show(self, lines: t.Sequence[str]) -> None:
        if self.options["print_table"]:
            tables.show(self._display, lines)
