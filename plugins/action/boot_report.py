# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_report."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..plugin_utils.boot.report import BootReport
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import STATISTICS


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "uuids": {"type": "list", "elements": "str"},
        "phase": {"type": "str", "choices": ["end", "report", "report_if_finished"], "default": "report"},
        **FOLLOW.options(),
        **SCHEDULER.options("max_attempts"),
        **REQUEST.options("project"),
        "instances": REQUEST.named("instances").but(required=False),
        **RUN.options("admin_password_dir", "print_table"),
        **STATISTICS,
    }

    def act(self) -> dict[str, t.Any]:
        return BootReport(self).run()
