# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adopted instances leave the ledger: hosts remove its mark from their domains, then one transaction writes it."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.flows.adopt import release
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.results import diff, item_errors
from ..run.stages import Failed, Outcomes, Result, Stages
from .adopt_texts import release_lines


class Release(Stages):
    """All stages."""

    called = "release"
    event = "release"
    answered_by = {"unmark": "host"}
    keeps_lease = False

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"unmark": self._unmark}

    def _begin(self) -> Result:
        """Select the instances. Returns them, and their hosts; no hosts in check mode."""
        selection = Selection.from_options(self.options)
        known = set(self.action.within_limit(self.action.compute_hosts()))

        def read(tx: Transaction) -> list[dict[str, t.Any]]:
            rows, down = release.begin(tx, selection, known)
            return [
                {
                    "name": r.display_name,
                    "uuid": r.uuid,
                    "host": str(r.host),
                    "domain": r.domain_name,
                    "host_down": r.host in down,
                    "error": None,
                }
                for r in rows
            ]

        items = self.action.write(read)
        hosts = [] if self.action.check_mode else sorted({i["host"] for i in items if not i["host_down"]})
        return {"changed": bool(items), "instances": items, "compute": hosts}

    def _unmark(self, host: str) -> Result:
        """Have the host remove the ledger's mark from the domains of its instances."""
        uuids = [item["uuid"] for item in self.items_on(host, "host")]

        def unmark() -> tuple[Outcomes, Failed]:
            arguments = {"state": "released", "uuids": uuids, "ledger_id": self.action.ledger_id()}
            result = self.action.run_module(
                "domain_adoption", {**host_settings.libvirt_arguments(self.action), **arguments}
            )
            return result["outcomes"], item_errors(result, uuids)

        return {"outcomes": self.guarded(uuids, unmark)}

    def _finish(self) -> Result:
        """Release the instances whose domains have no mark any more. An instance whose host failed stays."""
        items = list(self.items().values())
        if not self.action.check_mode:
            answers = self.answers("unmark", {i["uuid"]: i for i in items if not i["host_down"]})
            items = [{**item, "error": (answers.get(item["uuid"]) or item)["error"]} for item in items]
            uuids = [item["uuid"] for item in items if not item["error"]]
            try:
                self.action.write(lambda tx: release.finish(tx, uuids))
            except errors.BootflowError as error:
                items = [{**item, "error": item["error"] or error.as_dict()} for item in items]
        if self.options["print_table"]:
            tables.show(self.action.ports.display, release_lines(items, self.action.check_mode))
        before = "".join("%s %s on %s\n" % (i["name"], i["uuid"], i["host"]) for i in items if not i["error"])
        return {**self.finish(items), "diff": diff("instances", before, "")}
