# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.compute_report."""

from __future__ import annotations

import functools
import typing as t

from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs
from ..plugin_utils.watch.fleet_reports import FleetReports
from ..plugin_utils.watch.host_report import HostReport

preload.load(functools.partial(host_programs.make_ready, "bootflow.compute.compute_node_info"))


class ActionModule(LedgerAction):
    ARGUMENTS = {"phase": {"type": "str", "choices": ["report", "ask", "write"], "default": "report"}}

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "write":
            return FleetReports(self).write()
        report = HostReport(self)
        return report.ask() if self.options["phase"] == "ask" else report.run()
