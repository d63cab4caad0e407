# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_console."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import CONSOLE
from ..plugin_utils.devices.console import Consoles
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction

STAGES = ("begin", "work", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **CONSOLE.options(),
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("print_table"),
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        return Consoles(self, "instance_console").run()
