# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_reset_state."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import RESET
from ..module_utils.flows.instances.operation import Selection
from ..module_utils.flows.recovery import reset_state
from ..module_utils.ledger.compute.instances import Instance
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff


class ActionModule(LedgerAction):
    ARGUMENTS = {**RESET.options(), **REQUEST.options("quotas"), **RUN.options("print_table")}

    def act(self) -> dict[str, t.Any]:
        options = self.options
        selection = Selection.from_options(options)
        done = self.write(lambda tx: reset_state.reset(tx, selection, options["state"], options["quotas"]))
        instances = [{**_identity(r), "vm_state": options["state"]} for r in done.rows]
        unchanged = [{**_identity(r), "vm_state": r.vm_state} for r in done.unchanged]
        if options["print_table"]:
            tables.show(self._display, self._lines(done))
        return {
            "changed": bool(instances),
            "instances": instances,
            "unchanged": unchanged,
            "diff": diff(
                "instances",
                "".join("%s %s: %s\n" % (r.display_name, r.uuid, _words(r)) for r in done.rows),
                "".join("%s %s: %s\n" % (i["name"], i["uuid"], i["vm_state"]) for i in instances),
            ),
        }

    def _lines(self, done: reset_state.Reset) -> list[str]:
        state = self.options["state"]
        rows = [(r.display_name, r.uuid, r.host or "-", "%s -> %s" % (_words(r), state), "") for r in done.rows]
        rows += [(r.display_name, r.uuid, r.host or "-", r.vm_state, "nothing to do") for r in done.unchanged]
        if not rows:
            return ["reset_state: no instance is selected."]
        title = "Would reset_state (nothing is touched):" if self.check_mode else "reset_state:"
        return [title, *tables.table(("INSTANCE", "UUID", "HOST", "VM_STATE", "NOTE"), rows)]


def _identity(row: Instance) -> dict[str, t.Any]:
    return {"name": row.display_name, "uuid": row.uuid, "host": row.host, "before": row.vm_state}


def _words(row: Instance) -> str:
    return row.vm_state if row.task_state is None else "%s (%s)" % (row.vm_state, row.task_state)
