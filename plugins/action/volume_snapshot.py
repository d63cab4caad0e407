# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_snapshot."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import volume_snapshots, volumes
from ansible_collections.bootflow.compute.plugins.plugin_utils import (
    request_inputs,
    storage_reports,
    tables,
    volume_inputs,
    volume_texts,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction

REMEDY = "Mend the causes and run the same again; it goes on with what is missing."


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "snapshots": {"type": "list", "elements": "raw", "required": True, "variable": "bootflow_snapshots"},
        **volume_inputs.VOLUME_ARGUMENTS,
        "phase": {"type": "str", "choices": ["select", "begin", "finish"], "default": "begin"},
        "facts_max_age": {"type": "int", "variable": "bootflow_facts_max_age", "fallback_default": 300},
        "print_table": {"type": "bool", "variable": "bootflow_print_table", "fallback_default": True},
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "select":
            stale = storage_reports.stale_hosts_of(self, self._of_new_ones, self.context().now)
            return {"changed": False, "stale_hosts": stale}
        return self._begin() if self.options["phase"] == "begin" else self._finish()

    def _of_new_ones(self, conn: t.Any) -> list[t.Any]:
        """The volumes that snapshots are to be made of."""
        project = self.options["project"]
        wanted = {}
        for entry in self.options["snapshots"]:
            if isinstance(entry, t.Mapping) and entry.get("volume") and entry.get("state", "present") == "present":
                wanted[str(entry.get("name"))] = str(entry["volume"])
        there = volumes.find_snapshots(conn, list(wanted), project)
        words = [w for name, w in wanted.items() if name not in there or there[name].status != states.AVAILABLE]
        return list(volumes.find(conn, list(dict.fromkeys(words)), project)[0].values())

    def _begin(self) -> dict[str, t.Any]:
        o = self.options
        inputs = volume_inputs.volume_inputs(o)
        context = self.context()
        if self.check_mode:
            ledger = request_inputs.rehearsal_ledger(o["ledger_url"])
            with ledger.rehearse() as conn:
                storage_reports.rehearse_reports(conn, self, context.now)
                begun = volume_snapshots.begin(conn, o["snapshots"], inputs, context)
        else:
            begun = self.open_ledger().transact(volume_snapshots.begin, o["snapshots"], inputs, context, collisions=3)
        changed = bool(begun.created or begun.deleting or begun.resumed)
        if o["print_table"] and (self.check_mode or not changed):
            lines = [
                "Would make %d and delete %d snapshots."
                % (len(begun.created) + len(begun.resumed), len(begun.deleting))
            ]
            tables.show(self._display, lines if changed else ["Nothing to do: the snapshots are as asked."])
        return {
            "changed": changed,
            "created": begun.created,
            "resumed": begun.resumed,
            "deleting": begun.deleting,
            "unchanged": begun.unchanged,
            "hosts": volume_inputs.reachable(self, begun.hosts),
        }

    def _finish(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        ended = self.open_ledger().transact(volume_snapshots.finish, self.context())
        if self.options["print_table"] and (ended["done"] or ended["left"]):
            tables.show(self._display, volume_texts.snapshot_table(ended["done"] + ended["left"]))
        result: dict[str, t.Any] = {"changed": bool(ended["done"]), "snapshots": ended["done"], "left": ended["left"]}
        if ended["left"]:
            lines = ["SnapshotFailed: %d snapshot(s) are not as asked." % len(ended["left"])]
            for view in ended["left"]:
                lines += volume_texts.why(view)
            lines.append("Remedy: " + REMEDY)
            result.update(
                failed=True,
                msg="\n".join(lines),
                error_code="SnapshotFailed",
                status=500,
                retryable=False,
                remedy=REMEDY,
            )
        return result
