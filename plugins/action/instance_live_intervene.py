# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_live_intervene."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import INSTANCES
from ..module_utils.flows.moves.live_life import INTERVENTIONS
from ..plugin_utils.moves.intervene import Intervention
from ..plugin_utils.run.ledger_action import LedgerAction

# As playbooks/live_migration_abort.yml and live_migration_force_complete.yml register the results of the stages.
STAGES = ("begin", "work", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "operation": {"type": "str", "choices": list(INTERVENTIONS), "required": True},
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **INSTANCES.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Intervention(self, "instance_live_intervene").run()
