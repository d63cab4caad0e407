# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_report."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history, instances, views
from ansible_collections.bootflow.compute.plugins.plugin_utils import request_inputs, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.volume_inputs import reachable


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **request_inputs.REQUEST_ARGUMENTS,
        "phase": {"type": "str", "choices": ["end", "report"], "default": "report"},
        "max_attempts": {"type": "int", "variable": "bootflow_max_attempts", "fallback_default": 3},
        "print_table": {"type": "bool", "variable": "bootflow_print_table", "fallback_default": True},
    }

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        ledger = self.open_ledger()
        context = self.context()
        if self.options["phase"] == "end":
            ledger.transact(schedule.give_up, self.options["max_attempts"], context)
            hosts = ledger.inspect(work.hosts_with_work, context)
            return {"changed": False, "storage_hosts": reachable(self, hosts)}
        inputs = request_inputs.RequestInputs(self.options)
        wanted = set(inputs.names())

        def end(conn: t.Any) -> list[dict[str, t.Any]]:
            schedule.give_up(conn, self.options["max_attempts"], context)
            rows: list[t.Any] = []
            for part in history.chunks(sorted({n for _p, n in wanted})):
                rows += [r for r in instances.select_live(conn, names=part) if (r.project, r.display_name) in wanted]
            return views.instance_views(conn, rows)

        shown = ledger.transact(end)
        bad = [v for v in shown if v["vm_state"] != states.ACTIVE]
        if self.options["print_table"]:
            tables.show(self._display, tables.instance_table(shown))
        result: dict[str, t.Any] = {"changed": False, "instances": shown}
        if bad:
            remedy = "Mend the causes and run the same boot again; it goes on with what is missing."
            result.update(failed=True, error_code="BootFailed", status=503, retryable=False, remedy=remedy)
            lines = ["BootFailed: %d of %d instances are not ACTIVE." % (len(bad), len(shown))]
            for view in bad:
                lines += _why(view)
            lines.append("Remedy: " + remedy)
            result["msg"] = "\n".join(lines)
        return result


def _why(view: t.Mapping[str, t.Any]) -> list[str]:
    """Lines that tell a person what became of an instance, where it was tried before, and what to do."""
    fault = view.get("fault")
    if not fault:
        return ["  %s: %s, task_state %s" % (view["name"], view["vm_state"], view["task_state"])]
    lines = ["  %s: %s: %s" % (view["name"], fault["code"], fault["message"])]
    said: dict[tuple[str, str], list[str]] = {}
    for tried in fault["tried"]:
        said.setdefault((tried["code"], tried["message"]), []).append(tried["host"])
    lines += ["    on %s: %s: %s" % (", ".join(hosts), *what) for what, hosts in said.items()]
    # What the hosts said tells more than that there is no host left.
    remedies = dict.fromkeys(f["remedy"] for f in fault["tried"] or [fault] if f["remedy"])
    return lines + ["    Remedy: " + r for r in remedies]
