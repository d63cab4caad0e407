# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.audit."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import AUDIT
from ..plugin_utils.audit.audit import Audit
from ..plugin_utils.run.ledger_action import LedgerAction

STAGES = ("begin", "inspect", "repair", "clean", "unexport", "release", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **AUDIT.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Audit(self, "audit").run()
