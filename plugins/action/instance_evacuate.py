# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_evacuate."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import INSTANCES
from ..plugin_utils.moves.evacuate import Evacuation
from ..plugin_utils.run.ledger_action import LedgerAction

STAGES = ("check", "begin", "build", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **INSTANCES.options(),
        **REQUEST.options("default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Evacuation(self, "instance_evacuate").run()
