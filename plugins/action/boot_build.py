# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_build."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import CATALOGUE, REQUEST
from ..plugin_utils.boot.host_builds import HostBuilds
from ..plugin_utils.builds import handover
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {**CATALOGUE.options("images"), **REQUEST.options("instances", "project")}

    idle = False

    def prepare(self, task_vars: t.Mapping[str, t.Any]) -> None:
        # Another run may have taken over what was to be built here.
        self.idle = not self.check_mode and handover.is_idle(self, task_vars["inventory_hostname"])
        if not self.idle:
            super().prepare(task_vars)

    def act(self) -> dict[str, t.Any]:
        if self.idle:
            return {"changed": False, "builds": [], "failed_builds": []}
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        return HostBuilds(self).run()
