# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_report."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import history, instances, scheduling, views
from ansible_collections.bootflow.compute.plugins.plugin_utils import request_inputs, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **request_inputs.REQUEST_ARGUMENTS,
        "max_attempts": {"type": "int", "variable": "bootflow_max_attempts", "fallback_default": 3},
        "print_table": {"type": "bool", "variable": "bootflow_print_table", "fallback_default": True},
    }

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        inputs = request_inputs.RequestInputs(self.options)
        ledger = self.open_ledger()
        context = self.context()
        with ledger.write() as conn:
            scheduling.give_up(conn, self.options["max_attempts"], context)
            wanted = inputs.names()
            rows = []
            for part in history.chunks(sorted({n for _p, n in wanted})):
                rows += [r for r in instances.select_live(conn, names=part) if (r.project, r.display_name) in set(wanted)]
            shown = views.instance_views(conn, rows)
        bad = [v for v in shown if v["vm_state"] != states.ACTIVE]
        if self.options["print_table"]:
            tables.show(self._display, tables.instance_table(shown))
        result: dict[str, t.Any] = {"changed": False, "instances": shown}
        if bad:
            result.update(failed=True, error_code="BootFailed", status=503, retryable=False, remedy="Mend the causes and run the same boot again; it goes on with what is missing.")
            lines = ["%d of %d instances are not ACTIVE." % (len(bad), len(shown))]
            for view in bad:
                fault = view.get("fault") or {}
                lines.append("  %s: %s (%s): %s" % (view["name"], view["vm_state"], fault.get("code", "no fault"), fault.get("message", "")))
            lines.append(result["remedy"])
            result["msg"] = "\n".join(lines)
        return result
