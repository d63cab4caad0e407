# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_live_migrate."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.live import LIVE_TARGET
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import INSTANCES
from ..plugin_utils.moves.live import LiveMigration
from ..plugin_utils.run.ledger_action import LedgerAction

# As playbooks/live_migrate.yml registers the results of the stages.
BEGUN, LOOKED, PREPARED = "bootflow_live_begun", "bootflow_live_looked", "bootflow_live_prepared"
MIGRATED, SWITCHED = "bootflow_live_migrated", "bootflow_live_switched"
SETTLED, CLEANED = "bootflow_live_settled", "bootflow_live_cleaned"
STAGES = {
    "check": "bootflow_live_checked",
    "begin": BEGUN,
    "again": BEGUN,
    "look": LOOKED,
    "prepare": PREPARED,
    "migrate": MIGRATED,
    "switch": SWITCHED,
    "settle": SETTLED,
    "clean": CLEANED,
    "finish": "bootflow_live_finished",
}


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **INSTANCES.options(),
        **LIVE_TARGET.options(),
        **REQUEST.options("default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return LiveMigration(self, STAGES).run()
