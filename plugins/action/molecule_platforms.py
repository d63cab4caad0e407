# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.molecule_platforms."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.molecule import MOLECULE
from ..plugin_utils.molecule import fleet_run
from ..plugin_utils.molecule.scenario import Scenario
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **MOLECULE.options(),
        **RUN_LIMIT,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }

    def act(self) -> dict[str, t.Any]:
        self.scenario = Scenario(os.environ)
        named = self.options["inventory"] or list(filter(None, [os.environ.get(fleet_run.ENVIRONMENT)]))
        inventories = fleet_run.find_inventories(named, self.scenario.base)
        run = self.options["run"] or os.environ.get("BOOTFLOW_MOLECULE_RUN") or ""
        project = self.scenario.project(run)
        if self.options["state"] == "absent":
            return self._delete(inventories, project)
        return self._boot(inventories, project)

    def _refuse_unmeant_ledger(self) -> None:
        """This opens no ledger: the run with the fleet's inventory does."""

    def _boot(self, inventories: list[str], project: str) -> dict[str, t.Any]:
        platforms = self.scenario.platforms(self.options["user"] or "", self.options["private_key_file"] or "")
        names = [platform.name for platform in platforms]
        with tempfile.TemporaryDirectory(prefix="bootflow-molecule-") as folder:
            path = os.path.join(folder, "guests.json")
            variables = {
                "bootflow_project": project,
                "bootflow_instances": [{**platform.fields, "name": platform.name} for platform in platforms],
                "bootflow_molecule_via": self.options["via"],
                "bootflow_molecule_guests_file": path,
            }
            fleet_run.run("molecule_guests", inventories, variables, self.check_mode, self._say)
            if self.check_mode:
                return {"changed": True, "project": project, "platforms": []}
            with open(path, encoding="utf-8") as stream:
                guests = json.load(stream)
        lacking = sorted(set(names) - set(guests))
        if lacking:
            raise errors.InvalidInput(
                message="no address leads to %s" % ", ".join(lacking),
                remedy="Give each platform a network with addresses in bootflow.networks.",
            )
        self.scenario.write(platforms, guests, self.options["wait"])
        return {"changed": True, "project": project, "platforms": names}

    def _delete(self, inventories: list[str], project: str) -> dict[str, t.Any]:
        variables = {"bootflow_project": project, "bootflow_delete_all": True, "bootflow_missing_ok": True}
        fleet_run.run("delete", inventories, variables, self.check_mode, self._say)
        if not self.check_mode:
            self.scenario.forget()
        return {"changed": True, "project": project, "platforms": []}

    def _say(self, line: str) -> None:
        tables.say(self._display, line)
