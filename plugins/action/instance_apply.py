# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_apply."""

from __future__ import annotations

import typing as t

from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.settings.apply import APPLY
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..plugin_utils.apply.apply import Apply
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.settings import boot_volume_settings, scheduler_settings

STAGES = ("ask", "begin", "follow", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        **SCHEDULER.options(),
        **boot_volume_settings.ARGUMENTS,
        **APPLY.options(),
        "phase": {"type": "str", "choices": ["plan", *STAGES], "default": "plan"},
        "ask": {"type": "bool", "default": True},
        "open_ledger": {"type": "bool", "default": False},
        **RUN_LIMIT,
        **RUN.options("print_table"),
    }

    def check_settings(self, problems: Problems) -> None:
        scheduler_settings.check(self, problems)

    def act(self) -> dict[str, t.Any]:
        return Apply(self).run()
