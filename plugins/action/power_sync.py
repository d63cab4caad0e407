# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.power_sync."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.watch.power_sync import PowerSync

STAGES = ("begin", "ask", "others", "sync", "resume", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return PowerSync(self, "power_sync").run()
