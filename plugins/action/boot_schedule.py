# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_schedule."""

from __future__ import annotations

import functools
import typing as t

from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import CATALOGUE, REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..plugin_utils.boot.schedule import BootSchedule
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import boot_volume_settings
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs

# In the order of need.
preload.load(
    preload.action("boot_build"),
    "lxml.etree",
    functools.partial(host_programs.make_ready, "bootflow.compute.instance_build"),
    *map(preload.action, ("boot_report", "boot_passwords")),
)


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        **FOLLOW.options(),
        **CATALOGUE.options("images"),
        "round": {"type": "int", "default": 1},
        "phase": {"type": "str", "choices": ["refresh", "schedule"], "default": "schedule"},
        **SCHEDULER.options(),
        **boot_volume_settings.ARGUMENTS,
        **RUN.options("facts_max_age", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return BootSchedule(self).run()
