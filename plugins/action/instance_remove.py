# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_remove."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.stage import clean_host, lease_kept


class ActionModule(LedgerAction):
    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        host = self.task_vars["inventory_hostname"]
        ledger = self.open_ledger()
        todo = ledger.inspect(delete.of_host, host)
        if not todo:
            return {"changed": False, "removed": []}
        with lease_kept(self):
            problems = clean_host(self, todo)
        done = [i["uuid"] for i in todo if i["uuid"] not in problems]
        journalled = ledger.transact(delete.journal_unexpected, host, problems) if problems else []
        for uuid, problem in sorted(problems.items()):
            self._display.warning("Could not remove instance %s from %s: %s" % (uuid, host, problem.message))
        return {
            "changed": bool(done),
            "removed": done,
            "problems": {u: p.as_dict() for u, p in problems.items()},
            "journalled": journalled,
        }
