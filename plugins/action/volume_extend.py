# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_extend."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import volume_extension, volumes
from ansible_collections.bootflow.compute.plugins.plugin_utils import (
    request_inputs,
    storage_reports,
    tables,
    volume_inputs,
)
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "volumes": {"type": "list", "elements": "raw", "required": True, "variable": "bootflow_volumes"},
        **volume_inputs.VOLUME_ARGUMENTS,
        **volume_inputs.VOLUME_SCHEDULER_ARGUMENTS,
        "phase": {"type": "str", "choices": ["select", "begin"], "default": "begin"},
        "facts_max_age": {"type": "int", "variable": "bootflow_facts_max_age", "fallback_default": 300},
        "print_table": {"type": "bool", "variable": "bootflow_print_table", "fallback_default": True},
    }

    def act(self) -> dict[str, t.Any]:
        o = self.options
        wishes = _wishes(o["volumes"])
        inputs = volume_inputs.volume_inputs(o)
        context = self.context()
        if o["phase"] == "select":

            def growing(conn: t.Any) -> list[t.Any]:
                found, _missing = volumes.find(conn, [w["volume"] for w in wishes], o["project"])
                sizes = {w["volume"]: str(w["size"]) for w in wishes}
                return [row for word, row in found.items() if sizes[word] != str(row.size)]

            stale = storage_reports.stale_hosts_of(self, growing, context.now)
            return {"changed": False, "stale_hosts": stale}
        options = volume_inputs.scheduler_options(o, context.now)
        if self.check_mode:
            ledger = request_inputs.rehearsal_ledger(o["ledger_url"])
            with ledger.rehearse() as conn:
                storage_reports.rehearse_reports(conn, self, context.now)
                found = volume_extension.begin(conn, wishes, inputs, options, context)
        else:
            ledger = self.open_ledger()
            found = ledger.transact(volume_extension.begin, wishes, inputs, options, context)
        sizes = {w["volume"]: w["size"] for w in wishes}
        named = [
            {
                "name": r.name or "",
                "id": r.id,
                "place": r.place,
                "size": r.size,
                "new_size": sizes.get(r.name, sizes.get(r.id)),
            }
            for r in found.rows
        ]
        if o["print_table"] and (self.check_mode or not named):
            lines = ["%s %s: %s GB -> %s GB" % (n["name"], n["id"], n["size"], n["new_size"]) for n in named]
            tables.show(
                self._display,
                ["Would extend:", *lines] if named else ["Nothing to do: every volume is as large as asked."],
            )
        return {
            "changed": bool(named),
            "volumes": named,
            "unchanged": list(found.unchanged),
            "hosts": volume_inputs.reachable(self, found.hosts),
            "compute_hosts": volume_inputs.reachable(self, found.compute_hosts),
            "diff": {
                "before": "".join("%s %s GB\n" % (n["name"] or n["id"], n["size"]) for n in named),
                "after": "".join("%s %s GB\n" % (n["name"] or n["id"], n["new_size"]) for n in named),
                "before_header": "volumes",
                "after_header": "volumes",
            },
        }


def _wishes(entries: t.Sequence[t.Any]) -> list[dict[str, t.Any]]:
    """{volume, size} of each entry. :raises InvalidRequest: all that is wrong with their form."""
    problems = Problems()
    wishes: list[dict[str, t.Any]] = []
    for number, entry in enumerate(entries):
        path = "volumes[%d]" % number
        if not isinstance(entry, t.Mapping):
            problems.add(
                path, errors.InvalidInput(message="must be a mapping", remedy="Write name: and size: below it.")
            )
            continue
        volume = entry.get("id") or entry.get("name")
        if not volume:
            problems.add(
                path, errors.InvalidInput(message="name is missing", remedy="Name the volume, or give its id.")
            )
        elif entry.get("size") is None:
            problems.add(path, errors.InvalidInput(message="size is missing", remedy="Say how many GB it is to have."))
        elif any(w["volume"] == str(volume) for w in wishes):
            problems.add(path, errors.InvalidInput(message="%s is named twice" % volume, remedy="Name it once."))
        else:
            wishes.append({"volume": str(volume), "size": entry["size"]})
    problems.raise_if_any()
    return wishes
