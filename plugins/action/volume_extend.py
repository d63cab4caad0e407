# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.volume_extend."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.volumes import VOLUME, VOLUME_SCHEDULER, VOLUME_WORK
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.volumes.volume_extend import extend_volumes

STAGES = ("select", "begin")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **VOLUME_WORK.options("volumes"),
        **VOLUME.options(),
        **VOLUME_SCHEDULER.options(),
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **RUN.options("facts_max_age"),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return extend_volumes(self)
