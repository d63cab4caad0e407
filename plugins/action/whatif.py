# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.whatif."""

from __future__ import annotations

import typing as t

from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import WHATIF
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.scheduling.whatif import WhatIf
from ..plugin_utils.settings import scheduler_settings


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        "instances": REQUEST.named("instances").but(required=False),
        **SCHEDULER.options(),
        **WHATIF.options(),
        **RUN.options("print_table"),
        **RUN_LIMIT,
    }

    def check_settings(self, problems: Problems) -> None:
        scheduler_settings.check(self, problems)

    def act(self) -> dict[str, t.Any]:
        return WhatIf(self).answer()
