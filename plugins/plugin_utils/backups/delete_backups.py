# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of the deletion of backups: marked on the controller, removed by their hosts, reported on the controller."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.flows.backups import deletion as flow
from ...module_utils.ledger.backups.backups import BackupRow
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, item_errors, outcome
from ..run.stages import Failed, Item, Outcomes, Result, Stages

MODULE = "instance_backup_removal"


class DeleteBackups(Stages):
    """Deletes backups."""

    called = "incremental_backup_delete"
    answered_by = {"work": "host"}
    rehearses_on_hosts = False

    def __init__(self, action: LedgerAction):
        super().__init__(action, "incremental_backup_delete")
        self.keeps_lease = not action.check_mode

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work}

    def items(self) -> dict[str, Item]:
        return {i["uuid"]: i for i in self.result(self.begins).get("backups") or []}

    def _begin(self) -> Result:
        options = self.options

        def begin(tx: Transaction) -> list[BackupRow]:
            rows = flow.begin(
                tx,
                options["backup_ids"],
                options["names"],
                options["uuids"],
                options["project"],
                options["backup_keep"],
            )
            inventory_hosts.in_inventory(self.action, sorted({r.host for r in rows}))
            return rows

        rows = self.action.write(begin)
        items = [
            {
                "uuid": r.id,
                "name": r.instance_name,
                "instance_uuid": r.instance_uuid,
                "host": r.host,
                "folder": r.folder,
                "kind": r.kind,
            }
            for r in rows
        ]
        lines = ["%s of %s, %s\n" % (r.id, r.instance_name, r.kind) for r in rows]
        if options["print_table"] and (self.action.check_mode or not rows):
            shown = ["Would delete:", *("  " + line.strip() for line in lines)] if rows else ["No backup to delete."]
            tables.show(self.action.ports.display, shown)
        return {
            "changed": bool(rows),
            "backups": items,
            "compute": [] if self.action.check_mode else sorted({r.host for r in rows}),
            "diff": diff("backups", "".join(lines), ""),
        }

    def _work(self, host: str) -> Result:
        items = self.items_on(host, "host")

        def work() -> tuple[Outcomes, Failed]:
            arguments = {
                **host_settings.libvirt_arguments(self.action),
                "directory": host_settings.read_current_host(self.action).backup_directory,
                "backups": [{"id": i["uuid"], "uuid": i["instance_uuid"], "folder": i["folder"]} for i in items],
            }
            result = self.action.run_module(MODULE, arguments)
            return result["outcomes"], item_errors(result, [i["uuid"] for i in items])

        answers = self.guarded([i["uuid"] for i in items], work)
        return {"changed": any(answer.get("changed") for answer in answers.values()), "outcomes": answers}

    def _finish(self) -> Result:
        items = self.items()
        if self.action.check_mode:
            return {"changed": False, "skipped": True}
        answers = self.answers("work")
        failed = {u: errors.from_dict(a["error"]) for u, a in answers.items() if a.get("error")}
        done = [u for u in items if u not in failed]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            ledger.transact(flow.finish, done)
        if self.options["print_table"] and items:
            lines = ["Deleted: %s" % (", ".join("%s of %s" % (u, items[u]["name"]) for u in done) or "nothing")]
            tables.show(self.action.ports.display, lines)
        remaining = [
            errors.failed_item(items[u]["name"], u, e.as_dict(), host=items[u]["host"]) for u, e in failed.items()
        ]
        error = errors.OperationFailed(remaining, len(items), operation=self.called)
        deleted = [{"id": u, "instance": items[u]["name"], "kind": items[u]["kind"]} for u in done]
        return outcome(error, changed=bool(done), deleted=deleted)
