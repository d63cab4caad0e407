# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.power_sync."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..plugin_utils.operations.power_sync import START, STOP, PowerSync
from ..plugin_utils.run.ledger_action import LedgerAction

# As playbooks/power_sync.yml registers the results of the stages.
BEGUN, ASKED, OTHERS = "bootflow_power_begun", "bootflow_power_asked", "bootflow_power_others"
SYNCED = "bootflow_operation_begun"  # instance_operation reads it
STAGES = {
    "begin": BEGUN,
    "ask": ASKED,
    "others": OTHERS,
    "sync": SYNCED,
    "resume": SYNCED,
    "finish": "bootflow_power_synced",
}
# The results of instance_operation.
OPERATED, RESUMED = "bootflow_operated", "bootflow_resumed"


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return PowerSync(self, {**STAGES, STOP: OPERATED, START: RESUMED}).run()
