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

STAGES = ("check", "begin", "again", "look", "prepare", "migrate", "switch", "settle", "clean", "finish")


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
        return LiveMigration(self, "instance_live_migrate").run()
