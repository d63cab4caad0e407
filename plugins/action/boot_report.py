# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_report."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import RUN
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.scheduling import SCHEDULER
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.plugin_utils import handover, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.inventory_hosts import reachable
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import STATISTICS, outcome, statistics


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "uuids": {"type": "list", "elements": "str", "default": []},
        "phase": {"type": "str", "choices": ["end", "report", "report_if_finished"], "default": "report"},
        "volumes": {"type": "bool", "default": False},
        **SCHEDULER.options("max_attempts"),
        **RUN.options("print_table"),
        **STATISTICS,
    }

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        ledger = self.open_ledger()
        to_clean = handover.collect(self)
        untaken = handover.untaken(self)
        phase = self.options["phase"]
        if phase == "report_if_finished":
            unfinished = ledger.inspect(instances.has_builds, self.context().run.id)
            if unfinished or to_clean or self.options["volumes"]:
                return {"changed": False, "unfinished": True, "hosts_to_clean": reachable(self, to_clean)}
        if phase == "end":
            ledger.transact(schedule.give_up, self.options["max_attempts"], untaken)
            hosts = ledger.inspect(work.hosts_with_work)
            return {"changed": False, "storage_hosts": reachable(self, hosts)}

        def end(tx: Transaction) -> list[dict[str, t.Any]]:
            if phase == "report":
                schedule.give_up(tx, self.options["max_attempts"], untaken)
            return views.instance_views(tx, instances.select_live(tx, uuids=self.options["uuids"]))

        shown = ledger.transact(end)
        bad = [v for v in shown if v["vm_state"] != states.ACTIVE]
        if self.options["print_table"]:
            tables.show(self._display, tables.instance_table(shown))
        items = [
            errors.failed_item(
                v["name"], v["uuid"], v.get("fault"), state="%s, task_state %s" % (v["vm_state"], v["task_state"])
            )
            for v in bad
        ]
        # Ansible does not read the statistics of a task that failed.
        more = statistics(shown) if self.options["set_stats"] and not items else {}
        return outcome(errors.BootFailed(items, len(shown)), changed=False, unfinished=False, instances=shown, **more)
