# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_release."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import INSTANCES
from ..plugin_utils.adopt.release import Release
from ..plugin_utils.run.ledger_action import LedgerAction

STAGES = ("begin", "unmark", "finish")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **INSTANCES.options(),
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Release(self, "instance_release").run()
