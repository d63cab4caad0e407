# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_live_intervene: the source hosts are told, and the run that migrates sees what comes of it."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.live import ABORT, FORCE_COMPLETE, LIVE
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import INSTANCES
from ..module_utils.flows.instances.operation import Selection
from ..module_utils.flows.moves import live_life
from ..plugin_utils.run import host_settings, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import item_errors, outcome

# As the playbooks register what the controller and the hosts answered.
BEGUN, DONE = "bootflow_live_intervention", "bootflow_live_intervened"
TELLS = {live_life.ABORT: ABORT, live_life.FORCE_COMPLETE: FORCE_COMPLETE}

Item = t.Dict[str, t.Any]


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "operation": {"type": "str", "choices": list(live_life.INTERVENTIONS), "required": True},
        "phase": {"type": "str", "choices": ["begin", "work", "finish"], "default": "begin"},
        **INSTANCES.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        self.operation = live_life.INTERVENTIONS[self.options["operation"]]
        return {"begin": self._begin, "work": self._work, "finish": self._finish}[self.options["phase"]]()

    def _registered(self, name: str, host: str = "localhost") -> t.Mapping[str, t.Any]:
        return t.cast("t.Mapping[str, t.Any]", self.task_vars["hostvars"][host].get(name) or {})

    def _begin(self) -> dict[str, t.Any]:
        selection = Selection.from_options(self.options)
        moving = self.write(lambda tx: live_life.under_way(tx, self.operation, selection))
        items = [
            {
                "name": m.row.display_name,
                "uuid": m.uuid,
                "source": m.move.source_compute,
                "destination": m.move.dest_compute,
            }
            for m in moving
        ]
        return {"changed": False, "instances": items, "sources": sorted({i["source"] for i in items})}

    def _work(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        mine = [i["uuid"] for i in self._registered(BEGUN).get("instances", []) if i["source"] == host]
        arguments = {
            **host_settings.libvirt_arguments(self),
            "uuids": mine,
            "action": TELLS[self.operation],
            "permit_post_copy": host_settings.values(self, LIVE).live_migration_permit_post_copy,
        }
        try:
            result = self.run_module("domain_migration_job", arguments)
            found, failed = result["outcomes"], item_errors(result, mine)
        except errors.BootflowError as e:
            found, failed = {}, dict.fromkeys(mine, e)
        outcomes = {u: {**found.get(u, {}), "error": failed[u].as_dict() if u in failed else None} for u in mine}
        return {"changed": len(failed) < len(mine), "outcomes": outcomes}

    def _finish(self) -> dict[str, t.Any]:
        items: list[Item] = []
        for item in self._registered(BEGUN).get("instances", []):
            answer = self._registered(DONE, item["source"])
            silent = errors.HostUnreachable(host=item["source"], reason="it returned no result").as_dict()
            its = (answer.get("outcomes") or {}).get(item["uuid"]) or {"error": silent}
            items.append({**item, **{n: its.get(n) for n in ("total", "remaining", "error")}})
        if items and not self.check_mode:
            failed = {i["uuid"]: str(i["error"]["message"]) for i in items if i["error"]}
            self.open_ledger().transact(live_life.intervened, self.operation, failed, [i["uuid"] for i in items])
        if self.options["print_table"]:
            tables.show(self._display, self._lines(items))
        listed = [errors.failed_item(i["name"], i["uuid"], i["error"], host=i["source"]) for i in items if i["error"]]
        error = errors.OperationFailed(listed, len(items), operation=self.options["operation"])
        return outcome(error, changed=len(listed) < len(items), instances=items)

    def _lines(self, items: t.Sequence[Item]) -> list[str]:
        name = self.options["operation"]
        if not items:
            return ["%s: no instance is selected." % name]
        rows: list[tuple[t.Any, ...]] = []
        for i in items:
            note = i["error"]["code"] if i["error"] else ""
            if i["total"]:
                of_all = (i["remaining"] >> 20, i["total"] >> 20, "are" if self.check_mode else "were")
                note = "%d of %d MiB %s left" % of_all
            rows.append((i["name"], i["uuid"], i["source"], i["destination"], note))
        title = "Would %s (nothing is touched):" if self.check_mode else "%s:"
        return [title % name, *tables.table(("INSTANCE", "UUID", "FROM", "TO", "NOTE"), rows)]
