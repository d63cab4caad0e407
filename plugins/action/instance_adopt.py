# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_adopt."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import CATALOGUE, QUOTA
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import ADOPTION
from ..plugin_utils.adopt.adopt import Adoption
from ..plugin_utils.run.ledger_action import LedgerAction

STAGES = ("begin", "ask", "decide", "mark", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **ADOPTION.options(),
        **CATALOGUE.options("networks"),
        **QUOTA.options("project"),
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Adoption(self, "instance_adopt").run()
