# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An intervention in live migrations of other runs: the source hosts get it, and the run that migrates sees the outcome."""

from __future__ import annotations

import typing as t

from ...module_utils.core.settings.live import ABORT, FORCE_COMPLETE, LIVE_MIGRATION
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import live_life
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..run.stages import Failed, Item, Outcomes, Result, Stages

ACTION = {live_life.ABORT: ABORT, live_life.FORCE_COMPLETE: FORCE_COMPLETE}  # of the module


class Intervention(Stages):
    """All stages of the operation that the options of the action name. Its event is opened and closed at the end."""

    answered_by = {"work": "source"}
    rehearses_on_hosts = True
    keeps_lease = False

    def __init__(self, action: LedgerAction, family: str):
        super().__init__(action, family)
        self.called = self.options["operation"]
        self.operation = live_life.INTERVENTIONS[self.called]

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work}

    def _begin(self) -> Result:
        """Select the instances whose migrations run. Returns them, and their source hosts."""
        selection = Selection.from_options(self.options)
        moving = self.action.write(lambda tx: live_life.running_migrations(tx, self.operation, selection))
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

    def _work(self, host: str) -> Result:
        """Tell a source host what to do with its migrations."""
        uuids = [i["uuid"] for i in self.items_on(host, "source")]
        arguments = {
            **host_settings.libvirt_arguments(self.action),
            "step": "intervene",
            "uuids": uuids,
            "action": ACTION[self.operation],
            "permit_post_copy": host_settings.values(self.action, LIVE_MIGRATION).live_migration_permit_post_copy,
        }

        def tell() -> tuple[Outcomes, Failed]:
            result = self.action.run_module("domain_migration", arguments)
            return result["outcomes"], item_errors(result, uuids)

        outcomes = self.guarded(uuids, tell)
        return {"changed": not all(o.get("error") for o in outcomes.values()), "outcomes": outcomes}

    def _finish(self) -> Result:
        items: list[Item] = []
        answers = self.answers("work")
        for uuid, item in self.items().items():
            items.append({**item, **{n: answers[uuid].get(n) for n in ("total", "remaining", "error")}})
        if items and not self.action.check_mode:
            failed = {i["uuid"]: str(i["error"]["message"]) for i in items if i["error"]}
            uuids = [i["uuid"] for i in items]
            self.action.open_ledger().transact(live_life.journal_intervention, self.operation, failed, uuids)
        rows = [(i["name"], i["uuid"], i["source"], i["destination"], self._note(i)) for i in items]
        self.table(("INSTANCE", "UUID", "FROM", "TO", "NOTE"), rows)
        return self.finish(items, host="source")

    def _note(self, item: Item) -> str:
        """Return how much of the guest was left to copy."""
        if item["total"]:
            of_all = (item["remaining"] >> 20, item["total"] >> 20, "are" if self.action.check_mode else "were")
            return "%d of %d MiB %s left" % of_all
        return item["error"]["code"] if item["error"] else ""
