# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_remove."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.flows.instances import delete
from ..module_utils.ledger.compute import history
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.operations.cleaning import Cleaned, clean_host, remove_instances
from ..plugin_utils.operations.deletion import REMOVE, TODO
from ..plugin_utils.run import host_settings
from ..plugin_utils.run.lease import lease_kept
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import item_errors
from ..plugin_utils.run.stage_results import StageResults


class ActionModule(LedgerAction):
    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        host = self.task_vars["inventory_hostname"]
        plain = StageResults(self, "instance_delete").read(TODO, host)
        todo, to_power_off = (plain["instances"], []) if plain else self.open_ledger().inspect(_todo, host)
        if not todo and not to_power_off:
            return {"changed": False}
        with lease_kept(self):
            cleaned = Cleaned(remove_instances(self, todo, {})[0], {}) if plain else clean_host(self, todo)
            problems, parts, _preexisting_uuids = cleaned
            powered_off = self._power_off(to_power_off) if to_power_off else {}
        done = [i["uuid"] for i in todo if i["uuid"] not in problems]
        unexpected = any(p.details.get("traceback") for p in problems.values())
        journalled = self.open_ledger().transact(delete.journal_unexpected, host, problems) if unexpected else []
        for uuid, problem in sorted(problems.items()):
            self._display.warning("Could not remove instance %s from %s: %s" % (uuid, host, problem.message))
        changed = bool(done) or bool(powered_off)
        removed = {
            "removed": done,
            "parts": {u: parts[u] for u in done if u in parts},
            "powered_off": powered_off,
            "problems": {u: p.as_dict() for u, p in problems.items()},
            "journalled": journalled,
        }
        StageResults(self, "instance_delete").leave(REMOVE, host, removed)
        return {"changed": changed}

    def _power_off(self, domains: list[dict[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        """Take the power of these guests. Returns uuid -> {power_state, error}."""
        try:
            result = self.run_module(
                "domain_power",
                {
                    **host_settings.libvirt_arguments(self),
                    "domains": domains,
                    "state": "shutdown",
                    "workers": host_settings.workers(self, len(domains)),
                },
            )
            problems = item_errors(result, [d["uuid"] for d in domains])
            # There is no guest that has power. source: Nova's _destroy
            problems = {u: p for u, p in problems.items() if not isinstance(p, errors.InstanceNotFound)}
            states = {uuid: outcome.get("power_state") for uuid, outcome in result["outcomes"].items()}
        except Exception as e:  # they fail, never the play
            problem = e if isinstance(e, errors.BootflowError) else self.unexpected(e)
            problems, states = {d["uuid"]: problem for d in domains}, {}
        frames = {u: p.details["traceback"] for u, p in problems.items() if p.details.get("traceback")}
        if frames:
            self.open_ledger().transact(history.note, frames, delete.SOFT_DELETE.name)
        shown = {uuid: problem.as_dict() for uuid, problem in problems.items()}
        return {d["uuid"]: {"power_state": states.get(d["uuid"]), "error": shown.get(d["uuid"])} for d in domains}


def _todo(tx: Transaction, host: str) -> tuple[list[dict[str, str]], list[dict[str, t.Any]]]:
    """Return the instances to remove from ``host``, and the instances to power off there."""
    return delete.of_host(tx, host), delete.to_power_off(tx, host)
