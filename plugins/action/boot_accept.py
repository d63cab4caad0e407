# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_accept."""

from __future__ import annotations

import typing as t

from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..plugin_utils.boot.accept import BootAccept
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import STATISTICS
from ..plugin_utils.settings import boot_volume_settings, scheduler_settings
from ..plugin_utils.startup import preload

preload.load(preload.action("boot_schedule"), "numpy")


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REQUEST.options(),
        **FOLLOW.options(),
        **SCHEDULER.options(),
        **boot_volume_settings.ARGUMENTS,
        **RUN.options("admin_password_dir", "facts_max_age", "print_table"),
        **STATISTICS,
    }

    def check_settings(self, problems: Problems) -> None:
        scheduler_settings.check(self, problems)

    def act(self) -> dict[str, t.Any]:
        return BootAccept(self).run()
