# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_delete."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.volumes import VOLUME_DELETION, VOLUME_SELECTION
from ..module_utils.flows.volumes import delete
from ..module_utils.flows.volumes.delete import VolumeDeleting
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import snapshots as snapshot_rows
from ..plugin_utils.run import inventory_hosts, tables
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import diff, outcome
from ..plugin_utils.settings import variable_names
from ..plugin_utils.volumes import volume_texts

STAGES = ("begin", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **VOLUME_SELECTION.options(),
        **VOLUME_DELETION.options(),
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return self._begin() if self.options["phase"] == "begin" else self._finish()

    def _begin(self) -> dict[str, t.Any]:
        options = self.options
        variable_names.refuse(self, VOLUME_SELECTION, VOLUME_DELETION)
        chosen = {
            "ids": options["volume_ids"],
            "names": options["volume_names"],
            "project": options["project"],
            "everything": options["all"],
            "force": options["force"],
            "cascade": options["cascade"],
            "missing_ok": options["missing_ok"],
        }

        def begin(tx: Transaction) -> tuple[VolumeDeleting, dict[str, list[str]]]:
            if options["unmanage"]:
                return delete.unmanage(tx, inventory_hosts.all_of(self), **chosen), {}
            deletion = delete.begin(tx, **chosen)
            inventory_hosts.in_inventory(self, deletion.hosts)
            theirs: dict[str, list[str]] = {}
            for row in snapshot_rows.select(tx, volume_ids=[r.id for r in deletion.rows]) if deletion.rows else ():
                theirs.setdefault(row.volume_id, []).append(row.name or row.id)
            return deletion, theirs

        deletion, snapshots = self.write(begin)
        named: list[dict[str, t.Any]] = [
            {"name": r.name or "", "id": r.id, "pool_host": r.pool_host} for r in deletion.rows
        ]
        named += [
            {"name": g.get("name") or "", "id": g["id"], "pool_host": g.get("pool_host")} for g in deletion.without_host
        ]
        for volume in named:
            volume["snapshots"] = snapshots.get(volume["id"], [])
        before = "".join(_line(n) + "\n" for n in named)
        known_words = {n["name"] for n in named} | {n["id"] for n in named}
        unknown = sorted({*(options["volume_names"] or ()), *(options["volume_ids"] or ())} - known_words)
        lines = ["There is no volume with this name: %s" % ", ".join(unknown)] if unknown else []
        if self.check_mode:
            lines = [
                "Would unmanage:" if options["unmanage"] else "Would delete:",
                *(before.splitlines() or ["  nothing"]),
                *lines,
            ]
        if lines and options["print_table"]:
            tables.show(self._display, lines)
        return {
            "changed": bool(named),
            "volumes": named,
            "not_found": unknown,
            "storage": [] if self.check_mode else deletion.hosts,
            "diff": diff("volumes", before, ""),
        }

    def _finish(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        deleted_volumes, remaining = self.open_ledger().transact(delete.finish)
        if self.options["print_table"]:
            word = "Unmanaged" if self.options["unmanage"] else "Deleted"
            tables.show(
                self._display,
                ["%s: %s" % (word, ", ".join(g["name"] or g["id"] for g in deleted_volumes) or "nothing")],
            )
        error = errors.VolumeDeleteIncomplete(
            [volume_texts.failed_item(v) for v in remaining], len(deleted_volumes) + len(remaining)
        )
        return outcome(error, changed=bool(deleted_volumes), deleted=deleted_volumes, left=remaining)


def _line(volume: t.Mapping[str, t.Any]) -> str:
    line = "%s %s on %s" % (volume["name"] or "-", volume["id"], volume["pool_host"] or "no backend")
    return "%s, and its snapshots %s" % (line, ", ".join(volume["snapshots"])) if volume["snapshots"] else line
