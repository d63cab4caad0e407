# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.storage_report."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.ledger.storage import backends
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.stage_results import StageResults
from ..plugin_utils.settings import storage_settings
from ..plugin_utils.volumes import storage_reports


class ActionModule(LedgerAction):
    def act(self) -> dict[str, t.Any]:
        report = self._report()
        if self.check_mode:  # otherwise the ledger has it
            StageResults(self, "storage_report").leave("report", self.task_vars["inventory_hostname"], report)
        return report

    def _report(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        configurations = storage_settings.of_host(self, host)
        ledger = self.rehearsal_ledger() if self.check_mode else self.open_ledger()
        try:
            facts = storage_reports.ask(self, ledger, configurations)["backends"]
        except errors.BootflowError as e:
            if not self.check_mode:
                why = storage_reports.why_silent(host, e.message)
                ledger.transact(backends.record_unreachable, host, why)
            self._display.warning("%s did not report and is left out: %s" % (host, e.message))
            return {"changed": False, "reported": False, "error": e.as_dict()}
        reported = [storage_reports.backend_data(c, facts.get(c["name"])) for c in configurations]
        for report in reported:
            if report["error"]:
                self._display.warning("%s is left out: %s" % (report["pool_host"], report["error"]["message"]))
        if not self.check_mode:
            volumes_by_backend = {name: (answer or {}).get("volumes") or () for name, answer in facts.items()}
            reports = [
                storage_reports.report_of(report, volumes_by_backend.get(report["name"], ())) for report in reported
            ]
            ledger.transact(backends.record_report, host, reports)
        return {"changed": False, "reported": True, "backends": reported}
