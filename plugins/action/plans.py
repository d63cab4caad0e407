# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.plans."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.plans import PLAN_DISCARD
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.plans.listing import PlanListing
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {**PLAN_DISCARD.options(), **RUN.options("print_table"), **RUN_LIMIT}

    def act(self) -> dict[str, t.Any]:
        return PlanListing(self).run()
