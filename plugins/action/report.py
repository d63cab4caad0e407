# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.report."""

from __future__ import annotations

import typing as t

from ansible import constants

from ..module_utils.core.reading.problems import Problems
from ..module_utils.core.report.page import page
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.core.settings.selection import REPORT
from ..plugin_utils.metrics.output_file import OutputFile
from ..plugin_utils.report import questions
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import diff
from ..plugin_utils.settings import scheduler_settings, variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **REPORT.options(),
        **REQUEST.options(*questions.OF_FLAVORS),
        **SCHEDULER.options(),
        **READS,
        **RUN_LIMIT,
    }

    def check_settings(self, problems: Problems) -> None:
        scheduler_settings.check(self, problems)

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        file = OutputFile(
            self.options["path"],
            variable="bootflow_report_file",
            suffix=".html",
            remedy_for_name="Name a file that browsers open, for example fleet.html.",
            remedy_for_folder="Make it, or name a file in another folder.",
        )
        file.check()
        scheduler_settings.check(self)
        report = questions.figures(self)
        text, before = page(report), file.read()
        if text != before and not self.check_mode:
            file.write(text)
        return {
            "changed": text != before,
            "path": file.path,
            "size": len(text.encode("utf-8")),
            "request_id": None if report.run is None else report.run.request_id,
            "plan": None if report.plan is None else report.plan.id,
            "n_plus_1": None if report.losses is None else not any(loss.stuck for loss in report.losses),
            "diff": _diff(file.path, before or "", text),
        }


def _diff(path: str, before: str, after: str) -> dict[str, t.Any]:
    """The diff of the page. Ansible says of what is larger than its limit that it is left out."""
    most = constants.MAX_FILE_SIZE_FOR_DIFF
    return {"src_larger": most} if max(len(before), len(after)) > most else diff(path, before, after)
