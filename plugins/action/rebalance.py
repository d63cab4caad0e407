# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.rebalance."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.rebalance import REBALANCE
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..plugin_utils.rebalance.rebalancing import Rebalancing
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REBALANCE.options(),
        **REQUEST.options("default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("print_table", "facts_max_age"),
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        return Rebalancing(self).run()
