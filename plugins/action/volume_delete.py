# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_delete."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import volume_deletion
from ansible_collections.bootflow.compute.plugins.plugin_utils import (
    request_inputs,
    tables,
    volume_inputs,
    volume_texts,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **volume_texts.SELECTION,
        "all": {"type": "bool", "variable": "bootflow_volume_delete_all", "fallback_default": False},
        "cascade": {"type": "bool", "variable": "bootflow_volume_cascade", "fallback_default": False},
        "force": {"type": "bool", "variable": "bootflow_volume_force", "fallback_default": False},
        "phase": {"type": "str", "choices": ["begin", "finish"], "default": "begin"},
        "print_table": {"type": "bool", "variable": "bootflow_print_table", "fallback_default": True},
    }

    def act(self) -> dict[str, t.Any]:
        return self._begin() if self.options["phase"] == "begin" else self._finish()

    def _begin(self) -> dict[str, t.Any]:
        o = self.options
        chosen = {
            "ids": o["volume_ids"],
            "names": o["volume_names"],
            "project": o["project"],
            "everything": o["all"],
            "force": o["force"],
            "cascade": o["cascade"],
        }
        if self.check_mode:
            ledger = request_inputs.rehearsal_ledger(o["ledger_url"])
            found = ledger.rehearsal(volume_deletion.begin, self.context(), **chosen)
        else:
            found = self.open_ledger().transact(volume_deletion.begin, self.context(), **chosen)
        named = [{"name": r.name or "", "id": r.id, "place": r.place} for r in found.rows]
        named += [{"name": g.get("name") or "", "id": g["id"], "place": None} for g in found.gone]
        before = "".join("%s %s on %s\n" % (n["name"] or "-", n["id"], n["place"] or "no backend") for n in named)
        there = {n["name"] for n in named} | {n["id"] for n in named}
        unknown = sorted({*(o["volume_names"] or ()), *(o["volume_ids"] or ())} - there)
        if self.check_mode and o["print_table"]:
            tables.show(self._display, ["Would delete:", *(before.splitlines() or ["  nothing"])])
        hosts = volume_inputs.reachable(self, found.hosts)
        strangers = sorted(set(found.hosts) - set(hosts))
        if strangers and not self.check_mode:
            raise errors.DriverNotInitialized(
                message="%s %s not in the inventory" % (", ".join(strangers), "is" if len(strangers) == 1 else "are"),
                remedy="Put the storage host back into the inventory and delete again; what it holds is not forgotten.",
            )
        return {
            "changed": bool(named),
            "volumes": named,
            "not_found": unknown,
            "hosts": hosts,
            "diff": {"before": before, "after": "", "before_header": "volumes", "after_header": "volumes"},
        }

    def _finish(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        gone, left = self.open_ledger().transact(volume_deletion.finish, self.context())
        if self.options["print_table"]:
            tables.show(self._display, ["Deleted: %s" % (", ".join(g["name"] or g["id"] for g in gone) or "nothing")])
        result: dict[str, t.Any] = {"changed": bool(gone), "deleted": gone, "left": left}
        if left:
            lines = ["VolumeDeleteIncomplete: %d volume(s) could not be removed." % len(left)]
            for view in left:
                lines += volume_texts.why(view)
            remedy = "Mend the causes (is the storage host up?) and delete again."
            lines.append("Remedy: " + remedy)
            result.update(
                failed=True,
                msg="\n".join(lines),
                error_code="VolumeDeleteIncomplete",
                status=503,
                retryable=True,
                remedy=remedy,
            )
        return result
