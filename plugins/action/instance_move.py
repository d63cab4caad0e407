# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_move."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import MOVE
from ..plugin_utils.moves.cold import OPERATION, ColdMove
from ..plugin_utils.run.ledger_action import LedgerAction

STAGES = ("check", "begin", "depart", "arrive", "switch", "settle", "back", "return", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "operation": {"type": "str", "choices": list(OPERATION), "required": True},
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **MOVE.options(),
        **FOLLOW.options(),
        **REQUEST.options("flavors", "pci_alias", "quotas", "instance_overhead", "default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return ColdMove(self, "instance_move").run()
