# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_drain."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import DRAIN
from ..plugin_utils.moves.drain import Drain
from ..plugin_utils.run.ledger_action import LedgerAction

# As playbooks/drain.yml registers the results of the stages.
STAGES = {
    "begin": "bootflow_drain_begun",
    "ask": "bootflow_drain_asks",
    "moved": "bootflow_drain_moved",
    "finish": "bootflow_drained",
}
# As live_migrate.yml and move.yml register the results of the migrations.
MIGRATIONS = {
    "live_begun": "bootflow_live_begun",
    "live_finished": "bootflow_live_finished",
    "cold_begun": "bootflow_move_begun",
    "cold_finished": "bootflow_move_finished",
}


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **DRAIN.options(),
        **REQUEST.options("pci_alias", "quotas", "instance_overhead", "default_availability_zone"),
        **SCHEDULER.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Drain(self, {**STAGES, **MIGRATIONS}).run()
