# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_lock."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import LOCK
from ..module_utils.flows.instances import lock
from ..module_utils.flows.instances.operation import Selection
from ..module_utils.ledger.compute.instances import Instance
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **LOCK.options(),
        "state": {"type": "str", "choices": ["locked", "unlocked"], "required": True},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        options = self.options
        self.locks = options["state"] == "locked"
        selection = Selection.from_options(options)

        def work(tx: Transaction) -> lock.Changed:
            if self.locks:
                return lock.lock(tx, selection, options["reason"] or "")
            return lock.unlock(tx, selection, bool(options["override"]))

        changed = self.write(work)
        user = self.context().run.actor if self.locks else None
        after = {"locked_by": user, "locked_reason": (options["reason"] or None) if self.locks else None}
        instances = [{**_identity(r), **after} for r in changed.rows]
        unchanged = [
            {**_identity(r), "locked_by": r.locked_by, "locked_reason": r.locked_reason} for r in changed.unchanged
        ]
        if options["print_table"]:
            tables.show(self._display, self._lines(instances, unchanged))
        return {
            "changed": bool(instances),
            "instances": instances,
            "unchanged": unchanged,
            "diff": diff(
                "locks",
                "".join("%s %s: %s\n" % (r.display_name, r.uuid, _words(r.locked_by)) for r in changed.rows),
                "".join("%s %s: %s\n" % (i["name"], i["uuid"], _words(user)) for i in instances),
            ),
        }

    def _lines(self, *groups: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
        verb = "lock" if self.locks else "unlock"
        rows = [
            (i["name"], i["uuid"], i["host"], i["locked_by"] or "-", i["locked_reason"], note)
            for group, note in zip(groups, ("", "nothing to do"))
            for i in group
        ]
        if not rows:
            return ["%s: no instance is selected." % verb]
        head = ("INSTANCE", "UUID", "HOST", "LOCKED_BY", "REASON", "NOTE")
        title = "Would %s (nothing is touched):" % verb if self.check_mode else "%s:" % verb
        return [title, *tables.table(head, rows)]


def _identity(row: Instance) -> dict[str, t.Any]:
    return {"name": row.display_name, "uuid": row.uuid, "host": row.host}


def _words(user: str | None) -> str:
    return "unlocked" if user is None else "locked by %s" % user
